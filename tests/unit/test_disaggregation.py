"""Pools of replicas by hand: steps of a second, prompts of half a gigabyte, links of a gigabyte a second."""

from __future__ import annotations

import pytest

from simulator.record import Record
from simulator.serving.cluster import StalledError
from simulator.serving.disaggregation import KvNetwork, KvTransfer
from simulator.serving.replica import Limits
from tests import fabrics
from tests.pools import Groups, PoolsCase
from tests.strategies import LinearCost, Traffic

ONE_TO_ONE: tuple[Groups, Groups] = ((("gpu0",),), (("gpu1",),))
A, B = (0.0, 2, 3), (1.0, 2, 3)
"""Prompts of two tokens, which are two blocks."""


def _limits(blocks: int = 100, seqs: int = 8) -> Limits:
    return Limits(max_num_seqs=seqs, max_num_batched_tokens=64, block_size=1, num_blocks=blocks)


def case(
    traffic: Traffic,
    pools: tuple[Groups, Groups] = ONE_TO_ONE,
    transfer: KvTransfer = "at-end",
    prefill: Limits | None = None,
    decode: Limits | None = None,
) -> PoolsCase:
    return PoolsCase(
        topology=fabrics.pcie_tree(fabrics.link("joint", "pcie", 1e9, latency_s=0.0)),
        prefill=pools[0],
        decode=pools[1],
        linear=LinearCost(1.0, 0.0, 0.0, 0.0, 0.0),
        limits=prefill or _limits(),
        decode_limits=decode or _limits(),
        traffic=traffic,
        router="round-robin",
        transfer=transfer,
        layers=2,
        block_bytes=0.25e9,
    )


def _moves(record: Record) -> list[list[float]]:
    """Of each request: prompt processed, blocks reserved, KV cache there, decoding."""
    names = ("prefill_end_s", "reserved_s", "moved_s", "joined_s")
    return [list(map(float, times)) for times in zip(*map(record.transfer, names), strict=True)]


@pytest.mark.parametrize("detail", ["macro", "step", "auto", "layer"])
def test_kv_cache_moves_after_the_prompt_and_then_it_decodes(detail: str) -> None:
    record = case([A]).run(detail)
    assert _moves(record) == [pytest.approx([1.0, 1.0, 1.5, 1.5])]
    assert record.request("finish_s") == pytest.approx([3.5])


@pytest.mark.parametrize("detail", ["macro", "step", "auto", "layer"])
def test_blocks_and_a_seat_are_given_at_the_end_of_a_step(detail: str) -> None:
    """A decodes from 1.5 to 3.5 in steps of a second; B's prompt is ready at 2."""
    record = case([A, B]).run(detail)
    assert _moves(record)[1] == pytest.approx([2.0, 2.5, 3.0, 3.5])
    assert record.request("finish_s") == pytest.approx([3.5, 5.5])


def test_two_that_move_to_one_gpu_share_its_link() -> None:
    record = case([A, A], pools=((("gpu0",), ("gpu2",)), (("gpu1",),))).run()
    assert _moves(record) == [pytest.approx([1.0, 1.0, 2.0, 2.0])] * 2


def test_layer_by_layer_only_the_last_layer_is_left_at_the_end() -> None:
    """The first of two layers is sent from 0.5 to 1, as fast as half a prompt a second is processed."""
    record = case([A], transfer="layerwise").run()
    assert _moves(record) == [pytest.approx([1.0, 0.0, 1.25, 1.25])]


def test_a_prompt_waits_for_blocks_where_it_decodes_and_keeps_its_own() -> None:
    """A holds three blocks of five and then four, until 3.5; B needs three."""
    record = case([A, B], decode=_limits(blocks=5)).run()
    assert _moves(record)[1] == pytest.approx([2.0, 3.5, 4.0, 4.0])


def test_layer_by_layer_a_prompt_is_not_begun_before_it_has_blocks_to_decode_in() -> None:
    """A decodes from 1.25 to 3.25."""
    record = case([A, B], transfer="layerwise", decode=_limits(blocks=5)).run()
    assert record.request("admitted_s") == pytest.approx([0.0, 3.25])


def test_a_prompt_waits_for_the_blocks_that_another_keeps_until_it_is_moved() -> None:
    record = case([A, B], prefill=_limits(blocks=2)).run()
    assert record.request("admitted_s") == pytest.approx([0.0, 1.5])


def test_kv_cache_waits_for_a_seat() -> None:
    record = case([A, B], decode=_limits(seqs=1)).run()
    assert _moves(record)[1] == pytest.approx([2.0, 2.5, 3.0, 3.5])
    later = case([A, B], decode=_limits(seqs=1)).with_(traffic=[(0.0, 2, 6), B]).run()
    assert _moves(later)[1] == pytest.approx([2.0, 2.5, 3.0, 6.5])


def test_a_single_token_never_leaves_the_pool_that_made_it() -> None:
    record = case([(0.0, 2, 1)]).run()
    assert not len(record.transfers)
    assert record.request("finish_s") == [1.0]


def test_what_never_arrives_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(KvNetwork, "send", lambda *arguments: None)
    with pytest.raises(StalledError, match="request 0 waits for 1 messages of KV cache from replica 0"):
        case([A]).run()
