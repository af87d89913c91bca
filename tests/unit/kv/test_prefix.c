/* The prefix index against a plain list of texts, over random insertions and removals. */
#include "kv/prefix.h"

#include "base/clock.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define N_BLOCKS 300
#define SIZE 6

static uint32_t rng;

static uint32_t below(uint32_t n)
{
    rng = rng * 1664525 + 1013904223;
    return (uint32_t)((uint64_t)(rng >> 4) * n >> 28);
}

/* What the index should hold. */
struct model {
    bool there;
    uint32_t parent, n, n_children;
    struct kv_key space;
    int32_t tokens[SIZE];
};

static uint32_t common(const int32_t *a, uint32_t n_a, const int32_t *b, uint32_t n_b)
{
    uint32_t i = 0;
    while (i < n_a && i < n_b && a[i] == b[i])
        i++;
    return i;
}

/* The most that any child shares, by trying all. */
static uint32_t best_of_all(const struct model *m,
                            uint32_t parent,
                            const struct kv_key *space,
                            const int32_t *tokens,
                            uint32_t n)
{
    uint32_t best = 0;
    for (uint32_t i = 0; i < N_BLOCKS; i++) {
        if (!m[i].there || m[i].parent != parent ||
            (parent == KV_ROOT && !kv_key_equal(&m[i].space, space)))
            continue;
        uint32_t k = common(m[i].tokens, m[i].n, tokens, n);
        best = k > best ? k : best;
    }
    return best;
}

static uint32_t random_parent(const struct model *m)
{
    uint32_t i = below(N_BLOCKS);
    return below(3) && m[i].there && m[i].n == SIZE ? i : KV_ROOT;
}

/* Mostly texts that are alike, of few tokens, with the largest and the smallest among them. */
static uint32_t random_text(int32_t *tokens)
{
    static const int32_t few[] = {0, 1, 2, INT32_MAX, 0x40000000, 151000};
    uint32_t n = below(3) ? SIZE : 1 + below(SIZE);
    for (uint32_t i = 0; i < SIZE; i++)
        tokens[i] = below(4) ? few[below(2)] : few[below(6)];
    return n;
}

static void check_find(const struct kv_prefix *x,
                       const struct model *m,
                       uint32_t parent,
                       const struct kv_key *space,
                       const int32_t *tokens,
                       uint32_t n)
{
    uint32_t block, want = best_of_all(m, parent, space, tokens, n);
    uint32_t got = kv_prefix_best(x, parent, space, tokens, n, &block);
    assert_int_equal(got, want);
    if (got == 0)
        return;
    assert_true(m[block].there && m[block].parent == parent);
    assert_int_equal(common(m[block].tokens, m[block].n, tokens, n), want);
    if (parent == KV_ROOT)
        assert_true(kv_key_equal(&m[block].space, space));
}

static void try_insert(struct kv_prefix *x, struct model *m, const struct kv_key *spaces)
{
    uint32_t i = below(N_BLOCKS), parent = random_parent(m);
    struct model new = {.there = true, .parent = parent, .space = spaces[below(3)]};
    new.n = random_text(new.tokens);
    check_find(x, m, parent, &new.space, new.tokens, new.n);
    if (m[i].there || i == parent || best_of_all(m, parent, &new.space, new.tokens, new.n) == new.n)
        return;
    kv_prefix_insert(x, parent, &new.space, i, new.tokens, new.n);
    m[i] = new;
    if (parent != KV_ROOT)
        m[parent].n_children++;
}

static void try_remove(struct kv_prefix *x, struct model *m)
{
    uint32_t i = below(N_BLOCKS);
    if (!m[i].there || m[i].n_children > 0)
        return;
    kv_prefix_remove(x, i);
    m[i].there = false;
    if (m[i].parent != KV_ROOT)
        m[m[i].parent].n_children--;
}

static void test_against_a_list(void **state)
{
    (void)state;
    struct kv_prefix *x;
    struct model *m = calloc(N_BLOCKS, sizeof *m);
    struct kv_key spaces[3] = {{{0}}, {{0}}, {{255, 1}}};
    spaces[1].bytes[KV_KEY_BYTES - 1] = 1; /* differs in the last bit alone */
    rng = (uint32_t)clock_us();
    print_message("seed %u\n", rng);
    assert_int_equal(kv_prefix_create(N_BLOCKS, SIZE, &x, NULL), OK);
    for (uint32_t i = 0; i < 60000; i++) {
        if (below(100) < (i / 10000 % 2 ? 40 : 60))
            try_insert(x, m, spaces);
        else
            try_remove(x, m);
        if (i % 64)
            continue;
        struct err_info e = {0};
        if (kv_prefix_check(x, &e) != OK)
            fail_msg("%s", e.text);
        uint32_t n = 0;
        for (uint32_t k = 0; k < N_BLOCKS; k++) {
            n += m[k].there;
            assert_int_equal(kv_prefix_n_tokens(x, k), m[k].there ? m[k].n : 0);
            if (m[k].there)
                assert_int_equal(kv_prefix_n_children(x, k), m[k].n_children);
        }
        assert_int_equal(kv_prefix_n_blocks(x), n);
    }
    kv_prefix_destroy(x);
    free(m);
}

static void test_refuses_what_it_cannot_name(void **state)
{
    (void)state;
    struct kv_prefix *x;
    assert_int_equal(kv_prefix_create(0x80000000u, 16, &x, NULL), ERR_INVALID);
    assert_int_equal(kv_prefix_create(16, KV_MAX_BLOCK_TOKENS + 1, &x, NULL), ERR_INVALID);
    assert_null(x);
    kv_prefix_destroy(NULL);
}

/* Keys that differ from each other in two bits only, in every word. */
static void test_nearly_equal_keys(void **state)
{
    (void)state;
    struct kv_prefix *x;
    struct kv_key space = {{0}};
    assert_int_equal(kv_prefix_create(SIZE * 31, SIZE, &x, NULL), OK);
    for (uint32_t bit = 0; bit < SIZE * 31; bit++) {
        int32_t tokens[SIZE] = {0};
        tokens[bit / 31] = (int32_t)1 << bit % 31;
        kv_prefix_insert(x, KV_ROOT, &space, bit, tokens, SIZE);
    }
    struct err_info e = {0};
    if (kv_prefix_check(x, &e) != OK)
        fail_msg("%s", e.text);
    for (uint32_t i = 0; i < SIZE * 31; i++)
        kv_prefix_remove(x, i * 7 % (SIZE * 31));
    assert_int_equal(kv_prefix_n_blocks(x), 0);
    kv_prefix_destroy(x);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_against_a_list),
        cmocka_unit_test(test_refuses_what_it_cannot_name),
        cmocka_unit_test(test_nearly_equal_keys),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
