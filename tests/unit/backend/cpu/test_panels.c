/* Phases of matrices: every panel meets every block of rows once, whoever takes it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "backend/cpu/run.h"
#include "base/clock.h"

#include <stdlib.h>
#include <string.h>

enum {
    MAX_MATRICES = 3,
    MAX_PANELS = 300,
    MAX_PASSES = 3,
    MAX_PHASES = 4,
    MAX_WORKERS = 5,
    PANEL_BYTES = 64,
    N_CASES = 40,
    MAX_PIECES = 300,
};

/* What the kernel saw; panels count over all matrices of all phases. */
static struct {
    uint8_t memory[MAX_PHASES * MAX_MATRICES * MAX_PANELS][PANEL_BYTES];
    atomic_uint times[MAX_PASSES][MAX_PHASES * MAX_MATRICES * MAX_PANELS];
    atomic_uint wrong;
    uint32_t n_rows;
} seen;
static struct {
    uint32_t first[MAX_PIECES], n[MAX_PIECES], n_pieces;
} taken; /* by one worker alone */
static uint32_t slow_worker;

static void count_panels(const struct linear_job *j)
{
    const size_t first = (size_t)(j->panels - &seen.memory[0][0]) / PANEL_BYTES;
    const uint32_t pass = j->first_row / CPU_ROW_BLOCK, left = seen.n_rows - j->first_row;
    if (j->first_row % CPU_ROW_BLOCK || j->n_rows != (left < CPU_ROW_BLOCK ? left : CPU_ROW_BLOCK))
        atomic_fetch_add(&seen.wrong, 1);
    for (uint32_t i = 0; i < j->n_panels; i++)
        atomic_fetch_add(&seen.times[pass][first + i], 1);
}

static void run_item(void *ctx, uint32_t phase, uint32_t item, uint32_t worker)
{
    struct cpu_backend *b = ctx;
    const uint64_t until = clock_us() + 300;
    (void)item;
    while (worker == slow_worker && clock_us() < until)
        ;
    cpu_run_panels(b, &b->phases[phase], worker);
}

static uint32_t below(uint32_t n)
{
    return (uint32_t)rand() % n; /* NOLINT(cert-msc30-c,cert-msc50-cpp) */
}

/* Phases of matrices of up to max_panels panels each, one behind the other in memory. */
static void make_phases(struct cpu_backend *b, uint32_t max_panels)
{
    uint32_t at = 0;
    b->n_matrices = 0;
    b->n_phases = 1 + below(MAX_PHASES);
    for (uint32_t i = 0; i < b->n_phases; i++) {
        struct phase *p = &b->phases[i];
        *p = (struct phase){.kind = PHASE_LINEAR,
                            .first = b->n_matrices,
                            .n = 1 + below(MAX_MATRICES),
                            .panel_bytes = PANEL_BYTES};
        for (uint32_t m = 0; m < p->n; m++, b->n_matrices++) {
            const uint32_t n = 1 + below(max_panels);
            b->matrices[b->n_matrices] = (struct matrix){.panels = seen.memory[at],
                                                         .panel_bytes = PANEL_BYTES,
                                                         .n_panels = n,
                                                         .n_out = n * PANEL_COLS};
            p->n_panels += n;
            at += n;
        }
    }
}

static void run_once(struct cpu_backend *b, uint32_t n_rows)
{
    struct batch batch = {.n_rows = n_rows};
    uint32_t n_items[MAX_PHASES], n_panels = 0;
    memset(seen.times, 0, sizeof seen.times);
    seen.n_rows = n_rows;
    b->batch = &batch;
    b->n_items = n_items;
    b->n_runs_begun++;
    atomic_store(&b->n_rows, n_rows);
    for (uint32_t i = 0; i < b->n_phases; i++) {
        n_items[i] = cpu_divide_panels(b, &b->phases[i], n_rows);
        assert_in_range(n_items[i], 1, pool_size(b->pool));
        n_panels += b->phases[i].n_panels;
    }
    pool_walk(b->pool, n_items, b->n_phases, run_item, b);
    assert_int_equal(atomic_load(&seen.wrong), 0);
    for (uint32_t pass = 0; pass < MAX_PASSES; pass++) {
        for (uint32_t i = 0; i < n_panels; i++)
            assert_int_equal(atomic_load(&seen.times[pass][i]), pass * CPU_ROW_BLOCK < n_rows);
    }
}

/* Any shapes, rows and workers, also one that comes late to every phase, of panels side by side and
 * one after the other; and while the tags of shares begin anew. */
