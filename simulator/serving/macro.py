"""The default level of detail: one event for many engine steps.

Between two changes of its batch a replica's step time is affine in the context, so the replica leaps
to the first of: a request finishes, a block cannot be allocated, an arrival that can be admitted.
``StepReplica`` is the slow reference that it equals.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import ceil, sqrt

from simulator.clock import Clock
from simulator.serving.decode_batch import DecodeBatch
from simulator.serving.execution import NO_WAITS, Equipment, Shape, Step, Waits
from simulator.serving.recorder import Recorder
from simulator.serving.replica import Anchor, Limits, Replica, StepSeconds
from simulator.serving.request import Request


class MacroReplica(Replica):
    """A replica that leaps over the steps between two changes of its batch."""

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
        self._decodes = DecodeBatch(limits.block_size)
        self._running: dict[int, Request] = {}  # by rank of admission, last admitted last
        self._prefilling: Request | None = None  # admitted last, its prompt not yet processed
        self._reserved = 0  # blocks of the prompts in process, and of those kept for others
        self._chunks: list[Request] = []  # prompt chunks of the running step
        self._mixed_row: tuple[float, ...] = ()  # the step log's row of the running step with chunks
        self._mixed_end_s = 0.0  # when that step ends if nobody slows it down
        self._decode_blocks = 0  # blocks that the decoding requests hold in the coming step
        self._run: Anchor | None = None  # the decode steps under way since the last change of the batch
        self._done = 0  # steps of the run that are over
        self._leap = 0  # steps of the run when the pending event comes

    @property
    def kv_blocks_used(self) -> int:
        ahead = 1 if self._run is None else self._step_under_way() - self._done
        return self._reserved + self._decodes.blocks_at(self._decodes.clock + ahead)

    def submit(self, request: Request) -> None:
        self.outstanding += 1
        self.waiting.append(request)
        if self._runner.idle:
            self._runner.wake()
        elif self._run is not None and len(self.waiting) == 1:
            self._cut_leap(request)

    def receive(self, request: Request) -> None:
        super().receive(request)
        if self._run is not None and self._decodes.count < self._limits.max_num_seqs:
            self._cut_leap_to(self._step_under_way())

    def _keep(self, request: Request, blocks: int) -> None:
        super()._keep(request, blocks)
        self._reserved += blocks

    def _give_back(self, request: Request) -> int:
        blocks = super()._give_back(request)
        self._reserved -= blocks
        return blocks

    def change(self, cost: StepSeconds, equipment: Sequence[Equipment]) -> None:
        super().change(cost, equipment)
        if self._run is not None:
            self._cut_leap_to(self._step_under_way())

    def _cut_leap(self, request: Request) -> None:
        """End the leap with the running step if the request can be admitted (or get its blocks) then.

        Free blocks only shrink within a leap, so what cannot be admitted then cannot be later in it.
        """
        if self._decodes.count >= self._limits.max_num_seqs and request.coming is None:
            return
        steps = self._step_under_way()
        used = self._reserved + self._decodes.blocks_at(self._decodes.clock + steps - self._done + 1)
        if used + self._blocks_wanted(request) <= self._own_blocks():
            self._cut_leap_to(steps)

    def _cut_leap_to(self, steps: int) -> None:
        if steps < self._leap:
            self._leap_to(steps)

    def _step_under_way(self) -> int:
        """The first boundary of the run that is still ahead: b/2*k**2 + (a - b/2)*k = elapsed, rounded up.

        One that falls on now is past if another replica's boundary at now, of a later turn, is past.
        """
        run = self._run
        assert run is not None
        now_s = self._clock.now
        slope = run.first_s - 0.5 * run.growth_s
        elapsed_s = now_s - run.start_s
        root = sqrt(slope * slope + 2.0 * run.growth_s * elapsed_s)
        divisor = slope + root
        steps = ceil(2.0 * elapsed_s / divisor) if divisor > 0.0 else self._leap
        steps = min(max(steps, self._done + 1), self._leap)
        while steps < self._leap and run.boundary_s(steps) < now_s:
            steps += 1
        while steps > self._done + 1 and run.boundary_s(steps - 1) >= now_s:
            steps -= 1
        if (now_s, self._priority) <= self._clock.handled and run.boundary_s(steps) == now_s:
            steps = min(steps + 1, self._leap)
        return steps

    def _boundary(self) -> None:
        now_s = self._clock.now
        self._clock.handled = (now_s, self._priority)
        waits = self._runner.waits()
        if self._run is not None:
            self._end_leap(self._run, waits)
        elif self._chunks:
            self._end_mixed_step(now_s, waits)
        if waits is not NO_WAITS or self._changes:
            self._run = None
            self._make_changes()
        self._finish_decodes(now_s)
        self._start_step(now_s)

    def _step_that_runs(self) -> Step:
        run = self._run
        if run is None:
            _, _, decodes, kv_tokens, tokens, chunks, completions, attention_s, _ = self._mixed_row
            shape = Shape(
                int(decodes), int(kv_tokens), int(tokens), int(chunks), int(completions), attention_s
            )
            return Step(shape, self._mixed_row[0], self._mixed_end_s)
        step = self._step_under_way()
        if step - 1 > self._done:
            self._leap = step - 1
            self._end_leap(run, NO_WAITS)
        self._leap = step
        shape = Shape(run.count, run.kv_tokens(step - 1, step), 0, 0, 0, 0.0)
        return Step(shape, run.boundary_s(step - 1) if step > 1 else run.start_s, run.boundary_s(step))

    def _end_leap(self, run: Anchor, waits: Waits) -> None:
        decodes = self._decodes
        first, last = self._done, self._leap
        decodes.clock += last - first
        self._done = last
        self._row += 1
        start_s = run.boundary_s(first) if first else run.start_s
        kv_tokens = run.kv_tokens(first, last)
        blocks = self._reserved + decodes.blocks_at(decodes.clock) + self._blocks_of_others()
        self._rows.extend((start_s, last - first, run.count, kv_tokens, 0, 0, 0, 0.0, blocks, *waits))

    def _end_mixed_step(self, now_s: float, waits: Waits) -> None:
        decodes = self._decodes
        decodes.clock += 1
        self._row += 1
        self._rows.extend(self._mixed_row + waits)
        for request in self._chunks:
            leaving = None if request.handover is None else request.leaving
            if leaving is not None:
                leaving.chunk_ends()
            request.prefilled += request.chunk_tokens
            if request.prefilled == request.prefill_tokens:
                blocks = self._limits.blocks(request.prefilled)
                self._reserved -= blocks
                self._first_token(request, now_s)
                if request.generated == request.output_tokens:
                    self._leave(request, now_s)
                elif leaving is not None:
                    del self._running[request.admission]
                    self._hand_over(request, leaving, blocks)
                else:
                    decodes.join(request, request.prefilled, request.output_tokens - request.generated)
        self._chunks = []

    def _drop_batch(self) -> dict[Request, int]:
        held = {}
        start_s = self._step_that_runs().start_s if self._running else None
        for request in self._running.values():
            held[request] = request.prefilled
            if request not in self._chunks:
                held[request] = slots = self._decodes.clock - request.slots_origin
                request.generated += slots - request.prefilled
                request.last_token_s = start_s
        self._decodes = DecodeBatch(self._limits.block_size)
        self._running, self._prefilling, self._chunks = {}, None, []
        self._reserved = self._decode_blocks = self._done = self._leap = 0
        self._run = None
        return held

    def _finish_decodes(self, now_s: float) -> None:
        for request in self._decodes.pop_finished():
            self._run = None
            self._leave(request, now_s)

    def _leave(self, request: Request, now_s: float) -> None:
        del self._running[request.admission]
        self._end(request, now_s)

    def _start_step(self, now_s: float) -> None:
        evicted = self._make_room(now_s)
        if self._received:
            self._join_received()
        chunks = self._next_chunks(now_s, admit=not evicted)
        if chunks:
            self._start_mixed_step(now_s, chunks)
        elif self._decodes.count:
            self._start_leap(now_s, evicted)
        else:
            self._runner.rest()

    def _make_room(self, now_s: float) -> bool:
        """Evict the requests admitted last until every decoding request has its next slot."""
        decodes = self._decodes
        evicted = False
        self._decode_blocks = decodes.blocks_at(decodes.clock + 1)
        num_blocks = self._own_blocks()
        while self._reserved + self._decode_blocks > num_blocks:
            request = self._running.pop(next(reversed(self._running)))
            decoding = request is not self._prefilling
            if decoding:
                done = decodes.clock - request.slots_origin - request.prefilled
                request.generated += done
                decodes.leave(request)
                self._run = None
            else:
                self._reserved -= self._limits.blocks(request.prefill_tokens)
                self._prefilling = None
            self._evict(request, now_s, decoding)
            self._decode_blocks = decodes.blocks_at(decodes.clock + 1)
            evicted = True
        return evicted

    def _join_received(self) -> None:
        """Requests whose KV cache has come take the seats that are free, in the order of their coming."""
        decodes = self._decodes
        while self._received and len(self._running) < self._limits.max_num_seqs:
            request = self._received.popleft()
            self._give_back(request)
            self._join(request)
            self._running[request.admission] = request
            decodes.join(request, request.prefilled, request.output_tokens - request.generated)
            self._run = None
        self._decode_blocks = decodes.blocks_at(decodes.clock + 1)

    def _next_chunks(self, now_s: float, admit: bool) -> list[Request]:
        """Prompt chunks of the next step: the prompt in process, then the head of the queue."""
        limits = self._limits
        budget = limits.max_num_batched_tokens - self._decodes.count
        chunks: list[Request] = []
        request = self._prefilling
        if request is not None:
            budget -= self._take_chunk(request, budget, chunks)
        waiting = self.waiting
        if not admit or not waiting:
            return chunks
        free = self._own_blocks() - self._reserved - self._decode_blocks
        while waiting:
            request = waiting[0]
            coming = None if request.handover is None else request.coming
            if coming is None and not (budget and len(self._running) < limits.max_num_seqs):
                break
            blocks = self._blocks_wanted(request)
            if blocks > free:
                break
            waiting.popleft()
            free -= blocks
            if coming is not None:
                self._reserve(request, coming, blocks)
                continue
            self._reserved += blocks
            self._admit(request, now_s)
            self._running[request.admission] = request
            budget -= self._take_chunk(request, budget, chunks)
        return chunks

    def _take_chunk(self, request: Request, budget: int, chunks: list[Request]) -> int:
        left = request.input_tokens + request.generated - request.prefilled
        request.chunk_tokens = tokens = min(left, budget)
        self._prefilling = request if left > budget else None
        chunks.append(request)
        return tokens

    def _start_mixed_step(self, now_s: float, chunks: list[Request]) -> None:
        decodes = self._decodes
        count = decodes.count
        context = decodes.context() if count else 0
        seconds, tokens, completions, attention_s = self._mixed_s(count, context, chunks)
        blocks = self._reserved + self._decode_blocks + self._blocks_of_others()
        self._mixed_row = (now_s, 1, count, context, tokens, len(chunks), completions, attention_s, blocks)
        self._chunks = chunks
        self._run = None
        self._mixed_end_s = now_s + seconds
        self._begin_chunks(chunks, self._mixed_end_s)
        self._runner.run(self._mixed_end_s)

    def _start_leap(self, now_s: float, evicted: bool) -> None:
        """Leap as far as the batch stays as it is; after an eviction the queue is looked at again at once."""
        decodes = self._decodes
        if self._run is None:
            self._run = self._anchor(now_s, decodes.count, decodes.context())
            self._done = 0
        steps = 1 if evicted else self._steps_ahead()
        self._leap_to(self._done + steps)

    def _steps_ahead(self) -> int:
        """Steps until a request finishes or a block cannot be allocated."""
        decodes = self._decodes
        free = self._limits.num_blocks - self._reserved
        return decodes.steps_that_fit(decodes.steps_to_finish(), free)

    def _own_blocks(self) -> int:
        return self._limits.num_blocks - self._blocks_of_others()

    def _leap_to(self, steps: int) -> None:
        assert self._run is not None
        self._leap = steps
        self._runner.run(self._run.boundary_s(steps))
