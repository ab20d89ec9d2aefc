"""Static scales (C3, C4): one rule through file and API, partial sets, the load report."""

import math

import ml_dtypes
import numpy as np
import pytest

import pyggml
from llm.running import tiny
from llm.tiny_model import make_tiny_model
from pyggml import Llama
from pyggml.errors import ModelError, ParameterError
from pyggml.gguf import GGUFFile, GGUFWriter
from pyggml.llm.scales import choose_kv_scales, scale_value, tensor_scale

FP8 = {"type_k": "f8_e4m3", "type_v": "f8_e4m3", "n_ctx": 32}
BAD = [0.0, -0.0, -1.0, math.nan, math.inf, -math.inf]
ALL = {i: (0.5 + i, 2.0 + i) for i in range(4)}


def with_tensor(source, target, name, array, kind=None):
    """A copy of a model with one tensor added or replaced."""
    with GGUFFile(source) as file, GGUFWriter(target) as writer:
        writer.copy_metadata(file)
        for info in file.tensors.values():
            if info.name != name:
                writer.copy_tensor(info)
        if array is not None:
            writer.add_tensor(name, array, kind)
    return target


def used(llm):
    return {i: (x.k_scale, x.v_scale) for i, x in enumerate(llm.cache.layers)}


@pytest.mark.parametrize("value", [*BAD, 1e-50, 1e300, -1e300, np.float64(1e39)])
def test_values_are_checked_after_the_cast_to_f32(value):
    with pytest.raises(ParameterError, match=r"here: .*finite and > 0"):
        scale_value(value, "here")


@pytest.mark.parametrize(
    "value", [None, True, "1", b"1", [1.0, 2.0], np.ones((1, 1)), np.ones(0), 1j, object()]
)
def test_what_is_not_one_number(value):
    with pytest.raises(ParameterError, match="here: "):
        scale_value(value, "here")


def test_good_values_become_what_f32_holds():
    assert scale_value(0.1, "x") == float(np.float32(0.1))
    assert scale_value(np.array([3]), "x") == 3.0
    assert scale_value(1e-45, "x") == 2.0**-149  # subnormal in F32, but not zero


@pytest.mark.parametrize("shape", [(), (1,)])
@pytest.mark.parametrize("dtype", [np.float32, ml_dtypes.bfloat16])
def test_scale_tensors_controls(shape, dtype):
    assert tensor_scale(pyggml.tensor(np.full(shape, 2.5, dtype)), "t") == 2.5


@pytest.mark.parametrize("dtype", [np.float16, np.int32, np.int64, ml_dtypes.float8_e4m3fn])
def test_scale_tensors_of_other_dtypes(dtype):
    with pytest.raises(ModelError, match=r"t: a scale is one F32 or BF16"):
        tensor_scale(pyggml.tensor(np.ones(1, dtype)), "t")


@pytest.mark.parametrize("value", BAD)
@pytest.mark.parametrize("name", ["blk.2.attn_k.k_scale", "blk.2.attn_v.v_scale"])
def test_file_bad_values_name_the_layer(tmp_path, name, value):
    path = make_tiny_model(tmp_path / "a.gguf", n_layers=4, kv_scales=ALL)
    bad = with_tensor(path, tmp_path / "b.gguf", name, np.array([value], np.float32))
    with pytest.raises(ModelError, match=name.replace(".", r"\.") + ".*finite and > 0"):
        Llama(bad)


@pytest.mark.parametrize("array", [np.ones(2, np.float32), np.ones(1, np.int32)])
def test_file_vectors_and_integers_are_refused(tmp_path, array):
    """Per-head scales are not supported; taking element 0 would be silent nonsense."""
    path = make_tiny_model(tmp_path / "a.gguf", n_layers=4, kv_scales=ALL)
    bad = with_tensor(path, tmp_path / "b.gguf", "blk.1.attn_k.k_scale", array)
    with pytest.raises(ModelError, match=r"blk\.1\.attn_k\.k_scale"):
        Llama(bad)


@pytest.mark.parametrize("value", [*BAD, 1e-50, 1e300, [1.0, 2.0], "2", True])
@pytest.mark.parametrize("side", [0, 1])
def test_api_bad_values_name_the_layer(tmp_path, value, side):
    path = tiny(tmp_path, n_layers=4)
    pair = (value, None) if side == 0 else (None, value)
    with pytest.raises(ParameterError, match=f"layer 3: {'kv'[side]}"):
        Llama(path, kv_scales={3: pair}, **FP8)


@pytest.mark.parametrize(
    ("option", "match"),
    [
        ("files", "'file', 'unit'"),
        (None, "'file', 'unit'"),
        ([(1, 1)], "'file', 'unit'"),
        ({99: (1.0, 1.0)}, "layer 99 is outside 0..3"),
        ({-1: (1.0, 1.0)}, "layer -1"),
        ({"0": (1.0, 1.0)}, "layer '0'"),
        ({True: (1.0, 1.0)}, "layer True"),
        ({0: 1.0}, "layer 0: a pair"),
        ({0: (1.0,)}, "layer 0: a pair"),
        ({0: "ab"}, "layer 0: a pair"),
    ],
)
def test_api_bad_options(option, match):
    with pytest.raises(ParameterError, match=match):
        choose_kv_scales(option, {}, 4)


