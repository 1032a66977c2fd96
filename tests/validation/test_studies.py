"""The numbers that the studies publish are those that the code gives."""

from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

STUDIES = sorted((Path(__file__).parents[2] / "reports").glob("*/regenerate.py"))


def _load(script: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(script.parent.name.replace("-", "_"), script)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # where dataclasses look for it
    spec.loader.exec_module(module)
    return module


def _agrees(now: Any, then: Any) -> bool:
    """Whether a published value is the computed one; a number to six digits."""
    if isinstance(then, dict):
        return now.keys() == then.keys() and all(_agrees(now[key], value) for key, value in then.items())
    if isinstance(then, float):
        return bool(now == pytest.approx(then, rel=1e-6))
    return bool(now == then)


def _published(script: Path) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = json.loads((script.parent / "numbers.json").read_text())
    return rows


@pytest.mark.parametrize("script", STUDIES, ids=lambda script: script.parent.name)
def test_a_study_publishes_what_it_computes(script: Path) -> None:
    study, published = _load(script), _published(script)
    computed = study.numbers(study.QUICK)
    assert computed
    for now in computed:
        assert any(_agrees(now, then) for then in published), now


@pytest.mark.slow
@pytest.mark.parametrize("script", STUDIES, ids=lambda script: script.parent.name)
def test_a_study_computes_all_that_it_publishes(script: Path) -> None:
    study, published = _load(script), _published(script)
    computed = study.numbers(study.CASES)
    assert len(computed) == len(published)
    for now, then in zip(computed, published, strict=True):
        assert _agrees(now, then), (now, then)


@pytest.mark.parametrize("script", STUDIES, ids=lambda script: script.parent.name)
def test_the_tables_of_a_study_are_those_of_its_numbers(script: Path) -> None:
    page = (script.parent / "README.md").read_text()
    for name, table in _load(script).tables(_published(script)).items():
        assert f"<!-- {name} -->\n{table}\n<!-- end -->" in page, name
