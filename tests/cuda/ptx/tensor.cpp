/* What a whole warp computes: ldmatrix, mma.m16n8k16, and wgmma.m64nNk16 of four warps.
 *
 * With g = lane / 4 and t = lane % 4, from the PTX ISA (matrix fragments of m16n8k16, register
 * fragments of wgmma):
 *
 *      A   register 0: row g, columns 2t, 2t + 1    1: row g + 8, the same
 *          register 2, 3: those rows, columns 2t + 8, 2t + 9
 *      B   register 0: rows 2t, 2t + 1 of column g  1: rows 2t + 8, 2t + 9
 *      D   register 0, 1: row g, columns 2t, 2t + 1 2, 3: row g + 8
 *
 * A product's 16 terms and what they are added to are summed in double and rounded once: as exact
 * as a device may be, and as none is known to be. */
#include "half.h"
#include "ptx.h"

#include <algorithm>
#include <string.h>

namespace
{

template <bool bf> float value(uint16_t h)
{
    return bf ? f32_of_bf16(h) : f32_of_f16(h);
}
uint16_t half_of(uint32_t pair, int upper)
{
    return static_cast<uint16_t>(pair >> 16 * upper);
}

/* A of a warp, 16 x 16, from four registers. */
template <bool bf> void take_a(const warp &w, const uint32_t *op, double a[16][16])
{
    for (int r = 0; r < 4; r++) {
        const uint32_t *x = w.at<uint32_t>(op[r]);
        for (int l = 0; l < LANES; l++) {
            for (int u = 0; u < 2; u++)
                a[l / 4 + r % 2 * 8][l % 4 * 2 + u + r / 2 * 8] = value<bf>(half_of(x[l], u));
        }
    }
}

/* d = c + a b, of 16 x 8; c may be missing. Four registers each. */
void multiply(const warp &w,
              const uint32_t *d,
              const uint32_t *c,
              const double (&a)[16][16],
              const double (&b)[16][8])
{
    double sum[16][8] = {};
    for (int r = 0; c && r < 4; r++) {
        const float *x = w.at<float>(c[r]);
        for (int l = 0; l < LANES; l++)
            sum[l / 4 + r / 2 * 8][l % 4 * 2 + r % 2] = x[l];
    }
    for (int m = 0; m < 16; m++) {
        for (int k = 0; k < 16; k++) {
            for (int n = 0; n < 8; n++)
                sum[m][n] += a[m][k] * b[k][n];
        }
    }
    for (int r = 0; r < 4; r++) {
        float *x = w.at<float>(d[r]);
        for (int l = 0; l < LANES; l++)
            x[l] = static_cast<float>(sum[l / 4 + r / 2 * 8][l % 4 * 2 + r % 2]);
    }
}

template <bool bf> void mma(warp &w, const insn &i, uint32_t m)
{
    if (!lanes_meet(w, m, ALL_LANES))
        return;
    double a[16][16], b[16][8];
    take_a<bf>(w, i.op + 4, a);
    for (int r = 0; r < 2; r++) {
        const uint32_t *x = w.at<uint32_t>(i.op[8 + r]);
        for (int l = 0; l < LANES; l++) {
            for (int u = 0; u < 2; u++)
                b[l % 4 * 2 + u + r * 8][l / 4] = value<bf>(half_of(x[l], u));
        }
    }
    multiply(w, i.op, i.op + 10, a, b);
}

/* Matrix k's rows are at the addresses of lanes 8k .. 8k + 7; register k of a lane is row g,
 * columns 2t and 2t + 1, or that of the transposed matrix. */
template <bool trans> void ldmatrix(warp &w, const insn &i, uint32_t m)
{
    if (!lanes_meet(w, m, ALL_LANES))
        return;
    uint8_t *row[LANES];
    uint32_t r[4][LANES];
    lanes_at(w, i, m, 4, 0, {SHARED, 16, false}, row);
    for (int k = 0; k < 4; k++) {
        for (int l = 0; l < LANES; l++) {
            uint16_t h[2];
            for (int u = 0; u < 2; u++) {
                const int g = l / 4, c = l % 4 * 2 + u;
                memcpy(&h[u], row[8 * k + (trans ? c : g)] + 2 * (trans ? g : c), 2);
            }
            r[k][l] = static_cast<uint32_t>(h[1]) << 16 | h[0];
        }
    }
    for (int k = 0; k < 4; k++)
        memcpy(w.at<uint32_t>(i.op[k]), r[k], sizeof r[k]);
}

/* --- wgmma --- */

/* A piece of B, 8 columns by 16 bytes of K, that the async proxy reads. */
const uint8_t *piece(warp &w, uint64_t address)
{
    block &b = *w.in;
    const uint64_t offset = address - SHARED_BASE;
    if (address < SHARED_BASE || offset + 128 > b.shared.size())
        fault(w,
              0,
              "wgmma: its descriptor leads to shared memory at %lld of %zu",
              static_cast<long long>(offset),
              b.shared.size());
    shared_settled(w, 0, static_cast<uint32_t>(offset), 128);
    if (w.fn->has_bulk)
        bulk_read(w, 0, static_cast<uint32_t>(offset), 128);
    for (uint64_t g = offset / GRANULE; g < (offset + 128) / GRANULE; g++) {
        granule &s = b.granules[g];
        s.reader = static_cast<uint8_t>(w.n + 1);
        s.read_after = b.barriers;
        if (s.state == granule::NOTHING || s.state == granule::BULK)
            continue; /* columns that nobody reads may be of anything; bulk_read looked */
        if (s.warp != w.n && s.barriers == b.barriers)
            fault(w,
                  0,
                  "wgmma reads shared memory at %llu, which warp %u wrote, with no barrier "
                  "since",
                  static_cast<unsigned long long>(g * GRANULE),
                  s.warp);
        if (!proxy_fenced(w, s))
            fault(w,
                  0,
                  "wgmma reads shared memory at %llu with no fence.proxy.async since it was "
                  "written",
                  static_cast<unsigned long long>(g * GRANULE));
    }
    w.reads.push_back({static_cast<uint32_t>(offset), static_cast<uint32_t>(offset + 128)});
    return b.shared.data() + offset;
}

/* Registers that a product takes: written before a fence, or by products before it. */
void check_registers(warp &w, const uint32_t *op, int n, const char *what)
{
    for (int k = 0; k < n; k++) {
        if (!w.under_way[op[k]] && w.written[op[k]] >= w.fences)
            fault(w,
                  0,
                  "wgmma: register %d of %s was written and no wgmma.fence came since",
                  k,
                  what);
    }
}

/* Half as many of D as columns, 4 of A, the descriptor of B, whether D is added, three numbers.
 * The descriptor: bits 0-13 the address, 16-29 from one piece to the next along K, 32-45 along the
 * columns, all by 16 bytes; 62-63 how it is swizzled, here not at all. */
template <bool bf> void wgmma(warp &w, const insn &i, uint32_t m)
{
    if (!lanes_meet(w, m, ALL_LANES))
        return;
    const uint32_t *a_at = i.op + i.n_dst, *rest = a_at + 4;
    const uint64_t *desc = w.at<uint64_t>(rest[0]);
    const uint32_t added = *w.at<uint32_t>(rest[1]);
    for (int l = 1; l < LANES; l++) {
        if (desc[l] != desc[0])
            fault(w, l, "wgmma: its descriptor is not that of lane 0");
    }
    if (desc[0] & ~0x00003fff3fff3fffull)
        fault(w,
              0,
              "wgmma: a descriptor that is not understood, %016llx",
              static_cast<unsigned long long>(desc[0]));
    if (added != 0 && added != ALL_LANES)
        fault(w, 0, "wgmma: lanes do not agree whether to add");
    if (*w.at<uint32_t>(rest[2]) != 1 || *w.at<uint32_t>(rest[3]) != 1 ||
        *w.at<uint32_t>(rest[4]) != 0)
        fault(w, 0, "wgmma: signs or a transposed B, which are not understood");
    check_registers(w, a_at, 4, "A");
    if (added)
        check_registers(w, i.op, i.n_dst, "D");
    const uint64_t start = (desc[0] & 0x3fff) << 4, along_k = (desc[0] >> 16 & 0x3fff) << 4;
    const uint64_t along_n = (desc[0] >> 32 & 0x3fff) << 4;
    double a[16][16], b[16][8];
    w.in->open += w.reads.empty();
    take_a<bf>(w, a_at, a);
    for (uint32_t n = 0; n < i.n_dst / 4u; n++) {
        for (uint32_t k = 0; k < 2; k++) {
            const uint8_t *p = piece(w, start + along_n * n + along_k * k);
            for (int j = 0; j < 64; j++) {
                uint16_t h;
                memcpy(&h, p + j * 2, 2);
                b[k * 8 + j % 8][j / 8] = value<bf>(h);
            }
        }
        multiply(w, i.op + 4 * n, added ? i.op + 4 * n : nullptr, a, b);
    }
    /* what belongs to it until it is waited for */
    for (int k = 0; k < i.n_dst + 4; k++) {
        w.n_under_way += !w.under_way[i.op[k]];
        w.under_way[i.op[k]] = k < i.n_dst ? 2 : w.under_way[i.op[k]] == 2 ? 2 : 1;
    }
    w.uncommitted++;
    w.products = (w.products ^ desc[0] ^ w.pc) * 0x9e3779b97f4a7c15u;
}

} // namespace

