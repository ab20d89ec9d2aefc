"""Rows of a table, read and written by index."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from pyggml.graph import Node, call_op
from pyggml.tensor import Tensor

if TYPE_CHECKING:
    from pyggml.dtypes import DTypeLike

__all__ = ["add_id", "get_rows", "set_rows"]


def _ids(value: Any) -> Any:
    """Lists and arrays of any integer dtype as int64 (int32 is left alone)."""
    if isinstance(value, (Node, Tensor)):
        return value
    try:
        array = np.asarray(value)
    except ValueError:  # said with the operand's name where it becomes a node
        return value
    if array.size == 0 or (array.dtype.kind in "iu" and np.can_cast(array.dtype, np.int64, "safe")):
        return array if array.dtype == np.int32 else array.astype(np.int64)
    return array


def get_rows(x: Any, ids: Any, *, dtype: DTypeLike | None = None) -> Node:
    """The rows of a table that ids name.

    Shapes: x (R, E), ids (..., n) of 1 to 3 axes -> (..., n, E); or x (..., R, E) with the batch
        axes of ids (..., n).
    Dtypes: x any, ids i32 or i64; result f32 unless `dtype` says otherwise. Tables of integers
        keep their dtype.

    Args:
        x: the table.
        ids: row numbers in [0, R); lists and numpy arrays become constants. No index counts from
            the end. What it holds is known only when the Program runs: an index out of range
            raises RowIndexError there.
        dtype: of the result; the table's own copies bytes.

    Raises:
        ShapeError: batch axes of x and ids that differ, or axes that are too few or too many.
        DTypeError: ids that are no integers, a dtype that the rows cannot have.
    Source: csrc/ops/gather.c; ggml_get_rows.
    """
    return call_op("get_rows", x, _ids(ids), dtype=dtype)


def add_id(a: Any, b: Any, ids: Any, *, dtype: DTypeLike | None = None) -> Node:
    """The sum of each row of a and the row of b that ids names: a bias chosen by an index.

    Shapes: a (..., E) of 2 to 4 axes, b (R, E), ids (...) -> (..., E).
    Dtypes: a and b any float, ids i32 or i64. Equal scalar dtypes keep theirs, else f32; `dtype`
        overrides. Computed in f32, rounded once.

    Args:
        a: the rows.
        b: the table of summands, one a row.
        ids: row numbers in [0, R), one for each row of a. An index out of range raises
            RowIndexError when the Program runs.
        dtype: of the result.

    Raises:
        ShapeError: rows of a and b of different lengths, ids of another shape than a's rows.
        DTypeError: an integer a or b, ids that are no integers.
    Source: csrc/ops/gather.c; ggml_add_id.
    """
    return call_op("add_id", a, b, _ids(ids), dtype=dtype)


def set_rows(dst: Any, x: Any, ids: Any) -> Node:
    """Writes row r of x into row ids[r] of dst and returns a view of dst; later readers see it.

    All indices are checked before the first write. Of equal indices the last wins.

    Shapes: dst (..., R, E), x (..., n, E), ids (n,) shared by the batches or (..., n) -> dst's.
    Dtypes: dst and x any float, ids i32 or i64; values are rounded once to dst's dtype.

    Args:
        dst: a writable Tensor, or a node.
        x: the new rows; not from the memory that dst covers (`cont` them first), as ids.
        ids: as in `get_rows`.

    Raises:
        ShapeError: rows of different lengths, ids that do not number the rows of x.
        DTypeError: an integer dst or x, ids that are no integers, a dst that is decoded only.
        ReadOnlyError: dst is read-only memory.
        GraphError: x or ids lie in the memory of dst.
    Source: csrc/ops/gather.c; ggml_set_rows.
    """
    return call_op("set_rows", dst, x, _ids(ids))
