"""The laws of the engine on steps that cost what real kernels, collectives and engines cost."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from simulator.cost.model import Model
from simulator.cost.step import StepCost
from simulator.hardware import Dtype, KvDtype
from simulator.metrics.latency import finished, latencies
from simulator.metrics.ledger import ledger
from simulator.network.collectives import all_reduce_model
from simulator.record import Record
from simulator.serving.cluster import serve
from simulator.serving.replica import Limits
from simulator.serving.routers import ROUTERS
from simulator.streams import Streams
from tests.cost_examples import device, engine, family, model
from tests.fabrics import link, switch
from tests.strategies import Traffic, limits, traffic

LINK_BYTES_PER_S = 2.0**39


@dataclass(frozen=True)
class Hardware:
    """A toy GPU group; every factor is a power of two, so that scaling is exact."""

    rate: float = 1.0  # of everything per second, and of overheads and latencies inversely
    bandwidth: float = 1.0
    compute: float = 1.0
    network: float = 1.0

    def cost(self, shape: Model, weights: Dtype, kv_dtype: KvDtype, tp: int) -> StepCost:
        joint = link("nvlink", "nvlink", LINK_BYTES_PER_S * self.rate * self.network, 2.0**-20 / self.rate)
        fabric = switch(tp, joint, reduces=True)
        all_reduce = all_reduce_model(fabric, fabric.gpus)
        return StepCost(
            shape,
            weights,
            kv_dtype,
            tp,
            device(self.rate, self.bandwidth, self.compute),
            family(self.rate),
            engine(self.rate),
            lambda nbytes: all_reduce.cost(nbytes)[1:],
        )


@dataclass(frozen=True)
class Case:
    """A model on a GPU group under traffic."""

    shape: Model
    weights: Dtype
    kv_dtype: KvDtype
    tp: int
    limits: Limits
    traffic: Traffic
    router: str
    replicas: int

    def run(self, hardware: Hardware = Hardware(), detail: str = "macro") -> tuple[Record, StepCost]:
        cost = hardware.cost(self.shape, self.weights, self.kv_dtype, self.tp)
        record = serve(
            [cost] * self.replicas,
            self.limits,
            ROUTERS[self.router](),
            Streams(0),
            self.traffic,
            detail=detail,
            max_model_len=10**6,
        )
        return record, cost

    def at_once(self) -> Case:
        """The same requests all at the start, on one replica."""
        requests = [(0.0, *lengths) for _, *lengths in self.traffic]
        fields = vars(self) | {"traffic": requests, "replicas": 1}
        return Case(**fields)


@st.composite
def models(draw: st.DrawFn) -> tuple[Model, int]:
    """Shapes from tiny to a 70B, and a tensor parallelism that divides them."""
    kv_heads = draw(st.sampled_from([1, 2, 8]))
    heads = kv_heads * draw(st.sampled_from([1, 4, 8]))
    tp = draw(st.sampled_from([size for size in (1, 2, 4, 8) if heads % size == 0]))
    head_dim = draw(st.sampled_from([64, 128]))
    shape = model(
        layers=draw(st.integers(1, 80)),
        hidden=heads * head_dim,
        heads=heads,
        kv_heads=kv_heads,
        head_dim=head_dim,
        intermediate=512 * draw(st.integers(1, 40)),
        vocab=1024 * draw(st.integers(1, 128)),
    )
    return shape, tp


@st.composite
def hardware_cases(draw: st.DrawFn) -> Case:
    shape, tp = draw(models())
    return Case(
        shape=shape,
        weights=draw(st.sampled_from(["bf16", "fp8", "nvfp4"])),
        kv_dtype=draw(st.sampled_from(["bf16", "fp8"])),
        tp=tp,
        limits=draw(limits()),
        traffic=draw(traffic(most=20)),
        router=draw(st.sampled_from(sorted(ROUTERS))),
        replicas=draw(st.integers(1, 2)),
    )


TIMES = ("arrival_s", "admitted_s", "first_token_s", "finish_s")


@settings(max_examples=150, deadline=None)
@given(hardware_cases())
def test_macro_equals_step_on_real_kernels(case: Case) -> None:
    fast, slow = case.run()[0], case.run(detail="step")[0]
    for name in (*TIMES, "status", "preemptions", "replica"):
        np.testing.assert_allclose(fast.request(name), slow.request(name), rtol=1e-9, atol=0, err_msg=name)


@settings(deadline=None)
@given(hardware_cases())
def test_the_ledger_of_every_request_sums_to_its_latency_in_both_details(case: Case) -> None:
    ledgers = []
    for detail in ("macro", "step"):
        record, cost = case.run(detail=detail)
        by_request = ledger(record, [cost.breakdown] * case.replicas).by_request
        done = finished(record)
        sums = by_request[done].sum(axis=1)
        np.testing.assert_allclose(sums, latencies(record).e2e_s[done], rtol=0, atol=1e-9)
        ledgers.append(by_request)
    np.testing.assert_allclose(*ledgers, rtol=1e-9, atol=1e-9)


@settings(deadline=None)
@given(hardware_cases())
def test_doubled_rates_and_halved_latencies_halve_every_time_exactly(case: Case) -> None:
    faster = Case(**vars(case) | {"traffic": [(0.5 * now_s, *rest) for now_s, *rest in case.traffic]})
    whole, half = case.run()[0], faster.run(Hardware(rate=2.0))[0]
    for name in TIMES:
        np.testing.assert_array_equal(0.5 * whole.request(name), half.request(name), err_msg=name)


@settings(deadline=None)
@given(
    hardware_cases(), st.sampled_from(["bandwidth", "compute", "network"]), st.sampled_from([1.5, 2.0, 100.0])
)
def test_a_better_part_never_makes_a_closed_batch_slower(case: Case, part: str, factor: float) -> None:
    batch = case.at_once()
    before_s = batch.run()[0].end_s
    after_s = batch.run(Hardware(**{part: factor}))[0].end_s
    assert after_s <= before_s * (1 + 1e-12)
