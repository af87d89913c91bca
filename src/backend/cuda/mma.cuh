/* The instructions that CUDA C++ has no words for: tensor cores' products, loads of their
 * fragments, and copies to shared memory that do not wait. Each has its form for the device (PTX,
 * from sm_80 on) and beside it the same for the host's compiler, where the lanes of a warp meet
 * (emu_meet) and fragments are taken apart by the layout that PTX defines:
 *
 *     g = lane / 4, t = lane % 4
 *     m16n8k16 (16 bits)   A 16 x 16   a[0]: row g,     columns 2t, 2t + 1    a[2]: columns + 8
 *                                      a[1]: row g + 8, columns 2t, 2t + 1    a[3]: columns + 8
 *                          B 16 x 8    b[0]: rows 2t, 2t + 1, column g        b[1]: rows + 8
 *                          D 16 x 8    d[0], d[1]: row g, columns 2t, 2t + 1  d[2], d[3]: row g + 8
 *
 * d += A B. The lower half of a register is the lower column (of A) or row (of B). All 32 lanes
 * call. The device adds a product's terms in an order of its own that depends on nothing but the
 * instruction; the emulated form adds them to d by rising k, each product exact. */
#ifndef WEIR_BACKEND_CUDA_MMA_CUH
#define WEIR_BACKEND_CUDA_MMA_CUH

#include "backend/cuda/gpu.h"

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <stdint.h>
#include <type_traits>

#if defined(__CUDACC__)

static __device__ __forceinline__ void mma_f16(float d[4], const uint32_t a[4], const uint32_t b[2])
{
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, "
                 "{%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

static __device__ __forceinline__ void mma_bf16(float d[4],
                                                const uint32_t a[4],
                                                const uint32_t b[2])
{
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, "
                 "{%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

static __device__ __forceinline__ uint32_t mma_shared_address(const void *p)
{
    return static_cast<uint32_t>(__cvta_generic_to_shared(p));
}

static __device__ __forceinline__ void ldmatrix_x4(uint32_t r[4], const void *row)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(mma_shared_address(row))
                 : "memory");
}
static __device__ __forceinline__ void ldmatrix_x4_trans(uint32_t r[4], const void *row)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(mma_shared_address(row))
                 : "memory");
}

/* N words that nobody reads again soon, nor any kernel writes: past the nearest cache. */
#define MMA_ONCE ".L1::no_allocate.L2::256B"
template <int N> static __device__ __forceinline__ void load_words_once(const void *p, uint32_t *w)
{
    if constexpr (N == 4)
        asm volatile("ld.global.nc" MMA_ONCE ".v4.u32 {%0, %1, %2, %3}, [%4];"
                     : "=r"(w[0]), "=r"(w[1]), "=r"(w[2]), "=r"(w[3])
                     : "l"(__cvta_generic_to_global(p)));
    else if constexpr (N == 2)
        asm volatile("ld.global.nc" MMA_ONCE ".v2.u32 {%0, %1}, [%2];"
                     : "=r"(w[0]), "=r"(w[1])
                     : "l"(__cvta_generic_to_global(p)));
    else
        asm volatile("ld.global.nc" MMA_ONCE ".u32 %0, [%1];"
                     : "=r"(w[0])
                     : "l"(__cvta_generic_to_global(p)));
}
/* N words that no kernel writes, if they are wanted; else w is nothing. Without a branch, which
 * what is asked for behind it would not pass. */
