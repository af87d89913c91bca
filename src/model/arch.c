#include "model/arch.h"

#include <string.h>

/* Sources: the papers and published configurations of each family; the tensor and key names are
 * those of the GGUF specification. */
static const struct arch rows[] = {
    {.name = "llama", .rope = ROPE_ADJACENT, .qkv_bias = OPTIONAL, .qk_norm = ABSENT},
    {.name = "qwen2", .rope = ROPE_HALVES, .qkv_bias = REQUIRED, .qk_norm = ABSENT},
    {.name = "qwen3", .rope = ROPE_HALVES, .qkv_bias = ABSENT, .qk_norm = REQUIRED},
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
    static const char list[] = "llama, qwen2, qwen3";
    return list;
}
