/* The disk tier as the engine sees it: what comes back, and what is kept. */
#include "base/mem.h"
#include "disk_help.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

static void test_round_trip(void **state)
{
    struct disk_test *x = *state;
    disk_test_open(x);
    assert_string_equal(x->t->ops->name, "disk");
    assert_false(tier_has(x, x->t, 1));
    assert_true(tier_store(x, x->t, 1));
    assert_true(tier_has(x, x->t, 1));
    assert_int_equal(tier_fetch(x, x->t, 1), 1);
    assert_int_equal(tier_fetch(x, x->t, 2), 0);
    struct kv_tier_stats s = tier_stats(x->t);
    assert_true(s.on && s.writes);
    assert_int_equal(s.entries, 1);
    assert_int_equal(s.bytes, segments(1));
    assert_int_equal(s.bytes, real_bytes(x->dir));
    assert_int_equal(s.max_bytes, x->cfg.max_bytes);
    assert_int_equal(s.stored, 1);
    assert_int_equal(s.fetched, 1);
    assert_int_equal(s.missed, 1);
    assert_int_equal(s.fetch.count, 1);
    assert_int_equal(s.store.count, 1);
    assert_int_equal(s.dropped + s.evicted + s.ignored + s.errors, 0);
    assert_false(tier_queue(x, x->t, 1)); /* it is there already */
}

static void test_a_block_is_taken_once(void **state)
{
    struct disk_test *x = *state;
    struct test_block b;
    disk_test_open(x);
    block_make(x->h, 1, &b);
    void *bytes = x->t->ops->store_begin(x->t, &b.block.key, KV_TIER_FULL);
    assert_non_null(bytes);
    assert_int_equal((uintptr_t)bytes % 64, 0);
    assert_null(x->t->ops->store_begin(x->t, &b.block.key, KV_TIER_FULL));
    assert_false(x->t->ops->has(x->t, &b.block.key)); /* not filled yet */
    block_payload(1, bytes, HELP_PAYLOAD);
    x->t->ops->store(x->t, &b.block, bytes);
    assert_true(x->t->ops->has(x->t, &b.block.key)); /* queued or there */
    assert_int_equal(tier_fetch(x, x->t, 1), 1);
}

/* What could not be filled is not there, and may be stored later. */
static void test_an_abandoned_block_is_not_stored(void **state)
{
    struct disk_test *x = *state;
    struct test_block b;
    struct kv_tier_stats s;
    disk_test_open(x);
    block_make(x->h, 1, &b);
    for (int i = 0; i < 1000; i++) { /* more than there are buffers */
        void *bytes = x->t->ops->store_begin(x->t, &b.block.key, KV_TIER_FULL);
        assert_non_null(bytes);
        x->t->ops->store_abandon(x->t, &b.block.key, bytes);
    }
    assert_false(x->t->ops->has(x->t, &b.block.key));
    x->t->ops->stats(x->t, &s);
    assert_int_equal(s.dropped, 1000);
    assert_true(tier_store(x, x->t, 1));
    assert_int_equal(tier_fetch(x, x->t, 1), 1);
}

/* A device that moves blocks beside the host: bytes come when somebody waits for them. */
struct late {
    pthread_mutex_t mutex;
    struct {
        void *to;
        const void *from; /* NULL: bytes, which nobody changes */
        uint8_t bytes[HELP_PAYLOAD];
    } moves[64];
    uint32_t n;
    bool failed;
    void *memory;
};

static void late_move(struct late *l, void *to, const void *from, const void *bytes)
{
    pthread_mutex_lock(&l->mutex);
    assert_in_range(l->n, 0, 63);
    l->moves[l->n].to = to;
    l->moves[l->n].from = from;
    if (bytes)
        memcpy(l->moves[l->n].bytes, bytes, HELP_PAYLOAD);
    l->n++;
    pthread_mutex_unlock(&l->mutex);
}

static bool late_settle(void *ctx)
{
    struct late *l = ctx;
    pthread_mutex_lock(&l->mutex);
    for (uint32_t i = 0; i < l->n; i++)
        memcpy(
            l->moves[i].to, l->moves[i].from ? l->moves[i].from : l->moves[i].bytes, HELP_PAYLOAD);
    l->n = 0;
    const bool failed = l->failed;
    pthread_mutex_unlock(&l->mutex);
    return !failed;
}

static void late_fail(struct late *l, bool failed)
{
    pthread_mutex_lock(&l->mutex);
    l->failed = failed;
    pthread_mutex_unlock(&l->mutex);
}

static void *late_alloc(void *ctx, size_t n_bytes)
{
    struct late *l = ctx;
    assert_null(l->memory);
    return l->memory = calloc(1, n_bytes);
}

