/* The batch thread, and the calls that are under way.
 *
 * A slot goes round: free -> begun (batch thread, then handed to the loop thread) -> ended (handed
 * back with its answer) -> free; a large answer is handed back to be written, and then over again.
 * The two queues are all that both threads touch. */
#include "api/json.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "batches/internal.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define SYNC_US 1000000
#define IDLE_S 60
#define HOLD_US 250000 /* doubled each time in a row, up to 2^MAX_HELD times */
#define MAX_HELD 7
/* Batches whose lines are held at a time, of all and of one owner: each takes three files, and
 * memory for its lines. The others wait as they are. */
#define MAX_OPEN 256
#define MAX_OPEN_OWNER 32

/* --- loop thread ------------------------------------------------------------------------------ */

int batches_event_fd(const struct batches *b)
{
    return b->event_fd;
}

static void hand_back(struct batches *b, struct slot *s)
{
    s->known = false;
    pthread_mutex_lock(&b->queue_lock);
    s->next = b->ended;
    b->ended = s;
    pthread_cond_signal(&b->more);
    pthread_mutex_unlock(&b->queue_lock);
}

/* Its answer, if it is there; then the call ends, and the slot goes back. */
static void pull(struct batches *b, struct slot *s)
{
    struct api_answer answer = {0};
    enum api_pull pulled;
    do
        pulled = api_pull(s->call, &answer, &s->body);
    while (pulled == API_MORE);
    if (pulled == API_WAIT)
        return;
    s->work = pulled == API_WORK;
    if (s->work) {
        hand_back(b, s);
        return;
    }
    s->status = answer.status;
    snprintf(s->request_id, sizeof s->request_id, "%s", answer.request_id);
    s->key_limit = answer.key_limit;
    s->retry_s = answer.key_wait_s;
    api_end(s->call);
    s->call = NULL;
    hand_back(b, s);
}

void batches_collect(struct batches *b)
{
    eventfd_t ignored;
    if (eventfd_read(b->event_fd, &ignored) != 0)
        return;
    pthread_mutex_lock(&b->queue_lock);
    struct slot *s = b->begun;
    b->begun = NULL;
    pthread_mutex_unlock(&b->queue_lock);
    while (s) {
        struct slot *next = s->next;
        s->known = true;
        pull(b, s);
        s = next;
    }
}

bool batches_take_news(struct batches *b, void *name)
{
    uintptr_t at = (uintptr_t)name, first = (uintptr_t)b->slots;
    if (at < first || at >= (uintptr_t)(b->slots + b->cfg.n_parallel))
        return false;
    struct slot *s = name;
    if (s->known) /* else batches_collect will pull it */
        pull(b, s);
    return true;
}

/* --- batch thread: one line ------------------------------------------------------------------- */

static void note_failure(struct batches *b, const struct job *j, const struct err_info *e)
{
    log_error("batch: %s waits: %s", j->entry.id, e->text);
    b->hold_us = clock_us() + (HOLD_US << MAX_HELD);
}

/* A line that was begun is to be begun again. */
static void reopen(struct job *j, uint32_t i)
{
    struct lines *l = j->lines;
    if (l->lines[i].state == LINE_RUNNING) {
        l->lines[i].state = LINE_OPEN;
        l->n_running--;
        l->n_open++;
    }
    if (i < l->next)
        l->next = i;
}

static void finish(struct batches *b, struct job *j, uint32_t i, const struct line_result *r)
{
    struct err_info e = {0};
    if (lines_finish(j, i, r, &e) != OK) {
        reopen(j, i);
        note_failure(b, j, &e);
        return;
    }
    pthread_mutex_lock(&b->lock);
    if (r->body && r->status == 200)
        j->n_completed++;
    else
        j->n_failed++;
    pthread_mutex_unlock(&b->lock);
}

static void refuse(struct batches *b,
                   struct job *j,
                   uint32_t i,
                   const char *custom_id,
                   const char *code,
                   const char *message)
{
    struct line_result r = {
        .custom_id = custom_id ? custom_id : "null", .code = code, .message = message};
    finish(b, j, i, &r);
}

