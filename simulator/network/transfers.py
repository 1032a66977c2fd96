"""Messages from one group of GPUs to another, alone or on the shared network."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import inf
from typing import NamedTuple, Protocol

from simpy.events import EventPriority

from simulator.clock import ARRIVAL_PRIORITY, Clock
from simulator.network.collectives import AffineCost
from simulator.network.fluid import Flow, FluidNetwork, Footprint, Parts
from simulator.topology.graph import Edge

Arrived = Callable[[float, float], None]
"""Called with the seconds that a message takes alone, and those that it lost to others."""


class Path(Protocol):
    """The way of messages between two groups."""

    def send(self, nbytes: float, on_done: Arrived, limit_bytes_per_s: float = inf) -> None:
        """Send a message; its source cannot give more than ``limit_bytes_per_s``."""


class TimedPath:
    """A way that nobody else uses; several messages at a time do not slow one another down."""

    def __init__(self, clock: Clock, cost: AffineCost, priority: EventPriority = ARRIVAL_PRIORITY) -> None:
        self._clock = clock
        self._cost = cost
        self._priority = priority

    def send(self, nbytes: float, on_done: Arrived, limit_bytes_per_s: float = inf) -> None:
        """Arrives when its seconds are over."""
        seconds = self._cost.latency_s + max(self._cost.s_per_byte, 1.0 / limit_bytes_per_s) * nbytes
        end_s = self._clock.now + seconds
        self._clock.call_at(end_s, self._priority, lambda event: on_done(seconds, 0.0))


class FluidPath:
    """A way over links that others may use: the latency of its route, then a flow for each phase."""

    def __init__(self, clock: Clock, network: FluidNetwork, cost: AffineCost, traffic: str) -> None:
        self._clock = clock
        self._network = network
        self._latency_s = cost.latency_s
        self._traffic = traffic
        self._phases = phase_footprints(network, cost)

    def send(self, nbytes: float, on_done: Arrived, limit_bytes_per_s: float = inf) -> None:
        """Arrives when its last phase is through."""
        alone_s = self._latency_s + sum(
            max(phase.s_per_byte, 1.0 / limit_bytes_per_s) * nbytes for phase in self._phases
        )
        lost_s = 0.0
        phases = iter(self._phases)

        def start_next(flow: Flow | None = None) -> None:
            nonlocal lost_s
            if flow is not None:
                lost_s += flow.lost_s
            following = next(phases, None)
            if following is None:
                on_done(alone_s, lost_s)
                return
            self._network.start(
                following.parts,
                following.heaviest * nbytes,
                start_next,
                traffic=self._traffic,
                limit=following.heaviest * limit_bytes_per_s,
            )

        end_s = self._clock.now + self._latency_s
        self._clock.call_at(end_s, ARRIVAL_PRIORITY, lambda event: start_next())


class PhaseFootprint(NamedTuple):
    """What a phase takes of links, and how long it takes alone."""

    parts: Parts
    heaviest: float
    """Units of work per byte of message."""
    s_per_byte: float


def phase_footprints(network: FluidNetwork, cost: AffineCost) -> list[PhaseFootprint]:
    """Of the phases of a cost that take the longer the more bytes there are."""
    found = []
    for phase in cost.phases:
        if phase.s_per_byte > 0.0:
            footprint, heaviest = link_footprint(network, phase.loads, phase.s_per_byte)
            found.append(PhaseFootprint(((footprint, 1.0),), heaviest, phase.s_per_byte))
    return found


def link_footprint(
    network: FluidNetwork, loads: Mapping[Edge, float], s_per_byte: float
) -> tuple[Footprint, float]:
    """The footprint of ``loads`` (bytes on links per byte of message), and the load of the heaviest link.

    A rate is in bytes per second on the heaviest link. Wire time is what the protocol leaves unused, too: it
    is scaled so that a message alone takes ``s_per_byte`` per byte.
    """
    heaviest = max(loads.values())
    tightest_s = max(load / network.capacity(edge) for edge, load in loads.items())
    overhead = s_per_byte / tightest_s
    return network.footprint({edge: overhead * load / heaviest for edge, load in loads.items()}), heaviest
