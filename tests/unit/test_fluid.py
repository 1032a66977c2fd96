"""Flows that share resources: hand-derived seconds."""

from __future__ import annotations

from functools import partial

import pytest

from simulator.clock import Clock
from simulator.network.fluid import Flow, FluidNetwork
from tests.flows import Bench, Job, Outcome, ends_s, run

LINK = (("link", 1.0),)


def test_a_flow_alone_takes_its_work_over_its_tightest_resource() -> None:
    """3 units of 2 bytes at 4 bytes/s; the other resource would let 3 units through in 0.3 s."""
    [alone] = run({"link": 4.0, "wide": 10.0}, [Job(1.0, 3.0, (("link", 2.0), ("wide", 1.0)))])
    assert alone == Outcome(2.5, 0.0)


def test_a_limit_is_the_pace_of_a_flow_alone() -> None:
    assert run({"link": 4.0}, [Job(0.0, 3.0, LINK, limit=0.5)]) == [Outcome(6.0, 0.0)]


def test_two_flows_share_a_link_while_both_run() -> None:
    """Until 4 s each has 1/2 byte/s: the first is through with its 2 bytes. The second's other 2 take 2 s."""
    short, long = run({"link": 1.0}, [Job(0.0, 2.0, LINK), Job(0.0, 4.0, LINK)])
    assert short == Outcome(4.0, 2.0)
    assert long == Outcome(6.0, 2.0)


def test_a_late_flow_slows_down_only_what_is_left() -> None:
    """At 3 s the first has 1 byte left, which takes 2 s at half the rate; the second then has 2 left."""
    first, late = run({"link": 1.0}, [Job(0.0, 4.0, LINK), Job(3.0, 3.0, LINK)])
    assert first == Outcome(5.0, 1.0)
    assert late == Outcome(7.0, 1.0)


def test_who_is_held_back_elsewhere_leaves_the_rest_of_a_link_to_others() -> None:
    """b halves itself; on a (3 bytes/s) the third has 3 - 1/2: 5 bytes in 2 s."""
    over_both = Job(0.0, 100.0, (("a", 1.0), ("b", 1.0)))
    jobs = [over_both, Job(0.0, 100.0, (("b", 1.0),)), Job(0.0, 5.0, (("a", 1.0),))]
    ended = run({"a": 3.0, "b": 1.0}, jobs)[2]
    assert ended.end_s == pytest.approx(2.0)
    assert ended.lost_s == pytest.approx(2.0 - 5 / 3)  # alone it has all 3 bytes/s


def test_flows_of_different_weight_have_one_rate() -> None:
    """One unit of the second takes 3 bytes: 1 x r + 3 x r = 2, so 1 unit each takes 2 s."""
    jobs = [Job(0.0, 1.0, LINK), Job(0.0, 1.0, (("link", 3.0),))]
    assert ends_s({"link": 2.0}, jobs) == [2.0, 2.0]


def test_a_cancelled_flow_gives_its_share_back_and_never_ends() -> None:
    """Until 1 s half each; then the second has 3.5 bytes left, alone."""
    bench = Bench({"link": 1.0})
    first = bench.start("first", 4.0, {"link": 1.0})
    bench.start("second", 4.0, {"link": 1.0})
    bench.at(1.0, partial(bench.network.cancel, first))
    assert bench.run() == {"second": Outcome(4.5, 0.5)}


def test_a_flow_may_be_cancelled_in_the_instant_of_its_start() -> None:
    bench = Bench({"link": 1.0})
    bench.network.cancel(bench.start("first", 4.0, {"link": 1.0}))
    bench.start("second", 4.0, {"link": 1.0})
    assert bench.run() == {"second": Outcome(4.0, 0.0)}


def test_a_flow_under_way_ends_as_it_began_when_its_link_becomes_slower() -> None:
    """4 bytes at 2 bytes/s end at 2 s; the next 4, at a quarter of that, take 8 s."""
    bench = Bench({"link": 2.0, "other": 2.0})
    bench.start("before", 4.0, {"link": 1.0, "other": 1.0})
    bench.at(1.0, partial(bench.network.set_capacity, "link", 0.5))
    bench.at(3.0, partial(bench.start, "after", 4.0, {"link": 1.0, "other": 1.0}))
    assert bench.run() == {"before": Outcome(2.0, 0.0), "after": Outcome(11.0, 0.0)}


def test_a_degraded_link_holds_flows_that_start_later_too() -> None:
    """Two flows over both links, one of which falls from 2 to 1 byte/s: 1/2 each."""
    bench = Bench({"link": 2.0, "other": 2.0})
    bench.at(0.0, partial(bench.network.set_capacity, "link", 1.0))
    for name in ("one", "other"):
        bench.at(1.0, partial(bench.start, name, 3.0, {"link": 1.0, "other": 1.0}))
    assert [outcome.end_s for outcome in bench.run().values()] == [7.0, 7.0]


