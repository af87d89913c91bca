/* Products by wgmma: the bits of mma in every format and over odd shapes, and that a backend uses
 * it only where that is so. The emulated form sums as mma does, or, where a test says so, the other
 * way, as a device might. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "backend/cuda/cuda.h"
#include "cuda/device.h"
#include "few.h"
#include "unit/backend/cpu/drive.h"
#include "unit/backend/cpu/weights.h"

#include <stdlib.h>

#define COUNT(a) (sizeof(a) / sizeof(a)[0])

#ifdef EMU_CUDA_RUNTIME_API_H
extern int emu_wgmma_backwards;
static void plant(int difference)
{
    emu_wgmma_backwards = difference;
}
enum { EMULATED = 1 };
#else
static void plant(int difference)
{
    (void)difference;
}
enum { EMULATED = 0 };
#endif

/* One matrix and rows for it. */
struct product {
    struct cuda_at at;
    struct cuda_linear op;
    size_t out_bytes;
};

static struct product make_product(enum gguf_type type, uint32_t k, uint32_t n, uint32_t rows)
{
    const struct gguf_tensor w = make_tensor(type, k, n);
    const uint32_t step = CUDA_PART_ROWS, bound = rows + rnd() % 3 * 70;
    const size_t part = cuda_part_bytes((int)type, k), bytes = cuda_matrix_bytes((int)type, k, n);
    const unsigned form = cuda_act_form((int)type);
    uint8_t *packed = mem_alloc(bytes);
    float *x = mem_alloc((size_t)rows * k * sizeof *x);
    for (uint32_t r = 0; r < n; r += step)
        cuda_part_pack((int)type,
                       k,
                       n - r < step ? n - r : step,
                       w.data + r * (w.n_bytes / n),
                       packed + r / step * part);
    for (size_t i = 0; i < (size_t)rows * k; i++)
        x[i] = rnd_float();
    struct product p = {.at = at_make(rows, bound), .out_bytes = (size_t)rows * n * sizeof(float)};
    p.op = (struct cuda_linear){
        .w = {(int)type, k, n, device_copy(packed, bytes)},
        .act = {.data = device_bytes(cuda_act_bytes(form, bound, k)), .k = k, .forms = form},
        .out = {device_bytes(p.out_bytes), n},
        .scratch = device_bytes(cuda_linear_scratch(bound, k, n))};
    float *in = device_copy(x, (size_t)rows * k * sizeof *x);
    cuda_act_pack(&p.at, (struct cuda_buf){in, k}, &p.op.act);
    assert_int_equal(cudaDeviceSynchronize(), cudaSuccess);
    cudaFree(in);
    free(x);
    free(packed);
    free((void *)(uintptr_t)w.data);
    return p;
}

static float *run_product(struct product *p, int wgmma)
{
    float *out = mem_alloc(p->out_bytes);
    p->at.wgmma = wgmma;
    p->at.processors = rnd() % 2; /* so few have blocks of 256 outputs */
    cuda_linear(&p->at, &p->op, 1);
    host_copy(out, p->op.out.p, p->out_bytes);
    return out;
}

static void free_product(struct product *p)
{
    cudaFree((void *)(uintptr_t)p->op.w.data);
    cudaFree(p->op.act.data);
    cudaFree(p->op.out.p);
    cudaFree(p->op.scratch);
    at_free(&p->at);
}

/* Where processors are few, ranges have blocks of their own, and there are blocks of 256 outputs:
 * never both, and within the scratch that there is. Rows that are not there cost nothing but it. */
static void ranges_stay_within_scratch(void **s)
{
    (void)s;
    static const uint32_t processors[] = {16, 32, 42, 132}, bounds[] = {130, 257, 384};
    if (!EMULATED && !device_has_wgmma())
        skip();
    for (size_t i = 0; i < COUNT(processors) * COUNT(bounds); i += few_shapes() ? 5 : 1) {
        struct product p = make_product(GGUF_TYPE_F16, 512, 4096, 1);
        const uint32_t bound = bounds[i % COUNT(bounds)];
        cudaFree(p.op.act.data);
        cudaFree(p.op.scratch);
        p.at.bounds.rows = bound;
        p.at.wgmma = 1;
        p.at.processors = processors[i / COUNT(bounds)];
        p.op.act.data = device_bytes(cuda_act_bytes(p.op.act.forms, bound, p.op.act.k));
        p.op.scratch = device_bytes(cuda_linear_scratch(bound, 512, 4096));
        cuda_linear(&p.at, &p.op, 1);
        assert_int_equal(cudaDeviceSynchronize(), cudaSuccess);
        free_product(&p);
    }
}

/* Of every layout. A difference that is planted shows, so it was wgmma that multiplied; in one
 * column of few values it may be rounded away. */
