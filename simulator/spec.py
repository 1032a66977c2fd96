"""The base of everything that is described in YAML: frozen, unknown keys refused, units named."""

from __future__ import annotations

from typing import Annotated, Any, Generic, Literal, TypeVar

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from simulator import units
from simulator.errors import InputError

T = TypeVar("T")


class Spec(BaseModel):
    """Frozen description; a key that it does not know is an error."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


def _quantity(dimension: str) -> BeforeValidator:
    def read(value: Any) -> float:
        try:
            return units.parse(value, dimension)
        except InputError as error:
            raise ValueError(str(error)) from None

    return BeforeValidator(read)


Bytes = Annotated[float, _quantity(units.BYTES)]
BytesPerS = Annotated[float, _quantity(units.BYTES_PER_S)]
FlopPerS = Annotated[float, _quantity(units.FLOP_PER_S)]
PerS = Annotated[float, _quantity(units.PER_S)]
Seconds = Annotated[float, _quantity(units.SECONDS)]
Watts = Annotated[float, _quantity(units.WATTS)]
Usd = Annotated[float, _quantity(units.USD)]
UsdPerHour = Annotated[float, _quantity(units.USD_PER_HOUR)]

Count = Annotated[int, Field(ge=1)]
Tokens = Annotated[int, Field(ge=1, lt=2**31)]
"""A length; traces and draws keep it in 32 bits."""

Status = Literal["datasheet", "measured", "fitted", "assumed"]


class Sourced(Spec, Generic[T]):
    """A figure with its source.

    ``source`` is a key of the file's ``sources`` table; ``status`` says how the figure came about.
    """

    value: T
    source: str
    status: Status
    note: str | None = None
