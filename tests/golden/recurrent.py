"""Models with recurrent layers for make_models.py: their tensors, and what such a layer computes.

In float64, row by row, from the papers: LFM2's short convolution (Liquid AI 2025), the gated delta
rule (Yang, Kautz and Hatamizadeh 2024) as Qwen3-Next and Qwen3.5 have it, Kimi Delta Attention (Kimi
Team 2025), Mamba-2 (Dao and Gu 2024) with the norm of groups, Mamba (Gu and Dao 2023) as Falcon-Mamba
and Jamba have it too, RWKV-7 (Peng et al. 2025), RWKV-6 (Peng et al. 2024), lightning attention (Qin et
al. 2024) as MiniMax-Text-01 has it, and Mamba-2 with the parameters of Mamba (PLaMo 2).
"""
import numpy as np

SMALL = dict(embd=32, heads=2, heads_kv=1, dim=16, ff=48, layers=4, ctx=512, base=10000.0, eps=1e-5)
QWEN = dict(pair="halves", qk_norm="heads", gate_in_query=True, ffn_norm="post_attention_norm",
            rope_dims=8, eps=1e-6, tied=True, recurrent=[True, True, True, False])
EXPERTS = dict(experts=4, used=2, ff_expert=24, expert_length=24, ff_shared=40, shared_gate=True)


def ssm(conv, inner, state, rank, group=None):
    sizes = {"ssm.conv_kernel": conv, "ssm.inner_size": inner, "ssm.state_size": state,
             "ssm.time_step_rank": rank}
    return sizes if group is None else {**sizes, "ssm.group_count": group}


