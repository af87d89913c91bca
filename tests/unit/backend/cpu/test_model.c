/* Whole models: against the oracle, against other engines' logits, and rule one of a backend: the
 * same bits for every chunking, batch, block table and number of threads. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "backend/cpu/cpu.h"
#include "base/mem.h"
#include "few.h"
#include "oracle/oracle.h"
#include "unit/backend/cpu/golden.h"

static const char *const isas[] = {"reference", "avx2", "avx-vnni", "avx512", "avx512-bf16", "amx"};
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
                                            "families/deci",
                                            "families/openelm",
                                            "families/gptneox",
                                            "families/falcon-large",
                                            "families/cohere2",
                                            "families/olmo",
                                            "families/hunyuan-dense",
                                            "families/nemotron",
                                            "families/gpt2",
                                            "families/deepseek",
                                            "families/minicpm",
                                            "families/gemma4",
                                            "families/gemma4-moe",
                                            "families/apertus",
                                            "families/afmoe",
                                            "families/laguna",
                                            "families/laguna-values",
                                            "families/step35",
                                            "families/mimo2",
                                            "families/mimo2-fused",
                                            "families/minicpm3",
                                            "families/dbrx",
                                            "families/qwen",
                                            "families/gemma3n",
                                            "families/deepseek32",
                                            "families/glm-dsa",
                                            "recurrent/lfm2",
                                            "recurrent/lfm2moe",
                                            "recurrent/qwen35",
                                            "recurrent/qwen35moe",
                                            "recurrent/qwen3next",
                                            "recurrent/granitehybrid",
                                            "recurrent/falcon-h1",
                                            "recurrent/nemotron_h",
                                            "recurrent/granitehybrid-dense",
                                            "recurrent/mamba2",
                                            "recurrent/mamba",
                                            "recurrent/falcon-mamba",
                                            "recurrent/jamba",
                                            "recurrent/jamba-dense",
                                            "recurrent/rwkv6",
                                            "recurrent/rwkv6-small",
                                            "recurrent/rwkv7",
                                            "recurrent/rwkv7-small",
                                            "recurrent/rwkv6qwen2",
                                            "recurrent/rwkv6qwen2-small",
                                            "recurrent/arwkv7",
                                            "recurrent/arwkv7-bare",
                                            "recurrent/nemotron_h_moe",
                                            "families/mellum",
                                            "families/granite_swa",
                                            "families/bloom",
                                            "families/refact",
                                            "families/phimoe",
                                            "families/muse-glimmer",
                                            "families/spark2_5",
                                            "families/nanbeige",
                                            "families/hunyuan_vl",
                                            "families/talkie",
                                            "families/minimax-m3",
                                            "families/maple",
                                            "families/plamo3",
                                            "families/plamo3-yarn",
                                            "families/arctic",
                                            "families/grok",
                                            "families/grok-2",
                                            "families/cogvlm",
                                            "families/chameleon",
                                            "families/chameleon-swin",
                                            "families/hy_v4",
                                            "families/hy_v4-whole",
                                            "families/hrm_text",
                                            "families/hrm_text-once",
                                            "recurrent/bailingmoe3",
                                            "recurrent/bailingmoe3-sections",
                                            "recurrent/nemotron_h_moe-latent",
                                            "recurrent/nemotron_h_moe-puzzle",
                                            "recurrent/kimi-linear",
                                            "recurrent/kimi-linear-fused",
                                            "recurrent/kimi-k3",
                                            "recurrent/kimi-k3-plain",
                                            "recurrent/minimax-01",
                                            "recurrent/minimax-01-listed",
                                            "recurrent/plamo2",
                                            "recurrent/plamo2-last"};

static void architectures_match(void **state)
{
    (void)state;
    for (size_t a = 0; a < COUNT(architectures); a++) {
        char name[64];
        snprintf(name, sizeof name, "%s.f32", architectures[a]);
        struct model *m = load_golden(name);
        float *want = mem_alloc((size_t)N_PROMPT * m->hp.n_vocab * sizeof *want);
        oracle_logits(m, golden_prompt, N_PROMPT, want);
        for (size_t i = 0; i < COUNT(isas); i++) {
            struct drive d;
            if (few_leave_out(a + i, 3))
                continue;
            drive_open(&d, m, isas[i], KV_F32, 2, 16, 0);
            float *got = whole_prompt(&d);
            double oracle = nmse(got, want, (size_t)N_PROMPT * d.n_vocab);
            double file = nmse_of_file(name, got, d.n_vocab);
            print_message("%-24s %-9s nmse %.1e, to the file %.1e\n", name, isas[i], oracle, file);
            assert_true(oracle < 1e-11);
            assert_true(file < 1e-9);
            free(got);
            drive_close(&d);
        }
        free(want);
        model_destroy(m);
    }
}

/* What loading made of attn_kv_b is let go once it is packed. */
static void made_matrices_are_dropped(void **state)
{
    (void)state;
    struct model *m = load_golden("families/deepseek2-lite.f32");
    struct drive d;
    assert_true(m->n_made > 0);
    drive_open(&d, m, "avx2", KV_F32, 2, 16, 0);
    model_drop_made(m);
    assert_int_equal(m->n_made, 0);
    float *got = whole_prompt(&d);
    assert_true(nmse_of_file("families/deepseek2-lite.f32", got, d.n_vocab) < 1e-9);
    free(got);
    drive_close(&d);
    model_destroy(m);
}

