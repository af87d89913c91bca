/* Between run.c (phases and items), attend.c, panels.c, steps.c (rows), experts.c and recurrent.c.
 */
#ifndef WEIR_BACKEND_CPU_RUN_H
#define WEIR_BACKEND_CPU_RUN_H

#include "backend/cpu/cpu.h"

enum { CPU_ROW_BLOCK = LINEAR_MAX_ROWS }; /* rows that meet all panels before the next */

#define WHOLE_ROW ((struct row_part){0, 1, 1})

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

/* The rows a phase is over. */
uint32_t cpu_phase_rows(const struct cpu_backend *b, const struct phase *p);

/* Panels that are worth taking at once: enough such chunks for balance, few enough that taking them
 * costs nothing. n_passes: how often each panel is passed over, by other rows. */
uint32_t cpu_panel_chunk(const struct cpu_backend *b,
                         const struct phase *p,
                         uint32_t n_passes,
                         uint32_t n_workers);

/* The same of experts that n_rows are given to. */
uint32_t cpu_expert_chunk(const struct cpu_backend *b,
                          const struct phase *p,
                          uint32_t n_rows,
                          uint32_t n_workers);

/* A LINEAR phase over n_rows: sets its chunk, returns how many items it has, one for each worker
 * that can find something to do. */
uint32_t cpu_divide_panels(const struct cpu_backend *b, struct phase *p, uint32_t n_rows);

/* An item: what is left of the worker's share of the panels, then of others' shares. */
void cpu_run_panels(struct cpu_backend *b, const struct phase *p, uint32_t worker);

/* A phase of rows, done to a part of one. */
void cpu_run_row(struct cpu_backend *b, const struct phase *p, uint32_t row, struct row_part part);

/* One step of a part of one row of n_rows: reads row `from`, writes row `row`. */
void cpu_run_step(struct cpu_backend *b,
                  struct step *s,
                  uint32_t from,
                  uint32_t row,
                  uint32_t n_rows,
                  struct row_part part);

#endif
