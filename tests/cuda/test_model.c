/* Whole models on a device, or its emulation, against other engines' logits and the oracle. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "cuda/models.h"
#include "few.h"
#include "oracle/oracle.h"

#include <math.h>

static const char *const architectures[] = {"architectures/llama",
                                            "architectures/llama3",
                                            "architectures/qwen2",
                                            "architectures/qwen3",
                                            "architectures/qwen3moe",
                                            "architectures/gemma3",
                                            "architectures/phi3",
                                            "architectures/olmo2",
                                            "architectures/granite",
                                            "variants/gemma2",
                                            "variants/gemma3-linear",
                                            "variants/qwen2moe",
                                            "variants/mixtral",
                                            "variants/mistral",
                                            "variants/granitemoe",
                                            "variants/smollm3",
                                            "variants/gpt-oss",
                                            "variants/phi3-long",
                                            "variants/phi3-short",
                                            "variants/llama-yarn",
                                            "variants/llama-linear",
                                            "variants/olmo3",
                                            "families/gpt2",
                                            "families/nemotron",
                                            "families/olmo",
                                            "families/deci",
                                            "families/llama-by-layer",
                                            "families/phi2",
                                            "families/cohere2",
                                            "families/hunyuan-dense",
                                            "families/falcon",
                                            "families/openelm",
                                            "families/minicpm-first",
                                            "families/chatglm",
                                            "families/command-r-plus",
                                            "families/stablelm-12b",
                                            "families/llama4",
                                            "families/deepseek2-lite",
                                            "families/deepseek2-v3",
                                            "families/glm-dsa",
                                            "families/gemma3n",
                                            "families/hy_v4",
                                            "families/hrm_text",
                                            "families/gemma4",
                                            "families/gemma4-moe",
                                            "families/apertus",
                                            "families/afmoe",
                                            "families/mistral4",
                                            "families/laguna",
                                            "families/laguna-values",
                                            "families/step35",
                                            "families/mimo2",
                                            "families/mimo2-fused",
                                            "families/dbrx",
                                            "families/olmo-clamped",
                                            "families/minicpm3",
                                            "families/mpt",
                                            "families/bloom",
                                            "families/jais",
                                            "families/refact",
                                            "families/baichuan-13b",
                                            "families/baichuan",
                                            "families/jais2",
                                            "recurrent/lfm2",
                                            "recurrent/granitehybrid",
                                            "recurrent/lfm2moe",
                                            "recurrent/qwen35",
                                            "recurrent/qwen35moe",
                                            "recurrent/qwen3next",
                                            "recurrent/mamba2",
                                            "recurrent/falcon-h1",
                                            "recurrent/nemotron_h",
                                            "recurrent/mamba",
                                            "recurrent/falcon-mamba",
                                            "recurrent/jamba",
                                            "recurrent/rwkv6",
                                            "recurrent/rwkv6-small",
                                            "recurrent/rwkv7",
                                            "recurrent/rwkv7-small",
                                            "recurrent/rwkv6qwen2",
                                            "recurrent/rwkv6qwen2-small",
                                            "recurrent/arwkv7",
                                            "recurrent/arwkv7-bare",
                                            "recurrent/nemotron_h_moe",
                                            "recurrent/kimi-linear",
                                            "recurrent/kimi-linear-fused",
                                            "recurrent/kimi-k3",
                                            "recurrent/kimi-k3-plain",
                                            "recurrent/minimax-01",
                                            "recurrent/minimax-01-listed",
                                            "recurrent/plamo2",
                                            "recurrent/plamo2-last"};
static const struct {
    const char *name;
    uint32_t second; /* as the file's description has it */
} encoders[] = {{"bert", 0},
                {"bert-rank", 31},
                {"nomic-bert", 0},
                {"nomic-bert-moe", 0},
                {"gemma-embedding", 0},
                {"jina-bert-v2", 0},
                {"jina-bert-v2-code", 0},
                {"jina-bert-v2-rank", 31},
                {"modern-bert", 0}};

