"""Sampling: fault case F9 and every filter against a slow oracle that keeps dictionaries."""

import dataclasses
import math
import pickle
from collections import Counter
from fractions import Fraction

import numpy as np
import pytest

from pyggml.errors import SamplingError
from pyggml.llm.sampler import Sampler, SamplingParams

OFF = SamplingParams(temperature=1.0, top_k=0, top_p=1.0, min_p=0.0)


def off(**changes):
    return dataclasses.replace(OFF, **changes)


def oracle(logits, params, history=()):
    """Return {id: probability}, filter by filter, one id at a time."""
    logits = {i: float(x) for i, x in enumerate(logits)}
    for token, bias in (params.logit_bias or {}).items():
        logits[token] = bias if math.isinf(bias) else logits[token] + bias
    n = params.penalty_last_n
    recent = list(history) if n < 0 else list(history)[max(0, len(history) - n) :]
    for token, count in Counter(recent).items():
        x = logits[token]
        x = x / params.repeat_penalty if x > 0 else x * params.repeat_penalty
        logits[token] = x - count * params.frequency_penalty - params.presence_penalty
    ranked = sorted((i for i in logits if logits[i] > -math.inf), key=lambda i: (-logits[i], i))
    if params.temperature == 0:
        return {ranked[0]: 1.0}
    if params.top_k:
        ranked = ranked[: params.top_k]
    likely = soften({i: logits[i] for i in ranked}, 1.0)
    if params.top_p < 1:
        kept, total = [], 0.0
        for i in ranked:
            kept.append(i)
            total += likely[i]
            if total >= params.top_p:
                break
        ranked = kept
    if params.min_p > 0:
        ranked = [i for i in ranked if likely[i] >= params.min_p * likely[ranked[0]] * (1 - 1e-12)]
    return soften({i: logits[i] for i in ranked}, params.temperature)


def soften(logits, temperature):
    top = max(logits.values())
    weights = {i: math.exp((x - top) / temperature) for i, x in logits.items()}
    total = math.fsum(weights.values())
    return {i: w / total for i, w in weights.items()}


def distribution(logits, params, history=()):
    ids, probs = Sampler(params, len(logits)).probabilities(np.array(logits), history)
    assert math.isclose(probs.sum(), 1.0, rel_tol=1e-12)
    assert list(probs) == sorted(probs, reverse=True)
    return dict(zip(ids.tolist(), probs.tolist(), strict=True))


def assert_same(got, want):
    assert list(got) == list(want)
    assert list(got.values()) == pytest.approx(list(want.values()), rel=1e-12, abs=0)


@pytest.mark.parametrize(
    "params",
    [
        OFF,
        SamplingParams(),
        off(temperature=0.0),
        off(temperature=0.7),
        off(temperature=3.0),
        off(top_k=1),
        off(top_k=7),
        off(top_k=49),
        off(top_k=50),
        off(top_k=10**9),
        off(top_p=0.0),
        off(top_p=1e-9),
        off(top_p=0.5),
        off(top_p=0.999),
        off(min_p=0.01),
        off(min_p=0.3),
        off(min_p=1.0),
        off(repeat_penalty=1.3),
        off(repeat_penalty=0.8),
        off(presence_penalty=0.6),
        off(presence_penalty=-0.6),
        off(frequency_penalty=0.4),
        off(repeat_penalty=1.2, presence_penalty=0.3, frequency_penalty=0.2, penalty_last_n=-1),
        off(repeat_penalty=1.2, penalty_last_n=0),
        off(repeat_penalty=1.2, penalty_last_n=3),
        off(logit_bias={3: 2.5, 7: -1.5, 11: -math.inf}),
        off(logit_bias={3: 5.0}, repeat_penalty=1.5, top_k=5),
        SamplingParams(temperature=1.7, top_k=20, top_p=0.9, min_p=0.02, frequency_penalty=0.1),
    ],
)
def test_distribution(params):
    rng = np.random.default_rng(9)
    for dtype in (np.float32, np.float64):
        logits = (rng.standard_normal(50) * 3).astype(dtype)
        history = rng.integers(0, 50, 90).tolist()
        assert_same(distribution(logits, params, history), oracle(logits, params, history))


