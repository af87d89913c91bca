/* Prompts that are computed in one step or not at all. */
#include "unit/sched/fixture.h"

#include <time.h>

static struct sched_config whole_config(void)
{
    struct sched_config c = default_config();
    c.whole = true;
    return c;
}

static void add_whole(struct fixture *f, uint32_t n)
{
    struct sched_seq *s = seq(f, n, n);
    s->shares = false;
    assert_int_equal(sched_add(f->sched, s, NULL), OK);
}

/* Each item of the plan is all of its prompt. */
static void check_plan(const struct fixture *f, uint32_t max_rows)
{
    assert_true(f->plan.n_rows <= max_rows);
    for (uint32_t i = 0; i < f->plan.n_items; i++) {
        const struct sched_item *item = &f->plan.items[i];
        assert_int_equal(item->first, 0);
        assert_int_equal(item->n_rows, item->seq->n_prompt);
        assert_true(item->samples);
    }
}

static void remove_all(struct fixture *f)
{
    struct sched_seq *done[MAX_SEQS];
    uint32_t n = f->plan.n_items;
    for (uint32_t i = 0; i < n; i++)
        done[i] = f->plan.items[i].seq;
    for (uint32_t i = 0; i < n; i++)
        sched_remove(f->sched, done[i]);
}

/* The first gets its rows, whatever the budget; others join while it lasts. */
static void test_budget(void **state)
{
    struct fixture *f = start(state, whole_config(), 100);
    add_whole(f, 200);
    add_whole(f, 30);
    step(f, 64);
    assert_int_equal(f->plan.n_items, 1);
    assert_int_equal(f->plan.n_rows, 200);
    check_plan(f, 256);
    remove_all(f);
    add_whole(f, 20);
    add_whole(f, 50);
    step(f, 64);
    assert_int_equal(f->plan.n_items, 2); /* 30 and 20 */
    assert_int_equal(f->plan.n_rows, 50);
    check_plan(f, 64);
    remove_all(f);
    step(f, 64);
    assert_int_equal(f->plan.n_rows, 50);
    remove_all(f);
    assert_int_equal(kv_stats(f->kv).blocks.in_use, 0);
}

static void test_refuses(void **state)
{
    struct fixture *f = start(state, whole_config(), 100);
    struct err_info e = {0};
    assert_int_equal(sched_add(f->sched, seq(f, 257, 257), &e), ERR_TOO_LONG);
    assert_non_null(strstr(e.text, "257"));
    assert_non_null(strstr(e.text, "256"));
    assert_int_equal(sched_add(f->sched, seq(f, 256, 256), &e), OK);
    step(f, 4);
    check_plan(f, 256);
    assert_int_equal(f->plan.n_rows, 256);
}

/* Texts of any length, any budget, little memory: all get through, each in one piece. */
static void test_random(void **state)
{
    unsigned seed = (unsigned)time(NULL);
    print_message("SEED=%u\n", seed);
    srand(seed);
    for (int round = 0; round < 50; round++) {
        struct fixture *f = start(state, whole_config(), 16 + (uint32_t)rand() % 40);
        uint32_t n_left = 0, n_steps = 0;
        for (int i = 0; i < 40; i++) {
            for (int k = rand() % 3; k > 0 && f->n_seqs < MAX_SEQS; k--) {
                struct sched_seq *s = seq(f, 1 + (uint32_t)rand() % 256, 0);
                s->n_max = s->n_prompt;
                s->shares = false;
                n_left += sched_add(f->sched, s, NULL) == OK;
            }
            step(f, (uint32_t)rand() % 257);
            check_plan(f, 256);
            n_left -= f->plan.n_items;
            remove_all(f);
        }
        for (; n_left > 0 && n_steps < 200; n_steps++) {
            step(f, 16);
            check_plan(f, 256);
            assert_true(f->plan.n_items > 0);
            n_left -= f->plan.n_items;
            remove_all(f);
        }
        assert_int_equal(n_left, 0);
        assert_int_equal(kv_stats(f->kv).blocks.in_use, 0);
        teardown(state);
        *state = NULL;
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(test_budget, teardown),
        cmocka_unit_test_teardown(test_refuses, teardown),
        cmocka_unit_test_teardown(test_random, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
