"""Random streams that have a name and an owner."""

from __future__ import annotations

import hashlib

import numpy as np


class Streams:
    """Independent generators made from one seed and the *name* of their consumer.

    A new consumer changes nobody's numbers, and two systems under one seed see the same traffic.
    """

    def __init__(self, seed: int) -> None:
        self._seed = seed

    def __call__(self, name: str) -> np.random.Generator:
        words = np.frombuffer(hashlib.sha256(name.encode()).digest(), dtype=np.uint32)
        return np.random.default_rng([self._seed, *words.tolist()])