def test_what_a_flow_loses_is_booked_on_who_held_it_back() -> None:
    bench = Bench({"a": 1.0, "b": 10.0})
    for name in ("one", "other"):
        bench.start(name, 1.0, {"a": 1.0, "b": 1.0})
    bench.run()
    # Each takes 2 s instead of 1 because of the other, on a; b would have let both through.
    assert dict(bench.network.lost_s) == {("a", "test"): pytest.approx(2.0)}


def test_a_flow_that_starts_when_another_ends_meets_nobody() -> None:
    """A chain of flows, each started by the end of the one before."""
    clock = Clock()
    network = FluidNetwork(clock, {"link": 1.0})
    footprint = network.footprint({"link": 1.0})
    left = [3.0, 2.0, 1.0]
    lost_s = []

    def following(flow: Flow | None) -> None:
        if flow is not None:
            lost_s.append(flow.lost_s)
        if left:
            network.start(((footprint, 1.0),), left.pop(), following, traffic="test")

    following(None)
    clock.run()
    assert clock.now == 6.0
    assert lost_s == [0.0, 0.0, 0.0]


def test_flows_that_start_in_one_instant_are_solved_once() -> None:
    bench = Bench({"link": 1.0})
    for index in range(10):
        bench.at(1.0, partial(bench.start, str(index), 1.0, {"link": 1.0}))
    bench.clock.run(until=2.0)
    assert bench.network.changes == 1


def test_flows_that_end_and_flows_that_start_in_one_instant_are_solved_once() -> None:
    """Of four at 1/4 byte/s, three end at 1 s, when three others start."""
    bench = Bench({"link": 1.0})
    for index in range(3):
        bench.start(f"early {index}", 0.25, {"link": 1.0})
        bench.at(1.0, partial(bench.start, f"late {index}", 1.0, {"link": 1.0}))
    bench.start("long", 9.0, {"link": 1.0})
    bench.clock.run(until=0.5)
    assert bench.network.changes == 1
    bench.clock.run(until=2.0)
    assert [outcome.end_s for outcome in bench.ended.values()] == [1.0, 1.0, 1.0]
    assert bench.network.changes == 2


def test_who_has_no_rate_yet_is_named() -> None:
    bench = Bench({"link": 1.0})
    for name in ("one", "other"):
        bench.start(name, 1.0, {"link": 1.0})
    assert bench.network.waiting() == ["a flow of test waits for link"]
    bench.run()
    assert bench.network.waiting() == []


def test_a_party_is_told_of_others_and_only_while_it_was_alone() -> None:
    clock = Clock()
    network = FluidNetwork(clock, {"a": 1.0, "b": 1.0, "c": 1.0})
    told: list[str] = []
    here, both, there = (network.footprint(dict.fromkeys(names, 1.0)) for names in ("a", "ab", "c"))
    one = network.party((here,), partial(told.append, "one"))
    two = network.party((both,), partial(told.append, "two"))
    three = network.party((there,), partial(told.append, "three"))
    for party in (one, three, two):
        party.enter()
    assert told == ["one"]  # the second knew when it entered
    assert not one.alone
    assert not two.alone
    assert three.alone
    assert not three.has_rivals
    two.leave()
    assert one.alone
    network.start(((both, 1.0),), 1.0, lambda flow: None, traffic="test")
    assert told == ["one", "one"]
    clock.run()
    assert one.alone


def test_a_party_that_moves_meets_those_who_are_there() -> None:
    clock = Clock()
    network = FluidNetwork(clock, {"a": 1.0, "b": 1.0})
    told: list[str] = []
    here, there = network.footprint({"a": 1.0}), network.footprint({"b": 1.0})
    mover = network.party((here,), partial(told.append, "mover"))
    host = network.party((there,), partial(told.append, "host"))
    left = network.party((here,), partial(told.append, "left"))
    network.start(((there, 1.0),), 1.0, lambda flow: None, traffic="test")
    for party in (mover, host, left):
        party.enter()
    assert told == ["mover"]
    network.move(mover, (there,))
    assert left.alone
    assert (mover.busy_rivals, host.busy_rivals) == (2, 2)  # each other, and the flow
    clock.run()
    assert (mover.busy_rivals, host.busy_rivals) == (1, 1)
    host.leave()
    assert mover.alone
    network.start(((here, 1.0),), 1.0, lambda flow: None, traffic="test")
    assert told == ["mover", "left"]
