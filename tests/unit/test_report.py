"""Table, files, page and plots of small runs."""

from __future__ import annotations

import csv
import json
from collections import Counter
from collections.abc import Sequence
from io import StringIO
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from matplotlib.collections import LineCollection
from matplotlib.figure import Figure
from rich.console import Console

from simulator.catalog import Catalog
from simulator.errors import InputError
from simulator.record import CAUSES
from simulator.report.evaluation import Evaluation, evaluate
from simulator.report.exports import REQUEST_FIELDS, result_object, to_json, write_requests
from simulator.report.markdown import markdown
from simulator.report.plots import PLOTS, draw_all, topology
from simulator.report.plots.style import save
from simulator.report.rows import Row, comparison, number
from simulator.report.sentences import CAUSE_TITLES, differences
from simulator.report.tables import overview
from simulator.report.write import combined, write
from simulator.scenario import Scenario
from simulator.simulation import load_topology
from simulator.study.compare import compare
from simulator.topology.join import Join

SYSTEMS = ("hgx-h200-8", "gb300-nvl72")


def evaluations_of(systems: Sequence[str], **deployment: Any) -> tuple[Evaluation, ...]:
    scenario = Scenario.model_validate(
        {
            "topology": systems,
            "model": "llama-3.1-8b",
            "deployment": deployment,
            "workload": {"num_prompts": 60, "request_rate": 30.0},
            "goodput": {"ttft": "1 s"},
        }
    )
    return evaluate(compare(scenario, Catalog()))


@pytest.fixture(scope="module")
def pair() -> tuple[Evaluation, ...]:
    return evaluations_of(SYSTEMS)


@pytest.fixture(scope="module")
def all_rejected() -> tuple[Evaluation, ...]:
    return evaluations_of(SYSTEMS[:1], max_model_len=1)


def lines_of(evaluation: Evaluation, folder: Path) -> list[dict[str, str]]:
    write_requests(evaluation, folder / "requests.csv")
    with (folder / "requests.csv").open(newline="") as file:
        return list(csv.DictReader(file))


def test_the_columns_of_a_request_are_those_that_are_promised() -> None:
    header = (
        "request_id,status,arrival_s,queue_s,ttft_s,tpot_s,e2e_s,input_tokens,output_tokens,preemptions,replica,"
        "ledger_queue_s,ledger_preempted_s,ledger_recompute_s,ledger_host_s,ledger_launch_s,ledger_weights_s,"
        "ledger_kv_s,ledger_activations_s,ledger_compute_s,ledger_attention_s,ledger_allreduce_latency_s,"
        "ledger_allreduce_bandwidth_s,reroutes,prefill_replica,ledger_lost_s,ledger_kv_wait_s,ledger_kv_transfer_s,"
        "ledger_pipeline_send_s,ledger_pipeline_bubble_s,ledger_device_sharing_s,ledger_link_sharing_s"
    )
    assert ",".join(REQUEST_FIELDS) == header


def test_a_request_reads_back_as_it_was_and_its_ledger_sums(
    pair: tuple[Evaluation, ...], tmp_path: Path
) -> None:
    evaluation = pair[0]
    lines = lines_of(evaluation, tmp_path)
    assert [int(line["request_id"]) for line in lines] == list(range(60))
    assert [float(line["e2e_s"]) for line in lines] == evaluation.latencies.e2e_s.tolist()
    for line in lines:
        assert line["status"] == "finished"
        assert (line["tpot_s"] == "") == (line["output_tokens"] == "1")
        causes_s = sum(float(value) for name, value in line.items() if name.startswith("ledger_"))
        assert causes_s == pytest.approx(float(line["e2e_s"]), abs=1e-9)


def test_what_has_not_happened_is_empty(all_rejected: tuple[Evaluation, ...], tmp_path: Path) -> None:
    lines = lines_of(all_rejected[0], tmp_path)
    assert len(lines) == 60
    for line in lines:
        assert line["status"] == "rejected: longer than max_model_len"
        assert {
            line[name] for name in ("queue_s", "ttft_s", "tpot_s", "e2e_s", "replica", "ledger_kv_s")
        } == {""}


