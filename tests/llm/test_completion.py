"""Completions in OpenAI's shapes: text, streams, stop strings, log probabilities, limits."""

import json
import threading

import numpy as np
import pytest

from llm.running import oracle_logits, prompt, tiny
from pyggml import Llama
from pyggml.errors import ChatTemplateError, ContextError, ParameterError, SamplingError

GREEDY = {"temperature": 0}
MESSAGES = [{"role": "user", "content": "hello"}]


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    return tiny(tmp_path_factory.mktemp("completion"))


@pytest.fixture
def llm(path):
    with Llama(path, n_ctx=64) as model:
        yield model


def texts(chunks):
    return "".join(c["choices"][0]["text"] for c in chunks)


def text(llm, *args, **kwargs):
    return llm.create_completion(*args, **kwargs)["choices"][0]["text"]


# ---- shapes ----


def test_completion_shape(llm):
    answer = llm.create_completion("hello the", max_tokens=5, **GREEDY)
    assert answer.keys() == {"id", "object", "created", "model", "choices", "usage"}
    assert answer["id"].startswith("cmpl-")
    assert answer["object"] == "text_completion"
    assert answer["model"] == llm.model_path
    assert isinstance(answer["created"], int)
    (choice,) = answer["choices"]
    assert choice.keys() == {"text", "index", "logprobs", "finish_reason"}
    assert (choice["index"], choice["logprobs"], choice["finish_reason"]) == (0, None, "length")
    n = len(llm.tokenize("hello the"))
    assert answer["usage"] == {
        "prompt_tokens": n,
        "completion_tokens": 5,
        "total_tokens": n + 5,
    }
    assert json.loads(json.dumps(answer)) == answer
    assert llm.create_completion("a", max_tokens=1)["id"] != answer["id"]


def test_call_is_create_completion(llm):
    ids = prompt(4)
    assert (
        llm(ids, max_tokens=4, **GREEDY)["choices"]
        == (llm.create_completion(ids, max_tokens=4, **GREEDY)["choices"])
    )


def test_the_text_is_that_of_the_tokens(llm):
    ids = prompt(4)
    shown = text(llm, ids, max_tokens=9, **GREEDY)
    made = llm.timings.token_ids
    assert len(made) == 9
    assert shown == llm.detokenize(made).decode("utf-8", "replace")
    tokens = llm.generate(ids, **GREEDY)
    assert [next(tokens) for _ in range(9)] == made


def test_chat_shape(llm):
    answer = llm.create_chat_completion(MESSAGES, max_tokens=4)
    assert (answer["object"], answer["id"][:9]) == ("chat.completion", "chatcmpl-")
    (choice,) = answer["choices"]
    assert choice.keys() == {"index", "message", "logprobs", "finish_reason"}
    assert choice["message"].keys() == {"role", "content"}
    assert choice["message"]["role"] == "assistant"
    assert answer["usage"]["completion_tokens"] == 4
    rendered = "<|im_start|>user\nhello<|im_end|>\n<|im_start|>assistant\n"
    ids = llm.tokenize(rendered, special=True)
    assert answer["usage"]["prompt_tokens"] == len(ids)
    assert llm.input_ids[: len(ids)].tolist() == ids


def test_chat_is_a_completion_of_the_rendered_prompt(llm):
    rendered = "<|im_start|>user\nhello<|im_end|>\n<|im_start|>assistant\n"
    wanted = text(llm, rendered, max_tokens=8, **GREEDY)
    answer = llm.create_chat_completion(MESSAGES, max_tokens=8, **GREEDY)
    assert answer["choices"][0]["message"]["content"] == wanted


def test_control_tokens_in_messages_stay_text(llm):
    llm.create_chat_completion([{"role": "user", "content": "<|im_end|>"}], max_tokens=1, **GREEDY)
    n_end = llm.input_ids.tolist().count(llm.token_eos())
    assert n_end == 1  # the template's own


# ---- streams ----


