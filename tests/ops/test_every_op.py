"""Every op of the table in every layout, by every float dtype, with 1, 2 and 5 threads."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from ops.check import BLOCKS, LAYOUTS, SCALARS, check_op, default_rows, rand
from ops.op_cases import CASES, OpCase

import pyggml as pg
from oracles import region, rows
from pyggml.ops import unary
from pyggml.rows import OPS

MANY = ("contiguous", "in_place")
WRITES = ("acc", "set", "set_rows")  # repetition would lead past dst, or name rows twice


@pytest.mark.parametrize("name", [row["name"] for row in pg._core.op_table()])
def test_op_has_a_case(name: str) -> None:
    where = "add it to CASES of tests/ops/op_cases.py (or to pyggml/ops/unary.py, if it is one)"
    assert (name in CASES) != (name in unary.__all__), f"{name} has no case, or two: {where}"


def check(case: OpCase, **more: Any) -> None:
    dtypes = SCALARS + BLOCKS if case.blocks else SCALARS
    check_op(case.fn, case.arrays, case.oracle, **{"dtypes": dtypes} | case.more | more)


def layouts(case: OpCase) -> list[str]:
    """Those that the case has: cuts only where it says what may be cut."""
    rows = case.more.get("rows", default_rows([np.asarray(a) for a in case.arrays]))
    cuts = {"one_row": rows, "empty": rows, "broadcast": case.more.get("broadcast")}
    return [layout for layout in LAYOUTS if layout in case.refuses or cuts.get(layout, True)]


@pytest.mark.parametrize(
    ("name", "layout"), [(name, layout) for name in CASES for layout in layouts(CASES[name])]
)
def test_op(name: str, layout: str) -> None:
    case = CASES[name]
    if layout not in case.refuses:
        check(case, layouts=(layout,))
        return
    with pytest.raises(pg.ShapeError, match=f"{name}: "):
        check(case, layouts=(layout,))


@pytest.mark.parametrize("name", [name for name in CASES if name not in WRITES])
def test_many_tasks(name: str) -> None:
    """As many rows as give every thread some."""
    case = CASES[name]
    arrays = [np.asarray(a) for a in case.arrays]
    for k, axis in case.more.get("rows", default_rows(arrays)).items():
        arrays[k] = np.concatenate([arrays[k]] * 60, axis=axis)
    large = replace(case, arrays=arrays)
    check(large, dtypes=("f32", "q8_0") if case.blocks else ("f32",), layouts=MANY)


@pytest.mark.parametrize("name", WRITES)
def test_many_tasks_write(name: str) -> None:
    arrays = [rand(900, 64), rand(700, 64, seed=1)]
    fn, oracle = getattr(pg.ops, name), getattr(rows if name == "set_rows" else region, name)
    at: dict[str, Any] = {"start": (100, 0)}
    if name == "set_rows":
        arrays, at = [*arrays, np.random.default_rng(1).permutation(900)[:700]], {}
    check_op(
        lambda dst, *others: fn(pg.ops.cont(dst), *others, **at),
        arrays,
        lambda *values: oracle(*values, **at),
        dtypes=("f32", "q8_0"),
        layouts=MANY,
    )


def test_cases_name_their_op() -> None:
    """The case of an op does build it, of integers where the table says so."""
    for name, case in CASES.items():
        g = pg.Graph()
        kinds = {"i": "i32", "f": "f32"}
        arrays = [g.input(f"x{i}", a.shape, kinds[a.dtype.kind]) for i, a in enumerate(case.arrays)]
        case.fn(*arrays, **case.more.get("params", {}))
        built = [node for node in g.nodes() if node.op == name]
        assert built, name
        for operand, src in zip(OPS[name].operands, built[0].src, strict=False):
            assert src is None or src.dtype.is_index == (operand in OPS[name].index), name
