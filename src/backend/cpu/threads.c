#include "backend/cpu/threads.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/machine.h"
#include "base/mem.h"
#include "base/thread.h"

#include <assert.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>

enum {
    MAX_THREADS = 1024,
    SPINS_BEFORE_YIELD = 4000, /* some 50 us: the machine may have more to do than we know */
    YIELDS_BEFORE_SLEEP = 200, /* an idle worker only */
    ITEM_BITS = 24,
    PHASES_BEFORE_0 = 100, /* from the start on, so that every program comes by the last number */
};

/* The cursor's value for an item of a phase. Phases are numbered on from walk to walk, and from 0
 * again behind the last number, so that a value comes back after weeks at the soonest: a worker
 * that was put aside takes nothing twice. Between walks the item is NO_ITEM: nothing can be taken
 * while the next walk is being written down. */
#define ITEM_MASK ((UINT64_C(1) << ITEM_BITS) - 1)
#define NO_ITEM ITEM_MASK
#define LAST_PHASE (UINT64_MAX >> ITEM_BITS)

/* Time in which a worker found nothing to take though a walk was under way. Its own writes only.
 */
struct waited {
    _Alignas(64) atomic_uint_least64_t ns;
};

/* Words that different threads write lie in different cache lines. */
struct pool { /* NOLINT(clang-analyzer-optin.performance.Padding): see above */
    _Alignas(64) atomic_uint_least64_t cursor; /* phase << ITEM_BITS | next item */
    _Alignas(64) atomic_uint n_done;           /* items of the phase that are done */
    _Alignas(64) atomic_uint_least64_t first;  /* number of the walk's first phase, */
    atomic_uint_least64_t end;                 /* and of the one after its last */
    pool_item_fn fn;                           /* valid while an item is held */
    void *ctx;
    _Atomic(pool_idle_fn) idle;   /* or NULL */
    void *idle_ctx;               /* valid once there is idle */
    atomic_uint *n_items;         /* [max_phases] of this walk */
    pthread_t *threads;           /* [n - 1] */
    atomic_uint_least64_t walked; /* ns, of worker 0 */
    atomic_uint_least64_t ended;  /* clock_ns of the last walk's end */
    struct waited *waited;        /* [n] */
    pthread_cond_t wake;
    pthread_mutex_t lock; /* guards falling asleep and waking */
    atomic_uint n_sleeping;
    uint32_t n, max_phases;
    atomic_bool stop;
};

struct worker_arg {
    struct pool *pool;
    uint32_t index;
};

