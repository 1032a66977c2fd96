"""The order of a ring, and rings by rail."""

from __future__ import annotations

from itertools import permutations

import networkx as nx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simulator.network.rings import node_groups, rail_rings, ring_order
from simulator.topology.graph import Topology
from tests.fabrics import full_mesh, link, pcie_tree, rails, switch, two_sockets

NVLINK = link("nvlink", "nvlink", 100e9)
BRIDGE = link("bridge", "nvlink", 100e9)
PCIE = link("pcie", "pcie", 50e9)
SOCKET = link("socket", "socket", 40e9)
NETWORK = link("network", "network", 25e9)


def _length(topology: Topology, ring: tuple[str, ...]) -> int:
    return sum(topology.distance(one, after) for one, after in zip(ring, (*ring[1:], ring[0]), strict=True))


def _crossings(topology: Topology, ring: tuple[str, ...], kind: str) -> int:
    """Hops of a ring that use a class of link."""
    hops = zip(ring, (*ring[1:], ring[0]), strict=True)
    return sum(any(topology.link(hop.edge).kind == kind for hop in topology.route(*pair)) for pair in hops)


@pytest.mark.parametrize("fabric", [switch(8, NVLINK), full_mesh(8, NVLINK)])
def test_where_all_pairs_are_alike_the_ring_keeps_the_order_given(fabric: Topology) -> None:
    assert ring_order(fabric, fabric.gpus) == fabric.gpus


@given(st.permutations(range(8)))
def test_a_ring_crosses_the_socket_link_once_each_way_whatever_the_order_given(order: list[int]) -> None:
    fabric = two_sockets(PCIE, SOCKET)
    ring = ring_order(fabric, [f"gpu{index}" for index in order])
    assert ring[0] == f"gpu{order[0]}"
    assert _crossings(fabric, ring, "socket") == 2


@given(st.permutations(range(8)), st.sampled_from([2, 4]))
def test_bridged_gpus_stand_side_by_side(order: list[int], size: int) -> None:
    """Eight GPUs in pairs: 4 hops over a bridge, 4 between pairs; in quads: 3 in each and 2 between."""
    fabric = two_sockets(PCIE, SOCKET, BRIDGE, size)
    ring = ring_order(fabric, [f"gpu{index}" for index in order])
    assert _crossings(fabric, ring, "pcie") == 8 // size
    assert _crossings(fabric, ring, "socket") == 2


@given(st.permutations(range(8)))
def test_nodes_are_contiguous_and_left_by_the_rail_on_which_the_next_is_entered(order: list[int]) -> None:
    """Two nodes of four: two crossings, each NIC to leaf to NIC (two network hops), never over the spine."""
    fabric = rails(2, 4, NVLINK, PCIE, NETWORK)
    ring = ring_order(fabric, [fabric.gpus[index] for index in order])
    assert _crossings(fabric, ring, "network") == 2
    assert _length(fabric, ring) == 6 * 2 + 2 * (2 * 10**12 + 2 * 10**6)


@settings(max_examples=25, deadline=None)
@given(st.permutations(range(6)), st.data())
def test_the_ring_is_the_shortest_there_is_on_trees_and_bridges(
    order: list[int], data: st.DataObject
) -> None:
    fabric = data.draw(
        st.sampled_from(
            [
                two_sockets(PCIE, SOCKET),
                two_sockets(PCIE, SOCKET, BRIDGE, 2),
                rails(3, 2, NVLINK, PCIE, NETWORK),
            ]
        )
    )
    ranks = [fabric.gpus[index] for index in order]
    shortest = min(_length(fabric, (ranks[0], *rest)) for rest in permutations(ranks[1:]))
    assert _length(fabric, ring_order(fabric, ranks)) == shortest


@given(st.permutations(range(8)))
def test_names_do_not_matter(names: list[int]) -> None:
    """The same graph under other names, listed in the same places: the same places in the ring."""
    fabric = two_sockets(PCIE, SOCKET, BRIDGE, 2)
    renamed = {f"gpu{index}": f"gpu{name}" for index, name in enumerate(names)}
    other = Topology(fabric.system, nx.relabel_nodes(fabric.graph, renamed), {})
    ranks = ["gpu3", "gpu6", "gpu0", "gpu5", "gpu1", "gpu7"]
    expected = tuple(renamed[rank] for rank in ring_order(fabric, ranks))
    assert ring_order(other, [renamed[rank] for rank in ranks]) == expected


def test_a_pcie_tree_is_walked_switch_by_switch() -> None:
    tree = pcie_tree(PCIE)
    assert ring_order(tree, ["gpu0", "gpu2", "gpu1", "gpu3"]) == ("gpu0", "gpu2", "gpu3", "gpu1")
    assert ring_order(tree, tree.gpus) == tree.gpus


@pytest.mark.parametrize("nodes", [2, 3, 4, 5])
@pytest.mark.parametrize("gpus", [3, 4, 8])
def test_each_ring_of_the_rails_stays_on_a_rail_and_each_gpu_sends_to_the_next_node_once(
    nodes: int, gpus: int
) -> None:
    fabric = rails(nodes, gpus, NVLINK, PCIE, NETWORK)
    groups = node_groups(fabric, fabric.gpus)
    assert [len(group) for group in groups] == [gpus] * nodes
    senders: list[str] = []
    for ring in rail_rings(groups):
        assert sorted(ring) == sorted(fabric.gpus)
        for one, after in zip(ring, (*ring[1:], ring[0]), strict=True):
            if fabric.host(one) != fabric.host(after):
                assert one.split(".")[1] == after.split(".")[1]
                senders.append(one)
    assert sorted(senders) == sorted(fabric.gpus)