@pytest.mark.parametrize("stop", [None, "e", ["zz", "q"]])
@pytest.mark.parametrize("logprobs", [None, 2])
@pytest.mark.parametrize("echo", [False, True])
def test_stream_equals_whole(llm, stop, logprobs, echo):
    options = {"max_tokens": 24, "stop": stop, "logprobs": logprobs, "echo": echo, "seed": 3}
    ids = prompt(6, seed=2)
    whole = llm.create_completion(ids, temperature=2.0, **options)["choices"][0]
    chunks = list(llm.create_completion(ids, temperature=2.0, stream=True, **options))
    assert texts(chunks) == whole["text"]
    choices = [c["choices"][0] for c in chunks]
    assert [c["finish_reason"] for c in choices[:-1]] == [None] * (len(chunks) - 1)
    assert choices[-1]["finish_reason"] == whole["finish_reason"]
    assert len({c["id"] for c in chunks}) == 1
    assert {c["object"] for c in chunks} == {"text_completion"}
    if logprobs is None:
        assert all(c["logprobs"] is None for c in choices)
        return
    for name, values in whole["logprobs"].items():
        joined = [x for c in choices if c["logprobs"] for x in c["logprobs"][name]]
        if name in ("tokens", "text_offset"):
            assert joined == values
        else:  # the echo evaluates the prompt anew, in pieces of another size
            assert str(joined)[:3] == str(values)[:3]


def test_chat_stream_equals_whole(llm):
    options = {"max_tokens": 12, "seed": 5, "temperature": 2.0, "logprobs": True, "top_logprobs": 2}
    whole = llm.create_chat_completion(MESSAGES, **options)["choices"][0]
    chunks = list(llm.create_chat_completion(MESSAGES, stream=True, **options))
    assert {c["object"] for c in chunks} == {"chat.completion.chunk"}
    choices = [c["choices"][0] for c in chunks]
    assert choices[0]["delta"] == {"role": "assistant"}
    assert choices[-1]["delta"] == {}
    assert choices[-1]["finish_reason"] == whole["finish_reason"]
    assert all(c["finish_reason"] is None for c in choices[:-1])
    assert "".join(c["delta"].get("content", "") for c in choices) == whole["message"]["content"]
    probs = [x for c in choices if c["logprobs"] for x in c["logprobs"]["content"]]
    assert [p["token"] for p in probs] == [p["token"] for p in whole["logprobs"]["content"]]


def test_streams_that_take_turns_or_are_left(llm):
    alone = [text(llm, prompt(5, seed=s), max_tokens=8, **GREEDY) for s in (1, 2)]
    a, b = (
        llm.create_completion(prompt(5, seed=s), max_tokens=8, stream=True, **GREEDY)
        for s in (1, 2)
    )
    mixed = [list(x) for x in zip(*zip(a, b, strict=False), strict=True)]
    shown = [texts(chunks) for chunks in mixed]
    assert all(whole.startswith(part) for whole, part in zip(alone, shown, strict=True))
    assert all(shown)
    left = llm.create_completion(prompt(5), max_tokens=8, stream=True, **GREEDY)
    next(left)
    assert text(llm, prompt(5, seed=1), max_tokens=8, **GREEDY) == alone[0]


def test_a_stream_may_change_threads(llm):
    """A server takes each chunk where it has a thread free; an abandoned one locks nobody out."""
    whole = text(llm, prompt(5), max_tokens=8, **GREEDY)
    chunks, found = llm.create_completion(prompt(5), max_tokens=8, stream=True, **GREEDY), []
    thread = threading.Thread(target=lambda: found.append(next(chunks)))
    thread.start()
    thread.join()
    assert texts([*found, *chunks]) == whole
    left = llm.create_completion(prompt(5), max_tokens=8, stream=True, **GREEDY)
    next(left)
    done = []
    thread = threading.Thread(
        target=lambda: done.append(text(llm, prompt(5), max_tokens=8, **GREEDY)), daemon=True
    )
    thread.start()
    thread.join(60)
    assert done == [whole]


def test_arguments_are_checked_before_the_first_chunk(llm):
    for bad in ({"max_tokens": -2}, {"top_p": 2.0}, {"wrong": 1}, {"stop": [1]}):
        with pytest.raises((ParameterError, SamplingError)):
            llm.create_completion("a", stream=True, **bad)
    with pytest.raises(ContextError):
        llm.create_completion(prompt(65), stream=True)


# ---- stop ----


def visible(llm, ids, n=30):
    """A greedy continuation, in ASCII places only, to cut stop strings from."""
    return text(llm, ids, max_tokens=n, temperature=3.0, seed=11)


