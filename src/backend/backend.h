/* A backend runs a model's plan over a batch of rows from many sequences.
 *
 * Promise of every backend: what it computes for a row depends on that row and its own sequence
 * alone - not on which rows share the batch, in which chunks a prompt came, or how many threads
 * work. Sums run in one fixed order. Equal inputs give equal bits.
 *
 * Thread: all calls on one thread (the engine's), which takes part in the work. */
#ifndef WEIR_BACKEND_BACKEND_H
#define WEIR_BACKEND_BACKEND_H

#include "backend/kv_type.h"
#include "base/err.h"
#include "model/model.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Bytes of K and V together, for one block of all layers; and for its pane: of the layers with
 * windows alone. */
size_t backend_kv_block_bytes(const struct model *m, enum kv_type t, uint32_t block_tokens);
size_t backend_kv_pane_bytes(const struct model *m, enum kv_type t, uint32_t block_tokens);
/* Likewise, that an attention reads for each position that it sees. */
size_t backend_kv_read_bytes(const struct model *m, const struct op *op, enum kv_type t);

/* Where a block's bytes are; without panes, in the block alone. */
struct backend_place {
    uint32_t block, pane;
};

#define BATCH_NO_STATE UINT32_MAX

/* A run of rows of one sequence, at consecutive positions. Where the model is not causal they are
 * the whole text: all of it is seen by each of them. */
struct batch_seq {
    uint32_t first_row;
    uint32_t n_rows;
    uint32_t first_pos;     /* position of the first row; all before it are stored already */
    const uint32_t *blocks; /* block table: position p lives in blocks[p / block_tokens] */
    const uint32_t *panes;  /* likewise for layers with windows, where there are panes: entries from
                             * the one that the first row's window begins in are read */
    /* Of recurrent layers: the state behind the position before first_pos (read unless that is 0),
     * and where the one behind the last row goes, which may be the same; and states [blocks] where
     * the one behind a block's last position is kept as well, BATCH_NO_STATE where it is not. Of
     * the blocks that end in these rows; NULL: nowhere. */
    uint32_t state_from, state_to;
    const uint32_t *states;
    uint32_t second; /* position where the second text of a pair begins; 0: there is none */
};

/* One step's work, flat. All arrays belong to the caller and outlive the call. */
struct batch {
    uint32_t n_rows;
    const int32_t *tokens;     /* [n_rows], each < n_vocab */
    const uint32_t *positions; /* [n_rows] */
    uint32_t n_seqs;
    const struct batch_seq *seqs; /* [n_seqs], rows in order, covering all of n_rows */
    uint32_t n_logit_rows;        /* 0 where the model does not generate */
    const uint32_t *logit_rows;   /* [n_logit_rows] rows whose logits are wanted, ascending */
    uint32_t n_hidden_rows;
    const uint32_t *hidden_rows; /* [n_hidden_rows] whose hidden states are, likewise */
};

/* Where a model runs. */
enum device_kind { DEVICE_AUTO, DEVICE_CPU, DEVICE_CUDA };
struct device {
    enum device_kind kind;
    uint32_t index; /* of CUDA's devices; 0 where none is asked for */
    /* What of a GPU's memory may be taken: bytes, or where they are 0 a share of all that it has,
     * above 0 and at most 1; 0: DEVICE_DEFAULT_SHARE. */
    uint64_t memory_bytes;
    double memory_share;
    bool zero_buffers; /* lent buffers are zeroed when they come back */
};
#define DEVICE_DEFAULT_SHARE 0.9
/* "auto", "cpu", "cuda" or "cuda:N"; sets kind and index. OK or ERR_INVALID. */
enum err device_parse(const char *s, struct device *out);

struct backend_config {
    struct device device; /* as backend_choose left it */
    uint32_t n_threads;   /* 0: one a physical core */
    enum kv_type kv_type;
    uint32_t n_blocks;       /* KV blocks in the pool */
    uint32_t n_panes;        /* for layers with windows; 0: they lie in blocks */
    uint32_t n_states;       /* of recurrent layers; at least one where there are such */
    uint32_t block_tokens;   /* positions a block holds */
    uint32_t max_positions;  /* a sequence has at most so many; 0: as the blocks hold */
    uint32_t max_rows;       /* a batch never has more rows, */
    uint32_t max_seqs;       /* sequences */
    uint32_t max_logit_rows; /* or rows that want logits */
    void (*progress)(void *ctx, double fraction); /* while weights load; may be NULL */
    void *progress_ctx;
};

