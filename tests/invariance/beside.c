#include "invariance/beside.h"

#include "base/mem.h"

#include <math.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { MOST_ORDERS = 4096 };

#define RULE(cond, ...)                                                                            \
    do {                                                                                           \
        if (!(cond))                                                                               \
            broken(#cond, __VA_ARGS__);                                                            \
    } while (0)

static _Noreturn void WEIR_PRINTF(2, 3) broken(const char *cond, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    fprintf(stderr, "beside: %s: ", cond);
    vfprintf(stderr, fmt, ap);
    fputc('\n', stderr);
    va_end(ap);
    abort();
}

/* A job, and what it points to. */
struct job {
    struct async_job job;
    struct sample_params params;
    struct logit_bias *biases; /* [most_biases] */
    int32_t *tokens;           /* [most_tokens], where the history begins */
};

/* What a step was given, and what it made. */
struct slot {
    enum { SLOT_EMPTY, SLOT_UNDER_WAY, SLOT_DONE } state;
    struct batch b;
    int32_t *tokens, *from;
    uint32_t *positions, *logit_rows, *hidden_rows, *host_rows;
    struct batch_seq *seqs;
    uint32_t *tables; /* [max_seqs][3][n_table] blocks, panes and states */
    struct job *jobs;
    uint32_t n_jobs, n_host_rows;
    uint64_t serial;
    /* results */
    int32_t *chosen;
    float *logits, *hidden; /* [max_logit_rows][n_vocab], [max_rows][n_hidden] */
    enum err err;
    struct err_info error;
};

/* What the device is to do next. */
struct order {
    struct slot *slot; /* or a copy: */
    struct backend_place from, to;
};

struct beside {
    struct backend base; /* must be first */
    struct backend *inner;
    const struct model *model;
    struct backend_config cfg;
    struct beside_options options;
    uint32_t n_table, most_tokens, n_hidden;
    struct slot slots[ASYNC_STEPS];
    uint32_t first, n_under_way; /* a ring of slots; the host's */
    struct slot *ended;          /* whose results the host may see */
    uint64_t n_begun;
    uint64_t rng; /* the device's */

    /* the device's own */
    int32_t *chosen; /* [max_seqs] by the step that ran last */
    struct sample_history **histories;
    struct sample_scratch *scratch;

    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    struct order orders[MOST_ORDERS]; /* a ring */
    uint32_t head, n_orders;          /* what is at work stays on it until it is done */
    bool stops;
};

static struct beside_options next_options = {.most_biases = 8};

void beside_set(const struct beside_options *o)
{
    next_options = *o;
}

/* --- the device ------------------------------------------------------------------------------ */

static void delay(struct beside *b)
{
    if (b->options.most_delay_us == 0)
        return;
    b->rng = b->rng * 6364136223846793005u + 1442695040888963407u;
    uint32_t us = (uint32_t)(b->rng >> 33) % b->options.most_delay_us;
    nanosleep(&(struct timespec){.tv_nsec = us * 1000L}, NULL);
}

/* The slot's history, made of what the job says or as it is. */
static struct sample_history *history_of(struct beside *b, const struct async_job *job)
{
    struct sample_history **h = &b->histories[job->slot];
    if (!job->tokens)
        return *h;
    sample_history_destroy(*h);
    const bool made = sample_history_create(job->params, b->most_tokens, b->model->hp.n_vocab, h);
    RULE(made, "no memory");
    for (uint32_t i = 0; i < job->n_tokens; i++)
        sample_history_add(*h, job->tokens[i], i >= job->n_prompt);
    return *h;
}

static void run_step(struct beside *b, struct slot *s)
{
    const uint32_t n_vocab = b->model->hp.n_vocab;
    float *logits = NULL;
    for (uint32_t i = 0; i < s->b.n_rows; i++)
        if (s->from[i] >= 0)
            s->tokens[i] = b->chosen[s->from[i]];
    for (uint32_t i = 0; i < s->b.n_rows; i++)
        RULE(s->tokens[i] >= 0 && (uint32_t)s->tokens[i] < n_vocab, "token %d", s->tokens[i]);
    s->err = b->options.fails_at == s->serial
                 ? err_set(&s->error, ERR_INTERNAL, "the device was told to fail")
                 : b->inner->ops->run(b->inner, &s->b, &logits, &s->error);
    if (s->err != OK)
        return;
    for (uint32_t i = 0; i < s->n_host_rows; i++)
        memcpy(s->logits + (size_t)i * n_vocab,
               logits + (size_t)s->host_rows[i] * n_vocab,
               n_vocab * sizeof *logits);
    for (uint32_t i = 0; i < s->b.n_hidden_rows; i++)
        memcpy(s->hidden + (size_t)i * b->n_hidden,
               b->inner->ops->hidden(b->inner, b->model->hp.n_labels ? BUF_SCORES : BUF_HIDDEN, i),
               b->n_hidden * sizeof *s->hidden);
    for (uint32_t i = 0; i < s->n_jobs; i++) {
        const struct async_job *job = &s->jobs[i].job;
        struct sample_history *h = history_of(b, job);
        s->chosen[i] = sample_token(job->params,
                                    h,
                                    job->position,
                                    logits + (size_t)job->logit_row * n_vocab,
                                    n_vocab,
                                    NULL,
                                    b->scratch);
        sample_history_add(h, s->chosen[i], true);
        b->chosen[i] = s->chosen[i];
    }
}

static void *device_main(void *arg)
{
    struct beside *b = arg;
    pthread_mutex_lock(&b->lock);
    while (!b->stops || b->n_orders > 0) {
        if (b->n_orders == 0) {
            pthread_cond_wait(&b->changed, &b->lock);
            continue;
        }
        struct order o = b->orders[b->head];
        pthread_mutex_unlock(&b->lock);
        delay(b);
        if (o.slot)
            run_step(b, o.slot);
        else
            b->inner->ops->block_copy(b->inner, o.from, o.to);
        pthread_mutex_lock(&b->lock);
        if (o.slot)
            o.slot->state = SLOT_DONE;
        b->head = (b->head + 1) % MOST_ORDERS;
        b->n_orders--;
        pthread_cond_broadcast(&b->changed);
    }
    pthread_mutex_unlock(&b->lock);
    return NULL;
}

static void give_order(struct beside *b, struct order o)
{
    pthread_mutex_lock(&b->lock);
    while (b->n_orders == MOST_ORDERS)
        pthread_cond_wait(&b->changed, &b->lock);
    b->orders[(b->head + b->n_orders++) % MOST_ORDERS] = o;
    pthread_cond_broadcast(&b->changed);
    pthread_mutex_unlock(&b->lock);
}

/* --- the host -------------------------------------------------------------------------------- */

static struct beside *of(const struct backend *base)
{
    return (struct beside *)(uintptr_t)base;
}

static void poison(struct beside *b, struct slot *s)
{
    const size_t n = (size_t)b->cfg.max_logit_rows * b->model->hp.n_vocab;
    for (uint32_t i = 0; i < b->cfg.max_seqs; i++)
        s->chosen[i] = INT32_MIN;
    for (size_t i = 0; i < n; i += 7)
        s->logits[i] = NAN;
    for (size_t i = 0; i < (size_t)b->cfg.max_rows * b->n_hidden; i++)
        s->hidden[i] = NAN;
}

static void take_seqs(struct beside *b, struct slot *s, const struct batch *from)
{
    for (uint32_t i = 0; i < from->n_seqs; i++) {
        const struct batch_seq *seq = &from->seqs[i];
        uint32_t *blocks = s->tables + (size_t)i * 3 * b->n_table, *panes = blocks + b->n_table;
        const uint32_t n = (seq->first_pos + seq->n_rows - 1) / b->cfg.block_tokens + 1;
        RULE(n <= b->n_table, "%u blocks", n);
        s->seqs[i] = *seq;
        s->seqs[i].blocks = blocks;
        memcpy(blocks, seq->blocks, n * sizeof *blocks);
        for (uint32_t k = 0; k < n; k++)
            RULE(blocks[k] < b->cfg.n_blocks, "block %u", blocks[k]);
        if (b->cfg.n_states > 0) {
            uint32_t *states = panes + b->n_table;
            s->seqs[i].states = states;
            memcpy(states, seq->states, n * sizeof *states);
            RULE(seq->state_to < b->cfg.n_states, "state %u", seq->state_to);
            RULE(!seq->first_pos || seq->state_from < b->cfg.n_states, "%u", seq->state_from);
        }
        if (b->cfg.n_panes == 0)
            continue;
        s->seqs[i].panes = panes;
        memcpy(panes, seq->panes, n * sizeof *panes);
    }
}

static void take_jobs(struct beside *b, struct slot *s, const struct async_step *from)
{
    s->n_jobs = from->n_jobs;
    for (uint32_t i = 0; i < from->n_jobs; i++) {
        struct job *j = &s->jobs[i];
        j->job = from->jobs[i];
        j->params = *j->job.params;
        RULE(j->job.slot < b->cfg.max_seqs, "slot %u", j->job.slot);
        RULE(j->job.logit_row < from->batch->n_logit_rows, "logit row %u", j->job.logit_row);
        for (uint32_t k = 0; k < i; k++)
            RULE(s->jobs[k].job.slot != j->job.slot, "two jobs of slot %u", j->job.slot);
        RULE(j->params.n_bias <= b->options.most_biases, "%u biases", j->params.n_bias);
        if (j->params.n_bias > 0)
            memcpy(j->biases, j->params.bias, j->params.n_bias * sizeof *j->biases);
        j->params.bias = j->biases;
        j->job.params = &j->params;
        if (!j->job.tokens)
            continue;
        RULE(j->job.n_tokens <= b->most_tokens && j->job.n_tokens == j->job.position,
             "%u tokens",
             j->job.n_tokens);
        memcpy(j->tokens, j->job.tokens, j->job.n_tokens * sizeof *j->tokens);
        j->job.tokens = j->tokens;
    }
}

static enum err begin(struct backend *base, const struct async_step *step, struct err_info *e)
{
    struct beside *b = of(base);
    const struct batch *from = step->batch;
    RULE(b->n_under_way < ASYNC_STEPS, "%u steps are under way", b->n_under_way);
    struct slot *s = &b->slots[(b->first + b->n_under_way) % ASYNC_STEPS];
    RULE(from->n_rows <= b->cfg.max_rows && from->n_seqs <= b->cfg.max_seqs &&
             from->n_logit_rows <= b->cfg.max_logit_rows && step->n_jobs <= b->cfg.max_seqs,
         "a step of %u rows",
         from->n_rows);
    b->ended = NULL;
    b->n_begun++;
    if (b->options.fails_to_begin && b->n_begun == b->options.fails_at)
        return err_set(e, ERR_INTERNAL, "the device was told to fail");
    poison(b, s);
    s->serial = b->n_begun;
    s->b = *from;
    for (uint32_t i = 0; i < from->n_rows; i++) {
        const struct slot *before = &b->slots[b->first];
        s->tokens[i] = from->tokens[i];
        s->positions[i] = from->positions[i];
        s->from[i] = step->token_from[i];
        RULE(s->from[i] < 0 || (b->n_under_way == 1 && (uint32_t)s->from[i] < before->n_jobs),
             "a token from job %d",
             s->from[i]);
        if (s->from[i] >= 0)
            s->tokens[i] = INT32_MIN;
    }
    memcpy(s->logit_rows, from->logit_rows, from->n_logit_rows * sizeof *s->logit_rows);
    memcpy(s->hidden_rows, from->hidden_rows, from->n_hidden_rows * sizeof *s->hidden_rows);
    memcpy(s->host_rows, step->host_rows, step->n_host_rows * sizeof *s->host_rows);
    s->n_host_rows = step->n_host_rows;
    take_seqs(b, s, from);
    take_jobs(b, s, step);
    s->b.tokens = s->tokens;
    s->b.positions = s->positions;
    s->b.seqs = s->seqs;
    s->b.logit_rows = s->logit_rows;
    s->b.hidden_rows = s->hidden_rows;
    s->state = SLOT_UNDER_WAY;
    b->n_under_way++;
    give_order(b, (struct order){.slot = s});
    return OK;
}

static enum err end(struct backend *base, struct async_result *out, struct err_info *e)
{
    struct beside *b = of(base);
    struct slot *s = &b->slots[b->first];
    RULE(b->n_under_way > 0, "no step is under way");
    pthread_mutex_lock(&b->lock);
    while (s->state != SLOT_DONE)
        pthread_cond_wait(&b->changed, &b->lock);
    pthread_mutex_unlock(&b->lock);
    s->state = SLOT_EMPTY;
    b->first = (b->first + 1) % ASYNC_STEPS;
    b->n_under_way--;
    b->ended = s;
    *out = (struct async_result){.chosen = s->chosen, .logits = s->logits};
    if (s->err != OK)
        *e = s->error;
    return s->err;
}

static bool can_choose(const struct backend *base, const struct sample_params *p)
{
    return p->n_bias <= of(base)->options.most_biases;
}

static enum err run(struct backend *base,
                    const struct batch *batch,
                    float **logits,
                    struct err_info *e)
{
    struct beside *b = of(base);
    RULE(b->n_under_way == 0, "run while steps are under way");
    return b->inner->ops->run(b->inner, batch, logits, e);
}

static const float *hidden(const struct backend *base, enum model_buf buf, uint32_t i)
{
    const struct beside *b = of(base);
    RULE(b->ended && i < b->ended->b.n_hidden_rows, "hidden row %u", i);
    RULE((buf == BUF_SCORES) == (b->model->hp.n_labels > 0), "buffer %d", buf);
    return b->ended->hidden + (size_t)i * b->n_hidden;
}

static void parallel(struct backend *base,
                     uint32_t n,
                     void (*fn)(void *ctx, uint32_t i, uint32_t w),
                     void *ctx)
{
    (void)base;
    for (uint32_t i = 0; i < n; i++)
        fn(ctx, i, 0);
}

static uint32_t n_workers(const struct backend *base)
{
    (void)base;
    return 1;
}

/* No step under way was given the place; or, to read it, none writes there. */
static void check_unused(const struct beside *b, struct backend_place p, bool to_read)
{
    for (uint32_t k = 0; k < b->n_under_way; k++) {
        const struct slot *s = &b->slots[(b->first + k) % ASYNC_STEPS];
        for (uint32_t i = 0; i < s->b.n_seqs; i++) {
            const struct batch_seq *seq = &s->seqs[i];
            const uint32_t size = b->cfg.block_tokens;
            const uint32_t last = (seq->first_pos + seq->n_rows - 1) / size;
            for (uint32_t at = to_read ? seq->first_pos / size : 0; at <= last; at++)
                RULE(seq->blocks[at] != p.block, "block %u is in use", p.block);
        }
    }
}

static void wait_for_copies(struct beside *b)
{
    pthread_mutex_lock(&b->lock);
    for (uint32_t i = 0; i < b->n_orders;) {
        if (b->orders[(b->head + i) % MOST_ORDERS].slot) {
            i++;
            continue;
        }
        pthread_cond_wait(&b->changed, &b->lock);
        i = 0;
    }
    pthread_mutex_unlock(&b->lock);
}

static void block_copy(struct backend *base, struct backend_place from, struct backend_place to)
{
    give_order(of(base), (struct order){.from = from, .to = to});
}

static bool block_read(struct backend *base, struct backend_place from, void *bytes)
{
    struct beside *b = of(base);
    check_unused(b, from, true);
    return b->inner->ops->block_read(b->inner, from, bytes);
}

static void block_write(struct backend *base, struct backend_place to, const void *bytes)
{
    struct beside *b = of(base);
    check_unused(b, to, false);
    wait_for_copies(b);
    b->inner->ops->block_write(b->inner, to, bytes);
}

static const char *kernels_name(const struct backend *base)
{
    const struct beside *b = of(base);
    return b->inner->ops->kernels_name(b->inner);
}

static void times(const struct backend *base, double *run_us, double *waited_us)
{
    const struct beside *b = of(base);
    b->inner->ops->times(b->inner, run_us, waited_us);
}

static size_t memory_bytes(const struct backend *base)
{
    const struct beside *b = of(base);
    return b->inner->ops->memory_bytes(b->inner);
}

static const char *describe(const struct backend *base)
{
    (void)base;
    return "the CPU, beside the host";
}

static void slot_deinit(struct slot *s, uint32_t max_seqs)
{
    for (uint32_t i = 0; i < max_seqs; i++) {
        free(s->jobs[i].biases);
        free(s->jobs[i].tokens);
    }
    free(s->tokens);
    free(s->from);
    free(s->positions);
    free(s->logit_rows);
    free(s->hidden_rows);
    free(s->host_rows);
    free(s->seqs);
    free(s->tables);
    free(s->jobs);
    free(s->chosen);
    free(s->logits);
    free(s->hidden);
}

static void destroy(struct backend *base)
{
    struct beside *b = of(base);
    pthread_mutex_lock(&b->lock);
    b->stops = true;
    pthread_cond_broadcast(&b->changed);
    pthread_mutex_unlock(&b->lock);
    pthread_join(b->thread, NULL);
    RULE(b->n_under_way == 0, "%u steps were left", b->n_under_way);
    for (uint32_t i = 0; i < b->cfg.max_seqs; i++)
        sample_history_destroy(b->histories[i]);
    for (uint32_t k = 0; k < ASYNC_STEPS; k++)
        slot_deinit(&b->slots[k], b->cfg.max_seqs);
    sample_scratch_destroy(b->scratch);
    free(b->histories);
    free(b->chosen);
    b->inner->ops->destroy(b->inner);
    pthread_mutex_destroy(&b->lock);
    pthread_cond_destroy(&b->changed);
    free(b);
}

static void slot_init(const struct beside *b, struct slot *s)
{
    const struct backend_config *c = &b->cfg;
    const size_t n_vocab = b->model->hp.n_vocab;
    s->tokens = mem_zalloc(c->max_rows, sizeof *s->tokens);
    s->from = mem_zalloc(c->max_rows, sizeof *s->from);
    s->positions = mem_zalloc(c->max_rows, sizeof *s->positions);
    s->logit_rows = mem_zalloc(c->max_logit_rows, sizeof *s->logit_rows);
    s->hidden_rows = mem_zalloc(c->max_rows, sizeof *s->hidden_rows);
    s->host_rows = mem_zalloc(c->max_logit_rows, sizeof *s->host_rows);
    s->seqs = mem_zalloc(c->max_seqs, sizeof *s->seqs);
    s->tables = mem_zalloc((size_t)c->max_seqs * 3 * b->n_table, sizeof *s->tables);
    s->jobs = mem_zalloc(c->max_seqs, sizeof *s->jobs);
    for (uint32_t i = 0; i < c->max_seqs; i++) {
        s->jobs[i].biases = mem_zalloc(b->options.most_biases + 1, sizeof(struct logit_bias));
        s->jobs[i].tokens = mem_zalloc(b->most_tokens, sizeof(int32_t));
    }
    s->chosen = mem_zalloc(c->max_seqs, sizeof *s->chosen);
    s->logits = mem_zalloc((size_t)c->max_logit_rows * n_vocab, sizeof *s->logits);
    s->hidden = mem_zalloc((size_t)c->max_rows * b->n_hidden, sizeof *s->hidden);
}

enum err beside_create(const struct model *m,
                       const struct backend_config *cfg,
                       struct backend **out,
                       struct err_info *e)
{
    static const struct async_ops async = {.can_choose = can_choose, .begin = begin, .end = end};
    static const struct backend_ops ops = {.name = "beside",
                                           .run = run,
                                           .hidden = hidden,
                                           .parallel = parallel,
                                           .n_workers = n_workers,
                                           .block_copy = block_copy,
                                           .block_read = block_read,
                                           .block_write = block_write,
                                           .kernels_name = kernels_name,
                                           .times = times,
                                           .memory_bytes = memory_bytes,
                                           .describe = describe,
                                           .destroy = destroy,
                                           .async = &async};
    struct backend *inner;
    enum err err = cpu_backend_create(m, cfg, &inner, e);
    if (err != OK)
        return err;
    struct beside *b = mem_zalloc(1, sizeof *b);
    b->base.ops = &ops;
    b->inner = inner;
    b->model = m;
    b->cfg = *cfg;
    b->options = next_options;
    b->rng = b->options.seed;
    b->most_tokens = m->hp.n_ctx_train < 4096 ? 4096 : m->hp.n_ctx_train;
    b->n_table = b->most_tokens / cfg->block_tokens + 1;
    b->n_hidden = m->hp.n_labels ? m->hp.n_labels : m->hp.n_embd;
    for (uint32_t k = 0; k < ASYNC_STEPS; k++)
        slot_init(b, &b->slots[k]);
    b->chosen = mem_zalloc(cfg->max_seqs, sizeof *b->chosen);
    b->histories = mem_zalloc(cfg->max_seqs, sizeof(struct sample_history *));
    b->scratch = sample_scratch_create(m->hp.n_vocab);
    pthread_mutex_init(&b->lock, NULL);
    pthread_cond_init(&b->changed, NULL);
    RULE(pthread_create(&b->thread, NULL, device_main, b) == 0, "no thread");
    *out = &b->base;
    return OK;
}
