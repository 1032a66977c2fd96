"""Two pools of a scenario: who holds what, who sends what to whom, and what is refused."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from simulator.catalog import Catalog
from simulator.cost.stage import stages
from simulator.errors import InputError
from simulator.pools import kv_shares
from simulator.record import CAUSES
from simulator.report.evaluation import Evaluation, evaluate
from simulator.report.exports import result_object
from simulator.scenario import Scenario
from simulator.simulation import prepare, simulate

LLAMA = Catalog().model("llama-3.1-8b")


def scenario(topology: str = "hgx-h200-8", detail: str = "auto", **deployment: Any) -> Scenario:
    return Scenario.model_validate(
        {
            "topology": topology,
            "model": "llama-3.1-8b",
            "deployment": {"prefill": {}, "decode": {}} | deployment,
            "workload": {"num_prompts": 60, "request_rate": 40},
            "detail": detail,
        }
    )


def served(*where: str, **deployment: Any) -> Evaluation:
    (found,) = evaluate([simulate(scenario(*where, **deployment), Catalog())])
    return found


def _ranks(name: str, tp: int, pp: int) -> list[list[str]]:
    return [[f"{name}{stage}.{rank}" for rank in range(tp)] for stage in range(pp)]


sizes = st.tuples(st.sampled_from([1, 2, 4, 8, 16]), st.integers(1, 5))


@given(sizes, sizes)
def test_every_rank_receives_what_its_memory_budget_counts(
    source: tuple[int, int], target: tuple[int, int]
) -> None:
    received: dict[str, float] = defaultdict(float)
    have, hold = _ranks("p", *source), _ranks("d", *target)
    for _, receiver, share in kv_shares(LLAMA, have, hold):
        received[receiver] += share
    tp, pp = target
    whole = LLAMA.kv_bytes_per_token("bf16")
    for stage, ranks in zip(stages(pp), hold, strict=True):
        for rank in ranks:
            assert received[rank] * whole == pytest.approx(LLAMA.kv_bytes_per_token("bf16", tp, stage))


@given(sizes, sizes)
def test_no_rank_sends_more_than_it_holds_for_each_copy_that_is_made(
    source: tuple[int, int], target: tuple[int, int]
) -> None:
    sent: dict[str, float] = defaultdict(float)
    for sender, _, share in kv_shares(LLAMA, _ranks("p", *source), _ranks("d", *target)):
        sent[sender] += share
    copies = max(target[0] / LLAMA.kv_heads, 1.0)
    tp, pp = source
    whole = LLAMA.kv_bytes_per_token("bf16")
    for stage, ranks in zip(stages(pp), _ranks("p", *source), strict=True):
        most = copies * LLAMA.kv_bytes_per_token("bf16", tp, stage) / whole
        assert all(sent[rank] <= most * (1 + 1e-12) for rank in ranks)


@pytest.mark.parametrize("transfer", ["at-end", "layerwise"])
@pytest.mark.parametrize("detail", ["auto", "macro", "step", "layer"])
def test_pools_serve_everything_and_the_ledger_adds_up(detail: str, transfer: str) -> None:
    """Raises where a ledger does not close or a bound is beaten."""
    one = served(
        "hgx-h200-8",
        detail,
        prefill={"replicas": 2, "tensor_parallel_size": 2},
        decode={"replicas": 1, "tensor_parallel_size": 4},
        kv_transfer=transfer,
    )
    assert one.summary.completed == 60
    seconds = dict(zip(CAUSES, one.ledger.mean_s().tolist(), strict=True))
    assert seconds["kv_transfer"] > 0.0
    assert seconds["kv_wait"] > 0.0


def test_pools_of_pipelines_serve_everything() -> None:
    one = served(
        prefill={"pipeline_parallel_size": 2, "tensor_parallel_size": 2},
        decode={"pipeline_parallel_size": 4, "tensor_parallel_size": 1},
    )
    assert one.summary.completed == 60
    replicas = {one.result.record.owner(int(log)) for log in one.result.record.transfer("decode_replica")}
    assert replicas == {1}


def test_the_bytes_that_move_are_those_of_the_blocks_of_the_prompts() -> None:
    """8 KV heads of 128 elements of 2 bytes, keys and values, in 32 layers: 131,072 bytes a token."""
    one = served()
    record = one.result.record
    ids = record.transfer("id").astype(int)
    blocks = np.ceil(record.request("input_tokens")[ids] / 16)
    assert record.transfer("bytes") == pytest.approx(blocks * 16 * 131_072)
    assert one.summary.hand_overs is not None
    assert result_object(one)["llmsim"]["kv_transfer"]["bytes"] == one.summary.hand_overs.total_bytes


def test_a_lone_prompt_is_moved_at_the_speed_of_the_links_between_the_ranks() -> None:
    """From one GPU to one over an NVSwitch box: latency, and bytes over 450 GB/s at the link's efficiency."""
    fields = scenario("hgx-h200-8", "macro").plain()
    fields["workload"] = {"preset": "random", "random_input_len": 4096, "random_output_len": 8}
    fields["workload"] |= {"num_prompts": 1, "random_range_ratio": 0.0}
    result = simulate(Scenario.model_validate(fields), Catalog())
    record = result.record
    link = Catalog().link("nvlink4")
    alone_s = 4096 * 131_072 / (450e9 * link.efficiency.value)
    moved_s = float((record.transfer("moved_s") - record.transfer("reserved_s"))[0])
    latency_s = result.plan.topology.latency_s("gpu0", "gpu1")
    assert moved_s == pytest.approx(alone_s + latency_s, rel=1e-6)


