"""The cost of a model that is cut into pipeline stages."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from simulator.cost.step import StepCost
from simulator.record import STEP_CAUSES, STEP_COLUMNS, Floats, column


@dataclass(frozen=True)
class PipelineCost:
    """A step through all stages, one after the other, without the sends between them."""

    stages: tuple[StepCost, ...]

    @cached_property
    def kv_s_per_token(self) -> float:
        """Seconds to read one cached token, over all stages."""
        return sum(stage.kv_s_per_token for stage in self.stages)

    def base_s(self, decodes: int, chunk_tokens: int, chunks: int, completions: int) -> float:
        """Everything that does not depend on the context."""
        return sum(stage.base_s(decodes, chunk_tokens, chunks, completions) for stage in self.stages)

    def attention_s(self, new_tokens: int, prefix_tokens: int) -> float:
        """Attention of one prompt chunk over itself and what came before it."""
        return sum(stage.attention_s(new_tokens, prefix_tokens) for stage in self.stages)

    def breakdown(self, steps: Floats) -> Floats:
        """Seconds by cause (STEP_CAUSES) of each row of a step log, whose attention is that of all stages."""
        attention_s = column(steps, STEP_COLUMNS, "attention_s")
        bare = steps.copy()
        bare[:, STEP_COLUMNS.index("attention_s")] = 0.0
        seconds: Floats = np.sum([stage.breakdown(bare) for stage in self.stages], axis=0)
        seconds[:, STEP_CAUSES.index("attention")] += attention_s
        return seconds