static void quantised_match(void **state)
{
    (void)state;
    for (size_t q = 0; q < COUNT(quantised); q++) {
        const char *name = quantised[q].name;
        struct model *m = load_golden(name);
        for (size_t i = 0; i < COUNT(isas); i++) {
            struct drive d;
            if (few_leave_out(q + i, 3))
                continue;
            drive_open(&d, m, isas[i], KV_F16, 2, 16, 0);
            float *got = whole_prompt(&d);
            double file = nmse_of_file(name, got, d.n_vocab);
            print_message(
                "%-24s %-9s nmse %.2e of %.2e\n", name, isas[i], file, quantised[q].limit);
            assert_true(file < quantised[q].limit);
            free(got);
            drive_close(&d);
        }
        model_destroy(m);
    }
}

static void check_kv_types(const char *name)
{
    static const double limit[] = {
        [KV_F32] = 1e-11, [KV_F16] = 1e-6, [KV_BF16] = 2e-5, [KV_Q8_0] = 3e-4};
    struct model *m = load_golden(name);
    float *want = mem_alloc((size_t)N_PROMPT * m->hp.n_vocab * sizeof *want);
    oracle_logits(m, golden_prompt, N_PROMPT, want);
    for (size_t i = 0; i < COUNT(isas); i++) {
        for (int kv = KV_F32; kv <= KV_Q8_0; kv++) {
            for (uint32_t block_tokens = 8; block_tokens <= 64; block_tokens += 28) {
                struct drive
                    d; /* blocks of 8, 36 and 64: smaller, crossing and larger than a tile */
                drive_open(&d, m, isas[i], (enum kv_type)kv, 2, block_tokens, 1);
                float *got = whole_prompt(&d);
                double r = nmse(got, want, (size_t)N_PROMPT * d.n_vocab);
                print_message("%s kv %-5s %-9s blocks of %2u: nmse %.1e\n",
                              name,
                              kv_type_name((enum kv_type)kv),
                              isas[i],
                              block_tokens,
                              r);
                assert_true(r < limit[kv]);
                free(got);
                drive_close(&d);
            }
        }
    }
    free(want);
    model_destroy(m);
}

static void kv_types_match(void **state)
{
    (void)state;
    check_kv_types("architectures/qwen3.f32");
    check_kv_types("families/llama-wide.f32");
}

