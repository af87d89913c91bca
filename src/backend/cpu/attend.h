/* Attention of a batch: which rows attend together (tiles.c), and what is one item of it
 * (attend.c). */
#ifndef WEIR_BACKEND_CPU_ATTEND_H
#define WEIR_BACKEND_CPU_ATTEND_H

#include "backend/cpu/cpu.h"

/* max_group and max_heads, from the phases, once they are compiled. */
void cpu_measure_heads(struct cpu_backend *b);

/* The tiles of a batch's rows, of all and of those that are kept, once both are found. */
void cpu_make_tiles(struct cpu_backend *b);

/* Whether items of an ATTENTION phase hold all rows of their sequences, and all that these read: so
 * one can store what it reads. After cpu_make_tiles. */
bool cpu_attend_holds_sequences(const struct cpu_backend *b, const struct phase *p);

/* Sets the phase's chunk, returns how many items it has. */
uint32_t cpu_attend_divide(const struct cpu_backend *b, struct phase *p);

void cpu_attend_run(struct cpu_backend *b, const struct phase *p, uint32_t item, uint32_t worker);

#endif
