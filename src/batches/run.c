/* The batch thread: what is done with each batch as a whole, and whose line begins next. */
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
#include <sys/stat.h>
#include <unistd.h>

#define SYNC_US 1000000
#define IDLE_S 60
/* Batches whose lines are held at a time, of all and of one owner: each takes three files, and
 * memory for its lines. The others wait as they are. */
#define MAX_OPEN 256
#define MAX_OPEN_OWNER 32

/* --- a batch as a whole ----------------------------------------------------------------------- */

/* The jobs that are not over, and the state they were in just now. */
struct live {
    struct job *job;
    enum job_status status;
};

static uint32_t list_live(struct batches *b, struct live **out)
{
    uint32_t n = 0;
    pthread_mutex_lock(&b->lock);
    jobs_free_forgotten(b);
    files_remove_expired(b, clock_unix());
    *out = mem_alloc((b->jobs.n + 1) * sizeof **out);
    for (uint32_t i = 0; i < b->jobs.n; i++)
        if (!job_is_over(job_at(b, i)))
            (*out)[n++] = (struct live){.job = job_at(b, i), .status = job_at(b, i)->status};
    pthread_mutex_unlock(&b->lock);
    return n;
}

/* False: the state could not be written, and is to be entered later. */
static bool enter(struct batches *b, struct live *live, enum job_status status)
{
    struct err_info e = {0};
    enum err err = OK;
    pthread_mutex_lock(&b->lock);
    if (status == JOB_IN_PROGRESS && live->job->status == JOB_CANCELLING)
        status = JOB_CANCELLING; /* its client was faster */
    else
        err = job_enter(b, live->job, status, &e);
    pthread_mutex_unlock(&b->lock);
    if (err)
        job_hold(live->job, &e);
    else
        live->status = status;
    return !err;
}

/* A result file with lines becomes a file that can be asked for; an empty one goes. */
static enum err publish(struct batches *b, struct job *j, const char *id, const char *what)
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
        job_hold(j, &e);
    return err;
}

/* Nothing is open and nothing runs: what was written is made sure, then shown. */
static void finalize(struct batches *b, struct live *live)
{
    struct job *j = live->job;
    struct err_info e = {0};
    if (lines_sync(j, &e) != OK) {
        job_hold(j, &e);
        return;
    }
    if (lines_lost(j)) {
        log_error("batch: %s: a file with its results was removed, and is made again", j->entry.id);
        lines_close(j); /* opened anew, its requests are begun again */
        return;
    }
    if (live->status != JOB_FINALIZING && !enter(b, live, JOB_FINALIZING))
        return;
    if (publish(b, j, j->output, "output") != OK || publish(b, j, j->errors, "errors") != OK ||
        !enter(b,
               live,
               j->at[JOB_CANCELLING] ? JOB_CANCELLED
               : j->at[JOB_EXPIRED]  ? JOB_EXPIRED
                                     : JOB_COMPLETED))
        return;
    lines_close(j);
    log_info(
        "batch: %s is over: %u completed, %u failed", j->entry.id, j->n_completed, j->n_failed);
}

static void fail(struct batches *b, struct live *live, const struct err_info *e)
{
    struct job *j = live->job;
    struct err_info why = {0};
    if (lines_recount(b, j, &why) != OK) {
        job_hold(j, &why);
        return;
    }
    if (publish(b, j, j->output, "output") != OK || publish(b, j, j->errors, "errors") != OK)
        return;
    pthread_mutex_lock(&b->lock);
    snprintf(j->problem, sizeof j->problem, "%s", e->text);
    pthread_mutex_unlock(&b->lock);
    if (enter(b, live, JOB_FAILED))
        log_error("batch: %s fails: %s", j->entry.id, e->text);
}

/* Lines that will not be begun any more end with an error that says why. */
static void close_open(struct batches *b, struct job *j, const char *code, const char *message)
{
    struct lines *l = j->lines;
    for (uint32_t i = 0; i < l->n && clock_us() >= j->hold_us; i++) {
        struct err_info e = {0};
        json_error_t where;
        if (l->lines[i].state != LINE_OPEN)
            continue;
        char *text = lines_read(l, i, &e);
        json_t *v = text ? api_json_load(text, l->lines[i].n_bytes, 0, &where) : NULL;
        if (text && !v && api_json_starved())
            calls_hold_starved(j);
        else
            calls_refuse(b, j, i, v, code, message);
        json_decref(v);
        free(text);
    }
}

/* An input that is not as it was uploaded was left out of the files at the start: fewer requests,
 * or others, are not what the batch was made of. */
