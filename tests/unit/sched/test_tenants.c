/* Whose turn it is, between tenants. */
#include "unit/sched/fixture.h"

static struct sched_config one_slot(void)
{
    struct sched_config c = default_config();
    c.max_running = 1;
    c.max_waiting = MAX_SEQS;
    return c;
}

/* The sequence in slot 0, run to its end. */
static struct sched_seq *run_one(struct fixture *f)
{
    step(f, 256);
    assert_true(f->plan.n_items > 0);
    struct sched_seq *s = f->plan.items[0].seq;
    while (s->n_known < s->n_max)
        step(f, 256);
    sched_remove(f->sched, s);
    check(f);
    return s;
}

/* One key floods the queue; two others ask one thing at a time, and all have turns. */
static void test_a_greedy_tenant_starves_nobody(void **state)
{
    struct fixture *f = start(state, one_slot(), 100);
    struct sched_seq *greedy[8], *polite[4], *other[3];
    for (int i = 0; i < 8; i++)
        greedy[i] = add_of(f, 7, 20, 30);
    assert_ptr_equal(run_one(f), greedy[0]);
    polite[0] = add_of(f, 3, 20, 30);
    other[0] = add_of(f, 9, 20, 30);
    assert_ptr_equal(run_one(f), greedy[1]); /* all are level: the order of arrival */
    assert_ptr_equal(run_one(f), polite[0]);
    polite[1] = add_of(f, 3, 20, 30);
    assert_ptr_equal(run_one(f), other[0]);
    other[1] = add_of(f, 9, 20, 30);
    assert_ptr_equal(run_one(f), greedy[2]);
    assert_ptr_equal(run_one(f), polite[1]);
    assert_ptr_equal(run_one(f), other[1]);
    assert_ptr_equal(run_one(f), greedy[3]);
    assert_ptr_equal(run_one(f), greedy[4]); /* alone: nothing is left idle */
}

/* Turns are counted in rows, not in requests. */
static void test_rows_count_not_requests(void **state)
{
    struct fixture *f = start(state, one_slot(), 100);
    struct sched_seq *large = add_of(f, 1, 100, 102), *next = add_of(f, 1, 100, 102), *small[5];
    for (int i = 0; i < 5; i++)
        small[i] = add_of(f, 2, 30, 32); /* 31 rows: the last token is never computed */
    assert_ptr_equal(run_one(f), large);
    assert_int_equal(sched_served(f->sched, 1), 101);
    for (int i = 0; i < 4; i++)
        assert_ptr_equal(run_one(f), small[i]);
    assert_int_equal(sched_served(f->sched, 2), 4 * 31);
    assert_ptr_equal(run_one(f), next);
    assert_ptr_equal(run_one(f), small[4]);
}

/* Tenants that come at once share the slots of the very first step. */
static void test_turns_within_a_step(void **state)
{
    struct sched_config c = one_slot();
    c.max_running = 4;
    struct fixture *f = start(state, c, 100);
    struct sched_seq *a[4], *b[4];
    for (int i = 0; i < 4; i++)
        a[i] = add_of(f, 1, 20, 30);
    for (int i = 0; i < 4; i++)
        b[i] = add_of(f, 2, 20, 30);
    step(f, 256);
    for (int i = 0; i < 4; i++) {
        assert_int_equal(a[i]->slot != SCHED_NO_SLOT, i < 2);
        assert_int_equal(b[i]->slot != SCHED_NO_SLOT, i < 2);
    }
}