static void late_free(void *ctx, void *p)
{
    struct late *l = ctx;
    assert_ptr_equal(p, l->memory);
    late_settle(l); /* as a backend would */
    free(p);
    l->memory = NULL;
}

static bool late_queue(struct disk_test *x, struct late *l, uint64_t id)
{
    struct test_block b;
    uint8_t payload[HELP_PAYLOAD];
    block_make(x->h, id, &b);
    void *bytes = x->t->ops->store_begin(x->t, &b.block.key, KV_TIER_FULL);
    if (!bytes)
        return false;
    memset(bytes, 0xee, HELP_PAYLOAD); /* what the buffer held before */
    block_payload(id, payload, sizeof payload);
    late_move(l, bytes, NULL, payload);
    x->t->ops->store(x->t, &b.block, bytes);
    return true;
}

/* What is written, and what is read over, is what was moved, though it moved late: also where a
 * block is fetched while it is being stored. */
static void test_bytes_that_come_late_are_waited_for(void **state)
{
    struct disk_test *x = *state;
    struct late l = {.mutex = PTHREAD_MUTEX_INITIALIZER};
    x->cfg.alloc = late_alloc;
    x->cfg.free = late_free;
    x->cfg.settle = late_settle;
    x->cfg.alloc_ctx = &l;
    disk_test_open(x);
    assert_non_null(l.memory);
    for (uint64_t id = 1; id <= 200; id++) {
        const struct kv_tier_stats before = tier_stats(x->t);
        assert_true(late_queue(x, &l, id));
        if (id % 2 == 0)
            assert_int_equal(tier_fetch(x, x->t, id), 1);
        while (tier_stats(x->t).stored == before.stored)
            usleep(50);
        assert_int_equal(tier_fetch(x, x->t, id), 1);
    }
    /* copied from late, though given back at once: a fetch into the same buffer waits */
    static uint8_t got[32][HELP_PAYLOAD], want[HELP_PAYLOAD];
    struct kv_tier_done done;
    for (uint64_t id = 0; id < 32; id++) { /* more than there are buffers */
        assert_true(tier_ask(x, x->t, id + 1));
        while (!x->t->ops->poll(x->t, &done))
            usleep(50);
        assert_non_null(done.bytes);
        late_move(&l, got[id], done.bytes, NULL);
        x->t->ops->release(x->t, done.bytes);
    }
    late_settle(&l);
    for (uint64_t id = 0; id < 32; id++) {
        block_payload(id + 1, want, sizeof want);
        assert_memory_equal(got[id], want, sizeof want);
    }
    late_fail(&l, true); /* from here on bytes are nothing */
    assert_true(late_queue(x, &l, 1000));
    while (tier_stats(x->t).dropped == 0)
        usleep(50);
    assert_false(tier_has(x, x->t, 1000));
    assert_int_equal(tier_fetch(x, x->t, 1), 0);
    late_fail(&l, false);
    disk_test_close(x);
    assert_null(l.memory);
    x->cfg.alloc = NULL;
    x->cfg.settle = NULL;
    disk_test_open(x);
    for (uint64_t id = 1; id <= 200; id++)
        assert_int_equal(tier_fetch(x, x->t, id), 1);
    assert_int_equal(tier_fetch(x, x->t, 1000), 0);
}

static void count_wake(void *ctx)
{
    __atomic_add_fetch((uint32_t *)ctx, 1, __ATOMIC_SEQ_CST);
}

static uint32_t n_wakes(const uint32_t *wakes)
{
    return __atomic_load_n(wakes, __ATOMIC_SEQ_CST);
}

/* Who is told that there is no buffer for a store is woken when there is one; nobody else is. */
static void test_who_waits_for_a_buffer_is_woken(void **state)
{
    struct disk_test *x = *state;
    struct late l = {.mutex = PTHREAD_MUTEX_INITIALIZER};
    uint32_t wakes = 0;
    x->cfg.settle = late_settle;
    x->cfg.alloc_ctx = &l;
    x->cfg.wake = count_wake;
    x->cfg.wake_ctx = &wakes;
    disk_test_open(x);
    assert_true(tier_store(x, x->t, 0));
    assert_false(x->t->ops->busy(x->t));
    pthread_mutex_lock(&l.mutex); /* the thread stands still */
    for (uint64_t id = 1; id <= 4; id++)
        assert_true(tier_queue(x, x->t, id)); /* half of the buffers */
    assert_true(x->t->ops->busy(x->t));
    assert_int_equal(n_wakes(&wakes), 0);
    pthread_mutex_unlock(&l.mutex);
    while (n_wakes(&wakes) == 0)
        usleep(50);
    assert_false(x->t->ops->busy(x->t));
    assert_true(tier_queue(x, x->t, 5));
    while (tier_stats(x->t).stored < 6)
        usleep(50);
    assert_int_equal(n_wakes(&wakes), 1);
    assert_int_equal(tier_stats(x->t).dropped, 0);
    disk_test_close(x);
    x->cfg.settle = NULL;
    x->cfg.wake = NULL;
}

