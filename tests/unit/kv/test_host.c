/* The RAM tier: what is evicted is found again, the oldest makes room, and what is not its own goes
 * to the tier below. */
#include "kv/host.h"

#include "base/mem.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { TOKENS = 4, BYTES = 100, SLOTS = 3 };

/* Notes what it is asked. */
struct below {
    struct kv_tier base;
    struct kv_key held;
    char buffer[BYTES];
    uint64_t ticket;
    uint32_t n_fetches, n_stores, n_releases, n_destroyed, n_begun, n_used;
    enum kv_tier_use use; /* the last */
    bool waiting, busy;
};

static uint32_t below_has(struct kv_tier *t, const struct kv_key *key)
{
    return kv_key_equal(&((struct below *)t)->held, key);
}

static void below_used(struct kv_tier *t, const struct kv_key *key, enum kv_tier_use use)
{
    struct below *x = (struct below *)t;
    (void)key;
    x->n_used++;
    x->use = use;
}

static uint64_t below_estimate(struct kv_tier *t, uint32_t n)
{
    (void)t;
    return 1000 * (uint64_t)n;
}

static bool below_fetch(struct kv_tier *t, const struct kv_tier_block *b, uint64_t ticket)
{
    struct below *x = (struct below *)t;
    (void)b;
    x->n_fetches++;
    x->ticket = ticket;
    x->waiting = true;
    return true;
}

static bool below_poll(struct kv_tier *t, struct kv_tier_done *out)
{
    struct below *x = (struct below *)t;
    if (!x->waiting)
        return false;
    x->waiting = false;
    *out = (struct kv_tier_done){x->ticket, x->buffer};
    return true;
}

static void below_release(struct kv_tier *t, const void *bytes)
{
    struct below *x = (struct below *)t;
    assert_ptr_equal(bytes, x->buffer);
    x->n_releases++;
}

static bool below_busy(struct kv_tier *t)
{
    return ((struct below *)t)->busy;
}

static void *below_store_begin(struct kv_tier *t, const struct kv_key *key, enum kv_tier_reason why)
{
    struct below *x = (struct below *)t;
    (void)key;
    assert_int_equal(why, KV_TIER_FULL);
    x->n_begun++;
    return x->buffer;
}

static void below_store(struct kv_tier *t, const struct kv_tier_block *b, void *bytes)
{
    struct below *x = (struct below *)t;
    (void)b;
    assert_ptr_equal(bytes, x->buffer);
    x->n_stores++;
}

static void below_stats(struct kv_tier *t, struct kv_tier_stats *out)
{
    (void)t;
    *out = (struct kv_tier_stats){0};
}

static void below_destroy(struct kv_tier *t)
{
    ((struct below *)t)->n_destroyed++;
}

static const struct kv_tier_ops below_ops = {.name = "below",
                                             .has = below_has,
                                             .used = below_used,
                                             .estimate_us = below_estimate,
                                             .fetch = below_fetch,
                                             .poll = below_poll,
                                             .release = below_release,
                                             .busy = below_busy,
                                             .store_begin = below_store_begin,
                                             .store = below_store,
                                             .stats = below_stats,
                                             .destroy = below_destroy};

struct fixture {
    struct below below;
    struct kv_tier *tier;
    uint32_t n_wakes;
};

static void wake(void *ctx)
{
    ++*(uint32_t *)ctx;
}

/* Of a device whose system gives no pinned memory. */
static void *refuse(void *ctx, size_t n_bytes)
{
    (void)ctx;
    (void)n_bytes;
    return NULL;
}

static void never_freed(void *ctx, void *p)
{
    (void)ctx;
    fail_msg("%p is not of the device", p);
}

static int setup_with(void **state, void *(*alloc)(void *, size_t), void (*release)(void *, void *))
{
    struct fixture *f = calloc(1, sizeof *f);
    f->below.base.ops = &below_ops;
    memset(f->below.held.bytes, 0xee, sizeof f->below.held.bytes);
    struct kv_host_config cfg = {.max_bytes = SLOTS * 128 + 5,
                                 .block_tokens = TOKENS,
                                 .block_bytes = BYTES,
                                 .alloc = alloc,
                                 .free = release,
                                 .below = &f->below.base,
                                 .wake = wake,
                                 .wake_ctx = &f->n_wakes};
    assert_int_equal(kv_host_open(&cfg, &f->tier, NULL), OK);
    *state = f;
    return 0;
}

static int setup(void **state)
{
    return setup_with(state, NULL, NULL);
}

static int setup_refused(void **state)
{
    return setup_with(state, refuse, never_freed);
}

static int teardown(void **state)
{
    struct fixture *f = *state;
    f->tier->ops->destroy(f->tier);
    assert_int_equal(f->below.n_destroyed, 1);
    free(f);
    return 0;
}

