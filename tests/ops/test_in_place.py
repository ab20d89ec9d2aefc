"""In place only where no operand looks at the memory from another angle: results show it.

Each case is an op whose result could take over operand 0 but for another operand that is a view of
it. Written over, row 0 of the result would be what the later rows read.
"""

from __future__ import annotations

import numpy as np
import pytest
from ops.check import rand

import pyggml as pg
from oracles import softmax as oracle

IDS = np.array([3, 0, 2, 1, 0], np.int32)


def results(build, *shape: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(values, planned result, unplanned result) of build(z), z being free to be taken over."""
    values = np.float32(rand(*shape, seed=4))
    node = build(pg.ops.cont(pg.Graph().input("x", shape)))
    runs = [node.graph.compile(node, 1, planned=planned)(x=values) for planned in (True, False)]
    return values, runs[0], runs[1]


# (build, shape of z, mask of the oracle)
MASKS = {
    "itself": (lambda z: pg.ops.soft_max(z, z), (5, 9), lambda v: v),
    "first row": (lambda z: pg.ops.soft_max(z, z[0]), (5, 9), lambda v: v[0]),
    "first row, kept": (lambda z: pg.ops.soft_max(z, z[:1]), (5, 9), lambda v: v[:1]),
    "first column": (lambda z: pg.ops.soft_max(z, z[:, :1]), (5, 9), lambda v: v[:, :1]),
    "transposed": (lambda z: pg.ops.soft_max(z, z.T), (7, 7), lambda v: v.T),
    "first head": (lambda z: pg.ops.soft_max(z, z[0]), (3, 4, 9), lambda v: v[0]),
    "one value": (lambda z: pg.ops.soft_max(z, z[0, 0]), (5, 9), lambda v: v[0, 0]),
}


@pytest.mark.parametrize("name", MASKS)
def test_soft_max_whose_mask_is_part_of_x(name: str) -> None:
    build, shape, mask = MASKS[name]
    values, planned, plain = results(build, *shape)
    assert planned.tobytes() == plain.tobytes()
    np.testing.assert_allclose(planned, oracle.soft_max(values, mask(values)), rtol=2e-6)


def test_soft_max_whose_sinks_are_part_of_x() -> None:
    values, planned, plain = results(lambda z: pg.ops.soft_max(z, None, z[0, :3, 0]), 3, 4, 9)
    assert planned.tobytes() == plain.tobytes()
    np.testing.assert_allclose(planned, oracle.soft_max(values, None, values[0, :3, 0]), rtol=2e-6)


@pytest.mark.parametrize(
    ("build", "expected"),
    [
        (lambda z: z + z[0], lambda v: v + v[0]),
        (lambda z: z[:1] - z, lambda v: v[:1] - v),
        (lambda z: z * z.T, lambda v: v * v.T),
        (lambda z: z / z[:, :1], lambda v: v / v[:, :1]),
        (lambda z: z + z, lambda v: v + v),
        (lambda z: pg.ops.add1(z, z[0, 0]), lambda v: v + v[0, 0]),
        (lambda z: pg.ops.add_id(z, z, IDS), lambda v: v + v[IDS]),
        (lambda z: pg.ops.reglu(z, z.T), lambda v: np.maximum(v, 0) * v.T),
    ],
)
def test_arithmetic_with_part_of_itself(build, expected) -> None:
    values, planned, plain = results(build, 5, 5)
    assert planned.tobytes() == plain.tobytes()
    np.testing.assert_allclose(planned, expected(values), rtol=1e-6)


def test_rope_whose_factors_are_part_of_x() -> None:
    def build(z: pg.Node) -> pg.Node:
        return pg.ops.rope(z, np.arange(1, 6), z[0, 0, :4], n_dims=8)

    _, planned, plain = results(build, 5, 2, 8)
    assert planned.tobytes() == plain.tobytes()


def test_the_same_ops_do_run_in_place() -> None:
    """Else the tests above would see nothing."""
    g = pg.Graph()
    x = g.input("x", (64, 64))
    for build in (
        lambda z: pg.ops.soft_max(z, x),
        lambda z: z + x[0],
        lambda z: pg.ops.add_id(z, x, np.zeros(64, np.int32)),
    ):
        node = build(pg.ops.cont(x))
        planned, plain = (g.compile(node, 1, planned=p).arena_bytes for p in (True, False))
        assert plain - planned >= 64 * 64 * 4
