#include "model/arch.h"

#include <string.h>

/* Sources: the papers and published configurations of each family; the tensor and key names are
 * those of the GGUF specification. What a row does not name is 0: absent, plain or none. */
static const struct arch rows[] = {
    {.name = "llama", /* and Mistral, Mixtral */
     .rope = ROPE_ADJACENT,
     .qkv_bias = OPTIONAL,
     .out_bias = OPTIONAL,
     .norms = NORM_BEFORE,
     .experts = OPTIONAL,
     .window_pattern = ALL_WINDOWED},
    {.name = "qwen2",
     .rope = ROPE_HALVES,
     .qkv_bias = REQUIRED,
     .norms = NORM_BEFORE,
     .window_pattern = NO_WINDOWS},
    {.name = "qwen2moe",
     .rope = ROPE_HALVES,
     .qkv_bias = OPTIONAL,
     .norms = NORM_BEFORE,
     .experts = REQUIRED,
     .expert_ff_by_rank = true,
     .expert_all = true,
     .shared = REQUIRED,
     .shared_gate = REQUIRED,
     .window_pattern = NO_WINDOWS},
    {.name = "qwen3",
     .rope = ROPE_HALVES,
     .qk_norm = QK_NORM_HEADS,
     .norms = NORM_BEFORE,
     .window_pattern = NO_WINDOWS},
    {.name = "qwen3moe",
     .rope = ROPE_HALVES,
     .qk_norm = QK_NORM_HEADS,
     .norms = NORM_BEFORE,
     .experts = REQUIRED,
     .expert_ff_by_rank = true,
     .window_pattern = NO_WINDOWS},
    {.name = "gemma2",
     .rope = ROPE_HALVES,
     .norms = NORM_BOTH,
     .gate = GATE_GELU,
     .embed_sqrt = true,
     .window_pattern = 2,
     .window = 4096,
     .attention_cap = 50.0f,
     .logit_cap = 30.0f,
     .by_width_layers = 46},
    {.name = "gemma3",
     .rope = ROPE_HALVES,
     .qk_norm = QK_NORM_HEADS,
     .norms = NORM_BOTH,
     .gate = GATE_GELU,
     .embed_sqrt = true,
     .window_pattern = 6,
     .window_rope = true,
     .by_width_layers = 62},
    {.name = "phi3",
     .rope = ROPE_HALVES,
     .qkv_bias = OPTIONAL,
     .out_bias = OPTIONAL,
     .norms = NORM_BEFORE,
     .window_pattern = ALL_WINDOWED},
    {.name = "olmo2",
     .rope = ROPE_HALVES,
     .qk_norm = QK_NORM_ROWS,
     .norms = NORM_AFTER,
     .window_pattern = 4,
     .window_unscaled = true},
    {.name = "granite",
     .rope = ROPE_ADJACENT,
     .rope_switch = true,
     .qkv_bias = OPTIONAL,
     .out_bias = OPTIONAL,
     .norms = NORM_BEFORE,
     .scales = true,
     .window_pattern = NO_WINDOWS},
    {.name = "granitemoe",
     .rope = ROPE_ADJACENT,
     .rope_switch = true,
     .qkv_bias = OPTIONAL,
     .out_bias = OPTIONAL,
     .norms = NORM_BEFORE,
     .experts = REQUIRED,
     .shared = OPTIONAL,
     .scales = true,
     .window_pattern = NO_WINDOWS},
    {.name = "smollm3",
     .rope = ROPE_ADJACENT,
     .qkv_bias = OPTIONAL,
     .norms = NORM_BEFORE,
     .window_pattern = NO_WINDOWS,
     .no_rope_step = 4},
    {.name = "gpt-oss",
     .rope = ROPE_HALVES,
     .qkv_bias = REQUIRED,
     .out_bias = REQUIRED,
     .norms = NORM_BEFORE,
     .ffn_norm = "post_attention_norm",
     .gate = GATE_CLAMPED,
     .experts = REQUIRED,
     .expert_bias = REQUIRED,
     .sinks = true,
     .window_pattern = 2},
};

const struct arch *arch_find(const char *name, size_t len)
{
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        if (strlen(rows[i].name) == len && memcmp(rows[i].name, name, len) == 0)
            return &rows[i];
    }
    return NULL;
}

const char *arch_list(void)
{
    static const char list[] = "llama, qwen2, qwen2moe, qwen3, qwen3moe, gemma2, gemma3, phi3, "
                               "olmo2, granite, granitemoe, smollm3, gpt-oss";
    return list;
}