static void check_invariance(const char *name, const char *isa, enum kv_type kv)
{
    static size_t n_checked;
    if (few_leave_out(n_checked++, 7))
        return;
    struct model *m = load_golden(name);
    int32_t other[2][N_PROMPT];
    for (uint32_t i = 0; i < N_PROMPT; i++) {
        other[0][i] = golden_prompt[N_PROMPT - 1 - i];
        other[1][i] = golden_prompt[(i * 11 + 5) % N_PROMPT];
    }
    const int32_t *tokens[3] = {golden_prompt, other[0], other[1]};
    float *alone[3], *mixed[3], *single[3];
    struct drive a, b, c;
    drive_open(&a, m, isa, kv, 1, 16, 0);
    drive_open(&b, m, isa, kv, 2, 16, 5);
    drive_open(&c, m, isa, kv, 1, 32, 2);
    const size_t n = (size_t)N_PROMPT * a.n_vocab;
    for (uint32_t s = 0; s < 3; s++) {
        alone[s] = mem_zalloc(n, sizeof(float));
        mixed[s] = mem_zalloc(n, sizeof(float));
        single[s] = mem_zalloc(n, sizeof(float));
        drive_run(&a, &(struct part){s, 0, N_PROMPT}, 1, &tokens[s], &alone[s]);
        for (uint32_t p = 0; p < N_PROMPT; p++)
            drive_run(&c, &(struct part){s, p, 1}, 1, &tokens[s], &single[s]);
    }
    mixed_runs(&b, tokens, mixed);
    int bad = 0;
    for (uint32_t s = 0; s < 3; s++) {
        bad += memcmp(alone[s], mixed[s], n * sizeof(float)) != 0;
        bad += memcmp(alone[s], single[s], n * sizeof(float)) != 0;
        free(alone[s]);
        free(mixed[s]);
        free(single[s]);
    }
    drive_close(&a);
    drive_close(&b);
    drive_close(&c);
    model_destroy(m);
    if (bad)
        print_error("%s %s kv %s: bits differ\n", name, isa, kv_type_name(kv));
    assert_int_equal(bad, 0);
}

static void bits_do_not_depend_on_company(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT(isas); i++) {
        for (size_t q = 0; q < COUNT(quantised); q++)
            check_invariance(quantised[q].name, isas[i], KV_F16);
        for (int kv = KV_F32; kv <= KV_Q8_0; kv++)
            check_invariance("architectures/qwen3.f32", isas[i], (enum kv_type)kv);
        check_invariance("architectures/qwen2.f32", isas[i], KV_F16);
        check_invariance("architectures/qwen3moe.f32", isas[i], KV_F16);
        check_invariance("architectures/gemma3.f32", isas[i], KV_Q8_0);
        for (int kv = KV_F16; kv <= KV_Q8_0; kv++) { /* so wide that a tile unit attends */
            check_invariance("families/llama-wide.f32", isas[i], (enum kv_type)kv);
            check_invariance("families/deepseek2-wide.f32", isas[i], (enum kv_type)kv);
        }
        check_invariance("variants/gemma2.f32", isas[i], KV_F16);
        check_invariance("variants/mistral.f32", isas[i], KV_F32);
        check_invariance("variants/gpt-oss.f32", isas[i], KV_BF16);
        check_invariance("variants/qwen2moe.f32", isas[i], KV_F32);
        check_invariance("recurrent/lfm2.f32", isas[i], KV_F16);
        check_invariance("recurrent/qwen35.f32", isas[i], KV_F32);
        check_invariance("recurrent/qwen3next.f32", isas[i], KV_F16);
        check_invariance("recurrent/granitehybrid.f32", isas[i], KV_F16);
        check_invariance("recurrent/falcon-h1.f32", isas[i], KV_F16);
        check_invariance("recurrent/mamba2.f32", isas[i], KV_F16);
        check_invariance("recurrent/kimi-linear.f32", isas[i], KV_F16);
        check_invariance("recurrent/kimi-k3.f32", isas[i], KV_F16);
        check_invariance("recurrent/falcon-mamba.f32", isas[i], KV_F16);
        check_invariance("recurrent/jamba.f32", isas[i], KV_F16);
        check_invariance("recurrent/rwkv6.f32", isas[i], KV_F16);
        check_invariance("recurrent/rwkv7.f32", isas[i], KV_F16);
        check_invariance("recurrent/rwkv7-small.f32", isas[i], KV_F16);
        check_invariance("recurrent/minimax-01-listed.f32", isas[i], KV_F16);
        check_invariance("recurrent/plamo2-last.f32", isas[i], KV_F16);
    }
}

/* More rows than meet all panels at once, in items of any length, on as many workers; the last
 * sequence has what is left of n_rows. */
