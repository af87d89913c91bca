/* For whom the door is open, and how long anybody waits behind it. */
#include "unit/sched/fixture.h"

#include <stdio.h>
#include <time.h>

static struct sched_config config(uint32_t max_running)
{
    struct sched_config c = default_config();
    c.max_running = max_running;
    c.max_waiting = MAX_SEQS;
    return c;
}

static bool runs(const struct sched_seq *s)
{
    return s->slot != SCHED_NO_SLOT;
}

/* One decodes, and three long prompts of tenant 1 are there, with 4 rows a step for all. */
static struct fixture *start_crowded(void **state, struct sched_seq *longs[3])
{
    struct fixture *f = start(state, config(16), 1000);
    add_of(f, 3, 4, 1000);
    step(f, 64);
    for (int i = 0; i < 3; i++)
        longs[i] = add_of(f, 1, 1000, 1010);
    step(f, 5);
    assert_true(runs(longs[0]) && runs(longs[1]) && !runs(longs[2]));
    return f;
}

/* The first of another tenant is not kept out, short or long; its second, as long, is. */
static void test_a_tenant_without_prompts_has_rows(void **state)
{
    struct sched_seq *longs[3];
    struct fixture *f = start_crowded(state, longs);
    struct sched_seq *other = add_of(f, 2, 20, 30), *as_long = add_of(f, 4, 1000, 1010);
    struct sched_seq *second = add_of(f, 4, 1000, 1010);
    step(f, 5);
    assert_true(runs(other) && runs(as_long));
    assert_true(!runs(second) && !runs(longs[2]));
    for (int i = 0; i < 24 && other->n_known == 20; i++)
        step(f, 5);
    assert_true(other->n_known > 20); /* 20 rows, of 16, in turns of four */
}

/* Nor is the next of another tenant by one whose turn it is and that has no rows. */
static void test_who_has_no_rows_does_not_stand_in_the_door(void **state)
{
    struct sched_seq *longs[3];
    struct fixture *f = start_crowded(state, longs);
    struct sched_seq *large = add_of(f, 2, 1050, 1060);
    step(f, 256);
    sched_remove(f->sched, large); /* what was computed of it, 2 has had more than 1 */
    step(f, 5);
    struct sched_seq *other = add_of(f, 2, 1000, 1010);
    step(f, 5);
    assert_true(runs(other));
}

/* Of the same tenant a shorter one comes in, past who has no rows, but no other long one. */
static void test_a_short_prompt_has_rows(void **state)
{
    struct sched_seq *longs[3];
    struct fixture *f = start_crowded(state, longs);
    struct sched_seq *as_long = add_of(f, 1, 1000, 1010), *shorter = add_of(f, 1, 100, 110);
    struct sched_seq *as_short = add_of(f, 1, 100, 110), *shortest = add_of(f, 1, 20, 30);
    step(f, 5);
    assert_true(runs(shorter) && runs(shortest));
    assert_true(!runs(longs[2]) && !runs(as_long) && !runs(as_short));
    for (int i = 0; i < 200 && !runs(as_short); i++)
        step(f, 5);
    assert_true(runs(as_short) && shorter->n_known > 100); /* the two are not computed at once */
    assert_true(!runs(longs[2]) && !runs(as_long));
}

/* Many long ones are still computed two by two, in the order of rank; and however many short ones
 * come, they come in when two have been computed. */
static void test_long_prompts_go_two_by_two(void **state)
{
    struct sched_seq *longs[3];
    struct fixture *f = start_crowded(state, longs);
    f->n_seqs = 8;
    struct sched_seq *shorter = add_of(f, 1, 20, 22);
    uint32_t n_steps = 0, n_short = 0;
    for (; !runs(longs[2]); n_steps++) {
        step(f, 5);
        if (shorter->n_known == shorter->n_max) {
            sched_remove(f->sched, shorter);
            n_short++;
            f->n_seqs = 8;
            shorter = seq(f, 20, 22);
            shorter->tenant = 1;
            shorter->shares = false;
            assert_int_equal(sched_add(f->sched, shorter, NULL), OK);
        }
        assert_true(n_steps < 3 * 2000 / 4);
    }
    assert_true(longs[0]->n_known > 1000 && n_short > 20);
}

/* --- random crowds --------------------------------------------------------------------------- */

#define LONGEST 120

static uint64_t rng;

static uint32_t between(uint32_t lo, uint32_t hi)
{
    rng = rng * 6364136223846793005u + 1442695040888963407u;
    return lo + (uint32_t)((rng >> 33) % (hi - lo + 1));
}

static void fill(struct fixture *f, uint32_t at, uint32_t tenant)
{
    f->n_seqs = at;
    uint32_t n_max = between(2, LONGEST);
    struct sched_seq *s = seq(f, between(1, n_max - 1), n_max);
    s->tenant = tenant;
    s->shares = false;
    assert_int_equal(sched_add(f->sched, s, NULL), OK);
}

/* Two tenants always have four requests there, of as many slots, and one each waits at least. What
 * they are served differs by no more than those that run come to. A third asks now and then: it
 * waits until one ends of those that run when it asks, and for one more of each of the others. */
static void test_two_who_always_wait(void **state)
{
    enum { EACH = 6, SLOTS = 4 };
    struct fixture *f = start(state, config(SLOTS), 200);
    int64_t worked[3] = {0};
    uint32_t waited = 0;
    struct sched_seq *guest = &f->seqs[2 * EACH];
    bool asks = false;
    for (uint32_t i = 0; i < 2 * EACH; i++)
        fill(f, i, i % 2);
    for (uint32_t n = 0; n < 20000; n++) {
        step(f, between(4, 64));
        for (uint32_t i = 0; i < f->plan.n_items; i++)
            worked[f->plan.items[i].seq->tenant] += f->plan.items[i].n_rows;
        int64_t apart = worked[0] > worked[1] ? worked[0] - worked[1] : worked[1] - worked[0];
        assert_true(apart <= (SLOTS + 1) * LONGEST);
        for (uint32_t i = 0; i < 2 * EACH; i++)
            if (f->seqs[i].n_known == f->seqs[i].n_max) {
                sched_remove(f->sched, &f->seqs[i]);
                fill(f, i, i % 2);
            }
        waited = asks && !runs(guest) ? waited + 1 : 0;
        assert_true(waited <= 3 * LONGEST);
        if (asks && guest->n_known == guest->n_max) {
            sched_remove(f->sched, guest);
            asks = false;
        } else if (!asks && between(0, 50) == 0) {
            fill(f, 2 * EACH, 2);
            asks = true;
        }
    }
    assert_true(worked[2] > 0 && worked[2] < worked[0]);
}

#define TEST(fn) cmocka_unit_test_teardown(fn, teardown)

int main(void)
{
    const char *given = getenv("SEED");
    rng = given ? strtoull(given, NULL, 10) : (uint64_t)time(NULL);
    printf("SEED=%llu\n", (unsigned long long)rng);
    const struct CMUnitTest tests[] = {
        TEST(test_a_tenant_without_prompts_has_rows),
        TEST(test_who_has_no_rows_does_not_stand_in_the_door),
        TEST(test_a_short_prompt_has_rows),
        TEST(test_long_prompts_go_two_by_two),
        TEST(test_two_who_always_wait),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
