/* Hopper's products of a warpgroup, m64n128k16 and m64n64k16: four warps of 16 outputs each, by 128
 * or 64 rows of activations (16 or 8 tiles). Beside the form for the device (PTX, sm_90a) stands
 * the emulated one, as in mma.cuh.
 *
 *      A  64 x 16    in registers: warp w has rows 16 w .. 16 w + 15, as the A of mma m16n8k16
 *      B  16 x rows  in shared memory, where the descriptor says: pieces of 8 rows by 8 of K, 128
 *                    bytes that lie together, a row of 16 bytes after the other
 *
 *                        K  0..7     8..15
 *            rows 0..7      piece    piece        `across` bytes to the right,
 *            rows 8..15     piece    piece        `down` bytes from one to the next below
 *
 *      D  64 x rows  in registers: d[j] of a lane is d of mma m16n8k16, of rows 8 j .. 8 j + 7
 *
 * A product is under way until wgmma_wait: till then its registers belong to it, and shared memory
 * that it reads must stay. The emulated form computes it there, so that who reads too soon, or
 * writes over what it reads, gets something else. What bulk copies brought is seen by products that
 * begin behind the wait for them (bulk.cuh).
 *
 * Order of sums: the emulated form's is mma's. A device's, within an instruction, is its own, and
 * nothing says that it is the one of its mma: wgmma_check.c asks before any product counts.
 *
 * Code for other devices has no such instruction: WGMMA_HERE is 0 and kernels that use it are
 * empty. */
#ifndef WEIR_BACKEND_CUDA_WGMMA_CUH
#define WEIR_BACKEND_CUDA_WGMMA_CUH

#include "backend/cuda/mma.cuh"

/* Of shared memory as 32-bit addresses count it. No swizzle. */
static __device__ __forceinline__ uint64_t wgmma_descriptor(uint32_t address,
                                                            uint32_t across,
                                                            uint32_t down)
{
    return static_cast<uint64_t>((address >> 4) & 0x3fff) |
           static_cast<uint64_t>((across >> 4) & 0x3fff) << 16 |
           static_cast<uint64_t>((down >> 4) & 0x3fff) << 32;
}

#if defined(__CUDACC__)

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
#define WGMMA_HERE 1

#define WGMMA_FOUR(x) "+f"((x)[0]), "+f"((x)[1]), "+f"((x)[2]), "+f"((x)[3])
#define WGMMA_8_TILES(d)                                                                           \
    WGMMA_FOUR((d)[0]), WGMMA_FOUR((d)[1]), WGMMA_FOUR((d)[2]), WGMMA_FOUR((d)[3]),                \
        WGMMA_FOUR((d)[4]), WGMMA_FOUR((d)[5]), WGMMA_FOUR((d)[6]), WGMMA_FOUR((d)[7])
#define WGMMA_16_TILES(d) WGMMA_8_TILES(d), WGMMA_8_TILES((d) + 8)
#define WGMMA_8(type)                                                                              \
    asm volatile("{.reg .pred p; setp.ne.b32 p, 1, 0; "                                            \
                 "wgmma.mma_async.sync.aligned.m64n64k16.f32." type "." type " {"                  \
                 "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "          \
                 "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, "     \
                 "%31}, {%32, %33, %34, %35}, %36, p, 1, 1, 0;}"                                   \
                 : WGMMA_8_TILES(d)                                                                \
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b))
#define WGMMA_16(type)                                                                             \
    asm volatile(                                                                                  \
        "{.reg .pred p; setp.ne.b32 p, 1, 0; "                                                     \
        "wgmma.mma_async.sync.aligned.m64n128k16.f32." type "." type " {"                          \
        "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "                   \
        "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, "         \
        "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, "         \
        "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63}, "        \
        "{%64, %65, %66, %67}, %68, p, 1, 1, 0;}"                                                  \
        : WGMMA_16_TILES(d)                                                                        \
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b))

#else
#define WGMMA_HERE 0
#define WGMMA_8(type) (void)d, (void)a, (void)b
#define WGMMA_16(type) (void)d, (void)a, (void)b
#endif

/* What is under way, of one accumulator of so many tiles. */
template <uint32_t TILES> struct wgmma_group {
};

static __device__ __forceinline__ uint32_t wgmma_address(const void *p)
{
    return mma_shared_address(p);
}
/* The compiler shall not move uses of these registers across. */
template <uint32_t TILES> static __device__ __forceinline__ void wgmma_hold(float (*d)[4])
{
#pragma unroll
    for (uint32_t i = 0; i < TILES; i++)
        asm volatile("" : "+f"(d[i][0]), "+f"(d[i][1]), "+f"(d[i][2]), "+f"(d[i][3])::"memory");
}
/* Before the first product after registers were written: d, and those of A, of four steps. */
template <uint32_t TILES>
static __device__ __forceinline__ void wgmma_begin(wgmma_group<TILES> &,
                                                   float (*d)[4],
                                                   uint32_t (*a)[4])
{
#if WGMMA_HERE
    wgmma_hold<TILES>(d);
#pragma unroll
    for (uint32_t i = 0; i < 16; i++)
        asm volatile("" : "+r"(a[i / 4][i % 4])::"memory");
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
#else
    (void)d, (void)a;
#endif
}
template <bool BF16, uint32_t TILES>
static __device__ __forceinline__ void wgmma_product(wgmma_group<TILES> &,
                                                     float (*d)[4],
                                                     const uint32_t a[4],
                                                     uint64_t b)
{
    static_assert(TILES == 8 || TILES == 16, "64 or 128 rows");
    if constexpr (TILES == 8 && BF16)
        WGMMA_8("bf16");
    else if constexpr (TILES == 8)
        WGMMA_8("f16");
    else if constexpr (BF16)
        WGMMA_16("bf16");
    else
        WGMMA_16("f16");
}
template <uint32_t TILES>
static __device__ __forceinline__ void wgmma_wait(wgmma_group<TILES> &, float (*d)[4])
{
#if WGMMA_HERE
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
    asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
    wgmma_hold<TILES>(d);
#else
    (void)d;
#endif
}