static void check_many_rows(const char *name, const char *isa, uint32_t n_threads, uint32_t n_rows)
{
    static size_t n_checked;
    if (few_leave_out(n_checked++, 5))
        return;
    struct model *m = load_golden(name);
    int32_t texts[MAX_SEQS][N_PROMPT];
    const int32_t *tokens[MAX_SEQS];
    float *alone[MAX_SEQS], *together[MAX_SEQS];
    struct part parts[MAX_SEQS];
    struct drive a, b;
    drive_open(&a, m, isa, KV_F16, 1, 16, 0);
    drive_open(&b, m, isa, KV_F16, n_threads, 16, 3);
    const size_t n = (size_t)N_PROMPT * a.n_vocab;
    uint32_t n_parts = 0;
    for (uint32_t s = 0; s * N_PROMPT < n_rows; s++, n_parts++) {
        const uint32_t left = n_rows - s * N_PROMPT;
        for (uint32_t i = 0; i < N_PROMPT; i++)
            texts[s][i] = golden_prompt[(i * (2 * s + 1) + s) % N_PROMPT];
        tokens[s] = texts[s];
        parts[s] = (struct part){s, 0, left < N_PROMPT ? left : N_PROMPT};
        alone[s] = mem_zalloc(n, sizeof(float));
        together[s] = mem_zalloc(n, sizeof(float));
        drive_run(&a, &parts[s], 1, &tokens[s], &alone[s]);
    }
    drive_run(&b, parts, n_parts, tokens, together);
    for (uint32_t s = 0; s < n_parts; s++) {
        if (memcmp(alone[s], together[s], n * sizeof(float)) != 0)
            fail_msg("%s %s: sequence %u of %u rows differs on %u workers",
                     name,
                     isa,
                     s,
                     n_rows,
                     n_threads);
        free(alone[s]);
        free(together[s]);
    }
    drive_close(&a);
    drive_close(&b);
    model_destroy(m);
}

static void bits_do_not_depend_on_items(void **state)
{
    (void)state;
    enum { BLOCKS = 2 * LINEAR_MAX_ROWS, ALL = MAX_SEQS * N_PROMPT };
    assert_true(ALL > BLOCKS + 9);
    for (size_t i = 0; i < COUNT(isas); i++) {
        check_many_rows("quantised/llama.Q8_0", isas[i], 2, ALL);
        check_many_rows("quantised/llama.Q8_0", isas[i], 2, BLOCKS + 2);
        check_many_rows("quantised/llama.Q4_K_M", isas[i], 3, ALL);
        check_many_rows("quantised/llama.Q4_K_M", isas[i], 2, BLOCKS + 2);
        check_many_rows("quantised/llama.Q4_K_M", isas[i], 2, BLOCKS + 9);
        check_many_rows("quantised/llama.F16", isas[i], 5, ALL);
        check_many_rows("architectures/qwen3moe.f32", isas[i], 2, ALL);
    }
}

/* What is wanted of some rows of a prompt; out has room for that of all. */
static void run_wanted(struct drive *d,
                       uint32_t n_logits,
                       const uint32_t *logit_rows,
                       uint32_t n_hidden,
                       const uint32_t *hidden_rows,
                       uint32_t n_embd,
                       float *logits,
                       float *hidden)
{
    static struct made step;
    const struct batch_seq seq = {.n_rows = N_PROMPT,
                                  .blocks = d->tables[0],
                                  .panes = d->panes[0],
                                  .state_from = d->states[0],
                                  .state_to = d->states[0]};
    made_begin(&step);
    made_add(&step, seq, golden_prompt);
    step.batch.n_logit_rows = n_logits;
    step.batch.logit_rows = logit_rows;
    step.batch.n_hidden_rows = n_hidden;
    step.batch.hidden_rows = hidden_rows;
    float *made;
    assert_int_equal(d->b->ops->run(d->b, &step.batch, &made, NULL), OK);
    memcpy(logits, made, (size_t)n_logits * d->n_vocab * sizeof *made);
    for (uint32_t i = 0; i < n_hidden; i++)
        memcpy(hidden + (size_t)i * n_embd,
               d->b->ops->hidden(d->b, BUF_HIDDEN, i),
               n_embd * sizeof *hidden);
}

/* Each row with a chance of one in `one_in`; 0: none. */
static uint32_t pick_rows(uint32_t *rows, uint32_t one_in)
{
    static uint32_t state = 1;
    uint32_t n = 0;
    for (uint32_t i = 0; i < N_PROMPT && one_in; i++) {
        state = state * 1664525 + 1013904223;
        if ((state >> 16) % one_in == 0)
            rows[n++] = i;
    }
    return n;
}

