/* Life of the engine: creation, submission, the thread, the way out of events. */
#include "engine/engine.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/thread.h"
#include "engine/dense.h"
#include "engine/memory.h"
#include "engine/stats.h"
#include "engine/step.h"

#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

/* Logits of all prompt rows are asked for rarely, but should not come one row a step. */
#define MIN_LOGIT_ROWS 64
#define TIER_PATIENCE_MS 50
#define CHECK_EVERY_US 1000000
#define CHECK_SHARE 20 /* looking after the KV memory takes at most 1/20 of the time */
#define MAX_WHOLE_ROWS 8192u

struct engine_config engine_config_default(void)
{
    return (struct engine_config){.kv_type = KV_F16,
                                  .block_tokens = 16,
                                  .max_running = 256,
                                  .max_queue = 2048,
                                  .overcommit = 0.9,
                                  .batch_tokens = 512};
}

/* A text that is computed whole needs a row for each token. The rows cost memory when they are
 * first used, but addresses at once: so models of very long contexts get fewer, unless more are
 * asked for. */
static void widen_steps(struct engine *eng)
{
    const uint32_t most = eng->n_ctx < MAX_WHOLE_ROWS ? eng->n_ctx : MAX_WHOLE_ROWS;
    if (eng->model->hp.causal)
        return;
    if (eng->max_rows < most)
        eng->max_rows = most;
    if (eng->n_ctx > eng->max_rows) {
        eng->n_ctx = eng->max_rows;
        log_warn("texts are computed whole, in steps of %u rows: the context is limited to that",
                 eng->n_ctx);
    }
}

static void choose_pooling(struct engine *eng)
{
    const struct model_hparams *hp = &eng->model->hp;
    eng->pooling = eng->cfg.pooling ? eng->cfg.pooling : hp->pooling;
    if (eng->pooling == POOLING_UNSPECIFIED)
        eng->pooling = hp->causal ? POOLING_LAST : POOLING_MEAN;
}

static enum err check_config(struct engine *eng, struct err_info *e)
{
    struct engine_config *cfg = &eng->cfg;
    if (cfg->block_tokens == 0)
        cfg->block_tokens = 16;
    if (cfg->max_running == 0 || cfg->batch_tokens == 0)
        return err_set(e, ERR_INVALID, "max-running and batch-tokens must be at least 1");
    if (cfg->n_draft > ENGINE_MAX_DRAFT)
        return err_set(
            e, ERR_INVALID, "drafts of %u tokens; at most %d", cfg->n_draft, ENGINE_MAX_DRAFT);
    uint32_t trained = eng->model->hp.n_ctx_train, n_positions = eng->model->hp.n_positions;
    eng->n_ctx = cfg->n_ctx ? cfg->n_ctx : model_default_context(eng->model);
    if (!cfg->n_ctx && eng->n_ctx < trained)
        log_warn("a context of %u tokens, not %u: the model%s %u positions",
                 n_positions,
                 trained,
                 model_positions_verb(eng->model),
                 n_positions);
    if (n_positions && eng->n_ctx > n_positions)
        return err_set_field(e,
                             ERR_INVALID,
                             "context",
                             "%u tokens, but the model%s %u positions",
                             eng->n_ctx,
                             model_positions_verb(eng->model),
                             n_positions);
    if (eng->n_ctx > trained)
        log_warn("a context of %u tokens is longer than the %u the model was trained on",
                 eng->n_ctx,
                 trained);
    if (cfg->max_queue > UINT32_MAX - cfg->max_running)
        return err_set(e, ERR_INVALID, "max-running and max-queue are too large");
    eng->max_rows = cfg->batch_tokens > cfg->max_running ? cfg->batch_tokens : cfg->max_running;
    widen_steps(eng);
    choose_pooling(eng);
    eng->max_logit_rows = cfg->max_running > MIN_LOGIT_ROWS ? cfg->max_running : MIN_LOGIT_ROWS;
    if (tokenizer_n_vocab(eng->tokenizer) > eng->model->hp.n_vocab)
        return err_set(e,
                       ERR_FORMAT,
                       "the tokenizer has %u tokens, the model's embedding only %u",
                       tokenizer_n_vocab(eng->tokenizer),
                       eng->model->hp.n_vocab);
    return OK;
}

