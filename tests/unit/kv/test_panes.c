/* Panes: held while a window lies over them, cached behind it, and what a prefix is worth without
 * them. */
#include "kv/kv.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define N_BLOCKS 24
#define N_PANES 7
#define BLOCK_TOKENS 4
#define WINDOW 6 /* behind 12 positions it begins at 7, in block 1; behind 13 at 8, in block 2 */
#define N_TABLES 4
#define N_TOKENS 40
#define MAX_BLOCKS 10

struct fixture {
    struct kv *kv;
    int tags[N_BLOCKS][BLOCK_TOKENS]; /* the tokens that were put there */
    int pane_tags[N_PANES][BLOCK_TOKENS];
    struct kv_table tables[N_TABLES];
    const struct kv_table *all[N_TABLES];
    int32_t text[N_TOKENS], other[N_TOKENS];
};

static const struct kv_key nobody;

static void copy_block(void *ctx, struct kv_place from, struct kv_place to)
{
    struct fixture *f = ctx;
    memcpy(f->tags[to.block], f->tags[from.block], sizeof f->tags[0]);
    memcpy(f->pane_tags[to.pane], f->pane_tags[from.pane], sizeof f->pane_tags[0]);
}

static int setup(void **state)
{
    struct fixture *f = calloc(1, sizeof *f);
    struct kv_config kc = {.n_blocks = N_BLOCKS,
                           .block_tokens = BLOCK_TOKENS,
                           .mover = {.ctx = f, .copy = copy_block},
                           .window = WINDOW,
                           .n_panes = N_PANES};
    assert_int_equal(kv_create(&kc, &f->kv, NULL), OK);
    for (int i = 0; i < N_TABLES; i++) {
        assert_int_equal(kv_table_init(f->kv, &f->tables[i], MAX_BLOCKS, NULL), OK);
        f->all[i] = &f->tables[i];
    }
    for (int i = 0; i < N_TOKENS; i++) {
        f->text[i] = i;
        f->other[i] = 100 + i;
    }
    *state = f;
    return 0;
}

static int teardown(void **state)
{
    struct fixture *f = *state;
    for (int i = 0; i < N_TABLES; i++) {
        kv_table_release(f->kv, &f->tables[i], 0);
        kv_table_deinit(&f->tables[i]);
    }
    kv_destroy(f->kv);
    free(f);
    return 0;
}

static void assert_sound(struct fixture *f)
{
    struct err_info e = {0};
    if (kv_check(f->kv, f->all, N_TABLES, &e) != OK)
        fail_msg("%s", e.text);
}

static void assert_unsound(struct fixture *f, const char *want)
{
    struct err_info e = {0};
    assert_int_equal(kv_check(f->kv, f->all, N_TABLES, &e), ERR_INTERNAL);
    if (!strstr(e.text, want))
        fail_msg("\"%s\" does not say \"%s\"", e.text, want);
}

/* Everything that a row at position n reads holds the tokens of the table's text. */
static void assert_readable(struct fixture *f, const struct kv_table *t, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++)
        assert_int_equal(f->tags[t->blocks[i / BLOCK_TOKENS]][i % BLOCK_TOKENS], t->tokens[i]);
    for (uint32_t i = n >= WINDOW ? n + 1 - WINDOW : 0; i < n; i++) {
        uint32_t k = i / BLOCK_TOKENS;
        assert_true(k >= t->first_pane && k < t->end_pane);
        assert_int_equal(f->pane_tags[t->panes[k]][i % BLOCK_TOKENS], t->tokens[i]);
    }
}

/* Compute positions first..n-1, `chunk` at a time. */
static void compute(
    struct fixture *f, struct kv_table *t, uint32_t first, uint32_t n, uint32_t chunk)
{
    for (uint32_t end; first < n; first = end) {
        end = n - first < chunk ? n : first + chunk;
        assert_int_equal(kv_table_grow(f->kv, t, end, NULL), OK);
        for (uint32_t i = first; i < end; i++) {
            f->tags[t->blocks[i / BLOCK_TOKENS]][i % BLOCK_TOKENS] = t->tokens[i];
            f->pane_tags[t->panes[i / BLOCK_TOKENS]][i % BLOCK_TOKENS] = t->tokens[i];
        }
        assert_readable(f, t, end);
        kv_publish(f->kv, t, end, true);
        assert_readable(f, t, end);
        assert_sound(f);
    }
}

