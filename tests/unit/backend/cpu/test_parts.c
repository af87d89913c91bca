/* Rows in parts: which phases are divided, and that no bit depends on it. */
#include "backend/cpu/run.h"
#include "base/mem.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "drive.h"

enum { N_STEPS = 5, MOST = N_PROMPT };

/* Nothing in parts: every phase by rows. */
static void undivide(struct cpu_backend *b)
{
    for (struct phase *p = b->phases; p < b->phases + b->n_phases; p++) {
        p->units = 1;
        p->may_rotate = p->packs = false;
    }
}

/* Everything that can be, even where it would not pay. */
static void divide(struct cpu_backend *b)
{
    for (struct phase *p = b->phases; p < b->phases + b->n_phases; p++)
        p->least = 1;
}

/* One of tests/data/golden; or NULL: the built-in model, whose rows are long enough for parts. */
static struct model *load(const char *name)
{
    if (name)
        return load_golden(name);
    struct model *m;
    if (model_load(WEIR_MODELS "/weir-nano.gguf", &m, NULL) != OK)
        fail_msg("no built-in model");
    for (int32_t i = 0; i < N_PROMPT; i++)
        golden_prompt[i] = i * 37 % (int32_t)m->hp.n_vocab;
    return m;
}

/* A prompt, one row, some rows, and rows of several sequences: of 1 to 4 workers' worth. */
static void run_all(struct drive *d, const int32_t *const tokens[4], float *const out[4])
{
    static const struct part prompts[] = {{0, 0, 40}, {1, 0, 3}, {2, 0, 17}, {3, 0, 1}};
    static const struct part one[] = {{0, 40, 1}}, few[] = {{1, 3, 2}};
    static const struct part three[] = {{0, 41, 1}, {2, 17, 1}, {3, 1, 1}};
    static const struct part mixed[] = {{0, 42, 20}, {2, 18, 1}};
    drive_run(d, prompts, 4, tokens, out);
    drive_run(d, one, 1, tokens, out);
    drive_run(d, few, 1, tokens + 1, out + 1);
    const int32_t *those[] = {tokens[0], tokens[2], tokens[3]};
    float *const outs[] = {out[0], out[2], out[3]};
    drive_run(d, three, 3, those, outs);
    drive_run(d, mixed, 2, those, outs);
}

static void check_bits(const char *name, const char *isa)
{
    struct model *m = load(name);
    const size_t n = (size_t)N_PROMPT * m->hp.n_vocab;
    int32_t texts[4][N_PROMPT];
    const int32_t *tokens[4];
    float *want[4], *got[4];
    struct drive a;
    for (uint32_t s = 0; s < 4; s++) {
        for (uint32_t i = 0; i < N_PROMPT; i++)
            texts[s][i] = golden_prompt[(i * (2 * s + 1) + s) % N_PROMPT];
        tokens[s] = texts[s];
        want[s] = mem_zalloc(n, sizeof(float));
        got[s] = mem_zalloc(n, sizeof(float));
    }
    drive_open(&a, m, isa, KV_F16, 1, 16, 0);
    undivide((struct cpu_backend *)a.b);
    run_all(&a, tokens, want);
    drive_close(&a);
    static const uint32_t workers[] = {1, 2, 3, 7};
    for (size_t w = 0; w < sizeof workers / sizeof *workers; w++) {
        struct drive d;
        drive_open(&d, m, isa, KV_F16, workers[w], 16, 3);
        divide((struct cpu_backend *)d.b);
        run_all(&d, tokens, got);
        drive_close(&d);
        for (uint32_t s = 0; s < 4; s++) {
            if (memcmp(want[s], got[s], n * sizeof(float)) != 0)
                fail_msg("%s %s: sequence %u differs on %u workers",
                         name ? name : "nano",
                         isa,
                         s,
                         workers[w]);
        }
    }
    for (uint32_t s = 0; s < 4; s++) {
        free(want[s]);
        free(got[s]);
    }
    model_destroy(m);
}

static void bits_do_not_depend_on_parts(void **state)
{
    static const char *const names[] = {NULL,
                                        "quantised/llama.Q8_0",
                                        "quantised/llama.Q4_K_M",
                                        "quantised/llama.F16",
                                        "quantised/llama.BF16",
                                        "architectures/llama.f32",
                                        "architectures/qwen3.f32",
                                        "architectures/gemma3.f32",
                                        "architectures/phi3.f32",
                                        "variants/gpt-oss.f32",
                                        "variants/olmo3.f32",
                                        "families/gemma4.f32",
                                        "families/afmoe.f32",
                                        "families/deepseek2-v3.f32",
                                        "families/llama4.f32",
                                        "families/mpt.f32",
                                        "families/step35.f32",
                                        "families/openelm.f32",
                                        "families/chameleon.f32"};
    (void)state;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        check_bits(names[i], "");
    for (size_t i = 0; i < 5; i++) {
        check_bits(names[i], "avx2");
        check_bits(names[i], "avx512");
        check_bits(names[i], "avx512-bf16");
        check_bits(names[i], "amx");
    }
    check_bits(NULL, "reference");
}

