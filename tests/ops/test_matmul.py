"""mul_mat against float64, for every pair of dtypes, layout, path and thread count."""

import numpy as np
import pytest
from ops.memory import THREADS, at_guard_page, random, run_dirty, same_bits

import pyggml as pg
from oracles import copy as formats
from oracles.matmul import mul_mat as oracle
from oracles.matmul import mul_mat_abs

DTYPES = ("f32", "f16", "bf16", "f8_e4m3", "q8_0", "q4_0", "q4_1")
X_DTYPES = ("f32", "f16", "bf16", "f8_e4m3", "q8_0")


def stored(values, dtype):
    """The tensor that holds `values` in dtype, and the values it then has."""
    raw = formats.encode(values, dtype)
    return pg.Tensor.from_raw(raw, values.shape, dtype), formats.decode(raw, dtype).reshape(
        values.shape
    )


def same(node):
    return node


def run(w, x, w_view=same, x_view=same, threads=1, dtype=None):
    g = pg.Graph()
    y = pg.ops.mul_mat(w_view(g.const(w)), x_view(g.const(x)), dtype=dtype)
    return run_dirty(g, y, threads)


def assert_close(y, w, x):
    """Within the error bound of a float32 sum of K products, relative to the sum of |w x|."""
    expected = oracle(w, x)
    assert y.dtype == np.float32
    assert y.shape == expected.shape
    bound = (w.shape[-1] + 8) * 2.0**-24 * mul_mat_abs(w, x) + 1e-30
    worst = np.max(np.abs(y - expected) / bound, initial=0.0)
    assert worst <= 1.0, f"error of {worst} times the bound"


def check(w_values, x_values, w_dtype="f32", x_dtype="f32", threads=1):
    w, w_exact = stored(w_values, w_dtype)
    x, x_exact = stored(x_values, x_dtype)
    y = run(w, x, threads=threads)
    assert_close(y, w_exact, x_exact)
    return y


# ---- values ----------------------------------------------------------------------------------


@pytest.mark.parametrize("x_dtype", X_DTYPES)
@pytest.mark.parametrize("w_dtype", DTYPES)
def test_every_pair_of_dtypes(w_dtype, x_dtype):
    for n_tokens in (1, 2, 3, 4, 5, 7, 8, 17, 64):
        check(random(33, 96), random(n_tokens, 96, seed=1), w_dtype, x_dtype)


@pytest.mark.parametrize("w_dtype", ["f32", "f16", "bf16", "f8_e4m3"])
@pytest.mark.parametrize("k", [1, 2, 15, 31, 32, 33, 255, 256, 257, 576])
def test_odd_sizes(k, w_dtype):
    for n in (1, 15, 16, 17, 50):
        for n_tokens in (1, 9):
            check(random(n, k), random(n_tokens, k, seed=1), w_dtype)


@pytest.mark.parametrize("x_dtype", ["f16", "bf16", "f8_e4m3"])
@pytest.mark.parametrize("n_tokens", [1, 9])
def test_e4m3_by_narrow_activations_at_every_length(x_dtype, n_tokens):
    """B1: the pairs that have no kernel of their own."""
    for k in range(258):
        y = check(random(5, k), random(n_tokens, k, seed=1), "f8_e4m3", x_dtype)
        assert k > 0 or not y.any()


@pytest.mark.parametrize("w_dtype", DTYPES)
def test_several_panels_chunks_and_token_blocks(w_dtype):
    """K beyond one panel with a short last one, N beyond one task, T beyond two token blocks."""
    check(random(1000, 544), random(1, 544, seed=1), w_dtype)
    check(random(210, 544), random(603, 544, seed=1), w_dtype)
    check(random(1100, 64), random(20, 64, seed=1), w_dtype)


def test_large_k_for_few_tokens():
    check(random(40, 5000), random(2, 5000, seed=1))


def test_input_and_constant_give_the_same_bits():
    w, x = random(40, 96), random(9, 96, seed=1)
    g = pg.Graph()
    y = pg.ops.mul_mat(w, g.input("x", x.shape))
    program = g.compile(y, threads=2)
    assert same_bits(program(x=x), check(w, x))
    assert same_bits(program(x=2 * x), 2 * check(w, x))


