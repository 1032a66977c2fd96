"""Which GPUs serve which replica: side by side, far apart, or as listed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Sequence
from itertools import chain, zip_longest
from typing import Literal

from simulator.errors import InputError, nearest
from simulator.topology.graph import Topology

Policy = Literal["packed", "spread"]
Listed = tuple[tuple[str | int, ...], ...]
"""GPUs of each replica by name or by place, from 0."""


def place(
    topology: Topology, placement: Policy | Listed, sizes: Sequence[int], gpus: Sequence[str] = ()
) -> tuple[tuple[str, ...], ...]:
    """The GPUs of each replica, in order of rank; ``sizes`` are their numbers of GPUs.

    Of ``gpus`` only, where they are given. Raises InputError where a list names no GPU, one GPU twice, or
    another number than ``sizes``.
    """
    gpus = gpus or topology.gpus
    if placement == "packed":
        return _packed(topology, gpus, sizes)
    if placement == "spread":
        return _spread(topology, gpus, sizes)
    return _listed(topology, placement, gpus, sizes)


def _packed(topology: Topology, gpus: Sequence[str], sizes: Sequence[int]) -> tuple[tuple[str, ...], ...]:
    """Each replica in the first of the smallest blocks that has room: island of NVLink, socket, node, all."""
    island, socket, node = _blocks(topology)
    free = dict.fromkeys(gpus)
    groups = []
    for size in sizes:
        levels = (_grouped(free, key) for key in (island, socket, node, lambda gpu: None))
        block = next(block for block in chain.from_iterable(levels) if len(block) >= size)
        groups.append(tuple(block[:size]))
        for gpu in groups[-1]:
            del free[gpu]
    return tuple(groups)


def _spread(topology: Topology, gpus: Sequence[str], sizes: Sequence[int]) -> tuple[tuple[str, ...], ...]:
    """Ranks are dealt out in turn to nodes, in a node to sockets or trays, in those to islands of NVLink."""
    island, socket, node = _blocks(topology)
    dealt = iter(_dealt(gpus, (node, socket, island)))
    return tuple(tuple(next(dealt) for _ in range(size)) for size in sizes)


def _listed(
    topology: Topology, placement: Listed, gpus: Sequence[str], sizes: Sequence[int]
) -> tuple[tuple[str, ...], ...]:
    groups = tuple(tuple(_named(topology, gpus, gpu) for gpu in group) for group in placement)
    if len(groups) != len(sizes):
        raise InputError(
            f"GPUs are listed for {len(groups)} replicas, and there are {len(sizes)}",
            field="placement",
            remedy=f"list {len(sizes)}, or set replicas to {len(groups)}",
        )
    for index, (group, size) in enumerate(zip(groups, sizes, strict=True)):
        if len(group) != size:
            raise InputError(
                f"{len(group)} GPUs are listed for replica {index}, which takes {size}",
                field="placement",
                remedy=f"list {size} GPUs for each replica, or change its parallelism",
            )
    twice = next((gpu for gpu, times in Counter(chain.from_iterable(groups)).items() if times > 1), None)
    if twice is not None:
        raise InputError(f"{twice} is listed twice", field="placement", remedy="list each GPU once")
    return groups


def _named(topology: Topology, gpus: Sequence[str], gpu: str | int) -> str:
    """A GPU by its name or its place."""
    if isinstance(gpu, int):
        if 0 <= gpu < len(gpus):
            return gpus[gpu]
        raise InputError(
            f"no GPU {gpu} among the {len(gpus)} of {topology.system.name}",
            field="placement",
            remedy=f"count from 0 to {len(gpus) - 1}",
        )
    if gpu not in gpus:
        raise InputError(
            f"no GPU of {topology.system.name} is called {gpu!r}",
            field="placement",
            remedy=nearest(gpu, list(gpus)),
        )
    return gpu


Block = Callable[[str], Hashable]


def _blocks(topology: Topology) -> tuple[Block, Block, Block]:
    """What tells the islands of NVLink, the sockets or trays and the nodes of GPUs apart."""
    islands = {gpu: index for index, island in enumerate(topology.islands()) for gpu in island}
    nodes = topology.graph.nodes
    return (
        islands.__getitem__,
        lambda gpu: (topology.host(gpu), nodes[gpu].get("group", 0)),
        topology.host,
    )


def _grouped(gpus: Iterable[str], key: Block) -> list[list[str]]:
    """GPUs by what tells them apart, in order of appearance."""
    found: dict[Hashable, list[str]] = {}
    for gpu in gpus:
        found.setdefault(key(gpu), []).append(gpu)
    return list(found.values())


def _dealt(gpus: Iterable[str], keys: Sequence[Block]) -> list[str]:
    """One GPU of each block in turn, and within each block of each smaller block in turn."""
    if not keys:
        return list(gpus)
    hands = [_dealt(block, keys[1:]) for block in _grouped(gpus, keys[0])]
    turns = chain.from_iterable(zip_longest(*hands))
    return [gpu for gpu in turns if gpu is not None]
