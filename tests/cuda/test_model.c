/* Whole models on a device, or its emulation: against other engines' logits and the oracle, and
 * rule one of a backend: the same bits for every chunking, batch, block table, graph and bound. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "backend/cpu/reference.h"
#include "backend/cuda/cuda.h"
#include "base/mem.h"
#include "unit/backend/cpu/drive.h"

#include <math.h>

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
    {"grids/llama.IQ2_XS", 3.3723e-04},        {"grids/llama.IQ2_M", 2.9646e-04},
    {"grids/llama.IQ3_XXS", 2.7938e-04},       {"grids/llama.TQ1_0", 4.3092e-04},
};
static const char *const architectures[] = {
    "architectures/llama", "architectures/llama3",    "architectures/qwen2",
    "architectures/qwen3", "architectures/qwen3moe",  "architectures/gemma3",
    "architectures/phi3",  "architectures/olmo2",     "architectures/granite",
    "variants/gemma2",     "variants/gemma3-linear",  "variants/qwen2moe",
    "variants/mixtral",    "variants/mistral",        "variants/granitemoe",
    "variants/smollm3",    "variants/gpt-oss",        "variants/phi3-long",
    "variants/phi3-short", "variants/llama-yarn",     "variants/llama-linear",
    "variants/olmo3",      "families/gpt2",           "families/nemotron",
    "families/olmo",       "families/deci",           "families/llama-by-layer",
    "families/phi2",       "families/cohere2",        "families/hunyuan-dense",
    "families/falcon",     "families/openelm",        "families/minicpm-first",
    "families/chatglm",    "families/command-r-plus", "families/stablelm-12b",
    "families/llama4",     "families/deepseek2-lite", "families/deepseek2-v3"};
static const struct {
    const char *name;
    uint32_t second; /* as the file's description has it */
} encoders[] = {{"bert", 0}, {"bert-rank", 31}, {"nomic-bert", 0}, {"gemma-embedding", 0}};

#define COUNT(a) (sizeof(a) / sizeof(a)[0])

/* With every access checked a model takes ten times as long: then these, which have each op and
 * each kind of layer between them. */
#if defined(__SANITIZE_ADDRESS__)
static const char *const checked[] = {"architectures/qwen3moe",
                                      "variants/gemma2",
                                      "variants/gpt-oss",
                                      "families/gpt2",
                                      "families/phi2",
                                      "families/cohere2",
                                      "families/chatglm",
                                      "families/stablelm-12b",
                                      "families/llama4",
                                      "families/deepseek2-v3",
                                      "families/llama-by-layer",
                                      "quantised/llama.Q8_0",
                                      "quantised/llama.Q4_1",
                                      "quantised/llama.Q3_K_M",
                                      "quantised/llama.Q4_K_M",
                                      "quantised/llama.BF16",
                                      "grids/llama.IQ2_M"};
static bool is_left_out(const char *name)
{
    for (size_t i = 0; i < COUNT(checked); i++) {
        if (strcmp(name, checked[i]) == 0)
            return false;
    }
    return true;
}
#else
static bool is_left_out(const char *name)
{
    (void)name;
    return false;
}
#endif

/* Between what may be read on a device that others use too, or whose driver keeps something back;
 * the emulation's memory is exact. */
#ifdef EMU_CUDA_RUNTIME_API_H
#define MEMORY_SLACK 0
#else
#define MEMORY_SLACK ((size_t)64 << 20)
#endif
static void assert_as_free(size_t before, size_t after)
{
    assert_true((before > after ? before - after : after - before) <= MEMORY_SLACK);
}

static void on_cuda(struct drive *d, const struct model *m, enum kv_type kv, uint32_t shuffle)
{
    drive_open_on(d, m, cuda_backend_create, kv, 1, 16, shuffle);
}

static struct cuda_backend *cuda_of(const struct drive *d)
{
    return (struct cuda_backend *)d->b;
}

/* All logits of the golden prompt in one batch. */
static float *whole_prompt(struct drive *d)
{
    float *out = mem_zalloc((size_t)N_PROMPT * d->n_vocab, sizeof *out);
    const int32_t *tokens = golden_prompt;
    drive_run(d, &(struct part){0, 0, N_PROMPT}, 1, &tokens, &out);
    return out;
}

