"""Graphs of random calls from Python: only PyggmlError comes out, and what is built runs the same
planned between guard bytes as unplanned, bit for bit.

python tests/fuzz/python_fuzz.py --seed 1 --count 10000
"""

from __future__ import annotations

import argparse
import inspect
import time
import warnings
from collections import Counter
from typing import Any

import numpy as np

import pyggml as pg
from pyggml import ops

DTYPES = [name for name in dir(pg) if isinstance(getattr(pg, name), pg.DType)]
SHAPES = (
    (),
    (5,),
    (32,),
    (4, 32),
    (4, 32),
    (4, 32),
    (4, 4, 32),
    (4, 2, 32),
    (1, 32),
    (4, 1),
    (0, 32),
    (3, 256),
)
FLOATS = (0.0, 1.0, -2.5, 1e-5, 0.5, 10000.0, 3e38, -0.0, float("inf"), float("nan"), 1e300)
INTS = (0, 1, 2, 3, 4, 8, 32, -1, -2, -3, 2**31, -(2**63), 2**64)
WORDS = ("asc", "desc", "normal", "neox", "", "x")
ODD = (None, True, "f32", b"x", [], [1, [2]], {}, object, 1j, ..., slice(None), np.zeros(2, "c8"))
MOST = 1 << 13  # elements of a node that others are made of


def calls() -> dict[str, Any]:
    """Every op and every public method of a node, by name."""
    found = {name: getattr(ops, name) for name in ops.__all__}
    for name, method in inspect.getmembers(pg.Node, inspect.isfunction):
        if not name.startswith("_"):
            found[f"Node.{name}"] = method
    return found


CALLS = calls()