void mma_f16(warp &w, const insn &i, uint32_t m)
{
    mma<false>(w, i, m);
}
void mma_bf16(warp &w, const insn &i, uint32_t m)
{
    mma<true>(w, i, m);
}
void ldmatrix_x4(warp &w, const insn &i, uint32_t m)
{
    ldmatrix<false>(w, i, m);
}
void ldmatrix_x4_trans(warp &w, const insn &i, uint32_t m)
{
    ldmatrix<true>(w, i, m);
}
void wgmma_f16(warp &w, const insn &i, uint32_t m)
{
    wgmma<false>(w, i, m);
}
void wgmma_bf16(warp &w, const insn &i, uint32_t m)
{
    wgmma<true>(w, i, m);
}

void wgmma_fence(warp &w, const insn &, uint32_t m)
{
    if (lanes_meet(w, m, ALL_LANES))
        w.fences++;
}

void wgmma_commit(warp &w, const insn &, uint32_t m)
{
    if (lanes_meet(w, m, ALL_LANES))
        w.uncommitted = 0;
}

/* Of all groups: to wait for some of them only is not understood. */
void wgmma_wait(warp &w, const insn &i, uint32_t m)
{
    if (!lanes_meet(w, m, ALL_LANES))
        return;
    if (*w.at<uint32_t>(i.op[0]) != 0)
        fault(w, 0, "wgmma.wait_group of some groups, which is not understood");
    if (w.uncommitted)
        fault(w, 0, "wgmma.wait_group beside products that were not committed");
    w.in->open -= !w.reads.empty();
    for (const range &r : w.reads) /* over before the lanes met here */
        bulk_read_until(w, r, w.moment - 1);
    w.reads.clear();
    std::fill(w.under_way.begin(), w.under_way.end(), 0);
    w.n_under_way = 0;
}

bool proxy_fenced(const warp &w, const granule &s)
{
    return w.in->warps[s.warp]->proxy_fences > s.fences ||
           (w.proxy_fences && w.fenced_after > s.barriers);
}

/* Of all that this thread wrote before, and read after. */
void fence_proxy(warp &w, const insn &, uint32_t m)
{
    if (!lanes_meet(w, m, w.live))
        return;
    w.proxy_fences++;
    w.fenced_after = w.in->barriers;
}
