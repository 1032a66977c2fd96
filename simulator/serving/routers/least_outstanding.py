"""The replica with the fewest unfinished requests."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from simulator.serving.replica import Target
from simulator.streams import Streams


@dataclass(frozen=True)
class LeastOutstanding:
    """The replica with the fewest unfinished requests; the first of those that tie."""

    def choices(self, replicas: Sequence[Target], streams: Streams) -> Iterator[Target]:
        """The replica of each request, looked up when it arrives."""
        while True:
            yield min(replicas, key=_outstanding)


def _outstanding(replica: Target) -> int:
    return replica.outstanding
