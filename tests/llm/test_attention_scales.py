"""The mul and div nodes around an FP8 cache (C1, C2): where they are, and that each is needed.

Powers of two change no rounding, so K * 2^a stored under the scale 2^a gives the bytes of K under
1, and the whole model the same bits.
"""

import numpy as np
import pytest

import pyggml
from llm.running import cache_bytes, prompt, step_graph, tiny
from oracles import formats, nmse
from oracles import llama as oracle
from pyggml import Graph, Llama
from pyggml.gguf import GGUFFile, GGUFWriter
from pyggml.llm import attention as attention_module
from pyggml.llm.attention import CacheInputs, attention
from pyggml.llm.config import LlamaConfig
from pyggml.llm.kv_cache import KVCache, LayerCache

T, H, G, D, C = 5, 4, 2, 32, 256
SIDES = [("scale_up", "k_scale"), ("scale_down", "k_scale"), ("scale_down", "v_scale"),
         ("scale_up", "v_scale")]  # fmt: skip


@pytest.fixture(params=[True, False], ids=["flash", "plain"])
def flash(request):
    return request.param


def remove_nodes(monkeypatch, function, side):
    """Makes one kind of scale node an identity: q * sk, k / sk, v / sv or out * sv."""
    whole = getattr(attention_module, function)

    def without(x, scale, name):
        return x if name.endswith(side) else whole(x, scale, name)

    monkeypatch.setattr(attention_module, function, without)


# ---- the function alone ----


def attend(q, k, v, scales, flash):
    """One step of `attention` into an empty FP8 cache: result, K bytes, V bytes."""
    config = LlamaConfig(1, H * D, 1, H, G, D, D, 1e4, 1.0, 1e-5, D**-0.5, C, 0)
    t = len(q)
    layer = KVCache(C, 1, G, D, "f8_e4m3", "f8_e4m3", {0: scales}).layers[0]
    g = Graph()
    nodes = [g.input(n, x.shape) for n, x in (("q", q), ("k", k), ("v", v))]
    live = None if flash else g.input("live", (C,), "i32")
    inputs = CacheInputs(g.input("cells", (t,), "i64"), g.input("mask", (t, C)), live, C)
    program = g.compile(attention(*nodes, layer, inputs, config, "blk.0"))
    mask = np.where(np.arange(C) <= np.arange(t)[:, None], 0, -np.inf).astype(np.float32)
    given = {"q": q, "k": k, "v": v, "cells": np.arange(t), "mask": mask}
    if not flash:
        given["live"] = np.where(np.arange(C) < t, np.arange(C), 0).astype(np.int32)
    out = program(**given)
    return out, layer.k.raw().copy(), layer.v.raw().copy()


def random_qkv(seed=0, t=T):
    rng = np.random.default_rng(seed)
    return [rng.normal(0, 2, (t, n, D)).astype(np.float32) for n in (H, G, G)]


def scaled_run(a, b, flash):
    q, k, v = random_qkv()
    two = np.float32(2)
    return attend(q * two**-a, k * two**a, v * two**b, (2.0**a, 2.0**b), flash)


def is_same(run, base, b):
    """C1: the same stored bytes, and 2^b times the output, bit for bit."""
    pairs = zip(run, (base[0] * np.float32(2.0**b), *base[1:]), strict=True)
    return all(x.tobytes() == y.tobytes() for x, y in pairs)


@pytest.mark.parametrize("a", range(-6, 7, 2))
@pytest.mark.parametrize("b", range(-6, 7, 3))
def test_powers_of_two_change_no_bit(a, b, flash):
    assert is_same(scaled_run(a, b, flash), attend(*random_qkv(), (None, None), flash), b)


@pytest.mark.parametrize(("function", "side"), SIDES)
def test_each_scale_node_is_needed(function, side, flash, monkeypatch):
    base = attend(*random_qkv(), (None, None), flash)
    assert is_same(scaled_run(3, -2, flash), base, -2)
    remove_nodes(monkeypatch, function, side)
    assert not is_same(scaled_run(3, -2, flash), base, -2)


def test_the_stored_bytes_are_the_quotients(flash):
    """K / sk and V / sv for scales that are no powers of two: one division, one rounding."""
    q, k, v = random_qkv()
    sk, sv = np.float32(0.37), np.float32(0.0123)
    _, keys, values = attend(q, k, v, (float(sk), float(sv)), flash)
    for stored, x, s in ((keys, k, sk), (values, v, sv)):
        assert stored[: x.size].tobytes() == formats.e4m3_encode(x / s).tobytes()
        assert not stored[x.size :].any()


