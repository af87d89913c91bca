/* /v1/batches: what batches there are, and how far each has come. */
#include "batches/internal.h"

#include "api/json.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MAX_WINDOW_S ((int64_t)30 * 86400)

static const char *const status_names[N_JOB_STATUS] = {
    [JOB_VALIDATING] = "validating",
    [JOB_IN_PROGRESS] = "in_progress",
    [JOB_FINALIZING] = "finalizing",
    [JOB_CANCELLING] = "cancelling",
    [JOB_COMPLETED] = "completed",
    [JOB_FAILED] = "failed",
    [JOB_EXPIRED] = "expired",
    [JOB_CANCELLED] = "cancelled",
};

bool job_is_over(const struct job *j)
{
    return j->status >= JOB_COMPLETED;
}

/* --- the index -------------------------------------------------------------------------------- */

static void job_free(struct job *j)
{
    lines_close(j);
    json_decref(j->metadata);
    free(j->entry.owner);
    free(j);
}

struct job *job_at(const struct batches *b, uint32_t i)
{
    return (struct job *)b->jobs.entries[i];
}

static void add(struct batches *b, struct job *j)
{
    index_add(&b->jobs, &j->entry);
    if (j->entry.serial >= b->next_serial)
        b->next_serial = j->entry.serial + 1;
}

uint32_t jobs_under_way(const struct batches *b, const char *owner)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < b->jobs.n; i++) {
        const struct job *j = job_at(b, i);
        n += !job_is_over(j) && (!owner || strcmp(j->entry.owner, owner) == 0);
    }
    return n;
}

bool jobs_use_file(const struct batches *b, const char *file_id)
{
    for (uint32_t i = 0; i < b->jobs.n; i++) {
        const struct job *j = job_at(b, i);
        if (!job_is_over(j) && (strcmp(j->input, file_id) == 0 || strcmp(j->output, file_id) == 0 ||
                                strcmp(j->errors, file_id) == 0))
            return true;
    }
    return false;
}

/* Beside "status" and "at". */
static const struct disk_field fields[] = {
    DISK_FIELD("id", DISK_TEXT, job, entry.id),
    DISK_FIELD("input", DISK_TEXT, job, input),
    DISK_FIELD("output", DISK_TEXT, job, output),
    DISK_FIELD("errors", DISK_TEXT, job, errors),
    DISK_FIELD("owner", DISK_OWN, job, entry.owner),
    DISK_FIELD("endpoint", DISK_TEXT, job, endpoint),
    DISK_FIELD("window", DISK_TEXT, job, window),
    DISK_FIELD("metadata", DISK_JSON, job, metadata),
    DISK_FIELD("serial", DISK_LONG, job, entry.serial),
    DISK_FIELD("created_at", DISK_LONG, job, created_at),
    DISK_FIELD("expires_at", DISK_LONG, job, expires_at),
    DISK_FIELD("total", DISK_COUNT, job, n_total),
    DISK_FIELD("completed", DISK_COUNT, job, n_completed),
    DISK_FIELD("failed", DISK_COUNT, job, n_failed),
    DISK_FIELD("problem", DISK_TEXT, job, problem),
};
#define N_FIELDS (sizeof fields / sizeof fields[0])

static enum err save(struct batches *b, const struct job *j, struct err_info *e)
{
    char name[64];
    json_t *at = json_array(), *v = disk_pack(fields, N_FIELDS, j);
    for (int i = 0; i < N_JOB_STATUS; i++)
        json_array_append_new(at, json_integer(j->at[i]));
    file_name(j->entry.id, ".json", name);
    bool packed = json_object_set_new(v, "at", at) == 0 &&
                  json_object_set_new(v, "status", json_string(status_names[j->status])) == 0;
    enum err err = packed ? disk_write_json(b->jobs_fd, name, v, e)
                          : err_set(e, ERR_NOMEM, "no memory to write %s", name);
    json_decref(v);
    return err;
}

