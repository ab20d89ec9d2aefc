"""Matrix product with ggml's operand order, in float64."""

import numpy as np


def mul_mat(w, x):
    """y[..., t, n] = sum over k of w[..., n, k] * x[..., t, k].

    Leading axes of w repeat by an integer ratio: x's batch i uses w's batch i // (n_x / n_w)
    on each axis, so that with grouped heads neighbours share one (numpy would demand 1 or n).

    Shapes: w (..., N, K), x (..., T, K) or (K,) -> (..., T, N) or (N,).
    Source: linear algebra; ggml_mul_mat for order and repetition.
    """
    w, x = np.asarray(w, dtype=np.float64), np.asarray(x, dtype=np.float64)
    if x.ndim == 1:
        return w @ x
    if w.ndim > x.ndim:
        raise ValueError(f"mul_mat: w {w.shape} has more axes than x {x.shape}")
    w = w.reshape((1,) * (x.ndim - w.ndim) + w.shape)
    for axis in range(x.ndim - 2):
        ratio, rest = divmod(x.shape[axis], w.shape[axis])
        if rest:
            raise ValueError(f"mul_mat: axis {axis} of x {x.shape} is no multiple of w {w.shape}")
        w = np.repeat(w, ratio, axis=axis)
    with np.errstate(invalid="ignore"):
        return x @ np.swapaxes(w, -1, -2)


def mul_mat_id(w, x, ids):
    """y[t, u] = w[ids[t, u]] @ x[t, u], or x[t, 0] where x has one row a token.

    Shapes: w (R, N, K), x (T, U or 1, K), ids (T, U) -> (T, U, N). Source: ggml_mul_mat_id.
    """
    w, x = np.asarray(w, dtype=np.float64), np.asarray(x, dtype=np.float64)
    y = np.zeros((*np.shape(ids), w.shape[1]))
    for t, u in np.ndindex(*np.shape(ids)):
        with np.errstate(invalid="ignore"):
            y[t, u] = w[ids[t, u]] @ x[t, u if x.shape[1] > 1 else 0]
    return y


def out_prod(a, b):
    """y[..., n, m] = sum over k of a[..., k, m] * b[..., k, n]; a repeats as w in mul_mat.

    Shapes: a (..., K, M), b (..., K, N) -> (..., N, M). Source: ggml_out_prod.
    """
    return mul_mat(np.swapaxes(np.asarray(a), -1, -2), np.swapaxes(np.asarray(b), -1, -2))


def mul_mat_abs(w, x):
    """Sum over k of |w * x|: what the error bound of a dot product is relative to.

    Shapes: as mul_mat. Source: Higham 2002, 3.1: |fl(a.b) - a.b| <= gamma_n * sum |a_i b_i|.
    """
    return mul_mat(np.abs(np.asarray(w, np.float64)), np.abs(np.asarray(x, np.float64)))
