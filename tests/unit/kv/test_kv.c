/* The block pool: counts, growth, and that kv_check finds what is broken on purpose. */
#include "kv/kv.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define N_BLOCKS 8
#define BLOCK_TOKENS 4
#define N_TABLES 3

struct fixture {
    struct kv_pool *pool;
    struct kv_table tables[N_TABLES];
    const struct kv_table *all[N_TABLES];
};

static int setup(void **state)
{
    struct fixture *f = calloc(1, sizeof *f);
    assert_int_equal(kv_pool_create(N_BLOCKS, BLOCK_TOKENS, &f->pool, NULL), OK);
    for (int i = 0; i < N_TABLES; i++) {
        assert_int_equal(kv_table_init(&f->tables[i], 6, NULL), OK);
        f->all[i] = &f->tables[i];
    }
    *state = f;
    return 0;
}

static int teardown(void **state)
{
    struct fixture *f = *state;
    for (int i = 0; i < N_TABLES; i++) {
        kv_table_release(f->pool, &f->tables[i]);
        kv_table_deinit(&f->tables[i]);
    }
    kv_pool_destroy(f->pool);
    free(f);
    return 0;
}

static void assert_sound(struct fixture *f)
{
    struct err_info e = {0};
    if (kv_check(f->pool, f->all, N_TABLES, &e) != OK)
        fail_msg("%s", e.text);
}

static void assert_unsound(struct fixture *f, const char *text)
{
    struct err_info e = {0};
    assert_int_equal(kv_check(f->pool, f->all, N_TABLES, &e), ERR_INTERNAL);
    if (!strstr(e.text, text))
        fail_msg("\"%s\" does not say \"%s\"", e.text, text);
}

static void test_sizes(void **state)
{
    struct fixture *f = *state;
    assert_int_equal(kv_block_tokens(f->pool), BLOCK_TOKENS);
    assert_int_equal(kv_blocks_for(f->pool, 0), 0);
    assert_int_equal(kv_blocks_for(f->pool, 1), 1);
    assert_int_equal(kv_blocks_for(f->pool, 4), 1);
    assert_int_equal(kv_blocks_for(f->pool, 5), 2);
    assert_int_equal(kv_blocks_for(f->pool, UINT32_MAX), 1u << 30);
    struct kv_pool *p;
    assert_int_equal(kv_pool_create(0, 16, &p, NULL), ERR_INVALID);
    assert_int_equal(kv_pool_create(16, 0, &p, NULL), ERR_INVALID);
    assert_null(p);
    kv_pool_destroy(NULL);
}

static void test_lends_from_block_0_and_last_given_back_first(void **state)
{
    struct fixture *f = *state;
    struct kv_table *a = &f->tables[0], *b = &f->tables[1];
    assert_int_equal(kv_table_grow(f->pool, a, 9, NULL), OK);
    for (uint32_t i = 0; i < 3; i++)
        assert_int_equal(a->blocks[i], i);
    assert_int_equal(kv_table_grow(f->pool, b, 1, NULL), OK);
    assert_int_equal(b->blocks[0], 3);
    kv_table_release(f->pool, a);
    assert_int_equal(kv_table_grow(f->pool, b, 12, NULL), OK);
    assert_int_equal(b->blocks[1], 0);
    assert_int_equal(b->blocks[2], 1);
    assert_sound(f);
}

static void test_counts(void **state)
{
    struct fixture *f = *state;
    assert_int_equal(kv_table_grow(f->pool, &f->tables[0], 20, NULL), OK);
    assert_int_equal(kv_table_grow(f->pool, &f->tables[1], 4, NULL), OK);
    kv_table_release(f->pool, &f->tables[0]);
    assert_int_equal(f->tables[0].n_blocks, 0);
    struct kv_stats s = kv_pool_stats(f->pool);
    assert_int_equal(s.total, 8);
    assert_int_equal(s.free, 7);
    assert_int_equal(s.in_use, 1);
    assert_int_equal(s.cached, 0);
    assert_int_equal(s.peak_in_use, 6);
    assert_int_equal(s.acquired, 6);
    assert_int_equal(s.released, 5);
    assert_sound(f);
}

static void test_grows_all_or_nothing(void **state)
{
    struct fixture *f = *state;
    struct err_info e = {0};
    assert_int_equal(kv_table_grow(f->pool, &f->tables[0], 24, &e), OK);
    assert_int_equal(kv_table_grow(f->pool, &f->tables[0], 17, &e), OK); /* has them already */
    assert_int_equal(kv_table_grow(f->pool, &f->tables[1], 1, &e), OK);
    assert_int_equal(kv_table_grow(f->pool, &f->tables[1], 10, &e), ERR_QUEUE_FULL);
    assert_string_equal(e.text, "exhausted: need 2 blocks but only 1 free");
    assert_int_equal(f->tables[1].n_blocks, 1);
    assert_int_equal(kv_pool_stats(f->pool).free, 1);
    assert_int_equal(kv_table_grow(f->pool, &f->tables[1], 25, &e), ERR_TOO_LONG);
    assert_string_equal(e.text, "would need 7 blocks, exceeds max 6");
    assert_int_equal(kv_table_grow(f->pool, &f->tables[2], UINT32_MAX, NULL), ERR_TOO_LONG);
    assert_int_equal(kv_table_grow(f->pool, &f->tables[1], 8, &e), OK); /* the last one */
    assert_int_equal(kv_pool_stats(f->pool).free, 0);
    assert_sound(f);
}

