"""A replica whose layers are cut into stages, with as many micro-batches in flight as there are stages.

Each lane is a batch of its own: its requests go through the stages together, and the next micro-batch is
formed when the last stage has sampled (vLLM keeps as many batches in flight as there are stages, and no
request is in two of them). All lanes draw on one pool of KV blocks: a block holds the same tokens on every
stage. A stage takes micro-batches one at a time, in the order in which they come.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain, pairwise
from typing import Protocol

from simpy import Event
from simpy.events import EventPriority

from simulator.clock import Clock, replica_priority
from simulator.network.collectives import AffineCost
from simulator.network.fluid import FluidNetwork
from simulator.network.transfers import FluidPath, Path, TimedPath
from simulator.serving.execution import NO_WAITS, Equipment, Shape, Step, Waits
from simulator.serving.macro import MacroReplica
from simulator.serving.recorder import Recorder
from simulator.serving.replica import Limits, Replica, StepSeconds
from simulator.serving.request import Request
from simulator.serving.runner import StepRunner
from simulator.serving.stepwise import StepReplica


class StageSeconds(StepSeconds, Protocol):
    """Seconds of a stage, and what it hands to the next."""

    def send_bytes(self, tokens: int) -> float:
        """Bytes that each of its ranks sends."""


@dataclass(frozen=True)
class Pipeline:
    """What a replica of several stages costs."""

    whole: StepSeconds
    """A step through all stages."""
    stages: tuple[StageSeconds, ...]
    sends: tuple[AffineCost, ...]
    """From each stage to the next, per byte that one rank sends."""


class MicroBatch:
    """A batch on its way through the stages."""

    __slots__ = (
        "arrived_s",
        "bubble_s",
        "costs",
        "device_wait_s",
        "equipment",
        "link_wait_s",
        "on_end",
        "send_s",
        "shapes",
        "void",
    )

    def __init__(
        self,
        shapes: Sequence[Shape],
        costs: Sequence[StageSeconds],
        equipment: Sequence[Equipment],
        on_end: Callable[[], None],
    ) -> None:
        self.shapes = shapes
        self.costs = costs
        self.equipment = equipment  # empty where nothing is shared
        self.on_end = on_end
        self.arrived_s = 0.0
        self.bubble_s = 0.0
        self.send_s = 0.0
        self.device_wait_s = 0.0
        self.link_wait_s = 0.0
        self.void = False


class PipelineStage:
    """The GPUs of one stage: one micro-batch at a time, first come first served."""

    def __init__(self, clock: Clock, priority: EventPriority, index: int) -> None:
        self._clock = clock
        self._index = index
        self._queue: deque[MicroBatch] = deque()
        self._step = Step(Shape(0, 0, 0, 0, 0, 0.0), 0.0, 0.0)
        self.runner = StepRunner(clock, priority, self._ended, self._step_that_runs)
        self._following: PipelineStage | None = None
        self._path: Path | None = None

    def precede(self, following: PipelineStage, path: Path) -> None:
        """What it has done goes to the next stage."""
        self._following = following
        self._path = path

    def arrive(self, batch: MicroBatch) -> None:
        """Take the micro-batch when those before it are done."""
        batch.arrived_s = self._clock.now
        self._queue.append(batch)
        if self.runner.idle:
            self._begin()

    def void(self) -> None:
        """Whatever is in it is lost."""
        self._queue.clear()
        self.runner.abort()

    def _begin(self) -> None:
        now_s, batch = self._clock.now, self._queue[0]
        batch.bubble_s += now_s - batch.arrived_s
        shape, cost = batch.shapes[self._index], batch.costs[self._index]
        base_s = cost.base_s(shape.decodes, shape.chunk_tokens, shape.chunks, shape.completions)
        end_s = now_s + (base_s + cost.kv_s_per_token * shape.kv_tokens + shape.attention_s)
        self._step = Step(shape, now_s, end_s)
        if batch.equipment:
            self.runner.equip(batch.equipment[self._index])
        self.runner.run(end_s)

    def _step_that_runs(self) -> Step:
        return self._step

    def _ended(self) -> None:
        batch = self._queue.popleft()
        waits = self.runner.waits()
        batch.device_wait_s += waits.device_s
        batch.link_wait_s += waits.link_s
        if self._queue:
            self._begin()
        else:
            self.runner.rest()
        self._hand_on(batch)

    def _hand_on(self, batch: MicroBatch) -> None:
        following, path = self._following, self._path
        if following is None or path is None:
            batch.on_end()
            return

        def arrived(alone_s: float, lost_s: float) -> None:
            batch.send_s += alone_s
            batch.link_wait_s += lost_s
            if not batch.void:
                following.arrive(batch)

        shape = batch.shapes[self._index]
        path.send(batch.costs[self._index].send_bytes(shape.decodes + shape.chunk_tokens), arrived)


class LaneRunner:
    """Runs the steps of a lane: each is a micro-batch that goes through all stages."""

    def __init__(
        self,
        clock: Clock,
        priority: EventPriority,
        stages: Sequence[PipelineStage],
        on_wake: Callable[[], None],
        on_end: Callable[[], None],
        micro_batch: Callable[[Callable[[], None]], MicroBatch],
    ) -> None:
        self._clock = clock
        self._priority = priority
        self._stages = stages
        self._on_wake = on_wake
        self._on_end = on_end
        self._micro_batch = micro_batch
        self._pending: Event | None = None
        self._batch: MicroBatch | None = None
        self._waits = NO_WAITS

    @property
    def idle(self) -> bool:
        """Whether nothing runs and nothing is about to."""
        return self._pending is None and self._batch is None

    def wake(self) -> None:
        """Call ``on_wake`` now, when the other events of this instant have had their turn."""
        self._pending = self._clock.call_at(self._clock.now, self._priority, self._woken)

    def run(self, end_s: float) -> None:
        """Send the lane's batch through the stages; what else is in them decides when it ends."""
        self._batch = self._micro_batch(self._ended)
        self._stages[0].arrive(self._batch)

    def rest(self) -> None:
        """Nothing follows for now."""

    def abort(self) -> None:
        """What runs is void; the stages are emptied by the replica."""
        self._pending = None
        if self._batch is not None:
            self._batch.void = True
            self._batch = None

    def waits(self) -> Waits:
        """What the micro-batch that just ended waited for; asked once."""
        waits, self._waits = self._waits, NO_WAITS
        return waits

    def _woken(self, event: Event) -> None:
        if event is self._pending:
            self._pending = None
            self._on_wake()

    def _ended(self) -> None:
        batch = self._batch
        if batch is None:
            return
        self._batch = None
        self._waits = Waits(batch.device_wait_s, batch.link_wait_s, batch.bubble_s, batch.send_s)
        self._on_end()


