/* What is asked of the tier below, and what happens when it does not deliver. */
#include "kv/internal.h"
#include "kv/kv.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define SIZE 4
#define N_TOKENS 13 /* three full blocks before the last token */
#define MOST_USES 64

/* Says that it has everything, or after some answers that the tier below has; estimates and answers
 * as it is told. */
struct tier {
    struct kv_tier base;
    uint64_t us_per_block;
    bool silent, empty, backwards;
    bool one_by_one;    /* sends one a poll */
    bool sent;          /* it, in this one */
    uint32_t n_buffers; /* 0: as many as there are tickets */
    uint64_t tickets[16];
    uint32_t n_asked, n_answered;
    uint32_t estimated;       /* blocks, at last */
    uint32_t n_has, moves_at; /* 0: never */
    bool keeps;               /* what is evicted */
    uint32_t n_kept;
    struct kv_key uses[3][MOST_USES]; /* by what was said of them */
    uint32_t n_uses[3];
};

struct fixture {
    struct tier tier;
    struct kv *kv;
    struct kv_table table;
};

static uint32_t has(struct kv_tier *t, const struct kv_key *key)
{
    struct tier *x = (struct tier *)t;
    (void)key;
    return ++x->n_has <= x->moves_at || x->moves_at == 0 ? 1 : 2;
}

static void used(struct kv_tier *t, const struct kv_key *key, enum kv_tier_use use)
{
    struct tier *x = (struct tier *)t;
    assert_in_range(x->n_uses[use], 0, MOST_USES - 1);
    x->uses[use][x->n_uses[use]++] = *key;
}

static uint64_t estimate_us(struct kv_tier *t, uint32_t n)
{
    struct tier *x = (struct tier *)t;
    x->estimated = n;
    return n * x->us_per_block;
}

static bool fetch(struct kv_tier *t, const struct kv_tier_block *b, uint64_t ticket)
{
    struct tier *x = (struct tier *)t;
    (void)b;
    assert_in_range(x->n_asked, 0, 15);
    if (x->n_buffers > 0 && x->n_asked - x->n_answered == x->n_buffers)
        return false;
    x->tickets[x->n_asked++] = ticket;
    return true;
}

static bool poll(struct kv_tier *t, struct kv_tier_done *out)
{
    static const char bytes[1];
    struct tier *x = (struct tier *)t;
    if (x->silent || x->n_answered == x->n_asked || (x->one_by_one && x->sent)) {
        x->sent = false;
        return false;
    }
    x->sent = true;
    const uint32_t i = x->n_answered++;
    const uint64_t ticket = x->tickets[x->backwards ? x->n_asked - 1 - i : i];
    *out = (struct kv_tier_done){ticket, x->empty ? NULL : bytes};
    return true;
}

static void release(struct kv_tier *t, const void *bytes)
{
    (void)t;
    (void)bytes;
}

static void *store_begin(struct kv_tier *t, const struct kv_key *key, enum kv_tier_reason why)
{
    struct tier *x = (struct tier *)t;
    (void)key;
    return x->keeps && why == KV_TIER_EVICTED ? x : NULL;
}

static void store(struct kv_tier *t, const struct kv_tier_block *b, void *bytes)
{
    (void)b;
    assert_ptr_equal(bytes, t);
    ((struct tier *)t)->n_kept++;
}

static bool read_block(void *ctx, struct kv_place from, void *bytes)
{
    (void)ctx;
    (void)from;
    (void)bytes;
    return true;
}

static void write_block(void *ctx, struct kv_place to, const void *bytes)
{
    (void)ctx;
    (void)to;
    (void)bytes;
}

static const struct kv_tier_ops ops = {.name = "told",
                                       .has = has,
                                       .used = used,
                                       .estimate_us = estimate_us,
                                       .fetch = fetch,
                                       .poll = poll,
                                       .release = release,
                                       .store_begin = store_begin,
                                       .store = store};

static const int32_t text[N_TOKENS] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13};
static const int32_t other[N_TOKENS] = {51, 52, 53, 54, 55, 56, 57, 58, 59, 60, 61, 62, 63};

