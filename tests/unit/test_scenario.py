"""What a scenario is made of, its defaults and its YAML."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from simulator.scenario import DEFAULT_NUM_PROMPTS, DEFAULT_PRESET, Scenario
from simulator.topology.join import Join


def test_a_topology_is_all_that_a_scenario_needs() -> None:
    scenario = Scenario.model_validate({"topology": "hgx-h200-8"})
    assert scenario.model == "llama-3.1-70b"
    assert scenario.workload.preset == DEFAULT_PRESET
    assert scenario.workload.num_prompts == DEFAULT_NUM_PROMPTS


def test_a_trace_is_served_whole_unless_told_otherwise() -> None:
    scenario = Scenario.model_validate({"topology": "a", "workload": {"trace": "t.csv"}})
    assert scenario.workload.preset is None
    assert scenario.workload.num_prompts is None


def test_a_preset_may_be_of_any_length() -> None:
    scenario = Scenario.model_validate({"topology": "a", "workload": {"num_prompts": 5}})
    assert (scenario.workload.preset, scenario.workload.num_prompts) == (DEFAULT_PRESET, 5)


def test_plain_data_makes_the_same_scenario() -> None:
    given = {
        "topology": ["a", "b"],
        "deployment": {"tensor_parallel_size": 4, "replicas": "auto", "gpu_memory_utilization": 0.8},
        "workload": {"preset": "random", "request_rate": "inf", "max_concurrency": 8},
        "goodput": {"ttft": "300 ms", "tpot": "0.07 s"},
        "seed": 3,
    }
    scenario = Scenario.model_validate(given)
    assert Scenario.model_validate(scenario.plain()) == scenario


@pytest.mark.parametrize("limit_ms", [0.1, 33.3, 1e-5, 123456.789])
def test_a_limit_keeps_its_bits_in_plain_data(limit_ms: float) -> None:
    scenario = Scenario.model_validate({"topology": "a", "goodput": {"ttft": f"{limit_ms!r} ms"}})
    again = Scenario.model_validate(scenario.plain())
    assert again.goodput == scenario.goodput


@pytest.mark.parametrize(
    ("deployment", "said"),
    [
        ({"prefill": {}}, "a prefill pool needs a decode pool; use --decode-replicas, too"),
        ({"decode": {"replicas": 2}}, "a decode pool needs a prefill pool"),
        ({"prefill": {}, "decode": {}, "replicas": 2}, "leave --replicas out"),
        ({"kv_transfer": "layerwise"}, "KV cache moves between two pools"),
    ],
)
def test_pools_are_two_and_have_the_replicas(deployment: dict[str, Any], said: str) -> None:
    with pytest.raises(ValidationError, match=said):
        Scenario.model_validate({"topology": "a", "deployment": deployment})


def test_one_topology_or_several_are_a_tuple() -> None:
    assert Scenario.model_validate({"topology": "a"}).topologies == ("a",)
    assert Scenario.model_validate({"topology": ["a", "b"]}).topologies == ("a", "b")


def test_a_scenario_on_one_of_its_systems_differs_in_nothing_else() -> None:
    scenario = Scenario.model_validate({"topology": ["a", "b"], "seed": 5})
    assert scenario.on("b") == Scenario.model_validate({"topology": "b", "seed": 5})


@pytest.mark.parametrize(
    "wrong",
    [
        {"seed": -1},
        {"deployment": {"tensor_parallel_size": 0}},
        {"deployment": {"router": "roundrobin"}},
        {"deployment": {"gpu_memory_utilization": 1.5}},
        {"deployment": {"num_gpu_blocks_override": 0}},
        {"goodput": {"ttft": 2}},
        {"goodput": {"ttft": "0 s"}},
        {"topology": []},
        {"detail": "layers"},
    ],
    ids=str,
)
def test_a_value_that_means_nothing_is_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(ValidationError):
        Scenario.model_validate({"topology": "a"} | wrong)


def test_a_truth_value_is_no_number() -> None:
    with pytest.raises(ValidationError, match=r"workload\.num_prompts is a truth value"):
        Scenario.model_validate({"topology": "x", "workload": {"num_prompts": True}})


def test_several_nodes_are_joined_by_rails_unless_it_says_otherwise() -> None:
    assert Scenario.model_validate({"topology": "hgx-h200-8"}).join() is None
    four = Scenario.model_validate({"topology": "hgx-h200-8", "nodes": 4})
    assert four.join() == Join(nodes=4, fabric="rail", oversubscription=1.0)
