/* Blocks and threads.
 *
 *     emu_run_grid: blocks one after another, in the seed's order
 *       run_block:  threads are fibers; warps take turns, lanes of a warp take turns (each passes
 *                   on to the next as it waits: to_next_lane)
 *
 * A fiber runs until its thread ends or waits: at a meeting of lanes (emu_meet) or at the block's
 * barrier (emu_barrier). Where every thread waits and nobody can go on, the program is wrong, and
 * the report says who waits where. A fiber whose thread has ended takes the next one, so a kernel
 * that never waits needs one stack.
 *
 * Invariant: emu_self is the thread whose fiber runs; null in the scheduler. */
#include "emu_internal.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <time.h>
#include <vector>

#if defined(__x86_64__)
#define EMU_OWN_SWITCH 1
#else
#include <ucontext.h>
#endif

#if defined(__SANITIZE_ADDRESS__)
#define EMU_ASAN 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define EMU_ASAN 1
#endif
#endif

#ifdef EMU_ASAN
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#endif

emu_thread *emu_self;
emu_grid emu_here;

namespace
{

#if defined(EMU_ASAN)
constexpr size_t STACK_BYTES = 512 << 10;
#else
constexpr size_t STACK_BYTES = 128 << 10;
#endif
constexpr size_t PAGE = 4096;
constexpr size_t GUARD = 1 << 20; /* below a stack: a large frame must not leap over it */

struct fiber {
    char *stack; /* lowest usable byte */
    char *
        top; /* stacks begin at different lines of a page, or they would share a few of the cache */
#ifdef EMU_OWN_SWITCH
    void *sp;
#else
    ucontext_t context;
#endif
    void *fake_stack; /* AddressSanitizer's */
};

struct copy {
    void *to;
    const void *from;
    unsigned bytes, from_global;
};

struct pending_copies {
    std::vector<copy> copies;
    std::vector<size_t> ends; /* of committed groups, in copies */
};

struct warp {
    unsigned alive;   /* lanes that have not ended */
    unsigned ready;   /* lanes that can run */
    unsigned waiting; /* lanes in a meeting */
    unsigned meetings;
    /* of each lane, what it waits for, and with whom */
    const char *waits[32];
    unsigned mask[32];
    emu_meet_fn fn[32];
    void *slot[32];
};

struct block {
    const emu_work *work;
    unsigned n_threads, n_warps, n_ended, n_at_barrier;
    uint32_t barriers;
    emu_order order;
    emu_thread threads[EMU_MAX_THREADS];
    warp warps[EMU_MAX_WARPS];
    pending_copies copies[EMU_MAX_THREADS];
};

block now;
std::vector<fiber *> &idle = *new std::vector<fiber *>; /* for ever: statics end before it */
fiber *running;
char *stacks; /* of all fibers: a guard and a stack each */
#ifdef EMU_OWN_SWITCH
void *scheduler_sp;
#else
ucontext_t scheduler_context;
#endif
/* of the thread that runs the blocks */
const void *scheduler_stack;
size_t scheduler_stack_bytes;
void *scheduler_fake_stack;
bool from_scheduler; /* the switch that goes on now; of use to AddressSanitizer */
bool abandoned;
cudaError_t failure;
char *shared_memory;
size_t shared_bytes;

} // namespace

/* --- the switch --- */

#ifdef EMU_OWN_SWITCH
/* Leaves where to go on, and the stack pointer in *save; goes on where `to` was left. Inlined, with
 * a jump for a return: so calls and returns stay in pairs and the processor predicts them, because
 * the next fiber mostly returns to the same place of the same kernel. */
#define EMU_INLINE inline __attribute__((always_inline))
static EMU_INLINE void emu_switch_stack(void **save, void *to)
{
    asm volatile("leaq -128(%%rsp), %%rsp\n\t" /* what the compiler keeps below the stack pointer */
                 "pushq %%rbp\n\t"
                 "pushq %%rbx\n\t"
                 "leaq 1f(%%rip), %%rax\n\t"
                 "pushq %%rax\n\t"
                 "movq %%rsp, (%%rdi)\n\t"
                 "movq %%rsi, %%rsp\n\t"
                 "popq %%rax\n\t"
                 "jmpq *%%rax\n"
                 "1:\n\t"
                 "popq %%rbx\n\t"
                 "popq %%rbp\n\t"
                 "leaq 128(%%rsp), %%rsp"
                 : "+D"(save), "+S"(to)
                 :
                 : "rax",
                   "rcx",
                   "rdx",
                   "r8",
                   "r9",
                   "r10",
                   "r11",
                   "r12",
                   "r13",
                   "r14",
                   "r15",
                   "xmm0",
                   "xmm1",
                   "xmm2",
                   "xmm3",
                   "xmm4",
                   "xmm5",
                   "xmm6",
                   "xmm7",
                   "xmm8",
                   "xmm9",
                   "xmm10",
                   "xmm11",
                   "xmm12",
                   "xmm13",
                   "xmm14",
                   "xmm15",
                   "memory",
                   "cc");
}
#else
#define EMU_INLINE inline
#endif

