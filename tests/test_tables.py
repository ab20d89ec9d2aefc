"""The tables of the C core are the test plan: every row is documented, has an oracle, is tested."""

from __future__ import annotations

import ast
import importlib.util
import inspect
import re
from functools import cache
from pathlib import Path
from types import FunctionType

import ml_dtypes
import numpy as np
import pytest
from formats.stated import RMS

import pyggml as pg
from oracles import copy as formats
from pyggml import _core, ops
from pyggml.dtypes import DTYPES, DType
from pyggml.gguf import BY_NAME, GGUFWriter
from pyggml.gguf.reader import NUMPY_DTYPES

ROOT = Path(__file__).parents[1]
ORACLE_FOLDER = ROOT / "tests/oracles"
ROWS = {row["name"]: row for row in _core.op_table()}
FUNCTIONS = {name: getattr(ops, name) for name in ops.__all__}
FLOATS = [kind for kind in DTYPES if kind.is_float]
INDICES = [kind for kind in DTYPES if kind.is_index]
STORED = [kind for kind in DTYPES if kind.is_storage]

# Ops that move bytes: copies by what the oracle calls them, views by numpy's own indexing.
ORACLE_NAMES = {"cont": "cast", "cpy": "cast"}


@cache
def oracles() -> dict[str, FunctionType]:
    """Every function of tests/oracles, by name."""
    found: dict[str, FunctionType] = {}
    for path in ORACLE_FOLDER.glob("*.py"):
        module = importlib.import_module(f"oracles.{path.stem}")
        found.update(inspect.getmembers(module, inspect.isfunction))
    return found


@cache
def names_in_tests() -> frozenset[str]:
    """Names that tests/ops uses, its cases too: attributes of a thing called `ops`, whole strings,
    and what the family file lists when a test goes through its `__all__`.
    """
    names = set()
    for path in (ROOT / "tests/ops").glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Attribute) and ast.unparse(node.value).endswith("ops"):
                names.add(node.attr)
            elif isinstance(node, ast.Attribute) and node.attr == "__all__":
                names.update(
                    importlib.import_module(f"pyggml.ops.{ast.unparse(node.value)}").__all__
                )
            elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                names.add(node.value)
    return frozenset(names)


def ids(kind: DType) -> str:
    return kind.name


def test_tables_are_whole() -> None:
    assert len(ROWS) == len(_core.op_table())
    assert {"mul_mat", "flash_attn_ext", "set_rows"} <= set(ROWS)
    assert pg.f8_e4m3 in FLOATS
    assert len(FLOATS) + len(INDICES) + len(STORED) == len(DTYPES)


@pytest.mark.parametrize("name", ROWS)
def test_op_has_a_function(name: str) -> None:
    assert name in ops.__all__, "write it in a file of pyggml/ops, and name it in __all__ there"
    signature = inspect.signature(FUNCTIONS[name])
    takes = list(signature.parameters)
    for operand in ROWS[name]["operands"]:
        assert operand in takes
        if operand in ROWS[name]["optional"]:
            assert signature.parameters[operand].default is None


@pytest.mark.parametrize("name", ops.__all__)
def test_function_is_documented(name: str) -> None:
    doc = inspect.getdoc(FUNCTIONS[name])
    assert doc
    elsewhere = re.search(r"(?:The same as|dtypes and errors as) `(\w+)`", doc)
    if elsewhere:
        assert elsewhere[1] in ops.__all__
    else:
        for section in ("Shapes:", "Dtypes:", "Source:"):
            assert section in doc
        if len(inspect.signature(FUNCTIONS[name]).parameters) > 1:
            assert "Raises:" in doc
    for path in re.findall(r"\bcsrc/[\w/.]+\w", doc):
        assert (ROOT / path).is_file(), f"{name}: there is no {path}"


@pytest.mark.parametrize("name", [name for name, row in ROWS.items() if not row["view"]])
def test_op_has_an_oracle(name: str) -> None:
    wanted = ORACLE_NAMES.get(name, name)
    found = [n for n in oracles() if n == wanted or n.startswith(f"{wanted}_")]
    assert found, f"define {wanted} in a file of tests/oracles"
    assert all(oracles()[n].__doc__ for n in found)


