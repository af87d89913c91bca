#!/usr/bin/env python3
"""Tiny random models of architectures and rotation scalings, with their logits.

Usage: make_models.py [--families | --recurrent] FOLDER [NAME...]
needs numpy and the gguf package; no test needs it

Writes NAME.f32.gguf (without .f32 where the name says otherwise), NAME.f32.json (prompt, rows,
greedy tokens and their margins) and NAME.f32.logits (float32 [rows, n_vocab]) of each model of
MODELS, which are what tests/data/golden/variants holds, of families.py, for
tests/data/golden/families, or of recurrent.py, for tests/data/golden/recurrent. The weights are random. The logits are those of `forward`, a pass
in float64 written from the papers; they were compared with llama.cpp's in f32 wherever it computes
the same thing (the README.md of either folder says what was found).
"""
import json
import math
import pathlib
import sys

import gguf
import numpy as np
from gguf import quants

import recurrent
from families import FAMILIES, SMALL
from make_encoders import prompt as encoder_prompt

Q8_0 = gguf.GGMLQuantizationType.Q8_0

N_VOCAB, N_PROMPT, N_GREEDY = 264, 70, 24
ROWS = [0, 1, 2, 15, 16, 31, 32, 47, 63, 69]
BASE = dict(embd=32, heads=4, heads_kv=2, dim=16, ff=64, layers=2, ctx=512, base=10000.0, eps=1e-5)

# `keys` go into the file as they are, under the architecture's prefix. The rest says what `forward`
# and the list of tensors need to know.
MODELS = {
    "gemma2": dict(
        arch="gemma2", layers=4, eps=1e-6, ff=48, pair="halves", tied=True, norms="both", act="gelu",
        embed_scale=32 ** 0.5, window=24, full_every=2, cap=5.0, final_cap=4.0,
        keys={"attention.sliding_window": 24, "attn_logit_softcapping": 5.0,
              "final_logit_softcapping": 4.0}),
    "gemma3-linear": dict(
        arch="gemma3", layers=6, dim=8, eps=1e-6, ff=48, base=1e6, pair="halves", tied=True,
        norms="both", act="gelu", qk_norm="heads", embed_scale=32 ** 0.5, window=20, full_every=6,
        window_base=10000.0, scaling="linear", factor=8.0,
        keys={"attention.sliding_window": 20, "rope.scaling.type": "linear",
              "rope.scaling.factor": 8.0}),
    "qwen2moe": dict(
        arch="qwen2moe", dim=8, base=1e6, pair="halves", qkv_bias=True, experts=8, used=3,
        ff_expert=24, ff_shared=40, shared_gate=True, over_all=True, expert_length=24),
    "mixtral": dict(arch="llama", heads_kv=4, dim=8, experts=4, used=2, ff_expert=40, ff=40),
    "mistral": dict(arch="llama", window=20, full_every=0, keys={"attention.sliding_window": 20}),
    "granitemoe": dict(
        arch="granitemoe", dim=8, experts=5, used=2, ff=32, ff_expert=32, ff_shared=48, tied=True,
        embed_scale=6.0, residual=0.4, logit_divisor=3.0, attention_scale=0.2,
        keys={"embedding_scale": 6.0, "residual_scale": 0.4, "logit_scale": 3.0,
              "attention.scale": 0.2}),
    "smollm3": dict(arch="smollm3", layers=4, dim=8, base=5e6, tied=True, no_rope_every=4),
    "gpt-oss": dict(
        arch="gpt-oss", dim=16, base=150000.0, pair="halves", qkv_bias=True, out_bias=True,
        sinks=True, experts=4, used=2, ff=24, ff_expert=24, expert_bias=True, expert_length=24,
        act="clamped", window=16, full_every=2, scaling="yarn", factor=8.0, first_ctx=64,
        keys={"attention.sliding_window": 16, "rope.scaling.type": "yarn",
              "rope.scaling.factor": 8.0, "rope.scaling.original_context_length": 64}),
    "phi3-long": dict(
        arch="phi3", heads=2, heads_kv=2, pair="halves", fused=True, rope_dims=12, first_ctx=32,
        factors="long", attn_factor=1.19,
        keys={"rope.scaling.original_context_length": 32, "rope.scaling.attn_factor": 1.19}),
    "phi3-short": dict(
        arch="phi3", heads=2, heads_kv=2, pair="halves", fused=True, first_ctx=512, factors="short",
        attn_factor=1.1,
        keys={"rope.scaling.original_context_length": 512, "rope.scaling.attn_factor": 1.1}),
    "llama-yarn": dict(
        arch="llama", dim=16, scaling="yarn", factor=4.0, first_ctx=64, base=500.0,
        keys={"rope.scaling.type": "yarn", "rope.scaling.factor": 4.0,
              "rope.scaling.original_context_length": 64}),
    "llama-linear": dict(
        arch="llama", scaling="linear", factor=4.0,
        keys={"rope.scaling.type": "linear", "rope.scaling.factor": 4.0}),
    "olmo3": dict(
        arch="olmo2", layers=4, dim=8, heads_kv=4, pair="halves", norms="after", qk_norm="rows",
        window=24, full_every=4, scaling="yarn", factor=4.0, first_ctx=64, window_unscaled=True,
        keys={"attention.sliding_window": 24, "rope.scaling.type": "yarn",
              "rope.scaling.factor": 4.0, "rope.scaling.original_context_length": 64}),
    "gpt-oss-q8_0": dict(
        arch="gpt-oss", dim=16, base=150000.0, pair="halves", qkv_bias=True, out_bias=True,
        sinks=True, experts=8, used=3, ff=32, ff_expert=32, expert_bias=True, expert_length=32,
        act="clamped", window=16, full_every=2, keys={"attention.sliding_window": 16},
        quantised="q8_0", nmse_llama_cpp=4.25e-4),
    "qwen3moe-nvfp4": dict(
        arch="qwen3moe", embd=64, heads_kv=2, dim=16, base=1e6, pair="halves", qk_norm="heads",
        experts=6, used=2, ff=64, ff_expert=64, expert_length=64, quantised="nvfp4",
        nmse_llama_cpp=7.65e-4),
}


