"""Laws of traffic: nothing depends on how it is cut into blocks, how a trace is written, or on scales."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from simulator.streams import Streams
from simulator.workload import Traffic, Workload, traffic
from simulator.workload.arrivals import AllAtOnce, Arrivals, Constant, Gamma, Mmpp2, OnOff, Poisson
from simulator.workload.lengths import Component, Fixed, Lengths, LognormalMixture, RandomRange
from simulator.workload.traces import read_trace

Rows = list[tuple[int, int, int]]
"""Nanoseconds, prompt tokens, output tokens."""

EPOCH = datetime(2024, 5, 12, tzinfo=UTC)

processes: st.SearchStrategy[Arrivals] = st.one_of(
    st.just(Poisson()),
    st.builds(Gamma, burstiness=st.floats(0.05, 20)),
    st.just(Constant()),
    st.just(AllAtOnce()),
    st.builds(
        Mmpp2,
        rates=st.tuples(st.sampled_from(["0 /s", "0.5 /s"]), st.sampled_from(["3 /s", "90 /s"])),
        sojourns=st.tuples(st.sampled_from(["10 ms", "7 s"]), st.sampled_from(["1 s", "200 s"])),
    ),
    st.builds(
        OnOff,
        off_mu=st.floats(-1, 3),
        off_sigma=st.floats(0.1, 2),
        off_min=st.just("10 ms"),
        off_max=st.just("30 s"),
        burst_mu=st.floats(0, 4),
        burst_sigma=st.floats(0.1, 2),
        burst_max=st.integers(1, 200),
        gap_mean=st.just("50 ms"),
        gap_cv=st.floats(0.3, 3),
    ),
)

lengths: st.SearchStrategy[Lengths] = st.one_of(
    st.builds(Fixed, input_tokens=st.integers(1, 9), output_tokens=st.integers(1, 9)),
    st.builds(
        RandomRange,
        input_tokens=st.integers(1, 5000),
        output_tokens=st.integers(1, 5000),
        range_ratio=st.floats(0, 0.99),
    ),
    st.builds(
        LognormalMixture,
        components=st.tuples(
            st.just(Component(weight=0.4, input_mu=3, input_sigma=1, output_mu=2, output_sigma=1)),
            st.just(Component(weight=0.6, input_mu=6, input_sigma=0.5, output_mu=4, output_sigma=2)),
        ),
        max_input_tokens=st.integers(1, 500),
        max_output_tokens=st.integers(1, 500),
    ),
)

rows = st.lists(
    st.tuples(st.integers(0, 10**15), st.integers(1, 10**6), st.integers(1, 10**5)), min_size=1, max_size=30
)


def first_times(process: Arrivals, block: int, count: int) -> list[float]:
    blocks = process.times_s(Streams(3)("arrivals"), block)
    return list(islice((time_s for times_s in blocks for time_s in times_s.tolist()), count))


@settings(deadline=None)
@given(processes, st.integers(1, 700))
def test_times_do_not_depend_on_the_size_of_a_block(process: Arrivals, block: int) -> None:
    expected = first_times(process, 4096, 400)
    assert first_times(process, block, 400) == expected
    assert expected[0] >= 0
    assert expected == sorted(expected)


@settings(deadline=None)
@given(lengths, st.lists(st.integers(1, 90), min_size=1, max_size=5))
def test_lengths_do_not_depend_on_how_many_are_drawn_at_a_time(source: Lengths, counts: list[int]) -> None:
    rng = Streams(3)("lengths")
    pieces = np.concatenate([source.draw(rng, count) for count in counts])
    assert (pieces == source.draw(Streams(3)("lengths"), sum(counts))).all()
    assert pieces.min() >= 1


def replay(path: Path, **choices: object) -> Traffic:
    return traffic(Workload.model_validate({"trace": str(path), **choices}), None, Streams(0))


def written(folder: str, header: str, lines: list[str], end: str = "\n") -> Path:
    path = Path(folder) / "trace.csv"
    path.write_bytes((header + end + end.join(lines)).encode())
    return path


def native(folder: str, requests: Rows) -> Path:
    lines = [f"{at // 10**9}.{at % 10**9:09d},{prompt},{output}" for at, prompt, output in requests]
    return written(folder, "arrival_s,input_tokens,output_tokens", lines)


@settings(deadline=None)
@given(
    rows,
    st.sampled_from(["{0} {1}.{2}", "{0} {1}.{2}+00:00", "{0}T{1}.{2}Z", "{0} {1}.{2}0"]),
    st.sampled_from(["\n", "\r\n"]),
)
def test_a_trace_reads_as_it_was_written_in_every_form(requests: Rows, form: str, end: str) -> None:
    lines = []
    for at_ns, prompt, output in requests:
        moment = EPOCH + timedelta(seconds=at_ns // 10**9)
        time = form.format(moment.strftime("%Y-%m-%d"), moment.strftime("%H:%M:%S"), f"{at_ns % 10**9:09d}")
        lines.append(f"{time},{prompt},{output}")
    ordered = sorted(requests, key=lambda request: request[0])
    first_ns = ordered[0][0]
    with TemporaryDirectory() as folder:
        for trace in (
            read_trace(written(folder, "TIMESTAMP,ContextTokens,GeneratedTokens", lines, end)),
            read_trace(native(folder, requests)),
        ):
            assert trace.arrival_s.tolist() == [(at_ns - first_ns) / 1e9 for at_ns, _, _ in ordered]
            assert trace.tokens.tolist() == [[prompt, output] for _, prompt, output in ordered]


@settings(deadline=None)
@given(rows)
def test_scaling_by_two_and_by_a_half_is_exact_and_cancels(requests: Rows) -> None:
    with TemporaryDirectory() as folder:
        path = native(folder, requests)
        plain = list(replay(path))
        doubled = list(replay(path, time_scale=2))
        halved = list(replay(path, time_scale=0.5))
    assert [(2 * time_s, *tokens) for time_s, *tokens in plain] == doubled
    assert [(2 * time_s, *tokens) for time_s, *tokens in halved] == plain


@settings(deadline=None)
@given(rows, st.integers(1, 40))
def test_a_limit_is_the_head_of_the_whole(requests: Rows, limit: int) -> None:
    with TemporaryDirectory() as folder:
        path = native(folder, requests)
        assert list(replay(path, num_prompts=limit)) == list(replay(path))[:limit]
