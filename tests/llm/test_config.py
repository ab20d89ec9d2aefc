"""Hyper-parameters from metadata: what is taken, what is refused and by which name."""

import math

import numpy as np
import pytest

from llm.running import tiny
from pyggml import Llama
from pyggml.errors import ModelError
from pyggml.llm.config import LlamaConfig

BASE = {
    "general.architecture": "llama",
    "llama.block_count": 2,
    "llama.context_length": 128,
    "llama.embedding_length": 64,
    "llama.feed_forward_length": 96,
    "llama.attention.head_count": 4,
    "llama.attention.layer_norm_rms_epsilon": 1e-5,
}


def read(**keys):
    """Config of BASE with keys changed; `__` stands for a dot, None takes a key away."""
    changes = {"llama." + k.replace("__", "."): v for k, v in keys.items()}
    return LlamaConfig.from_metadata(
        {k: v for k, v in (BASE | changes).items() if v is not None}, "m.gguf"
    )


def test_defaults():
    c = read()
    assert (c.n_layers, c.n_embd, c.n_ff, c.n_ctx_train) == (2, 64, 96, 128)
    assert (c.n_heads, c.n_kv_heads, c.head_dim, c.rope_dims) == (4, 4, 16, 16)
    assert (c.rope_base, c.rope_scale, c.rms_eps, c.n_vocab) == (10000.0, 1.0, 1e-5, 0)
    assert c.attn_scale == 1 / math.sqrt(16)


def test_stated_values_win():
    c = read(
        attention__head_count_kv=2,
        attention__key_length=32,
        attention__value_length=32,
        attention__scale=0.5,
        rope__dimension_count=8,
        rope__freq_base=5e5,
        vocab_size=300,
    )
    assert (c.n_kv_heads, c.head_dim, c.rope_dims, c.rope_base) == (2, 32, 8, 5e5)
    assert (c.attn_scale, c.n_vocab) == (0.5, 300)


def test_one_value_a_layer_is_taken_while_all_agree():
    assert read(attention__head_count_kv=np.array([2, 2])).n_kv_heads == 2
    with pytest.raises(ModelError, match=r"head_count_kv.*layer to layer"):
        read(attention__head_count_kv=np.array([2, 4]))
    with pytest.raises(ModelError, match="head_count_kv"):
        read(attention__head_count_kv=np.array([], np.int32))


@pytest.mark.parametrize(
    ("keys", "scale"),
    [
        ({"rope__scaling__type": "none", "rope__scaling__factor": 4.0}, 1.0),
        ({"rope__scaling__type": "linear", "rope__scaling__factor": 4.0}, 0.25),
        ({"rope__scaling__factor": 2.0}, 0.5),
        ({"rope__scale_linear": 8.0}, 0.125),
    ],
)
def test_linear_rope_scaling(keys, scale):
    assert read(**keys).rope_scale == scale


@pytest.mark.parametrize("kind", ["yarn", "longrope", "", 3])
def test_other_rope_scalings_are_refused(kind):
    with pytest.raises(ModelError, match=r"rope\.scaling\.type"):
        read(rope__scaling__type=kind)


@pytest.mark.parametrize(
    "key",
    [
        "rope__scaling__attn_factor",
        "rope__scaling__yarn_log_multiplier",
        "attention__sliding_window",
        "attention__clamp_kqv",
        "rope__dimension_sections",
    ],
)
def test_keys_that_change_the_arithmetic_are_not_ignored(key):
    name = "llama." + key.replace("__", ".")
    with pytest.raises(ModelError, match=name.replace(".", r"\.")):
        read(**{key: 1})


def test_other_keys_are_free():
    assert read(tensor_data_layout="x", logit_note=3).n_layers == 2


@pytest.mark.parametrize("arch", ["mamba", "qwen2", "", None, 7])
def test_another_architecture_is_refused_by_name(arch):
    keys = {**BASE, "general.architecture": arch}
    with pytest.raises(ModelError, match=rf"m\.gguf: architecture {arch!r}"):
        LlamaConfig.from_metadata(keys, "m.gguf")


def test_another_architecture_is_refused_before_weights_are_read(tmp_path, monkeypatch):
    def read_weights(*_args):
        raise AssertionError("weights were read")

    monkeypatch.setattr("pyggml.llm.model.load_weights", read_weights)
    path = tiny(tmp_path, metadata={"general.architecture": ("mamba", "string")})
    with pytest.raises(ModelError, match="'mamba'"):
        Llama(path)


@pytest.mark.parametrize(
    "key",
    [
        "block_count",
        "context_length",
        "embedding_length",
        "feed_forward_length",
        "attention__head_count",
        "attention__layer_norm_rms_epsilon",
    ],
)
def test_missing_keys_are_named(key):
    with pytest.raises(ModelError, match=key.replace("__", r"\.") + ": is missing"):
        read(**{key: None})


@pytest.mark.parametrize("value", [0, -1, 1 << 31, 1 << 63, True, 4.0, "4", [4]])
@pytest.mark.parametrize("key", ["block_count", "attention__head_count", "embedding_length"])
def test_counts_are_positive_integers(key, value):
    with pytest.raises(ModelError, match=key.replace("__", r"\.")):
        read(**{key: value})


@pytest.mark.parametrize("value", [0.0, -1e-5, math.nan, math.inf, "1e-5", True])
@pytest.mark.parametrize(
    "key", ["attention__layer_norm_rms_epsilon", "rope__freq_base", "rope__scaling__factor"]
)
def test_constants_are_finite_and_positive(key, value):
    with pytest.raises(ModelError, match=key.replace("__", r"\.")):
        read(**{key: value})


@pytest.mark.parametrize(
    ("keys", "name"),
    [
        ({"attention__head_count": 6, "embedding_length": 96, "attention__head_count_kv": 4},
         "head_count"),
        ({"attention__head_count": 3}, "head_count"),
        ({"attention__head_count_kv": 0}, "head_count_kv"),
        ({"attention__head_count_kv": 8}, "head_count"),
        ({"attention__key_length": 0}, "key_length"),
        ({"attention__key_length": 65, "attention__value_length": 65}, "dimension_count"),
        ({"attention__key_length": 3}, "dimension_count"),
        ({"attention__value_length": 8}, "value_length"),
        ({"rope__dimension_count": 7}, "dimension_count"),
        ({"rope__dimension_count": 0}, "dimension_count"),
        ({"rope__dimension_count": 18}, "dimension_count"),
        ({"block_count": 1025}, "block_count"),
        ({"expert_count": 8}, "expert_count"),
    ],
)  # fmt: skip
def test_impossible_sizes_are_refused(keys, name):
    with pytest.raises(ModelError, match=name):
        read(**keys)
