/* Whole KV blocks as bytes: what all layers have in the block, which lies together (struct
 * cuda_kv_pool), and behind it what layers with windows have in its pane.
 *
 *      copy    on the stream of the steps: behind those that are there, before those to come
 *      read    on a stream beside it: of a block whose steps have all ended
 *      write   likewise, behind the last copy: of a block that no step under way was given
 *
 * Into pinned memory and out of it the engine waits for neither. A step waits, on the device, for
 * the moves of blocks in its tables and for those before them, so that a block is not overwritten
 * before it was read, nor read before it was written; so does a copy, of its two blocks. Moves of
 * blocks that nobody looks at delay nobody:
 *
 *      moves    a b | c | d e      | f ..      rounds: one ends where somebody waits for it
 *      steps        1   2     3                1 has a: behind round 1;  2 has nothing that moved;
 *                                              3 has c: behind round 2, while d and e go on
 *
 * Reads and writes are in the order of their stream, so an event behind a round is behind all
 * before it, and a slot of pinned memory may be filled by another read as soon as it was written
 * from. Who looks at the bytes waits first (block_settle): the disk's thread. Any other memory is
 * copied through one pinned block, which the engine waits for, and that is counted.
 *
 * Where one fails nothing says what the KV memory holds from then on: all of it is lost, so that no
 * step begins again and no tier is given bytes that are not a block's. A copy that fails behind the
 * call leaves the device in an error that stays, which all later calls say; what it left in pinned
 * memory could only come back through one of them. */
#include "backend/cuda/cuda.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"

#include <stdlib.h>
#include <string.h>

/* In blocks (0), or in panes (1). */
static uint8_t *block_at(const struct cuda_kv_pool *pools, int i, struct backend_place at)
{
    return pools[i].base + (i ? at.pane : at.block) * pools[i].stride;
}

static cudaError_t copy(void *to, const void *from, size_t n, enum cudaMemcpyKind k, cudaStream_t s)
{
    return n ? cudaMemcpyAsync(to, from, n, k, s) : cudaSuccess;
}

/* These have no way to fail but with the device. */
static void check(struct cuda_backend *b, cudaError_t rc, const char *what)
{
    if (rc == cudaSuccess || b->lost)
        return;
    b->lost = true;
    log_error("CUDA: %s: %s; nothing is computed any more", what, cudaGetErrorString(rc));
    (void)cudaStreamSynchronize(b->copies); /* what was begun touches nobody's memory */
    (void)cudaGetLastError();
}

enum err cuda_blocks_whole(const struct cuda_backend *b, struct err_info *e)
{
    return b->lost ? err_set(e, ERR_INTERNAL, "CUDA: moving a block of the KV memory failed before")
                   : OK;
}

/* How long a block takes, of one at a time: the next when the last is known. */
static void measure_begin(struct cuda_backend *b, bool *fresh)
{
    float ms = 0;
    if (b->measuring) {
        if (cudaEventQuery(b->measured) != cudaSuccess) {
            (void)cudaGetLastError(); /* it is on its way */
            *fresh = false;
            return;
        }
        if (cudaEventElapsedTime(&ms, b->moving, b->measured) == cudaSuccess) {
            pthread_mutex_lock(&b->lock);
            double *us = &b->moves.block_us;
            *us += ((double)ms * 1e3 - *us) / (*us > 0 ? 8 : 1);
            pthread_mutex_unlock(&b->lock);
        }
    }
    *fresh = cudaEventRecord(b->moving, b->copies) == cudaSuccess;
}

/* Behind a copy of a block: what needs it later waits for it (cuda_blocks_join). */
static cudaError_t measure_end(struct cuda_backend *b, struct backend_place at, bool fresh)
{
    const uint32_t ids[] = {at.block, at.pane};
    cudaError_t rc = cudaEventRecord(b->moved, b->copies);
    if (rc == cudaSuccess && fresh)
        rc = cudaEventRecord(b->measured, b->copies);
    b->measuring = b->measuring || fresh;
    b->rounds.moved = true;
    for (int i = 0; i < 2; i++) {
        if (ids[i] < b->kv_pools[i].n)
            b->rounds.of[i][ids[i]] = b->rounds.now;
    }
    return rc;
}

/* --- rounds --- */

/* What is known to have ended needs no event: nobody will wait for it. */
bool cuda_blocks_moving(struct cuda_backend *b)
{
    struct cuda_rounds *r = &b->rounds;
    if (r->joined + 1 == r->now && !r->moved)
        return false;
    const cudaError_t rc = cudaEventQuery(b->moved);
    if (rc != cudaSuccess) {
        (void)cudaGetLastError(); /* some drivers keep it, and the next launch would be blamed */
        return true;
    }
    r->now += r->moved;
    r->moved = false;
    r->joined = r->now - 1;
    return false;
}

