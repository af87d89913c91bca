/* What need not be computed, who waits for whom, who has to go, and who goes first. */
#include "unit/sched/fixture.h"

/* Who arrives while another computes the same text waits for it, to the token. */
static void test_follows_who_computes_the_same(void **state)
{
    struct fixture *f = start(state, default_config(), 100);
    struct sched_seq *a = add(f, 600, 610);
    step(f, 256);
    struct sched_seq *b = add_like(f, a, 395, 420, 430), *c = add_like(f, a, 600, 600, 610);
    struct sched_seq *other = add(f, 20, 30);
    step(f, 256);
    assert_int_equal(b->n_computed, 256); /* what was there is taken over at once */
    assert_ptr_equal(b->leader, a);
    assert_ptr_equal(c->leader, a);
    assert_int_equal(rows_of(f, b) + rows_of(f, c), 0);
    assert_int_equal(rows_of(f, other), 20);
    const struct sched_load load = sched_load(f->sched); /* who waits will decode, too */
    assert_int_equal(load.n_decodes, 1);
    assert_int_equal(load.n_prompts, 3);
    assert_int_equal(load.prompts_attend, 600 + 420 + 600);
    assert_int_equal(load.longest_prompt, 600);
    assert_int_equal(load.prefill_depth, a->n_computed);
    step(f, 256); /* a has computed enough for b */
    assert_int_equal(rows_of(f, b), 25);
    assert_int_equal(b->n_cached, 395);
    assert_int_equal(rows_of(f, c), 0);
    step(f, 256);
    assert_int_equal(rows_of(f, c), 1); /* a full hit leaves one token to compute */
    assert_int_equal(c->n_cached, 599);
    assert_int_equal(c->n_known, 601);
    assert_int_equal(kv_stats(f->kv).counts.hit_tokens, 395 + 599);
    assert_int_equal(a->n_cached, 0);
    add_like(f, a, 600, 620, 630);
    step(f, 8); /* of 20 rows that it has found nothing of */
    assert_int_equal(sched_load(f->sched).longest_prompt, 20);
}

/* Rows at depth cost more: the budget is made once it is known how deep newcomers begin. */
static void test_what_a_newcomer_found(void **state)
{
    struct fixture *f = start(state, default_config(), 100);
    struct sched_seq *a = add(f, 600, 610);
    for (int i = 0; i < 4; i++)
        step(f, 256);
    const struct sched_seq *b = add_like(f, a, 600, 700, 710);
    assert_int_equal(sched_load(f->sched).prefill_depth, 0);
    assert_true(sched_take_in(f->sched, 256, &f->plan));
    assert_int_equal(sched_load(f->sched).prefill_depth, 600);
    sched_plan_rows(f->sched, 33, &f->plan);
    check(f);
    assert_int_equal(rows_of(f, b), 32);
}

/* Less than a block in common is not worth waiting for: it would be copied, not shared. */
static void test_follows_for_whole_blocks_only(void **state)
{
    struct fixture *f = start(state, default_config(), 100);
    struct sched_seq *a = add(f, 600, 610);
    step(f, 256);
    struct sched_seq *b = add_like(f, a, 256 + BLOCK_TOKENS - 1, 300, 310);
    struct sched_seq *c = add_like(f, a, 256 + BLOCK_TOKENS, 300, 310);
    step(f, 256);
    assert_null(b->leader);
    assert_true(rows_of(f, b) > 0);
    assert_ptr_equal(c->leader, a);
    assert_int_equal(rows_of(f, c), 0);
}

static void test_goes_on_alone_when_its_leader_leaves(void **state)
{
    struct fixture *f = start(state, default_config(), 100);
    struct sched_seq *a = add(f, 600, 610);
    step(f, 256);
    struct sched_seq *b = add_like(f, a, 600, 600, 610), *c = add_like(f, a, 600, 600, 610);
    step(f, 100);
    assert_ptr_equal(b->leader, a);
    sched_remove(f->sched, a);
    assert_null(b->leader);
    step(f, 256);
    assert_true(rows_of(f, b) > 0); /* and leads the other */
    assert_ptr_equal(c->leader, b);
    assert_int_equal(b->n_cached, 352); /* all that a had computed */
}

