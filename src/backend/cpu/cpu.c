/* Making and ending the backend: memory, repacking, the table of operations. */
#include "backend/cpu/cpu.h"

#include "backend/carver.h"
#include "backend/cpu/attend.h"
#include "backend/cpu/experts.h"
#include "backend/cpu/limits.h"
#include "backend/cpu/panel.h"
#include "base/mem.h"
#include "gguf/gguf.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define HUGE_PAGE_BYTES ((size_t)2 << 20)
#define CARVE_BYTES 64 /* a line of the cache */

/* Zeroed memory, in huge pages where the system has them: weights are read from end to end for
 * every token, and with small pages each 4 KiB would cost a walk. */
static enum err map_memory(size_t n, const char *what, uint8_t **out, struct err_info *e)
{
    void *p = mmap(NULL, n, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED)
        return err_set(e, ERR_NOMEM, "no memory for %.1f MiB of %s", (double)n / (1 << 20), what);
    if (n >= HUGE_PAGE_BYTES)
        (void)madvise(p, n, MADV_HUGEPAGE);
    *out = p;
    return OK;
}

static size_t round_up(size_t n, size_t unit)
{
    return (n + unit - 1) / unit * unit;
}

/* Packed activations of so many rows, in all forms that the experts' matrices, or all the others,
 * read. */
static struct act carve_act(struct cpu_backend *b, struct carver *c, size_t rows, bool expert)
{
    uint32_t k = 0;
    size_t q_row = 0, two_row = 0, high_row = 0, sums_row = 0; /* bytes of a row of all heads */
    unsigned kinds = 0;
    for (uint32_t i = 0; i < b->n_matrices; i++) {
        const struct matrix *x = &b->matrices[i];
        if (x->expert != expert)
            continue;
        const uint32_t all = (x->n_in + x->n_in % 2) * (x->head + 1);
        k = all > k ? all : k;
        const size_t q = (x->head + 1) * act_q_stride(x->n_in);
        q_row = q > q_row ? q : q_row;
        const size_t two = (x->head + 1) * act_two_stride(x->n_in) * sizeof *b->act.two;
        two_row = two > two_row ? two : two_row;
        const size_t high = (x->head + 1) * act_high_stride(x->n_in) * sizeof *b->act.hi;
        high_row = high > high_row ? high : high_row;
        const size_t sums = (x->head + 1) * act_sums_stride(x->n_in) * sizeof *b->act.by128.sums;
        sums_row = sums > sums_row ? sums : sums_row;
        kinds |= cpu_act_kinds(b->kernels, x->format, LINEAR_MAX_ROWS);
    }
    rows = round_up(rows, ACT_TILE);
    const size_t q_rows = act_q_rows(rows);
    struct act a = {.k = k};
    a.x = carve(c, rows, kinds & ACT_F32 ? (size_t)k * sizeof(float) : 0);
    a.by32.q = carve(c, q_rows, kinds & ACT_INT8 ? q_row : 0);
    a.by128.q = carve(c, q_rows, kinds & ACT_INT8_128 ? q_row : 0);
    const size_t words_row = kinds & ACT_WORDS ? q_row * sizeof *a.by32.words : 0;
    a.by32.words = carve(c, q_rows, kinds & ACT_INT8 ? words_row : 0);
    a.by128.words = carve(c, q_rows, kinds & ACT_INT8_128 ? words_row : 0);
    a.two = carve(c, q_rows, kinds & ACT_TWO ? two_row : 0);
    a.hi = carve(c, q_rows, kinds & ACT_HIGH ? high_row : 0);
    a.bf16 = carve(c, rows, kinds & ACT_BF16 ? (size_t)(k + 1) * sizeof *a.bf16 : 0);
    a.by32.b = carve(c, rows, kinds & ACT_INT8 ? (size_t)(k / 32) * sizeof *a.by32.b : 0);
    a.by32.scale =
        carve(c, rows, kinds & ACT_INT8 ? (size_t)(k / 32) * ACT_PLANES * sizeof *a.by32.scale : 0);
    a.by128.b = carve(c, rows, kinds & ACT_INT8_128 ? (size_t)(k / 32) * sizeof *a.by128.b : 0);
    const size_t halves_row = (size_t)(k / 32) * sizeof(struct act_halves);
    a.by32.halves = carve(c, rows, kinds & ACT_INT8 ? halves_row : 0);
    a.by128.halves = carve(c, rows, kinds & ACT_INT8_128 ? halves_row : 0);
    a.by128.scale =
        carve(c, rows, kinds & ACT_INT8_128 ? (size_t)(k / SUPER_K) * sizeof *a.by128.scale : 0);
    const bool close = kinds & ACT_INT8_128 && kinds & ACT_CLOSE;
    a.by128.sums = carve(c, q_rows, close ? sums_row : 0);
    return a;
}

