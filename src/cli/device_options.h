/* Options of every command that runs a model: on which device. */
#ifndef WEIR_CLI_DEVICE_OPTIONS_H
#define WEIR_CLI_DEVICE_OPTIONS_H

#include "backend/backend.h"

#include <argp.h>

/* Their keys, for the commands' own switch and table. */
#define CLI_KEY_DEVICE 0x1000
#define CLI_KEY_GPU_MEMORY 0x1001
#define CLI_KEY_GPU_ZERO 0x1002
#define CLI_DEVICE_DOC                                                                             \
    "cpu, cuda or cuda:N (see weir devices), or auto: a GPU if there is one that the model fits "  \
    "on (default: what WEIR_DEVICE says, else auto)"
#define CLI_GPU_MEMORY_DOC "what may be taken of a GPU's memory, as 0.8 or 20G (default 0.9)"
#define CLI_GPU_ZERO_DOC "zero the GPU's working buffers after every step"
#define CLI_DEVICE_OPTIONS(group)                                                                  \
    {"device", CLI_KEY_DEVICE, "NAME", 0, CLI_DEVICE_DOC, group},                                  \
        {"gpu-memory", CLI_KEY_GPU_MEMORY, "SHARE|SIZE", 0, CLI_GPU_MEMORY_DOC, group},            \
    {                                                                                              \
        "gpu-zero-buffers", CLI_KEY_GPU_ZERO, 0, 0, CLI_GPU_ZERO_DOC, group                        \
    }
/* What WEIR_DEVICE says, or auto; ends the process, as for a wrong option, if it says nonsense. */
struct device cli_device_default(void);
/* Set *d by one of these options; ARGP_ERR_UNKNOWN for other keys. */
error_t cli_device_option(int key, char *arg, struct argp_state *s, struct device *d);

#endif
