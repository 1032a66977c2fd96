"""What physics allows, beside what the simulation found. A result that beats a bound is a bug."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from simulator.errors import PhysicsError
from simulator.metrics.latency import Latencies, finished
from simulator.record import PREEMPTION_COLUMNS, Floats, Record, column

ROUNDING = 1e-9
"""Relative distance by which rounding may pass a bound."""

_CONTEXT_GRID = 64
"""Contexts are rounded down to multiples of this, so that few floors are computed."""


@dataclass(frozen=True)
class Bound:
    """A limit of physics and the value that the run came to.

    Of latencies it is the request that comes nearest to its own limit.
    """

    name: str
    limit: float
    value: float
    unit: str
    holds: bool
    sense: Literal["at least", "at most"]

    @property
    def margin(self) -> float:
        """Value over limit of a latency, limit over value of a rate: above 1 where it holds."""
        over, under = (self.value, self.limit) if self.sense == "at least" else (self.limit, self.value)
        return over / under if under > 0.0 else float("inf")


@dataclass(frozen=True)
class Ceiling:
    """A resource of all replicas together: what the run needed of it at least, and what it gives a second."""

    name: str
    needed: float
    per_s: float


def bounds(
    record: Record,
    found: Latencies,
    *,
    floor_prefill_s: Callable[[int], float],
    floor_decode_s: Callable[[int], float],
    ceilings: Sequence[Ceiling],
    kv_tokens: float,
) -> tuple[Bound, ...]:
    """Every bound of the record.

    ``floor_prefill_s`` gives the least seconds from prompt tokens to the first token, the prompt alone on
    its replica; ``floor_decode_s`` those of one more token at a context, both at peak figures.
    ``kv_tokens`` is what the KV cache of all replicas holds together.
    """
    done = finished(record)
    if not done.any():
        return ()
    input_tokens = record.request("input_tokens")[done]
    output_tokens = record.request("output_tokens")[done]
    several = output_tokens > 1.0
    # A floor that is convex in the context is, over a growing context, at least that of its mean.
    contexts = (input_tokens + 0.5 * output_tokens)[several]
    latency = [
        _nearest("TTFT of a request", found.ttft_s[done], input_tokens, floor_prefill_s, 1),
        _nearest("TPOT of a request", found.tpot_s[done][several], contexts, floor_decode_s, _CONTEXT_GRID),
    ]
    cache = Ceiling("KV capacity", _kv_token_seconds(record), kv_tokens)
    seconds = record.end_s - float(record.request("created_s").min())
    output_throughput = float(output_tokens.sum()) / seconds
    rates = [_rate(ceiling, output_throughput, seconds) for ceiling in (*ceilings, cache)]
    return tuple(bound for bound in (*latency, *rates) if bound is not None)


def check(found: Sequence[Bound]) -> None:
    """Raise PhysicsError where a bound does not hold."""
    broken = [
        f"{bound.name} is {bound.value:.6g} {bound.unit}, physics says {bound.sense} {bound.limit:.6g}"
        for bound in found
        if not bound.holds
    ]
    if broken:
        raise PhysicsError("; ".join(broken))


def _nearest(
    name: str, values_s: Floats, tokens: Floats, floor_s: Callable[[int], float], grid: int
) -> Bound | None:
    """The bound of the request that is nearest to its floor, or beyond it."""
    if not len(values_s):
        return None
    known, which = np.unique((tokens // grid).astype(np.int64), return_inverse=True)
    floors_s = np.array([floor_s(max(int(index) * grid, 1)) for index in known])[which]
    index = int(np.argmin(values_s / floors_s))
    limit_s, value_s = float(floors_s[index]), float(values_s[index])
    return Bound(name, limit_s, value_s, "s", value_s >= limit_s * (1.0 - ROUNDING), "at least")


def _rate(ceiling: Ceiling, output_throughput: float, seconds: float) -> Bound | None:
    """Output throughput if the resource were busy all the time with the same mix of work."""
    if ceiling.needed <= 0.0:
        return None
    limit = float(output_throughput * (ceiling.per_s * seconds / ceiling.needed))
    holds = output_throughput <= limit * (1.0 + ROUNDING)
    return Bound(f"output throughput: {ceiling.name}", limit, output_throughput, "tokens/s", holds, "at most")


def _kv_token_seconds(record: Record) -> float:
    """Least tokens x seconds that the requests held in the KV cache: their prompts while they decode.

    Little's law: over the run's seconds this is the mean number of tokens held, which the cache must have.
    """
    held_s = np.where(finished(record), record.request("finish_s") - record.request("first_token_s"), 0.0)
    ids, evicted_s, resumed_s = (
        column(record.preemptions, PREEMPTION_COLUMNS, name) for name in ("id", "evicted_s", "resumed_s")
    )
    ids = ids.astype(np.intp)
    decoding = evicted_s >= record.request("first_token_s")[ids]
    np.subtract.at(held_s, ids[decoding], (resumed_s - evicted_s)[decoding])
    return float((held_s * record.request("input_tokens")).sum())
