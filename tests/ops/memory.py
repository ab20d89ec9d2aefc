"""Inputs, and memory that shows what a program reads beyond its operands or forgets to write."""

import ctypes
import mmap

import numpy as np

import pyggml as pg

THREADS = (1, 2, 5)


def random(*shape, seed=0):
    return np.random.default_rng([seed, *shape]).standard_normal(shape).astype(np.float32)


def same_bits(a, b):
    return a.shape == b.shape and a.tobytes() == b.tobytes()


def run_dirty(g, y, threads):
    """Runs in memory that holds NaN wherever the program has not written yet."""
    arena = pg.Arena()
    program = g.compile(y, threads=threads, arena=arena)
    n = program.arena_bytes // 4
    other = pg.Graph()
    dirt = other.compile(other.input("x", (n,)) * 1.0, threads=1, arena=arena)
    dirt(x=np.full(n, np.nan, np.float32))
    return program()


def at_guard_page(raw):
    """The bytes again, ending where reading on would stop the process."""
    page = mmap.PAGESIZE
    size = -(-raw.size // page) * page
    region = mmap.mmap(-1, size + page)
    whole = np.frombuffer(region, np.uint8)
    libc = ctypes.CDLL(None, use_errno=True)
    assert libc.mprotect(ctypes.c_void_p(whole.ctypes.data + size), ctypes.c_size_t(page), 0) == 0
    end = whole[size - raw.size : size]
    end[:] = raw.ravel()
    return end
