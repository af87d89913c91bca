/* What is needed, and where it lies. All is counted before anything is taken. */
#include "backend/carver.h"
#include "backend/cuda/cuda.h"
#include "base/log.h"
#include "base/mem.h"

#include <assert.h>
#include <string.h>

/* For the kernels' code and the graphs, which the driver places itself; of small devices less. */
#define RESERVE_BYTES ((size_t)256 << 20)
/* A device on which not even so long a sequence has room is no use. */
#define LEAST_POSITIONS 4096
/* Of a grid's second and third dimension: the tiles of attention, and rows of experts. */
#define MOST_TILES 65535
#define CARVE_BYTES 256 /* as the device aligns what it gives */

static size_t round_up(size_t n, size_t unit)
{
    return (n + unit - 1) / unit * unit;
}

static double gib(size_t n)
{
    return (double)n / (1 << 30);
}

/* Rows are computed in tiles; those that fill up the last one have a place too. */
static size_t padded_rows(const struct cuda_backend *b)
{
    const uint32_t rows =
        b->cfg.max_rows > b->cfg.max_logit_rows ? b->cfg.max_rows : b->cfg.max_logit_rows;
    return round_up(rows, 64);
}

static uint32_t max_positions(const struct cuda_backend *b)
{
    const struct backend_config *cfg = &b->cfg;
    const uint64_t held = (uint64_t)cfg->n_blocks * cfg->block_tokens;
    if (cfg->max_positions && (cfg->max_positions < held || held == 0))
        return cfg->max_positions;
    return held > UINT32_MAX ? UINT32_MAX : (uint32_t)held;
}

/* The largest group, and the most KV heads, that any layer has; one, where none attends. */
struct cuda_attention_shape cuda_attention_most(const struct model *m)
{
    struct cuda_attention_shape s = {.n_head_kv = 1, .head_dim = m->hp.head_dim};
    uint32_t group = 1;
    for (uint32_t i = 0; i < m->n_ops; i++) {
        const struct op *op = &m->ops[i];
        if (op->kind != OP_ATTENTION)
            continue;
        const uint32_t g = op->n_head / op->n_head_kv;
        group = g > group ? g : group;
        s.n_head_kv = op->n_head_kv > s.n_head_kv ? op->n_head_kv : s.n_head_kv;
    }
    s.n_head = group * s.n_head_kv;
    return s;
}

/* The most tiles that attention can need: sequences of a row each, and one of the rest. */
static uint32_t most_tiles(const struct cuda_backend *b)
{
    const struct cuda_attention_shape shape = cuda_attention_most(b->model);
    const uint32_t n_seqs = b->cfg.max_seqs < b->cfg.max_rows ? b->cfg.max_seqs : b->cfg.max_rows;
    const struct cuda_seq one = {.n_rows = 1};
    struct cuda_seq rest = {.n_rows = b->cfg.max_rows - n_seqs + 1};
    uint32_t n = (n_seqs - 1) * cuda_attention_tiles(&shape, &one, 1, b->tiles);
    return n + cuda_attention_tiles(&shape, &rest, 1, b->tiles);
}

static void find_most(struct cuda_backend *b)
{
    b->tiles = mem_zalloc(b->cfg.max_rows, sizeof *b->tiles);
    b->seqs = mem_zalloc(b->cfg.max_seqs, sizeof *b->seqs);
    for (uint32_t i = 0; i < b->model->n_ops; i++) {
        if (b->model->ops[i].kind == OP_ATTENTION && b->model->ops[i].window > b->window)
            b->window = b->model->ops[i].window;
    }
    b->most = (struct cuda_bounds){
        .rows = b->cfg.max_rows,
        .seqs = b->cfg.max_seqs,
        .logit_rows = b->cfg.max_logit_rows,
        .hidden_rows = b->cfg.max_rows,
        .tiles = most_tiles(b),
        .jobs = b->cfg.max_seqs,
        .ranges = (uint32_t)(((uint64_t)max_positions(b) + CUDA_ATTN_RANGE - 1) / CUDA_ATTN_RANGE),
    };
}

/* --- the workspace --- */

