"""A complete model of a few kilobytes, whole or damaged; and the seeds of the model fuzzer.

    python3 make_corpus_model.py [FOLDER]        (default: corpus/model beside this file)

The damage is for tests/hostile, which hands it to the program.
"""

import pathlib
import random
import struct
import sys

import seeds
from make_corpus_gguf import (BOOL, F32, I32, STRING, U8, U32, array, scalar, string)

TEMPLATE = ("{% for message in messages %}{{'<|im_start|>' + message['role'] + '\n' + "
            "message['content'] + '<|im_end|>' + '\n'}}{% endfor %}"
            "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}")
N_EMBD, N_HEAD, N_KV, HEAD, N_FF, N_LAYER = 16, 2, 1, 8, 16, 1
TOKENS = ["<unk>", "<s>", "</s>"] + [f"<0x{i:02X}>" for i in range(256)] + ["\u2581", "a", "b", "ab"]
# 2: unknown, 3: control, 6: a byte, 1: text
TYPES = [2, 3, 3] + [6] * 256 + [1] * 4
N_VOCAB = len(TOKENS)


def keys(arch="llama"):
    """name -> (kind, value); a list is an array."""
    return {
        "general.architecture": (STRING, arch),
        "general.name": (STRING, "tiny"),
        f"{arch}.block_count": (U32, N_LAYER),
        f"{arch}.context_length": (U32, 64),
        f"{arch}.embedding_length": (U32, N_EMBD),
        f"{arch}.feed_forward_length": (U32, N_FF),
        f"{arch}.attention.head_count": (U32, N_HEAD),
        f"{arch}.attention.head_count_kv": (U32, N_KV),
        f"{arch}.attention.layer_norm_rms_epsilon": (F32, 1e-5),
        f"{arch}.rope.freq_base": (F32, 10000.0),
        f"{arch}.rope.dimension_count": (U32, HEAD),
        "tokenizer.ggml.model": (STRING, "llama"),
        "tokenizer.ggml.tokens": (STRING, list(TOKENS)),
        "tokenizer.ggml.scores": (F32, [-float(i) for i in range(N_VOCAB)]),
        "tokenizer.ggml.token_type": (I32, list(TYPES)),
        "tokenizer.ggml.bos_token_id": (U32, 1),
        "tokenizer.ggml.eos_token_id": (U32, 2),
        "tokenizer.ggml.add_bos_token": (BOOL, 1),
        "tokenizer.chat_template": (STRING, TEMPLATE),
    }


def tensors(arch="llama"):
    """name -> (type, shape)."""
    q, kv = N_HEAD * HEAD, N_KV * HEAD
    all_of = {"token_embd.weight": (0, (N_EMBD, N_VOCAB)), "output_norm.weight": (0, (N_EMBD,))}
    for i in range(N_LAYER):
        layer = {"attn_norm.weight": (N_EMBD,), "attn_q.weight": (N_EMBD, q),
                 "attn_k.weight": (N_EMBD, kv), "attn_v.weight": (N_EMBD, kv),
                 "attn_output.weight": (q, N_EMBD), "ffn_norm.weight": (N_EMBD,),
                 "ffn_gate.weight": (N_EMBD, N_FF), "ffn_up.weight": (N_EMBD, N_FF),
                 "ffn_down.weight": (N_FF, N_EMBD)}
        if arch == "qwen2":
            layer |= {"attn_q.bias": (q,), "attn_k.bias": (kv,), "attn_v.bias": (kv,)}
        if arch == "qwen3":
            layer |= {"attn_q_norm.weight": (HEAD,), "attn_k_norm.weight": (HEAD,)}
        all_of |= {f"blk.{i}.{name}": (0, shape) for name, shape in layer.items()}
    return all_of


def size_of(kind, shape):
    n = 1
    for d in shape:
        n *= d
    return n // 64 * 36 if kind == 40 else n * {0: 4, 1: 2, 30: 2}[kind]