# ---- shapes ----------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", ["f32", "f8_e4m3"])
@pytest.mark.parametrize("n_tokens", [1, 3, 9])
@pytest.mark.parametrize(
    ("w_lead", "x_lead"),
    [
        ((), (3,)),
        ((2,), (2,)),
        ((2,), (6,)),
        ((1,), (4,)),
        ((), (2, 3)),
        ((2,), (3, 4)),
        ((2, 3), (2, 3)),
        ((2, 3), (4, 3)),
        ((2, 3), (4, 9)),
        ((1, 2), (2, 4)),
    ],
)
def test_leading_axes(w_lead, x_lead, n_tokens, dtype):
    check(random(*w_lead, 21, 40), random(*x_lead, n_tokens, 40, seed=1), dtype, "f16")
    check(random(*w_lead, 21, 40), random(*x_lead, n_tokens, 40, seed=1), dtype)


def test_vector():
    w, x = random(37, 64), random(64, seed=1)
    y = check(w, x)
    assert y.shape == (37,)
    assert same_bits(y, check(w, x[None])[0])


def test_matrix_with_leading_ones():
    w, x = random(1, 37, 64), random(5, 64, seed=1)
    assert same_bits(run(w, x), check(w[0], x)[None])
    assert run(w, x[0]).shape == (1, 37)


@pytest.mark.parametrize("n_tokens", [1, 3, 9])
@pytest.mark.parametrize("dtype", DTYPES)
def test_no_columns_gives_zeros(n_tokens, dtype):
    w = pg.Tensor.from_raw(b"", (19, 0), dtype)
    y = run(w, np.zeros((n_tokens, 0), np.float32))
    assert same_bits(y, np.zeros((n_tokens, 19), np.float32))


@pytest.mark.parametrize(
    ("w_shape", "x_shape", "y_shape"),
    [
        ((0, 32), (3, 32), (3, 0)),
        ((0, 32), (30, 32), (30, 0)),
        ((7, 32), (0, 32), (0, 7)),
        ((2, 7, 32), (0, 5, 32), (0, 5, 7)),
        ((0, 7, 32), (0, 5, 32), (0, 5, 7)),
        ((0, 7, 32), (0, 50, 32), (0, 50, 7)),
        ((0, 0), (0, 0), (0, 0)),
    ],
)
@pytest.mark.parametrize("x_dtype", ["f32", "f16"])
def test_no_elements(w_shape, x_shape, y_shape, x_dtype):
    y = run(np.zeros(w_shape, np.float32), np.zeros(x_shape, x_dtype.replace("f", "float")))
    assert y.shape == y_shape


# ---- layouts ---------------------------------------------------------------------------------

# A view of an array that is larger than what the op may read; the rest holds NaN.
VIEWS = {
    "transposed": (lambda a: np.swapaxes(a, -1, -2).copy(), lambda v: pg.ops.transpose(v)),
    "every second row": (lambda a: np.repeat(a, 2, axis=-2), lambda v: v[..., ::2, :]),
    "every third column": (lambda a: np.repeat(a, 3, axis=-1), lambda v: v[..., ::3]),
    "inner part": (
        lambda a: np.pad(a, [(0, 0)] * (a.ndim - 2) + [(2, 1), (3, 5)], constant_values=np.nan),
        lambda v: v[..., 2:-1, 3:-5],
    ),
    "last column first": (
        lambda a: np.concatenate([a, np.full((*a.shape[:-1], 1), np.nan, a.dtype)], axis=-1),
        lambda v: v[..., :-1],
    ),
}


@pytest.mark.parametrize("dtype", ["f32", "f16", "f8_e4m3"])
@pytest.mark.parametrize("n_tokens", [1, 3, 9, 70])
@pytest.mark.parametrize("layout", VIEWS)
def test_views_of_w(layout, n_tokens, dtype):
    spread, view = VIEWS[layout]
    _, exact = stored(random(2, 37, 41), dtype)
    x = random(2, n_tokens, 41, seed=1)
    w, _ = stored(spread(exact), dtype)
    assert_close(run(w, x, w_view=view, threads=2), exact, x)


