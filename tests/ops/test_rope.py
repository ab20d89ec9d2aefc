"""rope: both pairings, part of the head, factors, large positions, YaRN."""

import numpy as np
import pytest
from ops.check import BLOCKS, SCALARS, check_op, decode, encode, rand, run, run_threads

import pyggml as pg
from oracles import rope as oracle

KEEP = {name: name for name in SCALARS}
ORACLES = {"norm": oracle.rope_norm, "neox": oracle.rope_neox}
MODES = tuple(ORACLES)


def reference(mode):
    def fn(x, pos, factors=None, **params):
        return ORACLES[mode](x, pos, freq_factors=factors, **params)

    return fn


def positions(n):
    return np.arange(n, dtype=np.int32) * 37 + 5


def check(mode, x, pos, factors=None, *, dtypes=SCALARS, rows=None, **params):
    check_op(
        pg.ops.rope,
        [x, pos, factors],
        reference(mode),
        params={**params, "mode": mode},
        oracle_params=params,
        dtypes=dtypes,
        vary=(0,),
        rows={0: x.ndim - 3, 1: 0} if rows is None else rows,
    )


@pytest.mark.parametrize("mode", MODES)
def test_rope(mode):
    check(mode, rand(6, 3, 64), positions(6))


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("n_dims", [2, 6, 32, 62, 64])
def test_part_of_the_head(mode, n_dims):
    check(mode, rand(5, 2, 64), positions(5), n_dims=n_dims, dtypes=("f32", "f8_e4m3"))


@pytest.mark.parametrize("mode", MODES)
def test_frequencies(mode):
    params = {"freq_base": 1e6, "freq_scale": 0.25}
    factors = np.linspace(1, 8, 16)
    check(mode, rand(5, 2, 32), positions(5), factors, dtypes=("f32", "bf16"), **params)
    check(mode, rand(5, 2, 40), positions(5), factors, n_dims=32, dtypes=("f32",), **params)


@pytest.mark.parametrize("mode", MODES)
def test_batches_share_the_positions(mode):
    check(mode, rand(3, 4, 2, 16), positions(4), dtypes=("f32", "f16"))


@pytest.mark.parametrize("mode", MODES)
def test_many_tokens(mode):
    check(mode, rand(300, 9, 64), positions(300), dtypes=("f32",))


def test_blocks_give_f32():
    check_op(
        pg.ops.rope,
        [rand(4, 2, 64), positions(4)],
        reference("norm"),
        dtypes=BLOCKS,
        vary=(0,),
        rows={0: 0, 1: 0},
        result=dict.fromkeys(BLOCKS, "f32"),
    )


@pytest.mark.parametrize("mode", MODES)
def test_large_and_negative_positions(mode):
    far = [499_999, 500_000, 500_001, 1_048_575, 2**31 - 1, -(2**31), 2**40]
    pos = np.array([0, 1, -1, -1000, 100_000, 131_071, *far], np.int64)
    x = rand(len(pos), 2, 64)
    got = run_threads(pg.ops.rope(pg.Graph().const(encode(x, "f32")), pos, mode=mode))
    expected = ORACLES[mode](decode(encode(x, "f32")), pos)
    # the angle itself is a double: at 2^40 radians it is known to 1e-4
    near = np.abs(pos) <= 2**31
    np.testing.assert_allclose(decode(got)[near], expected[near], atol=2e-6)
    np.testing.assert_allclose(decode(got), expected, atol=1e-3)


def test_angles_all_round_the_circle():
    pos = np.arange(-5000, 5000)
    x = np.tile([1.0, 0.0], (len(pos), 1, 1))
    for scale in (1.0, np.pi / 4, 31.4159):
        node = pg.ops.rope(pg.Graph().const(encode(x, "f32")), pos, freq_scale=scale)
        theta = pos * float(np.float32(scale))
        expected = np.stack([np.cos(theta), np.sin(theta)], -1)
        np.testing.assert_allclose(decode(run(node))[:, 0], expected, atol=6.1e-8)


def test_position_zero_copies_and_turning_back_undoes():
    x = encode(rand(3, 2, 16), "f32")
    still = run(pg.ops.rope(pg.Graph().const(x), [0, 0, 0]))
    assert np.array_equal(still.raw(), x.raw())
    turned = pg.ops.rope(pg.Graph().const(x), [5, 6, 700])
    back = run(pg.ops.rope(turned, [-5, -6, -700]))
    np.testing.assert_allclose(decode(back), decode(x), atol=1e-6)


