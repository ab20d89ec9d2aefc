"""Docstrings say what they must, and docs/api is what they say."""

from __future__ import annotations

import ast
import importlib.util
import inspect
import re
import textwrap
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import pyggml as pg
from pyggml import gguf, ops

ROOT = Path(__file__).parents[1]
# What every docstring of the ops may leave to the package's own.
COMMON = {"dtype"}


@cache
def make_api() -> ModuleType:
    spec = importlib.util.spec_from_file_location("make_api", ROOT / "docs/make_api.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def public() -> Iterator[tuple[str, Any]]:
    """Every public function, class, method and property but the ops, by name."""
    for module in (pg, gguf):
        for name in module.__all__:
            thing = getattr(module, name)
            if inspect.isclass(thing):
                yield name, thing
                for member, value in make_api().members(thing):
                    yield f"{name}.{member}", value
            elif inspect.isroutine(thing):
                yield name, thing


PUBLIC = dict(public())
METHODS = {n: t for n, t in PUBLIC.items() if inspect.isfunction(t)}


def parameters(thing: Any) -> list[str]:
    names = list(inspect.signature(thing).parameters)
    return [n for n in names if n not in ("self", "cls")]


def raised(thing: Any) -> set[str]:
    """Classes of pyggml.errors that the function's own body raises."""
    tree = ast.parse(textwrap.dedent(inspect.getsource(thing)))
    calls = (n.exc for n in ast.walk(tree) if isinstance(n, ast.Raise) and n.exc is not None)
    names = {ast.unparse(c.func if isinstance(c, ast.Call) else c) for c in calls}
    return names & set(make_api().errors())


# ---- docstrings ----


@pytest.mark.parametrize("name", ops.__all__)
def test_op_docstring(name: str) -> None:
    function = getattr(ops, name)
    text, found = make_api().sections(inspect.getdoc(function) or "")
    assert text.splitlines()[0].endswith((".", ":"))
    for section in ("Shapes", "Dtypes", "Raises", "Source"):
        assert found.get(section), f"{name} has no {section}"
    classes = [c for c, _ in make_api().items(found["Raises"])]
    assert set(classes) <= set(make_api().errors()), f"{name} raises {classes}"
    assert raised(function) <= set(classes)
    if "Args" in found:
        entries = [n for n, _ in make_api().items(found["Args"])]
        assert set(entries) <= set(parameters(function)), f"{name} has no such arguments"
    words = set(re.findall(r"\w+", inspect.getdoc(function) or ""))
    assert set(parameters(function)) - COMMON <= words | {"x"}


# Of the runtime, those that neither take nor give arrays.
NO_ARRAYS = {
    "DType.row_bytes",
    "Graph.draw",
    "Graph.nodes",
    "Graph.to_dot",
    "MemoryPlan.to_dict",
    "Profile.table",
    "Profile.to_dict",
    "Program.memory_plan",
    "counters",
    "dtype",
    "isa",
    "isas",
}
RUNTIME = {
    n for n, t in PUBLIC.items() if inspect.isroutine(t) and n.split(".")[0] in make_api().RUNTIME
}


@pytest.mark.parametrize("name", sorted(RUNTIME - NO_ARRAYS))
def test_runtime_docstring(name: str) -> None:
    """What works on arrays says shapes, dtypes, errors and source, as the ops do."""
    _, found = make_api().sections(inspect.getdoc(PUBLIC[name]) or "")
    for section in ("Shapes", "Dtypes", "Raises", "Source"):
        assert found.get(section), f"{name} has no {section}"


def test_what_has_no_arrays_is_listed_by_hand() -> None:
    assert RUNTIME > NO_ARRAYS
    for name in NO_ARRAYS:
        _, found = make_api().sections(inspect.getdoc(PUBLIC[name]) or "")
        assert "Shapes" not in found


@pytest.mark.parametrize("name", PUBLIC)
def test_public_docstring(name: str) -> None:
    doc = inspect.getdoc(PUBLIC[name])
    assert doc
    text, found = make_api().sections(doc)
    assert text, f"{name} does not say what it is"
    assert all(found.values()), f"{name} has an empty section"


@pytest.mark.parametrize("name", METHODS)
def test_arguments_are_documented(name: str) -> None:
    doc = inspect.getdoc(METHODS[name]) or ""
    _, found = make_api().sections(doc)
    names = parameters(METHODS[name])
    if "Args" in found:
        entries = [n.lstrip("*") for n, _ in make_api().items(found["Args"])]
        assert entries == names
    else:
        assert set(names) <= set(re.findall(r"\w+", doc)), f"{name} leaves arguments out"


@pytest.mark.parametrize("name", METHODS)
def test_errors_are_documented(name: str) -> None:
    _, found = make_api().sections(inspect.getdoc(METHODS[name]) or "")
    missing = {c for c in raised(METHODS[name]) if c not in found.get("Raises", "")}
    assert not missing, f"{name} raises {missing} and does not say so"


# ---- the reference ----


def test_reference_is_up_to_date() -> None:
    made = make_api().pages()
    folder = ROOT / "docs/api"
    assert {p.name for p in folder.iterdir()} == set(made)
    stale = [name for name, text in made.items() if (folder / name).read_text() != text]
    assert not stale, "run python docs/make_api.py"


def test_reference_is_whole() -> None:
    text = "".join(make_api().pages().values())
    shown = set(re.findall(r"^##+ (?:class )?`([\w.]+)", text, re.MULTILINE))
    assert set(ops.__all__) <= shown
    assert set(PUBLIC) <= shown
    for name in pg.__all__:
        thing = getattr(pg, name)
        assert not isinstance(thing, pg.DType) or f"| `{name}` |" in text


def test_parts_of_a_docstring() -> None:
    doc = "What.\n\nMore.\n\nShapes: any.    Dtypes: f32;\n    f16.\n\nArgs:\n"
    doc += "    a: one\n        two.\n"
    text, found = make_api().sections(inspect.cleandoc(doc) + "\nRaises:\n    ShapeError: b.")
    assert text == "What.\n\nMore."
    assert found["Shapes"] == "any."
    assert found["Dtypes"].split() == ["f32;", "f16."]
    assert list(make_api().items(found["Args"])) == [("a", "one two.")]
    assert list(make_api().items(found["Raises"])) == [("ShapeError", "b.")]
