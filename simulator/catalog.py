"""Finds, reads and writes YAML: systems, devices, links, engines, models, presets and scenarios.

A name is looked up as a path, then in the working directory, then in the catalogue that comes with the
package. Everything that is wrong with a file is an InputError with file, line and field.
"""

from __future__ import annotations

import json
import re
import types
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, TypeVar, Union, get_args, get_origin

import yaml
from pydantic import ValidationError
from pydantic_core import ErrorDetails

from simulator.cost.engine import EngineProfile
from simulator.cost.model import Model, model_from_hf_config
from simulator.errors import InputError, nearest
from simulator.hardware import Device, KernelFamily, Link
from simulator.spec import Spec
from simulator.topology.system import System
from simulator.workload import Preset

Where = tuple[str | int, ...]
"""Keys and indices that lead to a value of a document."""

S = TypeVar("S", bound=Spec)

_PACKAGE = Path(__file__).resolve().parent


@dataclass(frozen=True)
class Kind:
    """One kind of entry of the catalogue."""

    noun: str
    folder: str
    spec: type[Spec]
    scenario_field: str | None = None


KINDS = {
    "topologies": Kind("topology", "topologies", System, "topology"),
    "devices": Kind("device", "topologies/devices", Device),
    "links": Kind("link", "topologies/links", Link),
    "families": Kind("kernel family", "topologies/families", KernelFamily),
    "engines": Kind("engine", "topologies/engines", EngineProfile, "deployment.engine"),
    "models": Kind("model", "workloads/models", Model, "model"),
    "workloads": Kind("workload", "workloads", Preset, "workload.preset"),
}


def data_root() -> Path:
    """The folder of ``topologies/`` and ``workloads/``: in the wheel, else beside the package."""
    packaged = _PACKAGE / "_data"
    return packaged if packaged.is_dir() else _PACKAGE.parent


@dataclass(frozen=True)
class Mark:
    """Where a value was written: a line of a file, or an option of the command line."""

    file: str | None
    line: int | None
    option: str | None = None


@dataclass
class Document:
    """Plain data with the place where each value was written."""

    file: str | None = None
    data: dict[str, Any] = field(default_factory=dict)
    marks: dict[Where, Mark] = field(default_factory=dict)

    def set(self, where: tuple[str, ...], value: object, option: str) -> None:
        """Replace a value by what an option of the command line says."""
        self.unset(where)
        table = self.data
        for key in where[:-1]:
            if not isinstance(table.get(key), dict):
                table[key] = {}
            table = table[key]
        table[where[-1]] = value
        self.marks[where] = Mark(None, None, option)

    def unset(self, where: tuple[str, ...]) -> None:
        """Remove a value, if it is there."""
        table: Any = self.data
        for key in where[:-1]:
            table = table.get(key) if isinstance(table, dict) else None
        if isinstance(table, dict):
            table.pop(where[-1], None)
        self.marks = {path: mark for path, mark in self.marks.items() if path[: len(where)] != where}

    def error(self, reason: str, where: Where = (), remedy: str | None = None) -> InputError:
        """An InputError at ``where``, or at the nearest enclosing value that has a place."""
        name = ".".join(str(part) for part in where) or None
        for length in range(len(where), 0, -1):
            mark = self.marks.get(where[:length])
            if mark is not None:
                shown = mark.option or name
                return InputError(reason, file=mark.file, line=mark.line, field=shown, remedy=remedy)
        return InputError(reason, file=self.file, field=name, remedy=remedy)

    def read(self, spec: type[S]) -> S:
        """The document as a ``spec``; raises InputError for the first thing wrong with it."""
        try:
            return spec.model_validate(self.data)
        except ValidationError as error:
            raise self._explain(spec, error.errors(include_url=False)) from None

    def _explain(self, spec: type[Spec], errors: list[ErrorDetails]) -> InputError:
        places = [self._place(error) for error in errors]
        where = places[0]
        here = [error for error, place in zip(errors, places, strict=True) if place == where]
        if here[0]["type"] == "extra_forbidden":
            known = sorted(_keys(spec, where[:-1]))
            return self.error(f"unknown key {where[-1]!r}", where, nearest(str(where[-1]), known))
        if here[0]["type"] == "missing":
            return self.error("is missing", where)
        return self.error(_reason(here), where, _remedy(here))

    def _place(self, error: ErrorDetails) -> Where:
        """The path of the value: pydantic's location less its names of union members."""
        where: Where = ()
        value: Any = self.data
        for part in error["loc"]:
            below = dict(enumerate(value)) if isinstance(value, list) else value
            if isinstance(below, dict) and part in below:
                value = below[part]
                where = (*where, part)
        if error["type"] == "missing":
            where = (*where, error["loc"][-1])
        return where


