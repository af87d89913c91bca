/* What kernels are written with: the built-in variables, barriers, shuffles, votes, atomics and
 * arithmetic of CUDA, for the host's C++ compiler.
 *
 * A thread of a block is a fiber (grid.cpp). One fiber runs at a time, until it ends or waits for
 * others; so an atomic is a plain operation, and a shuffle is a meeting: each lane leaves a pointer
 * to what it brings, the last to come computes everyone's result (emu_meet). */
#ifndef EMU_DEVICE_H
#define EMU_DEVICE_H

#include <math.h>
#include <stdint.h>
#include <string.h>

#define __global__
#define __device__
#define __host__
#define __shared__ static
#define __constant__ static
#define __forceinline__ inline __attribute__((always_inline))
#define __launch_bounds__(...)
#define __grid_constant__
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
    /* what it waits for, in grid.cpp's words */
    const char *waits;
    unsigned mask;
    void *slot;
    int predicate;
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

/* All lanes of the mask meet; the last to come runs fn over what each brought (NULL: not in the
 * mask). `what` names the instruction: lanes that meet for different ones are an error. */
typedef void (*emu_meet_fn)(void *const slots[32], unsigned mask);
void emu_meet(const char *what, unsigned mask, void *slot, emu_meet_fn fn);

/* All threads of the block meet; how many predicates are true. */
int emu_barrier(const char *what, int predicate);

