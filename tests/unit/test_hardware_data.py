"""Devices, links, kernel constants and systems of the catalogue against what is printed and measured."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import pytest

from simulator.catalog import Catalog
from simulator.hardware import Device, KernelFamily, Link, WithSources, figures
from simulator.network.collectives import all_gather_model, all_reduce_model, reduce_scatter_model
from simulator.simulation import load_topology
from simulator.topology.join import Join

CATALOG = Catalog()
GIB = 2.0**30
MIB = 2**20


def _entries(kind: str) -> list[Any]:
    return [pytest.param(kind, name, id=f"{kind}-{name}") for name in CATALOG.names(kind)]


ENTRIES = [entry for kind in ("devices", "links", "families", "topologies") for entry in _entries(kind)]
DEVICES = CATALOG.names("devices")


@pytest.mark.parametrize(("kind", "name"), ENTRIES)
def test_an_entry_is_named_as_its_file_and_uses_every_source_that_it_lists(kind: str, name: str) -> None:
    entry = CATALOG.entry(kind, name)
    assert isinstance(entry, WithSources)
    assert entry.name == name
    assert {figure.source for _, figure in figures(entry)} == set(entry.sources)


def _efficiencies(entry: object) -> Iterator[tuple[str, float]]:
    for path, figure in figures(entry):
        if path.endswith("efficiency") and isinstance(figure.value, float):
            yield path, figure.value


@pytest.mark.parametrize(("kind", "name"), [*_entries("links"), *_entries("families")])
def test_an_efficiency_is_a_share_of_the_peak(kind: str, name: str) -> None:
    found = list(_efficiencies(CATALOG.entry(kind, name)))
    assert found
    assert all(0 < efficiency <= 1 for _, efficiency in found), found


@pytest.mark.parametrize("name", DEVICES)
def test_a_device_has_kernel_constants_for_every_peak_and_for_its_kv_cache(name: str) -> None:
    device = CATALOG.device(name)
    family = CATALOG.family(device.family)
    assert device.peak.keys() <= family.gemm.keys()
    cached = {"bf16", "fp8"} & set(device.peak)
    assert set(family.attention_decode) == set(family.attention_prefill) == cached


@pytest.mark.parametrize("name", DEVICES)
def test_a_driver_shows_at_most_the_memory_that_the_vendor_prints(name: str) -> None:
    device = CATALOG.device(name)
    assert 0.9 < device.memory_capacity.value / device.memory_nameplate.value <= 1.0


@pytest.mark.parametrize("name", DEVICES)
def test_peaks_are_dense_so_each_halving_of_bits_at_least_doubles_them(name: str) -> None:
    peak = [CATALOG.device(name).peak[dtype].value for dtype in CATALOG.device(name).peak]
    assert all(2.0 <= wide / narrow < 3.1 for narrow, wide in pairwise(peak))


def test_hopper_multiplies_no_nvfp4() -> None:
    assert "nvfp4" not in CATALOG.device("h200-sxm-141gb").peak
    assert "nvfp4" not in CATALOG.family("hopper").gemm


def test_the_h200_is_as_its_datasheet_says() -> None:
    """4.8 TB/s; 1979 and 3958 TFLOP/s with sparsity, half of that dense; 140.4 GiB visible."""
    device: Device = CATALOG.device("h200-sxm-141gb")
    assert device.memory_bandwidth.value == 4.8e12
    assert device.peak["bf16"].value == pytest.approx(1979e12 / 2, rel=1e-3)
    assert device.peak["fp8"].value == pytest.approx(3958e12 / 2, rel=1e-3)
    assert device.memory_capacity.value == pytest.approx(140.4 * GIB, rel=1e-4)


def test_the_gb300_is_a_72th_of_its_rack() -> None:
    """The rack: 1,080 PFLOP/s NVFP4 and 360 PFLOP/s FP8 dense, 576 TB/s; 277.5 GiB visible a GPU."""
    device = CATALOG.device("gb300")
    assert 72 * device.peak["nvfp4"].value == pytest.approx(1080e15)
    assert 72 * device.peak["fp8"].value == pytest.approx(360e15)
    assert 72 * device.memory_bandwidth.value == pytest.approx(576e12)
    assert device.memory_capacity.value == pytest.approx(277.5 * GIB, rel=1e-3)


def test_exponentials_come_from_16_a_clock_and_twice_that_on_blackwell_ultra() -> None:
    """Multiprocessors x exponentials a clock x GHz."""
    assert CATALOG.device("h200-sxm-141gb").exp_rate.value == pytest.approx(132 * 16 * 1.755e9)
    assert CATALOG.device("gb300").exp_rate.value == pytest.approx(148 * 32 * 1.95e9)


def test_a_kernel_takes_microseconds_before_it_does_anything() -> None:
    for name in CATALOG.names("families"):
        family: KernelFamily = CATALOG.family(name)
        for path, figure in figures(family):
            if re.search(r"\.(fixed|per_sqrt_k)$", path):
                assert isinstance(figure.value, float)
                assert 0.5e-6 < figure.value < 3e-5, path


@pytest.mark.parametrize(
    ("name", "links", "both_directions"), [("nvlink4", 18, 900e9), ("nvlink5", 18, 1.8e12)]
)
def test_the_links_of_a_gpu_are_half_of_what_vendors_print_for_both_directions(
    name: str, links: int, both_directions: float
) -> None:
    link: Link = CATALOG.link(name)
    assert 2 * links * link.bandwidth.value == pytest.approx(both_directions)


@pytest.mark.parametrize(
    ("system", "gpus", "mib", "measured_s"),
    [
        # NCCL 2.29 in half precision, NVIDIA aiconfigurator v0.12.0 tables (Apache-2.0).
        ("hgx-h200-8", 2, 16, 76.20e-6),
        ("hgx-h200-8", 2, 512, 1703.9e-6),
        ("hgx-h200-8", 4, 16, 98.77e-6),
        ("hgx-h200-8", 4, 256, 1180.4e-6),
        ("hgx-h200-8", 8, 16, 121.74e-6),
        ("hgx-h200-8", 8, 64, 319.63e-6),
        ("hgx-h200-8", 8, 128, 564.52e-6),
        ("hgx-h200-8", 8, 512, 2040.3e-6),
        ("gb300-nvl72", 2, 16, 53.38e-6),
        ("gb300-nvl72", 2, 64, 143.91e-6),
        ("gb300-nvl72", 2, 512, 985.36e-6),
        ("gb300-nvl72", 4, 64, 179.30e-6),
        ("gb300-nvl72", 4, 128, 338.78e-6),
        ("gb300-nvl72", 4, 512, 1268.3e-6),
        # TensorRT-LLM's two-shot kernel across trays, same tables.
        ("gb300-nvl72", 8, 256, 714.73e-6),
        ("gb300-nvl72", 8, 1024, 2824.6e-6),
    ],
)
def test_a_large_all_reduce_takes_what_was_measured_within_15_percent(
    system: str, gpus: int, mib: int, measured_s: float
) -> None:
    topology = load_topology(system, CATALOG)
    _, latency_s, bandwidth_s = all_reduce_model(topology, topology.gpus[:gpus]).cost(mib * MIB)
    assert latency_s + bandwidth_s == pytest.approx(measured_s, rel=0.15)


@pytest.mark.parametrize(
    ("system", "gpus", "nbytes", "measured_s"),
    [
        # vLLM 0.24 custom all-reduce in a CUDA graph: H100 of the Hopper boxes, GB300 within a tray.
        ("hgx-h200-8", 2, 1024, 4.3e-6),
        ("hgx-h200-8", 4, 1024, 4.6e-6),
        ("hgx-h200-8", 8, 1024, 4.7e-6),
        ("gb300-nvl72", 2, 16384, 6.997e-6),
        ("gb300-nvl72", 4, 32768, 7.474e-6),
        ("gb300-nvl72", 4, 1048576, 19.95e-6),
        ("gb300-nvl72", 4, 4194304, 29.456e-6),
    ],
)
def test_a_small_all_reduce_takes_what_was_measured_within_15_percent(
    system: str, gpus: int, nbytes: int, measured_s: float
) -> None:
    topology = load_topology(system, CATALOG)
    _, latency_s, bandwidth_s = all_reduce_model(topology, topology.gpus[:gpus]).cost(nbytes)
    assert latency_s + bandwidth_s == pytest.approx(measured_s, rel=0.15)


@pytest.mark.parametrize(
    ("system", "gpus", "gather", "scatter"),
    [
        ("hgx-h200-8", 4, 316.6e9, 311.1e9),
        ("hgx-h200-8", 8, 336.8e9, 337.1e9),
        ("gb300-nvl72", 4, 571.7e9, 555.6e9),
    ],
)
def test_half_a_ring_is_as_fast_as_nccls_halves_within_10_percent(
    system: str, gpus: int, gather: float, scatter: float
) -> None:
    """Bus bandwidth of NCCL 2.29 at 512 MiB, same tables: (n-1)/n of the message a second."""
    topology = load_topology(system, CATALOG)
    for model, measured in ((all_gather_model, gather), (reduce_scatter_model, scatter)):
        best = model(topology, topology.gpus[:gpus]).best(512 * MIB)
        assert best is not None
        bus = 512 * MIB * (gpus - 1) / gpus / best.seconds(512 * MIB)
        assert bus == pytest.approx(measured, rel=0.1)


def test_four_nodes_by_rails_are_faster_than_published_by_the_stated_error() -> None:
    """36.5 GB/s a NIC over four nodes (ml-engineering, August 2026); docs/model.md states 20 % less time."""
    topology = load_topology("hgx-b200-8", CATALOG, Join(nodes=4))
    nbytes = 8 * 1024 * MIB
    best = all_reduce_model(topology, topology.gpus).best(nbytes)
    assert best is not None
    per_nic = nbytes * 2 * 31 / 32 / 8 / best.seconds(nbytes)
    assert 36.5e9 / per_nic == pytest.approx(0.8, abs=0.01)
