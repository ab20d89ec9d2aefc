"""The rows of the op table (csrc/ops/op_table.inc) by name, for what builds and shows graphs."""

from __future__ import annotations

from dataclasses import dataclass

from pyggml import _core


@dataclass(frozen=True)
class OpRow:
    """One op: its number, names of operands, and what it does to memory.

    Attributes:
        number: what _core knows it by.
        operands: names, in order.
        optional: those that may be left out.
        index: those that hold row numbers or positions, integers whatever the others are.
        view: the result looks at an operand's memory.
        write: it writes into an operand.
    """

    number: int
    operands: tuple[str, ...]
    optional: tuple[str, ...]
    index: tuple[str, ...]
    view: bool
    write: bool


OPS = {
    row["name"]: OpRow(
        number, row["operands"], row["optional"], row["index"], row["view"], row["write"]
    )
    for number, row in enumerate(_core.op_table())
}
NAMES = {row.number: name for name, row in OPS.items()} | {
    _core.NODE_INPUT: "input",
    _core.NODE_CONST: "const",
}
