"""The graph of a system, and the routes that traffic takes over it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise, product
from math import inf
from typing import Any, NamedTuple

import networkx as nx

from simulator.errors import InputError
from simulator.hardware import Device, Link, LinkKind
from simulator.topology.builder import GPU, NIC, NVSWITCH, GraphBuilder
from simulator.topology.join import join_hosts
from simulator.topology.paths import Path, Paths
from simulator.topology.system import System

HOP_COST: dict[LinkKind, int] = {
    "nvlink": 1,
    "xgmi": 1,
    "memory": 1,
    "c2c": 10**3,
    "pcie": 10**6,
    "socket": 10**9,
    "network": 10**12,
}
"""A path over a better class of link is preferred up to a thousand hops, in the order of NCCL's paths."""

SCALE_UP: frozenset[LinkKind] = frozenset({"nvlink", "xgmi"})

Edge = tuple[str, str]
"""One direction of a link: from a node to its neighbour."""


class CutError(InputError):
    """No path leads from one node to another."""


class Hop(NamedTuple):
    """A share of the bytes of a route on one direction of a link."""

    edge: Edge
    share: float


class _Way(NamedTuple):
    """All best paths between two nodes, together."""

    hops: tuple[Hop, ...]
    latency_s: float
    cost: int


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

    def __init__(
        self,
        system: System,
        graph: nx.Graph[str],
        devices: Mapping[str, Device],
        systems: Sequence[System] = (),
    ) -> None:
        self.system = system
        self.systems = tuple(systems) or (system,)
        """Those that were joined, one for each host; the whole system where all are alike."""
        self.graph = graph
        self.gpus = tuple(node for node in graph if graph.nodes[node]["kind"] == GPU)
        self._devices = devices
        self._anywhere = Paths(graph, HOP_COST)
        self._inside = Paths(graph, {kind: cost for kind, cost in HOP_COST.items() if kind != "network"})
        self._across = Paths(graph, {"network": 1})
        self._links: dict[Edge, Link] = dict(_both_ways(graph, "link"))
        self._bandwidths: dict[Edge, float] = dict(_both_ways(graph, "bandwidth_bytes_per_s"))
        self._latencies_s = {edge: link.latency.value for edge, link in self._links.items()}
        self._ways: dict[Edge, _Way] = {}

    def device(self, gpu: str) -> Device:
        """What a GPU is."""
        return self._devices[self.graph.nodes[gpu]["device"]]

    def link(self, edge: Edge) -> Link:
        """The class of a link."""
        return self._links[edge]

    def bandwidth_bytes_per_s(self, edge: Edge) -> float:
        """One direction of a link."""
        return self._bandwidths[edge]

    @property
    def bandwidths_bytes_per_s(self) -> Mapping[Edge, float]:
        """Each direction of every link."""
        return self._bandwidths

    def host(self, node: str) -> int | None:
        """The box or rack of a node; None is between them."""
        host: int | None = self.graph.nodes[node].get("host", 0)
        return host

    def system_of(self, node: str) -> System:
        """The system that a node came with."""
        host = self.host(node)
        return self.systems[host if host is not None and len(self.systems) > 1 else 0]

    def gpus_of_a_node(self, node: str) -> int:
        """GPUs of the box or rack that a node is in."""
        return sum(self.host(gpu) == self.host(node) for gpu in self.gpus)

    def hosts(self, nodes: Iterable[str]) -> dict[int | None, tuple[str, ...]]:
        """Nodes by host, both in order of appearance."""
        found: dict[int | None, list[str]] = defaultdict(list)
        for node in nodes:
            found[self.host(node)].append(node)
        return {host: tuple(there) for host, there in found.items()}

    def islands(self) -> list[tuple[str, ...]]:
        """GPUs that reach one another over scale-up links (NVLink, xGMI), in order of their place."""
        linked = nx.subgraph_view(self.graph, filter_edge=lambda *edge: self.link(edge).kind in SCALE_UP)
        places = {gpu: place for place, gpu in enumerate(self.gpus)}
        islands = [
            tuple(sorted((node for node in island if node in places), key=places.__getitem__))
            for island in nx.connected_components(linked)
        ]
        return sorted((island for island in islands if island), key=lambda island: places[island[0]])

    def nic(self, node: str) -> str | None:
        """The NIC by which a node reaches other hosts: its own, else the nearest of its host."""
        own: str | None = self.graph.nodes[node].get("nic")
        if own in self.graph:
            return own
        if self.graph.nodes[node]["kind"] == NIC:
            return node
        return self._inside.nearest(node, (one for one in self.graph if self.graph.nodes[one]["kind"] == NIC))

    def paths(self, source: str, target: str) -> list[Path]:
        """All best paths between two nodes; parallel planes make several.

        To another host they leave by the source's NIC and arrive by the target's, over the network only.
        """
        return [
            tuple(legs[0]) + tuple(node for leg in legs[1:] for node in leg[1:])
            for legs in product(*self._legs(source, target))
        ]

    def route(self, source: str, target: str) -> tuple[Hop, ...]:
        """How bytes spread over the best paths: in proportion to the bandwidth of each."""
        return self._way(source, target).hops

    def latency_s(self, source: str, target: str) -> float:
        """Latency of the slowest of the best paths."""
        return self._way(source, target).latency_s

    def distance(self, source: str, target: str) -> int:
        """Sum of the costs of the hops; orders pairs as NCCL's path types do, near ones first."""
        return self._way(source, target).cost

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
        if not self.system_of(gpus[0]).in_network_reduction.value:
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

    def cut_bytes_per_s(self, inside: Sequence[str], outside: Sequence[str]) -> float:
        """What the narrowest cut between two sets of nodes carries, one direction, over any links."""
        flow: nx.DiGraph[str] = nx.DiGraph()
        for edge, bandwidth_bytes_per_s in self._bandwidths.items():
            flow.add_edge(*edge, capacity=bandwidth_bytes_per_s)
        flow.add_edges_from(("source", node) for node in inside)
        flow.add_edges_from((node, "sink") for node in outside)
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

    def damaged(self, lost: Collection[str], bandwidth: Mapping[Edge, float]) -> Topology:
        """The same system without some nodes, and with some links at a factor of their bandwidth.

        A NIC whose links to the network are all gone is gone, too. Routes are found anew.
        """
        graph = self.graph.copy()
        for (one, other), factor in bandwidth.items():
            graph.edges[one, other]["bandwidth_bytes_per_s"] *= factor
        wired = _wired_nics(graph)
        graph.remove_nodes_from(lost)
        graph.remove_nodes_from(wired - _wired_nics(graph))
        return Topology(self.system, graph, self._devices, self.systems)

    def _way(self, source: str, target: str) -> _Way:
        known = self._ways.get((source, target))
        if known is None:
            paths = self.paths(source, target)
            if not paths:
                raise CutError(f"no link of {self.system.name} leads from {source} to {target}")
            known = self._ways[source, target] = _Way(
                self._spread(paths),
                max(self._path_latency_s(path) for path in paths),
                sum(HOP_COST[self.link(edge).kind] for edge in pairwise(paths[0])),
            )
        return known

    def _width(self, path: tuple[str, ...]) -> float:
        return min(map(self._bandwidths.__getitem__, pairwise(path)), default=inf)

    def _path_latency_s(self, path: tuple[str, ...]) -> float:
        return sum(map(self._latencies_s.__getitem__, pairwise(path)))

    def _spread(self, paths: list[tuple[str, ...]]) -> tuple[Hop, ...]:
        widths = [self._width(path) for path in paths]
        total = sum(widths)
        shares: dict[Edge, float] = defaultdict(float)
        for path, width in zip(paths, widths, strict=True):
            for edge in pairwise(path):
                shares[edge] += width / total
        return tuple(map(Hop, shares, shares.values()))

    def _legs(self, source: str, target: str) -> list[list[Path]]:
        """The best paths of each part of the way."""
        if self.host(source) != self.host(target):
            return self._legs_across(source, target)
        straight = self._inside.between(source, target)
        if not straight:
            return [self._anywhere.between(source, target)]
        staging: str | None = self.graph.nodes[source].get("staging")
        if staging is None or self.graph.nodes[target]["kind"] != GPU or not self._has_pcie(straight[0]):
            return [straight]
        return [self._inside.between(source, staging), self._inside.between(staging, target)]

    def _legs_across(self, source: str, target: str) -> list[list[Path]]:
        """Over the network from NIC to NIC; a cable that ends at another NIC is left at its other end."""
        out, into = self.nic(source), self.nic(target)
        if out is None or into is None:
            return [self._anywhere.between(source, target)]
        network = self._across.between(out, into)
        if not network:
            return [self._inside.between(source, out), self._anywhere.between(out, target)]
        return [self._inside.between(source, out), network, self._inside.between(into, target)]

    def _has_pcie(self, path: Path) -> bool:
        return any(self.link(edge).kind == "pcie" for edge in pairwise(path))


