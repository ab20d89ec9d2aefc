"""Ops that stream memory, on arrays of 128 MiB: GB/s beside a plain copy with the same threads.

python -m pytest bench/test_ops.py --benchmark-columns=median --benchmark-json=stream.json

Bytes count each operand read once and the result written once, as the profile does. The copy:
128 MiB read and written by memcpy, one share a thread. Op and copy take turns; `of copy` is the
median of their ratios. Time is that of the op's node alone, so what a run copies in and out does
not count.
"""

import statistics
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

import pyggml as pg
from oracles import unary

ROWS, COLS = 8192, 4096  # 128 MiB of F32
ROUNDS = 9

TRANSCENDENTAL = ("exp", "log", "sin", "cos", "tanh", "sigmoid", "softplus", "silu")
TRANSCENDENTAL += ("gelu", "gelu_erf", "gelu_quick")


def of_first(fn):
    """The operation of one operand, as one of two."""
    return lambda a, b: fn(a)


OPS = {
    "add": lambda a, b: pg.ops.add(a, b),
    "mul": lambda a, b: pg.ops.mul(a, b),
    "scale": lambda a, b: pg.ops.scale(a, 1.5),
    "cpy": lambda a, b: pg.ops.cpy(a, b),
    "rms_norm": lambda a, b: pg.ops.rms_norm(a, dtype=a.dtype),
    **{name: of_first(getattr(pg.ops, name)) for name in TRANSCENDENTAL},
    "to_f8_e4m3": lambda a, b: pg.ops.cast(a, "f8_e4m3"),
    "from_f8_e4m3": lambda a, b: pg.ops.cast(a, "f32"),
}
EXPECTED = {
    "add": lambda a, b: a + b,
    "mul": lambda a, b: a * b,
    "scale": lambda a, b: a * 1.5,
    "cpy": lambda a, b: a,
    "rms_norm": lambda a, b: a / np.sqrt((a * a).mean(-1, keepdims=True) + 1e-5),
    **{name: of_first(getattr(unary, name)) for name in TRANSCENDENTAL},
    "to_f8_e4m3": lambda a, b: a,
    "from_f8_e4m3": lambda a, b: a,
}
CASES = [(op, dtype) for op in OPS if op != "from_f8_e4m3" for dtype in ("f32", "f16")]
CASES.append(("from_f8_e4m3", "f8_e4m3"))
TOLERANCE = {"f32": 1e-5, "f16": 2e-3, "f8_e4m3": 0.07}


def operands(dtype):
    """Two tensors of at least 128 MiB."""
    rows = ROWS * 4 // pg.dtype(dtype).itemsize
    values = np.random.default_rng(0).standard_normal((64, COLS)).astype(np.float32)
    tensors = []
    for shift in (0, 7):
        row = pg.tensor(np.roll(values, shift, 0), dtype=dtype)
        whole = pg.zeros((rows, COLS), dtype)
        whole.raw().reshape(rows // 64, -1)[:] = row.raw()
        tensors.append(whole)
    return tensors


def copy_seconds(pool, threads, source, target):
    """One copy of 128 MiB by memcpy, an equal share a thread."""
    shares = [
        slice(i * len(source) // threads, (i + 1) * len(source) // threads) for i in range(threads)
    ]
    started = time.perf_counter()
    list(pool.map(lambda part: np.copyto(target[part], source[part]), shares))
    return time.perf_counter() - started


@pytest.mark.parametrize(("op", "dtype"), CASES, ids=lambda value: value)
def test_stream(benchmark, op, dtype):
    a, b = operands(dtype)
    head = [t.dequantize() for t in (a, b)]
    g = pg.Graph()
    result = OPS[op](g.const(a), g.const(b))
    program = g.compile([result[:64], result[-1:]])  # little to copy out
    with np.errstate(invalid="ignore"):  # log of what is below 0
        wanted = EXPECTED[op](*(part[:64].astype(np.float64) for part in head))
    kind = "f8_e4m3" if "f8" in op else dtype
    got = program()[0].astype(np.float64)
    assert np.allclose(got, wanted, rtol=TOLERANCE[kind], atol=1e-2, equal_nan=True)
    threads = program.threads
    source, target = (np.full(128 << 20, i, np.uint8) for i in (1, 2))
    rates, ratios = [], []
    with ThreadPoolExecutor(threads) as pool:
        copy_seconds(pool, threads, source, target)

        def turn():
            row = next(r for r in program.profile(runs=1).to_dict()["ops"] if r["bytes"] > 1e8)
            copied = 2 * source.nbytes / copy_seconds(pool, threads, source, target)
            rates.append(row["bytes"] / row["seconds"])
            ratios.append(rates[-1] / copied)

        benchmark.pedantic(turn, rounds=ROUNDS, warmup_rounds=1)
    benchmark.extra_info["isa"] = pg.isa()
    benchmark.extra_info["threads"] = threads
    benchmark.extra_info["GB/s"] = round(statistics.median(rates) / 1e9, 2)
    benchmark.extra_info["of copy"] = round(statistics.median(ratios), 3)
    print(
        f"\n{op} {dtype}: {statistics.median(rates) / 1e9:.2f} GB/s, "
        f"{statistics.median(ratios):.2f} of a copy ({min(ratios):.2f} to {max(ratios):.2f})"
    )
