/* Barriers in shared memory and copies that end at them (src/backend/cuda/bulk.cuh).
 *
 * A copy's bytes move when a thread waits for its barrier and all have arrived there: as late as
 * they can, so that who reads without waiting, or asks for them before the slot is free, gets
 * something else. A thread that waits is left out by the scheduler until its phase is over; where
 * nobody can go on grid.cpp says so.
 *
 * For races.cpp each thread knows, of each warp and of the copy engine, up to which moment what it
 * did lies behind (counted in meetings, in copies). A lane that arrives leaves what it knows, and
 * what its warp did before its last meeting; who has waited takes it over, and lanes that meet
 * share it. */
#include "emu_internal.h"

#include <algorithm>
#include <vector>

namespace
{

struct barrier {
    const void *at;
    uint32_t arrivals, left, phase;
    int64_t bytes;    /* expected and not yet there */
    emu_known behind; /* of those who arrived, up to now */
    emu_known over;   /* and up to the end of the last phase */
};
struct bulk_bytes {
    size_t barrier;
    void *to;
    const void *from;
    uint32_t bytes;
    uint32_t barriers; /* of the block, behind the thread that asked */
    emu_known known;   /* by it */
};
struct waiter {
    size_t barrier;
    unsigned thread;
};

/* of the block that runs */
std::vector<barrier> &barriers = *new std::vector<barrier>;
std::vector<bulk_bytes> &copies = *new std::vector<bulk_bytes>;
std::vector<waiter> &waiters = *new std::vector<waiter>;
emu_known known[EMU_MAX_THREADS];
uint32_t copies_so_far; /* of the block, that are there */

void join(emu_known *to, const emu_known &from)
{
    for (unsigned i = 0; i <= EMU_MAX_WARPS; i++) {
        to->before[i] = std::max(to->before[i], from.before[i]);
    }
}

size_t find(const char *what, const void *at)
{
    for (size_t i = 0; i < barriers.size(); i++) {
        if (barriers[i].at == at) {
            return i;
        }
    }
    emu_error("%s: no barrier was made there", what);
}

bool is_waited_for(size_t b)
{
    for (const waiter &w : waiters) {
        if (w.barrier == b) {
            return true;
        }
    }
    return false;
}

void land(size_t i)
{
    barrier *b = &barriers[i];
    for (bulk_bytes &c : copies) {
        if (c.barrier != i) {
            continue;
        }
        copies_so_far++;
        if (emu_on_bulk) {
            emu_on_bulk(c.from, c.bytes, false, copies_so_far, c.barriers, c.known);
            emu_on_bulk(c.to, c.bytes, true, copies_so_far, c.barriers, c.known);
        }
        memcpy(c.to, c.from, c.bytes);
        b->bytes -= c.bytes;
        b->behind.before[EMU_MAX_WARPS] = copies_so_far + 1;
    }
    copies.erase(std::remove_if(copies.begin(),
                                copies.end(),
                                [i](const bulk_bytes &c) { return c.barrier == i; }),
                 copies.end());
}

/* Ends the phase if it can be: bytes come only where somebody waits. */
void settle(size_t i)
{
    barrier *b = &barriers[i];
    if (b->left > 0) {
        return;
    }
    if (b->bytes > 0 && is_waited_for(i)) {
        land(i);
    }
    if (b->bytes < 0) {
        emu_error("bulk copies of more bytes than their barrier expects");
    }
    if (b->bytes > 0) {
        return;
    }
    b->phase ^= 1;
    b->left = b->arrivals;
    b->over = b->behind;
    for (size_t w = 0; w < waiters.size();) {
        if (waiters[w].barrier == i) {
            emu_go_on(waiters[w].thread);
            waiters.erase(waiters.begin() + static_cast<long>(w));
        } else {
            w++;
        }
    }
}

void arrive(const char *what, const void *at, uint32_t bytes)
{
    const size_t i = find(what, at);
    barrier *b = &barriers[i];
    if (b->left == 0) {
        emu_error("%s: more arrivals than the phase has; its bytes were not waited for", what);
    }
    join(&b->behind, known[emu_self->index]);
    uint32_t *mine = &b->behind.before[emu_self->index / 32];
    *mine = std::max(*mine, emu_meetings_now());
    b->bytes += bytes;
    b->left--;
    settle(i);
}

} // namespace

