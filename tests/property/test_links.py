"""Laws of what links carry."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import given, settings

from simulator.metrics.links import Messages, links, shipments
from simulator.network.collectives import all_reduce_model
from simulator.network.fluid import Flow, FluidNetwork
from simulator.record import Edge, Record
from tests import fabrics
from tests.pools import SHARDED, PoolsCase, pools_cases
from tests.sharing import APART, BYTES_PER_TOKEN, TOGETHER, SharedCase, shared_cases

Carried = dict[tuple[Edge, str], float]


def carried(case: SharedCase | PoolsCase, record: Record) -> Carried:
    """Bytes by link and kind of traffic, from the record."""
    groups = case.groups if isinstance(case, SharedCase) else case.prefill + case.decode
    topology = case.topology
    costs = [all_reduce_model(topology, group).costs for group in groups]
    sent = [
        Messages(log, "all-reduce", case.layers, BYTES_PER_TOKEN, ways)
        for log, ways in enumerate(costs)
        if ways
    ]
    moved = () if isinstance(case, SharedCase) else shipments(record, "kv", case.way)
    row_s = [np.ones(len(steps)) for steps in record.steps]
    found = links(record, row_s, sent, topology.bandwidths_bytes_per_s, moved)
    return {
        (edge, traffic): nbytes
        for edge, use in found.by_edge.items()
        for traffic, nbytes in use.nbytes.items()
        if nbytes
    }


@settings(max_examples=100, deadline=None)
@given(shared_cases(APART))
def test_links_that_nobody_shares_carry_the_same_at_every_detail(case: SharedCase) -> None:
    expected, *others = (carried(case, case.run(detail)) for detail in ("step", "macro", "layer", "auto"))
    for found in others:
        assert found == pytest.approx(expected, rel=1e-9)


@settings(max_examples=100, deadline=None)
@given(shared_cases(TOGETHER))
def test_shared_links_carry_the_same_in_auto_and_in_layer(case: SharedCase) -> None:
    auto, layer = (carried(case, case.run(detail)) for detail in ("auto", "layer"))
    assert auto == pytest.approx(layer, rel=1e-9)


@settings(max_examples=100, deadline=None)
@given(pools_cases(SHARDED))
def test_pools_carry_the_same_in_auto_and_in_layer(case: PoolsCase) -> None:
    auto, layer = (carried(case, case.run(detail)) for detail in ("auto", "layer"))
    assert auto == pytest.approx(layer, rel=1e-9)


class Witness:
    """Adds up what flows take of links; where links have no overhead, that is bytes."""

    def __init__(self) -> None:
        self.carried: Carried = defaultdict(float)
        self._start = FluidNetwork.start

    def start(
        self, network: FluidNetwork, parts: Sequence[Any], work: float, *rest: Any, **named: Any
    ) -> Flow:
        for footprint, weight in parts:
            for resource, amount in footprint.demands.items():
                if named["traffic"] != "kernels":
                    self.carried[resource, named["traffic"]] += weight * amount * work
        return self._start(network, parts, work, *rest, **named)


@settings(max_examples=60, deadline=None)
@given(pools_cases(SHARDED))
def test_bytes_of_the_record_are_those_that_the_flows_carried(case: PoolsCase) -> None:
    lossless = fabrics.pcie_tree(fabrics.link("lossless", "pcie", 1e7, latency_s=1e-5))
    case = case.with_(topology=lossless)
    witness = Witness()
    with patch.object(FluidNetwork, "start", lambda *args, **named: witness.start(*args, **named)):
        record = case.run("layer")
    assert carried(case, record) == pytest.approx(dict(witness.carried), rel=1e-9)
