/* Whether this device's wgmma gives the bits of its mma. Few rows are multiplied by mma and many
 * may be by wgmma, and a row's bits must not depend on how many others there are; the order of sums
 * within an instruction is the device's own, and written down nowhere. So both multiply the same
 * random numbers, in each format that the model has, and wgmma is used where no bit differs:
 *
 *      none   the device has no wgmma (it is of compute capability 9.0), or the model no use for it
 *      off    a bit differed, or an error came, or WEIR_CUDA_WGMMA=0 said so
 *      used
 *
 * An error may be one that CUDA keeps for good; then nothing else works either, and who starts Weir
 * again says WEIR_CUDA_WGMMA=0.
 *
 * Numbers are of many sizes, 2^-12 to 2^12, so that what an instruction cuts off or adds in another
 * order shows. Before anything else is on the device; what it takes there it gives back. */
#include "backend/cuda/cuda.h"
#include "base/log.h"
#include "base/mem.h"
#include "gguf/blocks.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAJOR_WITH_WGMMA = 9, FIRST_ROWS = 17, MOST_TYPES = 64 };

/* K, outputs, rows: one range and several of K, blocks that are full and not, of 128 rows and
 * of 64. K is whole super-blocks. */
static const uint32_t shapes[][3] = {{256, 130, 130}, {768, 24, 70}, {512, 70, 40}};

static uint32_t next_random(uint32_t *state)
{
    *state ^= *state << 13;
    *state ^= *state >> 17;
    *state ^= *state << 5;
    return *state;
}

/* Everything that a comparison takes. */
struct trial {
    uint8_t *packed;           /* of the host */
    float *x, *got[2];         /* likewise */
    void *w, *in, *act, *part; /* of the device */
    void *out, *counts;
};

static void free_trial(struct trial *t)
{
    free(t->packed);
    free(t->x);
    free(t->got[0]);
    free(t->got[1]);
    (void)cudaFree(t->w);
    (void)cudaFree(t->in);
    (void)cudaFree(t->act);
    (void)cudaFree(t->part);
    (void)cudaFree(t->out);
    (void)cudaFree(t->counts);
}

/* Weights of a type: any bits, but that the upper half of each 16 bits is a small f16 or bf16,
 * where a scale may be. */
static void fill_weights(struct trial *t, int type, uint32_t n_in, uint32_t n_out, uint32_t *seed)
{
    const struct gguf_type_info *info = gguf_type_info((enum gguf_type)type);
    const size_t row_bytes = (size_t)n_in / info->block_values * info->block_bytes;
    const uint32_t step = CUDA_PART_ROWS;
    const size_t part = cuda_part_bytes(type, n_in);
    uint8_t *rows = mem_alloc(row_bytes * step);
    for (uint32_t r = 0; r < n_out; r += step) {
        for (size_t i = 0; i < row_bytes * step; i++)
            rows[i] = (uint8_t)(next_random(seed) & (i % 2 ? 0xbf : 0xff));
        cuda_part_pack(
            type, n_in, n_out - r < step ? n_out - r : step, rows, t->packed + r / step * part);
    }
    free(rows);
}

static cudaError_t upload(void **to, const void *from, size_t n)
{
    cudaError_t rc = cudaMalloc(to, n);
    if (rc == cudaSuccess && from)
        rc = cudaMemcpy(*to, from, n, cudaMemcpyHostToDevice);
    return rc;
}

static cudaError_t take_trial(
    struct trial *t, int type, uint32_t n_in, uint32_t n_out, uint32_t n_rows, uint32_t *seed)
{
    const size_t matrix = cuda_matrix_bytes(type, n_in, n_out);
    const size_t in_n = (size_t)n_rows * n_in, out_n = (size_t)n_rows * n_out;
    const struct cuda_counts counts = {.n_rows = n_rows};
    t->packed = mem_alloc(matrix);
    t->x = mem_alloc(in_n * sizeof *t->x);
    for (int i = 0; i < 2; i++)
        t->got[i] = mem_alloc(out_n * sizeof **t->got);
    fill_weights(t, type, n_in, n_out, seed);
    for (size_t i = 0; i < in_n; i++) {
        const uint32_t a = next_random(seed), b = next_random(seed);
        t->x[i] = ldexpf((float)(a >> 8) * 0x1p-23f - 1, (int)(b % 25) - 12);
    }
    const size_t scratch = cuda_linear_scratch(n_rows, n_in, n_out);
    cudaError_t rc = upload(&t->w, t->packed, matrix);
    if (rc == cudaSuccess)
        rc = upload(&t->in, t->x, in_n * sizeof *t->x);
    if (rc == cudaSuccess)
        rc = upload(&t->counts, &counts, sizeof counts);
    if (rc == cudaSuccess)
        rc = upload(&t->act, NULL, cuda_act_bytes(cuda_act_form(type), n_rows, n_in));
    if (rc == cudaSuccess)
        rc = upload(&t->part, NULL, scratch ? scratch : 1);
    return rc == cudaSuccess ? upload(&t->out, NULL, out_n * sizeof(float)) : rc;
}

