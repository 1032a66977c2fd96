"""A progress bar on standard error for what takes more than two seconds."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

PATIENCE_S = 2.0


class Bars:
    """One bar per system; nothing is shown before two seconds, nor where no terminal is."""

    def __init__(self, bars: Progress) -> None:
        self._bars = bars
        self._begun_s = time.monotonic()
        self._shown = False

    def bar(self, name: str, total: int | None) -> Callable[[int], None]:
        """A callback that takes the number of requests ended so far."""
        task = self._bars.add_task(name, total=total)

        def show(ended: int) -> None:
            if not self._shown and time.monotonic() - self._begun_s > PATIENCE_S:
                self._shown = True
                self._bars.start()
            self._bars.update(task, completed=ended)

        return show


@contextmanager
def bars() -> Iterator[Bars | None]:
    """Bars while the block runs; None where standard error is not a terminal."""
    if not sys.stderr.isatty():
        yield None
        return
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    progress = Progress(*columns, console=Console(stderr=True), transient=True)
    try:
        yield Bars(progress)
    finally:
        progress.stop()