#define MMA_IF(wanted) "{.reg .pred p; setp.ne.u32 p, " wanted ", 0; @p "
template <int N, bool ONCE>
static __device__ __forceinline__ void load_words_if(uint32_t wanted, const void *p, uint32_t *w)
{
    const size_t at = __cvta_generic_to_global(p);
    if constexpr (N == 4 && ONCE)
        asm volatile(MMA_IF("%4") "ld.global.nc" MMA_ONCE ".v4.u32 {%0, %1, %2, %3}, [%5];}"
                     : "=r"(w[0]), "=r"(w[1]), "=r"(w[2]), "=r"(w[3])
                     : "r"(wanted), "l"(at));
    else if constexpr (N == 4)
        asm volatile(MMA_IF("%4") "ld.global.nc.v4.u32 {%0, %1, %2, %3}, [%5];}"
                     : "=r"(w[0]), "=r"(w[1]), "=r"(w[2]), "=r"(w[3])
                     : "r"(wanted), "l"(at));
    else if constexpr (N == 2 && ONCE)
        asm volatile(MMA_IF("%2") "ld.global.nc" MMA_ONCE ".v2.u32 {%0, %1}, [%3];}"
                     : "=r"(w[0]), "=r"(w[1])
                     : "r"(wanted), "l"(at));
    else if constexpr (N == 2)
        asm volatile(MMA_IF("%2") "ld.global.nc.v2.u32 {%0, %1}, [%3];}"
                     : "=r"(w[0]), "=r"(w[1])
                     : "r"(wanted), "l"(at));
    else if constexpr (ONCE)
        asm volatile(MMA_IF("%1") "ld.global.nc" MMA_ONCE ".u32 %0, [%2];}"
                     : "=r"(w[0])
                     : "r"(wanted), "l"(at));
    else
        asm volatile(MMA_IF("%1") "ld.global.nc.u32 %0, [%2];}"
                     : "=r"(w[0])
                     : "r"(wanted), "l"(at));
}

/* 16 bytes, both ends aligned to 16; from_global of them read (16 or 0), the rest zero. */
static __device__ __forceinline__ void cp_async_16_fill(void *shared,
                                                        const void *global,
                                                        uint32_t from_global)
{
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;"
                 :
                 : "r"(mma_shared_address(shared)), "l"(global), "r"(from_global)
                 : "memory");
}
static __device__ __forceinline__ void cp_async_16(void *shared, const void *global)
{
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;"
                 :
                 : "r"(mma_shared_address(shared)), "l"(global)
                 : "memory");
}
static __device__ __forceinline__ void cp_async_commit()
{
    asm volatile("cp.async.commit_group;" ::: "memory");
}
/* Until at most so many of this thread's groups are on their way; others' need a barrier too. */
template <int groups_left> static __device__ __forceinline__ void cp_async_wait()
{
    asm volatile("cp.async.wait_group %0;" : : "n"(groups_left) : "memory");
}

#else

template <int N> static inline void load_words_once(const void *p, uint32_t *w)
{
    for (int i = 0; i < N; i++) {
        w[i] = static_cast<const uint32_t *>(p)[i];
    }
}
template <int N, bool ONCE>
static inline void load_words_if(uint32_t wanted, const void *p, uint32_t *w)
{
    if (wanted)
        load_words_once<N>(p, w);
}

struct mma_operands {
    float *d;
    const uint32_t *a, *b;
};

template <class T> EMU_REGISTERS static inline float mma_half_of(uint16_t bits)
{
    return std::is_same<T, __half>::value ? emu_f16_to_f32(bits) : emu_bf16_to_f32(bits);
}

/* d[m][n] += a[m][k] * b[k][n] by rising k, or as devices add; least: emu_tensor_sum. */
EMU_REGISTERS static inline void mma_sum(void *const slots[32],
                                         const float (&a)[16][16],
                                         const float (&b)[16][8],
                                         int least)
{
    float d[16][8];
    for (int lane = 0; lane < 32; lane++) {
        const mma_operands *o = static_cast<const mma_operands *>(slots[lane]);
        for (int i = 0; i < 4; i++) {
            d[lane / 4 + i / 2 * 8][lane % 4 * 2 + i % 2] = o->d[i];
        }
    }
    for (int i = 0; emu_cuts_off() && i < 16 * 8; i++) {
        d[i / 8][i % 8] = emu_tensor_sum(d[i / 8][i % 8], a[i / 8], 1, &b[0][i % 8], 8, 16, least);
    }
    /* eight sums at a time, or each would wait for itself */
    for (int m = 0; m < 16 && !emu_cuts_off(); m += 8) {
        for (int k = 0; k < 16; k++) {
            for (int i = m; i < m + 8; i++) {
                for (int n = 0; n < 8; n++) {
                    d[i][n] += a[i][k] * b[k][n];
                }
            }
        }
    }
    for (int lane = 0; lane < 32; lane++) {
        const mma_operands *o = static_cast<const mma_operands *>(slots[lane]);
        for (int i = 0; i < 4; i++) {
            o->d[i] = d[lane / 4 + i / 2 * 8][lane % 4 * 2 + i % 2];
        }
    }
}

