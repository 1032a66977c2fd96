"""What a faster part would buy: laws of the paired runs."""

from __future__ import annotations

from math import log
from typing import Any

import numpy as np
import pytest

from simulator.catalog import Catalog
from simulator.metrics.latency import latencies
from simulator.scenario import Scenario
from simulator.simulation import Result, prepare, run, simulate
from simulator.study.elasticity import NUDGES, TOGETHER, Outcome, elasticity, nudged, variants
from simulator.study.parts import (
    Compute,
    FasterCatalog,
    HbmBandwidth,
    Host,
    KvCapacity,
    Launch,
    LinkBandwidth,
    LinkLatency,
    Part,
    parts,
)

TENTH = 1.1
NEARLY_INFINITE = 1e9


def scenario(topology: str = "hgx-h200-8", **fields: Any) -> Scenario:
    closed = {"preset": "random", "num_prompts": 60, "request_rate": "inf", "random_range_ratio": 0.5}
    return Scenario.model_validate({"topology": topology, "workload": closed, **fields})


def outcomes(asked: Scenario, factor: float = TENTH) -> tuple[Result, dict[str, Outcome]]:
    base = simulate(asked, Catalog())
    return base, {one.variant.name: one for one in elasticity(asked, Catalog(), base, factor)}


def every_rate_and_time(asked: Scenario) -> tuple[Part, ...]:
    found = parts(prepare(asked, Catalog()).topology)
    return tuple(part for part in found if not isinstance(part, KvCapacity))


def mean_tpot_s(result: Result) -> float:
    return float(np.nanmean(latencies(result.record).tpot_s))


@pytest.mark.parametrize("topology", ["hgx-h200-8", "gb300-nvl72"])
@pytest.mark.parametrize("tp", [1, 4])
@pytest.mark.parametrize("all_reduce", ["auto", "recursive-doubling"])
def test_a_closed_batch_on_hardware_a_tenth_faster_in_all_is_done_a_tenth_sooner(
    topology: str, tp: int, all_reduce: str
) -> None:
    """Every cost is homogeneous of degree -1 in the rates and 1/times: a constant left out shows here."""
    asked = scenario(topology, deployment={"tensor_parallel_size": tp, "all_reduce": all_reduce})
    base, found = outcomes(asked)
    faster = found[TOGETHER].result.record
    for name in ("first_token_s", "finish_s"):
        np.testing.assert_allclose(
            faster.request(name), base.record.request(name) / TENTH, rtol=1e-9, atol=1e-12
        )
    assert base.record.end_s / faster.end_s == pytest.approx(TENTH)


def test_a_closed_batch_leaves_nothing_to_chance() -> None:
    """It ends as much later or sooner as the hardware is worse or better, so by 0.03 % at most."""
    asked = scenario(deployment={"tensor_parallel_size": 4})
    base = simulate(asked, Catalog())
    ends_s = [result.record.end_s for result in nudged(asked, Catalog(), base)]
    np.testing.assert_allclose(ends_s, base.record.end_s / np.array(NUDGES), rtol=1e-9)


def test_a_model_split_over_joined_nodes_is_as_homogeneous() -> None:
    """Ports, cables and switches between the nodes have times of their own."""
    base, found = outcomes(
        scenario(
            nodes=2, fabric="leaf-spine", deployment={"tensor_parallel_size": 16}, model="llama-3.1-405b"
        )
    )
    assert base.plan.pools[0].tensor_parallel_size == 16
    assert base.record.end_s / found[TOGETHER].result.record.end_s == pytest.approx(TENTH, rel=1e-9)
    assert not found["cx7-400g-latency"].idle


def test_an_open_load_that_is_a_tenth_faster_too_sees_every_latency_a_tenth_shorter() -> None:
    def asked(rate_per_s: float) -> Scenario:
        traffic = {"preset": "azure-conv", "num_prompts": 200, "request_rate": rate_per_s}
        return scenario(workload=traffic, deployment={"replicas": 1})

    base = simulate(asked(5.0), Catalog())
    catalog = FasterCatalog(parts=every_rate_and_time(asked(5.0)), factor=TENTH)
    faster = simulate(asked(5.0 * TENTH), catalog)
    for name in ("queue_s", "ttft_s", "tpot_s", "e2e_s"):
        np.testing.assert_allclose(
            getattr(latencies(faster.record), name),
            getattr(latencies(base.record), name) / TENTH,
            rtol=1e-6,
            atol=1e-9,
        )