class Build:
    """A graph of random calls; the same one for the same seed."""

    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng(seed)
        self.g = pg.Graph()
        self.made: Counter[str] = Counter()
        self.refused: Counter[str] = Counter()
        self.feeds: dict[str, np.ndarray] = {}
        self.caches: list[pg.Tensor] = []
        self.nodes: list[pg.Node] = []
        for i in range(4):
            self.add_leaf(f"x{i}")
        for _ in range(int(self.rng.integers(4, 24))):
            self.call(str(self.rng.choice(list(CALLS))))
        self.outputs = [self.pick() for _ in range(int(self.rng.integers(1, 4)))]

    def one(self, values: Any) -> Any:
        return values[int(self.rng.integers(len(values)))]

    def values(self, shape: tuple[int, ...]) -> np.ndarray:
        return self.rng.standard_normal(shape).astype(np.float32)

    def add_leaf(self, name: str) -> None:
        shape = self.one(SHAPES)
        if self.rng.random() < 0.5:
            self.feeds[name] = self.values(shape)
            self.nodes.append(self.g.input(name, shape))
            return
        kind = pg.dtype(self.one(DTYPES))
        if shape == () or shape[-1] % kind.block or (kind.is_block and self.rng.random() < 0.5):
            kind = pg.f32
        cache = pg.zeros(shape, kind)
        if kind.is_float and not kind.is_block:
            cache = pg.tensor(self.values(shape), dtype=kind)
        self.caches.append(cache)
        self.nodes.append(self.g.const(cache))

    def pick(self, like: pg.Node | None = None) -> pg.Node:
        if like is not None and self.rng.random() < 0.6:
            return self.one([n for n in self.nodes if n.shape == like.shape])
        return self.one(self.nodes)

    def operand(self, name: str, like: pg.Node | None) -> Any:
        if name in ("ids", "pos", "indices") and self.rng.random() < 0.9:
            sizes = [n for n in (like.shape if like is not None else ()) if n <= 8] + [
                int(self.rng.integers(5))
            ]
            shape = tuple(self.one(sizes) for _ in range(self.one((1, 1, 2))))
            return self.rng.integers(0, self.one((1, 2, 4)), shape, np.int32)
        kind = self.rng.random()
        if kind < 0.9:
            return self.pick(like)
        return self.values(self.one(SHAPES)) if kind < 0.95 else self.one(FLOATS)

    def integers(self, name: str, like: pg.Node | None) -> Any:
        if name == "axes" and like is not None and self.rng.random() < 0.7:
            return tuple(self.rng.permutation(like.ndim).tolist())
        if self.rng.random() < 0.4:
            shape = self.pick().shape
            return tuple(self.rng.permutation(shape).tolist())
        return tuple(self.one(INTS[:6]) for _ in range(int(self.rng.integers(0, 5))))

    def index(self) -> Any:
        parts = (
            slice(None),
            slice(1, None),
            slice(None, None, 2),
            slice(-1, 0),
            0,
            -1,
            ...,
            None,
            9,
        )
        return tuple(self.one(parts) for _ in range(int(self.rng.integers(1, 4))))

    def value(self, parameter: inspect.Parameter, like: pg.Node | None) -> Any:
        """Mostly of the kind that the annotation says."""
        kind = str(parameter.annotation)
        if self.rng.random() < 0.04:
            return self.one((*ODD, *INTS, *FLOATS))
        if parameter.name == "index":
            return self.index()
        if "DType" in kind:
            return None if self.rng.random() < 0.3 else self.one(DTYPES)
        if "Any" in kind or "Node" in kind or "ArrayLike" in kind:
            return self.operand(parameter.name, like)
        if "Sequence" in kind or "tuple" in kind:
            return self.integers(parameter.name, like)
        if "bool" in kind:
            return bool(self.rng.integers(2))
        return self.one(FLOATS if "float" in kind else WORDS if "str" in kind else INTS[:10])

    def call(self, name: str) -> None:
        arguments: list[Any] = []
        named: dict[str, Any] = {}
        like: pg.Node | None = None
        parameters = inspect.signature(CALLS[name]).parameters.values()
        left_out = 0.6 if len(parameters) < 6 else 0.9
        for parameter in parameters:
            if parameter.kind == parameter.VAR_POSITIONAL:
                arguments += self.integers(parameter.name, like)
                continue
            if parameter.default is not parameter.empty and self.rng.random() < left_out:
                continue
            value = self.pick() if parameter.name == "self" else self.value(parameter, like)
            if like is None and isinstance(value, pg.Node):
                like = value
            if parameter.kind == parameter.POSITIONAL_ONLY or parameter.name == "self":
                arguments.append(value)
            else:
                named[parameter.name] = value
        before = len(self.g)
        try:
            made = CALLS[name](*arguments, **named)
        except pg.PyggmlError:
            self.refused[name] += 1
            assert len(self.g) == before, f"{name} left nodes behind"
            return
        self.made[name] += 1
        for node in made if isinstance(made, (tuple, list)) else (made,):
            if isinstance(node, pg.Node) and int(np.prod(node.shape, dtype=object)) <= MOST:
                self.nodes.append(node)

    def run(self, threads: int, **how: bool) -> tuple[Any, ...]:
        """The bytes of all results and caches after two runs, or the error."""
        try:
            program = self.g.compile(self.outputs, threads=threads, **how)
            program(**self.feeds)
            results = [np.ascontiguousarray(a).tobytes() for a in program(**self.feeds)]
        except pg.PyggmlError as e:
            return (type(e).__name__, str(e))
        return (*results, *(cache.raw().tobytes() for cache in self.caches))


def one_input(seed: int) -> Build:
    """Builds and runs the graph of a seed in both ways."""
    first, second = Build(seed), Build(seed)
    assert len(first.g) == len(second.g)
    planned = first.run(1 + seed % 3, guarded=True)
    unplanned = second.run(1, planned=False)
    assert planned == unplanned
    assert planned[0] != "InternalError", planned
    return first


def fuzz(seed: int, count: int) -> tuple[Counter[str], Counter[str]]:
    """Runs `count` graphs; returns how often each call was made and refused."""
    made: Counter[str] = Counter()
    refused: Counter[str] = Counter()
    for i in range(seed, seed + count):
        try:
            with warnings.catch_warnings(action="ignore"):
                build = one_input(i)
        except BaseException:
            print(f"python_fuzz: --seed {i} --count 1")
            raise
        made += build.made
        refused += build.refused
    return made, refused


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--count", type=int, default=10_000)
    options = parser.parse_args()
    started = time.perf_counter()
    made, refused = fuzz(options.seed, options.count)
    seconds = time.perf_counter() - started
    for name in CALLS:
        print(f"{name} made {made[name]} refused {refused[name]}")
    total = f"calls made {made.total()} refused {refused.total()}"
    print(f"inputs {options.count} {total} seconds {seconds:.1f}")
