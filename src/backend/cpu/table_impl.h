/* The table of one instruction set, and the busy loops that find its limits. The including file
 * names the table: KERNELS_TABLE and KERNELS_NAME. */
#include "backend/cpu/simd.h"

#include "backend/cpu/kernels.h"

/* Of the busy loops: so many independent sums hide the latency of any instruction in use. */
#define N_SUMS 12

#include "backend/cpu/linear_impl.h"

#include "backend/cpu/rows_impl.h"

#include "backend/cpu/pack_impl.h"

#include "backend/cpu/gates_impl.h"

#include "backend/cpu/attention_impl.h"

#include "backend/cpu/recurrent_impl.h"

static double run_peak_int8(uint64_t n)
{
    uint8_t w[4 * VL];
    for (unsigned i = 0; i < sizeof w; i++)
        w[i] = (uint8_t)(i & 31);
    vb wv = vb_load(w);
    int32_t a4 = (int32_t)(n & 0x01010101);
    vi s[N_SUMS];
    UNROLL for (int i = 0; i < N_SUMS; i++) s[i] = vi_set1(i); /* each its own */
    for (uint64_t r = 0; r < n; r++) {
        __asm__ volatile("" : "+r"(a4)); /* a new operand each round, or the loop would fold */
        UNROLL for (int i = 0; i < N_SUMS; i++)
        {
            vb_forget(wv); /* or all sums would share one product */
            s[i] = vi_dot(s[i], wv, a4);
        }
    }
    uint32_t total = 0; /* may wrap */
    UNROLL for (int i = 0; i < N_SUMS; i++) total += (uint32_t)vi_sum(s[i]);
    __asm__ volatile("" : : "r"(total));
    return (double)n * N_SUMS * VL * 4 * 2;
}

static double run_peak_f32(uint64_t n)
{
    float a = 0.5f;
    vf s[N_SUMS];
    UNROLL for (int i = 0; i < N_SUMS; i++) s[i] = vf_set1((float)i);
    for (uint64_t r = 0; r < n; r++) {
        __asm__ volatile("" : "+m"(a));
        const vf x = vf_set1(a);
        UNROLL for (int i = 0; i < N_SUMS; i++) s[i] = vf_fma(s[i], x, x);
    }
    float total = 0;
    UNROLL for (int i = 0; i < N_SUMS; i++) total += vf_sum(s[i]);
    __asm__ volatile("" : : "m"(total));
    return (double)n * N_SUMS * VL * 2;
}

static uint64_t run_read(const void *p, size_t n, enum read_way way)
{
    enum { LINE = 64, AHEAD = 2048 };
    const bool four = way == READ_FOUR, past = way == READ_PAST;
    const size_t apart = four ? n / 4 : LINE, step = four ? LINE : 4 * LINE;
    vf s[4];
    UNROLL for (int i = 0; i < 4; i++) s[i] = vf_zero();
    for (size_t b = 0; b < n / 4 / LINE * step; b += step) {
        UNROLL for (int i = 0; i < 4; i++)
        {
            const uint8_t *at = (const uint8_t *)p + i * apart + b;
            if (past)
                __builtin_prefetch(at + SINGLE_AHEAD, 0, 0);
            else
                __builtin_prefetch(at + AHEAD);
            UNROLL for (int v = 0; v < LINE; v += 4 * VL) s[i] =
                vf_add(s[i], vf_load((const float *)(at + v)));
        }
    }
    float total = vf_sum(vf_add(vf_add(s[0], s[1]), vf_add(s[2], s[3])));
    uint32_t bits;
    memcpy(&bits, &total, sizeof bits);
    return bits;
}

