/* One row of a tensor's blocks to one column of a panel. */
#ifndef WEIR_BACKEND_CPU_PACK_H
#define WEIR_BACKEND_CPU_PACK_H

#include "backend/cpu/kernels.h"

/* A row of k weights, as the file's format has them, to column c (0..15) of the panel at `panel`,
 * panel_bytes(format, k) that were zero before. Touches that column's bytes only, so columns may be
 * packed in any order, but one panel's by one thread. */
#define PACK_FORMAT(NAME, name, ...)                                                               \
    void pack_##name(const uint8_t *row, uint32_t k, uint32_t c, uint8_t *panel);
CPU_FORMATS(PACK_FORMAT)

/* 32 bits of column c to a group's 64 bytes: bit k is bit 4c + k % 4 of word k / 4. */
void pack_signs(const uint8_t bits[4], uint32_t c, uint8_t *out);

#endif