_SHOULD_BE = "Input should be "
_TABLE = _SHOULD_BE + "'key: value' lines"


def _reason(errors: list[ErrorDetails]) -> str:
    """What pydantic says about one value, said once."""
    if errors[0]["type"] in ("value_error", "assertion_error"):
        return str(errors[0].get("ctx", {})["error"])
    messages = [_TABLE if error["type"] in ("model_type", "dict_type") else error["msg"] for error in errors]
    wanted = [message.removeprefix(_SHOULD_BE) for message in messages if message.startswith(_SHOULD_BE)]
    if not wanted:
        return messages[0]
    given = errors[0]["input"]
    shown = "the value" if isinstance(given, dict | list) else repr(given)
    return f"{shown} should be {' or '.join(dict.fromkeys(wanted))}"


def _remedy(errors: list[ErrorDetails]) -> str | None:
    """The nearest of the words that the value may be, where it may be nothing but a word."""
    given = errors[0]["input"]
    if not isinstance(given, str) or any(error["type"] != "literal_error" for error in errors):
        return None
    words = re.findall(r"'([^']*)'", " ".join(error["ctx"]["expected"] for error in errors))
    return nearest(given, words)


def _keys(spec: Any, where: Where) -> set[str]:
    """Keys that a description knows at ``where``."""
    kinds = list(_specs(spec))
    for part in where:
        below = [kind.model_fields[str(part)].annotation for kind in kinds if part in kind.model_fields]
        kinds = [found for annotation in below for found in _specs(annotation)] or kinds
    return {name for kind in kinds for name in kind.model_fields}


def _specs(annotation: Any) -> Iterator[type[Spec]]:
    """The descriptions that a type annotation names."""
    if isinstance(annotation, type) and issubclass(annotation, Spec):
        yield annotation
    elif get_origin(annotation) in (Annotated, Union, types.UnionType, dict, list, tuple):
        for argument in get_args(annotation):
            yield from _specs(argument)


def read_text(path: Path) -> str:
    """The text of a file, or an InputError that says why there is none."""
    try:
        return path.read_text(encoding="utf-8-sig")
    except FileNotFoundError:
        beside = [entry.name for entry in path.parent.iterdir()] if path.parent.is_dir() else []
        remedy = nearest(path.name, beside) if beside else "check the path"
        raise InputError("no such file", file=path, remedy=remedy) from None
    except UnicodeDecodeError as error:
        raise InputError(f"is not UTF-8 text ({error.reason})", file=path) from None
    except OSError as error:
        raise InputError(error.strerror or "cannot be read", file=path) from None
    except ValueError as error:  # a NUL in the name
        raise InputError(str(error), file=repr(str(path))) from None


def read_document(path: Path) -> Document:
    """A YAML file with the lines of its values; a repeated key is an error."""
    document = Document(str(path))
    try:
        loader = yaml.CSafeLoader(read_text(path))
        node = loader.get_single_node()
    except yaml.MarkedYAMLError as error:
        line = None if error.problem_mark is None else error.problem_mark.line + 1
        raise InputError(f"is not YAML: {error.problem}", file=path, line=line) from None
    except (yaml.YAMLError, RecursionError) as error:
        raise InputError(f"is not YAML: {error}", file=path) from None
    if not isinstance(node, yaml.MappingNode):
        raise InputError("does not hold 'key: value' lines", file=path)
    document.data = _plain(document, loader.construct_object, node, (), set())
    return document


