/* The body of the engine's loop: plan, fill the batch, run, sample, publish.
 *
 * Nothing in here allocates: engine.c switches the watch on around it and the count is exported. */
#include "engine/step.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "engine/embed.h"
#include "engine/stats.h"
#include "engine/timeline.h"

#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>

enum err step_batch_init(struct step_batch *s,
                         uint32_t max_rows,
                         uint32_t max_running,
                         uint32_t max_logit_rows,
                         struct err_info *e)
{
    s->tokens = calloc(max_rows, sizeof *s->tokens);
    s->positions = calloc(max_rows, sizeof *s->positions);
    s->seqs = calloc(max_running, sizeof *s->seqs);
    s->logit_rows = calloc(max_logit_rows, sizeof *s->logit_rows);
    s->jobs = calloc(max_running, sizeof *s->jobs);
    s->hidden_rows = calloc(max_rows, sizeof *s->hidden_rows);
    s->vectors = calloc(max_running, sizeof *s->vectors);
    if (!s->tokens || !s->positions || !s->seqs || !s->logit_rows || !s->jobs || !s->hidden_rows ||
        !s->vectors)
        return err_set(e, ERR_NOMEM, "no memory for a batch of %u rows", max_rows);
    return OK;
}

void step_batch_deinit(struct step_batch *s)
{
    free(s->tokens);
    free(s->positions);
    free(s->seqs);
    free(s->logit_rows);
    free(s->jobs);
    free(s->hidden_rows);
    free(s->vectors);
}

/* Rows this step may have, so that it lasts about as long as its target. */
static uint32_t row_budget(const struct engine *eng)
{
    struct sched_load now = sched_load(eng->sched);
    struct pace_load load = {.n_decodes = now.n_decodes,
                             .decodes_attend = now.decodes_attend,
                             .depth = now.prefill_depth};
    return pace_rows(&eng->pace, &load, eng->max_rows);
}

static void learn_pace(struct pace *pace, const struct sched_plan *plan, uint64_t us)
{
    struct pace_step s = {.n_decodes = plan->n_decodes,
                          .n_prefill = plan->n_rows - plan->n_decodes};
    for (uint32_t i = 0; i < plan->n_items; i++) {
        const struct sched_item *item = &plan->items[i];
        uint64_t n = item->n_rows, attend = n * item->first + n * (n + 1) / 2;
        *(i < plan->n_decodes ? &s.decodes_attend : &s.prefill_attends) += attend;
    }
    pace_learn(pace, &s, (double)us);
}

/* Does the item's last row choose a token? */
static bool samples(const struct sched_item *item)
{
    const struct request *r = item->seq->user;
    return item->samples && r->params.output == OUTPUT_TOKENS;
}

/* Rows of one item into the batch. */
static void fill_item(struct engine *eng, const struct sched_item *item)
{
    struct step_batch *s = &eng->batch;
    struct request *r = item->seq->user;
    struct batch *b = &s->b;
    s->seqs[b->n_seqs++] = (struct batch_seq){.first_row = b->n_rows,
                                              .n_rows = item->n_rows,
                                              .first_pos = item->first,
                                              .blocks = item->seq->table.blocks,
                                              .panes = item->seq->table.panes,
                                              .second = r->params.n_first};
    memcpy(s->tokens + b->n_rows, r->tokens + item->first, item->n_rows * sizeof *s->tokens);
    for (uint32_t i = 0; i < item->n_rows; i++)
        s->positions[b->n_rows + i] = item->first + i;
    uint32_t last = b->n_rows + item->n_rows - 1;
    if (item->seq->all_logits && item->first < r->n_prompt) {
        for (uint32_t row = b->n_rows; row <= last; row++)
            s->logit_rows[b->n_logit_rows++] = row;
    } else if (samples(item)) {
        s->logit_rows[b->n_logit_rows++] = last;
    }
    if (samples(item))
        s->jobs[s->n_jobs++] = (struct sample_job){.r = r, .logit_row = b->n_logit_rows - 1};
    else
        embed_fill(eng, item);
    b->n_rows += item->n_rows;
}