def test_order_of_the_filters():
    # Top-p sees the distribution before the temperature: 0.73 and 0.27 here, so 0.7 keeps one
    # whatever the temperature; after a temperature of 10 it would keep two.
    assert distribution([1.0, 0.0], off(top_p=0.7, temperature=10.0)) == {0: 1.0}
    # Top-p works on what top-k left: of 4 equal ones, top-k 2 makes halves.
    assert list(distribution([0.0] * 4, off(top_k=2, top_p=0.5))) == [0]
    # A penalty comes before top-k.
    assert list(distribution([2.0, 1.5], off(top_k=1, presence_penalty=1.0), [0])) == [1]
    # The bias comes before the penalties: 1 + 3 is positive, so it is divided.
    got = distribution([1.0, 0.0], off(logit_bias={0: 3.0}, repeat_penalty=2.0), [0])
    assert got[0] == pytest.approx(1 / (1 + math.exp(-2.0)), rel=1e-14)


def test_penalties_by_hand():
    params = off(repeat_penalty=2.0, frequency_penalty=0.5, presence_penalty=0.25)
    got = distribution([4.0, -4.0, 0.0, 1.0], params, [0, 0, 1])
    logits = [4.0 / 2 - 2 * 0.5 - 0.25, -4.0 * 2 - 0.5 - 0.25, 0.0, 1.0]
    assert got == pytest.approx(oracle(logits, OFF), rel=1e-14)
    # Only the last tokens count.
    got = distribution([1.0, 1.0], off(presence_penalty=1.0, penalty_last_n=2), [0, 1, 1])
    assert got[0] > got[1]


def test_ties_go_to_the_lowest_id():
    logits = [1.0, 3.0, 2.0, 3.0, 2.0, 2.0, 3.0]
    assert list(distribution(logits, off(top_k=2))) == [1, 3]
    assert list(distribution(logits, off(top_k=4))) == [1, 3, 6, 2]
    assert list(distribution(logits, off(top_k=5))) == [1, 3, 6, 2, 4]
    assert list(distribution([0.0] * 6, off(top_k=3))) == [0, 1, 2]
    assert list(distribution([0.0] * 4, off(top_p=0.5))) == [0, 1]
    assert list(distribution([0.0] * 4, off(min_p=1.0))) == [0, 1, 2, 3]
    assert Sampler(SamplingParams(temperature=0), 7).sample(np.array(logits)) == 1
    assert Sampler(SamplingParams(temperature=0), 6).sample(np.zeros(6, np.float32)) == 0


def test_random_ties_against_the_oracle():
    rng = np.random.default_rng(10)
    for _ in range(400):
        logits = rng.integers(-3, 3, rng.integers(1, 12)).astype(np.float32)
        logits[rng.random(len(logits)) < 0.2] = -np.inf
        logits[rng.integers(len(logits))] = 1.0
        # Powers of two and no top-p border that rounding could move.
        params = off(top_k=int(rng.integers(0, 8)), min_p=float(rng.choice([0.0, 0.25, 1.0])))
        assert_same(distribution(logits, params), oracle(logits, params))


@pytest.mark.parametrize("temperature", [1e-6, 1e-300, 5e-324])
def test_tiny_temperature_is_nearly_greedy(temperature):
    got = distribution([1.0, 3.0, 2.0], off(temperature=temperature))
    assert got == {1: 1.0, 2: 0.0, 0: 0.0}
    assert distribution([3.0, 3.0], off(temperature=temperature)) == {0: 0.5, 1: 0.5}


def test_huge_logits_and_temperatures():
    assert distribution([1e308, -1e308], OFF) == {0: 1.0, 1: 0.0}
    assert distribution([5.0, 1.0], off(temperature=1e308)) == {0: 0.5, 1: 0.5}
    assert distribution(np.array([3e38, 0], np.float32), SamplingParams()) == {0: 1.0}