static size_t larger(size_t a, size_t b)
{
    return a > b ? a : b;
}

/* What launches leave for others to read: the most bytes that any of them takes. */
struct scratch {
    size_t act, expert_act; /* prepared activations, in all forms that are wanted */
    size_t sizes;           /* what slices of rows leave to be packed */
    size_t linear;          /* parts of sums */
};

static size_t linear_scratch(const struct cuda_backend *b, const struct launch *l)
{
    uint32_t n_out = 0; /* of all that are launched together */
    for (uint32_t k = 0; k <= l->joined; k++)
        n_out += b->matrices[l[k].matrix].m.n_out;
    return cuda_linear_scratch((uint32_t)padded_rows(b), b->matrices[l->matrix].m.n_in, n_out);
}

/* Once carve_experts has said how many places there are. */
static struct scratch scratch_of(const struct cuda_backend *b)
{
    const uint32_t rows = (uint32_t)padded_rows(b), places = b->experts.most_places;
    struct scratch s = {0};
    for (uint32_t i = 0; i < b->n_launches; i++) {
        const struct launch *l = &b->launches[i];
        const size_t heads = l->in_step ? l->heads : 1;
        if (l->kind == LAUNCH_PACK) {
            s.act = larger(s.act, cuda_act_bytes(l->forms, rows, l->n) * heads);
            s.sizes = larger(s.sizes, cuda_slices_bytes(l->n));
        } else if (l->kind == LAUNCH_EXPERT_PACK) {
            s.expert_act = larger(s.expert_act, cuda_act_bytes(l->forms, places, l->n));
        } else if (l->kind == LAUNCH_LINEAR) {
            s.linear = larger(s.linear, linear_scratch(b, l));
        }
    }
    return s;
}

static void carve_experts(struct cuda_backend *b, struct carver *c)
{
    const struct model_hparams *hp = &b->model->hp;
    struct cuda_experts *x = &b->experts;
    const size_t rows = padded_rows(b);
    if (!hp->n_expert)
        return;
    x->n_expert = hp->n_expert;
    x->n_used = hp->n_expert_used;
    x->most_places = cuda_experts_most_places(hp->n_expert, hp->n_expert_used, b->cfg.max_rows);
    x->chosen = carve(c, rows, hp->n_expert_used * sizeof *x->chosen);
    x->weights = carve(c, rows, hp->n_expert_used * sizeof *x->weights);
    x->places = carve(c, rows, hp->n_expert_used * sizeof *x->places);
    x->place_row = carve(c, x->most_places, sizeof *x->place_row);
    if (hp->expert_input)
        x->place_weight = carve(c, x->most_places, sizeof *x->place_weight);
    x->first = carve(c, (size_t)hp->n_expert + 1, sizeof *x->first);
}

static void carve_step(struct cuda_backend *b, struct carver *c)
{
    struct cuda_arrays layout;
    const uint64_t per_seq =
        ((uint64_t)max_positions(b) + b->cfg.block_tokens - 1) / b->cfg.block_tokens;
    uint64_t tables = per_seq * b->cfg.max_seqs * (b->window > 0 ? 2 : 1);
    if (b->model->hp.conv_width) /* states are kept: as many as blocks may end in its rows */
        tables += ((uint64_t)b->cfg.max_rows / b->cfg.block_tokens + b->cfg.max_seqs) *
                  (sizeof(struct cuda_kept) / sizeof(uint32_t));
    cuda_arrays_of(&b->most, &layout);
    b->table_entries = tables > UINT32_MAX / 4 ? UINT32_MAX / 4 : (uint32_t)tables;
    b->step_in_bytes = layout.tables + (size_t)b->table_entries * sizeof(uint32_t);
    b->step_in = carve(c, 1, b->step_in_bytes);
    b->chosen = carve(c, b->cfg.max_seqs, sizeof *b->chosen);
}

/* Where the model generates: what sampling on the device needs. A history is a count of each token
 * of the vocabulary. */
