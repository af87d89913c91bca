/* Batches over the API, a real engine and the small model, without sockets: this thread is the loop
 * thread. State files are written before they start. */
#ifndef WEIR_TESTS_BATCHES_RUNNING_H
#define WEIR_TESTS_BATCHES_RUNNING_H

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "batches/internal.h"
#include "scratch.h"
#include "unit/api/server.h"

#include <sys/stat.h>

#define RUNNING_LINE                                                                               \
    "{\"custom_id\":\"%d\",\"method\":\"POST\",\"url\":\"/v1/completions\",\"body\":{\"prompt\":"  \
    "\"Once\",\"max_tokens\":%d,\"temperature\":0,\"ignore_eos\":true}}\n"

struct running {
    struct server server;
    struct batches *b;
    char dir[64];
    uint64_t end_us; /* what takes longer fails */
};

static inline void running_write(const char *path, const char *text)
{
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    assert_int_equal(fwrite(text, 1, strlen(text), f), strlen(text));
    assert_int_equal(fclose(f), 0);
}

/* An uploaded file "file-N". */
static inline void running_put_file(const struct running *r,
                                    int n,
                                    const char *owner,
                                    const char *text)
{
    char path[160], state[400];
    snprintf(path, sizeof path, "%s/files/file-%d.jsonl", r->dir, n);
    running_write(path, text);
    snprintf(state,
             sizeof state,
             "{\"id\":\"file-%d\",\"filename\":\"a\",\"purpose\":\"batch\",\"owner\":\"%s\","
             "\"bytes\":%zu,\"serial\":%d,\"created_at\":1,\"expires_at\":0}",
             n,
             owner,
             strlen(text),
             n);
    snprintf(path, sizeof path, "%s/files/file-%d.json", r->dir, n);
    running_write(path, state);
}

/* A batch "batch_N" whose input is "file-INPUT", and whose results "file-oN" and "file-eN". States
 * that were written earlier have a "tenant", and are read like others. */
static inline void running_put_batch(
    const struct running *r, int n, const char *owner, int input, const char *status)
{
    char path[160], state[800];
    const long long now = (long long)clock_unix();
    snprintf(state,
             sizeof state,
             "{\"id\":\"batch_%d\",\"input\":\"file-%d\",\"output\":\"file-o%d\",\"errors\":"
             "\"file-e%d\",\"owner\":\"%s\",%s\"endpoint\":\"/v1/completions\","
             "\"window\":\"24h\",\"metadata\":null,\"status\":\"%s\",\"serial\":%d,"
             "\"created_at\":%lld,\"expires_at\":%lld,\"at\":[1,0,0,0,0,0,0,0],\"total\":0,"
             "\"completed\":0,\"failed\":0,\"problem\":\"\"}",
             n,
             input,
             n,
             n,
             owner,
             n % 2 ? "" : "\"tenant\":0,",
             status,
             n,
             now,
             now + 86400);
    snprintf(path, sizeof path, "%s/batches/batch_%d.json", r->dir, n);
    running_write(path, state);
}

static inline void running_make_folder(struct running *r)
{
    char path[96];
    memset(r, 0, sizeof *r);
    strcpy(r->dir, "/tmp/weir-batches-XXXXXX");
    assert_non_null(mkdtemp(r->dir));
    snprintf(path, sizeof path, "%s/files", r->dir);
    assert_int_equal(mkdir(path, 0700), 0);
    snprintf(path, sizeof path, "%s/batches", r->dir);
    assert_int_equal(mkdir(path, 0700), 0);
}

/* Then running_start. backend: NULL for the usual one. */
static inline void running_open(struct running *r, server_backend_fn backend, uint32_t n_parallel)
{
    struct err_info e;
    const struct batches_config cfg = {.dir = r->dir, .n_parallel = n_parallel};
    server_start_on(&r->server, backend, POOLING_UNSPECIFIED, 8, 64);
    if (batches_create(&cfg, r->server.api, &r->b, &e) != OK)
        fail_msg("%s", e.text);
}