class Lane(Replica):
    """One batch of a pipelined replica; mixed into a level of detail, which says what a batch does."""

    _chunks: list[Request]

    def enter(
        self, stages: Sequence[PipelineStage], lanes: Sequence[Lane], costs: Sequence[StageSeconds]
    ) -> None:
        """Become one of ``lanes``, whose micro-batches go through ``stages``."""
        self.equipment: Sequence[Equipment] = ()
        self._stage_costs = costs
        self._others = [lane for lane in lanes if lane is not self]
        self._runner = LaneRunner(
            self._clock, self._priority, stages, self._boundary, self._ended, self._micro_batch
        )
        self.runners = ()

    def release(self, request: Request) -> None:
        super().release(request)
        self._wake_others()

    def change_pipeline(self, pipeline: Pipeline, equipment: Sequence[Equipment]) -> None:
        """Its micro-batches have other costs from the next one on."""
        self._changes.append(partial(self._adopt_pipeline, pipeline, equipment))

    def _adopt_pipeline(self, pipeline: Pipeline, equipment: Sequence[Equipment]) -> None:
        self._cost = pipeline.whole
        self._stage_costs = pipeline.stages
        self.equipment = equipment

    def _ended(self) -> None:
        """Its micro-batch has ended, and may have left blocks that others wait for."""
        self._boundary()
        self._wake_others()

    def _wake_others(self) -> None:
        for other in self._others:
            other.wake()

    def _blocks_of_others(self) -> int:
        return sum(other.kv_blocks_used for other in self._others)

    def _micro_batch(self, on_end: Callable[[], None]) -> MicroBatch:
        chunks = [(request.chunk_tokens, request.prefilled) for request in self._chunks]
        whole = self._step_that_runs().shape
        costs = self._stage_costs
        shapes = [
            whole._replace(attention_s=sum(cost.attention_s(*chunk) for chunk in chunks)) for cost in costs
        ]
        return MicroBatch(shapes, costs, self.equipment, on_end)