static void fill_batch(struct engine *eng, const struct sched_plan *plan)
{
    struct step_batch *s = &eng->batch;
    s->n_jobs = s->n_vectors = 0;
    s->b = (struct batch){.tokens = s->tokens,
                          .positions = s->positions,
                          .seqs = s->seqs,
                          .logit_rows = s->logit_rows,
                          .hidden_rows = s->hidden_rows};
    for (uint32_t i = 0; i < plan->n_items; i++)
        fill_item(eng, &plan->items[i]);
}

/* Choose one row's token. Any worker, each row once. */
static void sample_job(void *ctx, uint32_t i, uint32_t worker)
{
    struct engine *eng = ctx;
    struct sample_job *job = &eng->batch.jobs[i];
    const struct request *r = job->r;
    uint32_t n_vocab = eng->model->hp.n_vocab;
    float *logits = eng->batch.logits + (size_t)job->logit_row * n_vocab;
    float *row = logits;
    if (r->params.logprobs) { /* sampling overwrites its row, and the model's own is asked for */
        row = eng->rows[worker];
        memcpy(row, logits, n_vocab * sizeof *row);
    }
    struct grammar_mask mask = {0};
    if (r->grammar) {
        mask = guide_mask(eng->guide, r->grammar, r->params.ignore_eos);
        if (!mask.none)
            sample_mask(row, n_vocab, mask.bits, mask.but);
    }
    token_id due = thought_next(&r->thought);
    job->chosen = mask.none           ? TOKEN_NONE
                  : due != TOKEN_NONE ? due
                                      : sample_token(&r->params.sample,
                                                     r->history,
                                                     r->seq.n_known,
                                                     row,
                                                     n_vocab,
                                                     eng->scratch[worker]);
    if (r->grammar)
        guide_release(eng->guide, &mask, &job->chosen);
    if (r->params.logprobs) {
        uint32_t n_top = r->params.n_top_logprobs;
        struct token_logprob *top = r->top ? r->top + (size_t)r->now.n_out * n_top : NULL;
        job->logprob = sample_logprobs(logits, n_vocab, job->chosen, n_top, top);
    }
}

/* Log-probabilities of the prompt tokens that this item's rows predict. */
static void prompt_logprobs(struct engine *eng, const struct sched_item *item, uint32_t logit_row)
{
    struct request *r = item->seq->user;
    uint32_t n_vocab = eng->model->hp.n_vocab, n_top = r->params.n_top_logprobs;
    for (uint32_t i = 0; i < item->n_rows; i++) {
        uint32_t next = item->first + i + 1;
        if (next >= r->n_prompt)
            break;
        const float *logits = eng->batch.logits + (size_t)(logit_row + i) * n_vocab;
        struct token_logprob *top = r->prompt_top ? r->prompt_top + (size_t)next * n_top : NULL;
        r->prompt_logprobs[next] = sample_logprobs(logits, n_vocab, r->tokens[next], n_top, top);
    }
}

static void note_news(struct engine *eng, struct request *r)
{
    if (r->has_news)
        return;
    r->has_news = true;
    r->next_news = eng->news;
    eng->news = r;
}

void step_finish(struct engine *eng, struct request *r, enum finish finish)
{
    sched_remove(eng->sched, &r->seq);
    r->now.finish = finish;
    r->now.text_bytes = (uint32_t)r->n_text_bytes;
    *(r->prev_active ? &r->prev_active->next_active : &eng->active) = r->next_active;
    if (r->next_active)
        r->next_active->prev_active = r->prev_active;
    note_news(eng, r);
    r->now.times.end_us = clock_us();
    pthread_mutex_lock(&eng->stats_lock);
    stats_finished(&eng->stats, r, r->now.times.end_us);
    pthread_mutex_unlock(&eng->stats_lock);
}

static bool is_stop_id(const struct request *r, token_id id)
{
    for (uint32_t i = 0; i < r->params.n_stop_ids; i++) {
        if (r->params.stop_ids[i] == id)
            return true;
    }
    return false;
}

/* The grammar leaves no token; `why`, where the text is not complete. */
static void finish_without_token(struct engine *eng, struct request *r, const char *why)
{
    bool complete = grammar_complete(r->grammar); /* and the model's own end is not wanted */
    if (!complete)
        (void)err_set(&r->error, ERR_UNSUPPORTED, "%s", why);
    r->now.stop = complete ? STOP_GRAMMAR : STOP_NONE;
    step_finish(eng, r, complete ? FINISH_STOP : FINISH_ERROR);
}