/* Items of the phase at `p` in the batch that was last. */
static uint32_t n_items(const struct cpu_backend *b, const struct phase *p)
{
    return b->n_items[p - b->phases];
}

/* What a row alone is divided into, and a prompt that is longer than an item of attention. */
static void phases_are_divided(void **state)
{
    struct model *m = load(NULL); /* 256 wide, 2 KV heads, 768 in between */
    const int32_t *tokens[] = {golden_prompt};
    float *out[] = {mem_zalloc((size_t)N_PROMPT * m->hp.n_vocab, sizeof(float))};
    uint32_t n_attend = 0, n_rotate = 0;
    (void)state;
    struct drive d;
    drive_open(&d, m, "", KV_F16, 3, 16, 0);
    const struct cpu_backend *b = (const struct cpu_backend *)d.b;
    divide((struct cpu_backend *)d.b);
    const struct part prompt = {0, 0, 40}, one = {0, 40, 1};
    drive_run(&d, &prompt, 1, tokens, out);
    for (const struct phase *p = b->phases; p < b->phases + b->n_phases; p++) {
        if (p->kind != PHASE_ATTENTION)
            continue;
        n_attend++;
        n_rotate += p->may_rotate;
        assert_false(p->rotates);
        assert_true(p->packs);
        assert_true(p->may_rotate == (n_items(b, p - 1) > 0)); /* the last keeps rows in between */
        assert_int_equal(n_items(b, p + 1), 0);
    }
    assert_int_equal(n_rotate + 1, n_attend);
    drive_run(&d, &one, 1, tokens, out);
    uint32_t n_in_parts = 0;
    for (const struct phase *p = b->phases; p < b->phases + b->n_phases; p++) {
        if (p->kind == PHASE_ATTENTION) {
            assert_true(p->rotates == p->may_rotate);
            assert_int_equal(n_items(b, p), 2);
            assert_true(p->may_rotate == (n_items(b, p - 1) == 0) || p[-1].kind == PHASE_KEEP);
            assert_int_equal(n_items(b, p + 1), 0);
        }
        const struct step *s = &b->steps[p->first];
        if (p->kind == PHASE_ROWS && p->n == 2 && s->kind == STEP_GATED) {
            assert_int_equal(p->units, 6);
            assert_int_equal(n_items(b, p), 3);
            n_in_parts++;
        }
    }
    assert_int_equal(n_in_parts, n_attend);
    drive_close(&d);
    model_destroy(m);
    free(out[0]);
}

enum { HEAD = 64, HEADS = 8, WIDE = HEADS * HEAD, ROW = 2 * WIDE };

/* What a row becomes in every step that may see a part of it: the same as in its two halves. */
static void steps_go_by_parts(void **state)
{
    static float whole[3][ROW], parts[3][ROW], w[WIDE];
    static const struct step steps[] = {
        {.kind = STEP_UNARY, .unary = UNARY_SIGMOID, .in = BUF_Q, .out = BUF_Q, .n = WIDE},
        {.kind = STEP_GATED, .gate = GATE_SILU, .in = BUF_Q, .in2 = BUF_K, .out = BUF_V, .n = WIDE},
        {.kind = STEP_GATED,
         .gate = GATE_SITU,
         .in = BUF_Q,
         .in2 = BUF_Q,
         .in2_first = WIDE,
         .out = BUF_Q,
         .n = WIDE,
         .cap = 0.5f,
         .scale = 2},
        {.kind = STEP_HEAD_NORM, .out = BUF_Q, .n = WIDE, .head_dim = HEAD, .w = w, .w_step = HEAD},
    };
    (void)state;
    struct model *m = load(NULL);
    struct cpu_backend b = {.model = m, .kernels = cpu_kernels_select("")};
    for (uint32_t i = 0; i < WIDE; i++)
        w[i] = 1.0f + (float)i / WIDE;
    for (size_t i = 0; i < sizeof steps / sizeof *steps; i++) {
        struct step s = steps[i];
        for (uint32_t k = 0; k < 3 * ROW; k++)
            whole[k / ROW][k % ROW] = parts[k / ROW][k % ROW] = (float)(k * 37 % 101) / 40 - 1;
        for (int buf = 0; buf < 3; buf++)
            b.bufs[BUF_Q + buf] = whole[buf];
        cpu_run_step(&b, &s, 0, 0, 1, WHOLE_ROW);
        for (int buf = 0; buf < 3; buf++)
            b.bufs[BUF_Q + buf] = parts[buf];
        cpu_run_step(&b, &s, 0, 0, 1, (struct row_part){3, 4, 4});
        cpu_run_step(&b, &s, 0, 0, 1, (struct row_part){0, 3, 4});
        assert_memory_equal(whole, parts, sizeof whole);
    }
    model_destroy(m);
}