/* Who stayed away has saved up nothing, and who had the machine alone owes nothing. */
static void test_turns_are_not_saved_up(void **state)
{
    struct fixture *f = start(state, one_slot(), 100);
    for (int i = 0; i < 6; i++) {
        add_of(f, 1, 20, 30);
        run_one(f);
    }
    struct sched_seq *a[2], *b[2];
    for (int i = 0; i < 2; i++)
        a[i] = add_of(f, 1, 20, 30);
    for (int i = 0; i < 2; i++)
        b[i] = add_of(f, 2, 20, 30);
    assert_int_equal(sched_served(f->sched, 1), sched_served(f->sched, 2));
    assert_ptr_equal(run_one(f), a[0]);
    assert_ptr_equal(run_one(f), b[0]);
    assert_ptr_equal(run_one(f), a[1]);
    assert_ptr_equal(run_one(f), b[1]);
}

/* The one beside `other`, run to its end. */
static struct sched_seq *run_beside(struct fixture *f, const struct sched_seq *other)
{
    step(f, 256);
    struct sched_seq *s = f->plan.items[f->plan.n_items - 1].seq;
    assert_ptr_not_equal(s, other);
    while (s->n_known < s->n_max)
        step(f, 256);
    sched_remove(f->sched, s);
    return s;
}

/* One long answer at a time is not waiting, so it saves up nothing either. */
static void test_a_long_answer_saves_up_nothing(void **state)
{
    struct sched_config c = one_slot();
    c.max_running = 2;
    struct fixture *f = start(state, c, 200);
    struct sched_seq *lasting = add_of(f, 2, 20, 1000), *a[3], *b[3];
    step(f, 256);
    for (int i = 0; i < 8; i++) {
        add_of(f, 1, 20, 30);
        run_beside(f, lasting);
    }
    for (int i = 0; i < 3; i++)
        a[i] = add_of(f, 1, 20, 30);
    for (int i = 0; i < 3; i++)
        b[i] = add_of(f, 2, 20, 30);
    assert_int_equal(sched_served(f->sched, 1), sched_served(f->sched, 2));
    assert_ptr_equal(run_beside(f, lasting), a[0]);
    assert_ptr_equal(run_beside(f, lasting), b[0]);
    assert_true(a[2]->n_known == 20 && b[2]->n_known == 20);
}

/* An answer that ran alone for long is not owed for, neither when it has ended nor while it runs.
 */
static void test_who_was_alone_owes_nothing(void **state)
{
    struct fixture *f = start(state, one_slot(), 100);
    add_of(f, 1, 20, 1000);
    run_one(f);
    struct sched_seq *b = add_of(f, 2, 20, 30), *a = add_of(f, 1, 20, 30);
    struct sched_seq *b2 = add_of(f, 2, 20, 30);
    assert_int_equal(sched_served(f->sched, 2), 999);
    assert_ptr_equal(run_one(f), b);
    assert_ptr_equal(run_one(f), a);
    assert_ptr_equal(run_one(f), b2);
    struct sched_seq *runs = add_of(f, 1, 20, 1000);
    while (runs->n_known < 900)
        step(f, 256);
    b = add_of(f, 3, 20, 30);
    assert_int_equal(sched_served(f->sched, 3), sched_served(f->sched, 1));
    sched_remove(f->sched, runs);
    assert_ptr_equal(run_one(f), b);
}

/* Nor does one owe to whoever is here and never had to wait. */
static void test_who_need_not_wait_is_owed_nothing(void **state)
{
    struct sched_config c = one_slot();
    c.max_running = 3;
    struct fixture *f = start(state, c, 200);
    struct sched_seq *lasting[2] = {add_of(f, 1, 20, 1000), add_of(f, 1, 20, 1000)};
    step(f, 256);
    for (int i = 0; i < 8; i++) {
        struct sched_seq *b = add_of(f, 2, 20, 30);
        while (b->n_known < b->n_max)
            step(f, 256);
        sched_remove(f->sched, b);
    }
    add_of(f, 2, 20, 30);
    add_of(f, 1, 20, 30);
    assert_int_equal(sched_served(f->sched, 1), sched_served(f->sched, 2));
    sched_remove(f->sched, lasting[0]);
    sched_remove(f->sched, lasting[1]);
}

