/* Products of every instruction set that this machine has, with every block format, against plain
 * double arithmetic, over odd shapes; and the same bits for a row alone and among others. (What is
 * too large or too small, and more than a job holds at a time: test_linear_edges.c.) */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "backend/cpu/kernels.h"
#include "backend/cpu/panel.h"
#include "base/mem.h"
#include "few.h"
#include "unit/backend/cpu/linears.h"

#include <stdlib.h>
#include <string.h>

static const enum gguf_type types[] = {
    GGUF_TYPE_F32,   GGUF_TYPE_F16,     GGUF_TYPE_BF16,   GGUF_TYPE_Q8_0,    GGUF_TYPE_Q4_0,
    GGUF_TYPE_Q4_K,  GGUF_TYPE_Q6_K,    GGUF_TYPE_Q4_1,   GGUF_TYPE_Q5_0,    GGUF_TYPE_Q5_1,
    GGUF_TYPE_Q5_K,  GGUF_TYPE_IQ4_NL,  GGUF_TYPE_IQ4_XS, GGUF_TYPE_MXFP4,   GGUF_TYPE_Q2_K,
    GGUF_TYPE_Q3_K,  GGUF_TYPE_IQ1_S,   GGUF_TYPE_IQ1_M,  GGUF_TYPE_IQ2_XXS, GGUF_TYPE_IQ2_XS,
    GGUF_TYPE_IQ2_S, GGUF_TYPE_IQ3_XXS, GGUF_TYPE_IQ3_S,  GGUF_TYPE_TQ1_0,   GGUF_TYPE_TQ2_0,
    GGUF_TYPE_Q1_0,  GGUF_TYPE_Q2_0,    GGUF_TYPE_NVFP4};
_Static_assert(COUNT(types) == N_PANEL_FORMATS, "every format of formats.h");

/* What was packed, read back column by column, is what the file's blocks say. */
static void check_columns(const struct linear_case *c)
{
    float *want = mem_alloc(c->k * sizeof *want), *got = mem_alloc(c->k * sizeof *got);
    for (uint32_t j = 0; j < c->n; j++) {
        gguf_dequantize(c->w.type, c->w.data + j * (c->w.n_bytes / c->n), want, c->k);
        c->kernels->column[c->format](
            c->panels + j / 16 * panel_bytes(c->format, c->k), c->k, j % 16, got);
        for (uint32_t k = 0; k < c->k; k++)
            assert_true(got[k] == want[k]);
    }
    free(want);
    free(got);
}

static void linear_shapes(const struct cpu_kernels *kernels, enum gguf_type type)
{
    static const uint32_t ns[] = {1, 15, 16, 17, 40, 100};
    const uint32_t unit = gguf_type_info(type)->block_values;
    static const uint32_t counts[] = {1,  2,  3,  4,  5,  6,  7,  8,  9,  10, 12, 14, 16, 17,
                                      20, 23, 28, 32, 33, 36, 49, 62, 64, 65, 73, 88, 201};
    static size_t n_seen;
    for (size_t at = 0; at < COUNT(counts); at++) {
        const uint32_t rows = counts[at];
        if (few_leave_out(n_seen++, 9))
            continue;
        struct linear_case c = {.kernels = kernels, .rows = rows, .n = ns[rnd() % COUNT(ns)]};
        const uint32_t most = rows % 2 ? 150 : 1200; /* longer than a part, TILE_K */
        c.k = unit == 1 ? 1 + rnd() % most : unit * (1 + rnd() % (most / unit + 1));
        assert_true(panel_format_of(type, &c.format));
        c.w = make_tensor(type, c.k, c.n);
        const size_t bytes = panel_bytes(c.format, c.k);
        c.panels = mem_aligned(bytes * ((c.n + 15) / 16));
        for (uint32_t p = 0; p < (c.n + 15) / 16; p++)
            panel_pack(c.format, &c.w, p, c.panels + p * bytes);
        c.x = mem_alloc((size_t)rows * c.k * sizeof *c.x);
        for (size_t i = 0; i < (size_t)rows * c.k; i++)
            c.x[i] = rows == 3 && i < c.k ? 0 : rnd_float(); /* one row of zeros */
        float bias[100];
        for (uint32_t i = 0; i < c.n; i++)
            bias[i] = rnd_float();
        c.bias = rows % 2 ? bias : NULL;
        check_linear(&c);
        check_columns(&c);
        free((void *)(uintptr_t)c.w.data);
        free(c.panels);
        free(c.x);
    }
}

static void linears_are_exact(void **s)
{
    (void)s;
    for (size_t i = 0; i < COUNT(isas); i++) {
        for (size_t t = 0; t < COUNT(types); t++)
            linear_shapes(cpu_kernels_select(isas[i]), types[t]);
    }
}