def test_the_flat_fields_are_those_of_vllm_bench(pair: tuple[Evaluation, ...]) -> None:
    found = result_object(pair[0])
    latency = {
        f"{name}_{metric}_ms"
        for metric in ("ttft", "tpot", "itl", "e2el")
        for name in ("mean", "median", "std", "p50", "p90", "p95", "p99")
    }
    general = (
        "date endpoint_type backend label model_id tokenizer_id num_prompts request_rate burstiness "
        "max_concurrency duration completed failed total_input_tokens total_output_tokens request_throughput "
        "request_goodput output_throughput total_token_throughput max_output_tokens_per_s "
        "max_concurrent_requests rtfx mean_client_queue_time_ms"
    )
    assert set(found) == latency | set(general.split()) | {"llmsim"}
    assert found["mean_ttft_ms"] == pytest.approx(1e3 * np.nanmean(pair[0].latencies.ttft_s))
    assert found["request_rate"] == 30.0
    assert sum(found["llmsim"]["ledger"]["mean_s"].values()) == pytest.approx(found["mean_e2el_ms"] / 1e3)
    assert all(bound["holds"] for bound in found["llmsim"]["bounds"])


def test_what_there_is_none_of_is_null_and_never_nan(all_rejected: tuple[Evaluation, ...]) -> None:
    found = json.loads(to_json(combined(all_rejected)))
    assert found["completed"] == 0
    assert found["p99_itl_ms"] is None
    assert found["llmsim"]["rejected"] == {"rejected: longer than max_model_len": 60}


def test_a_table_has_a_column_per_system_and_units_in_its_labels(pair: tuple[Evaluation, ...]) -> None:
    written = StringIO()
    Console(width=140, file=written).print(overview(pair))
    text = written.getvalue()
    for part in (
        *SYSTEMS,
        "TTFT p99, ms",
        "output tokens/s per kW",
        "kept up with arrivals",
        "HBM ceiling",
        "best of the row",
    ):
        assert part in text


def test_the_best_value_of_a_row_is_marked_where_there_is_a_difference() -> None:
    assert Row("", "", (1.0, 2.0, None), "low").best() == {0}
    assert Row("", "", (1.0, 2.0, 2.001), "high").best() == {1, 2}
    assert Row("", "", (2.0, 2.0), "low").best() == set()
    assert Row("", "", (1.0, 2.0)).best() == set()
    assert Row("", "", (1.0,), "low").best() == set()


@pytest.mark.parametrize(
    ("value", "text"),
    [(12345.6, "12,346"), (123.45, "123.5"), (1.234, "1.23"), (0.01234, "0.0123"), (0.0, "0"), (7.0, "7")],
)
def test_a_number_has_about_four_digits(value: float, text: str) -> None:
    assert number(value) == text


def test_every_cause_has_a_title() -> None:
    assert tuple(CAUSE_TITLES) == CAUSES


def test_the_sentences_say_where_the_difference_comes_from(pair: tuple[Evaluation, ...]) -> None:
    mean, p99 = differences(pair)
    assert mean.startswith("The mean request takes")
    assert p99.startswith("The p99 request takes")
    assert "weights from HBM" in mean
    assert "gb300-nvl72" in mean


def test_the_page_holds_table_ledger_plots_and_bounds(pair: tuple[Evaluation, ...]) -> None:
    page = markdown(pair, [("Latency of requests", "plots/latency.png")])
    assert page.startswith("# hgx-h200-8 against gb300-nvl72\n")
    for part in (
        "| TTFT p50, ms |",
        "**sum = E2E**",
        "![Latency of requests](plots/latency.png)",
        "| at most |",
    ):
        assert part in page
    header, _, *lines = page.split("## Bounds")[1].strip().split("\n\n")[1].splitlines()
    assert {line.count("|") for line in lines} == {header.count("|")}


def test_no_two_sections_of_the_page_have_one_name(pair: tuple[Evaluation, ...]) -> None:
    page = markdown(pair, [(title, f"plots/{name}.png") for name, (title, _) in PLOTS.items()])
    headings = [line for line in page.splitlines() if line.startswith("## ")]
    assert len(set(headings)) == len(headings)