static void test_tenants_and_those_who_opt_out_share_nothing(void **state)
{
    struct fixture *f = start(state, default_config(), 200);
    struct sched_seq *a = add(f, 100, 110);
    step(f, 256);
    struct sched_seq *b = add_like(f, a, 100, 100, 110), *c = add_like(f, a, 100, 100, 110);
    assert_int_equal(kv_space_of("tenant", 6, &b->space, NULL), OK);
    c->shares = false;
    step(f, 256);
    assert_int_equal(rows_of(f, b), 100);
    assert_int_equal(rows_of(f, c), 100);
    assert_int_equal(kv_stats(f->kv).counts.hit_tokens, 0);
    struct sched_seq *d = add_like(f, b, 100, 100, 110);
    d->space = b->space;
    step(f, 256);
    assert_int_equal(rows_of(f, d), 1);
}

/* Nor does one wait for what the other computes: that, too, would tell. */
static void test_nobody_waits_for_another_tenant(void **state)
{
    struct fixture *f = start(state, default_config(), 200);
    struct sched_seq *a = add(f, 600, 610);
    step(f, 256);
    struct sched_seq *b = add_like(f, a, 600, 600, 610);
    assert_int_equal(kv_space_of("tenant", 6, &b->space, NULL), OK);
    step(f, 256);
    assert_null(b->leader);
    assert_true(rows_of(f, b) > 0);
}

static void test_logits_of_all_rows_are_computed(void **state)
{
    struct fixture *f = start(state, default_config(), 100);
    struct sched_seq *a = add(f, 40, 50);
    step(f, 256);
    struct sched_seq *b = add_like(f, a, 40, 40, 50);
    b->all_logits = true;
    step(f, 256);
    assert_int_equal(rows_of(f, b), 40);
    assert_int_equal(b->n_cached, 0);
}

/* The next turn of a conversation finds the one before, with the answer. */
static void test_next_turn_finds_its_history(void **state)
{
    struct fixture *f = start(state, default_config(), 100);
    struct sched_seq *a = add(f, 50, 61);
    for (int i = 0; i < 11; i++)
        step(f, 256);
    assert_int_equal(a->n_known, 61);
    sched_remove(f->sched, a);
    struct sched_seq *b = add_like(f, a, 61, 80, 90);
    step(f, 256);
    assert_int_equal(b->n_cached, 60); /* the last token of the answer was never computed */
    assert_int_equal(rows_of(f, b), 20);
    assert_int_equal(kv_stats(f->kv).counts.copied, 0); /* the block that was begun is filled up */
}

static struct sched_config optimistic(void)
{
    struct sched_config c = default_config();
    c.overcommit = 1.0;
    return c;
}

/* Blocks run out: the latest goes, comes back when there is room, and goes on where it was. */
static void test_preempts_the_latest(void **state)
{
    struct fixture *f = start(state, optimistic(), 10);
    struct sched_seq *a = add(f, 32, 112), *b = add(f, 32, 112), *c = add(f, 32, 64);
    int i = 0;
    for (; sched_n_preempted(f->sched) == 0; i++)
        step(f, 256);
    assert_int_equal(c->n_preempted, 1);
    assert_int_equal(c->slot, SCHED_NO_SLOT);
    assert_true(c->n_known > 32 && c->n_known < 64);
    assert_int_equal(f->plan.n_decodes, 2);
    assert_int_equal(sched_load(f->sched).n_prompts, 0); /* there is no room for it to come back */
    while (b->n_preempted == 0)
        step(f, 256);
    assert_int_equal(a->n_preempted, 0); /* who came first never yields */
    while (a->n_known < 112)
        step(f, 256);
    sched_remove(f->sched, a);
    for (i = 0; i < 400 && (b->n_known < 112 || c->n_known < 64); i++) {
        step(f, 256);
        if (b->n_known == 112)
            sched_remove(f->sched, b);
    }
    assert_int_equal(b->n_known, 112);
    assert_int_equal(c->n_known, 64);
}

