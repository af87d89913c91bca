/* Random weights in the formats of files, for tests and bench/kernels.c. */
#ifndef WEIR_TESTS_WEIGHTS_H
#define WEIR_TESTS_WEIGHTS_H

#include "base/mem.h"
#include "gguf/gguf.h"

#include <stddef.h>
#include <string.h>

static uint64_t random_state;

static inline uint32_t rnd(void)
{
    random_state = random_state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(random_state >> 33);
}

/* -1..1 */
static inline float rnd_float(void)
{
    return (float)(rnd() % 20001) / 10000.0f - 1.0f;
}

/* A finite half at p, in 0.001..0.06. */
static inline void put_scale(uint8_t *p)
{
    const uint16_t h = f32_to_f16((float)(rnd() % 60 + 1) / 1000.0f);
    memcpy(p, &h, 2);
}

/* Where a block's first f16 is. */
static inline size_t scale_at(enum gguf_type type)
{
    switch (type) {
    case GGUF_TYPE_Q2_K:
        return offsetof(struct block_q2_k, d);
    case GGUF_TYPE_Q3_K:
        return offsetof(struct block_q3_k, d);
    case GGUF_TYPE_Q6_K:
        return offsetof(struct block_q6_k, d);
    case GGUF_TYPE_TQ1_0:
        return offsetof(struct block_tq1_0, d);
    case GGUF_TYPE_TQ2_0:
        return offsetof(struct block_tq2_0, d);
    default:
        return 0;
    }
}

static inline bool has_second_scale(enum gguf_type type)
{
    return type == GGUF_TYPE_Q4_1 || type == GGUF_TYPE_Q5_1 || type == GGUF_TYPE_Q2_K ||
           type == GGUF_TYPE_Q4_K || type == GGUF_TYPE_Q5_K;
}

/* The same in the top nibbles of IQ1_M's four words of scales. */
static inline void put_iq1_m_scale(uint8_t *block)
{
    uint8_t scale[2];
    put_scale(scale);
    for (int i = 0; i < 4; i++) {
        uint8_t *top = block + offsetof(struct block_iq1_m, scales) + i * 2 + 1;
        *top = (uint8_t)((*top & 15) | (scale[i / 2] >> (i % 2 * 4) & 15) << 4);
    }
}

/* A tensor of n rows of k random values: any bits at all, but finite scales. Free its data. */
static inline struct gguf_tensor make_tensor(enum gguf_type type, uint32_t k, uint32_t n)
{
    const struct gguf_type_info *info = gguf_type_info(type);
    const size_t n_blocks = (size_t)n * k / info->block_values;
    uint8_t *data = mem_alloc(n_blocks * info->block_bytes);
    for (size_t i = 0; i < n_blocks; i++) {
        uint8_t *b = data + i * info->block_bytes;
        const float f = rnd_float();
        const uint16_t half = type == GGUF_TYPE_F16 ? f32_to_f16(f) : f32_to_bf16(f);
        for (uint32_t j = 0; j < info->block_bytes; j++)
            b[j] = (uint8_t)rnd();
        if (type == GGUF_TYPE_F32)
            memcpy(b, &f, 4);
        else if (info->block_bytes == 2)
            memcpy(b, &half, 2);
        else if (type == GGUF_TYPE_MXFP4)
            b[0] = (uint8_t)(118 + rnd() % 6);
        else if (type == GGUF_TYPE_NVFP4) { /* about 1, with a bit that means nothing; 240, and 0 */
            for (int j = 0; j < 4; j++)
                b[j] = (uint8_t)((44 + rnd() % 20) | (rnd() % 4 == 0) << 7);
            b[rnd() % 4] = i % 11 == 0 ? 0xff : i % 11 == 1 ? 0x7f : b[3];
        } else if (type == GGUF_TYPE_IQ1_M)
            put_iq1_m_scale(b);
        else
            put_scale(b + scale_at(type));
        if (has_second_scale(type))
            put_scale(b + scale_at(type) + 2);
        if (type == GGUF_TYPE_Q8_0 && i % 3 == 0)
            memset(b + 2, 0x80, 32); /* -128, which no sign trick may lose */
    }
    return (struct gguf_tensor){.type = type,
                                .n_dims = 2,
                                .ne = {k, n, 1, 1},
                                .n_bytes = n_blocks * info->block_bytes,
                                .data = data};
}

#endif
