"""Laws of runs during which something slows down, fails or comes back."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from simulator.metrics.ledger import ledger
from simulator.record import (
    PREEMPTION_COLUMNS,
    REQUEST_COLUMNS,
    Record,
)
from simulator.serving.changes import Change
from tests.sharing import APART, TOGETHER, SharedCase, slowing_cases
from tests.strategies import Case, LinearCost, breakdown, cases, changing_cases, moments

FACTS = [name for name in REQUEST_COLUMNS if not name.endswith("_row")]


def _assert_same(one: Record, other: Record) -> None:
    for name in FACTS:
        np.testing.assert_allclose(one.request(name), other.request(name), rtol=1e-9, atol=0, err_msg=name)


@settings(max_examples=300, deadline=None)
@given(changing_cases())
def test_macro_equals_step_through_changes(case: Case) -> None:
    fast, slow = case.run("macro"), case.run("step")
    _assert_same(fast, slow)
    for name in ("id", "replica", "evicted_s", "readmitted_s", "resumed_s", "gap_s"):
        index = PREEMPTION_COLUMNS.index(name)
        np.testing.assert_allclose(
            fast.preemptions[:, index], slow.preemptions[:, index], rtol=1e-9, atol=1e-12, err_msg=name
        )


@settings(max_examples=100, deadline=None)
@given(slowing_cases(APART))
def test_layer_equals_step_on_links_that_slow_down(case: SharedCase) -> None:
    _assert_same(case.run("layer"), case.run("step"))


@settings(max_examples=150, deadline=None)
@given(slowing_cases(TOGETHER))
def test_auto_equals_layer_on_links_that_slow_down(case: SharedCase) -> None:
    _assert_same(case.run("auto"), case.run("layer"))


@given(cases(), st.lists(moments(), max_size=3), st.sampled_from(["macro", "step"]))
def test_changes_of_nothing_change_no_bit(case: Case, at_s: list[float], detail: str) -> None:
    changes = tuple(Change(time_s) for time_s in sorted(at_s))
    bare, same = case.run(detail), replace(case, changes=changes).run(detail)
    assert bare.requests.tobytes() == same.requests.tobytes()
    assert [rows.tobytes() for rows in bare.steps] == [rows.tobytes() for rows in same.steps]


@settings(max_examples=100, deadline=None)
@given(slowing_cases(APART[1:2]), st.sampled_from(["auto", "layer"]))
def test_a_link_that_slows_down_never_makes_a_closed_batch_faster(case: SharedCase, detail: str) -> None:
    closed = replace(case, traffic=[(0.0, *lengths) for _, *lengths in case.traffic])
    whole_s = replace(closed, slow_links=()).run(detail).end_s
    assert closed.run(detail).end_s >= whole_s * (1 - 1e-12)


@settings(max_examples=150, deadline=None)
@given(changing_cases(), st.sampled_from(["macro", "step"]))
def test_the_ledger_adds_up_whatever_changes(case: Case, detail: str) -> None:
    record = case.run(detail)
    costs = [[case.cost] for _ in range(case.replicas)]
    for change in case.changes:
        for replica, fit in change.fits.items():
            assert isinstance(fit.engine, LinearCost)
            costs[replica].append(fit.engine)
    ledger(record, [[breakdown(cost) for cost in several] for several in costs])