@pytest.mark.parametrize("length", [1, 2, 5])
@pytest.mark.parametrize("start", [0, 3, 9])
def test_stop_strings_end_the_text(llm, length, start):
    ids, options = prompt(6), {"max_tokens": 30, "temperature": 3.0, "seed": 11}
    whole = visible(llm, ids)
    raw = llm.detokenize(llm.timings.token_ids)
    # a stop string is bytes of the text; take it where both views agree
    stop = raw[start : start + length].decode("latin-1")
    if stop.encode() not in raw:
        stop = next(c for c in whole[start:] if c.encode() in raw)
    choice = llm.create_completion(ids, stop=["never there", stop], **options)["choices"][0]
    cut = raw[: raw.index(stop.encode())].decode("utf-8", "replace")
    assert choice["text"] == cut
    assert choice["finish_reason"] == "stop"
    assert len(llm.timings.token_ids) <= 30


@pytest.mark.parametrize("stop", [None, [], "", ["", ""], "never there"])
def test_stops_that_stop_nothing(llm, stop):
    choice = llm.create_completion(prompt(6), max_tokens=6, stop=stop, **GREEDY)["choices"][0]
    assert choice["finish_reason"] == "length"
    assert choice["text"] == text(llm, prompt(6), max_tokens=6, **GREEDY)


def test_stop_text_in_the_prompt_does_not_stop(llm):
    choice = llm.create_completion("hello", stop="hello", max_tokens=4, **GREEDY)["choices"][0]
    assert choice["finish_reason"] == "length"
    echoed = llm.create_completion("hello", stop="hello", echo=True, max_tokens=4, **GREEDY)
    assert echoed["choices"][0]["text"] == "hello" + choice["text"]


def test_stop_on_the_last_token(llm):
    whole = text(llm, "hello", max_tokens=1, logit_bias={ord("A"): 1000}, **GREEDY)
    assert whole == "A"
    choice = llm.create_completion(
        "hello", max_tokens=1, stop="A", logit_bias={ord("A"): 1000}, logprobs=1, **GREEDY
    )["choices"][0]
    assert (choice["text"], choice["finish_reason"]) == ("", "stop")
    assert choice["logprobs"]["tokens"] == ["A"]


def test_end_of_text_ends(llm):
    answer = llm.create_completion(
        "hello", max_tokens=9, logit_bias={llm.token_eos(): 1000}, logprobs=1, **GREEDY
    )
    assert answer["choices"][0]["text"] == ""
    assert answer["choices"][0]["finish_reason"] == "stop"
    assert answer["usage"]["completion_tokens"] == 1


def test_an_end_that_is_no_control_token_is_not_shown(tmp_path):
    """Some files type their end of text as a normal token; its spelling is still no text."""
    path = tiny(tmp_path, metadata={"tokenizer.ggml.eos_token_id": (ord("A"), "u32")})
    with Llama(path, n_ctx=64) as llm:
        assert llm.detokenize([ord("A")]) == b"A"
        answer = llm.create_completion("hello", max_tokens=9, logit_bias={ord("A"): 1000}, **GREEDY)
    assert answer["choices"][0]["text"] == ""
    assert answer["choices"][0]["finish_reason"] == "stop"


# ---- log probabilities ----


def log_softmax(row):
    row = row - row.max()
    return row - np.log(np.exp(row).sum())


def test_logprobs_against_the_oracle(path):
    ids = prompt(5)
    with Llama(path, n_ctx=64, type_k="f32", type_v="f32") as llm:
        probs = llm.create_completion(ids, max_tokens=6, logprobs=3, seed=1, temperature=3.0)[
            "choices"
        ][0]["logprobs"]
        made = llm.timings.token_ids
        spelled = [llm.tokenizer.token_bytes(t).decode("utf-8", "replace") for t in made]
        spell = llm.tokenizer.token_bytes
        assert probs.keys() == {"tokens", "token_logprobs", "top_logprobs", "text_offset"}
        assert probs["tokens"] == spelled
        rows = oracle_logits(path, ids + made)
        for i, token in enumerate(made):
            log_p = log_softmax(rows[len(ids) - 1 + i])
            assert abs(probs["token_logprobs"][i] - log_p[token]) < 1e-4
            best = [int(b) for b in np.argsort(-log_p)[:3]]
            wanted = {spell(b).decode("utf-8", "replace"): log_p[b] for b in best}
            assert probs["top_logprobs"][i] == pytest.approx(wanted, abs=1e-4)
    assert probs["text_offset"] == [sum(map(len, spelled[:i])) for i in range(6)]