static void check_picked(const char *name)
{
    static const uint32_t chances[][2] = {{1, 1}, {20, 0}, {9, 9}, {0, 0}, {0, 5}, {40, 2}};
    struct model *m = load_golden(name);
    struct drive d;
    drive_open(&d, m, "", KV_F16, 2, 16, 0);
    const uint32_t n_embd = m->buf_width[BUF_HIDDEN];
    float *logits[2], *hidden[2];
    for (int i = 0; i < 2; i++) {
        logits[i] = mem_zalloc((size_t)N_PROMPT * d.n_vocab, sizeof(float));
        hidden[i] = mem_zalloc((size_t)N_PROMPT * n_embd + 1, sizeof(float));
    }
    for (size_t k = 0; k < COUNT(chances); k++) {
        uint32_t rows[N_PROMPT], hidden_rows[N_PROMPT];
        const uint32_t n_rows = pick_rows(rows, chances[k][0]);
        const uint32_t n_hidden = n_embd ? pick_rows(hidden_rows, chances[k][1]) : 0;
        const int to = k > 0; /* the first has all */
        run_wanted(&d, n_rows, rows, n_hidden, hidden_rows, n_embd, logits[to], hidden[to]);
        for (uint32_t i = 0; i < n_rows; i++)
            if (memcmp(logits[to] + (size_t)i * d.n_vocab,
                       logits[0] + (size_t)rows[i] * d.n_vocab,
                       d.n_vocab * sizeof(float)) != 0)
                fail_msg("%s: logits of row %u among %u", name, rows[i], n_rows);
        for (uint32_t i = 0; i < n_hidden; i++)
            if (memcmp(hidden[to] + (size_t)i * n_embd,
                       hidden[0] + (size_t)hidden_rows[i] * n_embd,
                       n_embd * sizeof(float)) != 0)
                fail_msg("%s: hidden state of row %u among %u", name, hidden_rows[i], n_hidden);
    }
    for (int i = 0; i < 2; i++) {
        free(logits[i]);
        free(hidden[i]);
    }
    drive_close(&d);
    model_destroy(m);
}

/* Logits and hidden states of some rows, and none: the same bits as of all of them. */
static void rows_are_picked(void **state)
{
    (void)state;
    check_picked("quantised/llama.Q8_0");
    for (size_t i = 0; i < COUNT(architectures); i++) {
        char name[64];
        if (few_leave_out(i, 3))
            continue;
        snprintf(name, sizeof name, "%s.f32", architectures[i]);
        check_picked(name);
    }
}

static void a_step_allocates_nothing(void **state)
{
    (void)state;
    struct model *m = load_golden("quantised/llama.Q4_K_M");
    struct drive d;
    drive_open(&d, m, "", KV_Q8_0, 2, 16, 0);
    float *out = mem_zalloc((size_t)N_PROMPT * d.n_vocab, sizeof *out);
    const int32_t *tokens = golden_prompt;
    const uint64_t before = mem_watched();
    mem_watch(true);
    drive_run(&d, &(struct part){0, 0, N_PROMPT}, 1, &tokens, &out);
    mem_watch(false);
    assert_int_equal(mem_watched(), before);
    free(out);
    drive_close(&d);
    model_destroy(m);
}

/* Two layers of seven matrices, gone through twice, have their panels once. */
static void layers_gone_through_again_are_packed_once(void **state)
{
    (void)state;
    struct model *m = load_golden("families/nanbeige.f32");
    struct drive d;
    drive_open(&d, m, "", KV_F32, 1, 16, 0);
    const struct cpu_backend *b = (const struct cpu_backend *)d.b;
    uint32_t n_packed = 0;
    size_t bytes = 0;
    assert_int_equal(b->n_matrices, 2 * 14 + 1);
    for (uint32_t i = 0; i < b->n_matrices; i++) {
        const struct matrix *x = &b->matrices[i];
        bytes += x->packed ? 0 : x->panel_bytes * x->n_panels;
        n_packed += x->packed;
        assert_int_equal(x->packed, i >= 14 && i < 28);
        assert_true(!x->packed || x->panels == b->matrices[i - 14].panels);
    }
    assert_int_equal(n_packed, 14);
    assert_int_equal(b->weights_bytes, bytes);
    drive_close(&d);
    model_destroy(m);
}

