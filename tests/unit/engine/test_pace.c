/* The pace on machines that are made up: what it foresees, the gaps that follow, and how near it
 * comes to one who knows the machine. */
#include "engine/pace.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include <math.h>

#define MAX_ROWS 512

/* Microseconds. */
struct machine {
    double base, per_row;
    double per_attended; /* 1024 positions */
    uint32_t together;   /* rows that cost as much as one */
    uint32_t free_rows;  /* that hide behind reading the weights */
    const double *curve; /* [9] instead: steps of 0, 4, 8 .. 32 rows, straight in between */
    double noise;        /* share of a step's time */
    double p_disturbed;  /* that a step takes ten times as long */
    double slowed;       /* everything takes so many times as long, */
    uint32_t after;      /* after so many steps */
};

struct world {
    const struct machine *m;
    struct pace pace;
    uint64_t rng;
    uint32_t n_steps, n_decodes;
    uint64_t decodes_attend;
    double worst_gap;   /* times the quiet gap, for all but noise */
    double worst_error; /* of what was foreseen, as a share */
    double us, oracle_us;
};

static double uniform(struct world *w)
{
    w->rng = w->rng * 6364136223846793005u + 1442695040888963407u;
    return (double)(w->rng >> 40) / (double)(1 << 24);
}

static double rows_us(const struct machine *m, uint32_t rows)
{
    if (m->curve) {
        uint32_t i = rows / 4 < 7 ? rows / 4 : 7;
        return m->curve[i] + (m->curve[i + 1] - m->curve[i]) * (rows - 4.0 * i) / 4.0;
    }
    rows = (rows + m->together - 1) / m->together * m->together;
    return m->base + m->per_row * (rows > m->free_rows ? rows - m->free_rows : 0);
}

/* Without noise. */
static double true_us(const struct world *w, const struct pace_step *s)
{
    const struct machine *m = w->m;
    double us = rows_us(m, s->n_decodes + s->n_prefill) +
                m->per_attended * (double)(s->decodes_attend + s->prefill_attends) / 1024.0;
    return m->slowed > 0.0 && w->n_steps >= m->after ? us * m->slowed : us;
}

static double measured_us(struct world *w, double us)
{
    double noise = (uniform(w) + uniform(w) + uniform(w) - 1.5) * 2.0; /* deviation 1 */
    us *= 1.0 + w->m->noise * noise;
    return uniform(w) < w->m->p_disturbed ? us * 10.0 : us;
}

static struct pace_step step_of(const struct world *w, uint32_t first, uint32_t n)
{
    return (struct pace_step){.n_decodes = w->n_decodes,
                              .n_prefill = n,
                              .decodes_attend = w->decodes_attend,
                              .prefill_attends = (uint64_t)n * first + (uint64_t)n * (n + 1) / 2};
}

static void run(struct world *w, const struct pace_step *s)
{
    pace_learn(&w->pace, s, measured_us(w, true_us(w, s)));
    w->n_steps++;
    w->decodes_attend += w->n_decodes;
}

static void quiet(struct world *w, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++) {
        struct pace_step s = step_of(w, 0, 0);
        run(w, &s);
    }
}

/* The rows that one would take at position `first` who knows the machine, and leaves some margin.
 */
static uint32_t oracle_rows(const struct world *w, uint32_t first)
{
    struct pace_step s = step_of(w, 0, 0);
    double target = fmax(1.7 * true_us(w, &s), 20000.0);
    uint32_t n = 4;
    for (; n + 1 + w->n_decodes <= MAX_ROWS; n++) {
        s = step_of(w, first, n + 1);
        if (true_us(w, &s) > target)
            break;
    }
    return n;
}

