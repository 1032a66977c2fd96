"""An engine step taken apart: what its kernels ask of a device, and its collectives of the links.

All ranks do the same, so that one stands for them.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Work:
    """Kernels in a row on one rank, alone on their device.

    ``compute_s``, ``hbm_s``: how long arithmetic or HBM, at the rates that the kernels reach, would be busy
    with them if it were alone; neither is above ``seconds``. Fixed and host times are in ``seconds`` only.
    """

    seconds: float
    compute_s: float = 0.0
    hbm_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Collective:
    """An all-reduce of ``nbytes`` over the ranks."""

    nbytes: float


Piece = Work | Collective


@dataclass(frozen=True, slots=True)
class Passage:
    """The pieces of a step in order: ``before``, ``layer`` as many times as there are layers, ``after``."""

    before: tuple[Piece, ...]
    layer: tuple[Piece, ...]
    layers: int
    after: tuple[Piece, ...]