@pytest.mark.parametrize(("t", "ulps"), [(1, (1, 1)), (T, (4, 4)), (200, (4, 13))])
def test_direction_of_the_scale(t, ulps, flash):
    """C2: V = 1000 fits under the scale 1000/448, where 448 is the largest code, 0x7E.

    The plain path sums 256 products a row in F32, as every matrix product does: 12 ulp were seen.
    """
    q, k, _ = random_qkv(t=t)
    v = np.full((t, G, D), 1000, np.float32)
    out, _, values = attend(q, k, v, (None, float(np.float32(1000 / 448))), flash)
    assert (values[: v.size] == 0x7E).all()
    assert nmse.ulp_diff_f32(out, np.full_like(out, 1000)).max() <= ulps[0 if flash else 1]


def test_without_a_scale_large_values_clip_and_are_counted(flash):
    q, k, _ = random_qkv()
    out, _, values = attend(q, k, np.full((T, G, D), 1000, np.float32), (None, None), flash)
    assert nmse.ulp_diff_f32(out, np.full_like(out, 448)).max() <= 4
    cache = KVCache(C, 1, G, D, "f8_e4m3", "f8_e4m3")
    cache.layers[0].v.raw()[:] = values
    assert cache.count_clipped() == {"k": 0, "v": 0}  # no cell is in use yet
    cache.commit(np.arange(T), np.arange(T, dtype=np.int32))
    assert cache.count_clipped() == {"k": 0, "v": T * G * D}
    cache.layers[0].k.raw().reshape(C, G * D)[0, :5] = [0xFE, 0x7E, 0x7D, 0x7F, 0xFF]
    assert cache.count_clipped() == {"k": 2, "v": T * G * D}  # both signs, no NaN


def test_no_scale_means_no_node(flash):
    q = Graph().input("q", (T, H, D))
    assert attention_module.scale_up(q, None, "x") is q
    assert attention_module.scale_down(q, None, "x") is q
    layer = LayerCache(pyggml.zeros((C, G * D)), pyggml.zeros((C, G * D)))
    assert (layer.k_scale, layer.v_scale) == (None, None)


# ---- whole models ----


def exponents(n_layers, seed=5):
    """(a, b) of each layer, -6..6, none 0."""
    draw = np.random.default_rng(seed).choice([*range(-6, 0), *range(1, 7)], (n_layers, 2))
    return [(int(a), int(b)) for a, b in draw]


def write_scaled(source, target):
    """The model with Q, K, V and the output of the attention turned by powers of two.

    By weight scales: q 2^-a, k 2^a, v 2^b, out 2^-b, with k_scale 2^a and v_scale 2^b beside them.
    """
    with GGUFFile(source) as file, GGUFWriter(target) as writer:
        writer.copy_metadata(file)
        for info in file.tensors.values():
            writer.copy_tensor(info)
        for i, (a, b) in enumerate(exponents(file.metadata["llama.block_count"])):
            for name, power in (
                ("attn_q.scale", -a),
                ("attn_k.scale", a),
                ("attn_v.scale", b),
                ("attn_output.scale", -b),
                ("attn_k.k_scale", a),
                ("attn_v.v_scale", b),
            ):
                writer.add_tensor(f"blk.{i}.{name}", np.array([2.0**power], np.float32), "f32")
    return target


def run(path, ids, flash, kv_scales="file"):
    """Logits of a prompt and of one step more, and the bytes of the cache."""
    with Llama(
        path,
        n_ctx=64,
        type_k="f8_e4m3",
        type_v="f8_e4m3",
        flash_attn=flash,
        logits_all=True,
        kv_scales=kv_scales,
    ) as llm:
        llm.eval(ids[:-1])
        llm.eval(ids[-1:])
        return [llm.scores, *(x for pair in cache_bytes(llm) for x in pair)]


def equal(a, b):
    return all(x.tobytes() == y.tobytes() for x, y in zip(a, b, strict=True))


@pytest.fixture(scope="module")
def default_pair(default_model, tmp_path_factory):
    """The default model, and the same with non-unit scales."""
    target = tmp_path_factory.mktemp("scaled") / "scaled.gguf"
    return default_model, write_scaled(default_model, target)


def test_default_model_with_scales_is_the_same_to_the_bit(default_pair, flash):
    plain, scaled = default_pair
    ids = list(range(500, 512))
    base = run(plain, ids, flash)
    assert equal(run(scaled, ids, flash), base)
    assert not equal(run(scaled, ids, flash, "unit"), base)


