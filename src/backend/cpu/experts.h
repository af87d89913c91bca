/* Experts: each row is given to a few of many matrices, and each matrix should meet all of its rows
 * at once.
 *
 *     scores  --select-->  n_used experts and weights of each row, by rank
 *             --sort----->  places: one for each row and rank, ordered by expert, each expert's
 *                           first at a multiple of the tile of packed activations
 *
 * From there on buffers of experts hold a row a place, and an expert's matrices are multiplied with
 * a contiguous range of places (PHASE_EXPERTS) like any others with rows. Where a row is placed
 * depends on its company; the sums do not: each place's bits are those of a lone row, and a row
 * adds up its places by rank. */
#ifndef WEIR_BACKEND_CPU_EXPERTS_H
#define WEIR_BACKEND_CPU_EXPERTS_H

#include "backend/cpu/cpu.h"

enum { NO_ROW = UINT32_MAX };

/* An expert that is wanted, and its places. */
struct expert_run {
    uint32_t expert, first, n;
};

/* Places that n_rows can need, in the layer with the most. */
uint32_t experts_max_places(const struct model_hparams *hp, uint32_t n_rows);

/* Experts that n_rows can want at once. */
uint32_t experts_max_runs(const struct model_hparams *hp, uint32_t n_rows);

/* OP_SELECT for one row. */
void experts_select(const struct cpu_backend *b, const struct step *s, uint32_t row);

/* Places for all n_rows of the step, once n_used are selected for each; a phase of one item. */
void experts_sort(struct cpu_backend *b, uint32_t n_used, uint32_t n_rows);

/* Multiplies n values of a place by the weight that its expert has for its row. */
void experts_weigh(const struct cpu_backend *b, uint32_t place, float *x, uint32_t n);

/* OP_MIX for one row. */
void experts_mix(const struct cpu_backend *b, const struct step *s, uint32_t row);

/* Item of PHASE_EXPERTS: some panels of one expert, all of its places. */
void experts_run(struct cpu_backend *b, const struct phase *p, uint32_t item, uint32_t worker);

#endif
