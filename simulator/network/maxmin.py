"""Max-min fair rates by progressive filling. Knows no network: only demands and capacities."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from heapq import heapify, heappop, heappushpop
from math import inf
from typing import TypeVar

Resource = TypeVar("Resource", bound=Hashable)


def max_min(
    demands: Sequence[Iterable[tuple[Resource, float]]],
    capacities: Mapping[Resource, float],
    limits: Sequence[float],
) -> tuple[list[float], list[Resource | None]]:
    """The rate of each flow, and the resource that holds it there; None where its own limit does.

    ``demands`` gives what a flow takes of each resource per unit of its rate. The rates of all rise together
    from zero; a flow stays where a resource of it is exhausted or its limit is reached. So every flow has a
    bottleneck on which no flow has a higher rate. A flow without demand and limit runs at an infinite rate.
    (Bertsekas and Gallager, Data Networks, 1992, section 6.5.2.)
    """
    users: dict[Resource, list[int]] = {}
    weights: dict[Resource, float] = {}
    for index, demand in enumerate(demands):
        for resource, amount in demand:
            if resource in users:
                users[resource].append(index)
                weights[resource] += amount
            else:
                users[resource] = [index]
                weights[resource] = amount
    left = {resource: capacities[resource] for resource in users}
    alive = {resource: len(flows) for resource, flows in users.items()}
    # Ties in the heap break by the order in which resources are named.
    order = list(users)
    filling = [(left[resource] / weights[resource], place) for place, resource in enumerate(order)]
    heapify(filling)
    limited = sorted((limit, index) for index, limit in enumerate(limits) if limit < inf)
    limited.reverse()
    rates = [inf] * len(limits)
    bottlenecks: list[Resource | None] = [None] * len(limits)
    frozen = [False] * len(limits)

    def freeze(index: int, rate: float, bottleneck: Resource | None) -> None:
        frozen[index] = True
        rates[index] = rate
        bottlenecks[index] = bottleneck
        for resource, amount in demands[index]:
            left[resource] -= amount * rate
            weights[resource] -= amount
            alive[resource] -= 1

    while filling:
        level, place = filling[0]
        resource = order[place]
        if not alive[resource]:
            heappop(filling)
            continue
        current = max(left[resource], 0.0) / weights[resource] if weights[resource] > 0.0 else inf
        if current > level:
            heappushpop(filling, (current, place))
            if filling[0] != (current, place):
                continue
            level = current
        while limited and (frozen[limited[-1][1]] or limited[-1][0] <= level):
            limit, index = limited.pop()
            if not frozen[index]:
                freeze(index, limit, None)
                break
        else:
            for index in users[resource]:
                if not frozen[index]:
                    freeze(index, level, resource)
    for limit, index in limited:
        if not frozen[index]:
            rates[index] = limit
    return rates, bottlenecks
