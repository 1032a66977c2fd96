"""The command ``llmsim``. Each subcommand is a module that is imported when it is asked for."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from importlib import import_module
from typing import Any, NoReturn, cast

import click

from simulator import __version__
from simulator.errors import InputError, PhysicsError, nearest

COMMANDS = {
    "run": "Serve a workload on one system and report what happened.",
    "compare": "Serve the same traffic on several systems.",
    "elasticity": "What each part of a system would buy if it were a tenth faster.",
    "waterfall": "What makes the difference between two systems, one class of properties at a time.",
    "catalog": "List and show what comes with the package.",
    "topology": "Show the facts of a system's graph, or draw it.",
}

FAILED = 1
BAD_INPUT = 2
INTERRUPTED = 130


class LazyGroup(click.Group):
    """A group that imports a subcommand only when it is asked for, and prints errors as one line.

    Exit status: 0 done, 1 a result that beats physics, 2 bad input, 130 interrupted.
    """

    def list_commands(self, ctx: click.Context) -> list[str]:
        """The subcommands in the order of the help."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The subcommand of that name."""
        if cmd_name not in COMMANDS:
            raise click.UsageError(f"no command {cmd_name!r}; {nearest(cmd_name, list(COMMANDS))}", ctx)
        return cast(click.Command, import_module(f"simulator.cli.{cmd_name}").command)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The list of subcommands, without importing them."""
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))

    def main(self, args: Sequence[str] | None = None, *rest: Any, **options: Any) -> NoReturn:
        """Run the command line and exit; whatever goes wrong is one line on standard error."""
        sys.exit(self._status(args))

    def _status(self, args: Sequence[str] | None) -> int:
        try:
            status = super().main(args, prog_name="llmsim", standalone_mode=False)
            sys.stdout.flush()
        except InputError as error:
            return _fail(str(error), BAD_INPUT)
        except click.UsageError as error:
            return _fail(_usage(error), BAD_INPUT)
        except click.ClickException as error:
            return _fail(error.format_message(), BAD_INPUT)
        except PhysicsError as error:
            return _fail(f"{error}; this is a bug of llmsim, please report it", FAILED)
        except (click.Abort, KeyboardInterrupt):
            return _fail("interrupted", INTERRUPTED)
        except BrokenPipeError:
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            return FAILED
        return status if isinstance(status, int) else 0


def _fail(message: str, status: int) -> int:
    print(f"llmsim: error: {message}", file=sys.stderr)
    return status


def _usage(error: click.UsageError) -> str:
    message = error.format_message().rstrip(".")
    command = "llmsim" if error.ctx is None else error.ctx.command_path
    return f"{message}; '{command} --help' shows what there is"


@click.group(cls=LazyGroup, no_args_is_help=False, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="llmsim")
def main() -> None:
    """Simulate LLM serving clusters: what a topology does with a workload, how well, and why.

    \b
    llmsim compare hgx-h200-8 gb300-nvl72
    llmsim run --topology hgx-h200-8 --model llama-3.1-70b --trace my.csv --out out/mine
    """
