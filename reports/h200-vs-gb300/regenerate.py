"""Runs the study again: numbers.json, the figures and the table of the README.

    python reports/h200-vs-gb300/regenerate.py

``numbers(QUICK)`` is what CI compares with numbers.json.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from itertools import product
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from simulator.catalog import Catalog, read_document
from simulator.report.evaluation import Evaluation, evaluate
from simulator.report.plots import ledger
from simulator.report.plots.style import house_style, line_style, panels, save
from simulator.scenario import Scenario
from simulator.study.compare import compare

HERE = Path(__file__).parent
LOADS_PER_S = (1.0, 3.0, 7.0)
MODES = ("total", "gpus")
CASES = QUICK = tuple(product(MODES, LOADS_PER_S))
Found = dict[tuple[str, float], tuple[Evaluation, ...]]


def evaluations(cases: Iterable[tuple[str, float]]) -> Found:
    """Both systems at each load, as a total and for each 8 GPUs."""
    document = read_document(HERE / "scenario.yaml")
    found = {}
    for mode, load in cases:
        document.set(("workload", "request_rate"), load, "the load of the study")
        document.set(("scale_load",), mode, "the load of the study")
        found[mode, load] = evaluate(compare(document.read(Scenario), Catalog()))
    return found


def numbers(cases: Iterable[tuple[str, float]]) -> list[dict[str, Any]]:
    """The figures that the README quotes, one entry per run."""
    return _rows(evaluations(cases))


def _rows(found: Found) -> list[dict[str, Any]]:
    return [
        {
            "scale_load": mode,
            "load_per_s": load,
            "system": one.name,
            "offered_per_s": one.result.traffic.mean_rate_per_s,
            "ttft_p50_s": one.summary.ttft.percentiles[50.0],
            "ttft_p99_s": one.summary.ttft.percentiles[99.0],
            "tpot_p50_s": one.summary.tpot.percentiles[50.0],
            "tpot_p99_s": one.summary.tpot.percentiles[99.0],
            "good_fraction": one.summary.good_fraction,
            "output_tokens_per_s_per_gpu": one.summary.output_throughput_per_gpu,
            "output_tokens_per_s_per_kw": one.summary.output_throughput_per_kw,
            "usd_per_million_output_tokens": one.summary.usd_per_million_output_tokens,
            "kept_up": one.summary.growth.kept_up,
        }
        for (mode, load), pair in found.items()
        for one in pair
        if one.summary.ttft is not None and one.summary.tpot is not None
    ]


def tables(rows: list[dict[str, Any]]) -> dict[str, str]:
    """The numbers as the table of the README."""
    lines = [
        "| load | system | TTFT p50 / p99, s | TPOT p50 / p99, ms | good, % "
        "| tokens/s per GPU | tokens/s per kW | USD per M tokens |",
        "|---|---|---:|---:|---:|---:|---:|---:|",
    ]
    for row in rows:
        per = "in all" if row["scale_load"] == "total" else "per 8 GPUs"
        lines.append(
            f"| {row['load_per_s']:g}/s {per} | {row['system']} "
            f"| {row['ttft_p50_s']:.2f} / {row['ttft_p99_s']:.2f} "
            f"| {1e3 * row['tpot_p50_s']:.0f} / {1e3 * row['tpot_p99_s']:.0f} "
            f"| {100 * row['good_fraction']:.0f} | {row['output_tokens_per_s_per_gpu']:.0f} "
            f"| {row['output_tokens_per_s_per_kw']:.0f} | {row['usd_per_million_output_tokens']:.0f} |"
        )
    return {"table": "\n".join(lines)}


def loads_figure(rows: list[dict[str, Any]]) -> Figure:
    """TTFT, TPOT and good requests over the load that each 8 GPUs are offered."""
    figure, axes = panels(1, 3, (10.0, 3.2))
    quantities = (
        ("ttft_p99_s", 1.0, "TTFT p99, s"),
        ("tpot_p99_s", 1e3, "TPOT p99, ms"),
        ("good_fraction", 100.0, "requests within the SLO, %"),
    )
    for axis, (key, factor, label) in zip(axes, quantities, strict=True):
        for index, system in enumerate(("hgx-h200-8", "gb300-nvl72")):
            mine = [row for row in rows if row["system"] == system and row["scale_load"] == "gpus"]
            loads = [row["load_per_s"] for row in mine]
            axis.plot(
                loads, [factor * row[key] for row in mine], marker="o", label=system, **line_style(index)
            )
        axis.set_xlabel("requests/s for each 8 GPUs")
        axis.set_ylabel(label)
    for axis, limit in zip(axes, (2.0, 100.0), strict=False):
        axis.set_yscale("log")
        axis.axhline(limit, color="black", linewidth=0.8, linestyle=":")
        axis.annotate("SLO", (1.0, limit), xytext=(0, 3), textcoords="offset points", fontsize=8)
    axes[2].set_ylim(bottom=0)
    axes[0].legend()
    return figure


def main() -> None:
    """Write everything."""
    found = evaluations(CASES)
    rows = _rows(found)
    (HERE / "numbers.json").write_text(json.dumps(rows, indent=1) + "\n")
    with house_style():
        for name, figure in (("loads", loads_figure(rows)), ("ledger", ledger.draw(found["total", 3.0]))):
            for suffix in (".png", ".svg"):
                save(figure, HERE / "figures" / f"{name}{suffix}")
    page = HERE / "README.md"
    marked = re.compile(r"(<!-- table -->\n).*(\n<!-- end -->)", re.DOTALL)
    page.write_text(marked.sub(lambda match: match[1] + tables(rows)["table"] + match[2], page.read_text()))


if __name__ == "__main__":
    main()
