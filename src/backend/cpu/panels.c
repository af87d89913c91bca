/* A phase of matrices: which worker multiplies which panels.
 *
 * CPU_ROW_BLOCK rows meet each panel once, so there are as many passes over the panels as blocks of
 * rows; all passes make one line, of which every worker has a share of its own:
 *
 *     | worker 0 ->           | worker 1 ->           | worker 2 ->           |
 *                 taken from the front             by others from the end
 *
 * A worker takes pieces from the front of its share, one behind the other, so that it reads one
 * long stream that nothing interrupts, and knows beforehand where that begins (cpu_ask_ahead). Who
 * has no more takes pieces from the end of others' shares. So all end together, also where one is
 * slower or put aside by the system, and nobody waits for more than the piece another has in hand.
 */
#include "backend/cpu/cpu.h"
#include "backend/cpu/experts.h"
#include "backend/cpu/run.h"

#include <assert.h>
#include <inttypes.h>

enum {
    CHUNK_BYTES = 256 * 1024, /* of panels: they stay in the L2 cache meanwhile */
    MAX_CHUNK = 8,            /* panels */
    STREAM_PANELS = 4,        /* that few rows read side by side, */
    STREAM_ROWS = 8,          /* at most so many */
    PAIR_PANELS = 2,          /* that more rows take at a time: one alone takes as long */
    EXPERT_PIECES = 4,        /* a worker, of experts that few rows meet, at least */
    ASK_BYTES = 256,          /* of each, asked for at a look */
    MAX_ASK_BYTES = 64 * 1024,
    PANEL_BITS = 24,
};

#define PANEL_MASK ((UINT64_C(1) << PANEL_BITS) - 1)

/* A share's word is tag | begin | end, of PANEL_BITS each but the tag. One with another tag than
 * the phase at hand has not been touched in it, and is whole: whoever leaves a phase has looked at
 * all shares, so a tag is never older than the phase of matrices before. */

uint32_t cpu_panel_chunk(const struct cpu_backend *b,
                         const struct phase *p,
                         uint32_t n_passes,
                         uint32_t n_workers)
{
    const enum panel_format format = b->matrices[p->first].format;
    const bool once = b->kernels->act_kinds[format] & (ACT_TWO | ACT_HIGH); /* parts of K stay */
    uint32_t by_cache = once ? MAX_CHUNK : (uint32_t)(CHUNK_BYTES / p->panel_bytes);
    uint32_t by_balance = (uint32_t)((uint64_t)p->n_panels * n_passes / (n_workers * 16));
    uint32_t chunk = by_cache < by_balance ? by_cache : by_balance;
    chunk = chunk < MAX_CHUNK ? chunk : MAX_CHUNK;
    return chunk >= 4 ? chunk / 4 * 4 : chunk >= 2 ? 2 : 1;
}

/* Where few rows meet each expert memory decides, and nobody has asked for what a piece begins
 * with: so pieces are as long as balance allows, however few experts the rows share. */
uint32_t cpu_expert_chunk(const struct cpu_backend *b,
                          const struct phase *p,
                          uint32_t n_rows,
                          uint32_t n_workers)
{
    const struct model_hparams *hp = &b->model->hp;
    const uint32_t n_runs = experts_max_runs(hp, n_rows);
    const uint32_t chunk = cpu_panel_chunk(b, p, n_runs, n_workers);
    const uint64_t fewest = (uint64_t)p->n_panels * hp->n_expert_used; /* panels that there are */
    uint64_t longest = fewest / (n_workers * EXPERT_PIECES) / STREAM_PANELS * STREAM_PANELS;
    longest = longest < p->n_panels ? longest : p->n_panels;
    const bool few = (uint64_t)n_rows * hp->n_expert_used <= (uint64_t)STREAM_ROWS * n_runs;
    return few && longest > chunk ? (uint32_t)longest : chunk;
}

/* Where the share of a worker begins, and the one before it ends. */
static uint32_t share_begin(uint32_t n_panels, uint32_t worker, uint32_t n_workers)
{
    const uint32_t at = (uint32_t)((uint64_t)n_panels * worker / n_workers);
    return worker < n_workers ? at / STREAM_PANELS * STREAM_PANELS : n_panels;
}

