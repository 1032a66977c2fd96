"""What every replica is: a queue of requests, a batch, and the rules of admission and eviction.

The rules are those of vLLM V1's scheduler: running requests first, one token each; what is left of
``max_num_batched_tokens`` goes to prompt chunks, first come first served; a request is admitted when
the blocks of its whole prompt are free; when no block is left for a decoding request, the request
admitted last is evicted and goes to the head of the queue, to be recomputed.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Sequence, Sized
from dataclasses import dataclass
from functools import partial
from math import nan
from typing import Any, Protocol

from simulator.clock import Clock, replica_priority
from simulator.record import Status
from simulator.serving.disaggregation import Handover
from simulator.serving.execution import Equipment, Step
from simulator.serving.recorder import Recorder
from simulator.serving.request import Loss, Request
from simulator.serving.runner import Runner, StepRunner


class StepSeconds(Protocol):
    """Seconds of an engine step: ``base_s + kv_s_per_token * context + sum(attention_s)``."""

    @property
    def kv_s_per_token(self) -> float:
        """Seconds to read one cached token."""

    def base_s(self, decodes: int, chunk_tokens: int, chunks: int, completions: int) -> float:
        """Everything that does not depend on the context."""

    def attention_s(self, new_tokens: int, prefix_tokens: int) -> float:
        """Attention of one prompt chunk over itself and what came before it."""


@dataclass(frozen=True)
class Limits:
    """What bounds the batch of a replica."""

    max_num_seqs: int
    max_num_batched_tokens: int
    block_size: int
    num_blocks: int

    def blocks(self, tokens: int) -> int:
        """Blocks that hold ``tokens`` tokens."""
        return -(-tokens // self.block_size)


@dataclass(frozen=True, slots=True)
class Anchor:
    """A run of decode steps of one batch: the k-th boundary is one formula, however it is reached."""

    start_s: float
    count: int
    context: int
    first_s: float
    growth_s: float

    def boundary_s(self, steps: int) -> float:
        """When step number ``steps`` ends; step i lasts ``first_s + i*growth_s``, i from 0."""
        return self.start_s + (steps * self.first_s + self.growth_s * (steps * (steps - 1) // 2))

    def kv_tokens(self, first: int, last: int) -> int:
        """Cached tokens read by steps ``first`` to ``last`` (excluded)."""
        return (last - first) * self.context + self.count * ((last * (last - 1) - first * (first - 1)) // 2)


class Target(Protocol):
    """A replica as the router sees it."""

    @property
    def outstanding(self) -> int:
        """Requests that have not ended."""

    @property
    def waiting(self) -> Sized:
        """Requests that no batch has taken yet."""

    @property
    def kv_blocks_used(self) -> int:
        """Blocks in use during the step that runs now."""

    @property
    def runners(self) -> tuple[StepRunner, ...]:
        """What runs its steps, one per group of GPUs."""

    def submit(self, request: Request) -> None:
        """Take a request."""

    def expect(self, request: Request) -> None:
        """Reserve blocks, in its turn, for a request whose prompt another replica processes."""

    def change(self, cost: Any, equipment: Sequence[Equipment]) -> None:
        """Its steps have another cost (of the kind that it has) from the next one on."""

    def fail(self) -> list[Request]:
        """All that it holds is lost; the requests, which have to go elsewhere."""

    def unfinished(self) -> str | None:
        """Who waits for what, or None when nothing is left."""


class Replica(ABC):
    """An engine that steps over batches, seen from the router."""

    def __init__(
        self,
        index: int,
        clock: Clock,
        cost: StepSeconds,
        limits: Limits,
        recorder: Recorder,
        on_end: Callable[[Request], None],
    ) -> None:
        self.index = index
        self.outstanding = 0
        self.waiting: deque[Request] = deque()
        self._clock = clock
        self._cost = cost
        self._limits = limits
        self._recorder = recorder
        self._rows = recorder.steps[index]
        self._row = 0
        self._on_end = on_end
        self._priority = replica_priority(index)
        runner = StepRunner(clock, self._priority, self._boundary, self._step_that_runs)
        self._runner: Runner = runner
        self.runners: tuple[StepRunner, ...] = (runner,)
        self._admissions = 0
        self._kept: dict[Request, int] = {}  # blocks of requests that are not in the batch
        self._received: deque[Request] = deque()
        self._changes: list[Callable[[], None]] = []  # of its cost, to come with its next step

    @property
    @abstractmethod
    def kv_blocks_used(self) -> int:
        """Blocks in use during the step that runs now."""

    @abstractmethod
    def submit(self, request: Request) -> None:
        """Take a request from the router."""

    def expect(self, request: Request) -> None:
        """Reserve blocks, in its turn, for a request whose prompt another replica processes."""
        assert request.handover is not None
        request.handover.target = self
        self.submit(request)

    def receive(self, request: Request) -> None:
        """The KV cache of an expected request is here: it joins the batch as soon as there is a seat."""
        self._received.append(request)
        if self._runner.idle:
            self._runner.wake()

    def release(self, request: Request) -> None:
        """The blocks of a prompt that it processed for another replica are free again."""
        self._give_back(request)
        self.wake()

    def wake(self) -> None:
        """Blocks may be free that it waits for."""
        if self.waiting and self._runner.idle:
            self._runner.wake()

    @abstractmethod
    def _boundary(self) -> None:
        """A step has ended, or an idle replica wakes: account for it and start the next one."""

    @abstractmethod
    def _step_that_runs(self) -> Step:
        """The step under way; one that leaps over several steps leaps no further than its end."""

    def change(self, cost: StepSeconds, equipment: Sequence[Equipment]) -> None:
        """Its steps have another cost from the next one on; the one under way ends as it began."""
        self._changes.append(partial(self._adopt, cost, equipment))

    def fail(self) -> list[Request]:
        """All that it holds is lost; the requests, which have to go elsewhere."""
        held = self._drop_batch()
        self._runner.abort()
        lost = [*held, *self.waiting]
        for request in lost:
            self._lose(request, held.get(request, 0))
        self.waiting.clear()
        self.outstanding = 0
        return lost

    @abstractmethod
    def _drop_batch(self) -> dict[Request, int]:
        """Empty the batch, whose running step is void; the tokens of KV cache of each of its requests."""

    def _lose(self, request: Request, tokens: int) -> None:
        now_s = self._clock.now
        if request.evicted_s is not None:
            if request.readmitted_s is None:
                request.readmitted_s = now_s
            self._recorder.resumed(request, self.index, self._row, now_s, nan)
            request.evicted_s = None
        if request.loss is not None:
            self._recorder.rerouted(request, now_s, nan)
        request.loss = Loss(self.index, now_s, request.admitted_s is not None, tokens)
        request.reroutes += 1
        request.admission = -1
        request.prefilled = 0

    def _adopt(self, cost: StepSeconds, equipment: Sequence[Equipment]) -> None:
        self._cost = cost
        for runner, one in zip(self.runners, equipment, strict=False):
            runner.equip(one)

    def _make_changes(self) -> None:
        for change in self._changes:
            self._recorder.cost_changes(self.index, self._row)
            change()
        self._changes.clear()

    def _blocks_of_others(self) -> int:
        """Blocks of its pool that other batches hold: none, where the pool is its own."""
        return 0

    def unfinished(self) -> str | None:
        """Who waits for what, or None when nothing is left."""
        if not self.outstanding:
            return None
        waiting = len(self.waiting)
        return f"replica {self.index}: {self.outstanding} requests unfinished, {waiting} of them waiting"

    def _anchor(self, now_s: float, count: int, context: int) -> Anchor:
        kv_s = self._cost.kv_s_per_token
        first_s = self._cost.base_s(count, 0, 0, 0) + kv_s * context
        return Anchor(now_s, count, context, first_s, kv_s * count)

    def _mixed_s(self, count: int, context: int, chunks: list[Request]) -> tuple[float, int, int, float]:
        """Seconds, prompt tokens, completed prompts and attention seconds of a step with chunks."""
        cost = self._cost
        tokens = completions = 0
        attention_s = 0.0
        for request in chunks:
            new = request.chunk_tokens
            tokens += new
            attention_s += cost.attention_s(new, request.prefilled)
            if request.prefilled + new == request.input_tokens + request.generated:
                completions += 1
        base_s = cost.base_s(count, tokens, len(chunks), completions)
        return base_s + cost.kv_s_per_token * context + attention_s, tokens, completions, attention_s

    def _admit(self, request: Request, now_s: float) -> None:
        request.admission = self._admissions
        self._admissions += 1
        request.prefilled = 0
        if request.evicted_s is not None:
            request.readmitted_s = now_s
            request.readmitted_row = self._row
            return
        request.admitted_row = self._row
        if request.admitted_s is None:
            request.admitted_s = now_s
        if request.loss is not None:
            request.loss.readmitted_s = now_s

    def _evict(self, request: Request, now_s: float, decoding: bool) -> None:
        """The request loses its blocks and goes to the head of the queue."""
        if decoding:
            request.last_token_s = now_s
        elif request.evicted_s is not None:
            self._recorder.resumed(request, self.index, self._row, now_s, nan)
        request.evicted_s = now_s
        request.evicted_row = self._row
        request.readmitted_s = None
        request.readmitted_row = None
        request.admission = -1
        request.preemptions += 1
        self.waiting.appendleft(request)

    def _first_token(self, request: Request, now_s: float) -> None:
        """The prompt is processed (again): one more token is out."""
        request.generated += 1
        if request.first_token_s is None:
            request.first_token_s = now_s
        if request.evicted_s is None and request.loss is None:
            return
        last_s = request.last_token_s
        gap_s = nan if last_s is None else now_s - last_s
        if request.loss is not None:
            self._recorder.rerouted(request, now_s, gap_s)
            gap_s = nan
        if request.evicted_s is not None:
            self._recorder.resumed(request, self.index, self._row, now_s, gap_s)
            request.evicted_s = None

    def _keep(self, request: Request, blocks: int) -> None:
        """Blocks that are taken for a request that is not in the batch."""
        self._kept[request] = blocks

    def _give_back(self, request: Request) -> int:
        """Blocks that were kept for a request are free, or of the batch."""
        return self._kept.pop(request)

    def _blocks_wanted(self, request: Request) -> int:
        """Blocks for its prompt; where it comes to decode, also for its first token, out or not."""
        if request.handover is None or request.coming is None:
            return self._limits.blocks(request.input_tokens + request.generated)
        return self._limits.blocks(request.input_tokens + 1)

    def _begin_chunks(self, chunks: list[Request], end_s: float) -> None:
        for request in chunks:
            if request.handover is not None and request.leaving is not None:
                request.handover.chunk_begins(self, end_s)

    def _hand_over(self, request: Request, handover: Handover, blocks: int) -> None:
        """The prompt is processed; its blocks are kept until another replica has read them."""
        self.outstanding -= 1
        self._keep(request, blocks)
        handover.prefilled(self, self._row)

    def _reserve(self, request: Request, handover: Handover, blocks: int) -> None:
        """Take blocks for a request whose KV cache comes."""
        self._keep(request, blocks)
        handover.reserved()

    def _join(self, request: Request) -> None:
        """The request is in the batch from now on, its prompt processed elsewhere."""
        assert request.handover is not None
        request.admission = self._admissions
        self._admissions += 1
        request.admitted_row = self._row
        request.handover.joined(self._row)

    def _end(self, request: Request, now_s: float) -> None:
        self.outstanding -= 1
        if request.handover is not None:
            self._recorder.handed_over(request.handover)
        self._recorder.end(request, Status.FINISHED, now_s, self.index, self._row)
        self._on_end(request)
