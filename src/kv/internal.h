/* The fields behind struct kv, shared by kv.c (tables and sharing), leaving.c (what steps under way
 * may still use), panes.c (windows), states.c (recurrent layers), store.c and fetch.c (the tier)
 * and check.c.
 */
#ifndef WEIR_KV_INTERNAL_H
#define WEIR_KV_INTERNAL_H

#include "kv/kv.h"
#include "kv/pool.h"
#include "kv/prefix.h"

/* What was let go while steps were under way: a list through the places, oldest first. */
struct kv_leaving {
    struct kv_leaving_place {
        uint32_t older, newer;
        uint32_t n_refs; /* given up, but not given back; 0: not on the list */
        uint64_t after;  /* the step that has to end first */
    } * places;          /* [n] by id */
    uint32_t oldest, newest;
};

/* Full blocks that are yet to be offered to the tier: a list through the places, oldest first. */
struct kv_waiting {
    struct kv_waiting_place {
        uint32_t older, newer;
    } * places; /* [n_blocks] by id */
    uint32_t oldest, newest;
};

struct kv {
    struct kv_config cfg;
    struct kv_pool *pool;
    struct kv_prefix *prefix;
    struct kv_pool *panes;  /* with a window, else NULL */
    uint32_t *pane_of;      /* [n_blocks] with a window: its pane, or KV_NO_PANE */
    uint32_t *block_of;     /* [n_panes] its block, or KV_NO_BLOCK */
    struct kv_pool *states; /* with recurrent layers, else NULL */
    uint32_t *state_of;     /* [n_blocks] likewise: its state, or KV_NO_STATE */
    struct kv_state_info {
        uint32_t block;        /* whose it is, or KV_NO_BLOCK: a sequence's own, or nobody's */
        uint32_t n_tokens;     /* of that block, which it is behind */
    } * states_info;           /* [n_states] */
    struct kv_hasher *hasher;  /* with a tier */
    struct kv_key *keys;       /* [n_blocks] with a tier: of full published blocks */
    struct kv_key *run;        /* [n_blocks] with a tier: of what is looked for there */
    struct kv_waiting waiting; /* with a tier */
    struct kv_table *fetching; /* tables that wait for the tier, in the order in which they began */
    struct kv_table *last_fetching;
    uint32_t moves_left;   /* until kv_poll is called again */
    uint64_t n_copied_out; /* blocks, to the tier */
    bool taking_arrivals;  /* what becomes full waits until fetches have what buffers they need */
    struct kv_tier_seen {
        uint64_t since_us; /* something came last, or there was nothing to do */
        double block_us;   /* what a block takes, the tier's own word to begin with */
        bool refused;      /* took no more, when asked last */
    } seen[KV_MAX_TIERS];  /* by what fetches saw of it */
    uint64_t next_serial;
    double compute_us; /* a token */
    uint64_t now_us;
    uint64_t n_steps_begun, n_steps_ended;
    struct kv_leaving leaving, panes_leaving, states_leaving;
    uint32_t *scratch; /* [2 * n_blocks + n_panes + n_states] of kv_check */
    struct kv_counts counts;
};

/* The block before index i of a table, or KV_ROOT. */
uint32_t kv_parent_of(const struct kv_table *t, uint32_t i);

/* A reference is given back. Content that is published stays, cached. */
void kv_block_give_back(struct kv *kv, uint32_t id);

/* --- leaving.c --- */

enum err kv_leaving_init(struct kv_leaving *l, uint32_t n, struct err_info *e) WEIR_MUST_USE;
void kv_leaving_deinit(struct kv_leaving *l);
/* One reference waits from now on for the newest step under way; there is one. */
void kv_leave(const struct kv *kv, struct kv_leaving *l, uint32_t id);
/* held[n] is raised by what waits. */
enum err kv_leaving_check(const struct kv *kv,
                          const struct kv_leaving *l,
                          uint32_t n,
                          uint32_t *held,
                          struct err_info *e) WEIR_MUST_USE;

/* kv_publish, but for the panes that the window has passed. */
void kv_publish_blocks(struct kv *kv, struct kv_table *t, uint32_t n_computed, bool tail);

/* All missing blocks of the first n_tokens or none, without panes. */
enum err kv_grow_blocks(struct kv *kv, struct kv_table *t, uint32_t n_tokens, struct err_info *e)
    WEIR_MUST_USE;

/* --- panes.c; nothing happens without windows --- */

