"""`Llama` on tiny models: against the float64 oracle, its calls, its limits."""

import gc
import shutil
import threading
from pathlib import Path

import numpy as np
import pytest

import pyggml
from llm.running import (
    CACHE_DTYPES,
    cache_bytes,
    logits_of,
    open_f32,
    oracle_logits,
    prompt,
    tiny,
)
from llm.tiny_model import tokens
from oracles import copy, nmse
from pyggml import Llama
from pyggml.errors import (
    ContextError,
    GGUFError,
    ModelError,
    ParameterError,
    SamplingError,
    ShapeError,
)

# NMSE of the logits of a random 2-layer model, about four times what was measured.
CACHE_BOUND = {"f32": 1e-11, "f16": 5e-7, "bf16": 3e-5, "f8_e4m3": 8e-3, "q8_0": 4e-4}


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return tiny(tmp_path_factory.mktemp("model"))


@pytest.fixture(scope="module")
def wide(tmp_path_factory):
    """Heads of 32, which every cache dtype holds."""
    return tiny(tmp_path_factory.mktemp("wide"), head_dim=32)


@pytest.fixture(params=[True, False], ids=["flash", "plain"])
def flash(request):
    return request.param


# ---- the forward pass against float64 ----


@pytest.mark.parametrize("type_v", CACHE_DTYPES)
@pytest.mark.parametrize("type_k", CACHE_DTYPES)
def test_every_pair_of_cache_dtypes(wide, type_k, type_v, flash):
    """C8: right within the format's error, in the format asked for, in pieces or step by step."""
    ids = prompt(21)
    weights = {"type_k": type_k, "type_v": type_v, "flash_attn": flash}
    with open_f32(wide, n_batch=16, **weights) as llm:
        llm.eval(ids[:20])
        llm.eval(ids[20:])
        assert (llm.cache.type_k.name, llm.cache.type_v.name) == (type_k, type_v)
        got, stored = llm.scores, cache_bytes(llm)[0]
    bound = CACHE_BOUND[type_k] + CACHE_BOUND[type_v]
    assert nmse.nmse(got, oracle_logits(wide, ids)) < bound
    with open_f32(wide, n_batch=16, flash_attn=flash) as llm:
        llm.eval(ids[:20])
        llm.eval(ids[20:])
        exact = cache_bytes(llm)[0]  # of layer 0: before any cache was read
    for kind, mine, f32 in zip((type_k, type_v), stored, exact, strict=True):
        values = f32.view(np.float32).reshape(len(ids), -1)
        assert mine.tobytes() == copy.encode(values, kind).tobytes()


@pytest.mark.parametrize("dtype", ["f32", "f16", "bf16", "f8_e4m3", "q8_0"])
@pytest.mark.parametrize("tied", [True, False], ids=["tied", "untied"])
def test_weight_dtypes_tied_and_untied(tmp_path, dtype, tied):
    path = tiny(tmp_path, dtype=dtype, tied=tied)
    ids = prompt(12)
    wanted = oracle_logits(path, ids)
    assert nmse.nmse(logits_of(path, ids), wanted) < (1e-10 if dtype != "q8_0" else 1e-4)
    with Llama(path, n_ctx=8) as llm:
        assert ("tied head" in llm.load_report()) == tied


@pytest.mark.parametrize(
    "options",
    [
        {"weight_scales": True},
        {"weight_scales": True, "dtype": "f8_e4m3", "tied": False},
        {"biases": True},
        {"biases": True, "weight_scales": True},
        {"rope_dims": 8},
        {"rope_base": 500000.0},
        {"rope_factors": (1.0, 1.0, 2.0, 3.0, 4.0, 8.0, 8.0, 8.0)},
        {"metadata": {"llama.rope.scaling.type": ("linear", "string"),
                      "llama.rope.scaling.factor": (4.0, "f32")}},
        {"metadata": {"llama.attention.layer_norm_rms_epsilon": (0.5, "f32")}},
        {"n_kv_heads": 1},
        {"n_kv_heads": 4},
        {"n_heads": 6, "n_kv_heads": 2},
        {"n_layers": 5},
        {"n_heads": 2, "head_dim": 64},
    ],
    ids=str,
)  # fmt: skip
def test_variants_against_the_oracle(tmp_path, options, flash):
    path = tiny(tmp_path, **options)
    ids = prompt(33)
    got = logits_of(path, ids, n_batch=32, flash_attn=flash)
    assert nmse.nmse(got, oracle_logits(path, ids)) < 1e-10


