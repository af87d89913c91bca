/* A step as the device sees it.
 *
 * The host writes one of two pinned slots while the device works on the other; one copy, in the
 * stream's order, brings it to the arrays that all kernels read. Their addresses never change, so
 * launches can be captured as graphs: a graph is made for bounds (cuda_bounds) and serves every
 * step within them, because kernels read the true counts from the device and leave what is beyond.
 *
 * C and C++; pointers are of the device. */
#ifndef WEIR_BACKEND_CUDA_STEP_H
#define WEIR_BACKEND_CUDA_STEP_H

#include <stddef.h>
#include <stdint.h>

/* How many there are, in this step. */
struct cuda_counts {
    uint32_t n_rows;
    uint32_t n_seqs;
    uint32_t n_logit_rows;
    uint32_t n_hidden_rows;
    uint32_t n_tiles; /* of attention */
    uint32_t n_jobs;  /* rows that choose a token on the device */
};

/* How many a launch is made for: each at least the count. Grids come from these. */
struct cuda_bounds {
    uint32_t rows, seqs, logit_rows, hidden_rows, tiles, jobs;
    uint32_t ranges; /* of CUDA_ATTN_RANGE positions, in the longest context */
};

/* As struct batch_seq (backend.h). */
struct cuda_seq {
    uint32_t first_row, n_rows, first_pos;
    uint32_t blocks; /* where its block table begins in cuda_step.tables, */
    uint32_t panes;  /* and its panes' */
    uint32_t second;
    uint32_t state_from, state_to; /* of recurrent layers */
    uint32_t kept, n_kept; /* states kept on the way, likewise in tables: struct cuda_kept, in the
                            * order of rows */
};

/* The state behind so many of a sequence's rows is kept as well. */
struct cuda_kept {
    uint32_t n_rows, state;
};

/* Rows of one sequence that attend together. */
struct cuda_tile {
    uint32_t seq, first_row, n_rows, first_pos;
};

/* Passed to kernels by value. */
struct cuda_step {
    const struct cuda_counts *counts;
    const int32_t *tokens;     /* [n_rows] */
    const int32_t *token_from; /* [n_rows] from 0: the token is chosen[token_from[row]] instead, */
    const int32_t *chosen;     /* [jobs] which the step before put there; see sample.h */
    const uint32_t *positions; /* [n_rows] */
    const uint32_t *row_seq;   /* [n_rows] */
    const struct cuda_seq *seqs;   /* [n_seqs] */
    const uint32_t *tables;        /* block and pane ids; states kept */
    const uint32_t *logit_rows;    /* [n_logit_rows] */
    const uint32_t *hidden_rows;   /* [n_hidden_rows] */
    const struct cuda_tile *tiles; /* [n_tiles] */
};

/* Which rows a launch is over. */
enum cuda_rows { CUDA_ROWS_ALL, CUDA_ROWS_LOGITS, CUDA_ROWS_HIDDEN };

/* Rows of f32, of one of the model's buffers: row r begins at p + r * stride. */
struct cuda_buf {
    float *p;
    size_t stride;
};

#endif
