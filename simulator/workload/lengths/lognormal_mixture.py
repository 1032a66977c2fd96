"""A joint mixture of lognormals: keeps the templates of real traffic, where prompt and output go together."""

from __future__ import annotations

from statistics import NormalDist
from typing import Annotated, Literal

import numpy as np
from pydantic import Field, model_validator

from simulator.spec import Spec, Tokens
from simulator.workload.arrays import Ints

Positive = Annotated[float, Field(gt=0)]


class Component(Spec):
    """One bump of the mixture; ``mu`` and ``sigma`` are of the logarithm of tokens."""

    weight: Positive
    input_mu: float
    input_sigma: Positive
    output_mu: float
    output_sigma: Positive


class LognormalMixture(Spec):
    """Prompt and output of one component each time, rounded and clipped to 1 .. the maximum."""

    kind: Literal["lognormal-mixture"] = "lognormal-mixture"
    components: Annotated[tuple[Component, ...], Field(min_length=1)]
    max_input_tokens: Tokens
    max_output_tokens: Tokens

    @model_validator(mode="after")
    def _weights_are_shares(self) -> LognormalMixture:
        total = sum(component.weight for component in self.components)
        if abs(total - 1) > 0.001:
            raise ValueError(f"weights add up to {total:g}, not to 1")
        return self

    def draw(self, rng: np.random.Generator, count: int) -> Ints:
        """Prompt and output tokens, shape (count, 2)."""
        normal = rng.standard_normal((count, 3))
        chosen = np.searchsorted(self._thresholds(), normal[:, 2])
        mu = np.array([(c.input_mu, c.output_mu) for c in self.components])[chosen]
        sigma = np.array([(c.input_sigma, c.output_sigma) for c in self.components])[chosen]
        tokens = np.rint(np.exp(mu + sigma * normal[:, :2]))
        return np.clip(tokens, 1, (self.max_input_tokens, self.max_output_tokens)).astype(np.int64)

    def _thresholds(self) -> list[float]:
        """Where a standard normal number passes from one component to the next."""
        shares = np.cumsum([component.weight for component in self.components])
        return [NormalDist().inv_cdf(share) for share in shares[:-1] / shares[-1]]
