"""The sums of the decode batch against a count request by request."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from simulator.serving.decode_batch import DecodeBatch
from simulator.serving.request import Request


def _request(admission: int) -> Request:
    request = Request(admission, 0.0, 0.0, 1, 1)
    request.admission = admission
    return request


@given(
    block_size=st.integers(1, 17),
    slots=st.lists(st.integers(1, 100), max_size=20),
    clock=st.integers(0, 50),
    ahead=st.integers(0, 60),
)
def test_blocks_and_context_follow_from_the_sums(
    block_size: int, slots: list[int], clock: int, ahead: int
) -> None:
    batch = DecodeBatch(block_size)
    batch.clock = clock
    for index, held in enumerate(slots):
        batch.join(_request(index), held, steps=1000)
    assert batch.blocks_at(clock + ahead) == sum(-(-(held + ahead) // block_size) for held in slots)
    assert batch.context() == sum(held + 1 for held in slots)


@given(
    block_size=st.integers(1, 17),
    slots=st.lists(st.integers(1, 100), min_size=1, max_size=20),
    spare=st.integers(0, 60),
    steps=st.integers(1, 80),
)
def test_the_longest_leap_is_the_last_that_fits(
    block_size: int, slots: list[int], spare: int, steps: int
) -> None:
    batch = DecodeBatch(block_size)
    for index, held in enumerate(slots):
        batch.join(_request(index), held, steps=1000)
    num_blocks = batch.blocks_at(1) + spare
    leap = batch.steps_that_fit(steps, num_blocks)
    assert 1 <= leap <= steps
    assert batch.blocks_at(leap) <= num_blocks
    assert leap == steps or batch.blocks_at(leap + 1) > num_blocks


def test_a_request_that_left_does_not_finish() -> None:
    batch = DecodeBatch(16)
    early, late = _request(0), _request(1)
    batch.join(early, 10, steps=3)
    batch.join(late, 10, steps=5)
    batch.leave(early)
    early.admission = -1
    assert batch.steps_to_finish() == 5
    batch.clock += 5
    assert batch.pop_finished() == [late]
    assert batch.count == 0
