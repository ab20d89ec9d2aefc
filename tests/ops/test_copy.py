"""cont, dup, cast, cpy: every pair of dtypes, every layout (B4), one rounding."""

import ml_dtypes
import numpy as np
import pytest
from ops.check import (
    BLOCKS,
    LAYOUTS,
    SCALARS,
    check_op,
    decode,
    encode,
    guarded,
    rand,
    run,
    run_threads,
)

import pyggml as pg
from oracles import copy as oracle
from oracles.formats import e4m3_boundaries

FLOATS = SCALARS + BLOCKS


def cast_to(dtype):
    return lambda x: pg.ops.cast(x, dtype)


def stored(raw_tensor, dtype):
    """Bytes of the tensor's values in another dtype, by the oracles; one rounding, through F32."""
    return oracle.encode(decode(raw_tensor).astype(np.float32), dtype).reshape(-1)


@pytest.mark.parametrize("layout", [name for name in LAYOUTS if name != "empty"])
@pytest.mark.parametrize("dst", FLOATS)
@pytest.mark.parametrize("src", FLOATS)
def test_cast_every_pair(src, dst, layout):
    blocks = src in BLOCKS or dst in BLOCKS
    shape = (3, 5, 64) if blocks else (3, 5, 37)
    check_op(cast_to(dst), [rand(*shape, scale=30.0)], lambda x: oracle.cast(x, dst),
             dtypes=(src,), layouts=(layout,), limit=1e-7 if dst == "f32" else 1e-5)  # fmt: skip


@pytest.mark.parametrize("dst", FLOATS)
@pytest.mark.parametrize("src", FLOATS)
def test_cast_is_exact_to_the_byte(src, dst):
    x = encode(rand(70, 1024, scale=20.0), src)
    got = run_threads(pg.ops.cast(pg.Graph().const(x), dst))
    expected = x.raw() if src == dst else stored(x, dst)
    assert np.array_equal(got.raw(), expected)


@pytest.mark.parametrize("dtype", [*FLOATS, "i32", "i64"])
def test_cont_keeps_bytes(dtype):
    x = rand(3, 4, 64, scale=9.0)
    if dtype[0] == "i":
        x = (x * 1e7).astype(f"int{dtype[1:]}")
    tensor = encode(x, dtype)
    values = decode(tensor)
    for fn in (pg.ops.cont, pg.ops.dup):
        node = pg.Graph().const(guarded(tensor))
        assert fn(node).dtype.name == dtype
        assert np.array_equal(run_threads(fn(node)).raw(), tensor.raw())
        for index in (np.s_[1:, ::2], np.s_[2, 1], np.s_[:, 3], np.s_[:, :0]):
            assert np.array_equal(decode(run(fn(node[index]))), values[index])
        turned = pg.ops.permute(node, (1, 0, 2))
        assert np.array_equal(decode(run_threads(fn(turned))), values.transpose(1, 0, 2))


def test_rows_of_exactly_one_or_two_spans():
    for width in (2048, 4096):
        x = encode(rand(5, width + 8), "f32")
        part = pg.Graph().const(x)[:, 3 : width + 3]
        got = run_threads(pg.ops.cast(part, "f16"))
        assert np.array_equal(got.numpy(), decode(x)[:, 3 : width + 3].astype(np.float16))


def test_strided_integers_keep_all_their_bits():
    x = np.random.default_rng(3).integers(-(2**63), 2**63 - 1, (30, 70), np.int64)
    for dtype in (np.int64, np.int32):
        node = pg.Graph().const(x.astype(dtype))
        for turned, expected in ((node.T, x.T), (node[:, ::3], x[:, ::3])):
            np.testing.assert_array_equal(
                run_threads(pg.ops.cont(turned)).numpy(), expected.astype(dtype)
            )


def test_a_large_transposed_copy():
    x = rand(301, 403)
    node = pg.Graph().const(encode(x, "f32"))
    assert np.array_equal(run_threads(pg.ops.cont(node.T)).numpy(), x.astype(np.float32).T)
    got = run_threads(pg.ops.cast(node.T, "f8_e4m3"))
    assert np.array_equal(got.raw(), stored(encode(x.T, "f32"), "f8_e4m3"))