static int setup(void **state)
{
    static const struct kv_key nobody;
    struct fixture *f = calloc(1, sizeof *f);
    f->tier = (struct tier){.base.ops = &ops, .us_per_block = 40};
    struct kv_config kc = {.n_blocks = 8,
                           .block_tokens = SIZE,
                           .mover = {.write = write_block},
                           .tier = &f->tier.base};
    assert_int_equal(kv_create(&kc, &f->kv, NULL), OK);
    assert_int_equal(kv_table_init(f->kv, &f->table, 6, NULL), OK);
    kv_table_begin(&f->table, text, &nobody, true);
    *state = f;
    return 0;
}

static int teardown(void **state)
{
    struct fixture *f = *state;
    const struct kv_table *all[] = {&f->table};
    struct err_info e = {0};
    if (kv_check(f->kv, all, 1, &e) != OK)
        fail_msg("%s", e.text);
    kv_table_release(f->kv, &f->table, 0);
    kv_table_deinit(&f->table);
    kv_destroy(f->kv);
    free(f);
    return 0;
}

static void test_fetches_what_is_faster(void **state)
{
    struct fixture *f = *state;
    kv_set_pace(f->kv, 0, 10.1); /* a block of 4 takes 40.4 us to compute, 40 to fetch */
    assert_true(kv_fetch_begin(f->kv, &f->table, 0, N_TOKENS));
    assert_int_equal(f->tier.n_asked, 3);
    assert_false(kv_poll(f->kv));
    assert_int_equal(kv_fetched(f->kv, &f->table), 12);
    assert_int_equal(kv_stats(f->kv).published, 3);
    assert_int_equal(kv_stats(f->kv).counts.hit_tokens, 12);
}

/* In the order that keeps the beginning longest: what is wanted and what was used from the last
 * block to the first; what arrives as it does. */
static void test_the_tier_hears_what_is_used(void **state)
{
    struct fixture *f = *state;
    const struct tier *x = &f->tier;
    assert_true(kv_fetch_begin(f->kv, &f->table, 0, N_TOKENS));
    assert_int_equal(x->n_uses[KV_TIER_WANTED], 3);
    assert_int_equal(x->n_uses[KV_TIER_ARRIVED], 0);
    assert_false(kv_poll(f->kv));
    assert_int_equal(x->n_uses[KV_TIER_ARRIVED], 3);
    assert_int_equal(kv_table_grow(f->kv, &f->table, N_TOKENS, NULL), OK);
    assert_int_equal(x->n_uses[KV_TIER_USED], 0);
    kv_table_release(f->kv, &f->table, N_TOKENS);
    assert_int_equal(x->n_uses[KV_TIER_USED], 3); /* full blocks */
    for (uint32_t i = 0; i < 3; i++) {
        const struct kv_key *key = &x->uses[KV_TIER_ARRIVED][i];
        assert_memory_equal(key, &x->uses[KV_TIER_WANTED][2 - i], sizeof *key);
        assert_memory_equal(key, &x->uses[KV_TIER_USED][2 - i], sizeof *key);
    }
}

/* What was attached counts, and what was computed; not what nobody is to find. */
static void test_the_tier_hears_of_what_is_shared(void **state)
{
    struct fixture *f = *state;
    static const struct kv_key nobody;
    for (uint32_t i = 0; i < 3; i++) {
        kv_table_begin(&f->table, text, &nobody, i < 2);
        assert_int_equal(kv_attach(f->kv, &f->table, 0, N_TOKENS), i == 1 ? 2 * SIZE : 0);
        assert_int_equal(kv_table_grow(f->kv, &f->table, N_TOKENS, NULL), OK);
        kv_table_release(f->kv, &f->table, 10); /* two blocks, if they were not there */
        assert_int_equal(f->tier.n_uses[KV_TIER_USED], i == 0 ? 2 : 4);
    }
}

static void test_declines_what_is_slower(void **state)
{
    struct fixture *f = *state;
    kv_set_pace(f->kv, 0, 9.9);
    for (int i = 0; i < 3; i++) /* counted, and asked, once */
        assert_false(kv_fetch_begin(f->kv, &f->table, 0, N_TOKENS));
    assert_int_equal(f->tier.n_asked, 0);
    assert_int_equal(f->tier.n_uses[KV_TIER_WANTED], 0);
    assert_int_equal(kv_stats(f->kv).counts.fetches_declined[0], 1);
}

