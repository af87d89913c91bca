/* The disk tier on full and failing disks: what it does without, for how long, and what it keeps.
 */
#include "disk_faults.h"

/* --- errors of the disk ----------------------------------------------------------------------- */

/* Blocks 1 and 2 are stored; storing 3 fails in some way; all that was there stays usable. */
static void writing_fails(struct disk_test *x)
{
    struct kv_tier_stats s = tier_stats(x->t);
    uint64_t errors = s.errors;
    assert_false(tier_store(x, x->t, 3));
    s = tier_stats(x->t);
    assert_true(s.on && !s.writes);
    assert_int_equal(s.errors, errors + 1);
    assert_false(tier_queue(x, x->t, 4));
    assert_int_equal(tier_fetch(x, x->t, 1), 1);
    assert_int_equal(tier_fetch(x, x->t, 2), 1);
    assert_false(tier_has(x, x->t, 3));
    assert_int_equal(s.bytes, real_bytes(x->dir));
    assert_int_equal(real_bytes(x->dir), segments(2));
}

static void open_with(struct disk_test *x, uint64_t n)
{
    disk_test_open(x);
    for (uint64_t id = 1; id <= n; id++)
        assert_true(tier_store(x, x->t, id));
}

static void open_with_two(struct disk_test *x)
{
    open_with(x, 2);
}

static void test_full_disk(void **state)
{
    struct disk_test *x = *state;
    open_with_two(x);
    writev_bytes = 100; /* some of it fits */
    writev_errno = ENOSPC;
    writing_fails(x);
    writev_errno = writev_bytes = 0;
    disk_test_open(x);
    assert_true(tier_store(x, x->t, 3));
}

/* The tier's thread looks whether it is time to list the folder when it has done something. */
static void let_it_list(struct disk_test *x)
{
    const uint64_t n = n_listed;
    const time_t limit = time(NULL) + 20;
    do
        assert_int_equal(tier_fetch(x, x->t, 1), 1);
    while (n_listed == n && !tier_stats(x->t).writes && time(NULL) < limit);
    assert_int_equal(tier_fetch(x, x->t, 1), 1); /* so it has done with it */
}

/* Not writing, it lists the folder at the end, or writes again. The first time may have begun
 * before the seconds had passed. */
static void time_passes(struct disk_test *x, int64_t seconds)
{
    seconds_passed += seconds - 3;
    let_it_list(x);
    seconds_passed += 3;
    if (!tier_stats(x->t).writes)
        let_it_list(x);
}

static struct {
    int stopped, went_on;
} told;

static void count_told(void *ctx, int level, const char *line)
{
    (void)ctx;
    told.stopped += level == LOG_WARN && strstr(line, "nothing is written to it for 60 s");
    told.went_on += level == LOG_INFO && strstr(line, "writing to it from now on");
}

static void test_writes_again_after_a_full_disk(void **state)
{
    struct disk_test *x = *state;
    const struct {
        _Atomic int *fails;
        int error;
    } cases[] = {{&writev_errno, ENOSPC},
                 {&writev_errno, EDQUOT},
                 {&create_errno, ENOSPC},
                 {&mkdir_errno, EDQUOT},
                 {&rename_errno, EDQUOT},
                 {&unlink_errno, ENOSPC}};
    log_set_level(LOG_INFO);
    log_set_sink(count_told, NULL);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        told.stopped = told.went_on = 0;
        x->cfg.max_bytes = segments(cases[i].fails == &unlink_errno ? 2 : 3);
        open_with_two(x);
        *cases[i].fails = cases[i].error;
        writing_fails(x);
        time_passes(x, 55);
        assert_false(tier_stats(x->t).writes);
        *cases[i].fails = 0;
        time_passes(x, 8);
        assert_true(tier_stats(x->t).writes);
        assert_true(tier_store(x, x->t, 3));
        assert_int_equal(tier_fetch(x, x->t, 3), 1);
        assert_int_equal(tier_stats(x->t).bytes, real_bytes(x->dir));
        disk_test_close(x);
        assert_int_equal(told.stopped, 1);
        assert_int_equal(told.went_on, 1);
        char model[300];
        snprintf(model, sizeof model, "%s/abcd000000000000", x->dir);
        assert_int_equal(remove_folder(model), 0);
    }
}

