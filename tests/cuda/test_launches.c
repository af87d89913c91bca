/* How many launches a step takes, and that joining them changes no bit (join.c). Counted is what a
 * device is given: the nodes of a captured step. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "cuda/models.h"
#include "few.h"
#include "model/uses.h"

/* Of a step of so many rows, each a sequence's next, of which so many want logits. */
static uint32_t count_launches(struct cuda_backend *b, uint32_t rows, uint32_t logits, bool apart)
{
    const struct cuda_bounds bounds = {
        .rows = rows, .seqs = rows, .logit_rows = logits, .tiles = rows, .ranges = 1};
    struct err_info e;
    cudaGraph_t graph;
    size_t n = 0;
    b->apart = apart;
    assert_int_equal(cuda_lease_take(b, &e), OK);
    assert_int_equal(cudaStreamBeginCapture(b->stream, cudaStreamCaptureModeThreadLocal),
                     cudaSuccess);
    assert_int_equal(cuda_walk(b, &bounds), cudaSuccess);
    assert_int_equal(cudaStreamEndCapture(b->stream, &graph), cudaSuccess);
    assert_int_equal(cudaGraphGetNodes(graph, NULL, &n), cudaSuccess);
    assert_int_equal(cudaGraphDestroy(graph), cudaSuccess);
    assert_int_equal(cuda_lease_return(b, &e), OK);
    b->apart = false;
    return (uint32_t)n;
}

/* Angles, the embedding, the last norm with its packing, and the logits. */
enum { AROUND_LAYERS = 4 };

static void check_count(const char *name, uint32_t rows, uint32_t most)
{
    struct model *m = load_golden(name);
    struct drive d;
    on_cuda(&d, m, KV_F16, 0);
    const uint32_t n_layer = m->hp.n_layer;
    const uint32_t joined = count_launches(cuda_of(&d), rows, rows, false);
    const uint32_t apart = count_launches(cuda_of(&d), rows, rows, true);
    if (joined > AROUND_LAYERS + most * n_layer)
        fail_msg("%s, %u rows: %u launches for %u layers, %u a layer allowed",
                 name,
                 rows,
                 joined,
                 n_layer,
                 most);
    assert_true(apart > joined);
    drive_close(&d);
    model_destroy(m);
}

/* Their rows are narrow: of 2048 values or more a gate takes one more (rows_slices.cu). */
static void a_layer_takes_few_launches(void **state)
{
    (void)state;
    check_count("quantised/llama.Q8_0", 1, 10);
    check_count("quantised/llama.Q8_0", 8, 10);
    check_count("architectures/llama.f32", 1, 10);
}

/* In the middle of a prompt nothing is wanted of any row: behind the last keys and values there is
 * nothing to do, of ten launches a layer for seven, nor for the logits. */
static void rows_that_nobody_wants_end_at_the_last_keys(void **state)
{
    (void)state;
    static const char *const names[] = {
        "quantised/llama.Q8_0", "recurrent/qwen3next.f32", "families/gemma3n.f32"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        struct model *m = load_golden(names[i]);
        struct drive d;
        on_cuda(&d, m, KV_F16, 0);
        struct cuda_backend *b = cuda_of(&d);
        uint32_t n_attend = 0;
        for (uint32_t op = plan_last_storing(m); op < m->n_ops; op++)
            n_attend += m->ops[op].kind == OP_ATTENTION;
        for (uint32_t l = 0; l < b->n_launches; l++)
            n_attend -= b->launches[l].last && b->launches[l].kind == LAUNCH_ATTENTION;
        assert_int_equal(n_attend, 0); /* attention is left out, too: all of gemma3n that borrows */
        for (int apart = 0; apart < 2; apart++) {
            const uint32_t n_launches = b->n_launches, without = count_launches(b, 8, 0, apart);
            assert_true(without + 6 < count_launches(b, 8, 8, apart));
            while (b->launches[b->n_launches - 1].last)
                b->n_launches--;
            assert_int_equal(without, count_launches(b, 8, 8, apart));
            b->n_launches = n_launches;
        }
        drive_close(&d);
        model_destroy(m);
    }
}

/* --- what is joined --- */

/* Launches by hand: those that a comment below names, at their best. */
static struct launch of(enum launch_kind kind, enum model_buf in, enum model_buf out)
{
    return (struct launch){.kind = kind,
                           .in = in,
                           .out = out,
                           .n = 256,
                           .heads = kind == LAUNCH_NORM,
                           .forms = CUDA_ACT_F16};
}

static void check_joined(struct launch *l, uint32_t n, uint32_t want)
{
    struct cuda_weights matrices[2] = {{.m = {.n_in = 256}}, {.m = {.n_in = 512}}};
    struct cuda_backend *b = mem_zalloc(1, sizeof *b);
    b->launches = l;
    b->n_launches = n;
    b->matrices = matrices;
    for (uint32_t i = 0; i < n; i++)
        l[i].joined = 0;
    cuda_join(b);
    free(b);
    assert_int_equal(l[0].joined, want);
}

