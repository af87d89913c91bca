/* KV memory: counts, growth, sharing, and that kv_check finds what is broken on purpose. */
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
    struct kv *kv;
    int tags[N_BLOCKS][BLOCK_TOKENS]; /* what the blocks hold: the tokens that were put there */
    struct kv_table tables[N_TABLES];
    const struct kv_table *all[N_TABLES];
};

static const int32_t text[] = {1,  2,  3,  4,  5,  6,  7,  8,  9,  10,
                               11, 12, 13, 14, 15, 16, 17, 18, 19, 20};
static const struct kv_key nobody;

static void copy_block(void *ctx, struct kv_place from, struct kv_place to)
{
    struct fixture *f = ctx;
    memcpy(f->tags[to.block], f->tags[from.block], sizeof f->tags[0]);
}

static int setup(void **state)
{
    struct fixture *f = calloc(1, sizeof *f);
    struct kv_config kc = {.n_blocks = N_BLOCKS,
                           .block_tokens = BLOCK_TOKENS,
                           .mover = {.ctx = f, .copy = copy_block}};
    assert_int_equal(kv_create(&kc, &f->kv, NULL), OK);
    for (int i = 0; i < N_TABLES; i++) {
        assert_int_equal(kv_table_init(f->kv, &f->tables[i], 6, NULL), OK);
        kv_table_begin(&f->tables[i], text, &nobody, false);
        f->all[i] = &f->tables[i];
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

static void test_sizes(void **state)
{
    struct fixture *f = *state;
    assert_int_equal(kv_block_tokens(f->kv), BLOCK_TOKENS);
    assert_int_equal(kv_blocks_for(f->kv, 0), 0);
    assert_int_equal(kv_blocks_for(f->kv, 1), 1);
    assert_int_equal(kv_blocks_for(f->kv, 4), 1);
    assert_int_equal(kv_blocks_for(f->kv, 5), 2);
    assert_int_equal(kv_blocks_for(f->kv, UINT32_MAX), 1u << 30);
    struct kv *p;
    assert_int_equal(kv_create(&(struct kv_config){.block_tokens = 16}, &p, NULL), ERR_INVALID);
    assert_int_equal(kv_create(&(struct kv_config){.n_blocks = 16}, &p, NULL), ERR_INVALID);
    assert_null(p);
    kv_destroy(NULL);
}

static void test_lends_from_block_0_and_last_given_back_first(void **state)
{
    struct fixture *f = *state;
    struct kv_table *a = &f->tables[0], *b = &f->tables[1];
    assert_int_equal(kv_table_grow(f->kv, a, 9, NULL), OK);
    for (uint32_t i = 0; i < 3; i++)
        assert_int_equal(a->blocks[i], i);
    assert_int_equal(kv_table_grow(f->kv, b, 1, NULL), OK);
    assert_int_equal(b->blocks[0], 3);
    kv_table_release(f->kv, a, 0);
    assert_int_equal(kv_table_grow(f->kv, b, 12, NULL), OK);
    assert_int_equal(b->blocks[1], 0);
    assert_int_equal(b->blocks[2], 1);
    assert_sound(f);
}

static void test_counts(void **state)
{
    struct fixture *f = *state;
    assert_int_equal(kv_table_grow(f->kv, &f->tables[0], 20, NULL), OK);
    assert_int_equal(kv_table_grow(f->kv, &f->tables[1], 4, NULL), OK);
    kv_table_release(f->kv, &f->tables[0], 0);
    assert_int_equal(f->tables[0].n_blocks, 0);
    struct kv_stats s = kv_stats(f->kv);
    assert_int_equal(s.blocks.total, 8);
    assert_int_equal(s.blocks.free, 7);
    assert_int_equal(s.blocks.in_use, 1);
    assert_int_equal(s.blocks.cached, 0);
    assert_int_equal(s.blocks.peak_in_use, 6);
    assert_int_equal(s.acquired, 6);
    assert_int_equal(s.released, 5);
    assert_sound(f);
}

static void test_grows_all_or_nothing(void **state)
{
    struct fixture *f = *state;
    struct err_info e = {0};
    assert_int_equal(kv_table_grow(f->kv, &f->tables[0], 24, &e), OK);
    assert_int_equal(kv_table_grow(f->kv, &f->tables[0], 17, &e), OK); /* has them already */
    assert_int_equal(kv_table_grow(f->kv, &f->tables[1], 1, &e), OK);
    assert_int_equal(kv_table_grow(f->kv, &f->tables[1], 10, &e), ERR_QUEUE_FULL);
    assert_string_equal(e.text, "exhausted: need 2 blocks but only 1 free");
    assert_int_equal(f->tables[1].n_blocks, 1);
    assert_int_equal(kv_stats(f->kv).blocks.free, 1);
    assert_int_equal(kv_table_grow(f->kv, &f->tables[1], 25, &e), ERR_TOO_LONG);
    assert_string_equal(e.text, "would need 7 blocks, exceeds max 6");
    assert_int_equal(kv_table_grow(f->kv, &f->tables[2], UINT32_MAX, NULL), ERR_TOO_LONG);
    assert_int_equal(kv_table_grow(f->kv, &f->tables[1], 8, &e), OK); /* the last one */
    assert_int_equal(kv_stats(f->kv).blocks.free, 0);
    assert_sound(f);
}

static void test_releasing_an_empty_table_is_nothing(void **state)
{
    struct fixture *f = *state;
    kv_table_release(f->kv, &f->tables[0], 0);
    kv_table_release(f->kv, &f->tables[0], 0);
    assert_int_equal(kv_stats(f->kv).released, 0);
    assert_sound(f);
}

/* A stale copy of a table is given back after the table itself. */
static void test_double_release_is_refused_and_named(void **state)
{
    struct fixture *f = *state;
    assert_int_equal(kv_table_grow(f->kv, &f->tables[0], 10, NULL), OK);
    struct kv_table stale = f->tables[0];
    kv_table_release(f->kv, &f->tables[0], 0);
    assert_sound(f);
    kv_table_release(f->kv, &stale, 0);
    struct kv_stats s = kv_stats(f->kv);
    assert_int_equal(s.blocks.free, N_BLOCKS);
    assert_int_equal(s.released, 3);
    assert_unsound(f, "block 0 was given back but was not in use (3 such)");
    /* and the pool still lends every block once */
    for (int i = 0; i < 2; i++)
        assert_int_equal(kv_table_grow(f->kv, &f->tables[i], 16, NULL), OK);
    uint32_t lent = 0;
    for (int i = 0; i < 2; i++)
        for (uint32_t k = 0; k < 4; k++)
            lent |= 1u << f->tables[i].blocks[k];
    assert_int_equal(lent, 0xff);
}

static void test_check_finds_lost_and_shared_blocks(void **state)
{
    struct fixture *f = *state;
    struct kv_table *a = &f->tables[0], *b = &f->tables[1];
    assert_int_equal(kv_table_grow(f->kv, a, 8, NULL), OK);
    assert_int_equal(kv_table_grow(f->kv, b, 4, NULL), OK);
    a->n_blocks = 1; /* forgets block 1 */
    assert_unsound(f, "block 1, in state 1, counts 1 references, tables hold 0");
    a->n_blocks = 2;
    b->blocks[0] = 1; /* forgets block 2, holds another's */
    assert_unsound(f, "block 1, in state 1, counts 1 references, tables hold 2");
    b->blocks[0] = 99;
    assert_unsound(f, "block 99 in a table does not exist");
    b->blocks[0] = 2;
    assert_sound(f);
}

/* --- sharing --- */

/* A sequence of n tokens that computes whatever it does not find. Returns what it found. */
static uint32_t compute(struct fixture *f,
                        struct kv_table *t,
                        const int32_t *tokens,
                        uint32_t n,
                        const struct kv_key *space)
{
    kv_table_begin(t, tokens, space, true);
    uint32_t found = kv_attach(f->kv, t, 0, n);
    found = kv_attach_part(f->kv, t, found, n);
    assert_int_equal(kv_table_grow(f->kv, t, n, NULL), OK);
    for (uint32_t i = found; i < n; i++)
        f->tags[t->blocks[i / BLOCK_TOKENS]][i % BLOCK_TOKENS] = tokens[i];
    for (uint32_t i = 0; i < n; i++) /* whatever was found holds these very tokens */
        assert_int_equal(f->tags[t->blocks[i / BLOCK_TOKENS]][i % BLOCK_TOKENS], tokens[i]);
    kv_publish(f->kv, t, n, true);
    assert_sound(f);
    return found;
}

static void test_finds_to_the_token(void **state)
{
    struct fixture *f = *state;
    struct kv_table *a = &f->tables[0], *b = &f->tables[1], *c = &f->tables[2];
    int32_t other[] = {1, 2, 3, 4, 5, 6, 99, 98, 97};
    assert_int_equal(compute(f, a, text, 10, &nobody), 0);
    assert_int_equal(compute(f, b, other, 9, &nobody), 6);
    assert_int_equal(a->blocks[0], b->blocks[0]);
    assert_int_not_equal(a->blocks[1], b->blocks[1]);
    assert_int_equal(kv_stats(f->kv).counts.copied, 1);
    kv_table_release(f->kv, a, 10);
    kv_table_release(f->kv, b, 9);
    assert_int_equal(kv_stats(f->kv).blocks.cached, 5);
    assert_int_equal(compute(f, c, text, 10, &nobody), 9); /* all but the last */
    kv_table_release(f->kv, c, 10);
    assert_int_equal(compute(f, a, text, 9, &nobody), 8);
    kv_table_release(f->kv, a, 9);
    assert_int_equal(compute(f, b, text, 8, &nobody), 7);
    kv_table_release(f->kv, b, 8);
    assert_int_equal(compute(f, b, text, 1, &nobody), 0);
    struct kv_peek p = kv_peek(f->kv, &nobody, text, 10);
    assert_int_equal(p.n_blocks, 2);
    assert_int_equal(p.n_cached, 2);
}

static void test_takes_over_a_block_that_was_begun(void **state)
{
    struct fixture *f = *state;
    struct kv_table *a = &f->tables[0], *b = &f->tables[1];
    compute(f, a, text, 6, &nobody);
    uint32_t last = a->blocks[1];
    kv_table_release(f->kv, a, 6);
    assert_int_equal(compute(f, b, text, 12, &nobody), 6);
    assert_int_equal(b->blocks[1], last);
    assert_int_equal(kv_stats(f->kv).counts.copied, 0);
    assert_int_equal(kv_stats(f->kv).published, 3);
}

static void test_spaces_are_apart(void **state)
{
    struct fixture *f = *state;
    struct kv_key space, same;
    assert_int_equal(kv_space_of("a", 1, &space, NULL), OK);
    assert_int_equal(kv_space_of("", 0, &same, NULL), OK);
    assert_true(kv_key_equal(&same, &nobody));
    compute(f, &f->tables[0], text, 9, &nobody);
    assert_int_equal(compute(f, &f->tables[1], text, 9, &space), 0);
    kv_table_release(f->kv, &f->tables[1], 9);
    kv_table_release(f->kv, &f->tables[0], 9);
    assert_int_equal(compute(f, &f->tables[0], text, 9, &space), 8);
}

/* However tenant and salt are cut, no two give the same space. */
static void test_tenants_and_salts_do_not_run_together(void **state)
{
    (void)state;
    static const struct {
        const char *tenant, *salt;
    } all[] = {{"", ""}, {"", "a"}, {"", "ab"}, {"a", ""}, {"a", "b"}, {"ab", ""}, {"b", "a"}};
    enum { N = sizeof all / sizeof all[0] };
    struct kv_key spaces[N];
    for (int i = 0; i < N; i++) {
        const char *tenant = all[i].tenant, *salt = all[i].salt;
        assert_int_equal(
            kv_space_of_tenant(tenant, strlen(tenant), salt, strlen(salt), &spaces[i], NULL), OK);
        for (int j = 0; j < i; j++)
            assert_false(kv_key_equal(&spaces[i], &spaces[j]));
    }
    struct kv_key plain;
    assert_int_equal(kv_space_of("a", 1, &plain, NULL), OK); /* what is on disk stays found */
    assert_true(kv_key_equal(&plain, &spaces[1]));
    assert_int_equal(kv_space_of_tenant("a", 1, NULL, 0, &plain, NULL), OK);
    assert_true(kv_key_equal(&plain, &spaces[3]));
}

/* Two that computed the same side by side keep one copy. */
static void test_merges_what_was_computed_twice(void **state)
{
    struct fixture *f = *state;
    struct kv_table *a = &f->tables[0], *b = &f->tables[1];
    kv_table_begin(a, text, &nobody, true);
    kv_table_begin(b, text, &nobody, true);
    assert_int_equal(kv_table_grow(f->kv, a, 10, NULL), OK);
    assert_int_equal(kv_table_grow(f->kv, b, 10, NULL), OK);
    kv_publish(f->kv, a, 10, true);
    assert_int_equal(kv_stats(f->kv).blocks.in_use, 6);
    kv_publish(f->kv, b, 10, true);
    assert_sound(f);
    assert_int_equal(kv_stats(f->kv).counts.merged, 2);
    assert_int_equal(kv_stats(f->kv).blocks.in_use, 4); /* each fills its own last block */
    assert_int_equal(a->blocks[1], b->blocks[1]);
    assert_int_not_equal(a->blocks[2], b->blocks[2]);
    kv_table_release(f->kv, b, 10);
    assert_sound(f);
    assert_int_equal(kv_stats(f->kv).blocks.cached, 0); /* what b had more is a's */
}

/* The least recently used goes first, what continues a block before it, and nothing in use. */
static void test_evicts_the_oldest_leaf(void **state)
{
    struct fixture *f = *state;
    struct kv_table *a = &f->tables[0], *b = &f->tables[1], *c = &f->tables[2];
    int32_t second[20], third[20];
    for (int i = 0; i < 20; i++) {
        second[i] = 100 + i;
        third[i] = 200 + i;
    }
    compute(f, a, text, 12, &nobody);
    kv_table_release(f->kv, a, 12);
    compute(f, a, second, 12, &nobody);
    kv_table_release(f->kv, a, 12);
    assert_int_equal(compute(f, b, text, 5, &nobody), 4); /* the beginning of the first is used */
    kv_table_release(f->kv, b, 5);
    /* text 0 1 2, second 0 1 2; the fifth token was a copy's, with less than text 1 has */
    assert_int_equal(kv_stats(f->kv).blocks.cached, 6);
    assert_int_equal(compute(f, c, third, 16, &nobody), 0); /* 2 free, 2 evicted */
    assert_int_equal(kv_stats(f->kv).counts.evicted, 2);
    kv_table_release(f->kv, c, 16);
    assert_int_equal(kv_peek(f->kv, &nobody, text, 13).n_blocks, 1);
    assert_int_equal(kv_peek(f->kv, &nobody, second, 13).n_blocks, 3);
    kv_table_begin(a, second, &nobody, true);
    assert_int_equal(kv_attach(f->kv, a, 0, 13), 12);
    kv_table_begin(b, text, &nobody, false);
    assert_int_equal(kv_table_grow(f->kv, b, 24, NULL), ERR_QUEUE_FULL);
    assert_int_equal(kv_table_grow(f->kv, b, 20, NULL), OK);
    assert_int_equal(kv_stats(f->kv).blocks.cached, 0);
    assert_int_equal(kv_peek(f->kv, &nobody, second, 13).n_blocks, 3);
    assert_sound(f);
}

static void test_no_room_to_copy(void **state)
{
    struct fixture *f = *state;
    int32_t other[] = {1, 2, 9, 9, 9};
    compute(f, &f->tables[0], text, 20, &nobody);
    kv_table_begin(&f->tables[1], text, &nobody, false);
    assert_int_equal(kv_table_grow(f->kv, &f->tables[1], 12, NULL), OK);
    kv_table_begin(&f->tables[2], other, &nobody, true);
    assert_int_equal(kv_attach_part(f->kv, &f->tables[2], 0, 5), 0);
    assert_int_equal(f->tables[2].n_blocks, 0);
    assert_sound(f);
}

static void test_check_finds_another_text(void **state)
{
    struct fixture *f = *state;
    int32_t other[] = {1, 2, 3, 4, 5, 6, 7, 9};
    compute(f, &f->tables[0], text, 8, &nobody);
    f->tables[0].tokens = other;
    assert_unsound(f, "published as another text");
    f->tables[0].tokens = text;
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
            kv_table_release(f->kv, t, 0);
            in_use -= before;
        } else {
            uint32_t want = (n_tokens + BLOCK_TOKENS - 1) / BLOCK_TOKENS;
            uint32_t missing = want > before ? want - before : 0;
            enum err expect = missing == 0                  ? OK
                              : want > 6                    ? ERR_TOO_LONG
                              : missing > N_BLOCKS - in_use ? ERR_QUEUE_FULL
                                                            : OK;
            assert_int_equal(kv_table_grow(f->kv, t, n_tokens, NULL), expect);
            in_use += t->n_blocks - before;
            assert_int_equal(t->n_blocks - before, expect == OK ? missing : 0);
        }
        assert_int_equal(kv_stats(f->kv).blocks.in_use, in_use);
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
        TEST(test_check_finds_lost_and_shared_blocks),
        TEST(test_finds_to_the_token),
        TEST(test_takes_over_a_block_that_was_begun),
        TEST(test_spaces_are_apart),
        cmocka_unit_test(test_tenants_and_salts_do_not_run_together),
        TEST(test_merges_what_was_computed_twice),
        TEST(test_evicts_the_oldest_leaf),
        TEST(test_no_room_to_copy),
        TEST(test_check_finds_another_text),
        TEST(test_random_walk),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
