"""Laws of the metrics on whatever the serving engine produces."""

from __future__ import annotations

from unittest.mock import patch

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from simulator.metrics import itl
from simulator.metrics.itl import Gaps, neighbours
from simulator.metrics.latency import finished, latencies
from simulator.metrics.ledger import ledger
from simulator.metrics.summary import Hardware, summarise
from simulator.metrics.timeline import output_tokens, timeline
from simulator.record import Floats, Record
from tests.strategies import Case, breakdown, cases


def ledger_of(case: Case, record: Record) -> Floats:
    return ledger(record, [breakdown(case.cost)] * case.replicas).by_request


@given(cases())
def test_the_causes_of_every_request_sum_to_its_latency_and_none_is_negative(case: Case) -> None:
    record = case.run()
    by_request = ledger_of(case, record)
    done = finished(record)
    np.testing.assert_allclose(by_request[done].sum(axis=1), latencies(record).e2e_s[done], rtol=0, atol=1e-9)
    assert (by_request[done] >= -1e-9).all()
    assert np.isnan(by_request[~done]).all()


@given(cases())
def test_macro_and_step_tell_the_same_ledger(case: Case) -> None:
    np.testing.assert_allclose(
        ledger_of(case, case.run("macro")), ledger_of(case, case.run("step")), rtol=0, atol=1e-9
    )


@given(cases())
def test_every_token_after_the_first_has_one_gap_and_gaps_fill_the_time_of_decoding(case: Case) -> None:
    record = case.run()
    causes = ledger(record, [breakdown(case.cost)] * case.replicas)
    gaps = itl.gaps(record, causes.row_s, causes.row_growth_s)
    done = finished(record)
    assert gaps.count == int((record.request("output_tokens")[done] - 1).sum())
    found = itl.distribution(gaps)
    decoding_s = (record.request("finish_s") - record.request("first_token_s"))[done].sum()
    total_s = 0.0 if found is None else found.mean * found.count
    np.testing.assert_allclose(total_s, decoding_s, rtol=1e-9, atol=1e-9)


@given(cases())
def test_a_timeline_holds_every_token_and_every_second_of_a_request(case: Case) -> None:
    record = case.run()
    done = finished(record)
    if not done.any():
        return
    causes = ledger(record, [breakdown(case.cost)] * case.replicas)
    found = timeline(record, causes.row_s, causes.row_growth_s, bins=7)
    widths_s = np.diff(found.edges_s)
    tokens = record.request("output_tokens")[done].sum()
    np.testing.assert_allclose(found.output_tokens_per_s @ widths_s, tokens, rtol=1e-9)
    np.testing.assert_allclose(
        (found.waiting + found.running) @ widths_s, latencies(record).e2e_s[done].sum(), rtol=1e-6
    )
    assert (found.kv_fraction <= 1.0 + 1e-9).all()


@given(cases())
def test_macro_and_step_tell_the_same_tokens_over_time(case: Case) -> None:
    found = []
    for detail in ("macro", "step"):
        record = case.run(detail)
        causes = ledger(record, [breakdown(case.cost)] * case.replicas)
        edges_s = np.linspace(0.0, record.end_s, 20)
        found.append(output_tokens(record, causes.row_s, causes.row_growth_s, edges_s))
    np.testing.assert_allclose(*found, rtol=1e-6, atol=1e-6)


@given(cases())
def test_a_summary_counts_every_request(case: Case) -> None:
    record = case.run()
    causes = ledger(record, [breakdown(case.cost)] * case.replicas)
    found = summarise(record, latencies(record), causes, Hardware(gpus=1))
    assert found.completed + sum(found.rejected.values()) == found.num_prompts == len(case.traffic)
    assert 0.0 <= found.busy_fraction <= 1.0 + 1e-9
    if case.max_concurrency is not None:
        assert found.max_concurrent_requests <= case.max_concurrency


progressions = st.lists(
    st.tuples(
        st.floats(1e-4, 30.0), st.sampled_from([0.0, 1e-7, 1e-3, 0.5]), st.integers(1, 50), st.integers(1, 5)
    ),
    min_size=1,
    max_size=12,
)


@given(progressions, st.sampled_from([1, 10, 8192]), st.data())
def test_order_statistics_are_those_of_the_gaps_written_out(
    rows: list[tuple[float, float, int, int]], expand: int, data: st.DataObject
) -> None:
    gaps = Gaps(*np.array(rows, dtype=np.float64).T)
    written = [np.repeat(first + slope * np.arange(steps), weight) for first, slope, steps, weight in rows]
    every = np.sort(np.concatenate(written))
    rank = data.draw(st.integers(0, len(every) - 1))
    with patch.object(itl, "_EXPAND", expand):
        found = neighbours(gaps, rank)
    np.testing.assert_allclose(found, (every[rank], every[min(rank + 1, len(every) - 1)]), rtol=1e-12)
