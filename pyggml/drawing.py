"""Graphs as pictures: Graphviz text, and files drawn by Graphviz."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyggml.checks import shown
from pyggml.errors import ParameterError
from pyggml.program import span
from pyggml.rows import OPS

if TYPE_CHECKING:
    import os
    from collections.abc import Iterator

    from pyggml.graph import Graph
    from pyggml.node import Node

_STYLES = {
    "input": 'shape=ellipse, style=filled, fillcolor="#cfe2f3"',
    "const": 'shape=cylinder, style=filled, fillcolor="#eeeeee"',
    "write": 'shape=box, style=filled, fillcolor="#f9cb9c", penwidth=2',
    "view": "shape=box, style=dotted",
    "output": 'shape=box, style="filled,bold", fillcolor="#d9ead3"',
    "op": "shape=box",
}


def _escaped(text: str) -> str:
    """Text as a quoted string shows it: no quote ends it, no backslash starts an escape."""
    shown = "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in text)
    # "&" too: Graphviz reads HTML entities inside plain labels.
    return shown.replace("&", "&amp;").replace("\\", "\\\\").replace('"', '\\"')


def _role(node: Node, op: str, used: set[int]) -> str:
    if op in ("input", "const"):
        return op
    if OPS[op].write:
        return "write"
    if node.id not in used:
        return "output"
    return "view" if OPS[op].view else "op"


def _same_memory(graph: Graph) -> dict[int, int]:
    """Constant -> the lowest in memory of those that lie over common memory with it."""
    spans = sorted((*span(t.raw()), node.id) for t, node in graph._consts.values())
    first: dict[int, int] = {}
    end, lowest = 0, -1
    for start, stop, number in spans:
        if start >= end:
            lowest = number
        end = max(end, stop)
        first[number] = lowest
    return first


def _lines(graph: Graph) -> Iterator[str]:
    nodes = graph.nodes()
    sources = [node.src for node in nodes]
    used = {operand.id for src in sources for operand in src if operand is not None}
    same = _same_memory(graph)
    roots = [graph._core.node(node.id).root for node in nodes]
    root = [same.get(i, i) for i in roots]
    writer: dict[int, int] = {}  # root -> the last node that wrote its memory
    for node, src in zip(nodes, sources, strict=True):
        op = node.op
        label = [op, node.name] if node.name else [op]
        label.append(f"{node.shape} {node.dtype.name}")
        text = "\\n".join(_escaped(line) for line in label)
        yield f'n{node.id} [label="{text}", {_STYLES[_role(node, op, used)]}];'
        ids = [operand.id for operand in src if operand is not None]
        names = OPS[op].operands if op in OPS else ()
        for name, operand in zip(names, src, strict=False):
            if operand is not None:
                tail = f' [label="{name}"]' if len(ids) > 1 else ""
                yield f"n{operand.id} -> n{node.id}{tail};"
        for last in {writer[root[i]] for i in ids if root[i] in writer} - set(ids):
            yield f'n{last} -> n{node.id} [style=dashed, color="#cc4125", constraint=true];'
        if op in OPS and OPS[op].write:
            writer[root[node.id]] = node.id


def to_dot(graph: Graph) -> str:
    """See `Graph.to_dot`."""
    body = "".join(f"  {line}\n" for line in _lines(graph))
    return f"digraph pyggml {{\n  node [fontname=monospace];\n{body}}}\n"


def draw(graph: Graph, path: str | os.PathLike[str]) -> None:
    """See `Graph.draw`."""
    try:
        graphviz: Any = import_module("graphviz")
    except ImportError:
        raise ImportError(
            'draw: the Python package graphviz is not installed: pip install "pyggml[plot]"'
        ) from None
    try:
        target = Path(path)
    except TypeError:
        raise ParameterError(f"draw: {shown(path)} is no path") from None
    kind = target.suffix[1:].lower() or "svg"
    if kind not in graphviz.FORMATS:
        raise ParameterError(f"draw: {target.suffix!r} is not a format that Graphviz writes")
    try:
        picture = graphviz.Source(to_dot(graph)).pipe(format=kind)
    except graphviz.ExecutableNotFound:
        raise FileNotFoundError(
            "draw: Graphviz's program `dot` is not on the PATH (Debian: apt install graphviz)"
        ) from None
    except graphviz.CalledProcessError as e:
        raise ParameterError(f"draw: `dot` cannot make {kind} of it: {e}") from None
    target.write_bytes(picture)
