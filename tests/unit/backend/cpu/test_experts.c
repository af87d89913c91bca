/* Choosing experts for rows and sorting rows by expert, over random scores with ties. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "backend/cpu/experts.h"
#include "base/mem.h"
#include "unit/backend/cpu/weights.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

struct fixture {
    struct cpu_backend b;
    struct model model;
    struct batch batch;
    struct step step; /* of the selection */
};

static int start(void **s)
{
    (void)s;
    const char *given = getenv("SEED");
    random_state = given ? strtoull(given, NULL, 0) : (uint64_t)time(NULL);
    print_message("SEED=%llu\n", (unsigned long long)random_state);
    return 0;
}

/* Random sizes, and a few values only as scores, so that many are equal. */
static void open_fixture(struct fixture *f)
{
    *f = (struct fixture){.batch = {.n_rows = 1 + rnd() % 70}};
    struct model_hparams *hp = &f->model.hp;
    hp->n_expert = 1 + rnd() % 40;
    hp->n_expert_used = 1 + rnd() % (hp->n_expert < 8 ? hp->n_expert : 8);
    hp->expert_norm = rnd() % 2;
    hp->expert_scale = rnd() % 2 ? 1.0f : 2.5f;
    f->step.n_head = 1 + (uint32_t)rnd() % hp->n_expert_used; /* in this layer */
    f->b.kernels = cpu_kernels_select("");
    f->b.model = &f->model;
    f->b.batch = &f->batch;
    f->b.stride[BUF_ROUTER] = hp->n_expert + 3;
    const size_t n = f->batch.n_rows, n_scores = n * f->b.stride[BUF_ROUTER];
    const size_t n_chosen = n * hp->n_expert_used;
    f->b.bufs[BUF_ROUTER] = mem_zalloc(n_scores, sizeof(float));
    f->b.experts = mem_zalloc(n_chosen, sizeof *f->b.experts);
    f->b.expert_weights = mem_zalloc(n_chosen, sizeof *f->b.expert_weights);
    f->b.places = mem_zalloc(n_chosen, sizeof *f->b.places);
    f->b.place_row = mem_zalloc(experts_max_places(hp, f->batch.n_rows), sizeof *f->b.place_row);
    f->b.runs = mem_zalloc(experts_max_runs(hp, f->batch.n_rows), sizeof *f->b.runs);
    for (size_t i = 0; i < n_scores; i++)
        f->b.bufs[BUF_ROUTER][i] = (float)(rnd() % 9) / 2 - 2;
}

static void close_fixture(struct fixture *f)
{
    free(f->b.bufs[BUF_ROUTER]);
    free(f->b.experts);
    free(f->b.expert_weights);
    free(f->b.places);
    free(f->b.place_row);
    free(f->b.runs);
}

/* Each chosen one goes before every later one and all that are left out: a larger score, or the
 * same and a lower number. */
static void check_row(const struct fixture *f, uint32_t row)
{
    const struct model_hparams *hp = &f->model.hp;
    const float *score = f->b.bufs[BUF_ROUTER] + row * f->b.stride[BUF_ROUTER];
    const uint32_t *chosen = f->b.experts + (size_t)row * f->step.n_head;
    const float *weight = f->b.expert_weights + (size_t)row * f->step.n_head;
    bool before[40] = {false};
    double all = 0, sum = 0;
    for (uint32_t i = 0; i < f->step.n_head; i++) {
        const uint32_t c = chosen[i];
        assert_true(c < hp->n_expert && !before[c]);
        before[c] = true;
        for (uint32_t x = 0; x < hp->n_expert; x++)
            assert_true(before[x] || score[x] < score[c] || (score[x] == score[c] && x > c));
        sum += exp(score[c]);
    }
    for (uint32_t x = 0; x < hp->n_expert; x++)
        all += exp(score[x]);
    for (uint32_t i = 0; i < f->step.n_head; i++) {
        const double want = exp(score[chosen[i]]) / (hp->expert_norm ? sum : all);
        assert_true(fabs(weight[i] - want * hp->expert_scale) < 1e-6);
    }
}

static void chooses_the_largest(void **s)
{
    (void)s;
    for (int n = 0; n < 200; n++) {
        struct fixture f;
        open_fixture(&f);
        for (uint32_t row = 0; row < f.batch.n_rows; row++) {
            experts_select(&f.b, &f.step, row);
            check_row(&f, row);
        }
        close_fixture(&f);
    }
}

