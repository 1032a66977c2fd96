"""Generators of fabrics. A new one is a file and a name in this union."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from simulator.topology.fabrics.mesh_box import MeshBox
from simulator.topology.fabrics.nvlink_rack import NvlinkRack
from simulator.topology.fabrics.nvswitch_box import NvswitchBox
from simulator.topology.fabrics.pcie_box import PcieBox
from simulator.topology.fabrics.unified_node import UnifiedNode

Fabric = Annotated[NvswitchBox | NvlinkRack | PcieBox | MeshBox | UnifiedNode, Field(discriminator="kind")]
