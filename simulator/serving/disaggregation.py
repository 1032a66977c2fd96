"""Prefill-decode disaggregation: prompts are processed by one pool of replicas and decoded by another.

At its end: a replica of the prefill pool processes the prompt and gives the first token; a replica of the
decode pool is chosen and reserves blocks in its turn; the KV cache is moved; the request joins at the next
step. Layer by layer: the replica that decodes is chosen and reserves blocks before the prompt is queued, as
SGLang and Dynamo do, and the KV cache of every layer is sent when it is computed. Either way the blocks of
the source are kept until all is moved, and nothing is decoded before.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import inf
from typing import TYPE_CHECKING, Literal

from simpy import Event

from simulator.clock import ARRIVAL_PRIORITY, Clock
from simulator.network.collectives import AffineCost
from simulator.network.fluid import FluidNetwork, Resource
from simulator.network.transfers import FluidPath
from simulator.serving.request import Request

if TYPE_CHECKING:
    from simulator.serving.pipeline import Pipeline
    from simulator.serving.replica import Limits, Replica, StepSeconds, Target
    from simulator.serving.routers import Router

KvTransfer = Literal["at-end", "layerwise"]

Way = Callable[[int, int], AffineCost]
"""What it costs to move KV cache from one batch to another, by the number of their step log, per byte."""


@dataclass(frozen=True)
class KvMoves:
    """How KV cache gets from the replicas that process prompts to those that decode."""

    transfer: KvTransfer
    layers: int
    block_bytes: float
    """Bytes of one block in all layers and of all heads, once."""
    way: Way
    capacities: Mapping[Resource, float]
    """Of the links."""


@dataclass(frozen=True)
class DecodePool:
    """Replicas that decode what the others prefill."""

    costs: Sequence[StepSeconds | Pipeline]
    limits: Limits
    router: Router
    moves: KvMoves


class KvNetwork:
    """Ways of KV cache between two pools, over links that all of it shares, and other traffic too."""

    def __init__(self, clock: Clock, network: FluidNetwork, way: Way) -> None:
        self._clock = clock
        self._network = network
        self._way = way
        self._paths: dict[tuple[int, int], FluidPath] = {}

    def change(self, way: Way) -> None:
        """From now on messages go another way; those on theirs arrive as they began."""
        self._way = way
        self._paths.clear()

    def send(
        self,
        source: int,
        target: int,
        nbytes: float,
        on_done: Callable[[], None],
        limit_bytes_per_s: float,
    ) -> None:
        """Move ``nbytes`` no faster than the limit; ``on_done`` is called when they are there."""
        path = self._paths.get((source, target))
        if path is None:
            path = FluidPath(self._clock, self._network, self._way(source, target), "kv")
            self._paths[source, target] = path
        path.send(nbytes, lambda alone_s, lost_s: on_done(), limit_bytes_per_s)


class HandoverDesk:
    """Finds for every request a replica that processes its prompt and one that decodes it."""

    def __init__(
        self,
        clock: Clock,
        moves: KvMoves,
        network: KvNetwork,
        block_size: int,
        prefillers: Iterator[Target],
        decoders: Iterator[Target],
    ) -> None:
        self.clock = clock
        self.moves = moves
        self.network = network
        self.block_size = block_size
        self.open: dict[Handover, None] = {}
        self._prefillers = prefillers
        self._decoders = decoders

    def take(self, request: Request) -> None:
        """A new request; one of a single token has nothing to decode."""
        if request.output_tokens == 1:
            self.prefill(request)
            return
        request.handover = handover = Handover(self, request)
        self.open[handover] = None
        if self.moves.transfer == "layerwise":
            self.expect(request)
        else:
            self.prefill(request)

    def prefill(self, request: Request) -> None:
        """Queue it where its prompt is processed."""
        next(self._prefillers).submit(request)

    def expect(self, request: Request) -> None:
        """Queue it where it will decode, for blocks."""
        next(self._decoders).expect(request)

    def unfinished(self) -> Iterator[str]:
        """Who waits for what."""
        for handover in self.open:
            yield f"request {handover.request.id} waits for {handover.missing}"


class Handover:
    """One request between two replicas, which tell it what they do; what has not happened is None."""

    __slots__ = (
        "_desk",
        "_parts",
        "_source",
        "joined_row",
        "joined_s",
        "moved_s",
        "nbytes",
        "prefill_admitted_row",
        "prefill_end_row",
        "prefill_end_s",
        "request",
        "reserved_s",
        "source_log",
        "target",
    )

    def __init__(self, desk: HandoverDesk, request: Request) -> None:
        self.request = request
        self.target: Replica | None = None
        self.source_log: int | None = None
        self.nbytes = 0.0
        self.prefill_admitted_row: int | None = None
        self.prefill_end_row: int | None = None
        self.prefill_end_s: float | None = None
        self.reserved_s: float | None = None
        self.moved_s: float | None = None
        self.joined_row: int | None = None
        self.joined_s: float | None = None
        self._desk = desk
        self._source: Replica | None = None
        self._parts = 0  # messages that are not there yet

    @property
    def missing(self) -> str:
        """What it waits for."""
        if self.reserved_s is None and self.target is not None:
            return f"blocks on replica {self.target.index}"
        if self.prefill_end_s is None:
            return "its prompt to be processed"
        return f"{self._parts} messages of KV cache from replica {self.source_log}"

    def chunk_begins(self, source: Replica, end_s: float) -> None:
        """A chunk is processed until ``end_s``: each layer is sent when it is computed.

        All but the last, which is computed at the end, are a flow no faster than they are computed.
        """
        self._source = source
        desk, layers = self._desk, self._desk.moves.layers
        nbytes = self._chunk_bytes()
        if not nbytes:
            return
        self._parts += 1
        if layers > 1:
            self._parts += 1
            now_s = desk.clock.now
            bytes_per_s = nbytes / (end_s - now_s)
            bulk_bytes = nbytes * (layers - 1) / layers

            def begin(event: Event) -> None:
                self._send(bulk_bytes, bytes_per_s)

            desk.clock.call_at(now_s + (end_s - now_s) / layers, ARRIVAL_PRIORITY, begin)

    def chunk_ends(self) -> None:
        """The last layer of the chunk is computed."""
        nbytes = self._chunk_bytes()
        if nbytes:
            self._send(nbytes / self._desk.moves.layers)

    def prefilled(self, source: Replica, row: int) -> None:
        """The prompt is processed: what is not sent yet goes as soon as there is somewhere to put it."""
        self._source = source
        self.source_log = source.index
        self.prefill_admitted_row = self.request.admitted_row
        self.prefill_end_row = row
        self.prefill_end_s = self._desk.clock.now
        if self.target is None:
            self._desk.expect(self.request)

    def reserved(self) -> None:
        """Blocks are reserved where it will decode."""
        self.reserved_s = self._desk.clock.now
        if self.prefill_end_s is None:
            self._desk.prefill(self.request)
            return
        self._parts = 1
        blocks = -(-self.request.prefilled // self._desk.block_size)
        self._send(self._desk.moves.block_bytes * blocks)

    def joined(self, row: int) -> None:
        """Its first decode step begins."""
        self.joined_row = row
        self.joined_s = self._desk.clock.now

    def _chunk_bytes(self) -> float:
        """Blocks that the chunk fills, and at the end of the prompt the one that it begins; 0 at the end."""
        desk, request = self._desk, self.request
        if desk.moves.transfer == "at-end":
            return 0.0
        before, size = request.prefilled, desk.block_size
        after = before + request.chunk_tokens
        full = -(-after // size) if after == request.prefill_tokens else after // size
        return desk.moves.block_bytes * (full - before // size)

    def _send(self, nbytes: float, limit_bytes_per_s: float = inf) -> None:
        assert self._source is not None
        assert self.target is not None
        self.nbytes += nbytes
        self._desk.network.send(
            self._source.index,
            self.target.index,
            nbytes,
            self._part_is_there,
            limit_bytes_per_s,
        )

    def _part_is_there(self) -> None:
        self._parts -= 1
        if self._parts or self.prefill_end_s is None:
            return
        assert self._source is not None
        assert self.target is not None
        self.moved_s = self._desk.clock.now
        del self._desk.open[self]
        self._source.release(self.request)
        self.target.receive(self.request)