/* Begin with what is there. */
static uint32_t attach(struct fixture *f, struct kv_table *t, const int32_t *tokens, uint32_t n)
{
    kv_table_begin(t, tokens, &nobody, true);
    uint32_t found = kv_attach(f->kv, t, 0, n);
    found = kv_attach_part(f->kv, t, found, n);
    assert_readable(f, t, found);
    assert_sound(f);
    return found;
}

/* However long a sequence gets, it holds no more panes than its window and its step lie in. */
static void test_holds_a_window(void **state)
{
    struct fixture *f = *state;
    struct kv_table *t = &f->tables[0];
    assert_int_equal(kv_window_blocks(WINDOW, BLOCK_TOKENS, 1), 3);
    assert_int_equal(kv_window_blocks(512, 16, 1), 33);
    assert_int_equal(kv_window_blocks(1, 16, 1), 1);
    assert_int_equal(kv_window_blocks(1, 1, 5), 5);
    assert_int_equal(kv_window_blocks(4, 1, 5), 8);
    for (int shares = 0; shares < 2; shares++) {
        kv_table_begin(t, f->text, &nobody, shares);
        for (uint32_t n = 1; n <= N_TOKENS; n++) {
            compute(f, t, n - 1, n, 1);
            assert_true(t->end_pane - t->first_pane <= 3);
            assert_int_equal(t->first_pane, kv_first_pane(f->kv, n));
            assert_int_equal(kv_stats(f->kv).panes.in_use, t->end_pane - t->first_pane);
        }
        struct kv_stats s = kv_stats(f->kv);
        assert_int_equal(s.blocks.in_use, 10);
        assert_int_equal(s.panes.peak_in_use, 3);
        /* behind the window those that can be found are kept, while there is room */
        assert_int_equal(s.panes.cached, shares ? N_PANES - s.panes.in_use : 0);
        kv_table_release(f->kv, t, N_TOKENS);
        assert_sound(f);
    }
    assert_true(kv_stats(f->kv).counts.panes_evicted > 0);
}

/* Growth is all or nothing, over both pools. */
static void test_grows_as_far_as_both_reach(void **state)
{
    struct fixture *f = *state;
    struct err_info e = {0};
    kv_table_begin(&f->tables[0], f->text, &nobody, true);
    kv_table_begin(&f->tables[1], f->other, &nobody, true);
    assert_int_equal(kv_table_grow(f->kv, &f->tables[0], 5 * BLOCK_TOKENS, &e), OK);
    assert_int_equal(kv_available(f->kv), N_BLOCKS - 5);
    assert_int_equal(kv_room(f->kv), 2);
    assert_int_equal(kv_table_grow(f->kv, &f->tables[1], 3 * BLOCK_TOKENS, &e), ERR_QUEUE_FULL);
    assert_string_equal(e.text, "exhausted: need 3 blocks but only 2 free");
    assert_int_equal(f->tables[1].n_blocks, 0);
    assert_sound(f);
    assert_int_equal(kv_table_grow(f->kv, &f->tables[1], 2 * BLOCK_TOKENS, &e), OK);
    assert_int_equal(kv_room(f->kv), 0);
    assert_sound(f);
    struct kv *kv;
    struct kv_config kc = {.n_blocks = 1, .block_tokens = 1, .window = 1};
    assert_int_equal(kv_create(&kc, &kv, &e), ERR_INVALID);
}

/* A second sequence goes on where the first is, or ended: the last window is there. */
static void test_a_prefix_needs_its_last_window(void **state)
{
    struct fixture *f = *state;
    struct kv_table *a = &f->tables[0], *b = &f->tables[1], *c = &f->tables[2];
    kv_table_begin(a, f->text, &nobody, true);
    compute(f, a, 0, 34, 4);
    assert_int_equal(attach(f, b, f->text, N_TOKENS), 34);
    assert_int_equal(kv_stats(f->kv).counts.pane_miss_tokens, 0);
    assert_int_equal(b->first_pane, kv_first_pane(f->kv, 34));
    compute(f, b, 34, 36, 4);
    kv_table_release(f->kv, a, 34);
    kv_table_release(f->kv, b, 36);
    assert_int_equal(attach(f, c, f->text, 37), 36);
    kv_table_release(f->kv, c, 36);
}

