"""The numbers that the studies publish are those that the code gives."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from types import ModuleType

import pytest

STUDIES = sorted((Path(__file__).parents[2] / "reports").glob("*/regenerate.py"))


def _load(script: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(script.parent.name.replace("-", "_"), script)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("script", STUDIES, ids=lambda script: script.parent.name)
def test_a_study_publishes_what_it_computes(script: Path) -> None:
    study = _load(script)
    published = json.loads((script.parent / "numbers.json").read_text())
    computed = study.numbers(study.evaluations())
    assert len(computed) == len(published) > 0
    for now, then in zip(computed, published, strict=True):
        assert now.keys() == then.keys()
        for key, value in then.items():
            assert now[key] == (pytest.approx(value, rel=1e-6) if isinstance(value, float) else value), key
    assert study.table(published) in (script.parent / "README.md").read_text()
