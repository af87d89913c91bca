/* The kernels for AVX2, FMA and F16C with AVX-VNNI. */
#if defined(__AVXVNNI__)
#define KERNELS_TABLE cpu_kernels_avxvnni
#define KERNELS_NAME "avx-vnni"
#include "backend/cpu/table_impl.h"
#else
typedef int kernels_avxvnni_unused; /* another processor */
#endif
