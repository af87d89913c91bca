/* Who runs in this step. Pure: no clock, no I/O, no device; every input is an argument, so the
 * same calls give the same plans and a simulation can drive it.
 *
 * Every sequence has a rank: its place in the order of arrival, moved forward by a fixed number of
 * places for each step of priority. Who waits is admitted, and who runs is served with memory, in
 * the order of rank (but see below for long prompts); when KV blocks run out, the last in rank is
 * preempted. So a sequence yields only to those before it, of which there is a limited number, and
 * none starves.
 *
 * Sequences of several tenants are admitted by turns: of the first in rank of each tenant, the one
 * whose tenant has had the fewest rows computed goes first (Sheng et al., "Fairness in Serving
 * Large Language Models", 2024: virtual token counters). Between tenants a step of priority is
 * worth SCHED_PRIORITY_ROWS rows. A tenant that asks after it had nothing waiting begins level
 * with who has had most, so nobody owes for what it took while nobody waited; but not behind those
 * that wait, neither in rows nor, where they have a lower priority, in turns. So nobody saves up
 * turns by asking for little, a tenant owes only to those that waited meanwhile, and a head start
 * over them is used up once. (A tenant has one count for all its priorities: lifted for one
 * request, it begins there with those of a lower priority, too.) Memory is given in the order of
 * rank alone, whosever it is.
 *
 *      waiting --(a slot, and blocks)--> prefill --> decode --> removed
 *         ^---------- preempted ------------/------------/
 *
 * Waiting ones are admitted first, while a slot, rows and blocks last. Then a step holds one token
 * of every decoding sequence, and chunks of the prompts of several prefilling sequences up to the
 * row budget, shared out so that a short prompt behind a long one still moves. Where rows are few,
 * long prompts of a tenant come in two by two, and shorter ones (of its first 64 in rank), and
 * those of others, pass who waits for rows.
 *
 * A prompt's beginning that is in KV memory is not computed again; one that another sequence is
 * computing right now is waited for; one that lies in the tier below is fetched.
 *
 * Steps may be planned ahead: while the rows of one run, the next is planned as if they had run.
 * For each sequence that is
 *
 *      0 ........ n_computed ........ + n_ahead      positions: stored | under way, | then to plan
 *      0 ........ n_known ........... + n_expected   tokens:    known  | being chosen
 *
 * What is shared, charged and waited for goes by what is stored and known; what is planned, and the
 * memory it takes, by both. A sequence that ends while it has rows under way takes its promises
 * with it: nobody hears of those rows again. Nobody is preempted while steps are under way, for the
 * memory would not be there before they end: the plan says that they have to (waits_for_steps).
 *
 * Admission counts on a part of the output only (config.overcommit); blocks are taken as positions
 * are filled. Where layers have windows, panes (kv.h) are counted likewise, but for no more than a
 * window and a chunk; where they are recurrent, who enters takes a state. Thread: the engine's.
 * Allocates: only in sched_create. */
#ifndef WEIR_SCHED_SCHED_H
#define WEIR_SCHED_SCHED_H

#include "base/err.h"
#include "kv/kv.h"

#include <stdbool.h>
#include <stdint.h>

struct sched;

#define SCHED_NO_SLOT UINT32_MAX   /* seq->slot of a sequence that waits or was removed */
#define SCHED_NO_TENANT UINT32_MAX /* seq->tenant_at of one that was removed */
/* A step of priority is worth as much as having arrived this many sequences earlier. */
#define SCHED_PRIORITY_PLACES 1024
/* Between tenants: as its tenant having had so many rows fewer. */
#define SCHED_PRIORITY_ROWS ((int64_t)1 << 20)

struct sched_config {
    uint32_t max_running; /* slots */
    uint32_t max_waiting;
    uint32_t max_rows;       /* rows a step may ever have; >= max_running */
    uint32_t max_logit_rows; /* >= max_running */
    uint32_t max_blocks_per_seq;
    /* A prompt is computed in one step, all of it: a row sees those behind it too. Then a sequence
     * has at most max_rows tokens, and the row budget gives way to the first of a step. */
    bool whole;
    /* 0..1: the share of a sequence's longest possible rest that admission does not count on. At 0
     * those who run never lack a block, and nobody is preempted but for one of higher priority. */
    double overcommit;
};

/* A sequence as the scheduler sees it. */
struct sched_seq {
    void *user;
    const int32_t *tokens; /* [n_max] the prompt, then what sched_append made known */
    uint32_t n_prompt;
    uint32_t n_max;   /* prompt + longest output */
    bool all_logits;  /* wants logits of every prompt row, once: computes its whole prompt */
    bool shares;      /* finds, and leaves, prefixes */
    int32_t priority; /* higher goes first */
    uint32_t tenant;  /* whose it is: any number; tenants take turns */
    struct kv_key space;
    /* Guesses of what follows, in tokens[n_known ..], set before a step is planned; the scheduler
     * may take some of them into a step, all of whose sequences decode. Not where steps are planned
     * ahead, nor in models with states, which cannot be taken back. */
    uint32_t n_draft;
    /* filled by the scheduler */
    int64_t rank; /* lower goes first */
    uint64_t serial;
    uint32_t n_computed;      /* positions whose KV is stored */
    uint32_t n_ahead;         /* positions behind them whose rows are planned */
    uint32_t n_known;         /* tokens known so far: prompt + generated */
    uint32_t n_expected;      /* that planned rows choose */
    uint32_t n_cached;        /* prompt positions that were found when it was first admitted */
    uint32_t n_preempted;     /* times */
    uint32_t slot;            /* 0..max_running-1 while running, else SCHED_NO_SLOT */
    struct kv_table table;    /* of the slot, while running */
    bool fetching;            /* waits for the tier */
    struct sched_seq *leader; /* waits until this one, before it in rank, has computed */
    uint32_t leader_until;    /* so many positions that both share */
    uint64_t n_entered_seen;  /* sched.n_entered when it last looked for a leader */
    uint64_t turn;            /* sched.n_turns when it last prefilled, or came in */
    uint32_t tenant_at;       /* its tenant's place in the scheduler's table */
    uint32_t n_charged;       /* rows that its tenant was charged with ahead */
};

