"""What ``llmsim waterfall`` prints and writes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from simulator.cli import main
from simulator.study.waterfall import CLASSES

SYSTEMS = ["hgx-h200-8", "hgx-b200-8"]
RACK = ["hgx-h200-8", "gb300-nvl72"]
FLAGS = ["--model", "llama-3.1-8b", "--num-prompts", "60", "--tensor-parallel-size", "2"]


@pytest.fixture(autouse=True)
def _in_an_empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def llmsim(*arguments: str) -> Result:
    result = CliRunner().invoke(main, ["waterfall", *arguments])
    assert result.exit_code == 0, result.output
    return result


def as_json(*arguments: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(llmsim(*arguments, "--json").stdout)
    return found


def test_the_changes_sum_to_the_whole_difference() -> None:
    found = as_json(*SYSTEMS, *FLAGS, "--goodput", "ttft:100", "tpot:5")
    study = found["waterfall"]
    assert study["order"] == list(CLASSES)
    assert set(study["first"]) == {"mean_ttft_ms", "mean_tpot_ms", "output_throughput", "request_goodput"}
    for metric, first in study["first"].items():
        assert first == found["first"][metric]
        assert study["second"][metric] == found["second"][metric]
        changes = [step["change"][metric] for step in study["steps"]]
        assert first + sum(changes) == pytest.approx(study["second"][metric], rel=1e-12)
        assert study["steps"][-1]["after"][metric] == study["second"][metric]
        reverse = [step["reverse_change"][metric] for step in study["steps"]]
        assert first + sum(reverse) == pytest.approx(study["second"][metric], rel=1e-12)


def test_the_ends_are_the_runs_of_the_two_systems() -> None:
    found = as_json(*RACK, *FLAGS)
    assert found["waterfall"]["choices"] == ["gb300-nvl72 would serve with 36 x TP 2"]
    for name, system in zip(("first", "second"), RACK, strict=True):
        flags = ["--topology", system, *FLAGS, "--replicas", "4", "--json"]  # 8 GPUs hold four of TP 2
        alone = json.loads(CliRunner().invoke(main, ["run", *flags]).stdout)
        for metric, value in alone.items():
            assert metric == "llmsim" or found[name][metric] == value


def test_another_order_gives_other_parts_of_the_same_difference() -> None:
    usual = as_json(*SYSTEMS, *FLAGS)["waterfall"]
    other = as_json(*SYSTEMS, *FLAGS, "--order", "kernels, compute")["waterfall"]
    assert other["order"][:2] == ["kernels", "compute"]
    assert (other["first"], other["second"]) == (usual["first"], usual["second"])
    assert other["steps"] != usual["steps"]


def test_beside_each_change_stands_that_of_the_reverse_order() -> None:
    order = list(CLASSES)
    forth = as_json(*SYSTEMS, *FLAGS)["waterfall"]["steps"]
    back = as_json(*SYSTEMS, *FLAGS, "--order", ",".join(order[::-1]))["waterfall"]["steps"]
    for one, other in zip(forth, back[::-1], strict=True):
        assert one["name"] == other["name"]
        assert (one["reverse_change"], one["change"]) == (other["change"], other["reverse_change"])


def test_the_table_names_systems_classes_and_deployment() -> None:
    shown = llmsim(*RACK, *FLAGS).stdout
    assert "From hgx-h200-8 to gb300-nvl72, both with 4 x TP 2" in shown
    for title in CLASSES.values():
        assert title in shown
    assert "4.8 TB/s -> 8 TB/s" in shown
    assert "nvlink4 450 GB/s -> nvlink5 900 GB/s" in shown
    assert "The mean TPOT is" in shown
    assert "Left to itself, gb300-nvl72 would serve with 36 x TP 2" in shown


def test_the_figure_of_a_mesh_is_that_of_a_pair_and_of_one_gpu_there_is_none() -> None:
    assert "nvlink4 450 GB/s -> xgmi-mi300x 64 GB/s" in llmsim("hgx-h200-8", "mi300x-8", *FLAGS).stdout
    alone = ["--model", "llama-3.1-8b", "--num-prompts", "20"]
    assert "nvlink4 450 GB/s -> none" in llmsim("hgx-h200-8", "rtx-pro-6000-1", *alone).stdout


def test_throughput_that_the_traffic_sets_is_called_so_and_a_queue_that_grows_is_a_warning() -> None:
    def shown(*traffic: str) -> str:
        return " ".join(llmsim(*SYSTEMS, *FLAGS, *traffic).stdout.split())

    light, closed = shown("--request-rate", "2"), shown("--max-concurrency", "4")
    assert "Every run keeps up with the traffic" in light
    assert "The throughput is" not in light
    assert "Every run keeps up" not in closed
    assert "The throughput is" in closed
    heavy = shown("--replicas", "1", "--max-num-seqs", "2", "--request-rate", "1000")
    assert "12 of the 12 runs did not keep up with the traffic" in heavy
    assert "Every run keeps up" not in heavy


def test_a_folder_holds_result_report_and_plot_and_the_same_bytes_again() -> None:
    llmsim(*SYSTEMS, *FLAGS, "--out", "one", "--save-scenario", "s.yaml")
    llmsim("s.yaml", "--out", "other")
    names = ["plots/waterfall.png", "plots/waterfall.svg", "report.md", "result.json"]
    for name in names:
        assert Path("one", name).read_bytes() == Path("other", name).read_bytes()
    assert sorted(str(path.relative_to("one")) for path in Path("one").rglob("*.*")) == names
    llmsim(*SYSTEMS, *FLAGS, "--out", "one", "--force", "--no-plots")
    assert not Path("one", "plots").exists()


def test_runs_without_a_finished_request_are_no_error() -> None:
    flags = [*FLAGS, "--max-model-len", "1"]
    assert set(as_json(*SYSTEMS, *flags)["waterfall"]["first"]) == {"output_throughput"}
    assert "requests were rejected" in llmsim(*SYSTEMS, *flags, "--out", "out").stdout


def test_one_name_of_the_catalogue_is_no_scenario() -> None:
    result = CliRunner().invoke(main, ["waterfall", "hgx-h200-8"])
    assert result.exit_code == 2
    assert "hgx-h200-8 is one system" in result.stderr
