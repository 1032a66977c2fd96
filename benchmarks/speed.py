"""Speed of the simulation, as ratios within one run.

    python benchmarks/speed.py            # reference trace, about a minute
    python benchmarks/speed.py --million  # and a million requests of azure-conv on nine replicas

Times are CPU-seconds of this process. Bare SimPy is one process per request that waits for three timeouts
(to arrive, to its first token, to its end): what any simulator in SimPy pays for a request at least.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from time import process_time

import simpy
from reference_trace import write

from simulator.catalog import Catalog
from simulator.scenario import Scenario
from simulator.simulation import prepare, run


def timed(work: Callable[[], object]) -> float:
    """CPU-seconds of ``work``; the best of three."""
    best_s = float("inf")
    for _ in range(3):
        start_s = process_time()
        work()
        best_s = min(best_s, process_time() - start_s)
    return best_s


def bare_simpy(requests: int) -> None:
    """Three timeouts per request and nothing else."""
    env = simpy.Environment()

    def request(arrival_s: float) -> Iterator[simpy.Event]:
        yield env.timeout(arrival_s)
        yield env.timeout(1.0)
        yield env.timeout(1.0)

    for index in range(requests):
        env.process(request(index / 3))
    env.run()


MEASURE = """
import resource, subprocess, sys
subprocess.run(sys.argv[1:], check=True, stdout=subprocess.DEVNULL)
usage = resource.getrusage(resource.RUSAGE_CHILDREN)
print(usage.ru_utime + usage.ru_stime, usage.ru_maxrss * 1024)
"""


def whole(arguments: list[str]) -> tuple[float, float]:
    """CPU-seconds and bytes of memory at the peak of a whole Python process; the best of three.

    A small process in between starts it: a child is accounted the memory of the parent it was forked from.
    """
    runs = []
    for _ in range(3):
        command = [sys.executable, "-c", MEASURE, sys.executable, *arguments]
        seconds, nbytes = subprocess.run(command, check=True, capture_output=True, text=True).stdout.split()
        runs.append((float(seconds), float(nbytes)))
    return min(runs)


def scenario(topology: str, workload: dict[str, object], **deployment: object) -> Scenario:
    """llama-3.1-70b in fp8 unless said otherwise."""
    return Scenario.model_validate(
        {"topology": topology, "workload": workload, "deployment": {"weights": "fp8", **deployment}}
    )


def serving(described: Scenario) -> Callable[[], object]:
    """The simulation of a scenario, everything but the traffic looked up beforehand."""
    catalog = Catalog()
    plan = prepare(described, catalog)
    return lambda: run(plan, catalog)


def reference(path: Path, requests: int, rate_per_s: float) -> dict[str, object]:
    """The reference traffic as a trace."""
    write(path, requests, rate_per_s)
    return {"trace": str(path)}


def main() -> None:
    """Print the ratios."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--million", action="store_true", help="a million requests on nine replicas")
    arguments = parser.parse_args()
    rack = "gb300-nvl72"
    with tempfile.TemporaryDirectory() as folder:
        traces = Path(folder)
        calm = reference(traces / "calm.csv", 20_000, 3.0)
        busy = reference(traces / "busy.csv", 20_000, 24.0)
        flood = reference(traces / "flood.csv", 2_000, 24.0)
        one = scenario("hgx-h200-8", calm, tensor_parallel_size=4, replicas=1)
        bare_s = timed(lambda: bare_simpy(20_000))
        calm_s = timed(serving(one))
        step_s = timed(serving(one.model_copy(update={"detail": "step"})))
        flood_s = timed(serving(scenario("hgx-h200-8", flood, tensor_parallel_size=4, replicas=1)))
        out = ["--out", str(traces / "out"), "--force", "--no-plots"]
        flags = ["--weights", "fp8", "--tensor-parallel-size", "4", "--replicas", "1", *out]
        command = [
            "-m",
            "simulator",
            "run",
            "--topology",
            "hgx-h200-8",
            "--trace",
            str(calm["trace"]),
            *flags,
        ]
        command_s, command_bytes = whole(command)
        rack_one_s = timed(serving(scenario(rack, calm, tensor_parallel_size=4, replicas=1)))
        rack_eight_s = timed(serving(scenario(rack, busy, tensor_parallel_size=4, replicas=8)))
    print(f"one TP4 replica, 20,000 requests at 3/s: {20_000 / calm_s:,.0f} requests per CPU-second")
    print(f"  against the step level:   {step_s / calm_s:.1f} times as fast")
    print(f"  against bare SimPy:       {calm_s / bare_s:.2f} times its time")
    print(f"  eight replicas at 24/s:   {rack_eight_s / rack_one_s:.2f} times one at 3/s, both on the rack")
    print(f"  2,000 requests at 24/s:   {10 * flood_s / calm_s:.2f} times per request")
    print(f"the whole command, with requests.csv and result.json: {_show(command_s, command_bytes)}")
    print(f"import simulator: {_show(*whole(['-c', 'import simulator']))}")
    print(f"llmsim --help: {_show(*whole(['-m', 'simulator', '--help']))}")
    if arguments.million:
        rate = ["--num-prompts", "1000000", "--request-rate", "150", "--weights", "fp8"]
        command = ["-m", "simulator", "run", "--topology", rack, "--tensor-parallel-size", "8", *rate]
        print(f"a million requests of azure-conv on nine replicas: {_show(*whole(command))}")


def _show(seconds: float, nbytes: float) -> str:
    return f"{seconds:.2f} CPU-seconds, {nbytes / 1e6:,.0f} MB"


if __name__ == "__main__":
    main()
