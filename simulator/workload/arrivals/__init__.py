"""Arrival processes: each is a Spec whose one method draws endless times in blocks.

A process has a shape and some mean rate; traffic stretches its time to the rate that is asked for.
"""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from simulator.workload.arrivals.all_at_once import AllAtOnce
from simulator.workload.arrivals.constant import Constant
from simulator.workload.arrivals.gamma import Gamma
from simulator.workload.arrivals.mmpp2 import Mmpp2
from simulator.workload.arrivals.onoff import OnOff
from simulator.workload.arrivals.poisson import Poisson

Arrivals = Annotated[Poisson | Gamma | Constant | AllAtOnce | Mmpp2 | OnOff, Field(discriminator="kind")]

__all__ = ["AllAtOnce", "Arrivals", "Constant", "Gamma", "Mmpp2", "OnOff", "Poisson"]
