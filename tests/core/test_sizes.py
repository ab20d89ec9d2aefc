"""Sizes over 2^31 (B9): shapes, strides and offsets are 64-bit, and metadata costs no memory."""

from __future__ import annotations

import resource

import numpy as np
import pytest

import pyggml as pg
from pyggml.rows import OPS

BIG = 65536


def peak_bytes() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def test_metadata_touches_no_memory() -> None:
    before = peak_bytes()
    g = pg.Graph()
    x = g.input("x", (BIG, BIG), "f8_e4m3")
    y = g.input("y", (2, BIG, BIG, 8))
    assert x.shape == (BIG, BIG)
    assert x.T.shape == (BIG, BIG)
    assert x[-1].shape == (BIG,)
    assert x[BIG - 1, BIG - 1].shape == ()
    assert x[::2, 1::3].shape == (BIG // 2, 21845)
    assert x.reshape(-1).shape == (2**32,)
    assert x.reshape(2, -1)[1, 2**31 - 1].shape == ()
    assert x.reshape(2**16, 2**8, 2**8).shape == (2**16, 2**8, 2**8)
    assert (x + 1).shape == (BIG, BIG)
    assert pg.ops.cast(x, "f32").shape == (BIG, BIG)
    assert pg.ops.mul_mat(x, g.input("k", (BIG,))).shape == (BIG,)
    assert pg.ops.mul_mat(x.T[:4], x[:3]).shape == (3, 4)
    assert pg.ops.get_rows(x, [BIG - 1, 0]).shape == (2, BIG)
    assert y.T.shape == (8, BIG, BIG, 2)
    assert y[1, :, 7].shape == (BIG, 8)
    assert len(y.reshape(2**36)) == 2**36
    assert pg.ops.permute(y, (3, 0, 2, 1)).shape == (8, 2, BIG, BIG)
    assert peak_bytes() - before < 1 << 26


def test_the_limit() -> None:
    g = pg.Graph()
    assert g.input("most", (2**62,), "f8_e4m3").shape == (2**62,)
    for i, (shape, dtype) in enumerate(
        [
            ((2**62 + 1,), "f8_e4m3"),
            ((2**61,), "f32"),
            ((4194305, 4194305, 211106198978564), "f8_e4m3"),  # the product wraps to 4
            ((2**32, 2**32), "f8_e4m3"),  # wraps to 0
            ((2**63 - 1, 2), "f8_e4m3"),
            ((0, 2**62, 2), "f32"),  # empty, but its strides would not fit
            ((2**32, 2**32, 0), "f32"),  # empty, but its rows could not be counted
            ((2**63 - 32,), "q8_0"),
            ((2**54 + 1, 256), "q2_k"),  # fewer bytes than elements, which pass 2^62
            ((2**63,), "f32"),
            ((10**30,), "f32"),
        ]
    ):
        with pytest.raises(pg.ShapeError, match=f"^input 'x{i}': "):
            g.input(f"x{i}", shape, dtype)


def test_results_are_limited_too() -> None:
    g = pg.Graph()
    x, y = g.input("x", (2**40, 1), "f8_e4m3"), g.input("y", (1, 2**40), "f8_e4m3")
    many, one = g.input("q", (2**30, 2**30, 1)), g.input("k", (1, 1, 1))
    wide = g.input("v", (1, 1, 2**20))
    for build, op, operand in (
        (lambda: x + y, "add", "a 'x' is"),
        (lambda: pg.ops.cast(g.input("z", (2**61,), "f8_e4m3"), "f32"), "cast", "x 'z' is"),
        (lambda: pg.ops.mul_mat(x, y.reshape(2**40, 1)), "mul_mat", "w 'x' is"),
        (lambda: pg.ops.flash_attn_ext(many, one, wide, scale=1), "flash_attn_ext", "v 'v' is"),
    ):
        with pytest.raises(pg.ShapeError, match=f"^{op}: .*2\\^62 bytes.*{operand}"):
            build()


def test_many_rows_of_no_elements_take_no_time() -> None:
    """Nothing may walk over rows that hold nothing: these would take years."""
    g = pg.Graph()
    x = g.input("x", (2**60, 0), "f16")
    nodes = [
        pg.ops.mul_mat(g.input("w", (0, 0)), x),
        pg.ops.rms_norm(x),
        pg.ops.soft_max(x),
        pg.ops.silu(x),
        pg.ops.cast(x.T, "f8_e4m3").T,
        pg.ops.get_rows(x, np.zeros(0, np.int64)),
        x + x,
    ]
    program = g.compile(nodes)
    out = program(x=np.zeros((2**60, 0), np.float16), w=np.zeros((0, 0), np.float32))
    assert [r.shape for r in out] == [n.shape for n in nodes]


def test_bad_sizes_in_views() -> None:
    g = pg.Graph()
    x = g.input("x", (4, 4))
    view = OPS["view"].number
    huge = 2**63 - 1
    for start, step, size in (
        ([0, 0], [1, 1], [4, 5]),
        ([0, 1], [1, 1], [4, 4]),
        ([-1, 0], [1, 1], [1, 1]),
        ([0, 0], [1, huge], [1, 2]),
        ([0, 0], [huge, huge], [huge, huge]),
        ([huge, huge], [1, 1], [1, 1]),
        ([4, 0], [1, 1], [1, 1]),
        ([0, 0], [0, 1], [4, 4]),
        ([0, 0], [-1, 1], [4, 4]),
        ([0, 0], [1, 1], [-4, 4]),
    ):
        params = {"ndim": 2, "start": start, "step": step, "size": size}
        with pytest.raises(pg.ShapeError):
            g._core.op(view, [x.id], params)


@pytest.fixture
def sparse(tmp_path) -> pg.Tensor:
    """A (65536, 65537) f8_e4m3 tensor over a file with hardly any blocks."""
    path = tmp_path / "sparse"
    size = BIG * (BIG + 1)
    with path.open("wb") as f:
        f.truncate(size)
    return pg.Tensor.from_raw(np.memmap(path, np.uint8, "r+"), (BIG, BIG + 1), "f8_e4m3", "big")


def test_far_rows_are_reached(sparse) -> None:
    table = sparse.numpy()
    table[-1, -4:] = [1, 2, 3, 4]
    table[BIG // 2, :2] = [5, 6]
    g = pg.Graph()
    x = g.const(sparse)
    nodes = [
        x[-1, -4:],
        x.reshape(-1)[-3:],
        x.T[-2:, -1],
        pg.ops.get_rows(x, [BIG - 1, BIG // 2]),
        pg.ops.mul_mat(x[-2:], np.eye(1, BIG + 1, BIG, dtype=np.float32)),
    ]
    r = g.compile([pg.ops.cast(n, "f32") for n in nodes])()
    assert r[0].tolist() == [1, 2, 3, 4]
    assert r[1].tolist() == [2, 3, 4]
    assert r[2].tolist() == [3, 4]
    assert r[3][0, -4:].tolist() == [1, 2, 3, 4]
    assert r[3][1, :3].tolist() == [5, 6, 0]
    assert r[4].tolist() == [[0, 4]]


def test_far_rows_are_written(sparse) -> None:
    g = pg.Graph()
    row = g.input("row", (1, BIG + 1))
    pg.ops.set_rows(g.const(sparse), row, [BIG - 2])
    pg.ops.cpy(row[:, :3], g.const(sparse)[-1:, -3:])
    feed = np.zeros((1, BIG + 1), np.float32)
    feed[0, :3] = feed[0, -3:] = (7, 8, 9)
    g.compile(row)(row=feed)
    table = sparse.numpy()
    assert table[BIG - 2, :3].astype(np.float32).tolist() == [7, 8, 9]
    assert table[BIG - 2, -3:].astype(np.float32).tolist() == [7, 8, 9]
    assert table[BIG - 1, -3:].astype(np.float32).tolist() == [7, 8, 9]
    assert not table[0].astype(np.float32).any()
