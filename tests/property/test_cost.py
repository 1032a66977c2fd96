"""Laws of the cost of a step: dimension, monotony, additivity, bounds."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import fsum

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from simulator.cost.model import Model
from simulator.cost.passage import Passage, Work
from simulator.cost.stage import WHOLE, Stage, stages
from simulator.cost.step import StepCost
from simulator.hardware import Dtype, KvDtype
from simulator.record import STEP_CAUSES, STEP_COLUMNS, Floats
from tests.cost_examples import device, engine, family, model

DTYPES: list[Dtype] = ["bf16", "fp8", "nvfp4"]
KV_DTYPES: list[KvDtype] = ["bf16", "fp8"]


def all_reduce(nbytes: float, rate: float = 1.0) -> tuple[float, float]:
    """Any affine cost."""
    return 5e-6 / rate, nbytes / (4e11 * rate)


@dataclass(frozen=True)
class Hardware:
    """A model on hardware whose figures are multiplied."""

    model: Model
    weights: Dtype
    kv_dtype: KvDtype
    tp: int
    rate: float = 1.0
    bandwidth: float = 1.0
    compute: float = 1.0
    stage: Stage = WHOLE

    def cost(self) -> StepCost:
        return StepCost(
            self.model,
            self.weights,
            self.kv_dtype,
            self.tp,
            device(self.rate, self.bandwidth, self.compute),
            family(self.rate),
            engine(self.rate),
            lambda nbytes: all_reduce(nbytes, self.rate),
            stage=self.stage,
        )


@dataclass(frozen=True)
class Step:
    """A batch: decodes over their context, and at most one prompt chunk over its prefix."""

    decodes: int
    context: int
    chunk: int
    prefix: int
    completions: int

    def seconds(self, cost: StepCost) -> float:
        attention_s = cost.attention_s(self.chunk, self.prefix) if self.chunk else 0.0
        base_s = cost.base_s(self.decodes, self.chunk, 1 if self.chunk else 0, self.completions)
        return base_s + cost.kv_s_per_token * self.context + attention_s

    def row(self, cost: StepCost, count: int = 1) -> Floats:
        """A row of the step log: ``count`` such steps."""
        chunks = 1 if self.chunk else 0
        values = {
            "steps": count,
            "decodes": self.decodes,
            "kv_tokens": self.context * count,
            "chunk_tokens": self.chunk,
            "chunks": chunks,
            "completions": self.completions,
            "attention_s": cost.attention_s(self.chunk, self.prefix) if chunks else 0.0,
        }
        return np.array([[values.get(name, 0.0) for name in STEP_COLUMNS]])

    def passage(self, cost: StepCost) -> Passage:
        attention_s = cost.attention_s(self.chunk, self.prefix) if self.chunk else 0.0
        chunks = 1 if self.chunk else 0
        return cost.passage(self.decodes, self.context, self.chunk, chunks, self.completions, attention_s)


@st.composite
def hardware(draw: st.DrawFn) -> Hardware:
    tp = draw(st.sampled_from([1, 2, 4, 8]))
    kv_heads = draw(st.sampled_from([1, 2, 4, 8]))
    head_dim = draw(st.sampled_from([64, 128, 256]))
    shapes = model(
        layers=draw(st.integers(1, 100)),
        hidden=draw(st.integers(1, 64)) * 256,
        kv_heads=kv_heads,
        heads=8 * draw(st.integers(1, 12)),
        head_dim=head_dim,
        intermediate=draw(st.integers(1, 64)) * 512,
        vocab=draw(st.integers(1000, 300000)),
        tied_embeddings=draw(st.booleans()),
    )
    weights = draw(st.sampled_from(DTYPES))
    return Hardware(shapes, weights, draw(st.sampled_from(KV_DTYPES)), tp)


@st.composite
def pipelines(draw: st.DrawFn) -> tuple[Hardware, list[Hardware]]:
    """A system, and its stages."""
    whole = draw(hardware())
    count = draw(st.integers(1, min(8, whole.model.layers)))
    return whole, [replace(whole, stage=stage) for stage in stages(count)]


@st.composite
def steps(draw: st.DrawFn) -> Step:
    decodes = draw(st.integers(0, 2000))
    chunk = draw(st.integers(0 if decodes else 1, 9000))
    context = draw(st.integers(decodes, 100 * decodes + 1)) if decodes else 0
    prefix = draw(st.integers(0, 100000)) if chunk else 0
    return Step(decodes, context, chunk, prefix, draw(st.integers(0, 1)) if chunk else 0)


@given(hardware(), steps(), st.sampled_from([0.25, 2.0, 8.0]))
def test_faster_rates_and_shorter_latencies_divide_the_seconds_exactly(
    system: Hardware, step: Step, factor: float
) -> None:
    assert step.seconds(replace(system, rate=factor).cost()) * factor == step.seconds(system.cost())


@given(hardware(), steps(), st.floats(1.0, 100.0), st.sampled_from(["bandwidth", "compute"]))
def test_more_bandwidth_or_compute_never_slows_a_step(
    system: Hardware, step: Step, factor: float, what: str
) -> None:
    faster = replace(system, bandwidth=factor) if what == "bandwidth" else replace(system, compute=factor)
    assert step.seconds(faster.cost()) <= step.seconds(system.cost()) * (1 + 1e-12)


@given(hardware(), steps())
def test_more_work_never_takes_less_time(system: Hardware, step: Step) -> None:
    cost = system.cost()
    seconds = step.seconds(cost)
    assert step.seconds(cost) > 0
    assert replace(step, decodes=step.decodes + 1, context=step.context + 1).seconds(cost) > seconds
    assert replace(step, chunk=step.chunk + 1).seconds(cost) > seconds
    if step.chunk:
        assert replace(step, prefix=step.prefix + 128).seconds(cost) > seconds


@given(hardware(), st.lists(st.tuples(steps(), st.integers(1, 500)), min_size=1, max_size=20))
def test_causes_sum_to_the_seconds_of_every_row(system: Hardware, rows: list[tuple[Step, int]]) -> None:
    cost = system.cost()
    table = np.zeros((len(rows), len(STEP_COLUMNS)))
    expected = []
    for row, (step, count) in zip(table, rows, strict=True):
        row[:] = step.row(cost, count)
        chunks = 1 if step.chunk else 0
        attention_s = cost.attention_s(step.chunk, step.prefix) if chunks else 0.0
        base_s = cost.base_s(step.decodes, step.chunk, chunks, step.completions)
        expected.append(count * base_s + cost.kv_s_per_token * step.context * count + attention_s)
    causes = cost.breakdown(table)
    assert causes.shape == (len(rows), len(STEP_CAUSES))
    assert (causes >= 0).all()
    assert [fsum(row) for row in causes] == pytest.approx(expected, rel=1e-13)


def test_no_rows_have_no_causes() -> None:
    none = np.zeros((0, len(STEP_COLUMNS)))
    assert Hardware(model(), "fp8", "bf16", 2).cost().breakdown(none).shape == (0, len(STEP_CAUSES))


@given(hardware(), steps())
def test_no_step_beats_the_roofline(system: Hardware, step: Step) -> None:
    cost = system.cost()
    pairs = step.chunk * step.prefix + step.chunk * (step.chunk + 1) / 2
    floor_s = cost.roofline.floor_step_s(step.decodes, step.context, step.chunk, pairs)
    assert floor_s <= step.seconds(cost)


@given(hardware(), steps())
def test_ranks_share_arithmetic_and_weights(system: Hardware, step: Step) -> None:
    whole = replace(system, tp=1).cost().roofline
    shared = system.cost().roofline
    repeated = max(1, system.tp // system.model.kv_heads)  # copies of each KV head
    padding = system.model.vocab % system.tp
    pairs = float(step.chunk * step.prefix)
    if repeated == 1 and not padding:
        work = (step.decodes, step.context, step.chunk, pairs)
        assert shared.compute_s(*work) * system.tp == pytest.approx(whole.compute_s(*work), rel=1e-12)
        assert shared.weight_bytes * system.tp == pytest.approx(whole.weight_bytes, rel=1e-12)
        assert shared.kv_bytes_per_token * system.tp == whole.kv_bytes_per_token
    else:
        assert shared.weight_bytes * system.tp >= whole.weight_bytes


@given(hardware(), st.integers(1, 500), st.integers(1, 100))
def test_a_run_of_decode_steps_is_affine_in_the_context(system: Hardware, decodes: int, context: int) -> None:
    cost = system.cost()
    one, two, three = (Step(decodes, context * decodes * k, 0, 0, 0).seconds(cost) for k in (1, 2, 3))
    assert three - two == pytest.approx(two - one, rel=1e-6)


def _whole_s(passage: Passage) -> float:
    """The pieces, one after another, with the all-reduce of ``Hardware``."""
    pieces = [*passage.before, *passage.layer * passage.layers, *passage.after]
    return fsum(
        piece.seconds if isinstance(piece, Work) else sum(all_reduce(piece.nbytes)) for piece in pieces
    )


@given(pipelines(), steps())
def test_the_pieces_of_a_passage_sum_to_the_seconds_of_the_step(
    pipeline: tuple[Hardware, list[Hardware]], step: Step
) -> None:
    for system in (pipeline[0], *pipeline[1]):
        _check_sum(system, step)


def _check_sum(system: Hardware, step: Step) -> None:
    assert _whole_s(step.passage(system.cost())) == pytest.approx(step.seconds(system.cost()), rel=1e-12)


@given(hardware(), steps())
def test_no_piece_keeps_arithmetic_or_memory_busy_for_longer_than_it_lasts(
    system: Hardware, step: Step
) -> None:
    passage = step.passage(system.cost())
    for piece in (*passage.before, *passage.layer, *passage.after):
        if isinstance(piece, Work):
            assert 0 <= piece.compute_s <= piece.seconds
            assert 0 <= piece.hbm_s <= piece.seconds


@given(pipelines(), steps())
def test_the_stages_of_a_pipeline_take_what_the_whole_takes_and_gather_between_them(
    pipeline: tuple[Hardware, list[Hardware]], step: Step
) -> None:
    system, of_stages = pipeline
    gather_s = sum(all_reduce((step.decodes + step.chunk) * 2 * system.model.hidden))
    gathers = len(of_stages) - 1 if system.tp > 1 else 0
    together_s = fsum(step.seconds(one.cost()) for one in of_stages)
    assert together_s == pytest.approx(step.seconds(system.cost()) + gathers * gather_s, rel=1e-12)


@given(pipelines(), steps())
def test_the_work_and_the_bytes_of_the_stages_are_those_of_the_whole(
    pipeline: tuple[Hardware, list[Hardware]], step: Step
) -> None:
    system, of_stages = pipeline
    shape, tp = system.model, system.tp
    whole, rooflines = system.cost().roofline, [one.cost().roofline for one in of_stages]
    pairs = float(step.chunk * step.prefix)
    work = (step.decodes, step.context, step.chunk, pairs)
    assert fsum(one.compute_s(*work) for one in rooflines) == pytest.approx(whole.compute_s(*work), rel=1e-12)
    moved = (step.decodes, step.context, step.chunk)
    assert fsum(one.hbm_bytes(*moved) for one in rooflines) == pytest.approx(
        whole.hbm_bytes(*moved), rel=1e-12
    )
    kv_bytes = [shape.kv_bytes_per_token(system.kv_dtype, tp, one.stage) for one in of_stages]
    assert sum(kv_bytes) == shape.kv_bytes_per_token(system.kv_dtype, tp)
    held = fsum(shape.weight_bytes(system.weights, tp, one.stage) for one in of_stages)
    twice = 2 * shape.vocab * shape.hidden / tp if shape.tied_embeddings and len(of_stages) > 1 else 0.0
    assert held == pytest.approx(shape.weight_bytes(system.weights, tp) + twice, rel=1e-12)


@given(pipelines(), steps())
def test_every_stage_explains_its_own_seconds(pipeline: tuple[Hardware, list[Hardware]], step: Step) -> None:
    for system in pipeline[1]:
        cost = system.cost()
        (causes,) = cost.breakdown(step.row(cost))
        assert fsum(causes) == pytest.approx(step.seconds(cost), rel=1e-12)


@given(st.integers(1, 200), st.data())
def test_the_layers_of_the_stages_are_as_even_as_can_be_and_the_last_has_none_too_many(
    layers: int, data: st.DataObject
) -> None:
    count = data.draw(st.integers(1, layers))
    shares = [stage.layers(layers) for stage in stages(count)]
    assert sum(shares) == layers
    assert max(shares) - min(shares) <= 1
    assert shares[-1] == min(shares) >= 1
