"""Replicas on a small graph whose links and devices they share, with costs of known algebra."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import chain, pairwise

from hypothesis import strategies as st

from simulator.cost.passage import Collective, Passage, Work
from simulator.network.collectives import AllReduceModel, all_reduce_model
from simulator.network.sends import send_cost
from simulator.record import Record
from simulator.serving.changes import Change, Fit
from simulator.serving.cluster import serve
from simulator.serving.pipeline import Pipeline
from simulator.serving.replica import Limits
from simulator.serving.routers import ROUTERS
from simulator.serving.sharing import Group, Hardware, capacities
from simulator.streams import Streams
from simulator.topology.graph import Edge, Topology
from tests import fabrics
from tests.strategies import LinearCost, Traffic, costs, limits, moments, outages, traffic

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
    slow_links: tuple[tuple[float, dict[Edge, float]], ...] = ()
    """From when on links have a factor of their bandwidth."""
    outages: tuple[Change, ...] = ()

    def run(self, detail: str) -> Record:
        fits = self._fits(self.topology)
        groups = tuple(chain.from_iterable(fit.groups for fit in fits))
        return serve(
            [fit.engine for fit in fits],
            self.limits,
            ROUTERS[self.router](),
            Streams(0),
            self.traffic,
            detail=detail,
            max_model_len=10**9,
            hardware=Hardware(groups, capacities(self.topology)),
            changes=[*(self._change(*slow) for slow in self.slow_links), *self.outages],
        )

    def _fits(self, topology: Topology) -> list[Fit]:
        """What each replica costs on the topology."""
        return [self._fit(topology, group) for group in self.groups]

    def _fit(self, topology: Topology, gpus: tuple[str, ...]) -> Fit:
        ranks = [(gpu,) for gpu in gpus] if self.pipelined else [gpus]
        models = [all_reduce_model(topology, group) for group in ranks]
        steps = tuple(
            LayeredCost(self.linear, model, self.layers, self.compute, self.hbm) for model in models
        )
        groups = tuple(map(Group, ranks, steps, models))
        if not self.pipelined:
            return Fit(steps[0], groups)
        sends = tuple(send_cost(topology, [(*pair, 1.0)]) for pair in pairwise(gpus))
        return Fit(Pipeline(self.linear.scaled(len(gpus)), steps, sends), groups)

    def _change(self, at_s: float, factors: dict[Edge, float]) -> Change:
        slower = self.topology.damaged((), factors)
        return Change(at_s, dict(enumerate(self._fits(slower))), capacities(slower))


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


@st.composite
def slowing_cases(draw: st.DrawFn, groups: tuple[tuple[tuple[str, ...], ...], ...]) -> SharedCase:
    """The same with links that lose bandwidth and get it back."""
    case = draw(shared_cases(groups))
    at_s = sorted(draw(st.lists(moments(), min_size=1, max_size=3)))
    links = st.sampled_from(sorted(case.topology.graph.edges))
    factors = st.dictionaries(links, st.sampled_from([0.1, 0.5, 1.0]), max_size=4)
    return replace(case, slow_links=tuple((time_s, draw(factors)) for time_s in at_s))


@st.composite
def failing_shared_cases(draw: st.DrawFn, groups: tuple[tuple[tuple[str, ...], ...], ...]) -> SharedCase:
    """The same with replicas that fail and come back."""
    case = draw(slowing_cases(groups))
    return replace(case, outages=draw(outages(len(case.groups))))