/* With a pool of its own size, the blocks of a preempted sequence are mostly still there. */
static void test_comes_back_to_its_blocks(void **state)
{
    struct fixture *f = start(state, optimistic(), 10);
    struct sched_seq *a = add(f, 60, 80), *b = add(f, 60, 100);
    while (b->n_preempted == 0)
        step(f, 256);
    uint32_t n_known = b->n_known;
    sched_remove(f->sched, a);
    assert_int_equal(sched_load(f->sched).n_prompts, 1); /* now there is */
    step(f, 256);
    assert_int_equal(b->n_computed, n_known);
    assert_int_equal(rows_of(f, b), 1);
}

static void test_priority_goes_first(void **state)
{
    struct sched_config c = default_config();
    c.max_running = 1;
    struct fixture *f = start(state, c, 100);
    struct sched_seq *a = add(f, 4, 50);
    step(f, 256);
    struct sched_seq *b = add(f, 4, 50), *high = seq(f, 4, 50), *low = seq(f, 4, 50);
    high->priority = 1;
    low->priority = -1;
    assert_int_equal(sched_add(f->sched, low, NULL), OK);
    assert_int_equal(sched_add(f->sched, high, NULL), OK);
    step(f, 256);
    assert_int_equal(high->slot, 0); /* a made way */
    assert_int_equal(a->n_preempted, 1);
    struct sched_seq *order[] = {high, a, b, low};
    for (int i = 0; i < 4; i++) {
        step(f, 256);
        assert_int_equal(order[i]->slot, 0);
        sched_remove(f->sched, order[i]);
    }
}

/* While the budget is less than a chunk, a long prompt must not keep everybody else out. */
static void test_a_long_prompt_does_not_keep_others_out(void **state)
{
    struct fixture *f = start(state, default_config(), 200);
    struct sched_seq *d = add(f, 1, 500), *longer = seq(f, 1000, 1010);
    longer->priority = -1;
    step(f, 0);
    assert_int_equal(sched_add(f->sched, longer, NULL), OK);
    step(f, 0);
    assert_int_equal(rows_of(f, longer), 4);
    struct sched_seq *shorter = add(f, 40, 50), *high = seq(f, 40, 50);
    high->priority = 5;
    assert_int_equal(sched_add(f->sched, high, NULL), OK);
    for (int i = 0; i < 10; i++) { /* the one of higher priority has every row */
        step(f, 0);
        assert_int_equal(rows_of(f, high), 4);
        assert_int_equal(rows_of(f, d), 1);
    }
    assert_int_equal(high->n_known, 41);
    for (int i = 0; i < 20; i++)
        step(f, 0);
    assert_true(shorter->n_known > 40);
    assert_true(longer->n_computed < 100);
}

/* The same priority: by turns. */
static void test_two_prompts_take_turns_below_one_chunk(void **state)
{
    struct fixture *f = start(state, default_config(), 200);
    add(f, 1, 500);
    struct sched_seq *longer = add(f, 1000, 1010);
    step(f, 0);
    step(f, 0);
    struct sched_seq *shorter = add(f, 40, 50);
    for (int i = 0; i < 20; i++)
        step(f, 0);
    assert_int_equal(shorter->n_known, 41);
    assert_true(longer->n_computed >= 40);
}

/* Nobody is preempted for one that would not fit even then. */
static void test_makes_way_only_if_that_helps(void **state)
{
    struct fixture *f = start(state, default_config(), 10);
    struct sched_seq *high = seq(f, 90, 96), *low = seq(f, 30, 60), *middle = seq(f, 100, 128);
    high->priority = 2;
    middle->priority = 1;
    assert_int_equal(sched_add(f->sched, high, NULL), OK);
    assert_int_equal(sched_add(f->sched, low, NULL), OK);
    step(f, 256);
    assert_int_equal(sched_n_running(f->sched), 2);
    assert_int_equal(sched_add(f->sched, middle, NULL), OK); /* needs 8, 6 are of higher priority */
    step(f, 256);
    assert_int_equal(low->n_preempted, 0);
    assert_int_equal(middle->slot, SCHED_NO_SLOT);
    sched_remove(f->sched, high);
    step(f, 256);
    assert_int_equal(low->n_preempted, 1);
    assert_int_equal(middle->n_known, 101);
}

/* Four long sequences, with panes for little more than four windows: none is ever preempted, and
 * each holds a window's panes however long it is. */
