"""A replica drawn at random."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from simulator.serving.replica import Target
from simulator.streams import Streams


@dataclass(frozen=True)
class Random:
    """A replica drawn uniformly."""

    def choices(self, replicas: Sequence[Target], streams: Streams) -> Iterator[Target]:
        """The replica of each request, from the stream ``router``."""
        rng = streams("router")
        while True:
            yield replicas[int(rng.integers(len(replicas)))]