/* Does it look for what is computed? Only of those that do are hits and misses counted. */
static inline bool sched_looks(const struct sched_seq *seq)
{
    return seq->shares && !seq->all_logits;
}

/* One sequence's share of a step: rows for positions first..first+n_rows-1. */
struct sched_item {
    struct sched_seq *seq;
    uint32_t first;
    uint32_t n_rows;
    uint32_t n_draft; /* of them, the last: nobody counts on what they store (sched_confirm) */
    bool samples;     /* the last row's logits, but for drafts, choose the next token */
};

struct sched_plan {
    const struct sched_item *items; /* [n_items], decodes first */
    uint32_t n_items;
    uint32_t n_rows;
    uint32_t n_decodes;   /* items */
    uint32_t n_drafts;    /* rows, of decodes */
    uint32_t n_preempted; /* sequences that went back to the queue */
    bool waits_for_tier;  /* some sequence does */
    /* Somebody must be preempted, and steps are under way: plan again when they have ended, not
     * before. Of this plan there are items or not. */
    bool waits_for_steps;
};

/* The most panes that admission counts on for one sequence; more rows take them while there are
 * any. */
uint32_t sched_panes_per_seq(uint32_t window, uint32_t block_tokens);

enum err sched_create(const struct sched_config *cfg,
                      struct kv *kv,
                      struct sched **out,
                      struct err_info *e) WEIR_MUST_USE;
/* Lets go of the sequences it still holds, which must still exist. NULL is allowed. */
void sched_destroy(struct sched *s);

/* Queue a sequence; *seq stays the caller's, and in place until sched_remove. Errors:
 * ERR_QUEUE_FULL; ERR_TOO_LONG: it could never fit, with the numbers; ERR_INVALID: no prompt, or
 * n_max < n_prompt. */
enum err sched_add(struct sched *s, struct sched_seq *seq, struct err_info *e) WEIR_MUST_USE;

/* What the next step will hold, for choosing its row_budget: the decodes, the positions they attend
 * to, each with its own; and how many positions lie before the prompt that has got furthest. One
 * that sched_take_in admits, and that finds a prefix, may be further. And who will decode beside:
 * those at their prompts, and in the queue as many as there are slots and blocks for, about; but
 * for such as any decode has a higher priority than, and those that want one token or none. */
struct sched_load {
    uint32_t n_decodes;
    uint64_t decodes_attend;
    uint32_t prefill_depth;
    uint32_t n_prompts;
    uint64_t prompts_attend; /* positions, to their prompts' ends */
    uint32_t
        longest_prompt; /* rows, but for what it found; what one in the queue will is unknown */
};
struct sched_load sched_load(const struct sched *s);

/* Rows that drafts may have in the next step, of so many in all: what decodes leave of a few; none
 * beside prompts. One that is admitted meanwhile takes them. */
uint32_t sched_draft_rows(const struct sched *s, uint32_t row_budget);
/* Those that have a slot, first in rank first; valid until the next call that plans or removes. */
struct sched_seq *const *sched_running(const struct sched *s, uint32_t *n);

/* Decide one step, and take the KV blocks its rows need. row_budget <= max_rows bounds all rows,
 * but decodes always run and prompts get 4 rows at least beside them. The plan is valid until the
 * next call. All of it must be run, and be heard of by sched_computed, or its sequences removed.
 * Between kv_step_begun and kv_step_ended of the plans before, this plans ahead. No items while
 * sequences run: all of them wait, for the tier or for steps under way. */
void sched_plan_step(struct sched *s, uint32_t row_budget, struct sched_plan *out);

/* Its two halves. First those who wait are let in, and what they found of their prompts is known;
 * false: there is no more to plan. Then rows are shared, of a budget that is no larger. */
bool sched_take_in(struct sched *s, uint32_t row_budget, struct sched_plan *out) WEIR_MUST_USE;
void sched_plan_rows(struct sched *s, uint32_t row_budget, struct sched_plan *out);

/* The step ran: an item's rows, but those of its draft, are stored now, and others may find them.
 * Of one sequence's items, the one planned first comes first, and the token it chose before the
 * next. */
void sched_computed(struct sched *s, const struct sched_item *item);
/* The token that was chosen is the next of the item's draft: what that one's row stored is stored.
 */
void sched_confirm(struct sched *s, struct sched_seq *seq);
/* A token was chosen: the sequence is one longer and decodes in the next step. */
void sched_append(struct sched_seq *seq);
/* Take it out, waiting or running; its slot is free at once, and its blocks are free or cached,
 * once the steps under way have ended. Nothing happens to one that was removed already. Items of
 * the current plan that name others stay valid. */
void sched_remove(struct sched *s, struct sched_seq *seq);

uint32_t sched_n_running(const struct sched *s);
uint32_t sched_n_waiting(const struct sched *s);
uint64_t sched_n_preempted(const struct sched *s); /* ever */
/* Rows computed for a tenant, ahead of time those of prompts that came in, and what it was lifted
 * by when it came back. 0: unknown. Only tests ask. */
int64_t sched_served(const struct sched *s, uint32_t tenant);
/* kv_check over all tables that the scheduler holds, and its own sums. O(everything). */
enum err sched_check(const struct sched *s, struct err_info *e) WEIR_MUST_USE;

#endif