def test_logprobs_do_not_depend_on_the_filters(llm):
    biased = {"logit_bias": {5: 1000.0}, "max_tokens": 1, "logprobs": 1}
    choice = llm.create_completion(prompt(5), **biased, **GREEDY)["choices"][0]
    assert llm.timings.token_ids == [5]
    assert choice["logprobs"]["token_logprobs"][0] < -1


@pytest.mark.parametrize("n", [0, 1, 300])
def test_how_many_top_logprobs(llm, n):
    probs = llm.create_completion(prompt(5), max_tokens=2, logprobs=n)["choices"][0]["logprobs"]
    assert len(probs["token_logprobs"]) == 2
    # different bytes that are no text of their own share the spelling U+FFFD
    assert all(len(top) <= n for top in probs["top_logprobs"])
    assert n != 1 or all(len(top) == 1 for top in probs["top_logprobs"])


@pytest.mark.parametrize("n", [-1, 1001, "5", 1.5])
def test_bad_logprobs(llm, n):
    with pytest.raises(ParameterError, match="logprobs"):
        llm.create_completion("a", logprobs=n)


def test_echo_with_logprobs_covers_the_prompt(path):
    """The first token of the prompt has no probability: null, in both lists."""
    ids = prompt(7)
    rows = oracle_logits(path, ids)
    for n_batch in (3, 7, 64):
        with Llama(path, n_ctx=64, n_batch=n_batch, type_k="f32", type_v="f32") as llm:
            llm.eval(prompt(4, seed=9))  # the echo does not continue what was there
            answer = llm.create_completion(ids, max_tokens=2, echo=True, logprobs=1, **GREEDY)
            made = llm.timings.token_ids
            choice = answer["choices"][0]
            probs = choice["logprobs"]
            assert answer["usage"]["completion_tokens"] == 2
            assert len(probs["tokens"]) == 9
            assert (probs["token_logprobs"][0], probs["top_logprobs"][0]) == (None, None)
            wanted = [log_softmax(row)[t] for row, t in zip(rows, [*ids[1:], made[0]], strict=True)]
            assert probs["token_logprobs"][1:8] == pytest.approx(wanted, abs=1e-4)
            assert probs["text_offset"][0] == 0
            assert json.loads(json.dumps(answer)) == answer


def test_echo_alone(llm):
    answer = llm.create_completion("hello the", max_tokens=0, echo=True, logprobs=0)
    choice = answer["choices"][0]
    assert (choice["text"], choice["finish_reason"]) == ("hello the", "length")
    assert answer["usage"]["completion_tokens"] == 0
    assert len(choice["logprobs"]["tokens"]) == answer["usage"]["prompt_tokens"]
    assert choice["logprobs"]["text_offset"] == [0, 5]


# ---- limits ----


@pytest.mark.parametrize(
    ("n_prompt", "max_tokens", "made"),
    [
        (15, 1, 1), (15, 2, 2), (15, 100, 2), (15, None, 2), (15, -1, 2),
        (16, 1, 1), (16, 100, 1), (16, None, 1), (16, 0, 0),
        (4, 12, 12), (4, 13, 13), (4, 14, 13),
    ],
)  # fmt: skip
def test_context_edges(path, n_prompt, max_tokens, made):
    """G2: of n_ctx 16; the last token sampled needs no room."""
    with Llama(path, n_ctx=16) as llm:
        answer = llm.create_completion(
            prompt(n_prompt), max_tokens=max_tokens, logit_bias={266: -np.inf}, **GREEDY
        )
        assert answer["usage"]["completion_tokens"] == made
        assert answer["choices"][0]["finish_reason"] == "length"
        assert llm.n_tokens <= 16


@pytest.mark.parametrize("max_tokens", [1, 100, None, -1, 0])
def test_a_prompt_that_does_not_fit(path, max_tokens):
    with Llama(path, n_ctx=16) as llm:
        with pytest.raises(ContextError, match=r"17 tokens .* 16"):
            llm.create_completion(prompt(17), max_tokens=max_tokens)
        assert llm.n_tokens == 0


@pytest.mark.parametrize("max_tokens", [-2, 1.5, "3", True])
def test_bad_max_tokens(llm, max_tokens):
    with pytest.raises(ParameterError, match="max_tokens"):
        llm.create_completion("a", max_tokens=max_tokens)


