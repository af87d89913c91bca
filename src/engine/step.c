/* The body of the engine's loop: begin a step, end a step, publish.
 *
 *      backend without async.h    begin and end N | begin and end N + 1 | ...
 *      with it                    begin N | begin N + 1, end N | begin N + 2, end N + 1 | ...
 *
 * Nothing in here allocates: engine.c switches the watch on around it and the count is exported. */
#include "engine/step.h"

#include "base/clock.h"
#include "base/log.h"
#include "engine/embed.h"
#include "engine/stats.h"
#include "engine/timeline.h"

#include <sys/eventfd.h>

/* Rows this step may have, so that it lasts about as long as its target. */
static uint32_t row_budget(const struct engine *eng)
{
    struct sched_load now = sched_load(eng->sched);
    struct pace_load load = {.n_decodes = now.n_decodes,
                             .decodes_attend = now.decodes_attend,
                             .depth = now.prefill_depth,
                             .n_prompts = now.n_prompts,
                             .prompts_attend = now.prompts_attend,
                             .longest_prompt = now.longest_prompt};
    return pace_rows(&eng->pace, &load, eng->max_rows);
}

static void learn_pace(struct pace *pace, const struct step_batch *s, uint64_t us)
{
    const uint32_t n_decodes = s->n_decodes + s->n_drafts; /* rows: a guess costs what any does */
    struct pace_step p = {.n_decodes = n_decodes, .n_prefill = s->b.n_rows - n_decodes};
    for (uint32_t i = 0; i < s->n_items; i++) {
        const struct sched_item *item = &s->items[i].plan;
        uint64_t n = item->n_rows, attend = n * item->first + n * (n + 1) / 2;
        *(i < s->n_decodes ? &p.decodes_attend : &p.prefill_attends) += attend;
    }
    pace_learn(pace, &p, (double)us);
}

void step_note_news(struct engine *eng, struct request *r)
{
    if (r->has_news)
        return;
    r->has_news = true;
    r->next_news = eng->news;
    eng->news = r;
}

/* Rows of it that are under way are nobody's from now on. */
static void leave_steps(struct engine *eng, struct request *r)
{
    for (uint32_t k = 0; k < ASYNC_STEPS; k++) {
        if (r->item_of[k] != STEP_NONE)
            eng->steps[k].items[r->item_of[k]].r = NULL;
        r->item_of[k] = STEP_NONE;
    }
}

