"""What links carried and whom they kept waiting: by hand, and as laws of whole runs."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
from matplotlib.collections import LineCollection

from simulator.catalog import Catalog
from simulator.metrics.links import Links, Messages, Shipments, blame, links
from simulator.pools import kv_ways
from simulator.record import CAUSES, STEP_COLUMNS, Edge, NetworkFacts, Record, Status
from simulator.report.culprits import culprits, link_sentences
from simulator.report.evaluation import Evaluation, evaluate
from simulator.report.link_names import short_name
from simulator.report.links import bundles, links_object
from simulator.report.plots.links import draw
from simulator.scenario import Scenario
from simulator.simulation import simulate

OUT, BACK, ASIDE = ("a", "b"), ("b", "a"), ("a", "c")
BANDWIDTHS = {OUT: 1000.0, BACK: 1000.0, ASIDE: 500.0, ("c", "a"): 500.0}


@dataclass(frozen=True)
class Stretch:
    """A phase of a made-up cost."""

    loads: Mapping[Edge, float]
    s_per_byte: float
    latency_s: float
    bottlenecks: tuple[Edge, ...]

    def __hash__(self) -> int:
        return hash(self.bottlenecks)


@dataclass(frozen=True)
class MadeUp:
    """A cost of one phase."""

    latency_s: float
    s_per_byte: float
    max_bytes: float | None
    phases: tuple[Stretch, ...]


SHORT = MadeUp(0.001, 0.004, 100.0, (Stretch({OUT: 4.0, BACK: 4.0}, 0.004, 0.001, (OUT, BACK)),))
LONG = MadeUp(
    0.05,
    0.002,
    None,
    (
        Stretch({OUT: 1.0, BACK: 1.0}, 0.0015, 0.04, (OUT, BACK)),
        Stretch({ASIDE: 0.25}, 0.0005, 0.01, (ASIDE,)),
    ),
)
"""Faster from 24.5 bytes on, when the short one saves less than 0.049 s by its latency."""


def record() -> Record:
    """A prompt of 8 tokens in a step of 1 s, then two rows of two decode steps of one token, 2 s each.

    Request 0 takes part in all; request 1 in the second row only.
    """
    return Record(
        requests=np.array(
            [
                [0, Status.FINISHED, 0.0, 0.0, 0.0, 1.0, 6.0, 8, 5, 0, 0, 0, 3],
                [1, Status.FINISHED, 1.0, 1.0, 1.0, 1.0, 3.0, 1, 3, 0, 0, 1, 2],
            ]
        ),
        steps=(
            np.array(
                [
                    [0.0, 1, 0, 0, 8, 1, 1, 0.0, 1],
                    [1.0, 2, 2, 18, 0, 0, 0, 0.0, 1],
                    [4.0, 2, 1, 11, 0, 0, 0, 0.0, 1],
                ]
            ),
        ),
        preemptions=np.empty((0, 9)),
        kv_blocks=(8,),
        end_s=6.0,
    )


ROW_S = (np.array([1.0, 2.0, 2.0]),)
SENT = Messages(0, "all-reduce", 3, 10.0, (SHORT, LONG))
"""Three messages a step of 10 bytes a token: 80 bytes go the long way, 20 and 10 the short one."""


def used(bins: int = 6) -> Links:
    return links(record(), ROW_S, [SENT], BANDWIDTHS, bins=bins)


def test_bytes_are_those_of_every_message_the_way_it_went() -> None:
    found = used().by_edge
    # 3 x 80 bytes the long way, then 2 steps x 3 x 20 and 2 x 3 x 10 bytes the short one, four times over
    assert found[OUT].nbytes == {"all-reduce": 240.0 + 4 * (120.0 + 60.0)}
    assert found[ASIDE].nbytes == {"all-reduce": 60.0}
    assert ("c", "a") not in found


def test_bytes_are_spread_over_the_time_of_their_row() -> None:
    found = used()
    out = found.by_edge[OUT]
    np.testing.assert_allclose(out.binned_bytes, [240.0, 240.0, 240.0, 0.0, 120.0, 120.0])
    np.testing.assert_allclose(found.utilisation(out), [0.24, 0.24, 0.24, 0.0, 0.12, 0.12])
    assert found.mean(out) == pytest.approx(960.0 / 6000.0)
    assert found.peak(out) == pytest.approx(0.24)


def test_links_that_carry_the_same_are_one() -> None:
    assert [use.edges for use in used().uses] == [(OUT, BACK), (ASIDE,)]


def test_seconds_of_the_mean_and_the_tail_request_go_to_the_tightest_links() -> None:
    found = blame(record(), [SENT], np.array([0, 1]), tail=1)
    # both: 6 short messages of 20 bytes; request 0 alone: 6 of 10 bytes and 3 long ones of 80
    short, long, aside = found
    assert short.bottlenecks == (OUT, BACK)
    assert short.latency_s == pytest.approx(((2 * 6 + 6) * 0.001 / 2, 6 * 0.001))
    assert short.bandwidth_s == pytest.approx(((2 * 120 + 60) * 0.004 / 2, 120 * 0.004))
    assert (long.latency_s, long.bandwidth_s) == (pytest.approx((0.06, 0.0)), pytest.approx((0.18, 0.0)))
    assert aside.bottlenecks == (ASIDE,)
    assert aside.bandwidth_s == pytest.approx((240 * 0.0005 / 2, 0.0))


def test_a_request_does_not_pay_for_steps_between_its_eviction_and_its_return() -> None:
    evicted = np.array([[0, 0, 1, 1.0, 2, 3.0, 2, 4.0, 3.0]])
    found = blame(replace(record(), preemptions=evicted), [SENT], np.array([0]), tail=0)
    assert found[0].bandwidth_s == pytest.approx((60 * 0.004,) * 2)


WAY = MadeUp(0.1, 0.01, None, (Stretch({OUT: 1.0}, 0.01, 0.1, (OUT,)),))
MOVED = Shipments(
    "kv",
    WAY,
    ids=np.array([0, 1]),
    nbytes=np.array([100.0, 50.0]),
    start_s=np.array([1.0, 3.0]),
    end_s=np.array([3.0, 4.0]),
    waited_s=np.array([2.0, 0.4]),
)
"""100 bytes that take 1.1 s alone and took 2 s, and 50 that take 0.6 s, the first 0.2 s beside a prompt."""


def test_what_is_moved_is_spread_over_its_own_time() -> None:
    found = links(record(), ROW_S, [], BANDWIDTHS, [MOVED], bins=6)
    assert found.by_edge[OUT].nbytes == {"kv": 150.0}
    np.testing.assert_allclose(found.by_edge[OUT].binned_bytes, [0.0, 50.0, 50.0, 50.0, 0.0, 0.0])


def test_moving_is_waited_for_by_its_request_alone_and_what_it_lost_is_apart() -> None:
    (found,) = blame(record(), [], np.array([0, 1]), tail=1, shipped=[MOVED])
    assert found.bottlenecks == (OUT,)
    assert found.latency_s == pytest.approx((0.1, 0.1))
    assert found.bandwidth_s == pytest.approx(((1.0 + 0.3) / 2, 0.3))
    assert found.lost_s == pytest.approx((0.9 / 2, 0.0))


def test_queueing_is_kept_of_links_and_not_of_devices() -> None:
    lost_s = {(OUT, "kv"): 2.0, (("gpu0", "hbm"), "kernels"): 3.0, (BACK, "all-reduce"): 0.0}
    found = links(replace(record(), network=NetworkFacts(lost_s)), ROW_S, [SENT], BANDWIDTHS)
    assert found.queueing_s == {(OUT, "kv"): 2.0}


def test_a_run_of_nothing_uses_no_link() -> None:
    empty = replace(record(), steps=(np.empty((0, len(STEP_COLUMNS))),), end_s=0.0)
    assert links(empty, (np.empty(0),), [SENT], BANDWIDTHS).uses == ()


def test_names_are_short() -> None:
    assert short_name(["gpu0"]) == "gpu0"
    assert short_name(f"nvsw{index}" for index in range(4)) == "nvsw0-3"
    assert short_name(["nvsw1", "nvsw3"]) == "nvsw1,3"
    assert short_name(["a0.gpu0", "a0.gpu2", "a0.gpu3"]) == "a0.gpu*"
    assert short_name(f"tray{tray}.gpu{gpu}" for tray in range(18) for gpu in range(4)) == "tray0-17.gpu0-3"


RUNS: dict[str, dict[str, Any]] = {
    "tp2": {"topology": "hgx-h200-8", "deployment": {"tensor_parallel_size": 2}},
    "in-switch": {
        "topology": "hgx-h200-8",
        "deployment": {"tensor_parallel_size": 4, "all_reduce": "in-switch"},
    },
    "two nodes": {"topology": "hgx-h200-8", "nodes": 2, "deployment": {"tensor_parallel_size": 16}},
    "evictions": {
        "topology": "hgx-h200-8",
        "deployment": {"tensor_parallel_size": 8, "num_gpu_blocks_override": 500},
    },
    "shared uplinks": {
        "topology": "l40s-8",
        "model": "llama-3.1-8b",
        "deployment": {"tensor_parallel_size": 4, "placement": "spread"},
    },
    "pipeline": {
        "topology": "rtx-pro-6000-8",
        "model": "llama-3.1-8b",
        "deployment": {"tensor_parallel_size": 2, "pipeline_parallel_size": 4},
    },
    "pools": {
        "topology": "rtx-pro-6000-8",
        "model": "llama-3.1-8b",
        "deployment": {
            "prefill": {"replicas": 2, "tensor_parallel_size": 2},
            "decode": {"replicas": 1, "tensor_parallel_size": 4},
        },
    },
    "pools layer by layer": {
        "topology": "hgx-h200-8",
        "nodes": 2,
        "model": "llama-3.1-8b",
        "deployment": {
            "prefill": {"replicas": 2, "tensor_parallel_size": 4},
            "decode": {"replicas": 2, "tensor_parallel_size": 2},
            "kv_transfer": "layerwise",
            "num_gpu_blocks_override": 300,
            "max_model_len": 4096,
        },
    },
}
DETAILS = ("macro", "step", "auto", "layer")


def ran(name: str, **changes: Any) -> Evaluation:
    workload = {"num_prompts": 60, "request_rate": 30.0}
    asked = {"model": "llama-3.1-70b", "workload": workload, **RUNS[name], **changes}
    return evaluate([simulate(Scenario.model_validate(asked), Catalog())])[0]


@pytest.fixture(scope="module", params=RUNS)
def run(request: pytest.FixtureRequest) -> Evaluation:
    return ran(request.param)


def test_runs_with_few_blocks_evict() -> None:
    for one in ("evictions", "pools layer by layer"):
        assert len(ran(one).result.record.preemptions)


def carried(one: Evaluation) -> dict[tuple[Edge, str], float]:
    """Bytes by link and kind of traffic."""
    return {
        (edge, traffic): nbytes
        for edge, use in one.links.by_edge.items()
        for traffic, nbytes in use.nbytes.items()
    }


def test_bytes_of_a_run_are_those_of_its_messages_one_by_one(run: Evaluation) -> None:
    plan, record = run.result.plan, run.result.record
    expected: dict[tuple[Edge, str], float] = defaultdict(float)

    def send(cost: Any, traffic: str, nbytes: float) -> None:
        for phase in cost.phases:
            for edge, load in phase.loads.items():
                expected[edge, traffic] += nbytes * load

    logs = [(pool, log) for pool in plan.pools for log in range(pool.logs)]
    for steps, (pool, log) in zip(record.steps, logs, strict=True):
        stages = pool.pipeline_parallel_size
        replica = log // stages
        for row in steps:
            count, decodes, chunk_tokens = (
                row[STEP_COLUMNS.index(field)] for field in ("steps", "decodes", "chunk_tokens")
            )
            hidden = plan.model.hidden * (decodes + chunk_tokens)
            for model in pool.fittings[replica].all_reduces:
                best = model.best(2 * hidden)
                assert best is not None
                # two all-reduces a layer, and one in each stage for what comes into it
                send(best, "all-reduce", count * (2 * plan.model.layers / stages + 1) * 2 * hidden)
            for cost in pool.fittings[replica].sends:
                # activations and residual in two bytes each, a share from each rank
                send(cost, "pipeline", count * 2 * 2 * hidden / pool.tensor_parallel_size)
    for source, target, nbytes in zip(
        *(record.transfer(field) for field in ("prefill_replica", "decode_replica", "bytes")), strict=True
    ):
        send(kv_ways(plan.topology, plan.model, *plan.pools)(int(source), int(target)), "kv", nbytes)
    found = carried(run)
    assert found == pytest.approx({key: nbytes for key, nbytes in expected.items() if nbytes}, rel=1e-9)


def test_bins_sum_to_the_whole_and_no_link_carries_more_than_it_can(run: Evaluation) -> None:
    for use in run.links.uses:
        assert use.binned_bytes.sum() == pytest.approx(sum(use.nbytes.values()))
        assert run.links.utilisation(use).max() <= 1.0 + 1e-9
        assert 0.0 < run.links.mean(use) <= run.links.peak(use) <= 1.0


def test_as_much_leaves_a_node_as_comes_to_it(run: Evaluation) -> None:
    """Also a switch that adds: of n messages and n shares 1/n it makes as many, to all and to one each.

    What one GPU sends to another is only passed on by what is between.
    """
    gpus = run.result.plan.topology.gpus
    balance: dict[tuple[str, str], float] = defaultdict(float)
    found = carried(run)
    for ((tail, head), traffic), nbytes in found.items():
        balance[tail, traffic] -= nbytes
        balance[head, traffic] += nbytes
    for (node, traffic), nbytes in balance.items():
        if traffic == "all-reduce" or node not in gpus:
            assert abs(nbytes) < 1e-9 * sum(found.values())


SMALL: dict[str, Any] = {"model": "llama-3.1-8b", "workload": {"num_prompts": 6, "request_rate": 30.0}}


@pytest.mark.parametrize("name", ["tp2", "in-switch", "two nodes", "pipeline"])
def test_links_that_nobody_shares_carry_the_same_at_every_detail(name: str) -> None:
    expected, *others = (carried(ran(name, detail=detail, **SMALL)) for detail in DETAILS)
    for found in others:
        assert found == pytest.approx(expected, rel=1e-9)


def test_shared_links_carry_the_same_piece_by_piece_and_where_it_matters() -> None:
    auto, layer = (ran("shared uplinks", detail=detail, **SMALL) for detail in ("auto", "layer"))
    assert carried(auto) == pytest.approx(carried(layer), rel=1e-9)
    assert auto.links.queueing_s == pytest.approx(layer.links.queueing_s, rel=1e-6)


@pytest.mark.parametrize("name", ["pools", "pools layer by layer"])
def test_kv_cache_that_moves_is_the_same_at_every_detail(name: str) -> None:
    expected, *others = (
        {key: nbytes for key, nbytes in carried(ran(name, detail=detail, **SMALL)).items() if key[1] == "kv"}
        for detail in DETAILS
    )
    assert expected
    for found in others:
        assert found == pytest.approx(expected, rel=1e-9)


def test_kv_cache_is_moved_once_and_arrives_where_it_is_decoded() -> None:
    one = ran("pools")
    record, plan = one.result.record, one.result.plan
    each = plan.model.kv_bytes_per_token(plan.kv_dtype) * 16
    blocks = np.ceil(record.request("input_tokens") / 16)[record.request("output_tokens") > 1].sum()
    came = sum(
        nbytes
        for ((_, head), traffic), nbytes in carried(one).items()
        if traffic == "kv" and head in plan.topology.gpus
    )
    assert came == pytest.approx(each * blocks)


def test_queueing_is_on_the_shared_links_and_shows_whom_it_holds_back() -> None:
    shared = ran("shared uplinks")
    assert shared.links.queueing_s
    for (tail, head), traffic in shared.links.queueing_s:
        assert {tail[:3], head[:3]} == {"cpu", "pci"}
        assert traffic == "all-reduce"
    worst = culprits(shared)[0]
    assert "cpu0,1 <-> pcisw0,1" in worst.name
    assert worst.sharing_s.mean > 0.0
    assert "behind others" in link_sentences(shared)[1]


CAUSES_OF = {
    "all-reduce": ("allreduce_latency", "allreduce_bandwidth"),
    "pipeline": ("pipeline_send",),
    "kv": ("kv_transfer",),
}
"""What the ledger calls the seconds of each kind of traffic."""


@pytest.mark.parametrize(("which", "percent"), [("mean", None), ("p99", 99.0)])
def test_seconds_of_all_links_sum_to_those_of_the_ledger(
    run: Evaluation, which: str, percent: float | None
) -> None:
    book = run.ledger.mean_s() if percent is None else run.ledger.at_percentile_s(percent)
    seconds: dict[str, float] = dict.fromkeys((*CAUSES_OF, "sharing"), 0.0)
    for culprit in culprits(run):
        latency_s, bandwidth_s, sharing_s = (
            getattr(part, which) for part in (culprit.latency_s, culprit.bandwidth_s, culprit.sharing_s)
        )
        assert min(latency_s, bandwidth_s, sharing_s) >= 0.0
        seconds[culprit.traffic] += latency_s + bandwidth_s
        seconds["kv" if culprit.traffic == "kv" else "sharing"] += sharing_s
    for kind, causes in {**CAUSES_OF, "sharing": ("link_sharing",)}.items():
        expected = sum(float(book[CAUSES.index(cause)]) for cause in causes)
        assert seconds[kind] == pytest.approx(expected, rel=1e-9, abs=2e-9)


def test_kv_transfers_are_among_the_culprits() -> None:
    one = ran("pools")
    (found,) = (culprit for culprit in culprits(one) if culprit.traffic == "kv")
    assert "cpu0 -> cpu1" in found.name
    assert found.bandwidth_s.mean > 0.0


def test_the_result_lists_every_link_once(run: Evaluation) -> None:
    found = links_object(run)
    assert sum(line["count"] for line in found["links"]) == len(run.links.by_edge)
    named = [name for series in found["link_utilisation"]["series"] for name in series["names"]]
    assert sorted(named) == sorted(line["name"] for line in found["links"])


def test_nobody_is_held_back_where_nothing_is_sent() -> None:
    asked = {"topology": "hgx-h200-8", "model": "llama-3.1-8b", "workload": {"num_prompts": 5}}
    alone = evaluate([simulate(Scenario.model_validate(asked), Catalog())])[0]
    assert alone.links.uses == ()
    assert links_object(alone)["links"] == []
    assert link_sentences(alone) == [
        "No link holds a request back on hgx-h200-8: nothing travels between GPUs."
    ]


def test_links_of_a_rack_are_named_by_gpu() -> None:
    asked = {
        "topology": "gb300-nvl72",
        "model": "llama-3.1-8b",
        "workload": {"num_prompts": 40},
        "deployment": {"tensor_parallel_size": 4},
    }
    rack = evaluate([simulate(Scenario.model_validate(asked), Catalog())])[0]
    found = {bundle.name: len(bundle.edges) for bundle in bundles(rack.result.plan.topology, rack.links)}
    assert found["tray0.gpu0 -> nvsw0-17"] == found["nvsw0-17 -> tray0.gpu0"] == 18
    assert len(found) == 2 * 72


def test_the_heat_map_has_every_link_and_the_busiest_is_the_thickest(run: Evaluation) -> None:
    panel = draw([run]).axes[0]
    unused, used = (lines for lines in panel.collections if isinstance(lines, LineCollection))
    both_ways = {frozenset(edge) for edge in run.links.by_edge}
    assert len(used.get_segments()) == len(both_ways)
    links_in_all = run.result.plan.topology.graph.number_of_edges()
    assert len(unused.get_segments()) == links_in_all - len(both_ways)
    widths = np.asarray(used.get_linewidths())
    assert (np.diff(widths) >= 0.0).all()
    assert widths.max() > np.asarray(unused.get_linewidths()).max()