/* What was found, or not computed because it was cancelled, is not charged. */
static void test_only_what_is_computed_counts(void **state)
{
    struct fixture *f = start(state, one_slot(), 100);
    struct sched_seq *a = add_of(f, 1, 200, 202);
    run_one(f);
    int64_t had = sched_served(f->sched, 1);
    struct sched_seq *again = add_like(f, a, 200, 200, 202);
    again->tenant = 1; /* too late: it is nobody's */
    sched_remove(f->sched, again);
    again = seq(f, 200, 202);
    memcpy(f->tokens[f->n_seqs - 1], a->tokens, 200 * sizeof(int32_t));
    again->tenant = 1;
    assert_int_equal(sched_add(f->sched, again, NULL), OK);
    run_one(f);
    assert_int_equal(sched_served(f->sched, 1) - had, 2); /* the last of the prompt, one answer */
    struct sched_seq *gone = add_of(f, 1, 1000, 1010);
    had = sched_served(f->sched, 1);
    step(f, 100);
    assert_int_equal(sched_served(f->sched, 1) - had, 1000);
    sched_remove(f->sched, gone);
    assert_int_equal(sched_served(f->sched, 1) - had, 96); /* six blocks were computed */
}

/* A step of priority is a head start between tenants too; within one, arrival and rank decide. */
static void test_priority_between_tenants(void **state)
{
    struct fixture *f = start(state, one_slot(), 100);
    struct sched_seq *first = add_of(f, 1, 20, 30), *second = add_of(f, 1, 20, 30);
    struct sched_seq *low = seq(f, 20, 30);
    low->tenant = 2;
    low->priority = -1;
    assert_int_equal(sched_add(f->sched, low, NULL), OK);
    assert_ptr_equal(run_one(f), first);
    assert_ptr_equal(run_one(f), second); /* 2 has had nothing, but asks for less */
    assert_ptr_equal(run_one(f), low);
}

static struct sched_seq *add_at(struct fixture *f, uint32_t tenant, int32_t priority, uint32_t n)
{
    if (f->n_seqs == MAX_SEQS)
        f->n_seqs = MAX_SEQS / 2; /* places of those that have ended */
    struct sched_seq *s = seq(f, n, n + 2);
    s->tenant = tenant;
    s->priority = priority;
    s->shares = false; /* texts come again */
    assert_int_equal(sched_add(f->sched, s, NULL), OK);
    return s;
}

/* What one of higher priority took is not the level of those below it. */
static void test_priority_stays_out_of_the_level(void **state)
{
    struct fixture *f = start(state, one_slot(), 100);
    struct sched_seq *low = add_at(f, 2, 0, 20);
    for (int i = 0; i < 3; i++) {
        struct sched_seq *high = add_at(f, 1, 1, 1000);
        assert_ptr_equal(run_one(f), high);
    }
    struct sched_seq *late = add_at(f, 3, 0, 20), *low2 = add_at(f, 2, 0, 20);
    assert_int_equal(sched_served(f->sched, 3), sched_served(f->sched, 2));
    assert_ptr_equal(run_one(f), low);
    assert_ptr_equal(run_one(f), late);
    assert_ptr_equal(run_one(f), low2);
}

/* A head start over one that waits is used up once by all that have it. */
static void test_a_head_start_is_used_once(void **state)
{
    struct fixture *f = start(state, one_slot(), 100);
    struct sched_seq *low = add_at(f, 2, 0, 20), *next = add_at(f, 2, 0, 20), *high;
    do
        high = add_at(f, 1, 1, 1000);
    while (run_one(f) != low);
    assert_in_range(sched_served(f->sched, 1), SCHED_PRIORITY_ROWS, SCHED_PRIORITY_ROWS + 1001);
    sched_remove(f->sched, high);
    high = add_at(f, 3, 1, 20);
    int64_t turn = sched_served(f->sched, 3) - SCHED_PRIORITY_ROWS;
    assert_int_equal(turn, sched_served(f->sched, 2));
    assert_ptr_equal(run_one(f), next); /* it came sooner */
    assert_ptr_equal(run_one(f), high);
}

