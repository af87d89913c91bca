/* KV memory as a database: blocks, who holds them, what they contain, and where else it lies.
 *
 *      pool    ids, references, free and cached blocks                     pool.h
 *      prefix  the tree of published blocks, found by their tokens         prefix.h
 *      panes   the windowed layers' part of blocks, while it is needed     panes.c
 *      states  what recurrent layers keep of sequences                     states.c
 *      leaving what was let go while steps that may use it are under way   leaving.c
 *      tier    bytes of full blocks below this memory, by key              tier.h
 *      waiting full blocks that the tier had no buffer for yet             store.c
 *
 * A sequence holds blocks through its table. Positions whose K and V are stored are published; a
 * sequence that begins with the same tokens attaches to them:
 *
 *      full block, all of it matches     one more reference
 *      partly filled, nobody holds it    taken over, and filled up by the new sequence
 *      matches in part                   copied up to where it differs
 *
 * So a block with several references is full and never written again, and one that is being filled
 * has one writer. Nothing that is held is ever evicted; of the rest the least recently used goes
 * first. A table lets go of its last block first, so a block is always used later than those that
 * continue it: the oldest never has children.
 *
 * A block holds `block_tokens` consecutive positions of one sequence, in every layer. Where some
 * layers see a window only, their part of it, the block's pane, comes from a pool of its own:
 *
 *      block    7    2    9    4    5     layers that see everything: all of the text
 *      pane     -    -    31   8    12    windowed layers: what the window lies over
 *                         ^ here is the first position that the next row sees
 *
 * A block has at most one pane, and a pane one block, so who shares a block shares its pane. Panes
 * count the tables whose window lies over them; the others are cached while their block can be
 * found, and taken back in the order of last use, while the block stays. A prefix can be used up to
 * where the panes of the window behind it are there. Where all layers have windows a block has no
 * bytes but its pane's.
 *
 * Where layers are recurrent a sequence has a state of its own, from a third pool, and some full
 * blocks have the state behind their last position (states.c). Then a prefix can be used up to a
 * block that has one; a block filled in part only by who goes on where it ends.
 *
 * A step's rows may still be on their way through a device when the host goes on: then the caller
 * says when a step begins and ends. What a step under way was given is lent to nobody else before
 * it has ended, whatever its tables let go of meanwhile; such blocks count as in use. Only
 * positions whose step has ended, and whose tokens are known, are ever published.
 *
 * Thread: the engine's. Allocates: only in the create and init functions. */
#ifndef WEIR_KV_KV_H
#define WEIR_KV_KV_H

#include "base/err.h"
#include "kv/key.h"
#include "kv/tier.h"

#include <stdbool.h>
#include <stdint.h>

struct kv;

#define KV_NO_PANE UINT32_MAX
#define KV_NO_STATE UINT32_MAX
#define KV_MAX_WANTED 6 /* states that a table can have asked for at a time */

/* Where the bytes of a block are. */
struct kv_place {
    uint32_t block;
    uint32_t pane; /* KV_NO_PANE: there are no windows */
};

/* How bytes move; what the backend gives. `bytes` is the whole of a block and its pane, block_bytes
 * long. While steps are under way:
 *
 *      copy   takes its place among them: behind those that have begun, before those to come; its
 *             source may be written by them at positions that are not looked for
 *      read   of a full block, whose positions' steps have all ended; false: the device failed, and
 *             `bytes` are not the block's
 *      write  of a block that no step under way was given, though a copy may have been, before */
struct kv_mover {
    void *ctx;
    void (*copy)(void *ctx, struct kv_place from, struct kv_place to);
    bool (*read)(void *ctx, struct kv_place from, void *bytes);
    void (*write)(void *ctx, struct kv_place to, const void *bytes);
};

struct kv_config {
    uint32_t n_blocks;
    uint32_t block_tokens; /* at most KV_MAX_BLOCK_TOKENS */
    struct kv_mover mover;
    struct kv_tier *tier; /* or NULL; must outlive the kv */
    uint32_t most_moves;  /* blocks that fetches ask for between two calls of kv_poll, with those
                           * that are copied out to the tier to make room; 0: any number */
    uint32_t window;      /* positions that windowed layers see, a row's own included; 0: none do */
    uint32_t n_panes;     /* with a window */
    uint32_t n_states;    /* of recurrent layers; 0: there are none. Not with a window or a tier */
};

/* Blocks on their way from the tier into a table, by index in the table. */
struct kv_fetch {
    uint64_t serial; /* 0: none is */
    uint32_t asked, arrived, end;
    uint32_t level; /* of the tier that they come from: 0, the first */
    struct kv_table *prev, *next;
};

