"""Seeded random calls into the public API and the private _core; run by test_hostile.py.

    python hostile_calls.py SEED COUNT

Prints the number of each call before making it. Ends with 1 when anything but an expected exception
comes out; a crash of the process is the caller's to see.
"""

from __future__ import annotations

import os
import sys
import traceback
import warnings
from contextlib import contextmanager
from math import prod

import ml_dtypes
import numpy as np

import pyggml as pg
from pyggml import _core
from pyggml.graph import call_op

EXPECTED = (pg.PyggmlError, TypeError, ValueError, MemoryError, OverflowError, BufferError)
SHAPES = [(), (1,), (32,), (4, 32), (32, 4), (2, 4, 32), (1, 2, 4, 32), (0, 32), (3, 1), (4, 0)]
SHAPES += [(2, 256)]
DTYPES = [d.name for d in pg.dtypes.DTYPES]
WIDE = {d: pg.dtype(d).block for d in DTYPES if pg.dtype(d).is_block}
OPERANDS = {row["name"]: len(row["operands"]) for row in _core.op_table()}
# Small or far too large: nothing in between is ever really allocated.
INTS = [0, 1, -1, 2, 3, 4, 31, 32, 33, 255, 256, 2**31 - 1, 2**31, -(2**31), 2**32 + 1]
INTS += [2**62, 2**63 - 1, 2**63, -(2**63), 2**64, 10**30]
LENGTHS = [0, 1, 2, 3, 4, 8, 32, 64, -1, 2**40, 2**62, 2**63 - 1, 2**64]
FLOATS = [0.5, 1.0, -0.0, 1e-9, float("nan"), float("inf"), -float("inf"), 1e300, -2.5]
NAMES = ["", "x", "a\0b", "\u00e9\U0001f600" * 20, "\ud800", "x" * 5000, "%s%n", "out", "self"]
ARRAYS = [
    np.arange(6, dtype=np.float32).reshape(2, 3),
    np.ones((4, 32), np.float32),
    np.ones((4, 32), ">f4"),
    np.ones((8, 64), np.float32)[::2, ::-2],
    np.zeros((0, 3), np.float16),
    np.array(3.0),
    np.arange(4, dtype=np.int64),
    np.array([0, 1, 2**31 - 1], np.int32),
    np.ones(3, bool),
    np.ones(3, complex),
    np.array(["a", "bc"]),
    np.array([None, {}], object),
    np.zeros(3, [("a", "f4"), ("b", "i8")]),
    np.ones(32, ml_dtypes.bfloat16),
    np.ones((2, 32), ml_dtypes.float8_e4m3fn),
    np.ones(4, ml_dtypes.float8_e4m3fnuz),
    np.frombuffer(bytes(129), np.uint8, offset=1),
    np.broadcast_to(np.float32(1), (4, 32)),
    np.ma.masked_array([1.0, 2.0], [True, False]),
    np.array("2020-01-01", "datetime64[D]"),
    np.zeros((1,) * 9, np.float32),
]


def nested(depth):
    """A list in a list in a list ..."""
    value = [1.0]
    for _ in range(depth):
        value = [value]
    return value


@contextmanager
def own_errors():
    """The private interface passes on what a dict or a Liar raises when it is indexed."""
    try:
        yield
    except LookupError as e:
        raise ValueError from e


class Liar:
    """A sequence whose length and contents change."""

    def __init__(self):
        self.calls = 0

    def __len__(self):
        self.calls += 1
        return self.calls % 5

    def __getitem__(self, i):
        self.calls += 1
        if self.calls % 7 == 0:
            raise IndexError
        return self.calls % 3