static void architectures_match(void **state)
{
    (void)state;
    for (size_t a = 0; a < COUNT(architectures); a++) {
        char name[64];
        if (is_left_out(architectures[a]))
            continue;
        snprintf(name, sizeof name, "%s.f32", architectures[a]);
        struct model *m = load_golden(name);
        float *want = mem_alloc((size_t)N_PROMPT * m->hp.n_vocab * sizeof *want);
        oracle_logits(m, golden_prompt, N_PROMPT, want);
        struct drive d;
        on_cuda(&d, m, KV_F32, 0);
        float *got = whole_prompt(&d);
        const double oracle = nmse(got, want, (size_t)N_PROMPT * d.n_vocab);
        const double file = nmse_of_file(name, got, d.n_vocab);
        print_message("%-24s nmse %.1e, to the file %.1e\n", name, oracle, file);
        assert_true(oracle < 1e-10);
        assert_true(file < 1e-9);
        free(got);
        drive_close(&d);
        free(want);
        model_destroy(m);
    }
}

/* How far the golden prompt's logits are from the file's. */
static double golden_error(const char *name, const struct model *m, enum kv_type kv)
{
    struct drive d;
    on_cuda(&d, m, kv, 0);
    float *got = whole_prompt(&d);
    const double r = nmse_of_file(name, got, d.n_vocab);
    free(got);
    drive_close(&d);
    return r;
}

/* The limits are of KV in f32; in f16 its own rounding comes on top, which weights of 16 bits show.
 * Once with wgmma, and once without: to look whether it may be used takes as long as the prompt. */
static void quantised_match(void **state)
{
    int bad = 0;
    (void)state;
    for (size_t q = 0; q < COUNT(quantised); q++) {
        const char *name = quantised[q].name;
        if (is_left_out(name))
            continue;
        struct model *m = load_golden(name);
        const double f32 = few_leave_out(q, 2) ? 0 : golden_error(name, m, KV_F32);
        setenv("WEIR_CUDA_WGMMA", "0", 1);
        const double f16 = golden_error(name, m, KV_F16);
        unsetenv("WEIR_CUDA_WGMMA");
        print_message(
            "%-24s nmse %.2e, kv f16 %.2e, of %.2e\n", name, f32, f16, quantised[q].limit);
        bad += !(f32 < quantised[q].limit && f16 < quantised[q].limit + 1e-7);
        model_destroy(m);
    }
    assert_int_equal(bad, 0);
}

static void kv_types_match(void **state)
{
    (void)state;
    static const double limit[] = {
        [KV_F32] = 1e-10, [KV_F16] = 1e-6, [KV_BF16] = 2e-5, [KV_Q8_0] = 3e-4};
    struct model *m = load_golden("architectures/qwen3.f32");
    float *want = mem_alloc((size_t)N_PROMPT * m->hp.n_vocab * sizeof *want);
    oracle_logits(m, golden_prompt, N_PROMPT, want);
    static const struct {
        enum kv_type kv;
        uint32_t block_tokens;
    } cases[] = {{KV_F32, 36}, {KV_F16, 8}, {KV_F16, 64}, {KV_BF16, 36}, {KV_Q8_0, 8}};
    for (size_t i = 0; i < COUNT(cases); i++) { /* test_attention.cpp has all kinds of blocks */
        if (few_leave_out(i, 2))
            continue;
        const enum kv_type kv = cases[i].kv;
        struct drive d;
        drive_open_on(&d, m, cuda_backend_create, kv, 1, cases[i].block_tokens, 1);
        float *got = whole_prompt(&d);
        const double r = nmse(got, want, (size_t)N_PROMPT * d.n_vocab);
        print_message(
            "kv %-5s blocks of %2u: nmse %.1e\n", kv_type_name(kv), cases[i].block_tokens, r);
        assert_true(r < limit[kv]);
        free(got);
        drive_close(&d);
    }
    free(want);
    model_destroy(m);
}

