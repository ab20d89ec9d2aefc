"""Steps: programs built once and replayed, inputs checked, interruption, the long float64 check."""

import signal
import subprocess
import sys

import numpy as np
import pytest

import pyggml
from llm.running import open_f32, prompt, tiny, topics_text
from oracles import llama as oracle
from pyggml import Llama
from pyggml.errors import ContextError, ParameterError
from pyggml.llm import session as session_module


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return tiny(tmp_path_factory.mktemp("session"))


@pytest.fixture(params=[True, False], ids=["flash", "plain"])
def flash(request):
    return request.param


def counted(action):
    """What the process counters moved by."""
    before = pyggml.counters()
    action()
    return {k: v - before[k] for k, v in pyggml.counters().items() if v != before[k]}


def without_live(change):
    """Counters of what was made; memory that is alive now is not one of them."""
    return {k: v for k, v in change.items() if k in ("allocations", "nodes", "programs")}


@pytest.mark.parametrize("kind", ["f16", "f8_e4m3"])
def test_a_second_decode_step_builds_and_allocates_nothing(model, flash, kind):
    with Llama(model, n_ctx=600, type_k=kind, type_v=kind, flash_attn=flash) as llm:
        llm.eval(prompt(4))
        first = without_live(counted(lambda: llm.eval([1])))
        assert first["programs"] == 1
        assert first["nodes"] > 0
        assert first["allocations"] > 0
        for _ in range(20):
            assert without_live(counted(lambda: llm.eval([2]))) == {}


def test_a_second_decode_step_of_the_default_model(default_model):
    with Llama(default_model, n_ctx=300) as llm:
        llm.eval([504, 3575])
        assert without_live(counted(lambda: llm.eval([282])))["programs"] == 1
        assert without_live(counted(lambda: [llm.eval([i]) for i in (4649, 314, 7042)])) == {}


def test_the_next_bucket_builds_one_program(model):
    with Llama(model, n_ctx=600) as llm:
        llm.eval(prompt(254))
        steps = [without_live(counted(lambda: llm.eval([1]))).get("programs", 0) for _ in range(5)]
    assert steps == [1, 0, 1, 0, 0]  # tokens 255, 256 in 256 cells; from 257 on in 512


def test_the_same_prompt_length_is_replayed(model):
    with Llama(model, n_ctx=64) as llm:
        llm.eval(prompt(7))
        llm.reset()
        assert without_live(counted(lambda: llm.eval(prompt(7, seed=3)))) == {}


def test_programs_are_few_and_old_ones_go(model):
    with open_f32(model) as llm:
        for n in range(1, 20):
            llm.reset()
            llm.eval(prompt(n))
        kept = llm.session._programs
        assert len(kept) == session_module.PROGRAMS
        assert [key[0] for key in kept] == list(range(12, 20))
        llm.reset()
        llm.eval(prompt(12))
        assert [key[0] for key in kept][-1] == 12  # used again, so it is the newest
        again = llm.scores
        llm.reset()
        llm.eval(prompt(1))  # rebuilt
        llm.eval(prompt(12)[1:])
        assert np.abs(llm.scores - again).max() < 1e-5


def test_programs_share_one_arena(model):
    with open_f32(model, n_batch=64) as llm:
        llm.eval(prompt(32))
        largest = llm.session.arena_bytes
        for n in (1, 2, 3, 4):
            llm.eval(prompt(n))
        assert llm.session.arena_bytes == largest > 0


def test_wanted_logits(model):
    ids = prompt(5)
    with open_f32(model) as llm:
        decode, v = llm.session.decode, llm.n_vocab()
        whole = decode(ids, 0, want="all")
        assert whole.shape == (5, v)
        llm.cache.clear()
        assert np.array_equal(decode(ids, 0, want="last"), whole[4:])
        llm.cache.clear()
        assert decode(ids, 0, want="none").shape == (0, v)
        assert llm.cache.length() == 5  # without logits the cache is still written
        assert np.abs(decode([7], 5)[0] - fresh(model, [*ids, 7])).max() < 1e-5


def fresh(model, ids):
    with open_f32(model) as llm:
        llm.eval(ids)
        return llm.scores[-1]


@pytest.mark.parametrize("threads", [1, 2, 3])
def test_the_same_bits_for_every_thread_count(model, threads, flash):
    def run(n):
        with open_f32(model, n_threads=n, flash_attn=flash) as llm:
            llm.eval(prompt(20))
            llm.eval([5])
            return llm.scores

    assert run(threads).tobytes() == run(5).tobytes()


def test_programs_run_with_the_threads_asked_for(model):
    with open_f32(model, n_threads=3) as llm:
        assert llm.session.program(1, 64, 1).threads == 3


@pytest.mark.parametrize(
    ("tokens", "match"),
    [
        ([], "at least one"),
        ([[1, 2]], "flat"),
        (5, "flat"),
        ([1.0, 2.0], "integers"),
        (["1"], "integers"),
        ([True], "integers"),
        ([[1], [2, 3]], "token ids"),
        ([0, -1], "token -1 at place 1"),
        ([0, 267], "token 267 at place 1"),
        ([1 << 31], "outside the vocabulary"),
        ([1 << 70], "token ids|integers"),
        (np.array([2**64 - 1], np.uint64), "outside the vocabulary"),
        (None, "integers"),
    ],
)
def test_bad_tokens(model, tokens, match):
    with open_f32(model) as llm:
        with pytest.raises(ParameterError, match=match):
            llm.session.decode(tokens, 0)
        assert llm.cache.n_used == 0


