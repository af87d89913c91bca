#include "backend/cpu/kernels.h"

#include <string.h>

#if defined(__x86_64__)
static bool has_avx2(void)
{
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
           __builtin_cpu_supports("bmi2");
}

static bool has_avx512(void)
{
    return has_avx2() && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
           __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq") &&
           __builtin_cpu_supports("avx512vnni");
}
#endif

const struct cpu_kernels *cpu_kernels_select(const char *isa)
{
    bool any = !isa || !*isa;
    bool plain = !any && strcmp(isa, "reference") == 0;
    bool avx2 = !any && strcmp(isa, "avx2") == 0;
    bool avx512 = !any && strcmp(isa, "avx512") == 0;
    if (!any && !plain && !avx2 && !avx512)
        return NULL;
#if defined(__x86_64__)
    __builtin_cpu_init();
    if ((any || avx512) && has_avx512())
        return &cpu_kernels_avx512;
    if (!plain && has_avx2())
        return &cpu_kernels_avx2;
#endif
    return &cpu_kernels_plain;
}

/* Packed queries, accumulators, softmax sums, one tile of K, one of V, and small arrays. */
size_t attn_scratch_floats(uint32_t head_dim)
{
    size_t dim = (head_dim + 15) / 16 * 16;
    return ATTN_QUERIES * dim * 2 + (size_t)ATTN_QUERIES * KV_TILE * 3 + KV_TILE * dim * 2;
}