enum err kv_panes_create(struct kv *kv, struct err_info *e) WEIR_MUST_USE;
void kv_panes_destroy(struct kv *kv);
/* A new pane for the table's block end_pane; the caller counted that there is one. */
void kv_pane_take(struct kv *kv, struct kv_table *t);
/* The table attached to blocks, up to n positions: hold the panes that lie in the window now. */
void kv_panes_attach(struct kv *kv, struct kv_table *t, uint32_t n);
/* n positions are stored: let go of the panes that the window has passed; at once, of a table that
 * has no rows under way. */
void kv_panes_pass(struct kv *kv, struct kv_table *t, uint32_t n);
void kv_panes_pass_now(struct kv *kv, struct kv_table *t, uint32_t n);
void kv_panes_release(struct kv *kv, struct kv_table *t);
/* The table's block i, which it has just computed, gives way to another of equal content. */
void kv_pane_merge(struct kv *kv, struct kv_table *t, uint32_t i, uint32_t other);
/* One reference to a pane less; without a published block of its own it is free. */
void kv_pane_give_back(struct kv *kv, uint32_t pane);
/* A cached pane is used last; or comes free, with its block. */
void kv_pane_touch(struct kv *kv, uint32_t block);
void kv_pane_drop(struct kv *kv, uint32_t block);
bool kv_lacks_pane(const struct kv *kv, uint32_t block);
bool kv_pane_is_cached(const struct kv *kv, uint32_t block);
struct kv_place kv_place_of(const struct kv *kv, uint32_t block);

/* --- states.c; nothing happens without recurrent layers, but where they are spoken of --- */

enum err kv_states_create(struct kv *kv, struct err_info *e) WEIR_MUST_USE;
void kv_states_destroy(struct kv *kv);
/* Rows up to n positions are planned. */
void kv_states_advance(struct kv *kv, struct kv_table *t, uint32_t n);
/* n positions are stored: let go of what the rows up to there needed. */
void kv_states_pass(struct kv *kv, struct kv_table *t, uint32_t n);
/* Publish what the table's own state is behind, if that is n_computed positions; let go of all. */
void kv_states_release(struct kv *kv, struct kv_table *t, uint32_t n_computed);
/* With recurrent layers: does the block have the state behind all that it holds? Could the table go
 * on from there? It holds blocks up to n positions now, the last of which does. */
bool kv_has_state(const struct kv *kv, uint32_t block);
bool kv_states_can_attach(const struct kv *kv, const struct kv_table *t, uint32_t block);
void kv_states_attach(struct kv *kv, struct kv_table *t, uint32_t n);
/* The table goes on in a block that nobody uses: its state becomes the table's own, behind n
 * positions. False: it has none. */
bool kv_state_take_over(struct kv *kv, struct kv_table *t, uint32_t block, uint32_t n);
/* The table's block i, which it has just computed, gives way to another of equal content. */
void kv_state_merge(struct kv *kv, const struct kv_table *t, uint32_t i, uint32_t other);
void kv_state_give_back(struct kv *kv, uint32_t state);
void kv_state_drop(struct kv *kv, uint32_t block); /* which is evicted */
enum err kv_states_check_table(const struct kv *kv,
                               const struct kv_table *t,
                               uint32_t *held,
                               struct err_info *e) WEIR_MUST_USE;
enum err kv_states_check(const struct kv *kv, struct err_info *e) WEIR_MUST_USE;

/* --- store.c --- */

/* With a tier. */
enum err kv_waiting_init(struct kv *kv, struct err_info *e) WEIR_MUST_USE;
void kv_waiting_deinit(struct kv *kv);
/* With a tier: a full block was published and named; it goes there when the tier has a buffer. */
void kv_store(struct kv *kv, uint32_t block);
/* With a tier: offer what waits, as far as there are buffers. */
void kv_store_waiting(struct kv *kv);
/* A published block, or its pane, is about to be taken back: this is the last chance to store it.
 * Nothing happens without a tier. */
void kv_store_evicted(struct kv *kv, uint32_t block);
/* The tier hears which full blocks a table held, the last first. Nothing happens without a tier. */
void kv_tell_used(const struct kv *kv, const struct kv_table *t);
/* seen: [n_blocks] to work in. */
enum err kv_waiting_check(const struct kv *kv, uint32_t *seen, struct err_info *e) WEIR_MUST_USE;

/* --- fetch.c --- */

/* With a tier: name the table's full block i, whose predecessors are named. */
void kv_name_block(struct kv *kv, const struct kv_table *t, uint32_t i);
/* Stop fetching into a table: blocks that did not arrive are given back. */
void kv_fetch_end(struct kv *kv, struct kv_table *t);

#endif