def test_all_codes_survive():
    codes = np.arange(256, dtype=np.uint8)
    tensor = pg.Tensor.from_raw(codes, (16, 16), "f8_e4m3")
    wide = run(pg.ops.cast(pg.Graph().const(tensor), "f32"))
    np.testing.assert_array_equal(wide.numpy(), tensor.numpy().astype(np.float32))
    back = run(pg.ops.cast(pg.Graph().const(wide), "f8_e4m3"))
    assert np.array_equal(back.raw(), codes)  # NaN codes keep their sign
    same = run(pg.ops.cont(pg.ops.transpose(pg.Graph().const(tensor))))
    assert np.array_equal(same.raw().reshape(16, 16), codes.reshape(16, 16).T)


# ---- rounding --------------------------------------------------------------------------------


def f8_of(values, through=None):
    g = pg.Graph()
    node = g.const(np.asarray(values, np.float32 if through is None else through))
    return run(pg.ops.cast(node, "f8_e4m3"))


def test_ties_go_to_even():
    assert list(decode(f8_of([4.25, 4.75, 17, 19, 21]))) == [4, 5, 16, 20, 20]


def test_no_rounding_through_half():
    bits = np.array([0x3F880001, 0x41880001, 0x3A800001], np.uint32)
    assert list(f8_of([1.31640625]).raw()) == [0x3B]
    assert list(f8_of(bits.view(np.float32)).raw()) == [0x39, 0x59, 0x01]


def test_every_boundary_and_its_neighbours():
    at = e4m3_boundaries()
    inf = np.float32(np.inf)
    x = np.concatenate([np.nextafter(at, -inf), at, np.nextafter(at, inf)])
    assert np.array_equal(f8_of(x).raw(), oracle.encode(x, "f8_e4m3"))


def test_overflow_infinities_and_zeros():
    x = np.float32([448, 464, np.nextafter(np.float32(464), 465), 465, 1000, 3e10, -1000])
    assert list(decode(f8_of(x))) == [448] * 6 + [-448]
    assert list(f8_of([np.inf, -np.inf, 0.0, -0.0]).raw()) == [0x7E, 0xFE, 0x00, 0x80]
    assert list(f8_of([-0.0], np.float16).raw()) == [0x80]
    nans = np.array([0x7FC00000, 0xFFC00000, 0x7FA00000, 0xFFA00000], np.uint32).view(np.float32)
    assert list(f8_of(nans).raw()) == [0x7F, 0xFF, 0x7F, 0xFF]
    half = run(pg.ops.cast(pg.Graph().const(np.float32([65519, 65520, -1e9])), "f16")).numpy()
    assert list(half) == [65504, np.inf, -np.inf]


# ---- integers --------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [np.int32, np.int64])
@pytest.mark.parametrize("dtype", SCALARS)
def test_integers_to_float_round_once(kind, dtype):
    rng = np.random.default_rng(1)
    info = np.iinfo(kind)
    spread = rng.integers(info.min, info.max, 4000, kind) >> rng.integers(0, info.bits, 4000, kind)
    edges = np.array(
        [info.min, info.min + 1, info.max, 0, 1, -1, 447, 449, 465, 65519, 65520], kind
    )
    x = np.concatenate([spread, edges])
    at = 2**24 + 2**16  # a tie of BF16; one more is a tie of F32
    x = np.concatenate([x, np.array([at + 1, -at - 1, at, at + 3, 2 * at + 1], kind)])
    if kind is np.int64:
        # near the ties of BF16 that F32 would hide: rounding twice gives 2^40
        x = np.concatenate([x, np.array([2**40 + 2**32 + 1, -(2**40) - 2**32 - 1, 2**40 + 2**32])])
    got = decode(run(pg.ops.cast(pg.Graph().const(x), dtype)))
    np.testing.assert_array_equal(got, [nearest(int(v), dtype) for v in x])


