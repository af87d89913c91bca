/* The CUDA backend's own state.
 *
 *     plan of ops  --compile.c-->  launches  --launch.c-->  on the stream, one by one or as a graph
 *
 * A launch names the model's buffers; which memory they are is known when a step has borrowed it
 * from the pool. What crosses to the device in a step is one copy from a pinned slot (step.h), what
 * comes back another: logits and hidden states.
 *
 *     slot:  prepare (fill the pinned bytes)  ->  submit (copy, launches, copy back, event)
 *            ->  complete (the event has come)  ->  collect
 *
 * Memory is taken once, by cuda_backend_create, in this order: weights, workspace, pool, KV, states
 * (memory.c). Nothing is taken afterwards; graphs are captured then too.
 *
 * Thread: the engine's; gpu_stats, times and block_settle any. */
#ifndef WEIR_BACKEND_CUDA_CUDA_H
#define WEIR_BACKEND_CUDA_CUDA_H

#include "backend/async.h"
#include "backend/cpu/threads.h"
#include "backend/cuda/attention.h"
#include "backend/cuda/experts.h"
#include "backend/cuda/linear.h"
#include "backend/cuda/pool.h"
#include "backend/cuda/queue.h"
#include "backend/cuda/recurrent.h"
#include "backend/cuda/rows.h"
#include "backend/cuda/rows_pack.h"
#include "backend/cuda/sample.h"
#include "backend/cuda/streams.h"

#include <pthread.h>
#include <stdatomic.h>

/* Changes whenever the bits that any kernel computes do. */
#define CUDA_KERNELS_REVISION "r6"

enum {
    CUDA_MAX_GRAPHS = 128,
    CUDA_MAX_BIASES = 64, /* of a job: the host chooses for requests with more */
    CUDA_MIN_MAJOR = 8,   /* compute capability 8.0: bf16, cp.async */
};

enum launch_kind {
    LAUNCH_ANGLES,
    LAUNCH_EMBED,
    LAUNCH_ADD_POSITION,
    LAUNCH_ADD_TYPE,
    LAUNCH_NORM,
    LAUNCH_LAYER_NORM,
    LAUNCH_HEAD_LAYER_NORM,
    LAUNCH_HEAD_COPY,
    LAUNCH_HEAD_SCALE,
    LAUNCH_PACK,   /* `in` to the prepared activations that the next LINEARs read */
    LAUNCH_LINEAR, /* and what follows it in `add` */
    LAUNCH_ROPE,
    LAUNCH_ROPE_STORE,
    LAUNCH_ATTENTION,
    LAUNCH_GATED,
    LAUNCH_UNARY,
    LAUNCH_ADD,
    LAUNCH_ADD_GATED,
    LAUNCH_CAP,
    LAUNCH_CLAMP,
    LAUNCH_MUL,
    LAUNCH_STREAMS,
    LAUNCH_SPARSE,
    LAUNCH_CONV,
    LAUNCH_RATES,
    LAUNCH_RECUR,
    LAUNCH_SELECT, /* and sort */
    LAUNCH_EXPERT_PACK,
    LAUNCH_EXPERT_LINEAR,
    LAUNCH_MIX,
};

struct launch {
    enum launch_kind kind;
    enum cuda_rows rows;
    const struct op *op;    /* that it computes; of ANGLES and packing NULL */
    enum model_buf in, out; /* the op's, or what the op joined to it writes */
    uint32_t n, heads; /* values of a row; norms of heads: heads of n each; PACK and LINEAR: with
                        * a matrix for each of `heads` */
    uint32_t n_used;   /* SELECT and what follows: experts of a row in the layer */
    uint32_t in_step, out_step; /* PACK and LINEAR with heads (else 0): values apart */
    enum rope_table rope;       /* ANGLES */
    float scale, cap;
    bool gather;               /* NORM, LAYER_NORM: `in` at the rows that are wanted */
    bool last;                 /* behind the last op that stores: not where no row is wanted */
    bool places;               /* GATED, UNARY: over places; EXPERT_PACK: of a buffer by place */
    bool add;                  /* LINEAR */
    unsigned forms;            /* PACK, LINEAR and of experts: of the activations */
    uint32_t matrix;           /* LINEAR, EMBED, EXPERT_LINEAR */
    uint32_t w, bias, factors; /* of vectors, as the op has them; NO_VECTOR: none */
    uint32_t joined;           /* so many that follow are done with it (join.c) */
};
#define NO_VECTOR UINT32_MAX