@pytest.mark.parametrize("params", [OFF, SamplingParams(), off(temperature=0.0), off(top_k=1)])
@pytest.mark.parametrize("extra", [{}, {"presence_penalty": 1.0}, {"logit_bias": {0: 1.0}}])
def test_unusable_logits(params, extra):
    sampler = Sampler(dataclasses.replace(params, **extra), 4)
    for place in range(4):
        logits = np.array([1.0, 2.0, np.inf, -np.inf], np.float32)
        logits[place] = np.nan
        with pytest.raises(SamplingError, match=f"token {place} is NaN"):
            sampler.sample(logits, [1])
    with pytest.raises(SamplingError, match="every logit is -inf"):
        sampler.sample(np.full(4, -np.inf), [1])
    for shape in [(), (3,), (5,), (1, 4)]:
        with pytest.raises(SamplingError, match="shape"):
            sampler.sample(np.zeros(shape))
    with pytest.raises(SamplingError, match="logits are"):
        sampler.sample(np.array(["a"] * 4))


def test_infinite_logits():
    inf = math.inf
    assert distribution([1.0, inf, 9.0, inf], OFF) == {1: 0.5, 3: 0.5}
    assert distribution([1.0, inf, 9.0, inf], off(top_k=1)) == {1: 1.0}
    assert distribution([1.0, inf, 9.0, inf], SamplingParams(temperature=0)) == {1: 1.0}
    assert list(distribution([1.0, -inf, 2.0], OFF)) == [2, 0]
    assert list(distribution([-inf, -inf, 2.0], off(top_k=2))) == [2]


def test_infinite_biases():
    inf = math.inf
    assert list(distribution([5.0, 1.0], off(logit_bias={0: -inf}))) == [1]
    assert distribution([inf, 1.0], off(logit_bias={0: -inf})) == {1: 1.0}
    assert distribution([-inf, 1.0], off(logit_bias={0: inf})) == {0: 1.0}
    assert distribution([5.0, 1.0], off(logit_bias={0: -inf, 1: inf})) == {1: 1.0}
    # A ban outlives a penalty that would lift the token, however far.
    params = off(logit_bias={0: -inf}, presence_penalty=-1e308, frequency_penalty=-1e308)
    assert distribution([5.0, 1.0], params, [0, 0, 0]) == {1: 1.0}
    with pytest.raises(SamplingError, match="every logit"):
        distribution([5.0, 1.0], off(logit_bias={0: -inf, 1: -inf}))


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("temperature", [-1, -1e-9, math.nan, math.inf, "1", None, True, 1j]),
        ("top_k", [-1, 1.5, math.nan, "3", None, True]),
        ("top_p", [-0.1, 1.1, math.nan, math.inf, None, "0.5"]),
        ("min_p", [-0.1, 1.1, math.nan, None]),
        ("repeat_penalty", [0, -1, math.nan, math.inf, None]),
        ("presence_penalty", [math.nan, math.inf, None]),
        ("frequency_penalty", [math.nan, -math.inf, "x"]),
        ("penalty_last_n", [-2, 0.5, None]),
        ("seed", [-1, 0.5, "7", True]),
        ("logit_bias", [[1], "a", {-1: 1.0}, {"a": 1.0}, {1: math.nan}, {1: "x"}, {1: None}]),
    ],
)
def test_parameters_out_of_range(name, values):
    for value in values:
        with pytest.raises(SamplingError, match=name):
            SamplingParams(**{name: value})


def test_the_error_gives_the_value():
    with pytest.raises(SamplingError, match=r"top_p is 1\.5, expected a number in 0 \.\. 1"):
        SamplingParams(top_p=1.5)


