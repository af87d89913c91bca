/* Several processes on one folder of the disk tier: who writes, who takes over, and what one leaves
 * that is killed at any moment. */
#include "disk_faults.h"

/* --- the lock --------------------------------------------------------------------------------- */

static bool wait_for(bool (*fn)(struct disk_test *x, struct kv_tier *t),
                     struct disk_test *x,
                     struct kv_tier *t)
{
    uint64_t limit_us = clock_us() + 20000000;
    while (!fn(x, t)) {
        if (clock_us() > limit_us)
            return false;
        usleep(10000);
    }
    return true;
}

static bool has_two(struct disk_test *x, struct kv_tier *t)
{
    return tier_has(x, t, 2);
}

static bool writes(struct disk_test *x, struct kv_tier *t)
{
    (void)x;
    return tier_stats(t).writes;
}

static void test_one_writes_the_other_reads_then_takes_over(void **state)
{
    struct disk_test *x = *state;
    struct kv_tier *reader;
    disk_test_open(x);
    assert_true(tier_store(x, x->t, 1));
    assert_int_equal(kv_disk_open(&x->cfg, &reader, NULL), OK);
    assert_true(tier_stats(reader).on && !tier_stats(reader).writes);
    assert_int_equal(tier_fetch(x, reader, 1), 1);
    assert_false(tier_queue(x, reader, 3));
    assert_int_equal(tier_stats(reader).dropped, 0);
    assert_true(tier_store(x, x->t, 2));
    assert_true(wait_for(has_two, x, reader));
    assert_int_equal(tier_fetch(x, reader, 2), 1);
    assert_int_equal(unlink(segment_path(x, 1)), 0);
    assert_int_equal(tier_fetch(x, reader, 1), 0);
    assert_false(tier_has(x, reader, 1));
    disk_test_close(x);
    assert_true(wait_for(writes, x, reader));
    assert_true(tier_store(x, reader, 3));
    assert_int_equal(tier_fetch(x, reader, 3), 1);
    assert_int_equal(tier_stats(reader).bytes, real_bytes(x->dir));
    reader->ops->destroy(reader);
}

/* What is not finished may be the writer's, and what is damaged is its to remove. */
static void test_who_only_reads_removes_nothing(void **state)
{
    struct disk_test *x = *state;
    struct kv_tier *reader;
    char temporary[256];
    disk_test_open(x);
    for (uint64_t id = 1; id < 4; id++)
        assert_true(tier_store(x, x->t, id));
    snprintf(temporary, sizeof temporary, "%s", segment_path(x, 1));
    snprintf(temporary + strlen(temporary) - 3, 8, ".tmp");
    write_file(temporary, "0123456", 7);
    assert_int_equal(truncate(segment_path(x, 2), 900), 0);
    assert_int_equal(kv_disk_open(&x->cfg, &reader, NULL), OK);
    assert_int_equal(truncate(segment_path(x, 3), 900), 0);
    assert_int_equal(tier_fetch(x, reader, 3), 0);
    reader->ops->destroy(reader);
    assert_true(exists(temporary));
    assert_true(exists(segment_path(x, 2)));
    assert_true(exists(segment_path(x, 3)));
}

/* Somebody empties the folder under a running server. */
static void test_folder_emptied_while_open(void **state)
{
    struct disk_test *x = *state;
    disk_test_open(x);
    assert_true(tier_store(x, x->t, 1));
    assert_int_equal(remove_folder(below(x, "abcd000000000000")), 0);
    assert_int_equal(tier_fetch(x, x->t, 1), 0);
    assert_true(tier_store(x, x->t, 1)); /* folders are made again */
    assert_int_equal(tier_fetch(x, x->t, 1), 1);
    assert_int_equal(unlink(below(x, "lock")), 0);
    assert_false(tier_store(x, x->t, 2)); /* no longer alone */
    assert_true(wait_for(writes, x, x->t));
    assert_true(tier_store(x, x->t, 2));
    assert_true(exists(below(x, "lock")));
    char away[512];
    snprintf(away, sizeof away, "%s", below(x, "away"));
    assert_int_equal(rename(below(x, "lock"), away), 0);
    assert_false(tier_store(x, x->t, 3));
    assert_true(wait_for(writes, x, x->t));
    assert_true(tier_store(x, x->t, 3));
    assert_true(exists(below(x, "lock")));
}

/* --- sudden death ----------------------------------------------------------------------------- */

enum { KILL_IDS = 64 };

static void store_until_killed(struct disk_test *x, uint64_t seed)
{
    if (kv_disk_open(&x->cfg, &x->t, NULL))
        _exit(1);
    for (;;) {
        uint64_t id = random_next(&seed) % KILL_IDS;
        writev_bytes = 1 + (int)(random_next(&seed) % 100); /* many places to die at */
        (void)tier_queue(x, x->t, id);
        if (id % 8 == 0 && tier_has(x, x->t, id) && tier_ask(x, x->t, id))
            (void)tier_take(x, x->t, id);
    }
}