static void carve_sampling(struct cuda_backend *b, struct carver *c)
{
    const uint32_t n = b->cfg.max_seqs, n_vocab = b->model->hp.n_vocab;
    if (!b->model->generates)
        return;
    b->history_tokens = max_positions(b);
    b->device_biases = carve(c, (size_t)n * CUDA_MAX_BIASES, sizeof *b->device_biases);
    b->device_tokens = carve(c, b->history_tokens, sizeof *b->device_tokens);
    b->histories.counts = carve(c, n, n_vocab * sizeof *b->histories.counts);
    b->sample_scratch = carve(c, 1, cuda_sample_scratch(n, n_vocab));
}

static void carve_workspace(struct cuda_backend *b, struct carver *c)
{
    const struct cuda_attention_shape shape = cuda_attention_most(b->model);
    carve_step(b, c);
    carve_sampling(b, c);
    carve_experts(b, c);
    const struct scratch most = scratch_of(b);
    b->expert_act.data = carve(c, 1, most.expert_act);
    b->act.data = carve(c, 1, most.act);
    b->act.sizes = carve(c, 1, most.sizes);
    b->linear_scratch = carve(c, 1, most.linear);
    b->attention_scratch = carve(c, 1, cuda_attention_scratch(&shape, &b->most));
    b->vectors = carve(c, b->n_vector_floats, sizeof *b->vectors);
    for (int t = 0; t < N_ROPE_TABLES; t++) {
        const bool any = b->model->ropes[t].inv_freq != NULL;
        const uint32_t dims = b->model->ropes[t].n_dims;
        b->inv_freq[t] = carve(c, any ? dims / 2 : 0, sizeof *b->inv_freq[t]);
        b->angles[t] = carve(c, any ? padded_rows(b) : 0, dims * sizeof *b->angles[t]);
    }
    b->bufs[BUF_LOGITS].stride = round_up(b->model->buf_width[BUF_LOGITS], 16);
    b->bufs[BUF_LOGITS].p =
        carve(c, round_up(b->cfg.max_logit_rows, 16), b->bufs[BUF_LOGITS].stride * sizeof(float));
}

/* --- the pool's plan --- */

/* Experts' buffers hold a row a place, each of one rank. */
static size_t buffer_bytes(struct cuda_backend *b, enum model_buf buf)
{
    const uint32_t width = b->model->buf_width[buf];
    const bool expert = model_buf_of_experts(buf);
    const size_t per_row = expert ? width / b->model->hp.n_expert_used : width;
    const size_t rows = expert ? b->experts.most_places : padded_rows(b);
    b->bufs[buf].stride = round_up(per_row, 16);
    return rows * b->bufs[buf].stride * sizeof(float);
}

static void plan_pool(struct cuda_backend *b)
{
    const struct model *m = b->model;
    size_t bytes[N_GPU_CLASSES] = {0};
    uint32_t n[N_GPU_CLASSES] = {0};
    for (int i = 0; i < N_MODEL_BUFS; i++) {
        if (!b->lent[i])
            continue;
        const enum gpu_class c = b->class_of[i];
        const size_t here = buffer_bytes(b, (enum model_buf)i);
        bytes[c] = larger(bytes[c], here);
        n[c]++;
    }
    b->out_offset = round_up(b->step_in_bytes, 256);
    b->hidden_offset =
        b->out_offset +
        round_up((size_t)b->cfg.max_logit_rows * m->buf_width[BUF_LOGITS] * sizeof(float), 256);
    b->scores_offset =
        b->hidden_offset +
        round_up((size_t)b->cfg.max_rows * m->buf_width[BUF_HIDDEN] * sizeof(float), 256);
    bytes[GPU_STAGING] =
        b->scores_offset + (size_t)b->cfg.max_rows * m->buf_width[BUF_SCORES] * sizeof(float);
    n[GPU_STAGING] = CUDA_SLOTS;
    for (int c = 0; c < N_GPU_CLASSES; c++)
        cuda_pool_plan(&b->pool, (enum gpu_class)c, bytes[c], n[c]);
}

/* --- KV; layers that do not attend have none --- */

/* What a block has of a layer. */
static size_t layer_bytes(const struct cuda_kv *l)
{
    return (l->latent ? 1 : 2) * l->half_bytes * l->n_head_kv;
}