static enum err create_sched(struct engine *eng, struct err_info *e)
{
    const struct engine_config *cfg = &eng->cfg;
    uint32_t per_seq = (eng->n_ctx + cfg->block_tokens - 1) / cfg->block_tokens;
    struct sched_config sc = {.max_running = cfg->max_running,
                              .max_waiting = cfg->max_running + cfg->max_queue,
                              .max_rows = eng->max_rows,
                              .max_logit_rows = eng->max_logit_rows,
                              .max_blocks_per_seq = per_seq,
                              .whole = !eng->model->hp.causal,
                              .overcommit = cfg->overcommit};
    return sched_create(&sc, eng->kv, &eng->sched, e);
}

static enum err create_workspace(struct engine *eng, struct err_info *e)
{
    uint32_t n = eng->backend->ops->n_workers(eng->backend), n_vocab = eng->model->hp.n_vocab;
    eng->scratch = mem_zalloc(n + 1, sizeof(struct sample_scratch *));
    eng->rows = mem_zalloc(n + 1, sizeof(float *));
    for (uint32_t i = 0; i < n; i++) {
        eng->scratch[i] = sample_scratch_create(n_vocab);
        eng->rows[i] = mem_aligned(n_vocab * sizeof(float));
        if (!eng->scratch[i] || !eng->rows[i])
            return err_set(e, ERR_NOMEM, "no memory for sampling over %u tokens", n_vocab);
    }
    enum err err = dense_create(eng->model, n, &eng->dense, e);
    if (!err)
        err = quota_init(&eng->quota, eng->cfg.max_running + eng->cfg.max_queue, e);
    for (uint32_t k = 0; k < ASYNC_STEPS && err == OK; k++)
        err = step_batch_init(
            &eng->steps[k], eng->max_rows, eng->cfg.max_running, eng->max_logit_rows, e);
    return err;
}

static enum err create_backend(struct engine *eng, struct err_info *e)
{
    struct backend_config bc = {.device = eng->cfg.device,
                                .n_threads = eng->cfg.n_threads,
                                .kv_type = eng->cfg.kv_type,
                                .block_tokens = eng->cfg.block_tokens,
                                .max_positions = eng->n_ctx,
                                .max_rows = eng->max_rows,
                                .max_seqs = eng->cfg.max_running,
                                .max_logit_rows = eng->max_logit_rows,
                                .progress = eng->cfg.progress,
                                .progress_ctx = eng->cfg.progress_ctx};
    struct backend_room room = {0};
    enum err err = OK;
    if (!eng->cfg.make_backend)
        err = backend_choose(eng->model, &bc, eng->cfg.kv_bytes, &room, e);
    if (err == OK && room.kv_bytes == 0)
        err = memory_check_asked(eng, e);
    if (err == OK)
        err = memory_divide(eng, room.kv_bytes, e);
    if (err == OK)
        err = memory_check_host(eng, room.kv_bytes > 0, e);
    if (err)
        return err;
    if (eng->cfg.cache_dir) /* before the weights are loaded, which finds the file read */
        eng->file_hash = gguf_hash(eng->model->gguf);
    bc.n_blocks = eng->memory.n_blocks;
    bc.n_panes = eng->memory.n_panes;
    bc.n_states = eng->memory.n_states;
    err = eng->cfg.make_backend ? eng->cfg.make_backend(eng->model, &bc, &eng->backend, e)
                                : backend_create(eng->model, &bc, &eng->backend, e);
    if (err == OK) {
        eng->async = eng->backend->ops->async;
        if (eng->cfg.n_draft > 0 && (eng->async || eng->memory.n_states > 0))
            log_warn("nothing is drafted: %s",
                     eng->async ? "the device chooses tokens itself"
                                : "a model's recurrent layers cannot take back what was wrong");
        err = memory_open(eng, e);
    }
    return err ? err : create_sched(eng, e);
}

/* Take what was submitted into the scheduler. The queue's bound was checked at submission. */
static void take_submitted(struct engine *eng, struct request *head)
{
    while (head) {
        struct request *r = head;
        struct err_info e;
        head = r->next_submit;
        r->prev_active = NULL;
        r->next_active = eng->active;
        if (eng->active)
            eng->active->prev_active = r;
        eng->active = r;
        if (sched_add(eng->sched, &r->seq, &e) != OK) {
            r->error = e;
            step_finish(eng, r, FINISH_ERROR);
        }
    }
}

static void finish_cancelled(struct engine *eng, bool all)
{
    for (struct request *r = eng->active, *next; r; r = next) {
        next = r->next_active;
        if (all || atomic_load_explicit(&r->cancel, memory_order_relaxed))
            step_finish(eng, r, FINISH_CANCELLED);
    }
}

