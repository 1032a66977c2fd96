"""What ``llmsim elasticity`` prints and writes."""

from __future__ import annotations

import json
from math import log
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from simulator.cli import main

FLAGS = ["--topology", "hgx-h200-8", "--model", "llama-3.1-8b", "--num-prompts", "60", "--replicas", "1"]


@pytest.fixture(autouse=True)
def _in_an_empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def llmsim(*arguments: str) -> Result:
    result = CliRunner().invoke(main, ["elasticity", *arguments])
    assert result.exit_code == 0, result.output
    return result


def as_json(*arguments: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(llmsim(*arguments, "--json").stdout)
    return found


def test_json_holds_the_base_run_and_every_part_with_its_percent_and_elasticity() -> None:
    found = as_json(*FLAGS, "--goodput", "ttft:500", "tpot:30")
    study = found["elasticity"]
    assert study["factor"] == 1.1
    assert study["base"]["mean_tpot_ms"] == found["base"]["mean_tpot_ms"]
    hbm = next(part for part in study["parts"] if part["name"] == "hbm-bandwidth")
    assert hbm["matters"]
    for metric, value in hbm["value"].items():
        before = study["base"][metric]
        assert hbm["change_percent"][metric] == pytest.approx(100 * (value / before - 1))
        assert hbm["elasticity"][metric] == pytest.approx(log(value / before) / log(1.1))
    assert "request_goodput" in hbm["value"]
    idle = next(part for part in study["parts"] if part["name"] == "nvlink4-bandwidth")
    assert not idle["matters"]
    assert set(idle["change_percent"].values()) == {0.0}


def test_the_table_ranks_the_parts_and_words_name_the_first() -> None:
    shown = llmsim(*FLAGS).stdout
    assert "For the mean TPOT HBM bandwidth matters most: 10 % better gives" in shown
    assert "No request would notice more of: nvlink4 bandwidth" in shown
    assert shown.index("host overhead") < shown.index("all but the KV capacity")


def test_what_changes_no_more_than_by_chance_is_marked_and_ranks_nowhere() -> None:
    """The p99 of an open load leaps with every time of a step: a tenth less host time says nothing of it."""
    found = as_json(*FLAGS, "--request-rate", "40")["elasticity"]
    chance = found["chance_percent"]
    assert chance["p99_ttft_ms"] > 0.1  # of hardware that is better or worse by 0.03 % at most
    cells = 0
    for part in found["parts"]:
        cells += sum(abs(change) <= chance[metric] for metric, change in part["change_percent"].items())
    idle = sum(not part["matters"] for part in found["parts"])
    shown = llmsim(*FLAGS, "--request-rate", "40").stdout
    assert shown.count("(~)") == cells - idle * len(chance)
    assert "by chance" in shown


def test_throughput_that_the_traffic_sets_is_called_so() -> None:
    assert "Every run keeps up with the traffic" in llmsim(*FLAGS, "--request-rate", "2").stdout
    closed = llmsim(*FLAGS, "--request-rate", "inf").stdout
    assert "Every run keeps up" not in closed
    assert "For the throughput HBM bandwidth matters most" in closed


def test_another_percentage_is_possible() -> None:
    assert as_json(*FLAGS, "--percent", "100")["elasticity"]["factor"] == 2.0


def test_the_base_run_is_that_of_run() -> None:
    plain = json.loads(CliRunner().invoke(main, ["run", *FLAGS, "--json"]).stdout)
    assert as_json(*FLAGS)["base"] == plain


def test_a_folder_holds_result_report_and_plot_and_the_same_bytes_again() -> None:
    llmsim(*FLAGS, "--out", "one", "--save-scenario", "s.yaml")
    llmsim("s.yaml", "--out", "other")
    names = ["plots/elasticity.png", "plots/elasticity.svg", "report.md", "result.json"]
    for name in names:
        assert Path("one", name).read_bytes() == Path("other", name).read_bytes()
    assert sorted(str(path.relative_to("one")) for path in Path("one").rglob("*.*")) == names
    llmsim(*FLAGS, "--out", "one", "--force", "--no-plots")
    assert not Path("one", "plots").exists()


def test_a_run_without_a_finished_request_is_no_error() -> None:
    study = as_json(*FLAGS, "--max-model-len", "1")["elasticity"]
    assert study["base"] == {}
    shown = llmsim(*FLAGS, "--max-model-len", "1", "--out", "out").stdout
    assert "60 of 60 requests were rejected" in shown
