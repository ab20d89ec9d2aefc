"""Writes docs/api/*.md from the docstrings and from the op and dtype tables.

    python docs/make_api.py            writes the pages
    python docs/make_api.py --check    exits with 1 when a page is not what that would write

tests/test_reference.py checks the same, and that the docstrings say what they must.
"""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Iterable, Iterator
from dataclasses import is_dataclass
from itertools import chain
from pathlib import Path
from typing import Any

import pyggml as pg
from pyggml import _core, gguf, ops, profile
from pyggml.dtypes import DTYPES

FOLDER = Path(__file__).parent / "api"
SECTIONS = ("Shapes", "Dtypes", "Args", "Attributes", "Returns", "Yields", "Raises", "Source")
_HEAD = re.compile(rf"^({'|'.join(SECTIONS)}):\s*(.*)$")

# The page of the runtime in reading order; what else is public comes after these.
PARTS = ("Cost", "Peak", "Placement", "Block")  # of profiles and memory plans
RUNTIME = (
    "tensor",
    "zeros",
    "from_dlpack",
    "Tensor",
    "Graph",
    "Node",
    "Program",
    "Profile",
    "MemoryPlan",
    "Arena",
    "dtype",
    "DType",
    "isa",
    "isas",
    "counters",
)


# ---- docstrings ----


def sections(doc: str) -> tuple[str, dict[str, str]]:
    """The text of a docstring before its sections, and the sections by name."""
    text: list[str] = []
    found: dict[str, list[str]] = {}
    into = text
    for line in doc.splitlines():
        # "Shapes: ...        Dtypes: ..." share a line
        for part in re.split(r"\s{4,}(?=(?:Shapes|Dtypes):)", line):
            head = _HEAD.match(part)
            if head:
                into = found.setdefault(head[1], [])
                part = head[2]
            into.append(part)
    return "\n".join(text).strip(), {k: inspect.cleandoc("\n".join(v)) for k, v in found.items()}


def items(section: str) -> Iterator[tuple[str, str]]:
    """(name, text) of the entries of Args, Attributes and Raises."""
    entries: list[list[str]] = []
    for line in section.splitlines():
        if re.match(r"[\w*]", line) or not entries:
            entries.append([line])
        else:
            entries[-1].append(line.strip())
    for lines in entries:
        name, colon, rest = " ".join(lines).strip().partition(":")
        yield (name, rest.strip()) if colon else ("", name)


def _text(text: str) -> str:
    return re.sub(r"<(?=[A-Za-z/])", "&lt;", text)


def _doc_lines(thing: Any) -> Iterator[str]:
    text, found = sections(inspect.getdoc(thing) or "")
    yield from ("", _text(text))
    for name, section in found.items():
        if name in ("Args", "Attributes", "Raises"):
            entries = [(n, t) for n, t in items(section) if n or t]
            if len(entries) == 1 and not entries[0][0]:
                yield from ("", f"**{name}**: {_text(entries[0][1])}")
                continue
            yield from ("", f"**{name}**", "")
            yield from (f"- `{n}`: {_text(t)}" for n, t in entries)
        else:
            yield from ("", f"**{name}**: {_text(' '.join(section.split()))}")


# ---- signatures ----


def _default(value: Any) -> str:
    return value.name if isinstance(value, pg.DType) else repr(value)


def signature(name: str, thing: Any) -> str:
    """`name(a, b, *, dtype=None)`, without types and without self."""
    try:
        parameters = list(inspect.signature(thing).parameters.values())
    except (TypeError, ValueError):  # a class of C without a signature
        return f"{name}()"
    shown: list[str] = []
    for i, p in enumerate(parameters):
        if i == 0 and p.name in ("self", "cls"):
            continue
        star = any(part == "*" or part.startswith("*") for part in shown)
        if p.kind is p.KEYWORD_ONLY and not star:
            shown.append("*")
        mark = {p.VAR_POSITIONAL: "*", p.VAR_KEYWORD: "**"}.get(p.kind, "")
        shown.append(mark + p.name + ("" if p.default is p.empty else f"={_default(p.default)}"))
    return f"{name}({', '.join(shown)})"


def members(cls: type) -> Iterator[tuple[str, Any]]:
    """Public methods and properties with the classes they come from, bases last."""
    seen = set()
    for base in cls.__mro__:
        if not base.__module__.startswith("pyggml"):
            continue
        for name, value in vars(base).items():
            if isinstance(value, (classmethod, staticmethod)):
                value = value.__func__
            known = isinstance(value, property) or inspect.isroutine(value)
            if known and name not in seen and (not name.startswith("_") or name == "__call__"):
                seen.add(name)
                if inspect.getdoc(value):
                    yield name, value


# ---- pages ----


def _function(name: str, thing: Any, level: str = "##") -> Iterator[str]:
    yield from ("", f"{level} `{signature(name, thing)}`")
    yield from _doc_lines(thing)


def _class(name: str, cls: type) -> Iterator[str]:
    given = issubclass(cls, (BaseException, tuple)) or hasattr(cls, "__members__")
    given = given or is_dataclass(cls)  # pyggml makes them, users read them
    yield from ("", f"## class `{name if given else signature(name, cls)}`")
    yield from _doc_lines(cls)
    builtin = next(b.__name__ for b in cls.__mro__ if b.__module__ == "builtins")
    if issubclass(cls, BaseException) and builtin != "Exception":
        yield from ("", f"It is a Python `{builtin}`, too.")
    for member, value in members(cls):
        if isinstance(value, property):
            yield from ("", f"### `{name}.{member}`")
            yield from _doc_lines(value)
        else:
            yield from _function(f"{name}.{member}", value, "###")


