#include "engine/memory.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/machine.h"
#include "kv/disk.h"
#include "kv/host.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define DEFAULT_KV_BYTES_MAX ((uint64_t)4 << 30)
/* Of tiny models, or of a device all of whose memory is for the cache: each block costs the host's
 * index memory too. */
#define BLOCKS_MAX ((uint64_t)1 << 20)
#define DEVICE_BLOCKS_MAX ((uint64_t)1 << 24)
#define DEFAULT_CACHE_BYTES ((uint64_t)8 << 30)
/* Blocks on their way to and from the disk: as many as one step can fill, and as many again. */
#define TIER_BUFFER_BYTES_MIN ((uint64_t)64 << 20)
#define TIER_BUFFER_BYTES_MAX ((uint64_t)256 << 20)
/* What fetches copy before one step where the engine's thread does it: some 10 ms of it. */
#define MOVE_BYTES ((uint64_t)64 << 20)
#define MOST_BESIDE 2048      /* blocks, in and out, that a plan moves beside the host */
#define STORE_REST_US 3000000 /* at the end, for what had no buffer before */

/* Without --kv-memory: what a device has left, which is there for nothing else; on the host within
 * a quarter of the machine's memory and 4 GiB. Pages that are never written cost nothing there. */
static uint64_t budget(const struct engine_config *cfg, uint64_t room_bytes)
{
    uint64_t most = machine_memory() / 4;
    if (cfg->kv_bytes > 0)
        return cfg->kv_bytes;
    if (room_bytes > 0)
        return room_bytes;
    return most < DEFAULT_KV_BYTES_MAX ? most : DEFAULT_KV_BYTES_MAX;
}

/* Positions that layers with windows see; 0 if there are none, or the context is not longer. Those
 * that look both ways want the whole text. */
static uint32_t window_of(const struct model *m, uint32_t n_ctx)
{
    uint32_t most = 0;
    for (uint32_t i = 0; i < m->n_ops; i++)
        if (m->ops[i].kind == OP_ATTENTION && m->ops[i].window > most &&
            m->ops[i].window_kind != WINDOW_AROUND)
            most = m->ops[i].window;
    return most < n_ctx ? most : 0;
}

