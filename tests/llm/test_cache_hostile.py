"""What lies in cells that nobody may see (C5, C6), and removal (C11, C10): never in the result."""

import numpy as np
import pytest

from llm.running import CACHE_DTYPES, cache_bytes, open_f32, prompt, tiny
from pyggml import Llama
from pyggml.errors import ContextError

N_CTX = 64


@pytest.fixture(params=[True, False], ids=["flash", "plain"])
def flash(request):
    return request.param


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    """Heads of 32, which every cache dtype holds; three layers, so that errors travel."""
    return tiny(tmp_path_factory.mktemp("hostile"), n_layers=3, head_dim=32)


def opened(model, kind, flash, **more):
    return open_f32(model, type_k=kind, type_v=kind, flash_attn=flash, n_ctx=N_CTX, **more)


def fill(llm, byte):
    for layer in llm.cache.layers:
        layer.k.raw()[:] = byte
        layer.v.raw()[:] = byte


@pytest.mark.parametrize("kind", CACHE_DTYPES)
@pytest.mark.parametrize("byte", [0x7F, 0xFF, 0x7C])
def test_stale_bytes_never_count(model, kind, flash, byte):
    """3 tokens, then 1, then 5, of 64 cells: the bits of a cache that was zeroed."""
    ids = prompt(9)

    def run(byte):
        with opened(model, kind, flash) as llm:
            fill(llm, byte)
            llm.eval(ids[:3])
            llm.eval(ids[3:4])
            llm.eval(ids[4:])
            return llm.scores

    clean = run(0)
    assert np.isfinite(clean).all()
    assert run(byte).tobytes() == clean.tobytes()


@pytest.mark.parametrize("kinds", [("f8_e4m3", "f16"), ("f16", "f8_e4m3"), ("q8_0", "bf16")])
@pytest.mark.parametrize("byte", [0x7F, 0xFF])
def test_stale_bytes_of_mixed_caches(model, kinds, flash, byte):
    def run(byte):
        with open_f32(model, type_k=kinds[0], type_v=kinds[1], flash_attn=flash) as llm:
            fill(llm, byte)
            llm.eval(prompt(4))
            return llm.scores

    assert run(byte).tobytes() == run(0).tobytes()


@pytest.mark.parametrize("kind", CACHE_DTYPES)
def test_stale_bytes_beyond_one_bucket(model, kind, flash):
    """260 of 600 cells in use: attention sees 512, most of them never written."""

    def run(byte):
        options = {"type_k": kind, "type_v": kind, "flash_attn": flash, "n_batch": 250}
        with Llama(model, n_ctx=600, **options) as llm:
            fill(llm, byte)
            llm.eval(prompt(260))
            return llm.scores

    assert run(0xFF).tobytes() == run(0).tobytes()


@pytest.mark.parametrize("byte", [0x7F, 0xFF])
def test_stale_bytes_in_the_default_model(default_model, flash, byte):
    def run(byte):
        with Llama(
            default_model, n_ctx=64, type_k="f8_e4m3", type_v="f8_e4m3", flash_attn=flash
        ) as llm:
            fill(llm, byte)
            llm.eval([504, 3575, 282])
            llm.eval([4649])
            return llm.scores

    assert run(byte).tobytes() == run(0).tobytes()


@pytest.mark.parametrize("kind", CACHE_DTYPES)
def test_tail_removal_equals_a_fresh_run(model, kind, flash):
    """C11: what was cut off, even as NaN codes, does not come back."""
    ids, other = prompt(8), prompt(6, seed=9)
    with opened(model, kind, flash) as llm:
        llm.eval(ids[:5])
        llm.eval(other)
        after = llm.cache.pos < 0
        fresh = llm.scores[:5].copy()
        llm.keep(5)
        assert llm.n_tokens == 5
        assert llm.scores.tobytes() == fresh.tobytes()
        for layer in llm.cache.layers:
            for t in (layer.k, layer.v):
                rows = t.raw().reshape(N_CTX, -1)
                rows[5:] = 0xFF
        llm.eval(ids[5:])
        kept, kept_bytes = llm.scores, cache_bytes(llm)
    assert after[11:].all()
    with opened(model, kind, flash) as llm:
        llm.eval(ids[:5])
        llm.eval(ids[5:])
        assert kept.tobytes() == llm.scores.tobytes()
        for mine, theirs in zip(kept_bytes, cache_bytes(llm), strict=True):
            assert all(a.tobytes() == b.tobytes() for a, b in zip(mine, theirs, strict=True))


