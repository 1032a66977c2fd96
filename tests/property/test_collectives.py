"""Laws of collectives on every kind of graph: cuts, names, faster links, larger messages."""

from __future__ import annotations

from collections.abc import Callable
from itertools import combinations

import networkx as nx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simulator.catalog import Catalog
from simulator.errors import InputError
from simulator.hardware import Algorithm, CollectiveConstants, Link, LinkKind
from simulator.network.collectives import (
    ALGORITHMS,
    AffineCost,
    all_gather_model,
    all_reduce_model,
    all_to_all_model,
    reduce_scatter_model,
)
from simulator.network.cut import Collective, cut_bound_s_per_byte, lower_bound_s_per_byte
from simulator.network.rounds import CollectiveModel
from simulator.simulation import load_topology
from simulator.topology.graph import Topology
from simulator.topology.join import Join
from tests.fabrics import full_mesh, link, pcie_tree, rails, sourced, switch, two_sockets

CATALOG = Catalog()
KINDS: tuple[LinkKind, ...] = ("nvlink", "pcie", "socket", "network")
BYTES_PER_S = {"nvlink": 100e9, "pcie": 50e9, "socket": 40e9, "network": 25e9}

MODELS: dict[Collective, Callable[[Topology, tuple[str, ...]], CollectiveModel]] = {
    "all-reduce": all_reduce_model,
    "reduce-scatter": reduce_scatter_model,
    "all-gather": all_gather_model,
    "all-to-all": all_to_all_model,
}