/* Probabilities are multiples of nothing in particular, so no two sums are close but equal ones. */
static void check_row_by_probability(const struct fixture *f, uint32_t row)
{
    const struct model_hparams *hp = &f->model.hp;
    const float *score = f->b.bufs[BUF_ROUTER] + row * f->b.stride[BUF_ROUTER];
    const uint32_t *chosen = f->b.experts + (size_t)row * f->step.n_head;
    const float *weight = f->b.expert_weights + (size_t)row * f->step.n_head;
    const uint32_t n_groups = hp->n_expert_group ? hp->n_expert_group : 1;
    const uint32_t per_group = hp->n_expert / n_groups;
    double p[40], corrected[40], worth[40], all = 0, sum = 0, least = 1e9, least_worth = 1e9;
    bool taken[40] = {false}, used[40] = {false};
    for (uint32_t x = 0; x < hp->n_expert; x++)
        all += exp(score[x]);
    for (uint32_t x = 0; x < hp->n_expert; x++) {
        p[x] = hp->expert_sigmoid ? 1 / (1 + exp(-score[x])) : exp(score[x]) / all;
        corrected[x] = p[x] + (f->step.bias ? f->step.bias[x] : 0);
    }
    for (uint32_t g = 0; g < n_groups; g++) { /* its best, or its two best where there is a bias */
        double best = -1e9, second = -1e9;
        for (uint32_t x = g * per_group; x < (g + 1) * per_group; x++) {
            second = corrected[x] > best ? best : corrected[x] > second ? corrected[x] : second;
            best = corrected[x] > best ? corrected[x] : best;
        }
        worth[g] = best + (f->step.bias && per_group > 1 ? second : 0);
    }
    for (uint32_t i = 0; i < f->step.n_head; i++) {
        const uint32_t x = chosen[i];
        assert_true(x < hp->n_expert && !taken[x]);
        taken[x] = used[x / per_group] = true;
        least = corrected[x] < least ? corrected[x] : least;
        least_worth = worth[x / per_group] < least_worth ? worth[x / per_group] : least_worth;
        sum += p[x];
    }
    uint32_t n_used = 0;
    for (uint32_t g = 0; g < n_groups; g++)
        n_used += used[g];
    assert_true(n_groups == 1 || n_used <= hp->n_expert_group_used);
    for (uint32_t x = 0; x < hp->n_expert; x++) {
        if (used[x / per_group])
            assert_true(taken[x] || corrected[x] <= least + 1e-6);
        else if (n_used == hp->n_expert_group_used)
            assert_true(worth[x / per_group] <= least_worth + 1e-6);
    }
    for (uint32_t i = 0; i < f->step.n_head; i++) {
        const double want = p[chosen[i]] / (hp->expert_norm ? sum : 1) * hp->expert_scale;
        assert_true(fabs(weight[i] - want) < 1e-5);
    }
}

static void chooses_by_probability(void **s)
{
    (void)s;
    for (int n = 0; n < 300; n++) {
        struct fixture f;
        float bias[40];
        open_fixture(&f);
        struct model_hparams *hp = &f.model.hp;
        hp->expert_sigmoid = n % 3 != 0;
        f.step.bias = n % 2 || n % 3 == 0 ? bias : NULL;
        if (hp->n_expert % 4 == 0 && n % 5) {
            hp->n_expert_group = 4;
            hp->n_expert_group_used = 1 + rnd() % 4;
            const uint32_t room = hp->n_expert / 4 * hp->n_expert_group_used;
            hp->n_expert_used = hp->n_expert_used < room ? hp->n_expert_used : room;
            f.step.n_head = f.step.n_head < room ? f.step.n_head : room;
        }
        for (uint32_t x = 0; x < hp->n_expert; x++)
            bias[x] = (float)(rnd() % 1000) / 500 - 1;
        for (uint32_t row = 0; row < f.batch.n_rows; row++) {
            experts_select(&f.b, &f.step, row);
            check_row_by_probability(&f, row);
        }
        close_fixture(&f);
    }
}

/* Of scores a little above 50, of which those count that are at most two steps lower, and of
 * others, of which equal ones do. */
