/* A launch: its limits, and its blocks, one after another. The warps of a block run in turn, each
 * till it comes to a barrier, a phase of an mbarrier that is not over, or its end. */
#include "ptx.h"

#include <algorithm>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

[[noreturn]] static void refused(const launch &l, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
static void refused(const launch &l, const char *format, ...)
{
    va_list args;
    fflush(stdout);
    fprintf(stderr,
            "ptx: a launch of %s, %u %u %u blocks of %u %u %u threads, %u bytes: ",
            l.fn->name.c_str(),
            l.grid[0],
            l.grid[1],
            l.grid[2],
            l.size[0],
            l.size[1],
            l.size[2],
            l.dynamic);
    va_start(args, format);
    vfprintf(stderr, format, args);
    va_end(args);
    fprintf(stderr, "\n");
    _exit(97);
}

static void check_limits(const launch &l)
{
    const uint64_t threads = uint64_t(1) * l.size[0] * l.size[1] * l.size[2];
    const uint32_t shared = (l.fn->shared + 15) / 16 * 16 + l.dynamic;
    if (threads == 0 || threads > l.fn->most_threads || l.size[2] > 64)
        refused(l, "its blocks may have 1 to %u threads", l.fn->most_threads);
    if (!l.grid[0] || !l.grid[1] || !l.grid[2] || l.grid[0] > 0x7fffffff || l.grid[1] > 65535 ||
        l.grid[2] > 65535)
        refused(l, "such a grid is none");
    if (l.dynamic > l.fn->dynamic_most)
        refused(l, "without cudaFuncSetAttribute it may have %u", l.fn->dynamic_most);
    if (shared > (device_capability() == 80 ? 163u : 227u) << 10)
        refused(l, "with %u of its own it is beyond what a block may have", l.fn->shared);
}

static bool released(block &b)
{
    bool any = false;
    for (warp *w : b.warps) {
        if (w->state != warp::AT_BARRIER)
            continue;
        uint32_t come = 0, gone = 0;
        for (const warp *o : b.warps) {
            if (o->state == warp::AT_BARRIER && o->barrier == w->barrier) {
                if (o->barrier_threads != w->barrier_threads)
                    fault(*w, 0, "warp %u is at the barrier with another count", o->n);
                come += LANES;
            }
            gone += o->state == warp::DONE ? LANES : 0;
        }
        const uint32_t all = w->barrier_threads == b.n_threads ? (b.n_threads + 31) / 32 * 32 - gone
                                                               : w->barrier_threads;
        if (come < all)
            continue;
        const uint32_t id = w->barrier;
        if (b.fn->has_bulk)
            bulk_joins(b, id);
        for (warp *o : b.warps) {
            if (o->state == warp::AT_BARRIER && o->barrier == id)
                o->state = warp::RUNS;
        }
        any = true;
    }
    b.barriers += any;
    return any;
}

static void run_block(block &b)
{
    std::fill(b.shared.begin(), b.shared.end(), 0xff); /* NaN */
    if (b.tracks)
        b.granules.assign(b.shared.size() / GRANULE + 1, granule());
    b.barriers = 0;
    b.open = 0;
    if (b.fn->has_bulk)
        bulk_start(b);
    for (uint32_t n = 0; n < b.warps.size(); n++) {
        const uint32_t left = b.n_threads - n * LANES;
        b.warps[n]->in = &b;
        b.warps[n]->n = n;
        warp_start(*b.warps[n], left < LANES ? (1u << left) - 1 : ALL_LANES);
    }
    do {
        b.moves = false;
        for (warp *w : b.warps)
            warp_run(*w);
    } while (released(b) || b.moves);
    if (b.fn->has_bulk)
        bulk_end(b);
    for (const warp *w : b.warps) {
        if (w->state != warp::DONE)
            fault(*w, 0, "a barrier that some threads never reach");
        if (w->products != b.warps[w->n / 4 * 4]->products)
            fault(*w, 0, "wgmma: the warps of a group did not issue the same products");
    }
}

void launch_run(const launch &l)
{
    function &f = *l.fn;
    block b = {};
    if (!f.decoded)
        function_decode(f);
    check_limits(l);
    b.fn = &f;
    b.params = l.params.data();
    memcpy(b.grid, l.grid, sizeof b.grid);
    memcpy(b.size, l.size, sizeof b.size);
    b.n_threads = l.size[0] * l.size[1] * l.size[2];
    b.shared.resize((f.shared + 15) / 16 * 16 + l.dynamic);
    b.granules.resize(b.shared.size() / GRANULE + 1);
    b.tracks = f.has_wgmma || f.has_bulk;
    b.early = l.early;
    std::vector<std::unique_ptr<warp>> warps;
    while (b.warps.size() * LANES < b.n_threads) {
        if (f.idle.empty())
            f.idle.push_back(std::make_unique<warp>());
        warps.push_back(std::move(f.idle.back()));
        f.idle.pop_back();
        warps.back()->fn = &f;
        b.warps.push_back(warps.back().get());
    }
    ranges_forget();
    for (b.at[2] = 0; b.at[2] < b.grid[2]; b.at[2]++) {
        for (b.at[1] = 0; b.at[1] < b.grid[1]; b.at[1]++) {
            for (b.at[0] = 0; b.at[0] < b.grid[0]; b.at[0]++)
                run_block(b);
        }
    }
    for (auto &w : warps)
        f.idle.push_back(std::move(w));
}
