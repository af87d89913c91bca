/* Products of what is too large or too small for ordinary steps, and of more panels than a job
 * holds sums of, by every instruction set that this machine has. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "unit/backend/cpu/linears.h"

#include <float.h>

/* A tensor's panels, and activations, for the formats of two bytes. */
static struct linear_case make_halves(enum gguf_type type, uint32_t k, uint32_t n, uint32_t rows)
{
    struct linear_case c = {.rows = rows, .n = n, .k = k, .w = make_tensor(type, k, n)};
    assert_true(panel_format_of(type, &c.format));
    c.panels = mem_aligned(panel_bytes(c.format, k) * ((n + 15) / 16));
    c.x = mem_alloc((size_t)rows * k * sizeof *c.x);
    for (size_t i = 0; i < (size_t)rows * k; i++)
        c.x[i] = rnd_float();
    return c;
}

static void pack_halves(struct linear_case *c)
{
    for (uint32_t p = 0; p < (c->n + 15) / 16; p++)
        panel_pack(c->format, &c->w, p, c->panels + p * panel_bytes(c->format, c->k));
}

static void free_halves(struct linear_case *c)
{
    free((void *)(uintptr_t)c->w.data);
    free(c->panels);
    free(c->x);
}

/* Also all at once, of more rows than a unit takes. */
static void subnormal_halves_are_exact(void **s)
{
    (void)s;
    static const uint32_t rows[] = {1, 3, 17, 33, 70, 150};
    for (size_t i = 0; i < COUNT(rows) * COUNT(isas); i++) {
        struct linear_case c = make_halves(GGUF_TYPE_F16, 300 + rnd() % 300, 145, rows[i % 6]);
        c.kernels = cpu_kernels_select(isas[i / 6]);
        for (size_t at = 0; at < c.w.n_bytes; at += 2) {
            const uint16_t bits = (uint16_t)(rnd() & (rnd() % 2 ? 0x83ff : 0xbbff));
            memcpy((uint8_t *)(uintptr_t)c.w.data + at, &bits, sizeof bits);
        }
        pack_halves(&c);
        check_linear(&c);
        free_halves(&c);
    }
}

/* More panels than those whose sums a job holds at a time, of more rows than have none to hold. */
static void groups_of_panels_are_exact(void **s)
{
    (void)s;
    static const enum gguf_type of[] = {GGUF_TYPE_F16, GGUF_TYPE_BF16, GGUF_TYPE_Q8_0};
    const uint32_t n = LINEAR_MAX_SUMS * PANEL_COLS + 40;
    for (size_t i = 0; i < COUNT(of) * COUNT(isas); i++) {
        const uint32_t k = 32 * (9 + rnd() % 3); /* more than a part */
        struct linear_case c = make_halves(of[i % COUNT(of)], k, n, 65 + rnd() % 5);
        c.kernels = cpu_kernels_select(isas[i / COUNT(of)]);
        pack_halves(&c);
        check_linear(&c);
        free_halves(&c);
    }
}

/* What is finite stays finite, up to the largest; what is not does not become so. */
static void large_activations_stay_finite(void **s)
{
    (void)s;
    static const enum gguf_type halves[] = {GGUF_TYPE_F16, GGUF_TYPE_BF16};
    static const float large[] = {FLT_MAX, -FLT_MAX, INFINITY, NAN};
    for (size_t i = 0; i < COUNT(isas) * 4; i++) {
        struct linear_case c = make_halves(halves[i % 2], 70, 16, i % 4 < 2 ? 1 : 5);
        c.kernels = cpu_kernels_select(isas[i / 4]);
        const uint16_t half = halves[i % 2] == GGUF_TYPE_F16 ? f32_to_f16(0.5f) : f32_to_bf16(0.5f);
        for (size_t at = 0; at < c.w.n_bytes; at += 2)
            memcpy((uint8_t *)(uintptr_t)c.w.data + at, &half, sizeof half);
        pack_halves(&c);
        for (size_t l = 0; l < COUNT(large); l++) {
            float out[5 * 16];
            if (c.kernels->act_kinds[c.format] == ACT_BF16 && l < 2)
                continue; /* they are rounded, to infinity */
            c.x[33] = large[l];
            run_linear(&c, 0, c.rows, ACT_TILE, false, out);
            for (int j = 0; j < 16; j++) {
                assert_int_equal(isfinite(out[j]) != 0, isfinite(large[l]) != 0);
                if (l < 2)
                    assert_true(fabs(out[j] - 0.5 * large[l]) <= FLT_MAX * 1e-5);
            }
        }
        free_halves(&c);
    }
}