/* The units of a phase of rows made of these steps. */
static struct phase find(const struct step *steps, uint32_t n, bool gather, bool places)
{
    struct step list[3];
    struct phase p = {.kind = PHASE_ROWS, .n = n, .gather = gather, .places = places};
    memcpy(list, steps, n * sizeof *steps);
    struct cpu_backend b = {.phases = &p, .n_phases = 1, .steps = list};
    cpu_find_parts(&b);
    return p;
}

static void units_are_what_steps_allow(void **state)
{
    enum { N = 6 * SUPER_K };
    const struct step pack = {.kind = STEP_PACK, .n = N};
    const struct step gated = {.kind = STEP_GATED, .in2 = BUF_UP, .out = BUF_GATE, .n = N};
    struct step steps[3] = {gated, pack, pack};
    (void)state;
    assert_int_equal(find(steps, 2, false, false).units, 6);
    assert_int_equal(find(steps, 3, false, false).units, 1);
    assert_int_equal(find(steps, 2, true, false).units, 1);
    assert_int_equal(find(steps, 2, false, true).units, 1);
    steps[0].n = N / 2; /* not the columns that are packed */
    assert_int_equal(find(steps, 2, false, false).units, 1);
    steps[0] = gated;
    steps[0].in2 = BUF_GATE; /* what others have yet to read would be written */
    steps[0].in2_first = N / 2;
    assert_int_equal(find(steps, 2, false, false).units, 1);
    steps[0].in2_first = N;
    assert_int_equal(find(steps, 2, false, false).units, 6);
    steps[0].in2_first = 0;
    assert_int_equal(find(steps, 2, false, false).units, 6);
    steps[0].kind = STEP_NORM;
    assert_int_equal(find(steps, 2, false, false).units, 1);
    const struct step heads[3] = {
        {.kind = STEP_HEAD_NORM, .n = 8 * HEAD, .head_dim = HEAD},
        {.kind = STEP_HEAD_NORM, .n = 6 * HEAD, .head_dim = HEAD},
        {.kind = STEP_ROPE_STORE, .n_head = 8, .n_head_kv = 4, .head_dim = HEAD}};
    assert_int_equal(find(heads, 1, false, false).units, 8);
    assert_int_equal(find(heads, 2, false, false).units, 2);
    assert_int_equal(find(heads + 2, 1, false, false).units, 4);
    assert_int_equal(find(heads, 3, false, false).units, 2);
    assert_true(find(heads, 3, false, false).by_heads);
}

/* What attention with so many heads does of the phases around it. */
static void check_beside(uint32_t n_head, uint32_t n_head_kv, bool rotates, bool packs)
{
    struct step steps[] = {
        {.kind = STEP_ROPE_STORE, .n_head = n_head, .n_head_kv = 4, .head_dim = SUPER_K},
        {.kind = STEP_PACK, .n = n_head * SUPER_K}};
    struct phase p[] = {{.kind = PHASE_ROWS, .n = 1},
                        {.kind = PHASE_ATTENTION,
                         .n_head = n_head,
                         .n_head_kv = n_head_kv,
                         .n_channels = n_head * SUPER_K},
                        {.kind = PHASE_ROWS, .first = 1, .n = 1}};
    struct cpu_backend b = {.phases = p, .n_phases = 3, .steps = steps};
    cpu_find_parts(&b);
    assert_true(p[1].may_rotate == rotates && p[1].packs == packs);
}

static void attention_does_what_is_its_heads(void **state)
{
    (void)state;
    check_beside(8, 4, true, true);
    check_beside(8, 8, false, true);
    check_beside(4 * ATTN_QUERIES, 4, true, true);
    check_beside(8 * ATTN_QUERIES, 4, false, false); /* an item lacks heads */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bits_do_not_depend_on_parts),
        cmocka_unit_test(phases_are_divided),
        cmocka_unit_test(steps_go_by_parts),
        cmocka_unit_test(units_are_what_steps_allow),
        cmocka_unit_test(attention_does_what_is_its_heads),
    };
    return cmocka_run_group_tests_name("parts", tests, NULL, NULL);
}
