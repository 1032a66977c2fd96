"""Who may get into whose way on the shared resources."""

from __future__ import annotations

from collections.abc import Callable, Hashable


class Party:
    """Somebody whose flows come and go over known resources, told when others may get into its way."""

    __slots__ = ("_on_disturbed", "_rivals", "active", "busy_rivals", "resources")

    def __init__(self, on_disturbed: Callable[[], None]) -> None:
        self.resources: frozenset[Hashable] = frozenset()
        self.active = False
        self.busy_rivals = 0
        self._rivals: list[Party] = []
        self._on_disturbed = on_disturbed

    @property
    def alone(self) -> bool:
        """Whether nobody else is active on its resources."""
        return not self.busy_rivals

    @property
    def has_rivals(self) -> bool:
        """Whether another party ever could be."""
        return bool(self._rivals)

    def meet(self, other: Party) -> None:
        """Become rivals where both use a resource."""
        if not self.resources.isdisjoint(other.resources):
            self._rivals.append(other)
            other._rivals.append(self)
            self.busy_rivals += other.active

    def part(self) -> None:
        """Be nobody's rival any more."""
        for rival in self._rivals:
            rival._rivals.remove(self)
        self._rivals.clear()
        self.busy_rivals = 0

    def enter(self) -> None:
        """From now on its flows may come."""
        if not self.active:
            self.active = True
            for rival in self._rivals:
                rival.rival_enters()

    def leave(self) -> None:
        """No flow of it runs or comes before it enters again."""
        if self.active:
            self.active = False
            for rival in self._rivals:
                rival.rival_leaves()

    def rival_enters(self) -> None:
        """Somebody else is active on its resources."""
        self.busy_rivals += 1
        if self.busy_rivals == 1 and self.active:
            self._on_disturbed()

    def rival_leaves(self) -> None:
        """Somebody else is done."""
        self.busy_rivals -= 1
