"""Evenly spaced arrivals."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count
from typing import ClassVar, Literal

import numpy as np

from simulator.spec import Spec
from simulator.workload.arrays import BLOCK, Floats


class Constant(Spec):
    """One request every second, the first after one gap."""

    kind: Literal["constant"] = "constant"
    mean_rate_per_s: ClassVar[float] = 1.0

    def times_s(self, rng: np.random.Generator, block: int = BLOCK) -> Iterator[Floats]:
        """Endless ascending times from 0, in blocks; draws nothing."""
        for first in count(1, block):
            yield np.arange(first, first + block, dtype=np.float64)
