"""Quantities are read once, at the edge, and never guessed."""

from __future__ import annotations

import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from simulator import units
from simulator.errors import InputError, nearest
from simulator.streams import Streams


@pytest.mark.parametrize(
    ("text", "dimension", "value"),
    [
        ("4.8 TB/s", units.BYTES_PER_S, 4.8e12),
        ("400 Gb/s", units.BYTES_PER_S, 50e9),  # a bit is an eighth of a byte
        ("400 Gbps", units.BYTES_PER_S, 50e9),
        ("141 GB", units.BYTES, 141e9),
        ("141 GiB", units.BYTES, 141 * 2**30),
        ("989.4 TFLOP/s", units.FLOP_PER_S, 989.4e12),
        ("2 us", units.SECONDS, 2e-6),
        ("10.2 kW", units.WATTS, 10.2e3),
        ("3 MUSD", units.USD, 3e6),
        ("3.99 USD/h", units.USD_PER_HOUR, 3.99),
    ],
)
def test_a_quantity_is_read_in_si(text: str, dimension: str, value: float) -> None:
    assert units.parse(text, dimension) == pytest.approx(value)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("400", "has no unit"),
        (400, "has no unit"),
        (True, "not a quantity"),
        (None, "not a quantity"),
        ("fast", "not a quantity"),
        ("400 GBps", "unit 'GBps'"),
        ("4 GiB", "unit 'GiB'"),
        ("٤ GB/s", "not a quantity"),
        ("1_000 GB/s", "not a quantity"),
    ],
)
def test_a_bare_number_or_a_wrong_unit_is_refused_with_an_example(text: object, reason: str) -> None:
    with pytest.raises(InputError, match=reason) as error:
        units.parse(text, units.BYTES_PER_S)
    assert "4.8 TB/s" in str(error.value)


@given(st.floats(1e-3, 1e6), st.sampled_from(sorted(units.UNITS)))
def test_every_unit_scales_linearly(value: float, dimension: str) -> None:
    for unit, scale in units.UNITS[dimension].items():
        assert units.parse(f"{value!r} {unit}", dimension) == pytest.approx(value * scale)


def test_an_error_names_what_it_knows_and_leaves_out_the_rest() -> None:
    assert str(InputError("is wrong", file="a.yaml", line=3, field="x", remedy="mend it")) == (
        "a.yaml:3:x: is wrong; mend it"
    )
    assert str(InputError("is wrong")) == "is wrong"


def test_the_nearest_names_come_first() -> None:
    assert nearest("lama", ["llama", "mistral"]) == "did you mean llama?"
    assert "mistral" in nearest("zzz", ["llama", "mistral"])


def test_streams_differ_by_name_and_seed_and_by_nothing_else() -> None:
    first = Streams(1)("arrivals").random(4).tolist()
    assert Streams(1)("arrivals").random(4).tolist() == first
    assert Streams(1)("lengths").random(4).tolist() != first
    assert Streams(2)("arrivals").random(4).tolist() != first


def test_streams_are_the_same_in_another_process() -> None:
    """With another hash seed, so that nothing hangs on ``hash()``."""
    code = "from simulator.streams import Streams; print(Streams(1)('arrivals').random(4).tolist())"
    found = subprocess.run(
        [sys.executable, "-c", code],
        env={"PYTHONHASHSEED": "7"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert found.stdout.strip() == str(Streams(1)("arrivals").random(4).tolist())