namespace
{

/* AddressSanitizer must know on which stack the program is. */
EMU_INLINE void leave(void **fake, const void *bottom, size_t size)
{
#ifdef EMU_ASAN
    __sanitizer_start_switch_fiber(fake, bottom, size);
#else
    static_cast<void>(fake);
    static_cast<void>(bottom);
    static_cast<void>(size);
#endif
}
EMU_INLINE void arrive(void *fake, const void **bottom, size_t *size)
{
#ifdef EMU_ASAN
    __sanitizer_finish_switch_fiber(fake, bottom, size);
#else
    static_cast<void>(fake);
    static_cast<void>(bottom);
    static_cast<void>(size);
#endif
}

EMU_INLINE void to_scheduler()
{
    fiber *me = running;
    leave(&me->fake_stack, scheduler_stack, scheduler_stack_bytes);
#ifdef EMU_OWN_SWITCH
    emu_switch_stack(&me->sp, scheduler_sp);
#else
    swapcontext(&me->context, &scheduler_context);
#endif
    arrive(me->fake_stack, nullptr, nullptr);
}

fiber *fiber_take();
unsigned choose_lane(unsigned ready, emu_order order);

/* The thread waits: the next lane of its warp goes on, as the scheduler would have it, but without
 * a way through it. Where none can the scheduler decides. */
EMU_INLINE void to_next_lane(emu_thread *t)
{
    const unsigned ready = now.warps[t->index / 32].ready;
    if (!ready || (now.order == EMU_DRAWN && (emu_draw() & 31) == 0)) { /* another warp's turn */
        to_scheduler();
        return;
    }
    fiber *me = running;
    emu_thread *next = t - t->lane + choose_lane(ready, now.order);
    if (!next->fiber) {
        next->fiber = fiber_take();
    }
    emu_counted.switches++;
    from_scheduler = false;
    emu_self = next;
    running = static_cast<fiber *>(next->fiber);
    leave(&me->fake_stack, running->stack, STACK_BYTES);
#ifdef EMU_OWN_SWITCH
    emu_switch_stack(&me->sp, running->sp);
#else
    swapcontext(&me->context, &running->context);
#endif
    arrive(me->fake_stack, nullptr, nullptr);
}

void thread_ends(emu_thread *t)
{
    if (!now.copies[t->index].copies.empty()) {
        emu_error("the thread ends with asynchronous copies that it did not wait for");
    }
    if (now.work->config.early && !t->waited) {
        emu_error("the thread ends without cuda_wait_before");
    }
    now.copies[t->index].ends.clear();
    warp *w = &now.warps[t->index / 32];
    w->alive &= ~(1u << t->lane);
    w->ready &= ~(1u << t->lane);
    now.n_ended++;
    w->waits[t->lane] = "its end";
}

/* The fiber whose thread has ended becomes that of the lane that the scheduler would go on with.
 * False: that is none, one that has a fiber, or another warp's. */
bool take_next_lane()
{
    emu_thread *ended = emu_self;
    const unsigned ready = now.warps[ended->index / 32].ready;
    if (!ready || now.order == EMU_DRAWN) {
        return false;
    }
    emu_thread *next = ended - ended->lane + choose_lane(ready, now.order);
    if (next->fiber) {
        return false;
    }
    next->fiber = ended->fiber;
    ended->fiber = nullptr;
    emu_self = next;
    return true;
}

void fiber_main()
{
    if (from_scheduler) {
        arrive(nullptr, &scheduler_stack, &scheduler_stack_bytes);
    } else {
        arrive(nullptr, nullptr, nullptr);
    }
    for (;;) {
        now.work->run(now.work->arguments);
        thread_ends(emu_self);
        if (!take_next_lane()) {
            to_scheduler();
        }
    }
}

void fiber_prepare(fiber *f)
{
#ifdef EMU_ASAN
    ASAN_UNPOISON_MEMORY_REGION(f->stack, STACK_BYTES); /* an abandoned thread's frames */
#endif
    f->fake_stack = nullptr;
#ifdef EMU_OWN_SWITCH
    void **top = reinterpret_cast<void **>(f->top);
    *--top = nullptr;
    *--top = reinterpret_cast<void *>(fiber_main);
    f->sp = top;
#else
    getcontext(&f->context);
    f->context.uc_stack.ss_sp = f->stack;
    f->context.uc_stack.ss_size = static_cast<size_t>(f->top - f->stack);
    f->context.uc_link = nullptr;
    makecontext(&f->context, fiber_main, 0);
#endif
}

fiber *fiber_take()
{
    if (!idle.empty()) {
        fiber *f = idle.back();
        idle.pop_back();
        return f;
    }
    static unsigned made;
    if (!stacks) { /* addresses only; what no thread uses takes no memory */
        void *p = mmap(nullptr,
                       EMU_MAX_THREADS * (STACK_BYTES + GUARD),
                       PROT_NONE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE,
                       -1,
                       0);
        stacks = p == MAP_FAILED ? nullptr : static_cast<char *>(p);
    }
    char *low = stacks + made * (STACK_BYTES + GUARD) + GUARD;
    if (!stacks || made == EMU_MAX_THREADS ||
        mprotect(low, STACK_BYTES, PROT_READ | PROT_WRITE) != 0) {
        fprintf(stderr, "emulator: no memory for stacks\n");
        abort();
    }
    fiber *f = new fiber;
    f->stack = low;
    f->top = f->stack + STACK_BYTES - made++ % 64 * 320;
    fiber_prepare(f);
    return f;
}

/* Runs the thread until it ends or waits; then others of its warp, until one ends or none can. */
EMU_INLINE void resume(emu_thread *t)
{
    emu_counted.switches++;
    if (!t->fiber) {
        t->fiber = fiber_take();
    }
    emu_self = t;
    running = static_cast<fiber *>(t->fiber);
    from_scheduler = true;
    leave(&scheduler_fake_stack, running->stack, STACK_BYTES);
#ifdef EMU_OWN_SWITCH
    emu_switch_stack(&scheduler_sp, running->sp);
#else
    swapcontext(&scheduler_context, &running->context);
#endif
    arrive(scheduler_fake_stack, nullptr, nullptr);
    t = emu_self;
    running = nullptr;
    emu_self = nullptr;
    if (!abandoned && !((now.warps[t->index / 32].alive >> t->lane) & 1)) {
        idle.push_back(static_cast<fiber *>(t->fiber));
        t->fiber = nullptr;
    }
}

unsigned choose_lane(unsigned ready, emu_order order)
{
    switch (order) {
    case EMU_PLAIN:
        return static_cast<unsigned>(__builtin_ctz(ready));
    case EMU_REVERSED:
        return 31 - static_cast<unsigned>(__builtin_clz(ready));
    default:
        break;
    }
    const unsigned from = static_cast<unsigned>(emu_draw() & 31), behind = ready >> from;
    return behind ? from + static_cast<unsigned>(__builtin_ctz(behind))
                  : static_cast<unsigned>(__builtin_ctz(ready));
}

void release_barrier()
{
    for (unsigned i = 0; i < now.n_warps; i++) {
        now.warps[i].ready = now.warps[i].alive;
    }
    now.n_at_barrier = 0;
    now.barriers++;
}

void report_stuck()
{
    char text[1024];
    int n = 0;
    unsigned shown = 0;
    const char *last = nullptr;
    for (unsigned i = 0; i < now.n_threads && shown < 6; i++) {
        const char *waits = now.warps[i / 32].waits[i % 32];
        if (waits != last) {
            n += snprintf(text + n,
                          sizeof text - static_cast<size_t>(n),
                          "%s thread %u at %s",
                          shown ? "," : "",
                          i,
                          waits ? waits : "?");
            last = waits;
            shown++;
        }
    }
    emu_report("%s: block (%u, %u, %u): threads wait for each other:%s",
               now.work->config.name,
               emu_here.block_idx.x,
               emu_here.block_idx.y,
               emu_here.block_idx.z,
               text);
}

/* Of each block of a launch. */
void threads_begin()
{
    const dim3 d = emu_here.block_dim;
    for (unsigned i = 0; i < now.n_threads; i++) {
        emu_thread *t = &now.threads[i];
        t->idx = uint3{i % d.x, i / d.x % d.y, i / (d.x * d.y)};
        t->index = i;
        t->lane = i % 32;
        t->fiber = nullptr;
    }
}

void block_begin()
{
    for (unsigned w = 0; w < now.n_warps; w++) {
        unsigned n = now.n_threads - w * 32;
        unsigned all = n >= 32 ? 0xffffffffu : (1u << n) - 1;
        now.warps[w].alive = all;
        now.warps[w].ready = all;
        now.warps[w].waiting = 0;
        now.warps[w].meetings = 0;
    }
    for (unsigned i = 0; i < now.n_threads; i++) {
        now.threads[i].waited = false;
    }
    now.n_ended = 0;
    now.n_at_barrier = 0;
    now.barriers = 0;
    emu_bulk_begin();
    if (shared_bytes) {
        memset(shared_memory, 0xff, shared_bytes); /* as good as anything: NaN */
    }
}

void abandon_block()
{
    for (unsigned i = 0; i < now.n_threads; i++) {
        fiber *f = static_cast<fiber *>(now.threads[i].fiber);
        if (f) {
            fiber_prepare(f); /* nothing in a kernel has a destructor */
            idle.push_back(f);
            now.threads[i].fiber = nullptr;
        }
        now.copies[i].copies.clear();
        now.copies[i].ends.clear();
    }
}

/* False: abandoned. */
bool run_block()
{
    block_begin();
    const emu_order order = now.order;
    while (now.n_ended < now.n_threads) {
        bool moved = false;
        unsigned first = order == EMU_DRAWN ? static_cast<unsigned>(emu_draw() % now.n_warps) : 0;
        for (unsigned i = 0; i < now.n_warps; i++) {
            unsigned at = order == EMU_REVERSED ? now.n_warps - 1 - i : (i + first) % now.n_warps;
            warp *w = &now.warps[at];
            while (w->ready) {
                moved = true;
                resume(&now.threads[at * 32 + choose_lane(w->ready, order)]);
                if (abandoned) {
                    return false;
                }
                if (order == EMU_DRAWN) {
                    break; /* another warp's turn */
                }
            }
        }
        if (now.n_at_barrier == now.n_threads) {
            release_barrier();
        } else if (!moved) {
            report_stuck();
            return false;
        }
    }
    if (!emu_bulk_is_over()) {
        emu_report("%s: block (%u, %u, %u): it ends with bulk copies that nobody waited for",
                   now.work->config.name,
                   emu_here.block_idx.x,
                   emu_here.block_idx.y,
                   emu_here.block_idx.z);
        return false;
    }
    return true;
}

cudaError_t check_launch(const emu_config &c)
{
    uint64_t threads = static_cast<uint64_t>(c.block.x) * c.block.y * c.block.z;
    if (threads == 0 || threads > EMU_MAX_THREADS || c.block.x > 1024 || c.block.y > 1024 ||
        c.block.z > 64) {
        emu_report("%s: a block of %u x %u x %u threads", c.name, c.block.x, c.block.y, c.block.z);
        return cudaErrorInvalidConfiguration;
    }
    if (c.grid.x == 0 || c.grid.y == 0 || c.grid.z == 0 || c.grid.x > 0x7fffffffu ||
        c.grid.y > 65535 || c.grid.z > 65535) {
        emu_report("%s: a grid of %u x %u x %u blocks", c.name, c.grid.x, c.grid.y, c.grid.z);
        return cudaErrorInvalidConfiguration;
    }
    return cudaSuccess;
}

uint3 block_at(uint64_t i, dim3 grid)
{
    return uint3{static_cast<unsigned>(i % grid.x),
                 static_cast<unsigned>(i / grid.x % grid.y),
                 static_cast<unsigned>(i / grid.x / grid.y)};
}

/* An odd stride that has no divisor in common with n: a permutation of 0 .. n - 1. */
uint64_t stride_for(uint64_t n)
{
    for (;;) {
        uint64_t s = emu_draw() % n + 1, a = n, b = s;
        while (b) {
            uint64_t r = a % b;
            a = b;
            b = r;
        }
        if (a == 1) {
            return s;
        }
    }
}

void set_shared(size_t bytes)
{
    shared_bytes = bytes;
    if (!bytes) {
        shared_memory = nullptr;
        return;
    }
    /* the last byte lies before a page that cannot be touched */
    static char *area;
    constexpr size_t most = (EMU_SHARED_MAX + PAGE - 1) / PAGE * PAGE;
    if (!area) {
        void *p = mmap(
            nullptr, most + 2 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (p == MAP_FAILED) {
            perror("emulator: no shared memory");
            abort();
        }
        area = static_cast<char *>(p) + PAGE;
        mprotect(p, PAGE, PROT_NONE);
        mprotect(area + most, PAGE, PROT_NONE);
    }
    shared_memory = area + most - (bytes + 15) / 16 * 16;
#ifdef EMU_ASAN
    ASAN_POISON_MEMORY_REGION(area, most);
    ASAN_UNPOISON_MEMORY_REGION(shared_memory, bytes);
#endif
}

} // namespace

cudaError_t emu_run_grid(const emu_work &work)
{
    const emu_config &c = work.config;
    cudaError_t e = check_launch(c);
    if (e != cudaSuccess) {
        return e;
    }
    now.work = &work;
    now.n_threads = c.block.x * c.block.y * c.block.z;
    now.n_warps = (now.n_threads + 31) / 32;
    emu_here.block_dim = c.block;
    emu_here.grid_dim = c.grid;
    set_shared(c.shared_bytes);
    threads_begin();
    emu_counted.launches++;

    uint64_t n = static_cast<uint64_t>(c.grid.x) * c.grid.y * c.grid.z;
    const emu_order order = now.order = emu_order_now();
    uint64_t stride = order == EMU_DRAWN ? stride_for(n) : 1;
    uint64_t at = order == EMU_DRAWN ? emu_draw() % n : 0;
    abandoned = false;
    failure = cudaErrorLaunchFailure;
    for (uint64_t i = 0; i < n; i++) {
        emu_here.block_idx = block_at(order == EMU_REVERSED ? n - 1 - at : at, c.grid);
        emu_counted.blocks++;
        emu_counted.threads += now.n_threads;
        if (!run_block()) {
            abandon_block();
            now.work = nullptr;
            return failure;
        }
        at = (at + stride) % n;
    }
    now.work = nullptr;
    return cudaSuccess;
}

bool emu_in_kernel(void)
{
    return emu_self != nullptr;
}

const char *emu_where(char *text, size_t size)
{
    snprintf(text,
             size,
             "%s: block (%u, %u, %u), thread (%u, %u, %u)",
             now.work->config.name,
             emu_here.block_idx.x,
             emu_here.block_idx.y,
             emu_here.block_idx.z,
             emu_self->idx.x,
             emu_self->idx.y,
             emu_self->idx.z);
    return text;
}

/* --- what kernels call --- */

void emu_error(const char *format, ...)
{
    char text[512], where[256];
    va_list list;
    va_start(list, format);
    vsnprintf(text, sizeof text, format, list);
    va_end(list);
    if (!emu_self) {
        emu_report("outside a kernel: %s", text);
        abort();
    }
    emu_report("%s: %s", emu_where(where, sizeof where), text);
    abandoned = true;
    to_scheduler();
    abort(); /* an abandoned thread does not run again */
}

void *emu_fault_landing(void **stack)
{
    *stack = running->stack + STACK_BYTES - 64;
    return reinterpret_cast<void *>(+[] {
        abandoned = true;
        failure = cudaErrorIllegalAddress;
        to_scheduler();
        abort();
    });
}

bool emu_is_stack(const void *p)
{
    const char *c = static_cast<const char *>(p);
    return stacks && c >= stacks && c < stacks + EMU_MAX_THREADS * (STACK_BYTES + GUARD);
}

size_t emu_beyond_shared(const void *p)
{
    const char *c = static_cast<const char *>(p),
               *end = shared_memory + (shared_bytes + 15) / 16 * 16;
    return shared_memory && c >= end && c < end + PAGE ? static_cast<size_t>(c - end) + 1 : 0;
}

bool emu_is_shared(const void *p)
{
    const char *c = static_cast<const char *>(p);
    return shared_memory && c >= shared_memory && c < shared_memory + shared_bytes;
}

bool emu_may_be_early(void)
{
    return now.work->config.early && !emu_self->waited;
}

void emu_moment_now(
    uint32_t *work, uint32_t *block, unsigned *thread, uint32_t *barriers, uint32_t *meetings)
{
    const dim3 g = emu_here.grid_dim;
    const uint3 b = emu_here.block_idx;
    *work = emu_work_now();
    *block = (b.z * g.y + b.y) * g.x + b.x;
    *thread = emu_self->index;
    *barriers = now.barriers;
    *meetings = now.warps[emu_self->index / 32].meetings;
}

void *emu_shared_memory(void)
{
    if (!shared_memory) {
        emu_error("the launch gave no dynamic shared memory");
    }
    return shared_memory;
}

int emu_wgmma_backwards; /* wgmma.cuh */

void emu_meet(const char *what, unsigned mask, void *slot, emu_meet_fn fn)
{
    emu_thread *t = emu_self;
    warp *w = &now.warps[t->index / 32];
    unsigned me = 1u << t->lane;
    if (!(mask & me)) {
        emu_error("%s: lane %u is not in its own mask %08x", what, t->lane, mask);
    }
    if (mask & ~w->alive) {
        emu_error("%s: mask %08x names lanes that have ended or never were: %08x",
                  what,
                  mask,
                  mask & ~w->alive);
    }
    w->waits[t->lane] = what;
    w->mask[t->lane] = mask;
    w->slot[t->lane] = slot;
    w->fn[t->lane] = fn;
    w->waiting |= me;
    if ((w->waiting & mask) != mask) {
        w->ready &= ~me;
        to_next_lane(t);
        return;
    }
    for (unsigned left = mask; left; left &= left - 1) {
        const unsigned i = static_cast<unsigned>(__builtin_ctz(left));
        if (w->mask[i] != mask || w->fn[i] != fn) {
            emu_error("%s with mask %08x meets lane %u at %s with mask %08x",
                      what,
                      mask,
                      i,
                      w->waits[i],
                      w->mask[i]);
        }
    }
    if (fn) {
        fn(w->slot, mask);
    }
    w->waiting &= ~mask;
    w->ready |= mask;
    w->meetings++;
    if (emu_bulk_news[t->index / 32]) {
        emu_bulk_share(t->index / 32, mask);
    }
}

uint32_t emu_meetings_now(void)
{
    return now.warps[emu_self->index / 32].meetings;
}

void emu_wait_here(const char *what)
{
    emu_thread *t = emu_self;
    now.warps[t->index / 32].waits[t->lane] = what;
    now.warps[t->index / 32].ready &= ~(1u << t->lane);
    to_next_lane(t);
}

void emu_go_on(unsigned thread)
{
    now.warps[thread / 32].ready |= 1u << thread % 32;
}

void emu_barrier(void)
{
    emu_thread *t = emu_self;
    if (now.n_ended) {
        emu_error("__syncthreads after a thread of the block has ended");
    }
    now.n_at_barrier++;
    now.warps[t->index / 32].waits[t->lane] = "__syncthreads";
    now.warps[t->index / 32].ready &= ~(1u << t->lane);
    to_next_lane(t);
}

long long clock64(void)
{
    struct timespec ts;
    clock_gettime(CLOCK_MONOTONIC, &ts);
    return static_cast<long long>(ts.tv_sec) * 1000000000 + ts.tv_nsec;
}

void emu_copy_async(void *shared, const void *global, unsigned bytes, unsigned from_global)
{
    if (reinterpret_cast<uintptr_t>(shared) % bytes ||
        reinterpret_cast<uintptr_t>(global) % bytes) {
        emu_error("an asynchronous copy of %u bytes that are not aligned", bytes);
    }
    now.copies[emu_self->index].copies.push_back(copy{shared, global, bytes, from_global});
}

void emu_copy_commit(void)
{
    pending_copies *p = &now.copies[emu_self->index];
    p->ends.push_back(p->copies.size());
}

void emu_copy_wait(unsigned groups_left)
{
    pending_copies *p = &now.copies[emu_self->index];
    if (p->ends.size() <= groups_left) {
        return;
    }
    size_t groups = p->ends.size() - groups_left, n = p->ends[groups - 1];
    for (size_t i = 0; i < n; i++) {
        const copy *c = &p->copies[i];
        if (emu_on_range) {
            emu_on_range(c->from, c->from_global, false);
            emu_on_range(c->to, c->bytes, true);
        }
        if (c->from_global) {
            memcpy(c->to, c->from, c->from_global);
        }
        memset(static_cast<char *>(c->to) + c->from_global, 0, c->bytes - c->from_global);
    }
    p->copies.erase(p->copies.begin(), p->copies.begin() + static_cast<long>(n));
    p->ends.erase(p->ends.begin(), p->ends.begin() + static_cast<long>(groups));
    for (size_t &end : p->ends) {
        end -= n;
    }
}
