"""Laws of replicas that share devices and links."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import networkx as nx
import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from simulator.record import Record
from simulator.topology.graph import Topology
from tests import fabrics
from tests.sharing import APART, TOGETHER, SharedCase, shared_cases

FACTS = ("id", "status", "arrival_s", "admitted_s", "first_token_s", "finish_s", "preemptions", "replica")


def _assert_same(one: Record, other: Record) -> None:
    for name in FACTS:
        np.testing.assert_allclose(one.request(name), other.request(name), rtol=1e-9, atol=0, err_msg=name)


@settings(max_examples=150, deadline=None)
@given(shared_cases(APART))
def test_layer_equals_step_where_nothing_is_shared(case: SharedCase) -> None:
    _assert_same(case.run("layer"), case.run("step"))


@settings(max_examples=200, deadline=None)
@given(shared_cases(TOGETHER))
def test_auto_equals_layer_whatever_is_shared(case: SharedCase) -> None:
    _assert_same(case.run("auto"), case.run("layer"))


@settings(max_examples=100, deadline=None)
@given(shared_cases(TOGETHER))
def test_auto_equals_layer_for_pipelines(case: SharedCase) -> None:
    stages = replace(case, pipelined=True)
    _assert_same(stages.run("auto"), stages.run("layer"))


@settings(max_examples=100, deadline=None)
@given(shared_cases(TOGETHER))
def test_sharing_never_ends_a_closed_batch_earlier(case: SharedCase) -> None:
    closed = [(0.0, *lengths) for _, *lengths in case.traffic]
    together = replace(case, traffic=closed, router="round-robin")
    assert together.run("auto").end_s >= together.run("step").end_s * (1 - 1e-9)


@settings(max_examples=60, deadline=None)
@given(shared_cases(APART), st.sampled_from(["auto", "layer"]))
def test_an_infinitely_fast_network_is_no_network(case: SharedCase, detail: str) -> None:
    free = fabrics.pcie_tree(fabrics.link("free", "pcie", 1e30, latency_s=0.0))
    alone = replace(case, groups=tuple(group[:1] for group in case.groups))
    _assert_same(replace(case, topology=free).run(detail), alone.run(detail))


@settings(max_examples=60, deadline=None)
@given(shared_cases(APART[1:2]), st.sampled_from(["auto", "layer"]), st.booleans())
def test_a_faster_link_never_makes_a_closed_batch_slower(case: SharedCase, detail: str, wider: bool) -> None:
    closed = [(0.0, *lengths) for _, *lengths in case.traffic]
    slow = fabrics.link("slow", "pcie", 1e7, latency_s=1e-4)
    fast = fabrics.link("fast", "pcie", 3e7 if wider else 1e7, latency_s=1e-4 if wider else 2e-5)
    slow_s, fast_s = (
        replace(case, traffic=closed, topology=fabrics.pcie_tree(joint)).run(detail).end_s
        for joint in (slow, fast)
    )
    assert fast_s <= slow_s * (1 + 1e-12)


@settings(max_examples=60, deadline=None)
@given(shared_cases(TOGETHER), st.randoms(use_true_random=False))
def test_names_and_order_of_the_nodes_change_no_result(case: SharedCase, random: Random) -> None:
    names = [f"n{index}" for index in range(len(case.topology.graph))]
    random.shuffle(names)
    new = dict(zip(case.topology.graph, names, strict=True))
    renamed: nx.Graph[str] = nx.Graph()
    nodes, edges = list(case.topology.graph.nodes(data=True)), list(case.topology.graph.edges(data=True))
    random.shuffle(nodes)
    random.shuffle(edges)
    renamed.add_nodes_from((new[node], facts) for node, facts in nodes)
    renamed.add_edges_from((new[one], new[other], facts) for one, other, facts in edges)
    other = replace(
        case,
        topology=Topology(case.topology.system, renamed, {}),
        groups=tuple(tuple(new[gpu] for gpu in group) for group in case.groups),
    )
    _assert_same(case.run("auto"), other.run("auto"))