/* The disk stays full for as long as it takes; then it has room for longer than the last pause. */
static void test_pauses_double_up_to_ten_minutes(void **state)
{
    struct disk_test *x = *state;
    const int64_t pauses[] = {60, 120, 240, 480, 600, 600, 600, 60};
    enum { N = sizeof pauses / sizeof *pauses };
    open_with_two(x);
    for (int i = 0; i < N; i++) {
        writev_errno = ENOSPC;
        writing_fails(x);
        time_passes(x, pauses[i] - 5);
        assert_false(tier_stats(x->t).writes);
        time_passes(x, 8);
        assert_true(tier_stats(x->t).writes);
        if (i < N - 3)
            continue;
        writev_errno = 0; /* for one block, and another ten minutes later */
        if (i == N - 2)
            seconds_passed += 600;
        assert_true(tier_store(x, x->t, 3));
        assert_int_equal(unlink(segment_path(x, 3)), 0);
        assert_int_equal(tier_fetch(x, x->t, 3), 0);
    }
}

static void test_other_errors_are_final(void **state)
{
    struct disk_test *x = *state;
    _Atomic int *const fails[] = {&writev_errno, &rename_errno, &create_errno};
    const int errors[] = {EIO, EROFS, EACCES};
    for (int i = 0; i < 3; i++) {
        disk_test_open(x);
        for (uint64_t id = 1; id < 3; id++)
            assert_true(tier_has(x, x->t, id) || tier_store(x, x->t, id));
        *fails[i] = errors[i];
        writing_fails(x);
        *fails[i] = 0;
        time_passes(x, 3600);
        assert_false(tier_stats(x->t).writes);
    }
}

/* Who cannot write lets another, and does not come back at once when that is gone. */
static void another_may_write(struct disk_test *x)
{
    struct kv_tier *others[2];
    for (int i = 0; i < 2; i++) {
        assert_int_equal(kv_disk_open(&x->cfg, &others[i], NULL), OK);
        assert_true(tier_stats(others[i]).writes);
        assert_true(tier_store(x, others[i], (uint64_t)(10 + i)));
        const bool on = tier_stats(x->t).on; /* then it looks again every few seconds */
        for (int n = 0; on && n < 2000 && !tier_has(x, x->t, (uint64_t)(10 + i)); n++)
            usleep(10000);
        assert_int_equal(tier_has(x, x->t, (uint64_t)(10 + i)), on);
        others[i]->ops->destroy(others[i]);
    }
    assert_false(tier_stats(x->t).writes);
}

static void test_another_writes_after_a_full_disk(void **state)
{
    struct disk_test *x = *state;
    open_with_two(x);
    writev_errno = ENOSPC;
    writing_fails(x);
    writev_errno = 0;
    another_may_write(x);
    time_passes(x, 63);
    assert_true(tier_stats(x->t).writes);
    assert_true(tier_store(x, x->t, 3));
}

static void test_another_writes_after_unreadable_files(void **state)
{
    struct disk_test *x = *state;
    open_with(x, 8);
    open_errno = EIO;
    for (uint64_t id = 1; id <= 8; id++)
        assert_int_equal(tier_fetch(x, x->t, id), 0);
    open_errno = 0;
    assert_false(tier_stats(x->t).on);
    another_may_write(x);
}

static void test_failing_disk(void **state)
{
    struct disk_test *x = *state;
    open_with_two(x);
    writev_errno = EIO;
    writing_fails(x);
}

static void test_failing_rename(void **state)
{
    struct disk_test *x = *state;
    open_with_two(x);
    rename_errno = EROFS;
    writing_fails(x);
}

