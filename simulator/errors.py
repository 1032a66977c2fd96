"""What a user is told when an input cannot be used."""

from __future__ import annotations

from difflib import get_close_matches
from pathlib import Path


class InputError(Exception):
    """An input that cannot be used: where it stands, why, and what to do.

    Printed as ``FILE:LINE:FIELD: reason; remedy``; the parts that are unknown are left out.
    The command line turns it into exit status 2.
    """

    def __init__(
        self,
        reason: str,
        *,
        file: str | Path | None = None,
        line: int | None = None,
        field: str | None = None,
        remedy: str | None = None,
    ) -> None:
        self.reason = reason
        self.file = None if file is None else str(file)
        self.line = line
        self.field = field
        self.remedy = remedy
        super().__init__(str(self))

    def __str__(self) -> str:
        where = ":".join(str(part) for part in (self.file, self.line, self.field) if part is not None)
        text = f"{where}: {self.reason}" if where else self.reason
        return f"{text}; {self.remedy}" if self.remedy else text


class PhysicsError(Exception):
    """A result that beats a physical bound: a bug of the simulator, never of the user."""


def nearest(name: str, known: list[str]) -> str:
    """A remedy that lists the known names most like ``name``."""
    close = get_close_matches(name, known, n=3, cutoff=0.4) or sorted(known)
    return "did you mean " + ", ".join(close[:8]) + "?"
