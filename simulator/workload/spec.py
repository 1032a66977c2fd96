"""What traffic is asked for, and what a preset of the catalogue holds."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, model_validator

from simulator.hardware import WithSources
from simulator.spec import Count, PerS, Sourced, Spec, Tokens
from simulator.workload.arrivals import AllAtOnce, Arrivals
from simulator.workload.lengths import Lengths

Positive = Annotated[float, Field(gt=0)]


class Preset(WithSources):
    """Traffic to make up: arrivals, lengths, and the mean rate that it has by itself.

    Without a rate all requests arrive at once, unless the workload names one.
    """

    rate: Sourced[PerS] | None = None
    arrivals: Sourced[Arrivals]
    lengths: Sourced[Lengths]

    @model_validator(mode="after")
    def _rate_fits_the_arrivals(self) -> Preset:
        if self.rate is not None and (self.rate.value <= 0 or isinstance(self.arrivals.value, AllAtOnce)):
            raise ValueError("the rate is above zero, and arrivals all at once have none")
        return self


class Workload(Spec):
    """The traffic of a scenario: a preset or a trace, and how to change it.

    ``request_rate`` is the mean rate per second, "inf" sends all at once. ``burstiness`` replaces the
    arrivals of a preset by gamma gaps, ``arrival`` by the named process. ``time_scale`` multiplies times
    of arrival. ``max_concurrency`` is for the client that sends the traffic. Lengths called random are
    those of a preset with lengths of kind random-range.
    """

    preset: str | None = None
    trace: str | None = None
    trace_format: Literal["auto", "azure", "native"] = "auto"
    num_prompts: Count | None = None
    request_rate: Positive | Literal["inf"] | None = None
    burstiness: Positive | None = None
    arrival: Literal["poisson", "constant"] | None = None
    max_concurrency: Count | None = None
    time_scale: Positive = 1.0
    random_input_len: Tokens | None = None
    random_output_len: Tokens | None = None
    random_range_ratio: Annotated[float, Field(ge=0, lt=1)] | None = None

    @model_validator(mode="after")
    def _choices_agree(self) -> Workload:
        for wrong, reason in (
            ((self.preset is None) == (self.trace is None), "give either a preset or a trace"),
            (
                self.preset is not None and self.num_prompts is None,
                "a preset goes on for ever; give num_prompts",
            ),
            (
                self.trace is not None and (self.burstiness or self.arrival) is not None,
                "a trace brings its own arrivals; leave out burstiness and arrival",
            ),
            (
                self.burstiness is not None and self.arrival is not None,
                "burstiness and arrival both name a process; give one",
            ),
            (
                self.request_rate == "inf" and (self.burstiness or self.arrival) is not None,
                "request_rate inf sends all at once; leave out burstiness and arrival",
            ),
            (
                self.request_rate is not None and self.time_scale != 1.0,
                "request_rate and time_scale both set the rate; give one",
            ),
            (
                self.trace is not None and bool(self.random_lengths()),
                "a trace brings its own lengths; leave out random_input_len and the like",
            ),
        ):
            if wrong:
                raise ValueError(reason)
        return self

    def random_lengths(self) -> dict[str, float]:
        """The lengths that were given for a preset of kind random-range, by the names that it has."""
        given = {
            "input_tokens": self.random_input_len,
            "output_tokens": self.random_output_len,
            "range_ratio": self.random_range_ratio,
        }
        return {name: value for name, value in given.items() if value is not None}
