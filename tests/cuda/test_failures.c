/* What fails is said once, where it fails: it leaves no error for a later call to be blamed with,
 * nothing taken, and what can go on goes on. Of the emulation, which fails on demand. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "backend/cuda/prefix_mirror.h"
#include "cuda/models.h"
#include "emu.h"

static struct backend_config config(void)
{
    return (struct backend_config){.device = {.kind = DEVICE_CUDA},
                                   .n_threads = 1,
                                   .kv_type = KV_F16,
                                   .n_blocks = 8,
                                   .n_states = 2,
                                   .block_tokens = 16,
                                   .max_rows = 8,
                                   .max_seqs = 8,
                                   .max_logit_rows = 8};
}

static size_t free_bytes(void)
{
    size_t left, total;
    assert_int_equal(cudaMemGetInfo(&left, &total), cudaSuccess);
    return left;
}

static void assert_nothing_is_left_behind(void)
{
    assert_int_equal(cudaPeekAtLastError(), cudaSuccess);
    assert_null(emu_take_report(NULL));
}

/* So many rows of one sequence, from its beginning; the logits of the last, the backend's. */
static const float *run_a_chunk(struct backend *b, uint32_t n)
{
    static const int32_t tokens[8] = {1, 2, 3, 4, 5, 6, 7, 8};
    static const uint32_t positions[8] = {0, 1, 2, 3, 4, 5, 6, 7}, zero;
    const uint32_t last = n - 1;
    const struct batch_seq seq = {.n_rows = n, .blocks = &zero, .panes = &zero};
    const struct batch chunk = {.n_rows = n,
                                .tokens = tokens,
                                .positions = positions,
                                .n_seqs = 1,
                                .seqs = &seq,
                                .n_logit_rows = 1,
                                .logit_rows = &last};
    struct err_info e = {0};
    float *logits;
    assert_int_equal(b->ops->run(b, &chunk, &logits, &e), OK);
    return logits;
}

/* A step of one row, whose logits are the caller's. */
static float *run_a_step(struct backend *b, uint32_t n_vocab)
{
    const float *logits = run_a_chunk(b, 1);
    return memcpy(mem_alloc(n_vocab * sizeof *logits), logits, n_vocab * sizeof *logits);
}

/* With a variable of the emulation set while the backend starts: so many graphs, and the same bits
 * with them and walked. */
static void starts_with_graphs(const struct model *m,
                               const char *name,
                               const char *value,
                               uint32_t n_graphs)
{
    struct backend_config cfg = config();
    struct backend *b;
    struct err_info e = {0};
    const size_t before = free_bytes();
    emu_count_captures_from_here();
    setenv(name, value, 1);
    assert_int_equal(cuda_backend_create(m, &cfg, &b, &e), OK);
    unsetenv(name);
    struct cuda_backend *c = (struct cuda_backend *)b;
    assert_nothing_is_left_behind();
    assert_int_equal(c->n_graphs, n_graphs);
    for (uint32_t i = n_graphs; i < CUDA_MAX_GRAPHS; i++)
        assert_null(c->graphs[i].exec);
    float *by_graph = run_a_step(b, m->hp.n_vocab);
    assert_int_equal(c->replays, n_graphs > 0);
    c->no_graphs = true;
    float *walked = run_a_step(b, m->hp.n_vocab);
    assert_memory_equal(by_graph, walked, m->hp.n_vocab * sizeof *walked);
    free(by_graph);
    free(walked);
    b->ops->destroy(b);
    assert_int_equal(free_bytes(), before);
}

static void a_capture_that_fails_leaves_the_others(void **state)
{
    (void)state;
    struct model *m = load_golden("quantised/llama.Q8_0");
    starts_with_graphs(m, "WEIR_EMU_CAPTURES", "0", 0);
    starts_with_graphs(m, "WEIR_EMU_CAPTURES", "3", 3);
    starts_with_graphs(m, "WEIR_EMU_GRAPHS", "1", 1);
    model_destroy(m);
}

/* Of an emulated device of 256 MiB a sixteenth is the driver's; how much that is graphs ask for. */
static void graphs_keep_to_what_was_left_for_them(void **state)
{
    (void)state;
    struct model *m = load_golden("quantised/llama.Q8_0");
    starts_with_graphs(m, "WEIR_EMU_GRAPH_KIB", "8192", 2);
    starts_with_graphs(m, "WEIR_EMU_GRAPH_KIB", "8193", 1);
    starts_with_graphs(m, "WEIR_EMU_GRAPH_KIB", "16385", 0);
    model_destroy(m);
}

