/* What the disk tier may take: bytes on the disk, watched at every system call, and buffers in
 * memory, which stores and fetches share. */
#include "disk_faults.h"

/* --- the limit -------------------------------------------------------------------------------- */

/* Ids in order of their last use, as the tier must keep them. */
struct lru {
    uint64_t ids[64];
    size_t n;
};

static bool lru_find(const struct lru *l, uint64_t id, size_t *at)
{
    for (*at = 0; *at < l->n; ++*at)
        if (l->ids[*at] == id)
            return true;
    return false;
}

static void lru_drop(struct lru *l, size_t at)
{
    memmove(l->ids + at, l->ids + at + 1, (--l->n - at) * sizeof *l->ids);
}

/* Random stores, fetches and restarts against a list kept here. A stranger and an about line are in
 * the sum; `spare` bytes of the limit are of no use to a segment. */
static void walk_at_the_limit(struct disk_test *x, uint64_t spare)
{
    uint64_t seed = test_seed();
    struct lru want = {.n = 0};
    size_t at;
    char path[256];
    enum { CAP = 12, N_IDS = 32 };
    snprintf(path, sizeof path, "%s/stranger", x->dir);
    write_file(path, "1234567", 7);
    x->cfg.about = "a model";
    x->cfg.max_bytes = segments(CAP) + 7 + 8 + spare;
    watched_dir = x->dir;
    watched_max = n_looks = 0;
    disk_test_open(x);
    for (int i = 0; i < 800; i++) {
        uint64_t r = random_next(&seed), id = (r >> 8) % N_IDS;
        bool there = lru_find(&want, id, &at);
        if (r % 100 == 0)
            disk_test_open(x);
        writev_bytes = r >> 20 & 1 ? 1 + (int)(r >> 24 & 255) : 0; /* short writes */
        if (r & 1) {
            assert_int_equal(tier_store(x, x->t, id), !there);
            if (!there && want.n == CAP)
                lru_drop(&want, 0);
            if (!there)
                want.ids[want.n++] = id;
        } else {
            assert_int_equal(tier_fetch(x, x->t, id), there);
            if (there) {
                lru_drop(&want, at);
                want.ids[want.n++] = id;
            }
        }
        for (uint64_t j = 0; j < N_IDS; j++)
            assert_int_equal(tier_has(x, x->t, j), lru_find(&want, j, &at));
        assert_int_equal(tier_stats(x->t).bytes, segments(want.n) + 7 + 8);
        assert_int_equal(tier_stats(x->t).entries, want.n);
        assert_int_equal(real_bytes(x->dir), segments(want.n) + 7 + 8);
    }
    print_message("%llu looks, at most %llu of %llu bytes\n",
                  (unsigned long long)n_looks,
                  (unsigned long long)watched_max,
                  (unsigned long long)x->cfg.max_bytes);
    assert_true(n_looks > 500);
    assert_int_equal(watched_max, x->cfg.max_bytes - spare);
}

static void test_limit_is_kept_to_the_byte(void **state)
{
    walk_at_the_limit(*state, 0);
}

static void test_limit_is_kept_one_byte_below_the_next_segment(void **state)
{
    walk_at_the_limit(*state, segments(1) - 1);
}

/* --- queues ----------------------------------------------------------------------------------- */

static void close_gate(struct disk_test *x, uint64_t id)
{
    pthread_mutex_lock(&gate);
    assert_true(tier_queue(x, x->t, id));
    while (!at_gate)
        usleep(50);
}

static void test_buffers_are_bounded_and_shared_fairly(void **state)
{
    struct disk_test *x = *state;
    disk_test_open(x); /* eight buffers */
    uint64_t idle_us = x->t->ops->estimate_us(x->t, 1);
    close_gate(x, 1);
    for (uint64_t id = 2; id < 5; id++)
        assert_true(tier_queue(x, x->t, id));
    assert_false(tier_queue(x, x->t, 5));
    assert_int_equal(tier_stats(x->t).dropped, 1);
    assert_true(x->t->ops->estimate_us(x->t, 1) > idle_us);
    for (uint64_t id = 1; id < 5; id++)
        assert_true(tier_ask(x, x->t, id)); /* the other half */
    assert_false(tier_ask(x, x->t, 5));
    assert_true(x->t->ops->estimate_us(x->t, 1) >= 5 * idle_us);
    pthread_mutex_unlock(&gate);
    for (uint64_t id = 1; id < 5; id++)
        assert_int_equal(tier_take(x, x->t, id), 1);
    assert_int_equal(tier_stats(x->t).dropped, 1);
}

