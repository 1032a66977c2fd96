"""Laws of replicas that share devices and links."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings

from simulator.record import Record
from tests.sharing import APART, TOGETHER, SharedCase, shared_cases

FACTS = ("id", "status", "arrival_s", "admitted_s", "first_token_s", "finish_s", "preemptions", "replica")


def _assert_same(one: Record, other: Record) -> None:
    for name in FACTS:
        np.testing.assert_allclose(one.request(name), other.request(name), rtol=1e-9, atol=0, err_msg=name)


@settings(max_examples=150, deadline=None)
@given(shared_cases(APART))
def test_layer_equals_step_where_nothing_is_shared(case: SharedCase) -> None:
    _assert_same(case.run("layer"), case.run("step"))


@settings(max_examples=200, deadline=None)
@given(shared_cases(TOGETHER))
def test_auto_equals_layer_whatever_is_shared(case: SharedCase) -> None:
    _assert_same(case.run("auto"), case.run("layer"))


@settings(max_examples=100, deadline=None)
@given(shared_cases(TOGETHER))
def test_sharing_never_ends_a_closed_batch_earlier(case: SharedCase) -> None:
    closed = [(0.0, *lengths) for _, *lengths in case.traffic]
    together = SharedCase(**{**vars(case), "traffic": closed, "router": "round-robin"})
    assert together.run("auto").end_s >= together.run("step").end_s * (1 - 1e-9)