def test_the_elasticities_of_all_rates_and_times_of_a_closed_batch_sum_to_minus_one() -> None:
    """Euler: f(cx) = f(x)/c has sum of dlnf/dlnx = -1. A step of 0.01 % leaves an error of about 1e-4."""
    asked = scenario(deployment={"tensor_parallel_size": 4, "replicas": 1})
    step = 1.0001
    base, found = outcomes(asked, step)
    alone = [one for name, one in found.items() if name not in (TOGETHER, KvCapacity().name)]
    total = sum(log(one.result.record.end_s / base.record.end_s) / log(step) for one in alone)
    assert total == pytest.approx(-1.0, abs=1e-3)


def test_where_only_memory_takes_time_tpot_falls_as_bandwidth_rises() -> None:
    """Free arithmetic, hosts and launches leave bytes over bytes per second: an elasticity of -1."""
    asked = scenario(deployment={"tensor_parallel_size": 1})
    free = FasterCatalog(parts=(Compute(), Host(), Launch()), factor=NEARLY_INFINITE)
    base = run(prepare(asked, free), free)

    class Faster(FasterCatalog):
        def device(self, name: str) -> Any:
            return HbmBandwidth().device(super().device(name), TENTH)

    more = Faster(parts=free.parts, factor=free.factor)
    faster = run(prepare(asked, more), more)
    assert mean_tpot_s(base) / mean_tpot_s(faster) == pytest.approx(TENTH, rel=1e-5)


def test_one_rank_has_no_use_for_any_link_and_several_for_the_one_between_them_only() -> None:
    _, alone = outcomes(scenario(deployment={"tensor_parallel_size": 1}))
    _, split = outcomes(scenario(deployment={"tensor_parallel_size": 8}))
    links = {
        name for name, one in alone.items() if isinstance(one.variant.parts[0], LinkBandwidth | LinkLatency)
    }
    assert {name for name in alone if alone[name].idle} >= links
    assert {name for name in links if not split[name].idle} == {"nvlink4-bandwidth", "nvlink4-latency"}


def test_a_cache_that_is_never_full_need_not_be_larger_and_one_that_is_should() -> None:
    roomy, full = (
        outcomes(scenario(deployment={"replicas": 1, "num_gpu_blocks_override": blocks}))
        for blocks in (20_000, 400)
    )
    assert roomy[1]["kv-capacity"].idle
    assert not full[1]["kv-capacity"].idle
    assert full[1]["kv-capacity"].result.plan.pools[0].limits.num_blocks == 440
    assert full[1]["kv-capacity"].result.record.end_s < full[0].record.end_s


def test_every_run_has_the_deployment_of_the_base_run() -> None:
    base, found = outcomes(scenario("gb300-nvl72", model="llama-3.1-405b"))
    for name, one in found.items():
        (pool,) = one.result.plan.pools
        assert (pool.tensor_parallel_size, pool.replicas) == (2, 36)
        assert pool.limits == base.plan.pools[0].limits or name == "kv-capacity"


def test_both_pools_keep_their_choices_and_each_has_a_larger_cache() -> None:
    pools = {"prefill": {"tensor_parallel_size": 2}, "decode": {"replicas": 2}}
    base, found = outcomes(scenario(deployment=pools))
    for name, one in found.items():
        for pool, of_base in zip(one.result.plan.pools, base.plan.pools, strict=True):
            assert pool.layout == of_base.layout
            grown = pool.limits.num_blocks / of_base.limits.num_blocks
            assert grown == pytest.approx(1.1 if name == "kv-capacity" else 1.0, rel=1e-3)


def test_the_parts_are_those_of_the_graph() -> None:
    base = simulate(scenario(), Catalog())
    names = [variant.name for variant in variants(base)]
    assert names[:2] == ["hbm-bandwidth", "compute"]
    assert names[-4:] == ["host", "launch", "kv-capacity", TOGETHER]
    assert "nvlink4-latency" in names
    assert not [name for name in names if name.startswith("nvlink5")]
    assert len(set(names)) == len(names)


def test_a_faster_catalogue_leaves_the_other_parts_as_they_are() -> None:
    plain = Catalog()
    faster = FasterCatalog(parts=(LinkLatency("x", "x", "nvlink4"),), factor=2.0)
    one, other = plain.link("nvlink4"), faster.link("nvlink4")
    assert other.latency.value == one.latency.value / 2.0
    assert other.collectives["ring"].fixed.value == one.collectives["ring"].fixed.value / 2.0
    assert (other.bandwidth, other.efficiency) == (one.bandwidth, one.efficiency)
    assert faster.link("nvlink5") == plain.link("nvlink5")
    assert faster.device("gb300") == plain.device("gb300")
    assert faster.family("hopper") == plain.family("hopper")
    assert faster.engine("vllm") == plain.engine("vllm")