/* What waits all the time at a low priority saves up no turns for what asks at a higher one. */
static void test_what_waits_below_saves_up_nothing(void **state)
{
    struct fixture *f = start(state, one_slot(), 100);
    add_at(f, 1, -50, 20);
    for (int i = 0; i < 3; i++) {
        struct sched_seq *s = add_at(f, 2, 0, 1000);
        assert_ptr_equal(run_one(f), s);
    }
    struct sched_seq *one = add_at(f, 2, 0, 20), *other = add_at(f, 1, 0, 20);
    assert_ptr_equal(run_one(f), one); /* they are level, and it came sooner */
    assert_ptr_equal(run_one(f), other);
}

/* One that comes below others leaves them their head start, whatever they had before. */
static void test_who_comes_below_others(void **state)
{
    struct fixture *f = start(state, one_slot(), 100);
    for (int i = 0; i < 3; i++) {
        add_at(f, 1, 0, 1000);
        run_one(f);
    }
    struct sched_seq *low = add_at(f, 2, -1, 20);
    assert_int_equal(sched_served(f->sched, 2), sched_served(f->sched, 1));
    for (int i = 0; i < 3; i++) {
        struct sched_seq *high = add_at(f, i % 2 ? 1 : 3, 0, 1000);
        assert_ptr_equal(run_one(f), high);
    }
    assert_ptr_equal(run_one(f), low);
}

/* One that is put back into the queue has saved up nothing meanwhile. */
static void test_the_displaced_begin_level(void **state)
{
    struct sched_config c = one_slot();
    c.max_running = 2;
    struct fixture *f = start(state, c, 30);
    struct sched_seq *low = seq(f, 20, 320);
    low->tenant = 2;
    low->priority = -1;
    assert_int_equal(sched_add(f->sched, low, NULL), OK);
    step(f, 256);
    for (int i = 0; i < 8; i++) {
        add_of(f, 1, 20, 30);
        run_beside(f, low);
    }
    int64_t had = sched_served(f->sched, 1);
    assert_true(sched_served(f->sched, 2) < had);
    struct sched_seq *high = add_of(f, 1, 200, 240); /* beside low there is no memory for it */
    step(f, 256);
    assert_true(high->slot != SCHED_NO_SLOT && low->slot == SCHED_NO_SLOT);
    assert_int_equal(sched_served(f->sched, 2), had);
}

/* More tenants than there is room to remember: who left is forgotten, nobody who is here. */
static void test_many_tenants(void **state)
{
    struct sched_config c = one_slot();
    c.max_waiting = 2;
    struct fixture *f = start(state, c, 100);
    for (uint32_t i = 0; i < 40; i++) {
        f->n_seqs = 2 * (i % 2);
        struct sched_seq *a = add_of(f, 1000 + i, 20, 30), *b = add_of(f, 2000 + i, 20, 30);
        assert_ptr_equal(run_one(f), a);
        assert_ptr_equal(run_one(f), b);
    }
}

#define TEST(fn) cmocka_unit_test_teardown(fn, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_a_greedy_tenant_starves_nobody),
        TEST(test_rows_count_not_requests),
        TEST(test_turns_within_a_step),
        TEST(test_turns_are_not_saved_up),
        TEST(test_a_long_answer_saves_up_nothing),
        TEST(test_who_was_alone_owes_nothing),
        TEST(test_who_need_not_wait_is_owed_nothing),
        TEST(test_only_what_is_computed_counts),
        TEST(test_priority_between_tenants),
        TEST(test_priority_stays_out_of_the_level),
        TEST(test_a_head_start_is_used_once),
        TEST(test_who_comes_below_others),
        TEST(test_what_waits_below_saves_up_nothing),
        TEST(test_the_displaced_begin_level),
        TEST(test_many_tenants),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
