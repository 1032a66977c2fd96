"""A deployment with every choice written down, so that another system or faster hardware cannot change it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from simulator.pools import Pool
from simulator.scenario import Scenario
from simulator.simulation import Plan


def pinned(
    scenario: Scenario, plan: Plan, blocks: Callable[[int], int] | None = None, **changes: Any
) -> Scenario:
    """The scenario with the plan's parallelism, replicas and limits for choices; ``changes`` win.

    ``blocks`` makes of the KV blocks of the plan those of the scenario; None leaves them to the memory.
    """
    deployment = scenario.deployment
    choices: dict[str, Any] = {"block_size": plan.pools[0].limits.block_size}
    if len(plan.pools) == 1:
        choices |= _choices(plan.pools[0], blocks)
    else:
        for role, pool in zip(deployment.pools, plan.pools, strict=True):
            choices[role] = getattr(deployment, role).model_copy(update=_choices(pool, blocks))
    return scenario.model_copy(update={"deployment": deployment.model_copy(update=choices | changes)})


def _choices(pool: Pool, blocks: Callable[[int], int] | None) -> dict[str, Any]:
    override = {} if blocks is None else {"num_gpu_blocks_override": blocks(pool.limits.num_blocks)}
    return override | {
        "replicas": pool.replicas,
        "tensor_parallel_size": pool.tensor_parallel_size,
        "pipeline_parallel_size": pool.pipeline_parallel_size,
        "max_num_seqs": pool.limits.max_num_seqs,
        "max_num_batched_tokens": pool.limits.max_num_batched_tokens,
    }