uint64_t cuda_blocks_moved(
    const struct cuda_backend *b, int pool, const uint32_t *ids, uint32_t n, uint64_t least)
{
    const uint64_t *of = b->rounds.of[pool];
    for (uint32_t i = 0; i < n; i++)
        least = of[ids[i]] > least ? of[ids[i]] : least;
    return least;
}

cudaError_t cuda_blocks_join(struct cuda_backend *b, uint64_t round)
{
    struct cuda_rounds *r = &b->rounds;
    cudaError_t rc = cudaSuccess;
    if (round <= r->joined)
        return rc;
    if (round == r->now) {
        rc = cudaEventRecord(r->ended[r->now % CUDA_ROUNDS], b->copies);
        r->now++;
        r->moved = false;
    }
    if (rc == cudaSuccess)
        rc = cudaStreamWaitEvent(b->stream, r->ended[round % CUDA_ROUNDS], 0);
    r->joined = rc == cudaSuccess ? round : r->joined;
    return rc;
}

enum err cuda_blocks_open(struct cuda_backend *b, struct err_info *e)
{
    struct cuda_rounds *r = &b->rounds;
    const uint32_t n[] = {b->cfg.n_blocks, b->cfg.n_panes};
    r->now = 1;
    for (int i = 0; i < 2; i++)
        r->of[i] = mem_zalloc(n[i] ? n[i] : 1, sizeof *r->of[i]);
    cudaError_t rc = cudaEventCreateWithFlags(&b->copied, cudaEventDisableTiming);
    if (rc == cudaSuccess)
        rc = cudaEventCreateWithFlags(&b->moved, cudaEventDisableTiming | cudaEventBlockingSync);
    if (rc == cudaSuccess)
        rc = cudaEventCreate(&b->moving);
    if (rc == cudaSuccess)
        rc = cudaEventCreate(&b->measured);
    for (int i = 0; i < CUDA_ROUNDS && rc == cudaSuccess; i++)
        rc = cudaEventCreateWithFlags(&r->ended[i], cudaEventDisableTiming);
    return rc == cudaSuccess ? OK : cuda_failed(rc, "events of blocks", e);
}

void cuda_blocks_close(struct cuda_backend *b)
{
    const cudaEvent_t events[] = {b->copied, b->moved, b->moving, b->measured};
    for (size_t i = 0; i < sizeof events / sizeof *events; i++) {
        if (events[i])
            (void)cudaEventDestroy(events[i]);
    }
    for (int i = 0; i < CUDA_ROUNDS; i++) {
        if (b->rounds.ended[i])
            (void)cudaEventDestroy(b->rounds.ended[i]);
    }
    free(b->rounds.of[0]);
    free(b->rounds.of[1]);
}

/* The steps' stream comes behind what was moved of a block and its pane. */
static cudaError_t join_place(struct cuda_backend *b, struct backend_place at)
{
    uint64_t round = 0;
    if (at.block < b->kv_pools[0].n)
        round = cuda_blocks_moved(b, 0, &at.block, 1, round);
    if (at.pane < b->kv_pools[1].n)
        round = cuda_blocks_moved(b, 1, &at.pane, 1, round);
    return cuda_blocks_join(b, round);
}

double cuda_block_us(const struct backend *base)
{
    return ((const struct cuda_backend *)base)->moves.block_us; /* the engine's thread writes it */
}

/* The event is recorded again by every copy, and those are in order: whoever waits for it waits for
 * all that was moved before. */
bool cuda_block_settle(struct backend *base)
{
    struct cuda_backend *b = (struct cuda_backend *)base;
    cuda_device_enter(b);
    const bool ended = cudaEventSynchronize(b->moved) == cudaSuccess;
    if (!ended)
        (void)cudaGetLastError();
    return ended && !b->lost;
}

static struct cuda_region *region_of(struct cuda_backend *b, const void *p)
{
    for (int i = 0; i < BACKEND_PINNED; i++) {
        if (b->pinned[i].p == p)
            return &b->pinned[i];
    }
    return NULL;
}

static void set_region(struct cuda_backend *b, struct cuda_region *r, void *p, size_t n_bytes)
{
    pthread_mutex_lock(&b->lock);
    *r = (struct cuda_region){p, n_bytes};
    pthread_mutex_unlock(&b->lock);
}

void *cuda_pinned_alloc(struct backend *base, size_t n_bytes)
{
    struct cuda_backend *b = (struct cuda_backend *)base;
    void *p = NULL;
    struct cuda_region *r = region_of(b, NULL);
    if (!r)
        return NULL;
    cuda_device_enter(b);
    if (cudaMallocHost(&p, n_bytes) != cudaSuccess) {
        (void)cudaGetLastError();
        return NULL;
    }
    set_region(b, r, p, n_bytes);
    return p;
}

