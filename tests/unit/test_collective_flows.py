"""A collective as flows takes the time that its affine cost says."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pytest

from simulator.clock import Clock
from simulator.network.collectives import ALGORITHMS, AffineCost, Round, affine_cost
from simulator.network.fluid import Flow, FluidNetwork
from simulator.serving.execution import link_footprint
from simulator.serving.sharing import capacities
from simulator.topology.graph import Topology
from tests import fabrics

NVLINK = fabrics.link("nvlink", "nvlink", 400e9)
PCIE = fabrics.link("pcie", "pcie", 50e9)
ETHERNET = fabrics.link("ethernet", "network", 25e9)

FABRICS = {
    "mesh of 2": fabrics.full_mesh(2, NVLINK),
    "mesh of 8": fabrics.full_mesh(8, NVLINK),
    "switch of 5": fabrics.switch(5, NVLINK),
    "switch of 8": fabrics.switch(8, NVLINK, reduces=True),
    "PCIe tree": fabrics.pcie_tree(PCIE),
    "bridged quad": fabrics.bridged_quad(NVLINK, PCIE),
    "rails": fabrics.rails(2, 4, NVLINK, ETHERNET),
}
NAMES = {algorithm.name: algorithm for algorithm in ALGORITHMS}
NBYTES = 3e6


def _rounds(topology: Topology, name: str) -> tuple[Round, ...]:
    return NAMES[name].rounds(topology, topology.gpus)


CASES = [(fabric, name) for fabric, topology in FABRICS.items() for name in NAMES if _rounds(topology, name)]


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


def _as_transfers(topology: Topology, rounds: Sequence[Round]) -> float:
    """Seconds of one flow from rank to rank for every transfer, round after round."""
    chain = Chain(topology)

    def stages() -> Iterator[None]:
        for one in rounds:
            for _ in range(one.times):
                for source, target, share in one.transfers:
                    route = {hop.edge: hop.share for hop in topology.route(source, target)}
                    chain.flow(((chain.network.footprint(route), 1.0),), share * NBYTES)
                yield

    return chain.run(stages())


@pytest.mark.parametrize(("fabric", "name"), CASES)
def test_a_collective_as_one_flow_a_phase_takes_its_affine_cost(fabric: str, name: str) -> None:
    topology = FABRICS[fabric]
    cost = affine_cost(topology, NAMES[name].name, len(topology.gpus), _rounds(topology, name))
    assert _as_phases(topology, cost) == pytest.approx(cost.s_per_byte * NBYTES, rel=1e-9)


@pytest.mark.parametrize(("fabric", "name"), CASES)
def test_a_collective_as_transfers_takes_its_affine_cost(fabric: str, name: str) -> None:
    """A round lasts as long as its most loaded link: max-min sharing keeps that link full to the end."""
    topology = FABRICS[fabric]
    rounds = _rounds(topology, name)
    cost = affine_cost(topology, NAMES[name].name, len(topology.gpus), rounds)
    assert _as_transfers(topology, rounds) == pytest.approx(cost.s_per_byte * NBYTES, rel=1e-9)


def test_a_ring_of_64_ranks_in_126_rounds_of_transfers() -> None:
    """8064 flows: 2 x 63 rounds of 1/64 of the message over a port of 400 GB/s."""
    topology = fabrics.switch(64, NVLINK)
    seconds = _as_transfers(topology, _rounds(topology, "ring"))
    assert seconds == pytest.approx(126 / 64 * NBYTES / 400e9, rel=1e-9)
