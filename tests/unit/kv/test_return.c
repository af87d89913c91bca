/* What comes back from the tiers after it was driven out of memory: runs of blocks that change
 * places with others, and what hangs on a beginning that never left. */
#include "disk_help.h"
#include "kv/host.h"
#include "kv/kv.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

enum {
    RUN = 10,                /* full blocks of a text */
    SIZE = HELP_TOKENS,      /* tokens of each */
    LENGTH = RUN * SIZE + 1, /* and one that is computed */
    N_TEXTS = 8,
    MOST_BLOCKS = 2 * RUN + 4, /* in memory */
};

/* Memory whose blocks say what they hold, above a tier. */
struct world {
    struct kv *kv;
    struct kv_tier *tier;
    struct kv_table table;
    int32_t texts[N_TEXTS][LENGTH];
    uint8_t memory[MOST_BLOCKS][HELP_PAYLOAD];
    uint32_t n_polls; /* of the last text */
};

static bool read_block(void *ctx, struct kv_place from, void *bytes)
{
    memcpy(bytes, ((struct world *)ctx)->memory[from.block], HELP_PAYLOAD);
    return true;
}

static void write_block(void *ctx, struct kv_place to, const void *bytes)
{
    memcpy(((struct world *)ctx)->memory[to.block], bytes, HELP_PAYLOAD);
}

static void copy_block(void *ctx, struct kv_place from, struct kv_place to)
{
    struct world *w = ctx;
    memcpy(w->memory[to.block], w->memory[from.block], HELP_PAYLOAD);
}

static struct world *world_open(struct kv_tier *tier, uint32_t n_blocks, uint32_t most_moves)
{
    struct world *w = calloc(1, sizeof *w);
    struct kv_config kc = {.n_blocks = n_blocks,
                           .block_tokens = SIZE,
                           .mover = {w, copy_block, read_block, write_block},
                           .tier = tier,
                           .most_moves = most_moves};
    assert_in_range(n_blocks, RUN + 1, MOST_BLOCKS);
    w->tier = tier;
    assert_int_equal(kv_create(&kc, &w->kv, NULL), OK);
    assert_int_equal(kv_table_init(w->kv, &w->table, RUN + 1, NULL), OK);
    for (int32_t i = 0; i < N_TEXTS; i++)
        for (int32_t k = 0; k < LENGTH; k++)
            w->texts[i][k] = 1000 * i + k;
    return w;
}

static void world_close(struct world *w)
{
    kv_table_deinit(&w->table);
    kv_destroy(w->kv);
    free(w);
}

static void check(struct world *w)
{
    const struct kv_table *all[] = {&w->table};
    struct err_info e = {0};
    if (kv_check(w->kv, all, 1, &e) != OK)
        fail_msg("%s", e.text);
}

static void poll_until_fetched(struct world *w)
{
    while (kv_fetching(&w->table)) {
        kv_poll(w->kv);
        check(w);
        w->n_polls++;
        usleep(50);
    }
}

/* Have the first n blocks of a text, and the token behind them, as a sequence has. Returns how many
 * were there, in memory and below. */
static uint32_t run_part(struct world *w, int text, uint32_t n)
{
    static const struct kv_key nobody;
    const int32_t *tokens = w->texts[text];
    const uint32_t length = n * SIZE + 1;
    struct kv_table *t = &w->table;
    kv_table_begin(t, tokens, &nobody, true);
    w->n_polls = 0;
    uint32_t at = kv_attach(w->kv, t, 0, length);
    while (kv_fetch_begin(w->kv, t, at, length)) {
        poll_until_fetched(w);
        at = kv_attach(w->kv, t, kv_fetched(w->kv, t), length);
    }
    for (uint32_t i = 0; i < at / SIZE; i++)
        assert_int_equal(*(int32_t *)w->memory[t->blocks[i]], tokens[i * SIZE]);
    assert_int_equal(kv_table_grow(w->kv, t, length, NULL), OK);
    for (uint32_t i = at / SIZE; i < n; i++)
        memcpy(w->memory[t->blocks[i]], &tokens[i * SIZE], sizeof *tokens);
    kv_table_release(w->kv, t, length);
    check(w);
    kv_poll(w->kv);
    return at / SIZE;
}

