"""Flows on made-up resources: what a test describes, and the network that runs them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from math import inf
from random import Random

from hypothesis import strategies as st
from simpy.events import EventPriority

from simulator.clock import Clock
from simulator.network.fluid import Flow, FluidNetwork

PRIORITY = EventPriority(1)


@dataclass(frozen=True)
class Job:
    """A flow to come: ``work`` units, each of which takes ``demands``."""

    start_s: float
    work: float
    demands: tuple[tuple[str, float], ...]
    limit: float = inf

    def solo_s(self, capacities: Mapping[str, float]) -> float:
        """Its seconds when it is alone."""
        rates = [capacities[resource] / amount for resource, amount in self.demands]
        return self.work / min(*rates, self.limit)


@dataclass(frozen=True)
class Outcome:
    """When a flow ended, and the seconds that others cost it."""

    end_s: float
    lost_s: float


@dataclass(frozen=True)
class Moment:
    """Rates that last for some seconds."""

    seconds: float
    rates: Mapping[str, float]


class Bench:
    """A network of its own, and a diary of what ends on it."""

    def __init__(self, capacities: Mapping[str, float], *, apart: bool = False) -> None:
        """``apart``: no two resources are ever one to the solver."""
        self.clock = Clock()
        self.network = FluidNetwork(self.clock, capacities)
        self.ended: dict[str, Outcome] = {}
        self._running: dict[str, Flow] = {}
        if apart:
            for resource in capacities:
                self.network.footprint({resource: 1.0})

    def at(self, time_s: float, action: Callable[[], object]) -> None:
        """Do something at a time."""
        self.clock.call_at(time_s, PRIORITY, lambda event: action())

    def start(self, name: str, work: float, demands: Mapping[str, float], limit: float = inf) -> Flow:
        """A flow from now on, with a footprint that is new to the network."""

        def done(flow: Flow) -> None:
            self.ended[name] = Outcome(self.clock.now, flow.lost_s)
            del self._running[name]

        parts = ((self.network.footprint(demands), 1.0),)
        flow = self.network.start(parts, work, done, traffic="test", limit=limit)
        self._running[name] = flow
        return flow

    def run(self) -> dict[str, Outcome]:
        """Let everything end."""
        self.clock.run()
        return self.ended

    def moments(self) -> Iterator[Moment]:
        """Let everything end, from one event to the next."""
        while self.clock.peek() < inf:
            self.clock.step()
            if self.clock.now < self.clock.peek() < inf:
                seconds = self.clock.peek() - self.clock.now
                yield Moment(seconds, {name: flow.rate for name, flow in self._running.items()})


def prepared(capacities: Mapping[str, float], jobs: Sequence[Job], *, apart: bool = False) -> Bench:
    """A bench on which each job starts at its time, by its place as a name."""
    bench = Bench(capacities, apart=apart)
    for index, job in enumerate(jobs):
        bench.at(job.start_s, partial(bench.start, str(index), job.work, dict(job.demands), job.limit))
    return bench


def run(capacities: Mapping[str, float], jobs: Sequence[Job], *, apart: bool = False) -> list[Outcome]:
    """What becomes of each job."""
    ended = prepared(capacities, jobs, apart=apart).run()
    return [ended[str(index)] for index in range(len(jobs))]


def ends_s(capacities: Mapping[str, float], jobs: Sequence[Job]) -> list[float]:
    """When each job ends."""
    return [outcome.end_s for outcome in run(capacities, jobs)]


@dataclass(frozen=True)
class Flows:
    """Resources and the jobs that use them."""

    capacities: Mapping[str, float]
    jobs: tuple[Job, ...]

    def with_jobs(self, jobs: Sequence[Job]) -> Flows:
        return replace(self, jobs=tuple(jobs))


def crowd(random: Random) -> Flows:
    """Some fifty flows at a time, each over three of 40 resources, no two shares alike."""
    names = [f"r{index}" for index in range(40)]
    jobs = [
        Job(
            start_s=random.uniform(0.0, 8.0),
            work=random.uniform(0.1, 2.0),
            demands=tuple((name, random.uniform(0.5, 2.0)) for name in random.sample(names, 3)),
            limit=random.choice([inf, inf, random.uniform(0.05, 0.5)]),
        )
        for _ in range(150)
    ]
    return Flows({name: random.uniform(0.5, 2.0) for name in names}, tuple(jobs))


AMOUNTS = (0.5, 1.0, 1.0, 1.0, 2.0, 3.0)
STARTS_S = (0.0, 0.0, 0.5, 1.0, 1.0, 1.5, 2.25)


@st.composite
def flows(draw: st.DrawFn, resources: int = 6, most: int = 8) -> Flows:
    """Several resources, jobs on some of them; ties of starts, of shares and of limits are frequent."""
    names = [f"r{index}" for index in range(draw(st.integers(1, resources)))]
    capacities = {name: draw(st.sampled_from([1.0, 1.0, 2.0, 3.0, 7.0])) for name in names}
    jobs = []
    for _ in range(draw(st.integers(1, most))):
        used = draw(st.lists(st.sampled_from(names), min_size=1, max_size=4, unique=True))
        jobs.append(
            Job(
                start_s=draw(st.sampled_from(STARTS_S)),
                work=draw(st.sampled_from([0.25, 1.0, 1.0, 2.0, 5.0])),
                demands=tuple((name, draw(st.sampled_from(AMOUNTS))) for name in used),
                limit=draw(st.sampled_from([inf, inf, inf, 0.25, 1.0])),
            )
        )
    return Flows(capacities, tuple(jobs))
