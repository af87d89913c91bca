/* Same request, same answer: bit for bit, whatever else runs, however the prompt is cut into
 * chunks, with any number of threads; greedy and seeded; for every KV type and every set of
 * kernels.
 *
 * Each case is run once alone in an engine of its own, on one thread, in chunks as large as the
 * step's budget allows; then in the company and under the settings that must not matter. Compared
 * are ids and the bits of log-probabilities with ten alternatives a token. */
#include "few.h"
#include "invariance/cases.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The same cases with N_MATES others, in an engine with these settings. */
static void run_together(const char *path,
                         const struct test_case *cases,
                         const struct buf *want,
                         const struct engine_config *cfg)
{
    struct harness h;
    struct request *rs[N_CASES + N_MATES];
    harness_open(&h, path, cfg);
    for (uint32_t i = 0; i < N_CASES + N_MATES; i++) /* cases spread among their mates */
        rs[i] = i % 6 == 0 && i / 6 < N_CASES ? make_request(&h, &cases[i / 6]) : make_mate(&h, 50);
    harness_run(&h, rs, N_CASES + N_MATES);
    for (uint32_t i = 0; i < N_CASES; i++) {
        struct buf got = {0};
        harness_record(rs[i * 6], N_TOP, &got);
        if (got.len != want[i].len || memcmp(got.data, want[i].data, got.len) != 0)
            fail_msg("case %u differs: threads %u, batch tokens %u, KV %s",
                     i,
                     cfg->n_threads,
                     cfg->batch_tokens,
                     kv_type_name(cfg->kv_type));
        buf_deinit(&got);
    }
    struct engine_stats st;
    engine_stats_get(h.engine, &st);
    assert_int_equal(st.step_allocations, 0);
    assert_true(st.steps > 0);
    for (uint32_t i = 0; i < N_CASES + N_MATES; i++)
        drop_request(rs[i]);
    harness_close(&h);
}

static void check_model(const char *path, enum kv_type kv)
{
    static const uint32_t chunks[] = {1, 7, 16, 40, 512};
    static uint32_t n_models, n_checked;
    if (few_leave_out(n_models++, 2))
        return;
    struct test_case cases[N_CASES] = {0};
    struct buf want[N_CASES] = {{0}};
    struct harness h;
    struct engine_config cfg = make_config(1, 512, kv);
    harness_open(&h, path, &cfg);
    for (uint32_t i = 0; i < N_CASES; i++)
        make_case(&cases[i], i, h.model->hp.n_vocab);
    harness_close(&h);
    for (uint32_t i = 0; i < N_CASES; i++)
        run_alone(path, &cases[i], kv, &want[i]);
    for (uint32_t i = 0; i < sizeof chunks / sizeof chunks[0]; i++) {
        if (few_leave_out(n_checked++, 3))
            continue;
        cfg = make_config(1 + (few_shapes() ? n_checked / 3 : i) % 3, chunks[i], kv);
        run_together(path, cases, want, &cfg);
    }
    for (uint32_t i = 0; i < N_CASES; i++)
        buf_deinit(&want[i]);
}

static void test_quantised(void **state)
{
    (void)state;
    check_model(TEST_DATA "/golden/quantised/llama.Q8_0.gguf", KV_F16);
    check_model(TEST_DATA "/golden/quantised/llama.Q4_0.gguf", KV_F32);
    check_model(TEST_DATA "/golden/quantised/llama.Q4_K_M.gguf", KV_BF16);
    check_model(TEST_DATA "/golden/quantised/llama.Q6_K.gguf", KV_Q8_0);
    check_model(TEST_DATA "/golden/quantised/llama.Q2_K.gguf", KV_F16);
    check_model(TEST_DATA "/golden/quantised/llama.Q3_K_M.gguf", KV_F32);
    check_model(TEST_DATA "/golden/quantised/llama.Q5_K_M.gguf", KV_BF16);
    check_model(TEST_DATA "/golden/quantised/llama.IQ4_XS.gguf", KV_F16);
    check_model(TEST_DATA "/golden/quantised/llama.MXFP4_MOE.gguf", KV_F32);
    check_model(TEST_DATA "/golden/variants/qwen3moe-nvfp4.gguf", KV_F16);
}

/* Points of grids and digits to the base of three. */
static void test_grids(void **state)
{
    (void)state;
    check_model(TEST_DATA "/golden/grids/llama.IQ1_M.gguf", KV_F16);
    check_model(TEST_DATA "/golden/grids/llama.IQ3_XXS.gguf", KV_F32);
    check_model(TEST_DATA "/golden/grids/llama.TQ1_0.gguf", KV_BF16);
}

static void test_floats(void **state)
{
    (void)state;
    check_model(TEST_DATA "/golden/quantised/llama.F16.gguf", KV_F16);
    check_model(TEST_DATA "/golden/quantised/llama.BF16.gguf", KV_Q8_0);
    check_model(TEST_DATA "/golden/architectures/qwen3.f32.gguf", KV_F32);
    check_model(TEST_DATA "/golden/architectures/qwen2.f32.gguf", KV_F16);
}

