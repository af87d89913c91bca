/* A warp's 32 lanes in lockstep. Lanes that are at different instructions are groups; the one that
 * is at the lowest runs, and takes up others when it reaches them, so that lanes meet again where
 * ways join. Who needs lanes that are elsewhere waits for them; if all wait, that is a fault. */
#include "ptx.h"

#include <algorithm>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

void fault(const warp &w, int lane, const char *format, ...)
{
    const insn &i = *w.now;
    const function &f = *w.fn;
    const block &b = *w.in;
    const uint32_t t = w.n * LANES + static_cast<uint32_t>(lane);
    const std::string &text = f.of->text;
    const auto file = f.of->files.find(i.file);
    const size_t end = std::min(text.find(';', i.text), i.text + size_t(300));
    va_list args;
    fflush(stdout);
    fprintf(stderr,
            "ptx: %s, block %u %u %u, thread %u %u %u: ",
            f.name.c_str(),
            b.at[0],
            b.at[1],
            b.at[2],
            t % b.size[0],
            t / b.size[0] % b.size[1],
            t / b.size[0] / b.size[1]);
    va_start(args, format);
    vfprintf(stderr, format, args);
    va_end(args);
    fprintf(stderr,
            "\n    %s:%u: %s\n",
            file == f.of->files.end() ? "?" : file->second.c_str(),
            i.line,
            text.substr(i.text, end - i.text).c_str());
    fflush(stderr);
    _exit(97);
}

/* --- groups --- */

/* The group that runs steps back among the others, and the lowest that does not wait goes on. */
static void regroup(warp &w)
{
    std::vector<group> &o = w.others;
    if (w.mask)
        o.push_back({w.pc, w.mask, GOES_ON});
    w.mask = 0;
    if (o.empty()) {
        w.state = warp::DONE;
        return;
    }
    std::sort(o.begin(), o.end(), [](const group &a, const group &b) { return a.pc < b.pc; });
    size_t n = 0;
    for (size_t k = 0; k < o.size(); k++) {
        if (n && o[n - 1].pc == o[k].pc) {
            o[n - 1].mask |= o[k].mask;
            o[n - 1].waits = GOES_ON; /* those who waited look again */
        } else {
            o[n++] = o[k];
        }
    }
    o.resize(n);
    size_t next = 0;
    bool parks = false;
    for (; next < n && o[next].waits; next++)
        parks |= o[next].waits == FOR_A_PHASE;
    if (next == n && parks) { /* other warps bring phases to their ends */
        w.state = warp::PARKED;
        return;
    }
    if (next == n)
        fault(w,
              __builtin_ctz(o[0].mask),
              "lanes %08x wait here for others of %08x, which do not come",
              o[0].mask,
              w.live);
    w.pc = o[next].pc;
    w.mask = o[next].mask;
    o.erase(o.begin() + static_cast<ptrdiff_t>(next));
    w.stop = o.empty() ? UINT32_MAX : o[0].pc;
}

bool lanes_meet(warp &w, uint32_t mask, uint32_t want)
{
    if (mask == want) {
        if (w.fn->has_bulk && want == w.live)
            bulk_lanes_met(w);
        return true;
    }
    if (mask & ~want)
        fault(w, __builtin_ctz(mask & ~want), "a lane that is not among those of %08x", want);
    if (want & ~w.live)
        fault(w,
              __builtin_ctz(mask),
              "lanes %08x are needed, of which %08x are not there or gone",
              want,
              want & ~w.live);
    if (mask != w.mask)
        fault(w,
              __builtin_ctz(mask),
              "lanes %08x are needed, but a predicate leaves out %08x",
              want,
              want & ~mask);
    w.again = FOR_LANES;
    return false;
}

void warp_branch(warp &w, const insn &i, uint32_t mask)
{
    const uint32_t rest = w.mask & ~mask, to = static_cast<uint32_t>(i.plus[0]);
    if (rest) {
        w.others.push_back({w.pc, rest, GOES_ON});
        w.mask = mask;
        w.stop = std::min(w.stop, w.pc);
    }
    w.pc = to;
}

void warp_exit(warp &w, const insn &, uint32_t mask)
{
    for (const copy_on_its_way &c : w.copies) {
        if (mask >> c.lane & 1)
            fault(w, static_cast<int>(c.lane), "the thread ends before its cp.async is waited for");
    }
    if (!w.reads.empty())
        fault(w, 0, "the warp ends before its wgmma is waited for");
    if (mask & w.early)
        fault(w, __builtin_ctz(mask & w.early), "the thread ends before griddepcontrol.wait");
    w.live &= ~mask;
    w.mask &= ~mask;
    for (group &g : w.others) /* who waited for these looks again */
        g.waits = GOES_ON;
    if (!w.mask)
        regroup(w);
}

void warp_barrier(warp &w, const insn &i, uint32_t mask)
{
    if (!lanes_meet(w, mask, w.live))
        return;
    w.barrier = *w.at<uint32_t>(i.op[0]);
    w.barrier_threads = i.n_src > 1 ? *w.at<uint32_t>(i.op[1]) : w.in->n_threads;
    if (w.barrier > 15 || w.barrier_threads % LANES)
        fault(w, 0, "barrier %u of %u threads", w.barrier, w.barrier_threads);
    w.state = warp::AT_BARRIER;
}

