"""soft_max and attn_softmax, and through them exp."""

import itertools

import numpy as np
import pytest
from kernels.kernel import ISAS, guarded, kernel, moved, same_bits

SLOTS = {"soft_max", "attn_softmax"}

LENGTHS = (*range(1, 36), 64, 77)
INF = np.float32(np.inf)
every_isa = pytest.mark.parametrize("isa", ISAS)


def step(isa, s, scale=1.0, mask=None, top=-INF, total=0.0):
    """One attn_softmax: s, r, max, sum."""
    s = s.copy()
    most, total_out = np.array([top], np.float32), np.array([total], np.float64)
    r = kernel(isa, "attn_softmax")(len(s), s, scale, mask, most, total_out)
    return s, np.float32(r), most[0], total_out[0]


def exp_of(isa, x):
    """exp of x <= 0, through a step whose maximum is 0."""
    return step(isa, x, top=0.0)[0]


@every_isa
def test_exp_within_two_ulp(isa):
    x = -np.concatenate([np.linspace(0, 88, 400_001), np.geomspace(1e-12, 80, 100_001)])
    x = x.astype(np.float32)
    y, exact = exp_of(isa, x), np.exp(x.astype(np.float64))
    normal = exact >= 2.0**-126
    ulp = 2.0 ** (np.floor(np.log2(exact)) - 23)
    assert (np.abs(y - exact)[normal] <= 2 * ulp[normal]).all()
    assert (np.abs(y - exact)[~normal] <= 2.0**-149).all()


@every_isa
def test_exp_at_the_ends(isa):
    x = np.array([0.0, -0.0, -INF, -103.0, -104.0, -105.0, -1e30, -1e-45], np.float32)
    y = exp_of(isa, x)
    assert y[:2].tolist() == [1, 1]
    assert y[2] == 0
    assert y[3] == np.float32(2.0**-149)
    assert (y[4:7] == 0).all()
    assert y[7] == 1
    # above 0: through a maximum of its own, r = exp(old - new) = exp(-x)
    _, r, _, _ = step(isa, np.array([88.0], np.float32), top=0.0)
    assert abs(r - np.exp(-88.0)) <= 2 * 2.0**-150 * 2


def masked(x, scale, mask):
    """float64 scores; -inf where the mask is."""
    s = x.astype(np.float64) * np.float64(np.float32(scale))
    if mask is None:
        return s
    with np.errstate(invalid="ignore"):
        return np.where(np.isneginf(mask), -np.inf, s + mask)


def some_mask(n, seed=0):
    rng = np.random.default_rng(seed)
    mask = rng.choice([0.0, 0.0, -1.5, -np.inf], n).astype(np.float32)
    mask[rng.integers(n)] = 0
    return mask


@every_isa
def test_soft_max(isa):
    rng = np.random.default_rng(0)
    for n in LENGTHS:
        x = (rng.standard_normal(n) * 5).astype(np.float32)
        for mask, scale in itertools.product((None, some_mask(n)), (1.0, 0.125)):
            s = masked(x, scale, mask)
            exact = np.exp(s - s.max())
            exact /= exact.sum()
            y = guarded(1).at_end(np.zeros(n, np.float32))
            m = None if mask is None else guarded(2).at_end(mask)
            kernel(isa, "soft_max")(n, guarded(0).at_end(x), scale, m, -INF, y)
            distance = np.where(np.isneginf(s), 0, s.max() - s)  # its rounding goes through exp
            limit = (n / 4 + 40 + 2 * distance) * 2.0**-24 * exact
            assert (np.abs(y - exact) <= limit).all()
            room = np.full(n + 9, 6, np.float32)
            room[:n] = x
            kernel(isa, "soft_max")(
                n, room, scale, None if mask is None else moved(mask, 4, poison=0xFF), -INF, room
            )
            assert same_bits(room[:n], y)
            assert (room[n:] == 6).all()


@every_isa
@pytest.mark.parametrize("hidden", [np.nan, np.inf, -np.inf, 3e38])
def test_soft_max_masked_cells_do_not_count(isa, hidden):
    rng = np.random.default_rng(1)
    for n in (1, 5, 8, 9, 23):
        for i in range(n):
            x = rng.standard_normal(n).astype(np.float32)
            mask = np.zeros(n, np.float32)
            mask[i] = -INF
            y, clean = np.ones(n, np.float32), np.ones(n, np.float32)
            kernel(isa, "soft_max")(n, x, 2.0, mask, -INF, clean)
            x[i] = hidden
            kernel(isa, "soft_max")(n, x, 2.0, mask, -INF, y)
            assert same_bits(y, clean)
            assert y[i] == 0


@every_isa
def test_soft_max_of_nothing(isa):
    for n in (0, 1, 8, 19):
        x, mask = np.full(n, np.nan, np.float32), np.full(n, -INF)
        y = np.ones(n, np.float32)
        kernel(isa, "soft_max")(n, x, 1.0, mask, -INF, y)
        assert (y == 0).all()
        kernel(isa, "soft_max")(n, mask, 1.0, None, -INF, y)  # scores of -inf, no mask
        assert (y == 0).all()


