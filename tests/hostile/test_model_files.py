"""Models that are GGUF files but no models, given to every command that loads one: exit status 1 and one
line that names the key or the tensor; no signal, and no memory beyond what the file is worth.

    WEIR_BIN=build/weir pytest tests/hostile
"""

import math
import os
import pathlib
import random
import signal
import struct
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests" / "fuzz"))
import tiny_attending as attending  # noqa: E402
import tiny_model as tiny  # noqa: E402
import tiny_recurrent as recurrent  # noqa: E402
from make_corpus_gguf import BOOL, F32, I32, STRING, U8, U32, U64  # noqa: E402

WEIR = os.environ.get("WEIR_BIN", str(ROOT / "build" / "weir"))
LOGITS = ("logits", "--tokens", "1,2,3", "--threads", "1", "-m")
SERVE = ("serve", "--port", "0", "--threads", "1", "-m")
TOKENIZE = ("tokenize", "--file", "/dev/null", "-m")
EXTRA_BYTES = 64 << 20  # that a refusal may take beyond what the good model takes


def run(*args):
    """-> exit status, stderr"""
    p = subprocess.Popen([WEIR, *map(str, args)], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    try:
        err = p.communicate(timeout=300)[1].decode()
    except subprocess.TimeoutExpired:
        p.kill()
        pytest.fail(f"{args} still ran after five minutes")
    return p.returncode, err


def refused(command, path, *words):
    status, err = run(*command, path)
    lines = [line for line in err.splitlines() if not line.startswith(("weir: info", "weir: warn"))]
    assert status == 1 and len(lines) == 1, (status, err)
    assert err.replace("\n", "").isprintable(), err
    assert lines[0].startswith(f"weir {command[0]}: "), lines
    for word in words:
        assert word in lines[0], lines


def sizes(*names):
    """Integer keys of the architecture, with values that none may have."""
    for name in names:
        key = f"llama.{name}"
        yield f"{name}_0", {"set_keys": {key: (U32, 0)}}, (key,)
        yield f"{name}_2^31", {"set_keys": {key: (U32, 2**31)}}, (key, "2147483648")
        yield f"{name}_2^32", {"set_keys": {key: (U64, 2**32)}}, (key, "too large")
        yield f"{name}_negative", {"set_keys": {key: (I32, -1)}}, (key, "negative")
        yield f"{name}_text", {"set_keys": {key: (STRING, "16")}}, (key, "integer")
        yield f"{name}_real", {"set_keys": {key: (F32, 16.0)}}, (key, "integer")


def floats(key, *values, more=()):
    for v in values:
        yield f"{key}_{v}", {"set_keys": {**dict(more), key: (F32, v)}}, (key,)
    yield f"{key}_text", {"set_keys": {**dict(more), key: (STRING, "1")}}, (key,)


def missing():
    for name in ("general.architecture", "llama.block_count", "llama.context_length",
                 "llama.embedding_length", "llama.feed_forward_length", "llama.attention.head_count"):
        yield f"no_{name}", {"drop": [name]}, (name, "missing")
    for name in tiny.tensors():
        yield f"no_{name}", {"drop": [name]}, (name, "missing")


def shapes():
    for name, (_, shape) in tiny.tensors().items():
        if name != "token_embd.weight":
            yield f"long_{name}", {"set_tensors": {name: (0, (*shape[:-1], shape[-1] + 1))}}, (name,)
        yield f"short_{name}", {"set_tensors": {name: (0, (shape[0] - 1, *shape[1:]))}}, (name, "shape")
        yield f"deep_{name}", {"set_tensors": {name: (0, (*shape, *[1] * (2 - len(shape)), 2))}}, (name,)


WRONG = [
    *sizes("block_count", "context_length", "embedding_length", "feed_forward_length",
           "attention.head_count", "attention.head_count_kv", "attention.key_length",
           "attention.value_length", "rope.dimension_count"),
    *floats("llama.attention.layer_norm_rms_epsilon", math.nan, math.inf, -math.inf, -1e-5, 1.0, 3e38),
    *floats("llama.rope.freq_base", math.nan, math.inf, -math.inf, 0.0, -1.0, 1.0, 3e38),
    *floats("llama.rope.scaling.factor", math.nan, math.inf, -1.0, 3e38,
            more={"llama.rope.scaling.type": (STRING, "linear")}),
    *missing(),
    *shapes(),
    ("more_layers", {"set_keys": {"llama.block_count": (U32, 1024)}}, ("blk.1.", "missing")),
    ("heads_not_dividing", {"set_keys": {"llama.attention.head_count": (U32, 3)}},
     ("llama.attention.head_count is 3",)),
    ("kv_heads_not_dividing", {"drop": ["llama.rope.dimension_count"],
                                "set_keys": {"llama.attention.head_count": (U32, 4),
                                            "llama.attention.head_count_kv": (U32, 3)}},
     ("head_count is 4", "head_count_kv, 3")),
    ("odd_rotation", {"set_keys": {"llama.rope.dimension_count": (U32, 5)}}, ("rope.dimension_count",)),
    ("long_rotation", {"set_keys": {"llama.rope.dimension_count": (U32, 10)}}, ("rope.dimension_count",)),
    ("array_of_sizes", {"set_keys": {"llama.feed_forward_length": (U32, [16, 17])}},
     ("llama.feed_forward_length",)),
    ("text_architecture", {"set_keys": {"general.architecture": (STRING, "\x1b[2J\n" * 20)}},
     ("is not one that Weir runs",)),
    ("number_architecture", {"set_keys": {"general.architecture": (U32, 1)}}, ("general.architecture",)),
    ("scaling_escapes", {"set_keys": {"llama.rope.scaling.type": (STRING, "\x1b[2J\n")}}, ("\\x1b",)),
    ("extra_tensor", {"set_tensors": {"blk.0.attn_q.bias2": (0, (16,))}}, ("blk.0.attn_q.bias2 has no place",)),
    ("layer_too_many", {"set_tensors": {"blk.1.attn_norm.weight": (0, (16,))}},
     ("blk.1.attn_norm.weight has no place",)),
    ("norm_of_f16", {"set_tensors": {"output_norm.weight": (1, (16,))}}, ("output_norm.weight", "F16")),
]


BIG = (2**31, 2**32 - 1)
GOOD = None # a value that means something, or that is another way to say the default


def further():
    """Values of keys that only some architectures have -> the words of the refusal, or GOOD."""
    def integers(make, arch, good, *wrong):
        for key, values in good.items():
            for v in values:
                yield f"{arch}_{key}_{v}", make(**{f"{arch}.{key}": (U32, v)}), GOOD
        for key, *values in wrong:
            for v in (*values, *BIG):
                yield f"{arch}_{key}_{v}", make(**{f"{arch}.{key}": (U32, v)}), (f"{arch}.{key}",)

    def reals(make, arch, *keys):
        for key in keys:
            for v in (math.nan, math.inf, -math.inf, -1.0, 3e38):
                yield f"{arch}_{key}_{v}", make(**{f"{arch}.{key}": (F32, v)}), (f"{arch}.{key}",)

    def tiny_mimo2(**more):
        return attending.mimo2(**{key.removeprefix("mimo2."): v for key, v in more.items()})

    def latent(**more):
        return attending.deepseek(False, **{**attending.GROUPS, **more})

    yield from integers(
        latent, "deepseek2",
        {"expert_group_count": (0, 1), "expert_group_used_count": (1,), "attention.q_lora_rank": (0,)},
        ("attention.kv_lora_rank", 0, 1), ("attention.q_lora_rank",),
        ("attention.key_length_mla", 0, 8), ("attention.value_length_mla", 0),
        ("rope.dimension_count", 0, 1, 7), ("attention.head_count", 0),
        ("attention.head_count_kv", 0), ("expert_used_count", 0, 5),
        ("expert_group_count", 3, 5), ("expert_group_used_count", 0, 3),
        ("expert_feed_forward_length",), ("expert_gating_func", 4), ("nextn_predict_layers", 1, 2),
        ("attention.temperature_length", 0), ("feed_forward_length",))
    yield "deepseek2_old_key_length", attending.deepseek(True, **{
        "deepseek2.attention.key_length": (U32, 8)}), ("deepseek2.attention.key_length is 8",)
    yield "deepseek2_old_latent", attending.deepseek(True, **{
        "deepseek2.attention.kv_lora_rank": (U32, 6)}), ("attn_kv_b.weight has shape",)
    for key, v, words in (("attention.kv_lora_rank", 6, "attn_k_b.weight has shape"),
                          ("attention.q_lora_rank", 8, "attn_q_a.weight is missing"),
                          ("attention.value_length_mla", 1, "attn_v_b.weight has shape"),
                          ("attention.head_count_kv", 3, "no multiple of head_count_kv, 3"),
                          ("rope.dimension_count", 16, "key_length_mla is 16, expected 17"),
                          ("expert_used_count", 3, "expert_group_used_count is 1: of 2"),
                          ("expert_count", 0, "ffn_gate.weight is missing"),
                          ("expert_shared_count", 2, "ffn_gate_shexp.weight has shape")):
        yield f"deepseek2_{key}_{v}", latent(**{"deepseek2." + key: (U32, v)}), (words,)
    yield from reals(latent, "deepseek2", "expert_weights_scale", "attention.temperature_scale",
                     "rope.scaling.yarn_log_multiplier")

    yield from integers(
        attending.sparse, "glm-dsa", {"attention.indexer.top_k": (3, 2**26)},
        ("attention.indexer.top_k", 0), ("attention.kv_lora_rank", 0, 1))
    yield "glm-dsa_no_top_k", attending.sparse(**{
        "glm-dsa.attention.indexer.top_k": (STRING, "8")}), ("attention.indexer.top_k", "integer")
    yield "glm-dsa_longer_than_picked", attending.sparse(**{
        "glm-dsa.attention.indexer.top_k": (U32, 2)}), ("sparse attention", "2 positions")

    yield from integers(
        recurrent.kimi, "kimi-linear", {}, ("kda.head_dim", 0, 1025), ("ssm.conv_kernel", 0, 1, 9),
        ("attention.kv_lora_rank", 0, 1))
    for key, v, words in (("kda.head_dim", 5, "attn_q.weight has shape"),
                          ("ssm.conv_kernel", 3, "ssm_conv1d_q.weight has shape")):
        yield f"kimi-linear_{key}_{v}", recurrent.kimi(**{"kimi-linear." + key: (U32, v)}), (words,)
    for heads, words in (([0, 0], "no layer attends"), ([1, 1], "blk.1.attn_"), ([0, 1], "blk.0.")):
        yield f"kimi-linear_heads_{heads}", recurrent.kimi(**{
            "kimi-linear.attention.head_count_kv": (I32, heads)}), (words,)

    for key, v, words in (("kda.safe_gate", (BOOL, False), "kda.safe_gate is false"),
                          ("kda.gate_lower_bound", (F32, 0.5), "kda.gate_lower_bound is 0.5"),
                          ("kda.gate_lower_bound", (F32, 0.0), "kda.gate_lower_bound is 0"),
                          ("kda.head_dim", (U32, 5), "attn_q.weight has shape")):
        yield f"bailingmoe3_{key}_{v[1]}", recurrent.ling(**{"bailingmoe3." + key: v}), (words,)
    yield from integers(
        recurrent.recalling, "kimi-k3", {"attn_res.block_size": (2,), "expert_latent_length": (8,)},
        ("kda.head_dim", 0, 1025), ("attn_res.block_size", 2**20 + 1), ("expert_latent_length", 2**17))
    for key, v, words in (("activation.situ_beta", (F32, 0.0), "activation.situ_beta is 0"),
                          ("activation.situ_beta", (F32, float("nan")), "activation.situ_beta"),
                          ("activation.situ_linear_beta", (F32, float("inf")), "activation.situ_linear_beta"),
                          ("kda.gate_lower_bound", (F32, 0.5), "kda.gate_lower_bound is 0.5"),
                          ("attn_res.block_size", (U32, 0), "_res_score.weight has no place"),
                          ("expert_latent_length", (U32, 0), "ffn_gate_exps.weight has shape")):
        yield f"kimi-k3_{key}_{v[1]}", recurrent.recalling(**{"kimi-k3." + key: v}), (words,)
    for key in ("attn_res.block_size", "activation.situ_beta"):
        yield f"kimi-k3_no_{key}", recurrent.recalling(drop=[key]), (f"kimi-k3.{key} is missing",)
    yield "bailingmoe3_unbounded", recurrent.ling(False), ("kda.gate_lower_bound is missing",)

    yield from integers(
        recurrent.rwkv6, "rwkv6", {"rescale_every_n_layers": (0, 1, *BIG)}, ("wkv.head_size", 0, 3, 1025),
        ("token_shift_count", 0, 1, 3), ("time_mix_extra_dim", 0, 2**14 + 1),
        ("time_decay_extra_dim", 0, 2**14 + 1))
    yield from integers(
        recurrent.rwkv, "rwkv7", {"token_shift_count": (2,)}, ("wkv.head_size", 0, 3, 1025),
        ("token_shift_count", 0, 1, 3),
        *((f"attention.{x}_lora_rank", 0, 2**14 + 1)
          for x in ("decay", "iclr", "value_residual_mix", "gate")))
    yield from integers(
        recurrent.qrwkv6, "rwkv6qwen2", {"token_shift_count": (1,), "rescale_every_n_layers": (0, 1, *BIG)},
        ("wkv.head_size", 0, 3, 1025), ("token_shift_count", 0, 2, 3), ("attention.head_count_kv", 3, 5, 2**16),
        ("time_mix_extra_dim", 0, 2**14 + 1), ("time_decay_extra_dim", 0, 2**14 + 1))
    for heads in (0, 1, 4):
        yield f"rwkv6qwen2_heads_{heads}", recurrent.qrwkv6(**{
            "rwkv6qwen2.attention.head_count_kv": (U32, heads)}), ("time_mix_key.weight has shape",)
    yield from integers(
        recurrent.arwkv, "arwkv7", {"token_shift_count": (1,)}, ("wkv.head_size", 0, 3, 1025),
        ("token_shift_count", 0, 2, 3), ("attention.gate_lora_rank", 2**14 + 1),
        *((f"attention.{x}_lora_rank", 0, 2**14 + 1) for x in ("decay", "iclr", "value_residual_mix")))
    for rank in (0, 4):
        yield f"arwkv7_gate_of_{rank}", recurrent.arwkv(**{
            "arwkv7.attention.gate_lora_rank": (U32, rank)}), ("time_mix_g1.weight has shape",)
    yield "arwkv7_no_forward_part", recurrent.arwkv(**{
        "arwkv7.feed_forward_length": (U32, 0)}), ("feed_forward_length is missing or 0",)
    yield "rwkv7_no_forward_part", recurrent.rwkv(**{
        "rwkv7.feed_forward_length": (U32, 0)}), ("feed_forward_length is missing or 0",)

    yield from integers(
        attending.llama4, "llama4",
        {"attention.sliding_window": (0, 1, *BIG), "interleave_moe_layer_step": (0, *BIG),
         "attention.chunk_size": (0, *BIG), "attention.sliding_window_pattern": (0, 1, *BIG)},
        ("expert_used_count", 0, 5))
    yield "llama4_no_pattern", attending.llama4(**{
        "llama4.attention.sliding_window_pattern": (BOOL, [])}), ("sliding_window_pattern",)
    yield "llama4_temperature", attending.llama4(**{
        "llama4.attention.temperature_scale": (F32, -0.1)}), ("attention.temperature_scale",)

    yield from integers(
        attending.mistral3, "mistral3", {"attention.temperature_length": (1,)},
        ("rope.scaling.original_context_length", 0), ("attention.temperature_length", 0))
    yield from reals(attending.mistral3, "mistral3", "rope.scaling.factor", "attention.temperature_scale",
                     "rope.scaling.yarn_log_multiplier", "rope.scaling.yarn_beta_fast",
                     "rope.scaling.yarn_beta_slow", "rope.scaling.attn_factor")

    yield from integers(
        attending.glm, "glm4moe", {"rope.dimension_count": (6,)},
        ("nextn_predict_layers", 2, 3), ("expert_used_count", 0, 5), ("expert_count", 0, 1025),
        ("expert_gating_func", 3, 4), ("rope.dimension_count", 0, 16))
    yield "glm4moe_nothing_beside", attending.glm(**{
        "glm4moe.nextn_predict_layers": (U32, 0)}), ("blk.1.attn_norm.weight is missing",)
    yield "glm4moe_more_experts", attending.glm(**{
        "glm4moe.expert_count": (U32, 1024)}), ("ffn_gate_inp.weight has shape",)
    yield from reals(attending.glm, "glm4moe", "expert_weights_scale")

    yield from integers(
        attending.gemma4, "gemma4", {"attention.sliding_window": (1, *BIG)},
        ("attention.shared_kv_layers", 3), ("embedding_length_per_layer_input", 8193),
        ("attention.key_length_swa", 0, 1), ("attention.value_length_swa", 0),
        ("rope.dimension_count_swa", 0, 7, 16))
    for key, v, words in (("attention.shared_kv_layers", 2, "layer 1 has none to attend to"),
                          ("attention.shared_kv_layers", 0, "blk.2.attn_k.weight is missing"),
                          ("embedding_length_per_layer_input", 0, "has no place"),
                          ("embedding_length_per_layer_input", 5, "per_layer_token_embd.weight has"),
                          ("attention.key_length_swa", 16, "attention.value_length_swa"),
                          ("attention.head_count_kv", 2, "attn_k.weight has shape")):
        yield f"gemma4_{key}_{v}", attending.gemma4(**{"gemma4." + key: (U32, v)}), (words,)
    yield "gemma4_other_heads", attending.gemma4(**{
        "gemma4.attention.head_count_kv": (I32, [1, 1, 2])}), ("layer 2 has 2 KV heads",)
    for n, good in ((2, True), (1, False), (4, False)): # of layers that see everything, not of windowed ones
        yield f"gemma4_factors_{n}", attending.gemma4(n, **{
            "gemma4.rope.dimension_count": (U32, 4)}), GOOD if good else ("rope_freqs.weight is not 2",)
    yield "gemma4_experts", attending.gemma4_experts(), GOOD
    yield from integers(attending.gemma4_experts, "gemma4", {}, ("expert_used_count", 0, 5))
    for v, words in ((0, "ffn_gate_inp.weight has no place"), (3, "ffn_gate_inp.weight has shape")):
        yield f"gemma4_experts_{v}", attending.gemma4_experts(**{
            "gemma4.expert_count": (U32, v)}), (words,)

    yield "gemma3n", attending.gemma3n(), GOOD
    yield from integers(
        attending.gemma3n, "gemma3n", {}, ("altup.num_inputs", 0, 1, 9), ("altup.active_idx", 1),
        ("embedding_length_per_layer_input", 0, 8193), ("attention.shared_kv_layers", 1))
    yield "gemma3n_3_streams", attending.gemma3n(**{
        "gemma3n.altup.num_inputs": (U32, 3)}), ("altup_proj.weight has shape",)
    for v, words in (([-math.inf], GOOD), ([math.nan], ("[0] is nan",)), ([math.inf], ("[0] is inf",)),
                     ([1.0, 1.0], ("is not 1 f32",)), (1.0, ("is not 1 f32",))):
        yield f"gemma3n_sparsity_{v}", attending.gemma3n(**{
            "gemma3n.activation_sparsity_scale": (F32, v)}), words

    yield "hy_v4", attending.connected(), GOOD
    yield "hy_v4_whole", attending.connected(False), GOOD
    yield "hy_v4_without_top_k", attending.connected(**{"hy_v4.attention.indexer.top_k": (U32, 0)}), GOOD
    yield from integers(attending.connected, "hy_v4", {"attention.indexer.top_k": (3, 2**26)},
                        ("hyper_connection.count", 0, 1, 9))
    yield "hy_v4_3_streams", attending.connected(**{
        "hy_v4.hyper_connection.count": (U32, 3)}), ("hc_attn_fn.weight has shape",)
    for key, least in (("epsilon", 0.0), ("magnitude", 0.0)):
        yield f"hy_v4_least_{key}", attending.connected(**{f"hy_v4.hyper_connection.{key}": (F32, least)}), GOOD
        for v in (-1.0, 1e7, math.nan, math.inf):
            yield f"hy_v4_{key}_{v}", attending.connected(**{f"hy_v4.hyper_connection.{key}": (F32, v)}), (key,)
        yield f"hy_v4_{key}_text", attending.connected(**{f"hy_v4.hyper_connection.{key}": (STRING, "1")}), (key,)
    for key in ("count", "epsilon", "magnitude"):
        yield f"hy_v4_no_{key}", attending.connected(drop=[f"hy_v4.hyper_connection.{key}"]), (key, "missing")

    yield "hrm_text", attending.cycles(), GOOD
    yield from integers(attending.cycles, "hrm_text", {}, ("hrm.layers_per_stack", 0, 5), ("hrm.l_cycles", 0, 5),
                        ("hrm.h_cycles", 0, 5), ("block_count", 0))
    for key, v in (("layers_per_stack", 2), ("l_cycles", 2), ("l_cycles", 4), ("h_cycles", 1), ("h_cycles", 4)):
        yield f"hrm_text_{key}_{v}", attending.cycles(**{f"hrm_text.hrm.{key}": (U32, v)}), ("block_count is 4, but",)
    yield "hrm_text_5_layers", attending.cycles(**{"hrm_text.block_count": (U32, 5)}), ("block_count is 5, but",)
    for key in ("layers_per_stack", "l_cycles", "h_cycles"):
        yield f"hrm_text_no_{key}", attending.cycles(drop=[f"hrm_text.hrm.{key}"]), (key, "missing")
    for name in ("hrm.z_l_init", "blk.1.attn_gate.weight"):
        yield f"hrm_text_no_{name}", attending.cycles(drop=[name]), (name, "missing")
    yield "hrm_text_logit_scale", attending.cycles(**{"hrm_text.logit_scale": (F32, 2.0)}), ("logit_scale",)

    def one_tensor(**more):
        """Gate and up of each expert below each other."""
        (ke, te), (kl, tl) = tiny.experts("mistral4"), tiny.latent("mistral4", True)
        fused = {"blk.0.ffn_gate_up_exps.weight": (0, (tiny.N_EMBD, 16, 4))} | more.pop("add", {})
        return tiny.small("mistral4", set_keys=ke | kl | more, set_tensors=te | tl | fused, drop=[
            *tiny.DENSE, "blk.0.attn_k.weight", "blk.0.attn_v.weight", "blk.0.ffn_gate_exps.weight",
            "blk.0.ffn_up_exps.weight"])

    yield "mistral4", one_tensor(), GOOD
    for n in (15, 17, 8, 32):
        yield f"mistral4_{n}_rows", one_tensor(add={
            "blk.0.ffn_gate_up_exps.weight": (0, (tiny.N_EMBD, n, 4))}), ("ffn_gate_up_exps.weight has shape",)
    for n in (4, 16, 1 << 20):
        yield f"mistral4_experts_of_{n}", one_tensor(**{
            "mistral4.expert_feed_forward_length": (U32, n)}), ("has shape",)
    yield from integers(
        one_tensor, "mistral4", {"attention.sliding_window": (1, *BIG)},
        ("attention.kv_lora_rank", 0, 1), ("attention.q_lora_rank",), ("rope.dimension_count", 0, 1, 7),
        ("attention.key_length", 0, 8), ("attention.value_length", 0))

    xielu = {"xielu." + k: (F32, v) for k, v in (
        ("alpha_p", 0.8), ("alpha_n", 0.8), ("beta", 0.5), ("eps", -1e-6))}

    def apertus(**more):
        return tiny.small("apertus", set_keys=xielu | more, drop=["blk.0.ffn_gate.weight"],
                          set_tensors={f"blk.0.attn_{x}_norm.weight": (0, (tiny.HEAD,)) for x in "qk"})

    yield "apertus", apertus(), GOOD
    yield "apertus_by_layer", apertus(**{"xielu.beta": (F32, [0.5])}), GOOD
    for key in xielu:
        yield f"{key}_text", apertus(**{key: (STRING, "1")}), (key,)
        yield f"{key}_of_two", apertus(**{key: (F32, [1.0, 1.0])}), (key,)
        yield f"{key}_integer", apertus(**{key: (U32, 1)}), (key,)
        for v in (math.nan, math.inf, -1e30, [math.nan]):
            yield f"{key}_{v}", apertus(**{key: (F32, v)}), (key,)
    yield "clamp", tiny.small("olmo", set_keys={
        "olmo." + tiny.LN: (F32, 1e-5), "olmo.attention.clamp_kqv": (F32, 8.0)}, drop=[
            "output_norm.weight", "blk.0.attn_norm.weight", "blk.0.ffn_norm.weight"]), GOOD
    yield from reals(lambda **more: tiny.small("olmo", set_keys={
        "olmo." + tiny.LN: (F32, 1e-5), **more}), "olmo", "attention.clamp_kqv")
    yield "slopes", attending.sloped(), GOOD
    for v in (0.0, 999.0):
        yield f"slopes_{v}", attending.sloped(**{"attention.max_alibi_bias": (F32, v)}), GOOD
    yield from reals(lambda **more: attending.sloped(**{k.removeprefix("mpt."): v for k, v in more.items()}),
                     "mpt", "attention.max_alibi_bias")
    yield "slopes_text", attending.sloped(**{"attention.max_alibi_bias": (STRING, "8")}), ("max_alibi_bias",)
    yield "slopes_of_llama", tiny.small("llama", set_keys={
        "llama.attention.max_alibi_bias": (F32, 8.0)}), ("attention.max_alibi_bias are not supported",)

    yield "nemotron_3", recurrent.nemotron(), GOOD
    yield "nemotron_3_latent", recurrent.nemotron(moe_latent_size=(U32, 4)), GOOD
    for key, v, words in (("expert_used_count", [1, 0], GOOD), ("expert_used_count", [1, 3], GOOD),
                          ("expert_used_count", [0, 2], ("expert_used_count[0] is 0", "expected 1 to 2")),
                          ("expert_used_count", [0, 0], ("expert_used_count is missing or 0",)),
                          ("expert_used_count", [5, 0], ("expert_used_count[0] is 5", "expected 0 to 4")),
                          ("expert_used_count", [-1, 2], ("expert_used_count[0] is -1",)),
                          ("expert_used_count", [2], ("expert_used_count has 1 values",)),
                          ("expert_feed_forward_length", [8, 0], GOOD),
                          ("expert_feed_forward_length", [0, 8], GOOD),
                          ("expert_feed_forward_length", [7, 8], ("ffn_up_exps.weight has shape",))):
        yield f"nemotron_3_{key}_{v}", recurrent.nemotron(**{key: (I32, v)}), words
    for v in (tiny.N_EMBD + 1, *BIG):
        yield f"nemotron_3_latent_{v}", recurrent.nemotron(moe_latent_size=(U32, v)), ("moe_latent_size",)
    for key, *values in (("expert_count", 0, 5), ("expert_used_count", 0, 5), ("ssm.group_count", 0),
                         ("expert_feed_forward_length",), ("expert_shared_feed_forward_length",)):
        for v in (*values, *BIG):
            yield f"nemotron_3_{key}_{v}", recurrent.nemotron(**{key: (U32, v)}), (
                "ffn_gate_inp.weight has shape" if (key, v) == ("expert_count", 5) else key,)

    for key in ("expert_feed_forward_length", "expert_shared_feed_forward_length"):
        yield f"nemotron_3_no_{key}", recurrent.nemotron(**{ # 0: as feed_forward_length, which says nothing here
            "feed_forward_length": (I32, [0, 0]), key: (U32, 0)}), (f"{key} is missing or 0",)

    yield "granite_swa", attending.granite_windows(), GOOD
    for name, v in (("short", (BOOL, [])), ("reals", (F32, [1.0])), ("text", (STRING, "1"))):
        yield f"granite_swa_{name}", attending.granite_windows(**{"attention.rope_pattern": v}), (
            "rope_pattern is not 1 bools",)
    for name, v in (("integers", (U32, [1])), ("number", (U32, 0))): # as llama.cpp saves them
        yield f"granite_swa_{name}", attending.granite_windows(**{"attention.rope_pattern": v}), GOOD

    def biased(name, n, arch="qwen3"):
        return tiny.small(arch, set_tensors={f"blk.0.{name}.bias": (0, (n,))})

    q, kv = tiny.N_HEAD * tiny.HEAD, tiny.N_KV * tiny.HEAD
    for name, n in (("attn_q", q), ("attn_k", kv), ("attn_v", kv)):
        yield f"qwen3_{name}_bias", biased(name, n), GOOD
        yield f"qwen3_{name}_wide_bias", biased(name, n + 1), (f"{name}.bias has shape {n + 1}",)
    for name in ("attn_output", "ffn_down"):
        yield f"qwen3_{name}_bias", biased(name, tiny.N_EMBD), (f"{name}.bias has no place",)

    gate = "blk.0.attn_gate.weight"
    yield "laguna", attending.laguna(), GOOD
    yield "laguna_by_value", attending.laguna({gate: (0, (tiny.N_EMBD, tiny.N_HEAD * tiny.HEAD))}), GOOD
    yield "laguna_other_gate", attending.laguna({gate: (0, (tiny.N_EMBD, tiny.HEAD))}), (f"{gate} has shape",)
    yield "laguna_gate_elsewhere", attending.laguna({gate.replace("gate", "gats"): (0, (tiny.N_EMBD, 2))}), (
        "attn_gats.weight has no place",)
    yield "laguna_odd_windows", attending.laguna(**{"rope.dimension_count_swa": (U32, 5)}), (
        "rope.dimension_count_swa is odd",)
    yield "step35", attending.step35(), GOOD
    for n in (2, 6): # half of it is odd
        yield f"step35_turns_{n}", attending.step35(**{"rope.dimension_count": (U32, n)}), (
            f"rope.dimension_count is {n}",)
    for n, good in ((2, True), (4, True), (1, False), (3, False), (8, False)): # of either kind of layer
        yield f"step35_factors_{n}", attending.step35({"rope_freqs.weight": (0, (n,))}), GOOD if good else (
            "rope_freqs.weight is not",)
    yield "spark2_5", attending.spark2_5(), GOOD
    for n in (1, 2, 3, 4, 8): # the layers of windows read 4
        yield f"spark2_5_factors_{n}", attending.spark2_5({"rope_freqs.weight": (0, (n,))}), GOOD if n == 4 else (
            "rope_freqs.weight is not",)
    for name in ("swiglu_clamp_exp", "swiglu_clamp_shexp"):
        for v in ((F32, [0.5, 0.5]), (F32, []), (U32, [1]), (STRING, "1"), (F32, [math.nan]), (F32, -1.0)):
            yield f"step35_{name}_{v}", attending.step35(**{name: v}), (name,)
        for v in ((F32, 0.0), (F32, [0.0]), (F32, 7.0)):
            yield f"step35_{name}_{v}", attending.step35(**{name: v}), GOOD
    for tiny_windowed in (attending.step35, attending.mimo2):
        arch = tiny_windowed.__name__
        for name, v, words in (("", (U32, 0), "sliding_window is missing or 0"), ("_pattern", (U32, 1), "no array"),
                               ("_pattern", (BOOL, []), "_pattern is not 1 bools")):
            yield f"{arch}{name}_{v}", tiny_windowed(**{"attention.sliding_window" + name: v}), (words,)
    yield "mimo2", attending.mimo2(), GOOD
    yield from integers(tiny_mimo2, "mimo2", {}, ("attention.value_length", 0, 1, tiny.HEAD + 1))
    yield "mimo2_length_2", attending.mimo2(**{"attention.value_length": (U32, 2)}), ("attn_v.weight has shape",)
    yield "mimo2_windows_of_others", attending.mimo2(**{"attention.value_length_swa": (U32, 8)}), (
        "attention.value_length_swa of 8",)
    yield from reals(tiny_mimo2, "mimo2", "attention.value_scale")
    yield "llama_value_scale", tiny.small("llama", set_keys={"llama.attention.value_scale": (F32, 0.7)}), (
        "attention.value_scale are not supported",)

    yield "bitnet", attending.bitnet(), GOOD
    yield "bitnet_no_scale", attending.bitnet(drop=["blk.0.attn_v.scale"]), GOOD
    for name in ("attn_sub_norm.weight", "ffn_sub_norm.weight"):
        yield f"bitnet_no_{name}", attending.bitnet(drop=["blk.0." + name]), (f"{name} is missing",)
        yield f"bitnet_short_{name}", attending.bitnet({"blk.0." + name: (0, (4,))}), (f"{name} has shape 4",)
    yield "bitnet_scales", attending.bitnet({"blk.0.attn_v.scale": (0, (2,))}), ("attn_v.scale has shape 2",)
    yield "bitnet_other_scale", attending.bitnet({"blk.0.attn_norm.scale": (0, (1,))}), ("has no place",)
    yield "scale_of_llama", tiny.small("llama", set_tensors={"blk.0.attn_v.scale": (0, (1,))}), (
        "attn_v.scale has no place",)
    scale = struct.pack("<f", random.Random("blk.0.attn_v.scale").uniform(-0.3, 0.3))
    for v in (math.nan, -math.inf):
        yield f"bitnet_scale_{v}", attending.bitnet().replace(scale, struct.pack("<f", v)), (
            "attn_v.scale holds what is no number",)

    for v in ("silu", "relu2"):
        yield f"bitnet_{v}", attending.bitnet(keys={"bitnet.hidden_activation": (STRING, v)}), GOOD
    for v in ((STRING, "gelu"), (STRING, "relu"), (STRING, "relu22"), (U32, 2)):
        yield f"bitnet_{v}", attending.bitnet(keys={"bitnet.hidden_activation": v}), (
            "hidden_activation is neither relu2 nor silu",)

    for v in ("gelu", "silu"): # good, but for other commands
        yield f"modern_bert_{v}", attending.modern_bert(hidden_activation=(STRING, v)), ("does not continue",)
    for v in ((STRING, "relu"), (STRING, ""), (U32, 1), (STRING, "x" * 99)):
        yield f"modern_bert_{v}", attending.modern_bert(hidden_activation=v), ("hidden_activation is neither",)
    yield "modern_bert_labels", attending.modern_bert(
        {"cls.output.weight": (0, (tiny.N_EMBD, 1))}), ("modern-bert: models that score labels",)
    yield "half_of_1", tiny.small("qwen", set_keys={
        "qwen.feed_forward_length": (U32, 1)}), ("feed_forward_length is missing or 0",)

    def fp4(factor=(1,), more=(), kind=0):
        """A matrix of NVFP4 with what its products are multiplied by."""
        wide = {f"blk.0.ffn_{x}.weight": (0, (tiny.N_EMBD, 64)) for x in ("gate", "up")}
        down = "blk.0.ffn_down."
        return tiny.small("llama", set_keys={"llama.feed_forward_length": (U32, 64)}, set_tensors={
            **wide, down + "weight": (40, (64, tiny.N_EMBD)), down + "scale": (kind, factor),
            down + "input_scale": (0, (1,)), **dict(more)})

    def tied(factor=None):
        """Embeddings of NVFP4 that are the output matrix as well."""
        wide = {name: (kind, (64, *shape[1:]))
                for name, (kind, shape) in tiny.tensors().items()}
        wide["blk.0.attn_output.weight"] = (0, (tiny.N_HEAD * tiny.HEAD, 64))
        wide["blk.0.ffn_down.weight"] = (0, (tiny.N_FF, 64))
        own = {"token_embd.scale": (0, factor)} if factor else {}
        return tiny.small("llama", set_keys={
            "llama.embedding_length": (U32, 64), "llama.attention.key_length": (U32, tiny.HEAD),
            "llama.attention.value_length": (U32, tiny.HEAD)}, set_tensors={
            **wide, "token_embd.weight": (40, (64, 4)), **own})

    yield "nvfp4", fp4(), GOOD
    yield "nvfp4_other_factor", fp4(more={"blk.0.ffn_down.scale2": (0, (1,))}), ("scale2 has no place",)
    yield "nvfp4_no_matrix_of_it", fp4(more={"blk.0.ffn_up.scale": (0, (1,))}), ("ffn_up.scale has no place",)
    yield "nvfp4_tied", tied(), GOOD
    yield "nvfp4_tied_factor", tied(factor=(1,)), ("token_embd.scale has no place",)
    yield "nvfp4_half", fp4(kind=1), ("ffn_down.scale has type F16",)
    for shape in ((2,), (16,), (1, 2)):
        yield f"nvfp4_factors_{shape}", fp4(shape), ("ffn_down.scale has shape",)
    number = struct.pack("<f", random.Random("blk.0.ffn_down.scale").uniform(-0.3, 0.3))
    for v in (math.nan, math.inf):
        yield f"nvfp4_factor_{v}", fp4().replace(number, struct.pack("<f", v)), ("holds what is no number",)

    for v, words in ((5, "pooling_type is 5"), (2**31, "pooling_type"), (2**32 - 1, "does not continue")):
        yield f"gemma_embedding_pooling_{v}", attending.gemma_embedding(**{
            "gemma-embedding.pooling_type": (U32, v)}), (words,)
    for name, shape in (("dense_2", (16, 6)), ("dense_2", (15, 5)), ("dense_3", (6, 16)), ("dense_3", (5, 15)),
                        ("dense_2", (16,))):
        yield f"gemma_embedding_{name}_{shape}", attending.gemma_embedding(tensors={
            f"{name}.weight": (0, shape)}), ("dense_",)
    yield from integers(
        attending.gemma_embedding, "gemma-embedding", {},
        ("rope.dimension_count", 0, 7, 16))
    yield "gemma_embedding_short_pattern", attending.gemma_embedding(**{
        "gemma-embedding.attention.sliding_window_pattern": (BOOL, [])}), ("sliding_window_pattern",)


def vocabulary():
    n, t = tiny.N_VOCAB, "tokenizer.ggml."
    yield "no_tokens", {"drop": [t + "tokens"]}, (t + "tokens",)
    yield "no_tokenizer", {"drop": [t + "model"]}, (t + "model",)
    yield "other_tokenizer", {"set_keys": {t + "model": (STRING, "\x1b[2J")}}, (t + "model",)
    yield "tokens_of_numbers", {"set_keys": {t + "tokens": (U32, [1] * n)}}, (t + "tokens",)
    yield "one_text", {"set_keys": {t + "tokens": (STRING, "abc")}}, (t + "tokens",)
    yield "long_token", {"set_keys": {t + "tokens": (STRING, ["x" * 10**6] + tiny.TOKENS[1:])}}, (t + "tokens",)
    yield "u8_scores", {"set_keys": {t + "scores": (U8, [1] * n)}}, (t + "scores",)
    yield "few_scores", {"set_keys": {t + "scores": (F32, [1.0] * (n - 1))}}, (t + "scores",)
    yield "many_scores", {"set_keys": {t + "scores": (F32, [1.0] * (n + 1))}}, (t + "scores",)
    yield "no_number_scores", {"set_keys": {t + "scores": (F32, [math.nan] * n)}}, (t + "scores",)
    yield "few_types", {"set_keys": {t + "token_type": (I32, [1] * (n - 1))}}, (t + "token_type",)
    yield "suppressed_scores", {"set_keys": {t + "suppress_tokens": (F32, [1.0])}}, (t + "suppress_tokens",)
    yield "suppressed_token", {"set_keys": {t + "suppress_tokens": (U32, 3)}}, (t + "suppress_tokens",)
    for name in ("bos", "eos"):
        key = f"{t}{name}_token_id"
        yield f"{name}_2^32", {"set_keys": {key: (U64, 2**32)}}, (key,)
        yield f"{name}_text", {"set_keys": {key: (STRING, "</s>")}}, (key,)
    yield "add_bos_2", {"set_keys": {t + "add_bos_token": (U32, 2)}}, (t + "add_bos_token",)


VOCABULARY = list(vocabulary())


def names(cases):
    return [pytest.param(*rest, id=name) for name, *rest in cases]


@pytest.mark.parametrize("damage,words", names(WRONG))
def test_wrong_model(tmp_path, damage, words):
    path = tmp_path / "wrong.gguf"
    path.write_bytes(tiny.model(**damage))
    refused(LOGITS, path, *words)


@pytest.mark.parametrize("data,words", names(further()))
def test_further_architectures(tmp_path, data, words):
    path = tmp_path / "further.gguf"
    path.write_bytes(data)
    if words is GOOD:
        assert run(*LOGITS, path) == (0, "")
    else:
        refused(LOGITS, path, *words)


@pytest.mark.parametrize("damage,words", names(WRONG[::12]))
def test_wrong_model_is_not_served(tmp_path, damage, words):
    path = tmp_path / "wrong.gguf"
    path.write_bytes(tiny.model(**damage))
    refused(SERVE, path, *words)
    refused(("run", "-p", "hi", "-m"), path, *words)
    refused(("bench", "-m"), path, *words)


@pytest.mark.parametrize("damage,words", names(VOCABULARY))
def test_wrong_vocabulary(tmp_path, damage, words):
    path = tmp_path / "wrong.gguf"
    path.write_bytes(tiny.model(**damage))
    refused(TOKENIZE, path, *words)
    refused(SERVE, path, *words)


def test_special_token_outside_the_vocabulary_is_left_out(tmp_path):
    path = tmp_path / "outside.gguf"
    for key in ("tokenizer.ggml.bos_token_id", "tokenizer.ggml.eos_token_id"):
        path.write_bytes(tiny.model(set_keys={key: (U32, tiny.N_VOCAB)}))
        status, err = run(*TOKENIZE, path)
        assert status == 0 and err.startswith(f"weir: warning: {key}") and err.count("\n") == 1, err


def test_more_tokens_than_embeddings(tmp_path):
    path = tmp_path / "wrong.gguf"
    path.write_bytes(tiny.model(set_tensors={"token_embd.weight": (0, (tiny.N_EMBD, 100))}))
    refused(SERVE, path, "the tokenizer has 263 tokens", "100")


def test_every_length_of_the_header(tmp_path):
    """A model that ends anywhere before its data, in the coarse steps that starting a program allows;
    the unit tests take every byte."""
    data = tiny.model("qwen3")
    path = tmp_path / "short.gguf"
    for n in range(0, len(data), len(data) // 97):
        path.write_bytes(data[:n])
        refused(LOGITS, path, "short.gguf")


@pytest.mark.parametrize("arch", ["llama", "qwen2", "qwen3"])
def test_the_model_itself_is_good(tmp_path, arch):
    path = tmp_path / "good.gguf"
    path.write_bytes(tiny.model(arch))
    for command in (LOGITS, TOKENIZE, ("inspect",)):
        status, err = run(*command, path)
        assert (status, err) == (0, ""), err


def test_huge_context_takes_no_memory(tmp_path):
    """A context of 2^26 tokens in a file of 30 KB: one token still costs what one token costs."""
    peaks = []
    for n_ctx in (64, 2**26):
        path = tmp_path / "context.gguf"
        path.write_bytes(tiny.model(set_keys={"llama.context_length": (U32, n_ctx)}))
        p = subprocess.Popen([WEIR, *LOGITS, str(path)], stdout=subprocess.DEVNULL)
        _, status, usage = os.wait4(p.pid, 0)
        p.returncode = status
        assert status == 0
        peaks.append(usage.ru_maxrss * 1024)
    assert peaks[1] < peaks[0] + EXTRA_BYTES, peaks


@pytest.mark.skipif("WEIR_SANITIZED" in os.environ, reason="sanitizers take memory of their own")
def test_a_model_is_not_held_twice(tmp_path, monkeypatch):
    """Loading holds a tenth more than the file at most, and 32 MB: pages that were read are dropped."""
    for name, value in {"N_EMBD": 1024, "N_FF": 8192, "N_HEAD": 16, "N_KV": 4, "HEAD": 64, "N_LAYER": 2}.items():
        monkeypatch.setattr(tiny, name, value)
    halves = {name: (1, shape) for name, (_, shape) in tiny.tensors().items() if len(shape) == 2}
    path = tmp_path / "large.gguf"
    path.write_bytes(tiny.model(set_tensors=halves))
    assert path.stat().st_size > 100e6
    with subprocess.Popen([WEIR, *SERVE, str(path), "--kv-memory", "1M"], stderr=subprocess.PIPE) as p:
        ready = b""
        while not ready.endswith(b": ready\n"):
            ready = p.stderr.readline()
            assert ready, "it has ended"
        peak = peak_bytes(p.pid)
        p.terminate()
    assert peak < path.stat().st_size * 1.1 + 32e6, peak


def peak_bytes(pid):
    """The most memory that the process has had. (What wait4 says counts the program that it was before.)"""
    status = pathlib.Path(f"/proc/{pid}/status").read_text()
    return int(status.split("VmHWM:")[1].split()[0]) * 1024


def test_lost_pages_are_one_line():
    """What the system sends where a mapped file has been cut short: no signal kills the program."""
    # AddressSanitizer would catch the signal first, and be what `caught` sees.
    env = {**os.environ, "ASAN_OPTIONS": os.environ.get("ASAN_OPTIONS", "") + ":handle_sigbus=0"}
    p = subprocess.Popen([WEIR, *TOKENIZE[:1], "-m", str(ROOT / "models" / "weir-nano.gguf")],
                         stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=env)
    p.stdin.write(b"1\n")
    p.stdin.flush()
    while not caught(p.pid):
        assert p.poll() is None
    p.send_signal(signal.SIGBUS)
    err = p.communicate(timeout=300)[1].decode()
    assert p.returncode == 1 and err.count("\n") == 1 and "lost its pages" in err, (p.returncode, err)


def caught(pid):
    """Has the process begun to catch SIGBUS?"""
    status = pathlib.Path(f"/proc/{pid}/status").read_text()
    mask = int(status.split("SigCgt:")[1].split()[0], 16)
    return mask >> (signal.SIGBUS - 1) & 1
