"""Max-min rates against algebra by hand."""

from __future__ import annotations

from math import inf

import pytest

from simulator.network.maxmin import max_min


def test_equal_flows_share_a_link_equally() -> None:
    assert max_min([[("a", 1.0)]] * 4, {"a": 2.0}, [inf] * 4) == ([0.5] * 4, ["a"] * 4)


def test_a_flow_over_two_links_leaves_what_it_cannot_use() -> None:
    """The chain of Bertsekas and Gallager: b halves itself, so the long flow leaves a 3 - 1/2."""
    demands = [[("a", 1.0), ("b", 1.0)], [("a", 1.0)], [("b", 1.0)]]
    rates, bottlenecks = max_min(demands, {"a": 3.0, "b": 1.0}, [inf] * 3)
    assert rates == [0.5, 2.5, 0.5]
    assert bottlenecks == ["b", "a", "b"]


def test_a_rate_is_fair_per_unit_of_rate_not_per_byte() -> None:
    """One unit of the second flow takes 3 bytes: 1 x r + 3 x r = 2."""
    rates, _ = max_min([[("a", 1.0)], [("a", 3.0)]], {"a": 2.0}, [inf, inf])
    assert rates == [0.5, 0.5]


def test_a_limit_leaves_the_rest_to_others() -> None:
    rates, bottlenecks = max_min([[("a", 1.0)]] * 3, {"a": 3.0}, [0.5, inf, 1.25])
    assert rates == [0.5, 1.25, 1.25]
    assert bottlenecks[0] is None


def test_limits_below_every_share_leave_the_link_unfilled() -> None:
    assert max_min([[("a", 1.0)]] * 2, {"a": 3.0}, [0.5, 1.0]) == ([0.5, 1.0], [None, None])


def test_a_flow_that_takes_nothing_has_no_rate_but_its_limit() -> None:
    assert max_min([[], []], {}, [2.0, inf]) == ([2.0, inf], [None, None])


def test_no_flows_have_no_rates() -> None:
    assert max_min([], {}, []) == ([], [])


def test_three_bottlenecks_fill_one_after_another() -> None:
    """a: 1/2 each for two; b then has 2 - 1/2 for one other; c has 4 - 3/2 for the last."""
    demands = [[("a", 1.0)], [("a", 1.0), ("b", 1.0)], [("b", 1.0), ("c", 1.0)], [("c", 1.0)]]
    rates, bottlenecks = max_min(demands, {"a": 1.0, "b": 2.0, "c": 4.0}, [inf] * 4)
    assert rates == pytest.approx([0.5, 0.5, 1.5, 2.5])
    assert bottlenecks == ["a", "a", "b", "c"]
