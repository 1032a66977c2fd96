"""The requests that decode together, kept as sums over a clock that counts decode steps.

A request that joins at clock ``c`` with ``s`` KV slots in use holds ``t - q`` of them at clock ``t``,
where its origin ``q = c - s`` never changes. So context, blocks and finishes at any clock follow from
sums over the origins, and a leap over any number of steps costs no work per request.
"""

from __future__ import annotations

from bisect import bisect_right
from heapq import heappop, heappush

from simulator.serving.request import Request


class DecodeBatch:
    """Decoding requests of one replica."""

    __slots__ = ("_block_size", "_finishes", "_origin_blocks", "_origins", "_residues", "clock", "count")

    def __init__(self, block_size: int) -> None:
        self.clock = 0
        self.count = 0
        self._block_size = block_size
        self._origins = 0
        self._origin_blocks = 0
        self._residues = [0] * block_size
        self._finishes: list[tuple[int, int, Request]] = []

    def join(self, request: Request, slots: int, steps: int) -> None:
        """The request holds ``slots`` KV slots and finishes after ``steps`` more decode steps."""
        origin = self.clock - slots
        request.slots_origin = origin
        blocks, residue = divmod(origin, self._block_size)
        self.count += 1
        self._origins += origin
        self._origin_blocks += blocks
        self._residues[residue] += 1
        heappush(self._finishes, (self.clock + steps, request.admission, request))

    def leave(self, request: Request) -> None:
        """The request is finished or evicted; its finish, if still ahead, is void."""
        origin = request.slots_origin
        blocks, residue = divmod(origin, self._block_size)
        self.count -= 1
        self._origins -= origin
        self._origin_blocks -= blocks
        self._residues[residue] -= 1

    def context(self) -> int:
        """Tokens that the next step reads: every slot in use, and the one it fills."""
        return self.count * (self.clock + 1) - self._origins

    def blocks_at(self, clock: int) -> int:
        """Blocks that the present requests hold at ``clock``: sum of ceil((clock - origin) / size)."""
        blocks, residue = divmod(clock + self._block_size - 1, self._block_size)
        return self.count * blocks - self._origin_blocks - sum(self._residues[residue + 1 :])

    def steps_to_finish(self) -> int:
        """Steps until the first request finishes; there must be one."""
        finishes = self._finishes
        while finishes[0][1] != finishes[0][2].admission:
            heappop(finishes)
        return finishes[0][0] - self.clock

    def steps_that_fit(self, steps: int, num_blocks: int) -> int:
        """The most steps, up to ``steps``, that ``num_blocks`` blocks allow."""
        clock = self.clock
        if self.blocks_at(clock + steps) <= num_blocks:
            return steps
        return bisect_right(range(clock + 1, clock + steps), num_blocks, key=self.blocks_at)

    def pop_finished(self) -> list[Request]:
        """Requests whose last step has ended, in order of their admission."""
        finishes = self._finishes
        finished = []
        while finishes and finishes[0][0] <= self.clock:
            _, admission, request = heappop(finishes)
            if admission == request.admission:
                self.leave(request)
                finished.append(request)
        return finished
