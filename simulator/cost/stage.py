"""Pipeline stages: which layers, and which ends of the model, a group of GPUs holds."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Stage:
    """One of ``count`` pipeline stages, from 0; the only one is the whole model."""

    index: int = 0
    count: int = 1

    @property
    def first(self) -> bool:
        """Whether it embeds the tokens."""
        return self.index == 0

    @property
    def last(self) -> bool:
        """Whether it ends in the last norm, the LM head and the sampler."""
        return self.index == self.count - 1

    def layers(self, total: int) -> int:
        """Layers of this stage, of ``total``: as even as can be.

        As in vLLM (``get_pp_indices``), what is left over goes one each to the stages before the last,
        which has the LM head: 80 layers in 6 stages are 13, 13, 13, 14, 14, 13.
        """
        each, left = divmod(total, self.count)
        return each + (self.count - 1 - left <= self.index < self.count - 1)


def stages(count: int) -> tuple[Stage, ...]:
    """All stages of a pipeline, in the order of the layers."""
    return tuple(Stage(index, count) for index in range(count))


WHOLE = Stage()
