"""Random pipelined replicas with costs of known algebra."""

from __future__ import annotations

from dataclasses import dataclass, replace

from hypothesis import strategies as st

from simulator.network.collectives import AffineCost
from simulator.record import Record
from simulator.serving.changes import Change
from simulator.serving.cluster import serve
from simulator.serving.pipeline import Pipeline
from simulator.serving.replica import Limits
from simulator.serving.routers import ROUTERS
from simulator.streams import Streams
from tests.strategies import LinearCost, Traffic, costs, limits, traffic


@dataclass(frozen=True)
class StageCost(LinearCost):
    """A stage that hands on one byte per token."""

    def send_bytes(self, tokens: int) -> float:
        return float(tokens)


def stage_cost(linear: LinearCost, factor: float = 1.0) -> StageCost:
    return StageCost(*(factor * value for value in vars(linear).values()))


@dataclass(frozen=True)
class PipelineCase:
    """A scenario of pipelined replicas; the stages are alike, a send costs a latency and so much a token."""

    linear: LinearCost
    stages: int
    send_s: float
    send_s_per_token: float
    limits: Limits
    traffic: Traffic
    router: str = "round-robin"
    replicas: int = 1
    changes: tuple[Change, ...] = ()

    def run(self, detail: str = "macro") -> Record:
        send = AffineCost("send", self.send_s, self.send_s_per_token, measured=False)
        pipeline = Pipeline(
            stage_cost(self.linear, self.stages),
            (stage_cost(self.linear),) * self.stages,
            (send,) * (self.stages - 1),
        )
        return serve(
            [pipeline] * self.replicas,
            self.limits,
            ROUTERS[self.router](),
            Streams(0),
            self.traffic,
            detail=detail,
            max_model_len=10**9,
            changes=self.changes,
        )

    def with_(self, **changes: object) -> PipelineCase:
        return replace(self, **changes)  # type: ignore[arg-type]


def pipeline_cases() -> st.SearchStrategy[PipelineCase]:
    return st.builds(
        PipelineCase,
        linear=costs(),
        stages=st.integers(2, 4),
        send_s=st.sampled_from([0.0, 1e-3, 1 / 256]),
        send_s_per_token=st.sampled_from([0.0, 1e-5]),
        limits=limits(),
        traffic=traffic(),
        router=st.sampled_from(sorted(ROUTERS)),
        replicas=st.integers(1, 2),
    )