class Hostile:
    """One random walk."""

    def __init__(self, seed):
        self.rng = np.random.default_rng(seed)
        self.fresh()

    def fresh(self):
        """Another graph with something in it."""
        self.g = pg.Graph()
        self.programs = []
        self.nodes = [
            self.g.input(f"in{i}", shape, dtype)
            for i, (shape, dtype) in enumerate((s, d) for s in SHAPES for d in DTYPES)
            if not (dtype in WIDE and (not shape or shape[-1] % WIDE[dtype]))
        ]
        self.nodes += [self.g.const(pg.zeros((4, WIDE.get(d, 32)), d)) for d in DTYPES]
        self.last = self.nodes[0]
        self.nodes.append(self.g.const(pg.Tensor.from_raw(bytes(512), (4, 32), "f32", "ro")))

    # ---- values ----

    def pick(self, values):
        return values[int(self.rng.integers(len(values)))]

    def chance(self, p):
        return self.rng.random() < p

    def node(self):
        # Late nodes, so that graphs grow deep; fellows of the last one, so that many fit.
        pool = self.nodes[-12:] if self.chance(0.3) else self.nodes
        if self.chance(0.6):
            pool = [n for n in pool if n.shape == self.last.shape] or pool
        if self.chance(0.6):
            pool = [n for n in pool if n.dtype.name in ("f32", "f8_e4m3")] or pool
        self.last = self.pick(pool)
        return self.last

    def shape(self):
        if self.chance(0.6):
            return self.pick(SHAPES)
        return tuple(self.pick(LENGTHS) for _ in range(int(self.rng.integers(6))))

    def junk(self):
        makers = [
            lambda: None,
            lambda: self.pick([True, False, ..., slice(None), slice(2**70), object, object()]),
            lambda: self.pick(INTS),
            lambda: self.pick(FLOATS),
            lambda: self.pick(NAMES),
            lambda: self.pick(DTYPES),
            lambda: self.pick(ARRAYS),
            lambda: self.pick([b"", b"\0" * 512, bytearray(512), memoryview(bytes(8))[::2]]),
            lambda: self.pick([(), [], {}, set(), range(10**6), iter([1]), Liar()]),
            lambda: self.pick([nested(3), nested(100), [[1], [2, 3]], {"a": 1}, [2.5, "x"]]),
            lambda: self.pick([np.float64(2), np.int8(-3), np.bool_(True), np.float16("nan")]),
            lambda: self.shape(),
            lambda: self.node(),
            lambda: pg.Graph().input("y", (4, 32)),
            lambda: self.pick([pg.zeros((4, 32)), pg.zeros((32,), "q8_0")]),
            lambda: self.pick([self.g, pg.Arena(), self.g._core, pg.f32, np.dtype("f8")]),
            lambda: lambda *_: 0,
        ]
        return self.pick(makers)()

    def mostly(self, good):
        return self.junk() if self.chance(0.07) else good()

    # ---- calls ----

    def build(self):
        """An op function with random operands."""
        fn = getattr(pg.ops, self.pick(pg.ops.__all__))
        few = OPERANDS.get(fn.__name__, 2) if self.chance(0.95) else int(self.rng.integers(6))
        args = [self.mostly(self.node) for _ in range(few)] or [None]
        names = ["dtype", "eps", "scale", "s", "bias", "n_dims", "mode", "freq_base", "shape"]
        extra = {self.pick(names): self.junk()} if self.chance(0.1) else {}
        if fn is pg.ops.flash_attn_ext:
            extra.setdefault("scale", 0.5)
        if fn is pg.ops.scale:
            args = [args[0], self.mostly(lambda: self.pick(FLOATS))]
        if fn is pg.ops.reshape:
            args = [args[0], self.mostly(self.shape)]
        if fn is pg.ops.view:
            args = [args[0], self.mostly(self.index)]
        if fn is pg.ops.permute:
            args = [args[0], self.mostly(lambda: self.rng.permutation(self.pick([1, 2, 3, 4])))]
        if fn in (pg.ops.get_rows, pg.ops.set_rows, pg.ops.rope) and self.chance(0.8):
            ids = self.rng.integers(-1 if self.chance(0.1) else 0, 4, 4)
            at = 2 if fn is pg.ops.set_rows else 1
            args[at : at + 1] = [ids]
        if fn is pg.ops.cast:
            args = [args[0], self.mostly(lambda: self.pick(DTYPES))]
        self.keep(fn(*args, **extra))

    def index(self):
        parts = [0, -1, 1, slice(None), slice(0, 32), slice(None, None, 2), ..., None]
        return tuple(self.pick(parts) for _ in range(int(self.rng.integers(4))))

    def keep(self, made):
        if isinstance(made, pg.Node) and made.graph is self.g:
            size = prod(made.shape)
            if size < 1 << 20 or size > 1 << 42:  # cheap, or refused by any machine
                self.nodes.append(made)

    def build_named(self):
        row = self.pick(_core.op_table())
        params = {p["name"]: self.mostly(lambda p=p: self.value_of(p)) for p in row["params"]}
        if "dtype" in params and self.chance(0.9):
            params["dtype"] = self.pick([None, *DTYPES])
        if self.chance(0.1):
            params[self.pick(["nonsense", "unused", "ndim"])] = self.junk()
        name = row["name"] if self.chance(0.95) else self.pick(NAMES)
        operands = [self.mostly(self.node) for _ in row["operands"]]
        if self.chance(0.1):
            operands += [self.junk()] * int(self.rng.integers(1, 9))
        self.keep(call_op(name, *operands, **params))

    def value_of(self, p):
        if p["kind"] == "f32":
            return self.pick(FLOATS)
        if p["kind"] == "enum":
            return self.pick(p["choices"])
        if p["kind"] == "axes":
            return self.rng.permutation(self.last.ndim).tolist()
        if p["kind"] == "per_axis" and self.chance(0.7):
            shape = self.last.shape
            return list(shape) if p["name"] == "size" else [int(p["default"])] * len(shape)
        if p["kind"] == "per_axis":
            return [self.pick([0, 1, 2, 3, 4, 32, *INTS]) for _ in range(self.rng.integers(6))]
        if p["name"] == "ndim":
            return self.last.ndim if self.chance(0.9) else self.pick(INTS)
        return int(self.rng.integers(-1, 9)) if self.chance(0.8) else self.pick(INTS)

    def core_op(self):
        number = int(self.rng.integers(len(_core.op_table())))
        row = _core.op_table()[number]
        ids = [self.node().id for _ in row["operands"]]
        params = {p["name"]: self.mostly(lambda p=p: self.value_of(p)) for p in row["params"]}
        if self.chance(0.1):
            ids = [int(self.rng.integers(-2, len(self.g) + 2)) for _ in range(self.rng.integers(8))]
        if self.chance(0.05):
            number = int(self.rng.integers(-2, len(_core.op_table()) + 2))
        with own_errors():
            made = self.g._core.op(number, self.mostly(lambda: ids), self.mostly(lambda: params))
        self.keep(self.g.nodes()[made])

    def core_graph(self):
        core = self.g._core
        small = int(self.rng.integers(-2, 12))
        call = self.pick(
            [
                lambda: core.const(self.junk(), small, self.shape(), "c", self.chance(0.5)),
                lambda: core.const(bytearray(512), small, (4, 32), self.pick(NAMES), True),
                lambda: core.const(self.junk(), self.junk(), self.junk(), self.junk(), True),
                lambda: core.input(self.junk(), self.junk(), self.junk()),
                lambda: core.input(self.pick(NAMES), small, self.shape()),
                lambda: core.set_name(self.junk(), self.junk()),
                lambda: core.set_name(small, self.pick(NAMES)),
                lambda: core.node(self.junk()),
                lambda: _core.Graph(self.junk()),
                lambda: _core.Program(core, self.junk(), 1, None),
                lambda: _core.Program(core, [small, small], small, None, small),
                lambda: _core.Program(core, self.junk(), self.junk(), self.junk(), self.junk()),
                lambda: _core.kernel_address(self.junk(), self.junk()),
                lambda: _core.kernel_address("generic", self.pick(NAMES)),
                lambda: _core.to_f32(small, self.junk(), self.junk()),
                lambda: _core.to_f32(small, bytes(128), bytearray(128 * (1 + small % 4))),
                lambda: _core.from_f32(small, self.junk(), self.junk()),
                lambda: _core.from_f32(small, memoryview(bytes(513))[1:], bytearray(128)),
            ]
        )
        with own_errors():
            call()

    def tensors(self):
        self.pick(
            [
                lambda: pg.tensor(self.junk(), self.junk(), dtype=self.junk()),
                lambda: pg.tensor(self.pick(ARRAYS), dtype=self.pick(DTYPES)).dequantize(),
                lambda: pg.zeros(self.mostly(self.shape), self.mostly(lambda: self.pick(DTYPES))),
                lambda: pg.Tensor.from_raw(self.junk(), self.junk(), self.junk()),
                lambda: pg.Tensor.from_raw(self.junk(), self.shape(), self.pick(DTYPES)).numpy(),
                lambda: pg.dtype(self.junk()),
                lambda: repr(pg.tensor(self.junk(), self.junk())),
                lambda: np.asarray(pg.zeros((4, 32), self.pick(DTYPES)), self.junk()),
                lambda: pg.f32.row_bytes(self.junk()),
            ]
        )()

    def faces(self):
        """Everything a Graph and a Node offer."""
        x, other = self.node(), self.junk()
        made = self.pick(
            [
                lambda: x[other],
                lambda: x[tuple(self.junk() for _ in range(int(self.rng.integers(6))))],
                lambda: x[self.index()],
                lambda: x + other,
                lambda: other - x,
                lambda: x * other,
                lambda: other / x,
                lambda: x @ other,
                lambda: other @ x,
                lambda: -x,
                lambda: x.T,
                lambda: x.reshape(other),
                lambda: x.astype(other),
                lambda: setattr(x, "name", other),
                lambda: repr(x) + str(x.src) + x.op,
                lambda: list(x)[:2] if x.shape and x.shape[0] < 9 else None,
                lambda: bool(x),
                lambda: self.g.input(self.junk(), self.mostly(self.shape)),
                lambda: self.g.input(f"n{len(self.g)}", self.shape(), other),
                lambda: self.g.const(other, self.junk()),
            ]
        )()  # fmt: skip
        self.keep(made)

    def compile(self):
        chosen = [self.node() for _ in range(int(self.rng.integers(1, 4)))]
        threads = self.mostly(lambda: self.pick([None, 1, 2, 3]))
        arena = self.mostly(lambda: self.pick([None, None, pg.Arena()]))
        outputs = self.mostly(lambda: self.pick([chosen, chosen[0]]))
        planned = self.chance(0.8)
        self.programs.append(self.g.compile(outputs, threads, arena=arena, planned=planned))

    def feed(self, shape, kind):
        last = shape[-1] if shape else 1
        size = int(np.prod(shape[:-1])) * kind.row_bytes(last)
        raw = self.rng.integers(0, 256, size, np.uint8)
        if kind.is_integer:
            count = size // kind.itemsize
            ids = self.rng.integers(0, 4, count) if self.chance(0.8) else raw[:count]
            raw = ids.astype(kind.numpy).view(np.uint8)
        return pg.Tensor.from_raw(raw, shape, kind)

    def run(self):
        if not self.programs:
            return
        program = self.pick(self.programs)
        feeds = {n: self.mostly(lambda s=s, k=k: self.feed(s, k)) if self.chance(0.1)
                 else self.feed(s, k) for n, (s, k) in program.inputs.items()}  # fmt: skip
        if self.chance(0.05):
            feeds[self.pick(["in0", "self", "x", "nobody"])] = self.junk()
        if self.chance(0.1):
            with own_errors():
                program._core.run(self.junk(), self.junk())
        program(out=self.junk() if self.chance(0.1) else None, **feeds)

    def step(self):
        actions = [self.build] * 6 + [self.build_named] * 5 + [self.core_op] * 4
        actions += [self.core_graph] * 3 + [self.tensors] * 2 + [self.faces] * 4
        actions += [self.compile] * 3 + [self.run] * 6
        if len(self.nodes) > 400:
            self.fresh()
        self.pick(actions)()


def main():
    seed, count = int(sys.argv[1]), int(sys.argv[2])
    warnings.simplefilter("ignore")
    walk = Hostile(seed)
    made = 0
    for i in range(count):
        os.write(1, b"%d\n" % i)
        try:
            walk.step()
            made += 1
        except pg.InternalError:
            traceback.print_exc()
            return 1
        except EXPECTED:
            pass
        except BaseException:
            traceback.print_exc()
            return 1
    os.write(1, b"done, %d succeeded\n" % made)
    return 0


if __name__ == "__main__":
    sys.exit(main())