def _plain(
    document: Document, scalar: Callable[[yaml.Node], Any], node: yaml.Node, where: Where, seen: set[int]
) -> Any:
    """The plain value of a node; notes the line of everything below it."""
    document.marks.setdefault(where, Mark(document.file, node.start_mark.line + 1))
    if id(node) in seen:
        raise document.error("YAML aliases are not read", where, "write the value out")
    if isinstance(node, yaml.MappingNode):
        seen.add(id(node))
        table: dict[str, Any] = {}
        for key_node, child in node.value:
            key = str(key_node.value)
            path = (*where, key)
            if key in table:
                raise InputError(
                    "key given twice", file=document.file, line=key_node.start_mark.line + 1, field=key
                )
            document.marks[path] = Mark(document.file, key_node.start_mark.line + 1)
            table[key] = _plain(document, scalar, child, path, seen)
        return table
    if isinstance(node, yaml.SequenceNode):
        seen.add(id(node))
        return [_plain(document, scalar, child, (*where, i), seen) for i, child in enumerate(node.value)]
    try:
        return scalar(node)
    except (yaml.YAMLError, ValueError, KeyError, AttributeError, TypeError) as error:
        raise document.error(f"cannot be read: {error}", where) from None


def dump_yaml(data: dict[str, Any]) -> str:
    """Plain data as YAML, keys in the given order."""
    return yaml.dump(data, Dumper=yaml.CSafeDumper, sort_keys=False, allow_unicode=True, width=100)


def _is_path(name: str) -> bool:
    return "/" in name or Path(name).suffix in (".yaml", ".yml", ".json") or Path(name).is_file()


@dataclass(frozen=True)
class Catalog:
    """What can be named: the entries that come with the package, and the user's own files."""

    root: Path = field(default_factory=data_root)

    def names(self, kind: str) -> list[str]:
        """Names of the entries of one kind."""
        return sorted(path.stem for path in (self.root / KINDS[kind].folder).glob("*.yaml"))

    def path(self, kind: str, name: str) -> Path:
        """The file of an entry; raises InputError for a name that nobody knows."""
        if _is_path(name):
            return Path(name)
        for folder in (Path(), self.root / KINDS[kind].folder):
            candidate = folder / f"{name}.yaml"
            if candidate.is_file():
                return candidate
        raise InputError(
            f"no {KINDS[kind].noun} called {name!r}",
            field=KINDS[kind].scenario_field,
            remedy=f"{nearest(name, self.names(kind))} 'llmsim catalog {kind}' lists all",
        )

    def entry(self, kind: str, name: str) -> Spec:
        """An entry of any kind."""
        return self.model(name) if kind == "models" else self._read(kind, name, KINDS[kind].spec)

    def system(self, name: str) -> System:
        """A whole system."""
        return self._read("topologies", name, System)

    def device(self, name: str) -> Device:
        """A GPU."""
        return self._read("devices", name, Device)

    def link(self, name: str) -> Link:
        """A class of link."""
        return self._read("links", name, Link)

    def family(self, name: str) -> KernelFamily:
        """Kernel constants of an architecture."""
        return self._read("families", name, KernelFamily)

    def engine(self, name: str) -> EngineProfile:
        """An engine profile."""
        return self._read("engines", name, EngineProfile)

    def preset(self, name: str) -> Preset:
        """A traffic preset."""
        return self._read("workloads", name, Preset)

    def model(self, name: str) -> Model:
        """A model by name, or from the ``config.json`` of a Hugging Face model by path."""
        folder = Path(name)
        path = folder / "config.json" if folder.is_dir() else self.path("models", name)
        if path.suffix == ".json":
            return _hf_model(path)
        return read_document(path).read(Model)

    def _read(self, kind: str, name: str, spec: type[S]) -> S:
        return read_document(self.path(kind, name)).read(spec)


def _hf_model(path: Path) -> Model:
    try:
        config = json.loads(read_text(path))
    except json.JSONDecodeError as error:
        raise InputError(f"is not JSON: {error.msg}", file=path, line=error.lineno) from None
    except (ValueError, RecursionError) as error:
        raise InputError(f"is not JSON that can be read: {error}", file=path) from None
    if not isinstance(config, dict):
        raise InputError("is not a JSON object", file=path)
    return model_from_hf_config(config, path.parent.resolve().name, str(path))
