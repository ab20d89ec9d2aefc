"""mul_mat and attention at a small llama model's sizes: GFLOP/s, GB/s, microseconds a call.

python -m pytest bench/test_products.py --benchmark-columns=median,iqr -k "attention and f8_e4m3"
"""

import numpy as np
import pytest

import pyggml as pg
from oracles.attention import causal_mask
from oracles.attention import flash_attn_ext as attention_oracle
from oracles.matmul import mul_mat as product_oracle
from oracles.nmse import nmse

LAYERS = 8  # nodes of a program, with operands of their own: the run's overhead is shared
HEADS, GROUPS, D = 9, 3, 64


def random(*shape, seed=0):
    return np.random.default_rng([seed, *shape]).standard_normal(shape).astype(np.float32)


def measure(benchmark, program, flops, n_bytes):
    benchmark.pedantic(program, rounds=15, warmup_rounds=2)
    seconds = benchmark.stats.stats.median / LAYERS
    benchmark.extra_info["isa"] = pg.isa()
    benchmark.extra_info["threads"] = program.threads
    benchmark.extra_info["us a call"] = round(seconds * 1e6, 1)
    benchmark.extra_info["GFLOP/s"] = round(flops / seconds * 1e-9, 1)
    benchmark.extra_info["GB/s"] = round(n_bytes / seconds * 1e-9, 2)


@pytest.mark.parametrize("dtype", ["f32", "f16", "f8_e4m3", "q4_1"])
@pytest.mark.parametrize("n_tokens", [1, 16, 512])
@pytest.mark.parametrize(("n", "k"), [(1536, 576), (576, 1536), (192, 576)])
def test_mul_mat(benchmark, n, k, n_tokens, dtype):
    """GB/s counts the weights."""
    weights = [pg.tensor(random(n, k, seed=i), dtype=dtype) for i in range(LAYERS)]
    x = random(n_tokens, k, seed=LAYERS)
    g = pg.Graph()
    xn = g.const(x)
    program = g.compile([pg.ops.mul_mat(w, xn) for w in weights])
    for w, y in zip(weights, program(), strict=True):
        assert nmse(y, product_oracle(w.dequantize(), x)) <= 1e-11
    measure(benchmark, program, 2 * n * k * n_tokens, weights[0].nbytes)


@pytest.mark.parametrize("dtype", ["f32", "f16", "f8_e4m3", "q8_0"])
@pytest.mark.parametrize(("n_tokens", "n_cells"), [(1, 512), (1, 4096), (64, 512), (512, 512)])
def test_attention(benchmark, n_tokens, n_cells, dtype):
    """Causal; GB/s counts K and V once, GFLOP/s the cells that the mask leaves open."""
    mask = causal_mask(n_tokens, n_cells - n_tokens).astype(np.float32)
    q = random(1, HEADS, n_tokens, D)
    g = pg.Graph()
    qn, mn = g.const(q), g.const(mask)
    caches, nodes = [], []
    for i in range(LAYERS):
        sides = [random(1, n_cells, GROUPS * D, seed=2 * i + side) for side in (1, 2)]
        cache = [pg.tensor(side, dtype=dtype) for side in sides]
        k, v = (as_heads(g.const(side)) for side in cache)
        caches.append(cache)
        nodes.append(pg.ops.flash_attn_ext(qn, k, v, mn, scale=D**-0.5))
    program = g.compile(nodes)
    k, v = (
        side.dequantize().reshape(1, n_cells, GROUPS, D).transpose(0, 2, 1, 3) for side in caches[0]
    )
    assert nmse(program()[0], attention_oracle(q, k, v, mask, D**-0.5)) <= 1e-11
    flops = 4 * HEADS * D * int((mask == 0).sum())
    measure(benchmark, program, flops, 2 * caches[0][0].nbytes)


def as_heads(cache):
    """(1, C, G*D) as (1, G, C, D)."""
    n_cells = cache.shape[1]
    return pg.ops.permute(cache.reshape(1, n_cells, GROUPS, D), (0, 2, 1, 3))
