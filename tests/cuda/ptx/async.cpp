/* mbarriers, and the bulk copies that they count.
 *
 * A copy's bytes are there at once; who may touch them is another matter. A warp counts moments: a
 * new one begins where its lanes meet. What it does bears the moment, what a copy brings bears the
 * mbarrier and its phase; and each lane knows, of each warp and mbarrier, up to where all is over:
 *
 *      lane's knowledge   [warp 0] .. [warp n - 1] [mbarrier 0] .. [mbarrier 31]
 *
 *      arrives            the mbarrier gathers what the lane knows
 *      a phase ends       it tells that, and that the phase is over, who waits for it
 *      bar.sync           all lanes of all warps that are there know what any of them did
 *      bar.warp.sync      the same of a warp
 *
 * So a copy over what is still read, or a read of what was not waited for, is found in whatever
 * order warps run. A lane that arrives for its warp speaks of what the warp did till its lanes met
 * last. Reads are known by GRANULE bytes and warp. */
#include "ptx.h"

#include <algorithm>
#include <string.h>

enum { MOST_MBARRIERS = 32, MOST_COUNTED = (1 << 20) - 1 };

typedef std::vector<uint32_t> knowledge;

static void learn(uint32_t *to, const uint32_t *from, uint32_t n)
{
    for (uint32_t k = 0; k < n; k++)
        to[k] = std::max(to[k], from[k]);
}

static uint32_t *known_by(warp &w, int lane)
{
    return w.known.data() + static_cast<size_t>(lane) * w.in->n_known;
}

void bulk_start(block &b)
{
    b.n_known = static_cast<uint32_t>(b.warps.size()) + MOST_MBARRIERS;
    b.mbarriers.clear();
    b.read.assign(b.granules.size() * b.warps.size(), 0);
}

/* --- who knows what --- */

/* All lanes of these warps know what any of them does. */
static void join(block &b, const std::vector<warp *> &warps)
{
    knowledge all(b.n_known);
    for (const warp *w : warps) {
        for (int l = 0; l < LANES; l++)
            learn(all.data(), w->known.data() + static_cast<size_t>(l) * b.n_known, b.n_known);
    }
    for (warp *w : warps) {
        for (int l = 0; l < LANES; l++)
            memcpy(known_by(*w, l), all.data(), all.size() * sizeof all[0]);
    }
}

void bulk_lanes_met(warp &w)
{
    w.moment++;
    for (int l = 0; l < LANES; l++)
        known_by(w, l)[w.n] = w.moment;
}

void bulk_lanes_join(warp &w)
{
    join(*w.in, {&w});
}

void bulk_joins(block &b, uint32_t barrier)
{
    std::vector<warp *> there;
    for (warp *w : b.warps) {
        if (w->state == warp::AT_BARRIER && w->barrier == barrier)
            there.push_back(w);
    }
    join(b, there);
}

/* --- mbarriers --- */

/* The one whose address is operand `op`. */
static mbarrier &mbarrier_at(warp &w, const insn &i, unsigned op, int n, int l)
{
    const uint64_t at = address_of(w, i, op, n, l) - SHARED_BASE;
    for (mbarrier &b : w.in->mbarriers) {
        if (b.at != at)
            continue;
        if (known_by(w, l)[b.warp] <= b.moment && (b.warp != w.n || b.lane != uint32_t(l)))
            fault(w,
                  l,
                  "the mbarrier at %u, which thread %u made, is used with no barrier since",
                  b.at,
                  b.warp * LANES + b.lane);
        return b;
    }
    fault(w, l, "no mbarrier was made at %lld", static_cast<long long>(at));
}

void mbarrier_init(warp &w, const insn &i, uint32_t m)
{
    block &b = *w.in;
    const uint32_t *arrivals = w.at<uint32_t>(i.op[1]);
    uint8_t *host[LANES];
    lanes_at(w, i, m, 0, 0, {SHARED, 8, true}, host);
    for (uint32_t l = 0; l < LANES; l++) {
        if (!(m >> l & 1))
            continue;
        if (arrivals[l] < 1 || arrivals[l] > MOST_COUNTED || b.mbarriers.size() == MOST_MBARRIERS)
            fault(w,
                  static_cast<int>(l),
                  "an mbarrier of %u arrivals, beside %zu",
                  arrivals[l],
                  b.mbarriers.size());
        mbarrier n = {};
        n.at = static_cast<uint32_t>(host[l] - b.shared.data());
        n.warp = w.n, n.lane = l, n.moment = w.moment;
        n.arrivals = n.left = arrivals[l];
        n.gathers.resize(b.n_known);
        b.mbarriers.push_back(n);
    }
}