@pytest.mark.parametrize("kind", ["f16", "f8_e4m3"])
@pytest.mark.parametrize("head_dim", [64, 80, 96, 112, 128, 256, 512, 6, 2])
def test_head_sizes(tmp_path, head_dim, kind, flash):
    """C9: the usual ones, and sizes that are no multiple of a vector."""
    path = tiny(tmp_path, head_dim=head_dim, n_heads=3, n_kv_heads=1, n_layers=1)
    ids = prompt(19)
    got = logits_of(path, ids, type_k=kind, type_v=kind, flash_attn=flash, n_batch=18)
    assert nmse.nmse(got, oracle_logits(path, ids)) < 2 * CACHE_BOUND[kind]


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"head_dim": 65}, "rope"),
        ({"head_dim": 3}, "rope"),
        ({"n_heads": 6, "n_kv_heads": 4}, "head_count"),
        ({"rope_dims": 0}, "rope"),
        ({"rope_dims": 18}, "rope"),
        ({"metadata": {"llama.attention.head_count": (0, "u32")}}, "head_count"),
        ({"metadata": {"llama.attention.key_length": (0, "u32")}}, "key_length"),
    ],
)
def test_head_sizes_refused_at_load(tmp_path, options, error):
    with pytest.raises(ModelError, match=error):
        Llama(tiny(tmp_path, **options))


def test_an_odd_head_with_an_even_rope(tmp_path, flash):
    path = tiny(tmp_path, head_dim=33, rope_dims=32)
    ids = prompt(9)
    assert nmse.nmse(logits_of(path, ids, flash_attn=flash), oracle_logits(path, ids)) < 1e-10


# ---- evaluation and context ----


@pytest.mark.parametrize("n_batch", [1, 3, 7, 39, 40, 100])
def test_longer_prompts_are_split(model, n_batch):
    ids = prompt(40)
    with open_f32(model, n_batch=n_batch) as llm:
        sizes, decode = [], llm.session.decode
        llm.session.decode = lambda piece, *a, **k: (
            sizes.append(len(piece)),
            decode(piece, *a, **k),
        )[1]
        llm.eval(ids)
        assert sum(sizes) == 40
        assert max(sizes) == min(n_batch, 40)
        assert len(sizes) == -(-40 // n_batch)
        assert np.abs(llm.scores - oracle_logits(model, ids)).max() < 1e-4
    with Llama(model, n_ctx=64, n_batch=n_batch, type_k="f32", type_v="f32") as llm:
        llm.eval(ids)
        assert llm.scores.shape == (1, llm.n_vocab())


def test_state(model):
    with open_f32(model) as llm:
        assert (llm.n_tokens, llm.scores.shape) == (0, (0, llm.n_vocab()))
        assert llm.input_ids.tolist() == []
        llm.eval([1, 2])
        first = llm.scores
        llm.eval([3])
        assert llm.input_ids.tolist() == [1, 2, 3]
        assert llm.scores.shape == (3, llm.n_vocab())
        assert np.array_equal(llm.scores[:2], first)  # what was handed out does not change
        llm.reset()
        assert (llm.n_tokens, llm.cache.n_used, len(llm.scores)) == (0, 0, 0)
        llm.eval([1, 2])
        assert np.array_equal(llm.scores, first)


def test_sizes(model):
    with Llama(model, n_ctx=40) as llm:
        assert (llm.n_ctx(), llm.n_vocab(), llm.n_embd()) == (40, 267, 64)
        assert (llm.token_bos(), llm.token_eos()) == (265, 266)
        assert llm.cache_bytes == 2 * 2 * 40 * 32 * 2
        assert "0 of 40 tokens" in repr(llm)
    with Llama(model, n_ctx=0) as llm:
        assert llm.n_ctx() == 512  # as trained


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("n_ctx", -1), ("n_ctx", 1 << 31), ("n_ctx", 8.0), ("n_ctx", True), ("n_ctx", None),
        ("n_batch", 0), ("n_batch", -1), ("n_batch", "8"),
        ("n_threads", 0), ("n_threads", 257), ("n_threads", -1),
    ],
)  # fmt: skip
def test_bad_sizes(model, option, value):
    with pytest.raises(ParameterError, match=option):
        Llama(model, **{option: value})


@pytest.mark.parametrize("option", ["n_gpu_layers", "use_mmap", "n_cttx"])
def test_options_of_other_libraries_are_named(model, option):
    with pytest.raises(TypeError, match=f"no argument '{option}': .*model_path, n_ctx, .*verbose$"):
        Llama(model, **{option: 0})