struct act cpu_act_of_head(const struct cpu_backend *b, struct act a, uint32_t head)
{
    const size_t before = head * b->act_rows;
    a.x += before * a.k;
    a.by32.q += head * act_q_bytes(a.k, b->act_rows);
    a.by128.q += head * act_q_bytes(a.k, b->act_rows);
    a.by32.words += head * act_q_bytes(a.k, b->act_rows);
    a.by128.words += head * act_q_bytes(a.k, b->act_rows);
    a.bf16 += before * (a.k + a.k % 2);
    a.two += head * (act_two_bytes(a.k, b->act_rows) / sizeof *a.two);
    a.hi += head * (act_high_bytes(a.k, b->act_rows) / sizeof *a.hi);
    a.by32.b += before * (a.k / 32);
    a.by32.scale += before * (a.k / 32) * ACT_PLANES;
    a.by128.b += before * (a.k / 32);
    a.by32.halves += before * (a.k / 32);
    a.by128.halves += before * (a.k / 32);
    a.by128.scale += before * (a.k / SUPER_K);
    a.by128.sums += head * act_q_rows(b->act_rows) * act_sums_stride(a.k);
    return a;
}

static void carve_experts(struct cpu_backend *b, struct carver *c)
{
    const struct model_hparams *hp = &b->model->hp;
    const size_t rows = b->cfg.max_rows, places = experts_max_places(hp, b->cfg.max_rows);
    b->expert_act = carve_act(b, c, places, true);
    b->experts = carve(c, rows, hp->n_expert_used * sizeof *b->experts);
    b->expert_weights = carve(c, rows, hp->n_expert_used * sizeof *b->expert_weights);
    b->places = carve(c, rows, hp->n_expert_used * sizeof *b->places);
    b->place_row = carve(c, places, sizeof *b->place_row);
    b->runs = carve(c, hp->n_expert, sizeof *b->runs);
}

/* Experts' buffers hold a row a place, each of one rank. */
static void carve_buffers(struct cpu_backend *b, struct carver *c)
{
    const struct model_hparams *hp = &b->model->hp;
    for (int i = 0; i < N_MODEL_BUFS; i++) {
        const bool expert = model_buf_of_experts((enum model_buf)i);
        const uint32_t width = b->model->buf_width[i];
        size_t rows = round_up(b->cfg.max_rows, ACT_TILE);
        if (i == BUF_LOGITS)
            rows = b->cfg.max_logit_rows;
        else if (expert)
            rows = experts_max_places(hp, b->cfg.max_rows);
        b->stride[i] = i == BUF_LOGITS ? width : round_up(width, 16);
        if (expert && width)
            b->stride[i] = round_up(width / hp->n_expert_used, 16);
        b->bufs[i] = carve(c, rows, b->stride[i] * sizeof(float));
    }
}

static void carve_tiles(struct carver *c, size_t rows, struct attn_tiles *tiles)
{
    tiles->tiles = carve(c, rows, sizeof *tiles->tiles);
    tiles->rows = carve(c, rows, sizeof *tiles->rows);
}

