/* What is written behind: all full blocks reach the tier, each after the one before it, however few
 * buffers it has and whatever becomes of the sequence. */
#include "kv/kv.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { SIZE = 4, MOST = 64, N_TEXT = 12 * SIZE + 1 };

/* Takes as many blocks as it has buffers, until it is told that they are written. */
struct tier {
    struct kv_tier base;
    uint32_t n_buffers, n_taken, n_dropped;
    uint32_t n_arrived; /* of n_taken: hold what came for who asked for it */
    struct kv_tier_block stored[MOST];
    int32_t first[MOST]; /* tokens */
    uint32_t n_stored, n_evicted;
    char bytes[1];
};

static struct tier *of(struct kv_tier *t)
{
    return (struct tier *)t;
}

static bool holds(const struct tier *x, const struct kv_key *key)
{
    for (uint32_t i = 0; i < x->n_stored; i++)
        if (kv_key_equal(&x->stored[i].key, key))
            return true;
    return false;
}

static uint32_t has(struct kv_tier *t, const struct kv_key *key)
{
    (void)t;
    (void)key;
    return 0;
}

static void used(struct kv_tier *t, const struct kv_key *key, enum kv_tier_use use)
{
    (void)t;
    (void)key;
    (void)use;
}

static bool poll(struct kv_tier *t, struct kv_tier_done *out)
{
    struct tier *x = of(t);
    if (x->n_arrived == 0)
        return false;
    x->n_arrived--;
    *out = (struct kv_tier_done){.bytes = x->bytes};
    return true;
}

static void release(struct kv_tier *t, const void *bytes)
{
    assert_ptr_equal(bytes, of(t)->bytes);
    of(t)->n_taken--;
}

static bool busy(struct kv_tier *t)
{
    return of(t)->n_taken == of(t)->n_buffers;
}

static void *store_begin(struct kv_tier *t, const struct kv_key *key, enum kv_tier_reason why)
{
    struct tier *x = of(t);
    if (t->below && why == KV_TIER_EVICTED) {
        x->n_evicted++;
        return NULL;
    }
    if (holds(x, key))
        return NULL;
    if (busy(t)) {
        x->n_dropped++;
        return NULL;
    }
    x->n_taken++;
    return x->bytes;
}

static void store(struct kv_tier *t, const struct kv_tier_block *b, void *bytes)
{
    struct tier *x = of(t);
    assert_ptr_equal(bytes, x->bytes);
    assert_true(x->n_stored < MOST);
    x->first[x->n_stored] = b->tokens[0];
    x->stored[x->n_stored++] = *b;
}

static bool read_block(void *ctx, struct kv_place from, void *bytes)
{
    (void)ctx;
    (void)from;
    (void)bytes;
    return true;
}

static const struct kv_tier_ops ops = {.name = "few",
                                       .has = has,
                                       .used = used,
                                       .poll = poll,
                                       .release = release,
                                       .busy = busy,
                                       .store_begin = store_begin,
                                       .store = store};

struct fixture {
    struct tier tier;
    struct kv *kv;
    struct kv_table table;
    int32_t text[N_TEXT], other[N_TEXT];
};

static int setup(void **state)
{
    struct fixture *f = calloc(1, sizeof *f);
    f->tier = (struct tier){.base.ops = &ops, .n_buffers = 2};
    for (int32_t i = 0; i < N_TEXT; i++) {
        f->text[i] = i;
        f->other[i] = 1000 + i;
    }
    struct kv_config kc = {
        .n_blocks = 14, .block_tokens = SIZE, .mover = {.read = read_block}, .tier = &f->tier.base};
    assert_int_equal(kv_create(&kc, &f->kv, NULL), OK);
    assert_int_equal(kv_table_init(f->kv, &f->table, 14, NULL), OK);
    *state = f;
    return 0;
}

static void check(struct fixture *f)
{
    const struct kv_table *all[] = {&f->table};
    struct err_info e = {0};
    if (kv_check(f->kv, all, 1, &e) != OK)
        fail_msg("%s", e.text);
}

static int teardown(void **state)
{
    struct fixture *f = *state;
    check(f);
    kv_table_deinit(&f->table);
    kv_destroy(f->kv);
    free(f);
    return 0;
}

