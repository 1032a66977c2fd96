"""Flows that share resources, twice more: in small steps of time, and in exact fractions.

Both ask every resource again for every rate, from scratch. Slow and obvious; kept as references.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from fractions import Fraction
from math import inf
from typing import TypeVar

from tests.flows import Flows

Number = TypeVar("Number", float, Fraction)

TICK_S = 1 / 2048


def fair_rates(jobs: Iterable[int], flows: Flows, number: type[Number]) -> dict[int, Number]:
    """All rates rise together; a job stays where a resource of it is full or where its limit is."""
    rising = list(jobs)
    nothing = number(0)
    rates = dict.fromkeys(rising, nothing)
    left = {name: number(capacity) for name, capacity in flows.capacities.items()}
    while rising:
        demand = dict.fromkeys(left, nothing)
        for index in rising:
            for name, amount in flows.jobs[index].demands:
                demand[name] += number(amount)
        full_after = {name: left[name] / demand[name] for name in left if demand[name]}
        limits = {index: flows.jobs[index].limit for index in rising}
        limit_after = {index: number(limit) - rates[index] for index, limit in limits.items() if limit < inf}
        growth = min([*full_after.values(), *limit_after.values()])
        full = {name for name, after in full_after.items() if after <= growth}
        for index in rising:
            rates[index] += growth
        for name in full_after:
            left[name] = nothing if name in full else left[name] - growth * demand[name]
        rising = [
            index
            for index in rising
            if limit_after.get(index, inf) > growth and not full.intersection(dict(flows.jobs[index].demands))
        ]
    return rates


def ends_in_small_steps(flows: Flows) -> list[float]:
    """When each job ends; rates are those of the jobs that run at the beginning of a tick."""
    left = {index: job.work for index, job in enumerate(flows.jobs)}
    ends_s = [0.0] * len(flows.jobs)
    known: dict[tuple[int, ...], Mapping[int, float]] = {}
    tick = 0
    while left:
        now_s = tick * TICK_S
        running = tuple(index for index in left if flows.jobs[index].start_s <= now_s)
        if running not in known:
            known[running] = fair_rates(running, flows, float)
        for index, rate in known[running].items():
            if left[index] <= rate * TICK_S:
                ends_s[index] = now_s + left.pop(index) / rate
            else:
                left[index] -= rate * TICK_S
        tick += 1
    return ends_s


def ends_in_fractions(flows: Flows) -> list[Fraction]:
    """When each job ends, exactly: from one start or end to the next."""
    waiting = {index: Fraction(job.start_s) for index, job in enumerate(flows.jobs)}
    left: dict[int, Fraction] = {}
    ends_s = [Fraction(0)] * len(flows.jobs)
    now_s = Fraction(0)
    while waiting or left:
        rates = fair_rates(left, flows, Fraction)
        events_s = [now_s + work / rates[index] for index, work in left.items()] + list(waiting.values())
        next_s = min(events_s)
        for index in list(left):
            left[index] -= rates[index] * (next_s - now_s)
            if not left[index]:
                del left[index]
                ends_s[index] = next_s
        for index, start_s in list(waiting.items()):
            if start_s == next_s:
                left[index] = Fraction(flows.jobs[index].work)
                del waiting[index]
        now_s = next_s
    return ends_s
