"""Writes the reference traffic: Poisson arrivals, lognormal prompts and outputs, clipped.

Prompts have median 820, sigma 0.70, 16 to 3000 tokens; outputs median 185, sigma 0.65, 4 to 900.
The means come out near 1015 and 227.

    python benchmarks/reference_trace.py out/reference.csv --requests 20000 --rate 3
"""

from __future__ import annotations

import argparse
from math import log
from pathlib import Path

import numpy as np


def lengths(
    rng: np.random.Generator, count: int, median: float, sigma: float, low: int, high: int
) -> np.ndarray:
    """Clipped lognormal lengths in tokens."""
    return np.clip(np.rint(rng.lognormal(log(median), sigma, count)), low, high).astype(int)


def write(path: Path, requests: int, rate_per_s: float, seed: int = 0) -> None:
    """A native trace of Poisson arrivals."""
    rng = np.random.default_rng(seed)
    arrivals = np.cumsum(rng.exponential(1 / rate_per_s, requests))
    prompts = lengths(rng, requests, 820, 0.70, 16, 3000)
    outputs = lengths(rng, requests, 185, 0.65, 4, 900)
    path.parent.mkdir(parents=True, exist_ok=True)
    rows = zip(arrivals.tolist(), prompts.tolist(), outputs.tolist(), strict=True)
    lines = [f"{time_s:.6f},{prompt},{output}\n" for time_s, prompt, output in rows]
    path.write_text("arrival_s,input_tokens,output_tokens\n" + "".join(lines))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("path", type=Path)
    parser.add_argument("--requests", type=int, default=20_000)
    parser.add_argument("--rate", type=float, default=3.0)
    arguments = parser.parse_args()
    write(arguments.path, arguments.requests, arguments.rate)
