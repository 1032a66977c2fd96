"""The native format: ``arrival_s,input_tokens,output_tokens``, seconds on any clock."""

from __future__ import annotations

from decimal import ROUND_HALF_EVEN
from typing import ClassVar

from simulator.errors import InputError
from simulator.workload.traces.values import DIGIT_NS, decimal, shown

_LATEST_S = 4_000_000_000


class Native:
    """Times are decimal seconds."""

    name: ClassVar[str] = "native"
    columns: ClassVar[tuple[str, str, str]] = ("arrival_s", "input_tokens", "output_tokens")

    def time_ns(self, text: str) -> int:
        """Nanoseconds, rounded beyond the ninth digit."""
        seconds, dot, fraction = text.partition(".")
        digits = seconds + fraction
        if (
            dot
            and digits.isdigit()
            and digits.isascii()
            and seconds
            and len(seconds) < 10
            and len(fraction) < 10
        ):
            return int(seconds) * 1_000_000_000 + int(fraction or "0") * DIGIT_NS[len(fraction)]
        value = decimal(text, "a time in seconds")
        if abs(value) > _LATEST_S:
            raise InputError(f"{shown(text)} is out of range", remedy="arrival_s is in seconds")
        return int((value * 1_000_000_000).to_integral_value(ROUND_HALF_EVEN))

    def warnings(self) -> list[str]:
        """What was odd about the times."""
        return []