def test_a_run_in_which_every_request_is_rejected_is_reported_too(
    all_rejected: tuple[Evaluation, ...], tmp_path: Path
) -> None:
    write(all_rejected, tmp_path)
    assert "60 of 60 requests were rejected" in (tmp_path / "report.md").read_text()
    assert [row.values for row in comparison(all_rejected) if row.label == "requests finished"] == [(0.0,)]


def test_a_comparison_has_a_folder_per_system(pair: tuple[Evaluation, ...], tmp_path: Path) -> None:
    write(pair, tmp_path, plots=False)
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "gb300-nvl72",
        "hgx-h200-8",
        "report.md",
        "result.json",
    ]
    assert [one["label"] for one in json.loads((tmp_path / "result.json").read_text())["results"]] == list(
        SYSTEMS
    )
    for name in SYSTEMS:
        assert json.loads((tmp_path / name / "result.json").read_text())["label"] == name
        assert (tmp_path / name / "requests.csv").exists()


def test_one_system_has_its_files_at_the_top(pair: tuple[Evaluation, ...], tmp_path: Path) -> None:
    write(pair[:1], tmp_path, plots=False)
    names = ["links.csv", "report.md", "requests.csv", "result.json"]
    assert sorted(path.name for path in tmp_path.iterdir()) == names


def test_the_same_system_twice_has_two_names() -> None:
    assert [one.name for one in evaluations_of(("hgx-h200-8", "hgx-h200-8"))] == [
        "hgx-h200-8-1",
        "hgx-h200-8-2",
    ]


def test_plots_drawn_twice_are_the_same_bytes(pair: tuple[Evaluation, ...], tmp_path: Path) -> None:
    for folder in ("first", "second"):
        assert [name for name, _ in draw_all(pair, tmp_path / folder)] == list(PLOTS)
    first = sorted((tmp_path / "first").iterdir())
    assert {path.suffix for path in first} == {".png", ".svg"}
    for path in first:
        assert path.read_bytes() == (tmp_path / "second" / path.name).read_bytes()
        assert b"<dc:date>" not in path.read_bytes()


DRAWN = [(name, None) for name in Catalog().names("topologies")] + [
    ("hgx-h200-8", Join(nodes=4)),
    ("hgx-h200-8", Join(nodes=2, fabric="direct")),
    ("h100-pcie-8", Join(nodes=2, fabric="leaf-spine", oversubscription=1.5)),
]


@pytest.mark.parametrize(("name", "join"), DRAWN)
def test_a_topology_is_drawn_with_every_kind_of_node_and_link(
    name: str, join: Join | None, tmp_path: Path
) -> None:
    drawn = load_topology(name, Catalog(), join)
    figure = topology.draw(drawn)
    written = {text.get_text() for axes in figure.axes for text in axes.texts}
    kinds = Counter(drawn.graph.nodes[node]["kind"] for node in drawn.graph)
    assert {f"{count} x {kind}" for kind, count in kinds.items()} <= written
    (legend,) = figure.legends
    labels = [text.get_text() for text in legend.get_texts()]
    for edge in drawn.graph.edges:
        assert any(drawn.link(edge).title in label for label in labels)
    save(figure, tmp_path / "graph.svg")
    assert (tmp_path / "graph.svg").stat().st_size > 1000


def test_a_link_over_the_heads_of_others_is_an_arc() -> None:
    """Of the 28 links of a mesh of eight in one row, seven join neighbours and 21 pass over somebody."""
    figure = topology.draw(load_topology("mi300x-8", Catalog()))
    drawn = [one for one in figure.axes[0].collections if isinstance(one, LineCollection)]
    lines = [line for collection in drawn for line in collection.get_paths()]
    assert sum(len(line.vertices) > 2 for line in lines) == 21


def test_the_legend_of_a_topology_fits_its_figure() -> None:
    for name in ("hgx-h200-8", "h200-nvl-8", "dgx-spark-2"):
        figure = topology.draw(load_topology(name, Catalog()))
        figure.draw_without_rendering()
        box = figure.legends[0].get_window_extent()
        assert box.x0 >= 0
        assert box.x1 <= figure.bbox.x1


def test_a_plot_in_another_format_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"use \.png or \.svg"):
        save(Figure(), tmp_path / "plot.gif")


def test_a_plot_that_cannot_be_written_names_its_file(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"plot\.png: No such file"):
        save(Figure(), tmp_path / "nowhere" / "plot.png")