/* A tensor as matrices for the kernels: n of them behind each other. */
struct cuda_weights {
    struct gguf_tensor tensor;
    struct cuda_matrix m; /* the first */
    uint32_t n;
    uint32_t first_row, file_rows; /* of a matrix in the file: from which of them on, of how many */
    size_t matrix_bytes, offset;   /* of each; into b->weights */
};

/* A small tensor as floats on the device. */
struct cuda_vector {
    const struct gguf_tensor *tensor;
    size_t n, offset; /* floats; into b->vectors */
};

/* What memory is for, in bytes. */
struct cuda_budget {
    size_t total, free, limit; /* of the device; what may be taken of it */
    size_t weights, workspace, pool, reserve;
    size_t pinned; /* of the host */
    size_t kv;     /* what is left, for states too */
};

/* What goes on at once: blocks on their way out, into memory of the host, those on their way in,
 * and steps. */
enum cuda_lane { CUDA_OUT, CUDA_IN, CUDA_STEPS, CUDA_LANES };
enum { CUDA_WAYS = 2, CUDA_MOVES = 32 };

/* The moves of blocks in one direction, which are numbered from 1 on (moves.c). */
struct cuda_way {
    cudaStream_t stream;
    atomic_ullong n;                   /* so far; the engine's thread counts */
    uint64_t *of[2];                   /* [n_blocks], [n_panes]: the last of each; 0: none */
    uint64_t *of_slot[BACKEND_PINNED]; /* likewise of what lies in pinned memory, block by block */
    uint64_t joined[CUDA_LANES];       /* that lane is behind all up to here */
    cudaEvent_t ended[CUDA_MOVES];     /* of move m: m % so many, behind it or a later one */
};
/* The last moves of some blocks, either way. */
struct cuda_moved {
    uint64_t by[CUDA_WAYS];
};

/* Where the arrays of a step lie: from the beginning of a slot, and likewise on the device. */
struct cuda_arrays {
    size_t counts, seqs, tokens, token_from, positions, row_seq, logit_rows, hidden_rows, tiles,
        jobs, tables; /* last: as many as there are */
};

/* Rows of a step that choose a token, in pinned memory of their slot (async.c). */
struct cuda_jobs {
    struct cuda_bias *biases; /* [n_biases] of max_seqs * CUDA_MAX_BIASES */
    int32_t *chosen;          /* [n] what they chose */
    uint32_t *host_rows;      /* [n_host_rows] whose logits come back */
    int32_t *tokens;          /* [history_tokens] on their way into histories */
    uint32_t *late;           /* n, where it is told to the device behind the launches */
    uint32_t n, n_biases, n_host_rows;
};

/* A step on its way. */
struct cuda_slot {
    uint8_t *pinned; /* of the pool's staging; NULL: not borrowed */
    float *logits;   /* [max_logit_rows][n_vocab] in it, */
    float *hidden;   /* [max_rows][n_embd], */
    float *scores;   /* [max_rows][n_labels] */
    struct cuda_counts counts;
    struct cuda_bounds bounds; /* that its launches are made for */
    size_t in_bytes;           /* of the copy to the device */
    struct cuda_moved moved;   /* of blocks in its tables */
    int graph;                 /* that it replays; -1: none */
    bool sampled;              /* its graph has chosen the tokens already */
    bool beside;               /* it runs beside the host, with jobs; else at once */
    struct cuda_jobs jobs;
};

/* KV memory of the layers that lie in blocks, or of those in panes. What a block has of them lies
 * together, one layer after the other: it is moved as one.
 *
 *      | block 0: layer 0 | layer 1 | .. | block 1: layer 0 | ..         `stride` bytes a block
 */
struct cuda_kv_pool {
    uint8_t *base;
    size_t stride;
    uint32_t n; /* blocks, or panes */
};

struct cuda_region {
    uint8_t *p;
    size_t n_bytes;
};

struct cuda_graph {
    struct cuda_bounds bounds;
    cudaGraphExec_t exec;
};

struct cuda_backend {
    struct backend base; /* must be first */
    const struct model *model;
    struct backend_config cfg;
    struct pool *threads; /* of the host: packing, sampling */
    char description[96], kernels_name[48], device_name[64];
    uint32_t major, minor;
    uint32_t block_shared; /* bytes of shared memory that a block may have */
    uint32_t processors;
    enum gpu_wgmma wgmma;
    struct cuda_budget budget;