/* With room for few, those of any context; in the order in which the first that covers a step is
 * the smallest. What computes a prompt has none. */
static void graphs_of_long_contexts_come_first(void **state)
{
    (void)state;
    struct model *m = load_golden("quantised/llama.Q8_0");
    struct backend_config cfg = config();
    struct backend *b;
    struct err_info e = {0};
    cfg.n_blocks = 64;
    for (int few = 0; few < 2; few++) {
        if (few)
            setenv("WEIR_EMU_GRAPHS", "3", 1);
        assert_int_equal(cuda_backend_create(m, &cfg, &b, &e), OK);
        unsetenv("WEIR_EMU_GRAPHS");
        struct cuda_backend *c = (struct cuda_backend *)b;
        assert_int_equal(c->most.ranges, 4);
        assert_int_equal(c->n_graphs, few ? 3 : 12); /* of 1, 2, 4 and 8 rows, 1, 2 and 4 ranges */
        for (uint32_t i = 0; i < c->n_graphs; i++) {
            const struct cuda_bounds *g = &c->graphs[i].bounds;
            assert_true(!few || (g->rows == 1u << i && g->ranges == c->most.ranges));
            const struct cuda_bounds *before = &c->graphs[i > 0 ? i - 1 : 0].bounds;
            assert_true(i == 0 || g->ranges > before->ranges || g->rows > before->rows);
        }
        run_a_chunk(b, 8);
        assert_int_equal(c->replays, 0);
        assert_int_equal(c->walks, 1);
        run_a_chunk(b, 1);
        assert_int_equal(c->replays, 1);
        const struct cuda_bounds four = {
            .rows = 4, .seqs = 4, .tiles = 4, .logit_rows = 4, .jobs = 4, .ranges = 1};
        const struct cuda_bounds eight = {
            .rows = 8, .seqs = 8, .tiles = 8, .logit_rows = 8, .jobs = 8, .ranges = 1};
        assert_int_equal(cuda_graph_for(c, &four), 2); /* the smallest that there is */
        assert_int_equal(cuda_graph_for(c, &eight), few ? -1 : 3);
        b->ops->destroy(b);
    }
    model_destroy(m);
}

/* One that no step before it has launched. */
static void a_kernel_refused_while_capturing_is_named(void **state)
{
    (void)state;
    struct model *m = load_golden("quantised/llama.Q8_0");
    struct backend_config cfg = config();
    struct backend *b;
    struct err_info e = {0};
    const size_t before = free_bytes();
    setenv("WEIR_EMU_REFUSE", "weigh_kernel", 1);
    assert_int_equal(cuda_backend_create(m, &cfg, &b, &e), ERR_INTERNAL);
    unsetenv("WEIR_EMU_REFUSE");
    assert_non_null(strstr(e.text, "the choice of tokens: too many resources requested"));
    assert_nothing_is_left_behind();
    assert_int_equal(free_bytes(), before);
    assert_int_equal(cuda_backend_create(m, &cfg, &b, &e), OK);
    b->ops->destroy(b);
    model_destroy(m);
}

/* It is known before anything is taken of it, so that AUTO can go on with another one. */
static void a_device_without_code_is_refused_at_once(void **state)
{
    (void)state;
    struct model *m = load_golden("quantised/llama.Q8_0");
    const struct backend_config cfg = config();
    struct device_info d;
    struct err_info e = {0};
    char versions[64];
    uint64_t kv_bytes;
    uint32_t n;
    setenv("WEIR_EMU_CODE", "0", 1);
    assert_int_equal(cuda_room(m, &cfg, &kv_bytes, &e), ERR_UNSUPPORTED);
    assert_non_null(strstr(e.text, "the plugin has no code for compute capability 9.0: no kernel"));
    assert_nothing_is_left_behind();
    assert_int_equal(cuda_device_list(&d, 1, &n, versions, &e), OK);
    assert_non_null(strstr(d.why_not, "no code"));
    assert_nothing_is_left_behind();
    unsetenv("WEIR_EMU_CODE");
    assert_int_equal(cuda_device_list(&d, 1, &n, versions, &e), OK);
    assert_string_equal(d.why_not, "");
    assert_int_equal(cuda_room(m, &cfg, &kv_bytes, &e), OK);
    model_destroy(m);
}

