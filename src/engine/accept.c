/* The results of a step become tokens of requests, and some of these end. */
#include "base/clock.h"
#include "engine/stats.h"
#include "engine/step.h"

#include <math.h>
#include <string.h>

struct work {
    struct engine *eng;
    struct step_batch *s;
};

static float *logits_of(const struct engine *eng, const struct step_batch *s, uint32_t host_row)
{
    return s->logits + (size_t)host_row * eng->model->hp.n_vocab;
}

/* Is the next token one before min_tokens? */
static bool too_early(const struct request *r)
{
    return r->now.n_out < r->params.min_tokens;
}

/* Room for the likeliest tokens beside the next output, or NULL. */
static struct token_logprob *top_of(const struct request *r)
{
    return r->top ? r->top + (size_t)r->now.n_out * r->params.n_top_logprobs : NULL;
}

/* A token that was not drawn but put. */
static float certain(struct token_logprob *top, uint32_t n_top, token_id id)
{
    for (uint32_t i = 0; i < n_top; i++)
        top[i] = i == 0 ? (struct token_logprob){.id = id}
                        : (struct token_logprob){.id = -1, .logprob = -INFINITY};
    return 0.0f;
}

/* The host chooses. */
static void choose(
    struct engine *eng, struct sample_job *job, struct request *r, float *logits, uint32_t worker)
{
    const uint32_t n_vocab = eng->model->hp.n_vocab;
    float *row = logits;
    if (r->params.logprobs) { /* sampling overwrites its row, and the model's own is asked for */
        row = eng->rows[worker];
        memcpy(row, logits, n_vocab * sizeof *row);
    }
    struct token_logprob *top = top_of(r);
    struct grammar_mask mask = {0};
    struct sample_allowed allowed = {.bits = too_early(r) ? r->no_ends : NULL};
    if (r->grammar) {
        const bool no_end = r->params.ignore_eos || too_early(r);
        mask = guide_mask(eng->guide, r->grammar, r->max_new - r->now.n_out, no_end);
        allowed = (struct sample_allowed){mask.bits, mask.but};
    }
    bool none = mask.none;
    if (r->rules && !none) {
        none = !token_rules_mask(r->rules, r->tokens + r->n_prompt, r->now.n_out, &allowed, r->may);
        allowed = (struct sample_allowed){.bits = r->may};
    }
    token_id due = thought_next(&r->thought);
    if (r->rules && due != TOKEN_NONE && !none && !token_rules_may(r->may, due))
        due = TOKEN_NONE; /* so do the rules */
    if (r->grammar && due != TOKEN_NONE && !mask.none && !guide_allows(&mask, due))
        due = TOKEN_NONE; /* the grammar goes before the limit */
    job->chosen = none                ? TOKEN_NONE
                  : due != TOKEN_NONE ? due
                                      : sample_token(&r->params.sample,
                                                     r->history,
                                                     r->seq.n_known,
                                                     row,
                                                     n_vocab,
                                                     allowed.bits ? &allowed : NULL,
                                                     eng->scratch[worker]);
    if (r->params.logprobs && r->params.sampled_logprobs && job->chosen >= 0) {
        uint32_t n_top = top ? r->params.n_top_logprobs : 0;
        job->logprob = due != TOKEN_NONE
                           ? certain(top, n_top, due)
                           : sample_drawn_logprobs(eng->scratch[worker], job->chosen, n_top, top);
    }
    if (r->grammar)
        guide_release(eng->guide, &mask, &job->chosen);
}

/* One row's token. */
static void do_job(struct engine *eng,
                   const struct step_batch *s,
                   struct sample_job *job,
                   struct request *r,
                   uint32_t worker)
{
    if (job->device_job != STEP_NONE)
        job->chosen = s->chosen[job->device_job];
    else
        choose(eng, job, r, logits_of(eng, s, job->host_row), worker);
    if (r->params.logprobs && !r->params.sampled_logprobs && job->chosen >= 0)
        job->logprob = sample_logprobs(logits_of(eng, s, job->host_row),
                                       eng->model->hp.n_vocab,
                                       job->chosen,
                                       r->params.n_top_logprobs,
                                       top_of(r));
}

/* Any worker, each job once. */
static void do_nth_job(void *ctx, uint32_t i, uint32_t worker)
{
    const struct work *w = ctx;
    struct sample_job *job = &w->s->jobs[i];
    struct request *r = w->s->items[job->item].r;
    if (r)
        do_job(w->eng, w->s, job, r, worker);
}

