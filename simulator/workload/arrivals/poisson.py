"""Poisson arrivals."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar, Literal

import numpy as np

from simulator.spec import Spec
from simulator.workload.arrays import BLOCK, Floats, running_sum


class Poisson(Spec):
    """Independent exponential gaps of mean 1 s."""

    kind: Literal["poisson"] = "poisson"
    mean_rate_per_s: ClassVar[float] = 1.0

    def times_s(self, rng: np.random.Generator, block: int = BLOCK) -> Iterator[Floats]:
        """Endless ascending times from 0, in blocks."""
        now_s = 0.0
        while True:
            times_s = running_sum(rng.standard_exponential(block), now_s)
            now_s = float(times_s[-1])
            yield times_s
