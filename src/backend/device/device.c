/* Which backend: the CPU's, which is part of the program, or a plugin's. */
#include "backend/cpu/limits.h"
#include "backend/device/plugin.h"
#include "base/log.h"

#include <stdlib.h>
#include <string.h>

enum err device_parse(const char *s, struct device *out)
{
    char *end;
    if (strcmp(s, "auto") == 0)
        out->kind = DEVICE_AUTO;
    else if (strcmp(s, "cpu") == 0)
        out->kind = DEVICE_CPU;
    else if (strncmp(s, "cuda", 4) == 0 && (s[4] == '\0' || s[4] == ':'))
        out->kind = DEVICE_CUDA;
    else
        return ERR_INVALID;
    out->index = 0;
    if (strncmp(s, "cuda:", 5) != 0)
        return OK;
    if (s[5] < '0' || s[5] > '9' || strlen(s + 5) > 4)
        return ERR_INVALID;
    out->index = (uint32_t)strtoul(s + 5, &end, 10);
    return *end ? ERR_INVALID : OK;
}

/* Room on cfg->device, which is CUDA's; enough for what is wanted. */
static enum err cuda_room(const struct model *m,
                          const struct backend_config *cfg,
                          uint64_t kv_bytes,
                          struct backend_room *room,
                          struct err_info *e)
{
    const struct backend_plugin *p;
    enum err err = plugin_cuda(&p, e);
    if (!err)
        err = p->room(m, cfg, &room->kv_bytes, e);
    if (!err && room->kv_bytes < kv_bytes)
        err =
            err_set(e,
                    ERR_NOMEM,
                    "kv-memory: %.2f GiB were asked for, cuda:%u has %.2f GiB left beside weights "
                    "and workspace",
                    (double)kv_bytes / (1 << 30),
                    cfg->device.index,
                    (double)room->kv_bytes / (1 << 30));
    return err;
}

/* The first device that takes the model, after a line of the log for each that does not; what the
 * last one said if none does. */
static enum err first_cuda(const struct model *m,
                           struct backend_config *cfg,
                           uint64_t kv_bytes,
                           struct backend_room *room,
                           struct err_info *e)
{
    char versions[64];
    uint32_t n = 0;
    enum err err = device_list(NULL, 0, &n, versions, e);
    for (cfg->device.index = 0; !err && cfg->device.index < n; cfg->device.index++) {
        if (cuda_room(m, cfg, kv_bytes, room, e) == OK)
            return OK;
        if (cfg->device.index + 1 < n)
            log_info("device: not cuda:%u: %s", cfg->device.index, e->text);
    }
    return err ? err : ERR_NOT_FOUND;
}

enum err backend_choose(const struct model *m,
                        struct backend_config *cfg,
                        uint64_t kv_bytes,
                        struct backend_room *room,
                        struct err_info *e)
{
    struct err_info why = {0};
    struct device *d = &cfg->device;
    enum err err = OK;
    *room = (struct backend_room){0};
    switch (d->kind) {
    case DEVICE_CPU:
        log_info("device: cpu");
        break;
    case DEVICE_CUDA:
        err = cuda_room(m, cfg, kv_bytes, room, e);
        if (!err)
            log_info("device: cuda:%u", d->index);
        break;
    case DEVICE_AUTO:
        d->kind = DEVICE_CUDA;
        if (first_cuda(m, cfg, kv_bytes, room, &why) == OK) {
            log_info("device: cuda:%u", d->index);
        } else {
            *room = (struct backend_room){0};
            d->kind = DEVICE_CPU;
            d->index = 0;
            log_info("device: cpu, as no GPU can be used: %s", why.text);
        }
        break;
    }
    return err;
}

enum err backend_create(const struct model *m,
                        const struct backend_config *cfg,
                        struct backend **out,
                        struct err_info *e)
{
    const struct backend_plugin *p;
    *out = NULL;
    if (cfg->device.kind == DEVICE_CPU)
        return cpu_backend_create(m, cfg, out, e);
    if (cfg->device.kind != DEVICE_CUDA)
        return err_set(e, ERR_INVALID, "a backend on a device that was not chosen");
    enum err err = plugin_cuda(&p, e);
    return err ? err : p->create(m, cfg, out, e);
}

enum err device_list(
    struct device_info *out, uint32_t cap, uint32_t *n, char versions[64], struct err_info *e)
{
    const struct backend_plugin *p;
    *n = 0;
    versions[0] = '\0';
    enum err err = plugin_cuda(&p, e);
    if (!err)
        err = p->list(out, cap, n, versions, e);
    if (!err && *n == 0)
        err = err_set(e, ERR_NOT_FOUND, "the system has no CUDA device");
    return err;
}

enum err device_limits_measure(const struct device *d,
                               uint32_t n_threads,
                               struct device_limits *out,
                               struct err_info *e)
{
    const struct backend_plugin *p;
    if (d->kind == DEVICE_CUDA) {
        const enum err err = plugin_cuda(&p, e);
        return err ? err : p->limits(d->index, out, e);
    }
    return cpu_limits_measure(n_threads, out, e);
}
