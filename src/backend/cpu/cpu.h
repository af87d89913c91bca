/* The CPU backend's own state: the model's plan compiled into phases, and the memory they use.
 *
 *     plan of ops   --compile.c-->   phases    --run.c-->   every worker walks all phases
 *
 * A phase is work whose items are independent; the next begins when all are done (threads.h). The
 * kinds:
 *
 *     ROWS        item: some rows      a list of steps (steps.c), each row through all of them;
 *                 or where rows are few, if it can be (parts.c), a part of one
 *     LINEAR      item: some panels x a block of rows, over all matrices that read one input
 *     ATTENTION   item: some KV heads x a tile of rows (tiles.c); where those are few and
 *                 contexts long, one x a range of positions, and who ends the last range folds
 *                 them. What is done to those rows and heads alone before and after it is done
 *                 there, too
 *
 *     SORT        one item: rows sorted by the experts that they were given to (experts.h)
 *     EXPERTS     item: some panels of one of the experts that are wanted, over all of its rows
 *
 *     CONV, RECUR item: some channels, or a head, of one sequence, over its rows (recurrent.h)
 *
 *     KEEP        item: a buffer, the last one the rows' angles; rows that are wanted move to its
 *                 front. Behind the last op that stores K, V or a state all others are done with:
 *                 a prompt needs its last
 *
 * so a layer is [norm, pack] [q k v] [rope, store] [attention, pack] [output + add] [norm, pack]
 * [gate, up] [gated, pack] [down + add]: nine phases, and eight where attention rotates. */
#ifndef WEIR_BACKEND_CPU_CPU_H
#define WEIR_BACKEND_CPU_CPU_H

#include "backend/backend.h"
#include "backend/cpu/kernels.h"
#include "backend/cpu/threads.h"

#include <stdatomic.h>

enum step_kind {
    STEP_ANGLES, /* cos and sin of the row's position, for every layer */
    STEP_EMBED,
    STEP_ADD_POSITION,
    STEP_ADD_TYPE,
    STEP_NORM,
    STEP_LAYER_NORM,
    STEP_HEAD_NORM,
    STEP_HEAD_LAYER_NORM,
    STEP_HEAD_COPY,
    STEP_HEAD_SCALE,
    STEP_ROPE,
    STEP_ROPE_STORE,
    STEP_GATED,
    STEP_UNARY,
    STEP_ADD,
    STEP_ADD_GATED,
    STEP_RATES,
    STEP_SELECT,
    STEP_MIX,
    STEP_CAP,        /* scale and cap, in place */
    STEP_CLAMP,      /* in place */
    STEP_XIELU,      /* likewise */
    STEP_STREAMS,    /* one of the ops on residual streams (streams.c): `op` */
    STEP_COPY,       /* in to out */
    STEP_PACK,       /* `in` to the packed activations that the next LINEAR reads, */
    STEP_PACK_HEADS, /* or those of each of its heads */
};

struct step {
    enum step_kind kind;
    enum model_buf in, in2, out;
    uint32_t n;       /* values of a row */
    uint32_t n_types; /* ADD_TYPE: rows of w */
    uint16_t layer;
    uint32_t n_head, n_head_kv;      /* ROPE, ROPE_STORE, HEAD_COPY, HEAD_SCALE, PACK_HEADS, RATES;
                                      * n_head is SELECT's experts of a row, and the STREAMS */
    uint32_t head_dim;               /* ROPE, ROPE_STORE, HEAD_NORM, HEAD_LAYER_NORM, HEAD_SCALE */
    uint32_t in2_first;              /* GATED */
    uint32_t in_step, out_step;      /* HEAD_COPY, PACK_HEADS */
    enum rope_table rope;            /* ROPE, ROPE_STORE */
    bool temper;                     /* ROPE_STORE */
    enum gate_kind gate;             /* GATED */
    enum unary_kind unary;           /* UNARY */
    float scale, cap;                /* EMBED, ADD, CAP, CLAMP, GATED, STREAMS */
    struct xielu xielu;              /* XIELU */
    float eps;                       /* HEAD_NORM, HEAD_LAYER_NORM */
    uint32_t w_step;                 /* likewise: from one head's w to the next's */
    bool front, zero;                /* HEAD_COPY */
    enum recur_kind recur;           /* RATES */
    enum op_kind op;                 /* STREAMS */
    bool gather;                     /* PACK of places: from the rows that they belong to */
    const float *w, *bias;           /* norms; ADD_POSITION, ADD_TYPE: rows of n; SELECT */
    const struct gguf_tensor *table; /* EMBED: its type and shape */
    const uint8_t *rows;             /* EMBED: a copy of its data, or NULL: */
    const struct matrix *tied;       /* EMBED: whose columns they are */
    uint64_t formats;                /* PACK: of the matrices that read it, a bit each */
    bool any_rows;                   /* PACK: in jobs of any number of rows */
    struct act act;                  /* PACK */
};

