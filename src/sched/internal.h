/* The scheduler's state, shared by sched.c (who is where) and plan.c (what a step holds). */
#ifndef WEIR_SCHED_INTERNAL_H
#define WEIR_SCHED_INTERNAL_H

#include "sched/sched.h"

/* What a slot keeps for whoever runs in it. */
struct sched_slot {
    struct kv_table table; /* here while the slot is free; moved into seq->table while it runs */
    uint32_t n_reserved;   /* blocks its sequence may grow to */
};

struct sched {
    struct sched_config cfg;
    struct kv_pool *pool;
    struct sched_slot *slots;   /* [max_running] */
    uint32_t *free_slots;       /* [max_running - n_running] a stack */
    struct sched_seq **running; /* [n_running] in the order of admission */
    uint32_t n_running;
    struct sched_seq **waiting; /* a ring of max_waiting */
    uint32_t first_waiting;
    uint32_t n_waiting;
    uint64_t n_reserved; /* sum over running sequences; <= the pool's total */
    /* The slot whose sequence was the first to miss its turn in the last step, or SCHED_NO_SLOT.
     * Turns to prefill begin with it. */
    uint32_t turn_slot;
    struct sched_item *items;       /* [max_running] the plan */
    struct sched_seq **chosen;      /* [max_running] who prefills in this step */
    const struct kv_table **tables; /* [max_running] scratch of sched_check */
};

/* Move the head of the queue into a slot if its whole length can be reserved. */
bool sched_admit(struct sched *s);

#endif