/* A key is a name: the same one with other tokens, or behind another parent, is another block. */
static void test_tokens_and_parent_are_compared(void **state)
{
    struct disk_test *x = *state;
    struct test_block b;
    struct kv_tier_done done;
    disk_test_open(x);
    for (int what = 0; what < 2; what++) {
        assert_true(tier_store(x, x->t, 1));
        block_make(x->h, 1, &b);
        if (what == 0)
            b.tokens[3]++;
        else
            b.block.parent.bytes[0]++;
        assert_true(x->t->ops->fetch(x->t, &b.block, 5));
        while (!x->t->ops->poll(x->t, &done))
            usleep(50);
        assert_int_equal(done.ticket, 5);
        assert_null(done.bytes);
        assert_false(tier_has(x, x->t, 1)); /* one of the two lied, and cannot be told */
    }
    assert_int_equal(tier_stats(x->t).ignored, 2);
}

/* And some more, so that the index has to grow. */
static void test_thousand_blocks(void **state)
{
    struct disk_test *x = *state;
    uint64_t seed = test_seed();
    enum { N = 1100 };
    x->cfg.block_bytes = 5003; /* no multiple of anything */
    disk_test_open(x);
    for (uint64_t i = 0; i < N; i++)
        while (!tier_queue(x, x->t, seed + i))
            usleep(50);
    for (int restarted = 0; restarted < 2; restarted++) {
        for (uint64_t i = 0; i < N; i++)
            assert_int_equal(tier_fetch(x, x->t, seed + i), 1);
        assert_int_equal(tier_stats(x->t).fetched, N);
        disk_test_open(x); /* writes what is still queued */
        assert_int_equal(tier_stats(x->t).entries, N);
        assert_int_equal(tier_stats(x->t).bytes, real_bytes(x->dir));
    }
}

static void test_fetches_end_in_order(void **state)
{
    struct disk_test *x = *state;
    disk_test_open(x);
    for (uint64_t id = 0; id < 8; id += 2)
        assert_true(tier_store(x, x->t, id));
    for (uint64_t id = 0; id < 8; id++) /* every other one is not there */
        assert_true(tier_ask(x, x->t, id));
    assert_false(tier_ask(x, x->t, 9)); /* all eight buffers are taken */
    for (uint64_t id = 0; id < 8; id++)
        assert_int_equal(tier_take(x, x->t, id), id % 2 == 0);
    assert_true(tier_ask(x, x->t, 9));
    assert_int_equal(tier_take(x, x->t, 9), 0);
}

static void test_lru_survives_a_restart(void **state)
{
    struct disk_test *x = *state;
    disk_test_open(x);
    for (uint64_t id = 0; id < 10; id++)
        assert_true(tier_store(x, x->t, id));
    assert_int_equal(tier_fetch(x, x->t, 3), 1);
    assert_int_equal(tier_fetch(x, x->t, 1), 1);
    x->cfg.max_bytes = segments(5);
    disk_test_open(x);
    const bool kept[10] = {[7] = true, [8] = true, [9] = true, [3] = true, [1] = true};
    for (uint64_t id = 0; id < 10; id++)
        assert_int_equal(tier_has(x, x->t, id), kept[id]);
    assert_int_equal(tier_stats(x->t).evicted, 5);
    assert_int_equal(real_bytes(x->dir), segments(5));
    assert_true(tier_store(x, x->t, 20)); /* 7 is the oldest now */
    assert_false(tier_has(x, x->t, 7));
    assert_int_equal(tier_fetch(x, x->t, 8), 1);
    assert_true(tier_store(x, x->t, 21));
    assert_true(tier_has(x, x->t, 8));
    assert_false(tier_has(x, x->t, 9));
}

/* What is used above is evicted last, without having been fetched. A block that is not there is
 * nobody's. Files' times do not say so, so a restart does not know. */
static void test_what_is_used_above_is_kept(void **state)
{
    struct disk_test *x = *state;
    x->cfg.max_bytes = segments(4);
    disk_test_open(x);
    for (uint64_t id = 0; id < 4; id++)
        assert_true(tier_store(x, x->t, id));
    tier_use(x, x->t, 99);
    tier_use(x, x->t, 1);
    tier_use(x, x->t, 0);
    assert_true(tier_store(x, x->t, 4));
    assert_true(tier_store(x, x->t, 5));
    const bool kept[6] = {[0] = true, [1] = true, [4] = true, [5] = true};
    for (uint64_t id = 0; id < 6; id++)
        assert_int_equal(tier_has(x, x->t, id), kept[id]);
    assert_true(tier_store(x, x->t, 6)); /* 1 was used before 0 */
    assert_false(tier_has(x, x->t, 1));
    assert_true(tier_has(x, x->t, 0));
    assert_int_equal(tier_stats(x->t).fetched, 0);
    disk_test_open(x);
    assert_true(tier_has(x, x->t, 0));
    assert_true(tier_store(x, x->t, 7));
    assert_false(tier_has(x, x->t, 0));
}

