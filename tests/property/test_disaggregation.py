"""Laws of pools of replicas that hand prompts over."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from hypothesis import assume, given, settings

from simulator.clock import Clock
from simulator.record import REQUEST_COLUMNS, STEP_COLUMNS, TRANSFER_COLUMNS, Record, Status, column
from simulator.serving.cluster import Cluster
from simulator.serving.disaggregation import DecodePool
from simulator.serving.recorder import Recorder
from simulator.serving.routers import ROUTERS
from simulator.streams import Streams
from tests.pools import SHARDED, PoolsCase, pipeline, pools_cases
from tests.strategies import Case

FACTS = [name for name in REQUEST_COLUMNS if not name.endswith("_row")]
MOVES = [name for name in TRANSFER_COLUMNS if not name.endswith("_row")]


def _assert_same(one: Record, other: Record) -> None:
    for name in FACTS:
        np.testing.assert_allclose(one.request(name), other.request(name), rtol=1e-9, atol=0, err_msg=name)
    for name in MOVES:
        np.testing.assert_allclose(one.transfer(name), other.transfer(name), rtol=1e-9, atol=0, err_msg=name)


@settings(max_examples=200, deadline=None)
@given(pools_cases(stages=3))
def test_macro_equals_step(case: PoolsCase) -> None:
    fast, slow = case.run("macro"), case.run("step")
    _assert_same(fast, slow)
    for fast_steps, slow_steps in zip(fast.steps, slow.steps, strict=True):
        for name in ("steps", "kv_tokens", "chunk_tokens", "completions"):
            one, other = (column(steps, STEP_COLUMNS, name) for steps in (fast_steps, slow_steps))
            assert one.sum() == other.sum(), name


@settings(max_examples=100, deadline=None)
@given(pools_cases())
def test_every_level_of_detail_agrees_where_only_kv_cache_is_on_the_links(case: PoolsCase) -> None:
    step = case.run("step")
    _assert_same(case.run("layer"), step)
    _assert_same(case.run("auto"), step)


@settings(max_examples=100, deadline=None)
@given(pools_cases(SHARDED))
def test_auto_equals_layer_where_kv_cache_meets_collectives(case: PoolsCase) -> None:
    _assert_same(case.run("auto"), case.run("layer"))


@settings(max_examples=100, deadline=None)
@given(pools_cases(stages=2))
def test_every_request_ends_once_and_what_decodes_was_moved(case: PoolsCase) -> None:
    record = case.run()
    assert record.request("id").tolist() == list(range(len(case.traffic)))
    moved = set(record.transfer("id").astype(int).tolist())
    assert len(moved) == len(record.transfers)
    for index, (_, input_tokens, output_tokens) in enumerate(case.traffic):
        finished = record.request("status")[index] == Status.FINISHED
        assert finished == case.fits(input_tokens, output_tokens)
        assert (index in moved) == (finished and output_tokens > 1)


@settings(max_examples=100, deadline=None)
@given(pools_cases(stages=2))
def test_nothing_is_decoded_before_its_whole_prompt_is_there(case: PoolsCase) -> None:
    record = case.run()
    ids = record.transfer("id").astype(np.intp)
    prefilled_s, reserved_s, moved_s, joined_s = (
        record.transfer(name) for name in ("prefill_end_s", "reserved_s", "moved_s", "joined_s")
    )
    assert (record.request("first_token_s")[ids] == prefilled_s).all()
    assert (reserved_s <= moved_s).all()
    assert (prefilled_s <= moved_s).all()
    assert (moved_s <= joined_s).all()
    assert (joined_s <= record.request("finish_s")[ids]).all()
    if case.transfer == "layerwise":
        assert (reserved_s <= record.request("admitted_s")[ids]).all()
    else:
        assert (prefilled_s <= reserved_s).all()
    whole = -(-record.request("input_tokens")[ids] // case.limits.block_size)
    np.testing.assert_allclose(record.transfer("bytes"), case.block_bytes * whole, rtol=1e-12)


@settings(max_examples=100, deadline=None)
@given(pools_cases(stages=3))
def test_blocks_are_conserved_on_both_sides(case: PoolsCase) -> None:
    for detail in ("macro", "step"):
        ahead, after = (
            [pipeline(case.linear, stages)] * len(groups)
            for stages, groups in zip(case.stages, (case.prefill, case.decode), strict=True)
        )
        first = len(case.prefill) * case.stages[0]
        clock, logs = Clock(), first + len(case.decode) * case.stages[1]
        recorder = Recorder(tuple(range(logs)))
        router = ROUTERS[case.router]()
        cluster = Cluster(
            clock,
            ahead,
            case.limits,
            router,
            Streams(0),
            recorder,
            detail=detail,
            max_model_len=10**9,
            max_concurrency=case.max_concurrency,
            traffic=case.traffic,
            decode_pool=DecodePool(after, case.decode_limits, router, case.moves),
        )
        cluster.connect(None)
        clock.run()
        assert not cluster.unfinished()
        for replica in cluster.all_replicas:
            assert replica.kv_blocks_used == 0
            assert replica.outstanding == 0
            assert not replica.waiting
        for index, steps in enumerate(recorder.record((0,) * logs).steps):
            pool = case.limits if index < first else case.decode_limits
            assert (column(steps, STEP_COLUMNS, "kv_blocks") <= pool.num_blocks).all()
            if index < first:
                assert not column(steps, STEP_COLUMNS, "decodes").any()


@settings(max_examples=100, deadline=None)
@given(pools_cases())
def test_over_a_free_network_a_batch_decodes_as_if_no_prompt_had_been_in_its_way(case: PoolsCase) -> None:
    """All prompts fit into one step, and both pools are alike: what follows is the same decoding."""
    seqs = len(case.traffic)
    tokens = sum(input_tokens for _, input_tokens, _ in case.traffic)
    plenty = replace(
        case.limits,
        max_num_seqs=seqs,
        max_num_batched_tokens=max(tokens, seqs),
        num_blocks=sum(input_tokens + output_tokens for _, input_tokens, output_tokens in case.traffic)
        + seqs,
    )
    closed = [(0.0, inputs, max(outputs, 2)) for _, inputs, outputs in case.traffic]
    apart = case.with_(
        prefill=(("gpu0",),),
        decode=(("gpu1",),),
        limits=plenty,
        decode_limits=plenty,
        traffic=closed,
        free=True,
        max_concurrency=None,
    ).run()
    together = Case(case.linear, plenty, closed).run()
    for name in ("first_token_s", "finish_s"):
        np.testing.assert_array_equal(apart.request(name), together.request(name), err_msg=name)


@settings(max_examples=100, deadline=None)
@given(pools_cases())
def test_a_faster_network_never_makes_a_lone_request_slower(case: PoolsCase) -> None:
    alone = case.with_(traffic=case.traffic[:1])
    assume(case.fits(*case.traffic[0][1:]))
    free_s, moved_s = (alone.with_(free=free).run().request("finish_s")[0] for free in (True, False))
    assert free_s <= moved_s


@settings(max_examples=100, deadline=None)
@given(pools_cases())
def test_layer_by_layer_a_lone_request_is_moved_no_later(case: PoolsCase) -> None:
    alone = case.with_(traffic=case.traffic[:1])
    assume(case.fits(*case.traffic[0][1:]))
    layerwise, at_end = (alone.with_(transfer=transfer).run() for transfer in ("layerwise", "at-end"))
    np.testing.assert_array_less(
        layerwise.transfer("moved_s"), at_end.transfer("moved_s") * (1 + 1e-12) + 1e-12
    )