@every_isa
def test_soft_max_nan(isa):
    for n in (2, 8, 19):
        for i in range(n):
            x = np.ones(n, np.float32)
            x[i] = np.nan
            y = np.zeros(n, np.float32)
            kernel(isa, "soft_max")(n, x, 1.0, None, -INF, y)
            assert np.isnan(y).all()
            mask = np.zeros(n, np.float32)
            mask[(i + 1) % n] = -INF
            kernel(isa, "soft_max")(n, x, 1.0, mask, -INF, y)
            assert y[(i + 1) % n] == 0
            assert np.isnan(np.delete(y, (i + 1) % n)).all()


@every_isa
def test_soft_max_sink(isa):
    rng = np.random.default_rng(4)
    for n in LENGTHS:
        x = (rng.standard_normal(n) * 5).astype(np.float32)
        for sink in (-100.0, -1.0, 0.0, 3.5, 20.0, 300.0):
            for mask in (None, some_mask(n)):
                s = masked(x, 0.5, mask)
                exact = np.exp(s - max(s.max(), sink))
                exact /= exact.sum() + np.exp(sink - max(s.max(), sink))
                y = np.full(n + 1, 7, np.float32)
                kernel(isa, "soft_max")(n, x, 0.5, mask, sink, y)
                assert np.allclose(y[:n], exact, rtol=1e-5, atol=1e-30)
                assert y[n] == 7
        gone = np.full(n, -INF)
        kernel(isa, "soft_max")(n, np.full(n, np.nan, "f4"), 1.0, gone, 2.0, y)
        assert (y[:n] == 0).all()
        kernel(isa, "soft_max")(n, x, 1.0, None, np.nan, y)
        assert np.isnan(y[:n]).all()


@every_isa
def test_attn_softmax_over_tiles(isa):
    # tiles of every length, one after the other: the same as one softmax over all
    rng = np.random.default_rng(2)
    for n in LENGTHS:
        top, total = -INF, 0.0
        seen, weights = [], []
        for t in range(4):
            x = (rng.standard_normal(n) * 4 + t % 2 * 3).astype(np.float32)
            mask = some_mask(n, t) if t % 2 else None
            s = guarded(0).at_end(x)
            m = None if mask is None else guarded(1).at_end(mask)
            most, sums = np.array([top], np.float32), np.array([total], np.float64)
            call = kernel(isa, "attn_softmax")
            r = call(n, s, 0.5, m, most, sums)
            scores = masked(x, 0.5, mask)
            seen.append(scores)
            assert most[0] >= np.float32(scores.max()) - 1e-6
            assert abs(r - np.exp(np.float64(top) - most[0])) <= 2.0**-21
            weights = [w * np.float64(r) for w in weights] + [s.astype(np.float64)]
            top, total = most[0], sums[0]
        scores = np.concatenate(seen)
        assert top == pytest.approx(scores.max(), rel=1e-6)
        exact = np.exp(scores - np.float64(top))
        assert np.allclose(np.concatenate(weights), exact, rtol=1e-5, atol=0)
        assert total == pytest.approx(exact.sum(), rel=1e-5)
        # in double: the sum of the weights as they are, but for the last factors r
        assert total == pytest.approx(np.concatenate(weights).sum(), rel=1e-12)


@every_isa
def test_attn_softmax_writes_its_cells_only(isa):
    for n in LENGTHS:
        s = np.full(n + 9, 6, np.float32)
        mask = moved(np.zeros(n, np.float32), 4, poison=0xFF)
        most, total = np.array([-INF], np.float32), np.zeros(1)
        kernel(isa, "attn_softmax")(n, s, 1.0, mask, most, total)
        assert (s[:n] == 1).all()
        assert (s[n:] == 6).all()
        assert (most[0], total[0]) == (6, n)


@every_isa
def test_attn_softmax_masked(isa):
    for n in (0, 1, 7, 8, 21):
        hidden = np.full(n, np.nan, np.float32)
        mask = np.full(n, -INF)
        s, r, top, total = step(isa, hidden, mask=mask)
        assert (s == 0).all()
        assert (r, top, total) == (1, -INF, 0)
        s, r, top, total = step(isa, hidden, mask=mask, top=2.0, total=5.0)
        assert (s == 0).all()
        assert (r, top, total) == (1, 2, 5)
    # the first cells that count: r = exp(-inf) = 0 drops what was there
    s, r, top, total = step(
        isa, np.array([3, np.nan], np.float32), mask=np.array([0, -INF], np.float32)
    )
    assert s.tolist() == [1, 0]
    assert (r, top, total) == (0, 3, 1)


@every_isa
def test_attn_softmax_nan_is_seen(isa):
    for n in (1, 8, 13):
        for i in range(n):
            x = np.zeros(n, np.float32)
            x[i] = np.nan
            s, _, _, total = step(isa, x)
            assert np.isnan(s[i])
            assert np.isnan(total)
