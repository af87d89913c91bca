"""Write the seeds of the model fuzzer: tiny models, each of which shows it one thing more.

    python3 make_corpus_model.py [FOLDER]        (default: corpus/model beside this file)
"""

import pathlib
import sys

import seeds
import tiny_attending as attending
import tiny_recurrent as recurrent
from make_corpus_gguf import BOOL, F32, I32, STRING, U8, U32
from tiny_model import HEAD, LN, N_EMBD, N_FF, layer_norms, small

FFN_GATE = "blk.0.ffn_gate.weight"
SECOND = {"blk.1." + n: (0, s) for n, s in {
    "attn_norm.weight": (N_EMBD,), "attn_output.weight": (N_EMBD, N_EMBD),
    "ffn_norm.weight": (N_EMBD,), "ffn_gate.weight": (N_EMBD, 8), "ffn_up.weight": (N_EMBD, 8),
    "ffn_down.weight": (8, N_EMBD)}.items()}

SEEDS = {
    **{arch: small(arch) for arch in ("llama", "qwen2", "qwen3")},
    "factors": small("llama", set_tensors={"rope_freqs.weight": (0, (HEAD // 2,))}),
    "scaled": small("llama", set_keys={"llama.rope.scaling.type": (STRING, "linear"),
                                       "llama.rope.scaling.factor": (F32, 2.0)}),
    "lengths": small("llama", set_keys={"llama.attention.key_length": (U32, HEAD),
                                        "llama.attention.value_length": (U32, HEAD)}),
    "half": small("llama", set_tensors={"blk.0.ffn_up.weight": (1, (N_EMBD, N_FF)),
                                        FFN_GATE: (30, (N_EMBD, N_FF))}),
    "own_output": small("llama", set_tensors={"output.weight": (0, (N_EMBD, 4))}),
    "u8_keys": small("llama", set_keys={"llama.block_count": (U8, 1)}),
    "no_layer": small("llama", set_keys={"llama.block_count": (U32, 2)}),
}

# What other architectures do besides: widths by layer and gaps, LayerNorms, parallel parts, norms
# after the rotation, learned positions, one curve instead of a gate, layers gone through twice, blocks
# with a scale beside them.
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
    "loops": small("nanbeige", set_keys={"nanbeige.num_loops": (U32, 2)}),
    "fp4": small("llama", set_keys={"llama.feed_forward_length": (U32, 64)}, set_tensors={
        FFN_GATE: (0, (N_EMBD, 64)), "blk.0.ffn_up.weight": (0, (N_EMBD, 64)),
        "blk.0.ffn_down.weight": (40, (64, N_EMBD)), "blk.0.ffn_down.scale": (0, (1,))}),
}

# Attention over a latent; groups of experts; chunks, queries that grow, experts' inputs weighed;
# streams, windows, limits, scales and slopes.
SEEDS |= {
    "latent": attending.deepseek(False, **attending.GROUPS),
    "latent_old": attending.deepseek(True),
    "sparse": attending.sparse(),
    "each_head": small("command-r", set_keys={
        "command-r." + LN: (F32, 1e-5), "command-r.logit_scale": (F32, 0.5)}, set_tensors={
            "blk.0.attn_q_norm.weight": (0, (HEAD, 2)), "blk.0.attn_k_norm.weight": (0, (HEAD, 1))},
        drop=["blk.0.ffn_norm.weight"]),
    "streams": attending.gemma3n(),
    "connections": attending.connected(),
    "cycles": attending.cycles(),
    "borrowing": attending.gemma4(),
    "experts_beside": attending.gemma4_experts(),
    "chunks": attending.llama4(),
    "corrected": attending.glm(),
    "tempered": attending.mistral3(),
    "both_ways": attending.gemma_embedding(),
    "caps": attending.grok(),
    "slopes": attending.sloped(),
    "head_gates": attending.laguna(),
    "limits": attending.step35(),
    "short_values": attending.mimo2(),
    "unrotated": attending.granite_windows(),
    "bare_first": attending.modern_bert(),
    "sub_norms": attending.bitnet(),
}

# Recurrent layers. Narrow: heads of one value each; fused: no gate.
SEEDS |= {
    "short_convolution": recurrent.lfm2(),
    "convolution_both_ways": recurrent.lfm2(**{"lfm2.attention.causal": (BOOL, 0)}),
    "delta_rule": recurrent.delta("qwen35", 16, 4, 2, 1),
    "delta_mixed": recurrent.delta("qwen3next", 16, 4, 4, 2),
    "delta_narrow": recurrent.delta("qwen3next", 4, 4, 4, 2),
    "delta_fused": recurrent.delta("qwen35", 16, 4, 2, 1, fused=True),
    "delta_of_keys": recurrent.kimi(),
    "delta_bounded": recurrent.ling(),
    "delta_apart": recurrent.rwkv(),
    "usual_forward": recurrent.arwkv(),
    "usual_bare": recurrent.arwkv(False),
    "gated_heads": recurrent.qrwkv6(),
    "recalling": recurrent.recalling(),
    "read_first": recurrent.rwkv6(),
    "decaying": recurrent.decaying(),
    "normed_scan": recurrent.normed_scan(),
    "scan": recurrent.mamba2(),
    "channels": recurrent.channels("mamba", **{"ssm.dt_b_c_rms": (BOOL, 1)}),
    "channels_normed": recurrent.channels("jamba", ("dt", "b", "c")),
    "channels_half": recurrent.channels("jamba", ("dt", "c")), # one norm is missing
    "channels_unsaid": recurrent.channels("mamba", **{"ssm.dt_b_c_rms": (F32, 1.0)}), # neither yes nor no
    "all_in_one": recurrent.all_in_one(),
    "ungated_experts": recurrent.nemotron(),
    "latent_experts": recurrent.nemotron(moe_latent_size=(U32, 4)),
}


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
