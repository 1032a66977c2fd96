"""Pipeline stages by hand: who is where when."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from simulator.network.collectives import AffineCost
from simulator.record import Record
from simulator.serving.cluster import serve
from simulator.serving.pipeline import Pipeline
from simulator.serving.replica import Limits
from simulator.serving.routers import ROUTERS
from simulator.streams import Streams
from tests.strategies import LinearCost, Traffic


@dataclass(frozen=True)
class StageCost(LinearCost):
    """A stage that hands on one byte per token."""

    def send_bytes(self, tokens: int) -> float:
        return float(tokens)


def _serve(
    traffic: Traffic, stages: int = 2, send_s: float = 0.0, seqs: int = 8, blocks: int = 100, **cost: float
) -> Record:
    plain = {
        "fixed_s": 1.0,
        "per_token_s": 0.0,
        "per_prompt_s": 0.0,
        "kv_s_per_token": 0.0,
        "per_pair_s": 0.0,
    }
    values = plain | cost
    one = StageCost(**values)
    whole = StageCost(**{name: stages * value for name, value in values.items()})
    send = AffineCost("ring", send_s, 0.0, measured=False)
    return serve(
        [Pipeline(whole, (one,) * stages, (send,) * (stages - 1))],
        Limits(max_num_seqs=seqs, max_num_batched_tokens=64, block_size=1, num_blocks=blocks),
        ROUTERS["round-robin"](),
        Streams(0),
        traffic,
        detail="step",
        max_model_len=10**9,
    )


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