static void stages_are_joined_with_care(void **state)
{
    (void)state;
    struct launch sum[] = {of(LAUNCH_ADD, BUF_OUT, BUF_X),
                           of(LAUNCH_NORM, BUF_X, BUF_H),
                           of(LAUNCH_PACK, BUF_H, BUF_X)};
    check_joined(sum, 3, 2);
    check_joined(sum, 2, 1);
    sum[2].in = BUF_X; /* another buffer is packed */
    check_joined(sum, 3, 1);
    sum[2].in = BUF_H;
    sum[2].n = 128; /* or half of it */
    check_joined(sum, 3, 1);
    sum[2].n = 256;
    sum[2].in_step = 16; /* or heads by themselves */
    check_joined(sum, 3, 1);
    sum[2].in_step = 0;
    sum[2].rows = CUDA_ROWS_LOGITS;
    check_joined(sum, 3, 1);
    sum[1].rows = CUDA_ROWS_LOGITS;
    sum[1].gather = true; /* rows of other blocks */
    check_joined(sum, 3, 0);
    sum[0].rows = CUDA_ROWS_LOGITS;
    check_joined(sum, 3, 0);
    check_joined(sum + 1, 2, 1); /* but the first may gather */
    sum[1].heads = 4;
    check_joined(sum + 1, 2, 0);

    struct launch norms[] = {of(LAUNCH_NORM, BUF_OUT, BUF_OUT), of(LAUNCH_NORM, BUF_X, BUF_H)};
    check_joined(norms, 2, 1);
    norms[1].n = 2048; /* more threads */
    check_joined(norms, 2, 0);

    struct launch many[CUDA_MOST_STAGES + 2];
    for (size_t i = 0; i < COUNT(many); i++)
        many[i] = of(LAUNCH_ADD, BUF_OUT, BUF_X);
    check_joined(many, COUNT(many), CUDA_MOST_STAGES - 1);
    many[CUDA_MOST_STAGES] = of(LAUNCH_PACK, BUF_X, BUF_X);
    check_joined(many, COUNT(many), CUDA_MOST_STAGES);

    struct launch gate[] = {of(LAUNCH_GATED, BUF_EXPERT_GATE, BUF_EXPERT_GATE),
                            of(LAUNCH_EXPERT_PACK, BUF_EXPERT_GATE, BUF_X)};
    check_joined(gate, 2, 0);
    gate[0].places = true;
    check_joined(gate, 2, 0); /* the pack is of rows */
    gate[1].places = true;
    check_joined(gate, 2, 1);
    gate[1].kind = LAUNCH_PACK;
    check_joined(gate, 2, 0);

    struct launch mixed[] = {of(LAUNCH_UNARY, BUF_EXPERT_GATE, BUF_EXPERT_GATE),
                             of(LAUNCH_MIX, BUF_EXPERT_OUT, BUF_OUT)};
    check_joined(mixed, 2, 1);
    mixed[0].places = true; /* not over the same rows */
    check_joined(mixed, 2, 0);
}

/* Matrices that may share a grid are those of the same rows; of each the place of its own. */
static void products_are_joined_with_care(void **state)
{
    (void)state;
    struct launch l[] = {of(LAUNCH_LINEAR, BUF_H, BUF_Q),
                         of(LAUNCH_LINEAR, BUF_H, BUF_K),
                         of(LAUNCH_LINEAR, BUF_H, BUF_V),
                         of(LAUNCH_LINEAR, BUF_H, BUF_HEADS),
                         of(LAUNCH_LINEAR, BUF_H, BUF_GATE)};
    check_joined(l, 3, 2);
    check_joined(l, COUNT(l), CUDA_LINEAR_GROUP - 1);
    l[2].out = BUF_Q; /* written twice */
    check_joined(l, 3, 1);
    l[2].out = BUF_V;
    l[1].matrix = 1; /* of longer rows */
    check_joined(l, 3, 0);
    l[1].matrix = 0;
    l[1].forms = CUDA_ACT_F32; /* lying elsewhere */
    check_joined(l, 3, 0);
    l[1].forms = CUDA_ACT_F16;
    l[1].rows = CUDA_ROWS_LOGITS;
    check_joined(l, 3, 0);
    l[1].rows = CUDA_ROWS_ALL;
    l[1].in_step = l[1].out_step = 16; /* each head by itself */
    check_joined(l, 3, 0);
    check_joined(l + 1, 2, 0);
    l[1].in_step = l[1].out_step = 0;
    l[1].kind = LAUNCH_EXPERT_LINEAR;
    check_joined(l, 3, 0);
    l[0].kind = LAUNCH_EXPERT_LINEAR;
    check_joined(l, 3, 1);
}

/* --- bits --- */

