"""A collective as flows takes the time that its affine cost says."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pytest

from simulator.clock import Clock
from simulator.hardware import Algorithm
from simulator.network.collectives import ALGORITHMS, Ring
from simulator.network.fluid import Flow, FluidNetwork
from simulator.network.rounds import AffineCost, Part, affine_cost
from simulator.network.transfers import link_footprint
from simulator.serving.sharing import capacities
from simulator.topology.graph import Topology
from tests import fabrics

NVLINK = fabrics.link("nvlink", "nvlink", 400e9)
PCIE = fabrics.link("pcie", "pcie", 50e9)
UPI = fabrics.link("upi", "socket", 60e9)
ETHERNET = fabrics.link("ethernet", "network", 25e9)

FABRICS = {
    "mesh of 2": fabrics.full_mesh(2, NVLINK),
    "mesh of 8": fabrics.full_mesh(8, NVLINK),
    "switch of 5": fabrics.switch(5, NVLINK),
    "switch of 8": fabrics.switch(8, NVLINK, reduces=True),
    "PCIe tree": fabrics.pcie_tree(PCIE),
    "two sockets": fabrics.two_sockets(PCIE, UPI),
    "bridged pairs": fabrics.two_sockets(PCIE, UPI, NVLINK, 2),
    "bridged quads": fabrics.two_sockets(PCIE, UPI, NVLINK, 4),
    "rails": fabrics.rails(2, 4, NVLINK, PCIE, ETHERNET),
}
NBYTES = 3e6


def _cases() -> Iterator[tuple[str, str, tuple[Part, ...]]]:
    """Every form of every algorithm that works on a fabric."""
    for fabric, topology in FABRICS.items():
        for algorithm in ALGORITHMS:
            for parts in algorithm.variants(topology, topology.gpus):
                yield fabric, algorithm.name, parts


CASES = pytest.mark.parametrize(
    ("fabric", "name", "parts"), [pytest.param(*case, id=f"{case[1]} on {case[0]}") for case in _cases()]
)


class Chain:
    """Stages of flows, each begun when the one before has ended; the clock then shows how long all took."""

    def __init__(self, topology: Topology) -> None:
        self.clock = Clock()
        self.network = FluidNetwork(self.clock, capacities(topology))
        self._running = 0
        self._stages: Iterator[None] = iter(())

    def run(self, stages: Iterator[None]) -> float:
        """Seconds of all stages; each puts its flows on the network."""
        self._stages = stages
        next(stages, None)
        self.clock.run()
        return self.clock.now

    def flow(self, parts: Sequence[tuple[object, float]], work: float) -> None:
        """A flow of the stage that begins."""
        self._running += 1
        self.network.start(parts, work, self._ended, traffic="all-reduce")  # type: ignore[arg-type]

    def _ended(self, flow: Flow) -> None:
        self._running -= 1
        if not self._running:
            next(self._stages, None)


def _as_phases(topology: Topology, cost: AffineCost) -> float:
    """Seconds of one flow per shape of the rounds."""
    chain = Chain(topology)

    def stages() -> Iterator[None]:
        for phase in cost.phases:
            footprint, heaviest = link_footprint(chain.network, phase.loads, phase.s_per_byte)
            chain.flow(((footprint, 1.0),), heaviest * NBYTES)
            yield

    return chain.run(stages())


def _as_transfers(topology: Topology, parts: Sequence[Part]) -> float:
    """Seconds of one flow from rank to rank for every transfer, round after round."""
    chain = Chain(topology)
    rounds = [again for part in parts for one in part.rounds for again in [one] * one.times]

    def stages() -> Iterator[None]:
        for one in rounds:
            for source, target, share in one.transfers:
                route = {hop.edge: hop.share for hop in topology.route(source, target)}
                chain.flow(((chain.network.footprint(route), 1.0),), share * NBYTES)
            yield

    return chain.run(stages())


@CASES
def test_a_collective_as_one_flow_a_phase_takes_its_affine_cost(
    fabric: str, name: Algorithm, parts: tuple[Part, ...]
) -> None:
    cost = affine_cost(FABRICS[fabric], name, parts)
    assert _as_phases(FABRICS[fabric], cost) == pytest.approx(cost.s_per_byte * NBYTES, rel=1e-9)


@CASES
def test_a_collective_as_transfers_takes_its_affine_cost(
    fabric: str, name: Algorithm, parts: tuple[Part, ...]
) -> None:
    """A round lasts as long as its most loaded link: max-min sharing keeps that link full to the end."""
    cost = affine_cost(FABRICS[fabric], name, parts)
    assert _as_transfers(FABRICS[fabric], parts) == pytest.approx(cost.s_per_byte * NBYTES, rel=1e-9)


def test_a_ring_of_64_ranks_in_126_rounds_of_transfers() -> None:
    """8064 flows: 2 x 63 rounds of 1/64 of the message over a port of 400 GB/s."""
    topology = fabrics.switch(64, NVLINK)
    [parts] = Ring().variants(topology, topology.gpus)
    assert _as_transfers(topology, parts) == pytest.approx(126 / 64 * NBYTES / 400e9, rel=1e-9)
