/* What kernels are written with: the built-in variables, barriers, shuffles, votes and atomics of
 * CUDA, for the host's C++ compiler; arithmetic is emu_math.h's.
 *
 * A thread of a block is a fiber (grid.cpp). One fiber runs at a time, until it ends or waits for
 * others; so an atomic is a plain operation, and a shuffle is a meeting: each lane leaves a pointer
 * to what it brings, the last to come computes everyone's result (emu_meet). */
#ifndef EMU_DEVICE_H
#define EMU_DEVICE_H

#include "emu_math.h"

#include <stdint.h>
#include <string.h>
#include <type_traits>

#define __global__
#define __device__
#define __host__
#define __shared__ static
#define __forceinline__ inline __attribute__((always_inline))
#define __launch_bounds__(...)
#define __align__(n) __attribute__((aligned(n)))

/* Kernels are compiled with -fsanitize=thread for races.cpp. */
#if defined(__SANITIZE_THREAD__)
#define EMU_RACES 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define EMU_RACES 1
#endif
#endif

/* --- threads --- */

struct emu_thread {
    uint3 idx;
    unsigned index; /* in the block */
    unsigned lane;
    bool waited; /* emu_wait_before */
    void *fiber;
};

struct emu_grid {
    uint3 block_idx;
    dim3 block_dim, grid_dim;
};

extern emu_thread *emu_self;
extern emu_grid emu_here;

#define threadIdx (emu_self->idx)
#define blockIdx (emu_here.block_idx)
#define blockDim (emu_here.block_dim)
#define gridDim (emu_here.grid_dim)
static constexpr int warpSize = 32;

/* The block's dynamic shared memory, of exactly the bytes of the launch. */
void *emu_shared_memory(void);

/* All lanes of the mask meet; the last to come runs fn over what each brought (of lanes that are
 * not in the mask: anything). `what` names the instruction: lanes that meet for different ones are
 * an error. */
typedef void (*emu_meet_fn)(void *const slots[32], unsigned mask);
void emu_meet(const char *what, unsigned mask, void *slot, emu_meet_fn fn);

/* For tests: the sum of a wgmma runs the other way, as a device's might (wgmma.cuh). */
extern "C" int emu_wgmma_backwards;

/* A sum of a tensor core's product: c + a[0] b[0] + .. + a[n-1] b[n-1], 8 or 16 of them; least: the
 * exponent of the operands' subnormals, -14 or -126. Without WEIR_EMU_SUMS emu_cuts_off is 0, and
 * sums are mma.cuh's and wgmma.cuh's own, rounded by rising k (tensor.cpp). */
extern "C" int emu_cuts_off(void);
float emu_tensor_sum(
    float c, const float *a, size_t a_step, const float *b, size_t b_step, int n, int least);

/* All threads of the block meet. */
void emu_barrier(void);

/* A kernel that is launched to begin early (gpu.h) has nothing to see here of what was before it:
 * all of it is over. That each thread waits is looked at. */
static inline void emu_let_next_begin()
{
}
static inline void emu_wait_before()
{
    emu_self->waited = true;
}

