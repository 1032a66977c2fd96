"""All-reduce against its closed forms on a full mesh, a switch and a PCIe tree."""

from __future__ import annotations

from collections import defaultdict

import pytest
from hypothesis import given
from hypothesis import strategies as st

from simulator.catalog import Catalog
from simulator.errors import InputError
from simulator.hardware import CollectiveConstants
from simulator.network.collectives import ALGORITHMS, AllReduceModel, all_reduce_model, link_loads
from simulator.simulation import load_topology
from simulator.topology.graph import Topology
from tests.fabrics import full_mesh, link, pcie_tree, sourced, switch

BYTES_PER_S = 100e9
LATENCY_S = 1e-6
NVLINK = link("nvlink", "nvlink", BYTES_PER_S, LATENCY_S)
PCIE = link("pcie", "pcie", BYTES_PER_S, LATENCY_S)
NAMES = [algorithm.name for algorithm in ALGORITHMS if algorithm.name != "hierarchical"]


def _forced(topology: Topology, name: str, ranks: int | None = None) -> tuple[float, float]:
    """Latency and seconds per byte of an algorithm."""
    model = all_reduce_model(topology, topology.gpus[:ranks], name)  # type: ignore[arg-type]
    _, latency_s, bandwidth_s = model.cost(1.0)
    return latency_s, bandwidth_s


@pytest.mark.parametrize("n", [2, 3, 4, 8])
def test_ring_on_a_switch_and_on_a_mesh_moves_2_n_minus_1_over_n(n: int) -> None:
    """2(n-1) rounds; in each, a rank sends 1/n of the message over its own link. Two hops on a switch."""
    for fabric, hops in ((switch(n, NVLINK), 2), (full_mesh(n, NVLINK), 1)):
        latency_s, s_per_byte = _forced(fabric, "ring")
        assert s_per_byte == pytest.approx(2 * (n - 1) / n / BYTES_PER_S)
        assert latency_s == pytest.approx(2 * (n - 1) * hops * LATENCY_S)


@pytest.mark.parametrize("n", [2, 3, 4, 8])
def test_one_shot_fills_the_link_of_a_switch_n_minus_1_times_and_of_a_mesh_once(n: int) -> None:
    """On a switch a rank sends n-1 copies over its one link; on a mesh each copy has a link."""
    latency_s, s_per_byte = _forced(switch(n, NVLINK), "one-shot")
    assert s_per_byte == pytest.approx((n - 1) / BYTES_PER_S)
    assert latency_s == pytest.approx(2 * LATENCY_S)
    latency_s, s_per_byte = _forced(full_mesh(n, NVLINK), "one-shot")
    assert s_per_byte == pytest.approx(1 / BYTES_PER_S)
    assert latency_s == pytest.approx(LATENCY_S)


@pytest.mark.parametrize("n", [2, 3, 4, 8])
def test_two_shot_moves_as_much_as_a_ring_on_a_switch_in_two_rounds(n: int) -> None:
    """Reduce-scatter and all-gather: n-1 shares of 1/n each on a switch; one share a link on a mesh."""
    latency_s, s_per_byte = _forced(switch(n, NVLINK), "two-shot")
    assert s_per_byte == pytest.approx(2 * (n - 1) / n / BYTES_PER_S)
    assert latency_s == pytest.approx(2 * 2 * LATENCY_S)
    assert _forced(full_mesh(n, NVLINK), "two-shot")[1] == pytest.approx(2 / n / BYTES_PER_S)


def test_recursive_doubling_exchanges_the_message_log2_n_times() -> None:
    assert _forced(switch(8, NVLINK), "recursive-doubling")[1] == pytest.approx(3 / BYTES_PER_S)
    with pytest.raises(InputError, match="recursive-doubling"):
        _forced(switch(6, NVLINK), "recursive-doubling")


@pytest.mark.parametrize("n", [2, 4, 8])
def test_reduction_in_the_switch_moves_the_message_and_a_share(n: int) -> None:
    """Each rank sends its message to be read and 1/n of the sum to be copied: (n+1)/n."""
    assert _forced(switch(n, NVLINK, reduces=True), "in-switch")[1] == pytest.approx(
        (n + 1) / n / BYTES_PER_S
    )
    with pytest.raises(InputError, match="in-switch"):
        _forced(switch(n, NVLINK), "in-switch")


def test_on_a_pcie_tree_the_shared_uplink_decides() -> None:
    """Four GPUs, two under each switch, one uplink a switch.

    Ring: one transfer of 1/4 goes up an uplink in each of 6 rounds, as on any other link: 6/4.
    One-shot: each of two GPUs sends two copies across: 4 on an uplink, more than the 3 of a GPU's link.
    Two-shot: 4 shares of 1/4 on the uplink, twice: 2.
    """
    tree = pcie_tree(PCIE)
    assert _forced(tree, "ring")[1] == pytest.approx(6 / 4 / BYTES_PER_S)
    assert _forced(tree, "one-shot")[1] == pytest.approx(4 / BYTES_PER_S)
    assert _forced(tree, "two-shot")[1] == pytest.approx(2 / BYTES_PER_S)
    assert _forced(tree, "one-shot")[0] == pytest.approx(4 * LATENCY_S)  # gpu, switch, root, switch, gpu


