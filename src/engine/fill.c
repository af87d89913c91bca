/* A plan becomes what a backend is given. */
#include "engine/embed.h"
#include "engine/step.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

enum err step_batch_init(struct step_batch *s,
                         uint32_t max_rows,
                         uint32_t max_running,
                         uint32_t max_logit_rows,
                         struct err_info *e)
{
    s->items = calloc(max_running, sizeof *s->items);
    s->tokens = calloc(max_rows, sizeof *s->tokens);
    s->token_from = calloc(max_rows, sizeof *s->token_from);
    s->positions = calloc(max_rows, sizeof *s->positions);
    s->seqs = calloc(max_running, sizeof *s->seqs);
    s->logit_rows = calloc(max_logit_rows, sizeof *s->logit_rows);
    s->host_rows = calloc(max_logit_rows, sizeof *s->host_rows);
    s->jobs = calloc(max_running, sizeof *s->jobs);
    s->devices = calloc(max_running, sizeof *s->devices);
    s->hidden_rows = calloc(max_rows, sizeof *s->hidden_rows);
    s->vectors = calloc(max_running, sizeof *s->vectors);
    if (!s->items || !s->token_from || !s->host_rows || !s->devices || !s->tokens ||
        !s->positions || !s->seqs || !s->logit_rows || !s->jobs || !s->hidden_rows || !s->vectors)
        return err_set(e, ERR_NOMEM, "no memory for a batch of %u rows", max_rows);
    return OK;
}

void step_batch_deinit(struct step_batch *s)
{
    free(s->items);
    free(s->tokens);
    free(s->token_from);
    free(s->host_rows);
    free(s->devices);
    free(s->positions);
    free(s->seqs);
    free(s->logit_rows);
    free(s->jobs);
    free(s->hidden_rows);
    free(s->vectors);
}

/* Does the item's last row choose a token? */
static bool samples(const struct sched_item *item)
{
    const struct request *r = item->seq->user;
    return item->samples && r->params.output == OUTPUT_TOKENS;
}

/* Does a device choose all of the request's tokens? By what the request asks for alone, so that the
 * answer does not depend on company. */
static bool is_for_device(const struct engine *eng, const struct request *r)
{
    const bool drawn = r->params.logprobs && r->params.sampled_logprobs; /* the host's draw */
    return eng->async && !r->grammar && !r->rules && !r->thought.limit.on && !drawn &&
           !r->params.min_tokens && eng->async->can_choose(eng->backend, &r->params.sample);
}

/* Of a sequence with a row under way the last token may be on its way, too. */
static void fill_tokens(struct step_batch *s, const struct sched_item *item)
{
    const struct request *r = item->seq->user;
    const uint32_t at = s->b.n_rows, n = item->n_rows - item->n_draft;
    const uint32_t unknown = item->first + n > item->seq->n_known;
    const uint32_t n_known = item->n_rows - unknown;
    assert(item->first + n - unknown <= item->seq->n_known);
    memcpy(s->tokens + at, r->tokens + item->first, n_known * sizeof *s->tokens);
    for (uint32_t i = 0; i < item->n_rows; i++) {
        s->positions[at + i] = item->first + i;
        s->token_from[at + i] = -1;
    }
    if (unknown) {
        s->tokens[at + n_known] = 0;
        s->token_from[at + n_known] = (int32_t)r->device_job;
    }
}

static void fill_device_job(struct step_batch *s, const struct sched_item *item)
{
    struct request *r = item->seq->user;
    const bool begins = r->n_entered_slot != item->seq->n_preempted + 1;
    s->devices[s->n_devices] = (struct async_job){.logit_row = s->b.n_logit_rows - 1,
                                                  .slot = item->seq->slot,
                                                  .position = item->first + item->n_rows,
                                                  .params = &r->params.sample,
                                                  .tokens = begins ? r->tokens : NULL,
                                                  .n_prompt = r->n_prompt,
                                                  .n_tokens = item->first + item->n_rows};
    assert(item->n_draft == 0);
    assert(!begins || item->first + item->n_rows == item->seq->n_known);
    r->n_entered_slot = item->seq->n_preempted + 1;
    r->device_job = s->n_devices++;
}

static void add_logit_row(struct step_batch *s, uint32_t row, bool for_host)
{
    if (for_host)
        s->host_rows[s->n_host_rows++] = s->b.n_logit_rows;
    s->logit_rows[s->b.n_logit_rows++] = row;
}

/* The rows of the item whose logits are wanted, and who chooses its token. */
static void fill_jobs(struct engine *eng, struct step_batch *s, const struct sched_item *item)
{
    struct request *r = item->seq->user;
    const uint32_t first = s->b.n_rows, last = first + item->n_rows - 1;
    const uint32_t chooses = last - item->n_draft;
    const bool all = item->seq->all_logits && item->first < r->n_prompt;
    const bool on_device = is_for_device(eng, r), seen = all || !on_device || r->params.logprobs;
    for (uint32_t row = all ? first : chooses; row <= last && (all || samples(item)); row++)
        add_logit_row(s, row, seen);
    if (!samples(item))
        return;
    struct sample_job *job = &s->jobs[s->n_jobs++];
    *job = (struct sample_job){.item = s->n_items - 1,
                               .device_job = STEP_NONE,
                               .host_row = seen ? s->n_host_rows - 1 - item->n_draft : STEP_NONE};
    if (on_device) {
        fill_device_job(s, item);
        job->device_job = r->device_job;
    }
    s->host_chooses |= !on_device;
}

/* Rows of one item into the batch. */
static void fill_item(struct engine *eng, struct step_batch *s, const struct sched_item *item)
{
    struct request *r = item->seq->user;
    struct batch *b = &s->b;
    r->item_of[s - eng->steps] = s->n_items;
    s->items[s->n_items++] = (struct step_item){.r = r, .plan = *item, .host_row = s->n_host_rows};
    s->seqs[b->n_seqs++] = (struct batch_seq){.first_row = b->n_rows,
                                              .n_rows = item->n_rows,
                                              .first_pos = item->first,
                                              .blocks = item->seq->table.blocks,
                                              .panes = item->seq->table.panes,
                                              .state_from = item->seq->table.state_from,
                                              .state_to = item->seq->table.state,
                                              .states = item->seq->table.states,
                                              .second = r->params.n_first};
    fill_tokens(s, item);
    fill_jobs(eng, s, item);
    embed_fill(eng, s, item);
    b->n_rows += item->n_rows;
}

void step_fill(struct engine *eng, struct step_batch *s, const struct sched_plan *plan)
{
    s->n_items = s->n_host_rows = s->n_jobs = s->n_devices = s->n_vectors = 0;
    s->n_decodes = plan->n_decodes;
    s->n_drafts = plan->n_drafts;
    s->host_chooses = false;
    s->b = (struct batch){.tokens = s->tokens,
                          .positions = s->positions,
                          .seqs = s->seqs,
                          .logit_rows = s->logit_rows,
                          .hidden_rows = s->hidden_rows};
    for (uint32_t i = 0; i < plan->n_items; i++)
        fill_item(eng, s, &plan->items[i]);
}