enum err job_enter(struct batches *b, struct job *j, enum job_status status, struct err_info *e)
{
    const enum job_status was = j->status;
    const int64_t was_at = j->at[status];
    j->status = status;
    j->at[status] = clock_unix();
    enum err err = save(b, j, e);
    if (err) {
        j->status = was;
        j->at[status] = was_at;
    }
    return err;
}

static bool parse_status(const char *name, enum job_status *out)
{
    for (int i = 0; i < N_JOB_STATUS; i++) {
        if (strcmp(name, status_names[i]) == 0) {
            *out = (enum job_status)i;
            return true;
        }
    }
    return false;
}

/* From a state file; false if it is not one. */
static bool read_state(struct job *j, const json_t *v)
{
    const json_t *at = json_object_get(v, "at");
    const char *status = json_string_value(json_object_get(v, "status"));
    if (!disk_unpack(fields, N_FIELDS, v, j) || !at || !status ||
        !parse_status(status, &j->status) || strncmp(j->entry.id, "batch_", strlen("batch_")) != 0)
        return false;
    for (int i = 0; i < N_JOB_STATUS; i++)
        j->at[i] = json_integer_value(json_array_get(at, (size_t)i));
    return true;
}

static void load_one(void *ctx, const char *stem)
{
    struct batches *b = ctx;
    struct err_info e = {0};
    char name[64];
    json_t *v = NULL;
    struct job *j = mem_zalloc(1, sizeof *j);
    file_name(stem, ".json", name);
    enum err err = disk_read_json(b->jobs_fd, name, &v, &e);
    if (!err && (!read_state(j, v) || strcmp(j->entry.id, stem) != 0))
        err = err_set(&e, ERR_FORMAT, "%s is not what it should be", name);
    if (err) {
        log_warn("batch: a batch is left out: %s", e.text);
        b->left_out = true;
        job_free(j);
    } else {
        add(b, j);
    }
    json_decref(v);
}

enum err jobs_load(struct batches *b, struct err_info *e)
{
    return disk_each(b->jobs_fd, ".json", load_one, b, e);
}

void jobs_free_forgotten(struct batches *b)
{
    for (struct job *next; b->forgotten; b->forgotten = next) {
        next = b->forgotten->next;
        job_free(b->forgotten);
    }
}

void jobs_unload(struct batches *b)
{
    jobs_free_forgotten(b);
    for (uint32_t i = 0; i < b->jobs.n; i++)
        job_free(job_at(b, i));
    index_deinit(&b->jobs);
}

/* --- routes ----------------------------------------------------------------------------------- */

static json_t *time_or_null(int64_t at)
{
    return at ? json_integer(at) : json_null();
}

/* The id of a result file that is there to be read. */
static json_t *result_id(const struct batches *b, const struct job *j, const char *id)
{
    return job_is_over(j) && files_find(b, id, NULL) ? json_string(id) : json_null();
}

static json_t *problems_of(const struct job *j)
{
    /* NOLINTNEXTLINE(clang-analyzer-core.*): the route found the job */
    if (j->status != JOB_FAILED)
        return json_null();
    return json_pack("{s:s, s:[{s:s, s:s, s:n, s:n}]}",
                     "object",
                     "list",
                     "data",
                     "code",
                     "input_file",
                     "message",
                     j->problem,
                     "param",
                     "line");
}

static json_t *describe(const struct batches *b, const struct job *j)
{
    json_t *v = json_pack("{s:s, s:s, s:s, s:o, s:s, s:s, s:s, s:o, s:o, s:I, s:I}",
                          "id",
                          j->entry.id,
                          "object",
                          "batch",
                          "endpoint",
                          j->endpoint,
                          "errors",
                          problems_of(j),
                          "input_file_id",
                          j->input,
                          "completion_window",
                          j->window,
                          "status",
                          status_names[j->status],
                          "output_file_id",
                          result_id(b, j, j->output),
                          "error_file_id",
                          result_id(b, j, j->errors),
                          "created_at",
                          (json_int_t)j->created_at,
                          "expires_at",
                          (json_int_t)j->expires_at);
    for (int i = JOB_IN_PROGRESS; v && i < N_JOB_STATUS; i++) {
        char name[32];
        snprintf(name, sizeof name, "%s_at", status_names[i]);
        json_object_set_new(v, name, time_or_null(j->at[i]));
    }
    json_t *counts = json_pack("{s:I, s:I, s:I}",
                               "total",
                               (json_int_t)j->n_total,
                               "completed",
                               (json_int_t)j->n_completed,
                               "failed",
                               (json_int_t)j->n_failed);
    json_object_set_new(v, "request_counts", counts);
    json_object_set(v, "metadata", j->metadata);
    return v;
}