def test_parameters_become_plain_numbers():
    bias = {np.int64(3): np.float32(0.5)}
    params = SamplingParams(
        temperature=np.float32(0.5), top_k=np.int32(3), top_p=Fraction(1, 2), logit_bias=bias
    )
    bias[np.int64(4)] = 1.0
    assert params.logit_bias == {3: 0.5}
    assert [type(x) for x in (params.temperature, params.top_k, params.top_p)] == [
        float,
        int,
        float,
    ]
    assert pickle.loads(pickle.dumps(params)) == params
    with pytest.raises(dataclasses.FrozenInstanceError):
        params.top_k = 1


def test_bias_outside_the_vocabulary():
    with pytest.raises(SamplingError, match=r"logit_bias id 4 is outside 0 \.\. 3"):
        Sampler(off(logit_bias={4: 1.0}), 4)
    with pytest.raises(SamplingError, match="n_vocab"):
        Sampler(OFF, 0)


@pytest.mark.parametrize("history", [[4], [-1], [0.5], ["a"]])
def test_history_outside_the_vocabulary(history):
    with pytest.raises(SamplingError, match="history"):
        Sampler(off(presence_penalty=1.0), 4).sample(np.zeros(4), history)


def test_the_seed_decides():
    logits = np.random.default_rng(1).standard_normal(300)

    def draw(sampler, n=40):
        return [sampler.sample(logits) for _ in range(n)]

    params = off(seed=5)
    first = draw(Sampler(params, 300))
    assert first == draw(Sampler(params, 300))
    assert first != draw(Sampler(off(seed=6), 300))
    sampler = Sampler(params, 300)
    draw(sampler, 7)
    sampler.reset()
    assert first == draw(sampler)
    sampler.reset(6)
    assert draw(sampler) == draw(Sampler(off(seed=6), 300))
    assert draw(Sampler(OFF, 300)) != draw(Sampler(OFF, 300))
    with pytest.raises(SamplingError, match="seed"):
        sampler.reset(-1)
    sampler.reset(5)
    sampler.skip(7)
    assert draw(sampler, 33) == first[7:]
    with pytest.raises(SamplingError, match="skip"):
        sampler.skip(-1)


def test_draws_follow_the_distribution_by_inversion():
    logits = np.random.default_rng(2).standard_normal(30)
    sampler, twin = Sampler(off(seed=11), 30), np.random.Generator(np.random.PCG64(11))
    ids, probs = sampler.probabilities(logits)
    for _ in range(300):
        # The id whose slice of 0 .. 1 holds u.
        u, edges = twin.random(), np.cumsum(probs).tolist()
        drawn = next(i for i, edge in zip(ids.tolist(), edges, strict=True) if u < edge)
        assert sampler.sample(logits) == drawn


@pytest.mark.parametrize(("u", "token"), [(0.0, 1), (0.25, 0), (0.49, 0), (0.5, 2), (0.999, 3)])
def test_a_draw_on_a_border_belongs_to_the_next_token(u, token):
    class Fixed:
        def random(self):
            return u

    sampler = Sampler(off(top_k=4), 5)
    sampler._rng = Fixed()
    sampler.probabilities = lambda *_: (np.array([1, 0, 2, 3]), np.full(4, 0.25))
    assert sampler.sample(np.zeros(5)) == token


def test_a_token_of_probability_zero_is_never_drawn():
    sampler = Sampler(off(temperature=1e-6, seed=1), 3)
    assert {sampler.sample(np.array([0.0, 9.0, -np.inf])) for _ in range(200)} == {1}


def test_inputs_are_left_alone():
    params = off(seed=1, logit_bias={0: 1.0}, repeat_penalty=2.0, top_k=2)
    for dtype in (np.float16, np.float32, np.float64):
        logits = np.array([1.0, 2.0, np.inf, -np.inf], dtype)
        logits.flags.writeable = False
        history = [0, 1]
        Sampler(params, 4).sample(logits, history)
        assert logits.tolist() == [1.0, 2.0, np.inf, -np.inf]
        assert history == [0, 1]
    assert Sampler(SamplingParams(temperature=0), 3).sample([1, 5, 2]) == 1
    assert type(Sampler(OFF, 3).sample(np.zeros(3))) is int
