"""What a run leaves behind: facts in columns, from which ``metrics`` computes meanings.

Times are seconds of simulated time; a time that has not happened is NaN.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

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
)
"""Where the seconds of an engine step go: host time; fixed kernel times; weights, KV cache and
activations moved through HBM; GEMM arithmetic; attention over prompt chunks; all-reduce."""

CAUSES = ("queue", "preempted", "recompute", *STEP_CAUSES)
"""Where the seconds of a request go: waiting for its first admission; waiting after an eviction;
recomputing what the eviction lost; and the steps that it took part in."""


class Status(IntEnum):
    """How a request ended."""

    FINISHED = 0
    REJECTED_CONTEXT = 1
    REJECTED_KV_CAPACITY = 2


STATUS_NAMES = {
    Status.FINISHED: "finished",
    Status.REJECTED_CONTEXT: "rejected: longer than max_model_len",
    Status.REJECTED_KV_CAPACITY: "rejected: needs more KV blocks than the replica has",
}

REQUEST_COLUMNS = (
    "id",  # order of creation, from 0
    "status",
    "created_s",  # when the traffic source made it
    "arrival_s",  # when it was sent: later than created_s under --max-concurrency
    "admitted_s",  # first admission to the batch
    "first_token_s",
    "finish_s",
    "input_tokens",
    "output_tokens",
    "preemptions",
    "replica",
    "admitted_row",  # rows of the replica's step log that lie before the admission
    "finish_row",  # rows of the replica's step log that lie before the finish
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
    "kv_blocks",  # blocks in use in its last step, the most of the row
)

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


def column(table: Floats, columns: tuple[str, ...], name: str) -> Floats:
    """The named column of a table."""
    return table[:, columns.index(name)]


@dataclass(frozen=True)
class Record:
    """Facts of one run."""

    requests: Floats
    """One row per request in order of id, REQUEST_COLUMNS."""
    steps: tuple[Floats, ...]
    """Per replica, rows in order of time, STEP_COLUMNS."""
    preemptions: Floats
    """One row per eviction, PREEMPTION_COLUMNS."""
    kv_blocks: tuple[int, ...]
    """Blocks that each replica has."""
    end_s: float
    """When the last request ended."""

    def request(self, name: str) -> Floats:
        """A column of the request table."""
        return column(self.requests, REQUEST_COLUMNS, name)
