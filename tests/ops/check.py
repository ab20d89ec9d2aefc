"""check_op: one op over dtypes, layouts and thread counts, against an oracle.

Each operand comes as values (float64, or integers); for a dtype it is encoded by the oracles, so
what pyggml decodes is judged by code that is not its own. Layouts:

    contiguous  an input
    strided     every second element of a larger input, whose other elements are NaN (10^4 in block
                formats, where a NaN is one of its whole block, and -1 in integers)
    permuted    an input with turned axes
    in_place    the result of another op, whose memory is free to be taken over
    const       a Tensor between guard bytes
    broadcast   one operand cut to a single row that serves all
    one_row     cut to one row
    empty       cut to no rows

Results must have the same bits for 1, 2 and 5 threads and in a guarded program, and leave the guard
bytes around them, and around Tensors, alone.
"""

from __future__ import annotations

import ml_dtypes
import numpy as np
from formats.stated import RMS

import pyggml as pg
from oracles import copy as oracle_copy
from oracles.nmse import nmse
from pyggml.dtypes import DTYPES

THREADS = (1, 2, 5)
LAYOUTS = (
    "contiguous",
    "strided",
    "permuted",
    "in_place",
    "const",
    "broadcast",
    "one_row",
    "empty",
)
SCALARS = tuple(d.name for d in DTYPES if d.is_float and not d.is_block)
# Those that most ops are tried with; test_block_dtypes.py has all.
BLOCKS = ("q8_0", "q4_0", "q4_1")
GUARD = 64


def _limit(kind):
    """Largest distance from the oracle of results in a dtype.

    F32: 1e-7. Other scalars: the square of the largest relative rounding error, 2^-p for p
    significant bits, and a few percent for F32. Blocks: three times the square of the error that
    pyggml.dtypes states for normal values.
    """
    if kind.name == "f32":
        return 1e-7
    if kind.is_block:
        return 3 * RMS[kind.name] ** 2
    return 1.05 * 4.0 ** -(ml_dtypes.finfo(kind.numpy).nmant + 1) + 5e-8


# Of the dtypes that hold results.
LIMIT = {d.name: _limit(d) for d in DTYPES if d.is_float and not d.is_fixed}


def rand(*shape, seed=0, scale=1.0):
    """Normal values; the same for the same arguments."""
    return np.random.default_rng([seed, *shape]).standard_normal(shape) * scale


def is_int(values):
    """True for operands that stay what they are: ids and positions."""
    return np.asarray(values).dtype.kind in "iu"


def is_block(dtype):
    """True for formats whose elements have no address of their own."""
    return pg.dtype(dtype).is_block


def encode(values, dtype):
    """Values -> Tensor of the dtype, by the oracles."""
    values = np.asarray(values)
    if is_int(values):
        return pg.tensor(np.array(values, order="C"))
    return pg.Tensor.from_raw(oracle_copy.encode(values, dtype).tobytes(), values.shape, dtype)


def decode(tensor):
    """Tensor or array -> float64 (or integers), by the oracles."""
    if isinstance(tensor, np.ndarray):
        if tensor.dtype.kind in "iu":
            return tensor
        return tensor.astype(np.float64)
    if tensor.dtype.is_integer:
        return tensor.numpy()
    if tensor.size == 0:
        return np.zeros(tensor.shape)
    raw = tensor.raw().reshape(*tensor.shape[:-1], -1)
    return oracle_copy.decode(raw, tensor.dtype.name).reshape(tensor.shape)


def rounded(values, dtype):
    """What is left of the values in the dtype."""
    return values if values is None or is_int(values) else decode(encode(values, dtype))


buffers = []  # of the guarded Tensors of a test, which conftest.py looks at


def is_whole(buffer):
    """Whether nothing was written before or past the Tensor in the buffer of `guarded`."""
    return (buffer[:GUARD] == 0xFF).all() and (buffer[-GUARD:] == 0xFF).all()


def guarded(tensor):
    """The tensor again, with bytes around it that are NaN in every float dtype."""
    buffer = np.full(tensor.nbytes + 2 * GUARD, 0xFF, np.uint8)
    buffers.append(buffer)
    buffer[GUARD : GUARD + tensor.nbytes] = tensor.raw()
    return pg.Tensor.from_raw(
        buffer[GUARD : GUARD + tensor.nbytes], tensor.shape, tensor.dtype, tensor.name
    )


def _kind(values, dtype):
    return np.asarray(values).dtype.name.replace("int", "i") if is_int(values) else dtype


def _strided(g, name, values, dtype):
    """Every second element along each axis that the dtype lets be cut."""
    last_free = is_int(values) or not is_block(dtype)
    steps = [2 if a < values.ndim - 1 or last_free else 1 for a in range(values.ndim)]
    where = tuple(slice(1, None, 2) if s == 2 else slice(None) for s in steps)
    shape = [2 * n + 1 if s == 2 else n for n, s in zip(values.shape, steps, strict=True)]
    filler = -1 if is_int(values) else 1e4 if is_block(dtype) else np.nan
    big = np.full(shape, filler, values.dtype)
    big[where] = values
    return g.input(name, shape, _kind(values, dtype))[where], encode(big, dtype)


def _permuted(g, name, values, dtype):
    """Stored with its axes reversed (the last one stays for block formats), then turned back."""
    free = values.ndim if is_int(values) or not is_block(dtype) else max(values.ndim - 1, 0)
    order = [*reversed(range(free)), *range(free, values.ndim)]  # its own inverse
    turned = np.ascontiguousarray(values.transpose(order))
    node = g.input(name, turned.shape, _kind(values, dtype))
    return pg.ops.permute(node, order), encode(turned, dtype)


