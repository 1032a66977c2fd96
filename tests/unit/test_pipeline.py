"""Pipeline stages by hand: who is where when."""

from __future__ import annotations

import pytest

from simulator.record import Record
from simulator.serving.replica import Limits
from tests.pipelines import PipelineCase
from tests.strategies import LinearCost, Traffic


def _serve(
    traffic: Traffic, stages: int = 2, send_s: float = 0.0, blocks: int = 100, per_token_s: float = 0.0
) -> Record:
    case = PipelineCase(
        linear=LinearCost(1.0, per_token_s, 0.0, 0.0, 0.0),
        stages=stages,
        send_s=send_s,
        send_s_per_token=0.0,
        limits=Limits(max_num_seqs=8, max_num_batched_tokens=64, block_size=1, num_blocks=blocks),
        traffic=traffic,
    )
    return case.run()


def test_two_micro_batches_keep_two_stages_busy() -> None:
    """A is in stage 0 until 1 s and in stage 1 until 2 s; B follows a second behind, and so on."""
    record = _serve([(0.0, 1, 3), (0.0, 1, 3)])
    assert record.request("first_token_s").tolist() == [2.0, 3.0]
    assert record.request("finish_s").tolist() == [6.0, 7.0]


def test_a_send_takes_time_in_which_the_stage_goes_on() -> None:
    """A: stage 0 until 1 s, sent until 1.5 s, stage 1 until 2.5 s; both fit into 2.5 s."""
    record = _serve([(0.0, 1, 3), (0.0, 1, 3)], send_s=0.5)
    assert record.request("finish_s").tolist() == [7.5, 8.5]


def test_one_request_cannot_use_more_than_one_stage_at_a_time() -> None:
    """Four stages of 1 s: a token every 4 s."""
    record = _serve([(0.0, 1, 3)], stages=4)
    assert record.request("finish_s").tolist() == [12.0]


def test_a_slow_stage_sets_the_pace() -> None:
    """A stage takes 1 s and 1 s per token: with two lanes of one request, 2 s per stage and step."""
    record = _serve([(0.0, 1, 10), (0.0, 1, 10)], per_token_s=1.0)
    # A's tokens come every 4 s, from 4 s on; B is 2 s behind.
    assert record.request("finish_s").tolist() == [40.0, 42.0]


def test_lanes_draw_on_one_pool_of_blocks() -> None:
    """Six blocks: a request of 3 + 3 tokens needs 5 in the end; one of them waits or loses its own."""
    record = _serve([(0.0, 3, 3), (0.0, 3, 3)], blocks=6)
    assert len(record.preemptions) > 0
    assert (record.request("status") == 0).all()


@pytest.mark.parametrize("requests", [2, 4, 8])
def test_requests_spread_over_the_lanes(requests: int) -> None:
    """With a lane each or shared evenly, all lanes finish within a step of one another."""
    record = _serve([(0.0, 1, 5)] * requests)
    assert sorted(set(record.request("finish_s").tolist())) == [10.0, 11.0]