def test_block_caches_need_whole_blocks(model):
    with pytest.raises(ShapeError, match="type_k: a head of 16"):
        Llama(model, type_k="q8_0")


def test_dtype_objects_and_names(model):
    for kind in (pyggml.f8_e4m3, "f8_e4m3", "F8_E4M3", pyggml.f8_e4m3.numpy):
        with Llama(model, n_ctx=8, type_k=kind, type_v="bf16") as llm:
            assert (llm.cache.type_k, llm.cache.type_v) == (pyggml.f8_e4m3, pyggml.bf16)


@pytest.mark.parametrize(("n", "fits"), [(15, True), (16, True), (17, False)])
def test_context_limit(model, n, fits):
    """G2: n_ctx tokens fit, one more is refused with both numbers, and nothing is evaluated."""
    with open_f32(model, n_ctx=16, n_batch=5) as llm:
        if fits:
            llm.eval(prompt(n))
            assert llm.scores.shape == (n, llm.n_vocab())
        else:
            with pytest.raises(ContextError, match=r"17 .* 16"):
                llm.eval(prompt(n))
            assert (llm.n_tokens, llm.cache.n_used) == (0, 0)
            with pytest.raises(ContextError, match=r"17 .* 16"):
                next(llm.generate(prompt(n)))


def test_the_context_fills_to_the_last_cell(model):
    with open_f32(model, n_ctx=16) as llm:
        llm.eval(prompt(12))
        with pytest.raises(ContextError, match="5 tokens after 12 pass the context of 16"):
            llm.eval(prompt(5))
        llm.eval(prompt(4))
        with pytest.raises(ContextError):
            llm.eval([1])
        assert llm.n_tokens == 16


@pytest.mark.parametrize("n", [15, 16])
def test_generation_ends_with_the_context(model, n):
    with Llama(model, n_ctx=16) as llm:
        made = list(llm.generate(prompt(n), temperature=0))
        assert len(made) == 16 - n + 1  # the last one needs no room
        assert llm.n_tokens == 16


@pytest.mark.parametrize("tokens", [[], [267], [-1], [1.5], ["a"]])
def test_nothing_to_evaluate(model, tokens):
    """G1: an empty list of ids is an error by name, as are ids that do not exist."""
    with open_f32(model) as llm:
        for call in (llm.eval, lambda t: next(llm.generate(t))):
            with pytest.raises(ParameterError):
                call(tokens)
        assert llm.n_tokens == 0


def test_an_interrupted_prompt_leaves_no_stale_logits(model, monkeypatch):
    """Between two pieces: the finished ones stay, and sampling from what came before is refused."""
    with Llama(model, n_ctx=64, n_batch=4) as llm:
        llm.eval(prompt(3))
        decode = llm.session.decode

        def second_fails(piece, position, **more):
            if position >= 7:
                raise KeyboardInterrupt
            return decode(piece, position, **more)

        monkeypatch.setattr(llm.session, "decode", second_fails)
        with pytest.raises(KeyboardInterrupt):
            llm.eval(prompt(12))
        assert (llm.n_tokens, llm.cache.length()) == (7, 7)
        assert len(llm.scores) == 0
        with pytest.raises(ParameterError, match="nothing was evaluated"):
            llm.sample()
        monkeypatch.undo()
        made = take(llm.generate(prompt(9), temperature=0), 3)
    assert made == take(fresh_tokens(model, prompt(9)), 3)


def fresh_tokens(model, ids, **params):
    with Llama(model, n_ctx=64) as llm:
        yield from llm.generate(ids, **({"temperature": 0} | params))


def take(tokens, n):
    return [t for _, t in zip(range(n), tokens, strict=False)]


# ---- sampling and generating ----


def test_sample(model):
    with Llama(model, n_ctx=32) as llm:
        with pytest.raises(ParameterError, match="nothing was evaluated"):
            llm.sample()
        llm.eval(prompt(3))
        assert llm.sample(temperature=0) == llm.scores[-1].argmax()
        drawn = [
            llm.sample(temperature=5.0, top_k=0, top_p=1.0, min_p=0.0, seed=s) for s in range(20)
        ]
        assert len(set(drawn)) > 10
        assert drawn[3] == llm.sample(temperature=5.0, top_k=0, top_p=1.0, min_p=0.0, seed=3)
        with pytest.raises(SamplingError):
            llm.sample(temperature=-1)
        for call in (llm.sample, lambda **params: llm.generate([1], **params)):
            with pytest.raises(ParameterError, match=r"unknown argument heat; .* top_k"):
                call(heat=1)
            with pytest.raises(ParameterError, match="unknown argument temp;"):
                call(temp=1, temperature=1)
        best = llm.sample(temp=0)
        assert best == llm.sample(temperature=0)
        assert llm.sample(temperature=0, logit_bias={best: -np.inf}) != best