def test_pools_take_their_own_limits_and_the_others_of_the_deployment() -> None:
    plan = prepare(
        scenario(
            tensor_parallel_size=2, max_num_seqs=64, prefill={"max_num_seqs": 8}, decode={"replicas": 3}
        ),
        Catalog(),
    )
    prefill, decode = plan.pools
    assert (prefill.limits.max_num_seqs, decode.limits.max_num_seqs) == (8, 64)
    assert (prefill.replicas, decode.replicas) == (1, 3)
    assert plan.groups == tuple((f"gpu{2 * index}", f"gpu{2 * index + 1}") for index in range(4))


def test_a_decode_pool_of_its_own_takes_as_many_nodes_as_it_needs() -> None:
    plan = prepare(
        scenario(
            "hgx-b200-8",
            prefill={"replicas": 4},
            decode={"system": "hgx-h200-8", "replicas": 5, "tensor_parallel_size": 4},
        ),
        Catalog(),
    )
    prefill, decode = plan.pools
    assert plan.topology.system.name == "hgx-b200-8+hgx-h200-8-x3"
    assert (prefill.device.name, decode.device.name) == ("b200-sxm-180gb", "h200-sxm-141gb")
    assert {plan.topology.host(gpu) for group in prefill.groups for gpu in group} == {0}
    assert [plan.topology.host(group[0]) for group in decode.groups] == [1, 1, 2, 2, 3]
    nodes = {plan.topology.system_of(group[0]).name for group in decode.groups}
    assert nodes == {"hgx-h200-8"}


def test_a_pool_on_a_system_of_its_own_is_what_the_same_pool_on_a_second_node_is() -> None:
    pools = {"prefill": {"replicas": 8}, "decode": {"replicas": 8}}
    own = scenario(**pools | {"decode": {"replicas": 8, "system": "hgx-h200-8"}}).plain()
    second = scenario(**pools).plain() | {"nodes": 2}
    one, other = (simulate(Scenario.model_validate(fields), Catalog()).record for fields in (own, second))
    assert one.requests.tobytes() == other.requests.tobytes()
    assert one.transfers.tobytes() == other.transfers.tobytes()


def test_kv_cache_for_another_system_leaves_by_the_nic() -> None:
    """400 Gb/s of one ConnectX-7 on the way, at the efficiency of its link."""
    fields = scenario("hgx-b200-8", "macro", decode={"system": "hgx-h200-8"}).plain()
    fields["workload"] = {"preset": "random", "random_input_len": 4096, "random_output_len": 8}
    fields["workload"] |= {"num_prompts": 1, "random_range_ratio": 0.0}
    result = simulate(Scenario.model_validate(fields), Catalog())
    moved_s = float((result.record.transfer("moved_s") - result.record.transfer("reserved_s"))[0])
    topology = result.plan.topology
    (source,), (target,) = result.plan.groups
    edges = [hop.edge for hop in topology.route(source, target)]
    slowest = min(topology.bandwidth_bytes_per_s(edge) for edge in edges)
    assert slowest == 50e9
    network = next(edge for edge in edges if topology.bandwidth_bytes_per_s(edge) == slowest)
    alone_s = 4096 * 131_072 / (slowest * topology.link(network).efficiency.value)
    assert moved_s == pytest.approx(alone_s + topology.latency_s(source, target), rel=1e-6)


def test_power_and_price_are_those_of_the_gpus_of_both_systems() -> None:
    """Half of a node of each."""
    four = {"replicas": 4}
    one = served("hgx-b200-8", prefill=four, decode=four | {"system": "hgx-h200-8"})
    catalog = Catalog()
    half_w = 0.5 * sum(catalog.system(name).power.value for name in ("hgx-b200-8", "hgx-h200-8"))
    per_kw = one.summary.output_throughput_per_kw
    assert per_kw == pytest.approx(one.summary.output_throughput / (half_w / 1e3))


@pytest.mark.parametrize(
    ("deployment", "field", "said"),
    [
        ({"decode": {"system": "hgx-h20-8"}}, "deployment.decode.system", "no topology called 'hgx-h20-8'"),
        ({"decode": {"system": "dgx-spark-2"}}, "deployment.decode.system", "dgx-spark-2 is 2 nodes already"),
        ({"prefill": {"replicas": 9}}, "deployment.decode.replicas", "9 replicas of 1 GPUs and 1 replicas"),
        (
            {"decode": {"tensor_parallel_size": 3}},
            "deployment.decode.tensor_parallel_size",
            "decode pool: .* cannot be split over 3 ranks; use --decode-tp",
        ),
        (
            {"prefill": {"max_num_seqs": 64, "max_num_batched_tokens": 32}},
            "deployment.prefill.max_num_batched_tokens",
            "prefill pool: a step of 32 .* use --prefill-max-num-batched-tokens 64 or more",
        ),
    ],
)
def test_what_a_pool_cannot_be_is_refused_by_name(deployment: dict[str, Any], field: str, said: str) -> None:
    with pytest.raises(InputError, match=said) as error:
        prepare(scenario(**deployment), Catalog())
    assert error.value.field == field
    assert error.value.remedy