def nearest(v, dtype):
    """Nearest value of the dtype to an integer, ties to even; exact integer arithmetic."""
    info = ml_dtypes.finfo(pg.dtype(dtype).numpy)
    bits, top = info.nmant + 1, int(float(info.max))
    sign, mag = (-1 if v < 0 else 1), abs(v)
    drop = max(mag.bit_length() - bits, 0)
    low = mag & ((1 << drop) - 1)
    mag >>= drop
    half = 1 << (drop - 1) if drop else 0
    mag += drop > 0 and (low > half or (low == half and mag & 1 == 1))
    mag <<= drop
    if mag > top:
        return sign * (top if dtype == "f8_e4m3" else np.inf)
    return float(sign * mag)


def test_integers_to_blocks_and_strided():
    x = np.arange(-64, 64).reshape(4, 32)
    got = run(pg.ops.cast(pg.Graph().const(x), "q8_0"))
    assert np.array_equal(got.raw(), oracle.encode(x.astype(np.float32), "q8_0").reshape(-1))
    strided = pg.Graph().const(x)[::2, 1::3]
    np.testing.assert_array_equal(run(pg.ops.cast(strided, "f16")).numpy(), x[::2, 1::3])
    large = np.arange(300 * 301).reshape(300, 301)
    turned = run_threads(pg.ops.cast(pg.Graph().const(large).T, "f32"))
    np.testing.assert_array_equal(turned.numpy(), large.T)


def test_i32_widens_to_i64():
    x = np.array([[-(2**31), 2**31 - 1, 0], [5, -5, 7]], np.int32)
    node = pg.Graph().const(x)
    np.testing.assert_array_equal(run(pg.ops.cast(node, "i64")).numpy(), x)
    np.testing.assert_array_equal(run(pg.ops.cast(node.T[1:], "i64")).numpy(), x.T[1:])
    long = np.arange(3 * 5000, dtype=np.int32).reshape(3, 5000)
    for cut in (np.s_[:], np.s_[:, 1:], np.s_[:, ::2]):
        got = run_threads(pg.ops.cast(pg.Graph().const(long)[cut], "i64"))
        np.testing.assert_array_equal(got.numpy(), long[cut])


def test_casts_refused():
    g = pg.Graph()
    f, i, j = g.input("f", (32,), "f32"), g.input("i", (32,), "i32"), g.input("j", (32,), "i64")
    for node, dtype in ((f, "i32"), (f, "i64"), (j, "i32")):
        with pytest.raises(pg.DTypeError, match=f"no cast from {node.dtype.name} to {dtype}"):
            pg.ops.cast(node, dtype)
    with pytest.raises(pg.DTypeError, match="no cast"):
        pg.ops.cpy(f, i)
    with pytest.raises(pg.DTypeError, match="is not a dtype"):
        pg.ops.cast(f, "float8_e4m3fnuz")
    with pytest.raises(pg.ShapeError, match="multiple of its block"):
        pg.ops.cast(g.input("o", (33,), "f32"), "q8_0")
    with pytest.raises(pg.ParameterError, match="dtype is missing"):
        pg.graph.call_op("cast", f)


def test_node_astype():
    node = pg.Graph().const(np.float32([1.5, 2.5]))
    assert node.astype(ml_dtypes.bfloat16).dtype is pg.bf16


# ---- cpy -------------------------------------------------------------------------------------


DESTINATIONS = [np.s_[:], np.s_[1:4, ::2], np.s_[::3, 1:], np.s_[2], np.s_[:, 3], np.s_[:, :0]]


@pytest.mark.parametrize("where", DESTINATIONS)
@pytest.mark.parametrize("dst", SCALARS)
@pytest.mark.parametrize("src", FLOATS)
def test_cpy_into_a_part(src, dst, where):
    before = np.full((6, 7, 64), 3.0)
    target = guarded(encode(before, dst))
    part = before[where]
    x = encode(rand(*part.shape, scale=5.0), src)
    for threads in (1, 2, 5):
        target.raw()[:] = encode(before, dst).raw()
        g = pg.Graph()
        out = pg.ops.cpy(x, g.const(target)[where])
        assert out.dtype.name == dst
        result = g.compile(out, threads=threads)()
        expected = decode(encode(before, dst))
        expected[where] = decode(x) if src == dst else oracle.decode(
            oracle.encode(decode(x).astype(np.float32), dst), dst)  # fmt: skip
        np.testing.assert_array_equal(decode(target), expected)
        np.testing.assert_array_equal(decode(result), expected[where])


