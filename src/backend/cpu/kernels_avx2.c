/* The kernels for AVX2, FMA and F16C. */
#if defined(__AVX2__)
#define KERNELS_TABLE cpu_kernels_avx2
#define KERNELS_NAME "avx2"
#include "backend/cpu/table_impl.h"
#else
typedef int kernels_avx2_unused; /* another processor */
#endif
