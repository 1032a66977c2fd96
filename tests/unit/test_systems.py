"""Systems of the catalogue by what their data sheets say, alone and joined: bandwidth, hops, bisection."""

from __future__ import annotations

from functools import cache
from typing import get_args

import pytest

from simulator.catalog import Catalog
from simulator.errors import InputError
from simulator.network.collectives import all_reduce_model
from simulator.simulation import load_topology
from simulator.topology.fabrics import Fabric
from simulator.topology.graph import Pair, Topology
from simulator.topology.join import Join, JoinKind

CATALOG = Catalog()
GB = 1e9
MIB = 2**20


@cache
def system(name: str) -> Topology:
    return load_topology(name, CATALOG)


@cache
def joined(name: str, nodes: int, fabric: JoinKind = "rail", oversubscription: float = 1.0) -> Topology:
    return load_topology(name, CATALOG, Join(nodes=nodes, fabric=fabric, oversubscription=oversubscription))


@pytest.mark.parametrize(
    ("name", "gb_per_s"),
    [
        ("hgx-a100-8", 4 * 300),  # 600 GB/s a GPU in both directions
        ("hgx-h100-8", 4 * 450),
        ("hgx-h200-8", 4 * 450),
        ("hgx-b200-8", 4 * 900),
        ("hgx-b300-8", 4 * 900),
        ("gb200-nvl72", 36 * 900),
        ("gb300-nvl72", 36 * 900),
        ("mi300x-8", 4 * 4 * 64),  # sixteen of the 28 links of the mesh
        ("rtx-pro-6000-1", 0),
        ("rtx-pro-6000-2", 63.015),  # one card to the other
        ("rtx-pro-6000-4", 63.015),  # the uplink of a PCIe switch
        ("rtx-pro-6000-8", 40),  # the socket link
        ("l40s-8", 31.508),  # the uplink, which is narrower than the socket link
        ("h100-pcie-8", 40),
        ("h200-nvl-4", 2 * 2 * 150),  # four of the six bridges of a quad
        ("h200-nvl-8", 40),
        ("dgx-spark-1", 0),
        ("dgx-spark-2", 25),  # a cable of 200 Gb/s
    ],
)
def test_the_bisection_of_a_system_is_that_of_its_data_sheets(name: str, gb_per_s: float) -> None:
    assert system(name).bisection_bytes_per_s() == pytest.approx(gb_per_s * GB)


def test_every_system_has_a_hand_derived_bisection() -> None:
    (mark,) = test_the_bisection_of_a_system_is_that_of_its_data_sheets.pytestmark  # type: ignore[attr-defined]
    assert sorted(name for name, _ in mark.args[1]) == CATALOG.names("topologies")


@pytest.mark.parametrize(
    ("name", "source", "target", "gb_per_s", "hops", "microseconds"),
    [
        # a PCIe hop takes 0.75 us, the socket link 0.2, a bridge 2
        ("rtx-pro-6000-8", "gpu0", "gpu1", 63.015, 2, 1.5),  # same switch
        ("rtx-pro-6000-8", "gpu0", "gpu2", 63.015, 4, 3.0),  # same root complex
        ("rtx-pro-6000-8", "gpu0", "gpu7", 40, 5, 3.2),  # other socket
        ("h100-pcie-8", "gpu0", "gpu1", 300, 1, 2.0),  # bridged pair
        ("h100-pcie-8", "gpu1", "gpu2", 63.015, 4, 3.0),  # between pairs
        ("h200-nvl-8", "gpu0", "gpu3", 150, 1, 2.0),  # bridged quad, over the sockets' heads
        ("h200-nvl-8", "gpu3", "gpu4", 40, 5, 3.2),  # between quads
        ("mi300x-8", "gpu0", "gpu7", 64, 1, 2.0),
    ],
)
def test_two_gpus_are_joined_by_the_best_links_between_them(
    name: str, source: str, target: str, gb_per_s: float, hops: int, microseconds: float
) -> None:
    pair = system(name).pair(source, target)
    assert pair.bandwidth_bytes_per_s == pytest.approx(gb_per_s * GB)
    assert pair.hops == hops
    assert pair.latency_s == pytest.approx(microseconds * 1e-6)