/* Queue lengths as of now, also when no step runs. */
static void note_queues(struct engine *eng)
{
    struct kv_stats kv = kv_stats(eng->kv);
    pthread_mutex_lock(&eng->stats_lock);
    eng->stats.running = sched_n_running(eng->sched);
    eng->stats.waiting = sched_n_waiting(eng->sched);
    eng->stats.preemptions = sched_n_preempted(eng->sched);
    eng->stats.kv = kv;
    pthread_mutex_unlock(&eng->stats_lock);
}

/* Until there is something to do; what waits for the tier is looked after now and then in any case.
 */
static void wait_for_work(struct engine *eng)
{
    const struct timespec until = clock_spec(clock_us() + TIER_PATIENCE_MS * 1000);
    while (!eng->submit_head && !eng->any_cancel && !eng->stopping && !eng->tier_news &&
           !eng->check_wanted) {
        if (!eng->waits_for_tier)
            pthread_cond_wait(&eng->submit_cond, &eng->submit_lock);
        else if (pthread_cond_timedwait(&eng->submit_cond, &eng->submit_lock, &until) != 0)
            return;
    }
}

/* There is a first request, and none before it that waits for blocks from the disk: let others come
 * to the first step, for as long as the window is. */
static void wait_for_company(struct engine *eng)
{
    const struct timespec until = clock_spec(clock_us() + eng->cfg.batch_window_ms * 1000ull);
    while (eng->quota.n_all < eng->cfg.max_running && !eng->any_cancel && !eng->draining &&
           !eng->stopping)
        if (pthread_cond_timedwait(&eng->submit_cond, &eng->submit_lock, &until) != 0)
            return;
}

static void check_memory(struct engine *eng)
{
    struct err_info e = {0};
    const uint64_t start_us = clock_us();
    if (!eng->cfg.check_always && start_us < eng->next_check_us)
        return;
    enum err err = sched_check(eng->sched, &e);
    const uint64_t now_us = clock_us(), pause_us = (now_us - start_us) * CHECK_SHARE;
    eng->next_check_us = now_us + (pause_us > CHECK_EVERY_US ? pause_us : CHECK_EVERY_US);
    if (err != OK)
        log_error("%s", e.text);
    pthread_mutex_lock(&eng->stats_lock);
    eng->stats.checks++;
    if (!eng->cfg.check_always || eng->stats.checks == 1 || eng->stats.check_ok) {
        eng->stats.check_ok = err == OK;
        eng->stats.check_error = e;
    }
    pthread_mutex_unlock(&eng->stats_lock);
}

/* Wait for work if there is none; take it. False when the engine is to stop. */
static bool take_work(struct engine *eng, bool idle)
{
    pthread_mutex_lock(&eng->submit_lock);
    if (idle)
        wait_for_work(eng);
    if (idle && !eng->active && eng->submit_head && eng->cfg.batch_window_ms > 0)
        wait_for_company(eng);
    bool check = eng->check_wanted;
    eng->tier_news = eng->check_wanted = false;
    struct request *head = eng->submit_head;
    bool stopping = eng->stopping, all_cancel = eng->all_cancel || stopping;
    bool any_cancel = eng->any_cancel || all_cancel;
    eng->submit_head = eng->submit_tail = NULL;
    eng->any_cancel = eng->all_cancel = false;
    pthread_mutex_unlock(&eng->submit_lock);
    if (check)
        check_memory(eng);
    take_submitted(eng, head);
    if (any_cancel)
        finish_cancelled(eng, all_cancel);
    return !stopping;
}

/* Debug builds look whenever nothing runs, and now and then while something does. */
static void debug_check(const struct engine *eng, bool idle)
{
#ifndef NDEBUG
    struct err_info e;
    if ((idle || eng->stats.steps % 256 == 0) && sched_check(eng->sched, &e) != OK) {
        log_error("%s", e.text);
        abort();
    }
#else
    (void)eng;
    (void)idle;
#endif
}

static void *engine_main(void *arg)
{
    struct engine *eng = arg;
    bool idle = true;
    while (take_work(eng, idle)) {
        uint64_t before = mem_watched();
        mem_watch(true);
        idle = !step_run(eng);
        step_publish(eng);
        mem_watch(false);
        uint64_t n = mem_watched() - before;
        if (n > 0) {
            pthread_mutex_lock(&eng->stats_lock);
            eng->stats.step_allocations += n;
            pthread_mutex_unlock(&eng->stats_lock);
        }
        if (idle)
            note_queues(eng);
        if (eng->cfg.check_always)
            check_memory(eng);
        debug_check(eng, idle);
    }
    step_drain(eng);
    step_publish(eng);
    note_queues(eng);
    return NULL;
}

