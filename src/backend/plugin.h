/* What weir and a backend that it loads at run time say to each other.
 *
 *      weir  --- dlopen, weir_backend_plugin(host) --->  libweir_cuda.so
 *            <-- a table: who it is, devices, create --
 *
 * The plugin is closed in itself: it has its own copies of the few pure functions that it uses
 * (errors, block formats, sizes of KV rows, worker threads), hidden, and of state nothing: what the
 * process has once - the log, the watch over allocations, mapped files - it reaches through
 * plugin_host. So it needs no symbols of the executable, and the executable none of CUDA.
 *
 * Structs of model.h, gguf.h and backend.h cross as they are. Both sides say how large theirs are,
 * and what differs is refused before anything is called. */
#ifndef WEIR_BACKEND_PLUGIN_H
#define WEIR_BACKEND_PLUGIN_H

#include "backend/async.h"
#include "backend/backend.h"

/* Counts changes of meaning; those of size show in plugin_abi by themselves. */
#define PLUGIN_VERSION 6
#define PLUGIN_SYMBOL "weir_backend_plugin"

/* The host's functions. Any thread. */
struct plugin_host {
    void (*log)(int level, const char *text); /* enum log_level (log.h), one line */
    void *(*zalloc)(size_t n, size_t size);   /* as mem_zalloc: counted, never NULL */
    void *(*aligned)(size_t n_bytes);         /* as mem_aligned */
    void (*watch)(bool on);                   /* as mem_watch */
    /* as gguf_drop_pages */
    void (*drop_pages)(const struct gguf *g, const struct gguf_tensor *t, size_t first, size_t n);
};

/* The structs that cross, but those that lie in one of these. */
#define PLUGIN_STRUCTS(X)                                                                          \
    X(plugin_host)                                                                                 \
    X(model)                                                                                       \
    X(model_hparams)                                                                               \
    X(model_layer)                                                                                 \
    X(op)                                                                                          \
    X(gguf_tensor)                                                                                 \
    X(backend_config)                                                                              \
    X(backend_place)                                                                               \
    X(batch)                                                                                       \
    X(batch_seq)                                                                                   \
    X(backend_ops)                                                                                 \
    X(gpu_stats)                                                                                   \
    X(device_info)                                                                                 \
    X(device_limits)                                                                               \
    X(err_info)                                                                                    \
    X(async_step)                                                                                  \
    X(async_job)                                                                                   \
    X(async_result)                                                                                \
    X(async_ops)                                                                                   \
    X(sample_params)                                                                               \
    X(logit_bias)

/* Each number is what one side was built with: a struct's is its size. */
#define PLUGIN_FIELD(name) uint32_t name;
struct plugin_abi {
    uint32_t version;
    PLUGIN_STRUCTS(PLUGIN_FIELD)
};
#undef PLUGIN_FIELD
#define PLUGIN_SIZE(name) .name = sizeof(struct name),
#define PLUGIN_ABI                                                                                 \
    {                                                                                              \
        .version = PLUGIN_VERSION, PLUGIN_STRUCTS(PLUGIN_SIZE)                                     \
    }

struct backend_plugin {
    struct plugin_abi abi; /* first, for ever */
    /* As device_list; also when a device is in use. */
    enum err (*list)(
        struct device_info *out, uint32_t cap, uint32_t *n, char versions[64], struct err_info *e);
    /* Bytes left for KV on cfg->device. Takes no memory of the device that it does not give back,
     * but for CUDA's own context, which the process keeps; so does list. */
    enum err (*room)(const struct model *m,
                     const struct backend_config *cfg,
                     uint64_t *kv_bytes,
                     struct err_info *e);
    enum err (*create)(const struct model *m,
                       const struct backend_config *cfg,
                       struct backend **out,
                       struct err_info *e);
    enum err (*limits)(uint32_t index, struct device_limits *out, struct err_info *e);
};

/* The one symbol that a plugin exports. It keeps the pointer to *host, and calls nothing. */
typedef const struct backend_plugin *(*plugin_entry_fn)(const struct plugin_host *host);

#endif