def test_every_generator_of_the_union_makes_a_system_of_the_catalogue() -> None:
    union = get_args(get_args(Fabric)[0])
    used = {type(CATALOG.system(name).fabric) for name in CATALOG.names("topologies")}
    assert used == set(union)


def test_without_peer_to_peer_traffic_passes_through_host_memory() -> None:
    """Up to the CPU, into memory and out, and down again: both directions of the shared uplink."""
    box = system("l40s-8")
    up, down = ("gpu0", "pcisw0", "cpu0", "mem0"), ("cpu0", "pcisw0", "gpu1")
    assert box.paths("gpu0", "gpu1") == [(*up, *down)]
    assert box.paths("gpu0", "gpu4") == [(*up, "cpu0", "cpu1", "pcisw1", "gpu4")]
    assert box.paths("gpu0", "nic0") == [("gpu0", "pcisw0", "nic0")]


def test_cards_share_the_uplink_of_their_switch() -> None:
    """Ring over four L40S of a switch: four flows up and four down, a quarter each of 0.64 of 31.5 GB/s."""
    box = system("l40s-8")
    _, _, seconds = all_reduce_model(box, box.gpus[:4]).cost(512 * MIB)
    bus_bytes_per_s = 2 * 3 / 4 * 512 * MIB / seconds
    assert bus_bytes_per_s == pytest.approx(0.64 * 31.508 * GB / 4)


@pytest.mark.parametrize(
    ("gpus", "mib", "measured_s"),
    [
        # NCCL 2.29 on RTX PRO 6000 Server, NVIDIA aiconfigurator v0.12.0 tables (Apache-2.0).
        (2, 16, 473.5e-6),
        (2, 512, 13901e-6),
        (4, 64, 4032e-6),
        (4, 512, 30489e-6),
        (8, 16, 1248e-6),
        (8, 256, 23159e-6),
    ],
)
def test_a_large_all_reduce_over_pcie_takes_what_was_measured_within_16_percent(
    gpus: int, mib: int, measured_s: float
) -> None:
    box = system("rtx-pro-6000-8")
    _, latency_s, bandwidth_s = all_reduce_model(box, box.gpus[:gpus]).cost(mib * MIB)
    assert latency_s + bandwidth_s == pytest.approx(measured_s, rel=0.16)


def test_the_mesh_adds_up_over_all_its_links_at_once() -> None:
    """312.9 GB/s of bus bandwidth on eight MI300X: ml-engineering (S. Bekman), August 2026."""
    box = system("mi300x-8")
    algorithm, _, seconds = all_reduce_model(box, box.gpus).cost(1024 * MIB)
    assert algorithm == "two-shot"
    assert 2 * 7 / 8 * 1024 * MIB / seconds == pytest.approx(312.9 * GB, rel=0.01)


def test_a_pair_of_sparks_is_one_cable_long() -> None:
    """CPU and NIC at both ends of it; two PCIe links of four lanes are wider than the cable."""
    pair = system("dgx-spark-2")
    assert pair.gpus == ("node0.gpu0", "node1.gpu0")
    (path,) = pair.paths(*pair.gpus)
    assert path[1:-1] == ("node0.cpu0", "node0.nic0", "node1.nic0", "node1.cpu0")
    assert pair.pair(*pair.gpus).bandwidth_bytes_per_s == pytest.approx(25 * GB)
    assert system("dgx-spark-2").system.joined == Join(nodes=2, fabric="direct")