def place(g, name, values, dtype, layout):
    """(node, what to feed its input or None): the values as a node in that layout."""
    if values is None:
        return None, None
    values = np.asarray(values)
    if layout == "strided" and values.ndim:
        return _strided(g, name, values, dtype)
    if layout == "permuted" and values.ndim:
        return _permuted(g, name, values, dtype)
    if layout == "const":
        return g.const(guarded(encode(values, dtype))), None
    node = g.input(name, values.shape, _kind(values, dtype))
    if layout == "in_place" and not is_int(values):
        node = pg.ops.cont(node)
    return node, encode(values, dtype)


def run(node, feeds=None, threads=1, guarded=False):
    """The node's value as a Tensor, computed between guard bytes."""
    kind = node.dtype
    last = node.shape[-1] if node.ndim else 1
    raw_shape = (*node.shape[:-1], kind.row_bytes(last)) if node.ndim else (kind.itemsize,)
    size = int(np.prod(raw_shape))
    buffer = np.full(size + 2 * GUARD, 0xA5, np.uint8)
    out = buffer[GUARD : GUARD + size]
    view = out.reshape(raw_shape)
    if kind.numpy is not None:
        view = out.view(kind.numpy).reshape(node.shape)
    program = node.graph.compile(node, threads=threads, guarded=guarded)
    fed = {name: value for name, value in (feeds or {}).items() if name in program.inputs}
    program(out=view, **fed)
    assert (buffer[:GUARD] == 0xA5).all(), "wrote before the result"
    assert (buffer[GUARD + size :] == 0xA5).all(), "wrote past the result"
    return pg.Tensor.from_raw(out.copy(), node.shape, kind)


def run_threads(node, feeds=None):
    """As `run`, with 1, 2 and 5 threads, and guarded, which must agree bit for bit."""
    results = [run(node, feeds, threads) for threads in THREADS]
    for threads, result in zip(THREADS[1:], results[1:], strict=True):
        same = np.array_equal(result.raw(), results[0].raw())
        assert same, f"{threads} threads give other bits than 1"
    in_guards = run(node, feeds, 2, guarded=True)
    assert np.array_equal(in_guards.raw(), results[0].raw()), "guarded: other bits"
    return results[0]


def assert_close(result, expected, limit=None, what=""):
    """Shapes agree and the distance stays under the limit of the result's dtype."""
    got = decode(result)
    assert got.shape == expected.shape, f"{what}: shape {got.shape}, expected {expected.shape}"
    if got.size == 0:
        return
    finite = np.isfinite(expected)
    assert np.array_equal(got[~finite], expected[~finite], equal_nan=True), f"{what}: not finite"
    distance = nmse(got[finite], expected[finite])
    limit = LIMIT[result.dtype.name] if limit is None else limit
    assert distance <= limit, f"{what}: NMSE {distance:.3g} > {limit:.3g}"


def _cut(arrays, rows, n):
    """The operands with the given axes cut to n."""
    out = list(arrays)
    for k, axis in rows.items():
        if out[k] is not None:
            out[k] = np.take(out[k], range(n), axis=axis)
    return out


def default_rows(arrays):
    """Axis 0 of every operand that has as many rows as the first and more than one axis."""
    n = arrays[0].shape[0] if arrays[0].ndim else 0
    return {
        k: 0
        for k, a in enumerate(arrays)
        if a is not None and a.ndim > 1 and a.ndim == arrays[0].ndim and a.shape[0] == n
    }


def check_op(
    fn,
    arrays,
    oracle,
    *,
    params=None,
    oracle_params=None,
    dtypes=SCALARS,
    vary=None,
    layouts=LAYOUTS,
    rows=None,
    broadcast=None,
    result=None,
    limit=None,
):
    """Checks fn(*nodes, **params) against oracle(*values, **oracle_params).

    Args:
        fn: an op function of pyggml.ops.
        arrays: values of the operands; None for an optional one left out.
        oracle: takes the values as the dtype holds them.
        params: keyword arguments of fn, and of the oracle unless oracle_params is given.
        oracle_params: see params.
        dtypes: of the operands in `vary`.
        vary: operands that take the dtypes (default: all that are floats); the others stay f32.
        layouts: of LAYOUTS.
        rows: operand -> axis that one_row and empty cut.
        broadcast: operand -> axis that broadcast cuts to 1; default: nothing broadcasts.
        result: result dtype expected, by operand dtype; default: not looked at.
        limit: largest NMSE; default: LIMIT of the result's dtype.
    """
    params = params or {}
    oracle_params = params if oracle_params is None else oracle_params
    arrays = [None if a is None else np.asarray(a) for a in arrays]
    vary = range(len(arrays)) if vary is None else vary
    rows = default_rows(arrays) if rows is None else rows
    for dtype in dtypes:
        for layout in layouts:
            axes, n = {
                "one_row": (rows, 1),
                "empty": (rows, 0),
                "broadcast": (broadcast or {}, 1),
            }.get(layout, ({}, None))
            if n is not None and not axes:
                continue
            used = _cut(arrays, axes, n)
            g = pg.Graph()
            kinds = [dtype if k in vary else "f32" for k in range(len(used))]
            placed = [
                place(g, f"x{k}", a, kind, layout)
                for k, (a, kind) in enumerate(zip(used, kinds, strict=True))
            ]
            node = fn(*(n for n, _ in placed), **params)
            if result is not None:
                assert node.dtype.name == result[dtype], f"{dtype}: result is {node.dtype.name}"
            feeds = {f"x{k}": feed for k, (_, feed) in enumerate(placed) if feed is not None}
            values = [rounded(a, kind) for a, kind in zip(used, kinds, strict=True)]
            expected = np.asarray(oracle(*values, **oracle_params))
            assert_close(run_threads(node, feeds), expected, limit, f"{dtype}, {layout}")
