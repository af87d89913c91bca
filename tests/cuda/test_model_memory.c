/* What a backend takes of a device and of the host, and what it refuses. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "cuda/models.h"

#ifdef EMU_CUDA_RUNTIME_API_H
#include "emu.h"
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

static void check_steps(const char *name)
{
    struct model *m = load_golden(name);
    const int32_t *tokens = golden_prompt;
    struct gpu_stats before, after;
    struct drive d;
    on_cuda(&d, m, KV_Q8_0, 0);
    float *out = mem_zalloc((size_t)N_PROMPT * d.n_vocab, sizeof *out);
#ifndef EMU_CUDA_RUNTIME_API_H
    /* CUDA's own library, which is part of this program, allocates where a kernel is launched for
     * the first time */
    drive_run(&d, &(struct part){0, 0, 60}, 1, &tokens, &out);
#endif
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
    assert_int_equal(after.walks - before.walks, 1);
    assert_int_equal(after.replays - before.replays, 10);
    assert_true(after.queue.busy_us > before.queue.busy_us);
    free(out);
    drive_close(&d);
    model_destroy(m);
}

static void a_step_allocates_nothing(void **state)
{
    (void)state;
    check_steps("quantised/llama.Q4_K_M");
    check_steps("recurrent/qwen35.f32");
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
                                   .n_states = 2,
                                   .block_tokens = 16,
                                   .max_rows = 4,
                                   .max_seqs = 1,
                                   .max_logit_rows = 1};
}

/* A device without memory for all graphs has fewer, and walks what none covers: the same bits. */
static void fewer_graphs_are_enough(void **state)
{
    (void)state;
#ifdef EMU_CUDA_RUNTIME_API_H
    struct model *m = load_golden("quantised/llama.Q8_0");
    const int32_t *tokens = golden_prompt;
    float *got[2];
    size_t bytes = 0;
    for (int few = 0; few < 2; few++) {
        struct drive d;
        if (few)
            setenv("WEIR_EMU_GRAPHS", "2", 1);
        on_cuda(&d, m, KV_F16, 0);
        unsetenv("WEIR_EMU_GRAPHS");
        bytes = (size_t)N_PROMPT * d.n_vocab * sizeof(float);
        assert_true(few ? cuda_of(&d)->n_graphs == 2 : cuda_of(&d)->n_graphs > 2);
        got[few] = whole_prompt(&d);
        const uint64_t replays = cuda_of(&d)->replays;
        drive_run(&d, &(struct part){0, N_PROMPT - 1, 1}, 1, &tokens, &got[few]);
        assert_int_equal(cuda_of(&d)->replays, replays + 1);
        drive_close(&d);
    }
    assert_memory_equal(got[0], got[1], bytes);
    free(got[0]);
    free(got[1]);
    model_destroy(m);
#else
    skip();
#endif
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
    static const uint32_t dims[] = {20, 520};
    for (size_t k = 0; k < COUNT(dims); k++) {
        for (uint32_t i = 0; i < m->n_ops; i++)
            m->ops[i].head_dim =
                m->ops[i].layer == 1 ? dims[k] : m->hp.head_dim; /* one is enough */
        assert_int_equal(cuda_backend_create(m, &cfg, &b, &e), ERR_UNSUPPORTED);
        assert_null(b);
        assert_non_null(strstr(e.text, "a multiple of 8, at most 512"));
    }
    model_destroy(m);
}