def of_layer(c, key, i):
    """A width of layer i: one for all layers, or a list."""
    return c[key][i] if isinstance(c[key], list) else c[key]


def is_windowed(c, i):
    if "windowed" in c:
        return c["windowed"][i]
    every = c.get("full_every", 0)
    return "window" in c and (every == 0 or i % every < every - 1)


def dim_of(c, i):
    """Values of a head."""
    return c.get("window_dim", c["dim"]) if is_windowed(c, i) else c["dim"]


def kv_layer(c, i):
    """The layer whose keys and values layer i attends to: of the last ones, one before them."""
    own = c["layers"] - c.get("borrow", 0)
    return i if i < own else max(j for j in range(own) if is_windowed(c, j) == is_windowed(c, i))


def is_expert_layer(c, i):
    every = c.get("experts_every", 1)
    return (c.get("experts") and i >= c.get("dense_first", 0) and (i + 1) % every == 0
            and of_layer(c, "ff", i))


def ffn_norm_of(c):
    """The norm before the feed-forward part."""
    return "post_attention_norm" if c["arch"] == "gpt-oss" else c.get("ffn_norm", "ffn_norm")


def norm_names(c):
    """Of one layer: those before attention's matrices and those behind them."""
    place = c.get("norms")
    if c.get("norm") == "bare":
        return [], []
    first = [] if place == "after" else ["attn_norm"]
    if c.get("second"):
        first.append(c["second"])
    last = ["post_attention_norm", "post_ffw_norm"] if place in ("both", "after") else []
    return first, last + ([] if place == "after" or c.get("parallel") else [ffn_norm_of(c)])


