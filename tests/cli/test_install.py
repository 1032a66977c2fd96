"""The wheel by itself, and the same bytes in any process."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from pathlib import Path

ROOT = Path(__file__).parents[2]
RUN = ["run", "--topology", "gb300-nvl72", "--num-prompts", "150", "--router", "power-of-two", "--no-plots"]


def _llmsim(arguments: list[str], folder: Path, **environment: str) -> str:
    """Run the command in ``folder`` with nothing of the checkout on the path but what is asked for."""
    kept = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    found = subprocess.run(
        [sys.executable, "-m", "simulator", *arguments],
        cwd=folder,
        env=kept | environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert found.returncode == 0, found.stderr
    return found.stdout


def test_the_wheel_works_outside_the_checkout(tmp_path: Path) -> None:
    """Unpacked first on the path, it finds its own catalogue and not the checkout's."""
    build = ["wheel", str(ROOT), "--no-deps", "--no-build-isolation", "--no-index", "--quiet"]
    subprocess.run([sys.executable, "-m", "pip", *build, "--wheel-dir", str(tmp_path)], check=True)
    (wheel,) = tmp_path.glob("llmsim-*.whl")
    unpacked, work = tmp_path / "unpacked", tmp_path / "work"
    work.mkdir()
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(unpacked)
    shown = _llmsim(["catalog", "topologies", "gb300-nvl72"], work, PYTHONPATH=str(unpacked))
    assert shown.startswith(f"# {unpacked}")
    assert "hgx-h200-8" in _llmsim(["catalog"], work, PYTHONPATH=str(unpacked))
    _llmsim([*RUN, "--out", "out"], work, PYTHONPATH=str(unpacked))
    assert (work / "out" / "requests.csv").read_text().count("\n") == 151


def test_the_same_scenario_gives_the_same_bytes_in_another_process(tmp_path: Path) -> None:
    for seed in ("1", "2"):
        _llmsim([*RUN, "--out", f"out{seed}"], tmp_path, PYTHONPATH=str(ROOT), PYTHONHASHSEED=seed)
    for name in ("result.json", "requests.csv", "report.md"):
        assert (tmp_path / "out1" / name).read_bytes() == (tmp_path / "out2" / name).read_bytes(), name
