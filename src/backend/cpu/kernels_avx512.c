/* The kernels for AVX-512 with VNNI; once more with dot products of bf16 for BF16 weights and half
 * the multiplications for Q4_K and Q5_K, as is fastest on AMD's processors, and once more with a
 * tile unit.
 */
#if defined(__AVX512VNNI__)
#define KERNELS_TABLE cpu_kernels_avx512
#define KERNELS_NAME "avx512-vnni"
#define WITH_BF16_DOT
#define WITH_AMX
#include "backend/cpu/table_impl.h"

const struct cpu_kernels cpu_kernels_avx512_bf16 =
    KERNELS_ALL("avx512-vnni-bf16",
                ACT_F32,
                run_f16,
                ACT_BF16,
                run_bf16dot,
                run_peak_bf16,
                ACT_INT8,
                ACT_INT8_128 | ACT_PAIRS,
                ACT_INT8_128 | ACT_PAIRS | ACT_PAIRS_31,
                pairs,
                run,
                run_peak_int8);

const struct cpu_kernels cpu_kernels_amx = KERNELS_ALL("avx512-vnni-amx",
                                                       ACT_TWO,
                                                       amx_f16,
                                                       ACT_TWO,
                                                       amx_bf16,
                                                       amx_peak_bf16,
                                                       ACT_HIGH,
                                                       ACT_INT8_128,
                                                       ACT_INT8_128,
                                                       amx,
                                                       amx,
                                                       amx_peak);
#else
typedef int kernels_avx512_unused; /* another processor */
#endif