static void carve_workspace(struct cpu_backend *b, struct carver *c)
{
    const struct model_hparams *hp = &b->model->hp;
    const size_t rows = round_up(b->cfg.max_rows, ACT_TILE);
    carve_buffers(b, c);
    b->act_rows =
        round_up(b->cfg.max_rows > b->cfg.max_logit_rows ? b->cfg.max_rows : b->cfg.max_logit_rows,
                 ACT_TILE);
    b->act = carve_act(b, c, b->act_rows, false);
    carve_experts(b, c);
    b->angles = carve(c, rows * N_ROPE_TABLES, hp->rope_dims * 2 * sizeof(float));
    b->attn_scratch_stride = round_up(attn_scratch_floats(hp->head_dim), 16);
    b->attn_scratch = carve(c, pool_size(b->pool), b->attn_scratch_stride * sizeof(float));
    b->attn_sums_stride =
        round_up(attn_part_floats(hp->head_dim) + attn_open_floats(hp->head_dim), 16);
    b->attn_sums = carve(c, pool_size(b->pool), b->attn_sums_stride * sizeof(float));
    b->attn_parts = carve(c,
                          (size_t)pool_size(b->pool) * MAX_SPLIT_ITEMS,
                          attn_part_floats(hp->head_dim) * sizeof *b->attn_parts);
    b->attn_done = carve(c, (size_t)pool_size(b->pool) * MAX_SPLIT_ITEMS, sizeof *b->attn_done);
    b->linear_scratch = carve(c, pool_size(b->pool), LINEAR_SCRATCH_BYTES);
    b->shares = carve(c, pool_size(b->pool), sizeof *b->shares);
    b->n_items = carve(c, b->n_phases, sizeof *b->n_items);
    b->row_seq = carve(c, rows, sizeof *b->row_seq);
    carve_tiles(c, rows, &b->all_tiles);
    carve_tiles(c, rows, &b->kept_tiles);
    carve_tiles(c, rows, &b->all_shared);
    carve_tiles(c, rows, &b->kept_shared);
    b->by_table = carve(c, rows, sizeof *b->by_table);
    b->kept = carve(c, rows, sizeof *b->kept);
    b->logit_at = carve(c, b->cfg.max_logit_rows, sizeof *b->logit_at);
    b->hidden_at = carve(c, rows, sizeof *b->hidden_at);
}

static enum err alloc_workspace(struct cpu_backend *b, struct err_info *e)
{
    struct carver c = {.align = CARVE_BYTES};
    carve_workspace(b, &c);
    if (c.overflow)
        return err_set(e, ERR_NOMEM, "a workspace for %u rows is too large", b->cfg.max_rows);
    b->workspace_bytes = c.used;
    enum err err = map_memory(c.used, "workspace", &b->workspace, e);
    if (err)
        return err;
    c = (struct carver){.base = b->workspace, .align = CARVE_BYTES};
    carve_workspace(b, &c);
    for (uint32_t i = 0; i < b->n_matrices; i++) {
        struct matrix *x = &b->matrices[i];
        x->act = x->expert ? b->expert_act : b->act;
        x->act.k = x->n_in;
        x->act = cpu_act_of_head(b, x->act, x->head);
    }
    for (uint32_t i = 0; i < b->n_phases; i++) {
        const struct phase *p = &b->phases[i];
        for (uint32_t s = p->first; p->kind == PHASE_ROWS && s < p->first + p->n; s++) {
            b->steps[s].act = p->places ? b->expert_act : b->act;
            b->steps[s].act.k = b->steps[s].n;
        }
    }
    return OK;
}

/* How each layer that attends stores its heads. */
static void lay_out_kv(struct cpu_backend *b)
{
    const struct model_hparams *hp = &b->model->hp;
    b->layers = mem_zalloc(hp->n_layer, sizeof *b->layers);
    for (uint32_t i = 0; i < b->model->n_ops; i++) {
        const struct op *op = &b->model->ops[i];
        if (op->kind != OP_ATTENTION)
            continue;
        struct layer_kv *l = &b->layers[op->layer];
        struct kv_layout *kv = &l->kv;
        kv->type = b->cfg.kv_type;
        kv->head_dim = op->head_dim;
        kv->latent = hp->latent;
        kv->block_tokens = b->cfg.block_tokens;
        kv->half_bytes = kv_row_bytes(kv->type, op->head_dim) * kv->block_tokens;
        kv->head_bytes = (hp->latent ? 1 : 2) * kv->half_bytes;
        kv->block_bytes = kv->head_bytes * op->n_head_kv;
        l->in_panes = op->window > 0 && b->cfg.n_panes > 0;
    }
}

static enum err alloc_kv(struct cpu_backend *b, struct err_info *e)
{
    const uint32_t n_layer = b->model->hp.n_layer;
    lay_out_kv(b);
    for (uint32_t l = 0; l < n_layer; l++) {
        const uint32_t n = b->layers[l].in_panes ? b->cfg.n_panes : b->cfg.n_blocks;
        size_t bytes;
        if (!mem_mul(b->layers[l].kv.block_bytes, n, &bytes) ||
            !mem_add(b->kv_bytes, bytes, &b->kv_bytes))
            return err_set(e, ERR_NOMEM, "a KV cache of %u blocks is too large", n);
    }
    if (b->kv_bytes == 0) /* no layer attends */
        return OK;
    enum err err = map_memory(b->kv_bytes, "KV cache", &b->kv_memory, e);
    uint8_t *at = b->kv_memory;
    for (uint32_t l = 0; l < n_layer && !err; l++) {
        b->layers[l].base = at;
        at += b->layers[l].kv.block_bytes *
              (b->layers[l].in_panes ? b->cfg.n_panes : b->cfg.n_blocks);
    }
    return err;
}