/* Report an error of the program and abandon the launch. */
[[noreturn]] void emu_error(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* cp.async: the bytes move when the thread waits for the group, so that a read without a wait sees
 * old ones. */
void emu_copy_async(void *shared, const void *global, unsigned bytes, unsigned from_global);
void emu_copy_commit(void);
void emu_copy_wait(unsigned groups_left);

/* Barriers of the bulk copy engine, and its copies (bulk.cpp). */
void emu_bulk_init(void *at, unsigned arrivals);
void emu_bulk_expect(void *at, unsigned bytes);
void emu_bulk_arrive(void *at);
void emu_bulk_copy(void *shared, const void *global, unsigned bytes, void *at);
void emu_bulk_wait(void *at, unsigned parity);

static inline void __syncthreads()
{
    emu_barrier();
}
static inline void __syncwarp(unsigned mask = 0xffffffffu)
{
    emu_meet("__syncwarp", mask, nullptr, nullptr);
}
[[noreturn]] static inline void __trap()
{
    emu_error("__trap");
}
long long clock64(void);

/* --- shuffles and votes --- */

template <class T> struct emu_shuffle {
    T value, result;
    int from; /* -1: outside the width, the lane keeps its own */
};

template <class T> static void emu_shuffle_all(void *const slots[32], unsigned mask)
{
    for (unsigned i = 0; i < 32; i++) {
        if (!((mask >> i) & 1)) {
            continue;
        }
        emu_shuffle<T> *s = static_cast<emu_shuffle<T> *>(slots[i]);
        int from = s->from < 0 ? static_cast<int>(i) : s->from;
        if (!((mask >> from) & 1)) {
            emu_error(
                "lane %u shuffles from lane %d, which its mask %08x leaves out", i, from, mask);
        }
        s->result = static_cast<emu_shuffle<T> *>(slots[from])->value;
    }
}

template <class T> static inline T emu_shuffled(unsigned mask, T value, int from)
{
    emu_shuffle<T> s{value, value, from};
    emu_meet("__shfl_sync", mask, &s, emu_shuffle_all<T>);
    return s.result;
}

static inline void emu_width(int width)
{
    if (width < 1 || width > 32 || (width & (width - 1))) {
        emu_error("a shuffle over %d lanes", width);
    }
}

template <class T> static inline T __shfl_sync(unsigned mask, T value, int src_lane, int width = 32)
{
    emu_width(width);
    int lane = static_cast<int>(emu_self->lane);
    return emu_shuffled(mask, value, (lane & ~(width - 1)) | (src_lane & (width - 1)));
}
template <class T>
static inline T __shfl_up_sync(unsigned mask, T value, unsigned delta, int width = 32)
{
    emu_width(width);
    int lane = static_cast<int>(emu_self->lane), from = lane - static_cast<int>(delta);
    return emu_shuffled(mask, value, from < (lane & ~(width - 1)) ? -1 : from);
}
template <class T>
static inline T __shfl_xor_sync(unsigned mask, T value, int lane_mask, int width = 32)
{
    emu_width(width);
    int lane = static_cast<int>(emu_self->lane), from = lane ^ lane_mask;
    return emu_shuffled(mask, value, from > (lane | (width - 1)) ? -1 : from);
}

struct emu_vote {
    unsigned long long value;
    unsigned result;
};

static inline void emu_vote_all(void *const slots[32], unsigned mask)
{
    unsigned ballot = 0;
    for (unsigned i = 0; i < 32; i++) {
        if ((mask >> i) & 1) {
            ballot |= static_cast<unsigned>(static_cast<emu_vote *>(slots[i])->value != 0) << i;
        }
    }
    for (unsigned i = 0; i < 32; i++) {
        if ((mask >> i) & 1) {
            static_cast<emu_vote *>(slots[i])->result = ballot;
        }
    }
}

static inline unsigned __ballot_sync(unsigned mask, int predicate)
{
    emu_vote v{predicate != 0, 0};
    emu_meet("__ballot_sync", mask, &v, emu_vote_all);
    return v.result;
}

/* --- atomics --- */

#ifdef EMU_RACES
void emu_touch_atomic(const void *p, unsigned size);
#define EMU_UNSEEN __attribute__((no_sanitize("thread"), noinline))
#else
#define EMU_UNSEEN inline
#endif

template <class T> static EMU_UNSEEN T emu_get(const volatile T *p)
{
    return *p;
}
template <class T> static EMU_UNSEEN void emu_put(volatile T *p, T v)
{
    *p = v;
}
template <class T, class F> static inline T emu_atomic(T *p, F change)
{
#ifdef EMU_RACES
    emu_touch_atomic(p, sizeof *p);
#endif
    T old = emu_get(p);
    emu_put(p, change(old));
    return old;
}

#define EMU_ATOMIC(name, type, expression)                                                         \
    static inline type atomic##name(type *p, type v)                                               \
    {                                                                                              \
        return emu_atomic(p, [v](type old) -> type { return expression; });                        \
    }                                                                                              \
    static inline type atomic##name##_block(type *p, type v)                                       \
    {                                                                                              \
        return atomic##name(p, v);                                                                 \
    }
EMU_ATOMIC(Add, int, static_cast<int>(static_cast<unsigned>(old) + static_cast<unsigned>(v)))
EMU_ATOMIC(Add, unsigned, old + v)
EMU_ATOMIC(Add, unsigned long long, old + v)
EMU_ATOMIC(Or, unsigned, old | v)
#undef EMU_ATOMIC

template <class T> static inline T __ldcg(const T *p)
{
    return *p;
}
/* --- addresses --- */

static inline size_t __cvta_generic_to_shared(const void *p)
{
    return reinterpret_cast<size_t>(p);
}

/* --- launches --- */

struct emu_config {
    const char *name;
    const void *function;
    dim3 grid, block;
    size_t shared_bytes;
    cudaStream_t stream;
    bool early; /* it may begin before the kernel before it has ended */
};

/* Takes run(args), of bytes copied, onto the stream (or into the graph that it captures). */
void emu_enqueue(const emu_config &config,
                 void (*run)(const void *arguments),
                 const void *arguments,
                 size_t bytes,
                 size_t align);

template <class... P> struct emu_arguments;
template <> struct emu_arguments<> {
    template <class F, class... Done> void call(F f, const Done &...done) const
    {
        f(done...);
    }
};
template <class H, class... T> struct emu_arguments<H, T...> {
    H head;
    emu_arguments<T...> tail;
    template <class F, class... Done> void call(F f, const Done &...done) const
    {
        tail.call(f, done..., head);
    }
};
template <class... None> static inline emu_arguments<> emu_pack()
{
    return {};
}
template <class H, class... T> static inline emu_arguments<H, T...> emu_pack(H head, T... tail)
{
    return {head, emu_pack<T...>(tail...)};
}
template <class... P> struct emu_call {
    void (*kernel)(P...);
    emu_arguments<std::decay_t<P>...> arguments;
    static void run(const void *self)
    {
        const emu_call *c = static_cast<const emu_call *>(self);
        c->arguments.call(c->kernel);
    }
};

/* Arguments are turned into the kernel's parameters and copied now; it runs later. */
template <bool EARLY, class... P>
static inline void emu_launch_as(const char *name,
                                 dim3 grid,
                                 dim3 block,
                                 size_t shared_bytes,
                                 cudaStream_t stream,
                                 void (*kernel)(P...),
                                 const std::decay_t<P> &...arguments)
{
    emu_call<P...> call{kernel, emu_pack<std::decay_t<P>...>(arguments...)};
    emu_config config{
        name, reinterpret_cast<const void *>(kernel), grid, block, shared_bytes, stream, EARLY};
    emu_enqueue(config, emu_call<P...>::run, &call, sizeof call, alignof(emu_call<P...>));
}
#define emu_launch emu_launch_as<false>
#define emu_launch_next emu_launch_as<true>

#endif
