/* The merge engine against the plainest statement of greedy merging. */
#include "tokenizer/merge.h"

#include "unit/tokenizer/toy_vocab.h"

/* A merge for two ids in two hundred, in an order that repeats so that ties occur. Ids stay small,
 * so that merges go on. */
static struct merge_result toy_merge(const void *ctx,
                                     const char *text,
                                     const struct merge_symbol *l,
                                     const struct merge_symbol *r)
{
    (void)text;
    uint64_t mix = *(const uint64_t *)ctx + (uint64_t)l->id * 31 + (uint64_t)r->id;
    uint32_t value = next_random(&mix);
    if (value % 3 == 0)
        return (struct merge_result){MERGE_NEVER, TOKEN_NONE};
    return (struct merge_result){value % 50, (token_id)(value / 64 % 40)};
}

static size_t merge_plainly(struct merge_symbol *syms, size_t n, const uint64_t *rules)
{
    for (;;) {
        struct merge_result best = {MERGE_NEVER, TOKEN_NONE};
        size_t at = 0;
        for (size_t i = 0; i + 1 < n; i++) {
            struct merge_result m = toy_merge(rules, "", &syms[i], &syms[i + 1]);
            if (m.order < best.order) {
                best = m;
                at = i;
            }
        }
        if (best.order == MERGE_NEVER)
            return n;
        syms[at].id = best.id;
        syms[at].len += syms[at + 1].len;
        memmove(&syms[at + 1], &syms[at + 2], (n - at - 2) * sizeof *syms);
        n--;
    }
}

static void test_against_plain(void **state)
{
    (void)state;
    uint64_t seed = print_seed();
    struct merger m = {0};
    struct merge_symbol plain[300];
    for (int round = 0; round < 3000; round++) {
        uint64_t rules = next_random(&seed);
        size_t n = 1 + next_random(&seed) % (round % 2 ? 30 : 300), n_left = 0;
        assert_true(merger_room(&m, n));
        for (size_t i = 0; i < n; i++)
            plain[i] = m.syms[i] = (struct merge_symbol){
                .id = (token_id)(next_random(&seed) % 40), .start = (uint32_t)i, .len = 1};
        assert_true(merger_run(&m, n, toy_merge, &rules, "", &n_left));
        size_t want = merge_plainly(plain, n, &rules);
        assert_int_equal(n_left, want);
        for (size_t i = 0; i < want; i++) {
            assert_int_equal(m.syms[i].id, plain[i].id);
            assert_int_equal(m.syms[i].start, plain[i].start);
            assert_int_equal(m.syms[i].len, plain[i].len);
        }
    }
    merger_deinit(&m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_against_plain)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