static void test_gives_up_on_what_is_not_there(void **state)
{
    struct fixture *f = *state;
    f->tier.empty = true;
    assert_true(kv_fetch_begin(f->kv, &f->table, 0, N_TOKENS));
    assert_false(kv_poll(f->kv));
    assert_int_equal(kv_fetched(f->kv, &f->table), 0);
    assert_int_equal(f->table.n_blocks, 0);
    assert_false(kv_fetch_begin(f->kv, &f->table, 0, N_TOKENS)); /* it said that it has it before */
}

/* One block that was lost is computed; those behind it are not. */
static void test_fetches_what_is_behind_a_lost_block(void **state)
{
    struct fixture *f = *state;
    f->tier.empty = true;
    assert_true(kv_fetch_begin(f->kv, &f->table, 0, N_TOKENS));
    assert_false(kv_poll(f->kv));
    f->tier.empty = false;
    assert_int_equal(kv_table_grow(f->kv, &f->table, SIZE, NULL), OK);
    kv_publish(f->kv, &f->table, SIZE, false);
    assert_true(kv_fetch_begin(f->kv, &f->table, SIZE, N_TOKENS));
    assert_false(kv_poll(f->kv));
    assert_int_equal(kv_fetched(f->kv, &f->table), 3 * SIZE);
}

static void test_gives_up_on_silence(void **state)
{
    struct fixture *f = *state;
    f->tier.silent = true;
    kv_set_pace(f->kv, 1000, 0.0);
    assert_true(kv_fetch_begin(f->kv, &f->table, 0, N_TOKENS));
    kv_set_pace(f->kv, 1001000, 0.0);
    assert_true(kv_poll(f->kv));
    kv_set_pace(f->kv, 1001001, 0.0);
    assert_false(kv_poll(f->kv));
    assert_int_equal(kv_stats(f->kv).counts.fetches_abandoned[0], 1);
    assert_int_equal(kv_stats(f->kv).blocks.in_use, 0);
    f->tier.silent = false; /* what comes late is nobody's */
    assert_false(kv_poll(f->kv));
    assert_int_equal(kv_stats(f->kv).published, 0);
}

/* As blocks of two tiers may come. The first comes last, when all has been given up. */
static void test_gives_up_on_what_is_out_of_order(void **state)
{
    struct fixture *f = *state;
    f->tier.backwards = true;
    assert_true(kv_fetch_begin(f->kv, &f->table, 0, N_TOKENS));
    assert_false(kv_poll(f->kv));
    assert_false(kv_fetching(&f->table));
    assert_int_equal(f->tier.n_answered, 3);
    assert_int_equal(kv_fetched(f->kv, &f->table), 0);
    assert_int_equal(kv_stats(f->kv).blocks.in_use, 0);
}

/* Of three blocks, the first or none are still there when they are asked for. */
static void test_takes_what_is_still_there(void **state)
{
    struct fixture *f = *state;
    f->tier.moves_at = 3;
    assert_false(kv_fetch_begin(f->kv, &f->table, 0, N_TOKENS));
    assert_int_equal(f->tier.n_asked, 0);
    assert_int_equal(f->table.n_blocks, 0);
    f->tier.n_has = 0;
    f->tier.moves_at = 4;
    assert_true(kv_fetch_begin(f->kv, &f->table, 0, N_TOKENS)); /* it may be looked for again */
    assert_int_equal(f->tier.n_asked, 1);
    assert_false(kv_poll(f->kv));
    assert_int_equal(kv_fetched(f->kv, &f->table), SIZE);
    assert_int_equal(f->table.n_blocks, 1);
}

/* A second fetch begins when the first has most of its blocks still to ask for. */
static void begin_two(struct fixture *f, struct kv_table *second)
{
    static const struct kv_key nobody;
    f->tier.n_buffers = 1;
    f->tier.one_by_one = true;
    assert_int_equal(kv_table_init(f->kv, second, 6, NULL), OK);
    kv_table_begin(second, other, &nobody, true);
    assert_true(kv_fetch_begin(f->kv, &f->table, 0, N_TOKENS));
    assert_int_equal(f->tier.n_asked, 1);
}