static void note_thought(struct engine *eng, struct request *r, token_id id)
{
    size_t n;
    const char *bytes = tokenizer_bytes(eng->tokenizer, id, true, &n);
    thought_accept(&r->thought, id, bytes, n);
}

/* Append a chosen token to its request and see whether the request is done. */
static void accept_token(struct engine *eng, const struct sample_job *job)
{
    struct request *r = job->r;
    if (job->chosen == TOKEN_NONE) {
        finish_without_token(
            eng,
            r,
            "no token of the model's vocabulary can continue the text as the grammar wants it");
        return;
    }
    r->now.n_completion++;
    if (is_stop_id(r, job->chosen))
        r->now.stop = STOP_ID;
    else if (!r->params.ignore_eos && tokenizer_is_eog(eng->tokenizer, job->chosen))
        r->now.stop = STOP_EOG;
    if (r->now.stop != STOP_NONE) {
        step_finish(eng, r, FINISH_STOP);
        return;
    }
    enum grammar_step to =
        r->grammar ? guide_accept(eng->guide, r->grammar, job->chosen) : GRAMMAR_GOES_ON;
    if (to == GRAMMAR_REFUSED) {
        finish_without_token(
            eng, r, "the grammar is too ambiguous: its parses of this text found no room");
        return;
    }
    size_t n_bytes;
    const char *bytes = tokenizer_bytes(eng->tokenizer, job->chosen, false, &n_bytes);
    uint64_t end_bytes = 0;
    bool stopped = stop_feed(r->stop, bytes, n_bytes, &end_bytes, &r->now.stop_text);
    r->n_text_bytes += n_bytes;
    if (r->thought.limit.on)
        note_thought(eng, r, job->chosen);
    uint64_t shown = stopped ? end_bytes : r->n_text_bytes - stop_held(r->stop);
    r->out[r->now.n_out++] = (struct request_token){
        .id = job->chosen, .logprob = job->logprob, .text_bytes = (uint32_t)shown};
    r->tokens[r->seq.n_known] = job->chosen;
    if (r->history)
        sample_history_add(r->history, job->chosen, true);
    sched_append(eng->sched, &r->seq);
    note_news(eng, r);
    if (stopped) {
        r->now.stop = STOP_TEXT;
        r->n_text_bytes = end_bytes; /* the rest of the token was cut off */
        step_finish(eng, r, FINISH_STOP);
    } else if (to == GRAMMAR_ENDED) {
        r->now.stop = STOP_GRAMMAR;
        step_finish(eng, r, FINISH_STOP);
    } else if (r->now.n_out == r->max_new) {
        step_finish(eng, r, FINISH_LENGTH);
    }
}

/* After a preemption the prompt is computed again: that is no progress. */
static void note_progress(struct engine *eng, struct request *r, uint32_t n)
{
    n = n < r->n_prompt ? n : r->n_prompt;
    if (n <= r->now.n_prefilled)
        return;
    if (r->now.n_prefilled == 0)
        r->now.n_cached = r->seq.n_cached;
    r->now.n_prefilled = n;
    note_news(eng, r);
}

/* What the plan promised has been stored: tell the scheduler, and read what logits say of prompts.
 */
static void note_computed(struct engine *eng, const struct sched_plan *plan)
{
    uint32_t logit_row = 0;
    for (uint32_t i = 0; i < plan->n_items; i++) {
        const struct sched_item *item = &plan->items[i];
        struct request *r = item->seq->user;
        bool all = item->seq->all_logits && item->first < r->n_prompt;
        if (all)
            prompt_logprobs(eng, item, logit_row);
        logit_row += all ? item->n_rows : samples(item);
        sched_computed(eng->sched, item);
        if (r->params.progress && item->first < r->n_prompt)
            note_progress(eng, r, item->first + item->n_rows);
    }
}

static void note_admitted(const struct sched_plan *plan, struct engine *eng, uint64_t now_us)
{
    for (uint32_t i = 0; i < plan->n_items; i++) {
        struct request *r = plan->items[i].seq->user;
        if (r->now.times.admit_us != 0)
            continue;
        r->now.times.admit_us = now_us;
        pthread_mutex_lock(&eng->stats_lock);
        hist_add(&eng->stats.queue_time, (double)(now_us - r->now.times.submit_us) * 1e-6);
        pthread_mutex_unlock(&eng->stats_lock);
    }
}

