"""A deployment with every choice written down, so that another system or faster hardware cannot change it."""

from __future__ import annotations

from typing import Any

from simulator.scenario import Scenario
from simulator.simulation import Plan


def pinned(scenario: Scenario, plan: Plan, **changes: Any) -> Scenario:
    """The scenario with the plan's parallelism, replicas and limits for choices; ``changes`` win."""
    choices = {
        "tensor_parallel_size": plan.tensor_parallel_size,
        "replicas": plan.replicas,
        "max_num_seqs": plan.limits.max_num_seqs,
        "max_num_batched_tokens": plan.limits.max_num_batched_tokens,
        "block_size": plan.limits.block_size,
    }
    return scenario.model_copy(
        update={"deployment": scenario.deployment.model_copy(update=choices | changes)}
    )
