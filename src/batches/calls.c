/* The calls that are under way: a slot for each.
 *
 * A slot goes round: free -> begun (batch thread, then handed to the loop thread) -> ended (handed
 * back with its answer) -> free; a large answer is handed back to be written, and then over again.
 * The two queues are all that both threads touch. */
#include "api/json.h"
#include "base/clock.h"
#include "base/log.h"
#include "batches/internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>

#define HOLD_US 250000 /* doubled each time in a row, up to 2^MAX_HELD times */
#define MAX_HELD 7
#define MAX_CUSTOM_ID_BYTES 512
#define TEXT_OF(number) #number
#define TEXT_OF_VALUE(number) TEXT_OF(number)

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
    s->device = answer.status == 500 && api_working(b->api, NULL) != OK;
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

/* --- batch thread ----------------------------------------------------------------------------- */

void job_hold(struct job *j, const struct err_info *e)
{
    const uint64_t now = clock_us();
    if (now >= j->hold_us) /* else the log has it of another of its lines */
        log_error("batch: %s waits: %s", j->entry.id, e->text);
    j->hold_us = now + (HOLD_US << MAX_HELD);
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

/* The server was full, or its disk, or it cannot work, or is about to end: lines are tried again
 * after a while. */
static void hold(struct batches *b)
{
    if (clock_us() < b->hold_us)
        return; /* another line's answer said so already */
    b->hold_us = clock_us() + (HOLD_US << b->n_held);
    if (b->n_held < MAX_HELD)
        b->n_held++;
}

/* False: its result could not be written, and it is to be begun again. */
static bool finish(struct batches *b, struct job *j, uint32_t i, const struct line_result *r)
{
    struct err_info e = {0};
    if (lines_finish(j, i, r, &e) != OK) {
        reopen(j, i);
        job_hold(j, &e);
        if (e.code == ERR_FULL) /* the others' results have no room either */
            hold(b);
        return false;
    }
    pthread_mutex_lock(&b->lock);
    if (r->body && r->status == 200)
        j->n_completed++;
    else
        j->n_failed++;
    pthread_mutex_unlock(&b->lock);
    return true;
}

void calls_hold_starved(struct job *j)
{
    struct err_info e;
    err_set(&e, ERR_NOMEM, "there is no memory for a line");
    job_hold(j, &e);
}

void calls_refuse(struct batches *b,
                  struct job *j,
                  uint32_t i,
                  const json_t *v,
                  const char *code,
                  const char *message)
{
    const json_t *id = json_object_get(v, "custom_id");
    char *quoted = json_is_string(id) ? json_dumps(id, JSON_ENCODE_ANY) : NULL;
    if (json_is_string(id) && !quoted) {
        calls_hold_starved(j);
        return;
    }
    struct line_result r = {
        .custom_id = quoted ? quoted : "null", .code = code, .message = message};
    (void)finish(b, j, i, &r);
    free(quoted);
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
    if (!json_is_string(id) || json_string_length(id) == 0 ||
        json_string_length(id) > MAX_CUSTOM_ID_BYTES) {
        *code = "invalid_custom_id";
        return "'custom_id' must be a string of 1 to " TEXT_OF_VALUE(MAX_CUSTOM_ID_BYTES) " bytes";
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
    char *custom_id = json_dumps(json_object_get(v, "custom_id"), JSON_ENCODE_ANY);
    struct lines *l = j->lines;
    if (!body || !custom_id) {
        free(body);
        free(custom_id);
        calls_hold_starved(j);
        return;
    }
    l->lines[i].state = LINE_RUNNING;
    l->n_open--;
    l->n_running++;
    s->job = j;
    s->line = i;
    s->custom_id = custom_id;
    struct api_input in = {.method = "POST",
                           .path = j->endpoint,
                           .query = "",
                           .body = body,
                           .body_len = strlen(body),
                           .internal = true,
                           .priority = BATCH_PRIORITY,
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
        job_hold(j, &e);
        return;
    }
    json_error_t where;
    json_t *v = api_json_load(text, line->n_bytes, 0, &where);
    if (!v && api_json_starved()) {
        calls_hold_starved(j);
    } else if (!v) {
        snprintf(message,
                 sizeof message,
                 "the line is not JSON: column %d: %s",
                 where.column,
                 where.text);
        err_one_line(message);
        calls_refuse(b, j, i, NULL, "invalid_json_line", message);
    } else if ((problem = problem_of(j, line, v, &code))) {
        calls_refuse(b, j, i, v, code, problem);
    } else {
        begin_call(b, s, j, i, v);
    }
    json_decref(v);
    free(text);
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

void calls_take_ended(struct batches *b)
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
        if (s->status == 429 || s->status == 503 || s->device) {
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
            if (finish(b, j, s->line, &r))
                b->n_held = 0;
            places_ended(j->places, clock_us());
        }
        buf_deinit(&s->body); /* the largest is megabytes, and slots stay */
        free(s->custom_id);
        s->custom_id = NULL;
        s->job = NULL;
    }
}

struct slot *calls_free_slot(struct batches *b)
{
    for (uint32_t i = 0; i < b->cfg.n_parallel; i++)
        if (!b->slots[i].job)
            return &b->slots[i];
    return NULL;
}

/* The next line of this job, if there is one. */
bool calls_begin_next(struct batches *b, struct slot *s, struct job *j)
{
    struct lines *l = j->lines;
    while (l->next < l->n && l->lines[l->next].state != LINE_OPEN)
        l->next++;
    if (l->next == l->n)
        return false;
    begin_line(b, s, j, l->next);
    return true;
}
