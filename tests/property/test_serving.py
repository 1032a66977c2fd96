"""Laws of the serving engine, on random scenarios."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from simulator.clock import Clock
from simulator.record import (
    PREEMPTION_COLUMNS,
    REQUEST_COLUMNS,
    STEP_COLUMNS,
    Floats,
    Record,
    Status,
    column,
)
from simulator.serving.cluster import REPLICA_OF_DETAIL, Cluster
from simulator.serving.recorder import Recorder
from simulator.serving.replica import Limits
from simulator.serving.routers import ROUTERS
from simulator.streams import Streams
from tests.strategies import Case, cases, closed_batches, costs

FACTS = [name for name in REQUEST_COLUMNS if not name.endswith("_row")]


def _step(steps: Floats, name: str) -> Floats:
    return column(steps, STEP_COLUMNS, name)


def _row_seconds(case: Case, steps: Floats) -> Floats:
    """Seconds of each row of the step log, from the cost alone."""
    base_s = [
        case.cost.base_s(int(decodes), int(tokens), int(chunks), int(completions))
        for decodes, tokens, chunks, completions in zip(
            *(_step(steps, name) for name in ("decodes", "chunk_tokens", "chunks", "completions")),
            strict=True,
        )
    ]
    kv_s = case.cost.kv_s_per_token * _step(steps, "kv_tokens")
    return _step(steps, "steps") * np.array(base_s) + kv_s + _step(steps, "attention_s")


def _finished(record: Record) -> Floats:
    return record.requests[record.request("status") == Status.FINISHED]


@settings(max_examples=400, deadline=None)
@given(cases())
def test_macro_equals_step(case: Case) -> None:
    fast, slow = case.run("macro"), case.run("step")
    for name in FACTS:
        np.testing.assert_allclose(fast.request(name), slow.request(name), rtol=1e-9, atol=0, err_msg=name)
    for name in ("id", "replica", "evicted_s", "readmitted_s", "resumed_s", "gap_s"):
        index = PREEMPTION_COLUMNS.index(name)
        np.testing.assert_allclose(
            fast.preemptions[:, index], slow.preemptions[:, index], rtol=1e-9, atol=1e-12, err_msg=name
        )
    for fast_steps, slow_steps in zip(fast.steps, slow.steps, strict=True):
        for name in ("steps", "kv_tokens", "chunk_tokens", "completions"):
            assert _step(fast_steps, name).sum() == _step(slow_steps, name).sum(), name
        assert _step(fast_steps, "kv_blocks").max(initial=0) == _step(slow_steps, "kv_blocks").max(initial=0)


@st.composite
def lockstep_cases(draw: st.DrawFn) -> Case:
    """Replicas whose steps keep ending together, in a closed loop: all requests alike, all at once."""
    seqs = draw(st.integers(1, 4))
    output_tokens = draw(st.integers(1, 30))
    return Case(
        cost=draw(costs()),
        limits=Limits(seqs, 64, 4, draw(st.integers(12, 60))),
        traffic=[(0.0, 1, output_tokens + index % 2) for index in range(draw(st.integers(1, 40)))],
        router=draw(st.sampled_from(sorted(ROUTERS))),
        replicas=draw(st.integers(2, 5)),
        max_concurrency=draw(st.integers(1, 9)),
    )


@settings(max_examples=300, deadline=None)
@given(lockstep_cases())
def test_macro_equals_step_where_replicas_move_in_lockstep(case: Case) -> None:
    fast, slow = case.run("macro"), case.run("step")
    for name in FACTS:
        np.testing.assert_allclose(fast.request(name), slow.request(name), rtol=1e-9, atol=0, err_msg=name)


@given(cases())
def test_every_request_ends_once_in_finished_or_rejected(case: Case) -> None:
    record = case.run()
    assert record.request("id").tolist() == list(range(len(case.traffic)))
    for row, (_, input_tokens, output_tokens) in zip(record.requests, case.traffic, strict=True):
        status = Status(int(row[REQUEST_COLUMNS.index("status")]))
        blocks = -(-(input_tokens + output_tokens - 1) // case.limits.block_size)
        if input_tokens + output_tokens > case.max_model_len:
            assert status is Status.REJECTED_CONTEXT
        elif blocks > case.limits.num_blocks:
            assert status is Status.REJECTED_KV_CAPACITY
        else:
            assert status is Status.FINISHED


@given(cases())
def test_tokens_are_conserved(case: Case) -> None:
    """Each completed prompt and each decode gives one token; without evictions a prompt is processed once."""
    record = case.run()
    finished = _finished(record)
    outputs = column(finished, REQUEST_COLUMNS, "output_tokens").sum()
    inputs = column(finished, REQUEST_COLUMNS, "input_tokens").sum()
    decoded = sum((_step(steps, "decodes") * _step(steps, "steps")).sum() for steps in record.steps)
    completed = sum(_step(steps, "completions").sum() for steps in record.steps)
    processed = sum(_step(steps, "chunk_tokens").sum() for steps in record.steps)
    assert decoded + completed == outputs
    assert processed >= inputs
    if not len(record.preemptions):
        assert processed == inputs
        assert completed == len(finished)


@given(cases())
def test_blocks_are_never_overdrawn_and_all_free_at_the_end(case: Case) -> None:
    for detail in REPLICA_OF_DETAIL:
        clock = Clock()
        recorder = Recorder(tuple(range(case.replicas)))
        cluster = Cluster(
            clock,
            [case.cost] * case.replicas,
            case.limits,
            ROUTERS[case.router](),
            Streams(0),
            recorder,
            detail=detail,
            max_model_len=case.max_model_len,
            max_concurrency=case.max_concurrency,
            traffic=case.traffic,
        )
        clock.run()
        for replica in cluster.replicas:
            assert replica.kv_blocks_used == 0
            assert replica.outstanding == 0
            assert not replica.waiting
        for steps in recorder.record((case.limits.num_blocks,) * case.replicas).steps:
            assert (_step(steps, "kv_blocks") <= case.limits.num_blocks).all()


@given(cases())
def test_no_effect_comes_before_its_cause(case: Case) -> None:
    record = case.run()
    finished = _finished(record)
    times = [
        column(finished, REQUEST_COLUMNS, name)
        for name in ("created_s", "arrival_s", "admitted_s", "first_token_s", "finish_s")
    ]
    for earlier, later in pairwise(times):
        assert (earlier <= later).all()
    single = column(finished, REQUEST_COLUMNS, "output_tokens") == 1
    assert (times[3][single] == times[4][single]).all()
    for steps in record.steps:
        ends = _step(steps, "start_s") + _row_seconds(case, steps)
        starts = _step(steps, "start_s")[1:]
        assert (starts >= ends[:-1] - 1e-9).all()


@given(cases())
def test_a_replica_with_work_never_idles(case: Case) -> None:
    """Between two steps that do not touch, nobody was unfinished."""
    record = case.run()
    finished = _finished(record)
    for replica, steps in enumerate(record.steps):
        mine = finished[column(finished, REQUEST_COLUMNS, "replica") == replica]
        arrivals, finishes = (column(mine, REQUEST_COLUMNS, name) for name in ("arrival_s", "finish_s"))
        ends = _step(steps, "start_s") + _row_seconds(case, steps)
        for end, start in zip(ends[:-1], _step(steps, "start_s")[1:], strict=True):
            if start > end + 1e-9:
                alive = (arrivals < start - 1e-9) & (finishes > end + 1e-9)
                assert not alive.any()


@given(cases())
def test_a_request_waits_only_for_room(case: Case) -> None:
    """At the start of a step the head of the queue lacks a seat, tokens of the budget, or blocks."""
    record = case.run("step")
    limits = case.limits
    evictions = set(column(record.preemptions, PREEMPTION_COLUMNS, "evicted_s").tolist())
    finished = _finished(record)
    for replica, steps in enumerate(record.steps):
        mine = finished[column(finished, REQUEST_COLUMNS, "replica") == replica]
        arrivals, admissions, inputs = (
            column(mine, REQUEST_COLUMNS, name) for name in ("arrival_s", "admitted_s", "input_tokens")
        )
        for row in steps:
            facts = dict(zip(STEP_COLUMNS, row.tolist(), strict=True))
            start = facts["start_s"]
            waits = (arrivals < start) & (admissions > start)
            if not waits.any() or start in evictions or _someone_waits_again(record, replica, start):
                continue
            first = np.flatnonzero(waits)[np.argmin(arrivals[waits])]
            free = limits.num_blocks - facts["kv_blocks"]
            assert (
                facts["decodes"] + facts["chunks"] == limits.max_num_seqs
                or facts["decodes"] + facts["chunk_tokens"] == limits.max_num_batched_tokens
                or limits.blocks(int(inputs[first])) > free
            )


def _someone_waits_again(record: Record, replica: int, now_s: float) -> bool:
    """An evicted request stands at the head of the queue and asks for more than a new one."""
    names = ("replica", "evicted_s", "readmitted_s")
    where, out_s, back_s = (column(record.preemptions, PREEMPTION_COLUMNS, name) for name in names)
    return bool(((where == replica) & (out_s <= now_s) & (back_s > now_s)).any())


@given(cases())
def test_the_same_scenario_gives_the_same_bytes(case: Case) -> None:
    first, second = case.run(), case.run()
    assert first.requests.tobytes() == second.requests.tobytes()
    assert [rows.tobytes() for rows in first.steps] == [rows.tobytes() for rows in second.steps]


@given(cases())
def test_halving_every_time_halves_every_time_exactly(case: Case) -> None:
    """Rates doubled, overheads and arrival gaps halved: powers of two commute with rounding."""
    half = Case(
        cost=case.cost.scaled(0.5),
        limits=case.limits,
        traffic=[(0.5 * now_s, *lengths) for now_s, *lengths in case.traffic],
        router=case.router,
        replicas=case.replicas,
        max_concurrency=case.max_concurrency,
        max_model_len=case.max_model_len,
    )
    whole, halved = case.run(), half.run()
    for name in ("arrival_s", "admitted_s", "first_token_s", "finish_s"):
        np.testing.assert_array_equal(0.5 * whole.request(name), halved.request(name), err_msg=name)


@given(closed_batches())
def test_a_faster_part_never_makes_a_closed_batch_slower(case: Case) -> None:
    end_s = case.run().end_s
    for part in vars(case.cost):
        faster = case.with_cost(**{part: getattr(case.cost, part) / 3})
        assert faster.run().end_s <= end_s * (1 + 1e-12)