/* A prompt of n tokens from `first` on, beside the decodes. */
static void prompt(struct world *w, uint32_t first, uint32_t n)
{
    for (uint32_t end = first + n; first < end;) {
        struct pace_load load = {
            .n_decodes = w->n_decodes, .decodes_attend = w->decodes_attend, .depth = first};
        uint32_t rows = pace_rows(&w->pace, &load, MAX_ROWS);
        assert_true(rows <= MAX_ROWS);
        rows = rows > w->n_decodes + 4 ? rows - w->n_decodes : 4;
        rows = rows < end - first ? rows : end - first;
        struct pace_step s = step_of(w, first, rows), alone = step_of(w, 0, 0);
        double us = true_us(w, &s), quiet_us = true_us(w, &alone);
        uint32_t best = oracle_rows(w, first);
        struct pace_step o = step_of(w, first, best);
        w->us += us;
        w->oracle_us += true_us(w, &o) * rows / best;
        w->worst_gap = fmax(w->worst_gap, us / quiet_us);
        w->worst_error = fmax(w->worst_error, fabs(pace_predict(&w->pace, &s) / us - 1.0));
        run(w, &s);
        first += rows;
    }
}

/* A prompt of 300 tokens, at which the pace is learnt, and one of 1500 that is judged. */
struct scene {
    struct machine m;
    uint32_t n_decodes, n_decodes_later;
    uint32_t depth;   /* where the second prompt begins */
    uint32_t n_quiet; /* steps before each prompt */
};

static void judge(const struct scene *sc, uint64_t seed, double most_error)
{
    struct world w = {.m = &sc->m, .rng = seed, .n_decodes = sc->n_decodes};
    w.decodes_attend = 100 * w.n_decodes;
    pace_init(&w.pace, 0);
    quiet(&w, sc->n_quiet);
    prompt(&w, 0, 300);
    double first_gap = w.worst_gap;
    w.us = w.oracle_us = w.worst_gap = w.worst_error = 0.0;
    if (sc->n_decodes_later > 0)
        w.n_decodes = sc->n_decodes_later;
    quiet(&w, sc->n_quiet);
    prompt(&w, sc->depth, 1500);
    if (first_gap > 2.0 || w.worst_gap > 2.0 || w.us > 1.2 * w.oracle_us ||
        w.worst_error > most_error)
        fail_msg(
            "seed %llu: gaps %.2f and %.2f times the quiet one, %.2f times as long as need be; "
            "foreseen within %.2f",
            (unsigned long long)seed,
            first_gap,
            w.worst_gap,
            w.us / w.oracle_us,
            w.worst_error);
}

static void judge_seeds(const struct scene *sc, double most_error)
{
    for (uint64_t seed = 1; seed <= 50; seed++)
        judge(sc, seed * 7919, most_error);
}

static const struct machine plain = {
    .base = 100e3, .per_row = 6e3, .per_attended = 2e3, .together = 4};

static void test_linear(void **state)
{
    (void)state;
    struct scene sc = {.m = plain, .n_decodes = 4, .n_quiet = 20};
    sc.m.together = 1;
    judge(&sc, 1, 0.1);
    sc.n_decodes = 1;
    judge(&sc, 1, 0.1);
    sc.n_decodes = 7;
    judge(&sc, 1, 0.1);
}

static void test_rows_in_fours(void **state)
{
    (void)state;
    struct scene sc = {.m = plain, .n_decodes = 4, .n_quiet = 20};
    judge(&sc, 1, 0.1);
    sc.m.base = 50e3; /* the least chunk is all there is room for */
    sc.m.per_row = 13e3;
    judge(&sc, 1, 0.1);
    sc.n_decodes = 5;
    judge(&sc, 1, 0.1);
}

static void test_rows_in_eights(void **state)
{
    (void)state;
    struct scene sc = {.m = plain, .n_decodes = 4, .n_quiet = 20};
    sc.m.together = 8;
    sc.m.per_row = 4e3;
    judge(&sc, 1, 0.2); /* four more cost nothing, or as much as eight */
}

