"""All requests at time 0."""

from __future__ import annotations

from collections.abc import Iterator
from math import inf
from typing import ClassVar, Literal

import numpy as np

from simulator.spec import Spec
from simulator.workload.arrays import BLOCK, Floats


class AllAtOnce(Spec):
    """Every request arrives at 0, as ``--request-rate inf`` asks for."""

    kind: Literal["all-at-once"] = "all-at-once"
    mean_rate_per_s: ClassVar[float] = inf

    def times_s(self, rng: np.random.Generator, block: int = BLOCK) -> Iterator[Floats]:
        """Endless zeros, in blocks; draws nothing."""
        while True:
            yield np.zeros(block)