/* While the index grows and entries go, too. */
static void test_blocks_are_used_meanwhile(void **state)
{
    struct disk_test *x = *state;
    uint64_t seed = test_seed();
    enum { N = 4500 }; /* the index grows several times */
    x->cfg.max_bytes = segments(2000);
    disk_test_open(x);
    for (uint64_t i = 0; i < N; i++)
        while (!tier_queue(x, x->t, i)) {
            tier_use(x, x->t, random_next(&seed) % N);
            tier_use(x, x->t, 7); /* whatever else is */
        }
    disk_test_open(x);
    assert_int_equal(tier_stats(x->t).entries, 2000);
    assert_int_equal(tier_stats(x->t).bytes, real_bytes(x->dir));
    assert_true(tier_has(x, x->t, 7));
    for (uint64_t i = 0; i < N; i++)
        if (tier_has(x, x->t, i))
            assert_int_equal(tier_fetch(x, x->t, i), 1);
}

/* The clock was ahead once: what is used now still counts as later. */
static void test_lru_with_mtimes_from_the_future(void **state)
{
    struct disk_test *x = *state;
    disk_test_open(x);
    for (uint64_t id = 0; id < 4; id++)
        assert_true(tier_store(x, x->t, id));
    disk_test_close(x);
    for (uint64_t id = 0; id < 4; id++) {
        struct timespec times[2] = {{.tv_nsec = UTIME_OMIT},
                                    {.tv_sec = time(NULL) + 1000000 + (time_t)id}};
        assert_int_equal(utimensat(AT_FDCWD, segment_path(x, id), times, 0), 0);
    }
    disk_test_open(x);
    assert_int_equal(tier_fetch(x, x->t, 0), 1);
    assert_true(tier_store(x, x->t, 4));
    x->cfg.max_bytes = segments(2);
    disk_test_open(x);
    assert_true(tier_has(x, x->t, 0));
    assert_true(tier_has(x, x->t, 4));
    assert_int_equal(tier_stats(x->t).entries, 2);
}

/* The engine's calls allocate nothing, and one segment's limit is enough to work with. */
static void test_calls_allocate_nothing(void **state)
{
    struct disk_test *x = *state;
    x->cfg.max_bytes = segments(1);
    x->cfg.about = "no room for this line";
    disk_test_open(x);
    struct test_block b[2];
    struct kv_tier_done done = {0};
    struct kv_tier_stats s;
    const struct kv_tier_ops *ops = x->t->ops;
    uint64_t before = mem_watched();
    for (uint64_t i = 0; i < 20; i++) {
        block_make(x->h, i, &b[i % 2]);
        mem_watch(true);
        void *bytes = ops->store_begin(x->t, &b[i % 2].block.key, KV_TIER_FULL);
        if (bytes)
            ops->store(x->t, &b[i % 2].block, bytes);
        ops->has(x->t, &b[i % 2].block.key);
        ops->used(x->t, &b[i % 2].block.key, KV_TIER_USED);
        ops->estimate_us(x->t, 3);
        if (ops->fetch(x->t, &b[i % 2].block, i))
            while (!ops->poll(x->t, &done))
                ;
        if (done.bytes)
            ops->release(x->t, done.bytes);
        ops->stats(x->t, &s);
        mem_watch(false);
        done.bytes = NULL;
    }
    assert_int_equal(mem_watched(), before);
    disk_test_close(x); /* what moves while it is counted may be counted twice */
    assert_true(real_bytes(x->dir) <= segments(1));
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, disk_test_setup, disk_test_teardown)
    const struct CMUnitTest tests[] = {
        TEST(test_round_trip),
        TEST(test_a_block_is_taken_once),
        TEST(test_an_abandoned_block_is_not_stored),
        TEST(test_bytes_that_come_late_are_waited_for),
        TEST(test_who_waits_for_a_buffer_is_woken),
        TEST(test_tokens_and_parent_are_compared),
        TEST(test_thousand_blocks),
        TEST(test_fetches_end_in_order),
        TEST(test_lru_survives_a_restart),
        TEST(test_what_is_used_above_is_kept),
        TEST(test_blocks_are_used_meanwhile),
        TEST(test_lru_with_mtimes_from_the_future),
        TEST(test_calls_allocate_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
