"""Arrival processes against their closed forms."""

from __future__ import annotations

from math import exp, sqrt
from typing import get_args

import numpy as np
import pytest
from pydantic import ValidationError

from simulator.streams import Streams
from simulator.workload.arrays import Floats
from simulator.workload.arrivals import AllAtOnce, Arrivals, Constant, Gamma, Mmpp2, OnOff, Poisson

CHAT = Mmpp2.model_validate({"rates": ("4.616 /s", "7.004 /s"), "sojourns": ("122.1 s", "75.8 s")})
CODE = OnOff.model_validate(
    {
        "off_mu": 2.373,
        "off_sigma": 1.351,
        "off_min": "2 s",
        "off_max": "300 s",
        "burst_mu": 3.861,
        "burst_sigma": 1.28,
        "burst_max": 1700,
        "gap_mean": "98.9 ms",
        "gap_cv": 1.633,
    }
)
EXAMPLES: list[Arrivals] = [Poisson(), Gamma(burstiness=0.25), Constant(), AllAtOnce(), CHAT, CODE]


def times_s(process: Arrivals, count: int, seed: int = 0) -> Floats:
    blocks, drawn = [], 0
    for block in process.times_s(Streams(seed)("arrivals")):
        blocks.append(block)
        drawn += len(block)
        if drawn >= count:
            break
    return np.concatenate(blocks)[:count]


def dispersion(arrivals_s: Floats, window_s: float) -> float:
    """Variance over mean of the counts in windows."""
    counts = np.bincount((arrivals_s / window_s).astype(int))[:-1]
    return float(counts.var() / counts.mean())


def test_every_process_has_an_example_here() -> None:
    assert {type(example) for example in EXAMPLES} == set(get_args(get_args(Arrivals)[0]))


@pytest.mark.parametrize("process", EXAMPLES, ids=lambda process: process.kind)
def test_times_ascend_from_zero(process: Arrivals) -> None:
    drawn_s = times_s(process, 30_000)
    assert drawn_s[0] >= 0
    assert (np.diff(drawn_s) >= 0).all()


@pytest.mark.parametrize("process", [Poisson(), Gamma(burstiness=4), Constant(), CHAT], ids=lambda p: p.kind)
def test_the_mean_rate_is_the_stated_one(process: Arrivals) -> None:
    # Relative error of a count over T is sqrt(dispersion/count): sqrt(24/500e3) = 0.7 % for the slowest.
    drawn_s = times_s(process, 500_000)
    assert len(drawn_s) / drawn_s[-1] == pytest.approx(process.mean_rate_per_s, rel=0.02)


def test_the_mean_rate_of_bursts_is_the_stated_one() -> None:
    # 40,000 bursts; their size varies with CV near 1.5, silences 1.5: sqrt(2*1.5**2/40e3) = 1 %.
    drawn_s = times_s(CODE, 3_500_000)
    assert len(drawn_s) / drawn_s[-1] == pytest.approx(CODE.mean_rate_per_s, rel=0.02)


def test_poisson_counts_vary_as_much_as_their_mean() -> None:
    assert dispersion(times_s(Poisson(), 500_000), 10.0) == pytest.approx(1.0, rel=0.03)


@pytest.mark.parametrize("burstiness", [0.25, 1.0, 4.0])
def test_gaps_of_gamma_have_a_cv_of_one_over_the_root_of_burstiness(burstiness: float) -> None:
    gaps_s = np.diff(times_s(Gamma(burstiness=burstiness), 300_000))
    assert gaps_s.std() / gaps_s.mean() == pytest.approx(1 / sqrt(burstiness), rel=0.02)


@pytest.mark.parametrize("window_s", [1.0, 10.0, 60.0])
def test_switching_rates_disperse_counts_as_the_closed_form_says(window_s: float) -> None:
    # MMPP of two states: IDC(t) = 1 + 2 (r1-r2)^2 p1 p2 / (r c) * (1 - (1-exp(-ct))/(ct)),
    # c = 1/s1 + 1/s2, p = share of time, r = mean rate (Fischer and Meier-Hellstern, 1993).
    (rate_1, rate_2), (stay_1, stay_2) = CHAT.rates, CHAT.sojourns
    change = 1 / stay_1 + 1 / stay_2
    shares = stay_1 * stay_2 / (stay_1 + stay_2) ** 2
    slow = 2 * (rate_1 - rate_2) ** 2 * shares / (CHAT.mean_rate_per_s * change)
    expected = 1 + slow * (1 - (1 - exp(-change * window_s)) / (change * window_s))
    assert dispersion(times_s(CHAT, 1_000_000), window_s) == pytest.approx(expected, rel=0.06)


@pytest.mark.parametrize(("window_s", "measured"), [(1.0, 13.2), (10.0, 72.0), (60.0, 164.0)])
def test_bursts_disperse_counts_as_the_trace_they_are_fitted_to(window_s: float, measured: float) -> None:
    # Azure Public Dataset, code, 2023: 13 / 72 / 164 over windows of 1, 10 and 60 s; the fit is within 2x,
    # a renewal process with the same CV of gaps is off by more.
    assert 0.5 < dispersion(times_s(CODE, 500_000), window_s) / measured < 2


def test_constant_arrivals_are_one_gap_apart() -> None:
    assert times_s(Constant(), 5000).tolist() == list(range(1, 5001))


def test_all_at_once_is_at_zero() -> None:
    assert not times_s(AllAtOnce(), 5000).any()


def test_a_rate_of_zero_is_silence() -> None:
    # 100 arrivals a second for a second on average, then a second of nothing: mean 50.
    process = Mmpp2.model_validate({"rates": ("100 /s", "0 /s"), "sojourns": ("1 s", "1 s")})
    drawn_s = times_s(process, 500_000)
    assert process.mean_rate_per_s == 50
    assert len(drawn_s) / drawn_s[-1] == pytest.approx(50, rel=0.05)


def test_the_first_state_is_drawn_in_proportion_to_its_time() -> None:
    # One state sends at 1000/s for 3/4 of the time: so often an arrival comes within 10 ms of the start.
    process = Mmpp2.model_validate({"rates": ("1000 /s", "0 /s"), "sojourns": ("300 s", "100 s")})
    firsts = [float(next(process.times_s(Streams(seed)("arrivals"), 1))[0]) for seed in range(400)]
    # Standard error of the share: sqrt(.75*.25/400) = 0.022.
    assert np.mean(np.array(firsts) < 0.01) == pytest.approx(0.75, abs=0.08)


@pytest.mark.parametrize(
    "bad", [{"rates": ("0 /s", "0 /s")}, {"sojourns": ("0 s", "1 s")}, {"rates": (1, 2)}]
)
def test_a_process_that_cannot_be_is_refused(bad: dict[str, object]) -> None:
    good = {"rates": ("1 /s", "2 /s"), "sojourns": ("1 s", "1 s")}
    with pytest.raises(ValidationError):
        Mmpp2.model_validate({**good, **bad})


def test_another_seed_gives_other_times() -> None:
    assert times_s(Poisson(), 10, seed=1).tolist() != times_s(Poisson(), 10, seed=2).tolist()
