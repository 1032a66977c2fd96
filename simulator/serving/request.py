"""One request on its way through a replica."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from simulator.serving.disaggregation import Handover


@dataclass(slots=True)
class Loss:
    """A failure that a request suffers from until its next token."""

    log: int
    """Step log of the replica that failed."""
    lost_s: float
    ran: bool
    """Whether it had been admitted before."""
    tokens: int
    """Of its KV cache."""
    readmitted_s: float | None = None


class Request:
    """A request that is alive; what has not happened is None."""

    __slots__ = (
        "admission",
        "admitted_row",
        "admitted_s",
        "arrival_s",
        "chunk_tokens",
        "created_s",
        "evicted_row",
        "evicted_s",
        "first_token_s",
        "generated",
        "handover",
        "id",
        "input_tokens",
        "last_token_s",
        "loss",
        "output_tokens",
        "preemptions",
        "prefilled",
        "readmitted_row",
        "readmitted_s",
        "reroutes",
        "slots_origin",
    )

    def __init__(
        self, id: int, created_s: float, arrival_s: float, input_tokens: int, output_tokens: int
    ) -> None:
        self.id = id
        self.created_s = created_s
        self.arrival_s = arrival_s
        self.input_tokens = input_tokens
        self.output_tokens = output_tokens
        self.generated = 0
        self.prefilled = 0  # prompt (and lost output) tokens whose KV is computed since the admission
        self.chunk_tokens = 0  # of those, tokens in the running step
        self.preemptions = 0
        self.reroutes = 0
        self.admission = -1  # rank among the admissions of its replica; -1 while it waits
        self.handover: Handover | None = None  # where another replica decodes it
        self.slots_origin = 0  # decode clock minus KV slots in use: constant while it decodes
        self.admitted_s: float | None = None
        self.admitted_row: int | None = None
        self.first_token_s: float | None = None
        self.evicted_s: float | None = None
        self.evicted_row: int | None = None
        self.readmitted_s: float | None = None
        self.readmitted_row: int | None = None
        self.last_token_s: float | None = None  # kept only across an eviction or a failure
        self.loss: Loss | None = None

    @property
    def prefill_tokens(self) -> int:
        """Tokens to process before it decodes: its prompt, and after an eviction its lost output."""
        return self.input_tokens + self.generated

    @property
    def leaving(self) -> Handover | None:
        """Its way to another replica, if it goes there once its prompt is processed."""
        handover = self.handover
        return None if handover is None or handover.prefill_end_s is not None else handover

    @property
    def coming(self) -> Handover | None:
        """Its way from another replica, if it waits only for blocks here."""
        handover = self.handover
        if handover is None or handover.target is None or handover.reserved_s is not None:
            return None
        return handover

    @property
    def most_slots(self) -> int:
        """KV slots it holds at its end: the last output token is never fed back."""
        return self.input_tokens + self.output_tokens - 1
