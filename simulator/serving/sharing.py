"""Puts the replicas of a run on one network of devices and links."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from simulator.clock import Clock
from simulator.network.collectives import AllReduceModel
from simulator.network.fluid import FluidNetwork, Resource
from simulator.serving.execution import COMPUTE, HBM, Equipment, Execution, GroupFootprints, Pieces
from simulator.serving.pipeline import PipelineReplica
from simulator.serving.replica import Target
from simulator.serving.runner import StepRunner
from simulator.topology.graph import Topology


@dataclass(frozen=True)
class Group:
    """What one replica runs on: its GPUs, the pieces of its steps, the collectives between its GPUs."""

    gpus: tuple[str, ...]
    pieces: Pieces
    all_reduce: AllReduceModel

    def equipment(self, network: FluidNetwork) -> Equipment:
        """Its pieces on a network."""
        footprints = GroupFootprints(network, self.gpus, self.all_reduce)
        return Equipment(self.pieces, footprints, footprints.prepare(self.all_reduce.costs))


def capacities(topology: Topology) -> dict[Resource, float]:
    """Every direction of every link in bytes per second, and every GPU's compute and HBM as 1."""
    found = dict[Resource, float](topology.bandwidths_bytes_per_s.items())
    for gpu in topology.gpus:
        found[gpu, COMPUTE] = found[gpu, HBM] = 1.0
    return found


@dataclass(frozen=True)
class Hardware:
    """What the replicas of a run share: a group for each (or each of its stages), and all that it runs on."""

    groups: tuple[Group, ...]
    capacities: Mapping[Resource, float]

    def share(self, clock: Clock, replicas: Sequence[Target], *, closely: bool) -> FluidNetwork:
        """The network that the replicas run on from now on; ``closely``: every step piece by piece."""
        network = FluidNetwork(clock, self.capacities)
        runners = [runner for replica in replicas for runner in replica.runners]
        for runner, group in zip(runners, self.groups, strict=True):
            runner.share(_execution(clock, network, group, runner, closely=closely))
        for replica in replicas:
            if isinstance(replica, PipelineReplica):
                replica.send_over(network)
        return network


def _execution(
    clock: Clock, network: FluidNetwork, group: Group, runner: StepRunner, *, closely: bool
) -> Execution:
    return Execution(
        clock,
        network,
        group.equipment(network),
        runner.priority,
        closely=closely,
        on_disturbed=runner.disturbed,
    )
