"""Tensors into their places: what is missing, misshapen, left over, not finite or badly scaled."""

import gc

import numpy as np
import pytest

from llm.running import logits_of, oracle_logits, prompt
from llm.tiny_model import make_tiny_model
from oracles import nmse
from pyggml import Llama
from pyggml.errors import ModelError, PyggmlError
from pyggml.gguf import GGUFFile, GGUFWriter
from pyggml.llm.config import LlamaConfig
from pyggml.llm.weights import load_weights

LINEARS = ("attn_q", "attn_k", "attn_v", "attn_output", "ffn_gate", "ffn_up", "ffn_down")


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    return make_tiny_model(tmp_path_factory.mktemp("weights") / "a.gguf", tied=False, biases=True)


@pytest.fixture
def change(source, tmp_path):
    """Writes the model with tensors dropped, renamed (name -> name) or replaced."""

    def write(drop=(), rename=None, **add):
        target = tmp_path / "changed.gguf"
        added = {k.replace("__", "."): v for k, v in add.items()}
        with GGUFFile(source) as file, GGUFWriter(target) as writer:
            writer.copy_metadata(file)
            for info in file.tensors.values():
                if info.name not in drop and info.name not in added:
                    writer.copy_tensor(info, (rename or {}).get(info.name))
            for name, (array, kind) in added.items():
                writer.add_tensor(name, array, kind)
        return target

    return write


def load(path, check=False):
    with GGUFFile(path) as file:
        return load_weights(file, LlamaConfig.from_metadata(file.metadata, str(path)), check)


def f32(*shape, value=1.0):
    return np.full(shape, value, np.float32), "f32"


def test_everything_has_its_place(source):
    w = load(source)
    assert (len(w.layers), w.n_vocab, w.tied, w.rope_factors, w.kv_scales) == (
        2,
        267,
        False,
        None,
        {},
    )
    assert w.embedding.shape == w.head.weight.shape == (267, 64)
    with GGUFFile(source) as file:
        raw = {name: info.raw.tobytes() for name, info in file.tensors.items()}
    for i, layer in enumerate(w.layers):
        parts = (layer.q, layer.k, layer.v, layer.out, layer.gate, layer.up, layer.down)
        for name, part in zip(LINEARS, parts, strict=True):
            assert part.weight.raw().tobytes() == raw[f"blk.{i}.{name}.weight"]
        assert layer.attn_norm.raw().tobytes() == raw[f"blk.{i}.attn_norm.weight"]
        assert layer.ffn_norm.raw().tobytes() == raw[f"blk.{i}.ffn_norm.weight"]
        assert layer.k.bias.raw().tobytes() == raw[f"blk.{i}.attn_k.bias"]
    assert w.norm.raw().tobytes() == raw["output_norm.weight"]
    per_layer = 64 * 64 + 2 * 64 * 32 + 64 * 64 + 3 * 64 * 96
    assert w.nbytes == 4 * (2 * per_layer + 267 * 64)


def test_weights_are_mapped_and_outlive_the_file(source):
    w = load(source)
    gc.collect()
    tensors = [w.embedding, w.norm, w.layers[1].down.weight]
    assert not any(t.writable for t in tensors)
    assert all(np.isfinite(t.numpy()).all() for t in tensors)
    base = w.embedding.raw()
    while isinstance(base, np.ndarray) and base.base is not None:
        base = base.base
    assert not isinstance(base, np.ndarray)  # memory of the mapping, not a copy


@pytest.mark.parametrize(
    "name",
    ["token_embd.weight", "output_norm.weight", "blk.0.attn_norm.weight", "blk.1.ffn_norm.weight"]
    + [f"blk.1.{n}.weight" for n in LINEARS],
)
def test_missing_tensors_are_named(change, name):
    with pytest.raises(ModelError, match=f"{name} is missing".replace(".", r"\.")):
        load(change(drop=[name]))


def test_a_dropped_head_is_a_tied_one(change):
    path = change(drop=["output.weight"])
    w = load(path)
    assert w.tied
    assert w.head.weight is w.embedding
    ids = prompt(5)
    assert nmse.nmse(logits_of(path, ids), oracle_logits(path, ids)) < 1e-10