static void sample_and_accept(struct engine *eng)
{
    struct step_batch *s = &eng->batch;
    eng->backend->ops->parallel(eng->backend, s->n_jobs, sample_job, eng);
    uint64_t now_us = clock_us();
    pthread_mutex_lock(&eng->stats_lock);
    for (uint32_t i = 0; i < s->n_jobs; i++)
        stats_token(&eng->stats, s->jobs[i].r, now_us);
    pthread_mutex_unlock(&eng->stats_lock);
    for (uint32_t i = 0; i < s->n_jobs; i++)
        accept_token(eng, &s->jobs[i]);
}

static void note_step(struct engine *eng, const struct sched_plan *plan, uint64_t us)
{
    learn_pace(&eng->pace, plan, us);
    struct engine_stats *st = &eng->stats;
    struct kv_stats kv = kv_stats(eng->kv);
    pthread_mutex_lock(&eng->stats_lock);
    st->steps++;
    st->steps_with_prefill += plan->n_rows > plan->n_decodes;
    hist_add(&st->batch_rows, plan->n_rows);
    hist_add(&st->batch_seqs, plan->n_items);
    hist_add(&st->step_time, (double)us * 1e-6);
    st->running = sched_n_running(eng->sched);
    st->waiting = sched_n_waiting(eng->sched);
    st->preemptions = sched_n_preempted(eng->sched);
    st->kv = kv;
    pthread_mutex_unlock(&eng->stats_lock);
}

/* The device failed: nobody in the batch can go on. */
static void fail_batch(struct engine *eng, const struct sched_plan *plan, const struct err_info *e)
{
    log_error("a step failed: %s", e->text);
    for (uint32_t i = 0; i < plan->n_items; i++) {
        struct request *r = plan->items[i].seq->user;
        r->error = *e;
        step_finish(eng, r, FINISH_ERROR);
    }
}

bool step_run(struct engine *eng)
{
    struct sched_plan plan;
    struct err_info e;
    uint64_t start_us = clock_us();
    kv_set_pace(eng->kv, start_us, eng->pace.us_per_row);
    sched_plan_step(eng->sched, row_budget(eng), &plan);
    timeline_planned(eng, &plan, start_us);
    eng->waits_for_tier = plan.waits_for_tier;
    if (plan.n_items == 0) {
        eng->batch.n_jobs = eng->batch.n_vectors = 0;
        return false;
    }
    note_admitted(&plan, eng, start_us);
    fill_batch(eng, &plan);
    if (eng->backend->ops->run(eng->backend, &eng->batch.b, &eng->batch.logits, &e) != OK) {
        fail_batch(eng, &plan, &e);
        return true;
    }
    note_computed(eng, &plan);
    timeline_computed(&plan, clock_us());
    sample_and_accept(eng);
    embed_finish(eng);
    note_step(eng, &plan, clock_us() - start_us);
    return true;
}

void step_publish(struct engine *eng)
{
    if (!eng->news)
        return;
    uint32_t n_finished = 0;
    for (const struct request *r = eng->news; r; r = r->next_news)
        n_finished += r->now.finish != FINISH_NONE;
    if (n_finished > 0) { /* before the events: whoever reads the last one finds its place free */
        pthread_mutex_lock(&eng->submit_lock);
        for (const struct request *r = eng->news; r; r = r->next_news)
            if (r->now.finish != FINISH_NONE)
                quota_give(&eng->quota, r->params.tenant);
        pthread_mutex_unlock(&eng->submit_lock);
    }
    pthread_mutex_lock(&eng->event_lock);
    bool was_empty = eng->event_head == NULL;
    for (struct request *r = eng->news; r;) {
        /* once the lock is gone and the end is published, *r may be destroyed at any time */
        struct request *next = r->next_news;
        r->has_news = false;
        r->published = r->now;
        if (!r->queued) {
            r->queued = true;
            r->next_event = NULL;
            *(eng->event_head ? &eng->event_tail->next_event : &eng->event_head) = r;
            eng->event_tail = r;
        }
        r = next;
    }
    eng->news = NULL;
    if (was_empty)
        eventfd_write(eng->event_fd, 1);
    pthread_mutex_unlock(&eng->event_lock);
}
