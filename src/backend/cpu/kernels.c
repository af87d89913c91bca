#include "backend/cpu/kernels.h"

#include "gguf/grids.h"

#if defined(__x86_64__)
#include <cpuid.h>
#endif
#include <string.h>
#if defined(__linux__)
#include <sys/syscall.h>
#include <unistd.h>
#endif

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

/* Leaf 7, subleaf 1: the compilers' own names for it are too young. */
static bool has_avx_vnni(void)
{
    unsigned a, b, c, d;
    return __get_cpuid_count(7, 1, &a, &b, &c, &d) && (a & 1u << 4);
}

/* A tile unit with integers and bf16, and what makes bf16 of floats: no processor has some of them.
 * The unit's registers are large, so the system gives them to those who ask. */
static bool has_amx(void)
{
#if defined(__linux__)
    enum { REQUEST_PERMISSION = 0x1023, TILE_DATA = 18 };
    unsigned a, b, c, d;
    const unsigned tile = 1u << 24, int8 = 1u << 25, bf16 = 1u << 22, all = tile | int8 | bf16;
    return __builtin_cpu_supports("avx512bf16") && __get_cpuid_count(7, 0, &a, &b, &c, &d) &&
           (d & all) == all && syscall(SYS_arch_prctl, REQUEST_PERMISSION, TILE_DATA) == 0;
#else
    return false;
#endif
}

/* Intel's processors execute a bf16 dot product at half the rate of f32 multiply-adds or less. */
static bool has_fast_bf16(void)
{
    return __builtin_cpu_supports("avx512bf16") && __builtin_cpu_is("amd");
}

static const struct cpu_kernels *best_of(bool any, int level)
{
    __builtin_cpu_init();
    if (has_avx512() && (any ? has_fast_bf16() : level == 4) &&
        __builtin_cpu_supports("avx512bf16"))
        return &cpu_kernels_avx512_bf16;
    if (has_avx512() && level >= 5 && has_amx())
        return &cpu_kernels_amx;
    if (has_avx512() && level >= 3)
        return &cpu_kernels_avx512;
    if (has_avx2() && has_avx_vnni() && level >= 2)
        return &cpu_kernels_avxvnni;
    if (has_avx2() && level >= 1)
        return &cpu_kernels_avx2;
    return &cpu_kernels_plain;
}
#else
static const struct cpu_kernels *best_of(bool any, int level)
{
    (void)any;
    (void)level;
    return &cpu_kernels_plain;
}
#endif

const struct cpu_kernels *cpu_kernels_select(const char *isa)
{
    static const char *const names[] = {
        "reference", "avx2", "avx-vnni", "avx512", "avx512-bf16", "amx"};
    enum { N = sizeof names / sizeof names[0] };
    block_grids_fill(); /* which kernels read */
    if (!isa || !*isa)
        return best_of(true, N);
    for (int i = 0; i < N; i++) {
        if (strcmp(isa, names[i]) == 0)
            return best_of(false, i);
    }
    return NULL;
}

/* Zen 4 executes vectors of 512 bits in two turns and stores one every other cycle only, widened
 * weights among them; an EPYC of Zen 5 does so in one, every cycle. A compiler older than Zen 5
 * knows the family before it by name. Other processors go by Intel's Xeon, AMD's without AVX-512 by
 * Zen 4, and were not measured (docs/EXPERIMENTS.md). */
enum cpu_tuning cpu_kernels_tuning(void)
{
#if defined(__x86_64__)
    __builtin_cpu_init();
    if (__builtin_cpu_is("amd")) {
        const bool zen4 = __builtin_cpu_is("amdfam19h") || !__builtin_cpu_supports("avx512f");
        return zen4 ? TUNED_ZEN4 : TUNED_ZEN5;
    }
#endif
    return TUNED_XEON;
}

unsigned char cpu_ask_near;

__attribute__((constructor)) static void find_near(void)
{
    cpu_ask_near = cpu_kernels_tuning() == TUNED_ZEN5;
}

/* Memory is read faster when the processor is told some KiB ahead; with several rows the arithmetic
 * fills the window in which it looks for the next load by itself. AMD's processors without AVX-512
 * are left alone with two rows, and were not measured. docs/EXPERIMENTS.md has the rest. */
uint32_t cpu_kernels_prefetch(uint32_t n_rows)
{
#if defined(__x86_64__)
    switch (cpu_kernels_tuning()) {
    case TUNED_ZEN5:
        return n_rows <= 2 ? 3072 : 6144;
    case TUNED_ZEN4:
        if (__builtin_cpu_supports("avx512f"))
            return 3072;
        return n_rows <= 2 ? 0 : 2048;
    default:
        break;
    }
#endif
    return n_rows <= 2 ? 3072 : 2048;
}

/* Packed queries, a tile of K and one of V for copies, small arrays, and two parts. */
size_t attn_scratch_floats(uint32_t head_dim)
{
    return ATTN_QUERIES * (attn_query_floats(head_dim) + ATTN_W_STRIDE + KV_TILE + 1) +
           attn_tile_floats(head_dim) + 2 * attn_part_floats(head_dim);
}

/* Of each query: the largest score, the sum of weights, and of weighted values. */
size_t attn_part_floats(uint32_t head_dim)
{
    return (size_t)ATTN_QUERIES * (2 + (head_dim + 15) / 16 * 16);
}

/* And of each the sums of weights by lane. */
size_t attn_open_floats(uint32_t head_dim)
{
    return attn_part_floats(head_dim) + (size_t)ATTN_QUERIES * KV_TILE;
}