static uint64_t min_u64(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

/* Blocks at most where nobody said how much memory: the host accounts for each, however small it
 * is. A device may hold `all` that run, within reason. */
static uint64_t most_blocks(bool on_device, uint64_t all)
{
    return on_device && all > BLOCKS_MAX ? min_u64(all, DEVICE_BLOCKS_MAX) : BLOCKS_MAX;
}

static uint32_t to_count(uint64_t n)
{
    return n > UINT32_MAX / 2 ? UINT32_MAX / 2 : (uint32_t)n;
}

/* Panes for some of the blocks. Sequences that stay within their window need one a block; those
 * that fill the context need window / context a block. With the ratio
 *
 *      panes / blocks = (block_bytes + pane_bytes * window / context) / (block_bytes + pane_bytes)
 *
 * both kinds find room for the same share of what they would if all memory were theirs. But more
 * than all slots can use at once are not needed; the rest are blocks. all: every slot's context. */
static void divide_with_panes(
    struct engine *eng, uint64_t bytes, bool on_device, uint64_t per_seq, uint64_t all)
{
    struct memory *m = &eng->memory;
    const uint32_t size = eng->cfg.block_tokens;
    const uint64_t per_window = min_u64(per_seq, sched_panes_per_seq(m->window, size));
    const uint64_t needed =
        min_u64(per_window * eng->cfg.max_running + (eng->max_rows + size - 1) / size, all);
    const uint64_t equal = bytes / (m->block_bytes + m->pane_bytes);
    const double ratio =
        ((double)m->block_bytes + (double)m->pane_bytes * (double)per_window / (double)per_seq) /
        (double)(m->block_bytes + m->pane_bytes);
    const double n_blocks =
        (double)bytes / ((double)m->block_bytes + (double)m->pane_bytes * ratio);
    uint64_t panes = m->block_bytes > 0 ? (uint64_t)(n_blocks * ratio) : equal;
    uint64_t blocks = (uint64_t)n_blocks;
    if (panes < min_u64(per_window, equal))
        panes = min_u64(per_window, equal);
    if (panes > needed && m->block_bytes > 0)
        panes = needed;
    if (m->block_bytes > 0)
        blocks = (bytes - panes * m->pane_bytes) / m->block_bytes;
    else if (blocks > all) /* without bytes, but each has to be accounted for */
        blocks = all > panes ? all : panes;
    if (eng->cfg.kv_bytes == 0 && !on_device &&
        blocks > all) { /* then what is left may keep prefixes */
        blocks = all;
        panes = min_u64(blocks, (bytes - blocks * m->block_bytes) / m->pane_bytes);
    }
    if (eng->cfg.kv_bytes == 0 || m->block_bytes == 0) {
        const uint64_t most = most_blocks(on_device && m->block_bytes > 0, all);
        blocks = min_u64(blocks, most);
        panes = min_u64(panes, most);
    }
    m->n_blocks = to_count(blocks);
    m->n_panes = to_count(panes);
}

/* Half of the memory at most for states, so that those who are many and those who are long have
 * either half of what they could have; and no more than two for each slot (its own, and one kept)
 * and one for every STATE_BLOCKS blocks that may be cached. */
static enum err divide_with_states(struct engine *eng,
                                   uint64_t bytes,
                                   uint64_t all,
                                   struct err_info *e)
{
    enum { STATE_BLOCKS = 16 };
    struct memory *m = &eng->memory;
    const uint64_t block = m->block_bytes, state = m->state_bytes;
    const bool asked = eng->cfg.kv_bytes > 0;
    uint64_t n = bytes / (block > 0 ? 2 : 1) / state, blocks = 2 * all;
    n = n > 0 ? n : 1;
    if (asked && bytes < state + block)
        return err_set(e,
                       ERR_INVALID,
                       "kv-memory: a sequence's state takes %llu bytes and a block %llu, only %llu "
                       "were given",
                       (unsigned long long)state,
                       (unsigned long long)block,
                       (unsigned long long)bytes);
    if (block > 0) {
        const uint64_t rest = bytes > n * state ? bytes - n * state : 0;
        n = min_u64(n, 2 * (uint64_t)eng->cfg.max_running + rest / block / STATE_BLOCKS);
        if (bytes >= state + block)
            n = min_u64(n, (bytes - block) / state);
        if (n * (state + block) > bytes && n > 1) /* one without a block is of no use */
            n = bytes / (state + block);
        blocks = bytes > n * state ? (bytes - n * state) / block : 0;
        blocks = asked ? blocks : min_u64(blocks > 0 ? blocks : 1, all);
    }
    if (block == 0 || !asked)
        blocks = min_u64(blocks, BLOCKS_MAX);
    m->n_blocks = to_count(blocks);
    m->n_states = to_count(min_u64(n, m->n_blocks));
    return OK;
}

static void limit_context(struct engine *eng)
{
    const struct memory *m = &eng->memory;
    const uint32_t size = eng->cfg.block_tokens;
    uint32_t most = m->n_blocks;
    if (m->n_panes > 0 && m->n_panes < sched_panes_per_seq(m->window, size) && m->n_panes < most)
        most = m->n_panes;
    if ((uint64_t)most * size >= eng->n_ctx)
        return;
    eng->n_ctx = most * size;
    log_warn("KV memory holds %u tokens: the context is limited to that", eng->n_ctx);
}

enum err memory_check_asked(const struct engine *eng, struct err_info *e)
{
    const double gib = 1u << 30, most = (double)machine_memory();
    const double weights = (double)eng->model->weight_bytes, asked = (double)eng->cfg.kv_bytes;
    const struct engine_config nothing = {0};
    if (weights + (double)budget(&eng->cfg, 0) <= most)
        return OK;
    if (asked > (double)budget(&nothing, 0)) /* less is no worse than what it is by default */
        return err_set(e,
                       ERR_INVALID,
                       "kv-memory: %.1f GiB were asked for beside weights of %.1f GiB, there are "
                       "%.1f GiB of memory",
                       asked / gib,
                       weights / gib,
                       most / gib);
    log_warn("weights of %.1f GiB and KV memory of %.1f GiB: there are %.1f GiB of memory",
             weights / gib,
             (double)budget(&eng->cfg, 0) / gib,
             most / gib);
    return OK;
}

enum err memory_divide(struct engine *eng, uint64_t room_bytes, struct err_info *e)
{
    const struct engine_config *cfg = &eng->cfg;
    struct memory *m = &eng->memory;
    const uint64_t block_bytes =
        backend_kv_block_bytes(eng->model, cfg->kv_type, cfg->block_tokens);
    const uint64_t per_seq = (eng->n_ctx + cfg->block_tokens - 1) / cfg->block_tokens;
    const uint64_t bytes = budget(cfg, room_bytes), all = per_seq * cfg->max_running;
    *m = (struct memory){.block_bytes = block_bytes,
                         .window = window_of(eng->model, eng->n_ctx),
                         .state_bytes = model_state_bytes(eng->model)};
    if (m->state_bytes > 0) {
        m->window = 0; /* windowed layers beside recurrent ones lie in blocks */
        enum err err = divide_with_states(eng, bytes, all, e);
        if (err == OK)
            limit_context(eng);
        return err;
    }
    uint64_t n = bytes / block_bytes;
    if (n == 0 && cfg->kv_bytes > 0)
        return err_set(e,
                       ERR_INVALID,
                       "kv-memory: one block of %u tokens takes %llu bytes, only %llu were given",
                       cfg->block_tokens,
                       (unsigned long long)block_bytes,
                       (unsigned long long)cfg->kv_bytes);
    if (m->window > 0 && n > 0) {
        m->pane_bytes = backend_kv_pane_bytes(eng->model, cfg->kv_type, cfg->block_tokens);
        m->block_bytes -= m->pane_bytes;
        divide_with_panes(eng, bytes, room_bytes > 0, per_seq, all);
    } else {
        m->window = 0;
        if (cfg->kv_bytes == 0 && room_bytes == 0)
            n = n == 0 ? 1 : min_u64(min_u64(n, all), BLOCKS_MAX);
        if (cfg->kv_bytes == 0 && room_bytes > 0)
            n = min_u64(n, most_blocks(true, all));
        if (n == 0)
            return err_set(e,
                           ERR_NOMEM,
                           "one block of %u tokens takes %llu bytes, the device has %llu left",
                           cfg->block_tokens,
                           (unsigned long long)block_bytes,
                           (unsigned long long)room_bytes);
        m->n_blocks = to_count(n);
    }
    limit_context(eng);
    return OK;
}

enum err memory_check_host(const struct engine *eng, bool on_device, struct err_info *e)
{
    const struct memory *m = &eng->memory;
    const double gib = 1u << 30, most = (double)machine_memory();
    const double asked = (double)eng->cfg.host_cache_bytes;
    const double weights = on_device ? 0 : (double)eng->model->weight_bytes;
    const double blocks = (double)m->n_blocks * (double)m->block_bytes;
    const double panes = (double)m->n_panes * (double)m->pane_bytes;
    const double kv = on_device ? 0 : blocks + panes;
    if (asked == 0 || m->state_bytes > 0 || weights + kv + asked <= most)
        return OK;
    return err_set(
        e,
        ERR_INVALID,
        "host-cache: %.1f GiB were asked for beside weights of %.1f GiB and KV memory of "
        "%.1f GiB, there are %.1f GiB of memory",
        asked / gib,
        weights / gib,
        kv / gib,
        most / gib);
}

static struct backend_place to_place(struct kv_place p)
{
    return (struct backend_place){p.block, p.pane};
}

static void copy_block(void *ctx, struct kv_place from, struct kv_place to)
{
    struct backend *b = ctx;
    b->ops->block_copy(b, to_place(from), to_place(to));
}

static bool read_block(void *ctx, struct kv_place from, void *bytes)
{
    struct backend *b = ctx;
    return b->ops->block_read(b, to_place(from), bytes);
}

static void write_block(void *ctx, struct kv_place to, const void *bytes)
{
    struct backend *b = ctx;
    b->ops->block_write(b, to_place(to), bytes);
}

/* On the disk tier's thread, or the engine's. */
static void wake(void *ctx)
{
    struct engine *eng = ctx;
    pthread_mutex_lock(&eng->submit_lock);
    eng->tier_news = true;
    pthread_cond_signal(&eng->submit_cond);
    pthread_mutex_unlock(&eng->submit_lock);
}

/* A hash of what this build computes for one block of made-up tokens. Whatever changes the bits of
 * the first K and V - another kernel, another order of a sum, another layout - changes it, whether
 * or not anybody thought of the cache when it was written. What only shows in long contexts does
 * not: for that the kernels' name holds a revision. */
static enum err probe(struct engine *eng, uint64_t *hash, struct err_info *e)
{
    uint32_t size = eng->cfg.block_tokens;
    uint32_t n_tokens = size < eng->max_rows ? size : eng->max_rows;
    n_tokens = n_tokens < eng->n_ctx ? n_tokens : eng->n_ctx;
    size_t n_bytes = backend_kv_block_bytes(eng->model, eng->cfg.kv_type, size);
    uint32_t block = 0, last = n_tokens - 1;
    int32_t *tokens = malloc(n_tokens * sizeof *tokens);
    uint32_t *positions = malloc(n_tokens * sizeof *positions);
    char *bytes = calloc(1, n_bytes);
    float *logits;
    enum err err = ERR_NOMEM;
    if (!tokens || !positions || !bytes) {
        err_set(e, ERR_NOMEM, "no memory for a block of %zu bytes", n_bytes);
        goto out;
    }
    for (uint32_t i = 0; i < n_tokens; i++) {
        tokens[i] = (int32_t)((uint64_t)i * 7919 % eng->model->hp.n_vocab);
        positions[i] = i;
    }
    struct batch_seq seq = {.n_rows = n_tokens, .blocks = &block, .panes = &block};
    struct batch b = {.n_rows = n_tokens,
                      .tokens = tokens,
                      .positions = positions,
                      .n_seqs = 1,
                      .seqs = &seq,
                      .n_logit_rows = eng->model->generates,
                      .logit_rows = &last};
    struct kv_key key;
    err = eng->backend->ops->run(eng->backend, &b, &logits, e);
    if (err == OK &&
        !eng->backend->ops->block_read(eng->backend, (struct backend_place){0, 0}, bytes))
        err = err_set(e, ERR_INTERNAL, "the device could not read a block of the KV memory");
    if (err == OK)
        err = kv_space_of(bytes, n_bytes, &key, e);
    if (err == OK) {
        for (uint32_t i = 0; i < sizeof *hash; i++)
            *hash = *hash << 8 | key.bytes[i];
    }
out:
    free(tokens);
    free(positions);
    free(bytes);
    return err;
}

/* All that decides the bytes of a block, in words. */
static enum err describe(struct engine *eng, char *out, size_t cap, struct err_info *e)
{
    const struct model_hparams *hp = &eng->model->hp;
    uint64_t hash = 0;
    struct gguf_str name = {"unnamed", 7};
    char shown[96];
    enum err err = probe(eng, &hash, e);
    if (err != OK)
        return err;
    if (gguf_get_str(eng->model->gguf, "general.name", &name, NULL) != OK)
        log_warn("general.name is no text; the cache calls the model unnamed");
    snprintf(out,
             cap,
             "%s, file %016" PRIx64 ", %u layers x %u heads x %u, %s, %u tokens a block, %s %s, "
             "probe %016" PRIx64,
             gguf_show(name, shown, sizeof shown),
             eng->file_hash,
             hp->n_layer,
             hp->n_head_kv,
             hp->head_dim,
             kv_type_name(eng->cfg.kv_type),
             eng->cfg.block_tokens,
             eng->backend->ops->name,
             eng->backend->ops->kernels_name(eng->backend),
             hash);
    return OK;
}

static enum err must_be_causal(const struct engine *eng, const char *option, struct err_info *e)
{
    if (eng->model->hp.causal)
        return OK;
    return err_set_field(e,
                         ERR_INVALID,
                         option,
                         "what the model computes of a token depends on the whole text, so there "
                         "is nothing to keep for another");
}

static void *alloc_pinned(void *ctx, size_t n_bytes)
{
    struct backend *b = ctx;
    return b->ops->pinned_alloc(b, n_bytes);
}

static void free_pinned(void *ctx, void *p)
{
    struct backend *b = ctx;
    b->ops->pinned_free(b, p);
}

static bool settle(void *ctx)
{
    struct backend *b = ctx;
    return b->ops->block_settle(b);
}

static uint64_t buffer_bytes(const struct engine *eng, uint64_t block_bytes)
{
    const uint64_t n = 2 * (uint64_t)(eng->max_rows / eng->cfg.block_tokens + 1);
    if (n * block_bytes < TIER_BUFFER_BYTES_MIN)
        return TIER_BUFFER_BYTES_MIN;
    return min_u64(n * block_bytes, TIER_BUFFER_BYTES_MAX);
}

static enum err open_disk_tier(struct engine *eng, struct err_info *e)
{
    const struct engine_config *cfg = &eng->cfg;
    char about[512];
    enum err err = must_be_causal(eng, "cache-dir", e);
    struct kv_disk_config dc = {
        .dir = cfg->cache_dir,
        .max_bytes = cfg->cache_bytes ? cfg->cache_bytes : DEFAULT_CACHE_BYTES,
        .about = about,
        .block_tokens = cfg->block_tokens,
        .block_bytes = backend_kv_block_bytes(eng->model, cfg->kv_type, cfg->block_tokens),
        .wake = wake,
        .wake_ctx = eng};
    dc.buffer_bytes = buffer_bytes(eng, dc.block_bytes);
    if (eng->backend->ops->pinned_alloc && eng->backend->ops->block_settle) {
        dc.alloc = alloc_pinned;
        dc.free = free_pinned;
        dc.settle = settle;
        dc.alloc_ctx = eng->backend;
    }
    if (err == OK)
        err = describe(eng, about, sizeof about, e);
    if (err == OK)
        err = kv_fingerprint_of(about, &dc.fingerprint, e);
    return err ? err : kv_disk_open(&dc, &eng->tier, e);
}

static double move_us(void *ctx)
{
    const struct backend *b = ctx;
    return b->ops->block_us(b);
}

/* Above what is there already. */
static enum err open_host_tier(struct engine *eng, struct err_info *e)
{
    const struct engine_config *cfg = &eng->cfg;
    struct kv_host_config hc = {
        .max_bytes = cfg->host_cache_bytes,
        .block_tokens = cfg->block_tokens,
        .block_bytes = backend_kv_block_bytes(eng->model, cfg->kv_type, cfg->block_tokens),
        .below = eng->tier,
        .wake = wake,
        .wake_ctx = eng};
    struct kv_tier *host;
    if (eng->backend->ops->pinned_alloc) {
        hc.alloc = alloc_pinned;
        hc.free = free_pinned;
        hc.alloc_ctx = eng->backend;
        hc.move_us = eng->backend->ops->block_us ? move_us : NULL;
    }
    enum err err = must_be_causal(eng, "host-cache", e);
    if (err == OK)
        err = kv_host_open(&hc, &host, e);
    if (err == OK) /* else what is below stays the engine's */
        eng->tier = host;
    return err;
}

static uint32_t most_moves(const struct engine *eng)
{
    if (!eng->tier)
        return 0;
    if (eng->backend->ops->block_settle) /* which moves them beside it */
        return MOST_BESIDE;
    const uint64_t n = MOVE_BYTES / (eng->memory.block_bytes + eng->memory.pane_bytes);
    return n > 2 ? to_count(n) : 2; /* one out, one in */
}

enum err memory_open(struct engine *eng, struct err_info *e)
{
    const bool states = eng->memory.n_states > 0, host = eng->cfg.host_cache_bytes > 0;
    if (states && (eng->cfg.cache_dir || host))
        log_warn("the cache in RAM and on disk is off: a block of this model is of no use without "
                 "the state of its recurrent layers, which stays in KV memory");
    enum err err = eng->cfg.cache_dir && !states ? open_disk_tier(eng, e) : OK;
    if (err == OK && host && !states)
        err = open_host_tier(eng, e);
    if (err != OK)
        return err;
    struct kv_config kc = {.n_blocks = eng->memory.n_blocks,
                           .block_tokens = eng->cfg.block_tokens,
                           .mover = {.ctx = eng->backend,
                                     .copy = copy_block,
                                     .read = read_block,
                                     .write = write_block},
                           .tier = eng->tier,
                           .most_moves = most_moves(eng),
                           .window = eng->memory.window,
                           .n_states = eng->memory.n_states,
                           .n_panes = eng->memory.n_panes};
    return kv_create(&kc, &eng->kv, e);
}

/* What waits for a buffer goes to the disk, too, if that does not take long. */
static void store_rest(struct engine *eng)
{
    const uint64_t until_us = clock_us() + STORE_REST_US;
    while (eng->kv && kv_store_rest(eng->kv) && clock_us() < until_us)
        usleep(1000);
}

void memory_close(struct engine *eng)
{
    store_rest(eng);
    kv_destroy(eng->kv);
    if (eng->tier)
        eng->tier->ops->destroy(eng->tier);
}