/* Likewise of weights that are all 64 / 128. */
static void large_activations_meet_q8_0(void **s)
{
    (void)s;
    static const float large[] = {FLT_MAX, -FLT_MAX, INFINITY, -INFINITY, NAN};
    const struct block_q8_0 ones = {.d = f32_to_f16(1.0f / 128)};
    for (size_t i = 0; i < COUNT(isas) * COUNT(large) * 2; i++) {
        struct linear_case c = make_halves(GGUF_TYPE_Q8_0, 64, 16, i % 2 ? 5 : 1);
        c.kernels = cpu_kernels_select(isas[i / 2 / COUNT(large)]);
        for (size_t at = 0; at < c.w.n_bytes; at += sizeof ones) {
            struct block_q8_0 *block = (struct block_q8_0 *)(uintptr_t)(c.w.data + at);
            *block = ones;
            memset(block->qs, 64, sizeof block->qs);
        }
        pack_halves(&c);
        const float x = large[i / 2 % COUNT(large)];
        float out[5 * 16];
        c.x[33] = x;
        run_linear(&c, 0, c.rows, ACT_TILE, false, out);
        for (int j = 0; j < 16; j++) {
            assert_int_equal(isfinite(out[j]) != 0, isfinite(x) != 0);
            if (isfinite(x))
                assert_true(fabs(out[j] - 0.5 * x) <= FLT_MAX * 0.005);
            else if (c.kernels->act_kinds[c.format] == ACT_HIGH && !isnan(x))
                assert_true(out[j] == x);
        }
        free_halves(&c);
    }
}

/* A sum too small for the normal exponents, here a bias that meets nothing, is the same in a row
 * alone and among others, whether an instruction set keeps it or not. */
static void subnormal_sums_do_not_depend_on_rows(void **s)
{
    (void)s;
    static const enum gguf_type some[] = {GGUF_TYPE_F16,
                                          GGUF_TYPE_BF16,
                                          GGUF_TYPE_Q8_0,
                                          GGUF_TYPE_Q4_K,
                                          GGUF_TYPE_Q5_K,
                                          GGUF_TYPE_Q6_K};
    enum { ROWS = 33, N = 17 };
    static const uint32_t at_once[] = {2, 8, 16};
    float bias[N], out[ROWS * N] = {0}, before[ROWS * N], alone[ROWS * N];
    for (int j = 0; j < N; j++)
        bias[j] = 1e-40f * (float)(j + 1);
    for (size_t i = 0; i < COUNT(isas) * COUNT(some); i++) {
        struct linear_case c = make_halves(some[i % COUNT(some)], 256, N, ROWS);
        c.kernels = cpu_kernels_select(isas[i / COUNT(some)]);
        c.bias = bias;
        memset((uint8_t *)(uintptr_t)c.w.data, 0, c.w.n_bytes);
        pack_halves(&c);
        for (int add = 0; add < 2; add++) {
            memcpy(before, out, sizeof out); /* what is added to */
            run_linear(&c, 0, ROWS, ACT_TILE, add, out);
            for (size_t a = 0; a < COUNT(at_once); a++) {
                memcpy(alone, before, sizeof out);
                run_linear(&c, 0, 1, 1, add, alone);
                for (uint32_t r = 1; r < ROWS; r += at_once[a])
                    run_linear(&c, r, at_once[a], ACT_TILE, add, alone);
                assert_memory_equal(alone, out, sizeof out);
            }
        }
        free_halves(&c);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(subnormal_halves_are_exact),
        cmocka_unit_test(groups_of_panels_are_exact),
        cmocka_unit_test(large_activations_stay_finite),
        cmocka_unit_test(large_activations_meet_q8_0),
        cmocka_unit_test(subnormal_sums_do_not_depend_on_rows),
    };
    return cmocka_run_group_tests(tests, start, NULL);
}