def test_e4m3_is_decoded_turned_and_encoded_once():
    x = encode(rand(4, 2, 64, scale=50.0), "f8_e4m3")
    pos = np.array([3, 1, 4, 1])
    got = run(pg.ops.rope(pg.Graph().const(x), pos))
    wide = pg.ops.rope(pg.Graph().const(encode(decode(x), "f32")), pos)
    assert np.array_equal(got.raw(), run(pg.ops.cast(wide, "f8_e4m3")).raw())


def test_positions_may_be_lists_inputs_or_strided():
    x = rand(3, 1, 8)
    expected = oracle.rope_norm(decode(encode(x, "f32")), [7, 8, 9])
    g = pg.Graph()
    node = g.const(encode(x, "f32"))
    strided = g.const(np.array([7, 0, 8, 0, 9, 0], np.int32))[::2]
    for pos in ([7, 8, 9], np.array([7, 8, 9], np.int16), strided):
        np.testing.assert_allclose(decode(run(pg.ops.rope(node, pos))), expected, atol=1e-6)
    fed = pg.ops.rope(node, g.input("pos", (3,), "i32"))
    got = run(fed, {"pos": np.array([7, 8, 9], np.int32)})
    np.testing.assert_allclose(decode(got), expected, atol=1e-6)


def test_each_rope_of_a_program_has_its_own_frequencies():
    x, pos = rand(5, 2, 32).astype(np.float32), positions(5)
    settings = [{"freq_base": 1e4}, {"freq_base": 500.0, "n_dims": 16}, {"freq_scale": 0.5}]
    g = pg.Graph()
    nodes = [pg.ops.rope(g.const(x), pos, mode="neox", **params) for params in settings]
    together = g.compile(nodes)()
    for node, params in zip(together, settings, strict=True):
        alone = pg.ops.rope(pg.Graph().const(x), pos, mode="neox", **params)
        assert np.array_equal(node, run(alone).numpy())


def test_no_heads():
    node = pg.ops.rope(pg.Graph().const(np.zeros((3, 0, 8), np.float32)), [0, 1, 2])
    assert run(node).shape == (3, 0, 8)


# ---- YaRN ------------------------------------------------------------------------------------

NO_YARN = [{"n_ctx_orig": 0}, {"freq_base": 1.0}, {"freq_base": 0.5}]
NO_YARN += [{"beta_fast": 0.0}, {"beta_slow": 0.0}]
YARN = {"n_ctx_orig": 4096, "freq_base": 10000.0, "freq_scale": 0.25, "ext_factor": 1.0}


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(
    "change",
    [
        {},
        {"freq_scale": 0.0625, "freq_base": 500_000.0},
        {"ext_factor": 0.5},
        {"attn_factor": 0.75},
        {"n_ctx_orig": 1 << 20},
        {"n_ctx_orig": 1},
        {"beta_fast": 8.0, "beta_slow": 4.0},
        {"beta_fast": 2.0, "beta_slow": 2.0},
        {"freq_scale": 1.0},
        {"freq_scale": 2.0},
    ],
)
def test_yarn(mode, change):
    params = {**YARN, **change, "mode": mode}
    check_op(
        pg.ops.rope,
        [rand(6, 3, 64), positions(6)],
        oracle.rope_yarn,
        params=params,
        dtypes=("f32", "f8_e4m3"),
        vary=(0,),
        rows={0: 0, 1: 0},
    )


def test_yarn_with_factors():
    arrays = [rand(5, 2, 32), positions(5), np.linspace(1, 8, 16)]

    def ref(x, pos, factors, **params):
        return oracle.rope_yarn(x, pos, freq_factors=factors, **params)

    check_op(pg.ops.rope, arrays, ref, params=YARN, dtypes=("f32",), vary=(0,), rows={0: 0, 1: 0})


def test_yarn_leaves_fast_pairs_and_scales_slow_ones():
    freq, factor = oracle.yarn(64, 4096, 10000.0, 0.25)
    plain = 10000.0 ** (-np.arange(32) / 32)
    turns = 4096 * plain / (2 * np.pi)
    fast, slow = turns > 40, turns < 0.5
    assert 5 < fast.sum() < 20
    assert 3 < slow.sum() < 20
    np.testing.assert_allclose(freq[fast], plain[fast])
    np.testing.assert_allclose(freq[slow], plain[slow] / 4)
    x = np.tile([1.0, 0.0], 32)[None, None]
    got = run(pg.ops.rope(pg.Graph().const(encode(x, "f32")), [1], **YARN)).numpy()[0, 0]
    angle = np.arctan2(got[1::2], got[::2])
    np.testing.assert_allclose(angle, freq, rtol=1e-5)
    np.testing.assert_allclose(np.hypot(got[1::2], got[::2]), factor, rtol=1e-6)


