"""A folder of results is whole or not there."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from simulator.errors import InputError
from simulator.report.folder import result_folder


def result(text: str) -> str:
    """As much of a result.json as tells whose it is."""
    return f'{{"llmsim": "{text}"}}'


def fill(path: Path, text: str, *, force: bool = False) -> None:
    with result_folder(path, force=force) as folder:
        (folder / "result.json").write_text(result(text))


def test_a_result_appears_whole_with_the_folders_above_it(tmp_path: Path) -> None:
    with result_folder(tmp_path / "a" / "b", force=False) as folder:
        (folder / "result.json").write_text(result("1"))
        assert not (tmp_path / "a" / "b").exists()
    assert (tmp_path / "a" / "b" / "result.json").read_text() == result("1")
    assert os.listdir(tmp_path / "a") == ["b"]


def test_an_empty_folder_is_taken(tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    fill(tmp_path / "out", "1")
    assert (tmp_path / "out" / "result.json").read_text() == result("1")


def test_a_result_is_replaced_only_when_forced(tmp_path: Path) -> None:
    fill(tmp_path / "out", "1")
    with pytest.raises(InputError, match="--force"):
        fill(tmp_path / "out", "2")
    assert (tmp_path / "out" / "result.json").read_text() == result("1")
    fill(tmp_path / "out", "2", force=True)
    assert (tmp_path / "out" / "result.json").read_text() == result("2")
    assert os.listdir(tmp_path) == ["out"]


@pytest.mark.parametrize("force", [False, True])
def test_files_of_the_user_are_never_replaced(tmp_path: Path, force: bool) -> None:
    fill(tmp_path / "out", "1")
    (tmp_path / "out" / "thesis.tex").write_text("years")
    with pytest.raises(InputError, match=r"holds thesis\.tex, which is no part of a result"):
        fill(tmp_path / "out", "2", force=force)
    assert sorted(os.listdir(tmp_path / "out")) == ["result.json", "thesis.tex"]


@pytest.mark.parametrize("kept", ["proj/precious.txt", "plots/notes.txt", "box/own.txt"])
def test_a_folder_that_holds_anything_else_is_kept(tmp_path: Path, kept: str) -> None:
    fill(tmp_path / "out", "1")
    (tmp_path / "out" / kept).parent.mkdir()
    (tmp_path / "out" / kept).parent.joinpath("result.json").write_text("{}")
    (tmp_path / "out" / kept).write_text("years")
    with pytest.raises(InputError, match="which is no part of a result"):
        fill(tmp_path / "out", "2", force=True)
    assert (tmp_path / "out" / kept).read_text() == "years"


@pytest.mark.parametrize("name", ["result.json", "report.md", "requests.csv", "links.csv"])
def test_a_file_of_the_same_name_from_elsewhere_is_kept(tmp_path: Path, name: str) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / name).write_text("mine")
    with pytest.raises(InputError, match="no part of a result"):
        fill(tmp_path / "out", "1", force=True)
    assert (tmp_path / "out" / name).read_text() == "mine"


def test_a_result_of_several_systems_is_one(tmp_path: Path) -> None:
    with result_folder(tmp_path / "out", force=False) as folder:
        (folder / "box").mkdir()
        (folder / "box" / "result.json").write_text(result("1"))
    fill(tmp_path / "out", "2", force=True)
    assert os.listdir(tmp_path / "out") == ["result.json"]


@pytest.mark.parametrize("fault", [KeyboardInterrupt, ValueError])
def test_what_goes_wrong_leaves_all_as_it_was(tmp_path: Path, fault: type[BaseException]) -> None:
    fill(tmp_path / "out", "1")

    def interrupted() -> None:
        with result_folder(tmp_path / "out", force=True) as folder:
            (folder / "result.json").write_text("half")
            raise fault

    with pytest.raises(fault):
        interrupted()
    assert (tmp_path / "out" / "result.json").read_text() == result("1")
    assert os.listdir(tmp_path) == ["out"]


def test_a_file_is_no_folder(tmp_path: Path) -> None:
    (tmp_path / "out").write_text("")
    with pytest.raises(InputError, match="is no folder"):
        fill(tmp_path / "out", "1", force=True)


def test_a_place_that_cannot_be_written_is_named_before_anything_runs() -> None:
    with pytest.raises(InputError, match="/proc/nothing/out:--out"):
        fill(Path("/proc/nothing/out"), "1")
