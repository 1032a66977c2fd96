"""Reading YAML: every fault is named by file, line and field."""

from __future__ import annotations

from pathlib import Path

import pytest

from simulator.catalog import KINDS, Catalog, Document, data_root, dump_yaml, read_document
from simulator.errors import InputError
from simulator.hardware import Link
from simulator.spec import Bytes, Seconds, Spec


class Inner(Spec):
    size: Bytes
    wait: Seconds | None = None


class Outer(Spec):
    name: str
    inner: Inner
    count: int = 1


def write(folder: Path, text: str) -> Path:
    path = folder / "thing.yaml"
    path.write_text(text)
    return path


def test_a_document_is_read_into_its_spec(tmp_path: Path) -> None:
    outer = read_document(write(tmp_path, "name: a\ninner: {size: 2 KiB, wait: 5 ms}\n")).read(Outer)
    assert (outer.inner.size, outer.inner.wait) == (2048.0, 0.005)


FAULTS = {
    "a bare number": ("name: a\ninner:\n  size: 5\n", ":3:inner.size: 5 has no unit"),
    "an unknown unit": ("name: a\ninner:\n  size: 5 GW\n", ":3:inner.size: unit 'GW' is not one of bytes"),
    "an unknown key": ("name: a\ninner:\n  size: 5 B\n  wiat: 1 s\n", "did you mean wait?"),
    "the place of an unknown key": (
        "name: a\ninner:\n  size: 5 B\n  wiat: 1 s\n",
        ":4:inner.wiat: unknown key",
    ),
    "a missing key": ("name: a\ninner:\n  wait: 1 s\n", ":2:inner.size: is missing"),
    "a missing key at the top": ("inner: {size: 1 B}\n", "thing.yaml:name: is missing"),
    "a wrong type": ("name: a\ninner: {size: 1 B}\ncount: x\n", ":3:count: 'x' should be a valid integer"),
    "a key given twice": ("name: a\nname: b\n", ":2:name: key given twice"),
    "an alias": ("name: &n {a: b}\ninner: *n\n", "YAML aliases are not read"),
    "an alias of a text": ("name: &n a\ncount: *n\ninner: {size: 1 B}\n", "'a' should be a valid integer"),
    "no YAML": ("name: [a\ninner: b\n", ": is not YAML"),
    "an unfinished text": ('name: "a\n', ": is not YAML"),
    "a list": ("- a\n", "does not hold 'key: value' lines"),
    "nothing": ("", "does not hold 'key: value' lines"),
    "an impossible date": ("name: 2024-99-99\n", ":1:name: cannot be read"),
}


@pytest.mark.parametrize(("text", "said"), FAULTS.values(), ids=FAULTS)
def test_a_fault_is_named_by_file_line_and_field(tmp_path: Path, text: str, said: str) -> None:
    path = write(tmp_path, text)
    with pytest.raises(InputError) as caught:
        read_document(path).read(Outer)
    assert said in str(caught.value)
    assert str(caught.value).startswith(str(path))


def test_a_file_that_is_not_text_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "thing.yaml"
    path.write_bytes(b"\xff\xfe\x00n")
    with pytest.raises(InputError, match="is not UTF-8 text"):
        read_document(path)


def test_a_missing_file_is_answered_with_files_that_are_there(tmp_path: Path) -> None:
    write(tmp_path, "name: a\n")
    with pytest.raises(InputError, match=r"thin\.yaml: no such file; did you mean thing\.yaml\?"):
        read_document(tmp_path / "thin.yaml")


def test_an_override_is_blamed_on_its_option(tmp_path: Path) -> None:
    document = read_document(write(tmp_path, "name: a\ninner: {size: 1 B}\n"))
    document.set(("count",), "many", "--count")
    with pytest.raises(InputError, match=r"^--count: 'many' should be a valid integer"):
        document.read(Outer)


def test_a_value_that_is_set_and_unset_leaves_no_trace() -> None:
    document = Document()
    document.set(("inner", "size"), "1 B", "--size")
    document.unset(("inner", "size"))
    assert document.data == {"inner": {}}
    assert document.marks == {}


def test_an_unknown_name_lists_the_near_ones(tmp_path: Path) -> None:
    folder = tmp_path / KINDS["models"].folder
    folder.mkdir(parents=True)
    (folder / "llama-3.1-8b.yaml").write_text("name: llama-3.1-8b\n")
    with pytest.raises(InputError, match=r"no model called 'lama-3\.1-8b'; did you mean llama-3\.1-8b\?"):
        Catalog(tmp_path).model("lama-3.1-8b")


def test_the_working_directory_comes_before_the_catalogue(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / KINDS["links"].folder
    folder.mkdir(parents=True)
    (folder / "mine.yaml").write_text("")
    catalog = Catalog(tmp_path)
    assert catalog.path("links", "mine") == folder / "mine.yaml"
    monkeypatch.chdir(tmp_path)
    Path("mine.yaml").write_text("")
    assert catalog.path("links", "mine") == Path("mine.yaml")


def test_a_figure_without_a_listed_source_is_refused(tmp_path: Path) -> None:
    figure = "{value: 1 GB/s, source: rumour, status: assumed}"
    latency = "{value: 1 us, source: rumour, status: assumed}"
    efficiency = "{value: 1.0, source: rumour, status: assumed}"
    path = write(
        tmp_path,
        f"name: l\ntitle: L\nkind: pcie\nbandwidth: {figure}\nlatency: {latency}\n"
        f"efficiency: {efficiency}\nsources: {{}}\n",
    )
    with pytest.raises(InputError, match="bandwidth: source 'rumour' is not listed under sources"):
        read_document(path).read(Link)


def test_plain_data_survives_the_way_through_yaml(tmp_path: Path) -> None:
    data = {"name": "é: #1", "numbers": [1, 0.1, "inf", "1e3"], "nested": {"yes": "no", "empty": None}}
    assert read_document(write(tmp_path, dump_yaml(data))).data == data


def test_the_data_root_holds_every_kind() -> None:
    assert all((data_root() / kind.folder).is_dir() for kind in KINDS.values())


@pytest.mark.parametrize("kind", KINDS)
def test_every_entry_of_the_catalogue_can_be_read_and_bears_its_name(kind: str) -> None:
    catalog = Catalog()
    assert catalog.names(kind)
    for name in catalog.names(kind):
        assert getattr(catalog.entry(kind, name), "name") == name  # noqa: B009
