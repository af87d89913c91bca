#include "engine/memory.h"

#include "base/log.h"
#include "base/mem.h"
#include "kv/disk.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#define DEFAULT_CACHE_BYTES ((uint64_t)8 << 30)
/* Blocks on their way to and from the disk. */
#define TIER_BUFFER_BYTES ((uint64_t)64 << 20)

static void copy_block(void *ctx, uint32_t from, uint32_t to)
{
    struct backend *b = ctx;
    b->ops->block_copy(b, from, to);
}

static void read_block(void *ctx, uint32_t block, void *bytes)
{
    struct backend *b = ctx;
    b->ops->block_read(b, block, bytes);
}

static void write_block(void *ctx, uint32_t block, const void *bytes)
{
    struct backend *b = ctx;
    b->ops->block_write(b, block, bytes);
}

/* On the tier's thread. */
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
    struct batch_seq seq = {.n_rows = n_tokens, .blocks = &block};
    struct batch b = {.n_rows = n_tokens,
                      .tokens = tokens,
                      .positions = positions,
                      .n_seqs = 1,
                      .seqs = &seq,
                      .n_logit_rows = eng->model->generates,
                      .logit_rows = &last};
    err = eng->backend->ops->run(eng->backend, &b, &logits, e);
    if (err == OK) {
        struct kv_key key;
        eng->backend->ops->block_read(eng->backend, 0, bytes);
        err = kv_space_of(bytes, n_bytes, &key, e);
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
             gguf_hash(eng->model->gguf),
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

static enum err open_tier(struct engine *eng, struct err_info *e)
{
    const struct engine_config *cfg = &eng->cfg;
    char about[512];
    if (!eng->model->hp.causal)
        return err_set_field(e,
                             ERR_INVALID,
                             "cache-dir",
                             "what the model computes of a token depends on the whole text, so "
                             "there is nothing to keep for another");
    struct kv_disk_config dc = {
        .dir = cfg->cache_dir,
        .max_bytes = cfg->cache_bytes ? cfg->cache_bytes : DEFAULT_CACHE_BYTES,
        .about = about,
        .block_tokens = cfg->block_tokens,
        .block_bytes = backend_kv_block_bytes(eng->model, cfg->kv_type, cfg->block_tokens),
        .buffer_bytes = TIER_BUFFER_BYTES,
        .wake = wake,
        .wake_ctx = eng};
    enum err err = describe(eng, about, sizeof about, e);
    if (err == OK)
        err = kv_fingerprint_of(about, &dc.fingerprint, e);
    return err ? err : kv_disk_open(&dc, &eng->tier, e);
}

enum err memory_open(struct engine *eng, uint32_t n_blocks, struct err_info *e)
{
    if (eng->cfg.cache_dir) {
        enum err err = open_tier(eng, e);
        if (err != OK)
            return err;
    }
    struct kv_config kc = {.n_blocks = n_blocks,
                           .block_tokens = eng->cfg.block_tokens,
                           .mover = {.ctx = eng->backend,
                                     .copy = copy_block,
                                     .read = read_block,
                                     .write = write_block},
                           .tier = eng->tier};
    return kv_create(&kc, &eng->kv, e);
}

void memory_close(struct engine *eng)
{
    kv_destroy(eng->kv);
    if (eng->tier)
        eng->tier->ops->destroy(eng->tier);
}
