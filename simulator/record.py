"""What a run leaves behind: facts in columns, from which ``metrics`` computes meanings.

Times are seconds of simulated time; a time that has not happened is NaN.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field
from enum import IntEnum

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

Edge = tuple[str, str]
"""One direction of a link: from a node to its neighbour."""

STEP_CAUSES = (
    "host",
    "launch",
    "weights",
    "kv",
    "activations",
    "compute",
    "attention",
    "allreduce_latency",
    "allreduce_bandwidth",
    "pipeline_send",
    "pipeline_bubble",
    "device_sharing",
    "link_sharing",
)
"""Where the seconds of an engine step go: host time; fixed kernel times; weights, KV cache and
activations moved through HBM; GEMM arithmetic; attention over prompt chunks; all-reduce; sends between
pipeline stages, and waiting for stages; and what others on the same devices and links cost it."""

CAUSES = ("queue", "lost", "preempted", "recompute", "kv_wait", "kv_transfer", *STEP_CAUSES)
"""Where the seconds of a request go: waiting for its admission; all that came before the last failure of
its replica; waiting after an eviction; recomputing what the eviction lost; waiting for blocks and a seat
where it decodes; KV cache on its way there after the prompt; and the steps that it took part in."""


class Status(IntEnum):
    """How a request ended."""

    FINISHED = 0
    REJECTED_CONTEXT = 1
    REJECTED_KV_CAPACITY = 2
    FAILED = 3


STATUS_NAMES = {
    Status.FINISHED: "finished",
    Status.REJECTED_CONTEXT: "rejected: longer than max_model_len",
    Status.REJECTED_KV_CAPACITY: "rejected: needs more KV blocks than the replica has",
    Status.FAILED: "failed: no replica came back",
}

REQUEST_COLUMNS = (
    "id",  # order of creation, from 0
    "status",
    "created_s",  # when the traffic source made it
    "arrival_s",  # when it was sent: later than created_s under --max-concurrency
    "admitted_s",  # first admission to a batch
    "first_token_s",
    "finish_s",
    "input_tokens",
    "output_tokens",
    "preemptions",
    "replica",  # where it ended; its step log is meant by the rows
    "admitted_row",  # rows of the step log that lie before its admission there (or its joining)
    "finish_row",  # rows of the step log that lie before the finish
    "reroutes",  # times that it was sent on because a replica failed
)

STEP_COLUMNS = (
    "start_s",
    "steps",  # identical engine steps in this row but for their growing context
    "decodes",  # requests that decode one token in each step
    "kv_tokens",  # cached tokens read by decoding, summed over the steps
    "chunk_tokens",  # prompt tokens processed (steps is 1 where there are any)
    "chunks",  # prompts that those tokens belong to
    "completions",  # prompts completed, each samples one token
    "attention_s",  # seconds of prefill attention beyond its fixed launch time
    "kv_blocks",  # blocks of the replica in use in its last step, the most of the row
    "device_wait_s",  # seconds of the row beyond its steps alone, because devices are shared
    "link_wait_s",  # the same, because links are shared
    "bubble_s",  # seconds that the micro-batch waited for pipeline stages
    "send_s",  # seconds of sends between pipeline stages
)

STEP_WAITS = {
    "pipeline_send": "send_s",
    "pipeline_bubble": "bubble_s",
    "device_sharing": "device_wait_s",
    "link_sharing": "link_wait_s",
}
"""Causes that no cost model knows: the engine writes their seconds into these columns of the step log."""

PREEMPTION_COLUMNS = (
    "id",
    "replica",
    "evicted_row",
    "evicted_s",
    "readmitted_row",
    "readmitted_s",
    "resumed_row",  # where recomputation ended: next token, or the next eviction
    "resumed_s",
    "gap_s",  # from its last token to the next one; NaN where there was none before or none came
)

TRANSFER_COLUMNS = (
    "id",
    "prefill_replica",
    "prefill_admitted_row",  # rows of the step log there that lie before its admission
    "prefill_end_row",
    "prefill_end_s",  # its prompt is processed, and a token is out
    "reserved_s",  # blocks for it are reserved where it will decode
    "moved_s",  # all of its KV cache is there
    "joined_s",  # its first decode step begins
    "joined_row",
    "decode_replica",
    "bytes",
)
"""One row per hand-over of a processed prompt; what a failure prevented is NaN."""

REROUTE_COLUMNS = (
    "id",
    "replica",  # that failed
    "lost_s",  # when it failed
    "ran",  # 1 if the request had been admitted before, 0 if not
    "readmitted_s",  # its next admission anywhere, or the next failure before one
    "gap_s",  # from its last token to the next one; NaN where there was none before or none came
    "tokens",  # of its KV cache that were lost
)

OUTAGE_COLUMNS = (
    "replica",
    "down_s",
    "up_s",  # NaN where it did not come back
)


def column(table: Floats, columns: tuple[str, ...], name: str) -> Floats:
    """The named column of a table."""
    return table[:, columns.index(name)]


@dataclass(frozen=True)
class NetworkFacts:
    """What a network that replicas share has seen."""

    lost_s: Mapping[tuple[Hashable, str], float]
    """Seconds beyond those that flows take alone: by the direction of a link (or a GPU and what of it) that
    held them back, and by kind of traffic."""


@dataclass(frozen=True)
class Record:
    """Facts of one run."""

    requests: Floats
    """One row per request in order of id, REQUEST_COLUMNS."""
    steps: tuple[Floats, ...]
    """Per step log, rows in order of time, STEP_COLUMNS. A replica has one log, a pipeline one for each
    batch; where tables and ledgers say replica, they mean the log."""
    preemptions: Floats
    """One row per eviction, PREEMPTION_COLUMNS."""
    kv_blocks: tuple[int, ...]
    """Blocks that each replica has."""
    end_s: float
    """When the last request ended."""
    transfers: Floats = field(default_factory=lambda: np.empty((0, len(TRANSFER_COLUMNS))))
    """One row per prompt that was handed over to another replica, TRANSFER_COLUMNS."""
    reroutes: Floats = field(default_factory=lambda: np.empty((0, len(REROUTE_COLUMNS))))
    """One row per request and failure that it suffered, REROUTE_COLUMNS."""
    outages: Floats = field(default_factory=lambda: np.empty((0, len(OUTAGE_COLUMNS))))
    """One row per failure of a replica, in order of time, OUTAGE_COLUMNS."""
    cost_rows: tuple[tuple[int, ...], ...] = ()
    """Per step log, the first row of each of its costs, the first one 0; empty: each has one cost."""
    owners: tuple[int, ...] = ()
    """Per step log, the replica that it belongs to; empty: each belongs to the replica of its index."""
    network: NetworkFacts | None = None
    """None where every replica was simulated as if it were alone."""

    def request(self, name: str) -> Floats:
        """A column of the request table."""
        return column(self.requests, REQUEST_COLUMNS, name)

    def transfer(self, name: str) -> Floats:
        """A column of the table of transfers."""
        return column(self.transfers, TRANSFER_COLUMNS, name)

    def reroute(self, name: str) -> Floats:
        """A column of the table of reroutes."""
        return column(self.reroutes, REROUTE_COLUMNS, name)

    def owner(self, log: int) -> int:
        """The replica that a step log belongs to."""
        return self.owners[log] if self.owners else log

    def row_ranges(self, replica: int) -> list[tuple[int, int]]:
        """First and last row (excluded) of the step log under each cost of a replica."""
        first = self.cost_rows[replica] if self.cost_rows else (0,)
        return list(zip(first, (*first[1:], len(self.steps[replica])), strict=True))