/* Buffers that are lent to steps, by what they are for. Staging is the host's, pinned. */
enum gpu_class { GPU_HIDDEN, GPU_INTERMEDIATE, GPU_ATTENTION, GPU_STAGING, N_GPU_CLASSES };
const char *gpu_class_name(enum gpu_class c); /* "hidden" */

struct gpu_class_stats {
    uint64_t borrows, returns;
    uint64_t allocations;      /* made since the warm-up; 0, or the plan was wrong */
    uint32_t held, lent, peak; /* buffers there are, lent now, most lent at once */
    uint64_t buffer_bytes;     /* of one */
};

/* The queue of steps, from the device's own events. */
struct gpu_queue_stats {
    uint32_t slots, in_flight;
    uint64_t submitted, completed;
    uint64_t stalls; /* times that the host had filled all slots and waited for one, */
    double stall_us; /* and for how long */
    double busy_us;  /* the device worked, */
    double idle_us;  /* and waited for the next step while there was one to prepare */
};

/* KV blocks that went to the host and came from it. */
struct gpu_move_stats {
    uint64_t read, written, bytes; /* blocks; bytes of both */
    uint64_t waits;                /* of these, how many the engine waited for: not pinned, */
    double wait_us;                /* and for how long */
    double block_us;               /* that one takes, learned; 0: not known */
};

/* Whether large products run on Hopper's instructions: there are none, or nothing to do for them;
 * their bits differ from those of small products, or somebody said no; yes. */
enum gpu_wgmma { GPU_WGMMA_NONE, GPU_WGMMA_OFF, GPU_WGMMA_USED };

struct gpu_stats {
    uint32_t n_layers;
    uint64_t total_bytes, limit_bytes; /* of the device; that may be taken */
    uint64_t weights_bytes, kv_bytes, workspace_bytes, pinned_bytes; /* KV with all states */
    bool warmed_up;
    struct gpu_class_stats classes[N_GPU_CLASSES];
    uint32_t graphs;         /* captured at the warm-up */
    uint64_t replays, walks; /* steps by a graph; launch by launch */
    struct gpu_queue_stats queue;
    struct gpu_move_stats moves;
    enum gpu_wgmma wgmma;
};

struct backend;
struct async_ops; /* async.h */

enum { BACKEND_PINNED = 2 }; /* one of each tier */

/* What a backend must provide. */
struct backend_ops {
    const char *name;
    /* Run the plan: store K, V of every row, and compute logits [n_logit_rows, n_vocab] f32, which
     * stay valid and writable until the next run. Allocates nothing. */
    enum err (*run)(struct backend *b,
                    const struct batch *batch,
                    float **logits,
                    struct err_info *e);
    /* What the last run made of hidden_rows[i]: buf is BUF_HIDDEN [n_embd], or BUF_SCORES
     * [n_labels] where the model has a head. Valid until the next run. */
    const float *(*hidden)(const struct backend *b, enum model_buf buf, uint32_t i);
    /* fn(ctx, i, worker) for every i in 0..n-1 on all worker threads; worker < n_workers. */
    void (*parallel)(struct backend *b,
                     uint32_t n,
                     void (*fn)(void *ctx, uint32_t i, uint32_t w),
                     void *ctx);
    uint32_t (*n_workers)(const struct backend *b);
    /* Move KV blocks between runs: copy one onto another, or all its bytes, of every layer
     * (backend_kv_block_bytes), out and in, in an order of the backend's own. Where the device
     * fails in one, block_read is false from then on, its bytes are nothing, and no run begins
     * again. */
    void (*block_copy)(struct backend *b, struct backend_place from, struct backend_place to);
    bool (*block_read)(struct backend *b, struct backend_place from, void *bytes);
    void (*block_write)(struct backend *b, struct backend_place to, const void *bytes);
    /* Of backends that may move them beside the host, where `bytes` are of pinned_alloc: in the
     * order of the calls, and so that no run or copy sees what it should not; the host itself must
     * not look at such bytes. How long one takes so far, in microseconds, 0: not known. Else NULL:
     * a block is there when the call returns. */
    double (*block_us)(const struct backend *b);
    /* Likewise: until all that was read and written before has been, so that the host may look at
     * the bytes, or change them. false: the device failed, and what was read is nothing. Any
     * thread, for tiers that look with one of their own. */
    bool (*block_settle)(struct backend *b);
    /* Memory of the host that blocks are read into and written from without a copy between; any
     * memory will do, this is faster. NULL where memory is all the same. BACKEND_PINNED regions:
     * NULL while there are as many, or when memory is out. Freed behind the copies that use it. */
    void *(*pinned_alloc)(struct backend *b, size_t n_bytes);
    void (*pinned_free)(struct backend *b, void *p);
    /* The kernels chosen: backends with equal names, given equal work, compute equal bits. */
    const char *(*kernels_name)(const struct backend *b);
    /* Time in which workers worked together so far - loading, runs and parallel - added up over
     * them, and the part of it that they waited for one another; in microseconds. Any thread. */
    void (*times)(const struct backend *b, double *run_us, double *waited_us);
    /* Bytes a second of reading weights and doing nothing with them, now: what to hold a run beside
     * that was just timed. Reads all of them, or 1 GiB, twice; as `run`, one call at a time. 0: the
     * weights are too few to come from memory. NULL where it cannot be measured. */
    double (*read_rate)(struct backend *b);
    size_t (*memory_bytes)(const struct backend *b);  /* weights, KV and workspace held */
    const char *(*describe)(const struct backend *b); /* "cpu avx512-vnni, 2 threads" */
    /* Of backends on a GPU; else NULL. Any thread. */
    void (*gpu_stats)(const struct backend *b, struct gpu_stats *out);
    void (*destroy)(struct backend *b);
    const struct async_ops *async; /* of backends that run beside the host; else NULL */
};