void cuda_pinned_free(struct backend *base, void *p)
{
    struct cuda_backend *b = (struct cuda_backend *)base;
    cuda_device_enter(b);
    (void)cudaStreamSynchronize(b->copies); /* they read and write it */
    (void)cudaFreeHost(p);
    set_region(b, region_of(b, p), NULL, 0);
}

/* A block's bytes may go straight there. */
static bool is_pinned(const struct cuda_backend *b, const void *bytes)
{
    const uintptr_t at = (uintptr_t)bytes;
    for (int i = 0; i < BACKEND_PINNED; i++) {
        const uintptr_t base = (uintptr_t)b->pinned[i].p;
        if (base && at >= base && at - base + b->block_bytes_n <= b->pinned[i].n_bytes)
            return true;
    }
    return false;
}

/* Not pinned: the engine's own time. */
static cudaError_t wait_counted(struct cuda_backend *b)
{
    const uint64_t since_ns = clock_ns();
    const cudaError_t rc = cudaStreamSynchronize(b->copies);
    pthread_mutex_lock(&b->lock);
    b->moves.waits++;
    b->moves.wait_us += (double)(clock_ns() - since_ns) * 1e-3;
    pthread_mutex_unlock(&b->lock);
    return rc;
}

static void count(struct cuda_backend *b, uint64_t *what)
{
    pthread_mutex_lock(&b->lock);
    ++*what;
    b->moves.bytes += b->block_bytes_n;
    pthread_mutex_unlock(&b->lock);
}

void cuda_block_copy(struct backend *base, struct backend_place from, struct backend_place to)
{
    struct cuda_backend *b = (struct cuda_backend *)base;
    cuda_device_enter(b);
    cudaError_t rc = join_place(b, from);
    if (rc == cudaSuccess)
        rc = join_place(b, to);
    for (int i = 0; i < 2 && rc == cudaSuccess; i++)
        rc = copy(block_at(b->kv_pools, i, to),
                  block_at(b->kv_pools, i, from),
                  b->kv_pools[i].stride,
                  cudaMemcpyDeviceToDevice,
                  b->stream);
    if (rc == cudaSuccess)
        rc = cudaEventRecord(b->copied, b->stream);
    check(b, rc, "copying a block");
}

bool cuda_block_read(struct backend *base, struct backend_place from, void *bytes)
{
    struct cuda_backend *b = (struct cuda_backend *)base;
    const bool direct = is_pinned(b, bytes);
    uint8_t *to = direct ? bytes : b->block_bytes;
    cudaError_t rc = cudaSuccess;
    bool fresh;
    cuda_device_enter(b);
    if (b->lost)
        return false;
    measure_begin(b, &fresh);
    for (int i = 0; i < 2 && rc == cudaSuccess; i++) {
        const size_t n = b->kv_pools[i].stride;
        rc = copy(to, block_at(b->kv_pools, i, from), n, cudaMemcpyDeviceToHost, b->copies);
        to += n;
    }
    if (rc == cudaSuccess)
        rc = measure_end(b, from, fresh);
    if (rc == cudaSuccess && !direct)
        rc = wait_counted(b);
    check(b, rc, "reading a block");
    if (rc != cudaSuccess)
        return false;
    if (!direct)
        memcpy(bytes, b->block_bytes, b->block_bytes_n);
    count(b, &b->moves.read);
    return true;
}

void cuda_block_write(struct backend *base, struct backend_place to, const void *bytes)
{
    struct cuda_backend *b = (struct cuda_backend *)base;
    const bool direct = is_pinned(b, bytes);
    const uint8_t *from = direct ? bytes : b->block_bytes;
    bool fresh;
    cuda_device_enter(b);
    cudaError_t rc = cudaStreamWaitEvent(b->copies, b->copied, 0);
    measure_begin(b, &fresh);
    if (!direct)
        memcpy(b->block_bytes, bytes, b->block_bytes_n);
    for (int i = 0; i < 2 && rc == cudaSuccess; i++) {
        const size_t n = b->kv_pools[i].stride;
        rc = copy(block_at(b->kv_pools, i, to), from, n, cudaMemcpyHostToDevice, b->copies);
        from += n;
    }
    if (rc == cudaSuccess)
        rc = measure_end(b, to, fresh);
    if (rc == cudaSuccess && !direct)
        rc = wait_counted(b); /* the bytes are the next one's */
    check(b, rc, "writing a block");
    if (rc == cudaSuccess)
        count(b, &b->moves.written);
}