def test_generate_is_eval_and_argmax(model):
    ids = prompt(5)
    with open_f32(model) as llm:
        made = take(llm.generate(ids, temperature=0), 8)
    wanted = list(ids)
    for token in made:
        assert oracle_logits(model, wanted)[-1].argmax() == token
        wanted.append(token)


def test_the_penalty_sees_the_context(model):
    with Llama(model, n_ctx=64) as llm:
        made = take(llm.generate(prompt(5), temperature=0, repeat_penalty=1e6), 20)
    assert len({*prompt(5), *made}) == len({*prompt(5)}) + 20


def test_seeds(model):
    ids, hot = prompt(4), {"temperature": 3.0, "top_k": 0, "top_p": 1.0, "min_p": 0.0}
    runs = [take(fresh_tokens(model, ids, seed=s, **hot), 12) for s in (1, 1, 2)]
    assert runs[0] == runs[1] != runs[2]
    with Llama(model, n_ctx=64, seed=1) as llm:
        assert take(llm.generate(ids, **hot), 12) == runs[0]
        assert take(llm.generate(ids, seed=2, **hot), 12) == runs[2]


@pytest.mark.parametrize("kind", ["f32", "f8_e4m3"])
@pytest.mark.parametrize("common", [0, 1, 6, 9, 10])
def test_prefix_reuse_gives_the_same_answers(model, kind, common):
    """The shared start is not evaluated again, except for the last token; the text is the same."""
    ids = prompt(10)
    other = ids[:common] + prompt(10 - common + 3, seed=5)
    if common < 10:
        other[common] = (ids[common] + 1) % 264
    options = {"n_ctx": 64, "type_k": kind, "type_v": kind}
    with Llama(model, **options) as llm:
        wanted = take(llm.generate(other, temperature=0), 10)
        assert llm.timings.prompt_tokens == 13
    with Llama(model, **options) as llm:
        llm.eval(ids)
        assert take(llm.generate(other, temperature=0), 10) == wanted
        assert llm.timings.prompt_tokens == 13 - common
        assert take(llm.generate(other, temperature=0), 10) == wanted
        assert llm.timings.prompt_tokens == 1
        assert take(llm.generate(other[:5], temperature=0), 1)
        assert llm.timings.prompt_tokens == 1
        assert llm.n_tokens == 5


def test_reset_false_appends(model):
    ids = prompt(8)
    with Llama(model, n_ctx=64) as llm:
        wanted = take(llm.generate(ids, temperature=0), 5)
        llm.reset()
        llm.eval(ids[:3])
        assert take(llm.generate(ids[3:], reset=False, temperature=0), 5) == wanted
        assert llm.input_ids.tolist() == [*ids, *wanted[:4]]


def test_generators_that_take_turns(model):
    """Each brings its own context back, so both write what they would have written alone."""
    first, second = prompt(6), prompt(7, seed=8)
    with Llama(model, n_ctx=64) as llm:
        alone = [take(llm.generate(ids, temperature=0), 10) for ids in (first, second)]
        a, b = (llm.generate(ids, temperature=0) for ids in (first, second))
        turns = [(next(a), next(b)) for _ in range(10)]
        assert [list(x) for x in zip(*turns, strict=True)] == alone
        c = llm.generate(first, temperature=0)
        broken = [next(c)]
        llm.reset()
        broken += take(c, 4)
        llm.eval([1, 2, 3])
        broken += take(c, 5)
        assert broken == alone[0]


