"""Levels of detail against one another: what a step costs layer by layer, and auto against macro.

    python benchmarks/detail.py

CPU time; ratios within one run.
"""

from __future__ import annotations

import time

from simulator.catalog import Catalog
from simulator.scenario import Scenario
from simulator.simulation import Result, simulate


def run(detail: str, requests: int, rate: float, replicas: int | str, model: str) -> tuple[Result, float]:
    """A result on the rack of 72 GPUs, TP 8, and the CPU seconds that it took."""
    scenario = Scenario.model_validate(
        {
            "topology": "gb300-nvl72",
            "model": model,
            "deployment": {"tensor_parallel_size": 8, "replicas": replicas},
            "workload": {"preset": "azure-conv", "num_prompts": requests, "request_rate": rate},
            "detail": detail,
        }
    )
    begun_s = time.process_time()
    result = simulate(scenario, Catalog())
    return result, time.process_time() - begun_s


def steps_of(result: Result) -> float:
    """Engine steps of all replicas."""
    return float(sum(steps[:, 1].sum() for steps in result.record.steps))


def main() -> None:
    """Print the comparison."""
    for detail in ("step", "layer"):
        result, cpu_s = run(detail, 20, 2.0, 2, "llama-3.1-70b")
        steps = steps_of(result)
        print(f"{detail:>6}: {1e3 * cpu_s / steps:.3f} ms per 80-layer step ({steps:.0f} steps)")
    for _ in range(3):
        _, macro_s = run("macro", 60_000, 60.0, "auto", "llama-3.1-405b")
        _, auto_s = run("auto", 60_000, 60.0, "auto", "llama-3.1-405b")
        print(f"  auto: {auto_s / macro_s:.3f} x macro, nine replicas, 60,000 requests")


if __name__ == "__main__":
    main()