static uint32_t run(struct world *w, int text)
{
    return run_part(w, text, RUN);
}

/* --- RAM -------------------------------------------------------------------------------------- */

static double a_moment(void *ctx)
{
    (void)ctx;
    return 1;
}

struct ram {
    uint32_t n_slots;
    bool beside;         /* blocks move beside the host */
    uint32_t most_moves; /* of a plan; 0: any number */
    uint32_t n_later;    /* blocks of one more text that RAM was given behind the run's */
};

/* A text is driven out of memory to RAM that is full, and comes back: how much of it is found. */
static uint32_t comes_back(const struct ram *r, uint32_t *n_polls)
{
    struct kv_tier *host;
    struct kv_host_config hc = {.max_bytes = (uint64_t)r->n_slots * 1024,
                                .block_tokens = SIZE,
                                .block_bytes = HELP_PAYLOAD,
                                .move_us = r->beside ? a_moment : NULL};
    assert_int_equal(kv_host_open(&hc, &host, NULL), OK);
    struct world *w = world_open(host, RUN + 2, r->most_moves); /* and one that is never full */
    for (int text = 1; text < 6; text++)
        assert_int_equal(run(w, text), 0);
    assert_int_equal(run(w, 0), 0);
    assert_int_equal(run_part(w, 6, RUN), 0);
    if (r->n_later > 0)
        assert_int_equal(run_part(w, 7, r->n_later), 0);
    const uint32_t found = run(w, 0);
    *n_polls = w->n_polls;
    world_close(w);
    host->ops->destroy(host);
    return found;
}

/* Whatever is in the other places, and whether it is older or newer than the run. */
static void test_a_run_changes_places(void **state)
{
    (void)state;
    uint32_t n_polls;
    for (uint32_t n = RUN; n <= 3 * RUN; n++) {
        const struct ram r = {.n_slots = n, .n_later = 1};
        assert_int_equal(comes_back(&r, &n_polls), n == RUN ? RUN - 1 : RUN);
        assert_int_equal(n_polls, 1);
        for (uint32_t later = 2; later < RUN && RUN + 1 + later < n; later++) {
            const struct ram behind = {.n_slots = n, .n_later = later};
            assert_int_equal(comes_back(&behind, &n_polls), RUN);
        }
    }
}

/* Two at a time take one place more. */
static void test_a_run_changes_places_beside_the_host(void **state)
{
    (void)state;
    uint32_t n_polls;
    for (uint32_t n = RUN; n <= 3 * RUN; n++) {
        const struct ram r = {.n_slots = n, .beside = true, .n_later = 1};
        const uint32_t least = n == RUN ? RUN - 2 : n == RUN + 1 ? RUN - 1 : RUN;
        assert_int_equal(comes_back(&r, &n_polls), least);
        assert_int_equal(n_polls, 1);
    }
}

/* In several plans, too, each of which moves a few. */
static void test_a_run_changes_places_slowly(void **state)
{
    (void)state;
    uint32_t n_polls;
    for (uint32_t n = RUN; n <= 3 * RUN; n++) {
        const struct ram r = {.n_slots = n, .most_moves = 4, .n_later = 1};
        assert_int_equal(comes_back(&r, &n_polls), n == RUN ? RUN - 1 : RUN);
        assert_in_range(n_polls, 3, RUN / 2 + 1);
    }
}

/* --- the disk --------------------------------------------------------------------------------- */

enum { ROOT = 4, BRANCH = 3, ON_DISK = ROOT + 5 * BRANCH + 1 };

