"""What changes during a run: costs and capacities, replicas that fail and come back."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from simpy.events import EventPriority

from simulator.network.fluid import Resource
from simulator.serving.disaggregation import Way
from simulator.serving.pipeline import Pipeline
from simulator.serving.replica import StepSeconds
from simulator.serving.sharing import Group

CHANGE_PRIORITY = EventPriority(-1)
"""A change comes before everything else of its instant."""


@dataclass(frozen=True)
class Fit:
    """What a replica costs, in one condition of its system."""

    engine: StepSeconds | Pipeline
    groups: tuple[Group, ...] = ()
    """One per group of GPUs; needed only on shared hardware."""


@dataclass(frozen=True)
class Change:
    """What is different from a moment on; replicas are counted over all pools."""

    at_s: float
    fits: Mapping[int, Fit] = field(default_factory=dict)
    """By replica."""
    capacities: Mapping[Resource, float] = field(default_factory=dict)
    down: frozenset[int] = frozenset()
    """Replicas that fail."""
    up: frozenset[int] = frozenset()
    """Replicas that are back, empty."""
    way: Way | None = None
    """Of KV cache between two pools, where it is another."""
