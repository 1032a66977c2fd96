"""The arrows between modules, and one home for each third-party library."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from simulator.cli import COMMANDS

PACKAGE = Path(__file__).resolve().parents[2] / "simulator"

LAYERS = (
    ("errors",),
    ("units", "streams"),
    ("spec",),
    ("hardware", "record", "clock"),
    ("topology", "cost", "workload", "metrics"),
    ("network",),
    ("serving", "events"),
    ("scenario", "catalog"),
    ("pools",),
    ("simulation",),
    ("study", "report"),
    ("cli",),
    ("__main__",),
)
LAYER = {name: layer for layer, names in enumerate(LAYERS) for name in names}

HOMES = {
    "simpy": {"clock", "network", "serving", "simulation"},
    "networkx": {"topology"},
    "yaml": {"catalog"},
    "pydantic": {"spec", "hardware", "topology", "cost", "workload", "events", "scenario", "catalog"},
    "matplotlib": {"report"},
    "rich": {"report", "cli"},
    "click": {"cli"},
}

MODULES = sorted(PACKAGE.rglob("*.py"))


def imports(path: Path) -> Iterator[str]:
    """Absolute names of the modules that a file imports, at the top or inside a function."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: imports are absolute"
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def unit_of(path: Path) -> str:
    """The module or package directly below ``simulator`` that a file belongs to."""
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_a_module_imports_only_from_a_lower_layer_or_its_own_package(path: Path) -> None:
    unit = unit_of(path)
    if unit == "__init__":
        assert not [name for name in imports(path) if name.startswith("simulator")]
        return
    for name in imports(path):
        parts = name.split(".")
        if parts[0] != "simulator" or parts[1:] == ["__version__"] or parts[1] == unit:
            continue
        assert LAYER[parts[1]] < LAYER[unit], f"{unit} imports {parts[1]}"


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_each_third_party_library_has_one_home(path: Path) -> None:
    for name in imports(path):
        homes = HOMES.get(name.split(".")[0])
        assert homes is None or unit_of(path) in homes, f"{unit_of(path)} imports {name}"


def modules_after(*statements: str) -> set[str]:
    """Top-level modules loaded in a fresh process that runs the statements."""
    code = "\n".join(["import sys", *statements, "print(*{name.split('.')[0] for name in sys.modules})"])
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return set(done.stdout.splitlines()[-1].split())


def test_importing_the_simulation_does_not_import_matplotlib() -> None:
    assert "matplotlib" not in modules_after(
        "import simulator, simulator.simulation, simulator.study.compare"
    )


def test_the_help_of_the_command_line_imports_no_heavy_library() -> None:
    loaded = modules_after(
        "from simulator.cli import main", "try: main(['--help'])", "except SystemExit: pass"
    )
    assert not loaded & {"numpy", "networkx", "matplotlib", "pydantic", "rich", "yaml", "simpy"}


def test_no_command_imports_matplotlib_before_a_plot_is_drawn() -> None:
    commands = "\n".join(f"import simulator.cli.{name}" for name in COMMANDS)
    assert "matplotlib" not in modules_after(commands)