static void store_all(struct world *w)
{
    const uint64_t limit_us = clock_us() + 20000000;
    while (kv_store_rest(w->kv)) {
        assert_true(clock_us() < limit_us);
        usleep(50);
    }
}

/* The disk, and RAM above it if there is any. */
static struct kv_tier *open_tiers(struct disk_test *x, uint64_t ram_bytes)
{
    struct kv_tier *top = NULL;
    struct kv_host_config hc = {
        .max_bytes = ram_bytes, .block_tokens = SIZE, .block_bytes = HELP_PAYLOAD, .below = NULL};
    x->cfg.max_bytes = segments(ON_DISK);
    disk_test_open(x);
    hc.below = x->t;
    if (ram_bytes == 0)
        return x->t;
    assert_int_equal(kv_host_open(&hc, &top, NULL), OK);
    return top;
}

static void close_tiers(struct disk_test *x, struct kv_tier *top)
{
    top->ops->destroy(top);
    x->t = NULL;
}

/* Texts that begin alike are computed, one after the other, and far more of them than the disk has
 * room for. Their beginning never leaves memory, and is there after a restart, with the last. */
static void root_stays(struct disk_test *x, uint64_t ram_bytes)
{
    struct kv_tier *top = open_tiers(x, ram_bytes);
    struct world *w = world_open(top, RUN + 4, 0);
    for (int i = 1; i < N_TEXTS; i++)
        memcpy(w->texts[i], w->texts[0], ROOT * SIZE * sizeof w->texts[0][0]);
    for (int i = 0; i < N_TEXTS; i++) {
        assert_int_equal(run_part(w, i, ROOT + BRANCH), i == 0 ? 0 : ROOT);
        store_all(w);
    }
    assert_int_equal(tier_stats(x->t).fetched, 0);
    close_tiers(x, top);
    kv_destroy(w->kv);
    w->kv = NULL;
    top = open_tiers(x, ram_bytes);
    struct world *after = world_open(top, RUN + 4, 0);
    memcpy(after->texts, w->texts, sizeof w->texts);
    world_close(w);
    assert_int_equal(run_part(after, N_TEXTS - 1, ROOT + BRANCH), ROOT + BRANCH);
    world_close(after);
    close_tiers(x, top);
}

static void test_a_beginning_stays_on_disk(void **state)
{
    root_stays(*state, 0);
}

/* With RAM between them, from which nothing is driven out to the disk. */
static void test_a_beginning_stays_on_disk_below_ram(void **state)
{
    root_stays(*state, 5 * 1024);
}

/* Blocks that are written when their texts have long been let go of: what the disk has no room for
 * is the first text's end. */
static void test_a_beginning_stays_though_written_late(void **state)
{
    struct disk_test *x = *state;
    x->cfg.max_bytes = segments(RUN + RUN / 2);
    disk_test_open(x);
    struct world *w = world_open(x->t, 2 * RUN + 2, 0);
    for (int text = 0; text < 2; text++)
        assert_int_equal(run(w, text), 0);
    store_all(w);
    close_tiers(x, x->t);
    kv_destroy(w->kv);
    w->kv = NULL;
    disk_test_open(x);
    struct world *after = world_open(x->t, 2 * RUN + 2, 0);
    memcpy(after->texts, w->texts, sizeof w->texts);
    world_close(w);
    assert_int_equal(run(after, 0), RUN / 2);
    world_close(after);
    close_tiers(x, x->t);
}

int main(void)
{
#define DISK_TEST(name) cmocka_unit_test_setup_teardown(name, disk_test_setup, disk_test_teardown)
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_run_changes_places),
        cmocka_unit_test(test_a_run_changes_places_beside_the_host),
        cmocka_unit_test(test_a_run_changes_places_slowly),
        DISK_TEST(test_a_beginning_stays_on_disk),
        DISK_TEST(test_a_beginning_stays_on_disk_below_ram),
        DISK_TEST(test_a_beginning_stays_though_written_late),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
