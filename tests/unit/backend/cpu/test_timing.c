/* How fast each kernel is on one thread, beside the arithmetic peak: a table, no verdict. Runs only
 * when the environment has WEIR_TIMING=1; K=5632 chooses another length of the sums. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "backend/cpu/kernels.h"
#include "backend/cpu/panel.h"
#include "base/mem.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { N_ROWS = 64, STREAM_BYTES = 128 << 20, N_ROUNDS = 12 };

static const char *const names[] = {"f32", "f16", "bf16", "q8_0", "q4_0", "q4_k", "q6_k"};

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static double peak(double (*fn)(uint64_t n))
{
    double best = 0;
    for (int i = 0; i < N_ROUNDS; i++) {
        const double begin = now(), ops = fn(200000), rate = ops / (now() - begin);
        best = rate > best ? rate : best;
    }
    return best;
}

/* Seconds for n_panels panels in jobs of `chunk`, the best of several rounds. */
static double best_time(const struct cpu_kernels *k,
                        enum panel_format f,
                        struct linear_job j,
                        uint32_t n_panels,
                        uint32_t chunk)
{
    const uint8_t *first = j.panels;
    double best = 1e9;
    for (int i = 0; i < N_ROUNDS; i++) {
        const double begin = now();
        for (uint32_t p = 0; p + chunk <= n_panels; p += chunk) {
            j.panels = first + p * j.panel_bytes;
            j.n_panels = chunk;
            j.n_cols = chunk * PANEL_COLS;
            k->linear[f](&j);
        }
        const double seconds = now() - begin;
        best = seconds < best ? seconds : best;
    }
    return best;
}

static void time_format(const struct cpu_kernels *k, enum panel_format f, uint32_t len, double top)
{
    static const uint32_t rows[] = {1, 2, 4, 8, N_ROWS};
    static float x[65536], out[N_ROWS * 4 * PANEL_COLS];
    struct act a = {.k = len};
    a.x = mem_aligned((size_t)N_ROWS * len * sizeof *a.x);
    a.q = mem_aligned((size_t)N_ROWS * len);
    a.b = mem_aligned((size_t)N_ROWS * (len / 32) * sizeof *a.b);
    a.bf16 = mem_aligned((size_t)N_ROWS * len * sizeof *a.bf16);
    static _Alignas(64) uint8_t scratch[LINEAR_SCRATCH_BYTES];
    const size_t bytes = panel_bytes(f, len);
    const uint32_t n_panels = (uint32_t)(STREAM_BYTES / bytes / 4 * 4);
    uint8_t *panels = mem_aligned(n_panels * bytes);
    memset(panels, 0x11, n_panels * bytes);
    print_message("%-5s", names[f]);
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        const uint32_t lanes = rows[i] == 1 ? 1 : ACT_TILE;
        for (uint32_t r = 0; r < rows[i]; r++)
            k->pack(x, &a, r, ACT_F32 | ACT_INT8 | ACT_BF16, lanes);
        const struct linear_job j = {.panels = panels,
                                     .panel_bytes = bytes,
                                     .act = &a,
                                     .act_lanes = lanes,
                                     .n_rows = rows[i],
                                     .scratch = scratch,
                                     .prefetch = cpu_kernels_prefetch(rows[i]),
                                     .out = out,
                                     .out_stride = 4 * PANEL_COLS};
        const double ops = 2.0 * len * 4 * PANEL_COLS * rows[i] / best_time(k, f, j, 4, 4);
        const double stream = (double)(n_panels * bytes) / best_time(k, f, j, n_panels, 4);
        print_message(" | %2u rows %4.0f Gop/s %3.0f %% %5.1f GB/s",
                      rows[i],
                      ops * 1e-9,
                      ops / top * 100,
                      stream * 1e-9);
    }
    print_message("\n");
    free(panels);
    free(a.x);
    free(a.q);
    free(a.b);
}

static void time_kernels(void **state)
{
    (void)state;
    if (!getenv("WEIR_TIMING"))
        skip();
    const struct cpu_kernels *k = cpu_kernels_select(getenv("WEIR_ISA"));
    assert_non_null(k);
    const char *given = getenv("K");
    const uint32_t len = given ? (uint32_t)atoi(given) : 2048;
    assert_true(len >= 256 && len <= 65536 && len % 256 == 0);
    const double int8 = peak(k->peak_int8), f32 = peak(k->peak_f32);
    print_message("%s, sums of %u; peaks: int8 %.0f Gop/s, f32 %.0f Gop/s\n"
                  "(Gop/s and %% of the peak with weights in cache; GB/s of weights from memory)\n",
                  k->name,
                  len,
                  int8 * 1e-9,
                  f32 * 1e-9);
    for (int f = 0; f < N_PANEL_FORMATS; f++)
        time_format(k, (enum panel_format)f, len, k->act_kinds[f] == ACT_INT8 ? int8 : f32);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(time_kernels)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
