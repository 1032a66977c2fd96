"""Quantities with units, read once at the edge; plain SI floats inside.

``parse("400 Gb/s", BYTES_PER_S)`` is ``5e10``. A bare number where a quantity is due is an error
that says what to write. Bits and bytes, GB and GiB are told apart: b is a bit, B is a byte,
G is 1e9, Gi is 2**30.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from simulator.errors import InputError

_DECIMAL = {"": 1.0, "k": 1e3, "K": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "P": 1e15, "E": 1e18}
_BINARY = {"Ki": 2.0**10, "Mi": 2.0**20, "Gi": 2.0**30, "Ti": 2.0**40}

BYTES = "bytes"
BYTES_PER_S = "bytes/s"
FLOP_PER_S = "FLOP/s"
PER_S = "1/s"
SECONDS = "seconds"
WATTS = "watts"
USD = "US dollars"
USD_PER_HOUR = "US dollars per hour"


def _scaled(symbol: str, factor: float, prefixes: Mapping[str, float]) -> dict[str, float]:
    return {prefix + symbol: scale * factor for prefix, scale in prefixes.items()}


_ALL_PREFIXES = {**_DECIMAL, **_BINARY}

UNITS: dict[str, dict[str, float]] = {
    BYTES: _scaled("B", 1.0, _ALL_PREFIXES) | _scaled("b", 0.125, _DECIMAL),
    BYTES_PER_S: _scaled("B/s", 1.0, _ALL_PREFIXES)
    | _scaled("b/s", 0.125, _DECIMAL)
    | _scaled("bps", 0.125, _DECIMAL),
    FLOP_PER_S: _scaled("FLOP/s", 1.0, _DECIMAL),
    PER_S: _scaled("/s", 1.0, _DECIMAL),
    SECONDS: {"s": 1.0, "ms": 1e-3, "us": 1e-6, "ns": 1e-9, "min": 60.0, "h": 3600.0},
    WATTS: _scaled("W", 1.0, _DECIMAL),
    USD: {"USD": 1.0, "kUSD": 1e3, "MUSD": 1e6},
    USD_PER_HOUR: {"USD/h": 1.0},
}

_EXAMPLE = {
    BYTES: "141 GB",
    BYTES_PER_S: "4.8 TB/s",
    FLOP_PER_S: "989 TFLOP/s",
    PER_S: "3.7 T/s",
    SECONDS: "2 us",
    WATTS: "700 W",
    USD: "30 kUSD",
    USD_PER_HOUR: "4 USD/h",
}

_QUANTITY = re.compile(r"\s*([+-]?[0-9]+(?:\.[0-9]*)?(?:[eE][+-]?[0-9]+)?)\s*([A-Za-z/]*)\s*")


def parse(text: object, dimension: str) -> float:
    """The value of ``text`` in the SI unit of ``dimension``.

    Raises InputError for a bare number, an unknown unit or a unit of another dimension.
    """
    example = _EXAMPLE[dimension]
    match = None if isinstance(text, bool) else _QUANTITY.fullmatch(str(text))
    if match is None:
        raise InputError(
            f"{text!r} is not a quantity in {dimension}", remedy=f"write for example '{example}'"
        )
    number, unit = match.groups()
    if not unit:
        raise InputError(
            f"{text!r} has no unit", remedy=f"write a quantity in {dimension}, for example '{example}'"
        )
    scale = UNITS[dimension].get(unit)
    if scale is None:
        raise InputError(f"unit {unit!r} is not one of {dimension}", remedy=f"write for example '{example}'")
    return float(number) * scale