static enum err alloc_states(struct cpu_backend *b, struct err_info *e)
{
    const struct model *m = b->model;
    const size_t bytes = model_state_bytes(m), floats = model_state_floats(&m->hp);
    b->states = mem_zalloc(m->hp.n_layer, sizeof *b->states);
    if (bytes == 0)
        return OK;
    if (b->cfg.n_states == 0)
        return err_set(e, ERR_INVALID, "a backend needs states for a model with recurrent layers");
    if (!mem_mul(bytes, b->cfg.n_states, &b->state_bytes))
        return err_set(e, ERR_NOMEM, "%u states are too large", b->cfg.n_states);
    enum err err = map_memory(b->state_bytes, "states", &b->state_memory, e);
    float *at = (float *)(void *)b->state_memory;
    for (uint32_t l = 0; l < m->hp.n_layer && !err; l++) {
        if (!m->layers[l].recurrent)
            continue;
        b->states[l] = (struct layer_state){at, floats};
        at += floats * b->cfg.n_states;
    }
    return err;
}

/* Repacking, spread over the workers: item i is some panels of one matrix. */
struct repack {
    struct cpu_backend *b;
    uint64_t n_panels; /* of all matrices */
    atomic_uint_least64_t n_done;
};

enum { REPACK_CHUNK = 16 }; /* panels */

/* The matrix of the same tensor, where the output's weights are the embeddings. */
static const struct matrix *matrix_from(const struct cpu_backend *b, const struct gguf_tensor *t)
{
    for (uint32_t i = 0; i < b->n_matrices; i++) {
        if (b->matrices[i].tensor.data == t->data && b->matrices[i].n_out == t->ne[1])
            return &b->matrices[i];
    }
    return NULL;
}

/* An earlier matrix of the same weights, where layers are gone through more than once; or NULL. */
static const struct matrix *packed_with(const struct cpu_backend *b, uint32_t i)
{
    const struct matrix *x = &b->matrices[i];
    for (uint32_t k = 0; k < i && !x->expert && x->head == 0; k++) {
        const struct matrix *y = &b->matrices[k];
        if (y->tensor.data == x->tensor.data && y->n_out == x->n_out && y->format == x->format)
            return y;
    }
    return NULL;
}

/* The embeddings' rows are read one by one. Where they are a matrix too its panels have them, else
 * they stay as they are, but are copied, for the same reason that weights are packed before
 * anything runs: no change of the file reaches an answer, and no page can go missing. */
static enum err place_tables(struct cpu_backend *b, struct err_info *e)
{
    for (uint32_t i = 0; i < b->n_steps; i++) {
        struct step *s = &b->steps[i];
        if (s->kind != STEP_EMBED)
            continue;
        s->tied = matrix_from(b, s->table);
        if (!s->tied && !mem_add(b->table_bytes, s->table->n_bytes, &b->table_bytes))
            return err_set(e, ERR_NOMEM, "the embeddings are too large");
    }
    if (b->table_bytes == 0)
        return OK;
    enum err err = map_memory(b->table_bytes, "embeddings", &b->table, e);
    uint8_t *to = b->table;
    for (uint32_t i = 0; i < b->n_steps && !err; i++) {
        struct step *s = &b->steps[i];
        if (s->kind != STEP_EMBED || s->tied)
            continue;
        /* NOLINTNEXTLINE(clang-analyzer-core.*): map_memory gave it, or an error */
        memcpy(to, s->table->data, s->table->n_bytes);
        gguf_drop_pages(b->model->gguf, s->table, 0, s->table->n_bytes);
        s->rows = to;
        to += s->table->n_bytes;
    }
    return err;
}

/* Panels first .. + n - 1 of a matrix. Their part of the file is let go at once, so that loading
 * never holds the weights twice. */
