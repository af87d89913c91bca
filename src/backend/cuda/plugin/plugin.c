/* The plugin's one exported symbol. */
#include "backend/plugin.h"

#include "backend/cuda/cuda.h"
#include "backend/cuda/plugin/host.h"

static const struct backend_plugin table = {
    .abi = PLUGIN_ABI,
    .list = cuda_device_list,
    .room = cuda_room,
    .create = cuda_backend_create,
    .limits = cuda_limits,
};

__attribute__((visibility("default"))) const struct backend_plugin *weir_backend_plugin(
    const struct plugin_host *host);

const struct backend_plugin *weir_backend_plugin(const struct plugin_host *host)
{
    plugin_host = host;
    return &table;
}
