#include "backend/cpu/panel.h"

#include "backend/cpu/pack.h"

#include <string.h>

/* A format's row (formats.h). */
struct panel_row {
    enum gguf_type type;
    uint32_t unit_k, unit_bytes;
    void (*pack)(const uint8_t *row, uint32_t k, uint32_t c, uint8_t *panel);
};

#define PANEL_ROW(NAME, name, k, bytes, line, ...)                                                 \
    {GGUF_TYPE_##NAME, k, (bytes) + (line), pack_##name},
static const struct panel_row rows[] = {CPU_FORMATS(PANEL_ROW)};

bool panel_format_of(enum gguf_type type, enum panel_format *out)
{
    for (int f = 0; f < N_PANEL_FORMATS; f++) {
        if (rows[f].type == type) {
            *out = (enum panel_format)f;
            return true;
        }
    }
    return false;
}

/* The last line of scales may be for fewer units than others are. */
size_t panel_bytes(enum panel_format format, uint32_t k)
{
    const size_t n = (size_t)k / rows[format].unit_k * rows[format].unit_bytes;
    return (n + 63) / 64 * 64;
}

void panel_pack(enum panel_format format, const struct gguf_tensor *t, uint32_t panel, uint8_t *out)
{
    const uint32_t k = (uint32_t)t->ne[0];
    const uint64_t n_rows = t->ne[1], first = (uint64_t)panel * PANEL_COLS;
    const size_t row_bytes = t->n_bytes / n_rows;
    memset(out, 0, panel_bytes(format, k)); /* missing columns have scale 0; some or bits in */
    for (uint32_t c = 0; c < PANEL_COLS && first + c < n_rows; c++) {
        const uint8_t *row = t->data + (first + c) * row_bytes;
        rows[format].pack(row, k, c, out);
    }
}
