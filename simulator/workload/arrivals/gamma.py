"""Arrivals with gamma-distributed gaps."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, ClassVar, Literal

import numpy as np
from pydantic import Field

from simulator.spec import Spec
from simulator.workload.arrays import BLOCK, Floats, running_sum


class Gamma(Spec):
    """Independent gamma gaps of mean 1 s and shape ``burstiness``: their CV is 1/sqrt(burstiness).

    1 is Poisson, below 1 burstier, above 1 more regular; as ``--burstiness`` of vLLM's benchmark.
    """

    kind: Literal["gamma"] = "gamma"
    burstiness: Annotated[float, Field(gt=0)]
    mean_rate_per_s: ClassVar[float] = 1.0

    def times_s(self, rng: np.random.Generator, block: int = BLOCK) -> Iterator[Floats]:
        """Endless ascending times from 0, in blocks."""
        now_s = 0.0
        while True:
            times_s = running_sum(rng.standard_gamma(self.burstiness, block) / self.burstiness, now_s)
            now_s = float(times_s[-1])
            yield times_s