static void shape_kv(struct cuda_backend *b)
{
    const struct model_hparams *hp = &b->model->hp;
    b->layers = mem_zalloc(hp->n_layer, sizeof *b->layers);
    b->kv_pools[0] = (struct cuda_kv_pool){.n = b->cfg.n_blocks};
    b->kv_pools[1] = (struct cuda_kv_pool){.n = b->cfg.n_panes};
    for (uint32_t i = 0; i < b->model->n_ops; i++) {
        const struct op *op = &b->model->ops[i];
        struct cuda_kv *l = &b->layers[op->layer];
        if (op->kind != OP_ATTENTION || l->row_bytes) /* or another attends to it, too */
            continue;
        *l = (struct cuda_kv){.type = (int)b->cfg.kv_type,
                              .in_panes = op->window > 0 && b->cfg.n_panes > 0,
                              .n_head_kv = op->n_head_kv,
                              .head_dim = op->head_dim,
                              .block_tokens = b->cfg.block_tokens,
                              .row_bytes = kv_row_bytes(b->cfg.kv_type, op->head_dim),
                              .latent = hp->latent};
        l->half_bytes = l->row_bytes * b->cfg.block_tokens;
        b->kv_pools[l->in_panes].stride += layer_bytes(l);
    }
    for (uint32_t i = 0; i < hp->n_layer; i++)
        b->layers[i].block_stride = b->kv_pools[b->layers[i].in_panes].stride;
}

static enum err count_kv_and_states(struct cuda_backend *b, struct err_info *e)
{
    size_t all;
    b->kv_bytes = 0;
    for (int i = 0; i < 2; i++) {
        const struct cuda_kv_pool *p = &b->kv_pools[i];
        size_t bytes;
        if (!mem_mul(p->stride, p->n, &bytes) || !mem_add(b->kv_bytes, bytes, &b->kv_bytes))
            return err_set(e, ERR_NOMEM, "a KV cache of %u blocks is too large", p->n);
    }
    if (!mem_mul(model_state_bytes(b->model), b->cfg.n_states, &b->state_bytes) ||
        !mem_add(b->kv_bytes, b->state_bytes, &all))
        return err_set(e, ERR_NOMEM, "%u states are too large", b->cfg.n_states);
    return OK;
}

/* --- the budget --- */

static enum err read_device(struct cuda_backend *b, struct err_info *e)
{
    struct cuda_budget *g = &b->budget;
    const struct device *d = &b->cfg.device;
    const double share = d->memory_share > 0 ? d->memory_share : DEVICE_DEFAULT_SHARE;
    const cudaError_t rc = cudaMemGetInfo(&g->free, &g->total);
    if (rc != cudaSuccess)
        return cuda_failed(rc, "its memory", e);
    g->limit = d->memory_bytes ? d->memory_bytes : (size_t)((double)g->total * share);
    g->reserve = g->total / 16 < RESERVE_BYTES ? g->total / 16 : RESERVE_BYTES;
    if (d->memory_bytes && d->memory_bytes > g->free)
        return err_set_field(e,
                             ERR_NOMEM,
                             "gpu-memory",
                             "%.2f GiB were asked for, cuda:%u has %.2f GiB free of %.2f",
                             gib(d->memory_bytes),
                             d->index,
                             gib(g->free),
                             gib(g->total));
    if (g->limit > g->free)
        g->limit = g->free;
    if (g->limit + g->reserve > g->free)
        g->limit = g->free > g->reserve ? g->free - g->reserve : 0;
    return OK;
}

static size_t weights_bytes(struct cuda_backend *b)
{
    size_t n = 0;
    for (uint32_t i = 0; i < b->n_matrices; i++) {
        b->matrices[i].offset = n;
        n += round_up(b->matrices[i].matrix_bytes * b->matrices[i].n, 256);
    }
    return n;
}

/* KV and states that there has to be room for: what the configuration says, or enough to be of use.
 */
