"""The links of a run: their names, what they carried, and which of them requests waited for."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from simulator.metrics.links import Links, LinkUse, Requests
from simulator.record import CAUSES, Edge
from simulator.report.evaluation import Evaluation
from simulator.report.messages import KV
from simulator.topology.graph import Topology

LINK_FIELDS = (
    "source",
    "target",
    "link",
    "traffic",
    "bandwidth_bytes_per_s",
    "bytes",
    "utilisation",
    "utilisation_all_traffic",
    "utilisation_peak_all_traffic",
    "queueing_s",
)

_CULPRITS = 3
_WORTH_SAYING = 0.5
"""Percent, rounded to one."""
_FEW = 2
_PLANES = "nvswitch"
_NUMBER = re.compile(r"\d+")


@dataclass(frozen=True)
class Bundle:
    """Parallel links in one direction that carry the same: from a GPU to every switch, for instance."""

    name: str
    link: str
    """The class of link."""
    edges: tuple[Edge, ...]
    use: LinkUse


def bundles(topology: Topology, found: Links) -> Iterator[Bundle]:
    """The links that carried something; those to or from the planes of a switch are one."""
    kinds = topology.graph.nodes(data="kind")
    for use in found.uses:
        parallel: dict[tuple[str, str, str], list[Edge]] = defaultdict(list)
        for edge in use.edges:
            ends = [_NUMBER.sub("*", node) if kinds[node] == _PLANES else node for node in edge]
            parallel[ends[0], ends[1], topology.link(edge).name].append(edge)
        for (*_, link), edges in parallel.items():
            yield Bundle(
                f"{name(tail for tail, _ in edges)} -> {name(head for _, head in edges)}",
                link,
                tuple(edges),
                use,
            )


def name(nodes: Iterable[str]) -> str:
    """Nodes of one kind in short: the numbers that occur at each place."""
    distinct = list(dict.fromkeys(nodes))
    numbers = zip(*(map(int, _NUMBER.findall(node)) for node in distinct), strict=True)
    ranges = iter([_range(sorted(set(found))) for found in numbers])
    return _NUMBER.sub(lambda match: next(ranges), distinct[0])


def _range(numbers: Sequence[int]) -> str:
    first, last = numbers[0], numbers[-1]
    if len(numbers) <= _FEW:
        return ",".join(map(str, numbers))
    return f"{first}-{last}" if last - first + 1 == len(numbers) else "*"


def write_links(evaluation: Evaluation, path: Path) -> None:
    """One line per direction of a link and kind of traffic that it carried or made wait."""
    topology, found = evaluation.result.plan.topology, evaluation.links
    with path.open("w", encoding="utf-8", newline="") as file:
        file.write(",".join(LINK_FIELDS) + "\n")
        for edge, use in found.by_edge.items():
            rate, end_s = use.bandwidth_bytes_per_s, float(found.edges_s[-1])
            both = (found.mean(use), found.peak(use))
            for traffic, nbytes in use.nbytes.items():
                cells = (
                    *edge,
                    topology.link(edge).name,
                    traffic,
                    rate,
                    nbytes,
                    nbytes / (rate * end_s),
                    *both,
                )
                file.write(",".join(map(str, (*cells, found.queueing_s.get((edge, traffic), 0.0)))) + "\n")


def links_object(evaluation: Evaluation) -> dict[str, Any]:
    """``links``, ``link_utilisation`` and ``link_culprits`` of result.json."""
    topology, found = evaluation.result.plan.topology, evaluation.links
    lines = []
    series: dict[int, dict[str, Any]] = {}
    for bundle in bundles(topology, found):
        use = bundle.use
        lines.append(
            {
                "name": bundle.name,
                "link": bundle.link,
                "count": len(bundle.edges),
                "bandwidth_bytes_per_s": use.bandwidth_bytes_per_s,
                "bytes_each": dict(use.nbytes),
                "utilisation_mean": found.mean(use),
                "utilisation_peak": found.peak(use),
                "queueing_s": _queueing_s(found, bundle.edges),
            }
        )
        one = series.setdefault(id(use), {"names": [], "utilisation": _short(found, use)})
        one["names"].append(bundle.name)
    return {
        "links": lines,
        "link_utilisation": {"edges_s": found.edges_s.tolist(), "series": list(series.values())},
        "link_culprits": [
            {
                "name": culprit.name,
                "traffic": culprit.traffic,
                "latency_s": culprit.latency_s._asdict(),
                "bandwidth_s": culprit.bandwidth_s._asdict(),
                "sharing_s": culprit.sharing_s._asdict(),
            }
            for culprit in culprits(evaluation)
        ],
    }


def _short(found: Links, use: LinkUse) -> list[float]:
    """Utilisation over time in six digits."""
    return [float(f"{value:.6g}") for value in found.utilisation(use).tolist()]


def _queueing_s(found: Links, edges: Iterable[Edge]) -> dict[str, float]:
    """By traffic, of all these links together."""
    total: dict[str, float] = defaultdict(float)
    for edge in edges:
        for traffic in found.by_edge[edge].nbytes:
            total[traffic] += found.queueing_s.get((edge, traffic), 0.0)
    return dict(total)


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
        title = f"{key[0]} {_both_ends(list(self.edges))}"
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
            key = *_sort_of(topology, edge), one.traffic, one.alike
            keys.setdefault((edge, one.traffic), key)
            mine = found[key]
            mine.edges[edge] = None
            mine.latency_s = _plus(mine.latency_s, one.latency_s, share)
            mine.bandwidth_s = _plus(mine.bandwidth_s, one.bandwidth_s, share)
            mine.sharing_s = _plus(mine.sharing_s, one.lost_s, share)
    lost_s = Requests(
        *(
            float(causes_s[CAUSES.index("link_sharing")])
            for causes_s in (evaluation.ledger.mean_s(), evaluation.ledger.at_percentile_s(99.0))
        )
    )
    of_steps = {key: seconds for key, seconds in evaluation.links.queueing_s.items() if key[1] != KV}
    for (edge, traffic), seconds in of_steps.items():
        mine = found[keys.get((edge, traffic), (*_sort_of(topology, edge), traffic, None))]
        mine.edges[edge] = None
        mine.sharing_s = _plus(mine.sharing_s, lost_s, seconds / sum(of_steps.values()))
    every = [mine.culprit(key) for key, mine in found.items()]
    return sorted(every, key=lambda culprit: (-culprit.seconds.mean, -culprit.seconds.p99))


def _plus(one: Requests, other: Requests, share: float = 1.0) -> Requests:
    return Requests(one.mean + share * other.mean, one.p99 + share * other.p99)


def _sort_of(topology: Topology, edge: Edge) -> tuple[str, str]:
    """Title of the link, and what its ends are, whichever the direction."""
    ends = sorted(_NUMBER.sub("", node) for node in edge)
    return link_title(topology, edge), " ".join(ends)


def _both_ends(edges: Sequence[Edge]) -> str:
    """Links of one sort in short, in both directions or in each that there is."""
    count = f" (x{len(edges)})" if len(edges) > 1 else ""
    if {edge[::-1] for edge in edges} == set(edges):
        return _ends([tuple(sorted(edge, key=_kind)) for edge in edges], "<->") + count
    directions: dict[tuple[str, str], list[Edge]] = defaultdict(list)
    for tail, head in edges:
        directions[_kind(tail), _kind(head)].append((tail, head))
    return ", ".join(_ends(alike, "->") for alike in directions.values()) + count


def _ends(edges: Sequence[tuple[str, ...]], arrow: str) -> str:
    return f"{name(edge[0] for edge in edges)} {arrow} {name(edge[1] for edge in edges)}"


def _kind(node: str) -> str:
    """What a node is called without its number and its place."""
    return _NUMBER.sub("", node.rpartition(".")[-1])


def link_sentences(evaluation: Evaluation) -> list[str]:
    """Which links requests wait for, which traffic, and how many seconds."""
    if evaluation.summary.e2e is None:
        return []
    found = [culprit for culprit in culprits(evaluation) if any(culprit.seconds)]
    if not found:
        return [f"No link holds a request back on {evaluation.name}: nothing travels between GPUs."]
    totals = Requests(
        float(evaluation.ledger.mean_s().sum()), float(evaluation.ledger.at_percentile_s(99.0).sum())
    )
    lines = [_sentence(evaluation, culprit, totals) for culprit in found[:_CULPRITS]]
    return [f"Links of {evaluation.name} that requests wait for:", *lines, _busiest(evaluation)]


def _sentence(evaluation: Evaluation, culprit: Culprit, totals: Requests) -> str:
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
    sort = _sort_of(topology, use.edges[0])
    alike = [edge for edge in use.edges if _sort_of(topology, edge) == sort]
    return (
        f"  Busiest: {sort[0]} {_both_ends(alike)}, "
        f"{100.0 * found.mean(use):.2g} % of its bandwidth on average, "
        f"{100.0 * found.peak(use):.2g} % at the peak"
    )


def link_title(topology: Topology, edge: Edge) -> str:
    """The class of a link in few words."""
    return topology.link(edge).title.split(",")[0]