static void end_second(struct fixture *f, struct kv_table *second)
{
    kv_table_release(f->kv, second, kv_fetched(f->kv, second));
    kv_table_deinit(second);
}

/* Buffers that come free are for the first, and the second waits for as long as anything comes. */
static void test_the_first_is_served_first(void **state)
{
    struct fixture *f = *state;
    struct kv_table second;
    begin_two(f, &second);
    assert_true(kv_fetch_begin(f->kv, &second, 0, N_TOKENS));
    for (uint32_t i = 1; i <= 6; i++) {
        kv_set_pace(f->kv, i * 600000, 0.0);
        assert_int_equal(kv_poll(f->kv), i < 6);
        assert_int_equal(kv_fetched(f->kv, &f->table), SIZE * (i < 3 ? i : 3));
        assert_int_equal(kv_fetched(f->kv, &second), SIZE * (i < 3 ? 0 : i - 3));
    }
    assert_int_equal(kv_stats(f->kv).counts.fetches_abandoned[0], 0);
    end_second(f, &second);
}

/* Also one that could not ask for anything. */
static void test_nobody_waits_for_a_silent_tier(void **state)
{
    struct fixture *f = *state;
    struct kv_table second;
    begin_two(f, &second);
    assert_true(kv_fetch_begin(f->kv, &second, 0, N_TOKENS));
    f->tier.silent = true;
    kv_set_pace(f->kv, 1000000, 0.0);
    assert_true(kv_poll(f->kv));
    kv_set_pace(f->kv, 1000001, 0.0);
    assert_false(kv_poll(f->kv));
    assert_int_equal(kv_stats(f->kv).counts.fetches_abandoned[0], 2);
    end_second(f, &second);
}

static void test_who_is_before_counts(void **state)
{
    struct fixture *f = *state;
    struct kv_table second;
    begin_two(f, &second);
    kv_set_pace(f->kv, 0, 10.1); /* in time for its own three blocks */
    assert_false(kv_fetch_begin(f->kv, &second, 0, N_TOKENS));
    assert_int_equal(f->tier.estimated, 2 + 3);
    assert_int_equal(kv_stats(f->kv).counts.fetches_declined[0], 1);
    end_second(f, &second);
}

enum { LONG = 8 * SIZE };

/* Another memory of eight blocks, which copies so many at a time; texts begin like the long one. */
struct bounded {
    struct kv *kv;
    struct kv_table table, second;
    int32_t text[LONG + 1], other[LONG + 1];
};

static void bounded_open(struct bounded *b, struct tier *tier, uint32_t most_moves)
{
    static const struct kv_key nobody;
    struct kv_config kc = {.n_blocks = 8,
                           .block_tokens = SIZE,
                           .mover = {.read = read_block, .write = write_block},
                           .tier = &tier->base,
                           .most_moves = most_moves};
    assert_int_equal(kv_create(&kc, &b->kv, NULL), OK);
    for (int32_t i = 0; i <= LONG; i++) {
        b->text[i] = i;
        b->other[i] = 100 + i;
    }
    struct kv_table *const tables[] = {&b->table, &b->second};
    for (int i = 0; i < 2; i++) {
        assert_int_equal(kv_table_init(b->kv, tables[i], 8, NULL), OK);
        kv_table_begin(tables[i], i ? b->other : b->text, &nobody, true);
    }
}

static void bounded_close(struct bounded *b)
{
    const struct kv_table *all[] = {&b->table, &b->second};
    struct err_info e = {0};
    if (kv_check(b->kv, all, 2, &e) != OK)
        fail_msg("%s", e.text);
    kv_table_release(b->kv, &b->table, kv_fetched(b->kv, &b->table));
    kv_table_release(b->kv, &b->second, 0);
    kv_table_deinit(&b->table);
    kv_table_deinit(&b->second);
    kv_destroy(b->kv);
}

/* In memory that is full of what others left each block that comes drives one out, which is copied
 * only where the tier keeps it. */