enum err engine_create(const struct model *m,
                       const struct tokenizer *t,
                       const struct engine_config *cfg,
                       struct engine **out,
                       struct err_info *e)
{
    struct engine *eng = mem_zalloc(1, sizeof *eng);
    *out = NULL;
    eng->model = m;
    eng->tokenizer = t;
    eng->cfg = *cfg;
    pthread_mutex_init(&eng->submit_lock, NULL);
    clock_cond_init(&eng->submit_cond);
    pthread_mutex_init(&eng->event_lock, NULL);
    pthread_mutex_init(&eng->stats_lock, NULL);
    eng->event_fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    enum err err = eng->event_fd < 0 ? err_set(e, ERR_IO, "cannot create an eventfd") : OK;
    if (err || (err = check_config(eng, e)) || (err = create_backend(eng, e)) ||
        (err = create_workspace(eng, e))) {
        engine_destroy(eng);
        return err;
    }
    eng->guide = guide_create(t, m->hp.n_vocab, cfg->max_running);
    pace_init(&eng->pace, eng->cfg.itl_target_ms);
    stats_init(&eng->stats);
    eng->stats.max_running = cfg->max_running;
    eng->stats.max_queue = cfg->max_queue;
    eng->stats.kv_block_tokens = eng->cfg.block_tokens;
    eng->stats.kv_block_bytes = eng->memory.block_bytes;
    eng->stats.kv_pane_bytes = eng->memory.pane_bytes;
    eng->stats.kv_window = eng->memory.window;
    eng->stats.kv_state_bytes = eng->memory.state_bytes;
    eng->stats.memory_bytes = eng->backend->ops->memory_bytes(eng->backend);
    note_queues(eng);
    if (thread_start(&eng->thread, engine_main, eng) != 0) {
        engine_destroy(eng);
        return err_set(e, ERR_NOMEM, "cannot start the engine thread");
    }
    eng->thread_started = true;
    *out = eng;
    return OK;
}

enum err engine_submit_all(struct engine *eng,
                           struct request *const *rs,
                           uint32_t n,
                           struct err_info *e)
{
    uint64_t now_us = clock_us();
    enum err err = OK;
    pthread_mutex_lock(&eng->submit_lock);
    if (eng->draining || eng->stopping)
        err = err_set(e, ERR_DRAINING, "the server is shutting down");
    else if (n > eng->quota.room)
        err = err_set_field(e,
                            ERR_INVALID,
                            "n",
                            "%u answers at once, but at most %u can be running or waiting",
                            n,
                            eng->quota.room);
    else if (n > 0)
        err = quota_take(&eng->quota, rs[0]->params.tenant, n, e);
    for (uint32_t i = 0; !err && i < n; i++) {
        rs[i]->now.times.submit_us = now_us;
        rs[i]->next_submit = NULL;
        *(eng->submit_head ? &eng->submit_tail->next_submit : &eng->submit_head) = rs[i];
        eng->submit_tail = rs[i];
    }
    if (!err)
        pthread_cond_signal(&eng->submit_cond);
    pthread_mutex_unlock(&eng->submit_lock);
    return err;
}

enum err engine_submit(struct engine *eng, struct request *r, struct err_info *e)
{
    return engine_submit_all(eng, &r, 1, e);
}

void engine_cancel(struct engine *eng, struct request *r)
{
    pthread_mutex_lock(&eng->submit_lock);
    atomic_store_explicit(&r->cancel, true, memory_order_relaxed);
    eng->any_cancel = true;
    pthread_cond_signal(&eng->submit_cond);
    pthread_mutex_unlock(&eng->submit_lock);
}

void engine_cancel_all(struct engine *eng)
{
    pthread_mutex_lock(&eng->submit_lock);
    eng->any_cancel = eng->all_cancel = true;
    pthread_cond_signal(&eng->submit_cond);
    pthread_mutex_unlock(&eng->submit_lock);
}

void engine_want_check(struct engine *eng)
{
    pthread_mutex_lock(&eng->submit_lock);
    eng->check_wanted = true;
    pthread_cond_signal(&eng->submit_cond);
    pthread_mutex_unlock(&eng->submit_lock);
}