static size_t kv_wanted(const struct cuda_backend *b)
{
    const struct backend_config *cfg = &b->cfg;
    uint32_t positions = max_positions(b);
    if (cfg->n_blocks)
        return b->kv_bytes + b->state_bytes;
    positions = positions < LEAST_POSITIONS ? positions : LEAST_POSITIONS;
    return backend_kv_block_bytes(b->model, cfg->kv_type, cfg->block_tokens) *
               ((positions + cfg->block_tokens - 1) / cfg->block_tokens) +
           model_state_bytes(b->model);
}

enum err cuda_budget_make(struct cuda_backend *b, struct err_info *e)
{
    struct cuda_budget *g = &b->budget;
    struct carver c = {.align = CARVE_BYTES};
    enum err err = read_device(b, e);
    if (err)
        return err;
    find_most(b);
    shape_kv(b);
    err = count_kv_and_states(b, e);
    if (err)
        return err;
    carve_workspace(b, &c);
    if (b->most.tiles > MOST_TILES || b->experts.most_places / 8 > MOST_TILES)
        return err_set(e,
                       ERR_UNSUPPORTED,
                       "steps of %u rows are longer than launches can be; a smaller "
                       "--batch-tokens or --max-running is needed",
                       b->cfg.max_rows);
    plan_pool(b);
    g->weights = b->weights_bytes = weights_bytes(b);
    g->workspace = b->workspace_bytes = c.used;
    g->pool = cuda_pool_device_bytes(&b->pool);
    b->block_bytes_n = backend_kv_block_bytes(b->model, b->cfg.kv_type, b->cfg.block_tokens);
    assert(b->block_bytes_n == b->kv_pools[0].stride + b->kv_pools[1].stride);
    g->pinned = cuda_pool_pinned_bytes(&b->pool) + b->block_bytes_n + cuda_jobs_bytes(b);
    const size_t need = g->weights + g->workspace + g->pool, kv = kv_wanted(b);
    if (c.overflow || need > g->limit || kv > g->limit - need)
        return err_set(
            e,
            ERR_NOMEM,
            "cuda:%u: %.2f GiB of weights, %.2f GiB of workspace and %.2f GiB of KV and states do "
            "not fit into the %.2f GiB that may be taken (%.2f GiB free of %.2f)",
            b->cfg.device.index,
            gib(g->weights),
            gib(g->workspace + g->pool),
            gib(kv),
            gib(g->limit),
            gib(g->free),
            gib(g->total));
    g->kv = g->limit - need;
    return OK;
}

static void say(const struct cuda_backend *b)
{
    const struct cuda_budget *g = &b->budget;
    const uint32_t i = b->cfg.device.index;
    log_info("cuda:%u: %s, %.2f GiB, of which %.2f GiB are free and %.2f GiB may be taken",
             i,
             b->device_name,
             gib(g->total),
             gib(g->free),
             gib(g->limit));
    log_info("cuda:%u: weights    %9.3f GiB", i, gib(g->weights));
    log_info("cuda:%u: workspace  %9.3f GiB", i, gib(g->workspace));
    log_info("cuda:%u: buffers    %9.3f GiB, lent to steps of up to %u rows",
             i,
             gib(g->pool),
             b->cfg.max_rows);
    log_info("cuda:%u: KV         %9.3f GiB, %u blocks and %u panes of %u tokens",
             i,
             gib(b->kv_bytes),
             b->cfg.n_blocks,
             b->cfg.n_panes,
             b->cfg.block_tokens);
    if (b->state_bytes)
        log_info("cuda:%u: states     %9.3f GiB, %u of recurrent layers",
                 i,
                 gib(b->state_bytes),
                 b->cfg.n_states);
    log_info("cuda:%u: pinned     %9.3f GiB of the host", i, gib(g->pinned));
}

/* --- taking it --- */

static enum err take(size_t n, const char *what, uint8_t **out, struct err_info *e)
{
    void *p = NULL;
    const cudaError_t rc = cudaMalloc(&p, n ? n : 1);
    *out = p;
    if (rc == cudaSuccess)
        return OK;
    (void)cudaGetLastError();
    return err_set(e,
                   ERR_NOMEM,
                   "CUDA: no memory for %.3f GiB of %s: %s",
                   gib(n),
                   what,
                   cudaGetErrorString(rc));
}

