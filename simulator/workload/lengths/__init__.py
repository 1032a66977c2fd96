"""Lengths of prompts and outputs: each is a Spec whose one method draws both for a number of requests."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from simulator.workload.lengths.fixed import Fixed
from simulator.workload.lengths.lognormal_mixture import Component, LognormalMixture
from simulator.workload.lengths.random_range import RandomRange

Lengths = Annotated[LognormalMixture | RandomRange | Fixed, Field(discriminator="kind")]

__all__ = ["Component", "Fixed", "Lengths", "LognormalMixture", "RandomRange"]