/* A step that samples, by one job with a penalty. */
static enum err begin_a_step(struct backend *b, struct err_info *e)
{
    static const int32_t tokens[] = {1, 2, 3}, from = -1;
    static const uint32_t zero = 0;
    const struct batch_seq seq = {.n_rows = 1, .blocks = &zero, .panes = &zero};
    const struct batch one = {.n_rows = 1,
                              .tokens = tokens,
                              .positions = &zero,
                              .n_seqs = 1,
                              .seqs = &seq,
                              .n_logit_rows = 1,
                              .logit_rows = &zero};
    const struct sample_params params = {.repetition_penalty = 1.5f, .top_p = 1.0f};
    const struct async_job job = {
        .position = 1, .params = &params, .tokens = tokens, .n_prompt = 3, .n_tokens = 3};
    const struct async_step step = {.batch = &one, .token_from = &from, .jobs = &job, .n_jobs = 1};
    return b->ops->async->begin(b, &step, e);
}

static int32_t end_a_step(struct backend *b)
{
    struct async_result r;
    struct err_info e = {0};
    assert_int_equal(b->ops->async->end(b, &r, &e), OK);
    return r.chosen[0];
}

/* What comes before a graph is not looked at by it. */
static void a_history_that_is_refused_fails_its_own_step(void **state)
{
    (void)state;
    struct model *m = load_golden("quantised/llama.Q8_0");
    struct backend_config cfg = config();
    struct backend *b;
    struct err_info e = {0};
    assert_int_equal(cuda_backend_create(m, &cfg, &b, &e), OK);
    assert_int_equal(begin_a_step(b, &e), OK);
    const int32_t want = end_a_step(b);
    const uint64_t replays = ((struct cuda_backend *)b)->replays;
    assert_int_equal(replays, 1);
    setenv("WEIR_EMU_REFUSE", "history_kernel", 1);
    assert_int_equal(begin_a_step(b, &e), ERR_INTERNAL);
    unsetenv("WEIR_EMU_REFUSE");
    assert_non_null(strstr(e.text, "the tokens of a history: too many resources requested"));
    assert_int_equal(((struct cuda_backend *)b)->replays, replays);
    assert_nothing_is_left_behind();
    assert_int_equal(begin_a_step(b, &e), OK);
    assert_int_equal(end_a_step(b), want);
    b->ops->destroy(b);
    model_destroy(m);
}

/* More entries than the device has memory for; the host has it, and gives it back. */
static void a_mirror_without_memory_leaves_nothing(void **state)
{
    (void)state;
    const size_t before = free_bytes();
    const uint64_t allocations = emu_get_figures().allocations_now;
    assert_null(cuda_prefix_mirror_create(1u << 24, 16)); /* 2 x 2^24 of 16 bytes */
    assert_nothing_is_left_behind();
    assert_int_equal(free_bytes(), before);
    assert_int_equal(emu_get_figures().allocations_now, allocations);
    assert_null(cuda_prefix_mirror_create(64, 1u << 25)); /* the table is there by then */
    assert_nothing_is_left_behind();
    assert_int_equal(free_bytes(), before);
    assert_int_equal(emu_get_figures().allocations_now, allocations);
}

static void a_lookup_that_is_refused_says_so(void **state)
{
    (void)state;
    const uint64_t hash = 7;
    int32_t value = 0;
    cudaStream_t stream;
    assert_int_equal(cudaStreamCreate(&stream), cudaSuccess);
    struct cuda_prefix_mirror *m = cuda_prefix_mirror_create(64, 1);
    cuda_prefix_mirror_put(m, hash, 3);
    setenv("WEIR_EMU_REFUSE", "lookup", 1);
    assert_int_equal(cuda_prefix_mirror_answer(m, &hash, 1, &value, 1, stream),
                     cudaErrorLaunchOutOfResources);
    unsetenv("WEIR_EMU_REFUSE");
    assert_nothing_is_left_behind();
    assert_int_equal(cuda_prefix_mirror_answer(m, &hash, 1, &value, 1, stream), cudaSuccess);
    assert_int_equal(value, 3);
    cuda_prefix_mirror_destroy(m);
    assert_int_equal(cudaStreamDestroy(stream), cudaSuccess);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_capture_that_fails_leaves_the_others),
        cmocka_unit_test(graphs_keep_to_what_was_left_for_them),
        cmocka_unit_test(graphs_of_long_contexts_come_first),
        cmocka_unit_test(a_kernel_refused_while_capturing_is_named),
        cmocka_unit_test(a_device_without_code_is_refused_at_once),
        cmocka_unit_test(a_history_that_is_refused_fails_its_own_step),
        cmocka_unit_test(a_mirror_without_memory_leaves_nothing),
        cmocka_unit_test(a_lookup_that_is_refused_says_so),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
