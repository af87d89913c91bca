/* The kernels of one instruction set, and the memory layouts they share.
 *
 * Weights lie in panels of 16 output columns; a panel holds all of K for its columns, so one output
 * element is always one sum in one order, whoever computes it and beside whichever rows. What a
 * panel looks like is drawn in the file of its format, linear_*_impl.h. All share that a kernel
 * reads a panel strictly from front to back, in aligned lines of 64 bytes: the hardware fetches one
 * such stream at the speed of memory, but two that advance side by side at a third of it.
 *
 * Activations are packed once for all matrices that read them, L rows to a tile:
 *
 *     x  [row/L][k][L] f32          bf16  [row/L][k/2][L][2], an odd k's last one zero
 *     q  [row][stride of k] int8    b     [row/L][k/32][L] act_block, and act_halves
 *     two [row][stride of k][hi 32, lo 32] bf16, whose sum is x; zeros behind k
 *     hi  [row][stride of k] bf16, of k's a multiple of 32
 *
 * L is 4, so that a kernel needs one pointer for four rows; but 1 for a row that is alone: its long
 * inputs would else not fit the nearest cache, and the weights' stream would suffer. The stride is
 * an odd number of cache lines, so that the same k of many rows does not fall into few places.
 *
 * Nothing here allocates or blocks; any worker may call any of it. */
#ifndef WEIR_BACKEND_CPU_KERNELS_H
#define WEIR_BACKEND_CPU_KERNELS_H

#include "backend/cpu/formats.h"
#include "backend/kv_type.h"
#include "model/model.h"

#include <math.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    PANEL_COLS = 16,
    CONV_MAX_PART = 512,                /* channels whose last rows lie on the stack */
    ACT_TILE = 4,                       /* rows that share a tile of packed activations */
    KV_TILE = 16,                       /* positions of K that lie side by side, aligned */
    ATTN_TILE = 64,                     /* positions that attention takes at a time, aligned; */
    AMX_ATTN_TILE = 512,                /* on a tile unit */
    ATTN_W_STRIDE = AMX_ATTN_TILE + 16, /* an odd number of lines */
    ATTN_UNIT_FLOATS = 4096,            /* of K or V as a tile unit takes them */
    MAX_HEAD_DIM = 640,
    ATTN_RANGE = 512,   /* positions whose softmax is summed by itself, aligned; of tiles */
    ATTN_QUERIES = 32,  /* rows x heads that attend together */
    TILE_K = 512,       /* of K that many rows meet at a time: quantised weights, */
    TILE_FLOAT_K = 256, /* float weights */
    WIDE_BYTES = 704,   /* 32 of K of a panel of quantised weights, made ready for multiplying */
    WIDE_PART_BYTES = 2 * TILE_FLOAT_K * PANEL_COLS * 4, /* two panels, of either */
    LINEAR_MAX_ROWS = 256,                               /* of a job */
    LINEAR_MAX_SUMS = 32, /* panels whose sums a job may hold while parts of K pass by */
    LINEAR_SCRATCH_BYTES =
        WIDE_PART_BYTES + 4096 + LINEAR_MAX_ROWS * LINEAR_MAX_SUMS * PANEL_COLS * 4,
};

/* Of each row there PANEL_NAME, and PANEL_NAME_BYTES, of a unit. */
#define PANEL_FORMAT(NAME, ...) PANEL_##NAME,
#define PANEL_UNIT_BYTES(NAME, name, k, bytes, ...) PANEL_##NAME##_BYTES = (bytes),
enum panel_format { CPU_FORMATS(PANEL_FORMAT) N_PANEL_FORMATS };
enum { CPU_FORMATS(PANEL_UNIT_BYTES) };

/* 32 quantised activations: x = d * q. The sums undo the offsets of unsigned weights. For formats
 * whose scales are integers 128 share a d, so that what is summed up to there stays an integer. */