static void repack_panels(const struct cpu_backend *b,
                          const struct matrix *x,
                          uint32_t first,
                          uint32_t n)
{
    for (uint32_t i = first; i < first + n; i++)
        panel_pack(x->format, &x->tensor, i, x->panels + i * x->panel_bytes);
    const size_t panel_bytes = x->tensor.n_bytes / x->n_out * PANEL_COLS, at = first * panel_bytes;
    const size_t left = x->tensor.n_bytes - at;
    gguf_drop_pages(
        b->model->gguf, &x->tensor, at, n * panel_bytes < left ? n * panel_bytes : left);
}

/* The matrix that a panel, counted over all matrices, belongs to. */
static const struct matrix *matrix_of(const struct cpu_backend *b, uint64_t panel)
{
    uint32_t low = 0, high = b->n_matrices;
    while (high - low > 1) {
        const uint32_t middle = low + (high - low) / 2;
        *(b->matrices[middle].first_panel <= panel ? &low : &high) = middle;
    }
    return &b->matrices[low];
}

static void repack_item(void *ctx, uint32_t phase, uint32_t item, uint32_t worker)
{
    struct repack *r = ctx;
    const struct backend_config *cfg = &r->b->cfg;
    uint64_t panel = (uint64_t)item * REPACK_CHUNK, left = r->n_panels - panel;
    const struct matrix *x = matrix_of(r->b, panel);
    (void)phase;
    left = left < REPACK_CHUNK ? left : REPACK_CHUNK;
    for (uint64_t here; left > 0; x++, left -= here, panel += here) {
        const uint64_t first = panel - x->first_panel, rest = x->n_panels - first;
        here = left < rest ? left : rest;
        if (!x->packed)
            repack_panels(r->b, x, (uint32_t)first, (uint32_t)here);
    }
    const uint64_t done = atomic_fetch_add(&r->n_done, REPACK_CHUNK) + REPACK_CHUNK;
    if (worker == 0 && cfg->progress && done < r->n_panels)
        cfg->progress(cfg->progress_ctx, (double)done / (double)r->n_panels);
}

static enum err load_weights(struct cpu_backend *b, struct err_info *e)
{
    struct repack r = {.b = b};
    for (uint32_t i = 0; i < b->n_matrices; i++) {
        struct matrix *x = &b->matrices[i];
        size_t bytes;
        x->packed = packed_with(b, i) != NULL;
        if (!mem_mul(x->panel_bytes, x->n_panels, &bytes) ||
            !mem_add(b->weights_bytes, x->packed ? 0 : bytes, &b->weights_bytes))
            return err_set(e, ERR_NOMEM, "the weights are too large");
        r.n_panels += x->n_panels;
    }
    enum err err = map_memory(b->weights_bytes, "weights", &b->weights, e);
    if (err)
        return err;
    uint8_t *at = b->weights;
    for (uint32_t i = 0; i < b->n_matrices; i++) {
        struct matrix *x = &b->matrices[i];
        x->panels = x->packed ? packed_with(b, i)->panels : at;
        at += x->packed ? 0 : x->panel_bytes * x->n_panels;
    }
    const uint32_t n_items = (uint32_t)((r.n_panels + REPACK_CHUNK - 1) / REPACK_CHUNK);
    pool_walk(b->pool, &n_items, 1, repack_item, &r);
    for (uint32_t i = 0; i < b->n_matrices; i++) { /* the pages that two items shared */
        const struct gguf_tensor *t = &b->matrices[i].tensor;
        gguf_drop_pages(b->model->gguf, t, 0, t->n_bytes);
    }
    if (b->cfg.progress)
        b->cfg.progress(b->cfg.progress_ctx, 1.0);
    return OK;
}

static void cpu_parallel(struct backend *base,
                         uint32_t n,
                         void (*fn)(void *ctx, uint32_t i, uint32_t w),
                         void *ctx)
{
    pool_each(((struct cpu_backend *)base)->pool, n, fn, ctx);
}

static uint32_t cpu_n_workers(const struct backend *base)
{
    return pool_size(((const struct cpu_backend *)base)->pool);
}

static void cpu_times(const struct backend *base, double *run_us, double *waited_us)
{
    const struct pool_times t = pool_times(((const struct cpu_backend *)base)->pool);
    *run_us = t.walked_us;
    *waited_us = t.waited_us;
}

static double read_rate(struct backend *base)
{
    const struct cpu_backend *b = (const struct cpu_backend *)base;
    return cpu_read_rate(b->pool, b->kernels, b->weights, b->weights_bytes);
}

