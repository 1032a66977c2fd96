"""Bounds of records written by hand."""

from __future__ import annotations

import pytest

from simulator.errors import PhysicsError
from simulator.metrics.bounds import Bound, Ceiling, bounds, check
from simulator.metrics.latency import latencies
from simulator.record import Record
from tests.unit.test_metrics import preempted_record, small_record


def bounds_of(
    record: Record,
    prefill_s_per_token: float = 0.01,
    decode_s: float = 0.1,
    ceilings: tuple[Ceiling, ...] = (),
    kv_tokens: float = 100.0,
) -> dict[str, Bound]:
    found = bounds(
        record,
        latencies(record),
        floor_prefill_s=lambda tokens: prefill_s_per_token * tokens,
        floor_decode_s=lambda context: decode_s,
        ceilings=ceilings,
        kv_tokens=kv_tokens,
    )
    return {bound.name: bound for bound in found}


def test_the_request_nearest_to_its_floor_is_shown() -> None:
    # 0.5 s for 8 tokens is nearer to 0.01 s a token than 0.8 s for 4.
    found = bounds_of(small_record())
    assert found["TTFT of a request"].limit == pytest.approx(0.08)
    assert found["TTFT of a request"].value == 0.5
    assert found["TTFT of a request"].margin == pytest.approx(6.25)
    assert found["TPOT of a request"].value == 0.5
    check(list(found.values()))


def test_a_first_token_before_the_roofline_of_its_prompt_stops_the_run() -> None:
    found = bounds_of(small_record(), prefill_s_per_token=0.07)  # 0.56 s for 8 tokens
    with pytest.raises(PhysicsError, match="TTFT of a request is"):
        check(list(found.values()))


def test_tokens_faster_than_the_weights_can_be_read_stop_the_run() -> None:
    found = bounds_of(small_record(), decode_s=0.51)
    with pytest.raises(PhysicsError, match="TPOT of a request"):
        check(list(found.values()))


def test_a_ceiling_is_the_throughput_at_full_use_of_the_resource() -> None:
    # 5 tokens in 2 s need 100 FLOP; at 200 FLOP/s four times as many could be made.
    found = bounds_of(small_record(), ceilings=(Ceiling("compute", 100.0, 200.0),))
    assert found["output throughput: compute"].limit == 10.0
    assert found["output throughput: compute"].value == 2.5
    assert found["output throughput: compute"].holds


def test_more_work_than_the_resource_can_do_in_the_time_is_an_error() -> None:
    with pytest.raises(PhysicsError, match="HBM"):
        check(list(bounds_of(small_record(), ceilings=(Ceiling("HBM", 401.0, 200.0),)).values()))


def test_littles_law_bounds_the_throughput_by_the_kv_cache() -> None:
    # Request 0 holds its 8 prompt tokens from 0.5 to 2.0: 12 token-seconds in 2 s, 6 tokens on average.
    found = bounds_of(small_record(), kv_tokens=60.0)
    assert found["output throughput: KV capacity"].limit == pytest.approx(25.0)


def test_an_evicted_request_holds_no_cache() -> None:
    # 8 x 2.5 s, and 8 x (3.5 - 2.5) s: in all 28 token-seconds in 4 s, 7 tokens; 10 tokens in 4 s.
    found = bounds_of(preempted_record(), kv_tokens=7.0)
    assert found["output throughput: KV capacity"].limit == pytest.approx(2.5)
    assert found["output throughput: KV capacity"].holds