static void copies_of_plans(struct fixture *f, bool keeps, uint32_t a_plan)
{
    struct bounded b;
    bounded_open(&b, &f->tier, 4);
    assert_int_equal(kv_table_grow(b.kv, &b.second, LONG, NULL), OK);
    kv_table_release(b.kv, &b.second, LONG);
    f->tier.keeps = keeps;
    f->tier.n_kept = 0;
    const uint32_t before = f->tier.n_asked;
    assert_true(kv_fetch_begin(b.kv, &b.table, 0, 6 * SIZE + 1));
    for (uint32_t n = a_plan; n < 6 + a_plan; n += a_plan) {
        const uint32_t all = n < 6 ? n : 6;
        assert_int_equal(f->tier.n_asked - before, all);
        assert_int_equal(kv_stats(b.kv).counts.evicted, all);
        assert_int_equal(f->tier.n_kept, keeps ? all : 0);
        assert_int_equal(kv_poll(b.kv), all < 6);
        assert_int_equal(kv_fetched(b.kv, &b.table), all * SIZE);
    }
    bounded_close(&b);
}

static void test_a_plan_copies_so_many_blocks(void **state)
{
    copies_of_plans(*state, true, 2);
    copies_of_plans(*state, false, 4);
}

/* Asked for few at a time, a tier that has them at once still sends them all in one poll: the first
 * to who began first. */
static void test_few_at_a_time_come_at_once(void **state)
{
    struct fixture *f = *state;
    static const struct kv_key nobody;
    for (uint32_t most = 1; most <= 4; most++) {
        struct kv_table second;
        f->tier = (struct tier){.base = {.ops = &ops, .most_asked = most}};
        kv_table_begin(&f->table, text, &nobody, true);
        assert_int_equal(kv_table_init(f->kv, &second, 6, NULL), OK);
        kv_table_begin(&second, other, &nobody, true);
        assert_true(kv_fetch_begin(f->kv, &f->table, 0, N_TOKENS));
        assert_int_equal(f->tier.n_asked, most < 3 ? most : 3);
        assert_int_equal(kv_stats(f->kv).blocks.in_use, f->tier.n_asked);
        assert_true(kv_fetch_begin(f->kv, &second, 0, N_TOKENS));
        assert_int_equal(f->tier.n_asked, most);
        assert_false(kv_poll(f->kv));
        assert_int_equal(f->tier.n_asked, 6);
        for (uint32_t i = 1; i < 6; i++)
            assert_true(f->tier.tickets[i] > f->tier.tickets[i - 1]);
        assert_int_equal(kv_fetched(f->kv, &f->table), 12);
        assert_int_equal(kv_fetched(f->kv, &second), 12);
        end_second(f, &second);
        kv_table_release(f->kv, &f->table, 12);
        assert_int_equal(kv_table_grow(f->kv, &f->table, 6 * SIZE, NULL), OK); /* drives all out */
        kv_table_release(f->kv, &f->table, 0);
        assert_int_equal(kv_table_grow(f->kv, &f->table, 6 * SIZE, NULL), OK);
        kv_table_release(f->kv, &f->table, 0);
    }
}

/* Nothing is asked for beside one that does not come. */
static void test_few_at_a_time_may_be_silent(void **state)
{
    struct fixture *f = *state;
    f->tier.base.most_asked = 1;
    f->tier.silent = true;
    assert_true(kv_fetch_begin(f->kv, &f->table, 0, N_TOKENS));
    for (uint32_t i = 0; i < 3; i++)
        assert_true(kv_poll(f->kv));
    assert_int_equal(f->tier.n_asked, 1);
    kv_set_pace(f->kv, 1000001, 0.0);
    assert_false(kv_poll(f->kv));
    assert_int_equal(kv_stats(f->kv).counts.fetches_abandoned[0], 1);
}

