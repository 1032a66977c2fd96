"""The replica with the fewest unfinished requests."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from simulator.serving.replica import Replica
from simulator.streams import Streams


@dataclass(frozen=True)
class LeastOutstanding:
    """The replica with the fewest unfinished requests; the first of those that tie."""

    def choices(self, replicas: Sequence[Replica], streams: Streams) -> Iterator[Replica]:
        """The replica of each request, looked up when it arrives."""
        while True:
            yield min(replicas, key=_outstanding)


def _outstanding(replica: Replica) -> int:
    return replica.outstanding
