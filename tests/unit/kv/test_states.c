/* States of recurrent layers: whose they are, where they are kept, and what a prefix is worth
 * without them. A step is a call of run(): rows planned, and heard of. */
#include "kv/kv.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define N_BLOCKS 24
#define SIZE 4
#define N_TABLES 4
#define N_TOKENS 40
#define MAX_BLOCKS 10

struct fixture {
    struct kv *kv;
    struct kv_table tables[N_TABLES];
    const struct kv_table *all[N_TABLES];
    int32_t text[N_TOKENS], other[N_TOKENS];
};

static const struct kv_key nobody;

static void copy_block(void *ctx, struct kv_place from, struct kv_place to)
{
    (void)ctx;
    (void)from;
    (void)to;
    fail_msg("a block was copied: no state is behind it");
}

static struct fixture *open_with(uint32_t n_states)
{
    struct fixture *f = calloc(1, sizeof *f);
    struct kv_config kc = {.n_blocks = N_BLOCKS,
                           .block_tokens = SIZE,
                           .mover = {.ctx = f, .copy = copy_block},
                           .n_states = n_states};
    assert_int_equal(kv_create(&kc, &f->kv, NULL), OK);
    for (int i = 0; i < N_TABLES; i++) {
        assert_int_equal(kv_table_init(f->kv, &f->tables[i], MAX_BLOCKS, NULL), OK);
        f->all[i] = &f->tables[i];
    }
    for (int i = 0; i < N_TOKENS; i++) {
        f->text[i] = i;
        f->other[i] = i < 14 ? i : 100 + i; /* parts in block 3 */
    }
    return f;
}

static void check(const struct fixture *f)
{
    struct err_info e;
    if (kv_check(f->kv, f->all, N_TABLES, &e) != OK)
        fail_msg("%s", e.text);
}

static void close_all(struct fixture *f)
{
    for (int i = 0; i < N_TABLES; i++) {
        if (f->tables[i].n_blocks > 0 || f->tables[i].state != KV_NO_STATE)
            kv_table_release(f->kv, &f->tables[i], 0);
        kv_table_deinit(&f->tables[i]);
    }
    kv_destroy(f->kv);
    free(f);
}

static struct kv_table *begin(struct fixture *f, int i, const int32_t *tokens)
{
    kv_table_begin(&f->tables[i], tokens, &nobody, true);
    return &f->tables[i];
}

/* Rows up to n positions are planned, run and heard of. */
static void run(struct fixture *f, struct kv_table *t, uint32_t n)
{
    assert_int_equal(kv_table_grow(f->kv, t, n, NULL), OK);
    check(f);
    kv_publish(f->kv, t, n, true);
    check(f);
}

static void end(struct fixture *f, struct kv_table *t, uint32_t n)
{
    kv_table_release(f->kv, t, n);
    check(f);
}

/* One sequence computes n positions, with a state wanted behind block `keep`, and ends. */
static void compute(struct fixture *f, const int32_t *tokens, uint32_t n, uint32_t keep)
{
    struct kv_table *t = begin(f, 3, tokens);
    kv_want_state(f->kv, t, keep);
    run(f, t, n);
    end(f, t, n);
}

static void one_is_kept_and_gone_on_from(void **state)
{
    (void)state;
    struct fixture *f = open_with(8);
    struct kv_table *t = begin(f, 0, f->text);
    assert_true(kv_want_state(f->kv, t, 2));
    assert_int_equal(kv_table_grow(f->kv, t, 18, NULL), OK);
    check(f);
    assert_int_not_equal(t->states[2], KV_NO_STATE);
    assert_int_not_equal(t->states[2], t->state);
    assert_int_equal(t->states[1], KV_NO_STATE);
    const uint32_t kept = t->states[2];
    kv_publish(f->kv, t, 18, true);
    assert_int_equal(t->states[2], KV_NO_STATE); /* it is nobody's to write any more */
    check(f);

    struct kv_table *u = begin(f, 1, f->other);
    assert_int_equal(kv_attach(f->kv, u, 0, N_TOKENS), 12);
    assert_int_equal(u->base, kept);
    check(f);
    assert_int_equal(kv_table_grow(f->kv, u, 15, NULL), OK);
    assert_int_equal(u->state_from, kept);
    assert_int_not_equal(u->state, kept);
    kv_publish(f->kv, u, 15, true);
    assert_int_equal(u->base, KV_NO_STATE);
    assert_int_equal(kv_table_grow(f->kv, u, 16, NULL), OK);
    assert_int_equal(u->state_from, u->state);
    kv_publish(f->kv, u, 16, true);
    end(f, u, 16);
    end(f, t, 18);
    struct kv_stats s = kv_stats(f->kv);
    assert_int_equal(s.states.cached, 3); /* the kept one, and where either ended */
    assert_int_equal(s.states.in_use, 0);
    assert_int_equal(s.counts.states_kept, 1);
    close_all(f);
}

