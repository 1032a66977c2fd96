"""What a plan makes of a scenario before anything runs."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from simulator.catalog import Catalog
from simulator.errors import InputError
from simulator.pools import Pool
from simulator.record import CAUSES, STEP_CAUSES, STEP_COLUMNS
from simulator.report.evaluation import evaluate
from simulator.scenario import Scenario
from simulator.simulation import Plan, prepare, simulate


def plan(topology: str = "hgx-h200-8", model: str = "llama-3.1-70b", **deployment: Any) -> Plan:
    fields = {"topology": topology, "model": model, "deployment": deployment}
    return prepare(Scenario.model_validate(fields), Catalog())


def pool(*names: str, **deployment: Any) -> Pool:
    (found,) = plan(*names, **deployment).pools
    return found


def test_auto_takes_the_fewest_gpus_that_also_hold_a_request_of_the_longest_kind() -> None:
    """405B in fp8: 410 GB. Three of 141 GB would hold it, so TP 4; on GB300 two of 298 GB."""
    assert pool("hgx-h200-8", "llama-3.1-405b", weights="fp8").tensor_parallel_size == 4
    assert pool("gb300-nvl72", "llama-3.1-405b", weights="fp8").tensor_parallel_size == 2
    # 70B in bf16: 141 GB do not fit into 0.9 of one H200, so TP 2
    assert pool(weights="bf16").tensor_parallel_size == 2


def test_replicas_fill_the_system() -> None:
    assert plan("gb300-nvl72", tensor_parallel_size=8).replicas == 9
    assert plan(tensor_parallel_size=4).replicas == 2
    assert plan(tensor_parallel_size=4, replicas=1).gpus_used == 4
    assert plan(tensor_parallel_size=4, replicas=1).layout == "1 x TP 4"


def test_the_stages_of_a_replica_are_groups_of_its_gpus() -> None:
    found = pool(tensor_parallel_size=2, pipeline_parallel_size=2)
    assert (found.replicas, found.gpus_per_replica, found.gpus_used) == (2, 4, 8)
    assert found.layout == "2 x TP 2 x PP 2"
    assert [len(fitting.stages) for fitting in found.fittings] == [2, 2]
    gathered_s = found.fittings[0].step_cost.base_s(1, 0, 0, 0)
    assert gathered_s == pytest.approx(found.costs[0].base_s(1, 0, 0, 0), rel=1e-2)


def test_the_only_stage_is_the_whole() -> None:
    found = pool(tensor_parallel_size=4)
    assert [fitting.stages for fitting in found.fittings] == [(cost,) for cost in found.costs]


@pytest.mark.parametrize("detail", ["auto", "step", "layer"])
def test_stages_serve_everything_and_the_ledger_adds_up(detail: str) -> None:
    scenario = Scenario.model_validate(
        {
            "topology": "hgx-h200-8",
            "model": "llama-3.1-8b",
            "deployment": {"tensor_parallel_size": 2, "pipeline_parallel_size": 4, "replicas": 1},
            "workload": {"num_prompts": 8},
            "detail": detail,
        }
    )
    (one,) = evaluate([simulate(scenario, Catalog())])  # raises where a ledger does not close
    assert one.summary.completed == 8
    seconds = dict(zip(CAUSES, one.ledger.mean_s().tolist(), strict=True))
    assert seconds["pipeline_send"] > 0.0
    assert seconds["pipeline_bubble"] > 0.0


def test_stages_let_a_model_fit_with_fewer_ranks() -> None:
    assert pool(weights="bf16").tensor_parallel_size == 2
    assert pool(weights="bf16", pipeline_parallel_size=2).tensor_parallel_size == 1


def test_an_override_of_blocks_wins_over_the_estimate() -> None:
    assert pool(num_gpu_blocks_override=7).limits.num_blocks == 7


@pytest.mark.parametrize(
    ("deployment", "said"),
    [
        ({"tensor_parallel_size": 16}, "16 ranks on hgx-h200-8, which has 8 GPUs"),
        ({"tensor_parallel_size": 4, "replicas": 3}, "need 12 of the 8 GPUs"),
        ({"max_num_seqs": 64, "max_num_batched_tokens": 32}, "cannot hold 64 sequences"),
        ({"weights": "nvfp4"}, "nvfp4"),
        ({"tensor_parallel_size": 3}, "3"),
        ({"pipeline_parallel_size": 81}, "80 layers, which 81 pipeline stages"),
        ({"pipeline_parallel_size": 16}, "16 pipeline stages on hgx-h200-8, which has 8 GPUs"),
        ({"pipeline_parallel_size": 4, "tensor_parallel_size": 4}, "16 ranks on hgx-h200-8"),
        ({"pipeline_parallel_size": 2, "replicas": 5}, "5 replicas of 2 GPUs need 10"),
    ],
)
def test_what_cannot_be_is_refused_with_a_remedy(deployment: dict[str, Any], said: str) -> None:
    with pytest.raises(InputError, match=said) as error:
        plan(**deployment)
    assert error.value.remedy


@pytest.mark.parametrize("key", [{"fabric": "rail"}, {"oversubscription": 2}])
def test_one_node_has_nothing_to_join(key: dict[str, object]) -> None:
    with pytest.raises(InputError, match="joins several nodes, and there is one"):
        prepare(Scenario.model_validate({"topology": "hgx-h200-8", **key}), Catalog())


def test_the_token_budget_follows_a_larger_number_of_sequences() -> None:
    """vLLM demands that the budget covers the sequences."""
    limits = pool(max_num_seqs=10_000).limits
    assert (limits.max_num_seqs, limits.max_num_batched_tokens) == (10_000, 10_000)
    assert pool(max_num_batched_tokens=100).limits.max_num_seqs == 100


def test_the_host_of_a_rack_takes_longer_by_its_slowdown() -> None:
    """Grace dispatches 2.6 times slower than the x86 hosts of the profile; a step of one request."""
    row = np.zeros((1, len(STEP_COLUMNS)))
    row[0, STEP_COLUMNS.index("steps")] = row[0, STEP_COLUMNS.index("decodes")] = 1
    host = STEP_CAUSES.index("host")
    box_s, rack_s = (
        pool(topology, tensor_parallel_size=4).costs[0].breakdown(row)[0, host]
        for topology in ("hgx-h200-8", "gb300-nvl72")
    )
    assert rack_s == pytest.approx(2.6 * box_s)


def test_two_systems_see_the_same_traffic() -> None:
    fields = {"workload": {"num_prompts": 50}, "seed": 5}
    one, other = (
        simulate(Scenario.model_validate({"topology": name, **fields}), Catalog()).record
        for name in ("hgx-h200-8", "gb300-nvl72")
    )
    for name in ("created_s", "input_tokens", "output_tokens"):
        np.testing.assert_array_equal(one.request(name), other.request(name))