/* What is wrong with a line, or NULL; its code into *code. */
static const char *problem_of(const struct job *j,
                              const struct line *line,
                              const json_t *v,
                              const char **code)
{
    const json_t *id = json_object_get(v, "custom_id"), *body = json_object_get(v, "body");
    const char *method = json_string_value(json_object_get(v, "method"));
    const char *url = json_string_value(json_object_get(v, "url"));
    *code = "invalid_request";
    if (!json_is_object(v)) {
        *code = "invalid_json_line";
        return "the line is not a JSON object";
    }
    if (!json_is_string(id) || json_string_length(id) == 0 || json_string_length(id) > 512) {
        *code = "invalid_custom_id";
        return "'custom_id' must be a string of 1 to 512 bytes";
    }
    if (line->repeats) {
        *code = "duplicate_custom_id";
        return "an earlier line has the same 'custom_id'";
    }
    if (!method || strcmp(method, "POST") != 0)
        return "'method' must be POST";
    if (!url || strcmp(url, j->endpoint) != 0) {
        *code = "mismatched_endpoint";
        return "'url' must be the batch's endpoint";
    }
    if (!json_is_object(body))
        return "'body' must be an object";
    if (json_is_true(json_object_get(body, "stream")))
        return "'stream' has no meaning in a batch";
    return NULL;
}

static void hand_over(struct batches *b, struct slot *s)
{
    pthread_mutex_lock(&b->queue_lock);
    s->next = b->begun;
    b->begun = s;
    pthread_mutex_unlock(&b->queue_lock);
    (void)eventfd_write(b->event_fd, 1);
}

/* Give the line to the API, in this slot. */
static void begin_call(
    struct batches *b, struct slot *s, struct job *j, uint32_t i, const json_t *v)
{
    char *body = json_dumps(json_object_get(v, "body"), JSON_COMPACT);
    struct lines *l = j->lines;
    l->lines[i].state = LINE_RUNNING;
    l->n_open--;
    l->n_running++;
    s->job = j;
    s->line = i;
    s->custom_id = json_dumps(json_object_get(v, "custom_id"), JSON_ENCODE_ANY);
    buf_clear(&s->body);
    struct api_input in = {.method = "POST",
                           .path = j->endpoint,
                           .query = "",
                           .body = body ? body : "",
                           .body_len = body ? strlen(body) : 0,
                           .internal = true,
                           .priority = BATCH_PRIORITY,
                           .tenant = j->tenant,
                           .owner = j->entry.owner,
                           .name = s};
    s->call = api_begin(b->api, &in);
    hand_over(b, s);
    free(body);
}

/* Begin line i, or record what is wrong with it. */
static void begin_line(struct batches *b, struct slot *s, struct job *j, uint32_t i)
{
    struct err_info e = {0};
    const struct line *line = &j->lines->lines[i];
    const char *code, *problem;
    char message[256];
    char *text = lines_read(j->lines, i, &e);
    if (!text) {
        note_failure(b, j, &e);
        return;
    }
    json_error_t where;
    json_t *v = json_loadb(text, line->n_bytes, 0, &where);
    if (!v) {
        snprintf(message,
                 sizeof message,
                 "the line is not JSON: column %d: %s",
                 where.column,
                 where.text);
        err_one_line(message);
        refuse(b, j, i, NULL, "invalid_json_line", message);
    } else if ((problem = problem_of(j, line, v, &code))) {
        const json_t *id = json_object_get(v, "custom_id");
        char *quoted = json_is_string(id) ? json_dumps(id, JSON_ENCODE_ANY) : NULL;
        refuse(b, j, i, quoted, code, problem);
        free(quoted);
    } else {
        begin_call(b, s, j, i, v);
    }
    json_decref(v);
    free(text);
}

/* The server was full, or is about to end: the line is tried again after a while. */
static void hold(struct batches *b)
{
    if (clock_us() < b->hold_us)
        return; /* another line's answer said so already */
    b->hold_us = clock_us() + (HOLD_US << b->n_held);
    if (b->n_held < MAX_HELD)
        b->n_held++;
}

/* Those that were handed back, the first first. */
static struct slot *ended_in_order(struct batches *b)
{
    pthread_mutex_lock(&b->queue_lock);
    struct slot *last = b->ended, *first = NULL;
    b->ended = NULL;
    pthread_mutex_unlock(&b->queue_lock);
    for (struct slot *before; last; last = before) {
        before = last->next;
        last->next = first;
        first = last;
    }
    return first;
}

