"""Models of the first architectures and of rotation scalings for make_models.py."""

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
        yarn_between=True,
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
    "qwen2-unbiased": dict( # with a key that says "no experts" in some files
        arch="qwen2", dim=8, base=1e6, pair="halves", logit_bias=True, keys={"expert_count": 1}),
}
