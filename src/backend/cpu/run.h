/* Between run.c (phases and items), steps.c (rows), experts.c and recurrent.c. */
#ifndef WEIR_BACKEND_CPU_RUN_H
#define WEIR_BACKEND_CPU_RUN_H

#include "backend/cpu/cpu.h"

enum { CPU_ROW_BLOCK = LINEAR_MAX_ROWS }; /* rows that meet all panels before the next */

static inline float *cpu_row_of(const struct cpu_backend *b, enum model_buf buf, uint32_t row)
{
    return b->bufs[buf] + row * b->stride[buf];
}

/* Where the positions of a sequence lie in a layer. */
static inline const uint32_t *cpu_table_of(const struct layer_kv *layer,
                                           const struct batch_seq *seq)
{
    return layer->in_panes ? seq->panes : seq->blocks;
}

/* Rows of a tile of packed activations, in a step of so many. */
static inline uint32_t cpu_act_lanes(uint32_t n_rows)
{
    return n_rows == 1 ? 1 : ACT_TILE;
}

/* One step of one row of n_rows: reads row `from`, writes row `row`. */
void cpu_run_step(
    struct cpu_backend *b, struct step *s, uint32_t from, uint32_t row, uint32_t n_rows);

#endif