template <class T> EMU_REGISTERS static void mma_16_all(void *const slots[32], unsigned)
{
    uint16_t ah[16][16], bh[8][16]; /* bh: [n][k] */
    for (int lane = 0; lane < 32; lane++) {
        const mma_operands *o = static_cast<const mma_operands *>(slots[lane]);
        int g = lane / 4, t = lane % 4;
        memcpy(&ah[g][t * 2], &o->a[0], 4);
        memcpy(&ah[g + 8][t * 2], &o->a[1], 4);
        memcpy(&ah[g][t * 2 + 8], &o->a[2], 4);
        memcpy(&ah[g + 8][t * 2 + 8], &o->a[3], 4);
        memcpy(&bh[g][t * 2], &o->b[0], 4);
        memcpy(&bh[g][t * 2 + 8], &o->b[1], 4);
    }
    float a[16][16], b[16][8];
    for (int i = 0; i < 256; i++) {
        a[i / 16][i % 16] = mma_half_of<T>(ah[i / 16][i % 16]);
    }
    for (int n = 0; n < 8; n++) {
        for (int k = 0; k < 16; k++) {
            b[k][n] = mma_half_of<T>(bh[n][k]);
        }
    }
    mma_sum(slots, a, b, std::is_same<T, __half>::value ? -14 : -126);
}

static inline void mma_f16(float d[4], const uint32_t a[4], const uint32_t b[2])
{
    mma_operands o = {d, a, b};
    emu_meet("mma f16", 0xffffffffu, &o, mma_16_all<__half>);
}
static inline void mma_bf16(float d[4], const uint32_t a[4], const uint32_t b[2])
{
    mma_operands o = {d, a, b};
    emu_meet("mma bf16", 0xffffffffu, &o, mma_16_all<__nv_bfloat16>);
}

/* The rows of matrix i come from lanes 8i .. 8i + 7. */
struct mma_rows {
    uint32_t *r;
    const void *row;
};
template <bool trans> static void ldmatrix_all(void *const slots[32], unsigned)
{
    for (int i = 0; i < 4; i++) {
        uint16_t m[8][8];
        for (int j = 0; j < 8; j++) {
            const void *row = static_cast<const mma_rows *>(slots[i * 8 + j])->row;
            if (reinterpret_cast<uintptr_t>(row) % 16) {
                emu_error("ldmatrix: a row that is not aligned to 16 bytes");
            }
            memcpy(m[j], row, sizeof m[j]);
        }
        for (int lane = 0; lane < 32; lane++) {
            int g = lane / 4, t = lane % 4 * 2;
            uint32_t low = trans ? m[t][g] : m[g][t], high = trans ? m[t + 1][g] : m[g][t + 1];
            static_cast<const mma_rows *>(slots[lane])->r[i] = low | high << 16;
        }
    }
}
static inline void ldmatrix_x4(uint32_t r[4], const void *row)
{
    mma_rows m = {r, row};
    emu_meet("ldmatrix", 0xffffffffu, &m, ldmatrix_all<false>);
}
static inline void ldmatrix_x4_trans(uint32_t r[4], const void *row)
{
    mma_rows m = {r, row};
    emu_meet("ldmatrix", 0xffffffffu, &m, ldmatrix_all<true>);
}

static inline void cp_async_16_fill(void *shared, const void *global, uint32_t from_global)
{
    emu_copy_async(shared, global, 16, from_global);
}
static inline void cp_async_16(void *shared, const void *global)
{
    emu_copy_async(shared, global, 16, 16);
}
static inline void cp_async_commit()
{
    emu_copy_commit();
}
template <int groups_left> static inline void cp_async_wait()
{
    emu_copy_wait(groups_left);
}

#endif

#endif
