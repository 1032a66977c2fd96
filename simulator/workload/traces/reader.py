"""Reads a trace once, checks every row, and keeps it in 16 bytes a request."""

from __future__ import annotations

import csv
from array import array
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Protocol

import numpy as np
from numpy.typing import NDArray

from simulator.errors import InputError
from simulator.workload.arrays import Floats
from simulator.workload.traces.azure import Azure
from simulator.workload.traces.lines import Lines, open_binary
from simulator.workload.traces.native import Native
from simulator.workload.traces.values import shown, tokens

if TYPE_CHECKING:
    from _csv import Reader

REORDER_ROWS = 100_000
"""Rows read beyond a limit, in case one of them comes earlier in time."""


class Format(Protocol):
    """How one kind of trace names its columns and writes its times."""

    name: ClassVar[str]
    columns: ClassVar[tuple[str, str, str]]
    """Time, prompt tokens, output tokens."""

    def time_ns(self, text: str) -> int:
        """Whole nanoseconds on the clock of the trace."""

    def warnings(self) -> list[str]:
        """What was odd about the times."""


FORMATS: dict[str, type[Azure] | type[Native]] = {kind.name: kind for kind in (Azure, Native)}


@dataclass(frozen=True)
class Trace:
    """Requests of a trace in order of time, the first at 0; rows of equal time keep their order."""

    arrival_s: Floats
    tokens: NDArray[np.int32]
    """Shape (requests, 2): prompt, output."""
    warnings: tuple[str, ...]


def read_trace(path: Path, format_name: str = "auto", limit: int | None = None) -> Trace:
    """The first ``limit`` requests of a trace in time, or all.

    With a limit, rows that come more than REORDER_ROWS rows late in the file are not looked for.
    Raises InputError with file, line and field.
    """
    with open_binary(path) as file:
        table = _Table(path, Lines(file, path), format_name)
        rows = table.read(None if limit is None else limit + REORDER_ROWS)
    if not rows.times_ns:
        reason = f"no requests: all {rows.zeros} rows have zero tokens" if rows.zeros else "no data rows"
        raise InputError(reason, file=path)
    trace = _in_order(rows, limit, table.warnings(rows))
    return replace(trace, warnings=tuple(f"{path}: {warning}" for warning in trace.warnings))


@dataclass
class _Rows:
    """Columns as they are read, and the rows left out."""

    times_ns: array[int] = field(default_factory=lambda: array("q"))
    tokens: array[int] = field(default_factory=lambda: array("i"))
    zero_inputs: int = 0
    zero_outputs: int = 0

    @property
    def zeros(self) -> int:
        return self.zero_inputs + self.zero_outputs


