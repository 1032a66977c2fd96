"""A box whose GPUs have a link each to each other, without a switch."""

from __future__ import annotations

from itertools import combinations
from typing import Literal

from simulator.topology.builder import GraphBuilder
from simulator.topology.fabrics.box import Box


class MeshBox(Box):
    """A full mesh: any two GPUs have one link; only traffic to all peers uses all links of a GPU."""

    kind: Literal["mesh-box"]
    mesh: str

    @property
    def link_names(self) -> tuple[str, ...]:
        """Classes of link that it names."""
        return (self.mesh, *super().link_names)

    def build(self, builder: GraphBuilder) -> None:
        """Add the box to a graph."""
        self.build_host(builder)
        self.build_devices(builder)
        for one, other in combinations(range(self.gpus), 2):
            builder.join(f"gpu{one}", f"gpu{other}", self.mesh)