/* One sequence's blocks, in order. Room for max_blocks is taken at init. */
struct kv_table {
    uint32_t *blocks; /* [n_blocks] */
    uint32_t n_blocks;
    uint32_t max_blocks;
    uint32_t *panes;               /* of the blocks first_pane .. end_pane - 1; NULL: no windows */
    uint32_t first_pane, end_pane; /* those before are passed, those behind are being fetched */
    uint32_t *states;              /* of blocks that rows under way will end, KV_NO_STATE for most;
                                    * NULL: there are none */
    /* of the sequence, from kv_table_begin on */
    const int32_t *tokens; /* of every position known */
    struct kv_key space;
    bool shares;         /* publishes what it computes */
    uint32_t n_attached; /* positions that were not computed by this sequence */
    uint32_t n_published;
    uint32_t state;      /* its own, or KV_NO_STATE; what its rows write to */
    uint32_t n_state;    /* positions that it will be behind when the rows under way have run */
    uint32_t state_from; /* what the rows planned last begin with */
    uint32_t base;       /* a kept one that the first rows behind base_at positions begin with */
    uint32_t base_at;
    uint32_t wanted[KV_MAX_WANTED], n_wanted; /* blocks not planned yet, to be given a state, */
    uint32_t kept[KV_MAX_WANTED], n_kept;     /* and those that were, while their rows run */
    bool looked;         /* was attached, or could not be: what lacked panes is counted */
    bool no_fetch;       /* the tier had its chance: it was thought slower, or did not deliver */
    uint32_t fetch_from; /* nor are blocks before this one fetched: the last did not come, */
    uint32_t n_misses;   /* as so many did not */
    struct kv_fetch fetch;
};

/* Events, ever. */
struct kv_counts {
    uint64_t hit_tokens;        /* positions attached, copied or fetched instead of computed */
    uint64_t miss_tokens;       /* computed, although a hit was possible */
    uint64_t evicted;           /* cached blocks taken back */
    uint64_t panes_passed;      /* let go by a table whose window had passed them */
    uint64_t panes_evicted;     /* cached panes taken back while their block stayed */
    uint64_t pane_miss_tokens;  /* positions in memory that could not be used for want of panes */
    uint64_t states_kept;       /* stored for full blocks, for others to find */
    uint64_t states_evicted;    /* cached ones taken back while their block stayed */
    uint64_t state_miss_tokens; /* positions in memory that could not be used for want of states */
    uint64_t copied;            /* blocks copied for a partial match */
    uint64_t merged;            /* blocks given back because another had the same content */
    uint64_t
        fetches_declined[KV_MAX_TIERS]; /* by tier: because computing was estimated to be faster */
    uint64_t fetches_abandoned[KV_MAX_TIERS]; /* because nothing came for too long, or too slowly */
};

/* Of a pool: what it has of a kind. */
struct kv_usage {
    uint32_t total, free, in_use, cached, peak_in_use;
};

struct kv_stats {
    struct kv_usage blocks, panes, states;
    uint32_t published;          /* blocks in the prefix index */
    uint64_t acquired, released; /* references taken and given back, ever */
    struct kv_counts counts;
};

enum err kv_create(const struct kv_config *cfg, struct kv **out, struct err_info *e) WEIR_MUST_USE;
void kv_destroy(struct kv *kv);

uint32_t kv_block_tokens(const struct kv *kv);
uint32_t kv_blocks_for(const struct kv *kv, uint32_t n_tokens);
uint32_t kv_available(const struct kv *kv);       /* blocks that are free or can be made so */
uint32_t kv_panes_available(const struct kv *kv); /* panes likewise; 0 without windows */
uint32_t kv_room(const struct kv *kv);            /* blocks that tables could grow by now */
uint32_t kv_n_panes(const struct kv *kv);
uint32_t kv_n_states(const struct kv *kv);
uint32_t kv_states_available(const struct kv *kv); /* states likewise; 0 without recurrent layers */
struct kv_stats kv_stats(const struct kv *kv);

/* The most blocks that n_rows new positions and the window behind the first of them lie in. */
uint32_t kv_window_blocks(uint32_t window, uint32_t block_tokens, uint32_t n_rows);
/* The most panes that a sequence of n_tokens holds at once while it grows by n_rows a step, or is
 * fetched; 0 without windows. */
uint32_t kv_most_panes(const struct kv *kv, uint32_t n_tokens, uint32_t n_rows);
/* The first block whose pane is needed to go on behind n_computed positions. */
uint32_t kv_first_pane(const struct kv *kv, uint32_t n_computed);

enum err kv_table_init(const struct kv *kv,
                       struct kv_table *t,
                       uint32_t max_blocks,
                       struct err_info *e) WEIR_MUST_USE;
void kv_table_deinit(struct kv_table *t); /* must hold no blocks */

/* Begin a sequence in an empty table. tokens stay the caller's, and in place until the release. */
void kv_table_begin(struct kv_table *t,
                    const int32_t *tokens,
                    const struct kv_key *space,
                    bool shares);

/* What attaching to tokens[0..n) would find: full blocks, and how many of them are cached now; and
 * panes, if so many positions lie in one window, for else they are soon let go again. */