/* A text of n blocks is computed in one step, and ends. */
static void run(struct fixture *f, const int32_t *text, uint32_t n)
{
    static const struct kv_key nobody;
    kv_table_begin(&f->table, text, &nobody, true);
    assert_int_equal(kv_table_grow(f->kv, &f->table, n * SIZE, NULL), OK);
    kv_publish(f->kv, &f->table, n * SIZE, true);
    check(f);
    kv_table_release(f->kv, &f->table, n * SIZE);
}

static void written(struct fixture *f)
{
    f->tier.n_taken = 0;
    kv_poll(f->kv);
    check(f);
}

/* Each is there once, behind its parent. */
static void check_chain(const struct fixture *f, uint32_t n)
{
    assert_int_equal(f->tier.n_stored, n);
    for (uint32_t i = 0; i < n; i++) {
        assert_int_equal(f->tier.first[i], i * SIZE);
        if (i > 0)
            assert_memory_equal(
                &f->tier.stored[i].parent, &f->tier.stored[i - 1].key, sizeof(struct kv_key));
    }
}

static void test_a_burst_is_stored_in_order(void **state)
{
    struct fixture *f = *state;
    run(f, f->text, 9);
    for (uint32_t n = 2; n <= 9; n += 2) {
        check_chain(f, n);
        written(f);
    }
    check_chain(f, 9);
    written(f);
    check_chain(f, 9);
    assert_int_equal(f->tier.n_dropped, 0);
}

/* At the end, when nothing is polled any more. */
static void test_the_rest_is_stored(void **state)
{
    struct fixture *f = *state;
    run(f, f->text, 5);
    assert_true(kv_store_rest(f->kv));
    f->tier.n_taken = 0;
    assert_true(kv_store_rest(f->kv));
    f->tier.n_taken = 0;
    assert_false(kv_store_rest(f->kv));
    check_chain(f, 5);
}

/* What had been asked for comes to nobody then, and its buffers are free. */
static void test_the_rest_has_the_buffers_of_fetches(void **state)
{
    struct fixture *f = *state;
    run(f, f->text, 4);
    f->tier.n_arrived = 2;
    assert_false(kv_store_rest(f->kv));
    check_chain(f, 4);
}

/* Who publishes more helps those that wait, and stands behind them. */
static void test_others_wait_behind(void **state)
{
    struct fixture *f = *state;
    run(f, f->text, 4);
    f->tier.n_taken = 0;
    run(f, f->other, 2);
    check_chain(f, 4);
    written(f);
    assert_int_equal(f->tier.n_stored, 6);
    assert_int_equal(f->tier.first[4], 1000);
    assert_int_equal(f->tier.first[5], 1000 + SIZE);
}

/* What is evicted meanwhile is counted and waits no longer; the beginning of its text still does.
 */
static void test_what_is_evicted_waits_no_longer(void **state)
{
    struct fixture *f = *state;
    run(f, f->text, 12);
    run(f, f->other, 6); /* takes the places of the last four */
    assert_int_equal(f->tier.n_dropped, 4);
    for (uint32_t i = 0; i < 6; i++)
        written(f);
    assert_int_equal(f->tier.n_stored, 8 + 6);
    for (uint32_t i = 0; i < 8; i++)
        assert_int_equal(f->tier.first[i], i * SIZE);
}

/* A tier that has one below it takes what is evicted; that one is offered the block first. */
static void test_the_last_offer_is_to_both(void **state)
{
    struct fixture *f = *state;
    struct kv_tier below = {0};
    f->tier.base.below = &below;
    run(f, f->text, 12);
    f->tier.n_taken = 0; /* written, but nobody has looked */
    run(f, f->other, 4);
    assert_int_equal(f->tier.n_evicted, 2);
    assert_int_equal(f->tier.n_stored, 4);
    assert_int_equal(f->tier.first[2], 11 * SIZE); /* the last of the text goes first */
    assert_int_equal(f->tier.first[3], 10 * SIZE);
    assert_int_equal(f->tier.n_dropped, 0);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        TEST(test_a_burst_is_stored_in_order),
        TEST(test_the_rest_is_stored),
        TEST(test_the_rest_has_the_buffers_of_fetches),
        TEST(test_others_wait_behind),
        TEST(test_what_is_evicted_waits_no_longer),
        TEST(test_the_last_offer_is_to_both),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