#else

#define WGMMA_HERE 1

struct wgmma_operands {
    float (*d)[4];
    uint32_t a[4];
    uint64_t b;
    bool bf16;
};
template <uint32_t TILES> struct wgmma_group {
    wgmma_operands products[8];
    uint32_t n = 0;
    bool begun = false;
};

static inline uint32_t wgmma_address(const void *p)
{
    return static_cast<uint32_t>(static_cast<const uint8_t *>(p) -
                                 static_cast<const uint8_t *>(emu_shared_memory()));
}

/* d[m][n] += a[m][k] * b[k][n] by rising k, or as devices add; least: emu_tensor_sum. */
template <int N>
EMU_REGISTERS static void wgmma_sum(float (&d)[16][N],
                                    const float (&a)[16][16],
                                    const float (&b)[16][N],
                                    int least)
{
    for (int i = 0; emu_cuts_off() && i < 16 * N; i++) {
        d[i / N][i % N] = emu_tensor_sum(d[i / N][i % N], a[i / N], 1, &b[0][i % N], N, 16, least);
    }
    for (int m = 0; m < 16 && !emu_cuts_off(); m++) {
        for (int i = 0; i < 16; i++) {
            const int k = emu_wgmma_backwards ? 15 - i : i;
            for (int n = 0; n < N; n++) {
                d[m][n] += a[m][k] * b[k][n];
            }
        }
    }
}

/* The 16 x 16 of A that a warp has and the 16 x 8 TILES of B, added to the lanes' d by rising k. */
template <uint32_t TILES> static void wgmma_all(void *const slots[32], unsigned)
{
    enum { ROWS = TILES * 8 };
    const wgmma_operands *first = static_cast<const wgmma_operands *>(slots[0]);
    uint16_t ah[16][16];
    float a[16][16], b[16][ROWS], d[16][ROWS];
    for (int lane = 0; lane < 32; lane++) {
        const wgmma_operands *p = static_cast<const wgmma_operands *>(slots[lane]);
        const int g = lane / 4, t = lane % 4;
        if (p->b != first->b || p->bf16 != first->bf16) {
            emu_error("wgmma: lanes 0 and %d have different operands", lane);
        }
        for (int i = 0; i < 4; i++) {
            memcpy(&ah[g + i % 2 * 8][t * 2 + i / 2 * 8], &p->a[i], 4);
        }
        for (int i = 0; i < ROWS / 8 * 4; i++) {
            d[g + i % 4 / 2 * 8][i / 4 * 8 + t * 2 + i % 2] = p->d[i / 4][i % 4];
        }
    }
    const uint8_t *shared = static_cast<const uint8_t *>(emu_shared_memory());
    const size_t at = (first->b & 0x3fff) << 4, across = (first->b >> 16 & 0x3fff) << 4;
    const size_t down = (first->b >> 32 & 0x3fff) << 4;
    if (first->b >> 46) {
        emu_error("wgmma: a descriptor with swizzle, %016llx", (unsigned long long)first->b);
    }
    for (int n = 0; n < ROWS; n++) {
        for (int k = 0; k < 16; k++) {
            uint16_t h;
            memcpy(&h, shared + at + n / 8 * down + k / 8 * across + n % 8 * 16 + k % 8 * 2, 2);
            b[k][n] = first->bf16 ? mma_half_of<__nv_bfloat16>(h) : mma_half_of<__half>(h);
        }
    }
    for (int i = 0; i < 256; i++) {
        const uint16_t h = ah[i / 16][i % 16];
        a[i / 16][i % 16] = first->bf16 ? mma_half_of<__nv_bfloat16>(h) : mma_half_of<__half>(h);
    }
    wgmma_sum(d, a, b, first->bf16 ? -126 : -14);
    for (int lane = 0; lane < 32; lane++) {
        const wgmma_operands *p = static_cast<const wgmma_operands *>(slots[lane]);
        for (int i = 0; i < ROWS / 8 * 4; i++) {
            p->d[i / 4][i % 4] = d[lane / 4 + i % 4 / 2 * 8][i / 4 * 8 + lane % 4 * 2 + i % 2];
        }
    }
}

template <uint32_t TILES>
static inline void wgmma_begin(wgmma_group<TILES> &g, float (*)[4], uint32_t (*)[4])
{
    g.begun = true;
}
template <bool BF16, uint32_t TILES>
static inline void wgmma_product(wgmma_group<TILES> &g,
                                 float (*d)[4],
                                 const uint32_t a[4],
                                 uint64_t b)
{
    if (!g.begun || g.n == 8) {
        emu_error("wgmma: a product without wgmma_begin, or too many");
    }
    g.products[g.n++] = {d, {a[0], a[1], a[2], a[3]}, b, BF16};
}
template <uint32_t TILES> static inline void wgmma_wait(wgmma_group<TILES> &g, float (*)[4])
{
    for (uint32_t i = 0; i < g.n; i++) {
        emu_meet("wgmma", 0xffffffffu, &g.products[i], wgmma_all<TILES>);
    }
    g.n = 0;
    g.begun = false;
}

#endif

#endif
