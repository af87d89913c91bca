/* Which move of a block somebody has to wait for, and no other. Blocks leave on one stream and come
 * back on another, each in its own order, beside the steps:
 *
 *      leaving     a1      . . a2         a2 waits for c2, which came into the same block,
 *      coming      . c1 c2 c3 c4 ..        c2 for a1, into whose slot of memory its bytes went
 *      steps       1  2      3             1 has what a1 left: waits for a1 alone; 2 for none;
 *                                          3 has what a2 left: for a2, not for c3 and c4
 *
 * Every move has a number and an event behind it. A block, a pane and a slot of pinned memory know
 * the last move of either direction; who touches one of them comes behind those. There are
 * CUDA_MOVES events: what is waited for longer ago than that is waited for by the oldest event
 * there is, which is behind it.
 *
 * A step of few rows takes a new block now and then, which somebody else's has just left. So it
 * must never be behind what is only coming: a prefix of megabytes, for another sequence. */
#include "backend/cuda/cuda.h"
#include "base/mem.h"

#include <stdlib.h>

/* `who` comes behind move m of the way. */
static cudaError_t join(struct cuda_backend *b, enum cuda_lane way, enum cuda_lane who, uint64_t m)
{
    struct cuda_way *w = &b->ways[way];
    const uint64_t n = w->n, oldest = n > CUDA_MOVES ? n - CUDA_MOVES + 1 : 1;
    const uint64_t by = m > oldest ? m : oldest;
    if (m <= w->joined[who])
        return cudaSuccess;
    cudaStream_t waits = who == CUDA_STEPS ? b->stream : b->ways[who].stream;
    const cudaError_t rc = cudaStreamWaitEvent(waits, w->ended[by % CUDA_MOVES], 0);
    w->joined[who] = rc == cudaSuccess ? by : w->joined[who];
    return rc;
}

/* What is known to have ended needs no event: nobody will wait for it. */
bool cuda_moves_pending(struct cuda_backend *b)
{
    bool pending = false;
    for (int k = 0; k < CUDA_WAYS; k++) {
        struct cuda_way *w = &b->ways[k];
        const uint64_t n = w->n;
        if (w->joined[CUDA_STEPS] == n)
            continue;
        if (cudaEventQuery(w->ended[n % CUDA_MOVES]) == cudaSuccess) {
            for (int who = 0; who < CUDA_LANES; who++)
                w->joined[who] = n;
            continue;
        }
        (void)cudaGetLastError(); /* some drivers keep it, and the next launch would be blamed */
        pending = true;
    }
    return pending;
}

void cuda_moves_of(const struct cuda_backend *b,
                   int pool,
                   const uint32_t *ids,
                   uint32_t n,
                   struct cuda_moved *last)
{
    for (int k = 0; k < CUDA_WAYS; k++) {
        const uint64_t *of = b->ways[k].of[pool];
        for (uint32_t i = 0; i < n; i++)
            last->by[k] = of[ids[i]] > last->by[k] ? of[ids[i]] : last->by[k];
    }
}

cudaError_t cuda_moves_join(struct cuda_backend *b, const struct cuda_moved *last)
{
    cudaError_t rc = cudaSuccess;
    for (int k = 0; k < CUDA_WAYS && rc == cudaSuccess; k++)
        rc = join(b, (enum cuda_lane)k, CUDA_STEPS, last->by[k]);
    return rc;
}

void cuda_moves_of_place(const struct cuda_backend *b,
                         struct backend_place at,
                         struct cuda_moved *last)
{
    if (at.block < b->kv_pools[0].n)
        cuda_moves_of(b, 0, &at.block, 1, last);
    if (at.pane < b->kv_pools[1].n)
        cuda_moves_of(b, 1, &at.pane, 1, last);
}

/* The last move into a slot of pinned memory, or out of it; NULL: the memory is not. Slots do not
 * overlap, so no two begin within a block's bytes of each other. */
static uint64_t *of_slot(const struct cuda_backend *b, enum cuda_lane way, const void *bytes)
{
    const uintptr_t at = (uintptr_t)bytes;
    for (int i = 0; i < BACKEND_PINNED; i++) {
        const uintptr_t base = (uintptr_t)b->pinned[i].p;
        if (base && at >= base && at - base + b->block_bytes_n <= b->pinned[i].n_bytes)
            return &b->ways[way].of_slot[i][(at - base) / b->block_bytes_n];
    }
    return NULL;
}

