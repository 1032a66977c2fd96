"""KV from a prefill group to a decode group, and sends from stage to stage."""

from __future__ import annotations

from collections import defaultdict

import pytest
from hypothesis import given
from hypothesis import strategies as st

from simulator.network.sends import kv_transfers, send_cost, stage_transfers
from tests.fabrics import link, rails, switch

NVLINK = link("nvlink", "nvlink", 100e9)
PCIE = link("pcie", "pcie", 50e9)
NETWORK = link("network", "network", 25e9, efficiency=0.5)

SIZES = [1, 2, 4, 8, 16]


def _ranks(prefix: str, size: int) -> list[str]:
    return [f"{prefix}{index}" for index in range(size)]


@given(st.sampled_from(SIZES), st.sampled_from(SIZES), st.sampled_from([1, 2, 4, 8]))
def test_each_target_receives_what_it_must_hold_and_the_sources_send_alike(
    p: int, d: int, heads: int
) -> None:
    """A target holds 1/d of the heads, or one whole head where there are more targets than heads. All copies
    together are d times that, and each source sends an equal part of them."""
    transfers = kv_transfers(_ranks("p", p), _ranks("d", d), heads)
    received: dict[str, float] = defaultdict(float)
    sent: dict[str, float] = defaultdict(float)
    for source, target, share in transfers:
        assert share > 0
        received[target] += share
        sent[source] += share
    held = max(1 / d, 1 / heads)
    assert received == pytest.approx(dict.fromkeys(_ranks("d", d), held))
    assert sent == pytest.approx(dict.fromkeys(_ranks("p", p), held * d / p))


@given(st.sampled_from(SIZES), st.sampled_from(SIZES), st.sampled_from([1, 2, 4, 8]))
def test_a_source_sends_only_heads_that_it_holds_and_the_target_needs(p: int, d: int, heads: int) -> None:
    """Rank i of n holds the heads of the span [i/n, (i+1)/n), whole heads."""

    def span(index: int, size: int) -> set[int]:
        return set(range(index * heads // size, max((index + 1) * heads // size, index * heads // size + 1)))

    for source, target, share in kv_transfers(_ranks("p", p), _ranks("d", d), heads):
        shared = span(int(source[1:]), p) & span(int(target[1:]), d)
        assert share <= len(shared) / heads + 1e-12


@pytest.mark.parametrize(
    ("p", "d", "heads", "expected"),
    [
        (2, 2, 8, [("p0", "d0", 1 / 2), ("p1", "d1", 1 / 2)]),
        (1, 2, 8, [("p0", "d0", 1 / 2), ("p0", "d1", 1 / 2)]),
        (4, 2, 8, [("p0", "d0", 1 / 4), ("p1", "d0", 1 / 4), ("p2", "d1", 1 / 4), ("p3", "d1", 1 / 4)]),
        # one head, on all ranks (MLA): peer to peer; fewer takers: each from as many holders
        (2, 2, 1, [("p0", "d0", 1.0), ("p1", "d1", 1.0)]),
        (4, 2, 1, [("p0", "d0", 1 / 2), ("p1", "d0", 1 / 2), ("p2", "d1", 1 / 2), ("p3", "d1", 1 / 2)]),
        # two heads on four ranks, from two ranks: each sends its head twice
        (2, 4, 2, [("p0", "d0", 1 / 2), ("p0", "d1", 1 / 2), ("p1", "d2", 1 / 2), ("p1", "d3", 1 / 2)]),
    ],
)
def test_kv_goes_from_rank_to_rank(
    p: int, d: int, heads: int, expected: list[tuple[str, str, float]]
) -> None:
    assert list(kv_transfers(_ranks("p", p), _ranks("d", d), heads)) == expected


def test_heads_that_ranks_cannot_share_are_refused() -> None:
    with pytest.raises(ValueError, match="divide"):
        kv_transfers(_ranks("p", 3), _ranks("d", 2), 8)


def test_kv_between_nodes_goes_by_all_nics_at_once() -> None:
    """From four GPUs to their peers, a quarter on each NIC of 25 GB/s at 0.5; 4 us over NIC, leaf, NIC."""
    fabric = rails(2, 4, NVLINK, PCIE, NETWORK)
    cost = send_cost(fabric, kv_transfers(fabric.gpus[:4], fabric.gpus[4:], 8))
    assert cost.s_per_byte == pytest.approx(1 / 4 / (0.5 * 25e9))
    assert cost.latency_s == pytest.approx(4e-6)
    (phase,) = cost.phases
    assert phase.s_per_byte == cost.s_per_byte
    assert phase.loads["node0.nic3", "leaf3"] == pytest.approx(1 / 4)


def test_a_stage_sends_from_each_rank_to_its_peer() -> None:
    """Each rank its whole message over its own link."""
    fabric = switch(4, NVLINK)
    cost = send_cost(fabric, stage_transfers(fabric.gpus[:2], fabric.gpus[2:]))
    assert cost.s_per_byte == pytest.approx(1 / 100e9)
    assert cost.latency_s == pytest.approx(2e-6)


def test_what_a_rank_keeps_costs_nothing() -> None:
    fabric = switch(2, NVLINK)
    cost = send_cost(fabric, kv_transfers(fabric.gpus, fabric.gpus, 8))
    assert (cost.latency_s, cost.s_per_byte) == (0.0, 0.0)
