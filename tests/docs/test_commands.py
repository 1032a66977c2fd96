"""Every command that README and docs print is run."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path

import pytest
from click.testing import CliRunner

from simulator.cli import main
from tests.cost_examples import LLAMA_8B

ROOT = Path(__file__).parents[2]
PAGES = [
    ROOT / "README.md",
    *sorted((ROOT / "docs").glob("*.md")),
    *sorted((ROOT / "reports").glob("*/README.md")),
]
COMMAND = re.compile(r"^(?:    |\$ )?(llmsim .*)$", re.MULTILINE)


def _commands() -> list[tuple[str, str]]:
    found = []
    for page in PAGES:
        text = re.sub(r"\\\n\s*", "", page.read_text())  # lines that go on
        blocks = re.findall(r"```(?:sh|console)?\n(.*?)```", text, re.DOTALL)
        indented = ["\n".join(line for line in text.splitlines() if line.startswith("    "))]
        for block in blocks + indented:
            found += [(page.name, command) for command in COMMAND.findall(block)]
    return list(dict.fromkeys(found))


def test_the_pages_print_commands() -> None:
    assert len(_commands()) >= 8


def _write_user_files(folder: Path) -> None:
    """The trace, model and system that the pages call the user's own, and named YAML that they print."""
    for page in PAGES:
        for name, text in re.findall(r"```yaml\n# (\S+\.yaml)\n(.*?)```", page.read_text(), re.DOTALL):
            (folder / name).write_text(text)
    (folder / "my-trace.csv").write_text("arrival_s,input_tokens,output_tokens\n0.0,100,10\n0.5,2000,50\n")
    (folder / "my-box.yaml").write_text((ROOT / "topologies" / "hgx-h200-8.yaml").read_text())
    for path in (folder / "my-model" / "config.json", folder / "path" / "to" / "config.json"):
        path.parent.mkdir(parents=True)
        path.write_text(json.dumps(LLAMA_8B))


@pytest.mark.parametrize(("page", "command"), _commands())
def test_a_printed_command_works(
    page: str, command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Run in an empty folder that holds the user's files that the pages speak of."""
    monkeypatch.chdir(tmp_path)
    _write_user_files(tmp_path)
    arguments = shlex.split(command, comments=True)[1:]
    result = CliRunner().invoke(main, arguments, catch_exceptions=False)
    assert result.exit_code == 0, result.output