    struct launch *launches;
    struct cuda_weights *matrices;
    struct cuda_vector *vector_list;
    uint32_t n_launches, n_matrices, n_vectors;
    size_t n_vector_floats;

    /* Of the device, each one allocation. */
    uint8_t *weights, *workspace, *kv_memory, *state_memory;
    size_t weights_bytes, workspace_bytes, kv_bytes, state_bytes;

    /* In the workspace. */
    float *vectors;
    double *inv_freq[N_ROPE_TABLES];
    float *angles[N_ROPE_TABLES]; /* [max_rows][rope_dims] */
    float *logits;                /* [max_logit_rows][n_vocab] */
    float *linear_scratch;
    void *attention_scratch;
    struct cuda_act act, expert_act;
    struct cuda_experts experts;
    uint8_t *step_in; /* a step's arrays */
    int32_t *chosen;  /* [max_logit_rows] */
    struct cuda_bias *device_biases;
    int32_t *device_tokens; /* [history_tokens] */
    struct cuda_histories histories;
    void *sample_scratch;
    uint32_t history_tokens; /* that cross at a time: a sequence's */
    size_t step_in_bytes;
    uint32_t table_entries;  /* of all sequences of a step: blocks, panes, states kept */
    struct cuda_bounds most; /* the largest steps there can be */
    size_t out_offset, hidden_offset, scores_offset; /* in a staging buffer, behind what goes in */

    struct cuda_kv *layers;          /* [n_layer] */
    struct cuda_states *states;      /* [n_layer] of recurrent ones: [n_states] each */
    struct cuda_kv_pool kv_pools[2]; /* blocks; panes */
    struct cuda_pool pool;
    enum gpu_class class_of[N_MODEL_BUFS];
    bool lent[N_MODEL_BUFS];            /* whether a step borrows it */
    struct cuda_buf bufs[N_MODEL_BUFS]; /* of the step at hand; logits always */

    cudaStream_t stream;
    struct cuda_slot slots[CUDA_SLOTS];
    cudaEvent_t run_begin, run_end; /* around the device's work on a step that is run at once */
    struct cuda_queue steps;
    uint8_t *jobs_pinned; /* [cuda_jobs_bytes] */
    cudaEvent_t copied;   /* behind the last copy of a block */
    struct cuda_way ways[CUDA_WAYS];
    cudaEvent_t moving, measured; /* around a move; measuring: recorded */
    bool measuring;
    atomic_bool lost; /* a block could not be moved: no KV is read, and no step begins, again */
    struct cuda_graph graphs[CUDA_MAX_GRAPHS];
    uint32_t n_graphs;
    bool warmed_up;
    bool no_graphs; /* for tests: walk all steps */
    bool apart;     /* for tests: what was joined is launched one by one */
    bool at_most;   /* walk for the largest bounds: when warming up, and for tests */
    struct cuda_buf graph_bufs[N_MODEL_BUFS]; /* with which they were captured */
    int n_lent;                               /* of bufs, up to here: borrowed now */
    struct cuda_tile *tiles;                  /* [max_rows], of the host */
    struct cuda_seq *seqs;                    /* [max_seqs], of the host, to make tiles of */
    uint32_t window;                          /* of the layers that have the largest; 0: none has */
    uint8_t *block_bytes;                     /* pinned: one KV block of all layers */
    size_t block_bytes_n;
    struct cuda_region pinned[BACKEND_PINNED]; /* pinned_alloc's; p NULL: free */
    struct gpu_move_stats moves;               /* under the lock */

    const struct cuda_slot *last; /* what the last run left */
    pthread_mutex_t lock;         /* of the figures */
    uint64_t replays, walks;
    double run_us, busy_us; /* of runs: from call to return; of the device at work in them */
};

/* Fill launches, matrices and vectors from the model's plan, without memory for what they hold, and
 * say which buffers a step borrows. Errors: ERR_UNSUPPORTED. */
enum err cuda_compile(struct cuda_backend *b, struct err_info *e) WEIR_MUST_USE;

/* Say which of them become one. */
void cuda_join(struct cuda_backend *b);

/* What all of it needs (b->budget), before anything is taken; the pool's plan. The device is
 * current. Errors: ERR_NOMEM (with the numbers), ERR_UNSUPPORTED (steps longer than launches),
 * ERR_INTERNAL (a call of CUDA). */