def test_the_constants_of_the_link_replace_the_generic_latency_and_efficiency() -> None:
    constants = CollectiveConstants.model_construct(
        fixed=sourced(5e-6), per_peer=sourced(1e-6), efficiency=sourced(0.5), max_message=None
    )
    fabric = switch(4, link("nvlink", "nvlink", BYTES_PER_S, LATENCY_S, collectives={"one-shot": constants}))
    model = all_reduce_model(fabric, fabric.gpus)
    assert [cost.algorithm for cost in model.costs] == ["one-shot"]
    algorithm, latency_s, bandwidth_s = model.cost(1e5)
    assert algorithm == "one-shot"
    assert latency_s == pytest.approx(5e-6 + 3e-6)
    assert bandwidth_s == pytest.approx(3 * 1e5 / (0.5 * BYTES_PER_S))


@given(st.floats(1.0, 1e9), st.sampled_from([2, 4, 8]))
def test_the_fastest_algorithm_is_chosen(nbytes: float, n: int) -> None:
    fabric = switch(n, NVLINK, reduces=True)
    _, latency_s, bandwidth_s = all_reduce_model(fabric, fabric.gpus).cost(nbytes)
    for name in NAMES:
        forced = all_reduce_model(fabric, fabric.gpus, name).cost(nbytes)  # type: ignore[arg-type]
        assert latency_s + bandwidth_s <= forced[1] + forced[2]


@pytest.mark.parametrize("name", NAMES)
def test_what_leaves_the_ranks_arrives(name: str) -> None:
    """On every link-level flow, bytes into a node that only forwards equal bytes out of it."""
    fabric = load_topology("hgx-h200-8", Catalog())
    algorithm = next(one for one in ALGORITHMS if one.name == name)
    for one in [
        one for parts in algorithm.variants(fabric, fabric.gpus) for part in parts for one in part.rounds
    ]:
        balance: dict[str, float] = defaultdict(float)
        for (source, target), share in link_loads(fabric, one).items():
            balance[source] -= share
            balance[target] += share
        for source, target, share in one.transfers:
            balance[source] += share
            balance[target] -= share
        assert all(abs(left) < 1e-9 for left in balance.values())


def test_a_group_of_one_needs_no_all_reduce() -> None:
    assert AllReduceModel(()).cost(1e6) == (None, 0.0, 0.0)


def test_links_whose_every_collective_has_a_largest_message_are_refused() -> None:
    constants = CollectiveConstants.model_construct(
        fixed=sourced(5e-6), per_peer=sourced(1e-6), efficiency=sourced(0.5), max_message=sourced(1e6)
    )
    limited = switch(4, link("nvlink", "nvlink", BYTES_PER_S, LATENCY_S, collectives={"one-shot": constants}))
    with pytest.raises(InputError, match="every size"):
        all_reduce_model(limited, limited.gpus)
    assert all_reduce_model(limited, limited.gpus, "one-shot").cost(1e7)[0] == "one-shot"


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("system", ["hgx-h200-8", "gb300-nvl72"])
def test_the_phases_of_an_algorithm_take_its_seconds_and_carry_its_bytes(name: str, system: str) -> None:
    """Rounds of one shape are one phase, with the bytes of all of them."""
    fabric = load_topology(system, Catalog())
    ranks = fabric.gpus[:8]
    cost = all_reduce_model(fabric, ranks, name).best(1e6)  # type: ignore[arg-type]
    assert cost is not None
    assert sum(phase.s_per_byte for phase in cost.phases) == cost.s_per_byte
    algorithm = next(one for one in ALGORITHMS if one.name == name)
    (((part,)),) = algorithm.variants(fabric, ranks)
    for phase, one in zip(cost.phases, part.rounds, strict=True):
        for edge, share in link_loads(fabric, one).items():
            assert phase.loads[edge] == one.times * share


def test_a_phase_lasts_as_long_as_its_most_loaded_link_at_its_efficiency() -> None:
    """Without constants, the link's own; with them, those of the algorithm: here half of the link."""
    half = CollectiveConstants.model_construct(
        fixed=sourced(0.0), per_peer=sourced(0.0), efficiency=sourced(0.5), max_message=None
    )
    for constants, efficiency in ({}, 0.8), ({"ring": half}, 0.5):
        fabric = switch(4, link("nvlink", "nvlink", BYTES_PER_S, LATENCY_S, 0.8, constants))  # type: ignore[arg-type]
        cost = all_reduce_model(fabric, fabric.gpus, "ring").best(1.0)
        assert cost is not None
        (phase,) = cost.phases
        assert phase.s_per_byte == pytest.approx(max(phase.loads.values()) / (efficiency * BYTES_PER_S))
