/* K and V in blocks, and attention over them.
 *
 * Oracle: tests/oracle/oracle.c. Rules of invariance: a row's scores are summed by
 * CUDA_ATTN_RANGE positions, aligned, each range by itself in tiles of one fixed size, and ranges
 * are merged from the first to the last, whether the row came alone, in a chunk of a prompt, with
 * its context split over many blocks or not. A tile that a row does not see changes no bit of it.
 */
#ifndef WEIR_BACKEND_CUDA_ATTENTION_H
#define WEIR_BACKEND_CUDA_ATTENTION_H

#include "backend/cuda/rows.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { CUDA_ATTN_RANGE = 256 };
/* Heads have a multiple of 8 dims, at most so many; where V is a part of K, so many of K. */
enum { CUDA_ATTN_MOST_DIM = 512, CUDA_ATTN_MOST_KEY = 592 };

/* K and V of one layer: at base + block * block_stride + head * 2 * half_bytes lie K
 * [block_tokens] rows and then, half_bytes on, V [block_tokens] rows, of kv_row_bytes (kv_type.h)
 * each. With a latent there is one head, whose rows of K are all that is stored: their first so
 * many values are V. Zeroed at start. */
struct cuda_kv {
    uint8_t *base;
    int type; /* enum kv_type */
    int in_panes;
    uint32_t n_head_kv, head_dim, block_tokens;
    size_t row_bytes, half_bytes, block_stride;
    uint32_t latent; /* 0: V lies beside K */
};

/* cos and sin of each row's position; once a step for each table. out: [rows][dims], dims / 2
 * cosines, then sines, already multiplied by scale. inv_freq: [dims / 2] f64, of the device. */
void cuda_angles(
    const struct cuda_at *at, const double *inv_freq, uint32_t dims, double scale, float *out);

/* Rotate Q [n_head] and K [n_head_kv] in place (angles NULL: do not; k.p NULL: Q alone, for which
 * n_head_kv is any divisor of n_head), of each head `dims` values from `first` on, then store K and
 * V (kv.base NULL: do not) and, if temper_length is not 0, multiply Q by 1 + temper_scale log(1 +
 * floor((position + temper_offset) / temper_length)). */
struct cuda_rope_store {
    struct cuda_buf q, k, v;
    const float *angles;
    uint32_t n_head, dims;
    int adjacent; /* pairs are (2i, 2i + 1), else (i, i + dims / 2) */
    struct cuda_kv kv;
    float temper_scale;
    uint32_t temper_length, temper_offset;
    uint32_t first;
};
void cuda_rope_store(const struct cuda_at *at, const struct cuda_rope_store *op);

/* How rows are cut into tiles; on the host. Returns how many, at most n_rows; tiles: [n_rows]. */
struct cuda_attention_shape {
    uint32_t n_head, n_head_kv, head_dim;
};
uint32_t cuda_attention_tiles(const struct cuda_attention_shape *s,
                              const struct cuda_seq *seqs,
                              uint32_t n_seqs,
                              struct cuda_tile *tiles);

/* Bytes of scratch that launches within the bounds use. */
size_t cuda_attention_scratch(const struct cuda_attention_shape *s, const struct cuda_bounds *most);

struct cuda_attention {
    struct cuda_buf q, out; /* [n_head][head_dim], and [n_head][head_dim or latent] */
    struct cuda_kv kv;
    uint32_t n_head;
    float scale, cap;
    uint32_t window;    /* 0: all */
    int window_kind;    /* enum window_kind (model.h) */
    int causal;         /* else all rows of a sequence see all of it */
    const float *sinks; /* [n_head] or NULL */
    float alibi;        /* exponent of the slopes of scores (model_alibi_slope); 0: none */
    void *scratch;
};
void cuda_attention(const struct cuda_at *at, const struct cuda_attention *op);

#ifdef __cplusplus
}
#endif

#endif