enum err cuda_budget_make(struct cuda_backend *b, struct err_info *e) WEIR_MUST_USE;
/* Take it. Errors: ERR_NOMEM. */
enum err cuda_memory_take(struct cuda_backend *b, struct err_info *e) WEIR_MUST_USE;
void cuda_memory_release(struct cuda_backend *b);
/* Once it is known what the model multiplies, before memory is taken (wgmma_check.c). */
enum gpu_wgmma cuda_wgmma_check(const struct cuda_backend *b);
enum err cuda_kv_zero(struct cuda_backend *b, struct err_info *e) WEIR_MUST_USE;
/* Weights and vectors to the device. Errors: ERR_NOMEM, ERR_INTERNAL. */
enum err cuda_weights_load(struct cuda_backend *b, struct err_info *e) WEIR_MUST_USE;

/* --- steps (step.c, launch.c, run.c) --- */

/* The shape that tiles and scratch are made for: they are the same for all layers. */
struct cuda_attention_shape cuda_attention_most(const struct model *m);
/* Is every one of them at most the other's? */
bool cuda_bounds_within(const struct cuda_bounds *m, const struct cuda_bounds *most);
/* Where the arrays lie of steps within the bounds. */
void cuda_arrays_of(const struct cuda_bounds *bounds, struct cuda_arrays *out);
struct cuda_step cuda_step_at(const struct cuda_backend *b, const struct cuda_bounds *bounds);

/* Borrow staging for the slot and write the batch there, with room for n_jobs: its bounds, its
 * graph if one covers them. Errors: ERR_INTERNAL (too large), ERR_NOMEM (the pool). */
enum err cuda_slot_prepare(struct cuda_backend *b,
                           struct cuda_slot *s,
                           const struct batch *batch,
                           uint32_t n_jobs,
                           struct err_info *e) WEIR_MUST_USE;
/* Put its work on the stream, behind all that is there. Errors: ERR_INTERNAL (of the device). */
enum err cuda_slot_submit(struct cuda_backend *b,
                          struct cuda_slot *s,
                          struct err_info *e) WEIR_MUST_USE;
/* n rows of a buffer to the host, from row `first` on. */
cudaError_t cuda_copy_rows(
    const struct cuda_backend *b, float *to, enum model_buf buf, uint32_t first, uint32_t n);
/* Its staging goes back to the pool; until then its logits and hidden states can be read. NULL
 * pinned: nothing to do. */
void cuda_slot_release(struct cuda_backend *b, struct cuda_slot *s);

/* --- steps beside the host (async.c) --- */

/* Pinned memory of the jobs of all slots; where it lies. */
size_t cuda_jobs_bytes(const struct cuda_backend *b);
void cuda_jobs_place(struct cuda_backend *b);
/* Before the launches: biases. */
cudaError_t cuda_jobs_begin(struct cuda_backend *b, const struct cuda_slot *s);
/* Sampling for up to bounds->jobs; a graph has it behind its walk. */
cudaError_t cuda_jobs_choose(struct cuda_backend *b, const struct cuda_bounds *bounds);
/* Behind the launches: logits that the host wants, then sampling unless it is done, and its ids. */
cudaError_t cuda_jobs_finish(struct cuda_backend *b, const struct cuda_slot *s);
/* async_ops */
bool cuda_can_choose(const struct backend *base, const struct sample_params *p);
enum err cuda_begin(struct backend *base, const struct async_step *a, struct err_info *e);
enum err cuda_end(struct backend *base, struct async_result *out, struct err_info *e);

/* All launches for the bounds, on the stream. */
cudaError_t cuda_walk(struct cuda_backend *b, const struct cuda_bounds *bounds) WEIR_MUST_USE;
/* Borrow what a step computes in (b->bufs); give it back in the opposite order. */
enum err cuda_lease_take(struct cuda_backend *b, struct err_info *e) WEIR_MUST_USE;
enum err cuda_lease_return(struct cuda_backend *b, struct err_info *e) WEIR_MUST_USE;
/* Capture the graphs of decode steps, as many as there are memory and use for; a warning says where
 * that is fewer. Errors: ERR_INTERNAL (of a launch). */
enum err cuda_graphs_capture(struct cuda_backend *b, struct err_info *e) WEIR_MUST_USE;
/* The first graph, which is the smallest, that covers these; -1: none. */
int cuda_graph_for(const struct cuda_backend *b, const struct cuda_bounds *need);

/* backend_ops */
enum err cuda_run(struct backend *base,
                  const struct batch *batch,
                  float **logits,
                  struct err_info *e);
