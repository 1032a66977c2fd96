"""Each replica in turn."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import count

from simulator.serving.replica import Target
from simulator.streams import Streams


@dataclass(frozen=True)
class RoundRobin:
    """Each replica in turn, whatever its load."""

    def choices(self, replicas: Sequence[Target], streams: Streams) -> Iterator[Target]:
        """The replica of each request, in order of arrival."""
        for turn in count():
            yield replicas[turn % len(replicas)]
