/* What tests of whole models share: what is known of their logits, and plans of steps over which
 * these must not change. Needs cmocka.h first. */
#ifndef WEIR_TESTS_CPU_GOLDEN_H
#define WEIR_TESTS_CPU_GOLDEN_H

#include "base/mem.h"
#include "unit/backend/cpu/drive.h"

#define COUNT(a) (sizeof(a) / sizeof(a)[0])

/* The limit: 1.1 times how far llama.cpp lands from the exact logits. */
static const struct {
    const char *name;
    double limit;
} quantised[] = {
    {"quantised/llama.F16", 1.6479e-07},       {"quantised/llama.BF16", 1.0591e-05},
    {"quantised/llama.Q8_0", 1.4318e-04},      {"quantised/llama.Q4_0", 1.4584e-04},
    {"quantised/llama.Q4_1", 1.5164e-04},      {"quantised/llama.Q5_0", 1.4670e-04},
    {"quantised/llama.Q5_1", 1.4643e-04},      {"quantised/llama.Q2_K", 3.0067e-04},
    {"quantised/llama.Q3_K_M", 2.6545e-04},    {"quantised/llama.Q4_K_M", 2.8527e-04},
    {"quantised/llama.Q5_K_M", 2.9306e-04},    {"quantised/llama.Q6_K", 3.0544e-04},
    {"quantised/llama.IQ4_NL", 1.4200e-04},    {"quantised/llama.IQ4_XS", 2.9246e-04},
    {"quantised/llama.MXFP4_MOE", 1.4263e-04}, {"grids/llama.IQ1_M", 3.7703e-04},
    {"grids/llama.IQ2_XS", 3.3724e-04},        {"grids/llama.IQ2_M", 2.9646e-04},
    {"grids/llama.IQ3_XXS", 2.7938e-04},       {"grids/llama.TQ1_0", 4.3092e-04},
    {"variants/qwen3moe-nvfp4", 8.4150e-04},
};

/* Of tests/data/golden/NAME.KIND. */
static inline void read_floats(const char *name, const char *kind, float *out, size_t n)
{
    char path[512];
    snprintf(path, sizeof path, "%s/golden/%s.%s", TEST_DATA, name, kind);
    FILE *f = fopen(path, "rb");
    assert_non_null(f);
    assert_int_equal(fread(out, sizeof *out, n, f), n);
    fclose(f);
}

/* The rows that were computed elsewhere. */
static inline double nmse_of_file(const char *name, const float *logits, uint32_t n_vocab)
{
    const size_t n = n_vocab * COUNT(golden_rows);
    float *want = mem_alloc(n * sizeof *want), *got = mem_alloc(n * sizeof *got);
    read_floats(name, "logits", want, n);
    for (uint32_t i = 0; i < COUNT(golden_rows); i++)
        memcpy(got + (size_t)i * n_vocab,
               logits + (size_t)golden_rows[i] * n_vocab,
               n_vocab * sizeof *got);
    const double r = nmse(got, want, n);
    free(want);
    free(got);
    return r;
}

/* All logits of the golden prompt in one batch. */
static inline float *whole_prompt(struct drive *d)
{
    float *out = mem_zalloc((size_t)N_PROMPT * d->n_vocab, sizeof *out);
    const int32_t *tokens = golden_prompt;
    drive_run(d, &(struct part){0, 0, N_PROMPT}, 1, &tokens, &out);
    return out;
}

/* Three sequences in uneven chunks, mixed with each other, with other blocks. */
static inline void mixed_runs(struct drive *d, const int32_t *const *tokens, float *const *out)
{
    static const struct part plan[][3] = {
        {{0, 0, 1}, {1, 0, 33}, {2, 0, 7}},
        {{2, 7, 1}, {0, 1, 16}, {1, 33, 1}},
        {{1, 34, 2}, {2, 8, 40}, {0, 17, 1}},
        {{0, 18, 29}, {2, 48, 1}, {1, 36, 34}},
        {{2, 49, 21}, {0, 47, 23}, {0, 0, 0}},
    };
    for (size_t i = 0; i < COUNT(plan); i++) {
        const int32_t *t[3];
        float *o[3];
        uint32_t n = 0;
        for (; n < 3 && plan[i][n].n; n++) {
            t[n] = tokens[plan[i][n].seq];
            o[n] = out[plan[i][n].seq];
        }
        drive_run(d, plan[i], n, t, o);
    }
}

#endif
