/* CUDA's main header, over the emulation: the host's interface for C and C++, and for C++ what
 * kernels are written with. */
#ifndef EMU_CUDA_RUNTIME_H
#define EMU_CUDA_RUNTIME_H

#include "cuda_runtime_api.h"

#ifdef __cplusplus
#include "emu_device.h"
#endif

#endif
