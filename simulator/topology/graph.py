"""The graph of a system, and the routes that traffic takes over it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise

import networkx as nx

from simulator.hardware import Device, Link, LinkKind
from simulator.topology.builder import FORWARDING, GPU, NVSWITCH, GraphBuilder
from simulator.topology.system import System

HOP_COST: dict[LinkKind, int] = {
    "nvlink": 1,
    "memory": 1,
    "c2c": 10**3,
    "pcie": 10**6,
    "socket": 10**9,
    "network": 10**12,
}
"""A path over a better class of link is preferred up to a thousand hops, in the order of NCCL's paths."""

Edge = tuple[str, str]
"""One direction of a link: from a node to its neighbour."""


@dataclass(frozen=True, slots=True)
class Hop:
    """A share of the bytes of a route on one direction of a link."""

    edge: Edge
    share: float


@dataclass(frozen=True)
class Pair:
    """What joins two GPUs, in one direction."""

    bandwidth_bytes_per_s: float
    hops: int
    latency_s: float


@dataclass(frozen=True)
class Facts:
    """A system at a glance."""

    name: str
    title: str
    gpus: int
    nodes: int
    links: int
    kinds: dict[str, int]
    """Nodes of each kind."""
    bisection_bytes_per_s: float
    """One direction, between the first and the second half of the GPUs."""
    pairs: dict[Pair, int]
    """Different joints of two GPUs and how many ordered pairs have them."""


class Topology:
    """A system's graph; GPUs in order of their place."""

    def __init__(self, system: System, graph: nx.Graph[str], devices: Mapping[str, Device]) -> None:
        self.system = system
        self.graph = graph
        self.gpus = tuple(node for node in graph if graph.nodes[node]["kind"] == GPU)
        self._devices = devices
        self._predecessors: dict[str, dict[str, list[str]]] = {}
        self._routes: dict[Edge, tuple[Hop, ...]] = {}

    def device(self, gpu: str) -> Device:
        """What a GPU is."""
        return self._devices[self.graph.nodes[gpu]["device"]]

    def link(self, edge: Edge) -> Link:
        """The class of a link."""
        link: Link = self.graph.edges[edge]["link"]
        return link

    def bandwidth_bytes_per_s(self, edge: Edge) -> float:
        """One direction of a link."""
        bandwidth: float = self.graph.edges[edge]["bandwidth_bytes_per_s"]
        return bandwidth

    def paths(self, source: str, target: str) -> list[tuple[str, ...]]:
        """All best paths between two nodes; parallel planes make several."""
        return list(_unwind(self._best_predecessors(source), source, target))

    def route(self, source: str, target: str) -> tuple[Hop, ...]:
        """How bytes spread over the best paths: in proportion to the bandwidth of each."""
        known = self._routes.get((source, target))
        if known is None:
            known = self._routes[source, target] = self._spread(self.paths(source, target))
        return known

    def latency_s(self, source: str, target: str) -> float:
        """Latency of the slowest of the best paths."""
        return self.pair(source, target).latency_s

    def pair(self, source: str, target: str) -> Pair:
        """What joins two nodes."""
        paths = self.paths(source, target)
        return Pair(
            bandwidth_bytes_per_s=sum(self._width(path) for path in paths),
            hops=len(paths[0]) - 1,
            latency_s=max(self._path_latency_s(path) for path in paths),
        )

    def reducing_switches(self, gpus: tuple[str, ...]) -> tuple[str, ...]:
        """Switches that reach all of ``gpus`` and add up in the network."""
        if not self.system.in_network_reduction.value:
            return ()
        shared = set.intersection(*(set(self.graph.neighbors(gpu)) for gpu in gpus))
        return tuple(sorted(node for node in shared if self.graph.nodes[node]["kind"] == NVSWITCH))

    def bisection_bytes_per_s(self) -> float:
        """Largest flow, one direction, from the first half of the GPUs to the second.

        Over the links that GPUs use among themselves: where there is NVLink, PCIe does not count.
        """
        half = len(self.gpus) // 2
        flow: nx.DiGraph[str] = nx.DiGraph()
        for source in self.gpus[:half]:
            for target in self.gpus[half:]:
                for hop in self.route(source, target):
                    flow.add_edge(*hop.edge, capacity=self.bandwidth_bytes_per_s(hop.edge))
        if not half:
            return 0.0
        flow.add_edges_from(("source", gpu) for gpu in self.gpus[:half])
        flow.add_edges_from((gpu, "sink") for gpu in self.gpus[half:])
        return float(nx.maximum_flow_value(flow, "source", "sink"))

    def facts(self) -> Facts:
        """The system at a glance."""
        kinds: dict[str, int] = defaultdict(int)
        for node in self.graph:
            kinds[self.graph.nodes[node]["kind"]] += 1
        pairs: dict[Pair, int] = defaultdict(int)
        for source in self.gpus:
            for target in self.gpus:
                if source != target:
                    pairs[self.pair(source, target)] += 1
        return Facts(
            name=self.system.name,
            title=self.system.title,
            gpus=len(self.gpus),
            nodes=self.graph.number_of_nodes(),
            links=self.graph.number_of_edges(),
            kinds=dict(kinds),
            bisection_bytes_per_s=self.bisection_bytes_per_s(),
            pairs=dict(pairs),
        )

    def _width(self, path: tuple[str, ...]) -> float:
        return min(self.bandwidth_bytes_per_s(edge) for edge in pairwise(path))

    def _path_latency_s(self, path: tuple[str, ...]) -> float:
        return sum(self.link(edge).latency.value for edge in pairwise(path))

    def _spread(self, paths: list[tuple[str, ...]]) -> tuple[Hop, ...]:
        widths = [self._width(path) for path in paths]
        total = sum(widths)
        shares: dict[Edge, float] = defaultdict(float)
        for path, width in zip(paths, widths, strict=True):
            for edge in pairwise(path):
                shares[edge] += width / total
        return tuple(Hop(edge, share) for edge, share in shares.items())

    def _best_predecessors(self, source: str) -> dict[str, list[str]]:
        known = self._predecessors.get(source)
        if known is None:
            kinds = self.graph.nodes

            def cost(node: str, _: str, edge: dict[str, Link]) -> int | None:
                """None hides a link: only switches, CPUs and NICs pass on what is not for them."""
                if node != source and kinds[node]["kind"] not in FORWARDING:
                    return None
                return HOP_COST[edge["link"].kind]

            known, _ = nx.dijkstra_predecessor_and_distance(self.graph, source, weight=cost)
            self._predecessors[source] = known
        return known


def build_topology(system: System, devices: Mapping[str, Device], links: Mapping[str, Link]) -> Topology:
    """The graph of a system from the devices and links that it names."""
    builder = GraphBuilder(links)
    system.fabric.build(builder)
    return Topology(system, builder.graph, devices)


def _unwind(predecessors: dict[str, list[str]], source: str, node: str) -> Iterator[tuple[str, ...]]:
    if node == source:
        yield (source,)
        return
    for before in predecessors[node]:
        for path in _unwind(predecessors, source, before):
            yield (*path, node)
