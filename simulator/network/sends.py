"""What one group of ranks sends to another: activations from stage to stage, KV from prefill to decode."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from fractions import Fraction

from simulator.network.rounds import AffineCost, Part, Round, Transfer, affine_cost
from simulator.topology.graph import Topology


def stage_transfers(source_ranks: Sequence[str], target_ranks: Sequence[str]) -> tuple[Transfer, ...]:
    """Each rank of a pipeline stage sends its whole message to its peer in the next."""
    return tuple((source, target, 1.0) for source, target in zip(source_ranks, target_ranks, strict=True))


def kv_transfers(
    source_ranks: Sequence[str], target_ranks: Sequence[str], kv_heads: int
) -> tuple[Transfer, ...]:
    """Who sends whom which share of the KV of a request, from one tensor-parallel group to another.

    The share is of the bytes of all heads, once. Ranks hold whole heads, in order; where there are more ranks
    than heads, each head has several holders, as in vLLM. Each target receives what it must hold, exactly
    once; the holders of a head send equal parts of it, to as few targets each as that allows: the line of
    the targets' copies is cut into as many equal pieces as there are holders. Raises ValueError where heads
    and ranks do not divide each other. A rank that is in both groups keeps its part: a transfer to itself.
    """
    shares: dict[tuple[str, str], Fraction] = defaultdict(Fraction)
    for head in range(kv_heads):
        holders = _holders(source_ranks, head, kv_heads)
        takers = _holders(target_ranks, head, kv_heads)
        for holder, taker, part in _matched(len(holders), len(takers)):
            shares[holders[holder], takers[taker]] += part / kv_heads
    return tuple((source, target, float(share)) for (source, target), share in shares.items())


def send_cost(topology: Topology, transfers: Sequence[Transfer]) -> AffineCost:
    """The cost of transfers that start together; a message is what their shares are of.

    With the latency of the slowest path and the efficiency of each link; no library's constants.
    """
    return affine_cost(topology, "send", [Part(None, len(transfers), (Round(tuple(transfers)),))])


def _holders(ranks: Sequence[str], head: int, kv_heads: int) -> Sequence[str]:
    """The ranks that have a head: one, or as many as share it."""
    size = len(ranks)
    if kv_heads % size and size % kv_heads:
        raise ValueError(f"{kv_heads} KV heads and {size} ranks do not divide each other")
    if size <= kv_heads:
        return [ranks[head * size // kv_heads]]
    copies = size // kv_heads
    return ranks[head * copies : (head + 1) * copies]


def _matched(holders: int, takers: int) -> list[tuple[int, int, Fraction]]:
    """Holder, taker and what part of the head goes between them: the overlap of even cuts of one line."""
    found = []
    for holder in range(holders):
        for taker in range(takers):
            start = max(Fraction(holder * takers, holders), Fraction(taker))
            end = min(Fraction((holder + 1) * takers, holders), Fraction(taker + 1))
            if end > start:
                found.append((holder, taker, end - start))
    return found