/* "24h", or another number of s, m, h or d. */
static enum err parse_window(const char *s, int64_t *seconds, struct err_info *e)
{
    static const char units[] = "smhd";
    static const int64_t unit_s[] = {1, 60, 3600, 86400};
    char *end;
    long long n = strtoll(s, &end, 10);
    const char *unit = *end ? strchr(units, *end) : NULL;
    if (s[0] >= '0' && s[0] <= '9' && unit && end[1] == '\0' && n > 0 && n <= MAX_WINDOW_S &&
        n * unit_s[unit - units] <= MAX_WINDOW_S) {
        *seconds = n * unit_s[unit - units];
        return OK;
    }
    return err_invalid(e,
                       "completion_window",
                       "'completion_window' must be a time of at most 30 days, such as 24h");
}

static enum err get_text(
    const json_t *body, const char *name, char *out, size_t cap, struct err_info *e)
{
    struct gguf_str s = {0};
    enum err err = api_get_str(body, name, &s, e);
    if (err)
        return err;
    if (!s.data)
        return err_invalid(e, name, "'%s' is required", name);
    if (s.len >= cap)
        return err_invalid(e, name, "'%s' is too long", name);
    memcpy(out, s.data, s.len);
    out[s.len] = '\0';
    return OK;
}

/* Into *j, whose strings of its own are not taken yet. */
static enum err parse_create(const json_t *body,
                             struct job *j,
                             json_t **metadata,
                             struct err_info *e)
{
    int64_t seconds = 0;
    enum err err;
    if (api_get(body, "output_expires_after"))
        return err_invalid(e,
                           "output_expires_after",
                           "'output_expires_after' is not supported: results stay until they are "
                           "deleted");
    if ((err = get_text(body, "input_file_id", j->input, sizeof j->input, e)) ||
        (err = get_text(body, "endpoint", j->endpoint, sizeof j->endpoint, e)) ||
        (err = get_text(body, "completion_window", j->window, sizeof j->window, e)) ||
        (err = parse_window(j->window, &seconds, e)) || (err = api_get_metadata(body, metadata, e)))
        return err;
    if (!api_is_batch_endpoint(j->endpoint))
        return err_invalid(
            e, "endpoint", "'%s' is not an endpoint that batches can have", j->endpoint);
    j->created_at = clock_unix();
    j->expires_at = j->created_at + seconds;
    return OK;
}

/* The oldest batch that is over gives way: of this owner, if it has at least as many as anybody who
 * has one, else of who has most. False: there is none. Its results stay. */
static bool forget_one(struct batches *b, const char *owner)
{
    char name[64];
    struct job *oldest = NULL;
    uint32_t most = 0;
    for (uint32_t i = 0; i < b->jobs.n; i++) {
        struct job *j = job_at(b, i);
        if (!job_is_over(j) || (oldest && strcmp(j->entry.owner, oldest->entry.owner) == 0))
            continue;
        uint32_t n = index_count(&b->jobs, j->entry.owner);
        bool own = strcmp(j->entry.owner, owner) == 0;
        if (n > most || (n == most && own)) {
            oldest = j;
            most = n;
        }
    }
    if (!oldest)
        return false;
    file_name(oldest->entry.id, ".json", name);
    (void)unlinkat(b->jobs_fd, name, 0);
    index_remove(&b->jobs, &oldest->entry);
    oldest->next = b->forgotten;
    b->forgotten = oldest;
    return true;
}