RECURRENT = {
    "lfm2": dict(
        arch="lfm2", kind="conv", pair="halves", qk_norm="heads", tied=True, width=3,
        heads_kv=[0, 1, 0, 1], recurrent=[True, False, True, False],
        output_norm="token_embd_norm", keys={"shortconv.l_cache": 3}),
    "lfm2moe": dict(
        arch="lfm2moe", kind="conv", pair="halves", qk_norm="heads", tied=True, width=4,
        heads_kv=[0, 0, 1, 0], recurrent=[True, True, False, True], dense_first=1, experts=4,
        used=2, ff_expert=24, expert_length=24, sigmoid=True, select_bias=True, weights_norm=True,
        output_norm="token_embd_norm",
        keys={"shortconv.l_cache": 4, "leading_dense_block_count": 1, "expert_gating_func": 2}),
    "qwen35": dict(
        arch="qwen35", kind="delta", width=4, inner=64, state=16, rank=4, group=2, tiled=True,
        keys={**ssm(4, 64, 16, 4, 2), "rope.dimension_sections": [2, 1, 1, 0]}, **QWEN),
    "qwen35moe": dict(
        arch="qwen35moe", kind="delta", width=4, inner=64, state=16, rank=4, group=2, tiled=True,
        keys={**ssm(4, 64, 16, 4, 2), "rope.dimension_sections": [2, 1, 1, 0],
              "full_attention_interval": 4}, **QWEN, **EXPERTS),
    "qwen3next": dict(
        arch="qwen3next", kind="delta", width=4, inner=96, state=16, rank=6, group=2, mixed=True,
        keys=ssm(4, 96, 16, 6, 2), **QWEN, **EXPERTS),
    "granitehybrid": dict(
        arch="granitehybrid", kind="scan", width=4, inner=64, state=24, rank=4, group=2,
        conv_bias=True, heads_kv=[0, 0, 1, 0], recurrent=[True, True, False, True], tied=True,
        embed_scale=6.0, residual=0.4, logit_divisor=3.0, attention_scale=0.2, unrotated=True,
        experts=5, used=2, ff=32, ff_expert=32, ff_shared=40,
        keys={**ssm(4, 64, 24, 4, 2), "embedding_scale": 6.0, "residual_scale": 0.4,
              "logit_scale": 3.0, "attention.scale": 0.2, "rope.scaling.finetuned": False}),
    "granitehybrid-dense": dict(
        arch="granitehybrid", kind="scan", width=4, inner=64, state=16, rank=4, group=1,
        conv_bias=True, heads_kv=[0, 1], recurrent=[True, False], layers=2, tied=True,
        embed_scale=6.0, residual=0.4, logit_divisor=3.0, attention_scale=0.2,
        keys={**ssm(4, 64, 16, 4, 1), "embedding_scale": 6.0, "residual_scale": 0.4,
              "logit_scale": 3.0, "attention.scale": 0.2}),
    "nemotron_h": dict(
        arch="nemotron_h", kind="scan", width=4, inner=80, state=16, rank=5, group=5,
        conv_bias=True, heads_kv=[0, 0, 1, 0, 0], ff=[0, 48, 0, 0, 40], layers=5, unary="relu2",
        recurrent=[True, False, False, True, False], ffn_norm="attn_norm", no_rope_every=1,
        keys={**ssm(4, 80, 16, 5, 5), "attention.layer_norm_epsilon": 1e-5}),
    "falcon-h1": dict(
        arch="falcon-h1", kind="scan", width=4, inner=48, state=16, rank=3, group=1, pair="halves",
        conv_bias=True, layers=2, recurrent=[True, True], both=True, no_ssm_norm=True,
        keys=ssm(4, 48, 16, 3, 1)),
    # no layer attends, none has a feed-forward part
    "mamba2": dict(
        arch="mamba2", kind="scan", width=4, inner=64, state=16, rank=4, group=1, layers=2,
        heads=0, heads_kv=0, ff=0, conv_bias=True, recurrent=[True, True], tied=True,
        keys=ssm(4, 64, 16, 4, 1)),
    "nemotron_h_moe": dict(
        arch="nemotron_h_moe", kind="scan", width=4, inner=80, state=16, rank=5, group=5,
        conv_bias=True, heads_kv=[0, 0, 1, 0, 0], ff=[0, 24, 0, 0, 24], layers=5, unary="relu2",
        recurrent=[True, False, False, True, False], ffn_norm="attn_norm", no_rope_every=1, experts=6,
        used=2, ff_expert=24, expert_length=24, ff_shared=40, sigmoid=True, select_bias=True,
        weights_norm=True, weights_scale=2.5,
        keys={**ssm(4, 80, 16, 5, 5), "attention.layer_norm_epsilon": 1e-5,
              "expert_weights_norm": True, "expert_weights_scale": 2.5}),
    "nemotron_h_moe-latent": dict( # as Nemotron 3 Super
        arch="nemotron_h_moe", kind="scan", width=4, inner=64, state=16, rank=4, group=2,
        conv_bias=True, heads_kv=[0, 1, 0], ff=[0, 0, 24], layers=3, unary="relu2",
        recurrent=[True, False, False], ffn_norm="attn_norm", no_rope_every=1, experts=6, used=3,
        ff_expert=24, expert_length=24, ff_shared=40, sigmoid=True, select_bias=True,
        weights_norm=True, expert_latent=12,
        keys={**ssm(4, 64, 16, 4, 2), "attention.layer_norm_epsilon": 1e-5, "moe_latent_size": 12,
              "expert_weights_norm": True}),
    # as its first files are, and as a converter may write those of today
    "qwen3next-first": dict(
        arch="qwen3next", kind="delta", width=4, inner=96, state=16, rank=6, group=2, mixed=True,
        in_one=True, fused_qkv=True, keys=ssm(4, 96, 16, 6, 2), **QWEN, **EXPERTS),
    # layers of latent attention have no positions
    "kimi-linear": dict(
        arch="kimi-linear", kind="kimi", width=4, rank=3, state=16, heads=3, heads_kv=[0, 0, 1, 0],
        recurrent=[True, True, False, True], latent=24, rope_dims=8, head_key=24, head_value=16,
        unrotated=True, experts=6, used=2, ff_expert=16, expert_length=16, ff_shared=16,
        unlisted_shared=True, sigmoid=True, select_bias=True, weights_norm=True, weights_scale=2.4,
        dense_first=1,
        keys={"ssm.conv_kernel": 4, "kda.head_dim": 16, "attention.kv_lora_rank": 24,
              "expert_shared_count": 1, "leading_dense_block_count": 1, "expert_gating_func": 2,
              "expert_weights_scale": 2.4}),
    "kimi-linear-fused": dict( # and with heads of an odd length
        arch="kimi-linear", kind="kimi", width=3, rank=2, state=13, heads=2, heads_kv=[0, 1],
        layers=2, recurrent=[True, False], latent=24, rope_dims=8, head_key=24, head_value=16,
        unrotated=True, fused_qkv=True, experts=4, used=2, ff_expert=16,
        expert_length=16, ff_shared=16, unlisted_shared=True, sigmoid=True, select_bias=True,
        weights_norm=True,
        keys={"ssm.conv_kernel": 3, "kda.head_dim": 13, "attention.kv_lora_rank": 24,
              "expert_shared_count": 1, "expert_gating_func": 2}),
    "mamba": dict(
        arch="mamba", kind="channels", width=4, inner=64, state=16, rank=12, layers=2, heads=0,
        heads_kv=0, ff=0, conv_bias=True, recurrent=[True, True], tied=True,
        keys=ssm(4, 64, 16, 12)),
    "falcon-mamba": dict( # of sizes that no vector and no tile divides
        arch="mamba", kind="channels", width=4, inner=72, state=10, rank=8, layers=3, heads=0,
        embd=36, heads_kv=0, ff=0, conv_bias=True, recurrent=[True] * 3, channel_norms="bare",
        keys={**ssm(4, 72, 10, 8), "ssm.dt_b_c_rms": True}),
    "jamba": dict(
        arch="jamba", kind="channels", width=4, inner=64, state=16, rank=8, heads_kv=[0, 0, 1, 0],
        conv_bias=True, recurrent=[True, True, False, True], channel_norms="weights",
        no_rope_every=1, experts=4, used=2, ff_expert=48, experts_every=2, over_all=True,
        keys=ssm(4, 64, 16, 8)),
    "jamba-dense": dict( # as Jamba Reasoning 3B, which says that it has one expert
        arch="jamba", kind="channels", width=4, inner=64, state=16, rank=8, heads_kv=[0, 1, 0],
        layers=3, conv_bias=True, recurrent=[True, False, True], channel_norms="weights",
        no_rope_every=1, tied=True,
        keys={**ssm(4, 64, 16, 8), "expert_count": 1, "expert_used_count": 1}),
    # rates within a bound, of whole matrices; what latent attention gathered is gated by head
    "bailingmoe3": dict(
        arch="bailingmoe3", kind="kimi", bound=-5.0, width=4, rank=3, state=16, heads=3,
        heads_kv=[0, 0, 1, 0, 1], recurrent=[True, True, False, True], latent=24, q_latent=20, rope_dims=8,
        head_key=24, head_value=16, gated_attention="sigmoid", gate_heads=True, gate_std=2.0, experts=6,
        used=2, ff_expert=16, expert_length=16, ff_shared=24, sigmoid=True, select_bias=True,
        weights_norm=True, weights_scale=2.5, dense_first=1, beside=1,
        limits=[(0, 0), (0, 0.4), (0.5, 0), (0.3, 0.6)],
        keys={"ssm.conv_kernel": 4, "kda.head_dim": 16, "kda.safe_gate": True, "kda.gate_lower_bound": -5.0,
              "attention.kv_lora_rank": 24, "attention.q_lora_rank": 20, "expert_shared_count": 1,
              "leading_dense_block_count": 1, "expert_gating_func": 2, "expert_weights_norm": True,
              "expert_weights_scale": 2.5, "nextn_predict_layers": 1,
              "swiglu_clamp_exp": [0.0, 0.0, 0.5, 0.3, 0.0], "swiglu_clamp_shexp": [0.0, 0.4, 0.0, 0.6, 0.0]}),
    "bailingmoe3-sections": dict( # as its files that read pictures; queries are not narrowed
        arch="bailingmoe3", kind="kimi", bound=-2.5, width=3, rank=2, state=12, heads=2, heads_kv=[0, 1],
        layers=2, recurrent=[True, False], pair="halves", latent=24, rope_dims=8, head_key=24, head_value=16,
        gated_attention="sigmoid", gate_heads=True, gate_std=2.0, experts=4, used=2, ff_expert=16,
        expert_length=16, ff_shared=16, unlisted_shared=True, sigmoid=True, select_bias=True,
        weights_norm=True, tied=True,
        keys={"ssm.conv_kernel": 3, "kda.head_dim": 12, "kda.gate_lower_bound": -2.5,
              "attention.kv_lora_rank": 24, "expert_shared_count": 1, "leading_dense_block_count": 0,
              "expert_gating_func": 2, "expert_weights_norm": True, "rope.dimension_sections": [2, 1, 1, 0]}),
    # as Nemotron 3 Puzzle: experts differ from layer to layer in how many are used and how long they are
    "nemotron_h_moe-puzzle": dict(
        arch="nemotron_h_moe", kind="scan", width=4, inner=64, state=16, rank=4, group=2,
        conv_bias=True, heads_kv=[0, 0, 1, 0, 0], ff=[0, 24, 0, 16, 40], layers=5, unary="relu2",
        recurrent=[True, False, False, False, False], ffn_norm="attn_norm", no_rope_every=1, experts=6,
        used=[0, 3, 0, 1, 2], ff_expert=[0, 24, 0, 16, 40], expert_length=[0, 24, 0, 16, 40], ff_shared=40,
        sigmoid=True, select_bias=True, weights_norm=True, weights_scale=2.5, expert_latent=12,
        keys={**ssm(4, 64, 16, 4, 2), "attention.layer_norm_epsilon": 1e-5, "moe_latent_size": 12,
              "expert_weights_norm": True, "expert_weights_scale": 2.5}),
    # sub-layers read a mixture of what the stream was; rates of narrow matrices, within a bound
    "kimi-k3": dict(
        arch="kimi-k3", kind="kimi", flat=True, bound=-5.0, width=4, rank=3, state=16, heads=3,
        heads_kv=[0, 1, 0, 1], recurrent=[True, False, True, False], latent=24, q_latent=20,
        rope_dims=8, head_key=24, head_value=16, unrotated=True, gated_attention="sigmoid", gate_std=1.0,
        gate_values=True, recall=2, act="situ", situ=(4.0, 2.5), experts=6, used=2, ff_expert=16,
        expert_length=16, expert_latent=12, expert_norm=True, expert_stem="ffn_routed", ff_shared=32,
        unlisted_shared=True, sigmoid=True, select_bias=True, weights_norm=True, weights_scale=2.5, dense_first=1,
        keys={"ssm.conv_kernel": 4, "kda.head_dim": 16, "kda.gate_lower_bound": -5.0,
              "attention.kv_lora_rank": 24, "attention.q_lora_rank": 20, "expert_shared_count": 2,
              "leading_dense_block_count": 1, "expert_gating_func": 2, "expert_weights_norm": True,
              "expert_weights_scale": 2.5, "expert_latent_length": 12, "attn_res.block_size": 2,
              "activation.situ_beta": 4.0, "activation.situ_linear_beta": 2.5}),
    # without a bound, a gate of attention, narrow experts or a limit of what the gate multiplies
    "kimi-k3-plain": dict(
        arch="kimi-k3", kind="kimi", flat=True, width=3, rank=2, state=13, heads=2, heads_kv=[0, 1, 0], layers=3,
        recurrent=[True, False, True], latent=24, rope_dims=8, head_key=24, head_value=16, unrotated=True,
        recall=1, act="situ", situ=(4.0, 0.0), experts=4, used=2, ff_expert=16, expert_length=16,
        ff_shared=16, unlisted_shared=True, sigmoid=True, select_bias=True, over_all=True,
        keys={"ssm.conv_kernel": 3, "kda.head_dim": 13, "attention.kv_lora_rank": 24, "expert_shared_count": 1,
              "expert_gating_func": 2, "attn_res.block_size": 1,
              "activation.situ_beta": 4.0, "activation.situ_linear_beta": 0.0}),
    # every eighth layer attends; what a sub-layer reads is what it is added to
    "minimax-01": dict(
        arch="minimax-01", kind="fixed", rank=2, state=16, pair="halves", rope_dims=8, norms="stream",
        residual=3.5, layers=8, ff=16, experts=4, used=2, ff_expert=16, weights_norm=True,
        recurrent=[True] * 7 + [False], keys={"residual_scale": 3.5}),
    "minimax-01-listed": dict( # of sizes that no vector divides, and with biases
        arch="minimax-01", kind="fixed", rank=3, state=24, heads=3, dim=24, pair="halves", norms="stream",
        residual=0.75, layers=3, ff=24, experts=3, used=1, ff_expert=24, weights_norm=True, fused_qkv=True,
        qkv_bias=True, tied=True, recurrent=[True, False, True],
        keys={"residual_scale": 0.75, "attention.recurrent_layers": [True, False, True]}),
    # steps, keys and queries are made of what was convolved
    "plamo2": dict(
        arch="plamo2", kind="plamo", width=4, inner=64, state=16, rank=4, step_rank=64, pair="halves", fused=True,
        qk_norm="own", norms="both", heads=[0, 2, 0, 2], heads_kv=[0, 1, 0, 2], tied=True,
        recurrent=[True, False, True, False], keys=ssm(4, 64, 16, 4, 0)),
    "plamo2-last": dict( # of sizes that no tile divides; heads are said to be where none attend
        arch="plamo2", kind="plamo", width=3, inner=60, state=10, rank=5, step_rank=64, pair="halves", fused=True,
        qk_norm="own", norms="both", heads=4, heads_kv=[2, 0, 0], dim=24, layers=3,
        recurrent=[False, True, True], keys=ssm(3, 60, 10, 5, 0)),
}


