"""What the tests of the model share: tiny models, oracle logits, graphs, cache bytes."""

from __future__ import annotations

import pydoc_data.topics
from pathlib import Path

import numpy as np

from llm.tiny_model import make_tiny_model
from oracles import llama as oracle
from pyggml import Graph, Llama
from pyggml.llm.llama import build_llama

CACHE_DTYPES = ("f32", "f16", "bf16", "f8_e4m3", "q8_0")


def prompt(n: int, seed: int = 0, n_vocab: int = 264) -> list[int]:
    """N ids of a tiny model, control tokens left out."""
    return np.random.default_rng(seed).integers(0, n_vocab, n).tolist()


def topics_text() -> str:
    """Plain English that every Python carries."""
    return "\n".join(pydoc_data.topics.topics.values())


def tiny(folder: Path, **options: object) -> Path:
    """A tiny model in a file of its own."""
    return make_tiny_model(folder / f"tiny{len(list(folder.iterdir()))}.gguf", **options)


def open_f32(path: Path, **options: object) -> Llama:
    """A model with an F32 cache and all logits kept."""
    chosen = {"n_ctx": 64, "type_k": "f32", "type_v": "f32", "logits_all": True} | options
    return Llama(path, **chosen)


def logits_of(path: Path, ids: list[int], **options: object) -> np.ndarray:
    """Logits (T, V) of one evaluation."""
    with open_f32(path, **options) as llm:
        llm.eval(ids)
        return llm.scores


def oracle_logits(path: Path, ids: list[int], **options: object) -> np.ndarray:
    """The same in float64, by code that shares nothing with pyggml."""
    weights, config = oracle.load_gguf(path)
    return oracle.forward(weights, config, ids, **options)


def step_graph(llm: Llama, n_tokens: int = 3, n_visible: int = 64) -> Graph:
    """The graph of one step, as the session builds it."""
    graph, session = Graph(), llm.session
    build_llama(
        graph,
        session.weights,
        session.config,
        session.cache,
        n_tokens,
        n_visible,
        1,
        flash_attn=session.flash_attn,
    )
    return graph


def cache_bytes(llm: Llama) -> list[tuple[np.ndarray, np.ndarray]]:
    """Copies of the used cells' bytes: (k, v) a layer."""
    used = llm.cache.pos >= 0
    return [
        tuple(t.raw().reshape(t.shape[0], -1)[used].copy() for t in (x.k, x.v))
        for x in llm.cache.layers
    ]