@pytest.mark.parametrize("dst", SCALARS)
def test_long_strided_rows(dst):
    x = encode(rand(3, 5024, scale=5.0), "q8_0" if dst == "f32" else "f32")
    target = pg.zeros((3, 10048), dst)
    out = pg.ops.cpy(x, pg.Graph().const(target)[:, 1::2])
    expected = oracle.cast(decode(x).astype(np.float32), dst)
    np.testing.assert_array_equal(decode(run(out)), expected)
    np.testing.assert_array_equal(decode(target)[:, 1::2], expected)
    assert not decode(target)[:, ::2].any()
    back = pg.ops.cast(pg.Graph().const(target)[:, 1::2], "f16" if dst == "f32" else "f32")
    np.testing.assert_array_equal(decode(run(back)), oracle.cast(expected, back.dtype.name))


@pytest.mark.parametrize("dst", BLOCKS)
def test_cpy_into_blocks(dst):
    before = encode(np.zeros((4, 5, 96)), dst)
    target = guarded(before)
    x = rand(2, 5, 32)
    g = pg.Graph()
    where = np.s_[1:3, :, 32:64]
    g.compile(pg.ops.cpy(encode(x, "f16"), g.const(target)[where]))()
    expected = np.zeros((4, 5, 96))
    expected[where] = oracle.cast(decode(encode(x, "f16")).astype(np.float32), dst)
    np.testing.assert_array_equal(decode(target), expected)


def test_cpy_from_and_to_permuted():
    target = pg.zeros((5, 4, 3))
    x = rand(5, 3, 4)
    g = pg.Graph()
    dst = pg.ops.permute(g.const(target), (2, 0, 1))
    src = pg.ops.permute(g.const(encode(x, "bf16")), (1, 0, 2))
    g.compile(pg.ops.cpy(src, dst), threads=5)()
    np.testing.assert_array_equal(target.numpy(), decode(encode(x, "bf16")).transpose(0, 2, 1))


def test_cpy_refused():
    g = pg.Graph()
    x = g.input("x", (2, 3))
    locked = np.zeros((2, 3), np.float32)
    locked.flags.writeable = False
    with pytest.raises(pg.ReadOnlyError, match="cpy: dst is read-only: x 'x' is"):
        pg.ops.cpy(x, pg.tensor(locked))
    with pytest.raises(pg.ReadOnlyError, match="read-only"):
        pg.ops.cpy(x[:, :1], g.const(pg.tensor(locked))[:, 1:2])
    for shape in ((3, 2), (6,), (2, 3, 1), (1, 2, 3), (2, 1)):
        with pytest.raises(pg.ShapeError, match="cpy: shapes differ"):
            pg.ops.cpy(x, pg.zeros(shape))


def test_cpy_onto_itself_and_overlapping_is_refused():
    # the order of the tasks would show; a copy between is what numpy makes by itself
    target = pg.tensor(np.arange(10000, dtype=np.float32))
    for src, dst in ((np.s_[:], np.s_[:]), (np.s_[1:], np.s_[:-1]), (np.s_[::2], np.s_[:5000])):
        g = pg.Graph()
        node = g.const(target)
        with pytest.raises(pg.GraphError, match="x lies in the memory of dst"):
            pg.ops.cpy(node[src], node[dst])
    g = pg.Graph()
    node = g.const(target)
    halves = pg.ops.cpy(node[:5000], node[5000:])  # side by side is fine
    shifted = pg.ops.cpy(pg.ops.cont(node[1:5000]), node[:4999])
    g.compile([halves, shifted], threads=5)()
    expected = np.arange(10000, dtype=np.float32)
    expected[5000:] = expected[:5000]
    expected[:4999] = expected[1:5000].copy()
    assert np.array_equal(target.numpy(), expected)
