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
#define PLUGIN_VERSION 4
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

/* Each number is what one side was built with. */
struct plugin_abi {
    uint32_t version;
    uint32_t host, model, hparams, op, tensor;
    uint32_t config, batch, batch_seq, ops, gpu_stats, device_info, limits, err_info;
    uint32_t async_step, async_job, async_result, async_ops, sample_params;
};
#define PLUGIN_ABI                                                                                 \
    {                                                                                              \
        PLUGIN_VERSION, sizeof(struct plugin_host), sizeof(struct model),                          \
            sizeof(struct model_hparams), sizeof(struct op), sizeof(struct gguf_tensor),           \
            sizeof(struct backend_config), sizeof(struct batch), sizeof(struct batch_seq),         \
            sizeof(struct backend_ops), sizeof(struct gpu_stats), sizeof(struct device_info),      \
            sizeof(struct device_limits), sizeof(struct err_info), sizeof(struct async_step),      \
            sizeof(struct async_job), sizeof(struct async_result), sizeof(struct async_ops),       \
            sizeof(struct sample_params)                                                           \
    }

struct backend_plugin {
    struct plugin_abi abi; /* first, for ever */
    /* As device_list; also when a device is in use. */
    enum err (*list)(
        struct device_info *out, uint32_t cap, uint32_t *n, char versions[64], struct err_info *e);
    /* Bytes left for KV on cfg->device. Takes no memory of the device that it does not give back.
     */
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
