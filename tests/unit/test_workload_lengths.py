"""Distributions of lengths, and the presets of the catalogue against the traces they are fitted to."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import yaml
from pydantic import ValidationError

from simulator.streams import Streams
from simulator.workload import Preset
from simulator.workload.arrays import Ints
from simulator.workload.lengths import Component, Fixed, Lengths, LognormalMixture, RandomRange

WORKLOADS = Path(__file__).parents[2] / "workloads"


def preset(name: str) -> Preset:
    return Preset.model_validate(yaml.safe_load((WORKLOADS / f"{name}.yaml").read_text()))


def draw(lengths: Lengths, count: int = 200_000) -> Ints:
    return lengths.draw(Streams(0)("lengths"), count)


@pytest.mark.parametrize(
    ("name", "inputs", "outputs"),
    # Means of the traces (Azure Public Dataset, 2023); output of code has a tail that the fit cuts: -3 %.
    [("azure-conv", 1154.7, 211.1), ("azure-code", 2047.9, 27.88 * 0.97)],
)
def test_a_preset_has_the_mean_lengths_of_its_trace(name: str, inputs: float, outputs: float) -> None:
    assert draw(preset(name).lengths.value).mean(axis=0) == pytest.approx([inputs, outputs], rel=0.02)


def test_chat_keeps_the_templates_of_its_trace() -> None:
    # A third of the prompts have 950 to 1250 tokens, and their output has median 405.
    tokens = draw(preset("azure-conv").lengths.value)
    template = (tokens[:, 0] >= 950) & (tokens[:, 0] <= 1250)
    assert template.mean() == pytest.approx(0.34, abs=0.03)
    assert np.median(tokens[template, 1]) == pytest.approx(405, rel=0.03)


def test_random_lengths_reach_both_ends_and_are_uniform() -> None:
    # 10 +- 25 %: floor(7.5) = 7 to ceil(12.5) = 13; 3 +- 25 %: floor(2.25) = 2 to ceil(3.75) = 4.
    tokens = draw(RandomRange(input_tokens=10, output_tokens=3, range_ratio=0.25))
    values, counts = np.unique(tokens[:, 0], return_counts=True)
    assert values.tolist() == list(range(7, 14))
    assert counts / len(tokens) == pytest.approx(1 / 7, rel=0.03)
    assert np.unique(tokens[:, 1]).tolist() == [2, 3, 4]


def test_random_lengths_are_one_token_or_more() -> None:
    # 1 +- 90 %: floor(0.1) = 0, but nobody asks for nothing; ceil(1.9) = 2.
    tokens = draw(RandomRange(input_tokens=1, output_tokens=1, range_ratio=0.9))
    assert np.unique(tokens).tolist() == [1, 2]


def test_random_lengths_without_a_range_are_exact() -> None:
    assert np.unique(draw(RandomRange(input_tokens=1024, output_tokens=128)), axis=0).tolist() == [
        [1024, 128]
    ]


def test_fixed_lengths_are_fixed() -> None:
    assert draw(Fixed(input_tokens=5, output_tokens=7), 3).tolist() == [[5, 7]] * 3


def test_a_mixture_is_clipped() -> None:
    wide = Component(weight=1, input_mu=3, input_sigma=3, output_mu=0, output_sigma=3)
    tokens = draw(LognormalMixture(components=(wide,), max_input_tokens=50, max_output_tokens=9))
    assert tokens.min(axis=0).tolist() == [1, 1]
    assert tokens.max(axis=0).tolist() == [50, 9]


def test_components_are_drawn_by_their_weights() -> None:
    parts = [
        Component(weight=weight, input_mu=mu, input_sigma=1e-9, output_mu=mu, output_sigma=1e-9)
        for weight, mu in ((0.2, 1.0), (0.5, 2.0), (0.3, 3.0))
    ]
    tokens = draw(LognormalMixture(components=tuple(parts), max_input_tokens=99, max_output_tokens=99))
    values, counts = np.unique(tokens[:, 0], return_counts=True)
    assert values.tolist() == [3, 7, 20]  # e, e^2, e^3 rounded
    assert counts / len(tokens) == pytest.approx([0.2, 0.5, 0.3], rel=0.02)


def test_weights_that_are_no_shares_are_refused() -> None:
    part = Component(weight=0.5, input_mu=1, input_sigma=1, output_mu=1, output_sigma=1)
    with pytest.raises(ValidationError, match=r"weights add up to 0\.5"):
        LognormalMixture(components=(part,), max_input_tokens=9, max_output_tokens=9)


@pytest.mark.parametrize("name", ["azure-conv", "azure-code"])
def test_the_rate_of_a_preset_is_near_that_of_its_process(name: str) -> None:
    # The fit of the process is within 15 % of the trace; traffic stretches it to the stated rate.
    entry = preset(name)
    assert entry.rate is not None
    assert entry.arrivals.value.mean_rate_per_s == pytest.approx(entry.rate.value, rel=0.16)