/* How many it copies in a plan is counted over all that it asks for in it. */
static void test_few_at_a_time_are_so_many_a_plan(void **state)
{
    struct fixture *f = *state;
    struct bounded b;
    f->tier.base.most_asked = 1;
    bounded_open(&b, &f->tier, 4);
    assert_int_equal(kv_table_grow(b.kv, &b.second, LONG, NULL), OK);
    kv_table_release(b.kv, &b.second, LONG);
    f->tier.keeps = true;
    assert_true(kv_fetch_begin(b.kv, &b.table, 0, 6 * SIZE + 1));
    for (uint32_t n = 1; n <= 5; n += 2) {
        assert_int_equal(f->tier.n_asked, n);
        assert_int_equal(f->tier.n_kept, n);
        assert_int_equal(kv_poll(b.kv), n < 5);
        assert_int_equal(kv_fetched(b.kv, &b.table), (n + 2 < 6 ? n + 2 : 6) * SIZE);
    }
    bounded_close(&b);
}

/* What is there at once says nothing of how long a block takes when nobody asked for it before. */
static void test_few_at_a_time_are_not_timed(void **state)
{
    struct fixture *f = *state;
    struct bounded b;
    f->tier.base.most_asked = 1;
    bounded_open(&b, &f->tier, 1); /* a block a plan, each of which takes long */
    f->tier.us_per_block = 300000;
    kv_set_pace(b.kv, 0, 310000.0 / SIZE);
    assert_true(kv_fetch_begin(b.kv, &b.table, 0, 6 * SIZE + 1));
    for (uint32_t i = 1; i <= 6; i++) {
        kv_set_pace(b.kv, i * 900000, 310000.0 / SIZE);
        assert_int_equal(kv_poll(b.kv), i < 5);
        assert_true(b.kv->seen[0].block_us == 300000); /* the tier's own word */
    }
    assert_int_equal(kv_fetched(b.kv, &b.table), 6 * SIZE);
    bounded_close(&b);
}

/* The places for the rest are taken later, and may be gone then: it is computed. */
static void test_a_fetch_ends_where_memory_does(void **state)
{
    struct fixture *f = *state;
    struct bounded b;
    bounded_open(&b, &f->tier, 2);
    assert_true(kv_fetch_begin(b.kv, &b.table, 0, 6 * SIZE + 1));
    assert_int_equal(kv_table_grow(b.kv, &b.second, 6 * SIZE, NULL), OK);
    assert_false(kv_poll(b.kv));
    assert_int_equal(kv_fetched(b.kv, &b.table), 2 * SIZE);
    assert_int_equal(b.table.n_blocks, 2);
    assert_false(b.table.no_fetch);
    assert_int_equal(kv_stats(b.kv).counts.fetches_abandoned[0], 0);
    assert_false(kv_fetch_begin(b.kv, &b.table, 2 * SIZE, 6 * SIZE + 1));
    bounded_close(&b);
}

/* Six blocks, each of which takes 310 ms to compute, and 300 to fetch, by what the tier says. */
static void begin_slowly(struct fixture *f, struct bounded *b)
{
    bounded_open(b, &f->tier, 0);
    f->tier.us_per_block = 300000;
    f->tier.one_by_one = true;
    kv_set_pace(b->kv, 0, 310000.0 / SIZE);
    assert_true(kv_fetch_begin(b->kv, &b->table, 0, 6 * SIZE + 1));
}

static bool poll_at(struct bounded *b, uint64_t now_us)
{
    kv_set_pace(b->kv, now_us, 310000.0 / SIZE);
    return kv_poll(b->kv);
}

static void test_gives_up_on_what_comes_slowly(void **state)
{
    struct fixture *f = *state;
    struct bounded b;
    begin_slowly(f, &b);
    assert_true(poll_at(&b, 600000)); /* once is no habit */
    assert_false(poll_at(&b, 1200000));
    assert_int_equal(kv_fetched(b.kv, &b.table), 2 * SIZE); /* which are kept */
    assert_int_equal(b.table.n_blocks, 2);
    assert_int_equal(kv_stats(b.kv).counts.fetches_abandoned[0], 1);
    assert_false(kv_fetch_begin(b.kv, &b.table, 2 * SIZE, 6 * SIZE + 1));
    bounded_close(&b);
}