static void read_floats(const char *name, const char *kind, float *out, size_t n)
{
    char path[512];
    snprintf(path, sizeof path, "%s/golden/%s.%s", TEST_DATA, name, kind);
    FILE *f = fopen(path, "rb");
    assert_non_null(f);
    assert_int_equal(fread(out, sizeof *out, n, f), n);
    fclose(f);
}

/* The rows that were computed elsewhere. */
static double nmse_of_file(const char *name, const float *logits, uint32_t n_vocab)
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
        reference_logits(m, golden_prompt, N_PROMPT, want);
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
 */
static void quantised_match(void **state)
{
    int bad = 0;
    (void)state;
    for (size_t q = 0; q < COUNT(quantised); q++) {
        const char *name = quantised[q].name;
        if (is_left_out(name))
            continue;
        struct model *m = load_golden(name);
        const double f32 = golden_error(name, m, KV_F32), f16 = golden_error(name, m, KV_F16);
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
    reference_logits(m, golden_prompt, N_PROMPT, want);
    static const struct {
        enum kv_type kv;
        uint32_t block_tokens;
    } cases[] = {{KV_F32, 36}, {KV_F16, 8}, {KV_F16, 64}, {KV_BF16, 36}, {KV_Q8_0, 8}};
    for (size_t i = 0; i < COUNT(cases); i++) { /* test_attention.cpp has all kinds of blocks */
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
    int32_t ids[3 * N_PROMPT];
    uint32_t positions[3 * N_PROMPT], rows[3 * N_PROMPT];
    struct batch_seq seqs[3];
    struct batch batch = {
        .tokens = ids, .positions = positions, .n_seqs = n, .seqs = seqs, .hidden_rows = rows};
    float *logits;
    struct err_info e;
    for (uint32_t i = 0; i < n; i++) {
        seqs[i] = (struct batch_seq){.first_row = batch.n_rows,
                                     .n_rows = lengths[i],
                                     .blocks = d->tables[i],
                                     .second = second};
        for (uint32_t p = 0; p < lengths[i]; p++, batch.n_rows++) {
            ids[batch.n_rows] = golden_prompt[p];
            positions[batch.n_rows] = p;
            rows[batch.n_rows] = batch.n_rows;
        }
    }
    batch.n_hidden_rows = batch.n_rows;
    if (d->b->ops->run(d->b, &batch, &logits, &e) != OK)
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

/* --- rule one --- */

/* Three sequences in uneven chunks, mixed with each other, with other blocks. */
static void mixed_runs(struct drive *d, const int32_t *const *tokens, float *const *out)
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

/* All of a sequence at once; three mixed; the first again, row by row from `from` on, by graphs. */
static void check_invariance(const char *name, enum kv_type kv, uint32_t from)
{
    struct model *m = load_golden(name);
    int32_t other[2][N_PROMPT];
    for (uint32_t i = 0; i < N_PROMPT; i++) {
        other[0][i] = golden_prompt[N_PROMPT - 1 - i];
        other[1][i] = golden_prompt[(i * 11 + 5) % N_PROMPT];
    }
    const int32_t *tokens[3] = {golden_prompt, other[0], other[1]};
    float *alone[3], *mixed[3], *single;
    struct drive a, b;
    on_cuda(&a, m, kv, 0);
    on_cuda(&b, m, kv, 5);
    const size_t n = (size_t)N_PROMPT * a.n_vocab;
    for (uint32_t s = 0; s < 3; s++) {
        alone[s] = mem_zalloc(n, sizeof(float));
        mixed[s] = mem_zalloc(n, sizeof(float));
        drive_run(&a, &(struct part){s, 0, N_PROMPT}, 1, &tokens[s], &alone[s]);
    }
    single = mem_zalloc(n, sizeof(float));
    drive_run(&a, &(struct part){3, 0, from}, 1, tokens, &single);
    const uint64_t replays = cuda_of(&a)->replays;
    for (uint32_t p = from; p < N_PROMPT; p++)
        drive_run(&a, &(struct part){3, p, 1}, 1, tokens, &single);
    assert_int_equal(cuda_of(&a)->replays - replays, N_PROMPT - from);
    mixed_runs(&b, tokens, mixed);
    int bad = memcmp(alone[0], single, n * sizeof(float)) != 0;
    for (uint32_t s = 0; s < 3; s++) {
        bad += memcmp(alone[s], mixed[s], n * sizeof(float)) != 0;
        free(alone[s]);
        free(mixed[s]);
    }
    free(single);
    drive_close(&a);
    drive_close(&b);
    model_destroy(m);
    if (bad)
        print_error("%s kv %s: bits differ\n", name, kv_type_name(kv));
    assert_int_equal(bad, 0);
}

static void bits_do_not_depend_on_company(void **state)
{
    (void)state;
    check_invariance("quantised/llama.Q4_K_M", KV_F16, 60);
    check_invariance("variants/gpt-oss.f32", KV_F32, 60);
    check_invariance("families/deepseek2-v3.f32", KV_F16, 60);
    check_invariance("families/llama4.f32", KV_F16, 60);
    if (is_left_out("")) /* the kernels' own tests compare bits too */
        return;
    check_invariance("quantised/llama.Q8_0", KV_F16, 30);
    check_invariance("quantised/llama.F16", KV_BF16, 60);
    check_invariance("quantised/llama.Q6_K", KV_Q8_0, 60);
    check_invariance("architectures/qwen3.f32", KV_F32, 60);
    check_invariance("architectures/qwen3moe.f32", KV_F16, 60);
    check_invariance("variants/gemma2.f32", KV_F16, 60);
    check_invariance("variants/qwen2moe.f32", KV_F32, 60);
}

/* Five streams decode together. */
static float *decode_five(struct drive *d, uint32_t at)
{
    const int32_t *tokens[5];
    struct part parts[5];
    float *out[5], *all = mem_zalloc((size_t)5 * d->n_vocab, sizeof *all);
    for (uint32_t s = 0; s < 5; s++) {
        tokens[s] = golden_prompt;
        parts[s] = (struct part){s, at - s, 1};
        out[s] = mem_zalloc((size_t)N_PROMPT * d->n_vocab, sizeof(float));
    }
    drive_run(d, parts, 5, tokens, out);
    for (uint32_t s = 0; s < 5; s++) {
        memcpy(all + (size_t)s * d->n_vocab,
               out[s] + (size_t)(at - s) * d->n_vocab,
               d->n_vocab * sizeof *all);
        free(out[s]);
    }
    return all;
}

/* A replayed graph, a walk for its bounds, a walk for the largest there are, and one for no more
 * than the step has. */
static void graphs_and_bounds_change_no_bit(void **state)
{
    (void)state;
    static const char *const names[] = {
        "quantised/llama.Q4_K_M", "architectures/qwen3moe.f32", "variants/gemma2.f32"};
    for (size_t k = 0; k < COUNT(names); k++) {
        struct model *m = load_golden(names[k]);
        const int32_t *tokens = golden_prompt;
        struct drive d;
        on_cuda(&d, m, KV_F16, 0);
        struct cuda_backend *b = cuda_of(&d);
        const size_t bytes = (size_t)5 * d.n_vocab * sizeof(float);
        float *prompt = mem_zalloc((size_t)N_PROMPT * d.n_vocab, sizeof(float));
        for (uint32_t s = 0; s < 5; s++)
            drive_run(&d, &(struct part){s, 0, 40}, 1, &tokens, &prompt);
        const uint64_t replays = b->replays, walks = b->walks;
        float *graph = decode_five(&d, 40);
        assert_int_equal(b->replays, replays + 1);
        b->no_graphs = true;
        float *exact = decode_five(&d, 40);
        b->at_most = true;
        float *most = decode_five(&d, 40);
        assert_int_equal(b->walks, walks + 2);
        assert_memory_equal(graph, exact, bytes);
        assert_memory_equal(graph, most, bytes);
        free(graph);
        free(exact);
        free(most);
        free(prompt);
        drive_close(&d);
        model_destroy(m);
    }
}

/* --- blocks --- */

/* What follows from a copy of the blocks, and from their bytes written elsewhere, has the same
 * bits. */
static void blocks_move(void **state)
{
    (void)state;
    static const char *const names[] = {"architectures/qwen3.f32", "variants/gemma2.f32"};
    for (size_t k = 0; k < COUNT(names); k++) {
        struct model *m = load_golden(names[k]);
        const int32_t *tokens = golden_prompt;
        struct drive d;
        on_cuda(&d, m, KV_F16, 0);
        const size_t n = (size_t)N_PROMPT * d.n_vocab;
        float *want = mem_zalloc(n, sizeof(float)), *copied = mem_zalloc(n, sizeof(float)),
              *written = mem_zalloc(n, sizeof(float));
        void *bytes = mem_alloc(backend_kv_block_bytes(m, KV_F16, 16));
        drive_run(&d, &(struct part){0, 0, 48}, 1, &tokens, &want);
        for (uint32_t i = 0; i < 3; i++) {
            const struct backend_place from = {d.tables[0][i], d.panes[0][i]};
            d.b->ops->block_copy(d.b, from, (struct backend_place){d.tables[1][i], d.panes[1][i]});
            assert_true(d.b->ops->block_read(d.b, from, bytes));
            d.b->ops->block_write(
                d.b, (struct backend_place){d.tables[2][i], d.panes[2][i]}, bytes);
        }
        drive_run(&d, &(struct part){0, 48, 22}, 1, &tokens, &want);
        drive_run(&d, &(struct part){1, 48, 22}, 1, &tokens, &copied);
        drive_run(&d, &(struct part){2, 48, 22}, 1, &tokens, &written);
        const size_t at = (size_t)48 * d.n_vocab;
        assert_memory_equal(want + at, copied + at, (n - at) * sizeof(float));
        assert_memory_equal(want + at, written + at, (n - at) * sizeof(float));
        free(want);
        free(copied);
        free(written);
        free(bytes);
        drive_close(&d);
        model_destroy(m);
    }
}

/* --- what it holds --- */

static void a_step_allocates_nothing(void **state)
{
    (void)state;
    struct model *m = load_golden("quantised/llama.Q4_K_M");
    const int32_t *tokens = golden_prompt;
    struct gpu_stats before, after;
    struct drive d;
    on_cuda(&d, m, KV_Q8_0, 0);
    float *out = mem_zalloc((size_t)N_PROMPT * d.n_vocab, sizeof *out);
    d.b->ops->gpu_stats(d.b, &before);
    size_t free_before, free_after, total;
    assert_int_equal(cudaMemGetInfo(&free_before, &total), cudaSuccess);
    const uint64_t watched = mem_watched();
    mem_watch(true);
    drive_run(&d, &(struct part){0, 0, 60}, 1, &tokens, &out);
    for (uint32_t p = 60; p < N_PROMPT; p++)
        drive_run(&d, &(struct part){0, p, 1}, 1, &tokens, &out);
    mem_watch(false);
    assert_int_equal(cudaMemGetInfo(&free_after, &total), cudaSuccess);
    d.b->ops->gpu_stats(d.b, &after);
    assert_int_equal(mem_watched(), watched);
    assert_as_free(free_before, free_after);
    assert_true(after.warmed_up);
    for (int c = 0; c < N_GPU_CLASSES; c++) {
        assert_int_equal(after.classes[c].allocations, 0);
        assert_int_equal(after.classes[c].held, before.classes[c].held);
        assert_true(after.classes[c].borrows >= before.classes[c].borrows + 11);
        assert_true(after.classes[c].peak <= after.classes[c].held);
        if (c != GPU_STAGING)
            assert_int_equal(after.classes[c].borrows, after.classes[c].returns);
    }
    assert_int_equal(after.walks, 1);
    assert_int_equal(after.replays, 10);
    assert_true(after.queue.busy_us > before.queue.busy_us);
    free(out);
    drive_close(&d);
    model_destroy(m);
}

/* With buffers zeroed after every step: the same bits, and nothing is left in them. */
static void buffers_come_back_zeroed(void **state)
{
    (void)state;
    struct model *m = load_golden("quantised/llama.Q8_0");
    struct drive d;
    on_cuda(&d, m, KV_F16, 0);
    float *want = whole_prompt(&d);
    cuda_of(&d)->pool.zero = true;
    float *got = whole_prompt(&d);
    assert_memory_equal(want, got, (size_t)N_PROMPT * d.n_vocab * sizeof *got);
    struct cuda_pool *p = &cuda_of(&d)->pool;
    for (int c = 0; c < GPU_STAGING; c++) {
        const size_t n = p->classes[c].bytes;
        uint8_t *host = mem_alloc(n);
        for (uint32_t i = 0; i < p->classes[c].stats.held; i++) {
            assert_int_equal(cudaStreamSynchronize(cuda_of(&d)->stream), cudaSuccess);
            assert_int_equal(cudaMemcpy(host, p->classes[c].all[i], n, cudaMemcpyDeviceToHost),
                             cudaSuccess);
            for (size_t k = 0; k < n; k++)
                assert_int_equal(host[k], 0);
        }
        free(host);
    }
    free(want);
    free(got);
    drive_close(&d);
    model_destroy(m);
}

static struct backend_config small_config(void)
{
    return (struct backend_config){.device = {.kind = DEVICE_CUDA},
                                   .n_threads = 1,
                                   .kv_type = KV_F16,
                                   .n_blocks = 4,
                                   .block_tokens = 16,
                                   .max_rows = 4,
                                   .max_seqs = 1,
                                   .max_logit_rows = 1};
}

/* One line, with the numbers. */
static void what_does_not_fit_is_refused(void **state)
{
    (void)state;
    struct model *m = load_golden("architectures/llama.f32");
    struct backend *b;
    struct err_info e = {0};
    struct backend_config cfg = small_config();
    cfg.device.memory_bytes = 1 << 10;
    assert_int_equal(cuda_backend_create(m, &cfg, &b, &e), ERR_NOMEM);
    assert_null(b);
    assert_non_null(strstr(e.text, "GiB of weights"));
    cfg.device.memory_bytes = (uint64_t)1 << 50;
    assert_int_equal(cuda_backend_create(m, &cfg, &b, &e), ERR_NOMEM);
    assert_string_equal(e.field, "gpu-memory");
    cfg = small_config();
    cfg.n_blocks = UINT32_MAX;
    assert_int_equal(cuda_backend_create(m, &cfg, &b, &e), ERR_NOMEM);
    cfg = small_config();
    int n_devices = 0;
    char next[16];
    assert_int_equal(cudaGetDeviceCount(&n_devices), cudaSuccess);
    snprintf(next, sizeof next, "cuda:%d", n_devices);
    cfg.device.index = (uint32_t)n_devices;
    assert_int_equal(cuda_backend_create(m, &cfg, &b, &e), ERR_NOT_FOUND);
    assert_non_null(strstr(e.text, next));
    cfg = small_config();
    cfg.max_rows = 0;
    assert_int_equal(cuda_backend_create(m, &cfg, &b, &e), ERR_INVALID);
    model_destroy(m);
}

static void heads_of_other_sizes_are_refused(void **state)
{
    (void)state;
    struct model *m = load_golden("architectures/llama.f32");
    struct backend_config cfg = small_config();
    struct backend *b;
    struct err_info e = {0};
    for (m->hp.head_dim = 20; m->hp.head_dim < 1000; m->hp.head_dim += 500) {
        assert_int_equal(cuda_backend_create(m, &cfg, &b, &e), ERR_UNSUPPORTED);
        assert_null(b);
        assert_non_null(strstr(e.text, "a multiple of 8, at most 512"));
    }
    model_destroy(m);
}

/* What it says is left can be had, all of it, and no more. Of a part of the device that is named:
 * what is free of a real one changes from call to call. */
static void what_is_left_can_be_had(void **state)
{
    (void)state;
    struct model *m = load_golden("architectures/llama.f32");
    struct backend *b;
    struct err_info e = {0};
    struct backend_config cfg = small_config();
    uint64_t kv_bytes = 0;
    cfg.device.memory_bytes = 192u << 20;
    cfg.max_positions = 64;
    size_t free_before, free_after, total;
    assert_int_equal(cudaMemGetInfo(&free_before, &total), cudaSuccess);
    assert_int_equal(cuda_room(m, &cfg, &kv_bytes, &e), OK);
    assert_int_equal(cudaMemGetInfo(&free_after, &total), cudaSuccess);
    assert_as_free(free_before, free_after);
    cfg.n_blocks = (uint32_t)(kv_bytes / backend_kv_block_bytes(m, KV_F16, 16));
    assert_int_equal(cuda_backend_create(m, &cfg, &b, &e), OK);
    b->ops->destroy(b);
    cfg.n_blocks++;
    assert_int_equal(cuda_backend_create(m, &cfg, &b, &e), ERR_NOMEM);
    assert_int_equal(cudaMemGetInfo(&free_after, &total), cudaSuccess);
    assert_as_free(free_before, free_after);
    model_destroy(m);
}

/* A device that has 99 KB of shared memory for a block, and one that has more: the same bits. */
static void shared_memory_changes_no_bit(void **state)
{
    (void)state;
    static const char *const names[] = {"quantised/llama.F16", "quantised/llama.Q4_K_M"};
    for (size_t k = 0; k < COUNT(names); k++) {
        struct model *m = load_golden(names[k]);
        float *got[2];
        size_t bytes = 0;
        for (int least = 0; least < 2; least++) {
            struct drive d;
            if (least)
                setenv("WEIR_EMU_SHARED_KIB", "99", 1); /* a real device has what it has */
            on_cuda(&d, m, KV_F16, 0);
            if (least)
                cuda_of(&d)->block_shared = CUDA_SHARED_LEAST;
            bytes = (size_t)N_PROMPT * d.n_vocab * sizeof(float);
            got[least] = whole_prompt(&d);
            drive_close(&d);
            unsetenv("WEIR_EMU_SHARED_KIB");
        }
        assert_memory_equal(got[0], got[1], bytes);
        free(got[0]);
        free(got[1]);
        model_destroy(m);
    }
}

/* The engine's thread is not the one that made the backend: its current device is the first. */
static void runs_on_a_device_that_is_not_current(void **state)
{
    (void)state;
    setenv("WEIR_EMU_DEVICES", "2", 1); /* a real device has as many as there are */
    int n = 0;
    if (cudaGetDeviceCount(&n) != cudaSuccess || n < 2) {
        (void)cudaGetLastError();
        skip();
    }
    struct model *m = load_golden("architectures/llama.f32");
    struct backend_config cfg = small_config();
    struct backend *b;
    struct err_info e = {0};
    const int32_t tokens[2] = {1, 2};
    const uint32_t positions[2] = {0, 1}, block = 0, last = 1;
    const struct batch_seq seq = {.n_rows = 2, .blocks = &block};
    const struct batch two = {.n_rows = 2,
                              .tokens = tokens,
                              .positions = positions,
                              .n_seqs = 1,
                              .seqs = &seq,
                              .n_logit_rows = 1,
                              .logit_rows = &last};
    float *logits;
    cfg.device.index = 1;
    assert_int_equal(cuda_backend_create(m, &cfg, &b, &e), OK);
    assert_int_equal(cudaSetDevice(0), cudaSuccess);
    assert_int_equal(b->ops->run(b, &two, &logits, &e), OK);
    assert_int_equal(cudaSetDevice(0), cudaSuccess);
    b->ops->destroy(b);
    assert_int_equal(cudaSetDevice(0), cudaSuccess);
    unsetenv("WEIR_EMU_DEVICES");
    model_destroy(m);
}

/* One argument: which of the groups; none: all. */
int main(int argc, char **argv)
{
    const struct CMUnitTest golden[] = {
        cmocka_unit_test(architectures_match),
        cmocka_unit_test(quantised_match),
        cmocka_unit_test(kv_types_match),
        cmocka_unit_test(encoders_match),
    };
    const struct CMUnitTest bits[] = {
        cmocka_unit_test(bits_do_not_depend_on_company),
        cmocka_unit_test(graphs_and_bounds_change_no_bit),
        cmocka_unit_test(shared_memory_changes_no_bit),
        cmocka_unit_test(blocks_move),
    };
    const struct CMUnitTest memory[] = {
        cmocka_unit_test(a_step_allocates_nothing),
        cmocka_unit_test(buffers_come_back_zeroed),
        cmocka_unit_test(what_does_not_fit_is_refused),
        cmocka_unit_test(heads_of_other_sizes_are_refused),
        cmocka_unit_test(what_is_left_can_be_had),
        cmocka_unit_test(runs_on_a_device_that_is_not_current),
    };
    const char *only = argc > 1 ? argv[1] : "golden bits memory";
    int failed = 0;
    if (strstr(only, "golden"))
        failed += cmocka_run_group_tests(golden, NULL, NULL);
    if (strstr(only, "bits"))
        failed += cmocka_run_group_tests(bits, NULL, NULL);
    if (strstr(only, "memory"))
        failed += cmocka_run_group_tests(memory, NULL, NULL);
    return failed > 0;
}
