"""The same lengths for all requests."""

from __future__ import annotations

from typing import Annotated, Literal

import numpy as np
from pydantic import Field

from simulator.spec import Spec
from simulator.workload.arrays import Ints

Count = Annotated[int, Field(ge=1, lt=2**31)]


class Fixed(Spec):
    """Every request has the same prompt and output length."""

    kind: Literal["fixed"] = "fixed"
    input_tokens: Count
    output_tokens: Count

    def draw(self, rng: np.random.Generator, count: int) -> Ints:
        """Prompt and output tokens, shape (count, 2); draws nothing."""
        return np.tile(np.array([[self.input_tokens, self.output_tokens]], dtype=np.int64), (count, 1))
