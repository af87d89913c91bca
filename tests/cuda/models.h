/* What tests of whole models on a device, or its emulation, share: models on a CUDA backend, and
 * which models are left out where every access is checked. */
#ifndef WEIR_TESTS_CUDA_MODELS_H
#define WEIR_TESTS_CUDA_MODELS_H

#include "backend/cuda/cuda.h"
#include "cuda/device.h"
#include "unit/backend/cpu/golden.h"

/* With every access checked a model takes ten times as long: then these, which have each op and
 * each kind of layer between them. */
#ifdef EVERY_ACCESS_CHECKED
static const char *const checked[] = {
    "architectures/qwen3moe", "variants/gemma2",         "variants/gpt-oss",
    "families/gpt2",          "families/phi2",           "families/cohere2",
    "families/chatglm",       "families/stablelm-12b",   "families/llama4",
    "families/deepseek2-v3",  "families/llama-by-layer", "families/gemma3n",
    "families/gemma4-moe",    "families/apertus",        "families/afmoe",
    "families/laguna",        "families/step35",         "families/mimo2",
    "families/dbrx",          "recurrent/lfm2",          "recurrent/qwen35",
    "recurrent/mamba2",       "recurrent/nemotron_h",    "recurrent/jamba",
    "recurrent/rwkv7-small",  "recurrent/minimax-01",    "recurrent/kimi-k3",
    "quantised/llama.Q8_0",   "quantised/llama.Q4_1",    "quantised/llama.Q3_K_M",
    "quantised/llama.Q4_K_M", "quantised/llama.BF16",    "grids/llama.IQ2_M"};
static inline bool is_left_out(const char *name)
{
    for (size_t i = 0; i < COUNT(checked); i++) {
        if (strcmp(name, checked[i]) == 0)
            return false;
    }
    return true;
}
#else
static inline bool is_left_out(const char *name)
{
    (void)name;
    return false;
}
#endif

/* A device's first step is walked for all the rows that it may get: no more than a test here has.
 */
static inline void on_cuda(struct drive *d,
                           const struct model *m,
                           enum kv_type kv,
                           uint32_t shuffle)
{
    drive_open_rows(d, m, cuda_backend_create, kv, 1, 16, shuffle, 3 * N_PROMPT);
}

static inline struct cuda_backend *cuda_of(const struct drive *d)
{
    return (struct cuda_backend *)d->b;
}

#endif