struct act_block {
    float d;
    union {
        float dsum;   /* d * sum(q), by32 */
        int32_t sums; /* by128, of even groups: sum(q), and the next one's, 16 bits each */
    };
    int32_t n128; /* -128 * sum(q) */
    union {
        int32_t n8;    /* -8 * sum(q), by32 */
        int32_t pairs; /* by128, with ACT_PAIRS (linear_pairs_impl.h) */
    };
};

/* What either half of it comes to, for formats with a scale or a minimum for each. Apart, because
 * others would read it in vain. */
struct act_halves {
    int32_t n32[2]; /* -32 * sum(q); with AVX2 alone as vn_pairs has it */
    float dsum[2];
};

/* Forms of activations; then parts of those in int8: b, or s and scale, words, halves; and how they
 * are rounded if any of an input's matrices wants it. */
enum {
    ACT_F32 = 1,
    ACT_INT8 = 2,
    ACT_BF16 = 4,
    ACT_INT8_128 = 8,
    ACT_TWO = 16,
    ACT_BLOCKS = 32,
    ACT_CLOSE = 64,
    ACT_WORDS = 128,
    ACT_PAIRS = 256, /* beside ACT_INT8_128: q within PAIRS_LEAST .. PAIRS_MOST, */
    ACT_HIGH = 512,
    ACT_PAIRS_31 = 1024,    /* or, beside that, .. PAIRS_MOST_31 */
    ACT_BOTH_HALVES = 2048, /* halves, beside ACT_BLOCKS */
    SUPER_K = 128,
    PAIRS_LEAST = -128,
    PAIRS_MOST = 112,
    PAIRS_MOST_31 = 96,
    PAIRS_MIN_ROWS = 17, /* from which on making panels wide pays */
};

enum { ACT_D, ACT_DSUM, ACT_PLANES };

/* Of all but q, pack writes what cpu_act_kinds says. */
struct act_int8 {
    int8_t *q;
    struct act_block *b;
    struct act_halves *halves; /* beside b, in the same order */
    /* Once more, close together, where lines that hold what is not read would push activations out
     * of the nearest cache (ACT_CLOSE): of 32 [row/L][ACT_PLANES][k/32][L], of 128 d [row][k/128].
     */
    float *scale;
    uint16_t *sums; /* beside that, by128: linear_amx_mins_impl.h */
    int16_t *words; /* q once more, as wide apart; where no kernel reads it there is no room */
};

struct act {
    uint32_t k;
    float *x;
    uint16_t *bf16, *two, *hi;
    struct act_int8 by32, by128; /* ACT_INT8, ACT_INT8_128 */
};

/* Bytes from one row of q to the next; how many rows there must be for so many, with those of
 * padding that kernels may read; what they take. */
static inline size_t act_q_stride(uint32_t k)
{
    return (((size_t)k + 63) / 64 | 1) * 64;
}

static inline size_t act_q_rows(size_t rows)
{
    return rows + 15;
}

static inline size_t act_q_bytes(uint32_t k, size_t rows)
{
    return act_q_rows(rows) * act_q_stride(k);
}

/* Values from one row of two to the next, and what rows take, with those of padding. */
static inline size_t act_two_stride(uint32_t k)
{
    return (((size_t)k + 31) / 32 * 2 | 1) * 32;
}

static inline size_t act_two_bytes(uint32_t k, size_t rows)
{
    return act_q_rows(rows) * act_two_stride(k) * sizeof(uint16_t);
}

/* Likewise of sums, a line for each 256 of K. */
static inline size_t act_sums_stride(uint32_t k)
{
    return (((size_t)k + 255) / 256 | 1) * 32;
}

/* Likewise of hi. */
static inline size_t act_high_stride(uint32_t k)
{
    return (((size_t)k + 31) / 32 | 1) * 32;
}

static inline size_t act_high_bytes(uint32_t k, size_t rows)
{
    return act_q_rows(rows) * act_high_stride(k) * sizeof(uint16_t);
}

/* Whose measured numbers a kernel goes by: up to how many rows it takes weights apart as they come,
 * how many meet a tile, how many panels lie side by side. The bits are the same. */
