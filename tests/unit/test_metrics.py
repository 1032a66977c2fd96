"""Latency, ledger, summary and timeline of records written by hand."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from simulator.errors import PhysicsError
from simulator.metrics.latency import distribution, latencies
from simulator.metrics.ledger import ledger
from simulator.metrics.summary import Hardware, Slo, Summary, summarise
from simulator.metrics.timeline import output_tokens, timeline
from simulator.record import CAUSES, REQUEST_COLUMNS, STEP_CAUSES, STEP_COLUMNS, Floats, Record, Status

NAN = float("nan")
STEP_S = 0.5


def fixed_steps(steps: Floats) -> Floats:
    """Every step lasts half a second: 0.1 s of host, 0.4 s of weights."""
    found = np.zeros((len(steps), len(STEP_CAUSES)))
    found[:, STEP_CAUSES.index("host")] = 0.1 * steps[:, 1]
    found[:, STEP_CAUSES.index("weights")] = 0.4 * steps[:, 1]
    return found


def step_rows(*rows: list[float]) -> Floats:
    """A step log in which nobody waits for shared devices or links."""
    found = np.zeros((len(rows), len(STEP_COLUMNS)))
    found[:, : STEP_COLUMNS.index("device_wait_s")] = rows
    return found


def rows_of(record: Record) -> tuple[tuple[Floats, ...], tuple[Floats, ...]]:
    """Seconds of each row, and the growth of its steps."""
    found = ledger(record, [fixed_steps])
    return found.row_s, found.row_growth_s


def small_record() -> Record:
    """Three requests on one replica whose steps last 0.5 s.

    Request 0 arrives at 0, is prefilled in the first step and decodes three more tokens in steps two to
    four: first token at 0.5, finish at 2. Request 1 arrives at 0.2, waits for the end of the first step,
    is prefilled in the second one and has a single token: 0.5 to 1. Request 2 is too long.
    """
    return Record(
        requests=np.array(
            [
                [0, Status.FINISHED, 0.0, 0.0, 0.0, 0.5, 2.0, 8, 4, 0, 0, 0, 3, 0],
                [1, Status.FINISHED, 0.2, 0.2, 0.5, 1.0, 1.0, 4, 1, 0, 0, 1, 2, 0],
                [2, Status.REJECTED_CONTEXT, 0.4, 0.4, NAN, NAN, 0.4, 999, 9, 0, -1, NAN, 0, 0],
            ]
        ),
        steps=(
            step_rows(
                [0.0, 1, 0, 0, 8, 1, 1, 0.0, 2],
                [0.5, 1, 1, 9, 4, 1, 1, 0.0, 4],
                [1.0, 2, 1, 21, 0, 0, 0, 0.0, 3],
            ),
        ),
        preemptions=np.empty((0, 9)),
        kv_blocks=(8,),
        end_s=2.0,
    )


def preempted_record() -> Record:
    """One request that is evicted after its second token, at 1.0, waits until 3.0 and recomputes in a step.

    In between, the replica serves another one that arrived earlier, for four steps.
    """
    return Record(
        requests=np.array(
            [
                [0, Status.FINISHED, 0.0, 0.0, 0.0, 0.5, 3.0, 8, 6, 0, 0, 0, 6, 0],
                [1, Status.FINISHED, 0.0, 0.0, 0.0, 0.5, 4.0, 8, 4, 1, 0, 0, 8, 0],
            ]
        ),
        steps=(step_rows(*([0.5 * i, 1, 1, 8, 0, 0, 0, 0.0, 4] for i in range(8))),),
        preemptions=np.array([[1, 0, 2, 1.0, 6, 3.0, 7, 3.5, 2.5]]),
        kv_blocks=(4,),
        end_s=4.0,
    )


def summary_of(record: Record, slo: Slo | None = None) -> Summary:
    causes = ledger(record, [fixed_steps])
    hardware = Hardware(gpus=2, power_w=4000.0, usd_per_gpu_hour=9.0, system_usd=50_000.0)
    return summarise(record, latencies(record), causes, hardware, slo)


def test_latencies_are_differences_of_times() -> None:
    found = latencies(small_record())
    np.testing.assert_allclose(found.queue_s, [0.0, 0.3, NAN])
    np.testing.assert_allclose(found.ttft_s, [0.5, 0.8, NAN])
    np.testing.assert_allclose(found.tpot_s, [0.5, NAN, NAN])  # (2.0 - 0.5) / 3; one token has no TPOT
    np.testing.assert_allclose(found.e2e_s, [2.0, 0.8, NAN])


def test_a_distribution_of_nothing_is_none() -> None:
    assert distribution(np.array([NAN, NAN])) is None


def test_percentiles_follow_the_linear_rule() -> None:
    found = distribution(np.arange(101.0))
    assert found is not None
    assert (found.median, found.percentiles[99.0]) == (50.0, 99.0)


def test_the_causes_of_a_request_sum_to_its_latency() -> None:
    record = small_record()
    by_request = ledger(record, [fixed_steps]).by_request
    np.testing.assert_allclose(by_request.sum(axis=1), [2.0, 0.8, NAN], atol=1e-15)
    # Request 0 takes part in four steps of 0.1 s host and 0.4 s weights; request 1 waits 0.3 s for one.
    assert by_request[0, CAUSES.index("host")] == pytest.approx(0.4)
    assert by_request[1, CAUSES.index("queue")] == pytest.approx(0.3)
    assert by_request[1, CAUSES.index("weights")] == pytest.approx(0.4)


def test_a_preempted_request_waits_and_recomputes_instead_of_stepping() -> None:
    by_request = ledger(preempted_record(), [fixed_steps]).by_request
    named = dict(zip(CAUSES, by_request[1].tolist(), strict=True))
    assert named["preempted"] == pytest.approx(2.0)  # 1.0 to 3.0
    assert named["recompute"] == pytest.approx(0.5)  # 3.0 to 3.5
    assert named["weights"] == pytest.approx(3 * 0.4)  # rows 0, 1 and 7
    assert sum(named.values()) == pytest.approx(4.0, abs=1e-12)


def test_a_ledger_that_misses_its_latency_is_an_error() -> None:
    record = small_record()
    requests = record.requests.copy()
    requests[0, 6] += 1e-6
    with pytest.raises(PhysicsError, match="request 0"):
        ledger(replace(record, requests=requests), [fixed_steps])


def test_rounding_of_a_late_clock_is_no_error_and_the_sum_stays_exact() -> None:
    record = small_record()
    requests = record.requests.copy()
    requests[:, 2:7] += 1e7  # half a unit in the last place of 1e7 is 9e-10
    late = replace(record, requests=requests, end_s=1e7 + 2.0)
    by_request = ledger(late, [fixed_steps]).by_request
    np.testing.assert_allclose(by_request.sum(axis=1), latencies(late).e2e_s, atol=1e-9)


def test_rates_are_per_second_of_the_run() -> None:
    found = summary_of(small_record())
    assert (found.num_prompts, found.completed) == (3, 2)
    assert found.rejected == {"rejected: longer than max_model_len": 1}
    assert found.duration_s == 2.0
    assert found.request_throughput == 1.0
    assert found.output_throughput == 2.5  # 5 tokens in 2 s
    assert found.total_token_throughput == 8.5  # and 12 prompt tokens
    assert found.output_throughput_per_gpu == 1.25
    assert found.output_throughput_per_kw == 2.5 / 4.0
    assert found.output_throughput_per_kusd == 2.5 / 50.0
    # 2 GPUs x 9 USD/h = 0.005 USD/s for 2.5 tokens/s
    assert found.usd_per_million_output_tokens == pytest.approx(2000.0)
    assert found.max_output_tokens_per_s == pytest.approx(3.0)  # at 0.5 one, at 1.0 two
    assert found.max_concurrent_requests == 2
    assert found.kv_peak_fraction == 0.5
    assert found.busy_fraction == 1.0
    assert found.mean_decodes == 0.75  # three of four steps decode one


def test_what_the_catalogue_does_not_know_is_none() -> None:
    record = small_record()
    causes = ledger(record, [fixed_steps])
    found = summarise(record, latencies(record), causes, Hardware(gpus=2))
    assert found.output_throughput_per_kw is None
    assert found.usd_per_million_output_tokens is None
    assert found.goodput is None


def test_goodput_counts_requests_that_keep_every_limit_limits_included() -> None:
    # TTFT 0.5 and 0.8, TPOT 0.5 and none, E2E 2.0 and 0.8, in 2 s.
    record = small_record()
    record = replace(record, requests=record.requests[:1])
    assert summary_of(record, Slo(ttft_s=0.5, tpot_s=0.5, e2e_s=2.0)).goodput == 0.5
    assert summary_of(record, Slo(ttft_s=0.4999, tpot_s=0.5)).goodput == 0.0


def test_the_tpot_of_a_single_token_counts_as_zero() -> None:
    found = summary_of(small_record(), Slo(tpot_s=0.1))
    assert found.goodput == 0.5  # request 1 alone
    assert found.good_fraction == pytest.approx(1 / 3)  # a rejected request is not good


def queueing_record(queue_s: Floats) -> Record:
    """One request a second that is served in one step of 0.5 s after its time in the queue."""
    count = len(queue_s)
    rows = np.arange(count)
    admitted_s = rows + queue_s
    requests = np.zeros((count, len(REQUEST_COLUMNS)))
    requests[:, 0] = rows
    requests[:, 2] = requests[:, 3] = rows
    requests[:, 4] = admitted_s
    requests[:, 5] = requests[:, 6] = admitted_s + STEP_S
    requests[:, 7] = requests[:, 8] = 1
    requests[:, 11], requests[:, 12] = rows, rows + 1
    steps = np.zeros((count, len(STEP_COLUMNS)))
    steps[:, 0], steps[:, 1], steps[:, 4:7] = admitted_s, 1, 1
    return Record(requests, (steps,), np.empty((0, 9)), (1,), float(requests[:, 6].max()))


def test_a_queue_that_grows_to_the_end_is_not_kept_up_with() -> None:
    found = summary_of(queueing_record(np.arange(40.0))).growth
    # Means of the queue of requests 10 to 19 and 30 to 39.
    assert (found.queue_second_quarter_s, found.queue_last_quarter_s) == (14.5, 34.5)
    assert found.kept_up is False


def test_a_queue_that_stays_as_it_is_is_kept_up_with() -> None:
    assert summary_of(queueing_record(np.full(40, 3.0))).growth.kept_up is True


def test_of_requests_that_arrive_at_once_there_is_no_telling() -> None:
    record = small_record()
    requests = record.requests[:2].copy()
    requests[1, 2:4] = 0.0
    assert summary_of(replace(record, requests=requests)).growth.kept_up is None


def test_a_timeline_holds_every_token_and_every_second_of_waiting() -> None:
    record = small_record()
    found = timeline(record, *rows_of(record), bins=4)
    np.testing.assert_allclose(found.output_tokens_per_s * 0.5, [1.0, 2.0, 1.0, 1.0])
    np.testing.assert_allclose(found.waiting * 0.5, [0.3, 0.0, 0.0, 0.0], atol=1e-12)
    np.testing.assert_allclose(found.running, [1.0, 2.0, 1.0, 1.0], atol=1e-12)
    np.testing.assert_allclose(found.kv_fraction, [0.25, 0.5, 0.375, 0.375])


def test_tokens_of_a_leap_come_when_its_steps_end() -> None:
    # Two requests decode for three steps of 1, 2 and 3 s: 0.5 s per cached token of 2, 4 and 6.
    record = small_record()
    leap = step_rows([0.0, 3, 2, 12, 0, 0, 0, 0.0, 1])
    found = output_tokens(
        replace(record, steps=(leap,)), [np.array([6.0])], [np.array([1.0])], np.array([0, 1, 2, 3, 6.0])
    )
    np.testing.assert_allclose(found, [2.0, 1.0, 1.0, 2.0])


def test_the_mean_and_the_p99_request_sum_to_their_latency() -> None:
    record = queueing_record(np.arange(200.0))
    found = ledger(record, [fixed_steps])
    assert found.mean_s().sum() == pytest.approx(100.0)  # mean of 0.5 to 199.5
    assert found.at_percentile_s(99.0).sum() == pytest.approx(197.5)  # rank 198 of 200
