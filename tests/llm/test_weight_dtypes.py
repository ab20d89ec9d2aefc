"""Models whose matrices are of each float dtype, against the float64 forward pass."""

from __future__ import annotations

import pytest

from llm.running import logits_of, oracle_logits, prompt, tiny
from oracles import nmse
from pyggml.dtypes import DTYPES

FLOATS = [d.name for d in DTYPES if d.is_float and d.gguf_id is not None]
WIDE = {"n_embd": 256, "head_dim": 64, "n_ff": 512, "n_layers": 2}  # whole blocks of 256


@pytest.mark.parametrize("dtype", FLOATS)
def test_weights_of_every_dtype(tmp_path, dtype) -> None:
    path = tiny(tmp_path, dtype=dtype, **WIDE)
    for n in (3, 20):  # by rows of dots, and by panels
        ids = prompt(n)
        assert nmse.nmse(logits_of(path, ids), oracle_logits(path, ids)) < 1e-10


def test_a_mixture_as_files_have_it(tmp_path) -> None:
    mixed = {"attn_v": "q6_k", "ffn_down": "q6_k", "token_embd": "q6_k", "ffn_gate": "q5_k"}
    path = tiny(tmp_path, dtype="q4_k", dtypes=mixed, tied=False, **WIDE)
    for n in (3, 20):
        ids = prompt(n)
        assert nmse.nmse(logits_of(path, ids), oracle_logits(path, ids)) < 1e-10
