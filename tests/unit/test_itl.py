"""Inter-token latencies against every gap written out."""

from __future__ import annotations

import numpy as np
import pytest

from simulator.metrics import itl
from simulator.metrics.itl import Gaps
from simulator.metrics.latency import PERCENTILES
from simulator.record import REQUEST_COLUMNS, Floats, Record
from tests.unit.test_metrics import step_rows

NAN = float("nan")


def written_out(gaps: Gaps) -> Floats:
    columns = (gaps.first_s, gaps.slope_s, gaps.steps, gaps.weight)
    return np.concatenate(
        [
            np.repeat(first_s + slope_s * np.arange(steps), int(weight))
            for first_s, slope_s, steps, weight in zip(*columns, strict=True)
        ]
    )


def random_gaps(rows: int, seed: int) -> Gaps:
    rng = np.random.default_rng(seed)
    return Gaps(
        first_s=rng.choice([0.01, 0.02, 0.5, 20.0], rows, p=[0.5, 0.3, 0.19, 0.01])
        * rng.uniform(0.9, 1.1, rows),
        slope_s=rng.choice([0.0, 1e-6, 1e-4], rows),
        steps=rng.integers(1, 60, rows).astype(float),
        weight=rng.integers(1, 9, rows).astype(float),
    )


@pytest.mark.parametrize("rows", [1, 2, 40, 6000])
def test_percentiles_equal_those_of_every_gap_written_out(rows: int) -> None:
    gaps = random_gaps(rows, seed=rows)
    every = written_out(gaps)
    found = itl.distribution(gaps)
    assert found is not None
    assert found.count == len(every)
    np.testing.assert_allclose(
        list(found.percentiles.values()), np.percentile(every, PERCENTILES), rtol=1e-12
    )
    assert found.mean == pytest.approx(every.mean(), rel=1e-12)
    assert found.std == pytest.approx(every.std(), rel=1e-9)


def test_any_number_of_equal_gaps_is_one_value() -> None:
    ones = np.ones(1000)
    found = itl.distribution(Gaps(0.02 * ones, 0.0 * ones, 1000.0 * ones, 8.0 * ones))
    assert found is not None
    assert set(found.percentiles.values()) == {0.02}


def test_the_gaps_of_a_leap_grow_with_the_context_and_an_eviction_is_one_gap() -> None:
    # Two requests decode for three steps of 0.5, 0.7 and 0.9 s: 0.1 s per cached token and two more a step.
    leap = step_rows([0.0, 3, 2, 6 + 8 + 10, 0, 0, 0, 0.0, 1])
    evicted = np.array([[0, 0, 1, 2.1, 1, 4.0, 2, 5.0, 2.9], [1, 0, 1, 2.1, 1, 4.0, 2, 5.0, NAN]])
    record = Record(np.empty((0, len(REQUEST_COLUMNS))), (leap,), evicted, (1,), 5.0)
    gaps = itl.gaps(record, [np.array([2.1])], [np.array([0.2])])
    np.testing.assert_allclose(np.sort(written_out(gaps)), [0.5, 0.5, 0.7, 0.7, 0.9, 0.9, 2.9])


def test_without_gaps_there_is_no_distribution() -> None:
    nothing = np.empty(0)
    assert itl.distribution(Gaps(nothing, nothing, nothing, nothing)) is None
