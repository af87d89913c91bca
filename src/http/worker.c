/* Threads that run app.begin and app.work: parsing, templates, tokenizing and large answers take
 * too long for the loop. What takes no time (app.at_once) waits for none of them. */
#include "base/mem.h"
#include "base/thread.h"
#include "http/internal.h"

#include <stdlib.h>
#include <unistd.h>

#define MAX_SLOW 65u

/* Of the thread: it counts in n_large. */
static _Thread_local bool is_large;

/* One is left to small bodies, which would else wait for large ones, some seconds each; large ones
 * go before small ones otherwise. One that was slow meanwhile (http_server_worker_slow) may make it
 * one more, until it ends. */
static uint32_t max_large(const struct http_server *s)
{
    return s->cfg.n_workers > 1 ? s->cfg.n_workers - 1 : 1;
}

/* Under the lock, as is what follows a job's end. NULL: none may begin now. */
static struct exchange *take_job(struct http_server *s)
{
    struct worker_pool *p = &s->pool;
    if (p->n_active >= s->cfg.n_workers)
        return NULL;
    is_large = p->large.head && p->n_large < max_large(s);
    struct job_queue *q = is_large ? &p->large : &p->small;
    struct exchange *ex = q->head;
    if (!ex)
        return NULL;
    q->head = ex->next_job;
    p->n_active++;
    p->n_large += is_large;
    return ex;
}

static bool has_jobs(const struct worker_pool *p)
{
    return p->small.head || p->large.head;
}

/* Others begin what comes meanwhile. */
static void work(struct http_server *s, void *call)
{
    http_server_worker_slow(s, true);
    s->app->work(s->app->ctx, call);
    http_server_worker_slow(s, false);
}

/* Under the lock. */
static void add_result(struct http_server *s, struct exchange *ex, void *call)
{
    struct worker_pool *p = &s->pool;
    ex->call = call;
    bool first = !p->results;
    ex->next_job = p->results;
    p->results = ex;
    if (first) {
        uint64_t one = 1;
        ssize_t n = write(s->wake_fd, &one, sizeof one);
        (void)n; /* fails only when the counter is full, that is, readable */
    }
}

static void *worker_main(void *arg)
{
    struct http_server *s = arg;
    struct worker_pool *p = &s->pool;
    pthread_mutex_lock(&p->mutex);
    for (;;) {
        struct exchange *ex = take_job(s);
        if (!ex) {
            if (p->stopping && !has_jobs(p))
                break;
            pthread_cond_wait(&p->more, &p->mutex);
            continue;
        }
        pthread_mutex_unlock(&p->mutex);
        void *call = ex->call;
        if (!call)
            call = s->app->begin(s->app->ctx, &ex->req, ex);
        else if (!http_client_left(ex))
            work(s, call);
        pthread_mutex_lock(&p->mutex);
        p->n_active--;
        p->n_large -= is_large;
        if (has_jobs(p))
            pthread_cond_signal(&p->more);
        else if (p->stopping)
            pthread_cond_broadcast(&p->more);
        add_result(s, ex, call);
    }
    pthread_mutex_unlock(&p->mutex);
    return NULL;
}

/* Without memory for a thread those that there are do the work. */
static void add_worker(struct http_server *s)
{
    struct worker_pool *p = &s->pool;
    if (thread_start(&p->threads[p->n_threads], worker_main, s) == 0)
        p->n_threads++;
}

void worker_pool_start(struct http_server *s)
{
    struct worker_pool *p = &s->pool;
    p->threads = mem_zalloc(s->cfg.n_workers + MAX_SLOW, sizeof *p->threads);
    for (uint32_t i = 0; i < s->cfg.n_workers; i++)
        add_worker(s);
}

/* The threads at work and those that are slow: if these are all there are, another one is made. It
 * stays. */
void http_server_worker_slow(struct http_server *s, bool slow)
{
    struct worker_pool *p = &s->pool;
    pthread_mutex_lock(&p->mutex);
    p->n_slow = slow ? p->n_slow + 1 : p->n_slow - 1;
    p->n_active = slow ? p->n_active - 1 : p->n_active + 1;
    p->n_large = slow ? p->n_large - is_large : p->n_large + is_large;
    if (slow && !p->stopping && p->n_threads < s->cfg.n_workers + p->n_slow &&
        p->n_threads < s->cfg.n_workers + MAX_SLOW)
        add_worker(s);
    if (slow)
        pthread_cond_signal(&p->more);
    pthread_mutex_unlock(&p->mutex);
}

bool http_client_left(const void *name)
{
    const struct exchange *ex = name;
    return atomic_load_explicit(&ex->cancelled, memory_order_relaxed);
}

void worker_pool_stop(struct http_server *s)
{
    struct worker_pool *p = &s->pool;
    pthread_mutex_lock(&p->mutex);
    p->stopping = true;
    pthread_cond_broadcast(&p->more);
    pthread_mutex_unlock(&p->mutex);
    for (uint32_t i = 0; i < p->n_threads; i++)
        pthread_join(p->threads[i], NULL);
    free(p->threads);
    p->threads = NULL;
    p->n_threads = 0;
}

void worker_pool_submit(struct http_server *s, struct exchange *ex)
{
    struct worker_pool *p = &s->pool;
    const struct http_app *app = s->app;
    if (!ex->call && app->at_once && app->at_once(app->ctx, ex->req.method, ex->req.path)) {
        void *call = app->begin(app->ctx, &ex->req, ex);
        pthread_mutex_lock(&p->mutex);
        add_result(s, ex, call);
        pthread_mutex_unlock(&p->mutex);
        return;
    }
    struct job_queue *q = ex->n_held > 0 && !ex->call ? &p->large : &p->small;
    ex->next_job = NULL;
    pthread_mutex_lock(&p->mutex);
    *(q->head ? &q->tail->next_job : &q->head) = ex;
    q->tail = ex;
    pthread_cond_signal(&p->more);
    pthread_mutex_unlock(&p->mutex);
}

struct exchange *worker_pool_collect(struct http_server *s)
{
    pthread_mutex_lock(&s->pool.mutex);
    struct exchange *newest = s->pool.results, *oldest = NULL;
    s->pool.results = NULL;
    pthread_mutex_unlock(&s->pool.mutex);
    while (newest) {
        struct exchange *next = newest->next_job;
        newest->next_job = oldest;
        oldest = newest;
        newest = next;
    }
    return oldest;
}