/* What cannot be evicted is not exceeded either. */
static void test_failing_eviction(void **state)
{
    struct disk_test *x = *state;
    x->cfg.max_bytes = segments(2);
    open_with_two(x);
    unlink_errno = EACCES;
    writing_fails(x);
}

static void test_file_size_limit(void **state)
{
    struct disk_test *x = *state;
    struct rlimit was, small = {.rlim_cur = 500};
    open_with_two(x);
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &was), 0);
    small.rlim_max = was.rlim_max;
    fflush(stdout);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
    bool stored = tier_store(x, x->t, 3); /* SIGXFSZ would end this program */
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &was), 0);
    assert_false(stored);
    struct kv_tier_stats s = tier_stats(x->t);
    assert_true(s.on && !s.writes);
    assert_int_equal(tier_fetch(x, x->t, 1), 1);
    assert_int_equal(real_bytes(x->dir), segments(2));
}

static void test_folder_replaced_by_a_file(void **state)
{
    struct disk_test *x = *state;
    char path[256], away[300];
    open_with_two(x);
    snprintf(path, sizeof path, "%s/abcd000000000000", x->dir);
    snprintf(away, sizeof away, "%s.away", path);
    assert_int_equal(rename(path, away), 0);
    write_file(path, "", 0);
    assert_false(tier_store(x, x->t, 3));
    assert_false(tier_stats(x->t).writes);
    assert_int_equal(unlink(path), 0);
    assert_int_equal(rename(away, path), 0);
    assert_int_equal(tier_fetch(x, x->t, 1), 1);
}

/* The path of the unfinished file of block `id`, whose folder is made. */
static void make_temporary_path(struct disk_test *x, uint64_t id, char path[256])
{
    snprintf(path, 256, "%s", segment_path(x, id));
    *strrchr(path, '/') = '\0';
    (void)mkdir(path, 0700);
    snprintf(path, 256, "%s", segment_path(x, id));
    snprintf(strrchr(path, '.'), 8, ".tmp");
}

/* Block `id` was not written, which is all. */
static void only_this_one_fails(struct disk_test *x, uint64_t id, uint64_t n_errors)
{
    struct kv_tier_stats s = tier_stats(x->t);
    assert_true(s.on && s.writes);
    assert_int_equal(s.errors, n_errors);
    assert_int_equal(s.dropped, n_errors);
    assert_int_equal(s.bytes, real_bytes(x->dir));
    assert_true(tier_store(x, x->t, id));
    assert_int_equal(tier_fetch(x, x->t, id), 1);
}

/* Somebody empties the folder, but for the lock, while a block is written. */
static void test_emptied_while_it_writes(void **state)
{
    struct disk_test *x = *state;
    char model[300];
    open_with_two(x);
    pthread_mutex_lock(&gate);
    assert_true(tier_queue(x, x->t, 3));
    while (!at_gate)
        usleep(50);
    snprintf(model, sizeof model, "%s/abcd000000000000", x->dir);
    assert_int_equal(remove_folder(model), 0);
    pthread_mutex_unlock(&gate);
    while (tier_stats(x->t).dropped == 0)
        usleep(50);
    assert_int_equal(tier_fetch(x, x->t, 1), 0);
    assert_int_equal(tier_fetch(x, x->t, 2), 0);
    only_this_one_fails(x, 3, 1);
    _Atomic int *const fails[] = {&create_errno, &mkdir_errno, &rename_errno};
    for (uint64_t i = 0; i < 3; i++) {
        *fails[i] = ENOENT; /* the same before its file is there, and before its folder is */
        assert_false(tier_store(x, x->t, 4 + i));
        *fails[i] = 0;
        only_this_one_fails(x, 4 + i, 2 + i);
    }
}