struct matrix {
    struct gguf_tensor tensor; /* of an expert: its part */
    enum panel_format format;
    uint8_t *panels;
    size_t panel_bytes;
    uint32_t n_panels;
    uint64_t first_panel; /* of all matrices' */
    uint32_t n_in, n_out;
    const float *bias, *scale; /* or NULL */
    enum model_buf out;
    bool add;    /* onto out: the ADD op that follows is done here */
    bool expert; /* multiplied with places */
    bool packed; /* with an earlier one, of the same tensor: it has that one's panels */
    uint32_t head, out_first; /* of a head: which one, and its first column of out */
    struct act act;
};

/* Items of split attention, all ranges counted, for each worker: streams with 8 KV heads are split
 * up to 16,384 positions a worker together, and beyond that only over their heads. */
enum { MAX_SPLIT_ITEMS = 256 };

enum phase_kind {
    PHASE_ROWS,
    PHASE_LINEAR,
    PHASE_ATTENTION,
    PHASE_SORT,
    PHASE_EXPERTS,
    PHASE_CONV,
    PHASE_RECUR,
    PHASE_KEEP,
};

/* Units first .. end - 1 of those that a row is divided into: as large a part of each buffer. */
struct row_part {
    uint32_t first, end, of;
};

/* The rows that a phase is over: all, those that are kept, or those whose logits, or hidden states,
 * are wanted. */
enum phase_rows { ROWS_ALL, ROWS_KEPT, ROWS_LOGITS, ROWS_HIDDEN };

_Static_assert(N_MODEL_BUFS <= 64, "phase.keeps");
struct phase {
    enum phase_kind kind;
    enum phase_rows rows;
    bool gather;        /* the first step reads row logit_at[i], or hidden_at[i], all else row i */
    bool places;        /* over places instead of rows (experts.h) */
    uint32_t first, n;  /* into steps or matrices */
    uint32_t n_panels;  /* LINEAR: of all its matrices; EXPERTS: of all of one expert */
    uint32_t chunk;     /* rows, panels or KV heads an item holds; set for each batch */
    uint32_t units;     /* ROWS: that a row may be divided into, or 1 (parts.c); */
    uint32_t least;     /* of them a part has at least, to be worth handing out; */
    bool by_heads;      /* those are heads, else columns; */
    uint32_t n_parts;   /* in how many parts it is, an item each; set for each batch */
    size_t panel_bytes; /* LINEAR: of the largest */
    uint64_t keeps;     /* KEEP: the buffers that are read later, a bit each */
    uint32_t n_used;    /* SORT: experts of a row */
    /* ATTENTION */
    uint16_t layer;
    uint32_t n_head, n_head_kv;
    float scale, cap;
    uint32_t window;
    enum window_kind window_kind;
    const float *sinks, *slopes;        /* [n_head] or NULL */
    bool may_rotate, packs;             /* it can do the phase before it; it does the one behind, */
    bool rotates;                       /* and for this batch the one before (parts.c) */
    uint32_t first_channel, n_channels; /* CONV; RECUR has n_channels, too, where it goes by them,
                                         * and ATTENTION: values of a row that it makes */
    /* CONV: [conv_width][n_channels], [n_channels] or NULL; RECUR: [n_head] or NULL; of
     * channels as in struct selective_job, and [n_head] */
    const float *w, *bias;
    bool gated, tiled;
    enum recur_kind recur;
};

/* Where a layer's K and V are: base + block * kv.block_bytes, or pane. Layers that do not attend
 * have none, and 0 bytes a block. */
struct layer_kv {
    struct kv_layout kv;
    uint8_t *base;
    bool in_panes;
};

/* Where a recurrent layer's states are: base + state * floats. */
struct layer_state {
    float *base;
    size_t floats;
};

/* Rows that attend together: of one sequence, one after the other, or of several that share where
 * their contexts begin (tiles.c). */
struct attn_tile {
    uint32_t first, n_rows;         /* of attn_tiles.rows */
    bool shared;                    /* some of them lie in blocks that others began */
    uint32_t first_range, n_ranges; /* of ATTN_RANGE positions, of all tiles'; of the longest row */
};

/* How attention is divided. */
struct attn_tiles {
    struct attn_tile *tiles; /* [max_rows] */
    struct attn_row *rows; /* [max_rows]; `at` is where they lie in the buffers, of kept rows among
                            * those */
    uint32_t n_tiles;
    uint32_t longest;  /* positions that one reads, */
    uint64_t n_pos;    /* and all together */
    uint32_t n_ranges; /* of all tiles together, where items are split by them; 0: they are not */
    bool whole;        /* each tile holds all rows of its sequences */
};

/* What a worker has left to take of the phase of matrices at hand, in a cache line of its own
 * (panels.c). */
struct cpu_share {
    _Alignas(64) atomic_uint_least64_t left;
};

struct cpu_backend {
    struct backend base; /* must be first */
    const struct model *model;
    struct backend_config cfg;
    const struct cpu_kernels *kernels;
    struct pool *pool;
    char description[64], kernels_name[32]; /* with the revision */

    struct phase *phases;
    struct step *steps;
    struct matrix *matrices;
    uint32_t n_phases, n_steps, n_matrices;