static void every_panel_once(void **state)
{
    (void)state;
    const unsigned seed = 20261;
    print_message("seed %u\n", seed);
    srand(seed);
    for (uint32_t i = 0; i < N_CASES * MAX_WORKERS; i++) {
        struct cpu_kernels kernels = {.linear = {count_panels}, .one_panel = {(uint8_t)(i % 5)}};
        struct phase phases[MAX_PHASES];
        struct matrix matrices[MAX_PHASES * MAX_MATRICES];
        struct cpu_share shares[MAX_WORKERS] = {0};
        struct cpu_backend b = {
            .kernels = &kernels, .phases = phases, .matrices = matrices, .shares = shares};
        make_phases(&b, i % 2 ? MAX_PANELS : 12);
        b.n_runs_begun = b.n_phases ? 65536 / b.n_phases - 5 : 0;
        slow_worker = below(2 * MAX_WORKERS);
        assert_int_equal(pool_create(1 + i / N_CASES, MAX_PHASES, &b.pool, NULL), OK);
        pool_on_idle(b.pool, cpu_ask_ahead, &b);
        for (int run = 0; run < 10; run++)
            run_once(&b, 1 + below(i % 3 ? 16 : MAX_PASSES * CPU_ROW_BLOCK));
        pool_destroy(b.pool);
    }
}

static void note_piece(const struct linear_job *j)
{
    assert_true(taken.n_pieces < MAX_PIECES);
    taken.first[taken.n_pieces] = (uint32_t)((j->panels - &seen.memory[0][0]) / PANEL_BYTES);
    taken.n[taken.n_pieces++] = j->n_panels;
}

/* A phase of one matrix, and a worker that takes all of it. */
static void take_alone(struct cpu_backend *b, uint32_t n_panels, uint32_t worker)
{
    struct batch batch = {.n_rows = 1};
    b->matrices[0] = (struct matrix){.panels = seen.memory[0],
                                     .panel_bytes = PANEL_BYTES,
                                     .n_panels = n_panels,
                                     .n_out = n_panels * PANEL_COLS};
    b->phases[0] = (struct phase){
        .kind = PHASE_LINEAR, .n = 1, .n_panels = n_panels, .panel_bytes = PANEL_BYTES};
    b->batch = &batch;
    cpu_divide_panels(b, &b->phases[0], 1);
    taken.n_pieces = 0;
    cpu_run_panels(b, &b->phases[0], worker);
}

static uint32_t sum_taken(void)
{
    uint32_t sum = 0;
    for (uint32_t i = 0; i < taken.n_pieces; i++)
        sum += taken.n[i];
    return sum;
}

/* The pieces of its own share lie one behind the other, those of another's one before the other,
 * and none is more than a quarter of what was left, or a chunk. */
static void pieces_lie_together(void **state)
{
    (void)state;
    enum { SHARE = 96, N_WORKERS = 3 };
    struct cpu_kernels kernels = {.linear = {note_piece}};
    struct phase phase;
    struct matrix matrix;
    struct cpu_share shares[N_WORKERS] = {0};
    struct cpu_backend b = {.kernels = &kernels,
                            .phases = &phase,
                            .n_phases = 1,
                            .matrices = &matrix,
                            .shares = shares,
                            .n_runs_begun = 1};
    assert_int_equal(pool_create(N_WORKERS, 1, &b.pool, NULL), OK);
    for (uint32_t worker = 0; worker < N_WORKERS; worker++, b.n_runs_begun++) {
        take_alone(&b, SHARE * N_WORKERS, worker);
        uint32_t piece = 0;
        for (uint32_t i = 0; i < N_WORKERS; i++) {
            const uint32_t share = (worker + i) % N_WORKERS;
            for (uint32_t left = SHARE, n; left > 0; left -= n, piece++) {
                n = taken.n[piece];
                assert_true(piece < taken.n_pieces && n <= left);
                assert_true(n <= left / 4 || n == phase.chunk || n == left);
                assert_int_equal(taken.first[piece],
                                 share * SHARE + (i == 0 ? SHARE - left : left - n));
            }
        }
        assert_int_equal(piece, taken.n_pieces);
    }
    pool_destroy(b.pool);
}

/* A phase that leaves most shares empty touches them too: those of long ago had the tag that comes
 * next. */