/* Sixteen rows cost no more than one, and then each costs: the line has to bend. */
static void test_bound_by_memory(void **state)
{
    (void)state;
    struct scene sc = {.m = plain, .n_decodes = 4, .n_quiet = 20};
    sc.m.free_rows = 16;
    judge(&sc, 1, 0.3);
}

static void test_attention_grows(void **state)
{
    (void)state;
    struct scene sc = {.m = plain, .n_decodes = 4, .n_quiet = 20};
    sc.m.per_row = 4e3;
    sc.m.per_attended = 10e3;
    judge(&sc, 1, 0.1);
    sc.m.per_attended = 4e3;
    sc.depth = 2000; /* deeper than any prompt so far */
    judge(&sc, 1, 0.2);
}

static void test_noise_and_disturbed_steps(void **state)
{
    (void)state;
    struct scene sc = {.m = plain, .n_decodes = 4, .n_quiet = 20};
    sc.m.noise = 0.05;
    sc.m.p_disturbed = 0.03;
    judge_seeds(&sc, 0.3);
}

/* In the middle of the second prompt. Gaps count against the quiet gap of the slower machine. */
static void test_machine_gets_slower(void **state)
{
    (void)state;
    struct scene sc = {.m = plain, .n_decodes = 4, .n_quiet = 20};
    sc.m.noise = 0.03;
    sc.m.slowed = 2.0;
    sc.m.after = 100;
    judge_seeds(&sc, 0.6);
}

static void test_machine_gets_faster(void **state)
{
    (void)state;
    struct scene sc = {.m = plain, .n_decodes = 4, .n_quiet = 20};
    sc.m.noise = 0.03;
    sc.m.slowed = 0.5;
    sc.m.after = 100;
    judge_seeds(&sc, 1.2);
}

/* A long time without prompts says nothing of rows, and must not take away what is known of them.
 */
static void test_long_quiet(void **state)
{
    (void)state;
    struct scene sc = {.m = plain, .n_decodes = 4, .n_quiet = 5000};
    sc.m.noise = 0.05;
    sc.m.p_disturbed = 0.01;
    judge_seeds(&sc, 0.5);
}

static void test_other_number_of_decodes(void **state)
{
    (void)state;
    struct scene sc = {.m = plain, .n_decodes = 1, .n_decodes_later = 16, .n_quiet = 20};
    sc.m.noise = 0.03;
    judge_seeds(&sc, 0.3);
    sc.n_decodes = 16;
    sc.n_decodes_later = 1;
    judge_seeds(&sc, 0.3);
}

/* What a 1.1 billion parameter model took on two cores, and in fours: neither straight nor steps.
 */
static void test_measured_curve(void **state)
{
    (void)state;
    static const double curve[9] = {108e3, 108e3, 204e3, 246e3, 298e3, 346e3, 352e3, 393e3, 434e3};
    struct scene sc = {.m = {.curve = curve, .per_attended = 1e3, .noise = 0.03}, .n_quiet = 20};
    for (sc.n_decodes = 1; sc.n_decodes <= 8; sc.n_decodes *= 2)
        judge_seeds(&sc, 0.4);
}

/* There is always a prompt, so the quiet gap is never seen, only foreseen. */
static void test_never_quiet(void **state)
{
    (void)state;
    struct scene sc = {.m = plain, .n_decodes = 4, .n_quiet = 1};
    sc.m.noise = 0.03;
    judge_seeds(&sc, 0.4);
}

/* The very first step takes long, as nothing is in any cache yet. */
static void test_first_step_is_slow(void **state)
{
    (void)state;
    struct scene sc = {.m = plain, .n_decodes = 4, .n_quiet = 3};
    sc.m.slowed = 0.1;
    sc.m.after = 1;
    judge(&sc, 1, 0.3);
}