enum { N_CHUNK = 37, N_SINGLE = 3 };

/* Logits of two rows of a longer chunk: a norm gathers them. */
static void run_some(struct drive *d, float *out)
{
    enum { ROWS = 9 };
    const uint32_t wanted[2] = {3, ROWS - 1};
    uint32_t positions[ROWS];
    for (uint32_t i = 0; i < ROWS; i++)
        positions[i] = i;
    const struct batch_seq seq = {.n_rows = ROWS,
                                  .blocks = d->tables[4],
                                  .panes = d->panes[4],
                                  .state_from = BATCH_NO_STATE,
                                  .state_to = d->states[4]};
    const struct batch batch = {.n_rows = ROWS,
                                .tokens = golden_prompt,
                                .positions = positions,
                                .n_seqs = 1,
                                .seqs = &seq,
                                .n_logit_rows = 2,
                                .logit_rows = wanted};
    struct err_info e;
    float *logits;
    if (d->b->ops->run(d->b, &batch, &logits, &e) != OK)
        fail_msg("%s", e.text);
    memcpy(out, logits, (size_t)2 * d->n_vocab * sizeof *out);
}

/* A chunk, rows after it one by one, and rows of several sequences together. */
static void run_all(struct drive *d, bool apart, float *out)
{
    struct cuda_backend *b = cuda_of(d);
    const int32_t *tokens[3] = {golden_prompt, golden_prompt, golden_prompt};
    float *outs[3] = {out, out, out};
    b->apart = b->no_graphs = apart;
    for (uint32_t s = 0; s < 3; s++)
        drive_run(d, &(struct part){s, 0, N_CHUNK - 4 * s}, 1, tokens, outs);
    for (uint32_t i = 0; i < N_SINGLE; i++)
        drive_run(d, &(struct part){0, N_CHUNK + i, 1}, 1, tokens, outs);
    const struct part parts[3] = {
        {0, N_CHUNK + N_SINGLE, 1}, {1, N_CHUNK - 4, 2}, {2, N_CHUNK - 8, 9}};
    float *own[3];
    const size_t n = (size_t)N_PROMPT * d->n_vocab;
    for (uint32_t s = 0; s < 3; s++)
        own[s] = out + (s + 1) * n;
    drive_run(d, parts, 3, tokens, own);
    run_some(d, out + 4 * n);
    b->apart = b->no_graphs = false;
}

static void joining_changes_no_bit(void **state)
{
    (void)state;
    static const char *const names[] = {
        "quantised/llama.Q4_K_M",    "quantised/llama.F16",        "quantised/llama.BF16",
        "quantised/llama.Q8_0",      "quantised/llama.Q3_K_M",     "grids/llama.IQ2_M",
        "architectures/qwen3.f32",   "architectures/qwen3moe.f32", "architectures/olmo2.f32",
        "architectures/granite.f32", "variants/gemma2.f32",        "variants/qwen2moe.f32",
        "variants/gpt-oss.f32",      "variants/qwen3moe-nvfp4",    "families/gpt2.f32",
        "families/phi2.f32",         "families/nemotron.f32",      "families/llama4.f32",
        "families/deepseek2-v3.f32", "families/gemma3n.f32",       "families/gemma4-moe.f32",
        "families/apertus.f32",      "families/afmoe.f32",         "families/dbrx.f32",
        "families/laguna.f32",       "families/step35.f32",        "families/mimo2.f32",
        "families/bloom.f32",        "recurrent/qwen35moe.f32",    "recurrent/lfm2moe.f32",
        "recurrent/falcon-h1.f32",   "recurrent/nemotron_h.f32",   "recurrent/granitehybrid.f32"};
    size_t n_seen = 0;
    for (size_t k = 0; k < COUNT(names); k++) {
        char stem[64];
        const char *dot = strstr(names[k], ".f32");
        snprintf(stem, sizeof stem, "%.*s", (int)(dot ? dot - names[k] : 63), names[k]);
        if (is_left_out(stem) || few_leave_out(n_seen++, 3))
            continue;
        struct model *m = load_golden(names[k]);
        struct drive d;
        on_cuda(&d, m, KV_F16, 0);
        const size_t n = (size_t)5 * N_PROMPT * d.n_vocab;
        float *joined = mem_zalloc(n, sizeof(float)), *apart = mem_zalloc(n, sizeof(float));
        run_all(&d, false, joined);
        run_all(&d, true, apart);
        if (memcmp(joined, apart, n * sizeof(float)) != 0)
            fail_msg("%s: bits differ", names[k]);
        free(joined);
        free(apart);
        drive_close(&d);
        model_destroy(m);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_layer_takes_few_launches),
        cmocka_unit_test(rows_that_nobody_wants_end_at_the_last_keys),
        cmocka_unit_test(stages_are_joined_with_care),
        cmocka_unit_test(products_are_joined_with_care),
        cmocka_unit_test(joining_changes_no_bit),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