bool emu_bulk_news[EMU_MAX_WARPS];

void emu_bulk_begin(void)
{
    if (barriers.empty()) {
        return;
    }
    barriers.clear();
    copies.clear();
    waiters.clear();
    copies_so_far = 0;
    std::fill(known, known + EMU_MAX_THREADS, emu_known());
    std::fill(emu_bulk_news, emu_bulk_news + EMU_MAX_WARPS, false);
}

bool emu_bulk_is_over(void)
{
    return copies.empty();
}

void emu_bulk_share(unsigned warp, unsigned mask)
{
    emu_known all = {};
    for (unsigned left = mask; left; left &= left - 1) {
        join(&all, known[warp * 32 + static_cast<unsigned>(__builtin_ctz(left))]);
    }
    for (unsigned left = mask; left; left &= left - 1) {
        known[warp * 32 + static_cast<unsigned>(__builtin_ctz(left))] = all;
    }
    emu_bulk_news[warp] = mask != 0xffffffffu;
}

const emu_known &emu_known_now(void)
{
    return known[emu_self->index];
}

void emu_bulk_init(void *at, unsigned arrivals)
{
    if (reinterpret_cast<uintptr_t>(at) % 8 || !emu_is_shared(at) || arrivals == 0) {
        emu_error("bulk_init: not 8 bytes of dynamic shared memory, or no arrivals");
    }
    for (const barrier &b : barriers) {
        if (b.at == at) {
            emu_error("bulk_init: the barrier was made before");
        }
    }
    barriers.push_back({at, arrivals, arrivals, 0, 0, {}, {}});
}

void emu_bulk_expect(void *at, unsigned bytes)
{
    arrive("bulk_expect", at, bytes);
}

void emu_bulk_arrive(void *at)
{
    arrive("bulk_arrive", at, 0);
}

void emu_bulk_copy(void *shared, const void *global, unsigned bytes, void *at)
{
    if (reinterpret_cast<uintptr_t>(shared) % 16 || reinterpret_cast<uintptr_t>(global) % 16 ||
        bytes % 16 || bytes == 0) {
        emu_error("bulk_copy: %u bytes that are not aligned", bytes);
    }
    if (!emu_is_shared(shared) || !emu_is_shared(static_cast<char *>(shared) + bytes - 1)) {
        emu_error("bulk_copy: %u bytes to outside of dynamic shared memory", bytes);
    }
    const size_t i = find("bulk_copy", at);
    uint32_t work, block, syncs, meetings;
    unsigned thread;
    emu_moment_now(&work, &block, &thread, &syncs, &meetings);
    emu_known mine = known[thread];
    mine.before[thread / 32] = meetings;
    copies.push_back({i, shared, global, bytes, syncs, mine});
    if (is_waited_for(i)) {
        settle(i);
    }
}

void emu_bulk_wait(void *at, unsigned parity)
{
    const size_t i = find("bulk_wait", at);
    const uint32_t phase = barriers[i].phase;
    if (parity > 1) {
        emu_error("bulk_wait: parity %u", parity);
    }
    if (phase == parity) {
        waiters.push_back({i, emu_self->index});
        settle(i);
        if (barriers[i].phase == parity) {
            emu_wait_here("bulk_wait");
        }
        if (barriers[i].phase == parity) {
            emu_error("bulk_wait: the next phase was over before this thread saw that of parity %u",
                      parity);
        }
    }
    join(&known[emu_self->index], barriers[i].over);
    emu_bulk_news[emu_self->index / 32] = true;
}
