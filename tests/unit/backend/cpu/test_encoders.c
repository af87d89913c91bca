/* Encoders, and what comes out of a model beside logits: against a pass written elsewhere
 * (tests/golden/make_encoders.py), against the oracle, and with the same bits in any company. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "base/mem.h"
#include "oracle/oracle.h"
#include "unit/backend/cpu/golden.h"

#include <math.h>

static const char *const isas[] = {"reference", "avx2", "avx-vnni", "avx512", "avx512-bf16", "amx"};
static const struct {
    const char *name;
    uint32_t second; /* as the file's description has it */
} encoders[] = {{"bert", 0},
                {"bert-rank", 31},
                {"nomic-bert", 0},
                {"gemma-embedding", 0},
                {"nomic-bert-moe", 0},
                {"jina-bert-v2", 0},
                {"jina-bert-v2-code", 0},
                {"jina-bert-v2-rank", 31},
                {"jina-bert-v3", 0},
                {"llama-embed", 0},
                {"eurobert", 0},
                {"neo-bert", 0},
                {"modern-bert", 0},
                {"modern-bert-silu", 0}};

#define LONG 1300

/* One text of a batch. */
struct text {
    const int32_t *tokens;
    uint32_t n, second;
};

/* Run texts whole, in one batch, and copy the hidden states of all rows, and scores of the first
 * text's first row, out. tables: [n][blocks] */
static void run_texts(struct backend *b,
                      const struct model *m,
                      const struct text *texts,
                      uint32_t n,
                      uint32_t *const *tables,
                      float *const *out,
                      float *score)
{
    static struct made step;
    float *logits;
    struct err_info e;
    made_begin(&step);
    for (uint32_t i = 0; i < n; i++) {
        const struct batch_seq seq = {
            .n_rows = texts[i].n, .blocks = tables[i], .second = texts[i].second};
        made_add(&step, seq, texts[i].tokens);
    }
    step.batch.n_hidden_rows = made_want_all(&step);
    if (b->ops->run(b, &step.batch, &logits, &e) != OK)
        fail_msg("%s", e.text);
    for (uint32_t i = 0, r = 0; i < n; i++) {
        for (uint32_t p = 0; p < texts[i].n; p++, r++)
            memcpy(out[i] + (size_t)p * m->hp.n_embd,
                   b->ops->hidden(b, BUF_HIDDEN, r),
                   m->hp.n_embd * sizeof(float));
    }
    if (score)
        *score = *b->ops->hidden(b, BUF_SCORES, 0);
}

static void encoders_match(void **state)
{
    (void)state;
    for (size_t a = 0; a < COUNT(encoders); a++) {
        char name[64];
        snprintf(name, sizeof name, "encoders/%s.f32", encoders[a].name);
        struct model *m = load_golden(name);
        const size_t n = (size_t)N_PROMPT * m->hp.n_embd;
        float *file = mem_alloc(n * sizeof *file), *oracle = mem_alloc(n * sizeof *oracle);
        float *got = mem_alloc(n * sizeof *got), want_score = 0, score = 0;
        read_floats(name, "hidden", file, n);
        oracle_run(m, golden_prompt, N_PROMPT, BUF_HIDDEN, oracle);
        if (m->hp.n_labels)
            read_floats(name, "scores", &want_score, 1);
        for (size_t i = 0; i < COUNT(isas); i++) {
            struct drive d;
            drive_open(&d, m, isas[i], KV_F32, 2, 16, 0);
            uint32_t *table = d.tables[0];
            const struct text whole = {golden_prompt, N_PROMPT, encoders[a].second};
            run_texts(d.b, m, &whole, 1, &table, &got, m->hp.n_labels ? &score : NULL);
            const double to_file = nmse(got, file, n);
            print_message("%-11s %-11s nmse to the file %.1e", encoders[a].name, isas[i], to_file);
            assert_true(to_file < 1e-11);
            assert_true(fabsf(score - want_score) < 1e-5f);
            const struct text one_type = {golden_prompt, N_PROMPT, 0};
            run_texts(d.b, m, &one_type, 1, &table, &got, NULL);
            print_message(", to the oracle %.1e\n", nmse(got, oracle, n));
            assert_true(nmse(got, oracle, n) < 1e-11);
            drive_close(&d);
        }
        free(file);
        free(oracle);
        free(got);
        model_destroy(m);
    }
}

/* Two texts together and each alone, in other blocks and on other threads. */
static void check_company(const char *name, const char *isa, enum kv_type kv)
{
    struct model *m = load_golden(name);
    int32_t other[N_PROMPT];
    for (uint32_t i = 0; i < N_PROMPT; i++)
        other[i] = golden_prompt[(i * 11 + 5) % N_PROMPT];
    const size_t bytes = (size_t)N_PROMPT * m->hp.n_embd * sizeof(float);
    float *out[6];
    for (int i = 0; i < 6; i++)
        out[i] = mem_zalloc(1, bytes);
    struct drive a, b;
    drive_open(&a, m, isa, kv, 1, 16, 0);
    drive_open(&b, m, isa, kv, 3, 16, 5);
    const struct text texts[] = {{other, 9, 0}, {golden_prompt, N_PROMPT, 0}, {other, 33, 4}};
    for (int i = 0; i < 3; i++) {
        uint32_t *table = a.tables[i];
        run_texts(a.b, m, &texts[i], 1, &table, &out[i], NULL);
    }
    uint32_t *tables[] = {b.tables[1], b.tables[0], b.tables[2]};
    run_texts(b.b, m, texts, 3, tables, out + 3, NULL);
    for (int i = 0; i < 3; i++)
        assert_memory_equal(out[i], out[i + 3], bytes);
    drive_close(&a);
    drive_close(&b);
    for (int i = 0; i < 6; i++)
        free(out[i]);
    model_destroy(m);
}

