"""Generators of fabrics. A new one is a file and a name in this union."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from simulator.topology.fabrics.nvlink_rack import NvlinkRack
from simulator.topology.fabrics.nvswitch_box import NvswitchBox

Fabric = Annotated[NvswitchBox | NvlinkRack, Field(discriminator="kind")]
