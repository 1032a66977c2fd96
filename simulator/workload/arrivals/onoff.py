"""Bursts of arrivals with silence between them."""

from __future__ import annotations

from collections.abc import Iterator
from math import log
from statistics import NormalDist
from typing import Annotated, Literal

import numpy as np
from pydantic import Field, model_validator

from simulator.spec import Seconds, Spec
from simulator.workload.arrays import BLOCK, Floats, Ints, running_sum

_REQUESTS_PER_BURST = 64

Positive = Annotated[float, Field(gt=0)]


class OnOff(Spec):
    """Silences are lognormal in seconds, clipped; bursts lognormal in requests, rounded and clipped to
    1 .. ``burst_max``; gaps within a burst gamma. ``mu`` and ``sigma`` are of the logarithm.
    """

    kind: Literal["on-off"] = "on-off"
    off_mu: float
    off_sigma: Positive
    off_min: Seconds
    off_max: Seconds
    burst_mu: float
    burst_sigma: Positive
    burst_max: Annotated[int, Field(ge=1)]
    gap_mean: Seconds
    gap_cv: Positive

    @model_validator(mode="after")
    def _spans_are_ordered(self) -> OnOff:
        if not 0 < self.off_min <= self.off_max or self.gap_mean <= 0:
            raise ValueError("off_min lies above zero and not above off_max, gap_mean above zero")
        return self

    @property
    def mean_rate_per_s(self) -> float:
        """Arrivals per second in the long run: requests of a burst over burst and silence."""
        burst = self._mean_burst()
        return burst / (self._mean_off_s() + (burst - 1) * self.gap_mean)

    def times_s(self, rng: np.random.Generator, block: int = BLOCK) -> Iterator[Floats]:
        """Endless ascending times from 0, in blocks of some whole bursts; a silence comes first."""
        silences, bursts, gaps = rng.spawn(3)
        shape = self.gap_cv**-2
        count = max(1, block // _REQUESTS_PER_BURST)
        now_s = 0.0
        while True:
            requests = self._bursts(bursts, count)
            gaps_s = gaps.standard_gamma(shape, int(requests.sum())) * (self.gap_mean / shape)
            gaps_s[np.cumsum(requests) - requests] = self._silences_s(silences, count)
            times_s = running_sum(gaps_s, now_s)
            now_s = float(times_s[-1])
            yield times_s

    def _bursts(self, rng: np.random.Generator, count: int) -> Ints:
        drawn = np.rint(rng.lognormal(self.burst_mu, self.burst_sigma, count))
        return np.clip(drawn, 1, self.burst_max).astype(np.int64)

    def _silences_s(self, rng: np.random.Generator, count: int) -> Floats:
        return np.clip(rng.lognormal(self.off_mu, self.off_sigma, count), self.off_min, self.off_max)

    def _mean_burst(self) -> float:
        """Sum over n of the probability of n requests or more."""
        size = NormalDist(self.burst_mu, self.burst_sigma)
        return 1.0 + sum(1.0 - size.cdf(log(n - 0.5)) for n in range(2, self.burst_max + 1))

    def _mean_off_s(self) -> float:
        """Mean of a clipped lognormal."""
        log_s = NormalDist(self.off_mu, self.off_sigma)
        weighted = NormalDist(self.off_mu + log_s.variance, self.off_sigma)
        low, high = log(self.off_min), log(self.off_max)
        between = float(np.exp(self.off_mu + log_s.variance / 2)) * (weighted.cdf(high) - weighted.cdf(low))
        return self.off_min * log_s.cdf(low) + between + self.off_max * (1 - log_s.cdf(high))