/* Experts, whose rows are placed by company; windows, caps and sinks. */
static void test_architectures(void **state)
{
    (void)state;
    check_model(TEST_DATA "/golden/architectures/qwen3moe.f32.gguf", KV_F16);
    check_model(TEST_DATA "/golden/variants/qwen2moe.f32.gguf", KV_Q8_0);
    check_model(TEST_DATA "/golden/variants/gemma2.f32.gguf", KV_F16);
    check_model(TEST_DATA "/golden/variants/gpt-oss.f32.gguf", KV_BF16);
    check_model(TEST_DATA "/golden/variants/mistral.f32.gguf", KV_F32);
    check_model(TEST_DATA "/golden/families/deci.f32.gguf", KV_F16);
    check_model(TEST_DATA "/golden/families/openelm.f32.gguf", KV_Q8_0);
    check_model(TEST_DATA "/golden/families/cohere2.f32.gguf", KV_F16);
    check_model(TEST_DATA "/golden/families/gptneox.f32.gguf", KV_BF16);
    check_model(TEST_DATA "/golden/families/deepseek2-v3.f32.gguf", KV_F32);
    check_model(TEST_DATA "/golden/families/deepseek2-lite.f32.gguf", KV_Q8_0);
    check_model(TEST_DATA "/golden/families/llama4.f32.gguf", KV_F16);
    check_model(TEST_DATA "/golden/families/bailingmoe2.f32.gguf", KV_BF16);
    check_model(TEST_DATA "/golden/families/gemma3n.f32.gguf", KV_BF16);
    check_model(TEST_DATA "/golden/families/gemma4.f32.gguf", KV_F16);
    check_model(TEST_DATA "/golden/families/gemma4-moe.f32.gguf", KV_Q8_0);
    check_model(TEST_DATA "/golden/families/afmoe.f32.gguf", KV_F16);
    check_model(TEST_DATA "/golden/families/apertus.f32.gguf", KV_BF16);
    check_model(TEST_DATA "/golden/families/laguna.f32.gguf", KV_F16);
    check_model(TEST_DATA "/golden/families/step35.f32.gguf", KV_Q8_0);
    check_model(TEST_DATA "/golden/families/mimo2.f32.gguf", KV_F16);
    check_model(TEST_DATA "/golden/families/phimoe.f32.gguf", KV_F16);
    check_model(TEST_DATA "/golden/families/nanbeige.f32.gguf", KV_F16);
    check_model(TEST_DATA "/golden/families/talkie.f32.gguf", KV_F16);
    check_model(TEST_DATA "/golden/families/minimax-m3.f32.gguf", KV_F16);
    check_model(TEST_DATA "/golden/families/maple.f32.gguf", KV_Q8_0);
    check_model(TEST_DATA "/golden/families/hy_v4.f32.gguf", KV_F16);
    check_model(TEST_DATA "/golden/families/hrm_text.f32.gguf", KV_Q8_0);
    check_model(TEST_DATA "/golden/families/plamo3.f32.gguf", KV_BF16);
    check_model(TEST_DATA "/golden/families/bloom.f32.gguf", KV_F16);
    check_model(TEST_DATA "/golden/families/mpt.f32.gguf", KV_Q8_0);
}

/* Rows of one sequence after one another, whoever has rows in between. */
static void test_recurrent(void **state)
{
    (void)state;
    check_model(TEST_DATA "/golden/recurrent/lfm2.f32.gguf", KV_F16);
    check_model(TEST_DATA "/golden/recurrent/lfm2moe.f32.gguf", KV_F32);
    check_model(TEST_DATA "/golden/recurrent/qwen35.f32.gguf", KV_F16);
    check_model(TEST_DATA "/golden/recurrent/qwen3next.f32.gguf", KV_Q8_0);
    check_model(TEST_DATA "/golden/recurrent/granitehybrid.f32.gguf", KV_BF16);
    check_model(TEST_DATA "/golden/recurrent/nemotron_h.f32.gguf", KV_F16);
    check_model(TEST_DATA "/golden/recurrent/nemotron_h_moe-latent.f32.gguf", KV_BF16);
    check_model(TEST_DATA "/golden/recurrent/nemotron_h_moe-puzzle.f32.gguf", KV_F16);
    check_model(TEST_DATA "/golden/recurrent/falcon-h1.f32.gguf", KV_F16);
}

static void test_reference_kernels(void **state)
{
    (void)state;
    setenv("WEIR_ISA", "reference", 1);
    check_model(TEST_DATA "/golden/quantised/llama.Q8_0.gguf", KV_F16);
    setenv("WEIR_ISA", "avx2", 1);
    check_model(TEST_DATA "/golden/quantised/llama.Q8_0.gguf", KV_F16);
    unsetenv("WEIR_ISA");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_quantised),
        cmocka_unit_test(test_grids),
        cmocka_unit_test(test_floats),
        cmocka_unit_test(test_architectures),
        cmocka_unit_test(test_recurrent),
        cmocka_unit_test(test_reference_kernels),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