def _things(module: Any, names: Iterable[str]) -> Iterator[str]:
    for name in names:
        thing = getattr(module, name)
        yield from _class(name, thing) if inspect.isclass(thing) else _function(name, thing)


def _param(param: dict[str, Any]) -> str:
    """`eps=1e-05 in [0, 3.4e+38]`, `order=asc of asc, desc`."""
    default, choices = param["default"], param["choices"]
    text: str = param["name"]
    if choices:
        return f"{text}={choices[int(default)]} of {', '.join(choices)}"
    if param["kind"] == "dtype":
        return text
    if default is not None and param["kind"] in ("i64", "f32"):
        text += f"={default:g}"
    if param["kind"] in ("i64", "f32"):
        text += f" in [{param['low']:.6g}, {param['high']:.6g}]"
    return text


def _op_table() -> Iterator[str]:
    yield "| op | operands | parameters | result |"
    yield "|---|---|---|---|"
    for row in _core.op_table():
        kind = "a view" if row["view"] else "a view of what it wrote" if row["write"] else ""
        name, params = row["name"], "; ".join(map(_param, row["params"]))
        marks = [o + "?" * (o in row["optional"]) for o in row["operands"]]
        yield f"| [`{name}`](#{name}) | {', '.join(marks)} | {params} | {kind} |"


def _ops_page() -> Iterator[str]:
    yield from ("# pyggml.ops", "", _text(inspect.getdoc(ops) or ""), "", "## The table", "")
    yield "What the C side checks of every call. `?` marks operands that may be left out; a range"
    yield "is of the value as the op stores it."
    yield ""
    yield from _op_table()
    for name in ops.__all__:
        yield from ("", f'<a id="{name}"></a>')
        yield from _function(name, getattr(ops, name))


def _dtypes_page() -> Iterator[str]:
    yield from ("# dtypes", "", "One row of csrc/core/dtype_table.inc each; `pyggml.<name>` is it.")
    yield from ("", "| dtype | GGUF id | block | bytes a block | bits a value | is | numpy |")
    yield "|---|---|---|---|---|---|---|"
    flags = ("float", "index", "block", "scaled", "fixed", "integer", "storage")
    for d in DTYPES:
        kinds = ", ".join(flag for flag in flags if getattr(d, f"is_{flag}", False))
        numpy = "" if d.numpy is None else d.numpy.name
        cells = (
            f"`{d.name}`",
            "" if d.gguf_id is None else d.gguf_id,
            d.block,
            d.itemsize,
            f"{8 * d.itemsize / d.block:g}",
        )
        yield f"| {' | '.join(map(str, (*cells, kinds, numpy)))} |"
    text = inspect.getdoc(sys.modules["pyggml.dtypes"]) or ""
    # indented lines are a figure; what follows is prose again
    figure = [line for line in text.splitlines() if line.startswith("    ")]
    prose = "\n".join(line for line in text.splitlines() if not line.startswith("    "))
    yield from ("", _text(re.sub(r"\n{3,}", "\n\n", prose)), "", "```text")
    yield from (line[4:] for line in figure)
    yield "```"


def _gguf_page() -> Iterator[str]:
    yield from ("# pyggml.gguf", "", _text(inspect.getdoc(gguf) or ""))
    data = [n for n in gguf.__all__ if isinstance(getattr(gguf, n), dict)]
    yield from ("", "Tables, which `pyggml/gguf/constants.py` explains: ")
    yield ", ".join(f"`{name}`" for name in data) + "."
    yield from _things(gguf, [n for n in gguf.__all__ if n not in data])


def _runtime() -> list[str]:
    known = {*RUNTIME, *errors(), "Llama"}
    things = {n: getattr(pg, n) for n in pg.__all__ if n not in known}
    return [*RUNTIME, *(n for n, t in things.items() if inspect.isclass(t) or inspect.isroutine(t))]


def _page(title: str, intro: str, names: Iterable[str]) -> Iterator[str]:
    yield from (f"# {title}", "", intro)
    yield from _things(pg, names)


def errors() -> list[str]:
    """Names of the exceptions, the base first."""
    found = [n for n in pg.__all__ if isinstance(getattr(pg, n), type)]
    found = [n for n in found if issubclass(getattr(pg, n), BaseException)]
    return sorted(found, key=lambda n: (n != "PyggmlError", n))


def pages() -> dict[str, str]:
    """File name -> text of every page."""
    made = {
        "ops.md": _ops_page(),
        "dtypes.md": _dtypes_page(),
        "gguf.md": _gguf_page(),
        "graph.md": chain(
            _page("Tensors, graphs, programs", "Names of the package `pyggml`.", _runtime()),
            _things(profile, PARTS),
        ),
        "llama.md": _page("Llama", "`pyggml.Llama`, a model with its context.", ["Llama"]),
        "errors.md": _page(
            "Errors",
            "All are `PyggmlError` and, where Python has a fitting one, that builtin too.",
            errors(),
        ),
    }
    note = "<!-- made by docs/make_api.py from docstrings and tables: edit those -->"
    made_text = {name: "\n".join([note, *lines]) + "\n" for name, lines in made.items()}
    return {n: re.sub(r"\n{3,}", "\n\n", text) for n, text in made_text.items()}


def main() -> int:
    """Writes the pages, or with --check compares them."""
    stale = [
        name
        for name, text in pages().items()
        if not (FOLDER / name).is_file() or (FOLDER / name).read_text() != text
    ]
    if "--check" in sys.argv[1:]:
        for name in stale:
            print(f"docs/api/{name} is stale; run python docs/make_api.py", file=sys.stderr)
        return 1 if stale else 0
    FOLDER.mkdir(exist_ok=True)
    for name in stale:
        (FOLDER / name).write_text(pages()[name])
    return 0


if __name__ == "__main__":
    sys.exit(main())