static void wait_for_entries(struct disk_test *x, uint64_t n)
{
    const time_t limit = time(NULL) + 20;
    while (tier_stats(x->t).entries != n && time(NULL) < limit)
        usleep(1000);
    assert_int_equal(tier_fetch(x, x->t, 100), 0); /* so it has done with it */
    const struct kv_tier_stats s = tier_stats(x->t);
    assert_true(s.on && s.writes);
    assert_int_equal(s.entries, n);
    assert_int_equal(s.bytes, real_bytes(x->dir));
}

/* Files vanish under one that writes: it notices when it asks for one. */
static void test_vanished_files_are_forgotten(void **state)
{
    struct disk_test *x = *state;
    char path[300];
    x->cfg.about = "a model";
    x->cfg.max_bytes = segments(6) + 8;
    open_with(x, 6);
    tier_use(x, x->t, 1);
    for (uint64_t id = 2; id <= 4; id++)
        assert_int_equal(unlink(segment_path(x, id)), 0);
    seconds_passed += 3;
    assert_int_equal(tier_fetch(x, x->t, 2), 0);
    wait_for_entries(x, 3);
    assert_true(tier_has(x, x->t, 5) && tier_has(x, x->t, 6) && tier_has(x, x->t, 1));
    assert_false(tier_has(x, x->t, 3) || tier_has(x, x->t, 4));
    for (uint64_t id = 7; id <= 11; id++)
        assert_true(tier_store(x, x->t, id)); /* 5 and 6 make room: 1 was used later */
    wait_for_entries(x, 6);
    assert_int_equal(tier_fetch(x, x->t, 1), 1);

    snprintf(path, sizeof path, "%s/abcd000000000000", x->dir);
    assert_int_equal(remove_folder(path), 0);
    seconds_passed -= 60; /* it is not time yet, however slow this is */
    const uint64_t n = n_listed;
    assert_int_equal(tier_fetch(x, x->t, 1), 0);
    assert_int_equal(tier_fetch(x, x->t, 7), 0); /* not a listing for each */
    assert_int_equal(n_listed, n);
    assert_int_equal(tier_stats(x->t).entries, 4);
    seconds_passed += 63;
    assert_int_equal(tier_fetch(x, x->t, 8), 0);
    wait_for_entries(x, 0);
    assert_true(tier_store(x, x->t, 9));
    assert_int_equal(tier_fetch(x, x->t, 9), 1);
}

/* What was torn has been counted when the folder is listed again and it lies there no more. */
static void test_what_was_ignored_stays_counted(void **state)
{
    struct disk_test *x = *state;
    open_with(x, 3);
    assert_int_equal(truncate(segment_path(x, 1), 7), 0);
    disk_test_open(x);
    assert_int_equal(tier_stats(x->t).ignored, 1);
    assert_int_equal(unlink(segment_path(x, 2)), 0);
    const uint64_t n = n_listed;
    seconds_passed += 3;
    assert_int_equal(tier_fetch(x, x->t, 2), 0);
    const time_t limit = time(NULL) + 20;
    while (n_listed == n && time(NULL) < limit)
        usleep(1000);
    wait_for_entries(x, 1);
    assert_int_equal(tier_stats(x->t).ignored, 1);
}

/* What a reader met and left there is not met again when it may write, and removes it. */
static void test_what_a_reader_ignored_is_counted_once(void **state)
{
    struct disk_test *x = *state;
    struct kv_tier *other;
    open_with_two(x);
    assert_int_equal(truncate(segment_path(x, 1), 7), 0);
    assert_int_equal(kv_disk_open(&x->cfg, &other, NULL), OK);
    assert_int_equal(tier_stats(other).ignored, 1);
    disk_test_close(x);
    seconds_passed += 3;
    const time_t limit = time(NULL) + 20;
    while (!tier_stats(other).writes && time(NULL) < limit) {
        (void)tier_fetch(x, other, 9);
        usleep(1000);
    }
    assert_true(tier_stats(other).writes);
    assert_int_equal(tier_stats(other).ignored, 1);
    other->ops->destroy(other);
}

