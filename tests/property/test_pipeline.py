"""Laws of pipelined replicas."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings

from simulator.record import REQUEST_COLUMNS, STEP_COLUMNS, Status, column
from tests.pipelines import PipelineCase, pipeline_cases
from tests.strategies import LinearCost

FACTS = ("id", "status", "arrival_s", "admitted_s", "first_token_s", "finish_s", "preemptions", "replica")


@settings(max_examples=200, deadline=None)
@given(pipeline_cases())
def test_lanes_as_sums_equal_lanes_request_by_request(case: PipelineCase) -> None:
    fast, slow = case.run("macro"), case.run("step")
    for name in FACTS:
        np.testing.assert_allclose(fast.request(name), slow.request(name), rtol=1e-9, atol=0, err_msg=name)


@settings(max_examples=100, deadline=None)
@given(pipeline_cases())
def test_tokens_are_conserved_over_the_lanes(case: PipelineCase) -> None:
    record = case.run()
    done = record.requests[record.request("status") == Status.FINISHED]
    outputs = column(done, REQUEST_COLUMNS, "output_tokens").sum()
    made = 0.0
    for steps in record.steps:
        decodes, count, completions = (
            column(steps, STEP_COLUMNS, name) for name in ("decodes", "steps", "completions")
        )
        made += (decodes * count).sum() + completions.sum()
    assert made == outputs


@settings(max_examples=100, deadline=None)
@given(pipeline_cases())
def test_the_pool_of_the_lanes_is_never_overdrawn(case: PipelineCase) -> None:
    for steps in case.run("macro").steps:
        assert (column(steps, STEP_COLUMNS, "kv_blocks") <= case.limits.num_blocks).all()


@settings(max_examples=100, deadline=None)
@given(pipeline_cases())
def test_one_request_alone_takes_its_stages_and_sends(case: PipelineCase) -> None:
    """No bubble and nobody else: each step is the sum of the stages and of the sends between them."""
    now_s, input_tokens, output_tokens = case.traffic[0]
    alone = case.with_(traffic=[(now_s, input_tokens, output_tokens)], replicas=1).run()
    if alone.request("status")[0] != Status.FINISHED:
        return
    (steps,) = (rows for rows in alone.steps if len(rows))
    tokens, chunks, completions, kv_tokens, attention_s, decodes = (
        column(steps, STEP_COLUMNS, name)
        for name in ("chunk_tokens", "chunks", "completions", "kv_tokens", "attention_s", "decodes")
    )
    linear: LinearCost = case.linear
    seconds = (
        case.stages
        * (
            linear.fixed_s
            + linear.per_token_s * (tokens + decodes)
            + linear.per_prompt_s * (chunks + completions)
            + linear.kv_s_per_token * kv_tokens
        )
        + attention_s
    )
    sends = (case.stages - 1) * (case.send_s + case.send_s_per_token * (tokens + decodes))
    took_s = alone.request("finish_s")[0] - alone.request("admitted_s")[0]
    np.testing.assert_allclose(took_s, (seconds + sends).sum(), rtol=1e-9)
