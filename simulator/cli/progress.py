"""Progress bars on standard error for what takes more than two seconds."""

from __future__ import annotations

import time
from collections.abc import Callable

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

PATIENCE_S = 2.0


class Bars:
    """Bars while a block runs; nothing is shown before two seconds, nor where no terminal is."""

    def __init__(self) -> None:
        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
        self._console = Console(stderr=True)
        self._bars = Progress(*columns, console=self._console, transient=True)
        self._begun_s = time.monotonic()
        self._shown = False

    def __enter__(self) -> Bars:
        return self

    def __exit__(self, *error: object) -> None:
        if self._shown:
            self._bars.stop()

    def bar(self, name: str, total: int | None) -> Callable[[int], None]:
        """A callback that takes the number of whatever is counted that is done."""
        task = self._bars.add_task(name, total=total)

        def show(done: int) -> None:
            if self._console.is_terminal and not self._shown and self._late():
                self._shown = True
                self._bars.start()
            self._bars.update(task, completed=done)

        return show

    def _late(self) -> bool:
        return time.monotonic() - self._begun_s > PATIENCE_S