def tensors_of(c, rng):
    """All weights by name, float32, as [rows, values of a row]."""
    t, d = {}, c["embd"]

    def mat(name, *shape, std=1.0):
        t[name + ".weight"] = rng.standard_normal(shape, np.float32) * np.float32(std / shape[-1] ** 0.5)

    def vec(name, n, mean=0.0, std=0.3):
        t[name] = (mean + std * rng.standard_normal(n)).astype(np.float32)

    def norm(name, n, bias=c.get("norm") == "layer"):
        vec(name + ".weight", n, 1.0, 0.2)
        if bias:
            vec(name + ".bias", n)

    mat("token_embd", N_VOCAB, d, std=d ** 0.5)
    if c.get("positions"):
        mat("position_embd", c["ctx"], d, std=d ** 0.5)
    if c.get("embed_norm"):
        norm("token_embd_norm", d)
    for i in range(c["layers"]):
        p = f"blk.{i}."
        h, hk, ff = (of_layer(c, x, i) for x in ("heads", "heads_kv", "ff"))
        dim, is_recurrent = dim_of(c, i), recurrent.is_layer(c, i)
        if c.get("recurrent") and not hk or is_recurrent and not c.get("both"):
            h = hk = 0
        q, kv = h * dim, hk * dim
        first, last = norm_names(c)
        if is_recurrent:
            recurrent.tensors(c, i, t, mat, vec, norm)
        for name in first if (h or is_recurrent) and not (c.get("first_bare") and i == 0) else []:
            norm(p + name, d)
        if c.get("latent"):
            r, dr, dk, dv = c["latent"], c["rope_dims"], c["head_key"], c["head_value"]
            if c.get("q_latent"):
                mat(p + "attn_q_a", c["q_latent"], d)
                norm(p + "attn_q_a_norm", c["q_latent"], False)
            mat(p + ("attn_q_b" if c.get("q_latent") else "attn_q"), h * dk, c.get("q_latent", d),
                std=1.5)
            mat(p + "attn_kv_a_mqa", r + dr, d, std=1.5)
            norm(p + "attn_kv_a_norm", r, False)
            kv_b = rng.standard_normal((h, dk - dr + dv, r), np.float32) * np.float32(r ** -0.5)
            if c.get("unsplit"):
                t[p + "attn_kv_b.weight"] = kv_b.reshape(-1, r)
            else:
                t[p + "attn_k_b.weight"] = np.ascontiguousarray(
                    kv_b[:, :dk - dr].transpose(0, 2, 1))
                t[p + "attn_v_b.weight"] = np.ascontiguousarray(kv_b[:, dk - dr:])
        elif c.get("fused") or c.get("fused_qkv"):
            mat(p + "attn_qkv", q + 2 * kv, d, std=1.5)
            if c.get("qkv_bias"):
                vec(p + "attn_qkv.bias", q + 2 * kv)
        else:
            for x, n in (("q", q), ("k", kv), ("v", kv)):
                if hk and not (x != "q" and kv_layer(c, i) != i and not c.get("spare_kv")) and not (
                        x == "v" and not is_windowed(c, i) and c.get("value_of_key")):
                    mat(p + "attn_" + x, 2 * n if x == "q" and c.get("gate_in_query") else n, d,
                        std=1.5)
                if c.get("qkv_bias"):
                    vec(p + f"attn_{x}.bias", n)
        if h and c.get("qk_norm") not in (None, "bare"):
            rows = c["qk_norm"] == "rows"
            each = c["qk_norm"] == "each"
            norm(p + "attn_q_norm", (h, dim) if each else q if rows else dim, False)
            if kv_layer(c, i) == i or c.get("spare_kv"): # which nobody reads
                norm(p + "attn_k_norm", (hk, dim) if each else kv if rows else dim, False)
        if c.get("gated_attention"):
            mat(p + "attn_gate", q, d)
        if h:
            q = h * c["head_value"] if c.get("latent") else q
            mat(p + "attn_output", d, q if hk else d)
        if c.get("out_bias"):
            vec(p + "attn_output.bias", d)
        if c.get("sinks"):
            vec(p + "attn_sinks.weight", c["heads"], std=1.5)
        if c.get("unary") is None and c.get("ffn_bias"):
            for x, n in (("gate", ff), ("up", ff), ("down", d)):
                vec(p + f"ffn_{x}.bias", n)
        for name in last if ff else []:
            norm(p + name, d)
        if c.get("per_layer"):
            mat(p + "inp_gate", c["per_layer"], d)
            mat(p + "proj", d, c["per_layer"])
            norm(p + "post_norm", d)
        if c.get("streams"):
            k = c["streams"]
            norm(p + "altup_router_norm", d)
            mat(p + "altup_router", k, d, std=2.0 * d)
            mat(p + "altup_predict_coef", k * k, k, std=c["mix"])
            mat(p + "altup_correct_coef", k, k, std=c["mix"])
            vec(p + "altup_correct_scale.weight", d, 1.0, 0.2)
            mat(p + "laurel_l", c["low"], d)
            mat(p + "laurel_r", d, c["low"])
            norm(p + "laurel_post_norm", d)
        if c.get("layer_scale"):
            vec(p + "layer_output_scale.weight", 1, 0.8, 0.1)
        if not is_expert_layer(c, i) or c.get("beside_dense"):
            if not ff:
                continue
            if c.get("unary"):
                mat(p + "ffn_up", ff, d)
            elif c.get("fused") or c.get("fused_ffn"):
                mat(p + "ffn_up", 2 * ff, d)
            else:
                mat(p + "ffn_gate", ff, d)
                mat(p + "ffn_up", ff, d)
            mat(p + "ffn_down", d, ff)
            if c.get("unary") and c.get("out_bias"):
                vec(p + "ffn_up.bias", ff)
                vec(p + "ffn_down.bias", d)
        if not is_expert_layer(c, i):
            continue
        e, f = c["experts"], c["ff_expert"]
        mat(p + "ffn_gate_inp", e, d)
        if c.get("fused_experts"):
            mat(p + "ffn_gate_up_exps", e, 2 * f, d)
        if c.get("beside_dense"):
            for name in ("pre_ffw_norm_2", "post_ffw_norm_1", "post_ffw_norm_2"):
                norm(p + name, d)
            vec(p + "ffn_gate_inp.scale", d, 3.0, 0.3)
            vec(p + "ffn_down_exps.scale", e, 1.0, 0.2)
            mat(p + "ffn_gate_up_exps", e, 2 * f, d)
        r = c.get("expert_latent", d)
        if c.get("expert_latent"):
            mat(p + "ffn_latent_down", r, d)
            mat(p + "ffn_latent_up", d, r)
        for x, shape in (("gate", (e, f, r)), ("up", (e, f, r)), ("down", (e, r, f))):
            if (c.get("beside_dense") or c.get("fused_experts")) and x != "down":
                continue
            if c.get("unary") and x == "gate":
                continue
            mat(p + f"ffn_{x}_exps", *shape, std=3.0 if c.get("act") == "clamped" else 1.0)
            if c.get("expert_bias"):
                vec(p + f"ffn_{x}_exps.bias", shape[:2])
        if c.get("expert_bias"):
            vec(p + "ffn_gate_inp.bias", e)
        if c.get("select_bias"):
            vec(p + "exp_probs_b" + ("" if c.get("bare_select_bias") else ".bias"), e)
        if c.get("fused_shared"):
            mat(p + "ffn_up_shexp", 2 * c["ff_shared"], d)
            mat(p + "ffn_down_shexp", d, c["ff_shared"])
        elif c.get("ff_shared"):
            if not c.get("unary"):
                mat(p + "ffn_gate_shexp", c["ff_shared"], d)
            mat(p + "ffn_up_shexp", c["ff_shared"], d)
            mat(p + "ffn_down_shexp", d, c["ff_shared"])
        if c.get("shared_gate"):
            vec(p + "ffn_gate_inp_shexp.weight", d)
    if c.get("norm") != "bare":
        norm(c.get("output_norm", "output_norm"), d)
    if not c.get("tied"):
        mat("output", N_VOCAB, d)
    if c.get("logit_bias"):
        vec("output.bias", N_VOCAB)
    if c.get("per_layer"):
        n = c["per_layer"] * c["layers"]
        mat("per_layer_token_embd", N_VOCAB, n, std=n ** 0.5)
        mat("per_layer_model_proj", n, d, std=d ** 0.5)
        norm("per_layer_proj_norm", c["per_layer"])
    if c.get("streams"):
        mat("altup_proj", c["streams"] - 1, d, d)
        mat("altup_unembd_proj", c["streams"] - 1, d, d)
    if c.get("turning"): # so many pairs turn, the others do not
        n = c["dim"] // 2
        t["rope_freqs.weight"] = np.where(np.arange(n) < c["turning"], 1.0, 1e30).astype(np.float32)
    if c.get("factors"):
        n = c.get("rope_dims", c["dim"]) // 2
        t["rope_factors_short.weight"] = (1 + 0.1 * rng.random(n)).astype(np.float32)
        t["rope_factors_long.weight"] = (1 + 6 * rng.random(n)).astype(np.float32)
    return t


