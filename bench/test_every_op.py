"""Every op of the table: microseconds, GB/s and GFLOP/s of its node, and the share of the peak.

    python -m pytest bench/test_every_op.py --benchmark-columns=median,iqr --benchmark-json=ops.json

Operands are those of the op's test (tests/ops/op_cases.py; ops of one operand: 512 rows of 4096),
with 60 times the rows where rows may be added. The time that pytest-benchmark shows is that of a
run, with its inputs and results copied; `extra_info` is of the op's node alone, by the profile.
"""

from typing import Any

import numpy as np
import pytest
from ops.check import assert_close, default_rows, encode
from ops.op_cases import CASES
from ops.test_unary import PARAMS, values

import pyggml as pg
from oracles import unary as oracle
from pyggml.ops import unary
from pyggml.rows import OPS

WRITES = ("acc", "set", "set_rows")  # their cases say where; more rows would lead past it


def case_of(op: str) -> tuple[Any, list[np.ndarray], Any, dict[str, Any]]:
    """Function, operands, oracle and parameters."""
    if op in unary.__all__:
        params = PARAMS.get(op, {})
        return getattr(pg.ops, op), [values(op, 512, 4096)], getattr(oracle, op), params
    case = CASES[op]
    arrays = [np.asarray(a) for a in case.arrays]
    rows = {} if op in WRITES else case.more.get("rows", default_rows(arrays))
    for k, axis in rows.items():
        arrays[k] = np.concatenate([arrays[k]] * 60, axis=axis)
    params = case.more.get("params", {})

    def expected(*operands: np.ndarray, **_: Any) -> np.ndarray:
        return case.oracle(*operands, **case.more.get("oracle_params", params))

    return case.fn, arrays, expected, params


@pytest.mark.parametrize("op", OPS)
def test_op(benchmark, op: str) -> None:
    fn, arrays, expected, params = case_of(op)
    g = pg.Graph()
    tensors = [encode(a, "f32") for a in arrays]
    nodes = [g.input(f"x{i}", t.shape, t.dtype) for i, t in enumerate(tensors)]
    program = g.compile(fn(*nodes, **params))
    feeds = {f"x{i}": t for i, t in enumerate(tensors)}
    result = benchmark(lambda: program(**feeds))
    floats = [a if a.dtype.kind in "iu" else a.astype(np.float32).astype(float) for a in arrays]
    limit = CASES[op].more.get("limit", 1e-7) if op in CASES else 1e-7
    assert_close(result, np.asarray(expected(*floats, **params)), limit)
    timed = [row for row in program.profile(feeds, runs=20).ops if row.op == op]
    benchmark.extra_info["threads"] = program.threads
    for row in timed:  # a view runs nothing
        benchmark.extra_info |= {
            "us": round(row.seconds / row.calls * 1e6, 2),
            "GB/s": round(row.gb_per_second, 2),
            "GFLOP/s": round(row.gflop_per_second, 2),
            "share of peak": round(row.peak_share or 0.0, 3),
        }