@pytest.mark.parametrize(
    ("name", "shape"),
    [
        ("token_embd__weight", (266, 64)),
        ("token_embd__weight", (267, 32)),
        ("output__weight", (266, 64)),
        ("output_norm__weight", (63,)),
        ("output_norm__weight", (1, 64)),
        ("blk__0__attn_q__weight", (32, 64)),
        ("blk__0__attn_k__weight", (64, 64)),
        ("blk__0__attn_v__weight", (64, 32)),
        ("blk__1__ffn_down__weight", (96, 64)),
        ("blk__0__attn_q__bias", (32,)),
    ],
)
def test_misshapen_tensors_are_named(change, name, shape):
    named = name.replace("__", ".")
    with pytest.raises(ModelError, match=rf"{named}".replace(".", r"\.") + " has shape"):
        load(change(**{name: f32(*shape)}))


def test_tensors_without_a_place_are_listed(change):
    extra = {f"blk__0__extra{i}__weight": f32(2) for i in range(10)}
    with pytest.raises(ModelError, match=r"no place for .*blk\.0\.extra0\.weight.* and 2 more"):
        load(change(**extra))
    with pytest.raises(ModelError, match=r"no place for .*blk\.2\.attn_q\.weight"):
        load(change(**{"blk__2__attn_q__weight": f32(64, 64)}))


@pytest.mark.parametrize("name", ["blk__0__attn_q__weight", "token_embd__weight"])
def test_matrices_of_integers(change, name):
    shape = (64, 64) if "blk" in name else (267, 64)
    with pytest.raises(ModelError, match=f"{name.replace('__', '.')} is i32"):
        load(change(**{name: (np.ones(shape, np.int32), "i32")}))


@pytest.mark.parametrize("kind", ["i32", "q8_0"])
@pytest.mark.parametrize("name", ["output_norm__weight", "blk__0__attn_q__bias"])
def test_vectors_of_other_kinds(change, name, kind):
    array = np.ones(64, np.int32 if kind == "i32" else np.float32)
    with pytest.raises(ModelError, match=name.replace("__", ".")):
        load(change(**{name: (array, kind)}))


@pytest.mark.parametrize("kind", ["f16", "bf16", "f8_e4m3"])
def test_narrow_norms_work(change, kind):
    path = change(output_norm__weight=(np.linspace(0.5, 2, 64, dtype=np.float32), kind))
    ids = prompt(5)
    assert nmse.nmse(logits_of(path, ids), oracle_logits(path, ids)) < 1e-10


def test_dtypes_without_kernels_are_named(source, tmp_path):
    target = tmp_path / "q8_1.gguf"
    with GGUFFile(source) as file, GGUFWriter(target) as writer:
        writer.copy_metadata(file)
        for info in file.tensors.values():
            if info.name != "blk.1.ffn_up.weight":
                writer.copy_tensor(info)
        n_bytes = 96 * 64 // 32 * 36
        writer.add_raw_tensor("blk.1.ffn_up.weight", np.zeros(n_bytes, np.uint8), (96, 64), "q8_1")
    with pytest.raises(ModelError, match=r"blk\.1\.ffn_up\.weight is q8_1.*usable are f32"):
        load(target)


# ---- scales and factors ----


@pytest.mark.parametrize("name", ["blk.0.attn_q", "blk.1.ffn_down", "output"])
def test_weight_scales_multiply(change, name):
    path = change(**{f"{name}.scale".replace(".", "__"): f32(1, value=0.3)})
    ids = prompt(6)
    assert nmse.nmse(logits_of(path, ids), oracle_logits(path, ids)) < 1e-10


@pytest.mark.parametrize("tied", [True, False])
def test_the_scale_of_the_embedding(change, source, tied):
    """It belongs to the bytes: the rows looked up and, when tied, the head are multiplied by it."""
    drop = ["output.weight"] if tied else []
    path = change(drop=drop, token_embd__scale=f32(1, value=0.25))
    ids = prompt(6)
    assert nmse.nmse(logits_of(path, ids), oracle_logits(path, ids)) < 1e-10
    plain = oracle_logits(source, ids)
    assert nmse.nmse(logits_of(path, ids), plain) > 1e-3