static void take_ended(struct batches *b)
{
    struct slot *s = ended_in_order(b);
    for (struct slot *next; s; s = next) {
        struct job *j = s->job;
        next = s->next;
        if (s->work) {
            api_work(s->call);
            hand_over(b, s);
            continue;
        }
        if (s->status == 429 || s->status == 503) {
            reopen(j, s->line);
            if (s->key_limit)
                places_refused(j->places, s->retry_s, s->begun_us, clock_us());
            else
                hold(b);
        } else {
            struct line_result r = {.custom_id = s->custom_id,
                                    .status = s->status,
                                    .request_id = s->request_id,
                                    .body = s->body.data,
                                    .n_body = s->body.len};
            finish(b, j, s->line, &r);
            places_ended(j->places, clock_us());
            b->n_held = 0;
        }
        free(s->custom_id);
        s->custom_id = NULL;
        s->job = NULL;
    }
}

/* --- batch thread: a batch as a whole --------------------------------------------------------- */

/* The jobs that are not over, and the state they were in just now. */
struct live {
    struct job *job;
    enum job_status status;
};

static uint32_t list_live(struct batches *b, struct live **out)
{
    uint32_t n = 0;
    pthread_mutex_lock(&b->lock);
    files_remove_expired(b, clock_unix());
    *out = mem_alloc((b->jobs.n + 1) * sizeof **out);
    for (uint32_t i = 0; i < b->jobs.n; i++)
        if (!job_is_over(job_at(b, i)))
            (*out)[n++] = (struct live){.job = job_at(b, i), .status = job_at(b, i)->status};
    pthread_mutex_unlock(&b->lock);
    return n;
}

static void enter(struct batches *b, struct live *live, enum job_status status)
{
    pthread_mutex_lock(&b->lock);
    if (status == JOB_IN_PROGRESS && live->job->status == JOB_CANCELLING)
        status = JOB_CANCELLING; /* its client was faster */
    else
        job_enter(b, live->job, status);
    pthread_mutex_unlock(&b->lock);
    live->status = status;
}

/* A result file with lines becomes a file that can be asked for; an empty one goes. */
static enum err publish(struct batches *b, const struct job *j, const char *id, const char *what)
{
    struct err_info e = {0};
    char name[64], shown[64];
    struct stat st;
    enum err err = OK;
    file_name(id, ".jsonl", name);
    snprintf(shown, sizeof shown, "%s_%s.jsonl", j->entry.id, what);
    pthread_mutex_lock(&b->lock);
    if (!files_find(b, id, NULL) && fstatat(b->files_fd, name, &st, AT_SYMLINK_NOFOLLOW) == 0) {
        if (st.st_size > 0)
            err = files_adopt(b, id, shown, "batch_output", j->entry.owner, &e);
        else
            (void)unlinkat(b->files_fd, name, 0);
    }
    pthread_mutex_unlock(&b->lock);
    if (err)
        note_failure(b, j, &e);
    return err;
}

/* Nothing is open and nothing runs: what was written is made sure, then shown. */
static void finalize(struct batches *b, struct live *live)
{
    struct job *j = live->job;
    struct err_info e = {0};
    if (lines_sync(j, &e) != OK) {
        note_failure(b, j, &e);
        return;
    }
    if (live->status != JOB_FINALIZING)
        enter(b, live, JOB_FINALIZING);
    if (publish(b, j, j->output, "output") != OK || publish(b, j, j->errors, "errors") != OK)
        return;
    lines_close(j);
    log_info(
        "batch: %s is over: %u completed, %u failed", j->entry.id, j->n_completed, j->n_failed);
    enter(b, /* from then on *j may be forgotten */
          live,
          j->at[JOB_CANCELLING] ? JOB_CANCELLED
          : j->at[JOB_EXPIRED]  ? JOB_EXPIRED
                                : JOB_COMPLETED);
}

static void fail(struct batches *b, struct live *live, const struct err_info *e)
{
    struct job *j = live->job;
    log_error("batch: %s fails: %s", j->entry.id, e->text);
    (void)publish(b, j, j->output, "output");
    (void)publish(b, j, j->errors, "errors");
    pthread_mutex_lock(&b->lock);
    snprintf(j->problem, sizeof j->problem, "%s", e->text);
    pthread_mutex_unlock(&b->lock);
    enter(b, live, JOB_FAILED);
}

