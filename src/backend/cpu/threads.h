/* The workers of a backend. The calling thread is worker 0 and takes its share.
 *
 * A walk is a list of phases, each with a number of independent items. Any worker takes any item;
 * the items of a phase begin when all of the phase before are done:
 *
 *      cursor = (phase, next item)    one word: taking an item is one compare-and-swap, and a phase
 *                                     ends when its last item is done, not when all workers come by
 *
 * So nobody waits for a worker that the system has put aside, unless it holds an item; on a machine
 * that has other work to do, the others do its part. Between walks the workers spin for a moment,
 * since the next step usually follows at once, then sleep.
 *
 * Thread: create, walk and destroy on one thread. */
#ifndef WEIR_BACKEND_CPU_THREADS_H
#define WEIR_BACKEND_CPU_THREADS_H

#include "base/err.h"

#include <stdbool.h>
#include <stdint.h>

struct pool;

/* Do one item of one phase, on any worker; sees all that earlier phases wrote. */
typedef void (*pool_item_fn)(void *ctx, uint32_t phase, uint32_t item, uint32_t worker);

/* What a worker does while it finds nothing to take, since others have the last items of `phase`:
 * called again and again, `look` counting from 0. It must be short, and may read only what no
 * thread writes, atomics, as hints, and pool_has_items, since the walk may end meanwhile. False:
 * there is nothing to do. */
typedef bool (*pool_idle_fn)(void *ctx, uint32_t phase, uint32_t look, uint32_t worker);

/* n_threads 0: one for each physical core that this process may use; up to as many, the workers
 * that are started here keep to one CPU of each core. A walk has at most max_phases. */
enum err pool_create(uint32_t n_threads, uint32_t max_phases, struct pool **out, struct err_info *e)
    WEIR_MUST_USE;
void pool_destroy(struct pool *p); /* NULL is fine */

/* Once, between walks; ctx must stay as long as the pool. */
void pool_on_idle(struct pool *p, pool_idle_fn fn, void *ctx);

uint32_t pool_size(const struct pool *p);

/* Whether the walk under way has items in this phase; for a pool_idle_fn, and a guess there: it may
 * be another walk's when it is used. On any thread. */
bool pool_has_items(const struct pool *p, uint32_t phase);

/* Every item of every phase; n_items[n_phases] may hold zeros. Returns when all are done. Allocates
 * nothing. */
void pool_walk(
    struct pool *p, const uint32_t *n_items, uint32_t n_phases, pool_item_fn fn, void *ctx);

/* A walk of one phase: fn for each i of 0..n-1, with the worker (backend_ops.parallel). */
void pool_each(struct pool *p,
               uint32_t n,
               void (*fn)(void *ctx, uint32_t i, uint32_t w),
               void *ctx);

/* Since creation, in microseconds added up over all workers: the length of all walks, and the part
 * of it that workers found nothing to take, because a phase's last items were under way elsewhere.
 */
struct pool_times {
    double walked_us, waited_us;
};
struct pool_times pool_times(const struct pool *p);

#endif