/* With the lock, too: then another may write, and nothing of its is touched. */
static void test_files_and_lock_vanish(void **state)
{
    struct disk_test *x = *state;
    struct kv_tier *other;
    char path[300];
    open_with_two(x);
    snprintf(path, sizeof path, "%s/lock", x->dir);
    assert_int_equal(unlink(path), 0);
    assert_int_equal(unlink(segment_path(x, 1)), 0);
    assert_int_equal(kv_disk_open(&x->cfg, &other, NULL), OK);
    assert_true(tier_stats(other).writes);
    make_temporary_path(x, 3, path);
    write_file(path, "0123456", 7);
    seconds_passed += 3;
    assert_int_equal(tier_fetch(x, x->t, 1), 0);
    const time_t limit = time(NULL) + 20;
    while (tier_stats(x->t).writes && time(NULL) < limit)
        usleep(1000);
    assert_false(tier_stats(x->t).writes);
    assert_int_equal(tier_fetch(x, x->t, 2), 1); /* so it has done with it */
    assert_true(exists(path));
    other->ops->destroy(other);
}

/* The folder itself is removed, and there is another by its name later. */
static void test_folder_made_anew(void **state)
{
    struct disk_test *x = *state;
    open_with_two(x);
    assert_int_equal(remove_folder(x->dir), 0);
    assert_false(tier_store(x, x->t, 3));
    assert_false(tier_stats(x->t).writes);
    assert_int_equal(tier_fetch(x, x->t, 1), 0);
    assert_int_equal(mkdir(x->dir, 0700), 0);
    seconds_passed += 3;
    const time_t limit = time(NULL) + 20;
    while (!tier_stats(x->t).writes && time(NULL) < limit)
        usleep(1000);
    wait_for_entries(x, 0);
    assert_true(tier_store(x, x->t, 4));
    assert_int_equal(tier_fetch(x, x->t, 4), 1);
    assert_int_equal(tier_stats(x->t).bytes, real_bytes(x->dir));
}

static void test_unfinished_file_in_the_way(void **state)
{
    struct disk_test *x = *state;
    char path[256];
    open_with_two(x);
    make_temporary_path(x, 3, path);
    write_file(path, "0123456", 7);
    assert_true(tier_store(x, x->t, 3));
    assert_int_equal(tier_fetch(x, x->t, 3), 1);
    assert_int_equal(tier_stats(x->t).errors, 0);
    make_temporary_path(x, 4, path);
    assert_int_equal(mkdir(path, 0700), 0); /* this does not go away */
    assert_false(tier_store(x, x->t, 4));
    assert_int_equal(rmdir(path), 0);
    only_this_one_fails(x, 4, 1);
}

static void test_unreadable_sectors(void **state)
{
    struct disk_test *x = *state;
    open_with_two(x);
    n_pread = 0;
    pread_errno = EIO;
    assert_int_equal(tier_fetch(x, x->t, 1), 0);
    pread_errno = 0;
    if (n_pread == 0)
        skip(); /* the C library was built to call another */
    struct kv_tier_stats s = tier_stats(x->t);
    assert_true(s.on && s.writes);
    assert_int_equal(s.errors, 1);
    assert_int_equal(s.ignored, 0);
    assert_false(tier_has(x, x->t, 1)); /* it is not tried again */
    assert_int_equal(tier_fetch(x, x->t, 2), 1);
    disk_test_open(x); /* but that may have passed */
    assert_int_equal(tier_fetch(x, x->t, 1), 1);
}