@pytest.mark.parametrize("kind", [np.int64, np.int32, np.uint8, list, tuple])
def test_token_containers(model, kind):
    ids = [3, 1, 4]
    given = kind(ids) if kind in (list, tuple) else np.array(ids, kind)
    with open_f32(model) as llm:
        assert llm.session.decode(given, 0).shape == (1, llm.n_vocab())


@pytest.mark.parametrize("position", [-1, 1, 3, 5])
def test_positions_follow_on(model, position):
    with open_f32(model) as llm:
        llm.session.decode(prompt(4), 0)
        with pytest.raises(ContextError, match="has 4 tokens"):
            llm.session.decode([1], position)
        assert llm.cache.length() == 4


def test_a_failed_step_leaves_the_cache(model, monkeypatch):
    """Cells count from the end of the step on, not from its beginning."""
    with open_f32(model) as llm:
        llm.eval(prompt(4))
        whole = llm.scores

        def fail(*_args, **_inputs):
            raise pyggml.OutOfMemoryError("no room")

        with monkeypatch.context() as m:
            m.setattr(pyggml.Program, "__call__", fail)
            with pytest.raises(pyggml.OutOfMemoryError):
                llm.eval([1])
        assert (llm.n_tokens, llm.cache.n_used, llm.cache.length()) == (4, 4, 4)
        assert np.array_equal(llm.scores, whole)
        llm.eval([1])
        assert np.abs(llm.scores[-1] - fresh(model, [*prompt(4), 1])).max() < 1e-5


class _Alarm(Exception):
    pass


def eval_with_alarm(llm, ids, seconds):
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        llm.eval(ids)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)


def test_a_signal_stops_a_long_step(default_model):
    """A handler that raises 0.2 s into a step of 1,500 tokens: the step does not end, nor count."""

    def ring(*_args):
        raise _Alarm

    ids = prompt(1500, n_vocab=49000)
    with Llama(default_model, n_ctx=1536, n_batch=1500, n_threads=1) as llm:
        llm.eval(ids[:8])
        answer = llm.scores
        old = signal.signal(signal.SIGALRM, ring)
        try:
            with pytest.raises(_Alarm):
                eval_with_alarm(llm, ids[8:], 0.2)
        finally:
            signal.signal(signal.SIGALRM, old)
        assert (llm.n_tokens, llm.cache.n_used, llm.cache.length()) == (8, 8, 8)
        assert np.array_equal(llm.scores, answer)
        llm.eval([504, 3575])
        stopped = llm.scores
        llm.reset()
        llm.eval(ids[:8])
        llm.eval([504, 3575])
        assert stopped.tobytes() == llm.scores.tobytes()


_INTERRUPTED = """
import os, signal, sys, threading, time
import numpy as np
from pyggml import Llama

ids = np.random.default_rng(1).integers(0, 49000, 900).tolist()
llm = Llama(sys.argv[1], n_ctx=1024, n_batch=400, n_threads=1)
def press():
    while llm.n_tokens == 0:  # the first piece runs to its end
        time.sleep(0.001)
    os.kill(os.getpid(), signal.SIGINT)
thread = threading.Thread(target=press)
thread.start()
try:
    llm.eval(ids)
    print("not interrupted")
except KeyboardInterrupt:
    print("interrupted", llm.n_tokens, llm.cache.n_used, len(llm.scores))
thread.join()
llm.eval(ids[400:410])
after = llm.scores
llm.reset()
llm.eval(ids[:400])
llm.eval(ids[400:410])
print(after.tobytes() == llm.scores.tobytes())
"""


def test_ctrl_c_stops_a_long_prompt(default_model):
    """A real SIGINT in the second of three pieces: the first stays, the third never begins."""
    run = subprocess.run(
        [sys.executable, "-c", _INTERRUPTED, default_model],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert run.stdout.split("\n")[:2] == ["interrupted 400 400 0", "True"], run.stderr


@pytest.fixture(scope="module")
def long_reference(default_model):
    """1,000 ids and their float64 logits."""
    with Llama(default_model, n_ctx=8) as llm:
        ids = llm.tokenize(topics_text()[:8000], add_bos=False)[:1000]
    assert len(ids) == 1000
    weights, config = oracle.load_gguf(default_model)
    return ids, oracle.forward(weights, config, ids)


@pytest.mark.parametrize("n_batch", [512, 7, 1])
def test_a_thousand_tokens_against_float64(default_model, long_reference, n_batch):
    """Crossing the cache buckets at 256, 512 and 768, F32 cache: within 1e-3 at every position."""
    ids, wanted = long_reference
    with open_f32(default_model, n_ctx=1024, logits_all=False) as llm:
        for at in range(0, len(ids), n_batch):
            piece = ids[at : at + n_batch]
            got = llm.session.decode(piece, at, want="all")
            assert np.abs(got - wanted[at : at + len(piece)]).max() < 1e-3
        assert llm.cache.length() == 1000