def _links(
    faster: dict[LinkKind, float] | None = None, sooner: dict[LinkKind, float] | None = None, seed: int = 0
) -> dict[LinkKind, Link]:
    """A link of each kind; efficiencies by ``seed``, ring constants on NVLink where it is odd."""
    faster, sooner = faster or {}, sooner or {}
    made = {}
    for place, kind in enumerate(KINDS):
        constants: dict[Algorithm, CollectiveConstants] = {}
        if kind == "nvlink" and seed % 2:
            constants["ring"] = CollectiveConstants.model_construct(
                fixed=sourced(10e-6), per_peer=sourced(1e-6), efficiency=sourced(0.6), max_message=None
            )
        efficiency = 0.5 + 0.1 * ((seed // 2 + place * 3) % 6)
        bytes_per_s = BYTES_PER_S[kind] * faster.get(kind, 1.0)
        made[kind] = link(kind, kind, bytes_per_s, 1e-6 * sooner.get(kind, 1.0), efficiency, constants)
    return made


FABRICS: dict[str, Callable[[dict[LinkKind, Link]], Topology]] = {
    "mesh": lambda links: full_mesh(4, links["nvlink"]),
    "switch": lambda links: switch(4, links["nvlink"]),
    "adding switch": lambda links: switch(4, links["nvlink"], reduces=True),
    "pcie tree": lambda links: pcie_tree(links["pcie"]),
    "two sockets": lambda links: two_sockets(links["pcie"], links["socket"]),
    "bridged pairs": lambda links: two_sockets(links["pcie"], links["socket"], links["nvlink"], 2),
    "bridged quads": lambda links: two_sockets(links["pcie"], links["socket"], links["nvlink"], 4),
    "rails of 2": lambda links: rails(2, 4, links["nvlink"], links["pcie"], links["network"]),
    "rails of 3": lambda links: rails(3, 2, links["nvlink"], links["pcie"], links["network"]),
}


def _costs(fabric: Topology, ranks: tuple[str, ...]) -> list[tuple[Collective, AffineCost]]:
    """Of every collective, all-reduces by every algorithm that works."""
    found: list[tuple[Collective, AffineCost]] = [
        (name, cost) for name, model in MODELS.items() for cost in model(fabric, ranks).costs
    ]
    for algorithm in ALGORITHMS:
        try:
            forced = all_reduce_model(fabric, ranks, algorithm.name)
        except InputError:
            continue
        found += [("all-reduce", cost) for cost in forced.costs]
    return found


@pytest.mark.parametrize("name", FABRICS)
def test_no_collective_beats_any_cut_of_the_graph(name: str) -> None:
    """Every split of the ranks in two."""
    fabric = FABRICS[name](_links())
    costs = _costs(fabric, fabric.gpus)
    for size in range(1, len(fabric.gpus) // 2 + 1):
        for side in combinations(fabric.gpus, size):
            bounds = {name: cut_bound_s_per_byte(fabric, fabric.gpus, side, name) for name in MODELS}
            for collective, cost in costs:
                assert cost.s_per_byte >= bounds[collective] * (1 - 1e-9), (collective, cost.algorithm, side)


@pytest.mark.parametrize("nodes", [1, 2])
@pytest.mark.parametrize("system", CATALOG.names("topologies"))
def test_no_collective_of_a_system_of_the_catalogue_beats_its_cuts(system: str, nodes: int) -> None:
    described = CATALOG.system(system)
    if nodes > 1 and (described.joined is not None or described.fabric.kind == "nvlink-rack"):
        pytest.skip("joined already, or large")
    fabric = load_topology(system, CATALOG, None if nodes == 1 else Join(nodes=nodes))
    each = min(8 // nodes, len(fabric.gpus) // nodes)
    ranks = tuple(gpu for host in fabric.hosts(fabric.gpus).values() for gpu in host[:each])
    if len(ranks) < 2:
        pytest.skip("one GPU")
    bounds = {name: lower_bound_s_per_byte(fabric, ranks, name) for name in MODELS}
    for collective, cost in _costs(fabric, ranks):
        assert cost.s_per_byte >= bounds[collective] * (1 - 1e-9) > 0


def test_the_bound_is_met_where_two_exchange_over_one_cable() -> None:
    """Two GPUs on one link: a whole message each way, as in a ring of two or one shot."""
    fabric = full_mesh(2, link("nvlink", "nvlink", 100e9))
    bound = lower_bound_s_per_byte(fabric, fabric.gpus)
    assert bound == pytest.approx(1 / 100e9)
    assert min(cost.s_per_byte for cost in all_reduce_model(fabric, fabric.gpus).costs) == pytest.approx(
        bound
    )
    assert lower_bound_s_per_byte(fabric, fabric.gpus, "all-gather") == pytest.approx(1 / 2 / 100e9)
    assert lower_bound_s_per_byte(fabric, fabric.gpus[:1]) == 0.0


def test_nodes_are_cut_at_their_nics() -> None:
    """Two nodes of four, each GPU with a NIC of 25 GB/s: 100 GB/s for a whole message each way."""
    fabric = FABRICS["rails of 2"](_links())
    assert cut_bound_s_per_byte(fabric, fabric.gpus, fabric.gpus[:4]) == pytest.approx(1 / 100e9)
    assert lower_bound_s_per_byte(fabric, fabric.gpus) == pytest.approx(1 / 100e9)


@settings(max_examples=60, deadline=None)
@given(st.sampled_from(sorted(FABRICS)), st.data())
def test_isomorphic_relabelling_changes_no_cost(name: str, data: st.DataObject) -> None:
    """GPUs swap names, the order of ranks stays that of their places in the graph."""
    fabric = FABRICS[name](_links())
    names = data.draw(st.permutations(sorted(fabric.graph)))
    renamed = dict(zip(fabric.graph, (f"x{place}" for place in map(names.index, fabric.graph)), strict=True))
    other = Topology(fabric.system, nx.relabel_nodes(fabric.graph, renamed), {})
    after = [cost for _, cost in _costs(other, other.gpus)]
    for (_, one), two in zip(_costs(fabric, fabric.gpus), after, strict=True):
        assert one.algorithm == two.algorithm
        assert one.latency_s == pytest.approx(two.latency_s, rel=1e-12)
        assert one.s_per_byte == pytest.approx(two.s_per_byte, rel=1e-12)


@settings(max_examples=60, deadline=None)
@given(
    st.sampled_from(sorted(FABRICS)),
    st.integers(0, 11),
    st.dictionaries(st.sampled_from(KINDS), st.floats(1.0, 20.0)),
    st.dictionaries(st.sampled_from(KINDS), st.floats(0.0, 1.0)),
)
def test_faster_links_make_no_collective_slower(
    name: str, seed: int, faster: dict[LinkKind, float], sooner: dict[LinkKind, float]
) -> None:
    """Every algorithm and every choice between them, at every size; by classes of link."""
    before, after = (FABRICS[name](links) for links in (_links(seed=seed), _links(faster, sooner, seed)))
    for (_, one), (_, two) in zip(_costs(before, before.gpus), _costs(after, after.gpus), strict=True):
        assert two.latency_s <= one.latency_s * (1 + 1e-12)
        assert two.s_per_byte <= one.s_per_byte * (1 + 1e-12)
    for model in MODELS.values():
        slow, fast = model(before, before.gpus), model(after, after.gpus)
        for nbytes in (1.0, 1e4, 1e6, 1e9):
            assert _seconds(fast, nbytes) <= _seconds(slow, nbytes) * (1 + 1e-12)


@settings(max_examples=40, deadline=None)
@given(st.sampled_from(sorted(FABRICS)), st.integers(0, 11), st.floats(0, 1e9), st.floats(0, 1e9))
def test_a_larger_message_takes_no_less(name: str, seed: int, one: float, other: float) -> None:
    fabric = FABRICS[name](_links(seed=seed))
    for model in MODELS.values():
        found = model(fabric, fabric.gpus)
        assert _seconds(found, min(one, other)) <= _seconds(found, max(one, other))


@pytest.mark.parametrize("name", FABRICS)
def test_the_phases_of_every_cost_sum_to_it_and_respect_every_link(name: str) -> None:
    fabric = FABRICS[name](_links(seed=5))
    for _, cost in _costs(fabric, fabric.gpus):
        assert sum(phase.s_per_byte for phase in cost.phases) == cost.s_per_byte
        for phase in cost.phases:
            for edge, load in phase.loads.items():
                assert load / fabric.bandwidth_bytes_per_s(edge) <= phase.s_per_byte * (1 + 1e-12)


def _seconds(model: CollectiveModel, nbytes: float) -> float:
    best = model.best(nbytes)
    assert best is not None
    return best.seconds(nbytes)
