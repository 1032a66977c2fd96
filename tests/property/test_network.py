"""Laws of flows that share resources."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace
from math import inf
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simulator.network.maxmin import max_min
from tests.flows import Flows, Job, crowd, ends_s, flows, prepared, run

SAME = {"rel": 1e-9, "abs": 1e-12}


def _rates(case: Flows) -> tuple[list[float], list[str | None]]:
    return max_min([job.demands for job in case.jobs], case.capacities, [job.limit for job in case.jobs])


def _assert_fair_at_every_moment(case: Flows) -> None:
    """Rates are those of all flows solved from scratch, and carry the work of each flow to the end of it."""
    carried: dict[str, float] = defaultdict(float)
    checked: object = None
    for moment in prepared(case.capacities, case.jobs).moments():
        if moment.rates != checked:
            checked = moment.rates
            running = case.with_jobs([case.jobs[int(name)] for name in moment.rates])
            assert list(moment.rates.values()) == pytest.approx(_rates(running)[0], **SAME)
        for name, rate in moment.rates.items():
            carried[name] += rate * moment.seconds
    for name, units in carried.items():
        assert units == pytest.approx(case.jobs[int(name)].work, **SAME)
    assert len(carried) == len(case.jobs)


def _load(case: Flows, rates: list[float], resource: str) -> float:
    return sum(
        rate * dict(job.demands).get(resource, 0.0) for job, rate in zip(case.jobs, rates, strict=True)
    )


def _scaled(job: Job, size: float, seconds: float) -> Job:
    return Job(job.start_s * seconds, job.work * size, job.demands, job.limit * size / seconds)


@given(flows())
def test_no_resource_gives_more_than_it_has(case: Flows) -> None:
    rates, _ = _rates(case)
    for resource, capacity in case.capacities.items():
        assert _load(case, rates, resource) <= capacity * (1 + 1e-9)


@given(flows())
def test_every_flow_is_at_its_limit_or_has_a_full_resource_on_which_nobody_has_more(case: Flows) -> None:
    rates, bottlenecks = _rates(case)
    for job, rate, bottleneck in zip(case.jobs, rates, bottlenecks, strict=True):
        if bottleneck is None:
            assert rate == job.limit
            continue
        assert bottleneck in dict(job.demands)
        assert _load(case, rates, bottleneck) == pytest.approx(case.capacities[bottleneck], rel=1e-9)
        users = [rates[index] for index, one in enumerate(case.jobs) if bottleneck in dict(one.demands)]
        assert max(users) <= rate * (1 + 1e-9)


@settings(max_examples=200, deadline=None)
@given(flows(resources=12, most=20))
def test_rates_are_those_of_all_flows_solved_anew_and_carry_their_work(case: Flows) -> None:
    _assert_fair_at_every_moment(case)


def test_rates_in_a_crowd_are_those_of_all_flows_solved_anew_and_carry_their_work() -> None:
    _assert_fair_at_every_moment(crowd(Random(0)))


@settings(max_examples=200, deadline=None)
@given(flows(), st.randoms(use_true_random=False))
def test_the_order_in_which_flows_are_listed_changes_nothing(case: Flows, random: st.Random) -> None:
    order = list(range(len(case.jobs)))
    random.shuffle(order)
    ends = ends_s(case.capacities, [case.jobs[index] for index in order])
    assert ends == pytest.approx([ends_s(case.capacities, case.jobs)[index] for index in order], **SAME)


@settings(max_examples=200, deadline=None)
@given(flows())
def test_resources_in_one_bundle_change_nothing(case: Flows) -> None:
    """Footprints are new when their flow starts, so bundles split while flows are on them."""
    for one, other in zip(
        run(case.capacities, case.jobs), run(case.capacities, case.jobs, apart=True), strict=True
    ):
        assert one.end_s == pytest.approx(other.end_s, **SAME)
        assert one.lost_s == pytest.approx(other.lost_s, **SAME)


@settings(max_examples=200, deadline=None)
@given(flows(), st.sampled_from([1e-9, 0.1, 3.0, 1e9]), st.sampled_from([1e-6, 0.1, 7.0, 1e4]))
def test_units_of_work_and_of_time_do_not_matter(case: Flows, size: float, seconds: float) -> None:
    capacities = {name: capacity * size / seconds for name, capacity in case.capacities.items()}
    scaled = ends_s(capacities, [_scaled(job, size, seconds) for job in case.jobs])
    assert scaled == pytest.approx(
        [end_s * seconds for end_s in ends_s(case.capacities, case.jobs)], rel=1e-9, abs=0
    )


@settings(max_examples=200, deadline=None)
@given(flows())
def test_a_flow_loses_what_it_takes_longer_than_alone(case: Flows) -> None:
    for job, outcome in zip(case.jobs, run(case.capacities, case.jobs), strict=True):
        solo_s = job.solo_s(case.capacities)
        assert outcome.end_s - job.start_s - solo_s == pytest.approx(outcome.lost_s, rel=1e-9, abs=1e-9)
        assert outcome.lost_s >= 0.0


@settings(max_examples=200, deadline=None)
@given(flows(resources=1), flows(resources=1, most=1))
def test_one_more_flow_speeds_up_no_other_on_a_single_link(case: Flows, more: Flows) -> None:
    before = ends_s(case.capacities, case.jobs)
    after = ends_s(case.capacities, [*case.jobs, *more.jobs])
    assert all(late >= early * (1 - 1e-9) for early, late in zip(before, after, strict=False))


@settings(max_examples=200, deadline=None)
@given(flows(resources=1))
def test_a_single_link_is_never_idle_while_there_is_work(case: Flows) -> None:
    """Without limits it is through as early as any schedule: a backlog of plain arithmetic."""
    jobs = sorted((replace(job, limit=inf) for job in case.jobs), key=lambda job: job.start_s)
    through_s = 0.0
    for job in jobs:
        through_s = max(through_s, job.start_s) + job.solo_s(case.capacities)
    assert max(ends_s(case.capacities, jobs)) == pytest.approx(through_s, rel=1e-9)
