"""The links of a run and what they carried, as links.csv and in result.json."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from simulator.metrics.links import Links, LinkUse
from simulator.record import Edge
from simulator.report.culprits import culprits
from simulator.report.evaluation import Evaluation
from simulator.report.link_names import short_name, unnumbered
from simulator.topology.builder import NVSWITCH
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
            ends = [unnumbered(node) if kinds[node] == NVSWITCH else node for node in edge]
            parallel[ends[0], ends[1], topology.link(edge).name].append(edge)
        for (*_, link), edges in parallel.items():
            yield Bundle(
                f"{short_name(tail for tail, _ in edges)} -> {short_name(head for _, head in edges)}",
                link,
                tuple(edges),
                use,
            )


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