const float *cuda_hidden(const struct backend *base, enum model_buf buf, uint32_t i);
void *cuda_pinned_alloc(struct backend *base, size_t n_bytes);
void cuda_pinned_free(struct backend *base, void *p);
void cuda_block_copy(struct backend *base, struct backend_place from, struct backend_place to);
bool cuda_block_read(struct backend *base, struct backend_place from, void *bytes);
void cuda_block_write(struct backend *base, struct backend_place to, const void *bytes);
double cuda_block_us(const struct backend *base);
bool cuda_block_settle(struct backend *base);
/* May a step begin? Errors: ERR_INTERNAL, where a block was lost. */
enum err cuda_blocks_whole(const struct cuda_backend *b, struct err_info *e) WEIR_MUST_USE;
/* Events of blocks. Errors: ERR_INTERNAL. */
enum err cuda_blocks_open(struct cuda_backend *b, struct err_info *e) WEIR_MUST_USE;
void cuda_blocks_close(struct cuda_backend *b);

/* --- moves of blocks (moves.c); all but settle: the engine's thread --- */

/* Streams, events, and what says when a block was moved. Errors: ERR_INTERNAL, ERR_NOMEM. */
enum err cuda_moves_open(struct cuda_backend *b, struct err_info *e) WEIR_MUST_USE;
/* Behind cuda_moves_drain. */
void cuda_moves_close(struct cuda_backend *b);
/* Is any block on its way that the steps' stream is not behind? */
bool cuda_moves_pending(struct cuda_backend *b);
/* Raise `last` to the last moves of n blocks (pool 0) or panes (1), or of both of a place. */
void cuda_moves_of(const struct cuda_backend *b,
                   int pool,
                   const uint32_t *ids,
                   uint32_t n,
                   struct cuda_moved *last);
void cuda_moves_of_place(const struct cuda_backend *b,
                         struct backend_place at,
                         struct cuda_moved *last);
/* What comes next on the steps' stream comes behind those. */
cudaError_t cuda_moves_join(struct cuda_backend *b, const struct cuda_moved *last);
/* Around a copy of a place on the way's stream: it waits for what the other way does with the same
 * block, or the same bytes; then it has a number. */
cudaError_t cuda_moves_begin(struct cuda_backend *b,
                             enum cuda_lane way,
                             struct backend_place at,
                             const void *bytes);
cudaError_t cuda_moves_end(struct cuda_backend *b,
                           enum cuda_lane way,
                           struct backend_place at,
                           const void *bytes);
/* Are the bytes a block's in pinned_alloc's memory? */
bool cuda_moves_direct(const struct cuda_backend *b, const void *bytes);
/* A region of it is new: nothing was moved there. */
void cuda_moves_new_slots(struct cuda_backend *b, int region, size_t n_bytes);
/* Until all that was moved before has been; any thread. */
cudaError_t cuda_moves_settle(struct cuda_backend *b);
/* Until nothing is on its way, whatever has failed. */
void cuda_moves_drain(struct cuda_backend *b);

/* --- the plugin's entries (cuda.c, device.c) --- */

enum err cuda_device_list(
    struct device_info *out, uint32_t cap, uint32_t *n, char versions[64], struct err_info *e);
/* Make the device current, after checking that it can be used. */
enum err cuda_device_open(uint32_t index, struct device_info *info, struct err_info *e);
/* 0 where it is not known. */
uint32_t cuda_attribute(enum cudaDeviceAttr what, uint32_t index);
/* Make the backend's device the current one of the calling thread, which need not be the one that
 * opened it: CUDA keeps that for each thread, and takes no launch on another device's stream. */
void cuda_device_enter(const struct cuda_backend *b);
enum err cuda_room(const struct model *m,
                   const struct backend_config *cfg,
                   uint64_t *kv_bytes,
                   struct err_info *e);
enum err cuda_backend_create(const struct model *m,
                             const struct backend_config *cfg,
                             struct backend **out,
                             struct err_info *e);
enum err cuda_limits(uint32_t index, struct device_limits *out, struct err_info *e);

void cuda_event_drop(cudaEvent_t event); /* NULL is fine */

/* "CUDA: WHAT: its words", for rc that is not cudaSuccess. Returns ERR_INTERNAL, or ERR_NOMEM. */
enum err cuda_failed(cudaError_t rc, const char *what, struct err_info *e);

#endif
