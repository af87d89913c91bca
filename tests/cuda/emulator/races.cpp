/* Races on shared and global memory.
 *
 * Kernels compiled with -fsanitize=thread call a function before each access to memory; here are
 * those functions, in place of the sanitizer's library, because what orders two threads of a grid
 * is known exactly. For each byte the last write and the last two readers are kept, each with its
 * moment: the piece of work, the block, the thread, and how many barriers and meetings of its warp
 * lay behind it. Two accesses of a byte, one of them a write, are ordered if they are
 *     one thread's,
 *     one block's with a barrier between,
 *     one warp's with a meeting between,
 *     one block's, and the later knows by a bulk copy's barrier that the earlier is behind it
 *     (bulk.cpp; such copies are accesses of a thread of their own),
 *     atomic, both,
 *     or of two pieces of work of which the later began when the earlier was known to be over: in
 *     the stream's order, by an event that was waited for, or because the host waited.
 *
 * Else they are reported, once for each piece of work, whatever order they happened to come in. A
 * thread that has not called cuda_wait_before, of a kernel that may begin early (gpu.h), may read
 * of global memory what no kernel wrote, and write nothing. Copies and memsets are accesses too.
 * Memory of shared arrays counts within a block alone.
 *
 * Linked into programs whose kernels are compiled so (cuda/races/NAME); others have none of it. */
#include "emu_internal.h"

#include <dlfcn.h>
#include <stdio.h>
#include <unordered_map>
#include <vector>

namespace
{

struct moment {
    uint32_t work = 0; /* 0: none */
    uint32_t block = 0;
    uint32_t barriers = 0;
    uint32_t meetings = 0;
    uint16_t thread = 0;
    bool atomic = false;
    bool kernel = false; /* else a copy */
};

struct cell {
    moment write, read[2];
};

constexpr uintptr_t PAGE = 1024;
typedef cell page[PAGE];

std::unordered_map<uintptr_t, cell *> &pages = *new std::unordered_map<uintptr_t, cell *>;
/* of pages seen lately, each at its number's place; a kernel goes from one array to the next */
struct recent {
    uintptr_t number;
    cell *cells; /* or null */
} recently[256];
uint32_t reported_work;

cell *cell_of(uintptr_t p)
{
    const uintptr_t number = p / PAGE;
    recent *r = &recently[number % 256];
    if (!r->cells || r->number != number) {
        cell *&cells = pages[number];
        if (!cells) {
            cells = new cell[PAGE];
        }
        *r = {number, cells};
    }
    return &r->cells[p % PAGE];
}

/* Of a read: of what the last write left. */
bool too_early(const moment &last_write, const moment &now, bool write, bool shared)
{
    return now.kernel && !shared && emu_may_be_early() && (write || last_write.kernel);
}

bool ordered(const moment &before, const moment &now, bool shared, const emu_known &known)
{
    if (before.work == 0 || (before.atomic && now.atomic)) {
        return true;
    }
    if (before.work != now.work) {
        return shared || emu_work_is_after(before.work);
    }
    if (before.block != now.block) {
        return shared;
    }
    return before.thread == now.thread || before.barriers != now.barriers ||
           before.meetings < known.before[before.thread / 32] ||
           (before.thread / 32 == now.thread / 32 && before.meetings != now.meetings);
}

void report(
    const void *p, bool shared, const char *what, const moment &a, const moment &b, void *pc)
{
    if (reported_work == b.work) {
        return;
    }
    reported_work = b.work;
    char place[128], code[256] = "";
    emu_range r = emu_find(p);
    if (r.base) {
        snprintf(place,
                 sizeof place,
                 "byte %zu of an allocation of %zu",
                 static_cast<size_t>(static_cast<const char *>(p) - r.base),
                 r.size);
    } else {
        snprintf(place, sizeof place, "%s at %p", shared ? "shared memory" : "memory", p);
    }
    Dl_info info;
    if (pc && dladdr(pc, &info) && info.dli_fname) {
        snprintf(
            code,
            sizeof code,
            ", at %s+0x%zx",
            info.dli_fname,
            static_cast<size_t>(static_cast<char *>(pc) - static_cast<char *>(info.dli_fbase)));
    }
    if (a.work != b.work) {
        emu_report(
            "race: %s after work that nothing says is over (%s, block %u, thread %u; now %s, "
            "block %u, thread %u), on %s%s",
            what,
            emu_work_name(a.work),
            a.block,
            a.thread,
            emu_work_name(b.work),
            b.block,
            b.thread,
            place,
            code);
    } else {
        emu_report("race: %s in %s, block %u thread %u and block %u thread %u, on %s%s",
                   what,
                   emu_work_name(b.work),
                   a.block,
                   a.thread,
                   b.block,
                   b.thread,
                   place,
                   code);
    }
}

void access(const void *p,
            size_t size,
            bool write,
            const moment &now,
            bool shared,
            void *pc,
            const emu_known &known)
{
    uintptr_t at = reinterpret_cast<uintptr_t>(p);
    for (size_t i = 0; i < size; i++) {
        cell *c = cell_of(at + i);
        if (too_early(c->write, now, write, shared)) {
            report(static_cast<const char *>(p) + i,
                   shared,
                   write ? "a write before cuda_wait_before" : "a read before cuda_wait_before",
                   c->write,
                   now,
                   pc);
        }
        if (!ordered(c->write, now, shared, known)) {
            report(static_cast<const char *>(p) + i,
                   shared,
                   write ? "a write after a write" : "a read after a write",
                   c->write,
                   now,
                   pc);
        }
        if (write) {
            for (const moment &r : c->read) {
                if (!ordered(r, now, shared, known)) {
                    report(static_cast<const char *>(p) + i,
                           shared,
                           "a write after a read",
                           r,
                           now,
                           pc);
                }
            }
            c->write = now;
            c->read[0] = c->read[1] = moment();
        } else if (c->read[0].work == now.work && c->read[0].block == now.block &&
                   c->read[0].thread == now.thread) {
            c->read[0] = now;
        } else {
            c->read[1] = c->read[0];
            c->read[0] = now;
        }
    }
}

enum where { NOWHERE, GLOBAL, SHARED };

/* The last allocation seen answers most questions. */
where classify(const void *p)
{
    static emu_range last = {nullptr, 0, EMU_PAGEABLE};
    static uint64_t generation = ~static_cast<uint64_t>(0);
    const char *c = static_cast<const char *>(p);
    if (emu_is_stack(p)) {
        return NOWHERE;
    }
    if (emu_is_shared(p)) {
        return SHARED;
    }
    uint64_t g = emu_counted.device_allocations + emu_counted.host_allocations;
    if (generation != g) {
        generation = g;
        last = {nullptr, 0, EMU_PAGEABLE};
    }
    if (!(last.base && c >= last.base && c < last.base + last.size)) {
        emu_range r = emu_find(p);
        if (!r.base) {
            return SHARED; /* a static array, or the program's own, which kernels only read */
        }
        last = r;
    }
    return GLOBAL;
}

void kernel_access(const void *p, size_t size, bool write, bool atomic, void *pc)
{
    if (!emu_in_kernel()) {
        return;
    }
    where w = classify(p);
    if (w == NOWHERE) {
        return;
    }
    moment now;
    unsigned thread;
    emu_moment_now(&now.work, &now.block, &thread, &now.barriers, &now.meetings);
    now.thread = static_cast<uint16_t>(thread);
    now.atomic = atomic;
    now.kernel = true;
    access(p, size, write, now, w == SHARED, pc, emu_known_now());
}

void range_access(const void *p, size_t size, bool write)
{
    if (emu_in_kernel()) {
        kernel_access(p, size, write, false, nullptr);
        return;
    }
    moment now;
    now.work = emu_work_now();
    if (now.work && emu_find(p).base) {
        access(p, size, write, now, false, nullptr, {});
    }
}

constexpr uint16_t COPY_ENGINE = EMU_MAX_WARPS * 32;

void bulk_access(
    const void *p, size_t size, bool write, uint32_t n, uint32_t barriers, const emu_known &known)
{
    moment now;
    unsigned thread;
    emu_moment_now(&now.work, &now.block, &thread, &now.barriers, &now.meetings);
    now.thread = COPY_ENGINE;
    now.barriers = barriers;
    now.meetings = n;
    access(p, size, write, now, classify(p) == SHARED, nullptr, known);
}

/* Freed memory may come back as another's. */
void forget(const void *p, size_t size)
{
    uintptr_t first = reinterpret_cast<uintptr_t>(p) / PAGE;
    for (uintptr_t i = first; i <= (reinterpret_cast<uintptr_t>(p) + size) / PAGE; i++) {
        auto found = pages.find(i);
        if (found != pages.end()) {
            delete[] found->second;
            pages.erase(found);
        }
    }
    for (recent &r : recently) {
        r.cells = nullptr;
    }
}

struct install {
    install()
    {
        emu_on_range = range_access;
        emu_on_bulk = bulk_access;
        emu_on_free = forget;
    }
} at_start;

} // namespace