/* Lines that will not be begun any more end with an error that says why. */
static void close_open(struct batches *b, struct job *j, const char *code, const char *message)
{
    struct lines *l = j->lines;
    for (uint32_t i = 0; i < l->n && clock_us() >= b->hold_us; i++) {
        struct err_info e = {0};
        if (l->lines[i].state != LINE_OPEN)
            continue;
        char *text = lines_read(l, i, &e);
        json_t *v = text ? json_loadb(text, l->lines[i].n_bytes, 0, NULL) : NULL;
        const json_t *id = json_object_get(v, "custom_id");
        char *quoted = json_is_string(id) ? json_dumps(id, JSON_ENCODE_ANY) : NULL;
        refuse(b, j, i, quoted, code, message);
        free(quoted);
        json_decref(v);
        free(text);
    }
}

/* Open what is new, end what is done, cancelled or late. True: lines may be begun. */
static bool look_after(struct batches *b, struct live *live)
{
    struct job *j = live->job;
    struct err_info e = {0};
    if (!j->lines && clock_us() < b->hold_us)
        return false;
    enum err err = j->lines ? OK : lines_open(b, j, &e);
    if (err == ERR_INVALID)
        fail(b, live, &e);
    else if (err)
        note_failure(b, j, &e);
    if (err)
        return false;
    if (live->status == JOB_VALIDATING)
        enter(b, live, JOB_IN_PROGRESS);
    struct lines *l = j->lines;
    if (live->status == JOB_FINALIZING && l->n_open > 0) /* what was done was lost meanwhile */
        enter(b, live, j->at[JOB_CANCELLING] ? JOB_CANCELLING : JOB_IN_PROGRESS);
    if (live->status == JOB_CANCELLING && l->n_running == 0)
        close_open(b, j, "batch_cancelled", "the batch was cancelled before this request began");
    bool late = clock_unix() >= j->expires_at;
    if (live->status == JOB_IN_PROGRESS && l->n_open > 0 && late) {
        pthread_mutex_lock(&b->lock);
        j->at[JOB_EXPIRED] = clock_unix();
        pthread_mutex_unlock(&b->lock);
        close_open(b, j, "batch_expired", "the batch expired before this request began");
    }
    if (l->n_open + l->n_running == 0)
        finalize(b, live);
    return live->status == JOB_IN_PROGRESS && !late;
}

static struct slot *free_slot(struct batches *b)
{
    for (uint32_t i = 0; i < b->cfg.n_parallel; i++)
        if (!b->slots[i].job)
            return &b->slots[i];
    return NULL;
}

/* The next line of this job, if there is one. */
static bool begin_next(struct batches *b, struct slot *s, struct job *j)
{
    struct lines *l = j->lines;
    while (l->next < l->n && l->lines[l->next].state != LINE_OPEN)
        l->next++;
    if (l->next == l->n)
        return false;
    begin_line(b, s, j, l->next);
    return true;
}

static bool may_begin(struct batches *b)
{
    pthread_mutex_lock(&b->queue_lock);
    bool may = !b->draining && !b->stopping;
    pthread_mutex_unlock(&b->queue_lock);
    return may && clock_us() >= b->hold_us;
}

/* Jobs take turns, a line each. */
static void begin_lines(struct batches *b, const struct live *ready, uint32_t n)
{
    struct slot *s;
    uint32_t n_empty = 0;
    while (n > 0 && n_empty < n && (s = free_slot(b)) && may_begin(b)) {
        b->turn = (b->turn + 1) % n;
        struct job *j = ready[b->turn].job;
        s->begun_us = clock_us();
        const bool begun = s->begun_us >= places_held_until(j->places) && begin_next(b, s, j);
        if (begun && s->job) /* not refused by ourselves */
            places_begun(j->places, s->begun_us);
        n_empty = begun ? 0 : n_empty + 1;
        take_ended(b);
    }
}

/* us, or as long as it is until then if that is less. What was over at from_us has been looked at.
 */
static uint64_t until_sooner(uint64_t us, uint64_t from_us, uint64_t now_us, uint64_t then_us)
{
    if (then_us < from_us)
        return us;
    const uint64_t left_us = then_us > now_us ? then_us - now_us : 0;
    return left_us < us ? left_us : us;
}

/* Until something ended, or came, or a time is over: one to sync at, or at which lines may be begun
 * again, if it was not over at from_us. */
