/* Recurrent layers on the CPU: what phases CONV and RECUR and step RATES do. */
#ifndef WEIR_BACKEND_CPU_RECURRENT_H
#define WEIR_BACKEND_CPU_RECURRENT_H

#include "backend/cpu/cpu.h"

/* How many items this batch makes of the phase; sets its chunk. */
uint32_t recurrent_items(const struct cpu_backend *b, struct phase *p);
void recurrent_run(struct cpu_backend *b, const struct phase *p, uint32_t item);

/* One row: rate and beta [n_head], of themselves or of `in` (OP_RATES). */
void recurrent_rates(const struct step *s, const float *in, float *rate, float *beta);

#endif
