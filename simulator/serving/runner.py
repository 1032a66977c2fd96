"""Runs steps one after another: in one event, or piece by piece where others share the hardware."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from simpy import Event
from simpy.events import EventPriority

from simulator.clock import Clock
from simulator.serving.execution import NO_WAITS, Equipment, Execution, Step, Waits


class Runner(Protocol):
    """One step, or one leap over several, at a time."""

    @property
    def idle(self) -> bool:
        """Whether nothing runs and nothing is about to."""

    def wake(self) -> None:
        """Call the replica back now, when the other events of this instant have had their turn."""

    def run(self, end_s: float) -> None:
        """Run the step; it ends at ``end_s`` if nothing else is in its way."""

    def rest(self) -> None:
        """Nothing follows for now."""

    def abort(self) -> None:
        """What runs is void."""

    def waits(self) -> Waits:
        """What the step that just ended waited for; asked once."""


class StepRunner:
    """One step, or one leap over several, at a time.

    ``on_end`` is called at its end. ``under_way`` gives the step that runs now, whose leap goes no further
    than its end: it is asked for when somebody else gets into its way.
    """

    __slots__ = ("_clock", "_execution", "_on_end", "_pending", "_under_way", "priority", "stepping")

    def __init__(
        self,
        clock: Clock,
        priority: EventPriority,
        on_end: Callable[[], None],
        under_way: Callable[[], Step],
    ) -> None:
        self.stepping = False
        self._clock = clock
        self.priority = priority
        self._on_end = on_end
        self._under_way = under_way
        self._pending: Event | None = None
        self._execution: Execution | None = None

    @property
    def idle(self) -> bool:
        """Whether nothing runs and nothing is about to."""
        return self._pending is None and not self.stepping

    def share(self, execution: Execution) -> None:
        """From now on its steps run on devices and links that others may use."""
        self._execution = execution

    @property
    def equipment(self) -> tuple[Equipment, ...]:
        """Of its steps, where it is on shared devices and links."""
        return () if self._execution is None else (self._execution.equipment,)

    def equip(self, equipment: Equipment) -> None:
        """Its next step has another equipment."""
        if self._execution is not None:
            self._execution.equip(equipment)

    def wake(self) -> None:
        """Call ``on_end`` now, when the other events of this instant have had their turn."""
        self._pending = self._clock.call_at(self._clock.now, self.priority, self._end)

    def run(self, end_s: float) -> None:
        """Run until ``end_s``, or as long as it takes if somebody gets in the way; an earlier end is void."""
        self.stepping = True
        if self._execution is None or not self._execution.enter():
            self._pending = self._clock.call_at(end_s, self.priority, self._end)
        else:
            self._walk(self._execution)

    def rest(self) -> None:
        """Nothing follows for now."""
        if self._execution is not None:
            self._execution.leave()

    def disturbed(self) -> None:
        """Somebody else has become active on its devices or links."""
        execution = self._execution
        if execution is not None and self.stepping and not execution.walking:
            self._walk(execution)

    def abort(self) -> None:
        """What runs is void."""
        self._pending = None
        self.stepping = False
        if self._execution is not None:
            self._execution.abort()

    def waits(self) -> Waits:
        """What the step that just ended waited for; asked once."""
        return NO_WAITS if self._execution is None else self._execution.waits()

    def _walk(self, execution: Execution) -> None:
        self._pending = None
        execution.walk(self._under_way(), self._walked)

    def _walked(self, end_s: float) -> None:
        self._pending = self._clock.call_at(end_s, self.priority, self._end)

    def _end(self, event: Event) -> None:
        if event is not self._pending:
            return  # the leap was cut, or somebody got in the way
        self._pending = None
        self.stepping = False
        self._on_end()