/* Of a part of the device that is named: what is free of a real one changes from call to call. */
static void check_left(const char *name)
{
    struct model *m = load_golden(name);
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
    const size_t states = cfg.n_states * model_state_bytes(m);
    const size_t block = backend_kv_block_bytes(m, KV_F16, 16);
    cfg.n_blocks = (uint32_t)((kv_bytes - states) / block);
    assert_int_equal(cuda_backend_create(m, &cfg, &b, &e), OK);
    struct gpu_stats st;
    b->ops->gpu_stats(b, &st);
    assert_int_equal(st.kv_bytes, cfg.n_blocks * block + states);
    assert_true(b->ops->memory_bytes(b) >= st.kv_bytes + st.weights_bytes);
    b->ops->destroy(b);
    cfg.n_blocks++;
    assert_int_equal(cuda_backend_create(m, &cfg, &b, &e), ERR_NOMEM);
    assert_int_equal(cudaMemGetInfo(&free_after, &total), cudaSuccess);
    assert_as_free(free_before, free_after);
    model_destroy(m);
}

/* What it says is left can be had, all of it, and no more. */
static void what_is_left_can_be_had(void **state)
{
    (void)state;
    check_left("architectures/llama.f32");
    check_left("recurrent/qwen35.f32");
}

static void states_are_asked_for(void **state)
{
    (void)state;
    struct model *m = load_golden("recurrent/lfm2.f32");
    struct backend_config cfg = small_config();
    struct backend *b;
    struct err_info e = {0};
    cfg.n_states = 0;
    assert_int_equal(cuda_backend_create(m, &cfg, &b, &e), ERR_INVALID);
    assert_null(b);
    assert_non_null(strstr(e.text, "states"));
    cfg.n_states = UINT32_MAX;
    assert_int_equal(cuda_backend_create(m, &cfg, &b, &e), ERR_NOMEM);
    assert_null(b);
    model_destroy(m);
}

/* A kernel that the device refuses, of those that only large steps launch, is known at start. */
static void all_kernels_are_launched_at_start(void **state)
{
    (void)state;
#ifdef EMU_CUDA_RUNTIME_API_H
    struct model *m = load_golden("quantised/llama.Q8_0");
    struct backend_config cfg = small_config();
    struct backend *b;
    struct err_info e = {0};
    cfg.max_rows = 128;
    setenv("WEIR_CUDA_WGMMA", "0", 1);
    setenv("WEIR_EMU_REFUSE", "linear_many<F, P>", 1);
    assert_int_equal(cuda_backend_create(m, &cfg, &b, &e), ERR_INTERNAL);
    assert_non_null(strstr(e.text, "a launch: too many resources requested"));
    unsetenv("WEIR_EMU_REFUSE");
    assert_int_equal(cuda_backend_create(m, &cfg, &b, &e), OK);
    unsetenv("WEIR_CUDA_WGMMA");
    b->ops->destroy(b);
    model_destroy(m);
#else
    skip();
#endif
}

/* The driver is told before it is first looked for: it need not look again. */
static void kernels_are_loaded_at_once(void **state)
{
    (void)state;
#ifdef EMU_CUDA_RUNTIME_API_H
    struct device_info info;
    struct err_info e = {0};
    uint32_t n;
    char versions[64];
    unsetenv("CUDA_MODULE_LOADING");
    emu_lazy_calls = 0;
    assert_int_equal(cuda_device_list(&info, 1, &n, versions, &e), OK);
    assert_int_equal(emu_lazy_calls, 0);
    unsetenv("CUDA_MODULE_LOADING");
    assert_int_equal(cuda_device_open(0, &info, &e), OK);
    assert_int_equal(emu_lazy_calls, 0);
#else
    skip();
#endif
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_step_allocates_nothing),
        cmocka_unit_test(buffers_come_back_zeroed),
        cmocka_unit_test(fewer_graphs_are_enough),
        cmocka_unit_test(what_does_not_fit_is_refused),
        cmocka_unit_test(heads_of_other_sizes_are_refused),
        cmocka_unit_test(what_is_left_can_be_had),
        cmocka_unit_test(states_are_asked_for),
        cmocka_unit_test(all_kernels_are_launched_at_start),
        cmocka_unit_test(kernels_are_loaded_at_once),
        cmocka_unit_test(runs_on_a_device_that_is_not_current),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
