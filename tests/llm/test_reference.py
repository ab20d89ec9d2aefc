"""The default model against stored answers of another program, here and with the plain kernels.

tests/data/smollm2_reference.json says how it was made: F32 weights, activations and cache, greedy.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import pyggml
from pyggml import Llama

REFERENCE = json.loads((Path(__file__).parents[1] / "data/smollm2_reference.json").read_text())
PROMPTS = REFERENCE["prompts"]
TOLERANCE = {"f32": 1e-3, "f16": 0.02}
SURE = 0.05  # a smaller margin between the two likeliest may flip legitimately


def answers(path, kind, steps=32):
    """Of each prompt: ids, logits of the stored top 20, top-1 at each step of the stored text."""
    results = []
    with Llama(path, n_ctx=64, type_k=kind, type_v=kind) as llm:
        for entry in PROMPTS:
            ids = llm.tokenize(entry["prompt"], add_bos=False, special=True)
            llm.reset()
            llm.eval(ids)
            top = [float(llm.scores[-1][i]) for i, _ in entry["top"]]
            best = []
            for token in entry["greedy"][:steps]:
                best.append(int(llm.scores[-1].argmax()))
                llm.eval([token])
            results.append({"ids": ids, "top": top, "best": best})
    return results


def check(results, kind, steps=32):
    for entry, result in zip(PROMPTS, results, strict=True):
        assert result["ids"] == entry["ids"]
        wanted = [value for _, value in entry["top"]]
        assert len(wanted) == 20
        assert np.abs(np.array(result["top"]) - wanted).max() <= TOLERANCE[kind]
        assert len(result["best"]) == steps
        rows = zip(result["best"], entry["greedy"], entry["margins"], strict=False)
        assert all(best == token for best, token, margin in rows if margin >= SURE)


@pytest.mark.parametrize("kind", ["f32", "f16"])
def test_default_kernels(default_model, kind):
    check(answers(default_model, kind), kind)


_GENERIC = """
import json, sys
sys.path.insert(0, sys.argv[1])
import pyggml
from llm.test_reference import answers
results = {kind: answers(sys.argv[2], kind, steps) for kind, steps in (("f32", 32), ("f16", 4))}
print(json.dumps({"isa": pyggml.isa(), "results": results}))
"""


def test_generic_kernels(default_model):
    run = subprocess.run(
        [sys.executable, "-c", _GENERIC, Path(__file__).parents[1], default_model],
        capture_output=True,
        text=True,
        timeout=900,
        check=False,
        env={**os.environ, "PYGGML_ISA": "generic"},
    )
    assert run.returncode == 0, run.stderr
    answer = json.loads(run.stdout)
    assert answer["isa"] == "generic"
    check(answer["results"]["f32"], "f32")
    check(answer["results"]["f16"], "f16", steps=4)  # as slow again for little more


def test_the_prompt_logits_sum_as_stored(default_model):
    """All 49,152 logits, through their log of sums: not only the largest are right."""
    with Llama(default_model, n_ctx=64, type_k="f32", type_v="f32") as llm:
        for entry in PROMPTS:
            llm.reset()
            llm.eval(entry["ids"])
            row = llm.scores[-1].astype(np.float64)
            total = row.max() + np.log(np.exp(row - row.max()).sum())
            assert abs(total - entry["logsumexp"]) < 1e-4
            largest = np.argsort(-row, kind="stable")[:20]
            assert largest[:1].tolist() == [entry["top"][0][0]]
            assert {int(i) for i in largest[:10]} <= {i for i, _ in entry["top"]}


def test_greedy_text_is_the_stored_one(default_model):
    """Free running, up to the first step whose margin is small."""
    with Llama(default_model, n_ctx=64, type_k="f32", type_v="f32") as llm:
        for entry in PROMPTS:
            sure = next((i for i, m in enumerate(entry["margins"]) if m < SURE), 32)
            tokens = llm.generate(entry["ids"], temperature=0)
            assert [next(tokens) for _ in range(sure)] == entry["greedy"][:sure]


def test_this_process_runs_the_best_kernels():
    """Or the two tests above would be one."""
    if "PYGGML_ISA" not in os.environ:
        assert pyggml.isa() == pyggml.isas()[-1]