enum cpu_tuning { TUNED_XEON, TUNED_ZEN4, TUNED_ZEN5, N_TUNED };

/* Up to so many rows meet one panel after the other, if the format's kernels can (one_panel); on
 * Zen 4 only who is alone in a step. */
static inline uint32_t cpu_one_panel_rows(enum cpu_tuning tuning, uint32_t act_lanes)
{
    return tuning == TUNED_ZEN5 ? UINT32_MAX : tuning == TUNED_ZEN4 && act_lanes == 1;
}

/* Whether more than four rows ask for weights into the nearest cache, not the second: by tuning,
 * from before main on. No member of a job, for the loops that look at it have no register for that.
 */
extern unsigned char cpu_ask_near;

/* out[r][c] (+)= sum_k w[c][k] act[r][k] (* scale) (+ bias[c]) for rows first_row.. and columns of
 * panels. */
struct linear_job {
    const uint8_t *panels;
    size_t panel_bytes;
    uint32_t n_panels;
    uint32_t n_cols; /* valid columns, counted from the first panel's first */
    const struct act *act;
    uint32_t act_lanes; /* as they were packed: 1 or ACT_TILE */
    uint32_t first_row; /* a multiple of act_lanes */
    uint32_t n_rows;    /* at most LINEAR_MAX_ROWS */
    uint32_t prefetch;  /* bytes ahead that weights are asked for */
    enum cpu_tuning tuning;
    uint8_t *scratch; /* LINEAR_SCRATCH_BYTES, aligned to 64 */
    float *out;       /* of row 0, at the first panel's first column */
    size_t out_stride;
    const float *scale; /* one for all, or NULL */
    const float *bias;  /* at the first panel's first column, or NULL */
    bool add;           /* onto what out holds */
};

/* Where the K and V of one layer lie:
 * base + block * block_bytes + head * head_bytes: K [head_dim][block_tokens] (transposed, so that
 * a vector is 16 positions of one dim), then V [block_tokens][head_dim]. Q8_0 appends its f32
 * scales to each: K [head_dim/32][block_tokens], V [block_tokens][head_dim/32]. With a latent there
 * is K alone, and its first `latent` dims are V. */
struct kv_layout {
    enum kv_type type;
    uint32_t head_dim;
    uint32_t latent; /* or 0 */
    uint32_t block_tokens;
    size_t half_bytes;  /* K, or V, of one head of one block */
    size_t head_bytes;  /* 2 * half_bytes; with a latent half_bytes */
    size_t block_bytes; /* all heads, one layer */
};

/* A row of attention. */
struct attn_row {
    uint32_t at; /* where it lies: times the strides */
    uint32_t pos;
    uint32_t seq;    /* of the batch; */
    uint32_t shared; /* positions that lie in the same blocks as those of the row before it, from
                      * the first on, of which both see each; 0: another tile begins; UINT32_MAX: it
                      * is of the same sequence. Not read by kernels, nor is seq */
};

/* What some rows of a tile have added up so far, all of its queries side by side. */
struct attn_sums {
    float *total; /* attn_part_floats: of whole ranges from first_range on, */
    float *open;  /* attn_open_floats: and of one that is not at its end */
    uint32_t first_range;
};

struct attn_job {
    const struct kv_layout *kv;
    const uint8_t *base;    /* of the layer */
    const uint32_t *blocks; /* the table of the sequence, or of all where they share it */
    uint32_t head_kv;
    uint32_t group;              /* query heads a KV head serves */
    bool more;                   /* the KV head behind this one is next, and is asked for */
    const struct attn_row *rows; /* [n_rows] of a sequence, one position after the other; or more */
    uint32_t n_rows;             /* n_rows * group <= ATTN_QUERIES */
    uint32_t at;                 /* of some of a tile's rows: which of its queries is their first */
    uint32_t n_seen; /* positions that every row sees, from the first on; 0: those up to its own */
    const float *q;  /* row 0, first head of the group */
    float *out;      /* likewise */
    size_t q_stride, out_stride;
    float scale;
    float cap;                    /* scores become cap tanh(score / cap); 0: they do not */
    uint32_t window;              /* positions that a row sees, as the kind says; 0: all */
    enum window_kind window_kind; /* AROUND: where n_seen is not 0 */
    const float *sinks;           /* [group] a score more in each head's sum; or NULL */
    const float *slopes;          /* [group] times the distance, off a score; or NULL */
    float *scratch;               /* attn_scratch_floats(head_dim), aligned to 64 */
};

