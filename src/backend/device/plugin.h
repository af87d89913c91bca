/* Finding and loading libweir_cuda.so. */
#ifndef WEIR_BACKEND_DEVICE_PLUGIN_H
#define WEIR_BACKEND_DEVICE_PLUGIN_H

#include "backend/plugin.h"

/* The CUDA plugin, loaded by the first call and never unloaded: WEIR_CUDA_PLUGIN where the
 * environment has it, else libweir_cuda.so beside the program, in ../lib/weir from there, or in the
 * system's library path. Any thread. Errors, each time again: ERR_NOT_FOUND (there is no such
 * file), ERR_UNSUPPORTED (it cannot be loaded, or was built for another weir). */
enum err plugin_cuda(const struct backend_plugin **out, struct err_info *e) WEIR_MUST_USE;

/* Are these two the same? Says what differs. Errors: ERR_UNSUPPORTED. */
enum err plugin_check(const char *path,
                      const struct plugin_abi *ours,
                      const struct plugin_abi *theirs,
                      struct err_info *e) WEIR_MUST_USE;

#endif