static void mixes_what_comes_close(void **s)
{
    (void)s;
    for (int n = 0; n < 200; n++) {
        struct fixture f;
        open_fixture(&f);
        const struct model_hparams *hp = &f.model.hp;
        f.model.hp.expert_mixer = true;
        for (uint32_t i = 0; i < f.batch.n_rows * f.b.stride[BUF_ROUTER] && n % 2; i++)
            f.b.bufs[BUF_ROUTER][i] = 50 + 0.4f * (float)(rnd() % 9);
        for (uint32_t row = 0; row < f.batch.n_rows; row++) {
            const float *score = f.b.bufs[BUF_ROUTER] + row * f.b.stride[BUF_ROUTER];
            const uint32_t *chosen = f.b.experts + (size_t)row * f.step.n_head;
            const float *weight = f.b.expert_weights + (size_t)row * f.step.n_head;
            bool before[40] = {false};
            experts_select(&f.b, &f.step, row);
            for (uint32_t i = 0; i < f.step.n_head; i++) {
                double sum = 0;
                for (uint32_t x = 0; x < hp->n_expert; x++) {
                    const double apart = score[chosen[i]] - score[x];
                    if (!before[x] && apart < (n % 2 ? 1.0 : 0.1))
                        sum += exp(-apart);
                }
                before[chosen[i]] = true;
                assert_true(fabs(weight[i] - hp->expert_scale / sum) < 1e-5);
            }
        }
        close_fixture(&f);
    }
}

/* Scores that are no numbers must not lead anywhere else: as many experts as ever, all different.
 */
static void survives_scores_that_are_no_numbers(void **s)
{
    (void)s;
    struct fixture f;
    open_fixture(&f);
    for (uint32_t x = 0; x < f.model.hp.n_expert; x++)
        f.b.bufs[BUF_ROUTER][x] = x % 2 ? -INFINITY : NAN;
    experts_select(&f.b, &f.step, 0);
    bool seen[40] = {false};
    for (uint32_t i = 0; i < f.step.n_head; i++) {
        assert_true(f.b.experts[i] < f.model.hp.n_expert && !seen[f.b.experts[i]]);
        seen[f.b.experts[i]] = true;
    }
    close_fixture(&f);
}

/* Runs lie one after the other from tile to tile; every row and rank has a place of its own in the
 * run of its expert, in the order of rows. */
static void check_places(const struct fixture *f)
{
    const struct model_hparams *hp = &f->model.hp;
    const uint32_t n = f->batch.n_rows * f->step.n_head;
    const uint32_t unit = f->batch.n_rows == 1 ? 1 : ACT_TILE;
    uint32_t at = 0, n_placed = 0, run_of[40];
    assert_true(f->b.n_runs <= experts_max_runs(hp, f->batch.n_rows));
    assert_true(f->b.n_places <= experts_max_places(hp, f->batch.n_rows));
    for (uint32_t r = 0; r < f->b.n_runs; r++) {
        const struct expert_run *run = &f->b.runs[r];
        assert_int_equal(run->first, at);
        assert_true(run->n > 0 && (r == 0 || run->expert > run[-1].expert));
        run_of[run->expert] = r;
        at += (run->n + unit - 1) / unit * unit;
        for (uint32_t p = run->first; p < at; p++) {
            assert_int_equal(f->b.place_row[p] == NO_ROW, p >= run->first + run->n);
            if (p > run->first && p < run->first + run->n)
                assert_true(f->b.place_row[p] > f->b.place_row[p - 1]);
        }
        n_placed += run->n;
    }
    assert_int_equal(f->b.n_places, at);
    assert_int_equal(n_placed, n);
    bool *taken = mem_zalloc(at, sizeof *taken);
    for (uint32_t i = 0; i < n; i++) {
        const struct expert_run *run = &f->b.runs[run_of[f->b.experts[i]]];
        const uint32_t p = f->b.places[i];
        assert_true(p >= run->first && p < run->first + run->n && !taken[p]);
        assert_int_equal(f->b.place_row[p], i / f->step.n_head);
        taken[p] = true;
    }
    free(taken);
}

static void every_row_has_its_places(void **s)
{
    (void)s;
    for (int n = 0; n < 300; n++) {
        struct fixture f;
        open_fixture(&f);
        if (n % 5 == 0)
            f.batch.n_rows = 1;
        for (uint32_t row = 0; row < f.batch.n_rows; row++)
            experts_select(&f.b, &f.step, row);
        experts_sort(&f.b, f.step.n_head, f.batch.n_rows);
        check_places(&f);
        close_fixture(&f);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(chooses_the_largest),
        cmocka_unit_test(chooses_by_probability),
        cmocka_unit_test(mixes_what_comes_close),
        cmocka_unit_test(survives_scores_that_are_no_numbers),
        cmocka_unit_test(every_row_has_its_places),
    };
    return cmocka_run_group_tests(tests, start, NULL);
}
