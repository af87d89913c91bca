"""Tiny models whose layers all attend: of each architecture what is special in it."""

from make_corpus_gguf import BOOL, F32, I32, STRING, U32
from tiny_model import (DENSE, HEAD, LN, N_EMBD, N_FF, N_HEAD, N_KV, experts, latent, layer_of,
                        small, tensors)

GROUPS = {"deepseek2.expert_group_count": (U32, 2), "deepseek2.expert_group_used_count": (U32, 1),
          "deepseek2.expert_gating_func": (U32, 2),
          "deepseek2.attention.temperature_scale": (F32, 0.1),
          "deepseek2.attention.temperature_length": (U32, 1)}


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


def gemma_embedding(tensors=(), **more):
    p = "gemma-embedding."
    k = {p + "attention.sliding_window": (U32, 4), p + "pooling_type": (U32, 1),
         p + "attention.causal": (BOOL, 0), p + "attention.sliding_window_pattern": (BOOL, [1])}
    return small("gemma-embedding", set_keys=k | more, set_tensors={
        f"blk.0.{n}.weight": (0, (size,)) for n, size in {
            "attn_q_norm": HEAD, "attn_k_norm": HEAD, "post_attention_norm": N_EMBD,
            "post_ffw_norm": N_EMBD}.items()} | {
        "dense_2.weight": (0, (N_EMBD, 5)), "dense_3.weight": (0, (5, N_EMBD))} | dict(tensors))


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


def grok():
    k, t = experts("grok", shared=False)
    return small("grok", set_keys=k, drop=DENSE, set_tensors=t | layer_of(0, {
        "attn_output_norm.weight": (N_EMBD,), "layer_output_norm.weight": (N_EMBD,)}))


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
