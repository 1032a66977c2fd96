"""Replicas behind a router, fed by one client."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import partial

from simpy import Event

from simulator.clock import ARRIVAL_PRIORITY, Clock
from simulator.network.fluid import FluidNetwork
from simulator.record import NetworkFacts, Record, Status
from simulator.serving.changes import CHANGE_PRIORITY, Change
from simulator.serving.disaggregation import DecodePool, HandoverDesk, KvNetwork
from simulator.serving.macro import MacroReplica
from simulator.serving.pipeline import Pipeline, PipelineReplica
from simulator.serving.recorder import Recorder
from simulator.serving.replica import Limits, Replica, StepSeconds, Target
from simulator.serving.request import Request
from simulator.serving.routers import Router
from simulator.serving.sharing import Hardware
from simulator.serving.stepwise import StepReplica
from simulator.streams import Streams

REPLICA_OF_DETAIL: dict[str, type[Replica]] = {
    "auto": MacroReplica,
    "macro": MacroReplica,
    "step": StepReplica,
    "layer": StepReplica,
}
"""Levels of detail. Those of ``SHARED`` run on shared devices and links, the others as if each were alone."""

SHARED = ("auto", "layer")


class StalledError(Exception):
    """Nothing is left to happen, yet requests are unfinished: a bug of the simulator."""


class Client:
    """Sends the traffic, at most ``max_concurrency`` requests at a time."""

    def __init__(
        self,
        clock: Clock,
        traffic: Iterable[tuple[float, int, int]],
        send: Callable[[Request], None],
        max_concurrency: int | None,
    ) -> None:
        self._clock = clock
        self._traffic = iter(traffic)
        self._send = send
        self._slots = max_concurrency
        self._held: deque[Request] = deque()
        self._created = 0
        self._schedule_next()

    def _schedule_next(self) -> None:
        upcoming = next(self._traffic, None)
        if upcoming is not None:
            self._upcoming = upcoming
            self._clock.call_at(upcoming[0], ARRIVAL_PRIORITY, self._create)

    def _create(self, event: Event) -> None:
        created_s, input_tokens, output_tokens = self._upcoming
        request = Request(self._created, created_s, created_s, input_tokens, output_tokens)
        self._created += 1
        if self._slots is None:
            self._send(request)
        elif self._slots:
            self._slots -= 1
            self._send(request)
        else:
            self._held.append(request)
        self._schedule_next()

    def ended(self) -> None:
        """One of its requests ended; the next one that is held is sent at once."""
        if self._slots is None:
            return
        self._slots += 1
        if self._held:
            self._clock.call_at(self._clock.now, ARRIVAL_PRIORITY, self._release)

    def _release(self, event: Event) -> None:
        assert self._slots is not None
        if not self._held or not self._slots:
            return
        self._slots -= 1
        request = self._held.popleft()
        request.arrival_s = self._clock.now
        self._send(request)


class Cluster:
    """Replicas of one model behind a router."""

    def __init__(
        self,
        clock: Clock,
        costs: Sequence[StepSeconds | Pipeline],
        limits: Limits,
        router: Router,
        streams: Streams,
        recorder: Recorder,
        *,
        detail: str,
        max_model_len: int,
        max_concurrency: int | None,
        traffic: Iterable[tuple[float, int, int]],
        decode_pool: DecodePool | None = None,
    ) -> None:
        self._limits = limits
        self._max_model_len = max_model_len
        self._recorder = recorder
        self._detail = detail
        self._clock = clock
        self.replicas = self._replicas(costs, limits, 0)
        self._up = list(self.replicas)
        self._down: frozenset[int] = frozenset()
        self._revivals = 0  # moments ahead at which replicas come back
        self._homeless: list[Request] = []  # until a replica is back
        self._choices = router.choices(self._up, streams)
        self._decode_pool = decode_pool
        self._decoders: list[Target] = []
        self._desk: HandoverDesk | None = None
        if decode_pool is not None:
            self._decoders = self._replicas(decode_pool.costs, decode_pool.limits, sum(map(_logs, costs)))
            self._decoder_choices = decode_pool.router.choices(self._decoders, streams)
        self._client = Client(clock, traffic, self._route, max_concurrency)

    @property
    def all_replicas(self) -> list[Target]:
        """Those that take requests, then those that only decode."""
        return self.replicas + self._decoders

    def connect(self, network: FluidNetwork | None) -> FluidNetwork | None:
        """Open the ways to the replicas that only decode, if there are any; the network that they are on."""
        pool = self._decode_pool
        if pool is not None:
            moves = pool.moves
            network = network or FluidNetwork(self._clock, moves.capacities)
            ways = KvNetwork(self._clock, network, moves.way)
            self._desk = HandoverDesk(
                self._clock, moves, ways, self._limits.block_size, self._choices, self._decoder_choices
            )
        return network

    def schedule(self, changes: Sequence[Change], network: FluidNetwork | None) -> None:
        """Let the changes come when it is time; ``network`` is what the replicas share, if they do."""
        for change in changes:
            self._revivals += bool(change.up)
            self._clock.call_at(change.at_s, CHANGE_PRIORITY, partial(self._change, change, network))

    def _change(self, change: Change, network: FluidNetwork | None, event: Event) -> None:
        replicas = self.all_replicas
        if network is not None:
            for resource, capacity in change.capacities.items():
                network.set_capacity(resource, capacity)
        for index, fit in change.fits.items():
            equipment = [] if network is None else [group.equipment(network) for group in fit.groups]
            replicas[index].change(fit.engine, equipment)
        if change.way is not None and self._desk is not None:
            self._desk.network.change(change.way)
        if change.down or change.up:
            self._fail_and_revive(change.down, change.up)

    def _fail_and_revive(self, down: frozenset[int], up: frozenset[int]) -> None:
        """Requests of the replicas that fail go to those that are left, in the order of their arrival."""
        now_s = self._clock.now
        self._revivals -= bool(up)
        self._down = self._down - up | down
        self._up[:] = [replica for index, replica in enumerate(self.replicas) if index not in self._down]
        for index in sorted(up):
            self._recorder.back(index, now_s)
        homeless, self._homeless = self._homeless, []
        for index in sorted(down):
            self._recorder.failed(index, now_s)
            homeless += self.replicas[index].fail()
        for request in sorted(homeless, key=lambda request: (request.arrival_s, request.id)):
            self._send(request)

    def unfinished(self) -> list[str]:
        """Who waits for what."""
        found = [line for replica in self.all_replicas if (line := replica.unfinished())]
        return found if self._desk is None else [*found, *self._desk.unfinished()]

    def _replicas(self, costs: Sequence[StepSeconds | Pipeline], limits: Limits, first: int) -> list[Target]:
        """Replicas whose step logs are numbered from ``first``."""
        found: list[Target] = []
        for cost in costs:
            made: Callable[..., Target] = REPLICA_OF_DETAIL[self._detail]
            if isinstance(cost, Pipeline):
                made = partial(PipelineReplica, detail=self._detail)
            found.append(made(first, self._clock, cost, limits, self._recorder, self._ended))
            first += _logs(cost)
        return found

    def _route(self, request: Request) -> None:
        rejection = self._rejection(request)
        if rejection is None and self._desk is not None:
            self._desk.take(request)
        elif rejection is None:
            self._send(request)
        else:
            self._turn_away(request, rejection)

    def _send(self, request: Request) -> None:
        """To a replica that is up; if there is none, when one comes back; if none ever does, nowhere."""
        if self._up:
            next(self._choices).submit(request)
        elif self._revivals:
            self._homeless.append(request)
        else:
            self._turn_away(request, Status.FAILED)

    def _turn_away(self, request: Request, status: Status) -> None:
        self._recorder.end(request, status, self._clock.now, -1, 0)
        self._client.ended()

    def _rejection(self, request: Request) -> Status | None:
        """Why the request can never be served, if so."""
        if request.input_tokens + request.output_tokens > self._max_model_len:
            return Status.REJECTED_CONTEXT
        slots, pool = request.most_slots, self._decode_pool
        if pool is not None:
            if pool.limits.blocks(slots) > pool.limits.num_blocks and request.output_tokens > 1:
                return Status.REJECTED_KV_CAPACITY
            slots = request.input_tokens
        if self._limits.blocks(slots) > self._limits.num_blocks:
            return Status.REJECTED_KV_CAPACITY
        return None

    def _ended(self, request: Request) -> None:
        self._client.ended()


def serve(
    costs: Sequence[StepSeconds | Pipeline],
    limits: Limits,
    router: Router,
    streams: Streams,
    traffic: Iterable[tuple[float, int, int]],
    *,
    detail: str = "macro",
    max_model_len: int,
    max_concurrency: int | None = None,
    hardware: Hardware | None = None,
    decode_pool: DecodePool | None = None,
    changes: Sequence[Change] = (),
    on_progress: Callable[[int], None] | None = None,
) -> Record:
    """Serve the traffic to its end.

    ``costs`` has one entry per replica; ``traffic`` yields (seconds, prompt tokens, output tokens) in
    order of time; ``hardware`` is what the replicas share, for the levels of detail that know it. With a
    ``decode_pool`` the others process prompts only, and its replicas and their step logs follow theirs.
    Raises StalledError when requests are left that nothing will ever serve.
    """
    clock = Clock()
    all_costs = [*costs, *(() if decode_pool is None else decode_pool.costs)]
    owners = tuple(index for index, cost in enumerate(all_costs) for _ in range(_logs(cost)))
    recorder = Recorder(owners, on_progress)
    cluster = Cluster(
        clock,
        costs,
        limits,
        router,
        streams,
        recorder,
        detail=detail,
        max_model_len=max_model_len,
        max_concurrency=max_concurrency,
        traffic=traffic,
        decode_pool=decode_pool,
    )
    network = None
    if hardware is not None and detail in SHARED:
        network = hardware.share(clock, cluster.all_replicas, closely=detail == "layer")
    network = cluster.connect(network)
    cluster.schedule(changes, network)
    clock.run()
    if stalled := cluster.unfinished():
        raise StalledError("; ".join(stalled))
    facts = None if network is None else NetworkFacts(dict(network.lost_s))
    blocks = [limits.num_blocks] * len(costs)
    if decode_pool is not None:
        blocks += [decode_pool.limits.num_blocks] * len(decode_pool.costs)
    return replace(recorder.record(tuple(blocks)), network=facts)


def _logs(cost: StepSeconds | Pipeline) -> int:
    """Step logs of a replica: one for each of its batches."""
    return len(cost.stages) if isinstance(cost, Pipeline) else 1