/* Whatever it was told, it comes back to its senses. */
static void test_nonsense(void **state)
{
    (void)state;
    struct world w = {.m = &plain, .rng = 1, .n_decodes = 4, .decodes_attend = 400};
    pace_init(&w.pace, 0);
    for (uint32_t i = 1; i <= 200000; i++) {
        struct pace_step s = {.n_decodes = (uint32_t)(uniform(&w) * 300.0),
                              .n_prefill = (uint32_t)(uniform(&w) * 300.0),
                              .decodes_attend = (uint64_t)exp(uniform(&w) * 20.0),
                              .prefill_attends = (uint64_t)exp(uniform(&w) * 20.0)};
        pace_learn(&w.pace, &s, exp(uniform(&w) * 20.0) - 1.0);
        double us = pace_predict(&w.pace, &s);
        assert_true(isfinite(us) && us >= 0.0);
        if (i % 10000 != 0)
            continue;
        w.decodes_attend = 400;
        for (int k = 0; k < 10; k++) {
            quiet(&w, 20);
            prompt(&w, 0, 1500);
        }
        quiet(&w, 20);
        w.worst_gap = w.us = w.oracle_us = 0.0;
        prompt(&w, 0, 1500);
        if (w.worst_gap > 2.5 || w.us > 1.2 * w.oracle_us)
            fail_msg("gap %.2f, %.2f times as long", w.worst_gap, w.us / w.oracle_us);
    }
}

static struct pace learnt(uint32_t target_ms, double us_quiet, double us_with_24)
{
    struct pace p;
    pace_init(&p, target_ms);
    for (int i = 0; i < 40; i++) {
        pace_learn(&p, &(struct pace_step){.n_decodes = 4}, us_quiet);
        pace_learn(&p, &(struct pace_step){.n_decodes = 4, .n_prefill = 24}, us_with_24);
    }
    return p;
}

static uint32_t rows_for(const struct pace *p, uint32_t n_decodes, uint32_t max_rows)
{
    return pace_rows(p, &(struct pace_load){.n_decodes = n_decodes}, max_rows);
}

static void test_targets(void **state)
{
    (void)state;
    struct pace p = learnt(0, 100e3, 196e3); /* 84 ms and 4 ms a row */
    assert_int_equal(rows_for(&p, 4, 512), 20);
    assert_int_equal(rows_for(&p, 4, 16), 16);
    p = learnt(165, 100e3, 196e3);
    assert_int_equal(rows_for(&p, 4, 512), 20);
    p = learnt(1, 100e3, 196e3); /* not to be had */
    assert_int_equal(rows_for(&p, 4, 512), 8);
    assert_int_equal(rows_for(&p, 5, 512), 9);
    assert_int_equal(rows_for(&p, 5, 6), 6);
    p = learnt(0, 500.0, 980.0); /* 20 ms are short enough for anybody */
    pace_learn(&p, &(struct pace_step){.n_decodes = 4, .n_prefill = 508}, 10660.0);
    assert_int_equal(rows_for(&p, 4, 512), 512);
}

/* Where several are at their prompts, the gap may be as long as it will be once they decode, and
 * beside short ones 2.5 times as long as a step then. */
static void test_targets_beside_newcomers(void **state)
{
    (void)state;
    struct pace p = learnt(0, 100e3, 196e3); /* 84 ms and 4 ms a row */
    struct pace_load load = {.n_decodes = 4, .n_prompts = 1};
    pace_learn(&p, &(struct pace_step){.n_decodes = 4, .n_prefill = 508}, 84e3 + 512 * 4e3);
    assert_int_equal(pace_rows(&p, &load, 512), 20); /* alone it holds up nobody longer */
    load.n_prompts = 11;                             /* 14 decodes: 140 ms, times 2.5 */
    assert_int_equal(pace_rows(&p, &load, 512), 64);
    load.longest_prompt = 98; /* 392 ms */
    assert_int_equal(pace_rows(&p, &load, 512), 64);
    load.longest_prompt = 102; /* 408 ms: times 1.75 */
    assert_int_equal(pace_rows(&p, &load, 512), 40);
    p.cost[2] = 1e3; /* 1024 positions; 10 newcomers will see 4096 each: 180 ms, times 1.75 */
    load.prompts_attend = UINT64_C(11) * 4096;
    assert_in_range(pace_rows(&p, &load, 512), 52, 56);
    p.cost[2] = 0.0;
    load.n_prompts = 1001; /* 400 ms at the most */
    assert_in_range(pace_rows(&p, &load, 512), 76, 80);
    load.n_decodes = 100; /* but for those who decode already: 484 ms, times 1.75 */
    assert_in_range(pace_rows(&p, &load, 512), 184, 192);
    p.target_us = 165e3;
    load.n_decodes = 4;
    assert_in_range(pace_rows(&p, &load, 512), 16, 20);
}

