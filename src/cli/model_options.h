/* Options of every command that runs a model: which one, how and on which device. */
#ifndef WEIR_CLI_MODEL_OPTIONS_H
#define WEIR_CLI_MODEL_OPTIONS_H

#include "engine/engine.h"

#include <argp.h>

/* Keys of those without a letter, for the table of weir serve, too. */
#define CLI_KEY_DEVICE 0x1000
#define CLI_KEY_GPU_MEMORY 0x1001
#define CLI_KEY_GPU_ZERO 0x1002
#define CLI_DEVICE_DOC                                                                             \
    "cpu, cuda or cuda:N (see weir devices), or auto: a GPU if there is one that the model fits "  \
    "on (default: what WEIR_DEVICE says, else auto)"
#define CLI_GPU_MEMORY_DOC "what may be taken of a GPU's memory, as 0.8 or 20G (default 0.9)"
#define CLI_GPU_ZERO_DOC "zero the GPU's working buffers after every step"
#define CLI_DRAFT_DOC                                                                              \
    "guess up to N tokens ahead, 0 to 7, where an answer repeats what was said (default 0)"
/* kv: the type that keys and values have by default, a text. */
#define CLI_MODEL_OPTIONS(kv)                                                                      \
    {"model", 'm', "FILE", 0, "GGUF file (default: the built-in model)", 0},                       \
        {"threads", 'j', "N", 0, "worker threads (default: one a core)", 0},                       \
        {"kv-type", 'k', "TYPE", 0, "f16, f32, bf16 or q8_0 (default " kv ")", 0},                 \
        {"device", CLI_KEY_DEVICE, "NAME", 0, CLI_DEVICE_DOC, 0},                                  \
        {"gpu-memory", CLI_KEY_GPU_MEMORY, "SHARE|SIZE", 0, CLI_GPU_MEMORY_DOC, 0},                \
    {                                                                                              \
        "gpu-zero-buffers", CLI_KEY_GPU_ZERO, 0, 0, CLI_GPU_ZERO_DOC, 0                            \
    }
/* Where a context can be chosen. */
#define CLI_CONTEXT_OPTION(doc)                                                                    \
    {                                                                                              \
        "context", 'c', "N", 0, doc, 0                                                             \
    }
#define CLI_CONTEXT_DEFAULT "(default: as trained, or as many as the model takes)"

struct cli_model {
    const char *path;          /* NULL: the built-in one */
    uint32_t n_ctx, n_threads; /* 0: by default */
    enum kv_type kv_type;
    struct device device;
};

/* With the device that WEIR_DEVICE names, or auto; ends the process, as for a wrong option, if it
 * names none. */
struct cli_model cli_model_default(enum kv_type kv_type);
/* Set *d by an option of devices, *m by any of these; ARGP_ERR_UNKNOWN for other keys. With the
 * second an argument that is no option is a usage error. */
error_t cli_device_option(int key, char *arg, struct argp_state *s, struct device *d);
error_t cli_model_option(int key, char *arg, struct argp_state *s, struct cli_model *m);
/* What an engine is to know of it. */
void cli_model_configure(const struct cli_model *m, struct engine_config *c);

#endif