/* --- encoders --- */

/* Texts whole, in one batch: hidden states of all rows of each; the first row's scores. */
static void run_texts(struct drive *d,
                      const struct model *m,
                      const uint32_t *lengths,
                      uint32_t n,
                      uint32_t second,
                      float *const *out,
                      float *score)
{
    static struct made step;
    float *logits;
    struct err_info e;
    made_begin(&step);
    for (uint32_t i = 0; i < n; i++) {
        const struct batch_seq seq = {
            .n_rows = lengths[i], .blocks = d->tables[i], .second = second};
        made_add(&step, seq, golden_prompt);
    }
    step.batch.n_hidden_rows = made_want_all(&step);
    if (d->b->ops->run(d->b, &step.batch, &logits, &e) != OK)
        fail_msg("%s", e.text);
    for (uint32_t i = 0, r = 0; i < n; i++) {
        for (uint32_t p = 0; p < lengths[i]; p++, r++)
            memcpy(out[i] + (size_t)p * m->hp.n_embd,
                   d->b->ops->hidden(d->b, BUF_HIDDEN, r),
                   m->hp.n_embd * sizeof(float));
    }
    if (score)
        *score = *d->b->ops->hidden(d->b, BUF_SCORES, 0);
}

static void encoders_match(void **state)
{
    (void)state;
    for (size_t a = 0; a < COUNT(encoders); a++) {
        if (few_leave_out(a + 1, 2))
            continue;
        char name[64];
        snprintf(name, sizeof name, "encoders/%s.f32", encoders[a].name);
        struct model *m = load_golden(name);
        const size_t n = (size_t)N_PROMPT * m->hp.n_embd;
        const uint32_t whole = N_PROMPT, three[] = {9, N_PROMPT, 33};
        float *file = mem_alloc(n * sizeof *file), *out[4], want_score = 0, score = 0;
        for (int i = 0; i < 4; i++)
            out[i] = mem_zalloc(n, sizeof(float));
        struct drive d;
        on_cuda(&d, m, KV_F32, 0);
        read_floats(name, "hidden", file, n);
        if (m->hp.n_labels)
            read_floats(name, "scores", &want_score, 1);
        run_texts(&d, m, &whole, 1, encoders[a].second, out, m->hp.n_labels ? &score : NULL);
        print_message("%-11s nmse %.1e\n", encoders[a].name, nmse(out[0], file, n));
        assert_true(nmse(out[0], file, n) < 1e-10);
        assert_true(fabsf(score - want_score) < 1e-4f);
        run_texts(&d, m, three, 3, encoders[a].second, out + 1, NULL); /* in company */
        assert_memory_equal(out[0], out[2], n * sizeof(float));
        drive_close(&d);
        free(file);
        for (int i = 0; i < 4; i++)
            free(out[i]);
        model_destroy(m);
    }
}

/* What no kernel computes is said before anything is taken. */
static void refusals_are_one_line(void **state)
{
    (void)state;
    struct model *m = load_golden("architectures/llama.f32");
    const struct backend_config cfg = {.n_blocks = 4,
                                       .block_tokens = 16,
                                       .max_rows = 4,
                                       .max_seqs = 1,
                                       .max_logit_rows = 1,
                                       .kv_type = KV_F16};
    for (uint32_t i = 0; i < m->n_ops; i++)
        m->ops[i].head_dim = m->ops[i].kind == OP_ATTENTION ? 520 : m->ops[i].head_dim;
    struct backend *b;
    struct err_info e;
    assert_int_equal(cuda_backend_create(m, &cfg, &b, &e), ERR_UNSUPPORTED);
    assert_null(b);
    assert_non_null(strstr(e.text, "heads of 520 values"));
    assert_null(strchr(e.text, '\n'));
    model_destroy(m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(refusals_are_one_line),
        cmocka_unit_test(architectures_match),
        cmocka_unit_test(quantised_match),
        cmocka_unit_test(kv_types_match),
        cmocka_unit_test(encoders_match),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