def test_threads_take_turns(model):
    """Whole completions of two threads do not mix."""
    prompts = [prompt(6, seed=s) for s in range(4)]
    with Llama(model, n_ctx=64) as llm:

        def complete(ids):
            return llm.create_completion(ids, max_tokens=12, temperature=0)["choices"][0]["text"]

        alone = [complete(ids) for ids in prompts]
        found = [None] * 4
        threads = [
            threading.Thread(target=lambda i=i: found.__setitem__(i, complete(prompts[i])))
            for i in range(4)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert found == alone


@pytest.mark.parametrize("n", [0, 1, 5, 8])
def test_keep(model, n):
    ids = prompt(8)
    for all_logits in (True, False):
        with open_f32(model, logits_all=all_logits) as llm:
            llm.eval(ids)
            whole = llm.scores
            llm.keep(n)
            assert (llm.n_tokens, llm.cache.length()) == (n, n)
            kept = n if all_logits else int(n == 8)
            assert np.array_equal(llm.scores, whole[:kept])
            llm.eval([9])
            wanted = logits_of(model, [*ids[:n], 9])
            assert np.abs(llm.scores[-1] - wanted[-1]).max() < 1e-5


@pytest.mark.parametrize("n", [-1, 9])
def test_keep_outside(model, n):
    with open_f32(model) as llm:
        llm.eval(prompt(8))
        with pytest.raises(ParameterError, match="keep"):
            llm.keep(n)
        assert llm.n_tokens == 8


# ---- text ----


def test_text_and_ids(model):
    with Llama(model, n_ctx=8) as llm:
        ids = llm.tokenize("hello the <|im_end|>")
        assert llm.detokenize(ids) == b"hello the <|im_end|>"
        special = llm.tokenize(b"hello<|im_end|>", special=True)
        assert special[-1] == llm.token_eos()
        assert llm.detokenize(special) == b"hello"
        assert llm.detokenize(special, special=True) == b"hello<|im_end|>"
        assert llm.tokenize("") == []


def test_bos_where_the_file_asks_for_it(tmp_path):
    path = tiny(tmp_path, metadata={"tokenizer.ggml.add_bos_token": (True, "bool")})
    with Llama(path, n_ctx=8) as llm:
        assert llm.tokenize("") == [llm.token_bos()]
        assert llm.tokenize("", add_bos=False) == []
        assert llm.tokenize("a")[0] == llm.token_bos()


def test_sample_draws_anew_at_each_step(model):
    """A loop of sample and eval must not meet the same random number again and again."""
    flat = {"temperature": 1e9, "top_k": 0, "top_p": 1.0, "min_p": 0.0}  # the draw alone decides

    def loop(**seed):
        with Llama(model, n_ctx=32, **seed) as llm:
            llm.eval(prompt(3))
            for _ in range(20):
                llm.eval([llm.sample(**flat)])
            return llm.input_ids.tolist()[3:]

    assert len(set(loop(seed=1))) > 10
    assert loop(seed=1) == loop(seed=1) != loop(seed=2)


# ---- the end ----


def test_close(model):
    llm = Llama(model, n_ctx=8)
    llm.eval([1])
    llm.close()
    llm.close()
    for call in (
        lambda: llm.eval([1]),
        llm.reset,
        lambda: llm.cache,
        lambda: llm.create_completion("a"),
    ):
        with pytest.raises(ParameterError, match="closed"):
            call()
    with Llama(model, n_ctx=8) as llm:
        pass
    with pytest.raises(ParameterError, match="closed"):
        llm.eval([1])
    assert llm.n_vocab() > 0


@pytest.mark.skipif(not Path("/proc/self/maps").exists(), reason="needs /proc")
def test_close_unmaps_the_file(model, tmp_path):
    path = tmp_path / "closed.gguf"
    shutil.copy(model, path)

    def is_mapped():
        gc.collect()
        return str(path) in Path("/proc/self/maps").read_text()

    with Llama(path, n_ctx=8) as llm:
        llm.eval([1])
        assert is_mapped()
    assert not is_mapped()
    assert llm.n_ctx() == 8


@pytest.mark.parametrize("n", [266, 268])
def test_a_vocabulary_of_another_size(tmp_path, n):
    """Else an id would have a logit and no spelling, or a spelling and no row."""
    vocab = [*tokens(), "more"][:n]
    kinds = [1] * (n - 2) + [3, 3]
    metadata = {
        "tokenizer.ggml.tokens": (vocab, "string[]"),
        "tokenizer.ggml.token_type": (kinds, "i32[]"),
        "tokenizer.ggml.eos_token_id": (264, "u32"),
    }
    with pytest.raises(ModelError, match=f"{n} tokens in the vocabulary, 267 rows"):
        Llama(tiny(tmp_path, metadata=metadata))


def test_what_is_no_model(tmp_path):
    with pytest.raises(FileNotFoundError):
        Llama(tmp_path / "absent.gguf")
    (tmp_path / "page.gguf").write_text("<!DOCTYPE html>")
    with pytest.raises(GGUFError):
        Llama(tmp_path / "page.gguf")
