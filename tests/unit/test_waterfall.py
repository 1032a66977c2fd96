"""From one system to another, one class of properties at a time."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pytest

from simulator.catalog import Catalog
from simulator.errors import InputError
from simulator.record import Record
from simulator.report.evaluation import evaluate
from simulator.scenario import Scenario
from simulator.simulation import Result, prepare, run
from simulator.study.waterfall import CLASSES, HybridCatalog, Way, way, whole_order

SYSTEMS = ("hgx-h200-8", "gb300-nvl72")


def scenario(*systems: str, **fields: Any) -> Scenario:
    traffic = {"preset": "azure-conv", "num_prompts": 40, "request_rate": 8}
    return Scenario.model_validate({"topology": systems or SYSTEMS, "workload": traffic, **fields})


def results(found: Way) -> dict[str, Result]:
    """Of the first system, then by the last class that is replaced."""
    counts = range(len(found.order) + 1)
    stops = {("first", *found.order)[count]: frozenset(found.order[:count]) for count in counts}
    return {name: found.run(taken, Catalog()) for name, taken in stops.items()}


def assert_same(one: Record, other: Record) -> None:
    np.testing.assert_array_equal(one.requests, other.requests)


@pytest.mark.parametrize("tp", [1, 8])
@pytest.mark.parametrize(
    "systems", [SYSTEMS, SYSTEMS[::-1], ("hgx-h100-8", "l40s-8"), ("mi300x-8", "hgx-b200-8")]
)
def test_a_system_that_has_taken_every_class_is_the_other_system(systems: tuple[str, str], tp: int) -> None:
    """So no property that matters is without a class, and the last step holds no remainder but its own."""
    found = way(scenario(*systems, deployment={"tensor_parallel_size": tp}, model="llama-3.1-8b"), Catalog())
    first, second = found.sides
    for taken, system in ((frozenset(), systems[0]), (frozenset(CLASSES), systems[1])):
        hybrid = HybridCatalog(first=first, second=second, taken=taken)
        itself = run(prepare(found.scenario.on(system), Catalog()), Catalog())
        assert_same(run(prepare(found.scenario, hybrid), Catalog()).record, itself.record)
        assert_same(found.run(taken, Catalog()).record, itself.record)


def test_the_stops_lead_there_one_class_at_a_time_and_as_many_in_the_reverse_order() -> None:
    found = way(scenario(), Catalog())
    there, back = found.stops[:7], found.stops[7:]
    assert [len(stop) for stop in there] == [0, 1, 2, 3, 4, 5, 6]
    assert all(one < other for one, other in pairwise(there))
    assert [found.order[-len(stop) :] for stop in back] == [
        tuple(n for n in found.order if n in s) for s in back
    ]
    assert len(found.stops) == len(set(found.stops)) == 12


def test_the_way_from_a_system_to_itself_changes_nothing() -> None:
    found = results(way(scenario("hgx-h200-8", "hgx-h200-8"), Catalog()))
    for result in found.values():
        assert_same(result.record, found["first"].record)


def test_one_rank_has_no_use_for_other_links_nor_a_roomy_cache_for_more_memory() -> None:
    found = results(way(scenario(deployment={"tensor_parallel_size": 1}), Catalog()))
    assert_same(found["scale-up"].record, found["compute"].record)
    for name in ("arrival_s", "first_token_s", "finish_s"):
        one, other = (found[stop].record.request(name) for stop in ("capacity", "memory-bandwidth"))
        np.testing.assert_array_equal(one, other)


def test_each_class_brings_its_own_figures_only() -> None:
    """H200: 4.8 TB/s and 1979 TFLOP/s of fp8; GB300: 8 TB/s, 5000 TFLOP/s, a host 2.6 times slower."""
    found = results(way(scenario(deployment={"tensor_parallel_size": 4}), Catalog()))

    def figures(name: str) -> tuple[float, float, float, int, float]:
        plan = found[name].plan
        (pool,) = plan.pools
        return (
            pool.device.memory_bandwidth.value,
            pool.device.peak["fp8"].value,
            pool.memory.capacity_bytes / 2**20,
            len(plan.topology.gpus),
            plan.topology.system.host_slowdown.value,
        )

    assert figures("first") == (4.8e12, 1979e12, 143771, 8, 1.0)
    assert figures("memory-bandwidth") == (8e12, 1979e12, 143771, 8, 1.0)
    assert figures("capacity") == (8e12, 1979e12, 284208, 8, 1.0)
    assert figures("compute") == (8e12, 5000e12, 284208, 8, 1.0)
    assert figures("scale-up") == (8e12, 5000e12, 284208, 72, 1.0)
    assert figures("overheads") == figures("kernels") == (8e12, 5000e12, 284208, 72, 2.6)


def test_both_serve_with_the_larger_tp_and_the_smaller_number_of_replicas() -> None:
    """405B in fp8 takes TP 4 on H200 and TP 2 on GB300: two replicas of TP 4 fit into the box."""
    found = way(scenario(model="llama-3.1-405b"), Catalog())
    assert found.choices == ("gb300-nvl72 would serve with 36 x TP 2",)
    for result in results(found).values():
        assert result.plan.layout == "2 x TP 4"
    asked = scenario(deployment={"tensor_parallel_size": 8, "replicas": 1})
    assert way(asked, Catalog()).choices == ()


def test_both_serve_with_the_batches_of_the_smaller_gpu() -> None:
    """vLLM takes 2048 tokens and 256 requests a step below 70 GiB, as on 48 GB of L40S, not as on H100."""
    small = {"tensor_parallel_size": 8}
    found = way(scenario("hgx-h100-8", "l40s-8", deployment=small), Catalog())
    steps = "up to 1,024 requests a step, up to 8,192 tokens a step"
    assert found.choices == (f"hgx-h100-8 would serve with {steps}",)
    limits = prepare(found.scenario, Catalog()).pools[0].limits
    assert (limits.max_num_seqs, limits.max_num_batched_tokens) == (256, 2048)


def test_every_system_leads_to_every_other() -> None:
    """Hybrids are as sound as systems: each is planned, and none beats its own bounds."""
    systems = [name for name in Catalog().names("topologies") if not name.startswith("dgx")]
    for first, second in pairwise([*systems, systems[0]]):
        found = way(scenario(first, second, model="llama-3.1-8b", deployment={"weights": "bf16"}), Catalog())
        evaluate([found.run(taken, Catalog()) for taken in found.stops])


def test_a_part_of_an_order_is_completed_in_the_usual_one() -> None:
    assert whole_order(["kernels", "compute"])[:3] == ("kernels", "compute", "memory-bandwidth")
    assert sorted(whole_order([])) == sorted(CLASSES)
    with pytest.raises(InputError, match="--order: names compute twice"):
        whole_order(["compute", "compute"])
