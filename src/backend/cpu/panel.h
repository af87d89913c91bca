/* Weights repacked from the file's blocks into panels (layouts: kernels.h). */
#ifndef WEIR_BACKEND_CPU_PANEL_H
#define WEIR_BACKEND_CPU_PANEL_H

#include "backend/cpu/kernels.h"
#include "gguf/gguf.h"

/* False for a type that has no kernels. */
bool panel_format_of(enum gguf_type type, enum panel_format *out);

/* A multiple of 64. k is a multiple of the format's block. */
size_t panel_bytes(enum panel_format format, uint32_t k);

/* Columns 16 * panel .. + 15 of t (rows of the tensor) to `out`; columns past the last are zero. */
void panel_pack(enum panel_format format,
                const struct gguf_tensor *t,
                uint32_t panel,
                uint8_t *out);

#endif
