"""Two replicas on one device or one link: hand-derived seconds."""

from __future__ import annotations

from math import ulp

import pytest

from simulator.record import STEP_COLUMNS, column
from simulator.serving.replica import Limits
from tests import fabrics
from tests.sharing import SharedCase
from tests.strategies import LinearCost

LIMITS = Limits(max_num_seqs=8, max_num_batched_tokens=64, block_size=4, num_blocks=100)
PLAIN = LinearCost(fixed_s=1.0, per_token_s=0.0, per_prompt_s=0.0, kv_s_per_token=0.0, per_pair_s=0.0)


def _case(groups: tuple[tuple[str, ...], ...], compute: float, hbm: float, **changes: object) -> SharedCase:
    joint = fabrics.link("pcie", "pcie", 4096.0, latency_s=0.0)
    values = {
        "topology": fabrics.pcie_tree(joint),
        "groups": groups,
        "linear": PLAIN,
        "layers": 1,
        "compute": compute,
        "hbm": hbm,
        "limits": LIMITS,
        "traffic": [(0.0, 1, 1), (0.0, 1, 1)],
        "router": "round-robin",
    }
    return SharedCase(**(values | changes))  # type: ignore[arg-type]


@pytest.mark.parametrize("detail", ["auto", "layer"])
@pytest.mark.parametrize(
    ("compute", "hbm", "end_s"),
    [
        # A step of 1 s: 0.25 s of host time, then 0.75 s of kernels on one GPU that two replicas use.
        (0.0, 1.0, 0.25 + 2 * 0.75),  # HBM is busy all the time: each gets half of it
        (0.5, 0.5, 1.0),  # half of each: both fit
        (0.8, 0.2, 0.25 + 1.6 * 0.75),  # 2 x 0.8 of the arithmetic is wanted, 1 is there
    ],
)
def test_two_replicas_share_a_gpu(detail: str, compute: float, hbm: float, end_s: float) -> None:
    record = _case((("gpu0",), ("gpu0",)), compute, hbm).run(detail)
    assert record.request("finish_s").tolist() == pytest.approx([end_s, end_s], rel=1e-12)


@pytest.mark.parametrize("detail", ["auto", "layer"])
def test_two_replicas_share_a_link(detail: str) -> None:
    """A ring of two sends half the message of 4096 bytes in each of its two rounds, at 4096 bytes/s: 1 s.

    Both groups cross both PCIe switches, whose uplinks carry both messages: the second lasts 2 s.
    """
    record = _case((("gpu0", "gpu2"), ("gpu1", "gpu3")), 0.0, 0.0).run(detail)
    assert record.request("finish_s").tolist() == pytest.approx([3.0, 3.0], rel=1e-12)


@pytest.mark.parametrize("detail", ["auto", "layer"])
def test_who_comes_in_the_middle_of_a_step_slows_down_what_is_left_of_it(detail: str) -> None:
    """The first has 0.25 s of host time and 0.25 s of kernels behind it when the second's kernels begin.

    From 0.5 s both go at half speed: the first needs 0.5 s more of kernels, hence until 1.5 s. The second
    then has 0.75 - 0.5 = 0.25 s left, alone.
    """
    case = _case((("gpu0",), ("gpu0",)), 0.0, 1.0, traffic=[(0.0, 1, 1), (0.25, 1, 1)])
    assert case.run(detail).request("finish_s").tolist() == pytest.approx([1.5, 1.75], rel=1e-12)


@pytest.mark.parametrize("detail", ["auto", "layer"])
def test_what_a_step_waits_for_is_what_it_ends_late_by(detail: str) -> None:
    """At 10^6 s the clock rounds to 0.1 ns at every piece of 100 layers: more than the ledger allows."""
    groups = (("gpu0", "gpu2"), ("gpu1", "gpu3"))
    case = _case(groups, 0.0, 0.0, traffic=[(1e6, 1, 4), (1e6, 1, 4)], layers=100)
    record = case.run(detail)
    for rows, finish_s in zip(record.steps, record.request("finish_s"), strict=True):
        waits_s = column(rows, STEP_COLUMNS, "device_wait_s") + column(rows, STEP_COLUMNS, "link_wait_s")
        late_s = finish_s - 1e6 - 4 * (1.0 + 100 * 1.0)  # 1 s of kernels, and all-reduces of 1 s
        assert late_s > 0
        assert abs(waits_s.sum() - late_s) <= 4 * ulp(1e6)
