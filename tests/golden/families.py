"""Models of further architectures for make_models.py: as small as their shapes allow."""

SMALL = dict(embd=16, heads=2, heads_kv=1, dim=8, ff=32, layers=2, ctx=512, base=10000.0, eps=1e-5)
LAYER = dict(norm="layer", tied=True)
BIASED = dict(qkv_bias=True, out_bias=True)

FAMILIES = {
    "gemma": dict(arch="gemma", pair="halves", act="gelu", tied=True, embed_scale=4.0, dim=16),
    "qwen2-window": dict(
        arch="qwen2", pair="halves", qkv_bias=True, tied=True, window=20, full_every=0,
        keys={"attention.sliding_window": 20}),
    "qwen3-window": dict(
        arch="qwen3", pair="halves", qk_norm="heads", tied=True, layers=3, window=20,
        windowed=[False, True, False],
        keys={"attention.sliding_window": 20,
              "attention.sliding_window_pattern": [False, True, False]}),
    "qwen3vl": dict(arch="qwen3vl", pair="halves", qk_norm="heads", tied=True,
                    keys={"rope.dimension_sections": [2, 1, 1, 0]}),
    "phi2": dict(arch="phi2", pair="halves", norm="layer", rope_dims=4, unary="gelu_tanh",
                 parallel=True, logit_bias=True, **BIASED),
    "gptneox": dict(arch="gptneox", pair="halves", norm="layer", rope_dims=4, unary="gelu",
                    parallel=True, second="ffn_norm", fused=True, heads_kv=2,
                    keys={"use_parallel_residual": True}, **BIASED),
    "gptneox-in-turn": dict(arch="gptneox", pair="halves", norm="layer", unary="gelu", fused=True,
                            heads_kv=2, keys={"use_parallel_residual": False}, **BIASED),
    "falcon": dict(arch="falcon", pair="halves", unary="gelu", parallel=True, fused=True, **LAYER),
    "falcon-large": dict(arch="falcon", pair="halves", unary="gelu", parallel=True, fused=True,
                         second="attn_norm_2", **LAYER),
    "gpt2": dict(arch="gpt2", unary="gelu_tanh", fused=True, heads_kv=2, positions=True, ctx=96,
                 no_rope_every=1, **LAYER, **BIASED),
    "starcoder": dict(arch="starcoder", unary="gelu_tanh", fused=True, positions=True, ctx=96,
                      no_rope_every=1, **LAYER, **BIASED),
    "starcoder2": dict(arch="starcoder2", pair="halves", unary="gelu_tanh", **LAYER, **BIASED),
    "codeshell": dict(arch="codeshell", pair="halves", unary="gelu_tanh", fused=True, **LAYER,
                      **BIASED),
    "stablelm": dict(arch="stablelm", pair="halves", norm="layer", rope_dims=4, qkv_bias=True),
    "stablelm-parallel": dict(arch="stablelm", pair="halves", norm="layer", rope_dims=4,
                              parallel=True),
    "nemotron": dict(arch="nemotron", pair="halves", norm="layer", rope_dims=4, unary="relu2"),
    "arcee": dict(arch="arcee", unary="relu2", tied=True),
    "orion": dict(arch="orion", pair="halves", norm="layer"),
    "xverse": dict(arch="xverse", heads_kv=2),
    "internlm2": dict(arch="internlm2"),
    "minicpm": dict(
        arch="minicpm", tied=True, embed_scale=12.0, residual=0.7, logit_divisor=3.0,
        keys={"embedding_scale": 12.0, "residual_scale": 0.7, "logit_scale": 3.0}),
    "minicpm-first": dict(arch="minicpm", tied=True, embed_scale=12.0, residual=1.4 / 2 ** 0.5,
                          logit_divisor=16 / 256),
    "command-r": dict(arch="command-r", norm="unbiased", tied=True, parallel=True,
                      logit_factor=0.25, keys={"logit_scale": 0.25}),
    "cohere2": dict(
        arch="cohere2", norm="unbiased", tied=True, parallel=True, layers=4, window=24,
        full_every=4, full_unrotated=True, logit_factor=0.25,
        keys={"logit_scale": 0.25, "attention.sliding_window": 24}),
    "olmo": dict(arch="olmo", norm="bare", tied=True, heads_kv=2),
    "olmoe": dict(arch="olmoe", pair="halves", qk_norm="rows", heads_kv=2, experts=4, used=2,
                  ff=24, ff_expert=24, over_all=True),
    "exaone": dict(arch="exaone", pair="halves", tied=True),
    "exaone4": dict(arch="exaone4", pair="halves", norms="after", qk_norm="heads", tied=True),
    "exaone4-windows": dict(
        arch="exaone4", pair="halves", norms="after", qk_norm="heads", layers=4, window=24,
        full_every=4, full_unrotated=True,
        keys={"attention.sliding_window": 24,
              "attention.sliding_window_pattern": [True, True, True, False]}),
    "chatglm": dict(arch="chatglm", fused=True, qkv_bias=True, rope_dims=4),
    "glm4": dict(arch="glm4", norms="both", fused_ffn=True, qkv_bias=True, rope_dims=4),
    "seed-oss": dict(arch="seed_oss", pair="halves", qkv_bias=True, ffn_norm="post_attention_norm"),
    "ernie4_5": dict(arch="ernie4_5", tied=True),
    "hunyuan-dense": dict(arch="hunyuan-dense", pair="halves", qk_norm="rotated", tied=True),
    "hunyuan-moe": dict(arch="hunyuan-moe", pair="halves", qk_norm="rotated", tied=True, experts=4,
                        used=2, ff=24, ff_expert=24, ff_shared=40),
    "deepseek": dict(
        arch="deepseek", heads_kv=2, experts=4, used=2, ff_expert=24, expert_length=24,
        ff_shared=48, over_all=True, dense_first=1, unlisted_shared=True, layers=3,
        keys={"expert_shared_count": 2, "leading_dense_block_count": 1}),
    "openelm": dict(
        arch="openelm", pair="halves", qk_norm="heads", tied=True, fused_qkv=True, layers=3, dim=8,
        heads=[2, 3, 4], heads_kv=[1, 1, 2], ff=[16, 24, 40]),
    # attention, a matrix in its place, neither, no feed-forward part
    "deci": dict(arch="deci", layers=4, heads=[2, 2, 0, 4], heads_kv=[1, 0, 0, 2],
                 ff=[32, 24, 40, 0]),
    "llama-by-layer": dict(arch="llama", layers=3, heads=[4, 2, 2], heads_kv=[2, 2, 1],
                           ff=[48, 16, 32], tied=True),
    # the factor beside tables of factors says how the scores rise, and stretches nothing
    "phi3-factor": dict(
        arch="phi3", heads_kv=2, pair="halves", fused=True, first_ctx=32, factors="long",
        attn_factor=(1 + 2.772588722239781 / 3.4657359027997265) ** 0.5,
        keys={"rope.scaling.type": "longrope", "rope.scaling.original_context_length": 32,
              "rope.scaling.factor": 16.0}),
}