/* Block n: its key, parent and tokens. */
struct made {
    int32_t tokens[TOKENS];
    struct kv_tier_block b;
};

static void make(struct made *m, int n)
{
    *m = (struct made){.tokens = {n, n + 1, n + 2, n + 3}};
    memset(m->b.key.bytes, n, sizeof m->b.key.bytes);
    memset(m->b.parent.bytes, n + 100, sizeof m->b.parent.bytes);
    m->b.tokens = m->tokens;
}

static bool evict(struct fixture *f, int n)
{
    struct made m;
    make(&m, n);
    void *bytes = f->tier->ops->store_begin(f->tier, &m.b.key, KV_TIER_EVICTED);
    if (!bytes)
        return false;
    memset(bytes, n, BYTES);
    f->tier->ops->store(f->tier, &m.b, bytes);
    return true;
}

static void abandon(struct fixture *f, int n)
{
    struct made m;
    make(&m, n);
    void *bytes = f->tier->ops->store_begin(f->tier, &m.b.key, KV_TIER_EVICTED);
    assert_non_null(bytes);
    memset(bytes, ~n, BYTES);
    f->tier->ops->store_abandon(f->tier, &m.b.key, bytes);
}

/* Fetch block n and say whether its bytes came. */
static bool fetch(struct fixture *f, int n)
{
    struct made m;
    struct kv_tier_done done;
    char want[BYTES];
    make(&m, n);
    if (!f->tier->ops->fetch(f->tier, &m.b, 1000 + (uint64_t)n) ||
        !f->tier->ops->poll(f->tier, &done))
        return false;
    assert_int_equal(done.ticket, 1000 + n);
    memset(want, n, BYTES);
    bool own = done.bytes != f->below.buffer;
    if (own)
        assert_memory_equal(done.bytes, want, BYTES);
    f->tier->ops->release(f->tier, done.bytes);
    return own;
}

static uint32_t has(struct fixture *f, int n)
{
    struct made m;
    make(&m, n);
    return f->tier->ops->has(f->tier, &m.b.key);
}

static void used(struct fixture *f, int n, enum kv_tier_use use)
{
    struct made m;
    make(&m, n);
    f->tier->ops->used(f->tier, &m.b.key, use);
}

/* Blocks 1, 2 and 3, stored in this order. */
static void fill(struct fixture *f)
{
    for (int n = 1; n <= SLOTS; n++)
        assert_true(evict(f, n));
}

/* In the place of block n, block `next` is stored. */
static void assert_makes_room(struct fixture *f, int n, int next)
{
    assert_int_equal(has(f, n), 1);
    assert_true(evict(f, next));
    assert_int_equal(has(f, n), 0);
}

static struct kv_tier_stats stats(struct fixture *f)
{
    struct kv_tier_stats s;
    f->tier->ops->stats(f->tier, &s);
    return s;
}

static void test_gives_back_what_was_evicted(void **state)
{
    struct fixture *f = *state;
    assert_int_equal(has(f, 1), 0);
    assert_true(evict(f, 1));
    assert_int_equal(has(f, 1), 1);
    assert_true(fetch(f, 1));
    assert_true(fetch(f, 1)); /* it stays */
    assert_int_equal(f->n_wakes, 2);
    assert_false(evict(f, 1)); /* so it need not be copied again */
    struct kv_tier_stats s = stats(f);
    assert_int_equal(s.fetched, 2);
    assert_int_equal(s.stored, 1);
    assert_int_equal(s.entries, 1);
    assert_int_equal(s.bytes, BYTES);
    assert_int_equal(s.max_bytes, SLOTS * BYTES);
    assert_int_equal(s.fetch.count, 2);
}

static void test_the_oldest_makes_room(void **state)
{
    struct fixture *f = *state;
    fill(f);
    assert_false(evict(f, 1)); /* it is there: used last */
    assert_makes_room(f, 2, 4);
    assert_int_equal(has(f, 1), 1);
    assert_int_equal(has(f, 3), 1); /* asking changes nothing */
    assert_int_equal(has(f, 4), 1);
    assert_int_equal(stats(f).evicted, 1);
    assert_int_equal(stats(f).entries, 3);
    assert_makes_room(f, 3, 5);
}

/* A run is said to be wanted from its last block to its first, which is kept longest. */
static void test_what_is_wanted_is_kept(void **state)
{
    struct fixture *f = *state;
    fill(f);
    used(f, 2, KV_TIER_WANTED);
    used(f, 1, KV_TIER_WANTED);
    assert_makes_room(f, 3, 4);
    assert_makes_room(f, 2, 5);
    assert_makes_room(f, 1, 6);
    assert_int_equal(f->below.n_used, 0);
}