static void count_item(void *ctx, uint32_t i, uint32_t w)
{
    (void)w;
    ((uint8_t *)ctx)[i]++;
}

static void parallel_covers_every_item(void **state)
{
    (void)state;
    struct model *m = load_golden("architectures/llama.f32");
    struct drive d;
    drive_open(&d, m, "", KV_F32, 3, 16, 0);
    assert_int_equal(d.b->ops->n_workers(d.b), 3);
    assert_true(d.b->ops->memory_bytes(d.b) > m->weight_bytes / 2);
    assert_non_null(strstr(d.b->ops->describe(d.b), "3 threads"));
    uint8_t seen[1000] = {0};
    d.b->ops->parallel(d.b, 1000, count_item, seen);
    for (int i = 0; i < 1000; i++)
        assert_int_equal(seen[i], 1);
    d.b->ops->parallel(d.b, 0, count_item, seen);
    drive_close(&d);
    model_destroy(m);
}

static void bad_configurations_are_refused(void **state)
{
    (void)state;
    struct model *m = load_golden("architectures/llama.f32");
    struct backend *b;
    struct err_info e;
    struct backend_config cfg = {.n_threads = 1,
                                 .n_blocks = 4,
                                 .block_tokens = 16,
                                 .max_rows = 4,
                                 .max_seqs = 1,
                                 .max_logit_rows = 1};
    setenv("WEIR_ISA", "sse9", 1);
    assert_int_equal(cpu_backend_create(m, &cfg, &b, &e), ERR_INVALID);
    assert_null(b);
    setenv("WEIR_ISA", "", 1);
    cfg.n_blocks = UINT32_MAX;
    cfg.block_tokens = 1u << 30;
    assert_int_equal(cpu_backend_create(m, &cfg, &b, &e), ERR_NOMEM);
    cfg.n_blocks = 0;
    assert_int_equal(cpu_backend_create(m, &cfg, &b, &e), ERR_INVALID);
    model_destroy(m);
}

enum { LONG = 1200, LONG_SEQS = 2 };

/* Of each sequence every one_in-th row, but not the same. */
static bool is_wanted(uint32_t seq, uint32_t pos, uint32_t one_in)
{
    return (pos + seq) % one_in == 0;
}

/* Two sequences of LONG positions in turns of `chunk` rows each; logits of every one_in-th row,
 * `out` as it was for the others. Returns the steps in which the wanted rows' attention was split
 * into ranges. */
