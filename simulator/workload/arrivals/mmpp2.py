"""Arrivals whose rate switches between two levels: a Markov-modulated Poisson process."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

import numpy as np
from pydantic import model_validator

from simulator.spec import PerS, Seconds, Spec
from simulator.workload.arrays import BLOCK, Floats, running_sum

_STAYS = 64


class Mmpp2(Spec):
    """Poisson arrivals at one of two ``rates``; stays in each are exponential of mean ``sojourns``."""

    kind: Literal["mmpp2"] = "mmpp2"
    rates: tuple[PerS, PerS]
    sojourns: tuple[Seconds, Seconds]

    @model_validator(mode="after")
    def _switches_and_sends(self) -> Mmpp2:
        if min(self.sojourns) <= 0 or min(self.rates) < 0 or max(self.rates) == 0:
            raise ValueError("sojourns are above zero, rates not below it, and one of them is above it")
        return self

    @property
    def mean_rate_per_s(self) -> float:
        """Arrivals per second in the long run."""
        return float(np.average(self.rates, weights=self.sojourns))

    def times_s(self, rng: np.random.Generator, block: int = BLOCK) -> Iterator[Floats]:
        """Endless ascending times from 0, in blocks, started in the steady state.

        A Poisson process of rate 1 on the axis of expected arrivals, carried to the axis of time.
        """
        gaps, sojourns = rng.spawn(2)
        stays = self._stays(sojourns)
        from_s, from_load, rate_per_s = next(stays)
        load = 0.0
        while True:
            loads = running_sum(gaps.standard_exponential(block), load)
            load = float(loads[-1])
            while from_load[-1] <= load:
                more_s, more_load, more_rate = next(stays)
                from_s = np.concatenate((from_s, more_s[1:]))
                from_load = np.concatenate((from_load, more_load[1:]))
                rate_per_s = np.concatenate((rate_per_s, more_rate))
            stay = np.searchsorted(from_load, loads, side="right") - 1
            times_s = from_s[stay] + (loads - from_load[stay]) / rate_per_s[stay]
            yield np.minimum(times_s, from_s[stay + 1])
            seen = int(stay[-1])
            from_s, from_load, rate_per_s = from_s[seen:], from_load[seen:], rate_per_s[seen:]

    def _stays(self, rng: np.random.Generator) -> Iterator[tuple[Floats, Floats, Floats]]:
        """Endless blocks of stays: edges in seconds, edges in expected arrivals, rates between them."""
        start = 0 if rng.random() * sum(self.sojourns) < self.sojourns[0] else 1
        state = (start + np.arange(_STAYS)) % 2
        rate_per_s = np.array(self.rates)[state]
        end_s, end_load = 0.0, 0.0
        while True:
            stay_s = np.array(self.sojourns)[state] * rng.standard_exponential(_STAYS)
            edges_s = np.concatenate(([end_s], running_sum(stay_s, end_s)))
            edges_load = np.concatenate(([end_load], running_sum(stay_s * rate_per_s, end_load)))
            end_s, end_load = float(edges_s[-1]), float(edges_load[-1])
            yield edges_s, edges_load, rate_per_s