/* Of a format's row (formats.h): what it reads, its kernels; nothing for what is given here. */
#define IF_run(...) __VA_ARGS__,
#define IF_amx(...) __VA_ARGS__,
#define IF_own(...)
#define ACTS_OF(NAME, name, k, bytes, line, acts, many) IF_##many([PANEL_##NAME] = (acts))
#define LINEAR_OF_run(NAME, name, k, bytes, line, acts, many) IF_##many([PANEL_##NAME] = run_##name)
#define LINEAR_OF_amx(NAME, name, k, bytes, line, acts, many)                                      \
    IF_##many([PANEL_##NAME] = many##_##name)
#define ONE_PANEL_OF(NAME, name, ...) [PANEL_##NAME] = ONE_PANEL_##name,
#define COLUMN_OF(NAME, name, ...) [PANEL_##NAME] = column_##name,

/* clang-format off */
#define KERNELS_ALL(label, f16_acts, f16_linear, bf16_acts, bf16_linear, bf16_peak, q8_0_acts, q4_k_acts, q5_k_acts, pairs, many, int8_peak) \
    {                                                                                              \
        .name = (label),                                                                           \
        .act_kinds = {CPU_FORMATS(ACTS_OF)                                                         \
                      [PANEL_F16] = (f16_acts),                                                    \
                      [PANEL_BF16] = (bf16_acts),                                                  \
                      [PANEL_Q8_0] = (q8_0_acts),                                                  \
                      [PANEL_Q4_K] = (q4_k_acts),                                                  \
                      [PANEL_Q5_K] = (q5_k_acts)},                                                 \
        .act_parts = many##_act_parts,                                                             \
        .one_panel = {CPU_FORMATS(ONE_PANEL_OF)},                                                       \
        .linear = {CPU_FORMATS(LINEAR_OF_##many)                                                   \
                   [PANEL_F16] = (f16_linear),                                                     \
                   [PANEL_BF16] = (bf16_linear),                                                   \
                   [PANEL_Q8_0] = many##_q8_0,                                                     \
                   [PANEL_Q4_K] = pairs##_q4_k,                                                    \
                   [PANEL_Q5_K] = pairs##_q5_k},                                                   \
        .column = {CPU_FORMATS(COLUMN_OF)},                                                        \
        .layer_norm = run_layer_norm, .norm = run_norm,                                            \
        .unary = {[UNARY_GELU] = run_gelu,                                                         \
                  [UNARY_GELU_TANH] = run_gelu_tanh,                                               \
                  [UNARY_RELU_SQUARE] = run_relu_square,                                           \
                  [UNARY_RELU] = run_relu,                                                         \
                  [UNARY_SIGMOID] = run_sigmoid,                                                   \
                  [UNARY_SOFTPLUS] = run_softplus,                                                 \
                  [UNARY_EXP] = run_exp},                                                          \
        .silu_mul = run_silu_mul, .add = run_add, .pack = run_pack, .gelu_mul = run_gelu_mul,      \
        .clamped_mul = run_clamped_mul, .sigmoid_mul = run_sigmoid_mul, .xielu = run_xielu,        \
        .capped_mul = run_capped_mul,                                                              \
        .add_scaled = run_add_scaled, .cap = run_cap, .mul = run_mul, .rotate = run_rotate,        \
        .conv = run_conv, .recur = run_recur, .selective = run_selective,                          \
        .kv_store = run_kv_store, .attend = many##_attend, .attend_part = many##_attend_part,      \
        .attend_merge = many##_attend_merge, .attend_some = many##_attend_some,                        \
        .attend_step = many##_attend_step, .exp = run_exp, .peak_int8 = (int8_peak),               \
        .peak_f32 = run_peak_f32, .peak_bf16 = (bf16_peak), .read = run_read,                      \
    }
/* clang-format on */

const struct cpu_kernels KERNELS_TABLE = KERNELS_ALL(KERNELS_NAME,
                                                     ACT_F32,
                                                     run_f16,
                                                     ACT_F32,
                                                     run_bf16,
                                                     NULL,
                                                     ACT_INT8,
                                                     ACT_INT8_128,
                                                     ACT_INT8_128,
                                                     run,
                                                     run,
                                                     run_peak_int8);