/* The first `rows` rows from `skip` on and the first n columns, of panels that end where memory
 * does, against what each row has alone: all [c->rows][c->n]. */
static void check_among(
    const struct linear_case *c, uint32_t skip, uint32_t rows, uint32_t n, const float *all)
{
    const size_t bytes = panel_bytes(c->format, c->k) * ((n + 15) / 16);
    struct linear_case part = *c;
    part.n = n;
    part.panels = memcpy(mem_aligned(bytes), c->panels, bytes);
    const size_t size = (size_t)(skip + rows) * n;
    float *out = mem_zalloc(size + 1, sizeof *out);
    memset(out, 0xff, (size + 1) * sizeof *out); /* NaN */
    run_linear_from(&part, 0, skip + rows, skip, rows == 1 && !skip ? 1 : ACT_TILE, false, out);
    for (uint32_t r = 0; r < skip + rows; r++) {
        for (uint32_t j = 0; j < n; j++) {
            const float got = out[(size_t)r * n + j], want = all[(size_t)r * c->n + j];
            if (r < skip ? got == got : memcmp(&got, &want, sizeof got) != 0)
                fail_msg("%s %s k %u: column %u of row %u, of %u columns of rows %u to %u",
                         c->kernels->name,
                         gguf_type_name(c->w.type),
                         c->k,
                         j,
                         r,
                         n,
                         skip,
                         skip + rows - 1);
        }
    }
    assert_true(out[size] != out[size]);
    free(part.panels);
    free(out);
}

/* Numbers of rows up to more than most kernels take before they widen weights, beside numbers of
 * panels that leave some over, whichever are taken at a time: a row's bits are those that it has
 * alone. Few rows, which take as many panels as a processor is tuned for, by every tuning, at the
 * beginning and behind others. */
static void any_rows_and_panels_are_exact(void **s)
{
    (void)s;
    enum { MOST_ROWS = 66, MOST_PANELS = 9, SKIP = ACT_TILE, EACH_TUNING = 4 /* rows */ };
    static const float scale = 0.7f;
    for (size_t i = 0; i < COUNT(isas) * COUNT(types); i++) {
        const size_t isa = i / COUNT(types), type = i % COUNT(types);
        const uint32_t unit = gguf_type_info(types[type])->block_values;
        struct linear_case c = {.kernels = cpu_kernels_select(isas[isa]),
                                .rows = MOST_ROWS + SKIP,
                                .n = MOST_PANELS * PANEL_COLS,
                                .scale = &scale,
                                .k = unit == 1    ? 33
                                     : unit < 256 ? 19 * unit /* beyond what a part of K holds */
                                                  : 2 * unit};
        assert_true(panel_format_of(types[type], &c.format));
        c.w = make_tensor(types[type], c.k, c.n);
        const size_t bytes = panel_bytes(c.format, c.k);
        c.panels = mem_aligned(bytes * MOST_PANELS);
        for (uint32_t p = 0; p < MOST_PANELS; p++)
            panel_pack(c.format, &c.w, p, c.panels + p * bytes);
        c.x = mem_alloc((size_t)c.rows * c.k * sizeof *c.x);
        for (size_t at = 0; at < (size_t)c.rows * c.k; at++)
            c.x[at] = rnd_float();
        float *all = mem_alloc((size_t)c.rows * c.n * sizeof *all);
        for (uint32_t r = 0; r < c.rows; r++)
            run_linear(&c, r, 1, 1, false, all);
        const bool plain = strcmp(c.kernels->name, "reference") == 0; /* slow, and up to 8 alike */
        for (uint32_t rows = 1; rows <= (plain ? 12 : MOST_ROWS); rows++) {
            if (few_leave_out(rows + i, 3))
                continue;
            const uint32_t panels = 1 + (uint32_t)(rows + rows / 3 + i) % MOST_PANELS;
            const uint32_t n = panels * PANEL_COLS - rnd() % PANEL_COLS;
            for (uint32_t at = 0; rows <= EACH_TUNING && at < 2 * N_TUNED; at++)
                check_among(&c, at < N_TUNED ? 0 : SKIP, rows, n, all);
            if (rows > EACH_TUNING)
                check_among(&c, rnd() % 3 ? 0 : SKIP, rows, n, all);
        }
        free((void *)(uintptr_t)c.w.data);
        free(c.panels);
        free(c.x);
        free(all);
    }
}