/* Report an error of the program and abandon the launch. */
[[noreturn]] void emu_error(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* cp.async: the bytes move when the thread waits for the group, so that a read without a wait sees
 * old ones. */
void emu_copy_async(void *shared, const void *global, unsigned bytes, unsigned from_global);
void emu_copy_commit(void);
void emu_copy_wait(unsigned groups_left);

static inline void __syncthreads()
{
    emu_barrier("__syncthreads", 0);
}
static inline int __syncthreads_count(int p)
{
    return emu_barrier("__syncthreads_count", p != 0);
}
static inline int __syncthreads_or(int p)
{
    return emu_barrier("__syncthreads_or", p != 0) != 0;
}
static inline int __syncthreads_and(int p)
{
    return emu_barrier("__syncthreads_and", p == 0) == 0;
}
static inline void __syncwarp(unsigned mask = 0xffffffffu)
{
    emu_meet("__syncwarp", mask, nullptr, nullptr);
}
static inline void __threadfence()
{
}
static inline void __threadfence_block()
{
}
static inline void __threadfence_system()
{
}
[[noreturn]] static inline void __trap()
{
    emu_error("__trap");
}
static inline void __nanosleep(unsigned)
{
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
static inline T __shfl_down_sync(unsigned mask, T value, unsigned delta, int width = 32)
{
    emu_width(width);
    int lane = static_cast<int>(emu_self->lane), from = lane + static_cast<int>(delta);
    return emu_shuffled(mask, value, from > (lane | (width - 1)) ? -1 : from);
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
static inline void emu_match_all(void *const slots[32], unsigned mask)
{
    for (unsigned i = 0; i < 32; i++) {
        if ((mask >> i) & 1) {
            emu_vote *v = static_cast<emu_vote *>(slots[i]);
            v->result = 0;
            for (unsigned j = 0; j < 32; j++) {
                if (((mask >> j) & 1) && static_cast<emu_vote *>(slots[j])->value == v->value) {
                    v->result |= 1u << j;
                }
            }
        }
    }
}

static inline unsigned __ballot_sync(unsigned mask, int predicate)
{
    emu_vote v{predicate != 0, 0};
    emu_meet("__ballot_sync", mask, &v, emu_vote_all);
    return v.result;
}
static inline int __any_sync(unsigned mask, int predicate)
{
    return __ballot_sync(mask, predicate) != 0;
}
static inline int __all_sync(unsigned mask, int predicate)
{
    return __ballot_sync(mask, predicate) == mask;
}
template <class T> static inline unsigned __match_any_sync(unsigned mask, T value)
{
    static_assert(sizeof value == 4 || sizeof value == 8, "32 or 64 bits");
    emu_vote v{0, 0};
    memcpy(&v.value, &value, sizeof value);
    emu_meet("__match_any_sync", mask, &v, emu_match_all);
    return v.result;
}
template <class T> static inline unsigned __match_all_sync(unsigned mask, T value, int *same)
{
    unsigned m = __match_any_sync(mask, value);
    *same = m == mask;
    return *same ? mask : 0;
}
/* Lanes that have not ended: what a warp whose lanes are together would say. */
unsigned __activemask(void);

template <class T, class F> static void emu_reduce_all(void *const slots[32], unsigned mask)
{
    T sum{};
    bool first = true;
    for (unsigned i = 0; i < 32; i++) {
        if ((mask >> i) & 1) {
            T v = static_cast<emu_shuffle<T> *>(slots[i])->value;
            sum = first ? v : F::of(sum, v);
            first = false;
        }
    }
    for (unsigned i = 0; i < 32; i++) {
        if ((mask >> i) & 1) {
            static_cast<emu_shuffle<T> *>(slots[i])->result = sum;
        }
    }
}
#define EMU_REDUCE(name, type, expression)                                                         \
    struct emu_##name##_of {                                                                       \
        static type of(type a, type b)                                                             \
        {                                                                                          \
            return expression;                                                                     \
        }                                                                                          \
    };                                                                                             \
    static inline type __reduce_##name##_sync(unsigned mask, type value)                           \
    {                                                                                              \
        emu_shuffle<type> s{value, value, 0};                                                      \
        emu_meet("__reduce_" #name "_sync", mask, &s, emu_reduce_all<type, emu_##name##_of>);      \
        return s.result;                                                                           \
    }
EMU_REDUCE(add, unsigned, a + b)
EMU_REDUCE(min, unsigned, a < b ? a : b)
EMU_REDUCE(max, unsigned, a > b ? a : b)
EMU_REDUCE(and, unsigned, a &b)
EMU_REDUCE(or, unsigned, a | b)
EMU_REDUCE(xor, unsigned, a ^ b)
#undef EMU_REDUCE
#define EMU_REDUCE_INT(name, compare)                                                              \
    struct emu_##name##_int_of {                                                                   \
        static int of(int a, int b)                                                                \
        {                                                                                          \
            return a compare b ? a : b;                                                            \
        }                                                                                          \
    };                                                                                             \
    static inline int __reduce_##name##_sync(unsigned mask, int value)                             \
    {                                                                                              \
        emu_shuffle<int> s{value, value, 0};                                                       \
        emu_meet("__reduce_" #name "_sync", mask, &s, emu_reduce_all<int, emu_##name##_int_of>);   \
        return s.result;                                                                           \
    }
EMU_REDUCE_INT(min, <)
EMU_REDUCE_INT(max, >)
#undef EMU_REDUCE_INT
static inline int __reduce_add_sync(unsigned mask, int value)
{
    return static_cast<int>(__reduce_add_sync(mask, static_cast<unsigned>(value)));
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
#define EMU_ATOMIC_INTEGERS(name, expression)                                                      \
    EMU_ATOMIC(name, int, expression)                                                              \
    EMU_ATOMIC(name, unsigned, expression)                                                         \
    EMU_ATOMIC(name, unsigned long long, expression)
EMU_ATOMIC(Add, int, static_cast<int>(static_cast<unsigned>(old) + static_cast<unsigned>(v)))
EMU_ATOMIC(Add, unsigned, old + v)
EMU_ATOMIC(Add, unsigned long long, old + v)
EMU_ATOMIC(Add, float, old + v)
EMU_ATOMIC(Add, double, old + v)
EMU_ATOMIC(Sub, int, static_cast<int>(static_cast<unsigned>(old) - static_cast<unsigned>(v)))
EMU_ATOMIC(Sub, unsigned, old - v)
EMU_ATOMIC_INTEGERS(Min, old < v ? old : v)
EMU_ATOMIC_INTEGERS(Max, old > v ? old : v)
EMU_ATOMIC(Min, long long, old < v ? old : v)
EMU_ATOMIC(Max, long long, old > v ? old : v)
EMU_ATOMIC_INTEGERS(And, old &v)
EMU_ATOMIC_INTEGERS(Or, old | v)
EMU_ATOMIC_INTEGERS(Xor, old ^ v)
EMU_ATOMIC_INTEGERS(Exch, (static_cast<void>(old), v))
EMU_ATOMIC(Exch, float, (static_cast<void>(old), v))
EMU_ATOMIC(Inc, unsigned, old >= v ? 0 : old + 1)
EMU_ATOMIC(Dec, unsigned, old == 0 || old > v ? v : old - 1)
#undef EMU_ATOMIC_INTEGERS
#undef EMU_ATOMIC

template <class T> static inline T emu_cas(T *p, T compare, T v)
{
    return emu_atomic(p, [compare, v](T old) -> T { return old == compare ? v : old; });
}
static inline int atomicCAS(int *p, int compare, int v)
{
    return emu_cas(p, compare, v);
}
static inline unsigned atomicCAS(unsigned *p, unsigned compare, unsigned v)
{
    return emu_cas(p, compare, v);
}
static inline unsigned long long atomicCAS(unsigned long long *p,
                                           unsigned long long compare,
                                           unsigned long long v)
{
    return emu_cas(p, compare, v);
}

/* --- loads and stores with hints --- */

template <class T> static inline T __ldg(const T *p)
{
    return *p;
}
template <class T> static inline T __ldcs(const T *p)
{
    return *p;
}
template <class T> static inline T __ldcg(const T *p)
{
    return *p;
}
template <class T> static inline T __ldca(const T *p)
{
    return *p;
}
template <class T> static inline T __ldlu(const T *p)
{
    return *p;
}
template <class T> static inline void __stcs(T *p, T v)
{
    *p = v;
}
template <class T> static inline void __stcg(T *p, T v)
{
    *p = v;
}
template <class T> static inline void __stwt(T *p, T v)
{
    *p = v;
}

/* --- integers --- */

#define EMU_MIN_MAX(type)                                                                          \
    static inline type min(type a, type b)                                                         \
    {                                                                                              \
        return b < a ? b : a;                                                                      \
    }                                                                                              \
    static inline type max(type a, type b)                                                         \
    {                                                                                              \
        return a < b ? b : a;                                                                      \
    }
EMU_MIN_MAX(int)
EMU_MIN_MAX(unsigned)
EMU_MIN_MAX(long)
EMU_MIN_MAX(unsigned long)
EMU_MIN_MAX(long long)
EMU_MIN_MAX(unsigned long long)
#undef EMU_MIN_MAX
static inline float min(float a, float b)
{
    return fminf(a, b);
}
static inline float max(float a, float b)
{
    return fmaxf(a, b);
}
static inline double min(double a, double b)
{
    return fmin(a, b);
}
static inline double max(double a, double b)
{
    return fmax(a, b);
}

static inline int __popc(unsigned v)
{
    return __builtin_popcount(v);
}
static inline int __popcll(unsigned long long v)
{
    return __builtin_popcountll(v);
}
static inline int __clz(int v)
{
    return v == 0 ? 32 : __builtin_clz(static_cast<unsigned>(v));
}
static inline int __clzll(long long v)
{
    return v == 0 ? 64 : __builtin_clzll(static_cast<unsigned long long>(v));
}
static inline int __ffs(int v)
{
    return __builtin_ffs(v);
}
static inline int __ffsll(long long v)
{
    return __builtin_ffsll(v);
}
static inline unsigned __brev(unsigned v)
{
    unsigned r = 0;
    for (unsigned i = 0; i < 32; i++) {
        r |= ((v >> i) & 1) << (31 - i);
    }
    return r;
}
static inline unsigned __funnelshift_l(unsigned lo, unsigned hi, unsigned n)
{
    return static_cast<unsigned>(((static_cast<uint64_t>(hi) << 32 | lo) << (n & 31)) >> 32);
}
static inline unsigned __funnelshift_r(unsigned lo, unsigned hi, unsigned n)
{
    return static_cast<unsigned>((static_cast<uint64_t>(hi) << 32 | lo) >> (n & 31));
}
static inline unsigned __funnelshift_lc(unsigned lo, unsigned hi, unsigned n)
{
    n = n < 32 ? n : 32;
    return static_cast<unsigned>(((static_cast<uint64_t>(hi) << 32 | lo) << n) >> 32);
}
static inline unsigned __funnelshift_rc(unsigned lo, unsigned hi, unsigned n)
{
    n = n < 32 ? n : 32;
    return static_cast<unsigned>((static_cast<uint64_t>(hi) << 32 | lo) >> n);
}
static inline unsigned __byte_perm(unsigned a, unsigned b, unsigned selector)
{
    uint64_t bytes = static_cast<uint64_t>(b) << 32 | a;
    unsigned r = 0;
    for (unsigned i = 0; i < 4; i++) {
        r |= static_cast<unsigned>((bytes >> (8 * ((selector >> (4 * i)) & 7))) & 255) << (8 * i);
    }
    return r;
}
static inline int __mulhi(int a, int b)
{
    return static_cast<int>((static_cast<int64_t>(a) * b) >> 32);
}
static inline unsigned __umulhi(unsigned a, unsigned b)
{
    return static_cast<unsigned>((static_cast<uint64_t>(a) * b) >> 32);
}
static inline unsigned long long __umul64hi(unsigned long long a, unsigned long long b)
{
    return static_cast<unsigned long long>((static_cast<unsigned __int128>(a) * b) >> 64);
}
static inline int __dp4a(int a, int b, int c)
{
    unsigned sum = static_cast<unsigned>(c);
    for (int i = 0; i < 4; i++) {
        int x = static_cast<int8_t>(static_cast<unsigned>(a) >> (8 * i));
        int y = static_cast<int8_t>(static_cast<unsigned>(b) >> (8 * i));
        sum += static_cast<unsigned>(x * y);
    }
    return static_cast<int>(sum);
}
static inline unsigned __dp4a(unsigned a, unsigned b, unsigned c)
{
    for (int i = 0; i < 4; i++) {
        c += ((a >> (8 * i)) & 255) * ((b >> (8 * i)) & 255);
    }
    return c;
}
static inline unsigned emu_bytes(unsigned a, unsigned b, int (*f)(int, int))
{
    unsigned r = 0;
    for (int i = 0; i < 4; i++) {
        int x = static_cast<int>((a >> (8 * i)) & 255), y = static_cast<int>((b >> (8 * i)) & 255);
        r |= (static_cast<unsigned>(f(x, y)) & 255) << (8 * i);
    }
    return r;
}
static inline unsigned __vadd4(unsigned a, unsigned b)
{
    return emu_bytes(a, b, [](int x, int y) { return x + y; });
}
static inline unsigned __vsub4(unsigned a, unsigned b)
{
    return emu_bytes(a, b, [](int x, int y) { return x - y; });
}
static inline unsigned __vsubss4(unsigned a, unsigned b)
{
    return emu_bytes(a, b, [](int x, int y) {
        int d = static_cast<int8_t>(x) - static_cast<int8_t>(y);
        return d < -128 ? -128 : d > 127 ? 127 : d;
    });
}
static inline unsigned __vcmpeq4(unsigned a, unsigned b)
{
    return emu_bytes(a, b, [](int x, int y) { return x == y ? 255 : 0; });
}
static inline unsigned __vcmpne4(unsigned a, unsigned b)
{
    return ~__vcmpeq4(a, b);
}

/* --- bits of numbers --- */

template <class To, class From> static inline To emu_bits(From v)
{
    static_assert(sizeof(To) == sizeof(From), "of one size");
    To r;
    memcpy(&r, &v, sizeof r);
    return r;
}
static inline int __float_as_int(float v)
{
    return emu_bits<int>(v);
}
static inline unsigned __float_as_uint(float v)
{
    return emu_bits<unsigned>(v);
}
static inline float __int_as_float(int v)
{
    return emu_bits<float>(v);
}
static inline float __uint_as_float(unsigned v)
{
    return emu_bits<float>(v);
}
static inline long long __double_as_longlong(double v)
{
    return emu_bits<long long>(v);
}
static inline double __longlong_as_double(long long v)
{
    return emu_bits<double>(v);
}

/* Conversions to integers clamp, and NaN gives 0, as on the device. */
template <class I> static inline I emu_to_integer(double v)
{
    constexpr bool is_signed = static_cast<I>(-1) < 0;
    constexpr int bits = 8 * static_cast<int>(sizeof(I)) - (is_signed ? 1 : 0);
    constexpr I most = static_cast<I>(~static_cast<unsigned long long>(0) >> (64 - bits));
    if (!(v == v)) {
        return 0;
    }
    if (v >= ldexp(1.0, bits)) {
        return most;
    }
    double low = is_signed ? -ldexp(1.0, bits) : 0;
    return v <= low ? static_cast<I>(low) : static_cast<I>(v);
}
#define EMU_TO_INTEGER(from, type, to, name)                                                       \
    static inline type __##from##2##to##_rn(name v)                                                \
    {                                                                                              \
        return emu_to_integer<type>(nearbyint(static_cast<double>(v)));                            \
    }                                                                                              \
    static inline type __##from##2##to##_rz(name v)                                                \
    {                                                                                              \
        return emu_to_integer<type>(trunc(static_cast<double>(v)));                                \
    }                                                                                              \
    static inline type __##from##2##to##_rd(name v)                                                \
    {                                                                                              \
        return emu_to_integer<type>(floor(static_cast<double>(v)));                                \
    }                                                                                              \
    static inline type __##from##2##to##_ru(name v)                                                \
    {                                                                                              \
        return emu_to_integer<type>(ceil(static_cast<double>(v)));                                 \
    }
EMU_TO_INTEGER(float, int, int, float)
EMU_TO_INTEGER(float, unsigned, uint, float)
EMU_TO_INTEGER(double, int, int, double)
EMU_TO_INTEGER(double, unsigned, uint, double)
#undef EMU_TO_INTEGER
static inline float __int2float_rn(int v)
{
    return static_cast<float>(v);
}
static inline float __uint2float_rn(unsigned v)
{
    return static_cast<float>(v);
}
static inline float __ull2float_rn(unsigned long long v)
{
    return static_cast<float>(v);
}
static inline double __ull2double_rn(unsigned long long v)
{
    return static_cast<double>(v);
}
static inline float __double2float_rn(double v)
{
    return static_cast<float>(v);
}

/* --- arithmetic; fast forms are the exact ones here --- */

/* the host's mathematics library has names of its own that begin so */
#define __expf emu_expf
#define __exp10f emu_exp10f
#define __logf emu_logf
#define __log2f emu_log2f
#define __log10f emu_log10f
#define __sinf emu_sinf
#define __cosf emu_cosf
#define __tanf emu_tanf
#define __tanhf emu_tanhf
#define __powf emu_powf
#define __sincosf emu_sincosf

#define EMU_FLOAT1(name, expression)                                                               \
    static inline float name(float x)                                                              \
    {                                                                                              \
        return expression;                                                                         \
    }
#define EMU_FLOAT2(name, expression)                                                               \
    static inline float name(float x, float y)                                                     \
    {                                                                                              \
        return expression;                                                                         \
    }
EMU_FLOAT1(emu_expf, expf(x))
EMU_FLOAT1(emu_exp10f, powf(10.0f, x))
EMU_FLOAT1(emu_logf, logf(x))
EMU_FLOAT1(emu_log2f, log2f(x))
EMU_FLOAT1(emu_log10f, log10f(x))
EMU_FLOAT1(emu_sinf, sinf(x))
EMU_FLOAT1(emu_cosf, cosf(x))
EMU_FLOAT1(emu_tanf, tanf(x))
EMU_FLOAT1(emu_tanhf, tanhf(x))
EMU_FLOAT1(__frcp_rn, 1.0f / x)
EMU_FLOAT1(__fsqrt_rn, sqrtf(x))
EMU_FLOAT1(__frsqrt_rn, static_cast<float>(1.0 / sqrt(static_cast<double>(x))))
EMU_FLOAT1(rsqrtf, static_cast<float>(1.0 / sqrt(static_cast<double>(x))))
EMU_FLOAT1(__saturatef, x > 0 ? (x < 1 ? x : 1.0f) : 0.0f)
EMU_FLOAT2(emu_powf, powf(x, y))
EMU_FLOAT2(__fdividef, x / y)
EMU_FLOAT2(__fdiv_rn, x / y)
EMU_FLOAT2(__fadd_rn, x + y)
EMU_FLOAT2(__fsub_rn, x - y)
EMU_FLOAT2(__fmul_rn, x *y)
#undef EMU_FLOAT1
#undef EMU_FLOAT2
static inline float __fmaf_rn(float x, float y, float z)
{
    return fmaf(x, y, z);
}
static inline double __dadd_rn(double x, double y)
{
    return x + y;
}
static inline double __dmul_rn(double x, double y)
{
    return x * y;
}
static inline double __fma_rn(double x, double y, double z)
{
    return fma(x, y, z);
}
static inline double rsqrt(double x)
{
    return 1.0 / sqrt(x);
}
static inline void emu_sincosf(float x, float *s, float *c)
{
    *s = sinf(x);
    *c = cosf(x);
}
#define CUDART_INF_F __builtin_inff()
#define CUDART_NAN_F __builtin_nanf("")

static inline bool __isShared(const void *)
{
    return true;
}
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
};

/* Takes run(args), of bytes copied, onto the stream (or into the graph that it captures). */
void emu_enqueue(const emu_config &config,
                 void (*run)(const void *arguments),
                 const void *arguments,
                 size_t bytes,
                 size_t align);

template <class T> struct emu_same {
    typedef T type;
};
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
    emu_arguments<P...> arguments;
    static void run(const void *self)
    {
        const emu_call *c = static_cast<const emu_call *>(self);
        c->arguments.call(c->kernel);
    }
};

/* Arguments are turned into the kernel's parameters and copied now; it runs later. */
template <class... P>
static inline void emu_launch(const char *name,
                              dim3 grid,
                              dim3 block,
                              size_t shared_bytes,
                              cudaStream_t stream,
                              void (*kernel)(P...),
                              typename emu_same<P>::type... arguments)
{
    emu_call<P...> call{kernel, emu_pack<P...>(arguments...)};
    emu_config config{
        name, reinterpret_cast<const void *>(kernel), grid, block, shared_bytes, stream};
    emu_enqueue(config, emu_call<P...>::run, &call, sizeof call, alignof(emu_call<P...>));
}

#endif