struct seen {
    struct kv_tier *t;
    _Atomic uint64_t stored; /* when the first fetch ended */
    atomic_int n;
};

static void on_wake(void *ctx)
{
    struct seen *s = ctx;
    if (s->n++ == 0)
        s->stored = tier_stats(s->t).stored;
}

static void test_fetches_go_first(void **state)
{
    struct disk_test *x = *state;
    struct seen seen = {.n = 0};
    x->cfg.wake = on_wake;
    x->cfg.wake_ctx = &seen;
    disk_test_open(x);
    seen.t = x->t;
    close_gate(x, 1);
    assert_true(tier_queue(x, x->t, 2));
    assert_true(tier_queue(x, x->t, 3));
    assert_true(tier_has(x, x->t, 3)); /* from its buffer */
    assert_true(tier_ask(x, x->t, 3));
    assert_true(tier_ask(x, x->t, 1));
    pthread_mutex_unlock(&gate);
    assert_int_equal(tier_take(x, x->t, 3), 1);
    assert_int_equal(tier_take(x, x->t, 1), 1);
    assert_int_equal(seen.stored, 1); /* the one that was being written already */
    assert_int_equal(seen.n, 2);
}

/* A slow disk does not hold up the end, and what was written by then is whole. */
static void test_destroy_does_not_wait_for_long(void **state)
{
    struct disk_test *x = *state;
    disk_test_open(x);
    close_gate(x, 1);
    for (uint64_t id = 2; id < 5; id++)
        assert_true(tier_queue(x, x->t, id));
    assert_true(tier_ask(x, x->t, 9)); /* nobody will poll */
    pthread_mutex_unlock(&gate);
    uint64_t start_us = clock_us();
    disk_test_close(x);
    assert_true(clock_us() - start_us < 30000000);
    disk_test_open(x);
    assert_int_equal(tier_stats(x->t).entries, 4);
}

struct engine {
    struct disk_test *x;
    uint64_t seed;
    atomic_bool stop;
    uint64_t fetched, wrong;
};

/* As an engine would: many requests at a time, in no order, buffers held for a while. */
static void *engine_main(void *arg)
{
    struct engine *g = arg;
    struct kv_tier *t = g->x->t;
    struct kv_tier_done done, held = {.bytes = NULL};
    uint8_t want[HELP_PAYLOAD];
    while (!g->stop) {
        uint64_t r = random_next(&g->seed), id = r >> 8 & 63;
        if (r & 1)
            (void)tier_queue(g->x, t, id);
        else if (tier_has(g->x, t, id))
            (void)tier_ask(g->x, t, id);
        while (t->ops->poll(t, &done)) {
            if (!done.bytes)
                continue;
            block_payload(done.ticket, want, sizeof want);
            g->wrong += memcmp(want, done.bytes, sizeof want) != 0;
            g->fetched++;
            if (held.bytes)
                t->ops->release(t, held.bytes);
            held = done;
        }
    }
    if (held.bytes)
        t->ops->release(t, held.bytes);
    return NULL;
}

static void test_engine_and_observer_at_once(void **state)
{
    struct disk_test *x = *state;
    struct engine g = {.x = x, .seed = test_seed()};
    struct kv_tier_stats s;
    pthread_t thread;
    x->cfg.max_bytes = segments(20);
    watched_dir = x->dir;
    watched_max = 0;
    disk_test_open(x);
    assert_int_equal(pthread_create(&thread, NULL, engine_main, &g), 0);
    for (int i = 0; i < 200; i++) {
        s = tier_stats(x->t);
        assert_true(s.bytes <= x->cfg.max_bytes);
        assert_true(s.entries <= 20);
        usleep(5000);
    }
    g.stop = true;
    pthread_join(thread, NULL);
    print_message("%llu stored, %llu fetched, %llu missed, %llu dropped, %llu evicted\n",
                  (unsigned long long)s.stored,
                  (unsigned long long)g.fetched,
                  (unsigned long long)s.missed,
                  (unsigned long long)s.dropped,
                  (unsigned long long)s.evicted);
    assert_int_equal(g.wrong, 0);
    assert_int_equal(s.ignored + s.errors, 0);
    assert_true(g.fetched > 10 && s.evicted > 10);
    assert_true(watched_max <= x->cfg.max_bytes);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        TEST(test_limit_is_kept_to_the_byte),
        TEST(test_limit_is_kept_one_byte_below_the_next_segment),
        TEST(test_buffers_are_bounded_and_shared_fairly),
        TEST(test_fetches_go_first),
        TEST(test_destroy_does_not_wait_for_long),
        TEST(test_engine_and_observer_at_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