class _Table:
    """A CSV whose header says which format it is."""

    def __init__(self, path: Path, lines: Lines, format_name: str) -> None:
        self._path = path
        self._lines = lines
        self._reader = self._csv(iter(lines))
        self._header = [name.strip() for name in next(self._rows())]
        self._format = self._detected(format_name)
        self._places = [self._place(name) for name in self._format.columns]

    def _csv(self, lines: Iterator[str]) -> Reader:
        """The reader, set before the header; the header alone tells the delimiter."""
        for line in lines:
            if line.strip():
                delimiter = "\t" if "\t" in line and "," not in line else ","
                return csv.reader(chain([line], lines), delimiter=delimiter, strict=True)
            self._lines.skipped += 1
        raise InputError("no data rows: only blank lines", file=self._path)

    def _detected(self, format_name: str) -> Format:
        candidates = FORMATS if format_name == "auto" else {format_name: FORMATS[format_name]}
        found = {name.lower() for name in self._header}
        missing = {
            kind: [column for column in kind.columns if column.lower() not in found]
            for kind in candidates.values()
        }
        best = min(missing, key=lambda kind: len(missing[kind]))
        if missing[best]:
            whole = len(missing[best]) == len(best.columns)
            raise self._unknown(missing[best][0], list(candidates), None if whole else missing[best][0])
        return best()

    def _unknown(self, missing: str, tried: list[str], field_name: str | None) -> InputError:
        found = ", ".join(shown(name) for name in self._header[:8])
        wanted = "; ".join(f"{name} (columns {', '.join(FORMATS[name].columns)})" for name in tried)
        lead = f"no column {missing}" if field_name else "the first line is not the header of a trace"
        return InputError(
            f"{lead}; columns found: {found}; formats tried: {wanted}",
            file=self._path,
            line=self._line(),
            field=field_name,
        )

    def _place(self, column: str) -> int:
        """Which field of a row holds a column."""
        places = [place for place, name in enumerate(self._header) if name.lower() == column.lower()]
        if len(places) > 1:
            raise InputError(
                "column given twice",
                file=self._path,
                line=self._line(),
                field=column,
                remedy="rename or remove one",
            )
        return places[0]

    def read(self, limit: int | None) -> _Rows:
        """All rows, or as many as ``limit``; those without prompt or output are only counted."""
        rows = _Rows()
        time_ns = self._format.time_ns
        add_time, add_tokens = rows.times_ns.append, rows.tokens.append
        at, prompt, output = self._places
        width = len(self._header)
        for row in self._rows():
            if len(row) != width:
                if "".join(row).strip():
                    raise self._explained(row)
                continue
            try:
                arrival_ns = time_ns(row[at])
                input_tokens, output_tokens = tokens(row[prompt]), tokens(row[output])
            except InputError:
                raise self._explained(row) from None
            if input_tokens and output_tokens:
                add_time(arrival_ns)
                add_tokens(input_tokens)
                add_tokens(output_tokens)
            else:
                rows.zero_inputs += not input_tokens
                rows.zero_outputs += bool(input_tokens)
            if len(rows.times_ns) == limit:
                break
        return rows

    def _rows(self) -> Iterator[list[str]]:
        try:
            yield from self._reader
        except csv.Error as error:
            raise InputError(f"is not CSV: {error}", file=self._path, line=self._line()) from None

    def _explained(self, row: list[str]) -> InputError:
        """What is wrong with a row, and where."""
        line = self._line() - sum(cell.count("\n") for cell in row)
        if len(row) != len(self._header):
            reason = f"field count {len(row)}, want {len(self._header)}"
            return InputError(reason, file=self._path, line=line)
        readers = (self._format.time_ns, tokens, tokens)
        for column, place, read in zip(self._format.columns, self._places, readers, strict=True):
            try:
                read(row[place])
            except InputError as error:
                return InputError(error.reason, file=self._path, line=line, field=column, remedy=error.remedy)
        raise AssertionError("a row was refused that has nothing wrong")

    def _line(self) -> int:
        """Line of the file that the reader stands at."""
        return self._lines.skipped + self._reader.line_num

    def warnings(self, rows: _Rows) -> list[str]:
        """One line for each kind of oddity, counted."""
        extra = [shown(name) for place, name in enumerate(self._header) if place not in self._places]
        return [
            *([f"columns ignored: {', '.join(extra)}"] if extra else []),
            *_counted(rows.zero_inputs, "with zero input tokens skipped"),
            *_counted(rows.zero_outputs, "with zero output tokens skipped"),
            *self._format.warnings(),
        ]


def _counted(count: int, what: str) -> list[str]:
    return [f"{count} {'row' if count == 1 else 'rows'} {what}"] if count else []


def _in_order(rows: _Rows, limit: int | None, warnings: list[str]) -> Trace:
    """Sort by time, rows of equal time as they stand; the earliest becomes 0."""
    times_ns = np.frombuffer(rows.times_ns, dtype=np.int64)
    pairs = np.frombuffer(rows.tokens, dtype=np.int32).reshape(-1, 2)
    gaps_ns = np.diff(times_ns)
    back = int((gaps_ns < 0).sum())
    if back:
        order = np.argsort(times_ns, kind="stable")
        times_ns, pairs = times_ns[order], pairs[order]
        step_s = -float(gaps_ns.min()) / 1e9
        warnings = [*warnings, *_counted(back, f"earlier than the row before, by up to {step_s:g} s: sorted")]
    return Trace((times_ns - times_ns[0])[:limit] / 1e9, pairs[:limit], tuple(warnings))