def test_yarn_copies_what_it_does_not_turn():
    x = np.float32(rand(3, 2, 24))
    got = run(pg.ops.rope(pg.Graph().const(x), [4, 5, 6], n_dims=16, **YARN)).numpy()
    assert np.array_equal(got[..., 16:], x[..., 16:])
    expected = oracle.rope_yarn(x[..., :16], [4, 5, 6], **YARN)
    np.testing.assert_allclose(got[..., :16], expected, atol=2e-6)


def test_without_ext_factor_the_other_parameters_do_not_count():
    g = pg.Graph()
    x = g.const(np.float32(rand(4, 2, 32)))
    plain = run(pg.ops.rope(x, positions(4), freq_scale=0.25))
    same = pg.ops.rope(
        x, positions(4), freq_scale=0.25, n_ctx_orig=512, beta_fast=3.0, beta_slow=2.0
    )
    assert np.array_equal(run(same).raw(), plain.raw())
    twice = pg.ops.rope(x, positions(4), freq_scale=0.25, attn_factor=2.0)
    assert np.array_equal(run(twice).numpy(), 2 * plain.numpy())
    none = pg.ops.rope(x, positions(4), attn_factor=0.0)
    assert (run(none).numpy() == 0).all()


def test_yarn_refused():
    x = pg.Graph().input("x", (3, 2, 8))
    for change in NO_YARN:
        with pytest.raises(pg.ParameterError, match="rope: ext_factor needs n_ctx_orig"):
            pg.ops.rope(x, [0, 1, 2], **{**YARN, **change})
    for name, values in {
        "ext_factor": (-1.0, np.nan, np.inf),
        "attn_factor": (np.nan, np.inf),
        "beta_fast": (-1e-9, -1.0, np.nan),
        "beta_slow": (-1e-9, -1.0, np.nan),
        "n_ctx_orig": (-1, 2**31, 2**70),
    }.items():
        for value in values:
            with pytest.raises(pg.ParameterError, match=f"rope: {name}"):
                pg.ops.rope(x, [0, 1, 2], **{**YARN, name: value})


def test_refused():
    g = pg.Graph()
    x = g.input("x", (3, 2, 8))
    pos = [0, 1, 2]
    for n_dims in (3, 10, 0, -2):
        with pytest.raises(pg.ParameterError, match="rope: n_dims"):
            pg.ops.rope(x, pos, n_dims=n_dims)
    with pytest.raises(pg.ParameterError, match="n_dims = 7 must be even"):
        pg.ops.rope(g.input("odd", (3, 2, 7)), pos)
    with pytest.raises(pg.ParameterError, match="mode must be one of norm, neox"):
        pg.ops.rope(x, pos, mode="mrope")
    for params in ({"freq_base": 0.0}, {"freq_base": np.nan}, {"freq_scale": 0.0}):
        with pytest.raises(pg.ParameterError, match="rope: freq_"):
            pg.ops.rope(x, pos, **params)
    for bad in ([0, 1], [[0, 1, 2]], np.int64(0)):
        with pytest.raises(pg.ShapeError, match=r"pos must be \(3,\)"):
            pg.ops.rope(x, bad)
    with pytest.raises(pg.ShapeError, match=r"x must be \(..., T, H, D\)"):
        pg.ops.rope(g.input("flat", (3, 8)), pos)
    with pytest.raises(pg.DTypeError, match="pos must be i32 or i64"):
        pg.ops.rope(x, g.input("p", (3,), "f32"))
    with pytest.raises(pg.DTypeError, match="freq_factors must be f32"):
        pg.ops.rope(x, pos, np.ones(4, np.float16))
    with pytest.raises(pg.ShapeError, match=r"freq_factors must be \(4,\)"):
        pg.ops.rope(x, pos, np.ones(3, np.float32))
    with pytest.raises(pg.DTypeError, match="x must have a float dtype"):
        pg.ops.rope(g.input("i", (3, 2, 8), "i32"), pos)
