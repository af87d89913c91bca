/* What all kernels for a tile unit (AMX) share: its registers, what its products of bf16 do, its
 * peaks. */
#include <immintrin.h>

#define AMX __attribute__((target("amx-tile,amx-int8,amx-bf16,avx512bf16")))
#define AMX_INLINE AMX INLINE

enum {
    AMX_ROWS = 16,
    AMX_C = AMX_ROWS * PANEL_COLS, /* values of a C */
    AMX_TILE_BYTES = 1024,         /* of an A, B or C */
};

/* What a tile register is: ldtilecfg's operand. */
struct amx_config {
    uint8_t palette, start_row, reserved[14];
    uint16_t row_bytes[16];
    uint8_t rows[16];
};

/* 0..3: C; 4, 5: A of 16 rows each; 6, 7: B. */
static const struct amx_config amx_config_64 = {
    .palette = 1,
    .row_bytes = {64, 64, 64, 64, 64, 64, 64, 64},
    .rows = {16, 16, 16, 16, 16, 16, 16, 16},
};

/* Between instructions of the unit compilers must leave what stands there; nor do they see what
 * tiles are loaded from or stored to. */
#define AMX_STAY __asm__ volatile("" ::: "memory")

/* The upper 16 bits of a float: what a bf16 has of it, such as u of an f16. */
INLINE vf amx_upper(vf w)
{
    const __m512i upper = _mm512_set1_epi32((int)0xffff0000);
    return _mm512_castsi512_ps(_mm512_and_si512(_mm512_castps_si512(w), upper));
}

/* The upper halves of two, as pairs. */
INLINE vb amx_pairs(vf first, vf second)
{
    const vb from = _mm512_set4_epi32(0x0f0e, 0x0b0a, 0x0706, 0x0302);
    return _mm512_mask_shuffle_epi8(
        _mm512_castps_si512(second), 0x3333333333333333, _mm512_castps_si512(first), from);
}

/* The first or the second of a pair of bf16, in all lanes. */
INLINE vf amx_of_pair(const uint16_t *pair, const bool second)
{
    const vi both = _mm512_set1_epi32(load_i32(pair));
    const vi upper = _mm512_set1_epi32((int)0xffff0000);
    return _mm512_castsi512_ps(second ? _mm512_and_si512(both, upper)
                                      : _mm512_slli_epi32(both, 16));
}

/* Vectors flush what is too small to 0, as the unit does. */
static void amx_flushing(const struct linear_job *j, void (*run)(const struct linear_job *j))
{
    enum { FLUSH = 0x8040 }; /* results, operands */
    const unsigned before = _mm_getcsr();
    _mm_setcsr(before | FLUSH);
    run(j);
    _mm_setcsr(before);
}

/* Full tiles, as many independent sums as there are registers. */
AMX static double amx_peak(uint64_t n)
{
    _Alignas(64) int8_t ones[1024];
    memset(ones, 1, sizeof ones);
    __asm__ volatile("" ::: "memory");
    _tile_loadconfig(&amx_config_64);
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
    _tile_loadd(4, ones, 64);
    _tile_loadd(5, ones, 64);
    for (uint64_t r = 0; r < n / 8; r++) { /* rounds of other kernels are that much shorter */
        _tile_dpbssd(0, 4, 5);
        _tile_dpbssd(1, 4, 5);
        _tile_dpbssd(2, 4, 5);
        _tile_dpbssd(3, 4, 5);
    }
    _tile_release();
    return (double)(n / 8) * 4 * 16 * 16 * 64 * 2;
}

/* As amx_peak, of what takes 32 of K. */
AMX static double amx_peak_bf16(uint64_t n)
{
    _Alignas(64) uint16_t halves[512];
    for (uint32_t i = 0; i < 512; i++)
        halves[i] = 0x3f00; /* 0.5 */
    AMX_STAY;
    _tile_loadconfig(&amx_config_64);
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
    _tile_loadd(4, halves, 64);
    _tile_loadd(5, halves, 64);
    for (uint64_t r = 0; r < n / 8; r++) {
        _tile_dpbf16ps(0, 4, 5);
        _tile_dpbf16ps(1, 4, 5);
        _tile_dpbf16ps(2, 4, 5);
        _tile_dpbf16ps(3, 4, 5);
    }
    _tile_release();
    return (double)(n / 8) * 4 * 16 * 16 * 32 * 2;
}