/* In the order in which it came, before all others; not if it is driven out again. */
static void test_what_has_arrived_makes_room_first(void **state)
{
    struct fixture *f = *state;
    fill(f);
    for (int n = 3; n > 0; n--) {
        assert_true(fetch(f, n));
        used(f, n, KV_TIER_ARRIVED);
    }
    assert_false(evict(f, 2));
    assert_makes_room(f, 3, 4);
    assert_makes_room(f, 1, 5);
    assert_makes_room(f, 2, 6);
}

/* A fetch for nobody leaves the order as it was, or nearly so: it was used. */
static void test_what_has_not_arrived_is_kept(void **state)
{
    struct fixture *f = *state;
    fill(f);
    assert_true(fetch(f, 1));
    assert_makes_room(f, 2, 4);
    assert_int_equal(has(f, 1), 1);
}

static void test_what_was_abandoned_is_not_there(void **state)
{
    struct fixture *f = *state;
    for (int i = 0; i < 10; i++) { /* more than there are slots */
        abandon(f, 1);
        assert_int_equal(has(f, 1), 0);
    }
    assert_int_equal(stats(f).dropped, 10);
    for (int n = 1; n <= 3; n++)
        assert_true(evict(f, n));
    abandon(f, 4); /* in the place of the oldest */
    assert_int_equal(has(f, 4), 0);
    assert_int_equal(has(f, 1), 0);
    assert_int_equal(stats(f).entries, 2);
    assert_true(fetch(f, 2));
    assert_true(evict(f, 1));
    assert_true(fetch(f, 1));
}

static void test_what_is_lent_is_not_evicted(void **state)
{
    struct fixture *f = *state;
    struct made m[4];
    struct kv_tier_done done[3];
    for (int n = 1; n <= 3; n++) {
        make(&m[n], n);
        assert_true(evict(f, n));
        assert_true(f->tier->ops->fetch(f->tier, &m[n].b, (uint64_t)n));
    }
    assert_false(evict(f, 4));
    assert_int_equal(stats(f).dropped, 1);
    for (int n = 0; n < 3; n++) {
        assert_true(f->tier->ops->poll(f->tier, &done[n]));
        assert_int_equal(done[n].ticket, n + 1);
    }
    f->tier->ops->release(f->tier, done[1].bytes);
    assert_true(evict(f, 4));
    assert_int_equal(has(f, 2), 0);
    f->tier->ops->release(f->tier, done[0].bytes);
    f->tier->ops->release(f->tier, done[2].bytes);
    assert_true(fetch(f, 4));
}

/* It is passed over, and its turn comes. */
static void test_what_is_lent_keeps_its_place(void **state)
{
    struct fixture *f = *state;
    struct made m[3];
    struct kv_tier_done done[3];
    fill(f);
    for (int n = 1; n <= 2; n++) {
        make(&m[n], n);
        assert_true(f->tier->ops->fetch(f->tier, &m[n].b, 0));
        assert_true(f->tier->ops->poll(f->tier, &done[n]));
        used(f, n, KV_TIER_ARRIVED);
    }
    assert_makes_room(f, 3, 4);
    f->tier->ops->release(f->tier, done[1].bytes);
    f->tier->ops->release(f->tier, done[2].bytes);
    assert_makes_room(f, 1, 5);
    assert_makes_room(f, 2, 6);
}

static void test_compares_texts(void **state)
{
    struct fixture *f = *state;
    struct made m;
    assert_true(evict(f, 1));
    make(&m, 1);
    m.tokens[3]++;
    f->tier->ops->fetch(f->tier, &m.b, 7); /* the same key for another text: not its own */
    assert_int_equal(f->below.n_fetches, 1);
    make(&m, 1);
    m.b.parent.bytes[0]++;
    f->tier->ops->fetch(f->tier, &m.b, 7);
    assert_int_equal(f->below.n_fetches, 2);
    assert_int_equal(stats(f).ignored, 2);
}

static void test_passes_on(void **state)
{
    struct fixture *f = *state;
    struct made m;
    make(&m, 0xee);
    assert_int_equal(has(f, 0xee), 2);
    assert_false(fetch(f, 0xee));
    assert_int_equal(f->below.n_fetches, 1);
    assert_int_equal(f->below.n_releases, 1);
    used(f, 0xee, KV_TIER_WANTED);
    assert_int_equal(f->below.n_used, 1);
    assert_int_equal(f->below.use, KV_TIER_WANTED);
    f->below.busy = true;
    assert_true(f->tier->ops->busy(f->tier));
    f->below.busy = false;
    assert_false(f->tier->ops->busy(f->tier));
    void *bytes = f->tier->ops->store_begin(f->tier, &m.b.key, KV_TIER_FULL);
    assert_ptr_equal(bytes, f->below.buffer);
    f->tier->ops->store(f->tier, &m.b, bytes);
    assert_int_equal(f->below.n_stores, 1);
    assert_int_equal(stats(f).stored, 0);
}