void warp_sync(warp &w, const insn &i, uint32_t mask)
{
    const uint32_t *want = w.at<uint32_t>(i.op[0]);
    const int first = __builtin_ctz(mask);
    if (lanes_meet(w, mask, want[first] & w.live) && w.fn->has_bulk && mask == w.live)
        bulk_lanes_join(w);
}

void warp_wait_before(warp &w, const insn &, uint32_t mask)
{
    w.early &= ~mask;
}

/* --- running --- */

void warp_start(warp &w, uint32_t live)
{
    const function &f = *w.fn;
    if (!w.file) {
        w.file.reset(new uint8_t[f.file.size()]);
        w.defined.reset(new uint32_t[f.units]);
        w.local.resize(static_cast<size_t>(f.local) * LANES);
        memcpy(w.file.get(), f.file.data(), f.file.size());
    }
    memcpy(w.defined.get(), f.defined.data(), f.units * sizeof *w.defined.get());
    w.pc = 0;
    w.mask = w.live = live;
    w.stop = UINT32_MAX;
    w.state = warp::RUNS;
    w.again = GOES_ON;
    w.early = w.in->early ? live : 0;
    memset(w.committed, 0, sizeof w.committed);
    w.fences = w.proxy_fences = w.fenced_after = w.n_under_way = w.uncommitted = 0;
    w.products = 0;
    w.moment = 1;
    if (f.has_bulk)
        w.known.assign(size_t(LANES) * w.in->n_known, 0);
    if (f.has_wgmma) {
        w.written.assign(f.units, 0);
        w.under_way.assign(f.units, 0);
    }
    for (const special &s : f.specials) {
        uint32_t *v = w.at<uint32_t>(s.place);
        const block &b = *w.in;
        for (uint32_t l = 0; l < LANES; l++) {
            const uint32_t t = w.n * LANES + l;
            const uint32_t tid[] = {
                t % b.size[0], t / b.size[0] % b.size[1], t / b.size[0] / b.size[1]};
            const int axis = s.name.back() - 'x';
            v[l] = s.name == "%laneid"               ? l
                   : s.name == "%warpid"             ? w.n
                   : s.name == "%lanemask_lt"        ? (1u << l) - 1
                   : s.name.rfind("%tid.", 0) == 0   ? tid[axis]
                   : s.name.rfind("%ntid.", 0) == 0  ? b.size[axis]
                   : s.name.rfind("%ctaid.", 0) == 0 ? b.at[axis]
                                                     : b.grid[axis]; /* %nctaid */
        }
    }
}

/* Beside the marks of what is defined: what belongs to products under way, and what was written
 * after the last wgmma.fence. A move hands both on, as it becomes no instruction. */
static void watch_products(warp &w, const insn &i)
{
    if (i.flags & INSN_WGMMA)
        return; /* tensor.cpp looks itself */
    const bool moves = i.flags & INSN_SPREADS && i.n_dst == 1 && i.n_src == 1;
    for (int k = 0; k < i.n_dst; k++) {
        const uint32_t d = i.op[k];
        if (w.under_way[d])
            fault(w, 0, "a register of a wgmma is written before it was waited for");
        w.written[d] = moves ? w.written[i.op[1]] : w.fences;
        if (moves && w.under_way[i.op[1]] == 2) {
            w.under_way[d] = 2;
            w.n_under_way++;
        }
    }
    for (int k = i.n_dst; w.n_under_way && k < i.n_dst + i.n_src; k++) {
        if (w.under_way[i.op[k]] == 2 && !moves)
            fault(w, 0, "what a wgmma computes is read before it was waited for");
    }
}

static void undefined(warp &w, const insn &i, uint32_t lanes, int k)
{
    if (i.flags & INSN_SPREADS)
        return;
    fault(w, __builtin_ctz(lanes), "operand %d was never written (lanes %08x)", k, lanes);
}

void warp_run(warp &w)
{
    const insn *code = w.fn->code.data();
    uint32_t *defined = w.defined.get();
    const bool products = w.fn->has_wgmma;
    if (w.state == warp::PARKED) { /* who waits for phases looks again */
        w.state = warp::RUNS;
        for (group &g : w.others)
            g.waits = g.waits == FOR_A_PHASE ? GOES_ON : g.waits;
        regroup(w);
    }
    while (w.state == warp::RUNS) {
        const insn &i = code[w.pc];
        uint32_t m = w.mask, spread = ALL_LANES;
        w.now = &i;
        if (i.guard) {
            if (m & ~defined[i.guard])
                fault(w, __builtin_ctz(m & ~defined[i.guard]), "its predicate was never written");
            m &= *w.at<uint32_t>(i.guard) ^ i.flip;
        }
        w.pc++;
        if (m) {
            for (int k = i.n_dst; k < i.n_dst + i.n_src; k++) {
                if (m & ~defined[i.op[k]]) {
                    undefined(w, i, m & ~defined[i.op[k]], k);
                    spread &= defined[i.op[k]];
                }
            }
            if (products)
                watch_products(w, i);
            i.run(w, i, m);
            if (w.again) { /* it comes back when others have come */
                w.others.push_back({w.pc - 1, w.mask, w.again});
                w.again = GOES_ON;
                w.mask = 0;
                regroup(w);
                continue;
            }
            for (int k = 0; k < i.n_dst; k++)
                defined[i.op[k]] = (defined[i.op[k]] & ~m) | (m & spread);
        }
        if (w.pc >= w.stop)
            regroup(w);
    }
}
