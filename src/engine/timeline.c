#include "engine/timeline.h"

static void add(struct request *r, enum request_event_kind kind, uint64_t us, uint32_t n_tokens)
{
    if (r->n_events == REQUEST_MAX_EVENTS) {
        r->n_events_omitted++;
        return;
    }
    r->events[r->n_events++] = (struct request_event){.us = us, .kind = kind, .n_tokens = n_tokens};
}

static void note_waiting(struct request *r, uint64_t now_us)
{
    if (r->n_preempted_seen != r->seq.n_preempted) {
        r->n_preempted_seen = r->seq.n_preempted;
        r->in_step = false;
        add(r, REQUEST_PREEMPTED, now_us, 0);
    }
    if (r->fetching_seen == r->seq.fetching)
        return;
    r->fetching_seen = r->seq.fetching;
    if (r->seq.fetching)
        r->n_before_fetch = r->seq.n_computed;
    else if (r->seq.n_computed > r->n_before_fetch)
        add(r, REQUEST_FETCHED, now_us, r->seq.n_computed - r->n_before_fetch);
    if (r->seq.fetching)
        add(r, REQUEST_FETCHING, now_us, 0);
}

void timeline_planned(struct engine *eng, const struct sched_plan *plan, uint64_t now_us)
{
    /* rare, so that all requests may be looked at; one fetch spans two plans at least */
    if (plan->n_preempted > 0 || plan->waits_for_tier || eng->waits_for_tier) {
        for (struct request *r = eng->active; r; r = r->next_active)
            note_waiting(r, now_us);
    }
    for (uint32_t i = 0; i < plan->n_items; i++) {
        struct request *r = plan->items[i].seq->user;
        if (!r->in_step)
            add(r, REQUEST_ADMITTED, now_us, plan->items[i].first);
        r->in_step = true;
    }
}

void timeline_computed(const struct step_batch *s, uint64_t now_us)
{
    for (uint32_t i = s->n_decodes; i < s->n_items; i++)
        if (s->items[i].r)
            add(s->items[i].r, REQUEST_PREFILL, now_us, s->items[i].plan.n_rows);
}
