/* The kernels for AVX-512 with VNNI; and once more with dot products of bf16 for BF16 weights. */
#if defined(__AVX512VNNI__)
#define KERNELS_TABLE cpu_kernels_avx512
#define KERNELS_NAME "avx512-vnni"
#define WITH_BF16_DOT
#include "backend/cpu/table_impl.h"

const struct cpu_kernels cpu_kernels_avx512_bf16 =
    KERNELS_ALL("avx512-vnni-bf16", ACT_BF16, run_bf16dot, run_peak_bf16);
#else
typedef int kernels_avx512_unused; /* another processor */
#endif