static void every_format_has_the_bits_of_mma(void **s)
{
    (void)s;
    static const enum gguf_type types[] = {GGUF_TYPE_F16,
                                           GGUF_TYPE_BF16,
                                           GGUF_TYPE_Q8_0,
                                           GGUF_TYPE_Q4_0,
                                           GGUF_TYPE_Q4_1,
                                           GGUF_TYPE_Q5_0,
                                           GGUF_TYPE_Q5_1,
                                           GGUF_TYPE_Q2_K,
                                           GGUF_TYPE_Q3_K,
                                           GGUF_TYPE_Q4_K,
                                           GGUF_TYPE_Q5_K,
                                           GGUF_TYPE_Q6_K,
                                           GGUF_TYPE_IQ4_NL,
                                           GGUF_TYPE_IQ4_XS,
                                           GGUF_TYPE_MXFP4,
                                           GGUF_TYPE_NVFP4,
                                           GGUF_TYPE_IQ2_XS,
                                           GGUF_TYPE_TQ1_0};
    static const uint32_t rows[] = {17, 40, 65, 72, 128, 129, 200},
                          outs[] = {1, 16, 40, 128, 150, 300};
    if (!EMULATED && !device_has_wgmma())
        skip();
    for (size_t t = 0; t < COUNT(types) * 2; t += few_shapes() ? 2 : 1) {
        const uint32_t k = 256 * (1 + (few_shapes() ? 1 : rnd() % 4));
        const uint32_t n = outs[few_shapes() ? 2 : rnd() % COUNT(outs)];
        struct product p = make_product(types[t / 2], k, n, rows[rnd() % COUNT(rows)]);
        float *mma = run_product(&p, 0), *wgmma = run_product(&p, 1);
        assert_memory_equal(mma, wgmma, p.out_bytes);
        free(wgmma);
        plant(1);
        wgmma = run_product(&p, 1);
        plant(0);
        if (EMULATED && n > 1)
            assert_memory_not_equal(mma, wgmma, p.out_bytes);
        free(wgmma);
        free(mma);
        free_product(&p);
    }
}

static enum gpu_wgmma state_of(const struct drive *d)
{
    struct gpu_stats s;
    d->b->ops->gpu_stats(d->b, &s);
    return s.wgmma;
}

/* All logits of the golden prompt, in one batch; what the backend says of wgmma. */
static float *logits_of(const struct model *m, enum gpu_wgmma *said)
{
    struct drive d;
    const int32_t *tokens = golden_prompt;
    drive_open_on(&d, m, cuda_backend_create, KV_F16, 1, 16, 0);
    float *out = mem_zalloc((size_t)N_PROMPT * d.n_vocab, sizeof *out);
    drive_run(&d, &(struct part){0, 0, N_PROMPT}, 1, &tokens, &out);
    *said = state_of(&d);
    drive_close(&d);
    return out;
}

/* The prompt's 70 rows are enough for wgmma, where it is used. */
static void a_backend_uses_it_where_no_bit_differs(void **s)
{
    (void)s;
    static const char *const names[] = {"quantised/llama.Q4_K_M", "quantised/llama.F16"};
    if (!device_has_wgmma() || few_shapes())
        skip();
    for (size_t i = 0; i < COUNT(names); i++) {
        struct model *m = load_golden(names[i]);
        const size_t bytes = (size_t)N_PROMPT * m->hp.n_vocab * sizeof(float);
        enum gpu_wgmma said;
        float *used = logits_of(m, &said);
        assert_int_equal(said, GPU_WGMMA_USED);
        setenv("WEIR_CUDA_WGMMA", "0", 1);
        float *off = logits_of(m, &said);
        unsetenv("WEIR_CUDA_WGMMA");
        assert_int_equal(said, GPU_WGMMA_OFF);
        assert_memory_equal(used, off, bytes);
        if (EMULATED) {
            plant(1);
            float *planted = logits_of(m, &said);
            plant(0);
            assert_int_equal(said, GPU_WGMMA_OFF);
            assert_memory_equal(planted, off, bytes);
            free(planted);
        }
        free(used);
        free(off);
        model_destroy(m);
    }
}

/* A model of f32 has no use for it; another device has none. */
static void it_is_not_looked_for_in_vain(void **s)
{
    (void)s;
    enum gpu_wgmma said;
    if (few_shapes())
        skip();
    struct model *m = load_golden("architectures/llama.f32");
    free(logits_of(m, &said));
    assert_int_equal(said, GPU_WGMMA_NONE);
    model_destroy(m);
    if (!EMULATED)
        return;
    m = load_golden("quantised/llama.Q8_0");
    setenv("WEIR_EMU_SHARED_KIB", "99", 1); /* as of compute capability 8.9 */
    free(logits_of(m, &said));
    unsetenv("WEIR_EMU_SHARED_KIB");
    assert_int_equal(said, GPU_WGMMA_NONE);
    model_destroy(m);
}

static int start(void **s)
{
    (void)s;
    const char *given = getenv("SEED");
    random_state = given ? strtoull(given, NULL, 0) : 20240817;
    print_message("SEED=%llu\n", (unsigned long long)random_state);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ranges_stay_within_scratch),
        cmocka_unit_test(every_format_has_the_bits_of_mma),
        cmocka_unit_test(a_backend_uses_it_where_no_bit_differs),
        cmocka_unit_test(it_is_not_looked_for_in_vain),
    };
    return cmocka_run_group_tests(tests, start, NULL);
}