static uint32_t run_long(const struct model *m,
                         uint32_t threads,
                         uint32_t chunk,
                         uint32_t one_in,
                         const uint32_t *lags,
                         float *out)
{
    enum { SLOTS = 16, N_BLOCKS = LONG / SLOTS };
    static struct made step;
    static int32_t tokens[LONG_SEQS][LONG];
    static uint32_t of[LONG_SEQS * LONG], tables[LONG_SEQS][N_BLOCKS];
    const struct backend_config cfg = {.n_threads = threads,
                                       .kv_type = KV_F16,
                                       .n_blocks = LONG_SEQS * N_BLOCKS,
                                       .block_tokens = SLOTS,
                                       .max_rows = LONG_SEQS * LONG,
                                       .max_seqs = LONG_SEQS,
                                       .max_logit_rows = LONG_SEQS * LONG};
    struct backend *b;
    uint32_t n_split = 0, n_done = 0;
    setenv("WEIR_ISA", "", 1);
    assert_int_equal(cpu_backend_create(m, &cfg, &b, NULL), OK);
    for (uint32_t s = 0; s < LONG_SEQS; s++) {
        for (uint32_t i = 0; i < N_BLOCKS; i++)
            tables[s][i] = (i * LONG_SEQS + s) * 7 % (LONG_SEQS * N_BLOCKS);
        for (uint32_t pos = 0; pos < LONG; pos++)
            tokens[s][pos] = (int32_t)((pos * 7919 + s * 13) % m->hp.n_vocab);
    }
    for (uint32_t at = 0; n_done < LONG_SEQS * LONG; at += chunk) {
        uint32_t n_wanted = 0, n = 0;
        made_begin(&step);
        for (uint32_t s = 0; s < LONG_SEQS; s++) {
            const uint32_t begin = at < lags[s] ? 0 : at - lags[s];
            const uint32_t next = at + chunk < lags[s] ? 0 : at + chunk - lags[s];
            const uint32_t end = next < LONG ? next : LONG;
            if (begin >= end)
                continue;
            const struct batch_seq seq = {
                .n_rows = end - begin, .first_pos = begin, .blocks = tables[s]};
            made_add(&step, seq, tokens[s]);
            for (uint32_t pos = begin; pos < end; pos++, n++) {
                of[n] = s;
                if (is_wanted(s, pos, one_in))
                    step.wanted[n_wanted++] = n;
            }
        }
        step.batch.n_logit_rows = n_wanted;
        float *logits;
        assert_int_equal(b->ops->run(b, &step.batch, &logits, NULL), OK);
        const struct cpu_backend *c = (const struct cpu_backend *)b;
        const struct attn_tiles *tiles = n_wanted < n ? &c->kept_tiles : &c->all_tiles;
        uint32_t n_own = 0; /* of each tile, however long the others' contexts are */
        for (uint32_t i = 0; i < tiles->n_tiles; i++)
            n_own +=
                (tiles->rows[tiles->tiles[i].first].pos + tiles->tiles[i].n_rows - 1) / 512 + 1;
        assert_true(tiles->n_ranges == 0 || tiles->n_ranges == n_own);
        n_split += n_wanted && tiles->n_ranges > 0;
        for (uint32_t i = 0; i < n_wanted; i++)
            memcpy(out + ((size_t)of[step.wanted[i]] * LONG + step.positions[step.wanted[i]]) *
                             m->hp.n_vocab,
                   logits + (size_t)i * m->hp.n_vocab,
                   m->hp.n_vocab * sizeof *logits);
        n_done += n;
    }
    b->ops->destroy(b);
    return n_split;
}

/* Long contexts that few items attend to are shared between workers, range by range: of all rows,
 * and behind the last keys and values of those that are wanted. */
static void check_ranges(const char *name)
{
    static const uint32_t threads[] = {2, 3, 5, 3, 3, 2}, chunks[] = {1, 7, 90, 30, 7, 30},
                          one_in[] = {1, 1, 1, 11, 1, 1},
                          lags[][LONG_SEQS] = {{0}, {0}, {0}, {0}, {0, 700}, {700, 0}};
    struct model *m = load_golden(name);
    const size_t n = (size_t)LONG_SEQS * LONG * m->hp.n_vocab;
    float *whole = mem_zalloc(n, sizeof *whole), *parts = mem_zalloc(n, sizeof *parts);
    assert_int_equal(run_long(m, 1, LONG, 1, lags[0], whole), 0);
    for (int i = 0; i < 6; i++) {
        memset(parts, 0, n * sizeof *parts);
        const uint32_t n_split = run_long(m, threads[i], chunks[i], one_in[i], lags[i], parts);
        assert_true(n_split > 0 || chunks[i] > 30);
        for (uint32_t r = 0; r < LONG_SEQS * LONG; r++) {
            const size_t at = (size_t)r * m->hp.n_vocab, bytes = m->hp.n_vocab * sizeof *whole;
            if (is_wanted(r / LONG, r % LONG, one_in[i]))
                assert_memory_equal(whole + at, parts + at, bytes);
        }
    }
    model_destroy(m);
    free(whole);
    free(parts);
}

static void bits_do_not_depend_on_ranges(void **state)
{
    (void)state;
    check_ranges("architectures/qwen3.f32");
    check_ranges("families/deepseek2-wide.f32");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(architectures_match),
        cmocka_unit_test(made_matrices_are_dropped),
        cmocka_unit_test(quantised_match),
        cmocka_unit_test(kv_types_match),
        cmocka_unit_test(bits_do_not_depend_on_company),
        cmocka_unit_test(bits_do_not_depend_on_items),
        cmocka_unit_test(bits_do_not_depend_on_ranges),
        cmocka_unit_test(rows_are_picked),
        cmocka_unit_test(a_step_allocates_nothing),
        cmocka_unit_test(layers_gone_through_again_are_packed_once),
        cmocka_unit_test(parallel_covers_every_item),
        cmocka_unit_test(bad_configurations_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