def _wired_nics(graph: nx.Graph[str]) -> set[str]:
    """NICs with a link to the network."""
    return {
        node
        for node, data in graph.nodes(data=True)
        if data["kind"] == NIC and any(edge["link"].kind == "network" for edge in graph.adj[node].values())
    }


def _both_ways(graph: nx.Graph[str], attribute: str) -> Iterator[tuple[Edge, Any]]:
    """An attribute of each link, by both of its directions."""
    for one, other, data in graph.edges(data=True):
        yield (one, other), data[attribute]
        yield (other, one), data[attribute]


def build_topology(
    system: System, devices: Mapping[str, Device], links: Mapping[str, Link], parts: Sequence[System] = ()
) -> Topology:
    """The graph of a system from the devices and links that it names; ``parts`` are what it was joined of."""
    graph: nx.Graph[str] = nx.Graph()
    if system.joined is None:
        system.fabric.build(GraphBuilder(graph, links))
        return Topology(system, graph, devices)
    hosts = [part for part in parts or (system,) for _ in range(part.nodes)]
    for host, part in enumerate(hosts):
        part.fabric.build(GraphBuilder(graph, links, host, f"{part.fabric.unit}{host}."))
    join_hosts(graph, links, system.joined)
    return Topology(system, graph, devices, hosts if parts else ())