/* One product, either way; what nobody writes is NaN. */
static cudaError_t multiply(const struct trial *t,
                            int type,
                            const uint32_t shape[3],
                            struct cuda_at *at,
                            bool wgmma,
                            float *got)
{
    const size_t bytes = (size_t)shape[2] * shape[1] * sizeof(float);
    const struct cuda_linear op = {
        .w = {.type = type, .n_in = shape[0], .n_out = shape[1], .data = t->w},
        .act = {.data = t->act, .k = shape[0], .forms = cuda_act_form(type)},
        .out = {.p = t->out, .stride = shape[1]},
        .scratch = t->part};
    at->wgmma = wgmma;
    cudaError_t rc = cudaMemsetAsync(t->out, 0xff, bytes, at->stream);
    if (rc != cudaSuccess)
        return rc;
    cuda_act_pack(at, (struct cuda_buf){t->in, shape[0]}, &op.act);
    cuda_linear(at, &op, 1);
    rc = cudaGetLastError();
    if (rc == cudaSuccess)
        rc = cudaStreamSynchronize(at->stream);
    return rc == cudaSuccess ? cudaMemcpy(got, t->out, bytes, cudaMemcpyDeviceToHost) : rc;
}

static uint32_t bits_of(float v)
{
    uint32_t bits;
    memcpy(&bits, &v, sizeof bits);
    return bits;
}

/* `why` is filled where it does not. */
/* wide: by the kernel of 256 outputs a block, which a device of few processors takes sooner. */
static bool agrees(
    int type, const uint32_t shape[3], uint32_t block_shared, bool wide, char why[160])
{
    struct trial t = {0};
    uint32_t seed = 0x9e3779b9u + (uint32_t)type * 977u + shape[0];
    cudaError_t rc = take_trial(&t, type, shape[0], shape[1], shape[2], &seed);
    struct cuda_at at = {.rows = CUDA_ROWS_ALL, .block_shared = block_shared, .processors = wide};
    at.bounds.rows = shape[2];
    at.step.counts = t.counts;
    if (rc == cudaSuccess)
        rc = multiply(&t, type, shape, &at, false, t.got[0]);
    if (rc == cudaSuccess)
        rc = multiply(&t, type, shape, &at, true, t.got[1]);
    size_t differ = 0;
    const size_t n = (size_t)shape[1] * shape[2];
    for (size_t i = 0; rc == cudaSuccess && i < n; i++)
        differ += bits_of(t.got[0][i]) != bits_of(t.got[1][i]);
    if (rc != cudaSuccess)
        snprintf(why, 160, "%s (WEIR_CUDA_WGMMA=0 leaves it alone)", cudaGetErrorString(rc));
    else if (differ)
        snprintf(why,
                 160,
                 "%zu of %zu results with %s weights have other bits than mma's",
                 differ,
                 n,
                 gguf_type_name((uint32_t)type));
    (void)cudaGetLastError();
    free_trial(&t);
    return rc == cudaSuccess && !differ;
}

/* The model's formats that many rows multiply on tensor cores, each once. */
static uint32_t types_of(const struct cuda_backend *b, int types[MOST_TYPES])
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < b->n_matrices; i++) {
        const int type = b->matrices[i].m.type;
        uint32_t k = 0;
        while (k < n && !cuda_matrix_alike(types[k], type))
            k++;
        if (k == n && n < MOST_TYPES && cuda_act_form(type) != CUDA_ACT_F32)
            types[n++] = type;
    }
    return n;
}

enum gpu_wgmma cuda_wgmma_check(const struct cuda_backend *b)
{
    int types[MOST_TYPES];
    const uint32_t n = types_of(b, types);
    const char *said = getenv("WEIR_CUDA_WGMMA");
    char why[160] = "WEIR_CUDA_WGMMA says so";
    if (b->major != MAJOR_WITH_WGMMA || b->cfg.max_rows < FIRST_ROWS || n == 0 ||
        b->block_shared < CUDA_SHARED_HOPPER)
        return GPU_WGMMA_NONE;
    bool equal = !said || strcmp(said, "0") != 0;
    for (uint32_t i = 0; equal && i < n; i++) {
        for (size_t s = 0; equal && s < 2 * sizeof shapes / sizeof *shapes; s++)
            equal = agrees(types[i], shapes[s / 2], b->block_shared, s % 2, why);
    }
    if (!equal)
        log_warn("cuda:%u: wgmma is not used: %s", b->cfg.device.index, why);
    return equal ? GPU_WGMMA_USED : GPU_WGMMA_OFF;
}