struct kv_peek {
    uint32_t n_blocks, n_cached;
    uint32_t n_panes, n_panes_cached;
};
struct kv_peek kv_peek(const struct kv *kv,
                       const struct kv_key *space,
                       const int32_t *tokens,
                       uint32_t n);

/* Take over full blocks that others have computed of tokens[n_computed..n_known), but never the
 * last token, which must be computed so that there are logits, and not beyond the last position
 * behind which a window of panes is there, or a state; with states also the part of a block where
 * somebody left off. Returns the positions stored now: n_computed or more.
 * Nothing happens in the middle of a block. The table has no rows under way. */
uint32_t kv_attach(struct kv *kv, struct kv_table *t, uint32_t n_computed, uint32_t n_known);
/* Likewise the tokens that the next block shares with one that matches only in part; with states
 * there is nothing to be had. */
uint32_t kv_attach_part(struct kv *kv, struct kv_table *t, uint32_t n_computed, uint32_t n_known);

/* The table gets a state of its own, if it has none yet; false: there is none to be had. Nothing
 * happens without recurrent layers. */
bool kv_state_take(struct kv *kv, struct kv_table *t);
/* Let the table's block i have the state behind its last position, for others, when its rows are
 * planned and if a state is to be had then. False: they have been, or it has too many of these. */
bool kv_want_state(const struct kv *kv, struct kv_table *t, uint32_t i);

/* Make room for positions 0..n_tokens-1: all missing blocks, with panes, or none. Idempotent. May
 * evict. With recurrent layers the rows up to there are planned now: state_from, state and states
 * are theirs. Errors: ERR_QUEUE_FULL "exhausted: need n blocks but only m free"; ERR_TOO_LONG
 * "would need n blocks, exceeds max m". */
enum err kv_table_grow(struct kv *kv, struct kv_table *t, uint32_t n_tokens, struct err_info *e)
    WEIR_MUST_USE;

/* Positions 0..n_computed-1 are stored: let others find them. The last block, if partly filled,
 * only with `tail`. May exchange blocks of the table for others with the same content. Panes that
 * the window has passed are let go. */
void kv_publish(struct kv *kv, struct kv_table *t, uint32_t n_computed, bool tail);

/* Publish what was computed, tell the tier which full blocks were used, and let go of them all. */
void kv_table_release(struct kv *kv, struct kv_table *t, uint32_t n_computed);

void kv_count_misses(struct kv *kv, uint32_t n_tokens);

/* --- steps that run while the host goes on --- */

/* From here on the blocks of all tables that have rows in it may be in use by one more step; by the
 * oldest no more. Steps end in the order in which they began. Where they end before anything else
 * happens these need not be called. */
void kv_step_begun(struct kv *kv);
void kv_step_ended(struct kv *kv);
bool kv_has_steps(const struct kv *kv);       /* some are under way */
uint32_t kv_coming_free(const struct kv *kv); /* blocks that nobody else holds; O(them) */

/* --- the tier below --- */

/* The time now, on a clock that never goes back, and what computing one position is thought to take
 * (0: unknown). The clock is the caller's, so that a simulation can have its own. */
void kv_set_pace(struct kv *kv, uint64_t now_us, double us_per_token);

/* Fetch the full blocks that follow n_computed and that the tier has, if that is estimated to be
 * faster than computing them; false if there is nothing to fetch. Takes blocks as it asks for their
 * bytes, and ends where there are none to be had. Until kv_fetching says no, the table must neither
 * be grown nor attached. */
bool kv_fetch_begin(struct kv *kv, struct kv_table *t, uint32_t n_computed, uint32_t n_known);
bool kv_fetching(const struct kv_table *t);
/* Positions stored so far in a table that is, or was, being fetched into. */
uint32_t kv_fetched(const struct kv *kv, const struct kv_table *t);
/* Up to which position a table is to be computed before another fetch may begin; 0: none waits for
 * that. */
uint32_t kv_fetch_from(const struct kv *kv, const struct kv_table *t);
/* Take what has arrived, ask for more, and give up fetches that computing the rest would beat, and
 * all from a tier that sends nobody anything for a second; then offer the tier what it had no
 * buffer for before. True while any table waits for the tier. */
bool kv_poll(struct kv *kv);
/* For who closes it all: offer again what waits to be stored. False: nothing does any more. */
bool kv_store_rest(struct kv *kv);

/* Walk everything: the pool's sum and lists, each block's references equal to the tables (of the n
 * given: all there are) that hold it, every published block reachable from the root and with the
 * tokens of the tables that hold it, nothing cached that is not published, and the oldest first;
 * each pane of one block, that block's own, with references equal to the tables whose window lies
 * over it; each state a table's own or that of one block, behind what the block is known to hold if
 * nobody uses it. Errors: ERR_INTERNAL naming what is wrong. Not for use in a step: O(total). */
enum err kv_check(const struct kv *kv,
                  const struct kv_table *const *tables,
                  uint32_t n,
                  struct err_info *e) WEIR_MUST_USE;

#endif