def test_removal_of_all_equals_a_fresh_run(model, flash):
    ids = prompt(7)
    with opened(model, "f8_e4m3", flash) as llm:
        llm.eval(ids)
        first = llm.scores
        llm.keep(0)
        assert (llm.n_tokens, llm.scores.shape[0]) == (0, 0)
        llm.eval(ids)
        assert llm.scores.tobytes() == first.tobytes()


def test_a_gap_is_refused_or_kept_apart(model, flash):
    """A middle taken out keeps the positions of the rest; the next token follows the last one.

    The result is that of attention over the cells that are left, which the mask alone decides.
    """
    ids = prompt(9)
    with opened(model, "f32", flash) as llm:
        llm.eval(ids[:8])
        llm.cache.remove(0, 3, 6)
        assert llm.cache.length() == 8
        for wrong in (3, 5, 7, 9):
            with pytest.raises(ContextError, match=f"position {wrong}"):
                llm.session.decode(ids[8:], wrong)
        after = llm.session.decode(ids[8:], 8)
        assert llm.cache.n_used == 6
        assert sorted(llm.cache.pos[llm.cache.pos >= 0]) == [0, 1, 2, 6, 7, 8]
    with opened(model, "f32", flash) as llm:
        llm.eval(ids[:8])
        llm.cache._members[0][3:6] = False  # hidden, not freed: the same cells are left
        assert np.abs(llm.session.decode(ids[8:], 8) - after).max() < 1e-5
        llm.reset()
        llm.eval(ids[:8])
        assert np.abs(llm.session.decode(ids[8:], 8) - after).max() > 0.01


def test_holes_are_filled_in_any_order(model, flash):
    """Two sequences take turns; each answers as if it were alone."""
    ids, other = prompt(6), prompt(8, seed=4)
    with opened(model, "f32", flash) as llm:
        alone = [llm.session.decode([t], i)[0] for i, t in enumerate(ids)]
        llm.reset()
        decode = llm.session.decode
        decode(other[:5], 0, seq=1)
        mixed = [decode([t], i)[0] for i, t in enumerate(ids[:3])]
        llm.cache.remove(1)
        mixed.append(decode(ids[3:4], 3)[0])  # lands before the older cells
        decode(other, 0, seq=2)
        mixed += [decode([t], i)[0] for i, t in enumerate(ids[4:], 4)]
        assert llm.cache.pos[:2].tolist() == [3, 0]
    assert np.abs(np.array(mixed) - np.array(alone)).max() < 1e-5


def test_no_visible_cell_gives_zeros_not_nan(model, flash):
    """C6 in a model: a step whose mask is -inf throughout is finite, whatever the cells hold."""
    with opened(model, "f8_e4m3", flash) as llm:
        fill(llm, 0xFF)
        program = llm.session.program(4, N_CTX, 4)
        inputs = {
            "tokens": np.arange(4, dtype=np.int32),
            "positions": np.arange(4, dtype=np.int32),
            "cells": np.arange(4),
            "out_rows": np.arange(4, dtype=np.int32),
        }
        if not flash:
            inputs["live"] = np.zeros(N_CTX, np.int32)
        open_mask = np.where(np.arange(N_CTX) <= np.arange(4)[:, None], 0, -np.inf)
        whole = program(mask=open_mask.astype(np.float32), **inputs)
        for closed in ([0], [1, 2], [3], [0, 1, 2, 3]):
            mask = open_mask.astype(np.float32)
            mask[closed] = -np.inf
            logits = program(mask=mask, **inputs)
            assert np.isfinite(logits).all()
            assert not np.array_equal(logits[closed], whole[closed])
            # row 0 depends on itself alone; the later ones on cells that closed rows wrote
            if 0 not in closed:
                assert np.array_equal(logits[0], whole[0])


@pytest.mark.parametrize("kind", ["f16", "f8_e4m3"])
def test_more_tokens_than_the_context(model, kind, flash):
    """C10: a context of 10 asked for 50 tokens ends there, cleanly; nothing is shifted."""
    with Llama(model, n_ctx=10, type_k=kind, type_v=kind, flash_attn=flash) as llm:
        result = llm.create_completion(
            prompt(3), max_tokens=50, temperature=0, logit_bias={266: -100}
        )
        assert result["choices"][0]["finish_reason"] == "length"
        assert result["usage"]["completion_tokens"] <= 8
        assert llm.n_tokens <= 10
        with pytest.raises(ContextError):
            llm.eval(prompt(11))
        assert len(llm.create_completion(prompt(3), max_tokens=2, temperature=0)["choices"]) == 1
