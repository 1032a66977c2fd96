"""The replica with the fewest KV blocks in use."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from simulator.serving.replica import Target
from simulator.streams import Streams


@dataclass(frozen=True)
class LeastKv:
    """The replica with the fewest KV blocks in use, then the fewest waiting requests, then the first."""

    def choices(self, replicas: Sequence[Target], streams: Streams) -> Iterator[Target]:
        """The replica of each request, looked up when it arrives."""
        while True:
            yield min(replicas, key=_load)


def _load(replica: Target) -> tuple[int, int]:
    return replica.kv_blocks_used, len(replica.waiting)
