"""Views: slices as numpy's, reshape, permute, transpose; writes through them."""

import mmap

import numpy as np
import pytest
from ops.check import decode, encode, guarded, rand, run

import pyggml as pg

DTYPES = ("f32", "f8_e4m3", "bf16", "i64")


def values(*shape):
    return np.arange(int(np.prod(shape)), dtype=np.int64).reshape(shape) % 120


def node_of(array, dtype="f32"):
    g = pg.Graph()
    tensor = encode(array if dtype[0] == "i" else array.astype(np.float64), dtype)
    return g.const(guarded(tensor))


INDICES = [
    ((7,), np.s_[2]),
    ((7,), np.s_[-1]),
    ((7,), np.s_[::3]),
    ((7,), np.s_[5:2]),
    ((7,), np.s_[-3:100]),
    ((7,), np.s_[-100:2]),
    ((7,), np.s_[None]),
    ((4, 6), np.s_[1]),
    ((4, 6), np.s_[:, 2]),
    ((4, 6), np.s_[-1, -1]),
    ((4, 6), np.s_[1:3, ::2]),
    ((4, 6), np.s_[..., 1:]),
    ((4, 6), np.s_[..., 0]),
    ((4, 6), np.s_[0, ...]),
    ((4, 6), np.s_[:, None, 1::2]),
    ((4, 6), np.s_[None, ::3, None, 2:5]),
    ((4, 6), np.s_[1, None]),
    ((4, 6), np.s_[4:, :]),
    ((4, 6), np.s_[2:2, 6:]),
    ((3, 4, 5), np.s_[1, :, 2]),
    ((3, 4, 5), np.s_[::2, 1:4:2, -2:]),
    ((3, 4, 5), np.s_[..., None]),
    ((2, 3, 4, 5), np.s_[1, 2, 3, 4]),
    ((2, 3, 4, 5), np.s_[:, 1, ..., ::4]),
    ((2, 3, 4, 5), np.s_[1:, :, 3, None]),
    ((2, 3, 4, 5), np.s_[()]),
    ((2, 3, 4, 5), np.s_[np.int64(1), np.int32(2)]),
    ((0, 4), np.s_[:, 1]),
    ((), np.s_[()]),
    ((), np.s_[...]),
    ((), np.s_[None, None]),
]


@pytest.mark.parametrize(("shape", "index"), INDICES)
@pytest.mark.parametrize("dtype", DTYPES)
def test_index_is_numpys(shape, index, dtype):
    array = values(*shape)
    node = node_of(array, dtype)
    expected = array[index]
    part = node[index]
    assert part.shape == expected.shape
    assert part.dtype is node.dtype
    stored = decode(node_value(node))[index]
    np.testing.assert_array_equal(decode(run(part)), stored)
    np.testing.assert_array_equal(decode(run(pg.ops.cont(part))), stored)


def node_value(node):
    return run(pg.ops.cont(node))


def test_views_of_views():
    array = values(6, 8, 10)
    node = node_of(array)[1:6:2].T[3:9, ::2]
    expected = array[1:6:2].T[3:9, ::2]
    for _ in range(3):
        node, expected = node[1:], expected[1:]
        np.testing.assert_array_equal(decode(run(node)), expected)


@pytest.mark.parametrize(
    ("index", "message"),
    [
        (4, "index 4 is outside axis 0"),
        (-5, "index -5 is outside axis 0"),
        (np.s_[0, 6], "index 6 is outside axis 1"),
        (np.s_[::-1], "negative steps"),
        (np.s_[::0], "negative steps and 0"),
        (np.s_[0, 0, 0], "index: 3 items"),
        (np.s_[..., ...], "at most one"),
        (2**70, "outside"),
    ],
)
def test_indices_refused(index, message):
    with pytest.raises(pg.ShapeError, match=message):
        node_of(values(4, 6))[index]


@pytest.mark.parametrize("index", [True, 1.0, "a", np.s_[1.0:], (0, [1]), ([0], [1])])
def test_other_kinds_of_index(index):
    with pytest.raises(pg.ParameterError):
        node_of(values(4, 6))[index]
    with pytest.raises(pg.ParameterError):
        pg.ops.view(node_of(values(4, 6)), index)


@pytest.mark.parametrize("index", [[0, 1], np.array([0, 1]), np.array([True])])
def test_a_view_has_no_array_of_indices(index):
    with pytest.raises(pg.ParameterError, match="see get_rows"):
        pg.ops.view(node_of(values(4, 6)), index)


def test_more_than_four_axes():
    with pytest.raises(pg.ShapeError, match="at most 4"):
        node_of(values(2, 3, 4, 5))[None]