@pytest.mark.parametrize("dtype", ["f32", "f16", "f8_e4m3"])
@pytest.mark.parametrize("n_tokens", [1, 3, 9, 70])
@pytest.mark.parametrize("layout", VIEWS)
def test_views_of_x(layout, n_tokens, dtype):
    spread, view = VIEWS[layout]
    _, exact = stored(random(2, n_tokens, 41), dtype)
    w = random(37, 41, seed=1)
    x, _ = stored(spread(exact), dtype)
    dense, _ = stored(exact, dtype)
    y = run(w, x, x_view=view, threads=2)
    assert_close(y, w, exact)
    assert same_bits(y, run(w, dense))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("n_tokens", [1, 9])
def test_heads_of_a_row_major_cache(n_tokens, dtype):
    """(C, G*D) seen as (G, C, D): what plain attention multiplies by."""
    w, exact = stored(random(50, 3 * 64), dtype)
    x = random(6, n_tokens, 64, seed=1)
    heads = exact.reshape(50, 3, 64).transpose(1, 0, 2)
    y = run(w, x, w_view=lambda v: pg.ops.permute(v.reshape(50, 3, 64), (1, 0, 2)))
    assert_close(y, heads, x)


@pytest.mark.parametrize("n_tokens", [1, 9])
def test_a_cut_between_blocks(n_tokens):
    w, exact = stored(random(20, 128), "q8_0")
    x = random(n_tokens, 64, seed=1)
    assert_close(run(w, x, w_view=lambda v: v[1:, 32:96]), exact[1:, 32:96], x)


def test_both_sides_permuted():
    w, x = random(37, 2, 48), random(9, 4, 48, seed=1)
    swap = (1, 0, 2)
    y = run(w, x, lambda v: pg.ops.permute(v, swap), lambda v: pg.ops.permute(v, swap))
    assert_close(y, w.transpose(swap), x.transpose(swap))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("n_tokens", [1, 9])
def test_nothing_behind_w_is_read(n_tokens, dtype):
    for n, k in ((1, 32), (17, 64), (37, 288)):
        w, exact = stored(random(n, k), dtype)
        x = random(n_tokens, k, seed=1)
        edge = pg.Tensor.from_raw(at_guard_page(w.raw()), (n, k), dtype)
        y = run(edge, x)
        assert_close(y, exact, x)
        assert same_bits(y, run(w, x))


@pytest.mark.parametrize("dtype", ["f32", "f16", "f8_e4m3"])
@pytest.mark.parametrize("n_tokens", [1, 9])
def test_nothing_behind_x_is_read(n_tokens, dtype):
    for n, k in ((17, 1), (17, 13), (37, 288)):
        w = random(n, k)
        x, exact = stored(random(n_tokens, k, seed=1), dtype)
        edge = pg.Tensor.from_raw(at_guard_page(x.raw()), (n_tokens, k), dtype)
        assert_close(run(w, edge), w, exact)


# ---- the result's dtype ----------------------------------------------------------------------


@pytest.mark.parametrize("n_tokens", [1, 9, 300])
@pytest.mark.parametrize("dtype", DTYPES)
def test_result_dtype_rounds_once(dtype, n_tokens):
    w, x = random(224, 40), random(2, n_tokens, 40, seed=1)
    expected = formats.encode(run(w, x), dtype)
    for threads in THREADS:
        y = run(w, x, dtype=dtype, threads=threads)
        raw = y.raw() if isinstance(y, pg.Tensor) else y.view(np.uint8)
        assert np.array_equal(raw.ravel(), expected.ravel())


def test_result_dtype_is_f32_whatever_the_operands():
    half = random(8, 32).astype(np.float16)
    assert run(half, half).dtype == np.float32


# ---- bits ------------------------------------------------------------------------------------


@pytest.mark.parametrize("w_dtype", DTYPES)
@pytest.mark.parametrize(
    ("n", "k", "n_tokens", "x_dtype"),
    [(3000, 96, 1, "f32"), (700, 288, 3, "f16"), (300, 544, 300, "f32"), (90, 64, 290, "f8_e4m3")],
)
def test_same_bits_for_every_thread_count(n, k, n_tokens, x_dtype, w_dtype):
    w, _ = stored(random(n, k), w_dtype)
    x, _ = stored(random(n_tokens, k, seed=1), x_dtype)
    results = [run(w, x, threads=t) for t in THREADS]
    assert all(same_bits(results[0], y) for y in results[1:])