def is_matrix(name):
    """Whether a quantised model holds it in blocks: all but norms, biases, sinks and the router."""
    return name.endswith(".weight") and not any(x in name for x in ("norm", "sinks", "gate_inp"))


def is_nvfp4(c, name):
    """Likewise: the embeddings stay as they are."""
    return c.get("quantised") == "nvfp4" and is_matrix(name) and not name.startswith("token_embd")


FP4 = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6])
E4M3 = np.array([m / 512 if e == 0 else (1 + m / 8) * 2.0 ** (e - 7)
                 for e in range(16) for m in range(8)][:127])


def nearest(table, x):
    return np.abs(table - x[..., None]).argmin(-1)


def nvfp4(v):
    """Blocks of a matrix or of several, what their products are multiplied by, and what both mean."""
    v = v if v.ndim == 3 else v[None]
    factor = (np.abs(v).max((1, 2)) / (6 * 448)).astype(np.float32)
    groups = v.reshape(*v.shape[:2], -1, 16) / factor[:, None, None, None]
    scales = nearest(E4M3, np.abs(groups).max(-1) / 6).astype(np.uint8)
    q = nearest(FP4, np.abs(groups / np.maximum(E4M3[scales], 1e-9)[..., None])).astype(np.uint8)
    meant = FP4[q] * np.sign(groups) * E4M3[scales][..., None] * factor[:, None, None, None]
    q |= (groups < 0).astype(np.uint8) << 3
    nibbles = (q[..., :8] | q[..., 8:] << 4).reshape(*v.shape[:2], -1, 32)
    blocks = np.concatenate([scales.reshape(*v.shape[:2], -1, 4), nibbles], -1)
    return blocks.reshape(*v.shape[:2], -1), factor, meant.reshape(v.shape)


def write_gguf(path, name, c, t):
    w = gguf.GGUFWriter(path, c["arch"])
    w.add_name(f"weir-test-{name}")
    w.add_block_count(c["layers"] + c.get("beside", 0))
    w.add_context_length(c["ctx"])
    w.add_embedding_length(c["embd"])
    w.add_feed_forward_length(2 * c["ff"] if c.get("half_ff") else c["ff"])
    w.add_head_count(c["heads"])
    w.add_head_count_kv(c["heads_kv"])
    if c.get("latent") and not c.get("unsplit"):
        w.add_key_length(c["latent"] + c["rope_dims"])
        w.add_value_length(c["latent"])
        w.add_key_length_mla(c["head_key"])
        w.add_value_length_mla(c["head_value"])
    else:
        w.add_key_length(c.get("head_key", c["dim"]))
        w.add_value_length(c.get("head_value", c["dim"]))
    w.add_rope_dimension_count(c.get("rope_dims", c["dim"]))
    if c.get("window_dim"):
        w.add_key_length_swa(c["window_dim"])
        w.add_value_length_swa(c["window_dim"])
        w.add_rope_dimension_count_swa(c["window_dim"])
    if c.get("norm"):
        w.add_layer_norm_eps(c["eps"])
    else:
        w.add_layer_norm_rms_eps(c["eps"])
    w.add_rope_freq_base(c["base"])
    w.add_vocab_size(N_VOCAB)
    if c.get("experts"):
        w.add_expert_count(c["experts"])
        w.add_expert_used_count(c["used"])
    if c.get("expert_length"):
        w.add_expert_feed_forward_length(c["expert_length"])
    if c.get("ff_shared") and not c.get("unlisted_shared"):
        w.add_expert_shared_feed_forward_length(c["ff_shared"])
    for i in range(c["layers"], c["layers"] + c.get("beside", 0)): # a layer that is left alone
        t[f"blk.{i}.nextn.eh_proj.weight"] = np.ones((c["embd"], 2 * c["embd"]), np.float32)
    keys = {f"{c['arch']}.{k}": v for k, v in c.get("keys", {}).items()}
    for k, v in {**keys, **c.get("plain_keys", {})}.items():
        add = {int: w.add_uint32, float: w.add_float32, str: w.add_string, bool: w.add_bool,
               list: w.add_array}[type(v)]
        add(k, v)
    # bytes are all this vocabulary knows
    tokens = [b"<unk>", b"<s>", b"</s>"] + [b"<0x%02X>" % i for i in range(256)]
    tokens += [b"\xe2\x96\x81", b"a", b"b", b"c", b"<|endoftext|>"]
    w.add_tokenizer_model("llama")
    w.add_token_list(tokens)
    w.add_token_scores([0.0] * len(tokens))
    w.add_token_types([2, 3, 3] + [6] * 256 + [1] * 5)
    w.add_bos_token_id(1)
    w.add_eos_token_id(2)
    if c["arch"] == "falcon-h1": # as its files call it
        t = {k.replace("ffn_norm.weight", "ffn_norm"): v for k, v in t.items()}
    for k, v in t.items():
        if is_nvfp4(c, k):
            blocks, factor, _ = nvfp4(v)
            w.add_tensor(k, blocks if v.ndim == 3 else blocks[0],
                         raw_dtype=gguf.GGMLQuantizationType.NVFP4)
            w.add_tensor(k.replace(".weight", ".scale"), factor)
            w.add_tensor(k.replace(".weight", ".input_scale"), 0.01 * np.ones_like(factor))
            continue
        q8 = c.get("quantised") == "q8_0" and is_matrix(k)
        w.add_tensor(k, quants.quantize(v, Q8_0) if q8 else v, raw_dtype=Q8_0 if q8 else None)
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_tensors_to_file(progress=False)
    w.close()