static uint32_t n_passes(uint32_t n_rows)
{
    return n_rows / CPU_ROW_BLOCK + (n_rows % CPU_ROW_BLOCK != 0);
}

enum err cpu_check_panels(const struct cpu_backend *b, struct err_info *e)
{
    const uint32_t few = b->cfg.max_logit_rows, n = b->cfg.max_rows > few ? b->cfg.max_rows : few;
    for (const struct phase *p = b->phases; p < b->phases + b->n_phases; p++) {
        const uint64_t times = p->kind == PHASE_LINEAR    ? n_passes(n)
                               : p->kind == PHASE_EXPERTS ? experts_max_runs(&b->model->hp, n)
                                                          : 0;
        if (p->n_panels * times > PANEL_MASK - 1)
            return err_set(e,
                           ERR_UNSUPPORTED,
                           "steps of %u rows are too many for matrices of %" PRIu64 " columns",
                           n,
                           (uint64_t)p->n_panels * PANEL_COLS);
    }
    return OK;
}

/* Panels that few rows of the phase read side by side. */
static uint32_t n_streams(const struct cpu_backend *b, const struct phase *p, uint32_t n_rows)
{
    const bool one = n_rows <= b->kernels->one_panel[b->matrices[p->first].format];
    return one && n_rows <= cpu_one_panel_rows(cpu_kernels_tuning(), cpu_act_lanes(n_rows))
               ? 1
               : STREAM_PANELS;
}

uint32_t cpu_divide_panels(const struct cpu_backend *b, struct phase *p, uint32_t n_rows)
{
    const uint32_t n_workers = pool_size(b->pool), passes = n_passes(n_rows);
    const uint32_t n = p->n_panels * passes;
    assert(n <= PANEL_MASK);
    p->chunk = cpu_panel_chunk(b, p, passes, n_workers);
    const uint32_t least = n_rows <= STREAM_ROWS ? STREAM_PANELS : PAIR_PANELS;
    p->chunk = p->chunk < least ? least : p->chunk;
    if (n_streams(b, p, n_rows) == 1)
        p->chunk = 1; /* so nobody waits long for the last piece */
    const uint32_t n_chunks = (n + p->chunk - 1) / p->chunk;
    return n_chunks < n_workers ? n_chunks : n_workers;
}

/* Panels first .. first + n - 1, counted over all matrices of the phase. */
static void run_panels(const struct cpu_backend *b,
                       const struct phase *p,
                       uint32_t first,
                       uint32_t n,
                       uint32_t first_row,
                       uint32_t n_rows,
                       uint32_t worker)
{
    const struct matrix *x = &b->matrices[p->first];
    for (; n > 0; x++) {
        if (first >= x->n_panels) {
            first -= x->n_panels;
            continue;
        }
        const uint32_t here = n < x->n_panels - first ? n : x->n_panels - first;
        const uint32_t col = first * PANEL_COLS;
        const struct linear_job job = {
            .panels = x->panels + first * x->panel_bytes,
            .panel_bytes = x->panel_bytes,
            .n_panels = here,
            .n_cols = x->n_out - col < here * PANEL_COLS ? x->n_out - col : here * PANEL_COLS,
            .act = &x->act,
            .act_lanes = cpu_act_lanes(cpu_phase_rows(b, p)),
            .first_row = first_row,
            .n_rows = n_rows,
            .prefetch = cpu_kernels_prefetch(n_rows),
            .tuning = cpu_kernels_tuning(),
            .scratch = b->linear_scratch + (size_t)worker * LINEAR_SCRATCH_BYTES,
            .out = b->bufs[x->out] + x->out_first + col,
            .out_stride = b->stride[x->out],
            .scale = x->scale,
            .bias = x->bias ? x->bias + col : NULL,
            .add = x->add,
        };
        b->kernels->linear[x->format](&job);
        n -= here;
        first = 0;
    }
}

/* A piece of a share, from its front or end: a quarter of what is left, in whole chunks; or where
 * these are single panels, which taking takes time from, half of its own. Its first panel, and how
 * many; none: 0. */
