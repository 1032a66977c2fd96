"""SimPy's environment with events at absolute times."""

from __future__ import annotations

from collections.abc import Callable
from heapq import heappush

from simpy import Environment, Event
from simpy.events import EventPriority

ARRIVAL_PRIORITY = EventPriority(0)
"""An arrival that ties with the end of a step comes before it, so the step's end sees it."""


def replica_priority(index: int) -> EventPriority:
    """Steps of different replicas that end together are handled in order of the replicas."""
    return EventPriority(1 + index)


class Clock(Environment):
    """Simulated time in seconds from 0.

    A boundary of an engine step is one float, whichever way it is reached; ``now + (t - now)`` need
    not be ``t``, so events are put at the time itself.
    """

    handled: tuple[float, int] = (-1.0, 0)
    """Time and priority of the boundary handled last: those of lower priority at that time are past, too."""

    def call_at(self, time_s: float, priority: EventPriority, callback: Callable[[Event], None]) -> Event:
        """Call ``callback`` at ``time_s``, which must not lie in the past."""
        event = Event(self)
        event._ok = True
        event._value = None
        event.callbacks.append(callback)
        heappush(self._queue, (time_s, priority, next(self._eid), event))
        return event
