"""What the commands print and write."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from simulator.cli import COMMANDS, main

TRACE = "arrival_s,input_tokens,output_tokens\n" + "".join(
    f"{i / 4},{100 + i},{10 + i % 7}\n" for i in range(40)
)
ON_H200 = ["--topology", "hgx-h200-8", "--model", "llama-3.1-8b", "--trace", "t.csv"]


@pytest.fixture(autouse=True)
def _in_an_empty_folder_with_a_trace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("t.csv").write_text(TRACE)


def llmsim(*arguments: str) -> Result:
    result = CliRunner().invoke(main, list(arguments))
    assert result.exit_code == 0, result.output
    return result


def run_json(*arguments: str) -> dict[str, Any]:
    data: dict[str, Any] = json.loads(llmsim("run", *arguments, "--json").stdout)
    return data


def test_json_is_all_that_standard_output_gets() -> None:
    result = run_json(*ON_H200)
    assert result["completed"] == 40
    assert result["total_input_tokens"] == sum(100 + i for i in range(40))
    assert result["total_output_tokens"] == sum(10 + i % 7 for i in range(40))


def test_a_table_is_printed_otherwise() -> None:
    assert "TTFT" in llmsim("run", *ON_H200).stdout


def test_a_run_without_out_writes_nothing() -> None:
    llmsim("run", *ON_H200)
    assert os.listdir() == ["t.csv"]


def test_a_saved_scenario_gives_the_same_bytes() -> None:
    flags = [*ON_H200, "--goodput", "ttft:300", "tpot:20", "--max-num-seqs", "4", "--seed", "7"]
    llmsim("run", *flags, "--save-scenario", "saved.yaml", "--out", "first", "--no-plots")
    llmsim("run", "saved.yaml", "--out", "second", "--no-plots")
    for name in ("result.json", "requests.csv"):
        assert Path("first", name).read_bytes() == Path("second", name).read_bytes()


def test_goodput_is_null_without_limits() -> None:
    assert run_json(*ON_H200)["request_goodput"] is None
    assert run_json(*ON_H200, "--goodput", "e2el:1e9")["request_goodput"] > 0


def test_both_levels_of_detail_agree() -> None:
    macro, step = (run_json(*ON_H200, "--detail", detail) for detail in ("macro", "step"))
    for name, value in macro.items():
        if isinstance(value, float):
            assert step[name] == pytest.approx(value, rel=1e-9)


def test_a_folder_that_holds_a_result_is_kept_unless_forced() -> None:
    llmsim("run", *ON_H200, "--out", "out", "--no-plots")
    before = Path("out/result.json").read_bytes()
    refused = CliRunner().invoke(main, ["run", *ON_H200, "--seed", "1", "--out", "out", "--no-plots"])
    assert refused.exit_code == 2
    assert "--force" in refused.stderr
    assert Path("out/result.json").read_bytes() == before
    llmsim("run", *ON_H200, "--seed", "1", "--out", "out", "--no-plots", "--force")
    assert Path("out/result.json").read_bytes() != before


def test_the_folder_holds_plots_unless_told_otherwise() -> None:
    llmsim("run", *ON_H200, "--out", "with")
    llmsim("run", *ON_H200, "--out", "without", "--no-plots")
    assert list(Path("with").rglob("*.svg")) + list(Path("with").rglob("*.png"))
    assert not list(Path("without").rglob("*.svg")) + list(Path("without").rglob("*.png"))


def test_a_request_has_a_line_whose_ledger_sums_to_its_latency() -> None:
    llmsim("run", *ON_H200, "--out", "out", "--no-plots")
    header, *lines = Path("out/requests.csv").read_text().splitlines()
    names = header.split(",")
    assert names[:5] == ["request_id", "status", "arrival_s", "queue_s", "ttft_s"]
    assert len(lines) == 40
    for line in lines:
        row = dict(zip(names, line.split(","), strict=True))
        causes = sum(float(value) for name, value in row.items() if name.startswith("ledger_"))
        assert causes == pytest.approx(float(row["e2e_s"]), abs=1e-8)


def test_a_run_says_what_its_links_did() -> None:
    shown = llmsim("run", *ON_H200, "--tensor-parallel-size", "4", "--out", "out", "--no-plots").stdout
    assert "Links of hgx-h200-8 that requests wait for:" in shown
    assert "NVLink 4 gpu0-7 <-> nvsw0-3 (x64): all-reduce, " in shown
    assert "## What the links did" in Path("out/report.md").read_text()
    header, *lines = Path("out/links.csv").read_text().splitlines()
    assert header.startswith("source,target,link,traffic,bandwidth_bytes_per_s,bytes,utilisation,")
    assert len(lines) == 8 * 4 * 2
    result = json.loads(Path("out/result.json").read_text())["llmsim"]
    assert sum(line["count"] for line in result["links"]) == 64
    assert [culprit["traffic"] for culprit in result["link_culprits"]] == ["all-reduce"]


def test_a_run_without_messages_has_no_line_about_links() -> None:
    assert "No link holds a request back" in llmsim("run", *ON_H200, "--out", "out", "--no-plots").stdout
    assert len(Path("out/links.csv").read_text().splitlines()) == 1


def test_compare_serves_the_same_traffic_on_each_system() -> None:
    systems = ["hgx-h200-8", "gb300-nvl72"]
    shown = llmsim("compare", *systems, "--model", "llama-3.1-8b", "--trace", "t.csv", "--json").stdout
    results = json.loads(shown)["results"]
    assert [result["llmsim"]["scenario"]["topology"] for result in results] == systems
    assert len({result["total_output_tokens"] for result in results}) == 1


def test_compare_takes_its_systems_from_a_scenario() -> None:
    systems = "[hgx-h200-8, gb300-nvl72]"
    Path("s.yaml").write_text(f"topology: {systems}\nmodel: llama-3.1-8b\nworkload: {{trace: t.csv}}\n")
    shown = llmsim("compare", "s.yaml").stdout
    assert "hgx-h200-8" in shown
    assert "gb300-nvl72" in shown


def test_the_load_may_be_the_same_per_gpu() -> None:
    flags = ["--model", "llama-3.1-8b", "--num-prompts", "20", "--json"]
    shown = llmsim("compare", "hgx-h200-8", "gb300-nvl72", *flags, "--scale-load", "gpus").stdout
    few, many = json.loads(shown)["results"]
    assert many["completed"] == 9 * few["completed"]  # 72 GPUs against 8


def test_the_catalogue_lists_and_shows() -> None:
    everything = llmsim("catalog").stdout
    assert "hgx-h200-8" in everything
    assert "llama-3.1-405b" in everything
    assert "azure-conv" not in llmsim("catalog", "models").stdout
    assert "memory_bandwidth" in llmsim("catalog", "devices", "h200-sxm-141gb").stdout


def test_the_facts_of_a_graph_are_printed() -> None:
    assert "8" in llmsim("topology", "hgx-h200-8").stdout
    assert json.loads(llmsim("topology", "gb300-nvl72", "--json").stdout)["gpus"] == 72


def test_a_graph_is_drawn() -> None:
    llmsim("topology", "hgx-h200-8", "--plot", "graph.png")
    assert Path("graph.png").stat().st_size > 1000


def test_every_command_has_help() -> None:
    for command in COMMANDS:
        assert f"llmsim {command}" in llmsim(command, "--help").stdout