def rwkv(head, decay, rate, value, gate):
    return {"wkv.head_size": head, "attention.decay_lora_rank": decay, "attention.iclr_lora_rank": rate,
            "attention.value_residual_mix_lora_rank": value, "attention.gate_lora_rank": gate}


RECURRENT |= {
    "rwkv7": dict(
        arch="rwkv7", kind="rwkv", norm="layer", embed_norm=True, ffn_norm="attn_norm_2", layers=3, heads=0,
        heads_kv=0, embd=64, recurrent=[True] * 3, state=64, keys=rwkv(64, 12, 8, 16, 20)),
    "rwkv7-small": dict( # of sizes that no vector and no tile divides
        arch="rwkv7", kind="rwkv", norm="layer", embed_norm=True, ffn_norm="attn_norm_2", layers=2, heads=0,
        heads_kv=0, embd=78, ff=36, recurrent=[True] * 2, state=26,
        keys={**rwkv(26, 5, 7, 3, 9), "token_shift_count": 2}),
    "rwkv6": dict(
        arch="rwkv6", kind="rwkv6", norm="layer", embed_norm=True, ffn_norm="attn_norm_2", layers=3, heads=0,
        heads_kv=0, embd=64, recurrent=[True] * 3, state=64, rescale=2,
        keys={"wkv.head_size": 64, "time_mix_extra_dim": 8, "time_decay_extra_dim": 12,
              "rescale_every_n_layers": 2}),
    "rwkv6-small": dict( # likewise; and in the older layout
        arch="rwkv6", kind="rwkv6", norm="layer", embed_norm=True, ffn_norm="attn_norm_2", layers=2, heads=0,
        heads_kv=0, embd=78, ff=36, recurrent=[True] * 2, state=26, lerps_apart=True,
        keys={"wkv.head_size": 26, "time_mix_extra_dim": 3, "time_decay_extra_dim": 7}),
    "rwkv6qwen2": dict( # two heads share keys and values
        arch="rwkv6qwen2", kind="rwkv6", usual_ff=True, qkv_bias=True, layers=3, heads=0, heads_kv=0, own=1, embd=128,
        ff=36, recurrent=[True] * 3, state=64,
        keys={"wkv.head_size": 64, "time_mix_extra_dim": 8, "time_decay_extra_dim": 12, "token_shift_count": 1}),
    "rwkv6qwen2-small": dict( # of sizes that no vector and no tile divides
        arch="rwkv6qwen2", kind="rwkv6", usual_ff=True, layers=2, heads=0, heads_kv=0, own=2, embd=104, ff=36,
        recurrent=[True] * 2, state=26,
        keys={"wkv.head_size": 26, "time_mix_extra_dim": 3, "time_decay_extra_dim": 7, "token_shift_count": 1}),
    # feed-forward parts are Qwen2's
    "arwkv7": dict(
        arch="arwkv7", kind="rwkv", usual_ff=True, layers=3, heads=0, heads_kv=0, embd=64, recurrent=[True] * 3,
        state=64, keys={**rwkv(64, 12, 8, 16, 20), "token_shift_count": 1}),
    "arwkv7-bare": dict( # nothing is gated, and what heads read is not normalised
        arch="arwkv7", kind="rwkv", usual_ff=True, unnormed=True, layers=2, heads=0, heads_kv=0, embd=128, ff=36,
        recurrent=[True] * 2, state=64, keys={**rwkv(64, 5, 7, 3, 0), "token_shift_count": 1}),
}


