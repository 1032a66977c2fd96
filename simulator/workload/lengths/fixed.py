"""The same lengths for all requests."""

from __future__ import annotations

from typing import Literal

import numpy as np

from simulator.spec import Spec, Tokens
from simulator.workload.arrays import Ints


class Fixed(Spec):
    """Every request has the same prompt and output length."""

    kind: Literal["fixed"] = "fixed"
    input_tokens: Tokens
    output_tokens: Tokens

    def draw(self, rng: np.random.Generator, count: int) -> Ints:
        """Prompt and output tokens, shape (count, 2); draws nothing."""
        return np.tile(np.array([[self.input_tokens, self.output_tokens]], dtype=np.int64), (count, 1))