/* A disk from which nothing comes any more is left alone; less is not enough for that. */
static void test_nothing_can_be_read(void **state)
{
    struct disk_test *x = *state;
    open_with(x, 15);
    open_errno = EACCES;
    for (uint64_t id = 1; id <= 7; id++)
        assert_int_equal(tier_fetch(x, x->t, id), 0);
    assert_true(tier_stats(x->t).on);
    open_errno = 0;
    assert_int_equal(tier_fetch(x, x->t, 8), 1);
    open_errno = EIO;
    for (uint64_t id = 8; id <= 15; id++) {
        assert_true(tier_stats(x->t).on);
        assert_int_equal(tier_fetch(x, x->t, id), 0);
    }
    struct kv_tier_stats s = tier_stats(x->t);
    assert_true(!s.on && !s.writes);
    assert_int_equal(s.errors, 15);
    assert_int_equal(s.entries, 0);
    assert_false(tier_has(x, x->t, 1));
    assert_false(tier_ask(x, x->t, 1));
    assert_false(tier_queue(x, x->t, 3));
    open_errno = 0;
    disk_test_open(x);
    assert_int_equal(tier_fetch(x, x->t, 1), 1);
}

/* Block 1 of those in the folder cannot be read, however often it is asked for. */
static void one_cannot_be_read(struct disk_test *x, struct kv_tier *t, _Atomic int *fails)
{
    const uint64_t errors = tier_stats(t).errors;
    *fails = EIO;
    for (int i = 0; i < 20; i++)
        assert_int_equal(tier_fetch(x, t, 1), 0);
    *fails = 0;
    assert_true(tier_stats(t).on);
    assert_int_equal(tier_stats(t).errors, errors + 20);
    assert_false(tier_has(x, t, 1));
    assert_true(tier_has(x, t, 2));
}

static void is_written_again(struct disk_test *x, _Atomic int *fails)
{
    one_cannot_be_read(x, x->t, fails);
    assert_true(tier_stats(x->t).writes);
    assert_int_equal(tier_stats(x->t).bytes, segments(2)); /* it is there */
    assert_true(exists(segment_path(x, 1)));
    assert_true(tier_store(x, x->t, 1));
    assert_true(tier_has(x, x->t, 1));
    assert_int_equal(tier_fetch(x, x->t, 1), 1);
    assert_int_equal(tier_fetch(x, x->t, 2), 1);
    assert_int_equal(tier_stats(x->t).entries, 2);
    assert_int_equal(tier_stats(x->t).evicted, 0);
    assert_int_equal(tier_stats(x->t).bytes, real_bytes(x->dir));
}

static void test_an_unreadable_block_is_written_again(void **state)
{
    struct disk_test *x = *state;
    x->cfg.max_bytes = segments(2);
    open_with_two(x);
    is_written_again(x, &open_errno);
    n_pread = 0;
    assert_int_equal(tier_fetch(x, x->t, 1), 1);
    if (n_pread > 0) /* or the C library was built to call another */
        is_written_again(x, &pread_errno);
}

/* The listings of one that reads find it each time. */
static void test_a_reader_tries_again_after_minutes(void **state)
{
    struct disk_test *x = *state;
    struct kv_tier *reader;
    open_with_two(x);
    assert_int_equal(kv_disk_open(&x->cfg, &reader, NULL), OK);
    n_pread = 0;
    assert_int_equal(tier_fetch(x, reader, 1), 1);
    for (int i = 0; i < 10; i++) {
        one_cannot_be_read(x, reader, i % 2 && n_pread > 0 ? &pread_errno : &open_errno);
        for (int j = 0; j < 2; j++) {
            const uint64_t n = n_listed;
            const time_t limit = time(NULL) + 20;
            seconds_passed += 140;
            while (n_listed == n && time(NULL) < limit)
                assert_int_equal(tier_fetch(x, reader, 9), 0); /* it is not there */
            assert_int_equal(tier_fetch(x, reader, 9), 0);     /* so it has done with it */
            assert_false(tier_has(x, reader, 1));
        }
        const time_t limit = time(NULL) + 20;
        seconds_passed += 30;
        while (!tier_has(x, reader, 1) && time(NULL) < limit)
            assert_int_equal(tier_fetch(x, reader, 9), 0);
        assert_true(tier_has(x, reader, 1));
    }
    assert_int_equal(tier_fetch(x, reader, 1), 1);
    reader->ops->destroy(reader);
}

