"""Tiny models of which some layers, or all, are recurrent."""

from make_corpus_gguf import F32, I32, U32
from tiny_model import (DENSE, HEAD, N_EMBD, N_FF, N_HEAD, N_KV, bare_model, dense_of, experts,
                        heads_of, latent, layer_of, small, ssm)


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


def arwkv(gated=True, **more):
    """RWKV-7's heads beside the usual feed-forward part; or less gates and the norm of what heads read."""
    k = {f"arwkv7.{n}": (U32, v) for n, v in {
        "attention.head_count": 0, "wkv.head_size": 4, "token_shift_count": 1, "attention.decay_lora_rank": 2,
        "attention.iclr_lora_rank": 3, "attention.value_residual_mix_lora_rank": 1,
        "attention.gate_lora_rank": 5 if gated else 0}.items()}
    ranks = {"w": 2, "a": 3} | ({"g": 5} if gated else {})
    t = {f"time_mix_{x}1.weight": (N_EMBD, n) for x, n in ranks.items()}
    t |= {f"time_mix_{x}2.weight": (n, N_EMBD) for x, n in ranks.items()}
    t |= {f"time_mix_{x}.weight": (N_EMBD, N_EMBD) for x in ("receptance", "key", "value", "output")}
    t |= {f"time_mix_{x}.weight": (N_EMBD,) for x in ("w0", "a0", "k_k", "k_a", "r_k")}
    t |= {f"time_mix_ln.{y}": (N_EMBD,) for y in ("weight", "bias") if gated}
    t |= {"time_mix_lerp_fused.weight": (N_EMBD, 1, 1, 6 if gated else 5)}
    return bare_model("arwkv7", k | more, layer_of(0, t) | dense_of(0))


def qrwkv6(**more):
    """Gated linear attention, of which two heads share keys and values, beside the usual feed-forward part."""
    k = {f"rwkv6qwen2.{n}": (U32, v) for n, v in {
        "attention.head_count": 0, "attention.head_count_kv": 2, "wkv.head_size": 4, "token_shift_count": 1,
        "time_mix_extra_dim": 2, "time_decay_extra_dim": 3}.items()}
    t = {f"time_mix_{x}.weight": (N_EMBD, N_EMBD) for x in ("receptance", "gate", "output")}
    t |= {f"time_mix_{x}.weight": (N_EMBD, 8) for x in ("key", "value")}
    t |= {f"time_mix_{x}.bias": (n,) for x, n in (("receptance", N_EMBD), ("key", 8), ("value", 8))}
    t |= {f"time_mix_{x}.weight": (N_EMBD,) for x in ("decay", "lerp_x")}
    t |= {"time_mix_w1.weight": (N_EMBD, 10), "time_mix_w2.weight": (2, N_EMBD, 5),
          "time_mix_decay_w1.weight": (N_EMBD, 3), "time_mix_decay_w2.weight": (3, N_EMBD),
          "time_mix_lerp_fused.weight": (N_EMBD, 1, 1, 5)}
    return bare_model("rwkv6qwen2", k | more, layer_of(0, t) | dense_of(0))


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


def all_in_one():
    """A layer that attends beside its scan, with all that can be in tensors of several matrices."""
    q = (N_HEAD + 2 * N_KV) * HEAD
    k, t = scan("falcon-h1", {
        "attn_qkv.weight": (N_EMBD, q), "attn_qkv.bias": (q,), "attn_output.weight": (16, N_EMBD),
        "ffn_norm.weight": (N_EMBD,), "ffn_up.weight": (N_EMBD, 2 * N_FF), "ffn_up.bias": (2 * N_FF,),
        "ffn_down.weight": (N_FF, N_EMBD)})
    return bare_model("falcon-h1", k, t)
