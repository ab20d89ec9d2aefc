"""Runs a model step by step: one graph for each (tokens, cells seen, logits wanted), replayed."""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING

import numpy as np

from pyggml import _core
from pyggml.errors import ContextError, ParameterError
from pyggml.graph import Graph, Program
from pyggml.llm.llama import build_llama

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from pyggml.llm.config import LlamaConfig
    from pyggml.llm.kv_cache import KVCache
    from pyggml.llm.weights import Weights

PROGRAMS = 8  # compiled steps kept: they share one arena, so each costs only its node list


class Session:
    """A model, a cache, and the programs that advance the cache.

    Args:
        weights: of the model.
        config: of the model.
        cache: holds the sequences.
        threads: for the programs; None takes the default.
        flash_attn: the fused attention, or matrix products and a soft_max.
    """

    def __init__(
        self,
        weights: Weights,
        config: LlamaConfig,
        cache: KVCache,
        threads: int | None = None,
        flash_attn: bool = True,
    ) -> None:
        self.weights = weights
        self.config = config
        self.cache = cache
        self.threads = threads
        self.flash_attn = flash_attn
        self._arena = _core.Arena()
        self._programs: OrderedDict[tuple[int, int, int], Program] = OrderedDict()

    @property
    def arena_bytes(self) -> int:
        """Bytes of working memory that the programs share."""
        return int(self._arena.nbytes)

    def program(self, n_tokens: int, n_visible: int, n_out: int) -> Program:
        """The program for a step of that size, built at its first use."""
        key = (n_tokens, n_visible, n_out)
        program = self._programs.get(key)
        if program is None:
            g = Graph()
            logits = build_llama(
                g, self.weights, self.config, self.cache, *key, flash_attn=self.flash_attn
            )
            program = g.compile(logits, self.threads, arena=self._arena)
            self._programs[key] = program
            while len(self._programs) > PROGRAMS:
                self._programs.popitem(last=False)
        self._programs.move_to_end(key)
        return program

    def decode(
        self,
        tokens: Sequence[int] | NDArray[np.int32],
        position: int,
        seq: int = 0,
        want: str = "last",
    ) -> NDArray[np.float32]:
        """Advances one sequence by T tokens in one step.

        Args:
            tokens: T ids.
            position: of the first one; must be the sequence's length.
            seq: id of the sequence.
            want: "last" gives logits (1, V), "all" (T, V), "none" (0, V).

        Raises:
            ContextError: no cells free, or the position would leave a gap or rewrite the past.
            ParameterError: no tokens, or an id outside the vocabulary.
        """
        ids = self._check_tokens(tokens)
        t = len(ids)
        if position != self.cache.length(seq):
            raise ContextError(
                f"position {position}: sequence {seq} has {self.cache.length(seq)} tokens"
            )
        cells = self.cache.find_cells(t)
        positions = np.arange(position, position + t, dtype=np.int32)
        n_visible = self.cache.n_visible(cells)
        out_rows = {"last": [t - 1], "all": list(range(t)), "none": []}[want]
        mask = self.cache.mask(cells, positions, seq, n_visible)
        inputs = {
            "tokens": ids,
            "positions": positions,
            "cells": cells,
            "mask": mask,
            "out_rows": np.asarray(out_rows, np.int32),
        }
        if not self.flash_attn:
            inputs["live"] = _live_cells(mask, int(cells[0]))
        logits = self.program(t, n_visible, len(out_rows))(**inputs)
        self.cache.commit(cells, positions, seq)
        return logits  # type: ignore[no-any-return]

    def _check_tokens(self, tokens: Sequence[int] | NDArray[np.int32]) -> NDArray[np.int32]:
        try:
            ids = np.asarray(tokens)
            if ids.size and ids.dtype.kind not in "iu":
                raise ParameterError(f"token ids are integers, got {ids.dtype}")
        except (TypeError, ValueError, OverflowError) as e:
            raise ParameterError(f"token ids: {e}") from None
        if ids.ndim != 1 or ids.size == 0:
            raise ParameterError("at least one token is needed, as a flat sequence of ids")
        bad = np.flatnonzero((ids < 0) | (ids >= self.weights.n_vocab))
        if bad.size:
            raise ParameterError(
                f"token {int(ids[bad[0]])} at place {int(bad[0])} is outside the vocabulary "
                f"0..{self.weights.n_vocab - 1}"
            )
        return ids.astype(np.int32)


def _live_cells(mask: NDArray[np.float32], used: int) -> NDArray[np.int32]:
    """Each seen cell's own number; `used`, which is being written, in place of the others."""
    numbers = np.arange(mask.shape[1], dtype=np.int32)
    return np.where((mask == 0).any(axis=0), numbers, np.int32(used))