static void bits_do_not_depend_on_company(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT(isas); i++) {
        for (int kv = KV_F32; kv <= KV_Q8_0; kv++)
            check_company("encoders/bert.f32", isas[i], (enum kv_type)kv);
        check_company("encoders/nomic-bert.f32", isas[i], KV_F32);
        check_company("encoders/gemma-embedding.f32", isas[i], KV_F16);
        check_company("encoders/jina-bert-v2.f32", isas[i], KV_Q8_0);
        check_company("encoders/modern-bert.f32", isas[i], KV_BF16);
    }
}

/* A text of several ranges, split between workers or not. */
static void bits_do_not_depend_on_ranges(void **state)
{
    (void)state;
    struct model *m = load_golden("encoders/nomic-bert.f32");
    const size_t n = (size_t)LONG * m->hp.n_embd;
    float *got = mem_alloc(n * sizeof *got), *want = mem_alloc(n * sizeof *want);
    int32_t *tokens = mem_alloc(LONG * sizeof *tokens);
    uint32_t *table = mem_alloc(LONG / 16 * sizeof *table + sizeof *table);
    for (uint32_t i = 0; i < LONG; i++)
        tokens[i] = golden_prompt[i * 7 % N_PROMPT];
    for (uint32_t i = 0; i <= LONG / 16; i++)
        table[i] = i;
    setenv("WEIR_ISA", "", 1);
    for (uint32_t threads = 1; threads < 30; threads += 7) {
        struct backend_config cfg = {.n_threads = threads,
                                     .kv_type = KV_F32,
                                     .n_blocks = LONG / 16 + 1,
                                     .block_tokens = 16,
                                     .max_rows = LONG,
                                     .max_seqs = 1,
                                     .max_logit_rows = 1};
        struct backend *b;
        struct err_info e;
        assert_int_equal(cpu_backend_create(m, &cfg, &b, &e), OK);
        const struct text text = {tokens, LONG, 0};
        run_texts(b, m, &text, 1, &table, threads == 1 ? &want : &got, NULL);
        b->ops->destroy(b);
        if (threads > 1)
            assert_memory_equal(got, want, n * sizeof *got);
    }
    free(got);
    free(want);
    free(tokens);
    free(table);
    model_destroy(m);
}

/* Hidden states of a model that generates: right, in chunks too, and beside logits that do not
 * notice. */
static void decoders_have_hidden_states(void **state)
{
    (void)state;
    struct model *m = load_golden("architectures/qwen3.f32");
    const uint32_t n_embd = m->hp.n_embd;
    float *want = mem_alloc((size_t)N_PROMPT * n_embd * sizeof *want), *logits, *plain;
    oracle_run(m, golden_prompt, N_PROMPT, BUF_HIDDEN, want);
    struct drive d;
    drive_open(&d, m, "", KV_F32, 2, 16, 0);
    plain = mem_alloc((size_t)N_PROMPT * d.n_vocab * sizeof *plain);
    const int32_t *tokens = golden_prompt;
    drive_run(&d, &(struct part){0, 0, N_PROMPT}, 1, &tokens, &plain);
    uint32_t positions[N_PROMPT];
    for (uint32_t i = 0; i < N_PROMPT; i++)
        positions[i] = i;
    for (uint32_t first = 0; first < N_PROMPT; first += 35) {
        struct batch_seq seq = {.n_rows = 35, .first_pos = first, .blocks = d.tables[0]};
        const uint32_t rows[] = {0, 7, 34}, logit_row = 34;
        struct batch batch = {
            35, golden_prompt + first, positions + first, 1, &seq, 1, &logit_row, 3, rows};
        assert_int_equal(d.b->ops->run(d.b, &batch, &logits, NULL), OK);
        assert_memory_equal(
            logits, plain + (size_t)(first + 34) * d.n_vocab, d.n_vocab * sizeof *logits);
        for (uint32_t i = 0; i < 3; i++) {
            const float *got = d.b->ops->hidden(d.b, BUF_HIDDEN, i);
            assert_true(nmse(got, want + (size_t)(first + rows[i]) * n_embd, n_embd) < 1e-10);
        }
    }
    drive_close(&d);
    free(want);
    free(plain);
    model_destroy(m);
}

static void encoders_have_no_logits(void **state)
{
    (void)state;
    struct model *m = load_golden("encoders/bert.f32");
    struct drive d;
    drive_open(&d, m, "", KV_F32, 1, 16, 0);
    const int32_t token = 2;
    const uint32_t zero = 0;
    struct batch_seq seq = {.n_rows = 1, .blocks = d.tables[0]};
    struct batch batch = {1, &token, &zero, 1, &seq, 1, &zero, 0, NULL};
    float *logits;
    struct err_info e;
    assert_int_equal(d.b->ops->run(d.b, &batch, &logits, &e), ERR_INTERNAL);
    drive_close(&d);
    model_destroy(m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(encoders_match),
        cmocka_unit_test(bits_do_not_depend_on_company),
        cmocka_unit_test(bits_do_not_depend_on_ranges),
        cmocka_unit_test(decoders_have_hidden_states),
        cmocka_unit_test(encoders_have_no_logits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