def frequencies(c, t, windowed):
    """Radians a position for each pair, and the factor of cosines and sines."""
    n = c.get("rope_dims", c.get("window_dim", c["dim"]) if windowed else c["dim"])
    base = c.get("window_base", c["base"]) if windowed else c["base"]
    f = base ** (-np.arange(0, n, 2) / n)
    plain = windowed and ("window_base" in c or c.get("window_unscaled"))
    scale, factor = c.get("attn_factor", 1.0), c.get("factor", 1.0)
    if plain:
        return f, 1.0
    if c.get("turning"):
        return f / t["rope_freqs.weight"], 1.0
    if c.get("factors"):
        return f / t[f"rope_factors_{c['factors']}.weight"], np.float64(np.float32(scale))
    if c.get("scaling") == "linear":
        return f / factor, scale
    if c.get("scaling") == "yarn":
        def dim(turns):
            return n * np.log(c["first_ctx"] / (turns * 2 * np.pi)) / (2 * np.log(base))
        low, high = max(0, np.floor(dim(32.0))), min(n - 1, np.ceil(dim(1.0)))
        keep = 1 - np.clip((np.arange(n // 2) - low) / max(0.001, high - low), 0, 1)
        if "yarn_turn" not in c:
            scale *= 1 + 0.1 * np.log(factor)
        return f / factor * (1 - keep) + f * keep, scale * c.get("yarn_turn", 1.0)
    return f, scale


def best_groups(c, rank):
    """-inf for experts outside of the best groups, each worth its best or, biased, its best two."""
    groups = rank.reshape(c["groups"], -1)
    worth = np.sort(groups, -1)[:, -2 if c.get("select_bias") else -1:].sum(-1)
    kept = np.argsort(-worth, kind="stable")[:c["groups_used"]]
    return np.where(np.isin(np.arange(c["groups"]), kept)[:, None], groups, -np.inf).reshape(-1)


def temper(c, pos):
    """What queries are multiplied by."""
    scale, length, offset = c.get("temper", (0.0, 1, 0))
    return 1 + np.float64(np.float32(scale)) * np.log(1 + (pos + offset) // length)


def slopes(exponent, n_head):
    """Of ALiBi, by head: powers of a base; past the last power of two of heads those between them."""
    n = 2 ** int(np.log2(n_head))
    powers = [h + 1 if h < n else h - n + 0.5 for h in range(n_head)]
    return np.float64(np.float32(2.0 ** (-exponent * np.array(powers) / n)))


def forward(c, t, ids):
    """Logits [len(ids), n_vocab] in float64; of models that look both ways hidden states."""
    t = {k: v.astype(np.float64) for k, v in t.items()}
    n = len(ids)
    pos = np.arange(n)
    eps = np.float64(np.float32(c["eps"]))

    def rms(x, w):
        return x / np.sqrt((x * x).mean(-1, keepdims=True) + eps) * w

    def norm(x, name):
        weight = t.get(name + ".weight", 1.0)
        if not c.get("norm"):
            return rms(x, weight)
        x = x - x.mean(-1, keepdims=True)
        return rms(x, weight) + t.get(name + ".bias", 0.0)

    def rotate(x, windowed):
        f, scale = frequencies(c, t, windowed)
        a = pos[:, None] * f
        cos, sin = np.cos(a)[:, None] * scale, np.sin(a)[:, None] * scale
        r, out = 2 * len(f), x.copy()
        one, two = (slice(0, r // 2), slice(r // 2, r)) if c.get("pair") == "halves" else (
            slice(0, r, 2), slice(1, r, 2))
        out[..., one] = x[..., one] * cos - x[..., two] * sin
        out[..., two] = x[..., one] * sin + x[..., two] * cos
        return out

    def gate(g, u):
        if c.get("act") == "gelu":
            return 0.5 * g * (1 + np.tanh(np.sqrt(2 / np.pi) * (g + 0.044715 * g ** 3))) * u
        if c.get("act") == "gelu_exact":
            return 0.5 * g * (1 + np.vectorize(math.erf)(g / np.sqrt(2))) * u
        if c.get("act") == "clamped":
            g, u = np.minimum(g, 7), np.clip(u, -7, 7)
            return g / (1 + np.exp(-1.702 * g)) * (u + 1)
        return g / (1 + np.exp(-g)) * u

    def xielu(x, i):
        alpha_p, alpha_n, beta, eps = (np.float64(np.float32(c["plain_keys"]["xielu." + k][i])) for k in (
            "alpha_p", "alpha_n", "beta", "eps"))
        below = np.expm1(np.minimum(x, eps)) - x
        return beta * x + np.where(x > 0, np.log1p(np.exp(alpha_p)) * x * x,
                                   (beta + np.log1p(np.exp(alpha_n))) * below)

    def unary(x, i):
        if c["unary"] == "xielu":
            return xielu(x, i)
        if c["unary"] == "relu2":
            return np.maximum(x, 0) ** 2
        if c["unary"] == "gelu_tanh":
            return 0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x ** 3)))
        return 0.5 * x * (1 + np.vectorize(math.erf)(x / np.sqrt(2)))

    def softmax(x):
        e = np.exp(x - x.max(-1, keepdims=True))
        return e / e.sum(-1, keepdims=True)

    x = t["token_embd.weight"][ids] * np.float64(np.float32(c.get("embed_scale", 1.0)))
    if c.get("positions"):
        x = x + t["position_embd.weight"][:n]
    if c.get("embed_norm"):
        x = norm(x, "token_embd_norm")
    residual = np.float64(np.float32(c.get("residual", 1.0)))
    stored = {} # keys and values by layer
    if c.get("per_layer"):
        np_, nl = c["per_layer"], c["layers"]
        of_token = t["per_layer_token_embd.weight"][ids].reshape(n, nl, np_) * np_ ** 0.5
        projected = (x @ t["per_layer_model_proj.weight"].T * c["embd"] ** -0.5).reshape(n, nl, np_)
        own = (rms(projected, t["per_layer_proj_norm.weight"]) + of_token) * 0.5 ** 0.5
    if c.get("streams"):
        def matched(y, z):
            return y * np.sqrt((z * z).mean(-1, keepdims=True) / (y * y).mean(-1, keepdims=True))

        def modes(y, i):
            z = rms(y, t[f"blk.{i}.altup_router_norm.weight"]) / c["embd"]
            return np.tanh(z @ t[f"blk.{i}.altup_router.weight"].T)
        streams = [x] + [matched(x @ m.T, x) for m in t["altup_proj.weight"]]
    for i in range(c["layers"]):
        h, hk, ff = (of_layer(c, z, i) for z in ("heads", "heads_kv", "ff"))
        dim, is_recurrent = dim_of(c, i), recurrent.is_layer(c, i)
        if c.get("recurrent") and not hk or is_recurrent and not c.get("both"):
            h = hk = 0
        if c.get("streams"):
            coefs = modes(streams[0], i) @ t[f"blk.{i}.altup_predict_coef.weight"].T
            coefs = coefs.reshape(n, len(streams), len(streams))
            streams = [s + sum(coefs[:, j, k, None] * streams[k] for k in range(len(streams)))
                       for j, s in enumerate(streams)]
            x = streams[0]

        def norm_here(y, name):
            return norm(y, f"blk.{i}.{name}")

        def w(name, kind="weight"):
            return t[f"blk.{i}.{name}.{kind}"]

        def linear(y, name):
            b = t.get(f"blk.{i}.{name}.bias")
            return y @ w(name).T + (0 if b is None else b)

        def attend_latent(y):
            """As DeepSeek-V2 defines it: each head's keys and values made of the latent."""
            r, dr, dk, dv = c["latent"], c["rope_dims"], c["head_key"], c["head_value"]
            z = y
            if c.get("q_latent"):
                z = rms(linear(y, "attn_q_a"), w("attn_q_a_norm"))
            q = (z @ w("attn_q_b" if c.get("q_latent") else "attn_q").T).reshape(n, h, dk)
            kv = linear(y, "attn_kv_a_mqa")
            latent = rms(kv[:, :r], w("attn_kv_a_norm"))
            if c.get("unsplit"):
                both = w("attn_kv_b").reshape(h, dk - dr + dv, r)
                k_b, v_b = both[:, :dk - dr], both[:, dk - dr:]
            else:
                k_b, v_b = w("attn_k_b").transpose(0, 2, 1), w("attn_v_b")
            k = np.einsum("nr,hkr->nhk", latent, k_b)
            v = np.einsum("nr,hvr->nhv", latent, v_b)
            turned = rotate(kv[:, None, r:], False)
            k = np.concatenate([k, np.repeat(turned, h, 1)], -1)
            q = np.concatenate([q[..., :dk - dr], rotate(q[..., dk - dr:], False)], -1)
            s = np.einsum("qhd,khd->hqk", q * temper(c, pos)[:, None, None], k)
            s = s * dk ** -0.5 * c.get("yarn_scores", 1.0)
            s = softmax(np.where(pos[:, None] < pos[None, :], -np.inf, s))
            return linear(np.einsum("hqk,khd->qhd", s, v).reshape(n, h * dv), "attn_output")

        def attend(y):
            if c.get("latent"):
                return attend_latent(y)
            windowed = is_windowed(c, i)
            if hk == 0:
                return linear(y, "attn_output")
            if kv_layer(c, i) != i: # only queries
                q = rms(linear(y, "attn_q").reshape(n, h, dim), w("attn_q_norm"))
                return weigh(rotate(q, windowed), *stored[kv_layer(c, i)], windowed)
            if c.get("fused") or c.get("fused_qkv"):
                q, k, v = np.split(linear(y, "attn_qkv"), [h * dim, (h + hk) * dim], -1)
            elif c.get("value_of_key") and not windowed:
                q, k = linear(y, "attn_q"), linear(y, "attn_k")
                v = k
            else:
                q, k, v = (linear(y, "attn_" + z) for z in "qkv")
            if c.get("clamp"):
                q, k, v = (np.clip(z, -c["clamp"], c["clamp"]) for z in (q, k, v))
            if c.get("qk_norm") == "rows":
                q, k = rms(q, w("attn_q_norm")), rms(k, w("attn_k_norm"))
            if c.get("gate_in_query"):
                q, in_query = np.split(q.reshape(n, h, 2 * dim), 2, -1)
            q, k, v = q.reshape(n, h, dim), k.reshape(n, hk, dim), v.reshape(n, hk, dim)
            if c.get("qk_norm") == "each":
                q, k = (rms(z - z.mean(-1, keepdims=True), w(f"attn_{x}_norm"))
                        for z, x in ((q, "q"), (k, "k")))
            if c.get("value_norm"):
                v = rms(v, 1.0)
            if c.get("qk_norm") == "heads":
                q, k = rms(q, w("attn_q_norm")), rms(k, w("attn_k_norm"))
            rotated = not c.get("no_rope_every") or (i + 1) % c["no_rope_every"]
            rotated = rotated and not (
                c.get("full_unrotated") and not windowed and i >= c.get("lead_rotated", 0))
            rotated = rotated and not c.get("unrotated") and c.get("rotated", [True] * (i + 1))[i]
            if rotated:
                q, k = rotate(q, windowed), rotate(k, windowed)
                if c.get("qk_norm") == "bare":
                    q, k = rms(q, 1.0), rms(k, 1.0)
            if not rotated or not c.get("full_unrotated"):
                q = q * temper(c, pos)[:, None, None]
            if c.get("qk_norm") == "rotated":
                q, k = rms(q, w("attn_q_norm")), rms(k, w("attn_k_norm"))
            stored[i] = k, v
            if c.get("gate_in_query"):
                return weigh(q, k, v, windowed, in_query.reshape(n, -1))
            return weigh(q, k, v, windowed, linear(y, "attn_gate") if c.get("gated_attention") else None)

        def weigh(q, k, v, windowed, gate=None):
            k, v = np.repeat(k, h // hk, 1), np.repeat(v, h // hk, 1)
            s = np.einsum("qhd,khd->hqk", q, k) * np.float64(
                np.float32(c.get("attention_scale", dim ** -0.5)))
            if "cap" in c:
                s = c["cap"] * np.tanh(s / c["cap"])
            apart = pos[:, None] - pos[None, :]
            if c.get("alibi"):
                s = s - slopes(c["alibi"], h)[:, None, None] * np.abs(apart)
            window = c.get("window", 1)
            if c.get("both_ways"):
                hidden = windowed & (np.abs(apart) > window // 2)
            elif c.get("chunks"):
                hidden = (apart < 0) | (windowed & (pos[:, None] // window != pos[None, :] // window))
            else:
                hidden = (apart < 0) | (windowed & (apart >= window))
            s = np.where(hidden, -np.inf, s)
            if c.get("sinks"):
                sinks = np.broadcast_to(w("attn_sinks")[:, None, None], (h, n, 1))
                s = np.concatenate([s, sinks], -1)
            s = softmax(s)[..., :n]
            gathered = np.einsum("hqk,khd->qhd", s, v).reshape(n, h * dim)
            if gate is not None:
                gathered = gathered / (1 + np.exp(-gate))
            return linear(gathered, "attn_output")

        before = x
        if is_recurrent and not h:
            x = x + recurrent.layer(c, i, t, norm_here(x, "attn_norm"), eps) * residual
        if h:
            name = "attn_norm_2" if c.get("second") == "attn_norm_2" else "attn_norm"
            bare = c.get("norms") == "after" or c.get("first_bare") and i == 0
            y = attend(x if bare else norm_here(x, name))
            if is_recurrent:
                y = y + recurrent.layer(c, i, t, norm_here(x, name), eps)
            if c.get("norms") in ("both", "after"):
                y = norm_here(y, "post_attention_norm")
            x = x + y * residual
            if c.get("streams"):
                low = norm_here(before, "attn_norm")
                beside = norm_here(linear(linear(low, "laurel_l"), "laurel_r"), "laurel_post_norm")
                x = (x + beside + low) * 0.5 ** 0.5
        if not ff:
            continue
        if c.get("parallel"):
            y = norm_here(before, "ffn_norm" if c.get("second") == "ffn_norm" else "attn_norm")
        else:
            y = x if c.get("norms") == "after" else norm_here(x, ffn_norm_of(c))
        if is_expert_layer(c, i):
            out = np.zeros_like(x)
            if c.get("beside_dense"):
                dense = norm_here(linear(gate(linear(y, "ffn_gate"), linear(y, "ffn_up")), "ffn_down"),
                                  "post_ffw_norm_1")
                y = rms(x, w("ffn_gate_inp", "scale")) * c["embd"] ** -0.5
            scores = linear(y, "ffn_gate_inp")
            if c.get("beside_dense"):
                y = norm_here(x, "pre_ffw_norm_2")
            for r in range(n):
                weights = 1 / (1 + np.exp(-scores[r])) if c.get("sigmoid") else softmax(scores[r])
                bias = t.get(f"blk.{i}.exp_probs_b.bias", t.get(f"blk.{i}.exp_probs_b"))
                rank = weights + bias if c.get("select_bias") else scores[r]
                if c.get("groups"):
                    rank = best_groups(c, rank if c.get("select_bias") else weights)
                top = np.argsort(-rank, kind="stable")[:c["used"]]
                if c.get("expert_input"):
                    weights = weights[top]
                elif c.get("over_all"):
                    weights = weights[top] * c.get("weights_scale", 1.0)
                elif c.get("weights_norm"):
                    weights = weights[top] / weights[top].sum() * c.get("weights_scale", 1.0)
                else:
                    weights = softmax(scores[r][top])
                for e, weight in zip(top, weights):
                    if c.get("beside_dense"):
                        g, u = np.split(w("ffn_gate_up_exps")[e] @ y[r], 2)
                        out[r] += weight * w("ffn_down_exps", "scale")[e] * (
                            w("ffn_down_exps")[e] @ gate(g, u))
                        continue
                    def one(z, name):
                        b = t.get(f"blk.{i}.{name}.bias")
                        return w(name)[e] @ z + (0 if b is None else b[e])
                    z = y[r] * weight if c.get("expert_input") else y[r]
                    if c.get("unary"):
                        z = w("ffn_latent_down") @ z if c.get("expert_latent") else z
                        z = one(unary(one(z, "ffn_up_exps"), i), "ffn_down_exps")
                        out[r] += weight * (w("ffn_latent_up") @ z if c.get("expert_latent") else z)
                        continue
                    if c.get("fused_experts"):
                        g, u = np.split(one(z, "ffn_gate_up_exps"), 2)
                        out[r] += weight * one(gate(g, u), "ffn_down_exps")
                        continue
                    out[r] += (1.0 if c.get("expert_input") else weight) * one(
                        gate(one(z, "ffn_gate_exps"), one(z, "ffn_up_exps")), "ffn_down_exps")
            if c.get("ff_shared"):
                if c.get("unary"):
                    mid = unary(linear(y, "ffn_up_shexp"), i)
                elif c.get("fused_shared"):
                    mid = gate(*np.split(linear(y, "ffn_up_shexp"), 2, -1))
                else:
                    mid = gate(linear(y, "ffn_gate_shexp"), linear(y, "ffn_up_shexp"))
                shared = linear(mid, "ffn_down_shexp")
                if c.get("shared_gate"):
                    shared /= 1 + np.exp(-(y @ w("ffn_gate_inp_shexp")))[:, None]
                out = (out + shared) * (0.5 if c.get("shared_average") else 1.0)
            y = dense + norm_here(out, "post_ffw_norm_2") if c.get("beside_dense") else out
        elif c.get("unary"):
            y = linear(unary(linear(y, "ffn_up"), i), "ffn_down")
        else:
            if c.get("fused") or c.get("fused_ffn"):
                g, u = np.split(linear(y, "ffn_up"), 2, -1)
            else:
                g, u = linear(y, "ffn_gate"), linear(y, "ffn_up")
            if c.get("sparse", [-np.inf] * (i + 1))[i] > -np.inf:
                cut = g.std(-1, ddof=1, keepdims=True) * np.float64(np.float32(c["sparse"][i]))
                g = np.maximum(g - g.mean(-1, keepdims=True) - cut, 0)
            y = linear(gate(g, u), "ffn_down")
        if c.get("norms") in ("both", "after"):
            y = norm_here(y, "post_ffw_norm")
        x = x + y * residual
        if c.get("streams"):
            coefs = modes(x, i) @ w("altup_correct_coef").T
            change = x - streams[0]
            streams = [s + change * (1 + coefs[:, j, None]) for j, s in enumerate(streams)]
            y = linear(gate(linear(streams[0] * w("altup_correct_scale"), "inp_gate"), own[:, i]), "proj")
            streams = [streams[0]] + [s + norm_here(y, "post_norm") for s in streams[1:]]
        elif c.get("per_layer"):
            y = linear(gate(linear(x, "inp_gate"), own[:, i]), "proj")
            x = x + norm_here(y, "post_norm")
        if c.get("layer_scale"):
            x = x * w("layer_output_scale")
    if c.get("streams"):
        x = streams[0] + sum(matched(s @ m.T, streams[0])
                             for s, m in zip(streams[1:], t["altup_unembd_proj.weight"]))
        x = x / len(streams)
    if c.get("both_ways"):
        return norm(x, "output_norm")
    out = norm(x, c.get("output_norm", "output_norm")) @ t.get("output.weight", t["token_embd.weight"]).T
    out = (out + t.get("output.bias", 0.0)) / c.get("logit_divisor", 1.0)
    out = out * np.float64(np.float32(c.get("logit_factor", 1.0)))
    return c["final_cap"] * np.tanh(out / c["final_cap"]) if "final_cap" in c else out


def make(folder, name, c, seed):
    rng = np.random.default_rng(seed)
    t = tensors_of(c, rng)
    stem = str(folder / (name if c.get("quantised") else f"{name}.f32"))
    write_gguf(stem + ".gguf", name, c, t)
    if c.get("quantised") == "nvfp4":
        t = {k: nvfp4(v)[2].reshape(v.shape) if is_nvfp4(c, k) else v for k, v in t.items()}
    elif c.get("quantised"): # the exact logits are those of what the blocks mean
        t = {k: quants.dequantize(quants.quantize(v, Q8_0), Q8_0) if is_matrix(k) else v
             for k, v in t.items()}
    ids = [int(i) for i in rng.integers(3, N_VOCAB, N_PROMPT)]
    if c.get("both_ways"): # what make_encoders.py would write
        ids = encoder_prompt()
        forward(c, t, ids).astype(np.float32).tofile(stem + ".hidden")
        pathlib.Path(stem + ".json").write_text(json.dumps({"prompt": ids, "second": 0}) + "\n")
        return
    logits = forward(c, t, ids)
    logits[ROWS].astype(np.float32).tofile(stem + ".logits")
    greedy, margins, text = [], [], list(ids)
    for _ in range(N_GREEDY):
        last = forward(c, t, text)[-1]
        best = np.sort(last)[::-1]
        greedy.append(int(last.argmax()))
        margins.append(round(float(best[0] - best[1]), 6))
        text.append(greedy[-1])
    about = {"prompt": ids, "logit_rows": ROWS, "greedy": greedy, "top1_minus_top2": margins,
             "seed": seed}
    if "nmse_llama_cpp" in c:
        about["nmse_llama_cpp"] = c["nmse_llama_cpp"]
    pathlib.Path(stem + ".json").write_text(json.dumps(about))


if __name__ == "__main__":
    args, (models, base, seed) = sys.argv[1:], (MODELS, BASE, 1000)
    if args[0] == "--families":
        models, base, seed = FAMILIES, SMALL, 2000
    if args[0] == "--recurrent":
        models, base, seed = recurrent.RECURRENT, recurrent.SMALL, 3000
    args = args[args[0].startswith("--"):]
    out, names = pathlib.Path(args[0]), args[1:]
    out.mkdir(parents=True, exist_ok=True)
    for number, model in enumerate(models):
        if not names or model in names:
            make(out, model, {**base, **models[model]}, seed + number)
