/* Two steps on their way: while the device works on one, the host prepares the other.
 *
 *      empty --prepare--> preparing --submit--> submitted --collect--> complete --release--> empty
 *                          pinned memory         the device works;      results
 *                          is filled             an event at either     can be read
 *                                                end of its work
 *
 * Slots are taken in turn, and so are submitted and collected in one order. Nothing is overwritten:
 * a slot is prepared only when its results have been released. Whoever wants one sooner waits for
 * its event; that is a stall, and so is waiting to collect while both slots are submitted, for then
 * the host has nothing left to prepare.
 *
 * Figures come from events alone, on the device's clock: busy is from an event before a step's work
 * to one behind it, idle from the end of a step to the beginning of the next, where that one says
 * that the host had work for the device all the time. Events are kept for as many steps as such a
 * difference can still be asked for.
 *
 * Thread: the engine's; cuda_queue_stats any. Allocates: only in init. */
#ifndef WEIR_BACKEND_CUDA_QUEUE_H
#define WEIR_BACKEND_CUDA_QUEUE_H

#include "backend/backend.h"

#include <cuda_runtime.h>
#include <pthread.h>

enum { CUDA_SLOTS = 2, CUDA_QUEUE_EVENTS = 4 };

enum cuda_slot_state {
    CUDA_SLOT_EMPTY,
    CUDA_SLOT_PREPARING,
    CUDA_SLOT_SUBMITTED,
    CUDA_SLOT_COMPLETE
};

/* Events around the work of one step. */
struct cuda_span {
    cudaEvent_t begin, end;
    bool follows; /* the host had work all the time since the step before */
};

struct cuda_queue {
    cudaStream_t stream;
    enum cuda_slot_state states[CUDA_SLOTS];
    struct cuda_span spans[CUDA_QUEUE_EVENTS]; /* of step n: n % CUDA_QUEUE_EVENTS */
    uint64_t n_submitted, n_collected; /* the next step to do so with; slot n % CUDA_SLOTS */
    double last_busy_us, last_idle_us; /* of the step collected last; idle: before it */
    pthread_mutex_t lock;              /* of the figures */
    struct gpu_queue_stats stats;
};

/* Errors: ERR_INTERNAL (of the device). */
enum err cuda_queue_init(struct cuda_queue *q,
                         cudaStream_t stream,
                         struct err_info *e) WEIR_MUST_USE;
void cuda_queue_deinit(struct cuda_queue *q); /* zeroed is fine */

/* The next slot is preparing from now on. Errors: ERR_QUEUE_FULL: its step is done, which may have
 * been waited for, but its results are not released; ERR_INTERNAL (of the device). */
enum err cuda_queue_prepare(struct cuda_queue *q, uint32_t *slot, struct err_info *e) WEIR_MUST_USE;
/* The slot's work begins, or has all been put, here on the stream; then it is submitted. Errors:
 * ERR_INTERNAL; it is preparing still. */
enum err cuda_queue_mark(struct cuda_queue *q, uint32_t slot, struct err_info *e) WEIR_MUST_USE;
enum err cuda_queue_submit(struct cuda_queue *q, uint32_t slot, bool follows, struct err_info *e)
    WEIR_MUST_USE;
/* Instead of submitting it: it is empty again. What was put on the stream is the caller's. */
void cuda_queue_abandon(struct cuda_queue *q, uint32_t slot);

/* Wait for the oldest step that is submitted: it is complete. Errors: ERR_INTERNAL (of the device;
 * the slot is complete all the same, without results, or none was submitted: then it is not). */
enum err cuda_queue_collect(struct cuda_queue *q, uint32_t *slot, struct err_info *e) WEIR_MUST_USE;
/* Its results are of no interest any more. Nothing happens to one that is not complete. */
void cuda_queue_release(struct cuda_queue *q, uint32_t slot);

struct gpu_queue_stats cuda_queue_stats(const struct cuda_queue *q);

#endif