/* A convolution over rows of one sequence, in place (recurrent_impl.h). */
struct conv_job {
    float *x; /* the first row's first channel */
    size_t stride;
    uint32_t n_rows, n_channels;
    uint32_t width;      /* 2 .. MODEL_MAX_CONV_WIDTH */
    size_t stride_state; /* floats from row to row of a state, */
    size_t stride_w;     /* and of w */
    const float *from;   /* [width - 1] rows before the first, the oldest first; NULL: zeros */
    float *to;           /* likewise, behind the last; may be from */
    const float *w;      /* [width] rows: what the oldest is multiplied by first */
    const float *bias;   /* or NULL */
    bool gated;          /* then silu */
};

/* Rows of one head of one sequence through its state (OP_RECUR). */
struct recur_job {
    bool delta, each; /* each: a row's rate has n_key values, one for each key; with delta */
    bool apart;       /* what is taken out is read by `unit` and added along beta, which has n_key
                       * values, too (RECUR_DELTA_APART); with both */
    bool first;       /* nothing is taken out, and what unit reads is what comes out; with all */
    uint32_t n_rows, n_key, n_value;
    const float *from; /* [n_key * n_value] as recurrent_impl.h has them; NULL: zeros */
    float *to;         /* likewise; may be from */
    const float *q, *k, *v;
    size_t q_stride, k_stride, v_stride; /* from row to row */
    const float *unit;                   /* apart: [n_key]; with k_stride */
    const float *rate, *beta;
    size_t rate_stride, beta_stride;
    float *out;
    size_t out_stride;
    float scale, skip; /* out is the sum times scale, plus skip v */
};

/* Rows of some channels of one sequence through their states (RECUR_SELECTIVE). States, and a, lie
 * in tiles of SELECTIVE_TILE channels, the last one narrower: n_key rows of them. */
enum { SELECTIVE_TILE = 16 };
struct selective_job {
    uint32_t n_rows, n_key, n_channels;
    const float *from; /* [n_key * n_channels]; NULL: zeros */
    float *to;         /* likewise; may be from */
    const float *a;    /* [n_key * n_channels] */
    const float *skip; /* [n_channels] */
    const float *x, *step;
    size_t x_stride, step_stride;
    const float *k, *q; /* [n_key] */
    size_t k_stride, q_stride;
    float *out;
    size_t out_stride;
};

/* Raise it with every change of the bits that kernels compute: what is stored on disk says which
 * revision computed it. */
#define CPU_KERNELS_REVISION "r11"

/* From the beginning on; the same, past the other caches, as few rows meet weights where one panel
 * comes after the other (cpu_one_panel_rows); from four places, as few rows do elsewhere. What is
 * fastest depends on the processor. */
enum read_way { READ_ON, READ_PAST, READ_FOUR, N_READ_WAYS };

