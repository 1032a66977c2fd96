"""The Azure LLM inference traces of 2023, 2024 and 2025 (Azure Public Dataset, CC-BY-4.0).

Three forms of time occur: ``2023-11-16 18:17:03.9799600``, ``2024-05-12 00:00:00.001163+00:00`` (no
fraction where it is zero) and ``2024-10-15T12:00:00.269Z``.
"""

from __future__ import annotations

import re
from datetime import date
from typing import ClassVar

from simulator.errors import InputError
from simulator.workload.traces.values import DIGIT_NS, shown

_TIME = re.compile(
    r"([0-9]{4})-([0-9]{2})-([0-9]{2})[ T]([0-9]{2}):([0-9]{2}):([0-9]{2})(?:\.([0-9]+))?"
    r" ?(?:(Z)|([+-])([0-9]{2}):?([0-9]{2}))?",
    re.ASCII,
)
_SLASHES = re.compile(r"\s*[0-9]{1,2}[/.][0-9]{1,2}[/.][0-9]{2,4}\b.*", re.ASCII)
_NUMBER = re.compile(r"\s*[0-9]+(?:\.[0-9]*)?\s*", re.ASCII)
_SECONDS_NS = {f"{second:02d}": second * 1_000_000_000 for second in range(60)}
_MINUTES_KEPT = 100_000
_YEARS = range(1970, 2262)


class Azure:
    """Times are ISO dates, in UTC where they do not say otherwise."""

    name: ClassVar[str] = "azure"
    columns: ClassVar[tuple[str, str, str]] = ("TIMESTAMP", "ContextTokens", "GeneratedTokens")

    def __init__(self) -> None:
        self._minutes_ns: dict[str, int] = {}
        self._naive = 0
        self._aware = 0

    def time_ns(self, text: str) -> int:
        """Nanoseconds since 1970 in UTC, rounded beyond the ninth digit of the fraction."""
        minute_ns = self._minutes_ns.get(text[:17])
        second_ns = _SECONDS_NS.get(text[17:19])
        if minute_ns is None or second_ns is None or text[19:20] != ".":
            return self._any_time_ns(text)
        fraction, aware = text[20:], True
        if fraction.endswith("+00:00"):
            fraction = fraction[:-6]
        elif fraction.endswith("Z"):
            fraction = fraction[:-1]
        else:
            aware = False
        if not (fraction.isdigit() and fraction.isascii() and len(fraction) < 10):
            return self._any_time_ns(text)
        self._count(aware)
        return minute_ns + second_ns + int(fraction) * DIGIT_NS[len(fraction)]

    def _any_time_ns(self, text: str) -> int:
        match = _TIME.fullmatch(text.strip(" \t"))
        if match is None:
            raise _not_a_time(text)
        year, month, day, hour, minute, second, fraction, utc, sign, offset_hours, offset_minutes = (
            match.groups()
        )
        local_ns = _minute_ns(text, year, month, day, hour, minute)
        if second not in _SECONDS_NS:
            raise InputError(f"{shown(text)}: seconds go from 0 to 59; leap seconds are not read")
        self._count(utc is not None or sign is not None)
        offset_ns = _offset_ns(text, sign, offset_hours, offset_minutes) if sign else 0
        self._keep(text, local_ns)
        return local_ns + _SECONDS_NS[second] + _fraction_ns(fraction or "0") - offset_ns

    def _keep(self, text: str, minute_ns: int) -> None:
        """Remember a minute as it was written, if the text starts with it."""
        if len(self._minutes_ns) >= _MINUTES_KEPT:
            self._minutes_ns.clear()
        if text[:1].isdigit():
            self._minutes_ns[text[:17]] = minute_ns

    def _count(self, aware: bool) -> None:
        if aware:
            self._aware += 1
        else:
            self._naive += 1

    def warnings(self) -> list[str]:
        """What was odd about the times."""
        if self._naive and self._aware:
            return [
                f"times without an offset from UTC, among others that have one: {self._naive}, read as UTC"
            ]
        return []


def _minute_ns(text: str, year: str, month: str, day: str, hour: str, minute: str) -> int:
    if int(year) not in _YEARS:
        raise InputError(f"{shown(text)}: the year is out of range")
    try:
        days = date(int(year), int(month), int(day)).toordinal() - date(1970, 1, 1).toordinal()
    except ValueError as error:
        raise InputError(f"{shown(text)}: {error}") from None
    if int(hour) > 23 or int(minute) > 59:
        raise InputError(f"{shown(text)} is not a time of day")
    return ((days * 24 + int(hour)) * 60 + int(minute)) * 60_000_000_000


def _fraction_ns(digits: str) -> int:
    kept, beyond = digits[:9], digits[9:10]
    return int(kept) * DIGIT_NS[len(kept)] + (1 if beyond >= "5" else 0)


def _offset_ns(text: str, sign: str, hours: str, minutes: str) -> int:
    if int(hours) > 23 or int(minutes) > 59:
        raise InputError(f"{shown(text)} has no valid offset from UTC")
    size_ns = (int(hours) * 60 + int(minutes)) * 60_000_000_000
    return -size_ns if sign == "-" else size_ns


def _not_a_time(text: str) -> InputError:
    if not text.strip():
        return InputError("blank where a time is due")
    if text.strip().lower() == Azure.columns[0].lower():
        return InputError("the header again", remedy="were two files joined? remove the second header")
    if _SLASHES.fullmatch(text):
        return InputError(
            f"{shown(text)}: day and month cannot be told apart",
            remedy="write 2023-11-16 18:17:03.979; a spreadsheet may have dropped the seconds too",
        )
    if _NUMBER.fullmatch(text):
        return InputError(
            f"{shown(text)} is a number, not a date and time",
            remedy="write 2023-11-16 18:17:03.979; a spreadsheet may have saved a serial day",
        )
    return InputError(f"{shown(text)} is not a date and time", remedy="write 2023-11-16 18:17:03.979")
