"""The better of two replicas drawn at random (Mitzenmacher 2001, IEEE TPDS 12(10))."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from simulator.serving.replica import Target
from simulator.streams import Streams


@dataclass(frozen=True)
class PowerOfTwo:
    """Two different replicas drawn at random; the one with fewer unfinished requests."""

    def choices(self, replicas: Sequence[Target], streams: Streams) -> Iterator[Target]:
        """The replica of each request, from the stream ``router``."""
        rng = streams("router")
        while True:
            first = int(rng.integers(len(replicas)))
            if len(replicas) == 1:
                yield replicas[first]
                continue
            second = (first + 1 + int(rng.integers(len(replicas) - 1))) % len(replicas)
            yield min(replicas[first], replicas[second], key=lambda replica: replica.outstanding)
