"""Runs the study again: numbers.json, the figures and the tables of the README.

    python reports/interconnect/regenerate.py

``numbers(QUICK)`` is what CI compares with numbers.json.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from itertools import pairwise, product
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from simulator.catalog import Catalog, read_document
from simulator.cost.step import StepCost
from simulator.errors import InputError
from simulator.network.collectives import all_reduce_model
from simulator.record import STEP_CAUSES, STEP_COLUMNS
from simulator.report.evaluation import Evaluation, evaluate
from simulator.report.plots.style import OKABE_ITO, house_style, line_style, panels, save
from simulator.scenario import Scenario
from simulator.simulation import load_topology, prepare, run
from simulator.topology.placement import Listed, Policy, place

Row = dict[str, Any]

HERE = Path(__file__).parent
CATALOG = Catalog()
BASE = read_document(HERE / "scenario.yaml").read(Scenario)
REQUEST_TOKENS = 2000
"""Prompt and output of a request of the study."""

ALONE = {"num_prompts": 3, "max_concurrency": 1}
"""A load of one request at a time."""
PROMPTS = {"num_prompts": 32, "random_output_len": 4}
"""Mostly prompts, few enough to look at every layer."""
LOOP_OF_4 = {
    "num_prompts": 40,
    "max_concurrency": 4,
    "random_input_len": 922,
    "random_output_len": 922,
    "random_range_ratio": 0.11,
}
"""That of InferenceX: lengths uniform in 0.8 to 1.0 of 1024."""

SYSTEMS = {
    "hgx-h100-8": "H100, NVSwitch",
    "hgx-h200-8": "H200, NVSwitch",
    "hgx-b200-8": "B200, NVSwitch",
    "h200-nvl-8": "H200 NVL, bridged quads",
    "h100-pcie-8": "H100 PCIe, bridged pairs",
    "rtx-pro-6000-8": "RTX PRO 6000, PCIe 5",
    "l40s-8": "L40S, PCIe 4, no peer-to-peer",
}
SIZES = (1, 2, 4, 8)
WORKS: dict[str, Callable[[StepCost], Row]] = {
    "decode, 1 request": lambda cost: {"steps": 1, "decodes": 1, "kv_tokens": 1024},
    "decode, 64 requests": lambda cost: {"steps": 1, "decodes": 64, "kv_tokens": 64 * 1024},
    "prefill, 2048 tokens": lambda cost: {
        "steps": 1,
        "chunk_tokens": 2048,
        "chunks": 1,
        "completions": 1,
        "attention_s": cost.attention_s(2048, 0),
    },
}
"""Steps that are looked at by themselves: requests with 1024 tokens in the cache, and a prompt."""
SPLITS = ((8, 1, 1), (4, 2, 1), (2, 4, 1), (1, 8, 1), (4, 1, 2), (2, 1, 4), (1, 1, 8))
"""Ways to use eight GPUs: ranks of a stage, stages, replicas."""

SHARES = {
    "all-reduce": ("allreduce_latency", "allreduce_bandwidth"),
    "arithmetic": ("compute", "attention"),
    "HBM": ("weights", "kv", "activations"),
    "fixed": ("launch",),
    "host": ("host",),
    "stages": ("pipeline_bubble", "pipeline_send"),
}
"""What the time in steps goes to; ``fixed`` times are those of kernels, ``stages`` are waited for."""
SHARES_HEAD = " | ".join(f"{name}, %" for name in SHARES)
SPLIT_HEAD = (
    "system | TP x PP x replicas | alone: TTFT, ms | TPOT, ms | all-reduce, %"
    " | all at once: tokens/s | TPOT, ms | all-reduce, %"
)
MARKERS = "osD^v*X"


@dataclass(frozen=True)
class Steps:
    """Steps on 1 to 8 GPUs of a system, by their cost alone."""

    system: str

    def rows(self) -> Iterator[Row]:
        """Seconds, share of the all-reduces, and how much of ``tp`` times the speed of one GPU is left."""
        for work, step in WORKS.items():
            one_s, _ = seconds_and_all_reduce(_step_cost(self.system, 1), step)
            for tp in SIZES:
                seconds, all_reduce_s = seconds_and_all_reduce(_step_cost(self.system, tp), step)
                yield {
                    "part": "steps",
                    "system": self.system,
                    "work": work,
                    "tp": tp,
                    "fits": _fits(self.system, tp),
                    "seconds": seconds,
                    "efficiency": one_s / (tp * seconds),
                    "all_reduce_share": all_reduce_s / seconds,
                }


@dataclass(frozen=True)
class Split:
    """A way to use the GPUs of a system, served one request at a time and all at once."""

    part: str
    system: str
    tp: int
    pp: int
    replicas: int
    nodes: int = 1
    placement: Policy | Listed = "packed"

    def rows(self) -> Iterator[Row]:
        """Latency at the low load, throughput at the high one; none where the model does not fit."""
        shape: Row = {
            "tensor_parallel_size": self.tp,
            "pipeline_parallel_size": self.pp,
            "replicas": self.replicas,
            "placement": self.placement,
        }
        try:
            low = serve(scenario(self.system, self.nodes, ALONE, shape))
        except InputError:
            return
        high = serve(to_the_end(scenario(self.system, self.nodes, {}, shape)))
        yield {
            "part": self.part,
            "system": self.system,
            "tp": self.tp,
            "pp": self.pp,
            "replicas": self.replicas,
            "nodes": self.nodes,
            "placed": "packed" if self.placement == "packed" else "over nodes",
            "low_ttft_s": low.summary.ttft.mean,
            "low_tpot_s": low.summary.tpot.mean,
            "low_all_reduce_share": shares(low)["all-reduce"],
            "high_tokens_per_s": high.summary.output_throughput,
            "high_tpot_s": high.summary.tpot.mean,
            "high_all_reduce_share": shares(high)["all-reduce"],
        }


@dataclass(frozen=True)
class Sharing:
    """Prompts on replicas and stages that share links."""

    system: str
    tp: int
    pp: int
    replicas: int

    def rows(self) -> Iterator[Row]:
        """Seconds of all of them, as if each group were alone, and as it is."""
        shape = {
            "tensor_parallel_size": self.tp,
            "pipeline_parallel_size": self.pp,
            "replicas": self.replicas,
        }
        one = scenario(self.system, 1, PROMPTS, shape)
        alone, shared = (
            serve(one.model_copy(update={"detail": detail})).result.record.end_s
            for detail in ("step", "layer")
        )
        yield {
            "part": "sharing",
            "system": self.system,
            "tp": self.tp,
            "pp": self.pp,
            "replicas": self.replicas,
            "alone_s": alone,
            "shared_s": shared,
        }


@dataclass(frozen=True)
class Throughput:
    """A published throughput of requests that are all there at once."""

    system: str
    source: str
    weights: str
    kv: str
    tp: int
    pp: int
    published: float

    def rows(self) -> Iterator[Row]:
        """What is simulated beside it, and where the time of the engine goes."""
        shape = {
            "weights": self.weights,
            "kv_cache_dtype": self.kv,
            "tensor_parallel_size": self.tp,
            "pipeline_parallel_size": self.pp,
            "gpu_memory_utilization": 0.95,
        }
        whole = to_the_end(scenario(self.system, 1, {}, shape))
        found = serve(whole)
        yield {
            "part": "throughput",
            "system": self.system,
            "engine": self.source,
            "weights": self.weights,
            "tp": self.tp,
            "pp": self.pp,
            "batch": whole.deployment.max_num_seqs,
            "published": float(self.published),
            "simulated": found.summary.output_throughput,
            "error": found.summary.output_throughput / self.published - 1,
            "shares": shares(found),
        }


@dataclass(frozen=True)
class Tpot:
    """A published TPOT at low load."""

    system: str
    engine: str
    tp: int
    published_ms: float

    def rows(self) -> Iterator[Row]:
        """What is simulated beside it."""
        found = serve(scenario(self.system, 1, LOOP_OF_4, {"tensor_parallel_size": self.tp}))
        simulated_ms = 1e3 * found.summary.tpot.mean
        yield {
            "part": "tpot",
            "system": self.system,
            "engine": self.engine,
            "tp": self.tp,
            "published_ms": float(self.published_ms),
            "simulated_ms": simulated_ms,
            "error": simulated_ms / self.published_ms - 1,
            "shares": shares(found),
        }


Case = Steps | Split | Sharing | Throughput | Tpot


def scenario(system: str, nodes: int, load: Row, shape: Row) -> Scenario:
    """The scenario of the study on a system, with another load and another deployment."""
    own = HERE / f"{system}.yaml"
    return BASE.model_copy(
        update={
            "topology": str(own) if own.is_file() else system,
            "nodes": nodes,
            "workload": BASE.workload.model_copy(update=load),
            "deployment": BASE.deployment.model_copy(update=shape),
        }
    )


def to_the_end(one: Scenario) -> Scenario:
    """The scenario with no more requests in the batch than the cache holds to their end: none is evicted."""
    (pool,) = prepare(one, CATALOG).pools
    held = pool.memory.num_blocks // -(-REQUEST_TOKENS // pool.memory.block_size)
    seats = min(held, pool.limits.max_num_seqs)
    return one.model_copy(update={"deployment": one.deployment.model_copy(update={"max_num_seqs": seats})})


def serve(one: Scenario) -> Evaluation:
    """The scenario, run and evaluated."""
    return evaluate([run(prepare(one, CATALOG), CATALOG)])[0]


def shares(found: Evaluation) -> dict[str, float]:
    """What the time in steps went to."""
    seconds = dict(zip(STEP_CAUSES, found.ledger.by_replica.sum(axis=0), strict=True))
    whole_s = sum(seconds.values())
    return {name: float(sum(seconds[cause] for cause in causes) / whole_s) for name, causes in SHARES.items()}


@cache
def _step_cost(system: str, tp: int) -> StepCost:
    """Of the first ``tp`` GPUs, whether the model fits on them or not."""
    topology = load_topology(system, CATALOG)
    (ranks,) = place(topology, "packed", [tp])
    device = topology.device(ranks[0])
    group = all_reduce_model(topology, ranks)
    return StepCost(
        CATALOG.model(BASE.model),
        BASE.deployment.weights,
        "bf16",
        tp,
        device,
        CATALOG.family(device.family),
        CATALOG.engine(BASE.deployment.engine),
        lambda nbytes: group.cost(nbytes)[1:],
        topology.system.host_slowdown.value,
    )


def seconds_and_all_reduce(cost: StepCost, step: Callable[[StepCost], Row]) -> tuple[float, float]:
    """Seconds of a step, and those of its all-reduces."""
    row = np.zeros((1, len(STEP_COLUMNS)))
    for name, value in step(cost).items():
        row[0, STEP_COLUMNS.index(name)] = value
    seconds = dict(zip(STEP_CAUSES, cost.breakdown(row)[0].tolist(), strict=True))
    return sum(seconds.values()), seconds["allreduce_latency"] + seconds["allreduce_bandwidth"]


def _fits(system: str, tp: int) -> bool:
    try:
        prepare(scenario(system, 1, {}, {"tensor_parallel_size": tp}), CATALOG)
    except InputError:
        return False
    return True


def _published() -> Iterator[Case]:
    document = read_document(HERE / "published.yaml").data
    for entry in document["throughput"]:
        for kind in ("tp", "pp"):
            for size, tokens_per_s in entry.get(kind, {}).items():
                sizes = {"tp": 1, "pp": 1} | {kind: int(size)}
                yield Throughput(
                    entry["system"],
                    entry["source"],
                    entry["weights"],
                    entry["kv"],
                    **sizes,
                    published=tokens_per_s,
                )
    for entry in document["tpot"]:
        for tp, ms in entry["tp"].items():
            yield Tpot(entry["system"], entry["engine"], int(tp), ms)


HALVES: Listed = ((0, 1, 2, 3, 8, 9, 10, 11),)
"""Four GPUs of the first box of eight, and four of the second."""
TWO_BOXES = (
    Split("nodes", "hgx-h200-8", 8, 1, 1),
    Split("nodes", "hgx-h200-8", 8, 1, 1, 2, HALVES),
    Split("nodes", "hgx-h200-8", 4, 2, 1, 2, HALVES),
    Split("nodes", "hgx-h200-8", 16, 1, 1, 2),
    Split("nodes", "hgx-h200-8", 8, 2, 1, 2),
    Split("nodes", "hgx-h200-8", 8, 1, 2, 2),
)
SPLIT_SYSTEMS = ("hgx-h200-8", "hgx-b200-8", "h200-nvl-8", "h100-pcie-8", "rtx-pro-6000-8", "l40s-8")
CASES: tuple[Case, ...] = (
    *(Steps(system) for system in SYSTEMS),
    *(Split("splits", system, *split) for system in SPLIT_SYSTEMS for split in SPLITS),
    *TWO_BOXES,
    *(
        Sharing(system, *split)
        for system in ("rtx-pro-6000-8", "l40s-8")
        for split in ((1, 8, 1), (2, 4, 1), (2, 1, 4), (4, 1, 2))
    ),
    *_published(),
)
QUICK = tuple(case for case in CASES if not isinstance(case, Split | Throughput) or case.pp == 1)
"""All but the long runs of pipelines, whose every step is an event."""


def numbers(cases: Iterable[Case]) -> list[Row]:
    """The figures that the README quotes, case by case."""
    return [row for case in cases for row in case.rows()]


def part(rows: list[Row], name: str) -> list[Row]:
    """The rows of one part of the study."""
    return [row for row in rows if row["part"] == name]


def tables(rows: list[Row]) -> dict[str, str]:
    """The tables of the README."""
    throughput = part(rows, "throughput")
    return {
        "steps": _table(
            f"system | TP | {' | '.join(f'{work}: ms; efficiency; all-reduce' for work in WORKS)}",
            _step_lines(part(rows, "steps")),
        ),
        "splits": _table(SPLIT_HEAD, map(_split_line, part(rows, "splits"))),
        "nodes": _table(SPLIT_HEAD, map(_split_line, part(rows, "nodes"))),
        "sharing": _table(
            "system | TP x PP x replicas | alone, s | shared, s | longer by",
            (
                f"{row['system']} | {_split(row)} | {row['alone_s']:.2f} | {row['shared_s']:.2f}"
                f" | {round(100 * (row['shared_s'] / row['alone_s'] - 1)) + 0} %"
                for row in part(rows, "sharing")
            ),
        ),
        "throughput": _table(
            f"system | engine | TP x PP | batch | published | simulated | error | {SHARES_HEAD}",
            (
                f"{row['system']} | {row['engine']} | {row['tp']} x {row['pp']} | {row['batch']}"
                f" | {row['published']:,.0f} | {row['simulated']:,.0f} | {_error(row)} | {_shares(row)}"
                for row in throughput
            ),
        ),
        "scaling": _table(
            "system | GPUs | published | simulated",
            (
                f"{row['system']} | {_gpus(before)} to {_gpus(row)}{', PP' if row['pp'] > 1 else ''}"
                f" | {row['published'] / before['published']:.2f}"
                f" | {row['simulated'] / before['simulated']:.2f}"
                for before, row in pairwise(throughput)
                if before["system"] == row["system"]
            ),
        ),
        "tpot": _table(
            f"system | engine | TP | published, ms | simulated, ms | error | {SHARES_HEAD}",
            (
                f"{row['system']} | {row['engine']} | {row['tp']} | {row['published_ms']:.2f}"
                f" | {row['simulated_ms']:.2f} | {_error(row)} | {_shares(row)}"
                for row in part(rows, "tpot")
            ),
        ),
    }


def _table(head: str, lines: Iterable[str]) -> str:
    """Markdown, of lines whose cells are parted by bars; all but the first column to the right."""
    rule = "---" + " | ---:" * head.count(" | ")
    return "\n".join(f"| {line} |" for line in (head, rule, *lines))


def _step_lines(rows: list[Row]) -> Iterator[str]:
    for system, tp in product(SYSTEMS, SIZES):
        mine = [row for row in rows if (row["system"], row["tp"]) == (system, tp)]
        cells = (
            f"{1e3 * row['seconds']:.1f}; {100 * row['efficiency']:.0f} %;"
            f" {100 * row['all_reduce_share']:.0f} %"
            for row in mine
        )
        yield f"{system} | {tp if mine[0]['fits'] else f'({tp})'} | {' | '.join(cells)}"


def _split_line(row: Row) -> str:
    system = row["system"] if row["nodes"] == 1 else f"{row['nodes']} x {row['system']}"
    placed = "" if row["placed"] == "packed" else ", half in each box"
    return (
        f"{system} | {_split(row)}{placed} | {1e3 * row['low_ttft_s']:.0f} | {1e3 * row['low_tpot_s']:.1f}"
        f" | {100 * row['low_all_reduce_share']:.0f} | {row['high_tokens_per_s']:,.0f}"
        f" | {1e3 * row['high_tpot_s']:.0f} | {100 * row['high_all_reduce_share']:.0f}"
    )


def _split(row: Row) -> str:
    return f"{row['tp']} x {row['pp']} x {row['replicas']}"


def _error(row: Row) -> str:
    return f"{100 * row['error']:+.0f} %"


def _shares(row: Row) -> str:
    return " | ".join(f"{100 * row['shares'][name]:.0f}" for name in SHARES)


def _gpus(row: Row) -> int:
    return int(row["tp"] * row["pp"])


def scaling_figure(rows: list[Row]) -> Figure:
    """Efficiency, and share of the all-reduces, over the GPUs of a TP group."""
    figure, axes = panels(2, 3, (10.5, 6.4))
    for column, work in enumerate(WORKS):
        above, below = axes[column], axes[3 + column]
        above.set_title(work)
        above.plot(SIZES, [100 / size for size in SIZES], color="#999999", linewidth=0.9)
        for index, system in enumerate(SYSTEMS):
            mine = [row for row in rows if (row["system"], row["work"]) == (system, work)]
            for axis, key in ((above, "efficiency"), (below, "all_reduce_share")):
                axis.plot(
                    [row["tp"] for row in mine],
                    [100 * row[key] for row in mine],
                    marker=MARKERS[index],
                    label=SYSTEMS[system],
                    **line_style(index),
                )
        for axis in (above, below):
            axis.set_xscale("log", base=2)
            axis.set_xticks(SIZES, [str(size) for size in SIZES])
            axis.set_ylim(0, 105)
        below.set_xlabel("GPUs of the TP group")
    axes[0].annotate("no faster than one GPU", (1.1, 18), fontsize=8, color="#666666")
    axes[0].set_ylabel("scaling efficiency, %")
    axes[3].set_ylabel("step in all-reduces, %")
    figure.legend(*axes[0].get_legend_handles_labels(), loc="outside upper center", ncols=4)
    return figure


def splits_figure(rows: list[Row]) -> Figure:
    """Each way to use eight GPUs: time per token alone, and throughput of all at once."""
    figure, axes = panels(1, 2, (10.5, 5.4))
    quantities = (
        ("low_tpot_s", 1e3, "one request at a time: ms per output token", (5, 10, 20, 50, 100)),
        (
            "high_tokens_per_s",
            1.0,
            "all at once: output tokens/s of eight GPUs",
            (500, 1000, 2000, 5000, 10000, 20000),
        ),
    )
    for axis, (key, factor, label, ticks) in zip(axes, quantities, strict=True):
        for index, (tp, pp, replicas) in enumerate(SPLITS):
            mine = [row for row in rows if (row["tp"], row["pp"], row["replicas"]) == (tp, pp, replicas)]
            axis.scatter(
                [factor * row[key] for row in mine],
                [SPLIT_SYSTEMS.index(row["system"]) + 0.11 * (index - 3) for row in mine],
                marker=MARKERS[index],
                color=OKABE_ITO[index],
                s=45,
                label=_split_title(tp, pp, replicas),
            )
        for line in range(1, len(SPLIT_SYSTEMS)):
            axis.axhline(line - 0.5, color="#bbbbbb", linewidth=0.6)
        axis.set_xscale("log")
        axis.set_xticks(ticks, [f"{tick:,}" for tick in ticks])
        axis.set_xticks([], minor=True)
        axis.set_xlabel(label)
        axis.set_yticks(range(len(SPLIT_SYSTEMS)), [SYSTEMS[system] for system in SPLIT_SYSTEMS])
        axis.set_ylim(len(SPLIT_SYSTEMS) - 0.5, -0.5)
        axis.grid(axis="y", visible=False)
    axes[1].set_yticklabels([])
    figure.legend(*axes[0].get_legend_handles_labels(), loc="outside upper center", ncols=4)
    return figure


def _split_title(tp: int, pp: int, replicas: int) -> str:
    if replicas > 1:
        return f"{replicas} replicas of TP {tp}" if tp > 1 else f"{replicas} replicas of one GPU"
    return " x ".join(f"{name} {size}" for name, size in (("TP", tp), ("PP", pp)) if size > 1)


def errors_figure(rows: list[Row]) -> Figure:
    """How much faster or slower than published, for each number of GPUs."""
    figure, (axis,) = panels(1, 1, (9.5, 6.0))
    faster = [
        (f"{row['system']}, tokens/s, {row['engine']}", _gpus(row), row["error"])
        for row in part(rows, "throughput")
    ] + [
        (f"{row['system']}, TPOT, {row['engine']}", row["tp"], row["published_ms"] / row["simulated_ms"] - 1)
        for row in part(rows, "tpot")
    ]
    titles = list(dict.fromkeys(title for title, _, _ in faster))
    for index, gpus in enumerate(SIZES):
        mine = [(titles.index(title), 100 * error) for title, count, error in faster if count == gpus]
        axis.scatter(
            [percent for _, percent in mine],
            [line + 0.2 * (index - 1.5) for line, _ in mine],
            marker=MARKERS[index],
            color=OKABE_ITO[index],
            s=45,
            label=f"{gpus} GPU" + "s" * (gpus > 1),
        )
    for line in range(1, len(titles)):
        axis.axhline(line - 0.5, color="#bbbbbb", linewidth=0.6)
    axis.axvline(0, color="black", linewidth=0.8)
    axis.set_yticks(range(len(titles)), titles)
    axis.set_ylim(len(titles) - 0.5, -0.5)
    axis.grid(axis="y", visible=False)
    axis.set_xlabel(
        "slower                    simulated against published speed, %                    faster"
    )
    figure.legend(*axis.get_legend_handles_labels(), loc="outside upper center", ncols=4)
    return figure


def main() -> None:
    """Write everything."""
    rows = numbers(CASES)
    (HERE / "numbers.json").write_text(json.dumps(rows, indent=1) + "\n")
    with house_style():
        figures = {
            "scaling": scaling_figure(part(rows, "steps")),
            "splits": splits_figure(part(rows, "splits")),
            "errors": errors_figure(rows),
        }
        for name, figure in figures.items():
            for suffix in (".png", ".svg"):
                save(figure, HERE / "figures" / f"{name}{suffix}")
    page = HERE / "README.md"
    text = page.read_text()
    for name, table in tables(rows).items():
        marked = re.compile(rf"(<!-- {name} -->\n).*?(\n<!-- end -->)", re.DOTALL)
        text = marked.sub(lambda match, table=table: match[1] + table + match[2], text)
    page.write_text(text)


if __name__ == "__main__":
    main()
