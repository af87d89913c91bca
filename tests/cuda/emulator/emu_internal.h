/* Between grid.cpp (blocks and threads), host.cpp (memory, errors) and queue.cpp (what is queued).
 * Everything here runs under emu_lock. */
#ifndef EMU_INTERNAL_H
#define EMU_INTERNAL_H

#include "cuda_runtime.h"
#include "emu.h"

#include <mutex>

/* ThreadSanitizer does not see it, nor what happens under it: a device orders no two threads of the
 * host that call it, and its accesses are not theirs. */
struct emu_mutex {
    std::recursive_mutex held;
    void lock();
    void unlock();
};
extern emu_mutex emu_lock;
extern emu_figures emu_counted;

/* Drawn from the seed. */
uint64_t emu_draw(void);
/* i of n in the order that the seed asks for: plain, reversed, or drawn. */
enum emu_order { EMU_PLAIN, EMU_REVERSED, EMU_DRAWN };
emu_order emu_order_now(void);

/* --- limits of the device that is emulated --- */
enum {
    EMU_MAX_THREADS = 1024,
    EMU_MAX_WARPS = 32,
    EMU_SHARED_DEFAULT = 48 << 10,
    EMU_SHARED_MAX = 227 << 10,
    EMU_MULTIPROCESSORS = 4,
};

/* Of a block, asked for. */
size_t emu_shared_most(void);

/* --- grid.cpp --- */

struct emu_work {
    emu_config config;
    void (*run)(const void *arguments);
    const void *arguments;
};
/* Runs all blocks; on an error reports it and returns the error that stays. */
cudaError_t emu_run_grid(const emu_work &work);
/* In a kernel: where an access faulted. */
bool emu_in_kernel(void);
const char *emu_where(char *text, size_t size);
/* After a fault in a kernel: where the handler sends the thread, and on which stack. */
void *emu_fault_landing(void **stack);
/* Of any thread, or the guard below it. */
bool emu_is_stack(const void *p);
size_t emu_beyond_shared(const void *p);
bool emu_is_shared(const void *p);
/* Has the thread that runs not waited yet for the kernel before its own (gpu.h)? */
bool emu_may_be_early(void);
/* Of the thread that runs: its piece of work, block and index, barriers and meetings so far. */
void emu_moment_now(
    uint32_t *work, uint32_t *block, unsigned *thread, uint32_t *barriers, uint32_t *meetings);

/* Meetings of its warp so far. The thread waits until emu_go_on; `what` it waits for. */
uint32_t emu_meetings_now(void);
void emu_wait_here(const char *what);
void emu_go_on(unsigned thread);

/* --- bulk.cpp --- */

/* What a thread knows to lie behind: of each warp what was done before so many meetings, and at the
 * end copies of the engine before that of such a number. */
struct emu_known {
    uint32_t before[EMU_MAX_WARPS + 1];
};
const emu_known &emu_known_now(void);
/* A lane of the warp knows more than the others; lanes that meet share it. */
extern bool emu_bulk_news[EMU_MAX_WARPS];
void emu_bulk_share(unsigned warp, unsigned mask);
/* Of each block; are all copies there at its end? */
void emu_bulk_begin(void);
bool emu_bulk_is_over(void);
/* races.cpp's, or null: bytes that copy number n reads or writes, asked for by a thread with so
 * many barriers of the block behind it and which knew that much. */
extern void (*emu_on_bulk)(
    const void *p, size_t size, bool write, uint32_t n, uint32_t barriers, const emu_known &known);

/* --- host.cpp --- */

/* One line on standard error, counted. */
void emu_report(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* The error that stays. */
extern cudaError_t emu_sticky;
/* What the last call on this thread came to; returns it. */
cudaError_t emu_result(cudaError_t error);

enum emu_place { EMU_PAGEABLE, EMU_PINNED, EMU_DEVICE };
struct emu_range {
    char *base;
    size_t size;
    emu_place place;
};
/* The allocation that holds p, or pageable. */
emu_range emu_find(const void *p);
/* Are [p, p + size) within one allocation, or pageable? Reports if not. */
bool emu_check(const char *what, const void *p, size_t size);
/* Of the device's memory, without an address: what the driver keeps there. False: there is not so
 * much. */
bool emu_take_device_bytes(size_t n);
void emu_give_device_bytes(size_t n);
/* Device memory may be touched between these, and is beyond reach otherwise. */
void emu_memory_open(void);
void emu_memory_close(void);
/* Bytes written beyond allocations since the last time are reported. */
void emu_check_slack(void);

/* --- queue.cpp --- */

/* Is the call one that a capture under way forbids? Then it is invalidated. */
bool emu_capture_forbids(void);
/* Pieces of work are numbered as they begin, from 1; 0: none runs. */
uint32_t emu_work_now(void);
const char *emu_work_name(uint32_t work);
/* Is it known to the work that runs now that this one is over? */
bool emu_work_is_after(uint32_t work);

/* races.cpp's, or null: a copy's or memset's bytes; memory that is given back. */
extern void (*emu_on_range)(const void *p, size_t size, bool write);
extern void (*emu_on_free)(const void *p, size_t size);

/* Will a copy that is queued read or write there? */
bool emu_is_touched(const void *p, size_t size);
/* All work that is queued, in all streams. */
void emu_run_all(void);

#endif
