"""Random pools of replicas that hand prompts over, on a small graph, with costs of known algebra."""

from __future__ import annotations

from dataclasses import dataclass, replace

from hypothesis import strategies as st

from simulator.network.collectives import AffineCost, all_reduce_model
from simulator.network.sends import kv_transfers, send_cost
from simulator.record import Record
from simulator.serving.cluster import serve
from simulator.serving.disaggregation import DecodePool, KvMoves, KvTransfer
from simulator.serving.pipeline import Pipeline
from simulator.serving.replica import Limits
from simulator.serving.routers import ROUTERS
from simulator.serving.sharing import Group, Hardware, capacities
from simulator.streams import Streams
from simulator.topology.graph import Topology
from tests import fabrics
from tests.pipelines import stage_cost
from tests.sharing import LayeredCost
from tests.strategies import LinearCost, Traffic, costs, limits, traffic


def pipeline(linear: LinearCost, stages: int) -> LinearCost | Pipeline:
    """A replica of so many stages that are alike; of one stage, what needs no pipeline."""
    if stages == 1:
        return linear
    send = AffineCost("send", 1e-4, 1e-6, measured=False)
    one = stage_cost(linear)
    return Pipeline(stage_cost(linear, stages), (one,) * stages, (send,) * (stages - 1))


Groups = tuple[tuple[str, ...], ...]


@dataclass(frozen=True)
class PoolsCase:
    """A scenario of two pools."""

    topology: Topology
    prefill: Groups
    decode: Groups
    linear: LinearCost
    limits: Limits
    decode_limits: Limits
    traffic: Traffic
    router: str
    transfer: KvTransfer
    layers: int
    block_bytes: float = 4096.0
    kv_heads: int = 4
    free: bool = False
    """Whether KV cache moves in no time."""
    max_concurrency: int | None = None
    stages: tuple[int, int] = (1, 1)
    """Of a replica of either pool; the groups are those of its first stage."""

    def run(self, detail: str = "macro") -> Record:
        if self.stages != (1, 1):
            return self._run_pipelines(detail)
        models = [all_reduce_model(self.topology, group) for group in self.prefill + self.decode]
        steps = [LayeredCost(self.linear, model, self.layers, 0.3, 0.6) for model in models]
        groups = zip(self.prefill + self.decode, steps, models, strict=True)
        return serve(
            steps[: len(self.prefill)],
            self.limits,
            ROUTERS[self.router](),
            Streams(0),
            self.traffic,
            detail=detail,
            max_model_len=10**9,
            max_concurrency=self.max_concurrency,
            hardware=Hardware(tuple(Group(*group) for group in groups), capacities(self.topology)),
            decode_pool=DecodePool(
                steps[len(self.prefill) :], self.decode_limits, ROUTERS[self.router](), self.moves
            ),
        )

    def _run_pipelines(self, detail: str) -> Record:
        ahead, after = (
            [pipeline(self.linear, stages)] * len(groups)
            for stages, groups in zip(self.stages, (self.prefill, self.decode), strict=True)
        )
        return serve(
            ahead,
            self.limits,
            ROUTERS[self.router](),
            Streams(0),
            self.traffic,
            detail=detail,
            max_model_len=10**9,
            max_concurrency=self.max_concurrency,
            decode_pool=DecodePool(after, self.decode_limits, ROUTERS[self.router](), self.moves),
        )

    @property
    def moves(self) -> KvMoves:
        return KvMoves(self.transfer, self.layers, self.block_bytes, self.way, capacities(self.topology))

    def way(self, source: int, target: int) -> AffineCost:
        if self.free:
            return AffineCost("send", 0.0, 0.0, measured=False)
        have = self.prefill[source // self.stages[0]]
        hold = self.decode[(target - len(self.prefill) * self.stages[0]) // self.stages[1]]
        return send_cost(self.topology, kv_transfers(have, hold, self.kv_heads))

    def fits(self, input_tokens: int, output_tokens: int) -> bool:
        """Whether both pools can hold a request."""
        ahead = self.limits.blocks(input_tokens) <= self.limits.num_blocks
        held = self.decode_limits.blocks(input_tokens + output_tokens - 1)
        return ahead and (output_tokens == 1 or held <= self.decode_limits.num_blocks)

    def with_(self, **changes: object) -> PoolsCase:
        return replace(self, **changes)  # type: ignore[arg-type]


SINGLE = (
    ((("gpu0",),), (("gpu1",),)),
    ((("gpu0",),), (("gpu2",), ("gpu3",))),
    ((("gpu0",), ("gpu2",)), (("gpu1",),)),
)
"""Pools of single GPUs: nothing but KV cache is on the links."""

SHARDED = (
    ((("gpu0", "gpu1"),), (("gpu2", "gpu3"),)),
    ((("gpu0", "gpu2"),), (("gpu1",), ("gpu3",))),
    ((("gpu0",), ("gpu3",)), (("gpu1", "gpu2"),)),
)
"""Groups of different sizes, whose all-reduces are on the links of the KV cache."""


@st.composite
def pools_cases(
    draw: st.DrawFn, groups: tuple[tuple[Groups, Groups], ...] = SINGLE, stages: int = 1
) -> PoolsCase:
    """``stages``: the most in either pool."""
    slow = fabrics.link("slow", "pcie", 1e7, latency_s=1e-4, efficiency=0.8)
    fast = fabrics.link("fast", "pcie", 1e9, latency_s=0.0)
    prefill, decode = draw(st.sampled_from(groups))
    ahead, after = draw(limits()), draw(limits())
    return PoolsCase(
        topology=draw(st.sampled_from([fabrics.pcie_tree(slow), fabrics.pcie_tree(fast)])),
        prefill=prefill,
        decode=decode,
        linear=draw(costs()),
        limits=ahead,
        decode_limits=replace(after, block_size=ahead.block_size),
        traffic=draw(traffic(most=20)),
        router=draw(st.sampled_from(sorted(ROUTERS))),
        transfer=draw(st.sampled_from(["at-end", "layerwise"])),
        layers=draw(st.integers(1, 4)),
        block_bytes=draw(st.sampled_from([512.0, 65536.0])),
        free=draw(st.booleans()),
        max_concurrency=draw(st.sampled_from([None, 2, 7])),
        stages=draw(st.tuples(st.integers(1, stages), st.integers(1, stages))),
    )