static void test_releasing_an_empty_table_is_nothing(void **state)
{
    struct fixture *f = *state;
    kv_table_release(f->pool, &f->tables[0]);
    kv_table_release(f->pool, &f->tables[0]);
    assert_int_equal(kv_pool_stats(f->pool).released, 0);
    assert_sound(f);
}

/* A stale copy of a table is given back after the table itself. */
static void test_double_release_is_refused_and_named(void **state)
{
    struct fixture *f = *state;
    assert_int_equal(kv_table_grow(f->pool, &f->tables[0], 10, NULL), OK);
    struct kv_table stale = f->tables[0];
    kv_table_release(f->pool, &f->tables[0]);
    assert_sound(f);
    kv_table_release(f->pool, &stale);
    struct kv_stats s = kv_pool_stats(f->pool);
    assert_int_equal(s.free, N_BLOCKS);
    assert_int_equal(s.released, 3);
    assert_unsound(f, "block 0 was given back but was not in use (3 such)");
    /* and the pool still lends every block once */
    for (int i = 0; i < 2; i++)
        assert_int_equal(kv_table_grow(f->pool, &f->tables[i], 16, NULL), OK);
    uint32_t lent = 0;
    for (int i = 0; i < 2; i++)
        for (uint32_t k = 0; k < 4; k++)
            lent |= 1u << f->tables[i].blocks[k];
    assert_int_equal(lent, 0xff);
}

static void test_check_finds_a_block_given_away_under_a_table(void **state)
{
    struct fixture *f = *state;
    assert_int_equal(kv_table_grow(f->pool, &f->tables[0], 4, NULL), OK);
    uint32_t block = 0;
    struct kv_table stale = {.blocks = &block, .n_blocks = 1, .max_blocks = 1};
    kv_table_release(f->pool, &stale);
    assert_unsound(f, "block 0 is free and in a table");
    f->tables[0].n_blocks = 0;
}

static void test_check_finds_lost_and_shared_blocks(void **state)
{
    struct fixture *f = *state;
    struct kv_table *a = &f->tables[0], *b = &f->tables[1];
    assert_int_equal(kv_table_grow(f->pool, a, 8, NULL), OK);
    assert_int_equal(kv_table_grow(f->pool, b, 4, NULL), OK);
    a->n_blocks = 1; /* forgets block 1 */
    assert_unsound(f, "block 1 counts 1 references, tables hold 0");
    a->n_blocks = 2;
    b->blocks[0] = 1; /* forgets block 2, holds another's */
    assert_unsound(f, "block 1 counts 1 references, tables hold 2");
    b->blocks[0] = 99;
    assert_unsound(f, "block 99 in a table does not exist");
    b->blocks[0] = 2;
    assert_sound(f);
}

/* Random growth and release against a count kept apart. */
static void test_random_walk(void **state)
{
    struct fixture *f = *state;
    uint32_t seed = 12345, in_use = 0;
    print_message("seed %u\n", seed);
    for (int i = 0; i < 20000; i++) {
        seed = seed * 1664525 + 1013904223;
        struct kv_table *t = &f->tables[(seed >> 8) % N_TABLES];
        uint32_t n_tokens = (seed >> 16) % 30, before = t->n_blocks;
        if (seed >> 28 < 5) {
            kv_table_release(f->pool, t);
            in_use -= before;
        } else {
            uint32_t want = (n_tokens + BLOCK_TOKENS - 1) / BLOCK_TOKENS;
            uint32_t missing = want > before ? want - before : 0;
            enum err expect = missing == 0                  ? OK
                              : want > 6                    ? ERR_TOO_LONG
                              : missing > N_BLOCKS - in_use ? ERR_QUEUE_FULL
                                                            : OK;
            assert_int_equal(kv_table_grow(f->pool, t, n_tokens, NULL), expect);
            in_use += t->n_blocks - before;
            assert_int_equal(t->n_blocks - before, expect == OK ? missing : 0);
        }
        assert_int_equal(kv_pool_stats(f->pool).in_use, in_use);
        assert_sound(f);
    }
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        TEST(test_sizes),
        TEST(test_lends_from_block_0_and_last_given_back_first),
        TEST(test_counts),
        TEST(test_grows_all_or_nothing),
        TEST(test_releasing_an_empty_table_is_nothing),
        TEST(test_double_release_is_refused_and_named),
        TEST(test_check_finds_a_block_given_away_under_a_table),
        TEST(test_check_finds_lost_and_shared_blocks),
        TEST(test_random_walk),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