static void texts_part_where_one_was_missed(void **state)
{
    (void)state;
    struct fixture *f = open_with(8);
    compute(f, f->text, 22, 4);
    struct kv_table *t = begin(f, 0, f->other);
    assert_int_equal(kv_attach(f->kv, t, 0, N_TOKENS), 0); /* three blocks are there, no state */
    assert_int_equal(kv_stats(f->kv).counts.state_miss_tokens, 12);
    run(f, t, 20);
    end(f, t, 20);
    f->other[13] = 77;
    t = begin(f, 0, f->other);
    assert_int_equal(kv_attach(f->kv, t, 0, N_TOKENS), 12);
    end(f, t, 12);
    assert_int_equal(kv_stats(f->kv).counts.merged, 3);
    close_all(f);
}

static void a_conversation_goes_on_in_the_middle_of_a_block(void **state)
{
    (void)state;
    struct fixture *f = open_with(8);
    compute(f, f->text, 18, 2);
    struct kv_table *t = begin(f, 0, f->text);
    assert_int_equal(kv_attach(f->kv, t, 0, 30), 18);
    assert_int_equal(t->n_blocks, 5);
    assert_int_equal(t->base, KV_NO_STATE);
    check(f);
    struct kv_table *u = begin(f, 1, f->text); /* that one is being written now */
    assert_int_equal(kv_attach(f->kv, u, 0, 30), 12);
    run(f, t, 25);
    assert_int_equal(t->state_from, t->state);
    end(f, t, 25);
    end(f, u, 12);
    u = begin(f, 1, f->text);
    assert_int_equal(kv_attach(f->kv, u, 0, 30), 25);
    end(f, u, 25);
    close_all(f);
}

static void a_shorter_text_does_not_find_what_goes_further(void **state)
{
    (void)state;
    struct fixture *f = open_with(8);
    compute(f, f->text, 18, 2);
    struct kv_table *t = begin(f, 0, f->text);
    assert_int_equal(kv_attach(f->kv, t, 0, 18), 12); /* the last token has to be computed */
    end(f, t, 12);
    t = begin(f, 0, f->text);
    assert_int_equal(kv_attach(f->kv, t, 0, 19), 18);
    end(f, t, 18);
    close_all(f);
}

static void rows_nobody_heard_of_leave_no_state(void **state)
{
    (void)state;
    struct fixture *f = open_with(8);
    struct kv_table *t = begin(f, 0, f->text);
    kv_want_state(f->kv, t, 3);
    run(f, t, 10);
    assert_int_equal(kv_table_grow(f->kv, t, 20, NULL), OK); /* a step that fails */
    end(f, t, 10);
    struct kv_stats s = kv_stats(f->kv);
    assert_int_equal(s.states.free, 8);
    assert_int_equal(s.counts.states_kept, 0);
    t = begin(f, 0, f->text);
    assert_int_equal(kv_attach(f->kv, t, 0, N_TOKENS), 0);
    end(f, t, 0);
    close_all(f);
}

static void the_last_state_is_given_away(void **state)
{
    (void)state;
    struct fixture *f = open_with(1);
    struct kv_table *t = begin(f, 0, f->text);
    kv_want_state(f->kv, t, 2);
    run(f, t, 16); /* there is none for block 2 */
    assert_int_equal(kv_stats(f->kv).counts.states_kept, 0);
    struct kv_table *u = begin(f, 1, f->text);
    assert_false(kv_state_take(f->kv, u));
    assert_int_equal(kv_table_grow(f->kv, u, 1, NULL), ERR_QUEUE_FULL);
    end(f, t, 16);
    assert_int_equal(kv_attach(f->kv, u, 0, N_TOKENS), 16);
    assert_int_equal(u->base, KV_NO_STATE);
    check(f);
    run(f, u, 17);
    struct kv_table *v = begin(f, 2, f->text);
    assert_int_equal(kv_attach(f->kv, v, 0, N_TOKENS),
                     0); /* the block is there, its state is not */
    end(f, u, 17);
    end(f, v, 0);
    close_all(f);
}