@pytest.mark.parametrize(("function", "side"), SIDES)
def test_default_model_without_one_kind_of_node_is_not(default_pair, function, side, monkeypatch):
    plain, scaled = default_pair
    ids = list(range(500, 505))
    base = run(plain, ids, True)
    remove_nodes(monkeypatch, function, side)
    assert not equal(run(scaled, ids, True), base)


def scale_nodes(graph):
    """{(op, const name): node} of the nodes whose second operand is a KV scale constant."""
    found = {}
    for node in graph.nodes():
        names = [s.name for s in node.src if s is not None and s.op == "const"]
        for name in names:
            if name.endswith(("k_scale", "v_scale")):
                assert (node.op, name) not in found
                found[node.op, name] = node
    return found


def behind(node, through):
    """The node that a chain of views and the like starts from."""
    while node.op in through:
        node = node.src[0]
    return node


def test_default_model_has_its_nodes_after_rope_and_before_the_write(default_pair):
    with Llama(default_pair[1], n_ctx=64, type_k="f8_e4m3", type_v="f8_e4m3") as llm:
        graph = step_graph(llm)
        n_layers, scales = llm.config.n_layers, exponents(llm.config.n_layers)
        caches = {id(t): t for x in llm.cache.layers for t in (x.k, x.v)}
    found = scale_nodes(graph)
    wanted = {
        (op, f"blk.{i}.{name}")
        for i in range(n_layers)
        for name in ("attn_k.k_scale", "attn_v.v_scale")
        for op in ("mul", "div")
    }
    assert found.keys() == wanted
    assert len(caches) == 2 * n_layers
    writes = [n for n in graph.nodes() if n.op == "set_rows"]
    flashes = [n for n in graph.nodes() if n.op == "flash_attn_ext"]
    assert len(writes) == 2 * n_layers
    assert len(flashes) == n_layers
    for i in range(n_layers):
        k, v = f"blk.{i}.attn_k.k_scale", f"blk.{i}.attn_v.v_scale"
        assert behind(writes[2 * i].src[1], ("reshape",)).id == found["div", k].id
        assert behind(writes[2 * i + 1].src[1], ("reshape",)).id == found["div", v].id
        assert behind(flashes[i].src[0], ("permute",)).id == found["mul", k].id
        assert found["mul", v].src[0].id == flashes[i].id
        assert found["mul", k].src[0].op == "rope"
        assert found["div", k].src[0].op == "rope"
        assert behind(found["div", v].src[0], ("reshape", "mul")).op == "mul_mat"
    values = {i: (2.0**a, 2.0**b) for i, (a, b) in enumerate(scales)}
    assert {i: (x.k_scale, x.v_scale) for i, x in enumerate(llm_layers(default_pair))} == values


def llm_layers(pair):
    with Llama(pair[1], n_ctx=8, type_k="f8_e4m3", type_v="f8_e4m3") as llm:
        return llm.cache.layers


def test_other_caches_have_no_scale_nodes(default_pair):
    for kinds in (("f16", "f16"), ("f32", "bf16"), ("q8_0", "q8_0")):
        with Llama(default_pair[1], n_ctx=64, type_k=kinds[0], type_v=kinds[1]) as llm:
            assert not scale_nodes(step_graph(llm))


@pytest.mark.parametrize("kinds", [("f8_e4m3", "f16"), ("f32", "f8_e4m3")])
def test_one_scaled_side_has_only_its_nodes(default_pair, kinds):
    with Llama(default_pair[1], n_ctx=64, type_k=kinds[0], type_v=kinds[1]) as llm:
        names = {name.rpartition(".")[2] for _, name in scale_nodes(step_graph(llm))}
    assert names == {"k_scale" if kinds[0] == "f8_e4m3" else "v_scale"}


def test_odd_scales_against_the_oracle(tmp_path, flash):
    """Scales that are no powers of two, where the direction shows in the values."""
    scales = {0: (0.031, 0.0047), 1: (0.0123, 0.017)}
    path = tiny(tmp_path, kv_scales=scales)
    ids = prompt(24)
    weights, config = oracle.load_gguf(path)
    wanted = oracle.forward(weights, config, ids, k_e4m3=True, v_e4m3=True)
    assert nmse.nmse(run(path, ids, flash)[0], wanted) < 2e-4
    far = oracle.forward(weights, config, ids)
    assert nmse.nmse(wanted, far) > 4e-4  # the rounding is larger than the tolerance
