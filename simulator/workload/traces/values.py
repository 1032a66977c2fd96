"""Strict numbers in text: ASCII digits only, no silent rounding.

A value that cannot be used is an InputError without its place, which the reader adds.
"""

from __future__ import annotations

import re
from decimal import Decimal

from simulator.errors import InputError

MAX_TOKENS = 2**31 - 1
DIGIT_NS: list[int] = [10 ** (9 - digits) for digits in range(10)]
"""Nanoseconds that the last of so many digits of a fraction of a second counts."""
_BLANKS = " \t"
_NUMBER = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]{1,3})?", re.ASCII)


def shown(text: str) -> str:
    """Text of a file as a message may show it: escaped and short."""
    return repr(text if len(text) <= 40 else text[:37] + "...")


def decimal(text: str, what: str) -> Decimal:
    """An exact number; ``what`` it should be is told if it is none."""
    trimmed = text.strip(_BLANKS)
    if not trimmed:
        raise InputError(f"blank where {what} is due")
    if _NUMBER.fullmatch(trimmed) is None:
        raise InputError(f"{shown(text)} is not {what}", remedy="write plain digits")
    return Decimal(trimmed)


def tokens(text: str) -> int:
    """A count of tokens; ``374.0`` and ``1e3`` are whole, ``374.5`` is not."""
    if text.isdigit() and text.isascii() and len(text) < 10:
        return int(text)
    value = decimal(text, "a number of tokens")
    if value < 0:
        raise InputError(f"{shown(text)} is negative")
    if value > MAX_TOKENS:
        raise InputError(f"{shown(text)} is above {MAX_TOKENS} tokens")
    if value != int(value):
        raise InputError(f"{shown(text)} is not a whole number of tokens")
    return int(value)