void step_finish(struct engine *eng, struct request *r, enum finish finish)
{
    sched_remove(eng->sched, &r->seq);
    leave_steps(eng, r);
    r->now.finish = finish;
    r->now.text_bytes = (uint32_t)r->n_text_bytes;
    *(r->prev_active ? &r->prev_active->next_active : &eng->active) = r->next_active;
    if (r->next_active)
        r->next_active->prev_active = r->prev_active;
    step_note_news(eng, r);
    r->now.times.end_us = clock_us();
    pthread_mutex_lock(&eng->stats_lock);
    stats_finished(&eng->stats, r, r->now.times.end_us);
    pthread_mutex_unlock(&eng->stats_lock);
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

/* The step has run, in so long: since it was begun, or since the one before it ended. */
static void note_step(struct engine *eng, const struct step_batch *s, uint64_t us)
{
    learn_pace(&eng->pace, s, us);
    struct engine_stats *st = &eng->stats;
    struct kv_stats kv = kv_stats(eng->kv);
    pthread_mutex_lock(&eng->stats_lock);
    eng->step_error.code = OK;
    st->steps++;
    st->steps_with_prefill += s->b.n_rows > s->n_decodes + s->n_drafts;
    st->steps_ahead += s->ahead;
    st->rows_dropped += s->n_dropped;
    hist_add(&st->batch_rows, s->b.n_rows);
    hist_add(&st->batch_seqs, s->n_items);
    hist_add(&st->step_time, (double)us * 1e-6);
    st->running = sched_n_running(eng->sched);
    st->waiting = sched_n_waiting(eng->sched);
    st->preemptions = sched_n_preempted(eng->sched);
    st->kv = kv;
    pthread_mutex_unlock(&eng->stats_lock);
}

/* The device failed: nobody in the batch can go on. */
static void fail_batch(struct engine *eng, const struct step_batch *s, const struct err_info *e)
{
    log_error("a step failed: %s", e->text);
    pthread_mutex_lock(&eng->stats_lock);
    eng->step_error = *e;
    eng->stats.steps_failed++;
    pthread_mutex_unlock(&eng->stats_lock);
    for (uint32_t i = 0; i < s->n_items; i++) {
        struct request *r = s->items[i].r;
        if (!r)
            continue;
        r->error = *e;
        step_finish(eng, r, FINISH_ERROR);
    }
}

/* Guess what those who decode will say, where the step has rows for it. */
static void make_drafts(struct engine *eng, uint32_t row_budget)
{
    uint32_t n, left = eng->cfg.n_draft ? sched_draft_rows(eng->sched, row_budget) : 0;
    struct sched_seq *const *running = sched_running(eng->sched, &n);
    for (uint32_t i = 0; i < n; i++) {
        struct request *r = running[i]->user;
        r->seq.n_draft = 0;
        if (left == 0 || !r->draft.after)
            continue;
        uint32_t most = r->max_new - r->now.n_out - 1; /* it decodes, so there is one to come */
        most = most < eng->cfg.n_draft ? most : eng->cfg.n_draft;
        most = most < left ? most : left;
        r->seq.n_draft = draft_make(&r->draft, r->tokens, r->seq.n_known, most);
        left -= r->seq.n_draft;
    }
}

/* Plan the next step and hand it over; false if there is nothing to run. A backend that does not
 * run beside the host runs it when it is ended. */
static bool begin_step(struct engine *eng)
{
    struct sched_plan plan;
    struct step_batch *s = &eng->steps[(eng->first_step + eng->n_steps) % ASYNC_STEPS];
    s->begin_us = clock_us();
    kv_set_pace(eng->kv, s->begin_us, eng->pace.us_per_row);
    uint32_t budget = row_budget(eng);
    make_drafts(eng, budget);
    if (sched_take_in(eng->sched, budget, &plan)) {
        const uint32_t deeper = row_budget(eng); /* by what newcomers have found */
        budget = deeper < budget ? deeper : budget;
        sched_plan_rows(eng->sched, budget, &plan);
    }
    timeline_planned(eng, &plan, s->begin_us);
    eng->waits_for_tier = plan.waits_for_tier;
    eng->holds = plan.waits_for_steps;
    if (plan.n_items == 0)
        return false;
    note_admitted(&plan, eng, s->begin_us);
    step_fill(eng, s, &plan);
    eng->holds |= s->host_chooses;
    s->ahead = eng->n_steps > 0;
    s->err = OK;
    if (eng->async) {
        const struct async_step a = {.batch = &s->b,
                                     .token_from = s->token_from,
                                     .jobs = s->devices,
                                     .n_jobs = s->n_devices,
                                     .host_rows = s->host_rows,
                                     .n_host_rows = s->n_host_rows,
                                     .follows = !eng->was_idle};
        s->err = eng->async->begin(eng->backend, &a, &s->error);
    }
    eng->holds |= s->err != OK; /* those who are in it end with it */
    eng->was_idle = false;
    eng->n_steps++;
    kv_step_begun(eng->kv);
    return true;
}

static enum err wait_for(struct engine *eng, struct step_batch *s)
{
    struct async_result result;
    if (!eng->async)
        return eng->backend->ops->run(eng->backend, &s->b, &s->logits, &s->error);
    enum err err = s->err ? s->err : eng->async->end(eng->backend, &result, &s->error);
    if (err == OK) {
        s->logits = result.logits;
        s->chosen = result.chosen;
    }
    return err;
}

/* The oldest step: wait for it, and take in what it says. */
static void end_step(struct engine *eng)
{
    struct step_batch *s = &eng->steps[eng->first_step];
    enum err err = wait_for(eng, s);
    uint64_t now_us = clock_us();
    kv_step_ended(eng->kv);
    s->n_dropped = 0;
    for (uint32_t i = 0; i < s->n_items; i++)
        s->n_dropped += s->items[i].r ? 0 : s->items[i].plan.n_rows;
    if (err == OK) {
        step_note_computed(eng, s);
        timeline_computed(s, now_us);
        step_accept(eng, s);
        embed_finish(eng, s);
        const uint64_t since_us = s->begin_us > eng->last_end_us ? s->begin_us : eng->last_end_us;
        eng->last_end_us = clock_us();
        note_step(eng, s, eng->last_end_us - since_us);
    } else {
        fail_batch(eng, s, &s->error);
    }
    for (uint32_t i = 0; i < s->n_items; i++)
        if (s->items[i].r)
            s->items[i].r->item_of[eng->first_step] = STEP_NONE;
    eng->first_step = (eng->first_step + 1) % ASYNC_STEPS;
    eng->n_steps--;
}

bool step_run(struct engine *eng)
{
    bool begun = (eng->n_steps == 0 || !eng->holds) && begin_step(eng);
    if (eng->n_steps == 0) {
        eng->was_idle = true;
        return false;
    }
    if (!begun || !eng->async || eng->n_steps == ASYNC_STEPS)
        end_step(eng);
    return true;
}

void step_drain(struct engine *eng)
{
    while (eng->n_steps > 0)
        end_step(eng);
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
