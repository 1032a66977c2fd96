"""Uniform lengths, as the random dataset of ``vllm bench serve``."""

from __future__ import annotations

from math import ceil, floor
from typing import Annotated, Literal

import numpy as np
from pydantic import Field

from simulator.spec import Spec, Tokens
from simulator.workload.arrays import Ints


def _bounds(tokens: int, ratio: float) -> tuple[int, int]:
    return max(1, floor(tokens * (1 - ratio))), ceil(tokens * (1 + ratio))


class RandomRange(Spec):
    """Whole numbers from floor(n*(1 - r)), at least 1, to ceil(n*(1 + r)), both included."""

    kind: Literal["random-range"] = "random-range"
    input_tokens: Tokens
    output_tokens: Tokens
    range_ratio: Annotated[float, Field(ge=0, lt=1)] = 0.0

    def draw(self, rng: np.random.Generator, count: int) -> Ints:
        """Prompt and output tokens, shape (count, 2)."""
        input_low, input_high = _bounds(self.input_tokens, self.range_ratio)
        output_low, output_high = _bounds(self.output_tokens, self.range_ratio)
        return rng.integers((input_low, output_low), (input_high, output_high), (count, 2), endpoint=True)
