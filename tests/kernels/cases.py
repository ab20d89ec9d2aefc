"""Typical operands of every kernel slot, for benchmarks and instruction counts.

The sizes are those of a small model: rows of K = 576 (512 where blocks
hold 256), tiles of 64 scores, heads of 64, FFN 1536.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from kernels.kernel import DIRECT, DTYPES, SIGNATURES, UNARY_SLOTS, encoded, kernel, row_bytes

K, ROWS, TILE, HEAD, FFN = 576, 64, 64, 64, 1536


@dataclass
class Case:
    """A call: its arguments, the array it writes (None: it returns), and what it does."""

    args: tuple
    out: np.ndarray | None
    n_bytes: int
    flops: int = 0

    def run(self, isa: str, slot: str) -> np.ndarray:
        """The result of one call."""
        returned = kernel(isa, slot)(*self.args)
        return np.array(returned) if self.out is None else self.out.copy()


def _numbers(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def _typed(slot: str, dtype: str) -> Case:
    """to_f32, from_f32, dot and mv of a dtype."""
    rows, k = ROWS if slot.startswith("mv") else 1, K if K % DTYPES[dtype][0] == 0 else 512
    n_bytes = row_bytes(dtype, k) * rows
    w, x, y = encoded(dtype, _numbers(rows, k)), _numbers(k, seed=1), np.zeros(k, np.float32)
    if slot.startswith("to_f32"):
        return Case((w, y, k), y, n_bytes)
    if slot.startswith("from_f32"):
        codes = np.zeros(n_bytes, np.uint8)
        return Case((x, codes, k), codes, 4 * k)
    if slot.startswith("dot"):
        return Case((k, w, x), None, n_bytes, 2 * k)
    y = np.zeros(ROWS, np.float32)
    return Case((k, ROWS, w, row_bytes(dtype, k), x, y), y, n_bytes, 2 * k * ROWS)


def _matrix(slot: str) -> Case:
    if slot == "pack_panel16":
        rows, panel = _numbers(16, K), np.zeros((K, 16), np.float32)
        return Case((rows, K, 16, K, panel), panel, rows.nbytes)
    panel, x, y = _numbers(K, 16), _numbers(TILE, K, seed=1), np.zeros((TILE, 16), np.float32)
    args = (K, panel, 16, x, K, TILE, y, 16, 16, 0)
    return Case(args, y, panel.nbytes + x.nbytes, 2 * TILE * K * 16)


def _vector(slot: str) -> Case:
    a, b, y = _numbers(FFN), _numbers(FFN, seed=1), np.zeros(FFN, np.float32)
    args = {
        "scale": (FFN, a, 0.5, 0.1, y),
        "decay_add": (FFN, 0.5, a, np.zeros(FFN)),
        **dict.fromkeys(UNARY_SLOTS, (FFN, a, y)),
        **dict.fromkeys(("sqrt", "log"), (FFN, np.abs(a), y)),
        "clamp": (FFN, a, -0.5, 0.75, y),
        "leaky_relu": (FFN, a, 0.1, y),
        "norm": (K, a, 1e-5, y),
        "scale_wide": (FFN, a, 0.5, y),
        "fwht": (512, a, 0.5, y),
        "sum": (FFN, a),
        "sum_sqr": (FFN, a),
        "argmax": (FFN, a),
        "all_finite": (FFN, a),
    }.get(slot, (FFN, a, b, y))
    return Case(args, None if len(args) == 2 else args[-1], 8 * args[0])


def _attention(slot: str) -> Case:
    if slot.startswith("rope"):
        angle = _numbers(HEAD // 2, seed=1)
        cos, sin = np.cos(angle), np.sin(angle)
        x, y = _numbers(HEAD), np.zeros(HEAD, np.float32)
        return Case((HEAD // 2, x, cos, sin, y), y, 8 * HEAD)
    s, mask, y = _numbers(TILE), np.zeros(TILE, np.float32), np.zeros(TILE, np.float32)
    if slot == "soft_max":
        return Case((TILE, s, 0.125, mask, 0.5, y), y, 8 * TILE)
    top, total = np.zeros(1, np.float32), np.zeros(1)
    return Case((TILE, s, 0.125, mask, top, total), s, 8 * TILE)


def _direct(slot: str) -> Case:
    """A slot on codes, named slot_dtype."""
    dtype = slot.rpartition("_")[2]
    a, b = (encoded(dtype, _numbers(FFN, seed=seed)) for seed in range(2))
    if SIGNATURES[slot][0] is not None:
        return Case((FFN, a), None, a.nbytes)
    y = np.zeros_like(a)
    args = (FFN, a, 0.5, 0.1, y) if slot.startswith("scale") else (FFN, a, b, y)
    return Case(args, y, (len(args) - 2) * a.nbytes)


def typical(slot: str) -> Case:
    """Fresh operands for a slot."""
    dtype = next((name for name in DTYPES if slot.endswith(f"_f32_{name}")), None)
    if dtype is None and slot.startswith(("dot_", "mv_")):
        dtype = slot.partition("_")[2]
    if dtype is not None:
        return _typed(slot, dtype)
    if slot in DIRECT:
        return _direct(slot)
    if slot in ("pack_panel16", "gemm_tile"):
        return _matrix(slot)
    if slot in ("soft_max", "attn_softmax", "rope_norm", "rope_neox"):
        return _attention(slot)
    return _vector(slot)