/* Log-probabilities of the prompt tokens that this item's rows predict. */
static void prompt_logprobs(struct engine *eng,
                            const struct step_batch *s,
                            const struct step_item *item)
{
    struct request *r = item->r;
    uint32_t n_vocab = eng->model->hp.n_vocab, n_top = r->params.n_top_logprobs;
    for (uint32_t i = 0; i < item->plan.n_rows; i++) {
        uint32_t next = item->plan.first + i + 1;
        if (next >= r->n_prompt)
            break;
        const float *logits = logits_of(eng, s, item->host_row + i);
        struct token_logprob *top = r->prompt_top ? r->prompt_top + (size_t)next * n_top : NULL;
        r->prompt_logprobs[next] = sample_logprobs(logits, n_vocab, r->tokens[next], n_top, top);
        if (r->prompt_ranks)
            r->prompt_ranks[next] = sample_rank(logits, n_vocab, r->tokens[next]);
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
    if (r->now.n_progress < REQUEST_MAX_PROGRESS)
        r->progress[r->now.n_progress++] = (struct request_progress){clock_us(), n};
    step_note_news(eng, r);
}

void step_note_computed(struct engine *eng, struct step_batch *s)
{
    for (uint32_t i = 0; i < s->n_items; i++) {
        struct step_item *item = &s->items[i];
        if (!item->r)
            continue;
        if (item->plan.seq->all_logits && item->plan.first < item->r->n_prompt)
            prompt_logprobs(eng, s, item);
        sched_computed(eng->sched, &item->plan);
        if (item->r->params.progress && item->plan.first < item->r->n_prompt)
            note_progress(eng, item->r, item->plan.first + item->plan.n_rows);
    }
}

static bool is_stop_id(const struct request *r, token_id id)
{
    for (uint32_t i = 0; i < r->params.n_stop_ids; i++) {
        if (r->params.stop_ids[i] == id)
            return true;
    }
    return false;
}

/* Grammar and rules leave no token; `why`, where the text is not complete. */
static void finish_without_token(struct engine *eng, struct request *r, const char *why)
{
    bool complete =
        r->grammar && grammar_complete(r->grammar); /* and the model's own end is not wanted */
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

/* Do the lines of the output end it with this token, before a stop string (at *end_bytes, if
 * *stopped) does? Then *stopped, and *end_bytes is where. */
static enum stop_kind end_of_lines(
    struct request *r, const char *bytes, size_t n, bool *stopped, uint64_t *end_bytes)
{
    size_t at = 0;
    if (r->params.min_indent > 0 && lines_feed(&r->lines, bytes, n, r->params.min_indent, &at) &&
        !(*stopped && *end_bytes <= r->n_text_bytes + at)) {
        *stopped = true;
        *end_bytes = r->n_text_bytes + at;
        return STOP_INDENT;
    }
    uint64_t taken_us = r->now.times.last_us - r->now.times.first_us;
    if (*stopped || r->params.max_line_ms == 0 || n == 0 || !memchr(bytes, '\n', n) ||
        taken_us <= r->params.max_line_ms * 1000ull)
        return STOP_NONE;
    *stopped = true;
    *end_bytes = r->n_text_bytes + n;
    return STOP_TIME;
}

/* Does the output end within these bytes of its newest token? Then *end_bytes is where, counted
 * from the very first, and *kind by what. */
static bool text_ends(struct request *r,
                      const char *bytes,
                      size_t n,
                      bool early,
                      uint64_t *end_bytes,
                      enum stop_kind *kind)
{
    bool stopped = false;
    *end_bytes = 0;
    if (early)
        stop_skip(r->stop, n);
    else
        stopped = stop_feed(r->stop, bytes, n, end_bytes, &r->now.stop_text);
    if (stopped && r->params.keep_stop)
        *end_bytes += stop_get(r->stop, r->now.stop_text).len;
    *kind = end_of_lines(r, bytes, n, &stopped, end_bytes);
    if (stopped && *kind == STOP_NONE)
        *kind = STOP_TEXT;
    return stopped;
}

/* Append a chosen token to its request and see whether the request is done. */
static void accept_token(struct engine *eng, struct request *r, const struct sample_job *job)
{
    if (r->params.no_output && job->chosen != SAMPLE_NO_NUMBER) {
        step_finish(eng, r, FINISH_LENGTH);
        return;
    }
    if (job->chosen == TOKEN_NONE) {
        finish_without_token(
            eng,
            r,
            r->rules ? "no token that is allowed can continue the text"
                     : "no token of the model's vocabulary can continue the text as the grammar "
                       "wants it");
        return;
    }
    if (job->chosen == SAMPLE_NO_NUMBER) {
        (void)err_set(
            &r->error,
            ERR_INTERNAL,
            "the model computed what is no number: its file may be damaged, or its values "
            "are too large for the type of the KV cache");
        step_finish(eng, r, FINISH_ERROR);
        return;
    }
    r->now.n_completion++;
    const bool early = too_early(r); /* where nothing else was left, or a grammar wants it */
    if (!early && is_stop_id(r, job->chosen))
        r->now.stop = STOP_ID;
    else if (!early && !r->params.ignore_eos && tokenizer_is_eog(eng->tokenizer, job->chosen))
        r->now.stop = STOP_EOG;
    if (r->now.stop != STOP_NONE) {
        r->now.end_id = job->chosen;
        step_finish(eng, r, FINISH_STOP);
        return;
    }
    enum grammar_step to =
        r->grammar
            ? guide_accept(eng->guide, r->grammar, job->chosen, r->max_new - r->now.n_out - 1)
            : GRAMMAR_GOES_ON;
    if (to == GRAMMAR_REFUSED) {
        finish_without_token(
            eng, r, "the grammar is too ambiguous: its parses of this text found no room");
        return;
    }
    size_t n_bytes;
    const char *bytes =
        tokenizer_bytes(eng->tokenizer, job->chosen, r->params.special_text, &n_bytes);
    uint64_t end_bytes;
    enum stop_kind kind;
    const bool stopped = text_ends(r, bytes, n_bytes, early, &end_bytes, &kind);
    r->n_text_bytes += n_bytes;
    if (r->thought.limit.on)
        note_thought(eng, r, job->chosen);
    uint64_t shown = stopped ? end_bytes : r->n_text_bytes - stop_held(r->stop);
    r->out[r->now.n_out++] = (struct request_token){.id = job->chosen,
                                                    .logprob = job->logprob,
                                                    .text_bytes = (uint32_t)shown,
                                                    .at_us = r->now.times.last_us};
    r->tokens[r->seq.n_known] = job->chosen;
    if (r->history)
        sample_history_add(r->history, job->chosen, true);
    sched_append(&r->seq);
    step_note_news(eng, r);
    if (stopped) {
        r->now.stop = kind;
        r->n_text_bytes = end_bytes; /* the rest of the token was cut off */
        step_finish(eng, r, kind == STOP_TEXT ? FINISH_STOP : FINISH_LENGTH);
    } else if (to == GRAMMAR_ENDED) {
        r->now.stop = STOP_GRAMMAR;
        step_finish(eng, r, FINISH_STOP);
    } else if (r->now.n_out == r->max_new) {
        step_finish(eng, r, FINISH_LENGTH);
    }
}

/* The rows of a draft, one after the other, as long as the token that was chosen is the one that
 * the next row was computed for. */
static void accept_draft(struct engine *eng,
                         const struct step_batch *s,
                         const struct sample_job *job)
{
    const struct step_item *item = &s->items[job->item];
    const int32_t *drafted = s->tokens + s->seqs[job->item].first_row + 1;
    struct sample_job now = *job;
    uint32_t n_right = 0;
    for (; item->r && n_right < item->plan.n_draft && now.chosen == drafted[n_right]; n_right++) {
        struct request *r = item->r;
        sched_confirm(eng->sched, &r->seq);
        now.host_row++;
        do_job(eng, s, &now, r, 0);
        pthread_mutex_lock(&eng->stats_lock);
        stats_token(&eng->stats, r, clock_us(), now.chosen >= 0);
        pthread_mutex_unlock(&eng->stats_lock);
        accept_token(eng, r, &now);
    }
    if (item->r)
        draft_learn(&item->r->draft, item->plan.n_draft, n_right);
    pthread_mutex_lock(&eng->stats_lock);
    eng->stats.drafts++;
    eng->stats.draft_tokens += item->plan.n_draft;
    eng->stats.draft_tokens_right += n_right;
    pthread_mutex_unlock(&eng->stats_lock);
}

void step_accept(struct engine *eng, struct step_batch *s)
{
    struct work w = {eng, s};
    if (s->n_host_rows > 0)
        eng->backend->ops->parallel(eng->backend, s->n_jobs, do_nth_job, &w);
    else
        for (uint32_t i = 0; i < s->n_jobs; i++)
            do_nth_job(&w, i, 0);
    const uint64_t now_us = clock_us();
    pthread_mutex_lock(&eng->stats_lock);
    for (uint32_t i = 0; i < s->n_jobs; i++)
        if (s->items[s->jobs[i].item].r)
            stats_token(&eng->stats, s->items[s->jobs[i].item].r, now_us, s->jobs[i].chosen >= 0);
    pthread_mutex_unlock(&eng->stats_lock);
    for (uint32_t i = 0; i < s->n_jobs; i++) {
        const struct step_item *item = &s->items[s->jobs[i].item];
        if (!item->r)
            continue;
        accept_token(eng, item->r, &s->jobs[i]);
        if (item->plan.n_draft > 0)
            accept_draft(eng, s, &s->jobs[i]);
    }
}
