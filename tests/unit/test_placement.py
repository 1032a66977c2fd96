"""Which GPUs serve which replica."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from simulator.catalog import Catalog
from simulator.errors import InputError
from simulator.scenario import Scenario
from simulator.simulation import load_topology, prepare
from simulator.topology.graph import Topology
from simulator.topology.placement import Listed, Policy, place
from tests.fabrics import link, rails, switch, two_sockets

NVLINK = link("nvlink", "nvlink", 100e9)
PCIE = link("pcie", "pcie", 50e9)
SOCKET = link("socket", "socket", 40e9)
NETWORK = link("network", "network", 25e9)


def _places(fabric: Topology, placement: Policy | Listed, sizes: list[int]) -> list[list[int]]:
    """GPUs of each replica by their place."""
    return [[fabric.gpus.index(gpu) for gpu in group] for group in place(fabric, placement, sizes)]


@pytest.mark.parametrize("size", [1, 2, 3, 4, 8])
def test_packed_in_one_island_takes_gpus_in_order(size: int) -> None:
    fabric = load_topology("gb300-nvl72", Catalog())
    replicas = 72 // size
    expected = [list(range(first, first + size)) for first in range(0, replicas * size, size)]
    assert _places(fabric, "packed", [size] * replicas) == expected


def test_packed_keeps_replicas_within_a_node_as_long_as_one_has_room() -> None:
    """Two nodes of 4, three to a replica: one in each node; the fourth of each node are left over."""
    fabric = rails(2, 4, NVLINK, PCIE, NETWORK)
    assert _places(fabric, "packed", [3, 3]) == [[0, 1, 2], [4, 5, 6]]
    assert _places(fabric, "packed", [3, 3, 2]) == [[0, 1, 2], [4, 5, 6], [3, 7]]


def test_packed_fills_pairs_before_sockets_and_sockets_before_the_box() -> None:
    fabric = two_sockets(PCIE, SOCKET, NVLINK, 2)
    assert _places(fabric, "packed", [1, 2, 2]) == [[0], [2, 3], [4, 5]]
    assert _places(fabric, "packed", [1, 2, 1]) == [[0], [2, 3], [1]]


def test_replicas_of_different_sizes_are_packed_one_after_another() -> None:
    fabric = rails(2, 4, NVLINK, PCIE, NETWORK)
    assert _places(fabric, "packed", [2, 4, 2]) == [[0, 1], [4, 5, 6, 7], [2, 3]]


def test_spread_deals_ranks_to_nodes_in_turn() -> None:
    fabric = rails(4, 2, NVLINK, PCIE, NETWORK)
    assert _places(fabric, "spread", [2, 2, 4]) == [[0, 2], [4, 6], [1, 3, 5, 7]]


def test_spread_deals_ranks_to_sockets_and_then_to_pairs() -> None:
    """A box of two sockets with two bridged pairs each: GPUs 0, 4 (sockets), 2, 6 (the other pairs)."""
    fabric = two_sockets(PCIE, SOCKET, NVLINK, 2)
    for gpu in fabric.gpus:
        fabric.graph.nodes[gpu]["group"] = int(gpu[-1]) // 4
    assert _places(fabric, "spread", [4, 4]) == [[0, 4, 2, 6], [1, 5, 3, 7]]


@given(st.lists(st.integers(1, 5), max_size=6), st.sampled_from(["packed", "spread"]))
def test_no_gpu_serves_two_replicas(sizes: list[int], policy: Policy) -> None:
    fabric = rails(4, 8, NVLINK, PCIE, NETWORK)
    groups = place(fabric, policy, sizes)
    assert [len(group) for group in groups] == sizes
    assert len({gpu for group in groups for gpu in group}) == sum(sizes)


def test_gpus_are_listed_by_name_or_by_place() -> None:
    fabric = switch(4, NVLINK)
    assert place(fabric, ((3, "gpu0"), ("gpu2", 1)), [2, 2]) == (("gpu3", "gpu0"), ("gpu2", "gpu1"))


@pytest.mark.parametrize(
    ("listed", "message"),
    [
        (((0, 1), (2, "gpu9")), "no GPU of made-up is called 'gpu9'"),
        (((0, 1), (2, 4)), "no GPU 4 among the 4"),
        (((0, 1), (2, -1)), "no GPU -1 among the 4"),
        (((0, 1), (2, "gpu1")), "gpu1 is listed twice"),
        (((0, 1), (2,)), "1 GPUs are listed for replica 1, which takes 2"),
        (((0, 1),), "listed for 1 replicas, and there are 2"),
    ],
)
def test_a_wrong_list_says_what_is_wrong(listed: Listed, message: str) -> None:
    with pytest.raises(InputError, match=message) as raised:
        place(switch(4, NVLINK), listed, [2, 2])
    assert raised.value.field == "placement"
    assert raised.value.remedy


def _scenario(placement: object, **deployment: object) -> Scenario:
    given_ = {"tensor_parallel_size": 2, "placement": placement} | deployment
    return Scenario.model_validate({"topology": "hgx-h200-8", "deployment": given_, "workload": {}})


def test_the_plan_follows_the_placement() -> None:
    catalog = Catalog()
    assert prepare(_scenario("packed"), catalog).groups[1] == ("gpu2", "gpu3")
    assert prepare(_scenario("spread"), catalog).groups[1] == ("gpu1", "gpu5")
    listed = prepare(_scenario([["gpu7", 0], [3, 4]]), catalog)
    assert listed.replicas == 2
    assert listed.groups == (("gpu7", "gpu0"), ("gpu3", "gpu4"))


def test_stages_take_the_ranks_of_a_replica_in_order() -> None:
    plan = prepare(_scenario([[0, 4, 1, 5]], pipeline_parallel_size=2), Catalog())
    assert plan.groups == (("gpu0", "gpu4"), ("gpu1", "gpu5"))


@pytest.mark.parametrize(
    ("text", "listed"),
    [
        ("0,1;2,3", ((0, 1), (2, 3))),
        ("gpu0, gpu1", (("gpu0", "gpu1"),)),
        ("5", ((5,),)),
        ("0;1;", ((0,), (1,))),
    ],
)
def test_the_command_line_parts_replicas_by_semicolons(text: str, listed: Listed) -> None:
    assert _scenario(text).deployment.placement == listed


def test_a_placement_survives_the_written_scenario() -> None:
    scenario = _scenario([["gpu7", 0], [3, 4]])
    assert Scenario.model_validate(scenario.plain()) == scenario
