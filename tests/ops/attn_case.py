"""Attention over a cache as the model keeps it: row-major, seen as (B, G, C, D)."""

import numpy as np
from ops.memory import random, run_dirty

import pyggml as pg
from oracles import copy as formats
from oracles.attention import flash_attn_ext as oracle
from oracles.nmse import nmse

CACHE_DTYPES = ("f32", "f16", "bf16", "f8_e4m3", "q8_0")


class Cache:
    """One side of a cache: (B, C, G*D) bytes, of which attention sees (B, G, C, D)."""

    def __init__(self, values, dtype):
        """`values`: (B, G, C, D)."""
        self.shape = b, g, c, d = values.shape
        self.dtype = dtype
        rows = np.ascontiguousarray(values.transpose(0, 2, 1, 3)).reshape(b, c, g * d)
        raw = formats.encode(rows, dtype)
        self.raw = raw.reshape(b, c, raw.shape[-1])

    @property
    def values(self):
        b, g, c, d = self.shape
        return formats.decode(self.raw, self.dtype).reshape(b, c, g, d).transpose(0, 2, 1, 3)

    def filled(self, cells, byte):
        """A copy whose `cells` hold `byte` everywhere."""
        other = object.__new__(Cache)
        other.shape, other.dtype, other.raw = self.shape, self.dtype, self.raw.copy()
        other.raw[:, cells] = byte
        return other

    def node(self, g, dense=False):
        b, heads, c, d = self.shape
        if dense:
            raw = formats.encode(np.ascontiguousarray(self.values), self.dtype)
            return g.const(pg.Tensor.from_raw(raw, self.shape, self.dtype))
        t = pg.Tensor.from_raw(self.raw, (b, c, heads * d), self.dtype)
        return pg.ops.permute(g.const(t).reshape(b, c, heads, d), (0, 2, 1, 3))


def run(q, k, v, mask=None, scale=0.125, threads=1, dtype=None, mask_dtype=np.float32, dense=False):
    g = pg.Graph()
    if mask is not None:
        mask = g.const(np.asarray(mask).astype(mask_dtype))
    kn, vn = k.node(g, dense), v.node(g, dense)
    y = pg.ops.flash_attn_ext(g.const(q), kn, vn, mask, scale=scale, dtype=dtype)
    return run_dirty(g, y, threads)


def case(n_tokens, n_cells, heads=(9, 3), d=64, dv=None, k_dtype="f32", v_dtype=None, batch=1):
    n_heads, n_kv = heads
    k = Cache(random(batch, n_kv, n_cells, d, seed=1), k_dtype)
    v = Cache(random(batch, n_kv, n_cells, dv or d, seed=2), v_dtype or k_dtype)
    return random(batch, n_heads, n_tokens, d, seed=3), k, v


def open_mask(n_tokens, n_cells, share=0.7):
    """Random cells are hidden, the others get a bias."""
    rng = np.random.default_rng([n_tokens, n_cells])
    bias = rng.standard_normal((n_tokens, n_cells)).astype(np.float16)
    return np.where(rng.random((n_tokens, n_cells)) < share, bias, -np.inf).astype(np.float32)


def check(q, k, v, mask=None, scale=0.125, **kwargs):
    y = run(q, k, v, mask, scale, **kwargs)
    expected = oracle(q, k.values, v.values, mask, scale)
    assert y.dtype == np.float32
    assert y.shape == expected.shape
    assert nmse(y, expected) <= 1e-11
    assert np.abs(y - expected).max(initial=0) <= 2e-5 * np.nanmax(np.abs(v.values), initial=1)
    return y
