"""Which links requests wait for, for which traffic, and how long."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass

from simulator.metrics.links import Requests
from simulator.record import CAUSES, Edge, Floats
from simulator.report.evaluation import Evaluation
from simulator.report.link_names import both_ends, sort_of
from simulator.report.messages import KV

_NAMED = 3
"""Culprits in sentences."""

_WORTH_SAYING = 0.5
"""Percent, rounded to one."""


@dataclass(frozen=True)
class Culprit:
    """Links of one class that requests spend seconds on, for one kind of traffic."""

    name: str
    """Their class, their ends, and how many directions of links they are, all equally tight."""
    traffic: str
    latency_s: Requests
    bandwidth_s: Requests
    sharing_s: Requests
    """Lost to others on these links."""

    @property
    def seconds(self) -> Requests:
        """All of them."""
        return _plus(_plus(self.latency_s, self.bandwidth_s), self.sharing_s)


_Key = tuple[str, str, str, int | None]
"""Title and ends of the link, kind of traffic, what messages it carries."""


class _Seconds:
    """What goes to the links of one culprit."""

    def __init__(self) -> None:
        self.edges: dict[Edge, None] = {}
        self.latency_s = self.bandwidth_s = self.sharing_s = Requests(0.0, 0.0)

    def culprit(self, key: _Key) -> Culprit:
        title = f"{key[0]} {both_ends(list(self.edges))}"
        return Culprit(title, key[2], self.latency_s, self.bandwidth_s, self.sharing_s)


def culprits(evaluation: Evaluation) -> list[Culprit]:
    """Whom the network's seconds of the mean and the p99 request go to, the largest first.

    Links that are alike, on which all the same depends, are one. The seconds sum to those of the ledger. What
    was lost to others is split as the queueing of all requests together.
    """
    topology = evaluation.result.plan.topology
    found: dict[_Key, _Seconds] = defaultdict(_Seconds)
    keys: dict[tuple[Edge, str], _Key] = {}
    for one in evaluation.blames:
        share = 1.0 / len(one.bottlenecks)
        for edge in one.bottlenecks:
            key = *sort_of(topology, edge), one.traffic, one.alike
            keys.setdefault((edge, one.traffic), key)
            mine = found[key]
            mine.edges[edge] = None
            mine.latency_s = _plus(mine.latency_s, one.latency_s, share)
            mine.bandwidth_s = _plus(mine.bandwidth_s, one.bandwidth_s, share)
            mine.sharing_s = _plus(mine.sharing_s, one.lost_s, share)
    lost_s = _of_both(evaluation, lambda causes_s: causes_s[CAUSES.index("link_sharing")])
    of_steps = {key: seconds for key, seconds in evaluation.links.queueing_s.items() if key[1] != KV}
    total_s = sum(of_steps.values())
    for (edge, traffic), seconds in of_steps.items():
        mine = found[keys.get((edge, traffic), (*sort_of(topology, edge), traffic, None))]
        mine.edges[edge] = None
        mine.sharing_s = _plus(mine.sharing_s, lost_s, seconds / total_s)
    every = [mine.culprit(key) for key, mine in found.items()]
    return sorted(every, key=lambda culprit: (-culprit.seconds.mean, -culprit.seconds.p99))


def link_sentences(evaluation: Evaluation) -> list[str]:
    """Which links requests wait for, which traffic, and how many seconds."""
    if evaluation.summary.e2e is None:
        return []
    found = [culprit for culprit in culprits(evaluation) if any(culprit.seconds)]
    if not found:
        return [f"No link holds a request back on {evaluation.name}: nothing travels between GPUs."]
    totals = _of_both(evaluation, lambda causes_s: causes_s.sum())
    lines = [_sentence(culprit, totals) for culprit in found[:_NAMED]]
    return [f"Links of {evaluation.name} that requests wait for:", *lines, _busiest(evaluation)]


def _sentence(culprit: Culprit, totals: Requests) -> str:
    seconds = culprit.seconds
    parts = ", ".join(
        f"{value:.3g} s of the {which} request ({100.0 * value / total:.2g} %)"
        for which, value, total in zip(("mean", "p99"), seconds, totals, strict=True)
    )
    fixed, lost = (100.0 * sum(part) / sum(seconds) for part in (culprit.latency_s, culprit.sharing_s))
    behind = f", {lost:.0f} % behind others" if lost >= _WORTH_SAYING else ""
    return f"  {culprit.name}: {culprit.traffic}, {parts}; {fixed:.0f} % of it fixed time{behind}"


def _busiest(evaluation: Evaluation) -> str:
    found, topology = evaluation.links, evaluation.result.plan.topology
    use = max(found.uses, key=found.mean)
    sort = sort_of(topology, use.edges[0])
    alike = [edge for edge in use.edges if sort_of(topology, edge) == sort]
    return (
        f"  Busiest: {sort[0]} {both_ends(alike)}, "
        f"{100.0 * found.mean(use):.2g} % of its bandwidth on average, "
        f"{100.0 * found.peak(use):.2g} % at the peak"
    )


def _of_both(evaluation: Evaluation, pick: Callable[[Floats], float]) -> Requests:
    """A figure of the causes of the mean and of the p99 request."""
    ledger = evaluation.ledger
    return Requests(float(pick(ledger.mean_s())), float(pick(ledger.at_percentile_s(99.0))))


def _plus(one: Requests, other: Requests, share: float = 1.0) -> Requests:
    return Requests(one.mean + share * other.mean, one.p99 + share * other.p99)
