"""The reference level of detail: one event per engine step, every request touched in every step.

Slow and obvious; kept forever to hold the fast level against it.
"""

from __future__ import annotations

from collections.abc import Callable

from simulator.clock import Clock
from simulator.serving.execution import NO_WAITS, Shape, Step
from simulator.serving.recorder import Recorder
from simulator.serving.replica import Anchor, Limits, Replica, StepSeconds
from simulator.serving.request import Request


class StepReplica(Replica):
    """A replica that handles each of its steps by itself."""

    def __init__(
        self,
        index: int,
        clock: Clock,
        cost: StepSeconds,
        limits: Limits,
        recorder: Recorder,
        on_end: Callable[[Request], None],
    ) -> None:
        super().__init__(index, clock, cost, limits, recorder, on_end)
        self._running: list[Request] = []  # in order of admission
        self._slots: dict[Request, int] = {}  # tokens whose KV is computed
        self._blocks: dict[Request, int] = {}  # blocks allocated
        self._to_prefill: dict[Request, int] = {}  # tokens left before it decodes
        self._chunks: list[Request] = []
        self._decoding: list[Request] = []  # decode one token in the running step
        self._step_row: tuple[float, ...] = ()  # the step log's row of the running step
        self._step = Step(Shape(0, 0, 0, 0, 0, 0.0), 0.0, 0.0)  # under way
        self._run: Anchor | None = None
        self._done = 0

    @property
    def kv_blocks_used(self) -> int:
        return sum(self._blocks.values()) + sum(self._kept.values())

    def submit(self, request: Request) -> None:
        self.outstanding += 1
        self.waiting.append(request)
        if self._runner.idle:
            self._runner.wake()

    def _boundary(self) -> None:
        now_s = self._clock.now
        waits = self._runner.waits()
        if self._decoding or self._chunks:
            self._row += 1
            self._rows.extend(self._step_row + waits)
            self._end_step(now_s)
        if waits is not NO_WAITS or self._changes:
            self._run = None
            self._make_changes()
        self._start_step(now_s)

    def _end_step(self, now_s: float) -> None:
        for request in self._chunks:
            if request.leaving is not None:
                request.leaving.chunk_ends()
            self._slots[request] += request.chunk_tokens
            self._to_prefill[request] -= request.chunk_tokens
            request.prefilled += request.chunk_tokens
            if self._to_prefill[request] == 0:
                self._first_token(request, now_s)
        for request in self._decoding:
            self._slots[request] += 1
            request.generated += 1
        for request in list(self._running):
            if self._to_prefill[request] == 0 and request.generated == request.output_tokens:
                self._running.remove(request)
                self._free(request)
                self._run = None
                self._end(request, now_s)
            elif self._to_prefill[request] == 0 and request.leaving is not None:
                self._running.remove(request)
                blocks = self._blocks[request]
                self._free(request)
                self._hand_over(request, request.leaving, blocks)

    def _drop_batch(self) -> dict[Request, int]:
        held = {request: self._slots[request] for request in self._running}
        for request in self._decoding:
            request.last_token_s = self._step.start_s
        for request in held:
            self._free(request)
        self._running, self._decoding, self._chunks = [], [], []
        self._run = None
        return held

    def _free(self, request: Request) -> None:
        del self._slots[request], self._blocks[request], self._to_prefill[request]

    def _free_blocks(self) -> int:
        return self._limits.num_blocks - self._blocks_of_others() - self.kv_blocks_used

    def _start_step(self, now_s: float) -> None:
        evicted = self._make_room(now_s)
        self._join_received()
        self._decoding = [request for request in self._running if self._to_prefill[request] == 0]
        budget = self._limits.max_num_batched_tokens - len(self._decoding)
        self._chunks = []
        for request in self._running:
            if self._to_prefill[request] > 0:
                budget = self._take_chunk(request, budget)
        if not evicted:
            self._admit_waiting(budget, now_s)
        if self._running:
            self._run_step(now_s)
        else:
            self._runner.rest()

    def _make_room(self, now_s: float) -> bool:
        """A block for each decoding request that needs one, from the requests admitted last if need be."""
        evicted = False
        for request in list(self._running):
            if request.admission < 0 or self._to_prefill[request] > 0:
                continue
            needed = self._limits.blocks(self._slots[request] + 1)
            while request.admission >= 0 and needed - self._blocks[request] > self._free_blocks():
                last = self._running.pop()
                decoding = self._to_prefill[last] == 0
                self._free(last)
                self._run = None
                self._evict(last, now_s, decoding)
                evicted = True
            if request.admission >= 0:
                self._blocks[request] = needed
        return evicted

    def _join_received(self) -> None:
        """Requests whose KV cache has come take the seats that are free, in the order of their coming."""
        while self._received and len(self._running) < self._limits.max_num_seqs:
            request = self._received.popleft()
            self._blocks[request] = self._give_back(request)
            self._slots[request] = request.prefilled
            self._to_prefill[request] = 0
            self._running.append(request)
            self._run = None
            self._join(request)

    def _admit_waiting(self, budget: int, now_s: float) -> None:
        while self.waiting:
            request = self.waiting[0]
            blocks = self._blocks_wanted(request)
            if blocks > self._free_blocks():
                return
            coming = request.coming
            if coming is None and (budget <= 0 or len(self._running) >= self._limits.max_num_seqs):
                return
            self.waiting.popleft()
            if coming is not None:
                self._reserve(request, coming, blocks)
                continue
            self._admit(request, now_s)
            self._running.append(request)
            self._slots[request] = 0
            self._blocks[request] = blocks
            self._to_prefill[request] = request.prefill_tokens
            budget = self._take_chunk(request, budget)

    def _take_chunk(self, request: Request, budget: int) -> int:
        request.chunk_tokens = min(self._to_prefill[request], budget)
        self._chunks.append(request)
        return budget - request.chunk_tokens

    def _run_step(self, now_s: float) -> None:
        count = len(self._decoding)
        context = sum(self._slots[request] + 1 for request in self._decoding)
        blocks = self.kv_blocks_used + self._blocks_of_others()
        shape = Shape(count, context, 0, 0, 0, 0.0)
        if self._chunks:
            seconds, tokens, completions, attention_s = self._mixed_s(count, context, self._chunks)
            end_s = now_s + seconds
            shape = Shape(count, context, tokens, len(self._chunks), completions, attention_s)
            self._step_row = (
                now_s,
                1,
                count,
                context,
                tokens,
                len(self._chunks),
                completions,
                attention_s,
                blocks,
            )
            self._run = None
        else:
            if self._run is None:
                self._run = self._anchor(now_s, count, context)
                self._done = 0
            self._done += 1
            end_s = self._run.boundary_s(self._done)
            self._step_row = (now_s, 1, count, context, 0, 0, 0, 0.0, blocks)
        self._step = Step(shape, now_s, end_s)
        self._begin_chunks(self._chunks, end_s)
        self._runner.run(end_s)

    def _step_that_runs(self) -> Step:
        return self._step
