/* A simulated world: its clients, what steps were given, and the device that runs them. Shared by
 * the fake model (fake_model.c), the judge of plans (judge.c) and the worlds (sim_sched.c, which
 * says what it all is). */
#ifndef WEIR_TESTS_SIM_SIM_H
#define WEIR_TESTS_SIM_SIM_H

#include "sched/sched.h"

#include "sim/fake_tier.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define MAX_CLIENTS 96
#define MAX_TOKENS 320
#define MAX_RUNNING 60
#define MAX_ORDERS 1024
#define N_TEXTS 6
#define N_SPACES 3
#define N_TENANTS 4
#define FIRST_TENANT 1000

/* One request: its tokens, and what the simulation expects of the scheduler. */
struct client {
    struct sched_seq seq;
    bool alive;
    uint64_t serial;    /* in the order of arrival */
    uint32_t n_stop;    /* ends by itself at this length, at most n_max */
    uint32_t n_skipped; /* steps since it last got a row */
    uint32_t space;
    bool ran;             /* before this step */
    uint32_t n_preempted; /* times, before this step */
    bool all_logits;
    uint32_t n_logits;  /* prompt rows whose logits it got */
    uint32_t length;    /* tokens known or expected, before this step */
    uint32_t rest;      /* of its prompt, or what it has to compute again, before this step */
    uint32_t chosen_by; /* its item in the newest step */
    int32_t tokens[MAX_TOKENS];
};

/* What a step was given of one sequence. */
struct given {
    struct client *c;
    uint64_t serial; /* of the client; another: it left */
    struct sched_item item;
    uint64_t begin; /* the tag before the first position */
    uint32_t n_blocks, first_pane, end_pane;
    uint32_t blocks[MAX_TOKENS], panes[MAX_TOKENS], states[MAX_TOKENS];
    uint32_t state_from, state_to;
    int32_t tokens[MAX_TOKENS]; /* [n_rows] */
    uint32_t n_known;           /* of them; the other is what the step before chose */
    uint32_t from;              /* there */
    int32_t chosen;
};

struct fake_step {
    struct given items[MAX_RUNNING];
    uint32_t n_items;
    bool has_run;
};

/* What the device has been told to do. */
struct order {
    struct fake_step *step; /* or a copy: */
    struct kv_place from, to;
};

struct world {
    struct sched_config cfg;
    bool ahead;                  /* steps are planned while others run */
    bool holds;                  /* but not before they have ended */
    struct fake_step *steps[2];  /* oldest first */
    uint32_t n_steps;            /* begun and not ended */
    struct fake_step *memory;    /* [2] */
    int32_t chosen[MAX_RUNNING]; /* by the step that ran last, of its items */
    struct order orders[MAX_ORDERS];
    uint32_t n_orders;
    uint32_t n_blocks, block_tokens;
    uint32_t most_moves;      /* of fetches in a plan; 0: any number */
    uint32_t window, n_panes; /* 0: no layers with windows */
    bool all_windowed;        /* no others */
    uint32_t n_states;        /* 0: no recurrent layers */
    bool all_recurrent;       /* no others */
    uint32_t longest;         /* sequence that could run */
    struct kv *kv;
    struct fake_tier *tier; /* or NULL */
    struct kv_tier *host;   /* RAM above it, or alone, or NULL */
    struct sched *sched;
    uint64_t *tags;      /* [n_blocks * block_tokens] the memory of the fake model; or NULL */
    uint64_t *pane_tags; /* [n_panes * block_tokens] */
    uint64_t *states;    /* [n_states] the tag that each is behind */
    uint32_t n_vocab;
    int32_t texts[N_TEXTS][MAX_TOKENS];
    struct kv_key spaces[N_SPACES];
    struct client clients[MAX_CLIENTS];
    uint64_t next_serial;
    bool priorities; /* somebody may ask for one */
    uint32_t n_tenants;
    int64_t worked[N_TENANTS]; /* rows computed for each since it came */
    int64_t began[N_TENANTS];  /* what it began with then, and was lifted by */
    bool waited[N_TENANTS];    /* before this operation */
    uint32_t budget;           /* rows for prompts in this step, at least */
    uint64_t now_us;
    double us_per_token;
    const struct sched_seq *first; /* in rank, of all that are alive */
    uint32_t first_computed;
    uint32_t n_stuck; /* steps since it last got on */
};

static inline struct client *client_of(const struct sched_seq *s)
{
    return s->user;
}

static inline int64_t served(const struct world *w, uint32_t tenant)
{
    return sched_served(w->sched, FIRST_TENANT + tenant);
}

/* --- chance, counts and failure (sim_sched.c) ------------------------------------------------- */

/* Vigna's splitmix64 step: the whole state is one counter. */
static inline uint64_t mix(uint64_t x)
{
    x ^= x >> 30;
    x *= 0xbf58476d1ce4e5b9u;
    x ^= x >> 27;
    x *= 0x94d049bb133111ebu;
    return x ^ x >> 31;
}

uint32_t below(uint32_t n);
uint32_t between(uint32_t lo, uint32_t hi);
/* Small numbers mostly, large ones sometimes. */
uint32_t skewed(uint32_t lo, uint32_t hi);

struct sim_counts {
    uint64_t added, refused, cancelled, finished, steps, rows, decodes, full;
    uint64_t hits, misses, copied, merged, evicted, preempted, fetched, host_fetched,
        failed_allocations;
    uint64_t passed, pane_evicted, pane_missed, panes_full;
    uint64_t state_kept, state_evicted, state_missed, states_full, state_hits;
    uint64_t ahead, held, dropped, late_copies;
};
extern struct sim_counts count;

#define CHECK(cond, ...)                                                                           \
    do {                                                                                           \
        if (!(cond))                                                                               \
            sim_fail(__FILE__, __LINE__, #cond, __VA_ARGS__);                                      \
    } while (0)

_Noreturn void WEIR_PRINTF(4, 5)
    sim_fail(const char *file, int line, const char *cond, const char *fmt, ...);

/* --- the fake model and its device (fake_model.c) --------------------------------------------- */

/* What stands for the empty text before a client's first position. */
uint64_t first_tag(const struct client *c);
size_t tags_bytes(const struct world *w); /* of a block */
/* Do what the device was told first; or all. */
void run_order(struct world *w);
void run_orders(struct world *w);
/* kv_config.mover's. */
void copy_block(void *ctx, struct kv_place from, struct kv_place to);
bool read_block(void *ctx, struct kv_place from, void *bytes);
void write_block(void *ctx, struct kv_place to, const void *bytes);
/* Nobody may have written into this sequence's blocks, and its output is what it says alone. What
 * was copied for it may be still to come. */
void verify(struct world *w, const struct client *c);

/* --- the judge (judge.c) ---------------------------------------------------------------------- */

/* As if the rows under way had run. */
uint32_t rest(const struct sched_seq *s);
bool decodes(const struct sched_seq *s);
/* Everything a plan promises. Called before any of it is run. */
void check_plan(struct world *w,
                const struct sched_plan *p,
                uint32_t row_budget,
                uint32_t n_decoding,
                uint32_t n_waiting);
/* For what follows: who has something waiting now. */
void note_waiting(struct world *w);
/* One had nothing waiting before, and was lifted by this: it is level now with who has most, or
 * with one that waited. */
void check_lift(const struct world *w, uint32_t tenant, int64_t lift);
/* Take in what those that were preempted were lifted by. After every plan. */
void check_lifts(struct world *w);
/* Who gets on, who has to wait, and what tenants are served: after every plan that waits for no
 * step. */
void check_fairness(struct world *w, const struct sched_plan *p);

#endif
