"""Laws of topologies: names do not matter, and a route is as wide as its links."""

from __future__ import annotations

from functools import cache

import networkx as nx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simulator.catalog import Catalog
from simulator.simulation import load_topology
from simulator.topology.graph import Topology
from simulator.topology.join import Join

CATALOG = Catalog()

JOINS = {
    "hgx-h200-8": Join(nodes=3),
    "rtx-pro-6000-8": Join(nodes=2, fabric="leaf-spine", oversubscription=2.0),
    "dgx-spark-1": Join(nodes=2, fabric="direct"),
}

PLACES = ("nic", "staging")
"""Attributes of a node that name another."""


@cache
def topology(name: str, several: bool) -> Topology:
    return load_topology(name, CATALOG, JOINS[name] if several else None)


def relabelled(original: Topology, names: dict[str, str]) -> Topology:
    """The same graph, its nodes in the same order under other names."""
    graph = nx.relabel_nodes(original.graph, names, copy=True)
    for node in graph:
        for place in PLACES:
            if place in graph.nodes[node]:
                graph.nodes[node][place] = names[graph.nodes[node][place]]
    return Topology(original.system, graph, {})


CASES = [(name, False) for name in CATALOG.names("topologies")] + [(name, True) for name in JOINS]


@settings(max_examples=60, deadline=None)
@given(st.sampled_from(CASES), st.randoms(use_true_random=False))
def test_names_of_nodes_change_no_route(case: tuple[str, bool], random: object) -> None:
    """Other names, at random: the same bandwidth, latency, hops and loads between the same places."""
    original = topology(*case)
    numbers = list(range(len(original.graph)))
    random.shuffle(numbers)  # type: ignore[attr-defined]
    names = {node: f"x{number}" for node, number in zip(original.graph, numbers, strict=True)}
    other = relabelled(original, names)
    some = original.gpus[:3] + original.gpus[-3:]
    for source in some:
        for target in some:
            if source == target:
                continue
            assert other.pair(names[source], names[target]) == original.pair(source, target)
            loads = {hop.edge: hop.share for hop in original.route(source, target)}
            renamed = {(names[tail], names[head]): share for (tail, head), share in loads.items()}
            found = {hop.edge: hop.share for hop in other.route(names[source], names[target])}
            assert found == pytest.approx(renamed)
    if len(original.gpus) <= 24:
        assert other.bisection_bytes_per_s() == pytest.approx(original.bisection_bytes_per_s())


@settings(max_examples=100, deadline=None)
@given(st.sampled_from(CASES), st.data())
def test_a_route_carries_all_bytes_from_end_to_end(case: tuple[str, bool], data: st.DataObject) -> None:
    """What goes into a node on the way comes out of it, and no direction of a link is used twice."""
    system = topology(*case)
    if len(system.gpus) < 2:
        return
    ends = data.draw(st.lists(st.sampled_from(system.gpus), min_size=2, max_size=2, unique=True))
    hops = system.route(*ends)
    assert len({hop.edge for hop in hops}) == len(hops)
    net = dict.fromkeys(system.graph, 0.0)
    for hop in hops:
        net[hop.edge[0]] -= hop.share
        net[hop.edge[1]] += hop.share
    expected = dict.fromkeys(system.graph, 0.0) | {ends[0]: -1.0, ends[1]: 1.0}
    assert net == pytest.approx(expected)


@settings(max_examples=100, deadline=None)
@given(st.sampled_from(CASES), st.data())
def test_gpus_and_memories_forward_only_what_is_staged_in_them(
    case: tuple[str, bool], data: st.DataObject
) -> None:
    system = topology(*case)
    if len(system.gpus) < 2:
        return
    ends = data.draw(st.lists(st.sampled_from(system.gpus), min_size=2, max_size=2, unique=True))
    staging = system.graph.nodes[ends[0]].get("staging")
    for path in system.paths(*ends):
        inner = [node for node in path[1:-1] if system.graph.nodes[node]["kind"] in ("gpu", "memory")]
        assert set(inner) <= {staging}
