"""Prefill and decode of the default model (`make bench`)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pyggml

N_CTX = 1024
PROMPT = 512
STEPS = 32
CACHES = ("f16", "q8_0", "f8_e4m3")
TEXT = "A long prompt about nothing in particular, told once more. " * 60


@pytest.fixture(scope="module", params=CACHES)
def llm(request: pytest.FixtureRequest, default_model: Path) -> Iterator[Any]:
    """The model, once for each dtype of the cache."""
    kind = request.param
    with pyggml.Llama(
        default_model, n_ctx=N_CTX, n_batch=PROMPT, type_k=kind, type_v=kind
    ) as model:
        yield model


@pytest.fixture(scope="module")
def ids(llm: Any) -> list[int]:
    """PROMPT + STEPS tokens of plain text."""
    found = llm.tokenize(TEXT)[: PROMPT + STEPS]
    assert len(found) == PROMPT + STEPS
    return found


def report(benchmark: Any, llm: Any, tokens: int) -> None:
    """Adds tokens per second to what pytest-benchmark stores; the logits must be finite."""
    assert np.isfinite(llm.scores[-1]).all()
    if benchmark.stats is not None:
        benchmark.extra_info["tokens"] = tokens
        benchmark.extra_info["tok_s"] = round(tokens / benchmark.stats.stats.median, 2)
        benchmark.extra_info["isa"] = pyggml.isa()


@pytest.mark.benchmark(group="prefill 512")
def test_prefill(benchmark: Any, llm: Any, ids: list[int]) -> None:
    benchmark.pedantic(lambda: llm.eval(ids[:PROMPT]), setup=llm.reset, rounds=5, warmup_rounds=1)
    report(benchmark, llm, PROMPT)


@pytest.mark.benchmark(group="decode 32")
@pytest.mark.parametrize("depth", [0, PROMPT])
def test_decode(benchmark: Any, llm: Any, ids: list[int], depth: int) -> None:
    llm.reset()
    if depth:
        llm.eval(ids[:depth])

    def steps() -> None:
        for token in ids[depth : depth + STEPS]:
            llm.eval([token])

    benchmark.pedantic(steps, setup=lambda: llm.keep(depth), rounds=5, warmup_rounds=1)
    report(benchmark, llm, STEPS)
