"""What a narrow KV cache costs in quality: KL divergence and top-1 agreement against F32.

    python bench/kv_quality.py smollm2

Text: Python's own pydoc_data.topics, so that everybody measures the same. The prompt is fed in
pieces of --n-batch, so from the second piece on every token reads what the cache has rounded.
"""

from __future__ import annotations

import argparse
import json
import pydoc_data.topics
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import machine
import numpy as np

from pyggml import Llama
from pyggml.tools.pull import resolve

if TYPE_CHECKING:
    from numpy.typing import NDArray

KINDS = ("f16", "bf16", "q8_0", "f8_e4m3")
_ROWS = 64  # logits rows at a time: bounds the float64 copies


@dataclass(frozen=True)
class Row:
    """One cache type against F32: nats, shares of tokens, bytes."""

    cache: str
    mean_kl: float
    max_kl: float
    top1: float
    cache_bytes: int
    clipped: int


def main() -> None:
    options = _arguments()
    path = str(resolve(options.model))
    exact, scales, ids = _exact(path, options)
    runs: list[tuple[str, Any]] = [(kind, "file") for kind in KINDS]
    runs.append(("f8_e4m3", scales))
    rows = [_row(path, options, ids, exact, kind, chosen) for kind, chosen in runs]
    if options.json:
        print(json.dumps({**machine.facts(), "rows": [asdict(row) for row in rows]}, indent=1))
        return
    print(f"{len(ids)} tokens, {options.n_batch} a step, {options.model}")
    print("| cache | mean KL, nats | largest KL | same top-1 | bytes | clipped |")
    print("|---|---:|---:|---:|---:|---:|")
    for r in rows:
        print(
            f"| {r.cache} | {r.mean_kl:.2e} | {r.max_kl:.2e} | {100 * r.top1:.1f} % "
            f"| {r.cache_bytes:,} | {r.clipped} |"
        )


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model", nargs="?", default="smollm2", help="a GGUF file or a known name")
    parser.add_argument("-n", "--tokens", type=int, default=1000)
    parser.add_argument("-b", "--n-batch", type=int, default=16)
    parser.add_argument("-t", "--threads", type=int)
    parser.add_argument("--json", action="store_true")
    return parser.parse_args()


def _open(path: str, options: argparse.Namespace, kind: str, scales: Any = "file") -> Llama:
    return Llama(
        path,
        n_ctx=options.tokens,
        n_batch=options.n_batch,
        n_threads=options.threads,
        type_k=kind,
        type_v=kind,
        kv_scales=scales,
        logits_all=True,
    )


def _exact(path: str, options: argparse.Namespace) -> tuple[NDArray[np.float32], Any, list[int]]:
    """Logits with an F32 cache, scales that fit its contents, and the token ids."""
    text = "\n".join(pydoc_data.topics.topics.values())[: 16 * options.tokens]
    with _open(path, options, "f32") as llm:
        ids = llm.tokenize(text)[: options.tokens]
        llm.eval(ids)
        scales = {
            i: tuple(float(np.abs(t.numpy()).max()) / 448 for t in (layer.k, layer.v))
            for i, layer in enumerate(llm.cache.layers)
        }
        return llm.scores, scales, ids


def _row(
    path: str,
    options: argparse.Namespace,
    ids: list[int],
    exact: NDArray[np.float32],
    kind: str,
    scales: Any,
) -> Row:
    with _open(path, options, kind, scales) as llm:
        llm.eval(ids)
        kl, same = _compare(exact, llm.scores)
        name = kind if isinstance(scales, str) else f"{kind}, largest / 448"
        clipped = sum(llm.cache.count_clipped().values())
        return Row(name, float(kl.mean()), float(kl.max()), same, llm.cache_bytes, clipped)


def _compare(
    exact: NDArray[np.float32], other: NDArray[np.float32]
) -> tuple[NDArray[np.float64], float]:
    """KL(exact || other) of each token in nats, and the share with the same likeliest token."""
    kl = []
    for at in range(0, len(exact), _ROWS):
        p, q = (_log_softmax(x[at : at + _ROWS]) for x in (exact, other))
        kl.append((np.exp(p) * (p - q)).sum(axis=1))
    return np.concatenate(kl), float((exact.argmax(axis=1) == other.argmax(axis=1)).mean())


def _log_softmax(rows: NDArray[np.float32]) -> NDArray[np.float64]:
    x = rows.astype(np.float64)
    x -= x.max(axis=1, keepdims=True)
    x -= np.log(np.exp(x).sum(axis=1, keepdims=True))
    return x


if __name__ == "__main__":
    main()