static void wait_for_more(struct batches *b, bool any_live, uint64_t from_us)
{
    struct timespec until;
    uint64_t now_us = clock_us(), us = any_live ? SYNC_US : (uint64_t)IDLE_S * 1000000;
    us = until_sooner(us, from_us, now_us, b->hold_us);
    for (const struct places *p = b->places; p; p = p->next)
        us = until_sooner(us, from_us, now_us, places_held_until(p));
    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_sec += (time_t)(us / 1000000);
    until.tv_nsec += (long)(us % 1000000) * 1000;
    until.tv_sec += until.tv_nsec / 1000000000;
    until.tv_nsec %= 1000000000;
    pthread_mutex_lock(&b->queue_lock);
    while (!b->ended && !b->wake && !b->stopping)
        if (pthread_cond_timedwait(&b->more, &b->queue_lock, &until) == ETIMEDOUT)
            break;
    b->wake = false;
    pthread_mutex_unlock(&b->queue_lock);
}

static bool is_stopping(struct batches *b)
{
    pthread_mutex_lock(&b->queue_lock);
    bool stopping = b->stopping;
    pthread_mutex_unlock(&b->queue_lock);
    return stopping;
}

static void sync_all(struct batches *b, const struct live *live, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++) {
        struct err_info e = {0};
        if (live[i].job->lines && lines_sync(live[i].job, &e) != OK)
            note_failure(b, live[i].job, &e);
    }
}

/* May its lines be held, beside those of open[n]? */
static bool may_open(const struct job *j, struct job *const *open, uint32_t n)
{
    uint32_t n_own = 0;
    for (uint32_t i = 0; i < n && n < MAX_OPEN; i++)
        n_own += strcmp(open[i]->entry.owner, j->entry.owner) == 0;
    return n < MAX_OPEN && n_own < MAX_OPEN_OWNER;
}

/* Look after all live[n]; those whose lines may be begun come to the front. Returns how many. */
static uint32_t look_after_all(struct batches *b, struct live *live, uint32_t n)
{
    struct job *open[MAX_OPEN];
    uint32_t n_open = 0, n_ready = 0;
    for (uint32_t i = 0; i < n; i++)
        if (live[i].job->lines)
            open[n_open++] = live[i].job;
    for (uint32_t i = 0; i < n; i++) {
        struct live now = live[i];
        if (!now.job->lines) {
            if (!may_open(now.job, open, n_open))
                continue;
            open[n_open++] = now.job;
        }
        if (!now.job->places)
            now.job->places = places_of(&b->places, now.job->entry.owner);
        if (look_after(b, &now) && clock_us() >= places_held_until(now.job->places))
            live[n_ready++] = now;
    }
    return n_ready;
}

static void *run_main(void *arg)
{
    struct batches *b = arg;
    uint64_t synced_us = 0;
    for (bool stopping = false; !stopping;) {
        struct live *live;
        stopping = is_stopping(b);
        take_ended(b);
        uint32_t n = list_live(b, &live);
        const uint64_t from_us = clock_us();
        if (stopping || clock_us() - synced_us >= SYNC_US) {
            sync_all(b, live, n);
            synced_us = clock_us();
        }
        if (!stopping)
            begin_lines(b, live, look_after_all(b, live, n));
        free(live);
        if (!stopping)
            wait_for_more(b, n > 0, from_us);
    }
    return NULL;
}

/* --- start and stop --------------------------------------------------------------------------- */

void run_wake(struct batches *b)
{
    pthread_mutex_lock(&b->queue_lock);
    b->wake = true;
    pthread_cond_signal(&b->more);
    pthread_mutex_unlock(&b->queue_lock);
}

enum err batches_start(struct batches *b, struct err_info *e)
{
    if (pthread_create(&b->thread, NULL, run_main, b) != 0)
        return err_set(e, ERR_NOMEM, "cannot start the batch thread");
    b->started = true;
    return OK;
}

void batches_drain(struct batches *b)
{
    pthread_mutex_lock(&b->queue_lock);
    b->draining = true;
    pthread_mutex_unlock(&b->queue_lock);
}

void batches_stop(struct batches *b)
{
    if (b->started) {
        pthread_mutex_lock(&b->queue_lock);
        b->stopping = true;
        pthread_cond_signal(&b->more);
        pthread_mutex_unlock(&b->queue_lock);
        pthread_join(b->thread, NULL);
        b->started = false;
    }
    for (uint32_t i = 0; i < b->cfg.n_parallel; i++) {
        if (b->slots[i].call)
            api_end(b->slots[i].call);
        b->slots[i].call = NULL;
    }
}