void emu_touch_atomic(const void *p, unsigned size)
{
    kernel_access(p, size, true, true, __builtin_return_address(0));
}

#define PC __builtin_return_address(0)
extern "C" {
#define EMU_ACCESS(size)                                                                           \
    void __tsan_read##size(void *p)                                                                \
    {                                                                                              \
        kernel_access(p, size, false, false, PC);                                                  \
    }                                                                                              \
    void __tsan_write##size(void *p)                                                               \
    {                                                                                              \
        kernel_access(p, size, true, false, PC);                                                   \
    }                                                                                              \
    void __tsan_unaligned_read##size(void *p)                                                      \
    {                                                                                              \
        kernel_access(p, size, false, false, PC);                                                  \
    }                                                                                              \
    void __tsan_unaligned_write##size(void *p)                                                     \
    {                                                                                              \
        kernel_access(p, size, true, false, PC);                                                   \
    }                                                                                              \
    void __tsan_volatile_read##size(void *p)                                                       \
    {                                                                                              \
        kernel_access(p, size, false, false, PC);                                                  \
    }                                                                                              \
    void __tsan_volatile_write##size(void *p)                                                      \
    {                                                                                              \
        kernel_access(p, size, true, false, PC);                                                   \
    }
EMU_ACCESS(1)
EMU_ACCESS(2)
EMU_ACCESS(4)
EMU_ACCESS(8)
EMU_ACCESS(16)
#undef EMU_ACCESS
void __tsan_init(void)
{
}
void __tsan_func_entry(void *)
{
}
void __tsan_func_exit(void)
{
}
void __tsan_vptr_update(void **, void *)
{
}
void __tsan_vptr_read(void **)
{
}
void __tsan_read_range(void *p, unsigned long size)
{
    kernel_access(p, size, false, false, PC);
}
void __tsan_write_range(void *p, unsigned long size)
{
    kernel_access(p, size, true, false, PC);
}
}