/* Blocks without panes shorten the hit to the longest that is whole; computing the rest again gives
 * the blocks that are there their panes back. */
static void test_a_hit_is_as_long_as_its_panes(void **state)
{
    struct fixture *f = *state;
    struct kv_table *a = &f->tables[0], *b = &f->tables[1], *c = &f->tables[2], *d = &f->tables[3];
    kv_table_begin(a, f->text, &nobody, true);
    compute(f, a, 0, 32, 4);
    kv_table_release(f->kv, a, 32);
    /* 7 panes for 8 blocks: the first is gone. Take four more, the oldest: those of 1 to 4. */
    kv_table_begin(b, f->other, &nobody, true);
    compute(f, b, 0, 4, 4);
    assert_int_equal(attach(f, c, f->text, 32), 31); /* the end is whole */
    kv_table_release(f->kv, c, 31);
    int32_t fork[N_TOKENS];
    memcpy(fork, f->text, sizeof fork);
    fork[13] = 99; /* needs blocks 1 (by position 8 - WINDOW + 4) to 3 */
    assert_int_equal(attach(f, d, fork, 32), 0);
    assert_int_equal(kv_attach(f->kv, d, 0, 32), 0); /* looks again, and is not counted again */
    assert_int_equal(kv_stats(f->kv).counts.pane_miss_tokens, 12);
    const uint32_t before = kv_stats(f->kv).counts.merged;
    compute(f, d, 0, 32, 4);
    assert_int_equal(kv_stats(f->kv).counts.merged, before + 3);
    kv_table_release(f->kv, d, 32);
    kv_table_release(f->kv, b, 4);
    assert_sound(f);
}

/* Two that share a block share its pane; each lets go when its own window has passed. */
static void test_shares_panes(void **state)
{
    struct fixture *f = *state;
    struct kv_table *a = &f->tables[0], *b = &f->tables[1];
    kv_table_begin(a, f->text, &nobody, true);
    compute(f, a, 0, 9, 9);
    assert_int_equal(attach(f, b, f->text, 9), 8);
    assert_int_equal(a->panes[1], b->panes[1]);
    const uint32_t pane = a->panes[1];
    compute(f, a, 9, 24, 4);
    assert_true(a->first_pane > 1);
    assert_int_equal(b->panes[1], pane);
    assert_readable(f, b, 8);
    kv_table_release(f->kv, b, 8);
    assert_sound(f);
}

/* Of a prefix whose end lies in the middle of a block a table needs fewer panes than of its full
 * blocks. What it does not need is to be had at once, although a step is under way: it counts on
 * no more than one window. */
static void test_a_hit_holds_no_more_than_a_window(void **state)
{
    struct fixture *f = *state;
    attach(f, &f->tables[0], f->text, 13);
    compute(f, &f->tables[0], 0, 12, 4);
    kv_table_release(f->kv, &f->tables[0], 12);
    kv_step_begun(f->kv);
    struct kv_table *t = &f->tables[1];
    assert_int_equal(attach(f, t, f->text, 12), 11);
    assert_int_equal(t->first_pane, 1);
    assert_int_equal(t->end_pane, 3);
    assert_int_equal(kv_panes_available(f->kv), N_PANES - 2);
    kv_step_ended(f->kv);
    assert_sound(f);
}

/* What two computed side by side: the copy that stays has a pane, one of the two. */
static void test_merging_leaves_one_pane(void **state)
{
    struct fixture *f = *state;
    struct kv_table *a = &f->tables[0], *b = &f->tables[1];
    kv_table_begin(a, f->text, &nobody, true);
    kv_table_begin(b, f->text, &nobody, true);
    compute(f, a, 0, 8, 8);
    compute(f, b, 0, 8, 8);
    assert_int_equal(kv_stats(f->kv).counts.merged, 2);
    assert_int_equal(kv_stats(f->kv).blocks.in_use, 2);
    assert_int_equal(kv_stats(f->kv).panes.in_use, 2);
    assert_int_equal(kv_stats(f->kv).panes.free, N_PANES - 2);
}