bool cuda_moves_direct(const struct cuda_backend *b, const void *bytes)
{
    return of_slot(b, CUDA_OUT, bytes) != NULL;
}

cudaError_t cuda_moves_begin(struct cuda_backend *b,
                             enum cuda_lane way,
                             struct backend_place at,
                             const void *bytes)
{
    const enum cuda_lane other = way == CUDA_OUT ? CUDA_IN : CUDA_OUT;
    const uint64_t *slot = of_slot(b, other, bytes);
    struct cuda_moved last = {{0}};
    cuda_moves_of_place(b, at, &last);
    const uint64_t m = slot && *slot > last.by[other] ? *slot : last.by[other];
    return join(b, other, way, m);
}

cudaError_t cuda_moves_end(struct cuda_backend *b,
                           enum cuda_lane way,
                           struct backend_place at,
                           const void *bytes)
{
    struct cuda_way *w = &b->ways[way];
    const uint32_t ids[] = {at.block, at.pane};
    uint64_t *slot = of_slot(b, way, bytes);
    const uint64_t m = w->n + 1;
    const cudaError_t rc = cudaEventRecord(w->ended[m % CUDA_MOVES], w->stream);
    w->n = m;
    for (int i = 0; i < 2; i++) {
        if (ids[i] < b->kv_pools[i].n)
            w->of[i][ids[i]] = m;
    }
    if (slot)
        *slot = m;
    return rc;
}

/* Who begins to wait while more are queued may wait for those too. */
cudaError_t cuda_moves_settle(struct cuda_backend *b)
{
    cudaError_t rc = cudaSuccess;
    for (int k = 0; k < CUDA_WAYS && rc == cudaSuccess; k++)
        rc = cudaEventSynchronize(b->ways[k].ended[b->ways[k].n % CUDA_MOVES]);
    return rc;
}

void cuda_moves_drain(struct cuda_backend *b)
{
    for (int k = 0; k < CUDA_WAYS; k++) {
        if (b->ways[k].stream)
            (void)cudaStreamSynchronize(b->ways[k].stream);
    }
}

void cuda_moves_new_slots(struct cuda_backend *b, int region, size_t n_bytes)
{
    const size_t n = n_bytes / (b->block_bytes_n ? b->block_bytes_n : 1) + 1;
    for (int k = 0; k < CUDA_WAYS; k++) {
        free(b->ways[k].of_slot[region]);
        b->ways[k].of_slot[region] = mem_zalloc(n, sizeof(uint64_t));
    }
}

enum err cuda_moves_open(struct cuda_backend *b, struct err_info *e)
{
    const uint32_t n[] = {b->cfg.n_blocks, b->cfg.n_panes};
    cudaError_t rc = cudaSuccess;
    for (int k = 0; k < CUDA_WAYS; k++) {
        struct cuda_way *w = &b->ways[k];
        if (rc == cudaSuccess)
            rc = cudaStreamCreateWithFlags(&w->stream, cudaStreamNonBlocking);
        for (int i = 0; i < 2; i++)
            w->of[i] = mem_zalloc(n[i] ? n[i] : 1, sizeof *w->of[i]);
        for (int i = 0; i < CUDA_MOVES && rc == cudaSuccess; i++)
            rc = cudaEventCreateWithFlags(&w->ended[i],
                                          cudaEventDisableTiming | cudaEventBlockingSync);
    }
    return rc == cudaSuccess ? OK : cuda_failed(rc, "events of blocks", e);
}

void cuda_moves_close(struct cuda_backend *b)
{
    for (int k = 0; k < CUDA_WAYS; k++) {
        struct cuda_way *w = &b->ways[k];
        for (int i = 0; i < CUDA_MOVES; i++)
            cuda_event_drop(w->ended[i]);
        if (w->stream)
            (void)cudaStreamDestroy(w->stream);
        for (int i = 0; i < BACKEND_PINNED; i++)
            free(w->of_slot[i]);
        free(w->of[0]);
        free(w->of[1]);
    }
}