void mbarrier_fence(warp &w, const insn &, uint32_t m)
{
    for (mbarrier &b : w.in->mbarriers)
        b.fenced |= b.warp == w.n && m >> b.lane & 1;
}

static void end_phase(block &b, mbarrier &n)
{
    b.moves = true;
    if (n.left || n.bytes)
        return;
    n.left = n.arrivals;
    n.phase++;
    n.gathers[b.warps.size() + static_cast<size_t>(&n - b.mbarriers.data())] = n.phase;
    n.told = n.gathers;
}

/* With two operands, the second is how many bytes more this phase expects. */
void mbarrier_arrive(warp &w, const insn &i, uint32_t m)
{
    const uint32_t *bytes = i.n_src > 1 ? w.at<uint32_t>(i.op[2]) : nullptr;
    w.moment += m == w.live; /* each speaks for itself */
    for (int l = 0; l < LANES; l++) {
        if (!(m >> l & 1))
            continue;
        mbarrier &b = mbarrier_at(w, i, 1, 0, l);
        b.bytes += bytes ? bytes[l] : 0;
        if (b.left == 0 || b.bytes > MOST_COUNTED)
            fault(w,
                  l,
                  "the mbarrier at %u, of %u arrivals, %u of them left, expects %lld bytes",
                  b.at,
                  b.arrivals,
                  b.left,
                  static_cast<long long>(b.bytes));
        learn(b.gathers.data(), known_by(w, l), w.in->n_known);
        if (m == w.live)
            b.gathers[w.n] = w.moment;
        b.left--;
        end_phase(*w.in, b);
    }
}

/* Lanes wait here until the phase is over for one of them; the others try again. */
void mbarrier_try_wait(warp &w, const insn &i, uint32_t m)
{
    const uint32_t *parity = w.at<uint32_t>(i.op[2]);
    uint32_t over = 0, *d = w.at<uint32_t>(i.op[0]);
    for (int l = 0; l < LANES; l++) {
        if (!(m >> l & 1))
            continue;
        mbarrier &b = mbarrier_at(w, i, 1, 0, l);
        if (parity[l] > 1)
            fault(w, l, "mbarrier.try_wait for parity %u", parity[l]);
        if (b.phase % 2 == parity[l])
            continue;
        over |= 1u << l;
        learn(known_by(w, l), b.told.data(), static_cast<uint32_t>(b.told.size()));
        b.waited = b.phase;
    }
    *d = (*d & ~m) | over;
    if (!over)
        w.again = FOR_A_PHASE;
}

void bulk_never_over(warp &w)
{
    for (const group &g : w.others) {
        if (g.waits != FOR_A_PHASE)
            continue;
        const int l = __builtin_ctz(g.mask);
        const insn &i = w.fn->code[g.pc];
        w.now = &i;
        const mbarrier &b = mbarrier_at(w, i, 1, 0, l);
        fault(
            w,
            l,
            "all that is left of the block waits: phase %u of the mbarrier at %u never ends, %u of "
            "%u arrivals and %lld bytes are missing",
            b.phase,
            b.at,
            b.left,
            b.arrivals,
            static_cast<long long>(b.bytes));
    }
    fault(w, 0, "a phase that never ends");
}

void bulk_end(block &b)
{
    for (warp *w : b.warps) {
        if (w->state == warp::PARKED)
            bulk_never_over(*w);
    }
    for (const mbarrier &n : b.mbarriers) {
        if (n.bytes)
            fault(*b.warps[0],
                  0,
                  "the block ends, and %lld bytes that the mbarrier at %u expects never came",
                  static_cast<long long>(n.bytes),
                  n.at);
        if (n.copied > n.waited)
            fault(*b.warps[0],
                  0,
                  "the block ends before the bulk copies of the mbarrier at %u are waited for",
                  n.at);
    }
}

/* --- shared memory --- */

static void check_mbarriers(const warp &w, int lane, uint32_t offset, unsigned bytes)
{
    for (const mbarrier &b : w.in->mbarriers) {
        if (offset < b.at + 8 && offset + bytes > b.at)
            fault(w, lane, "shared memory at %u, where an mbarrier is", offset);
    }
}

/* What lies there may have come by a bulk copy that this lane does not know to be over. */
static void check_copies(warp &w, int lane, uint32_t g, const char *what)
{
    const block &b = *w.in;
    const granule &s = b.granules[g];
    if (s.state == granule::BULK && known_by(w, lane)[b.warps.size() + s.warp] <= s.moment)
        fault(
            w,
            lane,
            "shared memory at %u is %s before the bulk copy to it was waited for (phase %u of the "
            "mbarrier at %u)",
            g * GRANULE,
            what,
            s.moment,
            b.mbarriers[s.warp].at);
}