    /* Each from one mapping. */
    uint8_t *weights;
    uint8_t *table;        /* of embeddings, as in the file; NULL if a matrix has them all */
    uint8_t *kv_memory;    /* layer by layer, its blocks or panes */
    uint8_t *state_memory; /* of recurrent layers, layer by layer */
    uint8_t *workspace;
    size_t weights_bytes, table_bytes, kv_bytes, state_bytes, workspace_bytes;

    float *bufs[N_MODEL_BUFS]; /* [max_rows, stride]; logits [max_logit_rows, n_vocab] */
    size_t stride[N_MODEL_BUFS];
    float *angles;  /* [max_rows][N_ROPE_TABLES][2 rope_dims]: see cpu_kernels.rotate */
    struct act act; /* [act_rows], or one such a head behind the other */
    size_t act_rows;
    struct act expert_act; /* by place */
    float *vectors;        /* norm weights and biases, aligned copies */
    float *attn_scratch;   /* [n_workers] */
    size_t attn_scratch_stride;
    float *attn_sums; /* [n_workers]: a part, then an open range */
    size_t attn_sums_stride;
    float *attn_parts;          /* [MAX_SPLIT_ITEMS a worker][attn_part_floats] */
    atomic_uint *attn_done;     /* [MAX_SPLIT_ITEMS a worker] ranges done of the item */
    uint8_t *linear_scratch;    /* [n_workers][LINEAR_SCRATCH_BYTES] */
    struct layer_kv *layers;    /* [n_layer] */
    struct layer_state *states; /* likewise */
    uint32_t max_group;         /* query heads that a KV head serves, and */
    uint32_t max_heads;         /* KV heads x their pieces, both of the layer with the most */

    uint64_t n_runs_begun;
    atomic_uint n_rows;       /* of the run: for those who wait, as a hint */
    struct cpu_share *shares; /* [n_workers] of the panels of a phase (panels.c) */

    /* Of the run in progress. */
    const struct batch *batch;
    uint32_t *n_items;                         /* [n_phases] */
    uint32_t *row_seq;                         /* [max_rows] */
    struct attn_tiles all_tiles, kept_tiles;   /* of all rows, of those that are kept; */
    struct attn_tiles all_shared, kept_shared; /* the same where blocks are shared; n_tiles 0: none
                                                * are */
    uint32_t *by_table;                        /* [max_rows] tiles in order of their blocks */
    uint32_t *kept;      /* [n_kept] of max_rows, ascending: rows that are wanted; where those */
    uint32_t *logit_at;  /* [max_logit_rows] whose logits are, are among them, */
    uint32_t *hidden_at; /* [max_rows] and those whose hidden states are */
    uint32_t n_kept;

    /* Of the layer at work (experts.h). */
    uint32_t n_used;         /* experts of a row, in the layer whose were sorted last */
    uint32_t *experts;       /* [max_rows][n_used] by rank */
    float *expert_weights;   /* likewise */
    uint32_t *places;        /* likewise */
    uint32_t *place_row;     /* [places] the row, or NO_ROW: there is none */
    struct expert_run *runs; /* [n_expert] the experts that are wanted */
    uint32_t n_places, n_runs;
};

/* Fill phases, steps and matrices (without memory for their panels) from the model's plan; copy
 * norms and biases. Errors: ERR_UNSUPPORTED, ERR_NOMEM. */
enum err cpu_compile(struct cpu_backend *b, struct err_info *e) WEIR_MUST_USE;

/* Which phases can be done in parts, and which attention does: units, may_rotate and packs of all
 * phases, once they are compiled. */
void cpu_find_parts(struct cpu_backend *b);

/* Where the activations of a head are, each packed as rows of a.k by themselves. */
struct act cpu_act_of_head(const struct cpu_backend *b, struct act a, uint32_t head);

/* backend_ops.block_copy, block_read, block_write */
void cpu_block_copy(struct backend *base, struct backend_place from, struct backend_place to);
bool cpu_block_read(struct backend *base, struct backend_place from, void *bytes);
void cpu_block_write(struct backend *base, struct backend_place to, const void *bytes);

/* streams.c: a step of kind STREAMS, of one row of each buffer. */
void streams_run(const struct step *s, const float *in, const float *in2, float *out);

/* backend_ops.run */
enum err cpu_run(struct backend *base,
                 const struct batch *batch,
                 float **logits,
                 struct err_info *e);

/* After cpu_compile. Errors: ERR_UNSUPPORTED, where the largest batch passes over more panels than
 * can be counted (panels.c). */
enum err cpu_check_panels(const struct cpu_backend *b, struct err_info *e) WEIR_MUST_USE;

/* A pool_idle_fn: asks memory for what the worker will read first in the next LINEAR phase. */
bool cpu_ask_ahead(void *backend, uint32_t phase, uint32_t look, uint32_t worker);

/* backend_ops.hidden */
const float *cpu_hidden(const struct backend *base, enum model_buf buf, uint32_t i);

#endif
