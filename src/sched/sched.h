/* Who runs in this step. Pure: no clock, no I/O, no device; every input is an argument, so the
 * same calls give the same plans and a simulation can drive it.
 *
 * Sequences wait in arrival order, then run:
 *
 *      waiting --(a slot, and blocks for its whole length)--> prefill --> decode --> removed
 *
 * A step holds first one token of every decoding sequence, then chunks of the prompts of several
 * prefilling sequences up to the row budget, shared out so that a short prompt behind a long one
 * still moves; then waiting ones are admitted while a slot, rows and blocks last.
 *
 * Admission reserves blocks for prompt + max_tokens, so a running sequence never lacks one; blocks
 * are taken from the pool only as positions are filled.
 * Thread: the engine's. Allocates: only in sched_create. */
#ifndef WEIR_SCHED_SCHED_H
#define WEIR_SCHED_SCHED_H

#include "base/err.h"
#include "kv/kv.h"

#include <stdbool.h>
#include <stdint.h>

struct sched;

#define SCHED_NO_SLOT UINT32_MAX /* seq->slot of a sequence that waits or was removed */

struct sched_config {
    uint32_t max_running; /* slots */
    uint32_t max_waiting;
    uint32_t max_rows;       /* rows a step may ever have; >= max_running */
    uint32_t max_logit_rows; /* >= max_running */
    uint32_t max_blocks_per_seq;
};

/* A sequence as the scheduler sees it. */
struct sched_seq {
    void *user;
    uint32_t n_prompt;
    uint32_t n_max;  /* prompt + longest output: what admission reserves for */
    bool all_logits; /* wants logits of every prompt row */
    /* filled by the scheduler */
    uint32_t n_computed;   /* positions whose KV is stored */
    uint32_t n_known;      /* tokens known so far: prompt + generated */
    uint32_t slot;         /* 0..max_running-1 while running, else SCHED_NO_SLOT */
    struct kv_table table; /* of the slot, while running */
};

/* One sequence's share of a step: rows for positions first..first+n_rows-1. */
struct sched_item {
    struct sched_seq *seq;
    uint32_t first;
    uint32_t n_rows;
    bool samples; /* the last row's logits choose the next token */
};

struct sched_plan {
    const struct sched_item *items; /* [n_items], decodes first */
    uint32_t n_items;
    uint32_t n_rows;
    uint32_t n_decodes;
    uint32_t n_admitted; /* items that left the queue in this step */
};

enum err sched_create(const struct sched_config *cfg,
                      struct kv_pool *pool,
                      struct sched **out,
                      struct err_info *e) WEIR_MUST_USE;
/* Lets go of the sequences it still holds, which must still exist. NULL is allowed. */
void sched_destroy(struct sched *s);

/* Queue a sequence; *seq stays the caller's, and in place until sched_remove. Errors:
 * ERR_QUEUE_FULL; ERR_TOO_LONG: it could never fit, with the numbers; ERR_INVALID: no prompt, or
 * n_max < n_prompt. */
enum err sched_add(struct sched *s, struct sched_seq *seq, struct err_info *e) WEIR_MUST_USE;

/* Could n_max tokens ever be held? The same test as sched_add's. */
enum err sched_fits(const struct sched *s, uint32_t n_max, struct err_info *e) WEIR_MUST_USE;

/* Decide one step, and take the KV blocks its rows need. row_budget <= max_rows bounds all rows,
 * but decodes always run and prefill gets a chunk of 16 rows beside them. The plan is valid until
 * the next call. */
void sched_plan_step(struct sched *s, uint32_t row_budget, struct sched_plan *out);

/* The step ran: an item's rows are stored now. */
void sched_computed(struct sched *s, const struct sched_item *item);
/* A token was chosen: the sequence is one longer and decodes in the next step. */
void sched_append(struct sched *s, struct sched_seq *seq);
/* Take it out, waiting or running; its blocks and slot are free at once. Nothing happens to one
 * that was removed already. Items of the current plan that name others stay valid. */
void sched_remove(struct sched *s, struct sched_seq *seq);

uint32_t sched_n_running(const struct sched *s);
uint32_t sched_n_waiting(const struct sched *s);
/* kv_check over all tables that the scheduler holds, and its own sums. O(everything). */
enum err sched_check(const struct sched *s, struct err_info *e) WEIR_MUST_USE;

#endif