struct cpu_kernels {
    const char *name;
    unsigned act_kinds[N_PANEL_FORMATS]; /* what linear reads: of ACT_F32 .. ACT_TWO, PAIRS .. */
    /* And of one in int8 the parts, in a job of so many rows: ACT_BLOCKS .. ACT_BOTH_HALVES. */
    unsigned (*act_parts)(enum panel_format format, uint32_t n_rows);
    uint8_t one_panel[N_PANEL_FORMATS]; /* so many rows can meet one after the other */
    void (*linear[N_PANEL_FORMATS])(const struct linear_job *j);
    /* The k weights of column c (0..15) of a panel, bit for bit as gguf_dequantize has them. */
    void (*column[N_PANEL_FORMATS])(const uint8_t *panel, uint32_t k, uint32_t c, float *out);
    /* out = x / sqrt(mean(x^2) + eps) * w; out may be x */
    void (*norm)(const float *x, const float *w, float *out, uint32_t n, float eps);
    /* out = (x - mean(x)) / sqrt(mean((x - mean(x))^2) + eps) * w + bias; out may be x */
    void (*layer_norm)(
        const float *x, const float *w, const float *bias, float *out, uint32_t n, float eps);
    void (*unary[N_UNARY_KINDS])(const float *x, float *out, uint32_t n); /* out may be x */
    void (*silu_mul)(const float *gate, const float *up, float *out, uint32_t n);
    void (*gelu_mul)(const float *gate, const float *up, float *out, uint32_t n);
    void (*clamped_mul)(const float *gate, const float *up, float *out, uint32_t n);
    void (*sigmoid_mul)(const float *gate, const float *up, float *out, uint32_t n);
    void (*capped_mul)(const float *gate, const float *up, float *out, uint32_t n, float cap);
    void (*mul)(const float *x, const float *y, float *out, uint32_t n);
    void (*xielu)(float *x, const struct xielu *p, uint32_t n);
    void (*add)(const float *x, float *out, uint32_t n);
    void (*add_scaled)(const float *x, float scale, float *out, uint32_t n); /* out += x scale */
    void (*cap)(float *x, float scale, float cap, uint32_t n); /* x scale; capped if cap is not 0 */
    /* Turns n dims (even), those of a pair by the same angle: [n] cosines, then [n] sines, negative
     * for the first of a pair. */
    void (*rotate)(float *x, const float *angles, uint32_t n, enum rope_kind kind);
    /* Values first .. end - 1 of row `row` of a from those of x, for tiles of `lanes` rows; kinds:
     * cpu_act_kinds of all who read it. Multiples of SUPER_K, or the row's end: then parts of a row
     * are what the whole would be, and may be packed by different threads. */
    void (*pack)(const float *x,
                 struct act *a,
                 uint32_t row,
                 uint32_t first,
                 uint32_t end,
                 unsigned kinds,
                 uint32_t lanes);
    /* Store the K and V of one position of one head; head points at its K in the block. With a
     * latent v is not read. */
    void (*kv_store)(
        const struct kv_layout *kv, uint8_t *head, uint32_t slot, const float *k, const float *v);
    void (*attend)(const struct attn_job *j);
    /* The same in parts that different workers compute: range r (positions r * ATTN_RANGE on) to
     * a part of attn_part_floats(head_dim), aligned to 64; then all of them, in order, to out. The
     * first range is the one that attn_first_pos of the job's first row lies in. */
    void (*attend_part)(const struct attn_job *j, uint32_t range, float *part);
    void (*attend_merge)(const struct attn_job *j, const float *parts, uint32_t n_parts);
    /* The same as far as rows of several sequences lie in the same blocks: positions from .. end -
     * 1 of job->blocks, all of which each row sees (of one sequence: as far as it sees), onto what
     * sums holds of the positions before. Both are multiples of attend_step positions, but for the
     * end of a sequence, whose sums are in total then. attend_merge puts them out as one part. No
     * windows.
     */
    void (*attend_some)(const struct attn_job *j,
                        uint32_t from,
                        uint32_t end,
                        const struct attn_sums *sums);
    uint32_t (*attend_step)(const struct attn_job *j);
    void (*conv)(const struct conv_job *j);
    void (*recur)(const struct recur_job *j);
    void (*selective)(const struct selective_job *j);
    void (*exp)(const float *x, float *out, uint32_t n); /* for tests: what softmax and silu use */
    /* Busy loops of n rounds for limits.c; the operations done are returned. */
    double (*peak_int8)(uint64_t n);
    double (*peak_f32)(uint64_t n);
    double (*peak_bf16)(uint64_t n); /* NULL: BF16 weights are multiplied in f32 */
    /* Read n bytes (a multiple of 1024, aligned to 64) as fast as memory gives them. */
    uint64_t (*read)(const void *p, size_t n, enum read_way way);
};