static enum err take_pinned(size_t n, uint8_t **out, struct err_info *e)
{
    void *p = NULL;
    const cudaError_t rc = cudaMallocHost(&p, n ? n : 1);
    *out = p;
    if (rc == cudaSuccess)
        return OK;
    (void)cudaGetLastError();
    return err_set(e, ERR_NOMEM, "CUDA: no pinned memory for %zu bytes", n);
}

static enum err place_kv(struct cuda_backend *b, struct err_info *e)
{
    enum err err = take(b->kv_bytes, "KV", &b->kv_memory, e);
    if (err)
        return err;
    b->kv_pools[0].base = b->kv_memory;
    b->kv_pools[1].base = b->kv_memory + b->kv_pools[0].stride * b->kv_pools[0].n;
    uint8_t *at[2] = {b->kv_pools[0].base, b->kv_pools[1].base};
    for (uint32_t i = 0; i < b->model->hp.n_layer; i++) {
        struct cuda_kv *l = &b->layers[i];
        l->base = at[l->in_panes];
        at[l->in_panes] += layer_bytes(l);
    }
    return OK;
}

/* Those of one layer lie together. */
static enum err place_states(struct cuda_backend *b, struct err_info *e)
{
    const struct model *m = b->model;
    const size_t floats = model_state_floats(&m->hp);
    b->states = mem_zalloc(m->hp.n_layer, sizeof *b->states);
    if (b->state_bytes == 0)
        return OK;
    enum err err = take(b->state_bytes, "states", &b->state_memory, e);
    float *at = (float *)(void *)b->state_memory;
    for (uint32_t l = 0; l < m->hp.n_layer && !err; l++) {
        if (!m->layers[l].recurrent)
            continue;
        b->states[l] = (struct cuda_states){at, floats, model_conv_state_floats(&m->hp)};
        at += floats * b->cfg.n_states;
    }
    return err;
}

enum err cuda_kv_zero(struct cuda_backend *b, struct err_info *e)
{
    cudaError_t rc = cudaMemset(b->kv_memory, 0, b->kv_bytes);
    if (rc == cudaSuccess && b->state_bytes)
        rc = cudaMemset(b->state_memory, 0, b->state_bytes);
    return rc == cudaSuccess ? OK : cuda_failed(rc, "zeroing KV", e);
}

enum err cuda_memory_take(struct cuda_backend *b, struct err_info *e)
{
    say(b);
    enum err err = take(b->weights_bytes, "weights", &b->weights, e);
    if (!err)
        err = take(b->workspace_bytes, "workspace", &b->workspace, e);
    if (!err)
        err = cuda_pool_warm_up(&b->pool, e);
    if (!err)
        err = place_kv(b, e);
    if (!err)
        err = place_states(b, e);
    if (!err)
        err = take_pinned(b->block_bytes_n, &b->block_bytes, e);
    if (!err)
        err = take_pinned(cuda_jobs_bytes(b), &b->jobs_pinned, e);
    if (err)
        return err;
    cuda_jobs_place(b);
    struct carver c = {.base = b->workspace, .align = CARVE_BYTES};
    carve_workspace(b, &c);
    for (uint32_t i = 0; i < b->n_matrices; i++)
        b->matrices[i].m.data = b->weights + b->matrices[i].offset;
    cudaError_t rc = cudaMemset(b->workspace, 0, b->workspace_bytes);
    if (rc != cudaSuccess)
        return cuda_failed(rc, "zeroing the workspace", e);
    err = cuda_kv_zero(b, e);
    /* A memset does not wait, and our streams do not wait for it: weights and the first step must
     * not be overtaken by it. */
    if (!err && (rc = cudaDeviceSynchronize()) != cudaSuccess)
        err = cuda_failed(rc, "zeroing its memory", e);
    return err;
}

void cuda_memory_release(struct cuda_backend *b)
{
    (void)cudaFree(b->weights);
    (void)cudaFree(b->workspace);
    (void)cudaFree(b->kv_memory);
    (void)cudaFree(b->state_memory);
    (void)cudaFreeHost(b->block_bytes);
    (void)cudaFreeHost(b->jobs_pinned);
    cuda_pool_deinit(&b->pool);
}