def test_the_embedding_has_no_bias(change):
    with pytest.raises(ModelError, match=r"no place for .*token_embd\.bias"):
        load(change(drop=["output.weight"], token_embd__bias=f32(267)))


@pytest.mark.parametrize("value", [0.0, -1.0, np.nan, np.inf])
@pytest.mark.parametrize("suffix", ["scale", "input_scale"])
def test_bad_weight_scales(change, value, suffix):
    with pytest.raises(ModelError, match=rf"blk\.0\.ffn_up\.{suffix}: .*finite and > 0"):
        load(change(**{f"blk__0__ffn_up__{suffix}": f32(1, value=value)}))


def test_vector_weight_scales_are_refused(change):
    with pytest.raises(ModelError, match=r"blk\.0\.ffn_up\.scale"):
        load(change(blk__0__ffn_up__scale=f32(96)))


def test_input_scales_are_kept_and_change_nothing(change, source):
    path = change(blk__0__ffn_up__input_scale=f32(1, value=0.5))
    w = load(path)
    assert w.layers[0].up.input_scale.numpy() == 0.5
    assert w.layers[0].up.scale is None
    assert np.array_equal(logits_of(path, prompt(4)), logits_of(source, prompt(4)))


@pytest.mark.parametrize(
    ("array", "kind"),
    [
        (np.ones(7), "f32"), (np.ones(16), "f32"), (np.ones(8), "f16"),
        (np.zeros(8), "f32"), (-np.ones(8), "f32"), (np.full(8, np.nan), "f32"),
        (np.full(8, np.inf), "f32"),
    ],
)  # fmt: skip
def test_bad_rope_factors(change, array, kind):
    with pytest.raises(ModelError, match=r"rope_freqs\.weight"):
        load(change(rope_freqs__weight=(array.astype(np.float32), kind)))


# ---- check ----


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_check_finds_what_is_not_finite(change, value):
    array = np.ones((96, 64), np.float32)
    array[5, 7] = array[95, 63] = value
    path = change(blk__1__ffn_up__weight=(array, "f32"))
    load(path)
    message = r"blk\.1\.ffn_up\.weight holds 2 values that are not finite, the first at \(5, 7\)"
    with pytest.raises(ModelError, match=message):
        load(path, check=True)
    with pytest.raises(ModelError, match=message):
        Llama(path, check=True)


@pytest.mark.parametrize("code", [0x7F, 0xFF])
def test_check_finds_nan_codes(source, tmp_path, code):
    target = tmp_path / "nan.gguf"
    raw = np.full(96 * 64, 0x38, np.uint8)
    raw[64 * 2 + 3] = code
    with GGUFFile(source) as file, GGUFWriter(target) as writer:
        writer.copy_metadata(file)
        for info in file.tensors.values():
            if info.name != "blk.0.ffn_gate.weight":
                writer.copy_tensor(info)
        writer.add_raw_tensor("blk.0.ffn_gate.weight", raw, (96, 64), "f8_e4m3")
    with pytest.raises(ModelError, match=r"blk\.0\.ffn_gate\.weight holds 1 .*\(2, 3\)"):
        load(target, check=True)


def test_check_passes_what_is_fine(source, default_model):
    load(source, check=True)
    load(default_model, check=True)


def test_check_reads_past_the_first_chunk(tmp_path):
    """Rows are decoded a megabyte at a time; the index counts from the start of the tensor."""
    path = make_tiny_model(tmp_path / "a.gguf", n_ff=20000, n_layers=1)
    array = np.ones((20000, 64), np.float32)
    array[19000, 1] = np.nan
    target = tmp_path / "b.gguf"
    with GGUFFile(path) as file, GGUFWriter(target) as writer:
        writer.copy_metadata(file)
        for info in file.tensors.values():
            if info.name != "blk.0.ffn_up.weight":
                writer.copy_tensor(info)
        writer.add_tensor("blk.0.ffn_up.weight", array, "f32")
    with pytest.raises(ModelError, match=r"the first at \(19000, 1\)"):
        load(target, check=True)


def test_errors_are_pyggml_errors(change):
    with pytest.raises(PyggmlError, match=r"changed\.gguf"):
        Llama(change(drop=["output_norm.weight"]))
