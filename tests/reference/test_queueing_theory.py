"""The engine against queues whose waits are known in closed form."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from simulator.record import Record
from simulator.serving.replica import Limits
from simulator.streams import Streams
from tests.strategies import Case, LinearCost

SERVICE_S = 0.01
FIXED_STEP = LinearCost(
    fixed_s=SERVICE_S, per_token_s=0.0, per_prompt_s=0.0, kv_s_per_token=0.0, per_pair_s=0.0
)


def _waits(record: Record) -> np.ndarray:
    return record.request("admitted_s") - record.request("arrival_s")


def _poisson(rate_per_s: float, requests: int) -> list[tuple[float, int, int]]:
    arrivals = np.cumsum(Streams(7)("arrivals").exponential(1 / rate_per_s, requests))
    return [(float(time_s), 8, 1) for time_s in arrivals]


@pytest.mark.parametrize("rho", [0.3, 0.6, 0.8])
def test_one_token_outputs_one_at_a_time_wait_as_m_d_1(rho: float) -> None:
    """Pollaczek-Khinchine with fixed service: the mean wait is rho * service / (2 * (1 - rho)).

    40,000 requests; the standard error of the mean wait at rho = 0.8, whose autocorrelation time is
    about 2 / (1 - rho)**2 = 50 services, is about 3.5 %: three of those are allowed.
    """
    case = Case(
        cost=FIXED_STEP,
        limits=Limits(max_num_seqs=1, max_num_batched_tokens=64, block_size=16, num_blocks=8),
        traffic=_poisson(rho / SERVICE_S, 40_000),
    )
    expected_s = rho * SERVICE_S / (2 * (1 - rho))
    assert _waits(case.run()).mean() == pytest.approx(expected_s, rel=0.1)


def test_with_seats_for_all_an_arrival_waits_half_a_step_when_the_replica_is_busy() -> None:
    """Bulk service without limit: an arrival waits for the rest of the running step only.

    At 3 arrivals a service time the replica is idle with chance p0 at an arrival. Each busy step serves
    all who came during the last one, so the number served is Poisson(3) and an idle period follows with
    chance exp(-3) = 0.0498; a cycle of busy steps ends then and lasts on average an exponential gap of
    1/3 service, so p0 = (e^-3 / 3) / (1 + e^-3 / 3) = 0.0163. Others wait half a step on average.
    """
    case = Case(
        cost=FIXED_STEP,
        limits=Limits(max_num_seqs=1000, max_num_batched_tokens=10_000, block_size=16, num_blocks=10_000),
        traffic=_poisson(3 / SERVICE_S, 40_000),
    )
    assert _waits(case.run()).mean() == pytest.approx(SERVICE_S / 2 * (1 - 0.0163), rel=0.02)


def test_replicas_behind_a_random_router_are_m_d_1_each_and_turns_wait_less() -> None:
    """Random splitting of a Poisson stream leaves Poisson streams: M/D/1 at half the rate.

    Taking turns leaves Erlang-2 gaps, which are more even: the wait is less (Kingman: about half).
    """
    limits = Limits(max_num_seqs=1, max_num_batched_tokens=64, block_size=16, num_blocks=8)
    case = Case(cost=FIXED_STEP, limits=limits, traffic=_poisson(1.2 / SERVICE_S, 40_000), replicas=2)
    md1_s = 0.6 * SERVICE_S / (2 * (1 - 0.6))
    random_s = _waits(replace(case, router="random").run()).mean()
    record = case.run()
    assert random_s == pytest.approx(md1_s, rel=0.1)
    assert _waits(record).mean() < 0.7 * md1_s
    assert np.bincount(record.request("replica").astype(int)).tolist() == [20_000, 20_000]