def test_same_bits_for_every_thread_count_gathered():
    w, x = random(300, 400), random(3, 300, seed=1)
    for n_tokens in (1, 3):
        results = [run(w, x[:n_tokens], w_view=pg.ops.transpose, threads=t) for t in THREADS]
        assert all(same_bits(results[0], y) for y in results[1:])


@pytest.mark.parametrize("w_dtype", DTYPES)
@pytest.mark.parametrize("counts", [(1, 2, 7), (8, 9, 300)])
def test_a_token_does_not_depend_on_its_neighbours(counts, w_dtype):
    w, _ = stored(random(70, 288), w_dtype)
    x = random(max(counts), 288, seed=1)
    results = [run(w, x[:n]) for n in counts]
    assert all(same_bits(results[0], y[: counts[0]]) for y in results[1:])


@pytest.mark.parametrize("n_tokens", [1, 9])
def test_powers_of_two_scale_exactly(n_tokens):
    w, x = random(50, 300), random(n_tokens, 300, seed=1)
    assert same_bits(run(w * 2.0**-9, x * 2.0**4), run(w, x) * np.float32(2.0**-5))


# ---- NaN -------------------------------------------------------------------------------------


@pytest.mark.parametrize("code", [0x7F, 0xFF])
@pytest.mark.parametrize("n_tokens", [1, 3, 9, 64])
def test_nan_weight_reaches_its_row_only(n_tokens, code):
    raw = formats.encode(random(35, 70), "f8_e4m3")
    x = random(n_tokens, 70, seed=1)
    clean = run(pg.Tensor.from_raw(raw.copy(), (35, 70), "f8_e4m3"), x)
    for row, column in ((0, 0), (17, 33), (34, 69)):
        bad = raw.copy()
        bad[row, column] = code
        y = run(pg.Tensor.from_raw(bad, (35, 70), "f8_e4m3"), x)
        assert np.isnan(y[:, row]).all()
        others = np.arange(35) != row
        assert same_bits(y[:, others], clean[:, others])


@pytest.mark.parametrize("n_tokens", [2, 9])
def test_nan_token_reaches_itself_only(n_tokens):
    w, x = random(35, 70), random(n_tokens, 70, seed=1)
    clean = run(w, x)
    x[1, 69] = np.nan
    y = run(w, x)
    assert np.isnan(y[1]).all()
    assert same_bits(np.delete(y, 1, 0), np.delete(clean, 1, 0))


# ---- refusals --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("w", "x", "dtype", "error", "message"),
    [
        (
            (4, 8),
            (3, 9),
            None,
            pg.ShapeError,
            r"inner sizes differ: w is \(4, 8\) f32, x 'x' is \(3, 9",
        ),
        ((8,), (3, 8), None, pg.ShapeError, r"w must be \(..., N, K\)"),
        ((4, 8), (), None, pg.ShapeError, r"w must be \(..., N, K\)"),
        ((2, 4, 8), (3, 5, 8), None, pg.ShapeError, "leading axes of x must be multiples"),
        ((2, 4, 8), (5, 8), None, pg.ShapeError, "leading axes of x must be multiples"),
        ((3, 1, 4, 8), (2, 2, 5, 8), None, pg.ShapeError, "leading axes of x must be multiples"),
        ((0, 4, 8), (2, 5, 8), None, pg.ShapeError, "leading axes of x must be multiples"),
        ((40, 8), (2, 8), "q8_0", pg.ShapeError, "needs N to be a multiple of 32"),
        ((4, 8), (3, 8), "i32", pg.DTypeError, "the result cannot be i32"),
    ],
)
def test_refused(w, x, dtype, error, message):
    g = pg.Graph()
    with pytest.raises(error, match=message):
        pg.ops.mul_mat(np.zeros(w, np.float32), g.input("x", x), dtype=dtype)


@pytest.mark.parametrize("kind", [np.int32, np.int64])
def test_integers_are_refused(kind):
    g = pg.Graph()
    x = g.input("x", (3, 8))
    with pytest.raises(pg.DTypeError, match="mul_mat: w must have a float dtype"):
        pg.ops.mul_mat(np.zeros((4, 8), kind), x)
    with pytest.raises(pg.DTypeError, match="mul_mat: x must have a float dtype"):
        pg.ops.mul_mat(np.zeros((4, 8), np.float32), g.input("i", (3, 8), kind))