/* What pack has to write for linear to read it, in a job of n_rows. */
static inline unsigned cpu_act_kinds(const struct cpu_kernels *k,
                                     enum panel_format format,
                                     uint32_t n_rows)
{
    return k->act_kinds[format] | k->act_parts(format, n_rows);
}

extern const struct cpu_kernels cpu_kernels_plain;
#if defined(__x86_64__)
extern const struct cpu_kernels cpu_kernels_avx2;
extern const struct cpu_kernels cpu_kernels_avxvnni;
extern const struct cpu_kernels cpu_kernels_avx512;
extern const struct cpu_kernels cpu_kernels_avx512_bf16; /* the same but for BF16, Q4_K, Q5_K and
                                                          * what reads the same as these, as AMD's
                                                          * processors are fastest */
extern const struct cpu_kernels cpu_kernels_amx; /* many rows on a tile unit; avx512's bits but for
                                                  * Q8_0, F16, BF16, Q4_K and Q5_K, and attention of
                                                  * wide heads, many to a KV head */
#endif

/* The best that this machine has, or what `isa`, one of CPU_ISAS, limits it to; NULL if isa is none
 * of these. A set that the machine lacks falls back to the next lower. */
#define CPU_ISAS "reference, avx2, avx-vnni, avx512, avx512-bf16 or amx"
const struct cpu_kernels *cpu_kernels_select(const char *isa);

/* How far ahead this machine's processor wants to be told what a job of n_rows will read. */
uint32_t cpu_kernels_prefetch(uint32_t n_rows);

/* linear_job.tuning of this machine's processor. */
enum cpu_tuning cpu_kernels_tuning(void);

/* The first position that row i of the job sees. */
static inline uint32_t attn_first_pos(const struct attn_job *j, uint32_t i)
{
    const uint32_t pos = j->rows[i].pos, window = j->window;
    if (!window)
        return 0;
    switch (j->window_kind) {
    case WINDOW_LAST:
        return pos >= window ? pos + 1 - window : 0;
    case WINDOW_CHUNK:
        return pos - pos % window;
    case WINDOW_AROUND:
        break;
    }
    return pos > window / 2 ? pos - window / 2 : 0;
}

/* The position behind the last that it sees. */
static inline uint32_t attn_end_pos(const struct attn_job *j, uint32_t i)
{
    const uint32_t pos = j->rows[i].pos, half = j->window / 2;
    if (!j->n_seen)
        return pos + 1;
    const bool around = j->window && j->window_kind == WINDOW_AROUND;
    return around && half < j->n_seen - pos ? pos + half + 1 : j->n_seen;
}

/* The position behind the last that its last row sees, and in a job of one sequence any. */
static inline uint32_t attn_end(const struct attn_job *j)
{
    return attn_end_pos(j, j->n_rows - 1);
}

/* Of a packed query; of a tile's K and V, or what a tile unit makes of them. */
static inline size_t attn_query_floats(uint32_t head_dim)
{
    return act_two_stride(head_dim) / 2;
}

static inline size_t attn_tile_floats(uint32_t head_dim)
{
    const size_t both = 2 * (size_t)ATTN_TILE * ((head_dim + 15) / 16 * 16);
    return both > ATTN_UNIT_FLOATS ? both : ATTN_UNIT_FLOATS;
}

size_t attn_scratch_floats(uint32_t head_dim);
size_t attn_part_floats(uint32_t head_dim);
size_t attn_open_floats(uint32_t head_dim);

/* Queries at .. at + n - 1 of a part saw nothing of its range. */
static inline void attn_part_empty(float *part, uint32_t at, uint32_t n)
{
    for (uint32_t i = at; i < at + n; i++) {
        part[i] = -INFINITY;
        part[ATTN_QUERIES + i] = 0;
    }
}

#endif
