"""Small systems made in memory: mesh, switch, PCIe tree, two sockets, bridges, nodes joined by rails."""

from __future__ import annotations

from collections.abc import Mapping

import networkx as nx

from simulator.hardware import Algorithm, CollectiveConstants, Link, LinkKind
from simulator.spec import Sourced
from simulator.topology.graph import Topology
from simulator.topology.system import System


def sourced(value: object) -> Sourced[object]:
    return Sourced[object].model_construct(value=value, source="test", status="assumed", note=None)


def link(
    name: str,
    kind: LinkKind,
    bytes_per_s: float,
    latency_s: float = 1e-6,
    efficiency: float = 1.0,
    collectives: Mapping[Algorithm, CollectiveConstants] | None = None,
) -> Link:
    return Link.model_construct(
        name=name,
        title=name,
        kind=kind,
        bandwidth=sourced(bytes_per_s),
        latency=sourced(latency_s),
        efficiency=sourced(efficiency),
        collectives=dict(collectives or {}),
        sources={"test": "made up"},
    )


def topology(edges: list[tuple[str, str, Link]], reduces: bool = False) -> Topology:
    """A graph from its edges; a node's kind is its name without digits, its host what stands before a dot."""
    graph: nx.Graph = nx.Graph()
    for one, other, joint in edges:
        for node in (one, other):
            host, _, name = node.rpartition(".")
            graph.add_node(node, kind=name.rstrip("0123456789"), group=0, host=_host(host, name))
        graph.add_edge(one, other, link=joint, bandwidth_bytes_per_s=joint.bandwidth.value)
    system = System.model_construct(name="made-up", title="made up", in_network_reduction=sourced(reduces))
    return Topology(system, graph, {})


def _host(prefix: str, name: str) -> int | None:
    if name.startswith(("leaf", "spine")):
        return None
    return int(prefix.removeprefix("node")) if prefix else 0


def full_mesh(size: int, joint: Link) -> Topology:
    """Each pair of GPUs has a link of its own."""
    return topology(
        [(f"gpu{one}", f"gpu{other}", joint) for one in range(size) for other in range(one + 1, size)]
    )


def switch(size: int, joint: Link, reduces: bool = False) -> Topology:
    """Each GPU has one link to one switch."""
    return topology([(f"gpu{index}", "nvswitch0", joint) for index in range(size)], reduces)


def pcie_tree(joint: Link) -> Topology:
    """Two PCIe switches with two GPUs each, under one root complex."""
    leaves = [(f"gpu{index}", f"pcie-switch{index // 2}", joint) for index in range(4)]
    return topology([*leaves, ("pcie-switch0", "cpu0", joint), ("pcie-switch1", "cpu0", joint)])


def two_sockets(pcie: Link, socket: Link, bridge: Link | None = None, size: int = 1) -> Topology:
    """Four GPUs on each of two sockets, every GPU on its root complex; each ``size`` joined all to all."""
    edges = [(f"gpu{index}", f"cpu{index // 4}", pcie) for index in range(8)] + [("cpu0", "cpu1", socket)]
    if bridge is not None:
        edges += [
            (f"gpu{one}", f"gpu{other}", bridge)
            for one in range(8)
            for other in range(one + 1, 8)
            if one // size == other // size
        ]
    return topology(edges)


def rails(nodes: int, gpus: int, nvlink: Link, pcie: Link, network: Link) -> Topology:
    """Nodes of GPUs on one NVSwitch, each GPU with a NIC of its own; NICs of one index meet at a leaf."""
    edges = []
    for node in range(nodes):
        for index in range(gpus):
            gpu, nic = f"node{node}.gpu{index}", f"node{node}.nic{index}"
            edges += [
                (gpu, f"node{node}.nvswitch0", nvlink),
                (gpu, nic, pcie),
                (nic, f"leaf{index}", network),
            ]
    edges += [(f"leaf{index}", "spine0", network) for index in range(gpus)] if gpus > 1 else []
    return topology(edges)