def test_views_need_a_node():
    for call in (
        lambda: pg.ops.view(np.zeros(3, np.float32), 0),
        lambda: pg.ops.reshape(pg.zeros((3,)), (3, 1)),
        lambda: pg.ops.permute(pg.zeros((3,)), (0,)),
    ):
        with pytest.raises(pg.GraphError, match="must be a node"):
            call()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"ndim": 1}, "the slice has 1 axes"),
        ({"step": [1, 0]}, "axis 1: the step must be at least 1, not 0"),
        ({"step": [-1, 1]}, "axis 0: the step must be at least 1, not -1"),
        ({"start": [-1, 0]}, "axis 0: start -1, size 4 is outside"),
        ({"start": [0, 7], "size": [4, 0]}, "axis 1: start 7, size 0 is outside"),
        ({"size": [4, -1]}, "axis 1: start 0, size -1 is outside"),
        ({"size": [5, 6]}, "axis 0: start 0, step 1, size 5 runs past the end"),
        ({"start": [0, 1]}, "axis 1: start 1, step 1, size 6 runs past the end"),
        ({"start": [4, 0], "size": [1, 6]}, "axis 0: start 4, step 1, size 1 runs past"),
        ({"step": [2, 1], "size": [3, 6]}, "axis 0: start 0, step 2, size 3 runs past"),
        ({"step": [2**62, 1], "size": [3, 6]}, "axis 0: .* runs past the end"),
        ({"keep": [0, 1]}, "axis 0: only an axis of size 1 can be dropped"),
    ],
)
def test_the_runtime_checks_slices_itself(change, message):
    params = {"ndim": 2, "start": [0, 0], "step": [1, 1], "size": [4, 6], "keep": [1, 1]}
    with pytest.raises(pg.ShapeError, match=f"view: {message}"):
        pg.graph.call_op("view", node_of(values(4, 6)), **{**params, **change})


# ---- reshape ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("shape", "to"),
    [
        ((6,), (2, 3)),
        ((2, 3), 6),
        ((2, 3), -1),
        ((2, 3), (3, -1)),
        ((2, 3, 4), (-1, 4)),
        ((4, 6), (2, 2, 3, 2)),
        ((1, 1, 5), (5,)),
        ((1,), ()),
        ((), (1, 1)),
        ((0, 3), (3, 0)),
        ((0, 3), (-1, 3)),
        ((2, 3), [np.int64(3), 2]),
    ],
)
def test_reshape(shape, to):
    array = values(*shape)
    got = pg.ops.reshape(node_of(array), to)
    assert got.op == "reshape"
    np.testing.assert_array_equal(decode(run(got)), array.reshape(to))


@pytest.mark.parametrize("cut", [np.s_[::2], np.s_[:, 1:4], np.s_[:, 2], np.s_[..., ::3]])
def test_reshape_copies_where_it_must(cut):
    array = values(4, 6, 9)
    got = node_of(array)[cut].reshape(-1)
    np.testing.assert_array_equal(decode(run(got)), array[cut].reshape(-1))
    turned = node_of(array).T.reshape(6, -1)
    np.testing.assert_array_equal(decode(run(turned)), array.T.reshape(6, -1))


def test_axes_of_length_one_come_and_go_without_a_copy():
    array = values(4, 6)
    strided = node_of(array)[1:, ::2]
    wide = strided.reshape(3, 1, 3, 1)
    assert [n.op for n in strided.graph.nodes()].count("cont") == 0
    np.testing.assert_array_equal(decode(run(wide)), array[1:, ::2].reshape(3, 1, 3, 1))
    narrow = wide.reshape(3, 3)
    assert [n.op for n in strided.graph.nodes()].count("cont") == 0
    np.testing.assert_array_equal(decode(run(narrow)), array[1:, ::2])
    turned = pg.ops.permute(node_of(values(1, 4, 8)), (1, 0, 2)).reshape(32)
    assert [n.op for n in turned.graph.nodes()].count("cont") == 0
    np.testing.assert_array_equal(decode(run(turned)), values(1, 4, 8).reshape(32))


@pytest.mark.parametrize(
    ("shape", "to", "message"),
    [
        ((2, 3), (4,), "6 elements do not fill a shape of 4"),
        ((2, 3), (-1, 4), "cannot hold the 6"),
        ((2, 3), (-1, -1), "more than one -1"),
        ((0, 3), (-1, 0), "cannot hold"),
        ((2, 3), (-2, -3), "negative axis"),
        ((2, 3), (6, 1, 1, 1, 1), "at most 4"),
    ],
)
def test_reshape_refused(shape, to, message):
    with pytest.raises(pg.ShapeError, match=message):
        node_of(values(*shape)).reshape(to)


def test_reshape_of_what_is_no_integer():
    with pytest.raises(pg.ParameterError, match="not an integer"):
        node_of(values(6)).reshape(2.0, 3)


# ---- permute, transpose ----------------------------------------------------------------------


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(
    "axes", [(0, 1, 2), (2, 1, 0), (1, 2, 0), (0, 2, 1), (-1, 0, 1), (np.int64(1), 0, -1)]
)
def test_permute(axes, dtype):
    array = values(3, 4, 5)
    got = pg.ops.permute(node_of(array, dtype), axes)
    expected = decode(node_value(node_of(array, dtype))).transpose(axes)
    assert got.shape == expected.shape
    np.testing.assert_array_equal(decode(run(got)), expected)