def test_ops_have_a_bench() -> None:
    """bench/test_every_op.py takes its names from the table, and its operands from the tests'."""
    path = ROOT / "bench" / "test_every_op.py"
    spec = importlib.util.spec_from_file_location("bench_every_op", path)
    assert spec is not None
    assert spec.loader is not None
    bench = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(bench)
    (mark,) = bench.test_op.pytestmark
    assert list(mark.args[1]) == list(ROWS)
    for name in ROWS:
        fn, arrays, _, _ = bench.case_of(name)
        assert callable(fn)
        assert all(a.size for a in arrays)


@pytest.mark.parametrize("name", ops.__all__)
def test_op_has_a_test(name: str) -> None:
    assert name in names_in_tests(), "no test of tests/ops names it"


@pytest.mark.parametrize("kind", FLOATS, ids=ids)
def test_float_dtype_round_trip(kind: DType) -> None:
    shape = (5, max(64, kind.block))
    values = np.random.default_rng(3).normal(0, 2, shape).astype(np.float32)
    raw = formats.encode(values, kind.name)
    stored = pg.Tensor.from_raw(raw, shape, kind)
    assert stored.dtype is kind
    decoded = stored.dequantize()
    assert np.array_equal(decoded, formats.decode(raw, kind.name).reshape(shape))
    error = np.sqrt(np.mean((decoded - values) ** 2))
    assert error <= 1.5 * 2 * RMS[kind.name], f"{error / 2} is not near the stated RMS error"
    if kind.is_fixed:
        return
    assert pg.tensor(values, dtype=kind).raw().tobytes() == raw.tobytes()
    again = pg.tensor(decoded, dtype=kind)
    if kind.is_block:  # a block's scale may be chosen anew, the values hardly move
        assert np.abs(again.dequantize() - decoded).max() <= np.abs(decoded - values).max()
    else:
        assert again.raw().tobytes() == stored.raw().tobytes()


@pytest.mark.parametrize("kind", INDICES + STORED, ids=ids)
def test_other_dtype_round_trip(kind: DType) -> None:
    assert kind.numpy is not None
    info = np.iinfo(kind.numpy) if kind.is_integer else np.finfo(kind.numpy)
    values = np.array([info.min, -1, 0, 1, info.max], kind.numpy)
    g = pg.Graph()
    x = g.input("x", values.shape, kind)
    assert np.array_equal(g.compile(ops.cont(x))(x=values), values)
    assert np.array_equal(pg.tensor(values).numpy(), values)


@pytest.mark.parametrize("kind", DTYPES, ids=ids)
def test_dtype_in_files(kind: DType) -> None:
    """The GGUF tables and the C table agree about every dtype."""
    path = "pyggml/gguf/constants.py"
    if kind.gguf_id is None:
        assert kind.name not in BY_NAME, f"its row has no GGUF id, {path} has"
        with pytest.raises(pg.GGUFError, match=f"{kind.name}|no tensor type has dtype"):
            GGUFWriter("none.gguf").add_tensor("x", np.zeros(kind.block), kind.name)
        return
    assert kind.name in BY_NAME, f"add {kind.name} to the rows of {path}"
    stored = BY_NAME[kind.name]
    assert (stored.id, stored.block, stored.bytes) == (kind.gguf_id, kind.block, kind.itemsize)
    if kind.numpy is not None:
        reader = "pyggml/gguf/reader.py"
        assert NUMPY_DTYPES.get(kind.name) == kind.numpy, f"add it to NUMPY_DTYPES of {reader}"


@pytest.mark.parametrize("dtype", [ml_dtypes.float8_e4m3fnuz, ml_dtypes.float8_e3m4, np.uint8])
def test_what_files_cannot_hold(dtype: type) -> None:
    name = np.dtype(dtype).name
    with pytest.raises(pg.GGUFError, match=f"tensor 'x': no tensor type has dtype {name}"):
        GGUFWriter("none.gguf").add_tensor("x", np.zeros(3, dtype))