/* What is used in memory above, too, whether it is here or not, and nothing changes here. */
static void test_passes_on_what_is_used(void **state)
{
    struct fixture *f = *state;
    fill(f);
    used(f, 1, KV_TIER_USED);
    used(f, 9, KV_TIER_USED);
    assert_int_equal(f->below.n_used, 2);
    assert_int_equal(f->below.use, KV_TIER_USED);
    assert_makes_room(f, 1, 4);
}

static void test_refuses(void **state)
{
    struct kv_tier *t;
    struct err_info e;
    (void)state;
    struct kv_host_config cfg = {.max_bytes = 127, .block_tokens = TOKENS, .block_bytes = BYTES};
    assert_int_equal(kv_host_open(&cfg, &t, &e), ERR_INVALID);
    assert_string_equal(e.text, "host-cache: 127 bytes hold not one block of 128");
    cfg.block_bytes = SIZE_MAX - 3;
    assert_int_equal(kv_host_open(&cfg, &t, &e), ERR_INVALID);
    for (uint64_t nth = 1;; nth++) { /* each allocation fails in turn; the last fails none */
        cfg = (struct kv_host_config){
            .max_bytes = 1000, .block_tokens = TOKENS, .block_bytes = BYTES};
        mem_fail_nth(nth);
        const enum err err = kv_host_open(&cfg, &t, &e);
        if (!mem_fail_nth(0)) {
            assert_int_equal(err, OK);
            assert_true(nth > 3);
            t->ops->destroy(t);
            return;
        }
        assert_int_equal(err, ERR_NOMEM);
        assert_null(t);
    }
}

/* A device's pinned memory, of which there is one piece. */
struct pinned {
    char memory[SLOTS * 128];
    bool given;
    uint32_t n_freed;
};

static void *give_pinned(void *ctx, size_t n_bytes)
{
    struct pinned *p = ctx;
    assert_int_equal(n_bytes, sizeof p->memory);
    assert_false(p->given);
    p->given = true;
    return p->memory;
}

static void take_pinned(void *ctx, void *memory)
{
    struct pinned *p = ctx;
    assert_ptr_equal(memory, p->memory);
    assert_true(p->given);
    p->given = false;
    p->n_freed++;
}

static void test_blocks_lie_in_pinned_memory(void **state)
{
    (void)state;
    struct pinned p = {.given = false};
    struct kv_tier *t = NULL;
    const struct kv_host_config cfg = {.max_bytes = SLOTS * 128,
                                       .block_tokens = TOKENS,
                                       .block_bytes = BYTES,
                                       .alloc = give_pinned,
                                       .free = take_pinned,
                                       .alloc_ctx = &p};
    for (uint64_t nth = 1; !t; nth++) { /* whatever else is short, it goes back */
        assert_true(nth < 10);
        mem_fail_nth(nth);
        const enum err err = kv_host_open(&cfg, &t, NULL);
        mem_fail_nth(0);
        assert_int_equal(err, t ? OK : ERR_NOMEM);
        assert_int_equal(p.given, t != NULL);
    }
    assert_true(p.n_freed > 0);
    struct made m;
    make(&m, 1);
    char *bytes = t->ops->store_begin(t, &m.b.key, KV_TIER_EVICTED);
    assert_true(bytes >= p.memory && bytes + BYTES <= p.memory + sizeof p.memory);
    t->ops->store_abandon(t, &m.b.key, bytes);
    t->ops->destroy(t);
    assert_false(p.given);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_gives_back_what_was_evicted, setup, teardown),
        cmocka_unit_test_setup_teardown(test_the_oldest_makes_room, setup, teardown),
        cmocka_unit_test_setup_teardown(test_what_is_wanted_is_kept, setup, teardown),
        cmocka_unit_test_setup_teardown(test_what_has_arrived_makes_room_first, setup, teardown),
        cmocka_unit_test_setup_teardown(test_what_has_not_arrived_is_kept, setup, teardown),
        cmocka_unit_test_setup_teardown(test_what_was_abandoned_is_not_there, setup, teardown),
        cmocka_unit_test_setup_teardown(test_what_is_lent_is_not_evicted, setup, teardown),
        cmocka_unit_test_setup_teardown(test_what_is_lent_keeps_its_place, setup, teardown),
        cmocka_unit_test_setup_teardown(test_compares_texts, setup, teardown),
        cmocka_unit_test_setup_teardown(test_passes_on, setup, teardown),
        cmocka_unit_test_setup_teardown(test_passes_on_what_is_used, setup, teardown),
        cmocka_unit_test_setup_teardown(test_gives_back_what_was_evicted, setup_refused, teardown),
        cmocka_unit_test(test_blocks_lie_in_pinned_memory),
        cmocka_unit_test(test_refuses),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