/* Before anything has come, too. */
static void test_gives_up_when_waiting_takes_longer(void **state)
{
    struct fixture *f = *state;
    struct bounded b;
    f->tier.silent = true;
    begin_slowly(f, &b);
    assert_true(poll_at(&b, 600000));
    assert_false(poll_at(&b, 700000));
    assert_int_equal(kv_stats(b.kv).counts.fetches_abandoned[0], 1);
    bounded_close(&b);
}

/* Steps that take long are not the tier's fault: it sent all that it was asked for. */
static void test_waits_for_a_tier_that_waits_for_us(void **state)
{
    struct fixture *f = *state;
    struct bounded b;
    f->tier.n_buffers = 1;
    begin_slowly(f, &b);
    for (uint32_t i = 1; i <= 6; i++)
        assert_int_equal(poll_at(&b, i * 900000), i < 6);
    assert_int_equal(kv_fetched(b.kv, &b.table), 6 * SIZE);
    bounded_close(&b);
}

/* A second at most is not worth a judgement: where little is to come, a thread that was not woken
 * in time would decide. */
static void test_waits_for_what_will_soon_be_there(void **state)
{
    struct fixture *f = *state;
    f->tier.one_by_one = true;
    kv_set_pace(f->kv, 0, 10.1);
    assert_true(kv_fetch_begin(f->kv, &f->table, 0, N_TOKENS));
    for (uint32_t i = 1; i <= 3; i++) {
        kv_set_pace(f->kv, i * 900000, 10.1);
        assert_int_equal(kv_poll(f->kv), i < 3);
    }
    assert_int_equal(kv_fetched(f->kv, &f->table), 3 * SIZE);
}

/* Panes for one window and the block that comes: what the window passes while a step is under way
 * is there for the next arrival at once. */
static void test_a_window_moves_on_beside_a_step(void **state)
{
    struct fixture *f = *state;
    static const struct kv_key nobody;
    struct kv_config kc = {.n_blocks = 8,
                           .block_tokens = SIZE,
                           .mover = {.write = write_block},
                           .tier = &f->tier.base,
                           .window = SIZE,
                           .n_panes = 2};
    struct kv *kv;
    struct kv_table t;
    assert_int_equal(kv_create(&kc, &kv, NULL), OK);
    assert_int_equal(kv_table_init(kv, &t, 6, NULL), OK);
    kv_table_begin(&t, text, &nobody, true);
    kv_step_begun(kv);
    assert_true(kv_fetch_begin(kv, &t, 0, N_TOKENS));
    assert_false(kv_poll(kv));
    assert_int_equal(kv_fetched(kv, &t), 12);
    assert_int_equal(kv_panes_available(kv), 1);
    kv_step_ended(kv);
    const struct kv_table *all[] = {&t};
    assert_int_equal(kv_check(kv, all, 1, NULL), OK);
    kv_table_release(kv, &t, 12);
    kv_table_deinit(&t);
    kv_destroy(kv);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        TEST(test_fetches_what_is_faster),
        TEST(test_the_tier_hears_what_is_used),
        TEST(test_the_tier_hears_of_what_is_shared),
        TEST(test_declines_what_is_slower),
        TEST(test_gives_up_on_what_is_not_there),
        TEST(test_fetches_what_is_behind_a_lost_block),
        TEST(test_gives_up_on_silence),
        TEST(test_gives_up_on_what_is_out_of_order),
        TEST(test_takes_what_is_still_there),
        TEST(test_the_first_is_served_first),
        TEST(test_nobody_waits_for_a_silent_tier),
        TEST(test_who_is_before_counts),
        TEST(test_gives_up_on_what_comes_slowly),
        TEST(test_gives_up_when_waiting_takes_longer),
        TEST(test_waits_for_a_tier_that_waits_for_us),
        TEST(test_waits_for_what_will_soon_be_there),
        TEST(test_a_plan_copies_so_many_blocks),
        TEST(test_few_at_a_time_come_at_once),
        TEST(test_few_at_a_time_may_be_silent),
        TEST(test_few_at_a_time_are_so_many_a_plan),
        TEST(test_few_at_a_time_are_not_timed),
        TEST(test_a_fetch_ends_where_memory_does),
        TEST(test_a_window_moves_on_beside_a_step),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
