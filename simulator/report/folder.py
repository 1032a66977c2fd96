"""A folder of results that is whole or not there."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from simulator.errors import InputError

OPTION = "--out"
RESULT, REQUESTS, LINKS, REPORT, PLOTS = "result.json", "requests.csv", "links.csv", "report.md", "plots"


@contextmanager
def result_folder(path: Path, *, force: bool) -> Iterator[Path]:
    """An empty folder to write into, which becomes ``path`` when the block ends without an error.

    Raises InputError before the block where ``path`` cannot be written, or holds something: a result is
    replaced under ``force``, anything else never.
    """
    target = path.absolute()
    _refuse(path, target, force)
    partial = target.with_name(f".{target.name}.{os.getpid()}.partial")
    try:
        partial.mkdir(parents=True)
    except OSError as error:
        raise InputError(_reason(error), file=path, field=OPTION) from None
    try:
        yield partial
        _replace(partial, target)
    except OSError as error:
        raise InputError(_reason(error), file=path, field=OPTION) from error
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def _refuse(path: Path, target: Path, force: bool) -> None:
    if not target.exists():
        return
    if target.is_symlink() or not target.is_dir():
        raise InputError("is no folder", file=path, field=OPTION, remedy="name a folder")
    entries = sorted(target.iterdir())
    others = [entry.name for entry in entries if not _is_ours(entry)]
    if others:
        raise InputError(
            f"holds {others[0]}, which is no part of a result",
            file=path,
            field=OPTION,
            remedy="name another folder",
        )
    if entries and not force:
        raise InputError(
            "holds a result",
            file=path,
            field=OPTION,
            remedy="use --force to replace it, or name another folder",
        )


def _is_ours(entry: Path) -> bool:
    """Part of a result: a file that llmsim writes, or a folder that holds nothing else."""
    if entry.name == RESULT:
        return '"llmsim"' in entry.read_text(encoding="utf-8", errors="replace")
    if entry.name in (REQUESTS, LINKS, REPORT):
        return (entry.parent / RESULT).is_file()
    if not entry.is_dir() or entry.is_symlink():
        return False
    inside = list(entry.iterdir())
    if entry.name == PLOTS:
        return all(one.suffix in (".png", ".svg") for one in inside)
    return (entry / RESULT).is_file() and all(one.name in (RESULT, REQUESTS, LINKS) for one in inside)


def _replace(partial: Path, target: Path) -> None:
    """Put the new folder in the place of the old one, which is removed only then."""
    if not target.exists():
        partial.rename(target)
        return
    old = target.with_name(f".{target.name}.{os.getpid()}.old")
    target.rename(old)
    try:
        partial.rename(target)
    except BaseException:
        old.rename(target)
        raise
    shutil.rmtree(old, ignore_errors=True)


def _reason(error: OSError) -> str:
    return error.strerror or "cannot be written"
