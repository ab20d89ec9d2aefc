"""Order of the elements of each row, by numpy's stable sort."""

import numpy as np


def argsort(x, order="asc"):
    """Indices that put each row in order; equal values keep theirs, NaN comes last.

    Shapes: (..., N) -> (..., N). Source: ggml_argsort; numpy.argsort puts NaN last.
    """
    x = np.asarray(x, np.float64)
    return np.argsort(x if order == "asc" else -x, axis=-1, kind="stable")


def top_k(x, k):
    """The first k of the descending order.

    Shapes: (..., N) -> (..., k). Source: ggml_top_k.
    """
    return argsort(x, "desc")[..., :k]