/* What is wanting is not the disk's: it is as good as before when there are some again. */
static void test_no_descriptor_left(void **state)
{
    struct disk_test *x = *state;
    x->cfg.max_bytes = segments(2);
    open_with_two(x);
    open_errno = EMFILE;
    for (int i = 0; i < 20; i++)
        assert_int_equal(tier_fetch(x, x->t, 2), 0);
    open_errno = 0;
    list_errno = ENFILE; /* 1 cannot be removed to make room */
    assert_false(tier_store(x, x->t, 3));
    assert_int_equal(tier_fetch(x, x->t, 2), 0);
    list_errno = 0;
    create_errno = EMFILE; /* it can, but nothing comes into its place */
    assert_false(tier_store(x, x->t, 3));
    create_errno = 0;
    struct kv_tier_stats s = tier_stats(x->t);
    assert_true(s.on && s.writes);
    assert_int_equal(s.errors, 23);
    assert_int_equal(s.entries, 1);
    assert_int_equal(s.bytes, real_bytes(x->dir));
    assert_int_equal(tier_fetch(x, x->t, 2), 1);
    assert_true(tier_store(x, x->t, 3));
    assert_int_equal(tier_fetch(x, x->t, 3), 1);
}

/* A folder of segments that cannot be listed would not be in the sum, so it is not done without. */
static void test_unlisted_folder(void **state)
{
    struct disk_test *x = *state;
    struct kv_tier *t;
    struct err_info e = {0};
    open_with_two(x);
    disk_test_close(x);
    list_errno = EMFILE;
    assert_int_equal(kv_disk_open(&x->cfg, &t, &e), ERR_IO);
    assert_null(t);
    assert_non_null(strstr(e.text, x->dir));
    list_errno = 0;
    disk_test_open(x);
    assert_true(tier_stats(x->t).writes); /* the lock was let go */
    assert_int_equal(tier_stats(x->t).entries, 2);
}

/* A large folder takes its time, which nobody waits for who fetches meanwhile. */
static void test_fetches_go_on_beside_a_listing(void **state)
{
    struct disk_test *x = *state;
    struct kv_tier *reader;
    enum { N = 600 };
    open_with(x, N);
    assert_int_equal(kv_disk_open(&x->cfg, &reader, NULL), OK);
    const uint64_t n = n_listed;
    stat_until = n_statted + 200; /* it stands still there, and before its end */
    seconds_passed += 60;
    assert_true(tier_ask(x, reader, 1)); /* it wakes, and lists then */
    while (n_listed == n)
        usleep(100);
    assert_true(tier_ask(x, reader, 2));
    stat_until += N - 200;
    assert_int_equal(tier_take(x, reader, 1), 1);
    assert_int_equal(tier_take(x, reader, 2), 1);
    stat_until = 0;
    reader->ops->destroy(reader);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        TEST(test_full_disk),
        TEST(test_writes_again_after_a_full_disk),
        TEST(test_pauses_double_up_to_ten_minutes),
        TEST(test_other_errors_are_final),
        TEST(test_failing_disk),
        TEST(test_failing_rename),
        TEST(test_failing_eviction),
        TEST(test_file_size_limit),
        TEST(test_folder_replaced_by_a_file),
        TEST(test_emptied_while_it_writes),
        TEST(test_vanished_files_are_forgotten),
        TEST(test_what_was_ignored_stays_counted),
        TEST(test_what_a_reader_ignored_is_counted_once),
        TEST(test_files_and_lock_vanish),
        TEST(test_folder_made_anew),
        TEST(test_unfinished_file_in_the_way),
        TEST(test_unreadable_sectors),
        TEST(test_nothing_can_be_read),
        TEST(test_an_unreadable_block_is_written_again),
        TEST(test_a_reader_tries_again_after_minutes),
        TEST(test_another_writes_after_a_full_disk),
        TEST(test_another_writes_after_unreadable_files),
        TEST(test_no_descriptor_left),
        TEST(test_unlisted_folder),
        TEST(test_fetches_go_on_beside_a_listing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