static void test_without_decodes(void **state)
{
    (void)state;
    struct pace p;
    pace_init(&p, 50);
    assert_int_equal(rows_for(&p, 0, 512), 64);
    assert_int_equal(rows_for(&p, 0, 32), 32);
    assert_int_equal(rows_for(&p, 1, 512), 5); /* nothing is known of such steps */
    pace_learn(&p, &(struct pace_step){.n_prefill = 64}, 64 * 2000.0);
    assert_int_equal(rows_for(&p, 0, 512), 200);                /* 400 ms */
    pace_learn(&p, &(struct pace_step){.n_prefill = 200}, 4e6); /* disturbed */
    assert_in_range(rows_for(&p, 0, 512), 160, 200);
    for (int i = 0; i < 40; i++)
        pace_learn(&p, &(struct pace_step){.n_prefill = 64}, 64 * 50000.0);
    assert_int_equal(rows_for(&p, 0, 512), 64);
    for (int i = 0; i < 80; i++)
        pace_learn(&p, &(struct pace_step){.n_prefill = 64}, 64 * 100.0);
    assert_int_equal(rows_for(&p, 0, 512), 512);

    /* a prompt of a few rows first, as a server's often is: it is believed no longer than needed */
    pace_init(&p, 50);
    pace_learn(&p, &(struct pace_step){.n_prefill = 16}, 16 * 9000.0);
    pace_learn(&p, &(struct pace_step){.n_prefill = 64}, 64 * 3600.0);
    assert_in_range(rows_for(&p, 0, 512), 110, 112);
    pace_learn(&p, &(struct pace_step){.n_prefill = 111}, 111 * 2700.0);
    assert_in_range(rows_for(&p, 0, 512), 147, 149);
}

/* What a row costs on top of the rest of its step: the tier's fetches are weighed against it. */
static void test_cost_of_a_position(void **state)
{
    (void)state;
    struct pace p;
    pace_init(&p, 0);
    assert_true(p.us_per_row == 0.0);
    p = learnt(0, 100e3, 196e3);
    assert_true(fabs(p.us_per_row / 4e3 - 1.0) < 0.2);
    for (int i = 0; i < 40; i++)
        pace_learn(&p, &(struct pace_step){.n_prefill = 256}, 256 * 2e3);
    assert_true(fabs(p.us_per_row / 2e3 - 1.0) < 0.05);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_linear),
        cmocka_unit_test(test_rows_in_fours),
        cmocka_unit_test(test_rows_in_eights),
        cmocka_unit_test(test_bound_by_memory),
        cmocka_unit_test(test_attention_grows),
        cmocka_unit_test(test_noise_and_disturbed_steps),
        cmocka_unit_test(test_machine_gets_slower),
        cmocka_unit_test(test_machine_gets_faster),
        cmocka_unit_test(test_long_quiet),
        cmocka_unit_test(test_other_number_of_decodes),
        cmocka_unit_test(test_measured_curve),
        cmocka_unit_test(test_never_quiet),
        cmocka_unit_test(test_first_step_is_slow),
        cmocka_unit_test(test_nonsense),
        cmocka_unit_test(test_targets),
        cmocka_unit_test(test_targets_beside_newcomers),
        cmocka_unit_test(test_without_decodes),
        cmocka_unit_test(test_cost_of_a_position),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