static void the_oldest_is_taken_back_while_its_block_stays(void **state)
{
    (void)state;
    struct fixture *f = open_with(3);
    compute(f, f->text, 18, 2); /* two cached */
    assert_int_equal(kv_stats(f->kv).states.cached, 2);
    f->other[0] = 50;
    compute(f, f->other, 18, 2); /* takes the free one, and the oldest */
    struct kv_stats s = kv_stats(f->kv);
    assert_int_equal(s.counts.states_evicted, 1);
    assert_int_equal(s.counts.evicted, 0);
    assert_int_equal(s.blocks.cached, 10);
    struct kv_table *t = begin(f, 0, f->text);
    assert_int_equal(kv_attach(f->kv, t, 0, 17), 0);
    end(f, t, 0);
    close_all(f);
}

static void a_merged_block_gets_the_state(void **state)
{
    (void)state;
    struct fixture *f = open_with(8);
    struct kv_table *t = begin(f, 0, f->text), *u = begin(f, 1, f->text);
    run(f, t, 18); /* nothing wanted */
    kv_want_state(f->kv, u, 2);
    run(f, u, 18);
    assert_int_equal(t->blocks[2], u->blocks[2]);
    struct kv_table *v = begin(f, 2, f->text);
    kv_want_state(f->kv, v, 2);
    run(f, v, 18); /* a second one is of no use */
    assert_int_equal(kv_stats(f->kv).counts.states_kept, 1);
    end(f, v, 18);
    v = begin(f, 2, f->text);
    assert_int_equal(kv_attach(f->kv, v, 0, 16), 12);
    end(f, v, 12);
    end(f, u, 18);
    end(f, t, 18);
    close_all(f);
}

static void steps_under_way_keep_what_they_were_given(void **state)
{
    (void)state;
    struct fixture *f = open_with(4);
    struct kv_table *t = begin(f, 0, f->text);
    kv_want_state(f->kv, t, 2);
    assert_int_equal(kv_table_grow(f->kv, t, 14, NULL), OK);
    kv_step_begun(f->kv);
    assert_int_equal(kv_table_grow(f->kv, t, 15, NULL), OK);
    kv_step_begun(f->kv);
    kv_step_ended(f->kv);
    kv_publish(f->kv, t, 14, true);
    end(f, t, 14); /* one step is still under way */
    assert_int_equal(kv_states_available(f->kv), 2);
    kv_step_ended(f->kv);
    check(f);
    assert_int_equal(kv_states_available(f->kv), 4);
    assert_int_equal(kv_stats(f->kv).states.cached, 1); /* its own had gone on to 15 */
    close_all(f);
}

static void states_want_no_windows_and_no_tier(void **state)
{
    (void)state;
    struct kv *kv;
    struct kv_config kc = {
        .n_blocks = 4, .block_tokens = 4, .window = 4, .n_panes = 4, .n_states = 2};
    assert_int_equal(kv_create(&kc, &kv, NULL), ERR_INVALID);
    assert_null(kv);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_is_kept_and_gone_on_from),
        cmocka_unit_test(texts_part_where_one_was_missed),
        cmocka_unit_test(a_conversation_goes_on_in_the_middle_of_a_block),
        cmocka_unit_test(a_shorter_text_does_not_find_what_goes_further),
        cmocka_unit_test(rows_nobody_heard_of_leave_no_state),
        cmocka_unit_test(the_last_state_is_given_away),
        cmocka_unit_test(the_oldest_is_taken_back_while_its_block_stays),
        cmocka_unit_test(a_merged_block_gets_the_state),
        cmocka_unit_test(steps_under_way_keep_what_they_were_given),
        cmocka_unit_test(states_want_no_windows_and_no_tier),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
