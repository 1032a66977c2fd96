"""The ledger in words: where the time goes, and where a difference comes from."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from simulator.record import CAUSES, Floats
from simulator.report.evaluation import Evaluation

CAUSE_TITLES = {
    "queue": "queue",
    "lost": "lost by failures",
    "preempted": "waiting after evictions",
    "recompute": "recomputing after evictions",
    "kv_wait": "waiting for KV blocks to decode in",
    "kv_transfer": "KV transfer",
    "host": "host",
    "launch": "kernel launch",
    "weights": "weights from HBM",
    "kv": "KV cache from HBM",
    "activations": "activations",
    "compute": "GEMM arithmetic",
    "attention": "prompt attention",
    "allreduce_latency": "all-reduce latency",
    "allreduce_bandwidth": "all-reduce bandwidth",
    "pipeline_send": "pipeline sends",
    "pipeline_bubble": "pipeline bubbles",
    "device_sharing": "sharing devices",
    "link_sharing": "sharing links",
}

_MENTIONED = 4
_WORTH_MENTIONING = 0.03


def differences(evaluations: Sequence[Evaluation]) -> list[str]:
    """Of one system where its time goes; of several where each differs from the first."""
    first, *others = evaluations
    if first.summary.e2e is None:
        return []
    if not others:
        return [
            _composition(first, "mean", first.ledger.mean_s()),
            _composition(first, "p99", first.ledger.at_percentile_s(99.0)),
        ]
    found = []
    for other in others:
        if other.summary.e2e is None:
            continue
        found.append(_difference("mean", first, first.ledger.mean_s(), other, other.ledger.mean_s()))
        tails = (one.ledger.at_percentile_s(99.0) for one in (first, other))
        found.append(_difference("p99", first, next(tails), other, next(tails)))
    return found


def _composition(evaluation: Evaluation, which: str, causes_s: Floats) -> str:
    total_s = float(causes_s.sum())
    parts = [
        f"{CAUSE_TITLES[CAUSES[index]]} {100.0 * causes_s[index] / total_s:.0f} %"
        for index in _largest(causes_s, total_s)
    ]
    return f"The {which} request takes {total_s:.3g} s on {evaluation.name}: {', '.join(parts)}."


def _difference(which: str, first: Evaluation, first_s: Floats, other: Evaluation, other_s: Floats) -> str:
    before_s, after_s = float(first_s.sum()), float(other_s.sum())
    change_s = other_s - first_s
    if not np.abs(change_s).max() > 0.0:
        return f"The {which} request takes {after_s:.3g} s on both {other.name} and {first.name}."
    word = "less" if after_s <= before_s else "more"
    parts = [
        f"{CAUSE_TITLES[CAUSES[index]]} {change_s[index]:+.3g} s"
        for index in _largest(np.abs(change_s), np.abs(change_s).sum())
    ]
    return (
        f"The {which} request takes {after_s:.3g} s on {other.name} and {before_s:.3g} s on {first.name}, "
        f"{abs(after_s - before_s):.3g} s {word}: {', '.join(parts)}."
    )


def _largest(sizes_s: Floats, total_s: float) -> list[int]:
    """The few largest causes, those that are worth a word."""
    order = np.argsort(-sizes_s, kind="stable")[:_MENTIONED].tolist()
    return [index for index in order if sizes_s[index] > _WORTH_MENTIONING * total_s]