def test_nodes_keep_their_names_alone_and_get_a_prefix_together() -> None:
    assert system("hgx-h200-8").gpus[3] == "gpu3"
    assert joined("hgx-h200-8", 4).gpus[8 + 3] == "node1.gpu3"
    assert joined("gb300-nvl72", 2).gpus[72 + 4] == "rack1.tray1.gpu0"


def test_every_node_says_which_host_it_belongs_to() -> None:
    four = joined("hgx-h200-8", 4)
    assert four.hosts(four.gpus) == {host: four.gpus[8 * host : 8 * host + 8] for host in range(4)}
    assert {four.host(node) for node in ("node3.mem1", "node3.nic7", "node3.nvsw0")} == {3}
    assert (four.host("leaf0"), four.host("spine0")) == (None, None)
    alone = system("hgx-h200-8")
    assert alone.hosts(alone.gpus) == {0: alone.gpus}


def test_a_rail_joins_the_same_nic_of_every_node() -> None:
    """GPU, PCIe switch, own NIC, leaf, and the same backwards: four PCIe hops and two of the network."""
    four = joined("hgx-h200-8", 4)
    ends = ("node0.gpu5", "node0.pcisw2", "node0.nic5"), ("node2.nic5", "node2.pcisw2", "node2.gpu5")
    assert four.paths("node0.gpu5", "node2.gpu5") == [(*ends[0], "leaf5", *ends[1])]
    assert four.pair("node0.gpu5", "node2.gpu5") == Pair(50 * GB, 6, pytest.approx(4 * 0.75e-6 + 2e-6))
    assert len([node for node in four.graph if node.startswith("leaf")]) == 8


def test_traffic_between_rails_crosses_the_spine() -> None:
    """Though NIC 1 hangs on the switch of GPU 0: a GPU uses its own. Each further switch adds 0.2 us."""
    four = joined("hgx-h200-8", 4)
    (path,) = four.paths("node0.gpu0", "node1.gpu1")
    assert path[2:-2] == ("node0.nic0", "leaf0", "spine0", "leaf1", "node1.nic1")
    assert four.pair("node0.gpu0", "node1.gpu1") == Pair(50 * GB, 8, pytest.approx(3e-6 + 2e-6 + 0.4e-6))


def test_within_a_node_nothing_changes_when_it_is_joined() -> None:
    assert joined("hgx-h200-8", 4).pair("node2.gpu0", "node2.gpu7") == system("hgx-h200-8").pair(
        "gpu0", "gpu7"
    )


def test_the_bisection_of_joined_boxes_is_that_of_their_nics() -> None:
    assert joined("hgx-h200-8", 4).bisection_bytes_per_s() == pytest.approx(2 * 8 * 50 * GB)
    assert joined("gb200-nvl72", 2).bisection_bytes_per_s() == pytest.approx(72 * 50 * GB)


@pytest.mark.parametrize("ratio", [1.0, 2.0, 3.0])
def test_oversubscription_divides_what_crosses_the_spine(ratio: float) -> None:
    """Two leaves of eight ports of 50 GB/s send to the other two: 800 GB/s over the ratio."""
    four = joined("hgx-h200-8", 4, "leaf-spine", ratio)
    assert four.bandwidth_bytes_per_s(("leaf0", "spine0")) == pytest.approx(400 * GB / ratio)
    assert four.bisection_bytes_per_s() == pytest.approx(800 * GB / ratio)
    assert four.pair("node0.gpu0", "node1.gpu0").hops == 8


def test_rails_of_one_index_do_not_feel_oversubscription() -> None:
    four = joined("hgx-h200-8", 4, "rail", 4.0)
    assert four.bandwidth_bytes_per_s(("leaf0", "spine0")) == pytest.approx(50 * GB)
    assert "spine0" not in four.paths("node0.gpu0", "node3.gpu0")[0]