int engine_event_fd(const struct engine *eng)
{
    return eng->event_fd;
}

struct request *engine_next_event(struct engine *eng)
{
    pthread_mutex_lock(&eng->event_lock);
    struct request *r = eng->event_head;
    if (r) {
        eng->event_head = r->next_event;
        r->queued = false;
        r->seen = r->published;
    } else {
        eventfd_t ignored;
        eventfd_read(eng->event_fd, &ignored);
    }
    pthread_mutex_unlock(&eng->event_lock);
    return r;
}

void engine_drain(struct engine *eng)
{
    pthread_mutex_lock(&eng->submit_lock);
    eng->draining = true;
    pthread_cond_signal(&eng->submit_cond); /* nobody else comes, so nobody is waited for */
    pthread_mutex_unlock(&eng->submit_lock);
}

void engine_stop(struct engine *eng)
{
    if (!eng->thread_started)
        return;
    pthread_mutex_lock(&eng->submit_lock);
    eng->stopping = true;
    pthread_cond_signal(&eng->submit_cond);
    pthread_mutex_unlock(&eng->submit_lock);
    pthread_join(eng->thread, NULL);
    eng->thread_started = false;
}

static void destroy_workspace(struct engine *eng)
{
    for (uint32_t i = 0; eng->scratch && eng->scratch[i]; i++)
        sample_scratch_destroy(eng->scratch[i]);
    for (uint32_t i = 0; eng->rows && eng->rows[i]; i++)
        free(eng->rows[i]);
    free(eng->scratch);
    dense_destroy(eng->dense);
    free(eng->rows);
    for (uint32_t k = 0; k < ASYNC_STEPS; k++)
        step_batch_deinit(&eng->steps[k]);
    quota_deinit(&eng->quota);
}

void engine_destroy(struct engine *eng)
{
    if (!eng)
        return;
    engine_stop(eng);
    guide_destroy(eng->guide);
    destroy_workspace(eng);
    sched_destroy(eng->sched);
    memory_close(eng);
    if (eng->backend)
        eng->backend->ops->destroy(eng->backend);
    if (eng->event_fd >= 0)
        close(eng->event_fd);
    pthread_mutex_destroy(&eng->submit_lock);
    pthread_cond_destroy(&eng->submit_cond);
    pthread_mutex_destroy(&eng->event_lock);
    pthread_mutex_destroy(&eng->stats_lock);
    free(eng);
}

uint32_t engine_n_ctx(const struct engine *eng)
{
    return eng->n_ctx;
}

enum pooling engine_pooling(const struct engine *eng)
{
    return eng->pooling;
}

const struct model *engine_model(const struct engine *eng)
{
    return eng->model;
}

const struct tokenizer *engine_tokenizer(const struct engine *eng)
{
    return eng->tokenizer;
}

enum err engine_vocab(struct engine *eng, const struct grammar_vocab **out, struct err_info *e)
{
    return guide_vocab(eng->guide, out, e);
}

const char *engine_describe(const struct engine *eng)
{
    return eng->backend->ops->describe(eng->backend);
}

bool engine_on_gpu(const struct engine *eng)
{
    return eng->backend->ops->gpu_stats != NULL;
}

enum err engine_working(const struct engine *eng, struct err_info *e)
{
    pthread_mutex_t *lock = (pthread_mutex_t *)&eng->stats_lock;
    pthread_mutex_lock(lock);
    enum err err = eng->step_error.code;
    if (err != OK && e)
        *e = eng->step_error;
    pthread_mutex_unlock(lock);
    return err;
}

void engine_stats_get(const struct engine *eng, struct engine_stats *out)
{
    pthread_mutex_t *lock = (pthread_mutex_t *)&eng->stats_lock;
    pthread_mutex_lock(lock);
    *out = eng->stats;
    pthread_mutex_unlock(lock);
    eng->backend->ops->times(eng->backend, &out->run_us, &out->waited_us);
    out->on_gpu = engine_on_gpu(eng);
    if (out->on_gpu)
        eng->backend->ops->gpu_stats(eng->backend, &out->gpu);
    out->masks = guide_stats(eng->guide);
    out->n_tiers = 0;
    for (struct kv_tier *t = eng->tier; t; t = t->below) {
        struct engine_tier *tier = &out->tiers[out->n_tiers++];
        tier->name = t->ops->name;
        t->ops->stats(t, &tier->stats);
    }
}