/* Evicting a block frees its pane too. */
static void test_a_block_takes_its_pane_along(void **state)
{
    struct fixture *f = *state;
    struct kv_table *t = &f->tables[0];
    for (int k = 0; k < 5; k++) { /* 50 blocks of 24 */
        for (int i = 0; i < N_TOKENS; i++)
            f->text[i] = 1000 * k + i;
        kv_table_begin(t, f->text, &nobody, true);
        compute(f, t, 0, N_TOKENS, 7);
        kv_table_release(f->kv, t, N_TOKENS);
        assert_sound(f);
    }
    struct kv_stats s = kv_stats(f->kv);
    assert_true(s.counts.evicted > 20);
    assert_int_equal(s.panes.in_use, 0);
    assert_int_equal(s.panes.free + s.panes.cached, N_PANES);
}

static void test_check_finds_what_is_broken(void **state)
{
    struct fixture *f = *state;
    struct kv_table *t = &f->tables[0];
    kv_table_begin(t, f->text, &nobody, true);
    compute(f, t, 0, 16, 4);
    const uint32_t pane = t->panes[3];
    t->panes[3] = t->panes[2];
    assert_unsound(f, "in a table has pane");
    t->panes[3] = pane;
    t->first_pane++;
    assert_unsound(f, "KV pane");
    t->first_pane--;
    t->end_pane--;
    assert_unsound(f, "a KV table holds panes");
    t->end_pane++;
    assert_sound(f);
}

/* Random growth, forks and releases; every table can always read what it needs. */
static void test_random_walk(void **state)
{
    struct fixture *f = *state;
    uint32_t seed = 4711, n[N_TABLES] = {0};
    int32_t texts[N_TABLES][N_TOKENS];
    print_message("seed %u\n", seed);
    for (int i = 0; i < 30000; i++) {
        seed = seed * 1664525 + 1013904223;
        const uint32_t k = (seed >> 8) % N_TABLES, more = 1 + (seed >> 12) % 9;
        struct kv_table *t = &f->tables[k];
        if (n[k] == 0) { /* like one of few texts up to some position */
            const uint32_t same = (seed >> 20) % N_TOKENS;
            for (uint32_t p = 0; p < N_TOKENS; p++)
                texts[k][p] = (int32_t)(p < same ? p : p + 100 * (1 + (seed >> 26) % 3));
            n[k] = attach(f, t, texts[k], N_TOKENS);
        } else if (seed >> 28 == 0) {
            kv_table_release(f->kv, t, n[k]);
            n[k] = 0;
        }
        const uint32_t end = n[k] + more < N_TOKENS ? n[k] + more : N_TOKENS;
        if (t->tokens && kv_table_grow(f->kv, t, end, NULL) == OK) {
            compute(f, t, n[k], end, N_TOKENS);
            n[k] = end;
        }
        if (n[k] == N_TOKENS || (t->tokens && n[k] == 0)) {
            kv_table_release(f->kv, t, n[k]);
            n[k] = 0;
        }
        assert_sound(f);
    }
    assert_true(kv_stats(f->kv).counts.pane_miss_tokens > 0);
    assert_true(kv_stats(f->kv).counts.panes_evicted > 100);
    assert_true(kv_stats(f->kv).counts.merged > 100);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        TEST(test_holds_a_window),
        TEST(test_grows_as_far_as_both_reach),
        TEST(test_a_prefix_needs_its_last_window),
        TEST(test_a_hit_is_as_long_as_its_panes),
        TEST(test_shares_panes),
        TEST(test_a_hit_holds_no_more_than_a_window),
        TEST(test_merging_leaves_one_pane),
        TEST(test_a_block_takes_its_pane_along),
        TEST(test_check_finds_what_is_broken),
        TEST(test_random_walk),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
