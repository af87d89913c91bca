/* The host's functions, as the plugin's code calls them everywhere: by the names of base/ and gguf/
 * (host.c). */
#ifndef WEIR_BACKEND_CUDA_PLUGIN_HOST_H
#define WEIR_BACKEND_CUDA_PLUGIN_HOST_H

#include "backend/plugin.h"

extern const struct plugin_host *plugin_host; /* before anything else is called */

#endif
