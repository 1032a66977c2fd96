"""Routers: which replica takes the next request. A new router is one file and one name in this union."""

from __future__ import annotations

from simulator.serving.routers.least_kv import LeastKv
from simulator.serving.routers.least_outstanding import LeastOutstanding
from simulator.serving.routers.power_of_two import PowerOfTwo
from simulator.serving.routers.random import Random
from simulator.serving.routers.round_robin import RoundRobin

Router = RoundRobin | LeastOutstanding | LeastKv | Random | PowerOfTwo

ROUTERS: dict[str, type[Router]] = {
    "round-robin": RoundRobin,
    "least-outstanding": LeastOutstanding,
    "least-kv": LeastKv,
    "random": Random,
    "power-of-two": PowerOfTwo,
}
