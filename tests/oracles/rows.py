"""Reading and writing rows by index."""

import numpy as np


def _checked(ids, n_rows):
    """Return ids as int64; IndexError when one is outside 0 .. n_rows - 1 (numpy would wrap -1)."""
    ids = np.asarray(ids, dtype=np.int64)
    if ids.size and (ids.min() < 0 or ids.max() >= n_rows):
        raise IndexError(f"row index outside 0..{n_rows - 1}")
    return ids


def get_rows(table, ids):
    """out[..., r, :] = table[..., ids[..., r], :]; the dtype is kept.

    Shapes: table (N, E), ids (...) -> (..., E); or table (..., N, E), ids (..., R) -> (..., R, E).
    Source: ggml_get_rows.
    """
    table = np.asarray(table)
    ids = _checked(ids, table.shape[-2])
    if table.ndim == 2:
        return table[ids]
    return np.take_along_axis(table, ids[..., None], axis=-2)


def add_id(a, b, ids):
    """a[..., :] + b[ids[...], :] in float64.

    Shapes: a (..., E), b (R, E), ids (...) -> (..., E). Source: ggml_add_id.
    """
    b = np.asarray(b, np.float64)
    return np.asarray(a, np.float64) + b[_checked(ids, len(b))]


def set_rows(dst, src, ids):
    """A copy of dst with dst[..., ids[..., r], :] = src[..., r, :]; the last of equal ids stays.

    Shapes: dst (..., N, E), src (..., R, E), ids (R,) or (..., R) -> (..., N, E), dst's dtype.
    Source: ggml_set_rows.
    """
    out, src = np.array(dst), np.asarray(src)
    ids = np.broadcast_to(_checked(ids, out.shape[-2]), src.shape[:-1])
    for where in np.ndindex(*src.shape[:-1]):
        out[(*where[:-1], ids[where])] = src[where]
    return out
