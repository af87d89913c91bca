/* The kernels for AVX-512 with VNNI. */
#if defined(__AVX512VNNI__)
#define KERNELS_TABLE cpu_kernels_avx512
#define KERNELS_NAME "avx512-vnni"
#include "backend/cpu/table_impl.h"
#else
typedef int kernels_avx512_unused; /* another processor */
#endif