static enum err enter_new(struct batches *b, struct job *like, struct job **out, struct err_info *e)
{
    const struct batch_file *f = files_find(b, like->input, like->entry.owner);
    if (!f)
        return err_invalid(e, "input_file_id", "there is no file '%s'", like->input);
    if (strcmp(f->purpose, "batch") != 0)
        return err_invalid(e,
                           "input_file_id",
                           "'%s' has no requests: its purpose is %s, not batch",
                           like->input,
                           f->purpose);
    enum err err = files_check_share(b, like->entry.owner, BATCH_RESULTS, e);
    if (err)
        return err;
    if (b->jobs.n >= BATCH_MAX_JOBS && !forget_one(b, like->entry.owner))
        return err_set(e, ERR_QUEUE_FULL, "%u batches are under way already", b->jobs.n);
    struct job *j = mem_zalloc(1, sizeof *j);
    *j = *like;
    j->entry.owner = mem_strdup(like->entry.owner);
    j->metadata = like->metadata ? json_deep_copy(like->metadata) : json_null();
    j->entry.serial = b->next_serial++;
    j->at[JOB_VALIDATING] = j->created_at;
    api_new_id("batch_", j->entry.id, sizeof j->entry.id);
    api_new_id("file-", j->output, sizeof j->output);
    api_new_id("file-", j->errors, sizeof j->errors);
    if ((err = save(b, j, e))) {
        job_free(j);
        return err;
    }
    add(b, j);
    *out = j;
    return OK;
}

static enum err create(struct batches *b,
                       const struct api_input *in,
                       struct api_reply *out,
                       struct err_info *e)
{
    struct job like = {.entry.owner = (char *)in->owner}, *j = NULL;
    json_t *body = NULL;
    enum err err = api_json_parse(in->body, in->body_len, &body, e);
    if (!err)
        err = parse_create(body, &like, &like.metadata, e);
    if (!err) {
        pthread_mutex_lock(&b->lock);
        err = enter_new(b, &like, &j, e);
        if (!err)
            batches_reply_json(out, describe(b, j));
        pthread_mutex_unlock(&b->lock);
    }
    json_decref(body);
    if (!err)
        run_wake(b);
    return err;
}

static json_t *describe_entry(void *ctx, const struct entry *e)
{
    return describe(ctx, (const struct job *)e);
}

static enum err list(struct batches *b,
                     const struct api_input *in,
                     struct api_reply *out,
                     struct err_info *e)
{
    const struct list_item item = {.ctx = b, .describe = describe_entry};
    pthread_mutex_lock(&b->lock);
    enum err err = index_list(&b->jobs, in, "batch", &item, out, e);
    pthread_mutex_unlock(&b->lock);
    return err;
}

/* What is under way may end; nothing more is begun. */
static enum err cancel(struct batches *b, struct job *j, struct err_info *e)
{
    if (job_is_over(j) || j->status == JOB_FINALIZING)
        return err_invalid(e,
                           "batch_id",
                           "the batch '%s' is %s and cannot be cancelled",
                           j->entry.id,
                           status_names[j->status]);
    return j->status == JOB_CANCELLING ? OK : job_enter(b, j, JOB_CANCELLING, e);
}

/* rest: what comes behind /v1/batches: "", "/ID" or "/ID/cancel". */
enum err jobs_route(struct batches *b,
                    const struct api_input *in,
                    const char *rest,
                    struct api_reply *out,
                    struct err_info *e)
{
    char id[BATCH_ID_BYTES];
    if (rest[0] == '\0')
        return strcmp(in->method, "GET") == 0 ? list(b, in, out, e) : create(b, in, out, e);
    batches_path_id(rest + 1, id);
    const bool is_cancel = strchr(rest + 1, '/') != NULL;
    enum err err = OK;
    pthread_mutex_lock(&b->lock);
    struct job *j = (struct job *)index_find(&b->jobs, id, in->owner);
    if (!j)
        err = err_set_field(e, ERR_NOT_FOUND, "batch_id", "there is no batch '%.80s'", id);
    else if (is_cancel)
        err = cancel(b, j, e);
    if (!err)
        batches_reply_json(out, describe(b, j));
    pthread_mutex_unlock(&b->lock);
    if (is_cancel && !err)
        run_wake(b);
    return err;
}