def test_permute_of_four_and_of_no_axes():
    array = values(2, 3, 4, 5)
    got = pg.ops.permute(node_of(array), (2, 0, 3, 1))
    np.testing.assert_array_equal(decode(run(got)), array.transpose(2, 0, 3, 1))
    assert pg.ops.permute(node_of(values()), ()).shape == ()


@pytest.mark.parametrize("axes", [(0, 1), (0, 1, 1), (0, 1, 3), (0, 1, -4), (0, 1, 2, 3), ()])
def test_permute_refused(axes):
    with pytest.raises(pg.ShapeError, match="permute"):
        pg.ops.permute(node_of(values(3, 4, 5)), axes)


def test_transpose():
    for shape in ((3, 4), (2, 3, 4), (2, 1, 3, 4)):
        array = values(*shape)
        got = pg.ops.transpose(node_of(array))
        np.testing.assert_array_equal(decode(run(got)), np.swapaxes(array, -1, -2))
    for shape in ((), (3,)):
        with pytest.raises(pg.ShapeError, match="two axes"):
            pg.ops.transpose(node_of(values(*shape)))


# ---- block formats ---------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", ["q8_0", "q4_0", "q4_1"])
def test_blocks_are_cut_between_blocks(dtype):
    array = rand(4, 6, 96)
    stored = decode(encode(array, dtype))
    node = node_of(array, dtype)
    for index in np.s_[1], np.s_[::2, 1:], np.s_[..., 32:64], np.s_[1, :, 64:], np.s_[..., 32:32]:
        np.testing.assert_array_equal(decode(run(node[index])), stored[index])
    turned = pg.ops.permute(node, (1, 0, 2))
    np.testing.assert_array_equal(decode(run(turned)), stored.transpose(1, 0, 2))
    np.testing.assert_array_equal(decode(run(node.reshape(24, 96))), stored.reshape(24, 96))
    np.testing.assert_array_equal(decode(run(node.reshape(-1))), stored.reshape(-1))
    for index in np.s_[..., 0], np.s_[..., :16], np.s_[..., 16:48], np.s_[..., ::2]:
        with pytest.raises(pg.ShapeError, match=f"{dtype} is cut only between blocks"):
            node[index]
    with pytest.raises(pg.ShapeError, match="stays"):
        pg.ops.permute(node, (0, 2, 1))
    with pytest.raises(pg.ShapeError, match="stays"):
        pg.ops.transpose(node)
    with pytest.raises(pg.ShapeError, match="multiple of its block"):
        node.reshape(-1, 48)


# ---- memory ----------------------------------------------------------------------------------


def test_a_view_writes_into_its_base():
    base = pg.tensor(np.zeros((5, 6), np.float32))
    g = pg.Graph()
    node = g.const(base)
    where = np.s_[1::2, 1:5:3]
    write = pg.ops.cpy(np.full((2, 2), 7.0, np.float32), node[where])
    g.compile(write)()
    expected = np.zeros((5, 6), np.float32)
    expected[where] = 7
    np.testing.assert_array_equal(base.numpy(), expected)


def test_offsets_past_2_to_the_32_bytes():
    try:  # 4 GiB of address space, of which a few pages are touched
        flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | getattr(mmap, "MAP_NORESERVE", 0)
        memory = mmap.mmap(-1, 1 << 32, flags=flags)
    except (OSError, AttributeError) as e:
        pytest.skip(f"no sparse memory here: {e}")
    table = pg.Tensor.from_raw(memory, (65536, 65536), "f8_e4m3")
    row = rand(1, 65536)
    g = pg.Graph()
    node = g.const(table)
    wrote = pg.ops.set_rows(node, encode(row, "f32"), [65535])
    last = wrote[65535, 65533:]
    rows = pg.ops.get_rows(wrote, [65535, 0])[:, 65533:]
    flat = wrote.reshape(-1)[(1 << 32) - 3 :]
    turned = wrote.T[65533:, 65535]
    results = g.compile([last, rows, flat, turned])()
    expected = decode(encode(row, "f8_e4m3"))[0, 65533:]
    np.testing.assert_array_equal(decode(results[1])[1], 0)
    for got in (results[0], results[1][0], results[2], results[3]):
        np.testing.assert_array_equal(decode(got), expected)
    # a fake base of 2^40 elements: shapes only, nothing is run
    huge = g.input("huge", (1 << 20, 1 << 20), "f8_e4m3")
    assert huge[-1, 1 << 19 :].shape == (1 << 19,)
    assert huge.reshape(-1)[:: 1 << 31].shape == (1 << 9,)
    assert huge.T[5].shape == (1 << 20,)
    assert pg.ops.get_rows(huge, [1]).shape == (1, 1 << 20)
