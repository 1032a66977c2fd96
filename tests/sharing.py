"""Replicas on a small graph whose links and devices they share, with costs of known algebra."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import islice, pairwise

from hypothesis import strategies as st

from simulator.cost.passage import Collective, Passage, Work
from simulator.network.collectives import AllReduceModel, all_reduce_model
from simulator.network.sends import send_cost
from simulator.record import Record
from simulator.serving.cluster import serve
from simulator.serving.pipeline import Pipeline
from simulator.serving.replica import Limits
from simulator.serving.routers import ROUTERS
from simulator.serving.sharing import Group, Hardware, capacities
from simulator.streams import Streams
from simulator.topology.graph import Topology
from tests import fabrics
from tests.strategies import LinearCost, Traffic, costs, limits, traffic

BYTES_PER_TOKEN = 4096.0


@dataclass(frozen=True)
class LayeredCost:
    """A linear cost spread over layers that end in an all-reduce each."""

    linear: LinearCost
    all_reduce: AllReduceModel
    layers: int
    compute: float
    """Share of a kernel's seconds in which it keeps the arithmetic busy."""
    hbm: float

    @property
    def kv_s_per_token(self) -> float:
        return self.linear.kv_s_per_token

    def base_s(self, decodes: int, chunk_tokens: int, chunks: int, completions: int) -> float:
        _, latency_s, bandwidth_s = self.all_reduce.cost(BYTES_PER_TOKEN * (decodes + chunk_tokens))
        linear_s = self.linear.base_s(decodes, chunk_tokens, chunks, completions)
        return linear_s + self.layers * (latency_s + bandwidth_s)

    def attention_s(self, new_tokens: int, prefix_tokens: int) -> float:
        return self.linear.attention_s(new_tokens, prefix_tokens)

    def send_bytes(self, tokens: int) -> float:
        return BYTES_PER_TOKEN * tokens

    def passage(
        self,
        decodes: int,
        kv_tokens: float,
        chunk_tokens: int,
        chunks: int,
        completions: int,
        attention_s: float,
    ) -> Passage:
        base_s = self.linear.base_s(decodes, chunk_tokens, chunks, completions)
        kernels_s = (0.75 * base_s + self.kv_s_per_token * kv_tokens + attention_s) / self.layers
        return Passage(
            before=(Work(0.25 * base_s),),
            layer=(
                Work(kernels_s, self.compute * kernels_s, self.hbm * kernels_s),
                Collective(BYTES_PER_TOKEN * (decodes + chunk_tokens)),
            ),
            layers=self.layers,
            after=(),
        )


@dataclass(frozen=True)
class SharedCase:
    """A scenario of the serving engine on a graph; groups may overlap."""

    topology: Topology
    groups: tuple[tuple[str, ...], ...]
    linear: LinearCost
    layers: int
    compute: float
    hbm: float
    limits: Limits
    traffic: Traffic
    router: str

    pipelined: bool = False
    """Each GPU of a group is a stage of its own, instead of a rank."""

    def run(self, detail: str) -> Record:
        ranks = [(gpu,) for group in self.groups for gpu in group] if self.pipelined else list(self.groups)
        models = [all_reduce_model(self.topology, group) for group in ranks]
        steps = [LayeredCost(self.linear, model, self.layers, self.compute, self.hbm) for model in models]
        groups = [Group(*made) for made in zip(ranks, steps, models, strict=True)]
        return serve(
            self._pipelines(steps) if self.pipelined else steps,
            self.limits,
            ROUTERS[self.router](),
            Streams(0),
            self.traffic,
            detail=detail,
            max_model_len=10**9,
            hardware=Hardware(tuple(groups), capacities(self.topology)),
        )

    def _pipelines(self, steps: list[LayeredCost]) -> list[Pipeline]:
        one_each = iter(steps)
        return [
            Pipeline(
                self.linear.scaled(len(group)),
                tuple(islice(one_each, len(group))),
                tuple(send_cost(self.topology, [(*pair, 1.0)]) for pair in pairwise(group)),
            )
            for group in self.groups
        ]


APART = ((("gpu0", "gpu1"), ("gpu2", "gpu3")), (("gpu0", "gpu2"),), (("gpu0",), ("gpu3",)))
"""Groups of the PCIe tree that share nothing."""

TOGETHER = (
    (("gpu0", "gpu2"), ("gpu1", "gpu3")),  # the links of both PCIe switches
    (("gpu0", "gpu1"), ("gpu0", "gpu1")),  # devices and links
    (("gpu0",), ("gpu0",), ("gpu0", "gpu1")),
    (("gpu0", "gpu1"), ("gpu1", "gpu2"), ("gpu2", "gpu3")),
)


def shared_cases(groups: tuple[tuple[tuple[str, ...], ...], ...]) -> st.SearchStrategy[SharedCase]:
    slow = fabrics.link("slow", "pcie", 1e7, latency_s=1e-4, efficiency=0.8)
    fast = fabrics.link("fast", "pcie", 1e9, latency_s=1e-5)
    return st.builds(
        SharedCase,
        topology=st.sampled_from([fabrics.pcie_tree(slow), fabrics.pcie_tree(fast)]),
        groups=st.sampled_from(groups),
        linear=costs(),
        layers=st.integers(1, 3),
        compute=st.sampled_from([0.0, 0.3, 1.0]),
        hbm=st.sampled_from([0.0, 0.6, 1.0]),
        limits=limits(),
        traffic=traffic(most=12),
        router=st.sampled_from(sorted(ROUTERS)),
    )
