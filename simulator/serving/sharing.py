"""Puts the replicas of a run on one network of devices and links."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from simulator.clock import Clock, replica_priority
from simulator.network.collectives import AffineCost
from simulator.network.fluid import FluidNetwork, Resource
from simulator.serving.execution import COMPUTE, HBM, Execution, GroupFootprints, Pieces
from simulator.serving.replica import Replica
from simulator.topology.graph import Topology


@dataclass(frozen=True)
class AllReduces:
    """The all-reduces that a group may use."""

    costs: tuple[AffineCost, ...]

    def best(self, nbytes: float) -> AffineCost | None:
        """The fastest at that size; None for a group of one."""
        allowed = [cost for cost in self.costs if cost.allows(nbytes)]
        return min(allowed, key=lambda cost: cost.latency_s + cost.s_per_byte * nbytes, default=None)


@dataclass(frozen=True)
class Group:
    """What one replica runs on: its GPUs, the pieces of its steps, the collectives between its GPUs."""

    gpus: tuple[str, ...]
    pieces: Pieces
    all_reduces: AllReduces


def capacities(topology: Topology) -> dict[Resource, float]:
    """Every direction of every link in bytes per second, and every GPU's compute and HBM as 1."""
    found: dict[Resource, float] = {}
    for one, other in topology.graph.edges:
        for edge in ((one, other), (other, one)):
            found[edge] = topology.bandwidth_bytes_per_s(edge)
    for gpu in topology.gpus:
        found[gpu, COMPUTE] = found[gpu, HBM] = 1.0
    return found


def share(
    clock: Clock,
    replicas: Sequence[Replica],
    groups: Sequence[Group],
    given: Mapping[Resource, float],
    *,
    closely: bool,
) -> FluidNetwork:
    """The network that the replicas run on from now on; ``closely``: every step piece by piece."""
    network = FluidNetwork(clock, given)
    for replica, group in zip(replicas, groups, strict=True):
        footprints = GroupFootprints(network, group.gpus, group.all_reduces)
        replica.share(
            Execution(
                clock,
                network,
                group.pieces,
                footprints,
                footprints.prepare(group.all_reduces.costs),
                replica_priority(replica.index),
                closely=closely,
                on_disturbed=replica.disturbed,
            )
        )
    return network
