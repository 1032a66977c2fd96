"""Laws of replicas that fail and come back."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from simulator.clock import Clock
from simulator.metrics import itl
from simulator.metrics.latency import finished
from simulator.metrics.ledger import ledger
from simulator.metrics.timeline import timeline
from simulator.record import (
    CAUSES,
    OUTAGE_COLUMNS,
    REQUEST_COLUMNS,
    REROUTE_COLUMNS,
    STEP_COLUMNS,
    Floats,
    Record,
    Status,
    column,
)
from simulator.serving.cluster import REPLICA_OF_DETAIL, Cluster
from simulator.serving.recorder import Recorder
from simulator.serving.routers import ROUTERS
from simulator.streams import Streams
from tests.pipelines import PipelineCase, pipeline_cases
from tests.sharing import APART, TOGETHER, SharedCase, failing_shared_cases
from tests.strategies import Case, breakdown, failing_cases, outages

FACTS = [name for name in REQUEST_COLUMNS if not name.endswith("_row")]


def _assert_same(one: Record, other: Record) -> None:
    for name in FACTS:
        np.testing.assert_allclose(one.request(name), other.request(name), rtol=1e-9, atol=0, err_msg=name)
    for name in REROUTE_COLUMNS:
        np.testing.assert_allclose(
            one.reroute(name), other.reroute(name), rtol=1e-9, atol=1e-12, err_msg=name
        )


def _step(steps: Floats, name: str) -> Floats:
    return column(steps, STEP_COLUMNS, name)


@settings(max_examples=400, deadline=None)
@given(failing_cases())
def test_macro_equals_step_through_failures(case: Case) -> None:
    _assert_same(case.run("macro"), case.run("step"))


@settings(max_examples=100, deadline=None)
@given(failing_shared_cases(APART))
def test_layer_equals_step_through_failures(case: SharedCase) -> None:
    _assert_same(case.run("layer"), case.run("step"))


@settings(max_examples=200, deadline=None)
@given(failing_shared_cases(TOGETHER))
def test_auto_equals_layer_through_failures(case: SharedCase) -> None:
    _assert_same(case.run("auto"), case.run("layer"))


@settings(max_examples=200, deadline=None)
@given(pipeline_cases(), st.data())
def test_lanes_as_sums_equal_lanes_request_by_request_through_failures(
    case: PipelineCase, data: st.DataObject
) -> None:
    failing = case.with_(changes=data.draw(outages(case.replicas)))
    _assert_same(failing.run("macro"), failing.run("step"))


@settings(max_examples=200, deadline=None)
@given(failing_cases())
def test_every_request_ends_once_and_fails_only_where_no_replica_comes_back(case: Case) -> None:
    record = case.run()
    assert record.request("id").tolist() == list(range(len(case.traffic)))
    failed = record.request("status") == Status.FAILED
    if failed.any():
        rows = record.outages[np.isnan(column(record.outages, OUTAGE_COLUMNS, "up_s"))]
        assert len(rows) == case.replicas
        given_up_s = record.request("finish_s")[failed]
        assert (given_up_s >= column(rows, OUTAGE_COLUMNS, "down_s").max()).all()
    counted = np.zeros(len(record.requests))
    np.add.at(counted, record.reroute("id").astype(int), 1)
    assert (counted == record.request("reroutes")).all()


@settings(max_examples=200, deadline=None)
@given(failing_cases())
def test_tokens_are_conserved_through_failures(case: Case) -> None:
    """Each token of a request that finished came out once; what a failure lost is processed again."""
    record = case.run()
    made = sum((_step(steps, "decodes") * _step(steps, "steps")).sum() for steps in record.steps)
    made += sum(_step(steps, "completions").sum() for steps in record.steps)
    done = record.requests[finished(record)]
    assert made >= column(done, REQUEST_COLUMNS, "output_tokens").sum()
    if len(done) == len(record.requests):
        assert made == column(done, REQUEST_COLUMNS, "output_tokens").sum()
        processed = sum(_step(steps, "chunk_tokens").sum() for steps in record.steps)
        assert processed >= column(done, REQUEST_COLUMNS, "input_tokens").sum()


@settings(max_examples=200, deadline=None)
@given(failing_cases(), st.sampled_from(["macro", "step"]))
def test_a_replica_that_is_down_takes_no_request_and_no_step(case: Case, detail: str) -> None:
    record = case.run(detail)
    for replica, down_s, up_s in record.outages.tolist():
        steps = record.steps[int(replica)]
        until_s = np.inf if np.isnan(up_s) else up_s
        starts_s = _step(steps, "start_s")
        assert not ((starts_s >= down_s) & (starts_s < until_s)).any()
        mine = record.request("replica") == replica
        ends_s = record.request("finish_s")[mine]
        assert not ((ends_s > down_s) & (ends_s < until_s)).any()


@settings(max_examples=200, deadline=None)
@given(failing_cases())
def test_a_replica_that_fails_leaves_no_block_and_no_request_behind(case: Case) -> None:
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
        cluster.schedule(case.changes, None)
        down: set[int] = set()
        for change in case.changes:
            down = down - change.up | change.down
            while clock.peek() <= change.at_s:
                clock.step()
            for index in down:
                _assert_empty(cluster, index)
        clock.run()
        for index in range(case.replicas):
            _assert_empty(cluster, index)
        assert not cluster.unfinished()


def _assert_empty(cluster: Cluster, index: int) -> None:
    replica = cluster.replicas[index]
    assert replica.kv_blocks_used == 0
    assert replica.outstanding == 0
    assert not replica.waiting
    assert all(runner.idle for runner in replica.runners)


@settings(max_examples=200, deadline=None)
@given(failing_cases(), st.sampled_from(["macro", "step"]))
def test_the_ledger_adds_up_and_books_what_came_before_a_failure_as_lost(case: Case, detail: str) -> None:
    record = case.run(detail)
    found = ledger(record, [breakdown(case.cost)] * case.replicas)
    done = finished(record)
    lost_s = found.by_request[done, CAUSES.index("lost")]
    assert ((lost_s > 0.0) <= (record.request("reroutes")[done] > 0)).all()
    last_s = record.request("arrival_s").copy()
    np.maximum.at(last_s, record.reroute("id").astype(int), record.reroute("lost_s"))
    np.testing.assert_allclose(lost_s, (last_s - record.request("arrival_s"))[done], rtol=0, atol=1e-9)


@settings(max_examples=200, deadline=None)
@given(failing_cases())
def test_gaps_between_tokens_span_the_lives_of_requests_through_failures(case: Case) -> None:
    """From first token to last, gaps touch; each token but the first has one."""
    record = case.run()
    found = ledger(record, [breakdown(case.cost)] * case.replicas)
    done = finished(record)
    if not done.all():
        return
    gaps = itl.gaps(record, found.row_s, found.row_growth_s)
    assert gaps.count == (record.request("output_tokens") - 1.0).sum()
    sums_s = (
        gaps.weight * (gaps.steps * gaps.first_s + gaps.slope_s * gaps.steps * (gaps.steps - 1) / 2)
    ).sum()
    lives_s = (record.request("finish_s") - record.request("first_token_s")).sum()
    np.testing.assert_allclose(sums_s, lives_s, rtol=1e-9, atol=1e-9)


@settings(max_examples=200, deadline=None)
@given(failing_cases())
def test_a_request_waits_or_runs_from_its_arrival_to_its_end(case: Case) -> None:
    record = case.run()
    found = ledger(record, [breakdown(case.cost)] * case.replicas)
    over_time = timeline(record, found.row_s, found.row_growth_s)
    done = finished(record)
    e2e_s = (record.request("finish_s") - record.request("arrival_s"))[done].sum()
    seconds = ((over_time.waiting + over_time.running) * np.diff(over_time.edges_s)).sum()
    np.testing.assert_allclose(seconds, e2e_s, rtol=1e-6, atol=1e-6)


@given(failing_cases())
def test_the_same_failures_give_the_same_bytes(case: Case) -> None:
    one, other = case.run(), case.run()
    assert one.requests.tobytes() == other.requests.tobytes()
    assert one.reroutes.tobytes() == other.reroutes.tobytes()


@given(failing_cases())
def test_a_failure_after_the_end_changes_no_bit(case: Case) -> None:
    bare = replace(case, changes=())
    late = tuple(replace(change, at_s=1e6 + change.at_s) for change in case.changes)
    one, other = bare.run(), replace(case, changes=late).run()
    assert one.requests.tobytes() == other.requests.tobytes()
    assert [rows.tobytes() for rows in one.steps] == [rows.tobytes() for rows in other.steps]
