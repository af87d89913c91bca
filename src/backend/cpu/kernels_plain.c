/* The kernels in plain C, for any machine. */
#define KERNELS_TABLE cpu_kernels_plain
#define KERNELS_NAME "reference"
#include "backend/cpu/table_impl.h"