void bulk_read_until(warp &w, range r, uint32_t moment)
{
    for (uint32_t g = r.begin / GRANULE; w.fn->has_bulk && g <= (r.end - 1) / GRANULE; g++)
        w.in->read[g * w.in->warps.size() + w.n] = moment;
}

void bulk_read(warp &w, int lane, uint32_t offset, unsigned bytes)
{
    check_mbarriers(w, lane, offset, bytes);
    for (uint32_t g = offset / GRANULE; g <= (offset + bytes - 1) / GRANULE; g++)
        check_copies(w, lane, g, "read");
    bulk_read_until(w, {offset, offset + bytes}, w.moment);
}

void bulk_written(warp &w, int lane, uint32_t offset, unsigned bytes)
{
    check_mbarriers(w, lane, offset, bytes);
    for (uint32_t g = offset / GRANULE; g <= (offset + bytes - 1) / GRANULE; g++)
        check_copies(w, lane, g, "written");
}

/* Whether a copy that this lane begins may write there. */
static void check_target(warp &w, int lane, uint32_t g)
{
    const block &b = *w.in;
    const granule &s = b.granules[g];
    const uint32_t *known = known_by(w, lane);
    const uint32_t *read = b.read.data() + g * b.warps.size();
    check_copies(w, lane, g, "copied over");
    for (const warp *o : b.warps) {
        const auto here = [g](const range &r) {
            return g * GRANULE < r.end && (g + 1) * GRANULE > r.begin;
        };
        if (std::any_of(o->reads.begin(), o->reads.end(), here) ||
            (read[o->n] && known[o->n] <= read[o->n]))
            fault(w,
                  lane,
                  "a bulk copy over shared memory at %u, which nothing says that warp %u does not "
                  "read any more",
                  g * GRANULE,
                  o->n);
    }
    if (s.state != granule::WRITTEN && s.state != granule::COPIED && s.state != granule::COPYING)
        return;
    if (s.state == granule::COPYING || (known[s.warp] <= s.moment && s.warp != w.n))
        fault(w,
              lane,
              "a bulk copy over shared memory at %u, which warp %u writes, with no barrier since",
              g * GRANULE,
              s.warp);
    if (!proxy_fenced(w, s))
        fault(w,
              lane,
              "a bulk copy over shared memory at %u with no fence.proxy.async since it was written",
              g * GRANULE);
}

/* To shared memory, from global memory, so many bytes, that an mbarrier counts. */
void bulk_copy(warp &w, const insn &i, uint32_t m)
{
    block &b = *w.in;
    const uint32_t *bytes = w.at<uint32_t>(i.op[2]);
    for (int l = 0; l < LANES; l++) {
        if (!(m >> l & 1))
            continue;
        const uint64_t to = address_of(w, i, 0, 0, l) - SHARED_BASE;
        const uint64_t from = address_of(w, i, 1, 1, l), n = bytes[l];
        mbarrier &on = mbarrier_at(w, i, 3, 2, l);
        if (to % 16 || from % 16 || n % 16)
            fault(w,
                  l,
                  "a bulk copy of %u bytes from %#llx to %lld, which are not multiples of 16",
                  bytes[l],
                  static_cast<unsigned long long>(from),
                  static_cast<long long>(to));
        if (to + n > b.shared.size() || to > b.shared.size())
            fault(w,
                  l,
                  "a bulk copy of %u bytes to shared memory at %lld of %zu",
                  bytes[l],
                  static_cast<long long>(to),
                  b.shared.size());
        if (!on.fenced)
            fault(w, l, "the mbarrier at %u, with no fence.mbarrier_init since", on.at);
        if (on.bytes < static_cast<int64_t>(n))
            fault(w,
                  l,
                  "a bulk copy of %u bytes, where the mbarrier at %u expects %lld more",
                  bytes[l],
                  on.at,
                  static_cast<long long>(on.bytes));
        global_settled(w, l, from, n);
        check_mbarriers(w, l, static_cast<uint32_t>(to), bytes[l]);
        for (uint64_t g = to / GRANULE; g < (to + n) / GRANULE; g++) {
            check_target(w, l, static_cast<uint32_t>(g));
            b.granules[g] = {granule::BULK,
                             static_cast<uint8_t>(&on - b.mbarriers.data()),
                             b.barriers,
                             0,
                             0,
                             0,
                             on.phase};
        }
        std::fill_n(b.read.begin() + static_cast<ptrdiff_t>(to / GRANULE * b.warps.size()),
                    n / GRANULE * b.warps.size(),
                    0);
        memcpy(b.shared.data() + to, reinterpret_cast<const uint8_t *>(from), n);
        on.bytes -= static_cast<int64_t>(n);
        on.copied = on.phase + 1;
        end_phase(b, on);
    }
}
