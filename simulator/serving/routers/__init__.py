"""Routers: which replica takes the next request. A new router is one file and one name in ROUTERS."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Protocol

from simulator.serving.replica import Target
from simulator.serving.routers.least_kv import LeastKv
from simulator.serving.routers.least_outstanding import LeastOutstanding
from simulator.serving.routers.power_of_two import PowerOfTwo
from simulator.serving.routers.random import Random
from simulator.serving.routers.round_robin import RoundRobin
from simulator.streams import Streams


class Router(Protocol):
    """Decides which replica takes the next request."""

    def choices(self, replicas: Sequence[Target], streams: Streams) -> Iterator[Target]:
        """The replica of each request, taken when it arrives; ``replicas`` are those that are up then."""


ROUTERS: dict[str, type[Router]] = {
    "round-robin": RoundRobin,
    "least-outstanding": LeastOutstanding,
    "least-kv": LeastKv,
    "random": Random,
    "power-of-two": PowerOfTwo,
}