struct found {
    struct kv_hasher *h;
    uint64_t n_bad, n_good, n_temporary;
} found;

static int check_file(const char *path, const struct stat *st, int kind, struct FTW *ftw)
{
    struct kv_segment s;
    struct err_info e;
    const char *suffix = strrchr(path + ftw->base, '.');
    (void)st;
    if (kind != FTW_F || !suffix)
        return 0;
    if (strcmp(suffix, ".tmp") == 0)
        found.n_temporary++;
    if (strcmp(suffix, ".kv") != 0)
        return 0;
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (kv_segment_verify(fd, found.h, &s, &e)) {
        print_message("%s: %s\n", path, e.text);
        found.n_bad++;
    } else {
        found.n_good++;
    }
    close(fd);
    return 0;
}

static void test_killed_at_any_moment(void **state)
{
    struct disk_test *x = *state;
    uint64_t seed = test_seed(), fetched = 0, n_temporary = 0;
    x->cfg.block_bytes = 20000;
    x->cfg.buffer_bytes = 8 * x->cfg.block_bytes;
    x->cfg.about = "to be killed";
    x->cfg.max_bytes = 40 * kv_segment_bytes(HELP_TOKENS, x->cfg.block_bytes) + 1000;
    for (int i = 0; i < 60; i++) {
        uint64_t child_seed = random_next(&seed);
        pid_t child = fork();
        assert_true(child >= 0);
        if (child == 0)
            store_until_killed(x, child_seed);
        usleep(1000 + (unsigned)(random_next(&seed) % 50000));
        assert_int_equal(kill(child, SIGKILL), 0);
        int status;
        assert_int_equal(waitpid(child, &status, 0), child);
        assert_true(WIFSIGNALED(status));
        assert_true(real_bytes(x->dir) <= x->cfg.max_bytes);
        found = (struct found){.h = x->h};
        nftw(x->dir, check_file, 16, FTW_PHYS);
        assert_int_equal(found.n_bad, 0);
        n_temporary += found.n_temporary;
        disk_test_open(x);
        assert_true(tier_stats(x->t).writes); /* the lock died with its holder */
        assert_int_equal(tier_stats(x->t).entries, found.n_good);
        assert_int_equal(tier_stats(x->t).bytes, real_bytes(x->dir));
        for (uint64_t id = 0; id < KILL_IDS; id++) {
            bool has = tier_has(x, x->t, id);
            assert_int_equal(tier_fetch(x, x->t, id), has);
            fetched += has;
        }
        assert_int_equal(tier_stats(x->t).ignored + tier_stats(x->t).errors, 0);
        disk_test_close(x);
    }
    print_message("60 kills left %llu unfinished files; %llu blocks came back\n",
                  (unsigned long long)n_temporary,
                  (unsigned long long)fetched);
    assert_true(fetched > 0);
}

/* Another process writes and evicts at full speed; this one reads. What it gets is right or
 * nothing; and when the writer dies, it takes over and tidies up. */
static void test_reading_beside_a_writer_that_dies(void **state)
{
    struct disk_test *x = *state;
    uint64_t seed = test_seed(), fetched = 0, missed = 0;
    x->cfg.max_bytes = segments(40);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0)
        store_until_killed(x, seed);
    while (real_bytes(x->dir) < segments(30)) /* so it has the lock */
        usleep(1000);
    disk_test_open(x);
    assert_false(tier_stats(x->t).writes);
    uint64_t end_us = clock_us() + 2500000; /* long enough to look again */
    while (clock_us() < end_us) {
        uint64_t id = random_next(&seed) % KILL_IDS;
        int got = tier_has(x, x->t, id) ? tier_fetch(x, x->t, id) : 0;
        assert_int_not_equal(got, -1);
        fetched += got == 1;
        missed += got == 0;
    }
    assert_int_equal(kill(child, SIGKILL), 0);
    assert_int_equal(waitpid(child, NULL, 0), child);
    end_us = clock_us() + 20000000;
    while (!tier_stats(x->t).writes && clock_us() < end_us)
        usleep(10000);
    struct kv_tier_stats s = tier_stats(x->t);
    assert_true(s.writes);
    assert_int_equal(s.ignored + s.errors, 0);
    found = (struct found){.h = x->h};
    nftw(x->dir, check_file, 16, FTW_PHYS);
    assert_int_equal(found.n_bad + found.n_temporary, 0);
    assert_int_equal(found.n_good, s.entries);
    assert_int_equal(s.bytes, real_bytes(x->dir));
    assert_true(tier_store(x, x->t, 1000));
    assert_true(real_bytes(x->dir) <= x->cfg.max_bytes);
    print_message("%llu fetched, %llu missed beside the writer\n",
                  (unsigned long long)fetched,
                  (unsigned long long)missed);
    assert_true(fetched > 0);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        TEST(test_one_writes_the_other_reads_then_takes_over),
        TEST(test_who_only_reads_removes_nothing),
        TEST(test_folder_emptied_while_open),
        TEST(test_killed_at_any_moment),
        TEST(test_reading_beside_a_writer_that_dies),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
