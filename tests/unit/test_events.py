"""Events of a scenario: what they name, what is left then, and what replicas cost on it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from simulator.catalog import Catalog
from simulator.errors import InputError
from simulator.events import Condition, conditions
from simulator.network.collectives import all_reduce_model
from simulator.record import CAUSES, STEP_CAUSES, Status
from simulator.report.evaluation import Evaluation, evaluate
from simulator.scenario import Scenario
from simulator.simulation import load_topology, prepare, simulate
from simulator.topology.graph import CutError, Topology
from simulator.topology.join import Join
from tests import fabrics

CATALOG = Catalog()


def scenario(*events: dict[str, Any], **changes: Any) -> Scenario:
    given = {
        "topology": "hgx-h200-8",
        "model": "llama-3.1-8b",
        "deployment": {"tensor_parallel_size": 4},
        "workload": {
            "preset": "random",
            "num_prompts": 20,
            "request_rate": 40,
            "random_input_len": 500,
            "random_output_len": 50,
        },
        "events": list(events),
    }
    return Scenario.model_validate(given | changes)


def condition(topology: Topology, *events: dict[str, Any]) -> Condition:
    """What holds after events that all happen at 1 s."""
    at_once = scenario(*({"at": "1 s", **event} for event in events)).events
    [(_, found)] = conditions(at_once, topology, 2)
    return found


H200 = load_topology("hgx-h200-8", CATALOG)


def test_events_may_stand_in_any_order() -> None:
    events = scenario(
        {"at": "2 s", "link": "nvlink4", "bandwidth": 1.0},
        {"at": "1 s", "nic": 3, "state": "down"},
        {"at": "1000 ms", "link": "nvlink4", "bandwidth": 0.5},
    ).events
    (first_s, first), (second_s, second) = conditions(events, H200, 2)
    assert (first_s, second_s) == (1.0, 2.0)
    assert (set(first.bandwidth.values()), set(second.bandwidth.values())) == ({0.5}, {1.0})
    assert first.lost == second.lost == {"nic3"}


def test_a_link_is_a_class_or_what_is_between_two_nodes() -> None:
    for name in ("gpu0--nvsw1", "nvsw1--gpu0"):
        left = condition(H200, {"link": name, "bandwidth": 0.25}).of(H200)
        whole = H200.bandwidth_bytes_per_s(("gpu0", "nvsw1"))
        assert left.bandwidth_bytes_per_s(("gpu0", "nvsw1")) == 0.25 * whole
        assert left.bandwidth_bytes_per_s(("nvsw1", "gpu0")) == 0.25 * whole
        assert left.bandwidth_bytes_per_s(("gpu1", "nvsw1")) == whole
    left = condition(H200, {"link": "nvlink4", "bandwidth": 0.5}).of(H200)
    for edge in H200.graph.edges:
        factor = 0.5 if H200.link(edge).name == "nvlink4" else 1.0
        assert left.bandwidth_bytes_per_s(edge) == factor * H200.bandwidth_bytes_per_s(edge)


def test_what_is_lost_may_come_back() -> None:
    down = {"nvswitch": 2, "state": "down"}
    assert "nvsw2" not in condition(H200, down).of(H200).graph
    back = condition(H200, down, {"nvswitch": "nvsw2", "state": "up"})
    assert list(back.of(H200).graph.edges) == list(H200.graph.edges)


def test_bytes_spread_over_the_planes_that_are_left() -> None:
    """hgx-h200-8 has 5, 4, 4 and 5 links of a GPU to its planes; without the second 5, 4 and 5 of 14."""
    left = condition(H200, {"nvswitch": 1, "state": "down"}).of(H200)
    shares = {hop.edge[1]: hop.share for hop in left.route("gpu0", "gpu7") if hop.edge[0] == "gpu0"}
    assert shares == pytest.approx({"nvsw0": 5 / 14, "nvsw2": 4 / 14, "nvsw3": 5 / 14})


def test_a_gpu_without_its_nic_takes_the_nearest_one() -> None:
    joined = load_topology("hgx-h200-8", CATALOG, Join(nodes=2))
    left = condition(joined, {"nic": "node0.nic0", "state": "down"}).of(joined)
    assert joined.nic("node0.gpu0") == "node0.nic0"
    assert left.nic("node0.gpu0") == "node0.nic1"
    edges = {hop.edge for hop in left.route("node0.gpu0", "node1.gpu0")}
    assert ("leaf1", "spine0") in edges


def test_a_nic_whose_cable_leads_nowhere_is_lost_too() -> None:
    joined = load_topology("hgx-h200-8", CATALOG, Join(nodes=2, fabric="direct"))
    left = condition(joined, {"nic": "node0.nic0", "state": "down"}).of(joined)
    assert left.nic("node1.gpu0") == "node1.nic1"
    assert ("node1.nic1", "node0.nic1") in {hop.edge for hop in left.route("node1.gpu0", "node0.gpu0")}


def test_without_any_plane_gpus_meet_over_pcie_and_without_a_path_not_at_all() -> None:
    down = [{"nvswitch": plane, "state": "down"} for plane in range(4)]
    left = condition(H200, *down).of(H200)
    assert {left.link(hop.edge).kind for hop in left.route("gpu0", "gpu1")} <= {"pcie", "socket"}
    alone = fabrics.switch(2, fabrics.link("nv", "nvlink", 1e9))
    with pytest.raises(CutError, match="leads from gpu0 to gpu1"):
        alone.damaged({"nvswitch0"}, {}).route("gpu0", "gpu1")


@pytest.mark.parametrize("name", CATALOG.names("topologies"))
def test_a_degraded_link_never_speeds_up_an_all_reduce(name: str) -> None:
    topology = load_topology(name, CATALOG)
    ranks = topology.gpus[: min(8, len(topology.gpus))]
    whole = all_reduce_model(topology, ranks)
    near = {edge for cost in whole.costs for phase in cost.phases for edge in phase.loads}
    for edge in sorted(edge for edge in topology.graph.edges if edge in near)[::13][:6]:
        slower = all_reduce_model(topology.damaged((), {edge: 0.5}), ranks)
        for nbytes in (1e3, 1e6, 1e8):
            assert slower.cost(nbytes)[1:] >= (0.0, 0.0)
            assert sum(slower.cost(nbytes)[1:]) >= sum(whole.cost(nbytes)[1:]) * (1 - 1e-12)


FAULTS: dict[str, tuple[dict[str, Any], str]] = {
    "an unknown link": (
        {"link": "nvlink5", "bandwidth": 0.5},
        "events.0.link: no link of .* nvlink4",
    ),
    "an unknown pair": ({"link": "gpu0--gpu1", "bandwidth": 0.5}, "events.0.link: .*nvsw0--gpu1"),
    "an unknown NIC": ({"nic": "nic9", "state": "down"}, "events.0.nic: .* did you mean nic"),
    "a NIC too many": (
        {"nic": 8, "state": "down"},
        "events.0.nic: no nic 8 .* count from 0 to 7",
    ),
    "an unknown plane": ({"nvswitch": 4, "state": "down"}, "events.0.nvswitch: no nvswitch 4 among the 4"),
    "an unknown GPU": ({"gpu": "gpu8", "speed": 0.5}, "events.0.gpu: no gpu of hgx-h200-8 is called 'gpu8'"),
}


@pytest.mark.parametrize(("event", "said"), FAULTS.values(), ids=FAULTS)
def test_a_part_that_there_is_not_is_refused(event: dict[str, Any], said: str) -> None:
    with pytest.raises(InputError, match=said):
        prepare(scenario({"at": "1 s", **event}), CATALOG)


def test_a_system_without_planes_has_none_to_lose() -> None:
    with pytest.raises(InputError, match="mi300x-8 has no nvswitch; leave the event out"):
        prepare(scenario({"at": "1 s", "nvswitch": 0, "state": "down"}, topology="mi300x-8"), CATALOG)


def served(detail: str, *events: dict[str, Any], **changes: Any) -> Evaluation:
    [found] = evaluate([simulate(scenario(*events, detail=detail, **changes), CATALOG)])
    return found


DEGRADED = (
    {"at": "0.1 s", "link": "nvlink4", "bandwidth": 0.2},
    {"at": "0.3 s", "gpu": 5, "speed": 0.5},
    {"at": "0.6 s", "nvswitch": 0, "state": "down"},
    {"at": "0.9 s", "link": "nvlink4", "bandwidth": 1.0},
)


@pytest.mark.parametrize(
    ("stages", "details"),
    [(1, ("macro", "step", "layer", "auto")), (2, ("macro", "step")), (2, ("layer", "auto"))],
)
def test_a_degraded_run_is_the_same_in_every_detail_and_its_ledger_adds_up(
    stages: int, details: tuple[str, ...]
) -> None:
    """The sends of a pipeline share links with its all-reduces, which only layer and auto know."""
    deployment = {"tensor_parallel_size": 2, "pipeline_parallel_size": stages}
    ends_s = [
        served(detail, *DEGRADED, deployment=deployment).result.record.request("finish_s")
        for detail in details
    ]
    for found_s in ends_s[1:]:
        np.testing.assert_allclose(found_s, ends_s[0], rtol=1e-9)


def test_what_is_slow_is_seen_where_it_is_slow() -> None:
    """GPU 5 is of the second replica."""
    whole = served("macro")
    slow_gpu = served("macro", {"at": "0 s", "gpu": 5, "speed": 0.5})
    slow_link = served("macro", {"at": "0 s", "link": "nvlink4", "bandwidth": 0.5})
    weights = CAUSES.index("weights")
    replica = whole.result.record.request("replica")
    assert (slow_gpu.result.record.request("replica") == replica).all()
    ratio = slow_gpu.ledger.by_request[:, weights] / whole.ledger.by_request[:, weights]
    assert (ratio[replica == 1] > 1.5).all()
    assert ratio[replica == 0] == pytest.approx(1.0)
    carried = STEP_CAUSES.index("allreduce_bandwidth")
    slow_s, whole_s = (one.ledger.by_replica[:, carried] for one in (slow_link, whole))
    assert (slow_s > 1.5 * whole_s).all()


def test_no_events_and_an_empty_list_of_them_are_one_scenario() -> None:
    bare = {"topology": "hgx-h200-8", "workload": {"num_prompts": 5}}
    assert Scenario.model_validate(bare) == Scenario.model_validate(bare | {"events": []})


def test_an_event_after_the_end_changes_no_bit() -> None:
    bare, late = (
        simulate(scenario(*events), CATALOG).record
        for events in ((), ({"at": "1000 s", "link": "nvlink4", "bandwidth": 0.5},))
    )
    assert (bare.request("status") == Status.FINISHED).all()
    assert bare.requests.tobytes() == late.requests.tobytes()
    assert [rows.tobytes() for rows in bare.steps] == [rows.tobytes() for rows in late.steps]
    assert bare.end_s == late.end_s


FAILING = (
    {"at": "0.2 s", "replica": 1, "state": "down"},
    {"at": "0.6 s", "replica": 1, "state": "up"},
)


@pytest.mark.parametrize(
    ("stages", "details"),
    [(1, ("macro", "step", "layer", "auto")), (2, ("macro", "step")), (2, ("layer", "auto"))],
)
def test_a_run_with_a_failure_is_the_same_in_every_detail(stages: int, details: tuple[str, ...]) -> None:
    deployment = {"tensor_parallel_size": 2, "pipeline_parallel_size": stages}
    found = [served(detail, *DEGRADED, *FAILING, deployment=deployment) for detail in details]
    for one in found:
        assert one.summary.failures == found[0].summary.failures
        np.testing.assert_allclose(
            one.result.record.request("finish_s"), found[0].result.record.request("finish_s"), rtol=1e-9
        )
    assert found[0].summary.failures.outages == 1
    assert found[0].summary.failures.rerouted > 0
    assert found[0].summary.failures.lost_tokens > 0
    assert found[0].summary.completed == found[0].summary.num_prompts


def test_nobody_is_lost_uncounted_when_all_replicas_stay_down() -> None:
    found = served("auto", *({"at": "0.2 s", "replica": index, "state": "down"} for index in (0, 1)))
    summary = found.summary
    assert summary.completed + summary.failures.failed == summary.num_prompts
    assert summary.failures.failed > 0
    assert any("requests failed: no replica was up any more" in warning for warning in found.warnings)


def test_requests_wait_for_a_replica_that_comes_back() -> None:
    down = ({"at": "0.2 s", "replica": index, "state": "down"} for index in (0, 1))
    found = served("auto", *down, {"at": "5 s", "replica": 1, "state": "up"})
    record = found.result.record
    assert found.summary.completed == found.summary.num_prompts
    later = record.request("finish_s") > 0.2
    assert (record.request("replica")[later] == 1).all()
    assert (record.request("finish_s")[later] > 5.0).all()


def test_a_replica_whose_gpus_no_path_joins_is_down_until_one_does() -> None:
    """Two DGX Sparks have one NIC each: without one of them they are two machines."""
    given = {
        "topology": "dgx-spark-2",
        "model": "llama-3.1-8b",
        "deployment": {"tensor_parallel_size": 2},
        "workload": {"preset": "random", "num_prompts": 3, "random_input_len": 100, "random_output_len": 20},
    }
    graph = load_topology("dgx-spark-2", CATALOG).graph
    nics = [node for node, data in graph.nodes(data=True) if data["kind"] == "nic"]
    events = [{"at": "0.1 s", "nic": nics[0], "state": "down"}, {"at": "9 s", "nic": nics[0], "state": "up"}]
    [found] = evaluate([simulate(Scenario.model_validate(given | {"events": events}), CATALOG)])
    assert found.summary.failures.outages == 1
    assert found.summary.completed == 3
    assert (found.result.record.request("finish_s") > 9.0).all()
    assert not found.result.plan.refits[0].fittings
    assert not found.result.plan.refits[1].fittings


def test_links_of_a_lost_plane_carry_nothing_and_the_others_its_share() -> None:
    whole = served("macro", deployment={"tensor_parallel_size": 8})
    left = served(
        "macro", {"at": "0 s", "nvswitch": 0, "state": "down"}, deployment={"tensor_parallel_size": 8}
    )
    assert any("nvsw0" in edge for edge in whole.links.by_edge)
    assert not any("nvsw0" in edge for edge in left.links.by_edge)
    carried = [
        sum(sum(use.nbytes.values()) for edge, use in found.links.by_edge.items() if edge[0] == "gpu3")
        for found in (whole, left)
    ]
    assert carried[1] == pytest.approx(carried[0], rel=1e-2)  # who shares a step with whom changes


def test_links_count_the_steps_before_and_after_an_event() -> None:
    """The first plane of four is lost while the run is under way: it carries some of its bytes, not all."""
    events = {"at": "0.5 s", "nvswitch": 0, "state": "down"}
    whole, partly = (
        served("macro", *given, deployment={"tensor_parallel_size": 8}) for given in ((), (events,))
    )
    edge = ("gpu3", "nvsw0")
    carried, before = (sum(found.links.by_edge[edge].nbytes.values()) for found in (partly, whole))
    assert 0.0 < carried < before


def test_blame_is_not_for_what_a_failure_made_void() -> None:
    found = served("macro", *FAILING, deployment={"tensor_parallel_size": 4})
    mean_s = dict(zip(CAUSES, found.ledger.mean_s(), strict=True))
    for name, of in (("allreduce_latency", "latency_s"), ("allreduce_bandwidth", "bandwidth_s")):
        blamed_s = sum(getattr(one, of).mean for one in found.blames)
        assert blamed_s == pytest.approx(mean_s[name], rel=1e-6)


def test_a_replica_that_there_is_not_is_refused() -> None:
    with pytest.raises(InputError, match=r"events\.0\.replica: no replica 2 among 2; count from 0 to 1"):
        prepare(scenario({"at": "1 s", "replica": 2, "state": "down"}), CATALOG)


POOLS = {
    "tensor_parallel_size": 2,
    "prefill": {"replicas": 2},
    "decode": {"replicas": 2},
}


@pytest.mark.parametrize("details", [("macro", "step"), ("layer", "auto")])
def test_pools_on_degraded_parts_are_the_same_in_every_detail(details: tuple[str, str]) -> None:
    one, other = (served(detail, *DEGRADED, deployment=POOLS) for detail in details)
    np.testing.assert_allclose(
        one.result.record.request("finish_s"), other.result.record.request("finish_s"), rtol=1e-9
    )


def test_kv_cache_goes_around_a_lost_plane() -> None:
    found = served("macro", {"at": "0 s", "nvswitch": 0, "state": "down"}, deployment=POOLS)
    moved = {edge for edge, use in found.links.by_edge.items() if use.nbytes.get("kv")}
    assert moved
    assert not any("nvsw0" in edge for edge in moved)


def test_replicas_of_pools_do_not_fail_yet() -> None:
    with pytest.raises(InputError, match="events: a replica of a prefill or a decode pool fails"):
        prepare(scenario({"at": "1 s", "replica": 3, "state": "down"}, deployment=POOLS), CATALOG)