def test_a_cable_ends_at_the_same_nic_of_the_other_node() -> None:
    """From there to another GPU it is PCIe, across the sockets 40 GB/s."""
    two = joined("hgx-h200-8", 2, "direct")
    assert two.pair("node0.gpu0", "node1.gpu0").hops == 5
    (path,) = two.paths("node0.gpu0", "node1.gpu7")
    assert path[2:6] == ("node0.nic0", "node1.nic0", "node1.pcisw0", "node1.cpu0")
    assert two.pair("node0.gpu0", "node1.gpu7").bandwidth_bytes_per_s == pytest.approx(40 * GB)


def test_cards_on_one_switch_share_its_nic() -> None:
    two = joined("rtx-pro-6000-8", 2)
    assert [two.nic(f"node0.gpu{index}") for index in (0, 1, 2)] == ["node0.nic0", "node0.nic0", "node0.nic1"]


def test_host_memory_leaves_by_the_nearest_nic() -> None:
    two = joined("hgx-h200-8", 2)
    assert two.nic("node1.mem1") == "node1.nic4"
    assert two.paths("node0.mem0", "node1.gpu0")[0][:4] == (
        "node0.mem0",
        "node0.cpu0",
        "node0.pcisw0",
        "node0.nic0",
    )


def test_power_and_price_are_those_of_all_nodes() -> None:
    one, four = system("hgx-h200-8").system, joined("hgx-h200-8", 4).system
    assert four.name == "hgx-h200-8-x4"
    assert four.power.value == pytest.approx(4 * 10.2e3)
    assert one.price is not None
    assert four.price is not None
    assert (four.price.value.low, four.price.value.high) == (
        4 * one.price.value.low,
        4 * one.price.value.high,
    )


@pytest.mark.parametrize(
    ("name", "join", "reason"),
    [
        ("hgx-h200-8", Join(nodes=3, fabric="direct"), "a direct cable joins two nodes, not 3"),
        ("hgx-h200-8", Join(nodes=2, fabric="direct", oversubscription=2), "no switch to oversubscribe"),
        ("dgx-spark-2", Join(nodes=2), "is 2 nodes already"),
    ],
)
def test_what_cannot_be_joined_is_refused(name: str, join: Join, reason: str) -> None:
    with pytest.raises(InputError, match=reason):
        load_topology(name, CATALOG, join)


def _beside(name: str, other: str, fabric: JoinKind = "rail") -> Topology:
    return load_topology(name, CATALOG, Join(nodes=2, fabric=fabric), [CATALOG.system(other)])


def test_two_systems_are_joined_rail_by_rail_and_each_keeps_its_own() -> None:
    """A box of eight rails and a rack of four a tray: GPU 2 of both is one leaf away, GPU 6 a spine."""
    found = _beside("hgx-b200-8", "gb200-nvl72")
    assert found.system_of("node0.gpu0").name == "hgx-b200-8"
    assert found.system_of("rack1.tray3.gpu0").name == "gb200-nvl72"
    assert len(found.gpus) == 8 + 72
    leaves = {node for node in found.graph if str(node).startswith("leaf")}
    assert len(leaves) == 8
    near, far = (
        [node for edge in found.paths(source, "rack1.tray0.gpu2") for node in edge]
        for source in ("node0.gpu2", "node0.gpu6")
    )
    assert "leaf2" in near
    assert "spine0" not in near
    assert "spine0" in far


def test_uplinks_are_as_wide_as_the_ports_of_both_systems() -> None:
    """400 Gb/s of an H200 box and 800 Gb/s of a B300 box on one leaf."""
    found = _beside("hgx-h200-8", "hgx-b300-8")
    assert found.bandwidth_bytes_per_s(("leaf0", "spine0")) == pytest.approx(150e9)


def test_a_cable_joins_only_nics_that_are_alike() -> None:
    with pytest.raises(InputError, match="a direct cable joins NICs that are alike"):
        _beside("hgx-h200-8", "hgx-b300-8", "direct")


def test_ampere_multiplies_no_fp8() -> None:
    assert set(CATALOG.device("a100-sxm-80gb").peak) == {"bf16"}