class MacroLane(Lane, MacroReplica):
    """A lane that keeps its batch as sums. It cannot leap: other lanes are in the stages, too."""

    def _steps_ahead(self) -> int:
        return 1


class StepLane(Lane, StepReplica):
    """The reference: every request touched in every step."""


LANE_OF_DETAIL: dict[str, type[Lane]] = {
    "auto": MacroLane,
    "macro": MacroLane,
    "step": StepLane,
    "layer": StepLane,
}


class PipelineReplica:
    """A replica of several stages, seen from the router; its batches keep the step logs from ``first`` on."""

    def __init__(
        self,
        first: int,
        clock: Clock,
        pipeline: Pipeline,
        limits: Limits,
        recorder: Recorder,
        on_end: Callable[[Request], None],
        *,
        detail: str,
    ) -> None:
        count = len(pipeline.stages)
        priority = replica_priority(first)
        self.index = first
        self.stages = [PipelineStage(clock, priority, stage) for stage in range(count)]
        self._clock = clock
        self._priority = priority
        self._network: FluidNetwork | None = None
        self._sends = pipeline.sends
        self._join(pipeline.sends)
        self.runners = tuple(stage.runner for stage in self.stages)
        share = replace(limits, max_num_seqs=-(-limits.max_num_seqs // count))
        kind = LANE_OF_DETAIL[detail]
        self.lanes = [
            kind(first + lane, clock, pipeline.whole, share, recorder, on_end) for lane in range(count)
        ]
        for lane in self.lanes:
            lane.enter(self.stages, self.lanes, pipeline.stages)

    def send_over(self, network: FluidNetwork) -> None:
        """From now on its stages work and send on devices and links that others may use."""
        self._network = network
        self._join(self._sends)
        for lane in self.lanes:
            lane.equipment = list(chain.from_iterable(runner.equipment for runner in self.runners))

    def change(self, pipeline: Pipeline, equipment: Sequence[Equipment]) -> None:
        """Micro-batches have other costs from the next one of each lane on, and sends from now on."""
        self._join(pipeline.sends)
        for lane in self.lanes:
            lane.change_pipeline(pipeline, equipment)

    def fail(self) -> list[Request]:
        """All that it holds is lost; the requests, which have to go elsewhere."""
        for stage in self.stages:
            stage.void()
        return list(chain.from_iterable(lane.fail() for lane in self.lanes))

    def _join(self, sends: Sequence[AffineCost]) -> None:
        for (stage, following), send in zip(pairwise(self.stages), sends, strict=True):
            stage.precede(following, self._path(send))

    def _path(self, send: AffineCost) -> Path:
        if self._network is None:
            return TimedPath(self._clock, send, self._priority)
        return FluidPath(self._clock, self._network, send, "pipeline")

    @property
    def outstanding(self) -> int:
        """Requests that have not ended."""
        return sum(lane.outstanding for lane in self.lanes)

    @property
    def waiting(self) -> list[Request]:
        """Requests that no batch has taken yet."""
        return list(chain.from_iterable(lane.waiting for lane in self.lanes))

    @property
    def kv_blocks_used(self) -> int:
        """Blocks in use during the steps that run now."""
        return sum(lane.kv_blocks_used for lane in self.lanes)

    def submit(self, request: Request) -> None:
        """Take a request from the router: into the lane that has the fewest."""
        self._shortest().submit(request)

    def expect(self, request: Request) -> None:
        """Reserve blocks, in its turn, for a request whose prompt another replica processes."""
        self._shortest().expect(request)

    def _shortest(self) -> Lane:
        return min(self.lanes, key=lambda lane: lane.outstanding)

    def unfinished(self) -> str | None:
        """Who waits for what, or None when nothing is left."""
        found = [line for lane in self.lanes if (line := lane.unfinished())]
        return "; ".join(found) or None
