/* The scheduler's state, shared by sched.c (who is where), tenant.c (whose turn it is), admit.c
 * (who comes in, who has to go), share.c (what need not be computed), plan.c (what a step holds)
 * and check.c. */
#ifndef WEIR_SCHED_INTERNAL_H
#define WEIR_SCHED_INTERNAL_H

#include "sched/sched.h"

/* Prompts share a step only in chunks of at least so many rows: below that, a few finish sooner by
 * turns than many at once. */
#define SCHED_CHUNK_ROWS 16
/* Rows that prompts get in every step, however small its budget; kernels take rows in fours. */
#define SCHED_LEAST_ROWS 4
/* Rows that drafts may fill a step of decodes up to: so many are computed about as soon as one, for
 * they wait for the weights. */
#define SCHED_DRAFT_ROWS 8

/* One whose sequences wait or run; or did, while its place is not needed. */
struct sched_tenant {
    uint32_t id;
    uint32_t n_seqs;    /* waiting and running */
    uint32_t n_waiting; /* of them */
    int64_t served;     /* rows computed, and what it was lifted by */
    int64_t ahead;      /* rows charged that are still to be computed */
    bool prefills;      /* one of its prompts is among sched.prefills */
};

/* The prompts that are computed now, as admission sees them. */
struct sched_prefills {
    uint32_t n;
    uint32_t rows;                 /* that they need at least */
    uint32_t budget;               /* that there are */
    uint32_t shortest;             /* rest of one */
    const struct sched_seq *first; /* in rank */
};

struct sched {
    struct sched_config cfg;
    struct kv *kv;
    struct kv_table *slots;     /* [max_running] tables of the free slots */
    uint32_t *free_slots;       /* [max_running - n_running] a stack */
    struct sched_seq **running; /* [n_running] first in rank first */
    uint32_t n_running;
    /* [n_waiting] by tenant, in the order of the table; each one's first in rank last, so that it
     * leaves cheaply */
    struct sched_seq **waiting;
    uint32_t n_waiting;           /* with those preempted, up to max_waiting + max_running */
    struct sched_tenant *tenants; /* [n_tenants] room for max_waiting + max_running */
    uint32_t n_tenants;
    uint64_t next_serial;
    uint64_t n_preempted;
    uint64_t n_entered; /* sequences that ever took a slot, plus one */
    /* Why the first of the queue did not fit when it was last tried; it is not tried again before
     * one of these is another. */
    const struct sched_seq *refused;
    uint32_t refused_available, refused_panes, refused_states, refused_running;
    bool waits_for_steps; /* of the plan in the making */
    struct sched_prefills prefills;
    /* Blocks, with panes where there are windows, that this step's items are sure to need, and have
     * not taken yet. */
    uint32_t n_promised;
    uint64_t n_broken;              /* promises, ever: a fault that sched_check tells */
    uint64_t n_turns;               /* steps that were planned with prompts in mind */
    struct sched_item *items;       /* [max_running] the plan */
    struct sched_seq **chosen;      /* [max_running] who prefills in this step */
    const struct kv_table **tables; /* [max_running] scratch of sched_check */
};

/* As if the rows under way had run: positions stored, tokens known, those of them whose KV is not
 * stored yet (none where the last that it may have is expected), and what kind of step is next. */
uint32_t sched_stored(const struct sched_seq *seq);
uint32_t sched_length(const struct sched_seq *seq);
uint32_t sched_rest(const struct sched_seq *seq);
bool sched_is_decode(const struct sched_seq *seq);
bool sched_is_prefill(const struct sched_seq *seq);
/* As it is: has it, of the tokens that were known when it came in, still some to store? */
bool sched_computes_known(const struct sched_seq *seq);
/* The least a sequence gets beside others; alone, it may get less, down to SCHED_LEAST_ROWS. */
uint32_t sched_least_rows(const struct sched *s, const struct sched_seq *seq);
bool sched_goes_before(const struct sched_seq *a, const struct sched_seq *b);

/* Could a, which waits, be admitted before b were it waiting too? A total order at any moment. */
bool sched_has_turn_before(const struct sched *s,
                           const struct sched_seq *a,
                           const struct sched_seq *b);
/* Would there be rows for it beside the prompts that are computed now? */
bool sched_has_rows(const struct sched *s, const struct sched_seq *seq);
/* The one to be admitted next, of those that have rows; NULL if there is none. */
struct sched_seq *sched_first_waiting(const struct sched *s);
/* A new sequence's tenant is found or begins; it leaves with the last. */
void sched_join_tenant(struct sched *s, struct sched_seq *seq);
void sched_quit_tenant(struct sched *s, struct sched_seq *seq);
/* Before a sequence is put into the queue: if its tenant had nothing there, it begins where the
 * others are. */
void sched_lift_tenant(struct sched *s, const struct sched_seq *seq);
/* It was its turn: its tenant is charged with what it has to compute. */
void sched_charge_entry(struct sched *s, struct sched_seq *seq);
/* Rows were computed; those charged ahead do not count again. */
void sched_charge_rows(struct sched *s, struct sched_seq *seq, uint32_t n_rows);
void sched_refund(struct sched *s, struct sched_seq *seq); /* what was charged ahead and not used */

/* Is a before b in waiting[]? */
bool sched_waits_before(const struct sched_seq *a, const struct sched_seq *b);
void sched_enqueue(struct sched *s, struct sched_seq *seq);
void sched_dequeue(struct sched *s, struct sched_seq *seq);
void sched_leave_slot(struct sched *s, struct sched_seq *seq);

/* Move those who wait into slots, by turns, while there are slots, blocks for what they are counted
 * on to need, and rows for them beside the others who prefill. */
void sched_admit(struct sched *s, uint32_t row_budget);
/* Preempt the last in rank until every other that can move has blocks to do so. Sets n_promised.
 * False: somebody would have to go, but steps are under way. */
bool sched_make_room(struct sched *s);
/* Blocks that the sequence is counted on to take from now on. */
uint32_t sched_expected_blocks(const struct sched *s, const struct sched_seq *seq);
/* The most panes that it is counted on to hold at once from now on. */
uint32_t sched_most_panes(const struct sched *s, const struct sched_seq *seq);
/* Blocks that its least rows need beyond those it has. */
uint32_t sched_least_blocks(const struct sched *s, const struct sched_seq *seq);

/* Find what need not be computed of a prefilling sequence; it may begin to wait for it. */
void sched_find_prefix(struct sched *s, struct sched_seq *seq);
/* Is it neither being fetched nor computed by another? */
bool sched_is_ready(const struct sched_seq *seq);

#endif
