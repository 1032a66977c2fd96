"""Random scenarios of the serving engine, small enough that every corner is met often."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from hypothesis import strategies as st

from simulator.record import STEP_CAUSES, STEP_COLUMNS, Floats, Record, column
from simulator.serving.changes import Change, Fit
from simulator.serving.cluster import serve
from simulator.serving.replica import Limits
from simulator.serving.routers import ROUTERS
from simulator.streams import Streams

Traffic = list[tuple[float, int, int]]


@dataclass(frozen=True)
class LinearCost:
    """Seconds of a step as a sum of plain terms: a stand-in for hardware whose algebra is known."""

    fixed_s: float
    per_token_s: float
    per_prompt_s: float
    kv_s_per_token: float
    per_pair_s: float

    def base_s(self, decodes: int, chunk_tokens: int, chunks: int, completions: int) -> float:
        return (
            self.fixed_s
            + self.per_token_s * (decodes + chunk_tokens)
            + self.per_prompt_s * (chunks + completions)
        )

    def attention_s(self, new_tokens: int, prefix_tokens: int) -> float:
        return self.per_pair_s * (new_tokens * (prefix_tokens + new_tokens))

    def scaled(self, factor: float) -> LinearCost:
        """The same hardware with every time multiplied."""
        return LinearCost(*(factor * value for value in vars(self).values()))


def breakdown(cost: LinearCost) -> Callable[[Floats], Floats]:
    """Seconds by cause of a linear cost."""

    def split(steps: Floats) -> Floats:
        found = np.zeros((len(steps), len(STEP_CAUSES)))
        by_name = {name: column(steps, STEP_COLUMNS, name) for name in STEP_COLUMNS}
        tokens = by_name["steps"] * by_name["decodes"] + by_name["chunk_tokens"]
        prompts = by_name["chunks"] + by_name["completions"]
        found[:, STEP_CAUSES.index("host")] = cost.fixed_s * by_name["steps"]
        found[:, STEP_CAUSES.index("compute")] = cost.per_token_s * tokens
        found[:, STEP_CAUSES.index("launch")] = cost.per_prompt_s * prompts
        found[:, STEP_CAUSES.index("kv")] = cost.kv_s_per_token * by_name["kv_tokens"]
        found[:, STEP_CAUSES.index("attention")] = by_name["attention_s"]
        return found

    return split


@dataclass(frozen=True)
class Case:
    """A scenario of the serving engine."""

    cost: LinearCost
    limits: Limits
    traffic: Traffic
    router: str = "round-robin"
    replicas: int = 1
    max_concurrency: int | None = None
    max_model_len: int = 10**9
    changes: tuple[Change, ...] = ()

    def run(self, detail: str = "macro") -> Record:
        return serve(
            [self.cost] * self.replicas,
            self.limits,
            ROUTERS[self.router](),
            Streams(0),
            self.traffic,
            detail=detail,
            max_model_len=self.max_model_len,
            max_concurrency=self.max_concurrency,
            changes=self.changes,
        )

    def with_cost(self, **changes: float) -> Case:
        return replace(self, cost=replace(self.cost, **changes))


def costs() -> st.SearchStrategy[LinearCost]:
    return st.builds(
        LinearCost,
        fixed_s=st.sampled_from([1 / 256, 5e-3, 0.02]),
        per_token_s=st.sampled_from([0.0, 1e-5, 1 / 4096]),
        per_prompt_s=st.sampled_from([0.0, 1e-4]),
        kv_s_per_token=st.sampled_from([0.0, 1e-8, 1e-5, 1 / 65536]),
        per_pair_s=st.sampled_from([0.0, 1e-8]),
    )


@st.composite
def limits(draw: st.DrawFn) -> Limits:
    """From a handful of blocks to plenty; vLLM demands that the token budget covers the sequences."""
    seqs = draw(st.integers(1, 12))
    return Limits(
        max_num_seqs=seqs,
        max_num_batched_tokens=draw(st.integers(seqs, 64)),
        block_size=draw(st.sampled_from([1, 2, 3, 4, 16])),
        num_blocks=draw(st.one_of(st.integers(1, 12), st.integers(10, 200))),
    )


@st.composite
def traffic(draw: st.DrawFn, most: int = 30) -> Traffic:
    """Bursts, ties with one another and with step boundaries, single-token outputs, long prompts."""
    gaps = st.one_of(st.just(0.0), st.sampled_from([1 / 256, 5e-3, 0.02, 0.1]), st.floats(1e-9, 0.2))
    requests = draw(
        st.lists(
            st.tuples(gaps, st.integers(1, 90), st.one_of(st.just(1), st.integers(1, 40))),
            min_size=1,
            max_size=most,
        )
    )
    now_s, result = 0.0, []
    for gap_s, input_tokens, output_tokens in requests:
        now_s += gap_s
        result.append((now_s, input_tokens, output_tokens))
    return result


def cases() -> st.SearchStrategy[Case]:
    return st.builds(
        Case,
        cost=costs(),
        limits=limits(),
        traffic=traffic(),
        router=st.sampled_from(sorted(ROUTERS)),
        replicas=st.integers(1, 3),
        max_concurrency=st.sampled_from([None, 1, 2, 7]),
        max_model_len=st.sampled_from([10**9, 60]),
    )


def closed_batches() -> st.SearchStrategy[Case]:
    """All requests at once on one replica, so that the schedule cannot depend on the clock."""
    return st.builds(
        Case,
        cost=costs(),
        limits=limits(),
        traffic=traffic().map(lambda requests: [(0.0, *lengths) for _, *lengths in requests]),
    )


def moments() -> st.SearchStrategy[float]:
    """Times that often tie with arrivals, with the ends of steps and with one another."""
    return st.one_of(st.sampled_from([0.0, 5e-3, 0.02, 3 / 256, 0.1, 0.25]), st.floats(0.0, 1.0))


@st.composite
def changing_cases(draw: st.DrawFn) -> Case:
    """Replicas whose costs change now and then."""
    case = draw(cases())
    at_s = sorted(draw(st.lists(moments(), min_size=1, max_size=4)))
    fits = st.dictionaries(st.integers(0, case.replicas - 1), costs().map(Fit))
    return replace(case, changes=tuple(Change(time_s, draw(fits)) for time_s in at_s))


@st.composite
def outages(draw: st.DrawFn, replicas: int) -> tuple[Change, ...]:
    """Replicas that fail and come back, or do not."""
    found = []
    down: frozenset[int] = frozenset()
    for at_s in sorted(draw(st.lists(moments(), min_size=1, max_size=6, unique=True))):
        after = draw(st.frozensets(st.integers(0, replicas - 1)))
        found.append(Change(at_s, down=after - down, up=down - after))
        down = after
    return tuple(found)


@st.composite
def failing_cases(draw: st.DrawFn) -> Case:
    """Replicas that fail and come back."""
    case = draw(cases())
    return replace(case, changes=draw(outages(case.replicas)))
