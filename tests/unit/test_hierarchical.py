"""Collectives across nodes, and others than all-reduce, against their algebra.

Nodes of g GPUs on a switch (100 GB/s a GPU), each GPU with a NIC of 25 GB/s on a rail of its own, by PCIe.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from simulator.errors import InputError
from simulator.hardware import CollectiveConstants
from simulator.network.collectives import (
    AffineCost,
    all_gather_model,
    all_reduce_model,
    all_to_all_model,
    reduce_scatter_model,
)
from simulator.topology.graph import Topology
from tests.fabrics import link, rails, sourced, switch

NVLINK = link("nvlink", "nvlink", 100e9)
PCIE = link("pcie", "pcie", 50e9)
NETWORK = link("network", "network", 25e9)
LATENCY_S = 1e-6
INSIDE_S = 2 * LATENCY_S  # GPU, switch, GPU
BETWEEN_S = 4 * LATENCY_S  # GPU, NIC, leaf, NIC, GPU


def _fabric(nodes: int, gpus: int) -> Topology:
    return rails(nodes, gpus, NVLINK, PCIE, NETWORK)


def _fastest(costs: tuple[AffineCost, ...]) -> float:
    return min(cost.s_per_byte for cost in costs)


def _soonest(costs: tuple[AffineCost, ...]) -> float:
    return min(cost.latency_s for cost in costs)


@pytest.mark.parametrize("m", [2, 3, 4])
@pytest.mark.parametrize("g", [2, 4, 8])
def test_hierarchical_moves_the_message_inside_and_a_share_of_it_between(m: int, g: int) -> None:
    """Inside: (g-1)/g of the message on a GPU's NVLink, twice. Between: an all-reduce of 1/g over m on its
    NIC, in a ring 2(m-1)/m. With all pairs inside: a round each way; between, a ring passes 2(m-1) hops."""
    fabric = _fabric(m, g)
    costs = all_reduce_model(fabric, fabric.gpus, "hierarchical").costs
    assert _fastest(costs) == pytest.approx(2 * (g - 1) / g / 100e9 + 2 * (m - 1) / m / g / 25e9)
    ring = [cost for cost in costs if len(cost.phases) == 3]
    assert _soonest(tuple(ring)) <= 2 * INSIDE_S + 2 * (m - 1) * BETWEEN_S + 1e-15


def test_two_nodes_exchange_their_shares_in_one_round() -> None:
    """Recursive doubling of two is one exchange: 2 + 4 + 2 us, the bytes of a ring."""
    fabric = _fabric(2, 4)
    costs = all_reduce_model(fabric, fabric.gpus, "hierarchical").costs
    assert _soonest(costs) == pytest.approx(2 * INSIDE_S + BETWEEN_S)


@pytest.mark.parametrize("m", [2, 3, 4])
@pytest.mark.parametrize("g", [4, 8])
def test_a_ring_for_each_rail_shares_the_nics_and_a_single_ring_uses_one(m: int, g: int) -> None:
    """A NIC carries 2(n-1)/n of the message of its ring: of all, or of 1/g. NVLink carries (g-1)/g of it."""
    fabric = _fabric(m, g)
    n = m * g
    single, by_rail = all_reduce_model(fabric, fabric.gpus, "ring").costs
    assert single.s_per_byte == pytest.approx(2 * (n - 1) / n / 25e9)
    assert by_rail.s_per_byte == pytest.approx(2 * (n - 1) / n * max(1 / g / 25e9, (g - 1) / g / 100e9))


def test_a_share_waits_for_the_hops_that_it_takes_not_for_the_slowest_of_others() -> None:
    """16 ranks in 2 nodes: two laps of 15 hops, of which at worst both lead over the network."""
    fabric = _fabric(2, 8)
    single, by_rail = all_reduce_model(fabric, fabric.gpus, "ring").costs
    assert single.latency_s == pytest.approx(2 * (13 * INSIDE_S + 2 * BETWEEN_S))
    assert by_rail.latency_s == pytest.approx(single.latency_s)


def test_hierarchical_wins_small_messages_and_rings_by_rail_large_ones() -> None:
    fabric = _fabric(2, 8)
    model = all_reduce_model(fabric, fabric.gpus)
    small, large = model.best(1e5), model.best(1e9)
    assert small is not None
    assert large is not None
    assert (small.algorithm, large.algorithm) == ("hierarchical", "ring")


def test_hierarchical_takes_several_nodes_with_as_many_ranks_each() -> None:
    fabric = _fabric(2, 4)
    for ranks in (fabric.gpus[:4], fabric.gpus[:6], fabric.gpus[3:5]):
        with pytest.raises(InputError, match="hierarchical"):
            all_reduce_model(fabric, ranks, "hierarchical")
        assert all_reduce_model(fabric, ranks).costs


def test_the_halves_inside_have_half_the_constants_of_the_link() -> None:
    """Ring: 10 us + 1 us a peer and 0.5 of the link; half of the times, half of the bytes, twice."""
    constants = CollectiveConstants.model_construct(
        fixed=sourced(10e-6), per_peer=sourced(1e-6), efficiency=sourced(0.5), max_message=None
    )
    nvlink = link("nvlink", "nvlink", 100e9, collectives={"ring": constants})
    fabric = rails(2, 4, nvlink, PCIE, NETWORK)
    costs = all_reduce_model(fabric, fabric.gpus, "hierarchical").costs
    ringed = [cost for cost in costs if cost.phases[0].s_per_byte > 1e-11]
    assert _fastest(tuple(ringed)) == pytest.approx(2 * 3 / 4 / 50e9 + 1 / 4 / 25e9)
    assert _soonest(tuple(ringed)) == pytest.approx(10e-6 + 3 * 1e-6 + BETWEEN_S)
    assert not any(cost.measured for cost in costs)  # for the network has no constants


def test_the_limit_of_a_half_inside_is_that_of_the_whole() -> None:
    constants = CollectiveConstants.model_construct(
        fixed=sourced(1e-6), per_peer=sourced(0.0), efficiency=sourced(1.0), max_message=sourced(1e6)
    )
    fabric = rails(2, 4, link("nvlink", "nvlink", 100e9, collectives={"two-shot": constants}), PCIE, NETWORK)
    model = all_reduce_model(fabric, fabric.gpus)
    assert {cost.max_bytes for cost in model.costs if cost.algorithm == "hierarchical"} == {None, 1e6}
    forced = all_reduce_model(fabric, fabric.gpus, "hierarchical")
    assert {cost.max_bytes for cost in forced.costs} == {None}


def test_the_algorithms_that_no_library_does_over_a_network_can_be_forced() -> None:
    fabric = _fabric(2, 4)
    names = {cost.algorithm for cost in all_reduce_model(fabric, fabric.gpus).costs}
    assert names == {"ring", "hierarchical"}
    assert all_reduce_model(fabric, fabric.gpus, "two-shot").costs


@pytest.mark.parametrize("n", [2, 4, 8])
def test_reduce_scatter_and_all_gather_are_halves_of_an_all_reduce(n: int) -> None:
    """(n-1)/n of the message on a switch; n-1 rounds along a ring or one between all pairs."""
    fabric = switch(n, NVLINK)
    for model in (reduce_scatter_model, all_gather_model):
        costs = model(fabric, fabric.gpus).costs
        assert [cost.algorithm for cost in costs] == ["ring", "two-shot"]
        assert [cost.s_per_byte for cost in costs] == pytest.approx(2 * [(n - 1) / n / 100e9])
        assert [cost.latency_s for cost in costs] == pytest.approx([(n - 1) * INSIDE_S, INSIDE_S])


@pytest.mark.parametrize("m", [2, 4])
def test_halves_across_nodes_put_a_share_on_the_nic(m: int) -> None:
    """Inside (g-1)/g on NVLink; between, (m-1)/m of 1/g on each NIC. Reduce-scatter and all-gather alike."""
    fabric = _fabric(m, 4)
    for model in (reduce_scatter_model, all_gather_model):
        costs = [cost for cost in model(fabric, fabric.gpus).costs if cost.algorithm == "hierarchical"]
        assert _fastest(tuple(costs)) == pytest.approx(3 / 4 / 100e9 + (m - 1) / m / 4 / 25e9)


def test_all_to_all_sends_a_share_to_every_rank() -> None:
    """On a switch (n-1)/n leaves each GPU. Across two nodes of 4, half of the message leaves by a NIC; what
    is for other rails, 3/8 from each of the two GPUs of a leaf, goes up its one uplink of 25 GB/s."""
    fabric = switch(4, NVLINK)
    (cost,) = all_to_all_model(fabric, fabric.gpus).costs
    assert cost.s_per_byte == pytest.approx(3 / 4 / 100e9)
    assert cost.latency_s == pytest.approx(INSIDE_S)
    fabric = _fabric(2, 4)
    (cost,) = all_to_all_model(fabric, fabric.gpus).costs
    assert cost.s_per_byte == pytest.approx(max(4 / 8 / 25e9, 2 * 3 / 8 / 25e9))


def test_a_group_of_one_needs_no_collective() -> None:
    fabric = switch(2, NVLINK)
    for model in (reduce_scatter_model, all_gather_model, all_to_all_model):
        assert model(fabric, fabric.gpus[:1]).best(1e6) is None


def test_a_cost_is_hashed_by_its_numbers() -> None:
    fabric = _fabric(2, 4)
    cost = all_reduce_model(fabric, fabric.gpus).costs[0]
    assert hash(cost) == hash(replace(cost, phases=()))