static void test_windows_bound_what_sequences_hold(void **state)
{
    struct sched_config c = default_config();
    struct fixture *f = start_with_windows(state, c, 300, 64, 32);
    struct sched_seq *s[4];
    for (int i = 0; i < 4; i++)
        s[i] = add(f, 900, 1000);
    for (int i = 0; i < 60; i++) {
        step(f, 256);
        assert_true(kv_stats(f->kv).panes.in_use <= 32);
    }
    assert_int_equal(sched_n_running(f->sched), 4);
    assert_int_equal(sched_n_preempted(f->sched), 0);
    for (int i = 0; i < 4; i++) {
        assert_true(s[i]->n_computed > 900);
        assert_int_equal(s[i]->table.n_blocks, (s[i]->n_computed + 15) / 16);
        assert_true(s[i]->table.end_pane - s[i]->table.first_pane <= 5);
    }
}

/* A chunk takes as many panes as there are, and no more. */
static void test_chunks_are_cut_to_the_panes(void **state)
{
    struct fixture *f = start_with_windows(state, default_config(), 300, 64, 8);
    struct sched_seq *s = add(f, 900, 901);
    step(f, 256);
    assert_int_equal(s->n_computed, 8 * BLOCK_TOKENS);
    step(f, 256); /* block 4 holds position 65, the first that the next row sees */
    assert_int_equal(s->n_computed, 12 * BLOCK_TOKENS);
    while (s->n_computed < 900)
        step(f, 256);
    assert_int_equal(kv_stats(f->kv).blocks.in_use, 57);
}

/* Admission counts on a window for each, not on a context: and no more than there are panes. */
static void test_admits_as_many_as_have_windows(void **state)
{
    for (int strict = 0; strict < 2; strict++) {
        struct sched_config c = default_config();
        c.overcommit = strict ? 0.0 : 0.9;
        struct fixture *f = start_with_windows(state, c, 600, 64, 18);
        for (int i = 0; i < 4; i++)
            add(f, 900, 1000);
        for (int i = 0; i < 20; i++)
            step(f, 256);
        assert_int_equal(sched_n_running(f->sched), 3); /* 6 each */
        assert_int_equal(sched_n_preempted(f->sched), 0);
        if (!strict)
            teardown(state);
    }
}

static void test_a_window_must_fit(void **state)
{
    struct fixture *f = start_with_windows(state, default_config(), 300, 64, 5);
    struct err_info e = {0};
    struct sched_seq *s = seq(f, 900, 901);
    assert_int_equal(sched_panes_per_seq(64, BLOCK_TOKENS), 6);
    assert_int_equal(sched_add(f->sched, s, &e), ERR_TOO_LONG);
    assert_string_equal(e.text, "would need 6 panes, exceeds max 5");
    add(f, 79, 80); /* has 5 blocks in all */
    for (int i = 0; i < 5; i++)
        step(f, 256);
}

/* Short ones that share their beginning share its panes, and are admitted for it. */
static void test_counts_shared_panes_once(void **state)
{
    struct sched_config c = default_config();
    c.overcommit = 0.9;
    struct fixture *f = start_with_windows(state, c, 300, 512, 24);
    struct sched_seq *a = add(f, 200, 210);
    step(f, 256);
    assert_int_equal(a->n_known, 201);
    for (int i = 0; i < 4; i++) /* 14 blocks each, 12 of them a's */
        add_like(f, a, 192, 200, 210);
    for (int i = 0; i < 3; i++)
        step(f, 256);
    assert_int_equal(sched_n_running(f->sched), 5);
    assert_true(kv_stats(f->kv).panes.in_use <= 24);
}

/* Beside a step under way one is admitted who counts on two panes, which is what there is: one of a
 * prefix, that its window has passed then, and of the block that the prefix ends in. */
