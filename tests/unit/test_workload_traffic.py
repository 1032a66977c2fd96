"""Traffic from presets and traces: rates, scales, limits and choices that exclude each other."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from simulator.errors import InputError
from simulator.streams import Streams
from simulator.workload import Preset, Traffic, Workload, traffic

PRESET = Preset.model_validate(
    {
        "name": "bursty",
        "title": "Two rates, fixed lengths",
        "rate": {"value": "4 /s", "source": "made-up", "status": "assumed"},
        "arrivals": {
            "value": {"kind": "mmpp2", "rates": ["2 /s", "6 /s"], "sojourns": ["5 s", "5 s"]},
            "source": "made-up",
            "status": "assumed",
        },
        "lengths": {
            "value": {"kind": "random-range", "input_tokens": 100, "output_tokens": 10},
            "source": "made-up",
            "status": "assumed",
        },
        "sources": {"made-up": "for tests"},
    }
)
RATELESS = PRESET.model_copy(update={"rate": None})


def made_up(preset: Preset = PRESET, rate_factor: float = 1.0, seed: int = 0, **choices: Any) -> Traffic:
    workload = Workload.model_validate({"preset": preset.name, "num_prompts": 1000, **choices})
    return traffic(workload, preset, Streams(seed), rate_factor)


def replayed(path: Path, rate_factor: float = 1.0, **choices: Any) -> Traffic:
    workload = Workload.model_validate({"trace": str(path), **choices})
    return traffic(workload, None, Streams(0), rate_factor)


def times_s(source: Traffic) -> list[float]:
    return [time_s for time_s, _, _ in source]


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    path = tmp_path / "trace.csv"
    path.write_text("arrival_s,input_tokens,output_tokens\n10,1,5\n11,2,5\n14,3,8\n")
    return path


def test_requests_are_plain_numbers_in_order_of_time() -> None:
    requests = list(made_up())
    assert len(requests) == 1000
    assert {tuple(type(part) for part in request) for request in requests} == {(float, int, int)}
    assert requests == sorted(requests, key=lambda request: request[0])


def test_the_same_seed_gives_the_same_requests_again() -> None:
    source = made_up(seed=7)
    assert list(source) == list(source) == list(made_up(seed=7))
    assert list(source) != list(made_up(seed=8))


def test_a_preset_has_its_own_rate_unless_another_is_asked_for() -> None:
    own, doubled = times_s(made_up()), times_s(made_up(request_rate=8))
    assert doubled == [time_s / 2 for time_s in own]


@pytest.mark.parametrize(
    "choices", [{}, {"burstiness": 0.5}, {"arrival": "poisson"}, {"arrival": "constant"}]
)
def test_the_mean_rate_is_the_one_asked_for(choices: dict[str, Any]) -> None:
    # Counts over 50 s windows disperse by 1 + 2*4^2*.25/(4*.4) = 6 at most: sqrt(6/100e3) = 0.8 %.
    source = made_up(request_rate=50, num_prompts=100_000, **choices)
    assert len(list(source)) == 100_000
    assert source.summary().mean_rate_per_s == pytest.approx(50, rel=0.02)


def test_constant_arrivals_at_a_rate_are_evenly_spaced() -> None:
    assert times_s(made_up(request_rate=4, arrival="constant", num_prompts=3)) == [0.25, 0.5, 0.75]


def test_inf_and_a_preset_without_a_rate_send_all_at_once() -> None:
    assert set(times_s(made_up(request_rate="inf"))) == {0.0}
    assert set(times_s(made_up(RATELESS))) == {0.0}


def test_a_preset_that_comes_all_at_once_is_poisson_at_a_rate() -> None:
    at_once = PRESET.arrivals.model_validate(
        {"value": {"kind": "all-at-once"}, "source": "made-up", "status": "assumed"}
    )
    preset = RATELESS.model_copy(update={"arrivals": at_once})
    assert set(times_s(made_up(preset))) == {0.0}
    assert times_s(made_up(preset, request_rate=4)) == times_s(made_up(request_rate=4, arrival="poisson"))


def test_a_process_without_a_rate_is_refused() -> None:
    with pytest.raises(InputError, match="has no rate of its own; give the requests per second"):
        made_up(RATELESS, burstiness=0.5)


def test_lengths_do_not_depend_on_arrivals() -> None:
    choices: dict[str, Any] = {"random_range_ratio": 0.5}
    lengths = [
        [request[1:] for request in made_up(arrival=arrival, **choices)] for arrival in (None, "constant")
    ]
    assert lengths[0] == lengths[1]


def test_random_lengths_replace_those_of_the_preset() -> None:
    request = next(iter(made_up(random_input_len=7, random_output_len=3)))
    assert request[1:] == (7, 3)


def test_random_lengths_are_refused_by_a_preset_that_has_others() -> None:
    fixed = PRESET.lengths.model_validate(
        {
            "value": {"kind": "fixed", "input_tokens": 1, "output_tokens": 1},
            "source": "made-up",
            "status": "assumed",
        }
    )
    with pytest.raises(InputError, match="lengths of its own"):
        made_up(PRESET.model_copy(update={"lengths": fixed}), random_input_len=7)


def test_a_rate_factor_sends_more_requests_in_the_same_time() -> None:
    one, three = made_up(), made_up(rate_factor=3)
    assert (len(list(one)), len(list(three))) == (1000, 3000)
    assert three.summary().mean_rate_per_s == pytest.approx(12, rel=0.2)
    assert times_s(three)[:1000] == pytest.approx([time_s / 3 for time_s in times_s(one)])


def test_a_trace_is_replayed_from_its_first_request(trace: Path) -> None:
    assert list(replayed(trace)) == [(0.0, 1, 5), (1.0, 2, 5), (4.0, 3, 8)]


def test_a_time_scale_multiplies_and_a_rate_factor_divides(trace: Path) -> None:
    assert times_s(replayed(trace, time_scale=0.5)) == [0.0, 0.5, 2.0]
    assert times_s(replayed(trace, rate_factor=2)) == [0.0, 0.5, 2.0]


def test_a_trace_is_rescaled_to_a_rate(trace: Path) -> None:
    # Two gaps in 4 s are 0.5/s; at 5/s all is ten times as fast.
    source = replayed(trace, request_rate=5)
    assert times_s(source) == pytest.approx([0.0, 0.1, 0.4])
    assert source.summary().mean_rate_per_s == pytest.approx(5)


def test_a_trace_sent_at_once_keeps_its_order(trace: Path) -> None:
    assert list(replayed(trace, request_rate="inf")) == [(0.0, 1, 5), (0.0, 2, 5), (0.0, 3, 8)]


def test_num_prompts_limits_a_trace_and_its_rate_is_that_of_the_part(trace: Path) -> None:
    assert times_s(replayed(trace, num_prompts=2, request_rate=4)) == [0.0, 0.25]


def test_a_trace_shorter_than_num_prompts_is_told(trace: Path) -> None:
    source = replayed(trace, num_prompts=9)
    assert len(list(source)) == 3
    assert source.warnings == [f"{trace}: holds 3 requests, fewer than num_prompts asks for"]


def test_a_trace_of_one_instant_has_no_rate_to_rescale(tmp_path: Path) -> None:
    path = tmp_path / "instant.csv"
    path.write_text("arrival_s,input_tokens,output_tokens\n3,1,1\n3,1,1\n")
    source = replayed(path)
    assert times_s(source) == [0.0, 0.0]
    assert source.summary().mean_rate_per_s is None
    with pytest.raises(InputError, match="one instant"):
        replayed(path, request_rate=5)


def test_the_summary_is_of_what_was_sent(trace: Path) -> None:
    source = replayed(trace)
    list(source)
    summary = source.summary()
    assert (summary.requests, summary.span_s, summary.mean_rate_per_s) == (3, 4.0, 0.5)
    assert (summary.mean_input_tokens, summary.mean_output_tokens) == (2.0, 6.0)


@pytest.mark.parametrize(
    ("choices", "says"),
    [
        ({}, "either a preset or a trace"),
        ({"preset": "a", "trace": "b"}, "either a preset or a trace"),
        ({"preset": "a"}, "give num_prompts"),
        ({"trace": "b", "burstiness": 0.5}, "its own arrivals"),
        ({"trace": "b", "arrival": "poisson"}, "its own arrivals"),
        ({"trace": "b", "random_input_len": 5}, "its own lengths"),
        ({"preset": "a", "num_prompts": 1, "burstiness": 2, "arrival": "poisson"}, "both name a process"),
        ({"preset": "a", "num_prompts": 1, "request_rate": "inf", "burstiness": 2}, "sends all at once"),
        ({"preset": "a", "num_prompts": 1, "request_rate": 2, "time_scale": 2}, "both set the rate"),
        ({"preset": "a", "num_prompts": 0}, "num_prompts"),
        ({"preset": "a", "num_prompts": 1, "request_rate": -1}, "request_rate"),
        ({"preset": "a", "num_prompts": 1, "request_rate": "fast"}, "request_rate"),
        ({"preset": "a", "num_prompts": 1, "time_scale": 0}, "time_scale"),
        ({"preset": "a", "num_prompts": 1, "random_range_ratio": 1.0}, "random_range_ratio"),
    ],
)
def test_choices_that_cannot_be_are_refused(choices: dict[str, object], says: str) -> None:
    with pytest.raises(ValidationError, match=says):
        Workload.model_validate(choices)


def test_traffic_is_drawn_as_it_is_read() -> None:
    source = made_up(num_prompts=10**12)
    assert len([request for request, _ in zip(source, range(10_000), strict=False)]) == 10_000


def test_sums_of_tokens_beyond_32_bits_are_kept() -> None:
    source = made_up(num_prompts=50_000, random_input_len=2_000_000_000)
    list(source)
    assert source.summary().mean_input_tokens == 2_000_000_000


def test_an_arrival_beyond_the_precision_of_the_clock_is_refused() -> None:
    with pytest.raises(InputError, match="the clock is exact up to"):
        list(made_up(time_scale=1e30))