static inline void running_start(struct running *r)
{
    r->end_us = clock_us() + 300000000;
    struct err_info e;
    if (batches_start(r->b, &e) != OK)
        fail_msg("%s", e.text);
}

/* Before the start: files and batches, the latest of all, that are in the index alone. */
static inline void running_add_files(struct running *r, int n, const char *owner)
{
    for (int i = 0; i < n; i++) {
        struct batch_file *f = mem_zalloc(1, sizeof *f);
        snprintf(f->entry.id, sizeof f->entry.id, "file-x%d", i);
        f->entry.owner = mem_strdup(owner);
        f->entry.serial = r->b->next_serial++;
        index_add(&r->b->files, &f->entry);
    }
}

static inline void running_add_batches(struct running *r,
                                       int n,
                                       const char *owner,
                                       enum job_status status)
{
    for (int i = 0; i < n; i++) {
        struct job *j = mem_zalloc(1, sizeof *j);
        snprintf(j->entry.id, sizeof j->entry.id, "batch_x%d", i);
        j->entry.owner = mem_strdup(owner);
        j->entry.serial = r->b->next_serial++;
        j->status = status;
        index_add(&r->b->jobs, &j->entry);
    }
}

static inline void running_remove(const struct running *r)
{
    remove_folder(r->dir);
}

/* The folder stays, for another running_open. */
static inline void running_close(struct running *r)
{
    batches_stop(r->b);
    server_stop(&r->server);
    batches_destroy(r->b);
}

static inline void running_stop(struct running *r)
{
    running_close(r);
    running_remove(r);
}

/* What a route answers; the caller's reference. */
static inline json_t *running_ask(
    const struct running *r, const char *method, const char *path, const char *owner, int want)
{
    struct api_reply reply = {.fd = -1};
    struct err_info e = {0};
    const char *body = "{\"input_file_id\":\"file-0\",\"endpoint\":\"/v1/completions\","
                       "\"completion_window\":\"24h\"}";
    struct api_input in = {.method = method,
                           .path = path,
                           .query = "",
                           .body = body,
                           .body_len = strlen(body),
                           .owner = owner};
    const struct api_service s = batches_service(r->b);
    const enum err err = s.handle(s.ctx, &in, &reply, &e);
    if (api_status_of(err) != want)
        fail_msg("%s: %d: %s", path, api_status_of(err), e.text);
    json_t *v = err ? json_string(e.text) : json_loads(buf_cstr(&reply.body), 0, NULL);
    buf_deinit(&reply.body);
    return v;
}

/* Do what the loop thread does, for some milliseconds. */
static inline void running_turn(struct running *r)
{
    struct pollfd p[] = {{.fd = engine_event_fd(r->server.engine), .events = POLLIN},
                         {.fd = batches_event_fd(r->b), .events = POLLIN}};
    void *name;
    if (clock_us() > r->end_us)
        fail_msg("five minutes were not enough");
    poll(p, 2, 5);
    batches_collect(r->b);
    while ((name = api_next(r->server.api)))
        assert_true(batches_take_news(r->b, name));
}

/* So many requests of batch_N have ended: those that completed, or all. */
static inline long long running_count(const struct running *r, int n, const char *owner, bool all)
{
    char path[64];
    snprintf(path, sizeof path, "/v1/batches/batch_%d", n);
    json_t *v = running_ask(r, "GET", path, owner, 200);
    const long long count =
        int_at(v, "request_counts.completed") + (all ? int_at(v, "request_counts.failed") : 0);
    json_decref(v);
    return count;
}

static inline bool running_is(const struct running *r, int n, const char *owner, const char *status)
{
    char path[64];
    snprintf(path, sizeof path, "/v1/batches/batch_%d", n);
    json_t *v = running_ask(r, "GET", path, owner, 200);
    const bool is = strcmp(str_at(v, "status"), status) == 0;
    json_decref(v);
    return is;
}

static inline void running_wait(struct running *r, int n, const char *owner, const char *status)
{
    while (!running_is(r, n, owner, status))
        running_turn(r);
}

#endif
