"""The fluid network against the same flows in small steps of time, and in exact fractions."""

from __future__ import annotations

import pytest
from hypothesis import given, settings

from tests.flows import Flows, ends_s, flows
from tests.reference.small_steps import TICK_S, ends_in_fractions, ends_in_small_steps


@settings(max_examples=60, deadline=None)
@given(flows())
def test_flows_end_when_they_do_in_small_steps(case: Flows) -> None:
    """A tick gives what a job leaves to nobody: each end shifts what follows by a few ticks."""
    expected = ends_in_small_steps(case)
    assert ends_s(case.capacities, case.jobs) == pytest.approx(expected, rel=0, abs=100 * TICK_S)


@settings(max_examples=200, deadline=None)
@given(flows())
def test_flows_end_when_they_do_in_fractions(case: Flows) -> None:
    expected = [float(end_s) for end_s in ends_in_fractions(case)]
    assert ends_s(case.capacities, case.jobs) == pytest.approx(expected, rel=1e-9)
