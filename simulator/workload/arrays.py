"""Arrays of times and tokens, drawn in blocks."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

BLOCK = 4096
"""Requests drawn at a time; no number depends on it."""


def running_sum(values: Floats, start: float) -> Floats:
    """Sums of ``start`` and the values so far, the same bits however the values are cut into blocks."""
    return np.cumsum(np.concatenate(([start], values)))[1:]
