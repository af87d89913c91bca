/* Rule one of a backend, for whole models on a device or its emulation: the same bits for every
 * chunking, batch, block table, graph and bound. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "cuda/models.h"
#include "few.h"

/* Do logits differ, where both are wanted? */
static bool differ(const struct drive *d, const float *a, const float *b)
{
    for (size_t p = 0; p < N_PROMPT; p += d->wanted_each) {
        if (memcmp(a + p * d->n_vocab, b + p * d->n_vocab, d->n_vocab * sizeof *a) != 0)
            return true;
    }
    return false;
}

/* All of a sequence at once; three mixed; the first again, row by row from `from` on, by graphs.
 * Of three positions' logits one is looked at: they are most of the work, what a row left for those
 * behind it is in theirs, and a row's place among those that are wanted varies the more. */
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
    a.wanted_each = b.wanted_each = 3;
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
    int bad = differ(&a, alone[0], single);
    for (uint32_t s = 0; s < 3; s++) {
        bad += differ(&a, alone[s], mixed[s]);
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
    check_invariance("variants/gpt-oss.f32", KV_F32, 60);
    check_invariance("recurrent/qwen35.f32", KV_F16, 60);
    if (is_left_out("") && few_shapes()) /* the kernels' own tests compare bits too */
        return;
    check_invariance("quantised/llama.Q4_K_M", KV_F16, 60);
    check_invariance("families/gemma3n.f32", KV_F16, 60);
    if (is_left_out(""))
        return;
    check_invariance("quantised/llama.Q8_0", KV_F16, 30);
    check_invariance("quantised/llama.F16", KV_BF16, 60);
    check_invariance("quantised/llama.Q6_K", KV_Q8_0, 60);
    check_invariance("architectures/qwen3.f32", KV_F32, 60);
    check_invariance("architectures/qwen3moe.f32", KV_F16, 60);
    check_invariance("variants/gemma2.f32", KV_F16, 60);
    check_invariance("families/deepseek2-v3.f32", KV_F16, 60);
    check_invariance("families/llama4.f32", KV_F16, 60);
    check_invariance("families/gemma4.f32", KV_F16, 60);
    check_invariance("families/gemma4-moe.f32", KV_F16, 60);
    check_invariance("families/afmoe.f32", KV_F16, 60);
    check_invariance("families/laguna.f32", KV_F16, 60);
    check_invariance("families/mimo2.f32", KV_F16, 60);
    check_invariance("families/hy_v4.f32", KV_F16, 60);
    check_invariance("families/bloom.f32", KV_F16, 60);
    check_invariance("variants/qwen3moe-nvfp4", KV_F16, 60);
    check_invariance("variants/qwen2moe.f32", KV_F32, 60);
    check_invariance("recurrent/mamba2.f32", KV_F16, 60);
    check_invariance("recurrent/jamba.f32", KV_F16, 60);
    check_invariance("recurrent/rwkv6.f32", KV_F16, 60);
    check_invariance("recurrent/rwkv7.f32", KV_F16, 60);
    check_invariance("recurrent/rwkv7-small.f32", KV_F16, 60);
    check_invariance("recurrent/rwkv6qwen2-small.f32", KV_F16, 60);
    check_invariance("recurrent/arwkv7-bare.f32", KV_F16, 60);
    check_invariance("recurrent/minimax-01-listed.f32", KV_F16, 60);
    check_invariance("recurrent/plamo2-last.f32", KV_F16, 60);
    check_invariance("recurrent/lfm2moe.f32", KV_F16, 60);
    check_invariance("recurrent/qwen3next.f32", KV_F16, 30);
    check_invariance("recurrent/falcon-h1.f32", KV_F16, 60);
    check_invariance("recurrent/nemotron_h_moe.f32", KV_F16, 60);
    check_invariance("recurrent/kimi-linear.f32", KV_F16, 60);
    check_invariance("recurrent/kimi-k3.f32", KV_F16, 60);
    check_invariance("recurrent/bailingmoe3.f32", KV_F16, 30);
    check_invariance("recurrent/nemotron_h_moe-puzzle.f32", KV_F16, 30);
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
        if (few_leave_out(k, 3))
            continue;
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

/* --- states of recurrent layers --- */

enum { KEPT_AT = 48, N_FROM_KEPT = 5 };

/* Sequences first .. first + n - 1, each with a token of its own, go on from the state, and the
 * blocks, that the first of all has left at KEPT_AT. */
static void run_from_kept(struct drive *d, uint32_t first, uint32_t n, float *out)
{
    static struct made step;
    uint32_t tables[N_FROM_KEPT][64];
    struct err_info e;
    float *logits;
    made_begin(&step);
    for (uint32_t i = 0; i < n; i++) {
        const uint32_t s = first + i, shared = KEPT_AT / d->block_tokens;
        memcpy(tables[i], d->tables[s], sizeof tables[i]);
        memcpy(tables[i], d->tables[0], shared * sizeof tables[i][0]);
        const struct batch_seq seq = {.n_rows = 1,
                                      .first_pos = KEPT_AT,
                                      .blocks = tables[i],
                                      .state_from = d->kept[0][shared - 1],
                                      .state_to = d->states[s]};
        made_add(&step, seq, golden_prompt + s);
    }
    step.batch.n_logit_rows = made_want_all(&step);
    if (d->b->ops->run(d->b, &step.batch, &logits, &e) != OK)
        fail_msg("%s", e.text);
    memcpy(out, logits, (size_t)n * d->n_vocab * sizeof *out);
}

/* A state that was another text's is begun anew; one that is kept serves many at once, and again,
 * by a graph, by walks, within the largest bounds, and each alone: the same bits. */
static void states_are_kept_and_begun_anew(void **state)
{
    (void)state;
    static const char *const names[] = {"recurrent/qwen35.f32",
                                        "recurrent/lfm2.f32",
                                        "recurrent/granitehybrid.f32",
                                        "recurrent/mamba2.f32",
                                        "recurrent/kimi-linear.f32",
                                        "recurrent/rwkv7.f32",
                                        "recurrent/falcon-mamba.f32"};
    for (size_t k = 0; k < COUNT(names); k++) {
        if (few_leave_out(k, 2))
            continue;
        struct model *m = load_golden(names[k]);
        const int32_t *tokens = golden_prompt;
        int32_t other[N_PROMPT];
        for (uint32_t i = 0; i < N_PROMPT; i++)
            other[i] = golden_prompt[N_PROMPT - 1 - i];
        const int32_t *others = other;
        struct drive d;
        on_cuda(&d, m, KV_F16, 5);
        struct cuda_backend *b = cuda_of(&d);
        const size_t n = (size_t)N_PROMPT * d.n_vocab, one = d.n_vocab;
        float *want = mem_zalloc(n, sizeof *want), *again = mem_zalloc(n, sizeof *again);
        float *got[4];
        drive_run(&d, &(struct part){0, 0, N_PROMPT}, 1, &tokens, &want);
        for (uint32_t s = 0; s < N_FROM_KEPT; s++)
            drive_run(&d, &(struct part){s, 0, 50 + s}, 1, &others, &again);
        drive_run(&d, &(struct part){0, 0, N_PROMPT}, 1, &tokens, &again);
        assert_memory_equal(want, again, n * sizeof *want);
        for (int way = 0; way < 4; way++) {
            got[way] = mem_zalloc(N_FROM_KEPT * one, sizeof(float));
            const uint64_t replays = b->replays, walks = b->walks;
            b->no_graphs = way == 1 || way == 2;
            b->at_most = way == 2;
            if (way < 3)
                run_from_kept(&d, 0, N_FROM_KEPT, got[way]);
            for (uint32_t s = 0; way == 3 && s < N_FROM_KEPT; s++)
                run_from_kept(&d, s, 1, got[way] + s * one);
            assert_int_equal(b->replays - replays, way == 0 ? 1 : way == 3 ? N_FROM_KEPT : 0);
            assert_int_equal(b->walks - walks, way == 1 || way == 2);
            assert_memory_equal(got[0], got[way], N_FROM_KEPT * one * sizeof(float));
        }
        assert_memory_equal(got[0], want + KEPT_AT * one, one * sizeof(float));
        for (int way = 0; way < 4; way++)
            free(got[way]);
        free(want);
        free(again);
        drive_close(&d);
        model_destroy(m);
    }
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

/* --- blocks --- */

/* What follows from a copy of the blocks, and from their bytes written elsewhere, has the same
 * bits. */
static void blocks_move(void **state)
{
    (void)state;
    static const char *const names[] = {
        "architectures/qwen3.f32", "variants/gemma2.f32", "families/gemma4.f32"};
    for (size_t k = 0; k < COUNT(names); k++) {
        if (few_leave_out(k, 2))
            continue;
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bits_do_not_depend_on_company),
        cmocka_unit_test(graphs_and_bounds_change_no_bit),
        cmocka_unit_test(states_are_kept_and_begun_anew),
        cmocka_unit_test(shared_memory_changes_no_bit),
        cmocka_unit_test(blocks_move),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