/* Bytes of blocks as runs of extremes, so that weights, and scales, are as large as they may be. */
static void put_extremes(const struct gguf_tensor *w)
{
    static const uint8_t extremes[] = {0x00, 0xff, 0x80, 0x7f};
    const struct gguf_type_info *info = gguf_type_info(w->type);
    for (size_t at = 0; at < w->n_bytes; at += info->block_bytes) {
        uint8_t *block = (uint8_t *)(uintptr_t)w->data + at, scales[4];
        const bool short_scale = w->type == GGUF_TYPE_MXFP4;
        const size_t d = scale_at(w->type);
        const size_t n = has_second_scale(w->type) || w->type == GGUF_TYPE_NVFP4 ? 4
                         : short_scale                                           ? 1
                                                                                 : 2;
        memcpy(scales, block + d, n);
        for (uint32_t i = 0; i < info->block_bytes; i += 16) {
            const uint32_t left = info->block_bytes - i, kind = rnd() % 5;
            if (kind < 4)
                memset(block + i, extremes[kind], left < 16 ? left : 16);
        }
        if (w->type == GGUF_TYPE_IQ1_M)
            put_iq1_m_scale(block);
        else
            memcpy(block + d, scales, n);
    }
}

/* Activations that are all as large as they may be, of one sign or of both in turn; any. */
static void put_large(float *x, uint32_t rows, uint32_t k)
{
    for (uint32_t r = 0; r < rows; r++) {
        for (uint32_t i = 0; i < k; i++)
            x[(size_t)r * k + i] = r % 4 == 0   ? 1.0f
                                   : r % 4 == 1 ? -1.0f
                                   : r % 4 == 2 ? (i % 2 ? 1.0f : -1.0f)
                                                : rnd_float();
    }
}

/* Every way to the sum of integers is exact, up to the largest: within an instruction set, and so
 * between those that add floats alike, of activations rounded alike. Rows and panels end within
 * what a tile unit takes. */
static void check_extremes(enum gguf_type type, uint32_t rows, uint32_t n, uint32_t k)
{
    struct linear_case c = {.rows = rows, .n = n, .k = k};
    assert_true(panel_format_of(type, &c.format));
    c.w = make_tensor(type, k, n);
    put_extremes(&c.w);
    const size_t bytes = panel_bytes(c.format, k), size = (size_t)rows * n * sizeof(float);
    c.panels = mem_aligned(bytes * ((n + 15) / 16));
    for (uint32_t p = 0; p < (n + 15) / 16; p++)
        panel_pack(c.format, &c.w, p, c.panels + p * bytes);
    c.x = mem_alloc((size_t)rows * k * sizeof *c.x);
    put_large(c.x, rows, k);
    float *first = mem_alloc(size), *out = mem_alloc(size);
    for (size_t i = 0; i < COUNT(isas); i++) {
        const struct cpu_kernels *kernels = cpu_kernels_select(isas[i]);
        struct cpu_kernels alike = *cpu_kernels_select("avx2");
        if (i < 2 || strcmp(alike.name, "reference") == 0 ||
            kernels->act_kinds[c.format] == ACT_HIGH || /* no integers */
            takes_off_apart(kernels, c.format))
            alike = *kernels;
        alike.act_kinds[c.format] = kernels->act_kinds[c.format];
        c.kernels = &alike;
        run_linear(&c, 0, rows, ACT_TILE, false, first);
        c.kernels = kernels;
        check_linear(&c);
        run_linear(&c, 0, rows, ACT_TILE, false, out);
        assert_memory_equal(out, first, size);
    }
    free((void *)(uintptr_t)c.w.data);
    free(c.panels);
    free(c.x);
    free(first);
    free(out);
}

static void extremes_are_exact(void **s)
{
    (void)s;
    static const uint32_t rows[] = {10, 17, 31, 33, 64, 85, LINEAR_MAX_ROWS}, ns[] = {16, 17, 40};
    for (size_t t = 0; t < COUNT(types); t++) {
        const uint32_t unit = gguf_type_info(types[t])->block_values;
        for (size_t i = 0; unit > 1 && i < COUNT(rows); i++) {
            if (few_leave_out(i + t, 7))
                continue;
            /* a part of TILE_K and more, of which every number of groups may be left */
            const uint32_t k = unit < 256 ? (TILE_K + 32 * (1 + rnd() % 9)) / unit * unit : 768;
            check_extremes(types[t], rows[i], ns[(t + i) % COUNT(ns)], k);
        }
    }
}

/* Memory is what the file takes: panels add 7 % at most. */
static void panels_are_as_small_as_files(void **s)
{
    (void)s;
    for (size_t t = 0; t < COUNT(types); t++) {
        const struct gguf_type_info *info = gguf_type_info(types[t]);
        enum panel_format format;
        assert_true(panel_format_of(types[t], &format));
        const size_t file = (size_t)2048 / info->block_values * info->block_bytes * PANEL_COLS;
        assert_true(panel_bytes(format, 2048) * 100 <= file * 107);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(linears_are_exact),
        cmocka_unit_test(any_rows_and_panels_are_exact),
        cmocka_unit_test(extremes_are_exact),
        cmocka_unit_test(panels_are_as_small_as_files),
    };
    return cmocka_run_group_tests(tests, start, NULL);
}