static enum err open_lines(struct batches *b, struct job *j, struct err_info *e)
{
    pthread_mutex_lock(&b->lock);
    const bool is_whole = files_find(b, j->input, NULL);
    pthread_mutex_unlock(&b->lock);
    return is_whole
               ? lines_open(b, j, e)
               : err_set(e,
                         ERR_INVALID,
                         "the input file cannot be read: it is gone, or not what was uploaded");
}

/* Open what is new, end what is done, cancelled or late. True: lines may be begun. */
static bool look_after(struct batches *b, struct live *live)
{
    struct job *j = live->job;
    struct err_info e = {0};
    enum err err = j->lines ? OK : open_lines(b, j, &e);
    if (err == ERR_INVALID)
        fail(b, live, &e);
    else if (err)
        job_hold(j, &e);
    if (!j->lines)
        return false;
    if (live->status == JOB_VALIDATING && !enter(b, live, JOB_IN_PROGRESS))
        return false;
    struct lines *l = j->lines;
    if (live->status == JOB_FINALIZING && l->n_open > 0 && /* what was done was lost meanwhile */
        !enter(b, live, j->at[JOB_CANCELLING] ? JOB_CANCELLING : JOB_IN_PROGRESS))
        return false;
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
    return j->lines && live->status == JOB_IN_PROGRESS && !late;
}

/* --- the thread ------------------------------------------------------------------------------- */

static bool may_begin(struct batches *b)
{
    pthread_mutex_lock(&b->queue_lock);
    bool may = !b->draining && !b->stopping;
    pthread_mutex_unlock(&b->queue_lock);
    return may && clock_us() >= b->hold_us;
}

/* Keys take turns, a line each, and so do the jobs of a key. */
static bool is_before(const struct job *a, const struct job *b)
{
    return a->places->turn != b->places->turn ? a->places->turn < b->places->turn
                                              : a->turn < b->turn;
}

/* The one of ready[n] whose turn it is, if a line of it may begin now; n: there is none. */
static uint32_t next_in_turn(const struct live *ready, uint32_t n, uint64_t now_us)
{
    uint32_t next = n;
    for (uint32_t i = 0; i < n; i++) {
        const struct job *j = ready[i].job;
        const bool may = now_us >= j->hold_us && now_us >= places_held_until(j->places);
        if (may && (next == n || is_before(j, ready[next].job)))
            next = i;
    }
    return next;
}

static void begin_lines(struct batches *b, struct live *ready, uint32_t n)
{
    struct slot *s;
    while ((s = calls_free_slot(b)) && may_begin(b)) {
        s->begun_us = clock_us();
        const uint32_t i = next_in_turn(ready, n, s->begun_us);
        if (i == n)
            return;
        struct live now = ready[i];
        if (calls_begin_next(b, s, now.job)) {
            now.job->turn = now.job->places->turn = ++b->turn;
            if (s->job) /* not refused by ourselves */
                places_begun(now.job->places, s->begun_us);
        } else { /* it has no open line */
            ready[i] = ready[--n];
            ready[n] = now;
        }
        calls_take_ended(b);
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
static void wait_for_more(struct batches *b, const struct live *live, uint32_t n, uint64_t from_us)
{
    uint64_t now_us = clock_us(), us = n > 0 ? SYNC_US : (uint64_t)IDLE_S * 1000000;
    us = until_sooner(us, from_us, now_us, b->hold_us);
    for (uint32_t i = 0; i < n; i++)
        us = until_sooner(us, from_us, now_us, live[i].job->hold_us);
    for (const struct places *p = b->places; p; p = p->next)
        us = until_sooner(us, from_us, now_us, places_held_until(p));
    const struct timespec until = clock_spec(now_us + us);
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

static void sync_all(const struct live *live, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++) {
        struct err_info e = {0};
        if (live[i].job->lines && lines_sync(live[i].job, &e) != OK)
            job_hold(live[i].job, &e);
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
        if (clock_us() < now.job->hold_us)
            continue;
        if (!now.job->lines) {
            if (!may_open(now.job, open, n_open))
                continue;
            open[n_open++] = now.job;
        }
        if (!now.job->places)
            now.job->places = places_of(&b->places, now.job->entry.owner);
        if (look_after(b, &now) && clock_us() >= places_held_until(now.job->places)) {
            live[i] = live[n_ready];
            live[n_ready++] = now;
        }
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
        calls_take_ended(b);
        uint32_t n = list_live(b, &live);
        const uint64_t from_us = clock_us();
        if (stopping || clock_us() - synced_us >= SYNC_US) {
            sync_all(live, n);
            synced_us = clock_us();
        }
        if (!stopping)
            begin_lines(b, live, look_after_all(b, live, n));
        if (!stopping)
            wait_for_more(b, live, n, from_us);
        free(live);
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