static uint32_t take(struct cpu_backend *b,
                     const struct phase *p,
                     uint32_t n_panels,
                     uint32_t share,
                     bool front,
                     uint32_t *n)
{
    const uint32_t n_workers = pool_size(b->pool), parts = front && p->chunk == 1 ? 2 : 4;
    const uint64_t phase = b->n_runs_begun * b->n_phases + (uint64_t)(p - b->phases);
    const uint64_t tag = phase << 2 * PANEL_BITS;
    atomic_uint_least64_t *left = &b->shares[share].left;
    uint64_t old = atomic_load_explicit(left, memory_order_relaxed), now;
    do {
        uint32_t begin = (uint32_t)(old >> PANEL_BITS & PANEL_MASK), end = old & PANEL_MASK;
        if ((old ^ tag) >> 2 * PANEL_BITS) {
            begin = share_begin(n_panels, share, n_workers);
            end = share_begin(n_panels, share + 1, n_workers);
        }
        *n = (end - begin) / parts / p->chunk * p->chunk;
        *n = *n ? *n : p->chunk < end - begin ? p->chunk : end - begin;
        if (front)
            begin += *n;
        else
            end -= *n;
        now = tag | (uint64_t)begin << PANEL_BITS | end;
    } while (now != old && !atomic_compare_exchange_weak_explicit(
                               left, &old, now, memory_order_relaxed, memory_order_relaxed));
    return front ? (uint32_t)(now >> PANEL_BITS & PANEL_MASK) - *n : now & PANEL_MASK;
}

void cpu_run_panels(struct cpu_backend *b, const struct phase *p, uint32_t worker)
{
    const uint32_t n_rows = cpu_phase_rows(b, p), n_workers = pool_size(b->pool);
    const uint32_t n_panels = p->n_panels * n_passes(n_rows);
    for (uint32_t i = 0; i < n_workers; i++) {
        const uint32_t share = worker + i < n_workers ? worker + i : worker + i - n_workers;
        for (uint32_t n, at; at = take(b, p, n_panels, share, i == 0, &n), n > 0;) {
            for (uint32_t here; n > 0; n -= here, at += here) {
                const uint32_t panel = at % p->n_panels, to_end = p->n_panels - panel;
                const uint32_t row = at / p->n_panels * CPU_ROW_BLOCK, left = n_rows - row;
                here = n < to_end ? n : to_end;
                run_panels(
                    b, p, panel, here, row, left < CPU_ROW_BLOCK ? left : CPU_ROW_BLOCK, worker);
            }
        }
    }
}

/* The beginning of its own share, some lines of each of the panels that are read side by side, or
 * one behind the other. That is for steps of one pass: in others it lies elsewhere, but those do
 * not wait for memory. */
bool cpu_ask_ahead(void *backend, uint32_t phase, uint32_t look, uint32_t worker)
{
    const struct cpu_backend *b = backend;
    const struct phase *p = &b->phases[phase + 1], *end = b->phases + b->n_phases;
    while (p < end &&
           (p->kind != PHASE_LINEAR || !pool_has_items(b->pool, (uint32_t)(p - b->phases))))
        p++;
    if (p == end)
        return false;
    const uint32_t n_rows = atomic_load_explicit(&b->n_rows, memory_order_relaxed);
    const uint32_t n = n_streams(b, p, n_rows), longer = STREAM_PANELS / n;
    const size_t step = (size_t)longer * ASK_BYTES, at = look * step;
    if (at >= (size_t)longer * MAX_ASK_BYTES)
        return false;
    const struct matrix *x = &b->matrices[p->first];
    uint32_t panel = share_begin(p->n_panels, worker, pool_size(b->pool));
    for (; panel >= x->n_panels; x++)
        panel -= x->n_panels;
    if (at >= x->panel_bytes * (n == 1 ? x->n_panels - panel : 1))
        return false;
    const uint8_t *from = x->panels + panel * x->panel_bytes + at;
    for (uint32_t i = 0; i < n && panel + i < x->n_panels; i++) {
        for (size_t l = 0; l < step; l += 64)
            __builtin_prefetch(from + i * x->panel_bytes + l, 0, 2);
    }
    return true;
}