def test_partial_sets_list_the_layers(tmp_path):
    three = {i: ALL[i] for i in (0, 1, 3)}
    path = tiny(tmp_path, n_layers=4, kv_scales=three)
    with pytest.raises(ModelError, match="k_scale is given for some layers but not for 2"):
        Llama(path, **FP8)
    holes = {0: (1.0, 1.0), 1: (1.0, None), 2: (1.0, None), 3: (1.0, 1.0)}
    path = tiny(tmp_path, n_layers=4, kv_scales=holes)
    with pytest.raises(ModelError, match="v_scale is given for some layers but not for 1, 2"):
        Llama(path, **FP8)


def test_partial_sets_are_refused_for_every_cache(tmp_path):
    """The file is wrong whatever it is opened with."""
    path = tiny(tmp_path, n_layers=4, kv_scales={0: ALL[0]})
    with pytest.raises(ModelError, match="not for 1, 2, 3"):
        Llama(path)


@pytest.mark.parametrize("side", [0, 1])
def test_one_side_alone_is_fine(tmp_path, side):
    scales = {i: ((1.5, None) if side == 0 else (None, 1.5)) for i in range(4)}
    with Llama(tiny(tmp_path, n_layers=4, kv_scales=scales), **FP8) as llm:
        assert used(llm) == scales


def test_a_scale_for_a_layer_that_is_not_there(tmp_path):
    path = make_tiny_model(tmp_path / "a.gguf", n_layers=4, kv_scales=ALL)
    name = "blk.99.attn_k.k_scale"
    bad = with_tensor(path, tmp_path / "b.gguf", name, np.ones(1, np.float32))
    with pytest.raises(ModelError, match=r"no place for .*blk\.99\.attn_k\.k_scale"):
        Llama(bad, **FP8)


def test_what_each_option_runs_with(tmp_path):
    path = tiny(tmp_path, n_layers=4, kv_scales=ALL)
    none = dict.fromkeys(range(4), (None, None))
    with Llama(path, **FP8) as llm:
        assert used(llm) == ALL
    with Llama(path, kv_scales="unit", **FP8) as llm:
        assert used(llm) == none
    with Llama(path, kv_scales={2: (0.1, None)}, **FP8) as llm:
        assert used(llm) == none | {2: (float(np.float32(0.1)), None)}


def test_only_scaled_sides_use_them(tmp_path):
    """An F16 or Q8_0 side has range enough of its own."""
    path = tiny(tmp_path, n_layers=4, head_dim=32, kv_scales=ALL)
    with Llama(path, type_k="f8_e4m3", type_v="f16", n_ctx=32) as llm:
        assert used(llm) == {i: (k, None) for i, (k, _) in ALL.items()}
    with Llama(path, type_k="q8_0", type_v="f8_e4m3", n_ctx=32) as llm:
        assert used(llm) == {i: (None, v) for i, (_, v) in ALL.items()}


def test_load_report_says_which_layer_got_which_scale(tmp_path):
    path = tiny(tmp_path, n_layers=4, kv_scales=ALL)
    with Llama(path, **FP8) as llm:
        report = llm.load_report()
    assert "scales   4 of 4 layers" in report
    assert "layer 0: k 0.5, v 2\n" in report
    assert report.endswith("layer 3: k 3.5, v 5")
    with Llama(path, kv_scales={1: (None, 0.25)}, **FP8) as llm:
        report = llm.load_report()
    assert "scales   1 of 4 layers\n  layer 1: k 1, v 0.25" in report
    with Llama(path, n_ctx=32) as llm:
        assert "scales   none" in llm.load_report()


def test_verbose_prints_the_report(tmp_path, capsys):
    with Llama(tiny(tmp_path), n_ctx=32, verbose=True) as llm:
        assert capsys.readouterr().err == llm.load_report() + "\n"


@pytest.mark.parametrize(
    ("kinds", "pair", "side"),
    [
        ({}, (0.5, None), "k"),
        ({}, (None, 0.5), "v"),
        ({"type_k": "f8_e4m3"}, (0.5, 0.5), "v"),
        ({"type_v": "f8_e4m3", "type_k": "bf16"}, (0.5, 0.5), "k"),
    ],
)
def test_a_side_that_has_no_scale_is_given_none(tmp_path, kinds, pair, side):
    path = tiny(tmp_path, n_layers=2)
    with pytest.raises(ParameterError, match=f"kv_scales: layer 1: {side}: a cache of"):
        Llama(path, n_ctx=32, kv_scales={0: (None, None), 1: pair}, **kinds)
    with Llama(path, n_ctx=32, kv_scales={1: (None, None)}, **kinds):
        pass