static void empty_shares_are_tagged(void **state)
{
    (void)state;
    enum { N_WORKERS = 70, N_PANELS = 283, N_TAGS = 65536 };
    struct cpu_kernels kernels = {.linear = {note_piece}};
    struct phase phase;
    struct matrix matrix;
    struct cpu_share shares[N_WORKERS] = {0};
    struct cpu_backend b = {.kernels = &kernels,
                            .phases = &phase,
                            .n_phases = 1,
                            .matrices = &matrix,
                            .shares = shares,
                            .n_runs_begun = 1};
    assert_int_equal(pool_create(N_WORKERS, 1, &b.pool, NULL), OK);
    take_alone(&b, N_PANELS, 5);
    assert_int_equal(sum_taken(), N_PANELS);
    b.n_runs_begun = N_TAGS;
    take_alone(&b, 1, 69);
    assert_int_equal(sum_taken(), 1);
    b.n_runs_begun = N_TAGS + 1;
    take_alone(&b, N_PANELS, 30);
    assert_int_equal(sum_taken(), N_PANELS);
    pool_destroy(b.pool);
}

/* However few experts the rows share, and there are as many as a row is given to: long pieces leave
 * every worker its part, or are no longer than those of many rows. */
static void experts_are_shared_out(void **state)
{
    (void)state;
    static struct cpu_kernels kernels;
    static struct matrix matrix;
    for (int i = 0; i < 3000; i++) {
        const uint32_t n_expert = 1 + below(130), n_used = 1 + below(n_expert < 9 ? n_expert : 9);
        const uint32_t n_workers = 1 + below(33), n_rows = 1 + below(70);
        const uint32_t n_runs = n_rows * n_used < n_expert ? n_rows * n_used : n_expert;
        const struct phase p = {.n_panels = 1 + below(200), .panel_bytes = 1000 + below(100000)};
        struct model m = {.hp = {.n_expert = n_expert, .n_expert_used = n_used}};
        const struct cpu_backend b = {.model = &m, .kernels = &kernels, .matrices = &matrix};
        const uint32_t chunk = cpu_expert_chunk(&b, &p, n_rows, n_workers);
        const uint32_t usual = cpu_panel_chunk(&b, &p, n_runs, n_workers);
        const uint32_t n_pieces = (p.n_panels + chunk - 1) / chunk * n_used;
        assert_in_range(chunk, 1, p.n_panels > usual ? p.n_panels : usual);
        assert_true(chunk >= usual);
        if (chunk > usual && n_pieces < 4 * n_workers)
            fail_msg("%u pieces for %u workers", n_pieces, n_workers);
    }
}

/* As many panels as a share can count. */
static void counts_have_limits(void **state)
{
    (void)state;
    struct phase phases[2] = {{.kind = PHASE_ROWS, .n_panels = UINT32_MAX},
                              {.kind = PHASE_LINEAR, .n_panels = 65535}};
    struct cpu_backend b = {.phases = phases, .n_phases = 2};
    struct err_info e;
    b.cfg.max_rows = 256 * CPU_ROW_BLOCK;
    b.cfg.max_logit_rows = 1;
    assert_int_equal(cpu_check_panels(&b, &e), OK);
    phases[1].n_panels = 65536;
    assert_int_equal(cpu_check_panels(&b, &e), ERR_UNSUPPORTED);
    assert_string_equal(e.text, "steps of 65536 rows are too many for matrices of 1048576 columns");
    b.cfg.max_rows--;
    assert_int_equal(cpu_check_panels(&b, &e), ERR_UNSUPPORTED);
    b.cfg.max_rows -= CPU_ROW_BLOCK;
    assert_int_equal(cpu_check_panels(&b, &e), OK);
    b.cfg.max_logit_rows = UINT32_MAX;
    assert_int_equal(cpu_check_panels(&b, &e), ERR_UNSUPPORTED);
    struct model m = {.hp = {.n_expert = 1024, .n_expert_used = 8}};
    b.model = &m;
    b.cfg.max_logit_rows = 1;
    phases[1] = (struct phase){.kind = PHASE_EXPERTS, .n_panels = 16383};
    assert_int_equal(cpu_check_panels(&b, &e), OK);
    phases[1].n_panels = 16384;
    assert_int_equal(cpu_check_panels(&b, &e), ERR_UNSUPPORTED);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(every_panel_once),
                                       cmocka_unit_test(pieces_lie_together),
                                       cmocka_unit_test(empty_shares_are_tagged),
                                       cmocka_unit_test(experts_are_shared_out),
                                       cmocka_unit_test(counts_have_limits)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