static void test_a_hit_beside_a_step_takes_no_more_than_promised(void **state)
{
    struct fixture *f = start_with_windows(state, optimistic(), 40, 2, 3);
    struct sched_seq *before = add(f, 28, 28), *other;
    step(f, 256);
    sched_remove(f->sched, before);
    other = add(f, 5, 8);
    step(f, 256);
    sched_plan_step(f->sched, 256, &f->plan);
    kv_step_begun(f->kv);
    assert_int_equal(rows_of(f, other), 1);
    struct sched_seq *hit = add_like(f, before, 28, 60, 62);
    assert_int_equal(kv_panes_available(f->kv), 2);
    sched_plan_step(f->sched, 256, &f->plan);
    check(f);
    assert_int_equal(hit->n_cached, 28);
    assert_true(rows_of(f, hit) >= 16);
    kv_step_ended(f->kv);
}

/* What had been promised to those who make way is promised to nobody: else more is than there is,
 * and the next one's chunk is not cut to what is left. */
static void test_promises_end_with_who_makes_way(void **state)
{
    struct fixture *f = start_with_windows(state, default_config(), 40, 16, 3);
    struct sched_seq *a = add(f, 20, 20), *b = add(f, 16, 16), *high = seq(f, 100, 110);
    step(f, 4); /* for the first alone */
    assert_int_equal(a->n_computed, 4);
    assert_int_equal(sched_n_running(f->sched), 2);
    f->tokens[2][0] = a->tokens[0]; /* so that it begins with a copy */
    high->priority = 1;
    assert_int_equal(sched_add(f->sched, high, NULL), OK);
    step(f, 256);
    assert_int_equal(a->n_preempted + b->n_preempted, 2);
    assert_int_equal(high->n_cached, 1);
    assert_int_equal(high->n_computed, 3 * BLOCK_TOKENS);
}

/* After a copied beginning, chunks end at blocks again, and what follows can be found. */
static void test_looks_again_after_a_copied_beginning(void **state)
{
    struct fixture *f = start(state, default_config(), 200);
    struct sched_seq *a = add(f, 20, 30);
    step(f, 256);
    struct sched_seq *b = add_like(f, a, 5, 400, 410);
    step(f, 100);
    assert_int_equal(b->n_cached, 5);
    assert_int_equal(b->n_computed % BLOCK_TOKENS, 0);
    assert_true(b->n_computed >= 80);
}

/* A step of priority is a head start, not a right of way for ever. */
static void test_priority_is_a_head_start(void **state)
{
    struct sched_config c = default_config();
    c.max_running = 1;
    c.max_waiting = 1;
    struct fixture *f = start(state, c, 100);
    struct sched_seq *low = add(f, 4, 50), *high = seq(f, 4, 50);
    low->priority = 0;
    high->priority = 1;
    step(f, 256);
    for (int i = 0; i < SCHED_PRIORITY_PLACES; i++) { /* others come and go */
        assert_int_equal(sched_add(f->sched, high, NULL), OK);
        sched_remove(f->sched, high);
    }
    assert_int_equal(sched_add(f->sched, high, NULL), OK);
    step(f, 256);
    assert_int_equal(low->slot, 0);
    assert_int_equal(high->slot, SCHED_NO_SLOT);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_teardown(name, teardown)
    const struct CMUnitTest tests[] = {
        TEST(test_follows_who_computes_the_same),
        TEST(test_what_a_newcomer_found),
        TEST(test_follows_for_whole_blocks_only),
        TEST(test_goes_on_alone_when_its_leader_leaves),
        TEST(test_tenants_and_those_who_opt_out_share_nothing),
        TEST(test_nobody_waits_for_another_tenant),
        TEST(test_logits_of_all_rows_are_computed),
        TEST(test_next_turn_finds_its_history),
        TEST(test_preempts_the_latest),
        TEST(test_comes_back_to_its_blocks),
        TEST(test_priority_goes_first),
        TEST(test_a_long_prompt_does_not_keep_others_out),
        TEST(test_two_prompts_take_turns_below_one_chunk),
        TEST(test_makes_way_only_if_that_helps),
        TEST(test_windows_bound_what_sequences_hold),
        TEST(test_chunks_are_cut_to_the_panes),
        TEST(test_admits_as_many_as_have_windows),
        TEST(test_a_window_must_fit),
        TEST(test_counts_shared_panes_once),
        TEST(test_a_hit_beside_a_step_takes_no_more_than_promised),
        TEST(test_promises_end_with_who_makes_way),
        TEST(test_looks_again_after_a_copied_beginning),
        TEST(test_priority_is_a_head_start),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
