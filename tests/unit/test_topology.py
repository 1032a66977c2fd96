"""Systems of the catalogue as graphs: what the vendor says of them comes out of the graph."""

from __future__ import annotations

from itertools import pairwise

import pytest

from simulator.catalog import Catalog
from simulator.simulation import load_topology
from simulator.topology.graph import Topology
from tests.fabrics import link, pcie_tree, topology

GB = 1e9


@pytest.fixture(scope="module")
def box() -> Topology:
    return load_topology("hgx-h200-8", Catalog())


@pytest.fixture(scope="module")
def rack() -> Topology:
    return load_topology("gb300-nvl72", Catalog())


def test_the_h200_box_has_450_gb_per_s_between_any_two_gpus(box: Topology) -> None:
    """18 links of 25 GB/s in each direction, over a switch: two hops."""
    facts = box.facts()
    (pair,) = facts.pairs
    assert facts.gpus == 8
    assert facts.pairs[pair] == 8 * 7
    assert pair.bandwidth_bytes_per_s == pytest.approx(450 * GB)
    assert pair.hops == 2
    assert facts.kinds == {
        "gpu": 8,
        "nvswitch": 4,
        "pcie-switch": 4,
        "cpu": 2,
        "nic": 8,
        "memory": 2,
    }


def test_bisection_is_half_of_the_gpus_times_their_links(box: Topology, rack: Topology) -> None:
    assert box.bisection_bytes_per_s() == pytest.approx(4 * 450 * GB)
    assert rack.bisection_bytes_per_s() == pytest.approx(36 * 900 * GB)


def test_a_route_spreads_over_the_planes_in_proportion_to_their_links(box: Topology) -> None:
    """5, 4, 4 and 5 of 18 links."""
    shares = {hop.edge[1]: hop.share for hop in box.route("gpu0", "gpu5") if hop.edge[0] == "gpu0"}
    assert shares == pytest.approx({"nvsw0": 5 / 18, "nvsw1": 4 / 18, "nvsw2": 4 / 18, "nvsw3": 5 / 18})


def test_gpus_of_one_pcie_switch_still_talk_over_nvlink(box: Topology) -> None:
    assert all("nvsw" in path[1] for path in box.paths("gpu0", "gpu1"))


def test_a_gpu_reaches_its_nic_over_their_pcie_switch(box: Topology) -> None:
    assert box.paths("gpu3", "nic3") == [("gpu3", "pcisw1", "nic3")]
    assert box.pair("gpu3", "nic3").bandwidth_bytes_per_s == pytest.approx(63.015 * GB)


def test_the_other_socket_is_reached_over_the_socket_link(box: Topology) -> None:
    assert box.paths("gpu0", "mem1") == [("gpu0", "pcisw0", "cpu0", "cpu1", "mem1")]
    assert box.pair("gpu0", "mem1").bandwidth_bytes_per_s == pytest.approx(40 * GB)


def test_the_rack_has_18_trays_that_reach_each_other_over_18_switches(rack: Topology) -> None:
    assert len(rack.gpus) == 72
    assert rack.gpus[4] == "tray1.gpu0"
    assert len(rack.paths("tray0.gpu0", "tray17.gpu3")) == 18
    assert rack.pair("tray0.gpu0", "tray17.gpu3").bandwidth_bytes_per_s == pytest.approx(900 * GB)
    assert rack.paths("tray0.gpu3", "tray0.mem1") == [("tray0.gpu3", "tray0.grace1", "tray0.mem1")]


def test_a_gpu_does_not_forward() -> None:
    """gpu1 has NVLink to both others, which have only PCIe between them."""
    nvlink, pcie = link("nvlink", "nvlink", 100 * GB), link("pcie", "pcie", 10 * GB)
    bridged = topology(
        [
            ("gpu0", "gpu1", nvlink),
            ("gpu1", "gpu2", nvlink),
            *((f"gpu{index}", "cpu0", pcie) for index in range(3)),
        ]
    )
    assert bridged.paths("gpu0", "gpu2") == [("gpu0", "cpu0", "gpu2")]
    assert bridged.paths("gpu0", "gpu1") == [("gpu0", "gpu1")]


def test_the_bisection_of_a_pcie_tree_is_one_uplink() -> None:
    assert pcie_tree(link("pcie", "pcie", 10 * GB)).bisection_bytes_per_s() == pytest.approx(10 * GB)


def test_a_long_path_over_nvlink_is_preferred_to_one_hop_over_pcie() -> None:
    """Twenty switches in a row: 21 hops of NVLink beside a direct PCIe link."""
    nvlink, pcie = link("nvlink", "nvlink", 100 * GB), link("pcie", "pcie", 10 * GB)
    row = ["gpu0", *(f"nvswitch{index}" for index in range(20)), "gpu1"]
    chain = [(one, other, nvlink) for one, other in pairwise(row)]
    assert topology([*chain, ("gpu0", "gpu1", pcie)]).paths("gpu0", "gpu1") == [tuple(row)]