static inline void pause_cpu(void)
{
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

/* A wait of one worker, from the first time it found nothing on. */
struct wait {
    uint64_t since; /* 0: not waiting */
    uint32_t spins;
};

static inline void wait_begin(struct wait *w)
{
    if (!w->since)
        w->since = clock_ns();
}

/* What comes behind the end of a walk is no wait: the system may have put the worker aside. */
static inline void wait_end(struct pool *p, uint32_t worker, struct wait *w)
{
    if (!w->since)
        return;
    atomic_uint_least64_t *ns = &p->waited[worker].ns;
    const uint64_t before = atomic_load_explicit(ns, memory_order_relaxed), now = clock_ns();
    const uint64_t ended = atomic_load_explicit(&p->ended, memory_order_relaxed);
    const uint64_t end = ended > w->since && ended < now ? ended : now;
    atomic_store_explicit(ns, before + end - w->since, memory_order_relaxed);
    w->since = 0;
}

/* Begin the first phase from `phase` on that has items; or end the walk. */
static void open_phase(struct pool *p, uint64_t phase)
{
    const uint64_t first = atomic_load_explicit(&p->first, memory_order_relaxed);
    const uint64_t end = atomic_load_explicit(&p->end, memory_order_relaxed);
    while (phase < end &&
           atomic_load_explicit(&p->n_items[phase - first], memory_order_relaxed) == 0)
        phase++;
    atomic_store_explicit(&p->n_done, 0, memory_order_relaxed);
    atomic_store(&p->cursor, phase << ITEM_BITS | (phase < end ? 0 : NO_ITEM));
}

/* Take an item if one is free, end the wait and do it. False if there was none at the cursor `at`.
 * While a walk is under way first and n_items stand still; a worker that comes late may read those
 * of another walk than `at` is from, but then the cursor has moved on, and the exchange fails:
 * n_items are acquired, so that whoever sees a new one sees that too. */
static bool do_item(struct pool *p, uint64_t at, uint32_t worker, struct wait *w)
{
    const uint64_t phase = at >> ITEM_BITS;
    const uint64_t index = phase - atomic_load_explicit(&p->first, memory_order_relaxed);
    if ((at & ITEM_MASK) == NO_ITEM || index >= p->max_phases)
        return false;
    const uint32_t n = atomic_load_explicit(&p->n_items[index], memory_order_acquire);
    if ((at & ITEM_MASK) >= n)
        return false;
    if (!atomic_compare_exchange_strong_explicit(
            &p->cursor, &at, at + 1, memory_order_acquire, memory_order_relaxed))
        return true; /* somebody was faster: look again */
    wait_end(p, worker, w);
    p->fn(p->ctx, (uint32_t)index, (uint32_t)(at & ITEM_MASK), worker);
    if (atomic_fetch_add_explicit(&p->n_done, 1, memory_order_acq_rel) + 1 == n)
        open_phase(p, phase + 1);
    return true;
}

/* A moment's wait, longer the more often it was in vain. */
static inline void back_off(uint32_t spins)
{
    if (spins < SPINS_BEFORE_YIELD)
        pause_cpu();
    else
        sched_yield();
}

/* Nothing to take in the phase at the cursor `at`; or, for a worker that comes late, its walk has
 * ended: then nothing is counted, and it looks at the cursor again. */
static void wait_in_walk(struct pool *p, uint64_t at, uint32_t worker, struct wait *w)
{
    const uint64_t phase =
        (at >> ITEM_BITS) - atomic_load_explicit(&p->first, memory_order_relaxed);
    const pool_idle_fn idle = atomic_load_explicit(&p->idle, memory_order_acquire);
    if (phase >= p->max_phases)
        return;
    wait_begin(w);
    const uint32_t look = w->spins++;
    if (!idle || !idle(p->idle_ctx, (uint32_t)phase, look, worker))
        back_off(look);
}

/* Sleep while the cursor stays at `at`, the end of a walk. */
static void sleep_at(struct pool *p, uint64_t at)
{
    pthread_mutex_lock(&p->lock);
    atomic_fetch_add(&p->n_sleeping, 1);
    while (atomic_load(&p->cursor) == at && !atomic_load(&p->stop))
        pthread_cond_wait(&p->wake, &p->lock);
    atomic_fetch_sub(&p->n_sleeping, 1);
    pthread_mutex_unlock(&p->lock);
}

static void *worker_main(void *arg)
{
    struct worker_arg a = *(struct worker_arg *)arg;
    struct pool *p = a.pool;
    struct wait w = {0};
    uint32_t spins = 0; /* between walks */
    free(arg);
    mem_watch(true);
    while (!atomic_load_explicit(&p->stop, memory_order_relaxed)) {
        const uint64_t at = atomic_load_explicit(&p->cursor, memory_order_acquire);
        if (do_item(p, at, a.index, &w)) {
            w.spins = spins = 0;
            continue;
        }
        if ((at & ITEM_MASK) != NO_ITEM) {
            wait_in_walk(p, at, a.index, &w);
            spins = 0;
            continue;
        }
        wait_end(p, a.index, &w);
        w.spins = 0;
        back_off(spins++);
        if (spins > SPINS_BEFORE_YIELD + YIELDS_BEFORE_SLEEP) {
            sleep_at(p, at);
            spins = 0;
        }
    }
    return NULL;
}

/* The store of the cursor and the load of n_sleeping are sequentially consistent: either we see a
 * sleeper, or it sees the cursor before it sleeps. */
static void wake_workers(struct pool *p)
{
    if (atomic_load(&p->n_sleeping) > 0) {
        pthread_mutex_lock(&p->lock);
        pthread_cond_broadcast(&p->wake);
        pthread_mutex_unlock(&p->lock);
    }
}

bool pool_has_items(const struct pool *p, uint32_t phase)
{
    const uint64_t first = atomic_load_explicit(&p->first, memory_order_relaxed);
    const uint64_t end = atomic_load_explicit(&p->end, memory_order_relaxed);
    return phase < p->max_phases && first + phase < end &&
           atomic_load_explicit(&p->n_items[phase], memory_order_relaxed) > 0;
}

void pool_walk(
    struct pool *p, const uint32_t *n_items, uint32_t n_phases, pool_item_fn fn, void *ctx)
{
    const uint64_t next = atomic_load_explicit(&p->end, memory_order_relaxed) + 1;
    const uint64_t first = next + n_phases <= LAST_PHASE ? next : 0;
    const uint64_t begin = clock_ns();
    assert(n_phases <= p->max_phases);
    p->fn = fn;
    p->ctx = ctx;
    for (uint32_t i = 0; i < n_phases; i++) {
        assert(n_items[i] < NO_ITEM);
        atomic_store_explicit(&p->n_items[i], n_items[i], memory_order_release);
    }
    atomic_store_explicit(&p->first, first, memory_order_relaxed);
    atomic_store(&p->end, first + n_phases);
    open_phase(p, first);
    if (p->n > 1)
        wake_workers(p);
    for (struct wait w = {0};;) {
        const uint64_t at = atomic_load_explicit(&p->cursor, memory_order_acquire);
        if (at >> ITEM_BITS == first + n_phases) {
            wait_end(p, 0, &w);
            break;
        }
        if (do_item(p, at, 0, &w)) {
            w.spins = 0;
        } else {
            wait_in_walk(p, at, 0, &w);
        }
    }
    const uint64_t walked = atomic_load_explicit(&p->walked, memory_order_relaxed);
    const uint64_t now = clock_ns();
    atomic_store_explicit(&p->ended, now, memory_order_relaxed);
    atomic_store_explicit(&p->walked, walked + now - begin, memory_order_relaxed);
}

struct each {
    void (*fn)(void *ctx, uint32_t i, uint32_t w);
    void *ctx;
};

static void each_item(void *ctx, uint32_t phase, uint32_t item, uint32_t worker)
{
    const struct each *each = ctx;
    (void)phase;
    each->fn(each->ctx, item, worker);
}

void pool_each(struct pool *p, uint32_t n, void (*fn)(void *ctx, uint32_t i, uint32_t w), void *ctx)
{
    struct each each = {fn, ctx};
    pool_walk(p, &n, 1, each_item, &each);
}

struct pool_times pool_times(const struct pool *p)
{
    double waited = 0;
    for (uint32_t i = 0; i < p->n; i++)
        waited += (double)atomic_load_explicit(&p->waited[i].ns, memory_order_relaxed);
    const double walked = (double)atomic_load_explicit(&p->walked, memory_order_relaxed);
    return (struct pool_times){walked * p->n * 1e-3, waited * 1e-3};
}

/* Physical cores that we may use, but no more than there is time for: further threads would only be
 * stopped in turn. */
static uint32_t count_cores(void)
{
    uint32_t *cpus, n = machine_cpus(&cpus);
    n = machine_cores("", cpus, n);
    free(cpus);
    if (n == 0)
        log_warn("the system does not say which CPUs there are: one thread");
    const uint32_t quota = machine_cpu_quota();
    n = n < quota ? n : quota;
    n = n < MAX_THREADS ? n : MAX_THREADS;
    return n ? n : 1;
}

/* No two workers on one core, whose units they would share: those that we started run on the first
 * CPU of any core, unless they are more than cores. (Where worker 0 runs is the program's to say:
 * it finds the core that they leave.) */
static void keep_to_cores(const struct pool *p)
{
    uint32_t *cpus, n_cpus = machine_cpus(&cpus), n = machine_cores("", cpus, n_cpus);
    for (uint32_t i = 1; n < n_cpus && p->n <= n && i < p->n; i++)
        thread_keep_to(p->threads[i - 1], cpus, n);
    free(cpus);
}

static int start_worker(struct pool *p, uint32_t index)
{
    struct worker_arg *arg = mem_alloc(sizeof *arg);
    *arg = (struct worker_arg){p, index};
    int rc = thread_start(&p->threads[index - 1], worker_main, arg);
    if (rc != 0)
        free(arg);
    return rc;
}

static void stop_workers(struct pool *p, uint32_t n_started)
{
    atomic_store(&p->stop, true);
    pthread_mutex_lock(&p->lock);
    pthread_cond_broadcast(&p->wake);
    pthread_mutex_unlock(&p->lock);
    for (uint32_t i = 0; i < n_started; i++)
        pthread_join(p->threads[i], NULL);
}

enum err pool_create(uint32_t n_threads, uint32_t max_phases, struct pool **out, struct err_info *e)
{
    *out = NULL;
    if (n_threads > MAX_THREADS)
        return err_set(e, ERR_INVALID, "%u threads; at most %d", n_threads, MAX_THREADS);
    struct pool *p = mem_aligned(sizeof *p);
    if (!p)
        return err_set(e, ERR_NOMEM, "no memory for the workers");
    *p = (struct pool){.n = n_threads ? n_threads : count_cores(), .max_phases = max_phases};
    atomic_init(&p->end, LAST_PHASE - PHASES_BEFORE_0);
    atomic_init(&p->cursor, p->end << ITEM_BITS | NO_ITEM);
    p->n_items = mem_zalloc(max_phases, sizeof *p->n_items);
    pthread_mutex_init(&p->lock, NULL);
    pthread_cond_init(&p->wake, NULL);
    p->threads = mem_zalloc(p->n, sizeof *p->threads);
    p->waited = mem_aligned(p->n * sizeof *p->waited);
    if (!p->waited) {
        p->n = 1;
        pool_destroy(p);
        return err_set(e, ERR_NOMEM, "no memory for the workers");
    }
    for (uint32_t i = 0; i < p->n; i++)
        atomic_init(&p->waited[i].ns, 0);
    for (uint32_t i = 1; i < p->n; i++) {
        if (start_worker(p, i) != 0) {
            uint32_t n = p->n;
            stop_workers(p, i - 1);
            p->n = 1;
            pool_destroy(p);
            return err_set(e, ERR_NOMEM, "the system refused thread %u of %u", i + 1, n);
        }
    }
    keep_to_cores(p);
    *out = p;
    return OK;
}

void pool_destroy(struct pool *p)
{
    if (!p)
        return;
    if (p->n > 1)
        stop_workers(p, p->n - 1);
    pthread_cond_destroy(&p->wake);
    pthread_mutex_destroy(&p->lock);
    free(p->threads);
    free(p->n_items);
    free(p->waited);
    free(p);
}

void pool_on_idle(struct pool *p, pool_idle_fn fn, void *ctx)
{
    p->idle_ctx = ctx;
    atomic_store_explicit(&p->idle, fn, memory_order_release);
}

uint32_t pool_size(const struct pool *p)
{
    return p->n;
}