def test_no_tokens_wanted(llm):
    answer = llm.create_completion("hello", max_tokens=0)
    assert answer["choices"][0]["text"] == ""
    assert answer["choices"][0]["finish_reason"] == "length"
    assert answer["usage"]["completion_tokens"] == 0
    assert llm.n_tokens == answer["usage"]["prompt_tokens"]


@pytest.mark.parametrize("empty", ["", b"", [], ()])
def test_an_empty_prompt_is_bos(llm, empty):
    """G1: BOS alone, which has a distribution to sample from."""
    answer = llm.create_completion(empty, max_tokens=3, **GREEDY)
    assert answer["usage"]["prompt_tokens"] == 1
    assert llm.input_ids[0] == llm.token_bos()


def test_an_empty_prompt_without_bos(tmp_path):
    path = tiny(tmp_path, metadata={"tokenizer.ggml.bos_token_id": None})
    with Llama(path, n_ctx=16) as llm:
        if llm.token_bos() == -1:
            with pytest.raises(ParameterError, match="no BOS"):
                llm.create_completion("")
        else:
            raise AssertionError(llm.token_bos())


@pytest.mark.parametrize("messages", [[], None, "hello", [{}], [{"role": "user"}]])
def test_no_messages(llm, messages):
    with pytest.raises(ChatTemplateError):
        llm.create_chat_completion(messages)
    assert llm.n_tokens == 0


@pytest.mark.parametrize("ids", [[267], [-1], [1.5], ["a"], [[1]]])
def test_bad_prompt_ids(llm, ids):
    with pytest.raises(ParameterError):
        llm.create_completion(ids, echo=True)


@pytest.mark.parametrize("what", [5, None, 1.5])
def test_what_is_no_prompt(llm, what):
    with pytest.raises(ParameterError, match=f"text or token ids, not {type(what).__name__}"):
        llm(what)


# ---- sampling ----


def test_seeds(path):
    hot = {"temperature": 3.0, "top_k": 0, "top_p": 1.0, "min_p": 0.0, "max_tokens": 20}
    with Llama(path, n_ctx=64) as llm:
        runs = [text(llm, "hello", seed=s, **hot) for s in (1, 1, 2)]
        assert runs[0] == runs[1] != runs[2]
        assert len({text(llm, "hello", **hot) for _ in range(4)}) > 1
    with Llama(path, n_ctx=64, seed=2) as llm:
        assert text(llm, "hello", **hot) == runs[2]
        assert text(llm, "hello", seed=1, **hot) == runs[0]
        assert text(llm, "hello", seed=None, **hot) == runs[2]


@pytest.mark.parametrize("name", ["heat", "n", "best_of", "max_new_tokens"])
def test_unknown_parameters_are_named(llm, name):
    for call in (
        lambda: llm.create_completion("a", **{name: 1}),
        lambda: llm.create_chat_completion(MESSAGES, **{name: 1}),
    ):
        with pytest.raises(ParameterError, match=name):
            call()


@pytest.mark.parametrize("bad", [{"temperature": np.nan}, {"top_p": 2}, {"seed": -1}])
def test_bad_parameters(llm, bad):
    with pytest.raises(SamplingError, match=next(iter(bad))):
        llm.create_completion("a", **bad)
    assert llm.n_tokens == 0


def test_chat_is_cooler_by_default(llm, monkeypatch):
    from pyggml.llm import model

    seen = []
    whole = model.Sampler

    def recorded(params, n_vocab):
        seen.append(params.temperature)
        return whole(params, n_vocab)

    monkeypatch.setattr(model, "Sampler", recorded)
    llm.create_chat_completion(MESSAGES, max_tokens=1)
    llm.create_chat_completion(MESSAGES, max_tokens=1, temperature=1.5)
    llm.create_chat_completion(MESSAGES, max_tokens=1, temp=1.25)
    llm.create_completion("a", max_tokens=1)
    assert seen == [0.2, 1.5, 1.25, 0.8]


def test_caller_arguments_are_left_alone(llm):
    options = {"max_tokens": 2, "seed": None}
    kwargs = {"b": 1}
    llm.create_chat_completion(MESSAGES, template_kwargs=kwargs, **options)
    assert options == {"max_tokens": 2, "seed": None}
    assert kwargs == {"b": 1}
    assert MESSAGES == [{"role": "user", "content": "hello"}]
