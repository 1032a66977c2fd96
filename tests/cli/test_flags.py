"""Every flag has its twin in the scenario YAML, and the other way round."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args

import click
import pytest

from simulator.catalog import dump_yaml
from simulator.cli.flags import FLAGS, Flag, SpreadGoodput, read_scenario, scenario_document
from simulator.scenario import Goodput, Scenario
from simulator.spec import Spec

SAMPLES = {
    "--topology": "gb300-nvl72",
    "--model": "llama-3.1-8b",
    "--nodes": "3",
    "--fabric": "leaf-spine",
    "--oversubscription": "2.5",
    "--weights": "nvfp4",
    "--kv-cache-dtype": "fp8",
    "--engine": "my-engine.yaml",
    "--tensor-parallel-size": "4",
    "--pipeline-parallel-size": "2",
    "--replicas": "3",
    "--prefill-replicas": "2",
    "--prefill-tp": "4",
    "--prefill-pp": "2",
    "--prefill-max-num-seqs": "18",
    "--prefill-max-num-batched-tokens": "8192",
    "--prefill-num-gpu-blocks-override": "1235",
    "--decode-num-gpu-blocks-override": "1236",
    "--decode-system": "hgx-b200-8",
    "--decode-replicas": "3",
    "--decode-tp": "2",
    "--decode-pp": "4",
    "--decode-max-num-seqs": "19",
    "--decode-max-num-batched-tokens": "2048",
    "--kv-transfer": "layerwise",
    "--router": "power-of-two",
    "--max-num-seqs": "17",
    "--max-num-batched-tokens": "4096",
    "--max-model-len": "9000",
    "--block-size": "32",
    "--gpu-memory-utilization": "0.83",
    "--num-gpu-blocks-override": "1234",
    "--all-reduce": "two-shot",
    "--placement": "spread",
    "--workload": "azure-code",
    "--trace": "t.csv",
    "--trace-format": "native",
    "--num-prompts": "77",
    "--request-rate": "0.7",
    "--arrival": "constant",
    "--burstiness": "0.3",
    "--max-concurrency": "9",
    "--time-scale": "1.1",
    "--random-input-len": "11",
    "--random-output-len": "12",
    "--random-range-ratio": "0.4",
    "--seed": "42",
    "--goodput": ("ttft:250", "e2el:9000"),
    "--detail": "step",
    "--scale-load": "gpus",
}

NEEDS = {
    "--fabric": {"--nodes": "2"},
    "--oversubscription": {"--nodes": "2"},
    **{name: {"--decode-replicas": "1"} for name in SAMPLES if name.startswith("--prefill-")},
    **{name: {"--prefill-replicas": "1"} for name in SAMPLES if name.startswith("--decode-")},
    "--kv-transfer": {"--prefill-replicas": "1", "--decode-replicas": "1"},
    "--burstiness": {"--request-rate": "2"},
    "--arrival": {"--request-rate": "2"},
    "--random-input-len": {"--workload": "random"},
    "--random-output-len": {"--workload": "random"},
    "--random-range-ratio": {"--workload": "random"},
    "--trace-format": {"--trace": "t.csv"},
    "--time-scale": {"--trace": "t.csv"},
}


def leaves(spec: type[Spec], where: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """The path of every value of a scenario."""
    for name, field in spec.model_fields.items():
        members = [field.annotation, *get_args(field.annotation)]
        below = [member for member in members if isinstance(member, type) and issubclass(member, Spec)]
        if below and below[0] is not Goodput:
            yield from leaves(below[0], (*where, name))
        else:
            yield (*where, name)


def of(*names: str) -> dict[str, Any]:
    """Arguments of a command that was given the samples of these flags."""
    given = {"--topology": "hgx-h200-8"} | {name: SAMPLES[name] for name in names}
    for name in names:
        given = NEEDS.get(name, {}) | given
    return {flag.key: given[flag.name] for flag in FLAGS if flag.name in given}


def test_every_value_of_the_scenario_has_a_flag_and_every_flag_a_value() -> None:
    """But the list of events, which a file holds."""
    assert sorted(flag.where for flag in FLAGS) == sorted(set(leaves(Scenario)) - {("events",)})


@pytest.mark.parametrize("flag", FLAGS, ids=lambda flag: flag.name)
def test_a_flag_reaches_its_twin_and_survives_the_saved_scenario(flag: Flag, tmp_path: Path) -> None:
    plainly = read_scenario(scenario_document(None, of())).plain()
    scenario = read_scenario(scenario_document(None, of(flag.name)))
    assert scenario.plain() != plainly
    saved = tmp_path / "saved.yaml"
    saved.write_text(dump_yaml(scenario.plain()))
    assert read_scenario(scenario_document(str(saved), {})) == scenario
    value: Any = scenario.plain()
    for key in flag.where:
        value = value[key]
    expected = {"ttft": "0.25 s", "e2el": "9.0 s"} if flag.name == "--goodput" else SAMPLES[flag.name]
    assert value == expected or str(value) == expected


def test_a_flag_wins_over_the_file(tmp_path: Path) -> None:
    file = tmp_path / "s.yaml"
    file.write_text("topology: a\nseed: 1\nworkload: {preset: azure-code, num_prompts: 10}\n")
    scenario = read_scenario(scenario_document(str(file), {"seed": "2"}))
    assert (scenario.seed, scenario.workload.num_prompts) == (2, 10)


def test_a_trace_on_the_command_line_replaces_the_preset_of_the_file(tmp_path: Path) -> None:
    file = tmp_path / "s.yaml"
    file.write_text("topology: a\nworkload: {preset: azure-code}\n")
    scenario = read_scenario(scenario_document(str(file), {"trace": "t.csv"}))
    assert (scenario.workload.preset, scenario.workload.trace) == (None, "t.csv")


@pytest.mark.parametrize(
    ("arguments", "limits"),
    [
        (["--goodput", "ttft:200", "tpot:50"], ("ttft:200", "tpot:50")),
        (["--goodput", "ttft:200", "--goodput", "tpot:50"], ("ttft:200", "tpot:50")),
        (["--goodput=ttft:200", "tpot:50", "e2el:9"], ("ttft:200", "tpot:50", "e2el:9")),
        (["a.yaml", "--goodput", "ttft:200"], ("ttft:200",)),
        (["--goodput", "ttft:200", "a.yaml"], ("ttft:200",)),
    ],
    ids=str,
)
def test_goodput_takes_several_limits_after_one_flag(arguments: list[str], limits: tuple[str, ...]) -> None:
    seen: list[tuple[str, ...]] = []

    @click.command(cls=SpreadGoodput)
    @click.argument("file", required=False)
    @click.option("--goodput", multiple=True)
    def command(file: str | None, goodput: tuple[str, ...]) -> None:
        seen.append(goodput)

    command.main(arguments, standalone_mode=False)
    assert seen == [limits]
