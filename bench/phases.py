"""Where the time of a decode step goes.

    python bench/phases.py --depth 512

The first table follows one call of Llama.eval([id]) through Python into the program. The second
takes the step apart: graphs that hold only the ops of one kind, with the model's own weights and
shapes, run in turn with the whole step, so that no graph finds its weights in the cache because it
has just run. What the parts do not explain is the cost of running them as one chain.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Callable, Iterable
from typing import Any

import machine
import numpy as np

import pyggml
from pyggml import ops
from pyggml.graph import Graph, Node, Program
from pyggml.llm.weights import Linear

TEXT = "A long prompt about nothing in particular, told once more. "


class Clock:
    """Laps of a repeated sequence of actions, by name."""

    def __init__(self) -> None:
        self.laps: dict[str, list[float]] = {}
        self._last = 0.0

    def start(self) -> None:
        """Begins a sequence."""
        self._last = time.perf_counter()

    def lap(self, name: str) -> None:
        """Books the time since the last lap."""
        now = time.perf_counter()
        self.laps.setdefault(name, []).append(now - self._last)
        self._last = time.perf_counter()

    def medians(self) -> dict[str, float]:
        """Name -> median seconds."""
        return {name: statistics.median(x) for name, x in self.laps.items()}


def walk_step(llm: Any, token: int, clock: Clock) -> None:
    """What Llama.eval([token]) does (flash attention), with a lap after each part."""
    session, cache, at = llm.session, llm.cache, llm.n_tokens
    clock.start()
    ids = session._check_tokens([token])
    clock.lap("check ids")
    if at != cache.length(0):
        raise RuntimeError("the cache and the context differ")
    cells = cache.find_cells(1)
    positions = np.arange(at, at + 1, dtype=np.int32)
    n_visible = cache.n_visible(cells)
    clock.lap("find cells")
    mask = cache.mask(cells, positions, 0, n_visible)
    clock.lap("mask")
    inputs = {
        "tokens": ids,
        "positions": positions,
        "cells": cells,
        "mask": mask,
        "out_rows": np.zeros(1, np.int32),
    }
    program = session.program(1, n_visible, 1)
    clock.lap("inputs, program")
    data, out = raw_inputs(program, inputs), np.empty((1, llm.n_vocab()), np.float32)
    clock.lap("Program: check arrays")
    program._core.run(data, [out])
    clock.lap("Program: run in C")
    cache.commit(cells, positions, 0)
    llm._ids.append(token)
    clock.lap("commit")
    out[-1].argmax()
    clock.lap("argmax of the logits")


def raw_inputs(program: Program, inputs: dict[str, Any]) -> list[Any]:
    """The input buffers in the order of the program."""
    from pyggml.program import _input_bytes

    return [_input_bytes(n, s, k, inputs[n]) for n, s, k in program._inputs]


def corner(x: Node) -> Node:
    """One element, so that copying the results out costs nothing."""
    return x[tuple(slice(0, 1) for _ in x.shape)]


class Part:
    """A graph of all ops of one kind of a step.

    Args:
        name: for the table.
        threads: to run with.
        build: makes the results in a new graph.
        n_bytes: bytes of weights or cache that it must read.
    """

    def __init__(
        self, name: str, threads: int, build: Callable[[Graph], Iterable[Node]], n_bytes: int = 0
    ) -> None:
        g = Graph()
        outputs = [corner(x) for x in build(g)]
        self.name, self.n_ops, self.n_bytes = name, len(outputs), n_bytes
        self._program = g.compile(outputs, threads)
        rng = np.random.default_rng(0)
        self._inputs = {
            n: rng.standard_normal(s).astype(np.float32)
            if k.name == "f32"
            else np.zeros(s, k.numpy)
            for n, (s, k) in self._program.inputs.items()
        }
        self.seconds: list[float] = []

    def run(self) -> None:
        """Runs once and books the time in C."""
        data = raw_inputs(self._program, self._inputs)
        out = [np.empty(s, k.numpy) for s, k in self._program._outputs]
        started = time.perf_counter()
        self._program._core.run(data, out)
        self.seconds.append(time.perf_counter() - started)


def mul_mats(name: str, linears: list[Linear], threads: int) -> Part:
    """The products of these matrices with one token each."""

    def build(g: Graph) -> list[Node]:
        widths = {w.weight.shape[1] for w in linears}
        x = {n: g.input(f"x{n}", (1, n)) for n in sorted(widths)}
        return [ops.mul_mat(w.weight, x[w.weight.shape[1]]) for w in linears]

    return Part(name, threads, build, sum(w.weight.nbytes for w in linears))


def attention_part(llm: Any, n_visible: int, threads: int) -> Part:
    """The fused attention of all layers."""
    c, cache = llm.config, llm.cache

    def heads(g: Graph, rows: Any) -> Node:
        shape = (cache.n_cells, c.n_kv_heads, c.head_dim)
        return ops.permute(
            ops.reshape(g.const(rows)[:n_visible], (n_visible, *shape[1:])), (1, 0, 2)
        )

    def build(g: Graph) -> list[Node]:
        q = g.input("q", (c.n_heads, 1, c.head_dim))
        mask = g.const(np.zeros((1, n_visible), np.float32))
        return [
            ops.flash_attn_ext(q, heads(g, x.k), heads(g, x.v), mask, scale=c.attn_scale)
            for x in cache.layers
        ]

    n_bytes = sum(x.k.nbytes + x.v.nbytes for x in cache.layers) * n_visible // cache.n_cells
    return Part("flash_attn_ext", threads, build, n_bytes)


def small_parts(llm: Any, threads: int) -> list[Part]:
    """Norms, RoPE, SwiGLU and residual sums of all layers."""
    c, w = llm.config, llm.session.weights

    def norms(g: Graph) -> list[Node]:
        x = g.input("x", (1, c.n_embd))
        gains = [t for layer in w.layers for t in (layer.attn_norm, layer.ffn_norm)] + [w.norm]
        return [ops.mul(ops.rms_norm(x, eps=c.rms_eps), t) for t in gains]

    def ropes(g: Graph) -> list[Node]:
        at = g.input("at", (1,), "i32")
        xs = [g.input(n, (1, h, c.head_dim)) for n, h in (("q", c.n_heads), ("k", c.n_kv_heads))]
        options = {"n_dims": c.rope_dims, "mode": "norm", "freq_base": c.rope_base}
        return [ops.rope(x, at, w.rope_factors, **options) for _ in w.layers for x in xs]

    def gates(g: Graph) -> list[Node]:
        x, y = (g.input(n, (1, c.n_ff)) for n in "xy")
        return [ops.swiglu(x, y) for _ in w.layers]

    def sums(g: Graph) -> list[Node]:
        x, y = (g.input(n, (1, c.n_embd)) for n in "xy")
        return [ops.add(x, y) for _ in range(2 * c.n_layers)]

    builds = {"rms_norm, mul": norms, "rope": ropes, "swiglu": gates, "add": sums}
    return [Part(name, threads, build) for name, build in builds.items()]


def make_parts(llm: Any, threads: int) -> list[Part]:
    """All parts of a step at the present depth; the first is all products together."""
    w, cache = llm.session.weights, llm.cache
    n_visible = cache.n_visible(cache.find_cells(1))
    projections = [x for layer in w.layers for x in (layer.q, layer.k, layer.v, layer.out)]
    feed_forward = [x for layer in w.layers for x in (layer.gate, layer.up, layer.down)]
    return [
        mul_mats("all mul_mat", [*projections, *feed_forward, w.head], threads),
        mul_mats("  q k v out", projections, threads),
        mul_mats("  gate up down", feed_forward, threads),
        mul_mats("  head", [w.head], threads),
        attention_part(llm, n_visible, threads),
        *small_parts(llm, threads),
    ]


def measure(
    llm: Any, ids: list[int], depth: int, reps: int, threads: int
) -> tuple[Clock, list[Part]]:
    """Runs the walked step and every part in turn, `reps` times; two rounds more warm up."""
    llm.reset()
    if depth:
        llm.eval(ids[:depth])
    parts, clock = make_parts(llm, threads), Clock()
    for rep in range(reps + 2):
        llm.keep(depth)
        walk_step(llm, ids[depth], clock)
        for part in parts:
            part.run()
        if rep == 1:
            clock.laps.clear()
            for part in parts:
                part.seconds.clear()
    whole = Clock()
    for _ in range(reps):
        llm.keep(depth)
        whole.start()
        llm.eval([ids[depth]])
        whole.lap("Llama.eval")
    clock.laps |= whole.laps
    return clock, parts


def print_tables(clock: Clock, parts: list[Part]) -> None:
    """Both tables, in microseconds; shares are of medians."""
    laps, best = clock.medians(), {name: min(x) for name, x in clock.laps.items()}
    evaluated, run = laps.pop("Llama.eval"), laps["Program: run in C"]
    total = sum(laps.values())
    print(f"\n{'part of a step':<24}{'median us':>11}{'best us':>11}{'%':>7}")
    for name, seconds in laps.items():
        row(name, seconds, best[name], seconds / total)
    row("sum", total, sum(best[n] for n in laps), 1)
    outside = sum(best[n] for n in laps) - best["Program: run in C"]
    row("outside C", total - run, outside, (total - run) / total)
    row("Llama.eval, alone", evaluated, best["Llama.eval"], evaluated / total)
    head = f"{'results':>9}{'us each':>9}{'GB/s':>7}"
    print(f"\n{'graph of one kind':<24}{'median us':>11}{'best us':>11}{'% of C':>7}{head}")
    left, left_best = run, best["Program: run in C"]
    for part in parts:
        t, fast = statistics.median(part.seconds), min(part.seconds)
        if not part.name.startswith("  "):
            left, left_best = left - t, left_best - fast
        speed = f"{part.n_bytes / fast / 1e9:>7.1f}" if part.n_bytes else ""
        row(part.name, t, fast, t / run, f"{part.n_ops:>9}{fast * 1e6 / part.n_ops:>9.2f}{speed}")
    row("not explained", left, left_best, left / run)
    print("us each and GB/s are of the best run")


def row(name: str, median: float, best: float, share: float, more: str = "") -> None:
    """One line of a table."""
    print(f"{name:<24}{median * 1e6:>11.1f}{best * 1e6:>11.1f}{share * 100:>7.1f}{more}")


def main(argv: list[str] | None = None) -> int:
    """Measures and prints."""
    p = argparse.ArgumentParser(description="Take a decode step apart.")
    p.add_argument("--model", default="smollm2", help="a GGUF file or a known name")
    p.add_argument("--threads", type=int, help="default: the physical cores")
    p.add_argument("--depth", type=int, default=0, help="tokens in the cache before the step")
    p.add_argument("--reps", type=int, default=50)
    p.add_argument("--type-k", default="f16")
    p.add_argument("--type-v", default="f16")
    args = p.parse_args(argv)
    from pyggml.tools.pull import resolve

    threads = args.threads or pyggml._core.default_threads()
    llm = pyggml.Llama(
        resolve(args.model),
        n_ctx=-(-(args.depth + 1) // 256) * 256,
        n_threads=threads,
        type_k=args.type_k,
        type_v=args.type_v,
    )
    ids = llm.tokenize(TEXT * (args.depth // 8 + 8))[: args.depth + 1]
    before = machine.load_average()
    clock, parts = measure(llm, ids, args.depth, args.reps, threads)
    print(f"{machine.cpu_info()['model']}, {pyggml.isa()}, {threads} threads, depth {args.depth}")
    print(f"load average {before} before, {machine.load_average()} after")
    print_tables(clock, parts)
    return 0


if __name__ == "__main__":
    sys.exit(main())
