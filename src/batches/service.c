/* Create and destroy, and which route is whose. */
#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "batches/internal.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/stat.h>
#include <unistd.h>

void batches_path_id(const char *part, char *id)
{
    size_t n = strcspn(part, "/");
    n = n < BATCH_ID_BYTES ? n : BATCH_ID_BYTES - 1;
    memcpy(id, part, n);
    id[n] = '\0';
}

void batches_reply_json(struct api_reply *out, json_t *v)
{
    char *text = v ? json_dumps(v, JSON_COMPACT) : NULL;
    out->body.may_fail = true;
    out->body.failed = !text; /* as memory is out */
    buf_str(&out->body, text ? text : "");
    free(text);
    json_decref(v);
}

static enum err handle(void *ctx,
                       const struct api_input *in,
                       struct api_reply *out,
                       struct err_info *e)
{
    static const char files[] = "/v1/files", jobs[] = "/v1/batches";
    struct batches *b = ctx;
    if (strncmp(in->path, files, sizeof files - 1) == 0)
        return files_route(b, in, in->path + sizeof files - 1, out, e);
    return jobs_route(b, in, in->path + sizeof jobs - 1, out, e);
}

struct api_service batches_service(struct batches *b)
{
    return (struct api_service){.ctx = b, .handle = handle};
}

/* What a crash left behind: bytes that no file and no batch has. They may be the results of a batch
 * that was left out. */
static void sweep_one(void *ctx, const char *stem)
{
    struct batches *b = ctx;
    char name[64];
    if (b->left_out || files_find(b, stem, NULL) || jobs_use_file(b, stem))
        return;
    file_name(stem, ".json", name);
    if (faccessat(b->files_fd, name, F_OK, AT_SYMLINK_NOFOLLOW) == 0 || errno != ENOENT)
        return; /* it was left out with a warning: that is for the operator to look at */
    file_name(stem, ".jsonl", name);
    (void)unlinkat(b->files_fd, name, 0);
}

static void sweep_aside(void *ctx, const char *stem)
{
    const int *fd = ctx;
    char name[64];
    file_name(stem, ".tmp", name);
    (void)unlinkat(*fd, name, 0);
}

static enum err open_folders(struct batches *b, struct err_info *e)
{
    struct stat st;
    enum err err;
    if ((err = disk_open_folder(AT_FDCWD, b->cfg.dir, &b->dir_fd, e)) ||
        (err = disk_lock(b->dir_fd, b->cfg.dir, &b->lock_fd, e)) ||
        (err = disk_open_folder(b->dir_fd, "files", &b->files_fd, e)) ||
        (err = disk_open_folder(b->dir_fd, "batches", &b->jobs_fd, e)))
        return err;
    if (fstat(b->dir_fd, &st) == 0 && (st.st_mode & (S_IWGRP | S_IWOTH)))
        log_warn("batch: others may write to %s", b->cfg.dir);
    return OK;
}

static enum err load(struct batches *b, struct err_info *e)
{
    enum err err;
    if ((err = files_load(b, e)) || (err = jobs_load(b, e)) ||
        (err = disk_each(b->files_fd, ".jsonl", sweep_one, b, e)) ||
        (err = disk_each(b->files_fd, ".tmp", sweep_aside, &b->files_fd, e)))
        return err;
    return disk_each(b->jobs_fd, ".tmp", sweep_aside, &b->jobs_fd, e);
}

static void set_defaults(struct batches_config *c)
{
    c->n_parallel = c->n_parallel ? c->n_parallel : 16;
    c->max_file_bytes = c->max_file_bytes ? c->max_file_bytes : BATCHES_FILE_BYTES;
    c->max_lines = c->max_lines ? c->max_lines : 50000;
    c->max_line_bytes = c->max_line_bytes ? c->max_line_bytes : 1u << 20;
}

enum err batches_create(const struct batches_config *cfg,
                        struct api *api,
                        struct batches **out,
                        struct err_info *e)
{
    struct batches *b = mem_zalloc(1, sizeof *b);
    *out = NULL;
    b->cfg = *cfg;
    set_defaults(&b->cfg);
    b->api = api;
    b->dir_fd = b->files_fd = b->jobs_fd = b->lock_fd = -1;
    pthread_mutex_init(&b->lock, NULL);
    pthread_mutex_init(&b->queue_lock, NULL);
    clock_cond_init(&b->more);
    b->slots = mem_zalloc(b->cfg.n_parallel, sizeof *b->slots);
    for (uint32_t i = 0; i < b->cfg.n_parallel; i++)
        b->slots[i].body.may_fail = true;
    b->event_fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    enum err err = b->event_fd < 0 ? err_set(e, ERR_IO, "cannot create an eventfd") : OK;
    if (err || (err = open_folders(b, e)) || (err = load(b, e))) {
        batches_destroy(b);
        return err;
    }
    *out = b;
    return OK;
}

void batches_destroy(struct batches *b)
{
    if (!b)
        return;
    batches_stop(b);
    jobs_unload(b);
    files_unload(b);
    for (uint32_t i = 0; i < b->cfg.n_parallel; i++) {
        buf_deinit(&b->slots[i].body);
        free(b->slots[i].custom_id);
    }
    free(b->slots);
    places_free(b->places);
    disk_close(b->event_fd);
    disk_close(b->jobs_fd);
    disk_close(b->files_fd);
    disk_close(b->lock_fd);
    disk_close(b->dir_fd);
    pthread_mutex_destroy(&b->lock);
    pthread_mutex_destroy(&b->queue_lock);
    pthread_cond_destroy(&b->more);
    free(b);
}
