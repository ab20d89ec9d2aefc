"""pack_panel16 and gemm_tile."""

import itertools

import numpy as np
import pytest
from kernels.kernel import ISAS, guarded, kernel, same_bits

SLOTS = {"pack_panel16", "gemm_tile"}

every_isa = pytest.mark.parametrize("isa", ISAS)


@every_isa
def test_pack_panel16(isa):
    rng = np.random.default_rng(0)
    pack = kernel(isa, "pack_panel16")
    for n_rows, k in itertools.product(range(1, 17), (0, 1, 2, 7, 8, 9, 16, 27)):
        for ld in (k, k + 3):
            rows = rng.standard_normal((n_rows, max(ld, 1))).astype(np.float32)
            used = rows.reshape(-1)[: (n_rows - 1) * ld + k] if k else rows.reshape(-1)[:0]
            expected = np.zeros((k, 16), np.float32)
            flat = guarded(0).at_end(used)
            for r in range(n_rows if k else 0):
                expected[:, r] = flat[r * ld : r * ld + k]
            panel = guarded(1).at_end(np.full((k, 16), 9, np.float32))
            pack(flat, ld, n_rows, k, panel)
            assert same_bits(panel, expected)
            open_panel = np.full((k + 1, 16), 9, np.float32)
            pack(flat, ld, n_rows, k, open_panel)
            assert same_bits(open_panel[:k], expected)
            assert (open_panel[k] == 9).all()


def product(isa, k, panel, ldp, x, ldx, m, n_cols, ldy=20, start=None):
    """gemm_tile into a sentinel-filled y of m + 1 rows; accumulates when `start` is given."""
    y = np.full((m + 1, ldy), 3, np.float32)
    if start is not None:
        y[:m, :n_cols] = start
    kernel(isa, "gemm_tile")(k, panel, ldp, x, ldx, m, y, ldy, n_cols, 0 if start is None else 1)
    assert (y[m] == 3).all()
    assert (y[:, n_cols:] == 3).all()
    return y[:m, :n_cols]


@every_isa
@pytest.mark.parametrize("n_cols", range(1, 17))
def test_gemm_tile(isa, n_cols):
    rng = np.random.default_rng(n_cols)
    for m, k in itertools.product(range(14), (0, 1, 2, 7, 40)):
        ldp, ldx = (16, k) if m % 2 else (21, k + 3)
        panel = rng.standard_normal((k, ldp)).astype(np.float32)
        x = rng.standard_normal((m, max(ldx, 1))).astype(np.float32)
        end_of_panel = (k - 1) * ldp + 16 if k else 0
        end_of_x = (m - 1) * ldx + k if m and k else 0
        p = guarded(0).at_end(panel.reshape(-1)[:end_of_panel])
        q = guarded(1).at_end(x.reshape(-1)[:end_of_x])
        rows = np.array([q[t * ldx : t * ldx + k] for t in range(m)]).reshape(m, k)
        exact = rows.astype(np.float64) @ panel[:, :n_cols].astype(np.float64)
        size = np.abs(rows).astype(np.float64) @ np.abs(panel[:, :n_cols])
        limit = (k + 1) * 2.0**-24 * size
        y = product(isa, k, p, ldp, q, ldx, m, n_cols)
        assert (np.abs(y - exact) <= limit).all()
        start = rng.standard_normal((m, n_cols)).astype(np.float32)
        y2 = product(isa, k, p, ldp, q, ldx, m, n_cols, start=start)
        assert same_bits(y2, start + y)


@every_isa
def test_bits_do_not_depend_on_m(isa):
    rng = np.random.default_rng(1)
    panel = rng.standard_normal((100, 16)).astype(np.float32)
    x = rng.standard_normal((29, 100)).astype(np.float32)
    whole = product(isa, 100, panel, 16, x, 100, 29, 16)
    for m in range(1, 29):
        assert same_bits(product(isa, 100, panel, 16, x, 100, m, 16), whole[:m])
        assert same_bits(product(isa, 100, panel, 16, x[m:], 100, 29 - m, 16), whole[m:])
    for n_cols in range(1, 16):
        assert same_bits(product(isa, 100, panel, 16, x, 100, 29, n_cols), whole[:, :n_cols])


@every_isa
def test_sums_in_order(isa):
    # (2^24 + 1) - 2^24 is 0 in order; any other order gives 1
    panel = np.ones((3, 16), np.float32)
    x = np.array([[2.0**24, 1, -(2.0**24)]] * 13, np.float32)
    assert (product(isa, 3, panel, 16, x, 3, 13, 16) == 0).all()


@every_isa
def test_y_is_not_read_without_accumulate(isa):
    y = np.full((7, 16), np.nan, np.float32)
    panel, x = np.ones((4, 16), np.float32), np.ones((7, 4), np.float32)
    kernel(isa, "gemm_tile")(4, panel, 16, x, 4, 7, y, 16, 16, 0)
    assert (y == 4).all()
    y = np.full((7, 16), np.nan, np.float32)
    kernel(isa, "gemm_tile")(4, panel, 16, x, 4, 7, y, 16, 11, 0)
    assert (y[:, :11] == 4).all()
    assert np.isnan(y[:, 11:]).all()


@every_isa
def test_y_ends_where_it_ends(isa):
    panel, x = np.ones((4, 16), np.float32), np.ones((13, 4), np.float32)
    for m, n_cols in itertools.product(range(1, 14), range(1, 17)):
        y = guarded(0).at_end(np.zeros((m, n_cols), np.float32))
        kernel(isa, "gemm_tile")(4, panel, 16, x, 4, m, y, n_cols, n_cols, 1)
        assert (y == 4).all()


@every_isa
def test_nan_stays_in_its_row_and_column(isa):
    panel, x = np.ones((5, 16), np.float32), np.ones((8, 5), np.float32)
    panel[2, 9] = np.nan
    x[6, 1] = np.inf
    y = product(isa, 5, panel, 16, x, 5, 8, 16)
    expected = np.full((8, 16), 5.0)
    expected[6] = np.inf
    expected[:, 9] = np.nan
    assert np.array_equal(y, expected, equal_nan=True)
