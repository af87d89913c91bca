/* Matrix products straight from the block formats, and the embeddings.
 *
 * Weights are laid out at load as the kernels read them (pack.c, on the host, some output rows at a
 * time; linear_block.cu and linear_k.cu draw each format). Rows are prepared once for all matrices
 * that read them (cuda_act_pack). One path for 1 to thousands of rows: each output is the same sum
 * in the same order, whatever the number of rows, so weights are the operand of 16 rows of the
 * tensor cores' product and activations that of 8 columns, of which a lone row fills one. A split
 * of K over blocks depends on n_in and n_out alone, and its parts are added from the first to the
 * last.
 *
 * Oracle: tests/oracle/oracle.c. F32 weights are multiplied in f32. */
#ifndef WEIR_BACKEND_CUDA_LINEAR_H
#define WEIR_BACKEND_CUDA_LINEAR_H

#include "backend/cuda/rows.h"

#ifdef __cplusplus
extern "C" {
#endif

/* A matrix on the device; type: enum gguf_type (gguf.h), as in the file, however it lies here
 * (cuda_stored_as). */
struct cuda_matrix {
    int type;
    uint32_t n_in, n_out;
    const uint8_t *data;
};

/* --- pack.c, the host's --- */

int cuda_matrix_known(int type);
int cuda_matrix_alike(int a, int b); /* they lie as one type does, which one kernel reads */
size_t cuda_matrix_bytes(int type, uint32_t n_in, uint32_t n_out);
/* Output rows that are laid out at a time, and the bytes that they take; parts follow each other.
 */
#define CUDA_PART_ROWS 16u
size_t cuda_part_bytes(int type, uint32_t n_in);
/* src: n rows as in the file, n at most CUDA_PART_ROWS; dst: cuda_part_bytes, missing rows zero. */
void cuda_part_pack(int type, uint32_t n_in, uint32_t n, const uint8_t *src, uint8_t *dst);

/* --- activations --- */

/* Rows prepared for weights of one kind or several: bits of cuda_act_form. linear_layout.h draws
 * them. */
enum cuda_act_form {
    CUDA_ACT_F16 = 1,       /* quantised weights, and F16 */
    CUDA_ACT_BF16_PAIR = 2, /* BF16: a sum of two bf16 */
    CUDA_ACT_F32 = 4,
};
/* The form that weights of a type are multiplied with. */
unsigned cuda_act_form(int type);

struct cuda_act {
    uint8_t *data; /* cuda_act_bytes, aligned to 16 */
    uint32_t k;
    unsigned forms; /* those that are wanted; the same when it is made and when it is read */
    uint32_t heads; /* 0: rows as they are; else each is so many, in_step values apart, which are */
    uint32_t in_step; /* prepared head by head, for matrices of their own; products: 0: all heads
                       * read rows that were prepared as they are */
    float *sizes; /* cuda_slices_bytes for rows in slices (rows_pack.h), aligned to 16; or NULL */
};
size_t cuda_act_bytes(unsigned forms, uint32_t max_rows, uint32_t max_k); /* of each head */
/* act->k values of each of rows 0, 1, ... of `in`, as many as at->rows says there are. A row with a
 * NaN or an infinity makes every product with it NaN or infinite. */
void cuda_act_pack(const struct cuda_at *at, struct cuda_buf in, const struct cuda_act *act);

/* --- products --- */

struct cuda_linear {
    struct cuda_matrix w;
    struct cuda_act act;
    const float *bias;    /* [n_out] or NULL */
    const float *factors; /* of w, or of each expert's; or NULL: 1 */
    struct cuda_buf out;
    int add;        /* onto what out holds */
    float *scratch; /* cuda_linear_scratch bytes; launches in one stream may share it, and products
                     * that are launched together do; with heads there is none */
    uint32_t out_step; /* with act.heads: w is as many matrices behind each other, and the outputs
                        * of head h begin at h * out_step */
};
/* n_out: of all products that are launched together. */
size_t cuda_linear_scratch(uint32_t max_rows, uint32_t n_in, uint32_t n_out);
/* out[r][j] = factor * sum_k w[j][k] act[r][k] (+ bias[j]) (+ out[r][j]); rows as for
 * cuda_act_pack. Of n products, at most CUDA_LINEAR_GROUP, that read the same rows and write
 * different places: weights that lie alike share a launch (linear_many's do not), of few rows also
 * some that lie in two ways. None has heads, or it is alone. */
enum { CUDA_LINEAR_GROUP = 4 };
void cuda_linear(const struct cuda_at *at, const struct cuda_linear *ops, uint32_t n);

/* out[r] = row token[r] of w * scale; w is laid out as for products, so that tied embeddings need
 * no second copy. */
void cuda_embed(const struct cuda_at *at,
                const struct cuda_matrix *w,
                struct cuda_buf out,
                float scale);

#ifdef __cplusplus
}
#endif

#endif