/* Every backend's struct begins with this. */
struct backend {
    const struct backend_ops *ops;
};

/* The CPU backend (backend/cpu). WEIR_ISA in the environment limits the kernels chosen:
 * reference, avx2, avx-vnni, avx512, avx512-bf16 or amx. The model must outlive it. Errors:
 * ERR_NOMEM, ERR_UNSUPPORTED, ERR_INVALID. */
enum err cpu_backend_create(const struct model *m,
                            const struct backend_config *cfg,
                            struct backend **out,
                            struct err_info *e) WEIR_MUST_USE;

/* What a device has for KV, once weights and workspace are taken. */
struct backend_room {
    uint64_t kv_bytes; /* 0: the host's memory, of which the caller knows as much */
};

/* Decide where the model runs: cfg->device comes back as the CPU or a CUDA device. AUTO is the
 * first CUDA device that the model fits on, with kv_bytes of KV (0: at least some), else the CPU.
 * Reads what decides the size of the workspace: max_rows, max_seqs, max_logit_rows, max_positions.
 * Says what it chose in a line of the log. Errors (not of AUTO): ERR_NOT_FOUND (no plugin, no such
 * device), ERR_UNSUPPORTED (of the model or the device), ERR_NOMEM (with the numbers). */
enum err backend_choose(const struct model *m,
                        struct backend_config *cfg,
                        uint64_t kv_bytes,
                        struct backend_room *room,
                        struct err_info *e) WEIR_MUST_USE;

/* Where cfg->device says, which is not AUTO any more. The model must outlive it. Errors: ERR_NOMEM,
 * ERR_UNSUPPORTED, ERR_INVALID, ERR_INTERNAL (of the device). */
enum err backend_create(const struct model *m,
                        const struct backend_config *cfg,
                        struct backend **out,
                        struct err_info *e) WEIR_MUST_USE;

/* One device, whether it can be used or not. */
struct device_info {
    char name[64];
    uint32_t major, minor;            /* compute capability */
    uint64_t total_bytes, free_bytes; /* 0: not known */
    char why_not[160];                /* empty: it can be used */
};

/* CUDA's devices, for people. n: how many there are; of them the first `cap` are in out. versions:
 * "driver 13.0, runtime 13.0". Errors: ERR_NOT_FOUND and others: why there are none. */
enum err device_list(struct device_info *out,
                     uint32_t cap,
                     uint32_t *n,
                     char versions[64],
                     struct err_info *e) WEIR_MUST_USE;

/* What a device can do at best, to hold measurements against: LIMIT_QUANT is with weights of any
 * other format. */
enum limit_kind { LIMIT_QUANT, LIMIT_Q8_0, LIMIT_F16, LIMIT_BF16, LIMIT_F32, N_LIMIT_KINDS };
struct device_limits {
    double read_bytes_s;         /* streaming from its memory */
    double ops_s[N_LIMIT_KINDS]; /* multiplications and additions, a dot product's all counted */
};
/* Measure, in some two seconds; the best of several rounds each. n_threads: of the CPU. Errors:
 * ERR_NOMEM, ERR_INVALID, ERR_INTERNAL. */
enum err device_limits_measure(const struct device *d,
                               uint32_t n_threads,
                               struct device_limits *out,
                               struct err_info *e) WEIR_MUST_USE;

#endif