def mixes_channels(c):
    """Whether the feed-forward part is RWKV's."""
    return c.get("kind") in ("rwkv", "rwkv6") and not c.get("usual_ff")


def is_layer(c, i):
    return bool(c.get("recurrent")) and c["recurrent"][i]


def tensors(c, i, t, mat, vec, norm):
    """Of layer i, into t."""
    p, d = f"blk.{i}.", c["embd"]
    if c["kind"] == "conv":
        mat(p + "shortconv.in_proj", 3 * d, d)
        vec(p + "shortconv.conv.weight", (d, c["width"]), 0.0, 0.7)
        mat(p + "shortconv.out_proj", d, d)
        return
    if c["kind"] == "rwkv6":
        extra, decay = c["keys"]["time_mix_extra_dim"], c["keys"]["time_decay_extra_dim"]
        mat(p + "time_mix_w1", 5 * extra, d)
        mat(p + "time_mix_w2", 5, d, extra)
        vec(p + "time_mix_lerp_x.weight", (1, 1, d), 0.5)
        if c.get("lerps_apart"):
            for x in "wkvrg":
                vec(p + f"time_mix_lerp_{x}.weight", (1, 1, d), 0.5)
        else:
            vec(p + "time_mix_lerp_fused.weight", (5, 1, 1, d), 0.5)
        if not c.get("usual_ff"):
            vec(p + "time_mix_first.weight", (d // c["state"], c["state"]), 0.0, 0.5)
        vec(p + "time_mix_decay.weight", d, -1.0, 1.5)
        mat(p + "time_mix_decay_w1", decay, d)
        mat(p + "time_mix_decay_w2", d, decay)
        for x in ("receptance", "key", "value", "gate", "output"):
            rows = c.get("own", d // c["state"]) * c["state"] if x in ("key", "value") else d
            mat(p + "time_mix_" + x, rows, d)
            if c.get("qkv_bias") and x in ("receptance", "key", "value"):
                vec(p + f"time_mix_{x}.bias", rows)
        if c.get("usual_ff"):
            return
        norm(p + "time_mix_ln", d)
        for x in "kr":
            vec(p + f"channel_mix_lerp_{x}.weight", (1, 1, d), 0.5)
        mat(p + "channel_mix_key", c["ff"], d)
        mat(p + "channel_mix_value", d, c["ff"])
        mat(p + "channel_mix_receptance", d, d)
        return
    if c["kind"] == "rwkv":
        ranks = [c["keys"].get(f"attention.{z}_lora_rank", 0) for z in (
            "decay", "iclr", "value_residual_mix" if i else "iclr", "gate")]
        for x, rank in zip("wavg" if ranks[3] else "wav", ranks):
            mat(p + f"time_mix_{x}1", rank, d)
            mat(p + f"time_mix_{x}2", d, rank)
            if x != "g":
                vec(p + f"time_mix_{x}0.weight", d, 0.0, 1.0)
        vec(p + "time_mix_lerp_fused.weight", (6 if ranks[3] else 5, 1, 1, d), 0.5)
        for x, mean in (("k_k", 0.85), ("k_a", 1.0), ("r_k", 0.0)):
            vec(p + f"time_mix_{x}.weight", d, mean)
        for x in ("receptance", "key", "value", "output"):
            mat(p + "time_mix_" + x, d, d)
        if not c.get("unnormed"):
            norm(p + "time_mix_ln", d, True)
        if c.get("usual_ff"):
            return
        vec(p + "channel_mix_lerp_k.weight", (1, 1, d), 0.5)
        mat(p + "channel_mix_key", c["ff"], d)
        mat(p + "channel_mix_value", d, c["ff"])
        return
    if c["kind"] == "kimi":
        rank, key = c["rank"], c["state"]
        n = rank * key
        if c.get("fused_qkv"):
            mat(p + "attn_qkv", 3 * n, d, std=1.5)
        for x in "qkv":
            if not c.get("fused_qkv"):
                mat(p + "attn_" + x, n, d, std=1.5)
            vec(p + f"ssm_conv1d_{x}.weight", (1, n, 1, c["width"]), 0.0, 0.7)
        whole = c.get("bound") and not c.get("flat")
        for x in "f" if c.get("flat") else "fg":
            mat(p + f"ssm_{x}_a", n if whole else key, d)
            if not whole:
                mat(p + f"ssm_{x}_b", n, key)
        if c.get("flat"):
            mat(p + "ssm_g", n, d)
        mat(p + "ssm_beta", rank, d)
        vec(p + "ssm_dt.bias", n, -1.0, 1.0)
        vec(p + "ssm_a", rank if c.get("flat") else (rank, 1), 0.0, 1.0)
        t[p + "ssm_a"] = np.exp(t[p + "ssm_a"]) * (1 if whole else -1)
        norm(p + "ssm_norm", key, False)
        mat(p + "attn_output", d, n)
        return
    if c["kind"] == "fixed":
        n = c["rank"] * c["state"]
        mat(p + "attn_qkv", 3 * n, d, std=1.5)
        mat(p + "attn_gate", n, d)
        norm(p + "attn_norm_2", n)
        mat(p + "attn_output", d, n)
        return
    if c["kind"] == "plamo":
        inner, state, rank, step = c["inner"], c["state"], c["rank"], c["step_rank"]
        mat(p + "ssm_in", 2 * inner, d)
        vec(p + "ssm_conv1d.weight", (inner, c["width"]), 0.0, 0.7)
        mat(p + "ssm_x", step + 2 * state, inner)
        for name, n in (("dt", step), ("b", state), ("c", state)):
            norm(p + f"ssm_{name}_norm", n, False)
        mat(p + "ssm_dt", rank, step)
        vec(p + "ssm_dt.bias", rank, -1.0, 1.0)
        vec(p + "ssm_a", rank, 0.0, 1.0)
        t[p + "ssm_a"] = -np.exp(t[p + "ssm_a"])
        vec(p + "ssm_d", rank, 1.0, 0.3)
        mat(p + "ssm_out", d, inner)
        return
    if c["kind"] == "channels":
        inner, state, rank = c["inner"], c["state"], c["rank"]
        mat(p + "ssm_in", 2 * inner, d)
        vec(p + "ssm_conv1d.weight", (inner, c["width"]), 0.0, 0.7)
        vec(p + "ssm_conv1d.bias", inner)
        mat(p + "ssm_x", rank + 2 * state, inner)
        if c.get("channel_norms") == "weights":
            for name, n in (("dt", rank), ("b", state), ("c", state)):
                norm(p + f"ssm_{name}_norm", n, False)
        mat(p + "ssm_dt", inner, rank)
        vec(p + "ssm_dt.bias", inner, -1.0, 1.0)
        vec(p + "ssm_a", (inner, state), 0.0, 1.0)
        t[p + "ssm_a"] = -np.exp(t[p + "ssm_a"])
        vec(p + "ssm_d", inner, 1.0, 0.3)
        mat(p + "ssm_out", d, inner)
        return
    inner, rank, keys = c["inner"], c["rank"], c["group"] * c["state"]
    channels = inner + 2 * keys
    if c["kind"] == "delta":
        if c.get("in_one"):
            mat(p + "ssm_in", channels + inner, d)
        else:
            mat(p + "attn_qkv", channels, d)
            mat(p + "attn_gate", inner, d)
        if c.get("mixed"):
            mat(p + "ssm_ba", 2 * rank, d)
        else:
            mat(p + "ssm_beta", rank, d)
            mat(p + "ssm_alpha", rank, d)
        norm(p + "ssm_norm", inner // rank, False)
    else:
        mat(p + "ssm_in", inner + channels + rank, d)
        vec(p + "ssm_d", (rank, 1), 1.0, 0.3)
        if not c.get("no_ssm_norm"):
            norm(p + "ssm_norm", (c["group"], inner // c["group"]), False)
    vec(p + "ssm_conv1d.weight", (channels, c["width"]), 0.0, 0.7)
    if c.get("conv_bias"):
        vec(p + "ssm_conv1d.bias", channels)
    vec(p + "ssm_dt.bias", rank, -1.0, 1.0)
    vec(p + "ssm_a", rank if c["kind"] == "delta" else (rank, 1), 0.0, 1.0)
    t[p + "ssm_a"] = -np.exp(t[p + "ssm_a"])
    mat(p + "ssm_out", d, inner)


def silu(x):
    return x / (1 + np.exp(-x))


def convolve(x, w, bias=0.0):
    """Each row with the width - 1 before it; rows before the first are zero."""
    width = w.shape[1]
    padded = np.concatenate([np.zeros((width - 1, x.shape[1])), x])
    return sum(padded[i:i + len(x)] * w[:, i] for i in range(width)) + bias


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def before(y):
    """The row before each; none is zero."""
    return np.concatenate([np.zeros((1, y.shape[1])), y[:-1]])


def time_mix(c, t, y, w, linear):
    """RWKV-7's heads. V of the first layer stays in t."""
    n, size = len(y), c["state"]
    shift = before(y) - y
    lerps = w("time_mix_lerp_fused.weight")
    r, d, k, v, a, *g = (y + shift * lerp for lerp in lerps.reshape(len(lerps), -1))
    q, k, value = (linear(z, "time_mix_" + x) for z, x in ((r, "receptance"), (k, "key"), (v, "value")))
    step = sigmoid(linear(np.tanh(linear(d, "time_mix_w1")), "time_mix_w2") + w("time_mix_w0.weight"))
    forget = np.exp(-np.float64(np.float32(0.606531)) * step)
    towards = sigmoid(linear(linear(v, "time_mix_v1"), "time_mix_v2") + w("time_mix_v0.weight"))
    first = t.setdefault("first value", value)
    value = value + (first - value) * towards
    a = sigmoid(linear(linear(a, "time_mix_a1"), "time_mix_a2") + w("time_mix_a0.weight"))
    unit = (k * w("time_mix_k_k.weight")).reshape(n, -1, size)
    unit = unit / np.sqrt((unit * unit).sum(-1, keepdims=True))
    k = k + (a - 1) * k * w("time_mix_k_a.weight")
    q, k, value, forget, a = (z.reshape(n, -1, size) for z in (q, k, value, forget, a))
    s, out = np.zeros((q.shape[1], size, size)), np.zeros_like(q)
    for i in range(n): # a row of s for each key
        was = np.einsum("hkv,hk->hv", s, unit[i])
        s = s * forget[i, :, :, None] + np.einsum("hk,hv->hkv", k[i], value[i])
        s = s - np.einsum("hk,hv->hkv", unit[i] * a[i], was)
        out[i] = np.einsum("hkv,hk->hv", s, q[i])
    if not c.get("unnormed"):
        out = out - out.mean(-1, keepdims=True)
        out = out / np.sqrt((out * out).mean(-1, keepdims=True) + np.float64(np.float32(64e-5)))
        out = out * w("time_mix_ln.weight").reshape(-1, size) + w("time_mix_ln.bias").reshape(-1, size)
    bonus = (q * k * w("time_mix_r_k.weight").reshape(-1, size)).sum(-1, keepdims=True) * value
    out = (out + bonus).reshape(n, -1)
    if g:
        out = out * linear(sigmoid(linear(g[0], "time_mix_g1")), "time_mix_g2")
    return linear(out, "time_mix_output")


def time_mix_6(c, y, w, linear):
    """RWKV-6's heads."""
    n, size = len(y), c["state"]
    shift = before(y) - y
    mixed = np.tanh(linear(y + shift * w("time_mix_lerp_x.weight").reshape(-1), "time_mix_w1"))
    shares = np.einsum("nse,sde->snd", mixed.reshape(n, 5, -1), w("time_mix_w2.weight"))
    if c.get("lerps_apart"):
        lerps = [w(f"time_mix_lerp_{x}.weight").reshape(-1) for x in "wkvrg"]
    else:
        lerps = w("time_mix_lerp_fused.weight").reshape(5, -1)
    d, k, v, r, g = (y + shift * (lerp + share) for lerp, share in zip(lerps, shares))
    k, v, q, g = (linear(z, "time_mix_" + x) for z, x in (
        (k, "key"), (v, "value"), (r, "receptance"), (g, "gate")))
    step = w("time_mix_decay.weight") + linear(np.tanh(linear(d, "time_mix_decay_w1")), "time_mix_decay_w2")
    q, k, v, forget = (z.reshape(n, -1, size) for z in (q, k, v, np.exp(-np.exp(step))))
    if c.get("usual_ff"): # gated linear attention
        k, v = (np.repeat(z, q.shape[1] // z.shape[1], 1) for z in (k, v))
        s, out = np.zeros((q.shape[1], size, size)), np.zeros_like(q)
        for i in range(n):
            s = s * forget[i, :, :, None] + np.einsum("hk,hv->hkv", k[i] * (1 - forget[i]), v[i])
            out[i] = np.einsum("hkv,hk->hv", s, q[i]) * size ** -0.5
        return linear(out.reshape(n, -1) * sigmoid(g), "time_mix_output")
    s, out = np.zeros((q.shape[1], size, size)), np.zeros_like(q)
    for i in range(n): # a row of s for each key
        new = np.einsum("hk,hv->hkv", k[i], v[i])
        out[i] = np.einsum("hkv,hk->hv", s + w("time_mix_first.weight")[:, :, None] * new, q[i])
        s = s * forget[i, :, :, None] + new
    out = out - out.mean(-1, keepdims=True)
    out = (out / np.sqrt((out * out).mean(-1, keepdims=True) + np.float64(np.float32(64e-5)))).reshape(n, -1)
    out = out * w("time_mix_ln.weight") + w("time_mix_ln.bias")
    return linear(out * silu(g), "time_mix_output")


def channel_mix(c, t, i, y):
    """RWKV's feed-forward part."""
    p = f"blk.{i}.channel_mix_"
    x = y + (before(y) - y) * t[p + "lerp_k.weight"].reshape(-1)
    out = np.maximum(x @ t[p + "key.weight"].T, 0) ** 2 @ t[p + "value.weight"].T
    if c["kind"] == "rwkv6":
        x = y + (before(y) - y) * t[p + "lerp_r.weight"].reshape(-1)
        out = sigmoid(x @ t[p + "receptance.weight"].T) * out
    return out


def layer(c, i, t, y, eps):
    """What recurrent layer i makes of the normalised rows y."""
    def w(name):
        return t[f"blk.{i}.{name}"]

    def linear(z, name):
        bias = t.get(f"blk.{i}.{name}.bias", 0.0) if c.get("qkv_bias") and name.startswith("time_mix") else 0.0
        return z @ w(name + ".weight").T + bias

    def rms(x):
        return x / np.sqrt((x * x).mean(-1, keepdims=True) + eps)

    n = len(y)
    if c["kind"] == "rwkv6":
        return time_mix_6(c, y, w, linear)
    if c["kind"] == "rwkv":
        return time_mix(c, t, y, w, linear)
    if c["kind"] == "conv":
        b, gate, x = np.split(linear(y, "shortconv.in_proj"), 3, -1)
        return linear(gate * convolve(b * x, w("shortconv.conv.weight")), "shortconv.out_proj")
    if c["kind"] == "kimi":
        rank, key = c["rank"], c["state"]
        if c.get("fused_qkv"):
            mix = np.split(linear(y, "attn_qkv"), 3, -1)
        else:
            mix = [linear(y, "attn_" + x) for x in "qkv"]
        q, k, v = (silu(convolve(z, w(f"ssm_conv1d_{x}.weight").reshape(rank * key, -1))).reshape(
            n, rank, key) for x, z in zip("qkv", mix))
        q, k = (z / np.sqrt((z * z).sum(-1, keepdims=True) + eps) for z in (q, k))
        a = w("ssm_a").reshape(rank, 1)
        narrow = c.get("flat") or not c.get("bound")
        step = linear(linear(y, "ssm_f_a"), "ssm_f_b") if narrow else linear(y, "ssm_f_a")
        step = (step + w("ssm_dt.bias")).reshape(n, rank, key)
        if c.get("bound"): # files have a with either sign
            forget = np.exp(c["bound"] / (1 + np.exp(-np.abs(a) * step)))
        else:
            forget = np.exp(np.log1p(np.exp(step)) * a)
        take = 1 / (1 + np.exp(-linear(y, "ssm_beta")))
        s, out = np.zeros((rank, key, key)), np.zeros((n, rank, key))
        for r in range(n):
            s = s * forget[r, :, :, None]
            new = v[r] - np.einsum("hkv,hk->hv", s, k[r])
            s = s + np.einsum("hk,hv->hkv", k[r], new * take[r, :, None])
            out[r] = np.einsum("hkv,hk->hv", s, q[r]) * key ** -0.5
        gate = linear(y, "ssm_g" if c.get("flat") else "ssm_g_a")
        gate = (gate if c.get("flat") or c.get("bound") else linear(gate, "ssm_g_b")).reshape(n, rank, key)
        out = rms(out) * w("ssm_norm.weight") / (1 + np.exp(-gate))
        return linear(out.reshape(n, -1), "attn_output")
    if c["kind"] == "fixed":
        rank, key = c["rank"], c["state"]
        q, k, v = np.split(silu(linear(y, "attn_qkv")).reshape(n, rank, 3 * key), 3, -1)
        scale = 1 - i / (c["layers"] - 1) + 1e-5
        forget = np.exp(-scale * 2.0 ** (-8 * (np.arange(rank) + 1) / rank))
        s, out = np.zeros((rank, key, key)), np.zeros((n, rank, key))
        for r in range(n):
            s = s * forget[:, None, None] + np.einsum("hk,hv->hkv", k[r], v[r])
            out[r] = np.einsum("hkv,hk->hv", s, q[r])
        out = rms(out.reshape(n, -1)) * w("attn_norm_2.weight")
        return linear(out / (1 + np.exp(-linear(y, "attn_gate"))), "attn_output")
    if c["kind"] == "plamo":
        rank, state = c["rank"], c["state"]
        gate, x = np.split(linear(y, "ssm_in").reshape(n, rank, -1), 2, -1)
        x = silu(convolve(x.reshape(n, -1), w("ssm_conv1d.weight")))
        k, q, step = (rms(z) * w(f"ssm_{name}_norm.weight") for z, name in zip(
            np.split(linear(x, "ssm_x"), [state, 2 * state], -1), ("b", "c", "dt")))
        step = np.log1p(np.exp(linear(step, "ssm_dt") + w("ssm_dt.bias")))
        x = x.reshape(gate.shape)
        s, out = np.zeros((rank, state, x.shape[-1])), np.zeros_like(x)
        for r in range(n):
            s = s * np.exp(step[r] * w("ssm_a"))[:, None, None]
            s = s + k[r][:, None] * (x[r] * step[r, :, None])[:, None]
            out[r] = np.einsum("hkv,k->hv", s, q[r]) + w("ssm_d")[:, None] * x[r]
        return linear((out * silu(gate)).reshape(n, -1), "ssm_out")
    if c["kind"] == "channels":
        x, gate = np.split(linear(y, "ssm_in"), 2, -1)
        x = silu(convolve(x, w("ssm_conv1d.weight"), w("ssm_conv1d.bias")))
        parts = np.split(linear(x, "ssm_x"), [c["rank"], c["rank"] + c["state"]], -1)
        if c.get("channel_norms"):
            parts = [rms(z) * t.get(f"blk.{i}.ssm_{name}_norm.weight", 1.0)
                     for z, name in zip(parts, ("dt", "b", "c"))]
        step = np.log1p(np.exp(linear(parts[0], "ssm_dt") + w("ssm_dt.bias")))
        s, out = np.zeros((c["inner"], c["state"])), np.zeros_like(x)
        for r in range(n): # a row of s for each channel
            s = s * np.exp(step[r, :, None] * w("ssm_a"))
            s = s + parts[1][r] * (step[r] * x[r])[:, None]
            out[r] = s @ parts[2][r] + w("ssm_d") * x[r]
        return linear(out * silu(gate), "ssm_out")
    inner, rank, group, state = c["inner"], c["rank"], c["group"], c["state"]
    keys, dim = group * state, inner // rank
    delta = c["kind"] == "delta"
    if delta and c.get("in_one"): # of each group its query, its key, its heads' values and gates
        both = np.split(linear(y, "ssm_in").reshape(n, group, -1),
                        np.cumsum([state, state, inner // group]), -1)
        mix, gate = (np.concatenate([z.reshape(n, -1) for z in zs], -1)
                     for zs in (both[:3], both[3:]))
    elif delta:
        mix, gate = linear(y, "attn_qkv"), linear(y, "attn_gate")
    if delta:
        if c.get("mixed"):
            both = linear(y, "ssm_ba").reshape(n, group, 2, rank // group)
            beta, step = both[:, :, 0].reshape(n, rank), both[:, :, 1].reshape(n, rank)
        else:
            beta, step = linear(y, "ssm_beta"), linear(y, "ssm_alpha")
    else:
        gate, mix, step = np.split(linear(y, "ssm_in"), [inner, 2 * inner + 2 * keys], -1)
    step = np.log1p(np.exp(step + w("ssm_dt.bias")))
    forget = np.exp(step * w("ssm_a").reshape(-1))
    mix = silu(convolve(mix, w("ssm_conv1d.weight"), t.get(f"blk.{i}.ssm_conv1d.bias", 0.0)))
    if delta:
        q, k, v = np.split(mix, [keys, 2 * keys], -1)
    else:
        v, k, q = np.split(mix, [inner, inner + keys], -1)
    q, k = q.reshape(n, group, state), k.reshape(n, group, state)
    if delta:
        q, k = (z / np.sqrt((z * z).sum(-1, keepdims=True) + eps) for z in (q, k))
        q, take = q * state ** -0.5, 1 / (1 + np.exp(-beta))
    else:
        take = step
    q, k = (np.tile(z, (1, rank // group, 1)) if c.get("tiled") else
            np.repeat(z, rank // group, 1) for z in (q, k))
    v = v.reshape(n, rank, dim)
    s, out = np.zeros((rank, state, dim)), np.zeros((n, rank, dim))
    for r in range(n):
        s = s * forget[r, :, None, None]
        new = v[r] - np.einsum("hkv,hk->hv", s, k[r]) if delta else v[r]
        s = s + np.einsum("hk,hv->hkv", k[r], new * take[r, :, None])
        out[r] = np.einsum("hkv,hk->hv", s, q[r])
    if delta:
        out = rms(out) * w("ssm_norm.weight") * silu(gate.reshape(n, rank, dim))
        return linear(out.reshape(n, inner), "ssm_out")
    out = (out + v * w("ssm_d").reshape(-1, 1)).reshape(n, inner) * silu(gate)
    if not c.get("no_ssm_norm"):
        out = (rms(out.reshape(n, group, -1)) * w("ssm_norm.weight")).reshape(n, inner)
    return linear(out, "ssm_out")
