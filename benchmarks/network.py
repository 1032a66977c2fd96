"""Speed of the network on which transfers share links.

    python benchmarks/network.py

200 KV caches are under way at any time on four GB300 racks joined by rails; where one ends, the next starts.
First between random GPUs of different racks, then between random groups: of four GPUs on two racks, of eight
on the other two. Then an all-reduce of 64 ranks, each transfer of each round a flow. Times are CPU-seconds of
this process, also as so many bare SimPy timeouts.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from time import process_time

import simpy

from simulator.catalog import Catalog
from simulator.clock import Clock
from simulator.network.collectives import Ring
from simulator.network.fluid import Flow, FluidNetwork
from simulator.network.sends import kv_transfers, send_cost, stage_transfers
from simulator.network.transfers import FluidPath
from simulator.serving.sharing import capacities
from simulator.simulation import load_topology
from simulator.topology.graph import Topology
from simulator.topology.join import Join

CONCURRENT = 200
TRANSFERS = 5_000
TIMEOUTS = 200_000
PAIRS = 1_000
RACK = 72
RANKS = 64
KV_HEADS = 8

Ranks = Sequence[str]


class CountingNetwork(FluidNetwork):
    """Counts the rates that flows get."""

    rates = 0

    def _set_rate(self, flow: Flow, rate: float) -> None:
        self.rates += 1
        super()._set_rate(flow, rate)


class Traffic:
    """KV caches over random ones of several paths, as many at a time as were started first."""

    def __init__(self, topology: Topology, ends: Sequence[tuple[Ranks, Ranks]], transfers: int) -> None:
        self.clock = Clock()
        self.network = CountingNetwork(self.clock, capacities(topology))
        self._left = transfers
        self._random = random.Random(0)
        self._paths = [self._path(topology, source, target) for source, target in ends]

    def start(self) -> None:
        """The next of them."""
        if self._left:
            self._left -= 1
            path = self._random.choice(self._paths)
            path.send(self._random.uniform(0.1e9, 2e9), lambda alone_s, lost_s: self.start())

    def _path(self, topology: Topology, source: Ranks, target: Ranks) -> FluidPath:
        alike = len(source) == len(target)
        sent = stage_transfers(source, target) if alike else kv_transfers(source, target, KV_HEADS)
        return FluidPath(self.clock, self.network, send_cost(topology, sent), "kv")


def racks(topology: Topology) -> list[Ranks]:
    """The GPUs of each rack."""
    return [topology.gpus[first : first + RACK] for first in range(0, len(topology.gpus), RACK)]


def gpu_pairs(topology: Topology) -> list[tuple[Ranks, Ranks]]:
    """Random GPUs of different racks."""
    chosen = random.Random(0)
    rack_pairs = [chosen.sample(racks(topology), 2) for _ in range(PAIRS)]
    return [([chosen.choice(source)], [chosen.choice(target)]) for source, target in rack_pairs]


def group_pairs(topology: Topology) -> list[tuple[Ranks, Ranks]]:
    """Every group of four GPUs on the first two racks, with every group of eight on the others."""
    first, second, third, fourth = racks(topology)
    fours = [rack[start : start + 4] for rack in (first, second) for start in range(0, RACK, 4)]
    eights = [rack[start : start + 8] for rack in (third, fourth) for start in range(0, RACK, 8)]
    return [(four, eight) for four in fours for eight in eights]


def timed(work: Callable[[], object]) -> float:
    """CPU-seconds of ``work``."""
    begun_s = process_time()
    work()
    return process_time() - begun_s


def bare_timeout_s() -> float:
    """CPU-seconds of a timeout of a process that waits for one after another."""
    env = simpy.Environment()

    def process() -> Iterator[simpy.Event]:
        for _ in range(TIMEOUTS):
            yield env.timeout(1.0)

    env.process(process())
    return timed(env.run) / TIMEOUTS


def transfers(title: str, topology: Topology, ends: Sequence[tuple[Ranks, Ranks]], timeout_s: float) -> None:
    """Print how fast KV caches come and go."""
    traffic = Traffic(topology, ends, TRANSFERS)

    def run() -> None:
        for _ in range(CONCURRENT):
            traffic.start()
        traffic.clock.run()

    seconds = timed(run)
    network = traffic.network
    print(f"{CONCURRENT} KV caches at a time, {title}:")
    print(f"  {2 * TRANSFERS / seconds:,.0f} starts and ends a second")
    print(f"  {network.changes / seconds:,.0f} solutions of the rates a second", end="")
    print(f", each as {seconds / network.changes / timeout_s:,.0f} bare timeouts")
    print(f"  {network.rates / seconds:,.0f} new rates of single flows a second", end="")
    print(f", {network.rates / network.changes:.1f} a solution")


def all_reduce(topology: Topology, timeout_s: float) -> None:
    """Print the time of a ring, each transfer of each round a flow of its own."""
    clock = Clock()
    network = FluidNetwork(clock, capacities(topology))
    [[part], *_] = Ring().variants(topology, topology.gpus[:RANKS])
    [shape] = part.rounds
    footprints = [
        network.footprint({hop.edge: hop.share for hop in topology.route(source, target)})
        for source, target, _ in shape.transfers
    ]
    rounds = iter(range(shape.times))
    running = 0

    def start_round() -> None:
        nonlocal running
        if next(rounds, None) is not None:
            running = len(footprints)
            for footprint in footprints:
                network.start(((footprint, 1.0),), 1e6 / RANKS, through, traffic="all-reduce")

    def through(flow: Flow) -> None:
        nonlocal running
        running -= 1
        if not running:
            start_round()

    def run() -> None:
        start_round()
        clock.run()

    seconds = timed(run)
    flows = shape.times * len(footprints)
    print(
        f"a ring of {RANKS} ranks, {shape.times} rounds, {flows:,} flows: {seconds:.3f} CPU-seconds", end=""
    )
    print(f", each flow as {seconds / flows / timeout_s:.1f} bare timeouts")


def main() -> None:
    """Print the speeds."""
    catalog = Catalog()
    timeout_s = bare_timeout_s()
    joined = load_topology("gb300-nvl72", catalog, Join(nodes=4, fabric="rail"))
    transfers("between GPUs of different racks", joined, gpu_pairs(joined), timeout_s)
    transfers("from groups of four GPUs to groups of eight", joined, group_pairs(joined), timeout_s)
    all_reduce(load_topology("gb300-nvl72", catalog), timeout_s)


if __name__ == "__main__":
    main()