def data_of(name, kind, shape):
    """Small weights, the same each time; a tensor's do not depend on the others."""
    n = size_of(kind, shape)
    if kind != 0:
        return bytes(n)
    rng = random.Random(name)
    ones = "norm" in name or "freqs" in name
    return b"".join(struct.pack("<f", 1.0 if ones else rng.uniform(-0.3, 0.3)) for _ in range(n // 4))


def encode_key(name, kind, value):
    return array(name, kind, value) if isinstance(value, list) else scalar(name, kind, value)


def write(keys, tensors, alignment=32):
    """The bytes of a file; what is in `tensors` is written as it is, with data that fit it."""
    infos, data = b"", b""
    for name, (kind, shape) in tensors.items():
        data += bytes(-len(data) % alignment)
        infos += string(name) + struct.pack(f"<I{len(shape)}QIQ", len(shape), *shape, kind, len(data))
        data += data_of(name, kind, shape)
    head = b"GGUF" + struct.pack("<IQQ", 3, len(tensors), len(keys))
    head += b"".join(encode_key(name, *v) for name, v in keys.items()) + infos
    return head + bytes(-len(head) % alignment) + data


def model(arch="llama", set_keys=(), drop=(), set_tensors=()):
    """A model with some keys and tensors set to something else, or dropped."""
    k = {**keys(arch), **dict(set_keys)}
    t = {**tensors(arch), **dict(set_tensors)}
    return write({n: v for n, v in k.items() if n not in drop},
                 {n: v for n, v in t.items() if n not in drop})


def split(arch="llama", n_parts=3):
    """The same model in several files' bytes, by name."""
    k, t = keys(arch), list(tensors(arch).items())
    files = {}
    for no in range(n_parts):
        own = dict(k) if no == 0 else {}
        own |= {"split.no": (U32, no), "split.count": (U32, n_parts),
                "split.tensors.count": (I32, len(t))}
        part = t[no * len(t) // n_parts:(no + 1) * len(t) // n_parts]
        files[f"tiny-{no + 1:05}-of-{n_parts:05}.gguf"] = write(own, dict(part))
    return files


def small(arch, **more):
    """For the fuzzer: the fewer bytes, the better it guesses. Without a tokenizer."""
    own = {"token_embd.weight": (0, (N_EMBD, 4)), **dict(more.pop("set_tensors", {}))}
    drop = [n for n in keys(arch) if n.startswith("tokenizer")] + list(more.pop("drop", []))
    return model(arch, drop=drop, set_tensors=own, **more)


SEEDS = {
    **{arch: small(arch) for arch in ("llama", "qwen2", "qwen3")},
    "factors": small("llama", set_tensors={"rope_freqs.weight": (0, (HEAD // 2,))}),
    "scaled": small("llama", set_keys={"llama.rope.scaling.type": (STRING, "linear"),
                                       "llama.rope.scaling.factor": (F32, 2.0)}),
    "lengths": small("llama", set_keys={"llama.attention.key_length": (U32, HEAD),
                                        "llama.attention.value_length": (U32, HEAD)}),
    "half": small("llama", set_tensors={"blk.0.ffn_up.weight": (1, (N_EMBD, N_FF)),
                                        "blk.0.ffn_gate.weight": (30, (N_EMBD, N_FF))}),
    "own_output": small("llama", set_tensors={"output.weight": (0, (N_EMBD, 4))}),
    "u8_keys": small("llama", set_keys={"llama.block_count": (U8, 1)}),
    "no_layer": small("llama", set_keys={"llama.block_count": (U32, 2)}),
}


def layer_norms(names):
    """The tensors of LayerNorms."""
    return {f"{n}.{x}": (0, (N_EMBD,)) for n in names for x in ("weight", "bias")}


LN = "attention.layer_norm_epsilon"
FFN_GATE = "blk.0.ffn_gate.weight"
SECOND = {"blk.1." + n: (0, s) for n, s in {
    "attn_norm.weight": (N_EMBD,), "attn_output.weight": (N_EMBD, N_EMBD),
    "ffn_norm.weight": (N_EMBD,), "ffn_gate.weight": (N_EMBD, 8), "ffn_up.weight": (N_EMBD, 8),
    "ffn_down.weight": (8, N_EMBD)}.items()}

# What other architectures do besides: widths by layer and gaps, LayerNorms, parallel parts, norms
# after the rotation, learned positions, one curve instead of a gate.
SEEDS |= {
    "by_layer": small("llama", set_keys={
        "llama.block_count": (U32, 2), "llama.attention.key_length": (U32, HEAD),
        "llama.attention.head_count": (I32, [2, 1]), "llama.attention.head_count_kv": (I32, [1, 1]),
        "llama.feed_forward_length": (I32, [N_FF, 8])}, set_tensors=SECOND | {
            "blk.1.attn_q.weight": (0, (N_EMBD, HEAD)), "blk.1.attn_k.weight": (0, (N_EMBD, HEAD)),
            "blk.1.attn_v.weight": (0, (N_EMBD, HEAD)),
            "blk.1.attn_output.weight": (0, (HEAD, N_EMBD))}),
    "gaps": small("deci", set_keys={
        "deci.block_count": (U32, 2), "deci.attention.head_count_kv": (I32, [1, 0]),
        "deci.attention.head_count": (I32, [2, 2]), "deci.feed_forward_length": (I32, [0, 8])},
        set_tensors=SECOND, drop=["blk.0.ffn_norm.weight", FFN_GATE, "blk.0.ffn_up.weight",
                                  "blk.0.ffn_down.weight"]),
    "side_by_side": small("gptneox", set_keys={
        "gptneox." + LN: (F32, 1e-5), "gptneox.use_parallel_residual": (BOOL, 1)},
        set_tensors=layer_norms(["output_norm", "blk.0.attn_norm", "blk.0.ffn_norm"]) | {
            f"blk.0.{n}.bias": (0, (size,)) for n, size in {
                "attn_q": 16, "attn_k": 8, "attn_v": 8, "attn_output": 16, "ffn_up": N_FF,
                "ffn_down": 16}.items()} | {"output.weight": (0, (N_EMBD, 4))}, drop=[FFN_GATE]),
    "unbiased": small("cohere2", set_keys={
        "cohere2." + LN: (F32, 1e-5), "cohere2.logit_scale": (F32, 0.5),
        "cohere2.attention.sliding_window": (U32, 1)}, drop=["blk.0.ffn_norm.weight"]),
    "bare": small("olmo", set_keys={"olmo." + LN: (F32, 1e-5)}, drop=[
        "output_norm.weight", "blk.0.attn_norm.weight", "blk.0.ffn_norm.weight"]),
    "norm_last": small("hunyuan-dense", set_tensors={
        f"blk.0.attn_{x}_norm.weight": (0, (HEAD,)) for x in "qk"}),
    "squares": small("arcee", drop=[FFN_GATE]),
}


DENSE = [f"blk.0.ffn_{n}.weight" for n in ("gate", "up", "down")]


def experts(arch, shared=True):
    """Keys and tensors of four experts, of which a row is given to two, and one for all."""
    k = {f"{arch}.{n}": (U32, v) for n, v in {
        "expert_count": 4, "expert_used_count": 2, "expert_feed_forward_length": 8}.items()}
    t = {"ffn_gate_inp.weight": (N_EMBD, 4)}
    for x, (a, b) in {"gate": (N_EMBD, 8), "up": (N_EMBD, 8), "down": (8, N_EMBD)}.items():
        t[f"ffn_{x}_exps.weight"] = (a, b, 4)
        if shared:
            t[f"ffn_{x}_shexp.weight"] = (a, b)
    return k, {"blk.0." + n: (0, s) for n, s in t.items()}


def latent(arch, old):
    """A latent of 8 values for two heads, split as in newer files or not."""
    mla = "" if old else "_mla"
    k = {f"{arch}.attention.{n}": (U32, v) for n, v in {
        "kv_lora_rank": 8, "key_length" + mla: 16, "value_length" + mla: 8}.items()}
    t = {"attn_q.weight": (N_EMBD, 32), "attn_kv_a_mqa.weight": (N_EMBD, 16),
         "attn_kv_a_norm.weight": (8,)}
    t |= {"attn_kv_b.weight": (8, 32)} if old else {
        "attn_k_b.weight": (8, 8, 2), "attn_v_b.weight": (8, 8, 2)}
    return k, {"blk.0." + n: (0, s) for n, s in t.items()}


def deepseek(old, **more):
    (ke, te), (kl, tl) = experts("deepseek2"), latent("deepseek2", old)
    return small("deepseek2", set_keys=ke | kl | dict(more), set_tensors=te | tl, drop=[
        *DENSE, "blk.0.attn_k.weight", "blk.0.attn_v.weight"])


def sparse(**more):
    """A latent, and what picks positions of more than eight, which is left alone."""
    (ke, te), (kl, tl) = experts("glm-dsa"), latent("glm-dsa", False)
    index = {"glm-dsa.attention.indexer.top_k": (U32, 8)}
    t = {"blk.0.indexer." + n: (0, s) for n, s in {
        "proj.weight": (N_EMBD, 2), "k_norm.weight": (8,), "k_norm.bias": (8,)}.items()}
    return small("glm-dsa", set_keys=ke | kl | index | more, set_tensors=te | tl | t, drop=[
        *DENSE, "blk.0.attn_k.weight", "blk.0.attn_v.weight"])


GROUPS = {"deepseek2.expert_group_count": (U32, 2), "deepseek2.expert_group_used_count": (U32, 1),
          "deepseek2.expert_gating_func": (U32, 2),
          "deepseek2.attention.temperature_scale": (F32, 0.1),
          "deepseek2.attention.temperature_length": (U32, 1)}

# Attention over a latent; groups of experts; chunks, queries that grow, experts' inputs weighed.
SEEDS |= {
    "latent": deepseek(False, **GROUPS),
    "latent_old": deepseek(True),
    "sparse": sparse(),
    "each_head": small("command-r", set_keys={
        "command-r." + LN: (F32, 1e-5), "command-r.logit_scale": (F32, 0.5)}, set_tensors={
            "blk.0.attn_q_norm.weight": (0, (HEAD, 2)), "blk.0.attn_k_norm.weight": (0, (HEAD, 1))},
        drop=["blk.0.ffn_norm.weight"]),
}


def glm(**more):
    """Experts corrected for the selection, heads with norms, and a layer behind that is left alone."""
    k, t = experts("glm4moe")
    k |= {"glm4moe.block_count": (U32, 2), "glm4moe.nextn_predict_layers": (U32, 1),
          "glm4moe.expert_shared_count": (U32, 1), "glm4moe.expert_gating_func": (U32, 2),
          "glm4moe.expert_weights_norm": (BOOL, 1), "glm4moe.expert_weights_scale": (F32, 2.5)}
    t |= {"blk.0." + n: (0, (size,)) for n, size in {
        "exp_probs_b.bias": 4, "attn_q_norm.weight": HEAD, "attn_k_norm.weight": HEAD,
        "post_attention_norm.weight": N_EMBD}.items()}
    t["blk.1.nextn.enorm.weight"] = (0, (N_EMBD,))
    return small("glm4moe", set_keys=k | more, set_tensors=t, drop=[*DENSE, "blk.0.ffn_norm.weight"])


def mistral3(**more):
    p = "mistral3.rope.scaling."
    k = {p + "type": (STRING, "yarn"), p + "factor": (F32, 4.0), p + "original_context_length": (U32, 8),
         p + "yarn_log_multiplier": (F32, 1.0), "mistral3.attention.temperature_scale": (F32, 0.1)}
    return small("mistral3", set_keys=k | more)


def gemma_embedding(**more):
    p = "gemma-embedding."
    k = {p + "attention.sliding_window": (U32, 4), p + "pooling_type": (U32, 1),
         p + "attention.causal": (BOOL, 0), p + "attention.sliding_window_pattern": (BOOL, [1])}
    return small("gemma-embedding", set_keys=k | more, set_tensors={
        f"blk.0.{n}.weight": (0, (size,)) for n, size in {
            "attn_q_norm": HEAD, "attn_k_norm": HEAD, "post_attention_norm": N_EMBD,
            "post_ffw_norm": N_EMBD}.items()})


def llama4(**more):
    k, t = experts("llama4")
    return small("llama4", set_keys=k | {"llama4.attention.sliding_window": (U32, 2)} | more,
                 set_tensors=t, drop=DENSE)


def gemma4(n_factors=None, **more):
    """Two layers with windows and one that sees everything; the third attends to the second's KV."""
    p, n = "gemma4.", 4
    k = {p + "block_count": (U32, 3), p + "attention.sliding_window": (U32, 2),
         p + "attention.sliding_window_pattern": (BOOL, [1, 0, 1]), p + "attention.key_length": (U32, 8),
         p + "attention.value_length": (U32, 8), p + "attention.key_length_swa": (U32, 8),
         p + "attention.value_length_swa": (U32, 8), p + "rope.dimension_count_swa": (U32, 8),
         p + "attention.shared_kv_layers": (U32, 1), p + "embedding_length_per_layer_input": (U32, n),
         p + "final_logit_softcapping": (F32, 30.0)}
    layer = {"attn_norm": (N_EMBD,), "attn_q": (N_EMBD, 16), "attn_k": (N_EMBD, 8),
             "attn_v": (N_EMBD, 8), "attn_output": (16, N_EMBD), "attn_q_norm": (HEAD,),
             "attn_k_norm": (HEAD,), "post_attention_norm": (N_EMBD,), "ffn_norm": (N_EMBD,),
             "ffn_gate": (N_EMBD, N_FF), "ffn_up": (N_EMBD, N_FF), "ffn_down": (N_FF, N_EMBD),
             "post_ffw_norm": (N_EMBD,), "inp_gate": (N_EMBD, n), "proj": (n, N_EMBD),
             "post_norm": (N_EMBD,), "layer_output_scale": (1,)}
    t = {f"blk.{i}.{x}.weight": (0, s) for i in range(3) for x, s in layer.items()
         if not (i == 1 and x == "attn_v") and not (i == 2 and x in ("attn_k", "attn_v", "attn_k_norm"))}
    t |= {"per_layer_token_embd.weight": (0, (3 * n, 4)), "per_layer_proj_norm.weight": (0, (n,)),
          "per_layer_model_proj.weight": (0, (N_EMBD, 3 * n))}
    if n_factors:
        t["rope_freqs.weight"] = (0, (n_factors,))
    return small("gemma4", set_keys=k | more, set_tensors=t)


def gemma3n(**more):
    """Two streams, a product of rank 2 beside attention, a gate of which the largest values are kept."""
    p, n, k = "gemma3n.", 4, 2
    keys_of = {p + "attention.sliding_window": (U32, 2), p + "attention.sliding_window_pattern": (BOOL, [1]),
               p + "attention.shared_kv_layers": (U32, 0), p + "embedding_length_per_layer_input": (U32, n),
               p + "altup.num_inputs": (U32, k), p + "altup.active_idx": (U32, 0),
               p + "activation_sparsity_scale": (F32, [0.5])}
    layer = {"attn_q_norm": (HEAD,), "attn_k_norm": (HEAD,), "post_attention_norm": (N_EMBD,),
             "post_ffw_norm": (N_EMBD,), "inp_gate": (N_EMBD, n), "proj": (n, N_EMBD),
             "post_norm": (N_EMBD,), "altup_router_norm": (N_EMBD,), "altup_router": (N_EMBD, k),
             "altup_predict_coef": (k, k * k), "altup_correct_coef": (k, k),
             "altup_correct_scale": (N_EMBD,), "laurel_l": (N_EMBD, 2), "laurel_r": (2, N_EMBD),
             "laurel_post_norm": (N_EMBD,)}
    t = {f"blk.0.{x}.weight": (0, s) for x, s in layer.items()}
    t |= {"per_layer_token_embd.weight": (0, (n, 4)), "per_layer_proj_norm.weight": (0, (n,)),
          "per_layer_model_proj.weight": (0, (N_EMBD, n)), "altup_proj.weight": (0, (N_EMBD, N_EMBD, k - 1)),
          "altup_unembd_proj.weight": (0, (N_EMBD, N_EMBD, k - 1))}
    return small("gemma3n", set_keys=keys_of | more, set_tensors=t)


def connected(index=True, drop=(), **more):
    """Two streams of which sub-layers read sums, gated attention over a latent, an index left alone."""
    (ke, te), (kl, tl) = experts("hy_v4"), latent("hy_v4", False)
    p, n = "hy_v4.", 2
    k = {p + "hyper_connection.count": (U32, n), p + "hyper_connection.epsilon": (F32, 1e-6),
         p + "hyper_connection.magnitude": (F32, 2.0)}
    t = {"blk.0.attn_sinks.weight": (N_HEAD,), "blk.0.attn_gate.weight": (N_EMBD, 16)}
    for stem, parts in (("blk.0.hc_attn", 2), ("blk.0.hc_ffn", 2), ("output_hc", 1)):
        t |= {stem + "_fn.weight": (n * N_EMBD, parts * n), stem + "_base.weight": (parts * n,),
              stem + "_scale.weight": (parts,)}
    if index:
        k[p + "attention.indexer.top_k"] = (U32, 8)
        t["blk.0.indexer.proj.weight"] = (N_EMBD, 2)
    t = {name: (0, s) for name, s in t.items()}
    return small("hy_v4", set_keys=ke | kl | k | more, set_tensors=te | tl | t, drop=[
        *DENSE, "blk.0.attn_k.weight", "blk.0.attn_v.weight", *drop])


def cycles(drop=(), **more):
    """Two cycles of one pass over the low stack and one over the high one, of a layer each."""
    p = "hrm_text."
    k = {p + "block_count": (U32, 4), p + "embedding_scale": (F32, 4.0), p + "hrm.layers_per_stack": (U32, 1),
         p + "hrm.l_cycles": (U32, 1), p + "hrm.h_cycles": (U32, 2)}
    of_layer = {n[len("blk.0."):]: s for n, s in tensors().items() if n.startswith("blk.0.") and "norm" not in n}
    of_layer["attn_gate.weight"] = (0, (N_EMBD, N_HEAD * HEAD))
    t = {f"blk.{i}.{n}": s for i in range(2) for n, s in of_layer.items()} | {"hrm.z_l_init": (0, (N_EMBD,))}
    return small("hrm_text", set_keys=k | more, set_tensors=t, drop=[
        "output_norm.weight", "blk.0.attn_norm.weight", "blk.0.ffn_norm.weight", *drop])


def gemma4_experts(**more):
    """Experts beside a dense part."""
    k, t = experts("gemma4", shared=False)
    k |= {"gemma4.attention.sliding_window": (U32, 2),
          "gemma4.attention.sliding_window_pattern": (BOOL, [1])}
    t = {n: s for n, s in t.items() if "_up_exps" not in n and "_gate_exps" not in n}
    t |= {"blk.0." + x: (0, s) for x, s in {
        "ffn_gate_up_exps.weight": (N_EMBD, 16, 4), "ffn_gate_inp.scale": (N_EMBD,),
        "ffn_down_exps.scale": (4,), "pre_ffw_norm_2.weight": (N_EMBD,),
        "post_ffw_norm_1.weight": (N_EMBD,), "post_ffw_norm_2.weight": (N_EMBD,),
        "attn_q_norm.weight": (HEAD,), "attn_k_norm.weight": (HEAD,),
        "post_attention_norm.weight": (N_EMBD,), "post_ffw_norm.weight": (N_EMBD,)}.items()}
    return small("gemma4", set_keys=k | more, set_tensors=t)


SEEDS |= {"streams": gemma3n(), "connections": connected(), "cycles": cycles(), "borrowing": gemma4(), "experts_beside": gemma4_experts(), "chunks": llama4(), "corrected": glm(), "tempered": mistral3(), "both_ways": gemma_embedding()}


def ssm(arch, inner, state, rank, group):
    return {f"{arch}.ssm.{n}": (U32, v) for n, v in {
        "conv_kernel": 4, "inner_size": inner, "state_size": state, "time_step_rank": rank,
        "group_count": group}.items()}


def heads_of(i, q=N_HEAD * HEAD):
    """An attending layer with norms by head, and what stands behind any layer."""
    return layer_of(i, {"attn_q.weight": (N_EMBD, q), "attn_k.weight": (N_EMBD, HEAD),
                        "attn_v.weight": (N_EMBD, HEAD), "attn_output.weight": (16, N_EMBD),
                        "attn_q_norm.weight": (HEAD,), "attn_k_norm.weight": (HEAD,)})


def layer_of(i, more):
    return {f"blk.{i}.{n}": (0, s) for n, s in {"attn_norm.weight": (N_EMBD,), **more}.items()}


def dense_of(i, norm="ffn_norm"):
    return {f"blk.{i}.{n}.weight": (0, s) for n, s in {
        norm: (N_EMBD,), "ffn_gate": (N_EMBD, N_FF), "ffn_up": (N_EMBD, N_FF),
        "ffn_down": (N_FF, N_EMBD)}.items()}


def bare_model(arch, set_keys, tensors, drop=()):
    """Of these tensors alone."""
    return small(arch, set_keys=set_keys, drop=[*(f"blk.0.{n}.weight" for n in (
        "attn_norm", "attn_q", "attn_k", "attn_v", "attn_output", "ffn_norm", "ffn_gate", "ffn_up",
        "ffn_down") if f"blk.0.{n}.weight" not in tensors), *drop], set_tensors=tensors)


def lfm2(**more):
    k = {"lfm2.block_count": (U32, 2), "lfm2.attention.head_count_kv": (I32, [0, 1]),
         "lfm2.shortconv.l_cache": (U32, 3)} | more
    return bare_model("lfm2", k, layer_of(0, {
        "shortconv.in_proj.weight": (N_EMBD, 3 * N_EMBD), "shortconv.conv.weight": (3, N_EMBD),
        "shortconv.out_proj.weight": (N_EMBD, N_EMBD)}) | dense_of(0) | heads_of(1) | dense_of(1))


def delta(arch, inner, state, rank, group, fused=False):
    """The delta rule in one layer, and one that attends, with a gate; or, fused, without one."""
    channels, next_ = inner + 2 * group * state, arch == "qwen3next"
    k = ssm(arch, inner, state, rank, group) | {
        f"{arch}.block_count": (U32, 2), f"{arch}.full_attention_interval": (U32, 2)}
    rates = {"ssm_ba.weight": (N_EMBD, 2 * rank)} if next_ else {
        "ssm_beta.weight": (N_EMBD, rank), "ssm_alpha.weight": (N_EMBD, rank)}
    t = layer_of(0, {
        "attn_qkv.weight": (N_EMBD, channels), "attn_gate.weight": (N_EMBD, inner),
        "ssm_dt.bias": (rank,), "ssm_a": (rank,), "ssm_conv1d.weight": (4, channels),
        "ssm_norm.weight": (inner // rank,), "ssm_out.weight": (inner, N_EMBD), **rates})
    t |= heads_of(1, 2 * N_HEAD * HEAD)
    for i in range(2):
        t |= dense_of(i, "post_attention_norm")
    if next_:
        ke, te = experts(arch)
        k |= ke | {f"{arch}.expert_shared_feed_forward_length": (U32, 8)}
        te["blk.0.ffn_gate_inp_shexp.weight"] = (0, (N_EMBD,))
        t |= te
    if fused:
        t = {n: s for n, s in t.items() if n[:-7] not in [f"blk.1.attn_{x}" for x in "qkv"]}
        t["blk.1.attn_qkv.weight"] = (0, (N_EMBD, (N_HEAD + 2 * N_KV) * HEAD))
    return bare_model(arch, k, {n: s for n, s in t.items() if not (next_ and n in DENSE)})


def kimi(arch="kimi-linear", more_tensors=(), **more):
    """A layer with a latent and experts, and one that forgets each key at a rate of its own."""
    key = 4
    n = N_HEAD * key
    (ke, te), (kl, tl) = experts(arch), latent(arch, False)
    k = ke | kl | {f"{arch}.{name}": v for name, v in {
        "block_count": (U32, 2), "attention.head_count_kv": (I32, [1, 0]), "ssm.conv_kernel": (U32, 4),
        "kda.head_dim": (U32, key), "expert_gating_func": (U32, 2)}.items()}
    t = {f"attn_{x}.weight": (N_EMBD, n) for x in "qkv"}
    t |= {f"ssm_conv1d_{x}.weight": (4, 1, n) for x in "qkv"}
    for x in "fg" if arch != "kimi-k3" else "":
        t |= {f"ssm_{x}_a.weight": (N_EMBD, key), f"ssm_{x}_b.weight": (key, n)} if arch == "kimi-linear" else {
            f"ssm_{x}_a.weight": (N_EMBD, n)}
    t |= {"ssm_beta.weight": (N_EMBD, N_HEAD), "ssm_dt.bias": (n,), "ssm_a": (1, N_HEAD),
          "ssm_norm.weight": (key,), "attn_output.weight": (n, N_EMBD)}
    return small(arch, set_keys=k | more, set_tensors=te | tl | layer_of(1, t) | dense_of(1) | dict(more_tensors),
                 drop=[*DENSE, "blk.0.attn_k.weight", "blk.0.attn_v.weight"])


def ling(bounded=True, **more):
    """The same with whole matrices and rates within a bound, and what attention gathered gated by head."""
    t = {"blk.0.attn_gate.weight": (0, (N_EMBD, N_HEAD)), "blk.0.exp_probs_b.bias": (0, (4,))}
    k = {"bailingmoe3.kda.gate_lower_bound": (F32, -5.0)} if bounded else {}
    return kimi("bailingmoe3", t, **(k | more))


def rwkv(**more):
    """RWKV-7: two layers, of which the second has the values of the first."""
    k = {f"rwkv7.{n}": (U32, v) for n, v in {
        "block_count": 2, "attention.head_count": 0, "wkv.head_size": 4, "attention.decay_lora_rank": 2,
        "attention.iclr_lora_rank": 3, "attention.value_residual_mix_lora_rank": 1,
        "attention.gate_lora_rank": 5}.items()}
    ranks = {"w": 2, "a": 3, "v": 1, "g": 5}
    t = {f"time_mix_{x}1.weight": (N_EMBD, n) for x, n in ranks.items()}
    t |= {f"time_mix_{x}2.weight": (n, N_EMBD) for x, n in ranks.items()}
    t |= {f"time_mix_{x}.weight": (N_EMBD, N_EMBD) for x in ("receptance", "key", "value", "output")}
    t |= {f"time_mix_{x}.weight": (N_EMBD,) for x in ("w0", "a0", "v0", "k_k", "k_a", "r_k", "ln")}
    t |= {f"{x}.{y}": (N_EMBD,) for x in ("attn_norm", "attn_norm_2") for y in ("weight", "bias")}
    t |= {"time_mix_lerp_fused.weight": (N_EMBD, 1, 1, 6), "time_mix_ln.bias": (N_EMBD,),
          "channel_mix_lerp_k.weight": (N_EMBD,), "channel_mix_key.weight": (N_EMBD, N_FF),
          "channel_mix_value.weight": (N_FF, N_EMBD)}
    first = {n: s for n, s in t.items() if "time_mix_v" not in n or "value" in n}
    return bare_model("rwkv7", k | more, layer_of(0, first) | layer_of(1, t) | {
        n: (0, (N_EMBD,)) for n in ("token_embd_norm.weight", "token_embd_norm.bias", "output_norm.bias")})


def rwkv6(**more):
    """RWKV-6: a layer that halves what comes out of it."""
    k = {f"rwkv6.{n}": (U32, v) for n, v in {
        "attention.head_count": 0, "wkv.head_size": 4, "time_mix_extra_dim": 2, "time_decay_extra_dim": 3,
        "rescale_every_n_layers": 1}.items()}
    t = {f"time_mix_{x}.weight": (N_EMBD, N_EMBD) for x in ("receptance", "key", "value", "gate", "output")}
    t |= {f"{x}.weight": (N_EMBD,) for x in (
        "time_mix_decay", "time_mix_ln", "time_mix_lerp_x", "channel_mix_lerp_k", "channel_mix_lerp_r")}
    t |= {f"{x}.{y}": (N_EMBD,) for x in ("attn_norm", "attn_norm_2") for y in ("weight", "bias")}
    t |= {"time_mix_w1.weight": (N_EMBD, 10), "time_mix_w2.weight": (2, N_EMBD, 5),
          "time_mix_decay_w1.weight": (N_EMBD, 3), "time_mix_decay_w2.weight": (3, N_EMBD),
          "time_mix_first.weight": (4, N_EMBD // 4), "time_mix_lerp_fused.weight": (N_EMBD, 1, 1, 5),
          "time_mix_ln.bias": (N_EMBD,), "channel_mix_receptance.weight": (N_EMBD, N_EMBD),
          "channel_mix_key.weight": (N_EMBD, N_FF), "channel_mix_value.weight": (N_FF, N_EMBD)}
    return bare_model("rwkv6", k | more, layer_of(0, t) | {
        n: (0, (N_EMBD,)) for n in ("token_embd_norm.weight", "token_embd_norm.bias", "output_norm.bias")})


def recalling(heads=(1, 0), drop=(), **more):
    """Kimi's with what was before each layer, narrow experts, a gate by value and one whole matrix."""
    arch, n = "kimi-k3", N_HEAD * 4
    k = {"attn_res.block_size": (U32, 1), "activation.situ_beta": (F32, 4.0), "expert_latent_length": (U32, 8),
         "activation.situ_linear_beta": (F32, 25.0), "kda.gate_lower_bound": (F32, -5.0),
         "attention.head_count_kv": (I32, list(heads))}
    te = experts(arch)[1]
    t = {f"blk.{i}.{x}_res_score.weight": (0, (N_EMBD,)) for i in range(2) for x in ("attn", "ffn")}
    t |= {"output_res_score.weight": (0, (N_EMBD,)), "blk.0.exp_probs_b.bias": (0, (4,))}
    for name, (kind, shape) in te.items():
        if "_exps" in name:
            t[name] = (kind, tuple(8 if x == N_EMBD else x for x in shape))
    t |= {"blk.0.ffn_routed_down.weight": (0, (N_EMBD, 8)), "blk.0.ffn_routed_up.weight": (0, (8, N_EMBD)),
          "blk.0.ffn_routed_norm.weight": (0, (8,)),
          "blk.0.attn_gate.weight": (0, (N_EMBD, N_HEAD * 8))}
    t |= layer_of(1, {"ssm_f_a.weight": (N_EMBD, 4), "ssm_f_b.weight": (4, n), "ssm_g.weight": (N_EMBD, n),
                      "ssm_a": (N_HEAD,)})
    return kimi(arch, t, **({f"{arch}.{name}": v for name, v in k.items() if name not in drop} | more))


def decaying():
    """MiniMax-Text-01: a layer that forgets at a fixed rate, and one that attends; experts."""
    arch, n = "minimax-01", N_HEAD * HEAD
    k, te = experts(arch, shared=False)
    k |= {f"{arch}.{name}": v for name, v in {
        "block_count": (U32, 2), "full_attention_interval": (U32, 2), "residual_scale": (F32, 3.5)}.items()}
    te = {name[6:]: s for name, (_, s) in te.items()} | {"ffn_norm.weight": (N_EMBD,)}
    return bare_model(arch, k, layer_of(0, te | {
        "attn_qkv.weight": (N_EMBD, 3 * n), "attn_gate.weight": (N_EMBD, n), "attn_norm_2.weight": (n,),
        "attn_output.weight": (n, N_EMBD)}) | layer_of(1, te | {
            "attn_q.weight": (N_EMBD, n), "attn_k.weight": (N_EMBD, HEAD), "attn_v.weight": (N_EMBD, HEAD),
            "attn_output.weight": (n, N_EMBD)}))


def normed_scan():
    """PLaMo 2: a scan whose parts have norms, and a layer that attends."""
    arch = "plamo2"
    k = ssm(arch, 32, 4, 2, 0) | {
        f"{arch}.block_count": (U32, 2), f"{arch}.attention.head_count": (I32, [0, N_HEAD]),
        f"{arch}.attention.head_count_kv": (I32, [0, N_KV])}
    t = layer_of(0, {
        "ssm_in.weight": (N_EMBD, 64), "ssm_conv1d.weight": (4, 32), "ssm_x.weight": (32, 72), "ssm_dt_norm": (64,),
        "ssm_b_norm": (4,), "ssm_c_norm": (4,), "ssm_dt.weight": (64, 2), "ssm_dt.bias": (2,), "ssm_a": (2,),
        "ssm_d": (2,), "ssm_out.weight": (32, N_EMBD)})
    t |= layer_of(1, {
        "attn_qkv.weight": (N_EMBD, (N_HEAD + 2 * N_KV) * HEAD), "attn_q_norm.weight": (HEAD, N_HEAD),
        "attn_k_norm.weight": (HEAD, N_KV), "attn_output.weight": (N_HEAD * HEAD, N_EMBD)})
    for i in range(2):
        t |= layer_of(i, {
            "post_attention_norm": (N_EMBD,), "post_ffw_norm": (N_EMBD,), "ffn_norm.weight": (N_EMBD,),
            "ffn_up.weight": (N_EMBD, 2 * N_FF), "ffn_down.weight": (N_FF, N_EMBD)})
    return bare_model(arch, k, t)


def grok():
    k, t = experts("grok", shared=False)
    return small("grok", set_keys=k, drop=DENSE, set_tensors=t | layer_of(0, {
        "attn_output_norm.weight": (N_EMBD,), "layer_output_norm.weight": (N_EMBD,)}))


def scan(arch, more, inner=16, state=4, rank=2, group=1):
    channels = inner + 2 * group * state
    return ssm(arch, inner, state, rank, group), layer_of(0, {
        "ssm_in.weight": (N_EMBD, inner + channels + rank), "ssm_conv1d.weight": (4, channels),
        "ssm_conv1d.bias": (channels,), "ssm_dt.bias": (rank,), "ssm_a": (1, rank), "ssm_d": (1, rank),
        "ssm_norm.weight": (inner // group, group), "ssm_out.weight": (inner, N_EMBD), **more})


def mamba2():
    k, t = scan("mamba2", {}, group=2)
    return bare_model("mamba2", k, t, drop=[f"mamba2.{n}" for n in (
        "attention.head_count", "attention.head_count_kv", "feed_forward_length")])


def channels(arch, norms=(), **more):
    """The first Mamba's layer, alone or, in jamba, with what others have behind it."""
    k = {n: v for n, v in ssm(arch, 16, 4, 2, 1).items() if "group" not in n}
    k |= {f"{arch}.{n}": v for n, v in more.items()}
    t = layer_of(0, {
        "ssm_in.weight": (N_EMBD, 32), "ssm_conv1d.weight": (4, 16), "ssm_conv1d.bias": (16,),
        "ssm_x.weight": (16, 10), "ssm_dt.weight": (2, 16), "ssm_dt.bias": (16,), "ssm_a": (4, 16),
        "ssm_d": (16,), "ssm_out.weight": (16, N_EMBD)})
    if arch == "mamba":
        return bare_model(arch, k, t, drop=[f"{arch}.{n}" for n in (
            "attention.head_count", "attention.head_count_kv", "feed_forward_length")])
    t |= layer_of(0, {f"ssm_{n}_norm.weight": (2 if n == "dt" else 4,) for n in norms})
    t |= {n: s for n, s in heads_of(1).items() if "_norm" not in n or "attn_norm" in n}
    k |= {f"{arch}.block_count": (U32, 2), f"{arch}.attention.head_count_kv": (I32, [0, 1])}
    return bare_model(arch, k, t | dense_of(0) | dense_of(1))


def nemotron(**more):
    """A layer with experts, and one that attends; or with a latent between the experts' matrices."""
    arch = "nemotron_h_moe"
    k, t = experts(arch)
    k |= {f"{arch}.{n}": v for n, v in {
        "block_count": (U32, 2), "attention.head_count_kv": (I32, [0, 1]),
        "feed_forward_length": (I32, [8, 0]), "expert_shared_feed_forward_length": (U32, 8)}.items()}
    k |= ssm(arch, 16, 4, 2, 1) | {f"{arch}.{n}": v for n, v in more.items()}
    t = {n: s for n, s in t.items() if "gate_exps" not in n and "gate_shexp" not in n}
    size = k.get(f"{arch}.moe_latent_size", (U32, 0))[1]
    if 0 < size <= N_EMBD:
        t |= {"blk.0.ffn_latent_down.weight": (0, (N_EMBD, size)),
              "blk.0.ffn_latent_up.weight": (0, (size, N_EMBD)),
              "blk.0.ffn_up_exps.weight": (0, (size, 8, 4)),
              "blk.0.ffn_down_exps.weight": (0, (8, size, 4))}
    t |= layer_of(0, {"exp_probs_b.bias": (4,)})
    t |= {n: s for n, s in heads_of(1).items() if "_norm" not in n or "attn_norm" in n}
    return bare_model(arch, k, t)


def sloped(**more):
    """Scores with slopes, and bounds."""
    k = {f"mpt.{n}": v for n, v in {LN: (F32, 1e-5), "attention.max_alibi_bias": (F32, 8.0), **more}.items()}
    return small("mpt", set_keys=k, drop=["blk.0.ffn_gate.weight"])


def granite_windows(**more):
    k = {f"granite_swa.{n}": v for n, v in {
        "logit_scale": (F32, 2.0), "attention.sliding_window": (U32, 4),
        "attention.sliding_window_pattern": (BOOL, [1]), "attention.rope_pattern": (BOOL, [0]),
        **more}.items()}
    return small("granite_swa", set_keys=k, set_tensors={"blk.0.attn_sinks.weight": (0, (N_HEAD,))})


def laguna(tensors=(), **more):
    """A softplus for each head, a router, an expert for all; the layer sees everything or, by a
    pattern, a window."""
    k, t = experts("laguna")
    k |= {"laguna.attention.sliding_window": (U32, 4), "laguna.rope.dimension_count_swa": (U32, HEAD),
          "laguna.rope.dimension_count": (U32, 4), "laguna.expert_shared_feed_forward_length": (U32, 8)}
    t |= {"blk.0." + n: (0, s) for n, s in {
        "exp_probs_b.bias": (4,), "attn_q_norm.weight": (HEAD,), "attn_k_norm.weight": (HEAD,),
        "attn_gate.weight": (N_EMBD, N_HEAD)}.items()}
    return small("laguna", set_keys=k | {f"laguna.{n}": v for n, v in more.items()},
                 set_tensors={**t, **dict(tensors)}, drop=DENSE)


def step35(tensors=(), **more):
    """Gates within a limit; of heads, half turn where everything is seen."""
    k, t = experts("step35")
    k |= {"step35.attention.sliding_window": (U32, 4), "step35.swiglu_clamp_exp": (F32, [0.5]),
          "step35.attention.sliding_window_pattern": (BOOL, [0]), "step35.swiglu_clamp_shexp": (F32, 0.5)}
    t["blk.0.attn_gate.weight"] = (0, (N_EMBD, N_HEAD))
    return small("step35", set_keys=k | {f"step35.{n}": v for n, v in more.items()},
                 set_tensors={**t, **dict(tensors)}, drop=DENSE)


def spark2_5(tensors=(), **more):
    """Layers of windows turn whole heads, others half of them."""
    k = {"spark2_5.attention.sliding_window": (U32, 4), "spark2_5.rope.dimension_count": (U32, 4),
         "spark2_5.rope.dimension_count_swa": (U32, HEAD), "spark2_5.attention.sliding_window_pattern": (BOOL, [0])}
    t = {"blk.0.attn_gate.weight": (0, (N_EMBD, N_HEAD))}
    return small("spark2_5", set_keys=k | {f"spark2_5.{n}": v for n, v in more.items()},
                 set_tensors={**t, **dict(tensors)})


def mimo2(tensors=(), **more):
    """Values of 4 beside keys of 8."""
    k, t = experts("mimo2", shared=False)
    k |= {"mimo2.attention.sliding_window": (U32, 4), "mimo2.attention.value_length": (U32, 4),
          "mimo2.attention.sliding_window_pattern": (I32, [1]), "mimo2.attention.value_scale": (F32, 0.7)}
    t |= {"blk.0." + n: (0, s) for n, s in {
        "attn_sinks.weight": (N_HEAD,), "attn_v.weight": (N_EMBD, N_KV * 4),
        "attn_output.weight": (N_HEAD * 4, N_EMBD)}.items()}
    return small("mimo2", set_keys=k | {f"mimo2.{n}": v for n, v in more.items()},
                 set_tensors={**t, **dict(tensors)}, drop=DENSE)


def bitnet(tensors=(), drop=(), keys=()):
    """What attention gathered and what the gate let through are normalised, and one matrix has a scale."""
    return small("bitnet", set_keys=dict(keys), drop=drop, set_tensors={
        "blk.0.attn_sub_norm.weight": (0, (N_HEAD * HEAD,)), "blk.0.ffn_sub_norm.weight": (0, (N_FF,)),
        "blk.0.attn_v.scale": (0, (1,)), **dict(tensors)})


def modern_bert(tensors=(), **more):
    k = {f"modern-bert.{n}": v for n, v in {
        LN: (F32, 1e-5), "attention.sliding_window": (U32, 4), "pooling_type": (U32, 1), **more}.items()}
    return small("modern-bert", set_keys=k, drop=["blk.0.attn_norm.weight"],
                 set_tensors={"token_embd_norm.weight": (0, (N_EMBD,)), **dict(tensors)})


def all_in_one():
    """A layer that attends beside its scan, with all that can be in tensors of several matrices."""
    q = (N_HEAD + 2 * N_KV) * HEAD
    k, t = scan("falcon-h1", {
        "attn_qkv.weight": (N_EMBD, q), "attn_qkv.bias": (q,), "attn_output.weight": (16, N_EMBD),
        "ffn_norm.weight": (N_EMBD,), "ffn_up.weight": (N_EMBD, 2 * N_FF), "ffn_up.bias": (2 * N_FF,),
        "ffn_down.weight": (N_FF, N_EMBD)})
    return bare_model("falcon-h1", k, t)


# Recurrent layers. Narrow: heads of one value each; fused: no gate.
SEEDS |= {"short_convolution": lfm2(),
          "convolution_both_ways": lfm2(**{"lfm2.attention.causal": (BOOL, 0)}),
          "delta_rule": delta("qwen35", 16, 4, 2, 1),
          "delta_mixed": delta("qwen3next", 16, 4, 4, 2),
          "delta_narrow": delta("qwen3next", 4, 4, 4, 2),
          "delta_fused": delta("qwen35", 16, 4, 2, 1, fused=True),
          "delta_of_keys": kimi(), "recalling": recalling(),
          "delta_bounded": ling(),
          "delta_apart": rwkv(),
          "read_first": rwkv6(), "decaying": decaying(), "normed_scan": normed_scan(), "caps": grok(),
          "scan": mamba2(), "channels": channels("mamba", **{"ssm.dt_b_c_rms": (BOOL, 1)}),
          "channels_normed": channels("jamba", ("dt", "b", "c")),
          "channels_half": channels("jamba", ("dt", "c")), # one norm is missing
          "channels_unsaid": channels("mamba", **{"ssm.dt_b_c_rms": (F32, 1.0)}), # neither yes nor no
          "all_in_one": all_in_one(), "ungated_experts": nemotron(),
          "latent_experts": nemotron(moe_latent_size=(U32, 4)), "slopes": sloped(),
          "head_gates": laguna(), "limits": step35(), "short_values": mimo2(),
          "unrotated": granite_windows(), "bare_first": modern_bert(),
          "loops": small("nanbeige", set_keys={"nanbeige.num_loops": (U32, 2)}), "sub_norms": bitnet(),
          "fp4": small("llama", set_keys={"llama.feed_forward_length": (U32, 64)}, set_tensors={
              "blk.0.ffn_gate.weight": (0, (N_EMBD, 64)), "blk.0.ffn_up.weight": (0, (N_EMBD, 64)),
              "blk.0.ffn_down.weight": (40, (64, N_EMBD)), "blk.0.ffn_down.scale": (0, (1,))})}


def write_encoders(folder):
    """Those of tests/golden/make_encoders.py, as small as they can be."""
    sys.path.insert(0, str(pathlib.Path(__file__).parents[1] / "golden"))
    import make_encoders as e
    e.EMBD, e.HEADS, e.DIM, e.FF, e.LAYERS, e.CTX, e.TOKENS = 8, 1, 8, 8, 1, 2, e.TOKENS[:6]
    for name in e.MODELS:
        e.write_gguf(folder / f"{name}.gguf", *e.make(name))
    return len(e.MODELS)


if __name__ == "__main__":
    print(f"and {write_encoders(seeds.write('model', '.gguf', SEEDS))} encoders")
