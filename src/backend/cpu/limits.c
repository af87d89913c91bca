#include "backend/cpu/limits.h"

#include "backend/cpu/kernels.h"
#include "backend/cpu/threads.h"
#include "base/clock.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum { N_ROUNDS = 8, PEAK_SHARES = 8, PEAK_ROUNDS = 1000000 / PEAK_SHARES };
#define READ_BYTES ((size_t)512 << 20) /* far more than any cache */
#define SLICE_BYTES ((size_t)4 << 20)
#define N_SLICES ((uint32_t)(READ_BYTES / SLICE_BYTES))
#define MIN_RATE_BYTES ((size_t)256 << 20)
#define MAX_RATE_BYTES ((size_t)1 << 30)

struct probe {
    const struct cpu_kernels *kernels;
    struct pool *pool;
    uint8_t *filled;
    const uint8_t *memory;
    enum read_way way;
    double (*peak)(uint64_t n);
    double ops[1024 * PEAK_SHARES]; /* of each item */
};

static void fill(void *ctx, uint32_t phase, uint32_t item, uint32_t worker)
{
    struct probe *p = ctx;
    (void)phase;
    (void)worker;
    memset(p->filled + item * SLICE_BYTES, 1, SLICE_BYTES);
}

static void read_slice(void *ctx, uint32_t phase, uint32_t item, uint32_t worker)
{
    struct probe *p = ctx;
    (void)phase;
    (void)worker;
    p->kernels->read(p->memory + item * SLICE_BYTES, SLICE_BYTES, p->way);
}

static void compute(void *ctx, uint32_t phase, uint32_t item, uint32_t worker)
{
    struct probe *p = ctx;
    (void)phase;
    (void)worker;
    p->ops[item] = p->peak(PEAK_ROUNDS);
}

/* Seconds that all workers take for n items. */
static double timed(struct probe *p, uint32_t n, pool_item_fn fn)
{
    const uint64_t begin = clock_us();
    pool_walk(p->pool, &n, 1, fn, p);
    return (double)(clock_us() - begin + 1) * 1e-6;
}

/* Bytes a second of n slices. */
static double fastest_way(struct probe *p, uint32_t n)
{
    double best = 0;
    for (p->way = 0; p->way < N_READ_WAYS; p->way++) {
        const double rate = (double)n * (double)SLICE_BYTES / timed(p, n, read_slice);
        best = rate > best ? rate : best;
    }
    return best;
}

double cpu_read_rate(struct pool *pool,
                     const struct cpu_kernels *kernels,
                     const uint8_t *memory,
                     size_t n)
{
    struct probe p = {.kernels = kernels, .pool = pool, .memory = memory};
    n = n < MAX_RATE_BYTES ? n : MAX_RATE_BYTES;
    return n < MIN_RATE_BYTES ? 0 : fastest_way(&p, (uint32_t)(n / SLICE_BYTES));
}

static double best_peak(struct probe *p, double (*peak)(uint64_t n))
{
    const uint32_t n = pool_size(p->pool) * PEAK_SHARES;
    double best = 0;
    p->peak = peak;
    for (int i = 0; i < N_ROUNDS; i++) {
        const double seconds = timed(p, n, compute);
        double ops = 0;
        for (uint32_t k = 0; k < n; k++)
            ops += p->ops[k];
        best = ops / seconds > best ? ops / seconds : best;
    }
    return best;
}

/* Of a weight's one product, where it takes several of bf16 (ACT_TWO), or one; else others'. */
static double share_of_peak(const struct cpu_kernels *k,
                            enum panel_format format,
                            double bf16,
                            double others)
{
    switch (k->act_kinds[format]) {
    case ACT_TWO:
        return bf16 / (format == PANEL_F16 ? 3 : 2);
    case ACT_BF16:
    case ACT_HIGH:
        return bf16;
    default:
        return others;
    }
}

enum err cpu_limits_measure(uint32_t n_threads, struct device_limits *out, struct err_info *e)
{
    const char *isa = getenv("WEIR_ISA");
    struct probe p = {.kernels = cpu_kernels_select(isa)};
    if (!p.kernels)
        return err_set(e, ERR_INVALID, "WEIR_ISA=%s: not " CPU_ISAS, isa);
    enum err err = pool_create(n_threads, 1, &p.pool, e);
    if (err)
        return err;
    void *memory =
        mmap(NULL, READ_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) {
        pool_destroy(p.pool);
        return err_set(e, ERR_NOMEM, "no memory for a buffer of %zu MiB", READ_BYTES >> 20);
    }
    (void)madvise(memory, READ_BYTES, MADV_HUGEPAGE);
    p.filled = memory;
    p.memory = memory;
    timed(&p, N_SLICES, fill);
    *out = (struct device_limits){0};
    for (int i = 0; i < N_ROUNDS; i++) {
        const double rate = fastest_way(&p, N_SLICES);
        out->read_bytes_s = rate > out->read_bytes_s ? rate : out->read_bytes_s;
    }
    munmap(memory, READ_BYTES);
    const double int8 = best_peak(&p, p.kernels->peak_int8);
    const double f32 = best_peak(&p, p.kernels->peak_f32);
    const double bf16 = p.kernels->peak_bf16 ? best_peak(&p, p.kernels->peak_bf16) : 0;
    out->ops_s[LIMIT_QUANT] = int8;
    out->ops_s[LIMIT_Q8_0] = share_of_peak(p.kernels, PANEL_Q8_0, bf16, int8);
    out->ops_s[LIMIT_F16] = share_of_peak(p.kernels, PANEL_F16, bf16, f32);
    out->ops_s[LIMIT_BF16] = share_of_peak(p.kernels, PANEL_BF16, bf16, f32);
    out->ops_s[LIMIT_F32] = f32;
    pool_destroy(p.pool);
    return OK;
}
