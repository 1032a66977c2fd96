"""Requests in order of time, made up from a preset or replayed from a trace."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from simulator.errors import InputError
from simulator.streams import Streams
from simulator.workload.arrays import BLOCK, Floats, Ints
from simulator.workload.arrivals import AllAtOnce, Arrivals, Constant, Gamma, Poisson
from simulator.workload.lengths import Lengths, RandomRange
from simulator.workload.spec import Preset, Workload
from simulator.workload.traces import read_trace

LONGEST_S = 1e9
"""Thirty years: a float of seconds tells a tenth of a microsecond up to there."""

Blocks = Callable[[], Iterator[tuple[Floats, Ints]]]
"""Starts a stream of (times in seconds, tokens of shape (requests, 2))."""


@dataclass(frozen=True)
class TrafficSummary:
    """What was offered; a rate over no time is None."""

    requests: int
    span_s: float
    """From the first arrival to the last."""
    mean_input_tokens: float
    mean_output_tokens: float
    mean_rate_per_s: float | None


class Traffic:
    """Requests as (created_s, input_tokens, output_tokens), in order of time, first at 0 or later.

    Iterating again gives the same requests.
    """

    def __init__(self, blocks: Blocks, warnings: list[str]) -> None:
        self.warnings = warnings
        self._blocks = blocks
        self._forget()

    def _forget(self) -> None:
        self._requests = 0
        self._tokens = [0, 0]
        self._first_s = self._last_s = 0.0

    def __iter__(self) -> Iterator[tuple[float, int, int]]:
        self._forget()
        for times_s, tokens in self._blocks():
            self._count(times_s, tokens)
            yield from zip(times_s.tolist(), tokens[:, 0].tolist(), tokens[:, 1].tolist(), strict=True)

    def _count(self, times_s: Floats, tokens: Ints) -> None:
        if not float(times_s[-1]) <= LONGEST_S:
            raise InputError(
                f"an arrival at {float(times_s[-1]):.3g} s: the clock is exact up to {LONGEST_S:.0e} s",
                field="workload",
                remedy="use a higher request_rate or a smaller time_scale",
            )
        if self._requests == 0:
            self._first_s = float(times_s[0])
        self._last_s = float(times_s[-1])
        self._requests += len(times_s)
        self._tokens = [sum(pair) for pair in zip(self._tokens, tokens.sum(axis=0).tolist(), strict=True)]

    def summary(self) -> TrafficSummary:
        """What has been read, to whole blocks."""
        span_s = self._last_s - self._first_s
        count = max(self._requests, 1)
        return TrafficSummary(
            requests=self._requests,
            span_s=span_s,
            mean_input_tokens=self._tokens[0] / count,
            mean_output_tokens=self._tokens[1] / count,
            mean_rate_per_s=(count - 1) / span_s if span_s > 0 else None,
        )


def traffic(
    workload: Workload,
    preset: Preset | None,
    streams: Streams,
    rate_factor: float = 1.0,
    *,
    block: int = BLOCK,
) -> Traffic:
    """The traffic that a workload asks for; ``preset`` is the one that it names.

    ``rate_factor`` multiplies the offered rate, and the number of requests of a preset with it.
    A trace is read and checked here. Raises InputError.
    """
    if workload.trace is not None:
        return _replayed(workload, Path(workload.trace), rate_factor, block)
    if preset is None:
        raise InputError("the workload names neither a preset nor a trace", field="workload")
    return _made_up(workload, preset, streams, rate_factor, block)


def _made_up(workload: Workload, preset: Preset, streams: Streams, rate_factor: float, block: int) -> Traffic:
    process, stretch = _arrivals(workload, preset, rate_factor)
    lengths = _lengths(workload, preset)
    requests = max(1, round((workload.num_prompts or 1) * rate_factor))

    def blocks() -> Iterator[tuple[Floats, Ints]]:
        rng, left = streams("lengths"), requests
        for times_s in process.times_s(streams("arrivals"), block):
            taken_s = times_s[:left]
            left -= len(taken_s)
            yield stretch(taken_s), lengths.draw(rng, len(taken_s))
            if left == 0:
                return

    return Traffic(blocks, [])


def _arrivals(
    workload: Workload, preset: Preset, rate_factor: float
) -> tuple[Arrivals, Callable[[Floats], Floats]]:
    """The process, and what carries its times to the rate that is asked for."""
    rate_per_s = workload.request_rate or (preset.rate.value if preset.rate else None)
    process = _process(workload, preset)
    if isinstance(process, AllAtOnce) and isinstance(rate_per_s, float):
        process = Poisson()
    if rate_per_s is None and (workload.burstiness or workload.arrival) is not None:
        raise InputError(
            f"preset {preset.name} has no rate of its own",
            field="workload.request_rate",
            remedy="give the requests per second",
        )
    if rate_per_s is None or rate_per_s == "inf":
        return AllAtOnce(), lambda times_s: times_s
    speed = rate_per_s * rate_factor / process.mean_rate_per_s
    return process, lambda times_s: times_s * workload.time_scale / speed


def _process(workload: Workload, preset: Preset) -> Arrivals:
    if workload.burstiness is not None:
        return Gamma(burstiness=workload.burstiness)
    if workload.arrival is not None:
        return Poisson() if workload.arrival == "poisson" else Constant()
    return preset.arrivals.value


def _lengths(workload: Workload, preset: Preset) -> Lengths:
    lengths, given = preset.lengths.value, workload.random_lengths()
    if not given:
        return lengths
    if not isinstance(lengths, RandomRange):
        raise InputError(
            f"preset {preset.name} has lengths of its own",
            field="workload",
            remedy="leave out random_input_len and the like, or use preset random",
        )
    return lengths.model_copy(update=given)


def _replayed(workload: Workload, path: Path, rate_factor: float, block: int) -> Traffic:
    trace = read_trace(path, workload.trace_format, workload.num_prompts)
    times_s = _rescaled(workload, path, trace.arrival_s, rate_factor)
    missing = workload.num_prompts is not None and len(times_s) < workload.num_prompts
    short = [f"{path}: holds {len(times_s)} requests, fewer than num_prompts asks for"] if missing else []

    def blocks() -> Iterator[tuple[Floats, Ints]]:
        for start in range(0, len(times_s), block):
            yield times_s[start : start + block], trace.tokens[start : start + block].astype(np.int64)

    return Traffic(blocks, [*trace.warnings, *short])


def _rescaled(workload: Workload, path: Path, times_s: Floats, rate_factor: float) -> Floats:
    """Times of arrival under the rate or the scale of time that is asked for."""
    if workload.request_rate == "inf":
        return np.zeros_like(times_s)
    if workload.request_rate is None:
        return times_s * workload.time_scale / rate_factor
    span_s = float(times_s[-1])
    if span_s == 0:
        raise InputError(
            "all requests arrive at one instant: there is no rate to rescale",
            file=path,
            remedy="leave out request_rate",
        )
    native_per_s = (len(times_s) - 1) / span_s
    return times_s * native_per_s / (workload.request_rate * rate_factor)