static size_t cpu_memory_bytes(const struct backend *base)
{
    const struct cpu_backend *b = (const struct cpu_backend *)base;
    return b->weights_bytes + b->table_bytes + b->kv_bytes + b->state_bytes + b->workspace_bytes;
}

static const char *cpu_kernels_name(const struct backend *base)
{
    return ((const struct cpu_backend *)base)->kernels_name;
}

static const char *cpu_describe(const struct backend *base)
{
    return ((const struct cpu_backend *)base)->description;
}

static void unmap(uint8_t *p, size_t n)
{
    if (p)
        munmap(p, n);
}

static void cpu_destroy(struct backend *base)
{
    struct cpu_backend *b = (struct cpu_backend *)base;
    pool_destroy(b->pool);
    unmap(b->weights, b->weights_bytes);
    unmap(b->table, b->table_bytes);
    unmap(b->kv_memory, b->kv_bytes);
    unmap(b->state_memory, b->state_bytes);
    unmap(b->workspace, b->workspace_bytes);
    free(b->states);
    free(b->layers);
    free(b->vectors);
    free(b->phases);
    free(b->steps);
    free(b->matrices);
    free(b);
}

static const struct backend_ops ops = {
    .name = "cpu",
    .run = cpu_run,
    .hidden = cpu_hidden,
    .parallel = cpu_parallel,
    .n_workers = cpu_n_workers,
    .block_copy = cpu_block_copy,
    .block_read = cpu_block_read,
    .block_write = cpu_block_write,
    .kernels_name = cpu_kernels_name,
    .times = cpu_times,
    .read_rate = read_rate,
    .memory_bytes = cpu_memory_bytes,
    .describe = cpu_describe,
    .destroy = cpu_destroy,
};

static enum err check(const struct model *m, const struct backend_config *cfg, struct err_info *e)
{
    const struct model_hparams *hp = &m->hp;
    if (!cfg->n_blocks || !cfg->block_tokens || !cfg->max_rows || !cfg->max_seqs ||
        !cfg->max_logit_rows)
        return err_set(e, ERR_INVALID, "a backend needs blocks, rows and sequences");
    for (uint32_t i = 0; i < hp->n_layer; i++) {
        const uint32_t dim = m->layers[i].head_dim;
        if (dim % 4 != 0 || dim > MAX_HEAD_DIM)
            return err_set(e,
                           ERR_UNSUPPORTED,
                           "heads of %u values: the CPU backend takes multiples of 4 up to %d",
                           dim,
                           MAX_HEAD_DIM);
    }
    return OK;
}

enum err cpu_backend_create(const struct model *m,
                            const struct backend_config *cfg,
                            struct backend **out,
                            struct err_info *e)
{
    *out = NULL;
    enum err err = check(m, cfg, e);
    if (err)
        return err;
    const char *isa = getenv("WEIR_ISA");
    const struct cpu_kernels *kernels = cpu_kernels_select(isa);
    if (!kernels)
        return err_set(e, ERR_INVALID, "WEIR_ISA=%s: not " CPU_ISAS, isa);
    struct cpu_backend *b = mem_zalloc(1, sizeof *b);
    b->base.ops = &ops;
    b->model = m;
    b->cfg = *cfg;
    b->kernels = kernels;
    err = cpu_compile(b, e);
    cpu_measure_heads(b);
    if (!err)
        err = cpu_check_panels(b, e);
    if (!err)
        err = pool_create(cfg->n_threads, b->n_phases, &b->pool, e);
    if (!err)
        err = alloc_workspace(b, e);
    if (!err)
        err = alloc_kv(b, e);
    if (!err)
        err = alloc_states(b, e);
    if (!err)
        err = place_tables(b, e);
    if (!err)
        err = load_weights(b, e);
    if (err) {
        cpu_destroy(&b->base);
        return err;
    }
    const uint32_t n = pool_size(b->pool);
    pool_on_idle(b->pool, cpu_ask_ahead, b);
    snprintf(b->kernels_name, sizeof b->kernels_name, "%s " CPU_KERNELS_REVISION, kernels->name);
    snprintf(b->description,
             sizeof b->description,
             "cpu %s, %u thread%s",
             kernels->name,
             n,
             n == 1 ? "" : "s");
    *out = &b->base;
    return OK;
}
