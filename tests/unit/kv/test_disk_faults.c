/* The disk tier when things go wrong: full and failing disks, processes killed in the middle, and
 * the limit watched at every system call.
 *
 * The functions below stand in for the C library's of the same name, in this program only: they can
 * fail, wait at a gate, and look at the folder after each change, when nothing else is going on. */
#include "base/log.h"
#include "disk_help.h"

#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>

#include <cmocka.h>

static _Atomic int writev_errno, writev_bytes, pread_errno, open_errno, unlink_errno, rename_errno;
static _Atomic int list_errno;   /* of a model's folder */
static _Atomic int create_errno; /* of any file */
static _Atomic int mkdir_errno;
static _Atomic uint64_t n_writev, n_pread;
static _Atomic uint64_t n_listed;      /* times that the whole folder was */
static _Atomic int64_t seconds_passed; /* that nobody waited for */
/* the folder whose size is watched, its limit, and the largest size seen */
static const char *_Atomic watched_dir;
static _Atomic uint64_t watched_max, n_looks;
/* writev waits while it is closed */
static pthread_mutex_t gate = PTHREAD_MUTEX_INITIALIZER;
static atomic_bool at_gate;

static void look(void)
{
    int saved = errno;
    const char *dir = watched_dir;
    if (dir) {
        uint64_t now = real_bytes(dir);
        if (now > watched_max)
            watched_max = now;
        n_looks++;
    }
    errno = saved;
}

ssize_t writev(int fd, const struct iovec *parts, int n)
{
    struct iovec few = parts[0];
    const int most = writev_bytes; /* read once: another thread may set it meanwhile */
    n_writev++;
    at_gate = true;
    pthread_mutex_lock(&gate);
    pthread_mutex_unlock(&gate);
    at_gate = false;
    if (most > 0 && few.iov_len > (size_t)most) {
        few.iov_len = (size_t)most;
        parts = &few;
        n = 1;
    } else if (writev_errno) {
        errno = writev_errno;
        return -1;
    }
    ssize_t wrote = syscall(SYS_writev, fd, parts, n);
    look();
    return wrote;
}

ssize_t pread(int fd, void *out, size_t n, off_t at)
{
    n_pread++;
    if (pread_errno) {
        errno = pread_errno;
        return -1;
    }
    return syscall(SYS_pread64, fd, out, n, at);
}

int openat(int dir, const char *name, int flags, ...)
{
    va_list ap;
    va_start(ap, flags);
    int mode = flags & O_CREAT ? va_arg(ap, int) : 0;
    va_end(ap);
    if (open_errno && strstr(name, ".kv")) {
        errno = open_errno;
        return -1;
    }
    if (list_errno && strcmp(name, "abcd000000000000") == 0) {
        errno = list_errno;
        return -1;
    }
    if (create_errno && flags & O_CREAT) {
        errno = create_errno;
        return -1;
    }
    n_listed += strcmp(name, ".") == 0;
    int fd = (int)syscall(SYS_openat, dir, name, flags, mode);
    if (flags & O_CREAT)
        look();
    return fd;
}

int unlinkat(int dir, const char *name, int flags)
{
    if (unlink_errno && strstr(name, ".kv")) {
        errno = unlink_errno;
        return -1;
    }
    int rc = (int)syscall(SYS_unlinkat, dir, name, flags);
    look();
    return rc;
}

int renameat(int from_dir, const char *from, int to_dir, const char *to)
{
    if (rename_errno) {
        errno = rename_errno;
        return -1;
    }
    int rc = (int)syscall(SYS_renameat2, from_dir, from, to_dir, to, 0);
    look();
    return rc;
}

int mkdirat(int dir, const char *name, mode_t mode)
{
    if (mkdir_errno) {
        errno = mkdir_errno;
        return -1;
    }
    return (int)syscall(SYS_mkdirat, dir, name, mode);
}

/* What sleeps meanwhile does not wake by it. */
int clock_gettime(clockid_t clock, struct timespec *t)
{
    int rc = (int)syscall(SYS_clock_gettime, clock, t);
    if (rc == 0 && clock == CLOCK_MONOTONIC)
        t->tv_sec += seconds_passed;
    return rc;
}

static int setup(void **state)
{
    struct disk_test *x = malloc(sizeof *x);
    disk_test_init(x);
    log_set_level(LOG_ERROR);
    writev_errno = writev_bytes = pread_errno = open_errno = unlink_errno = rename_errno =
        list_errno = create_errno = mkdir_errno = 0;
    seconds_passed = 0;
    watched_dir = NULL;
    *state = x;
    return 0;
}

static int teardown(void **state)
{
    watched_dir = NULL;
    log_set_sink(NULL, NULL);
    (void)pthread_mutex_trylock(&gate); /* a test that failed left it closed: nothing shall hang */
    pthread_mutex_unlock(&gate);
    disk_test_deinit(*state);
    free(*state);
    return 0;
}

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

static void open_with_two(struct disk_test *x)
{
    disk_test_open(x);
    assert_true(tier_store(x, x->t, 1));
    assert_true(tier_store(x, x->t, 2));
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
    open_with_two(x);
    open_errno = EIO;
    for (int i = 0; i < 8; i++)
        assert_int_equal(tier_fetch(x, x->t, 1), 0);
    open_errno = 0;
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
    assert_int_equal(s.entries, 1); /* it is not tried again */
    assert_int_equal(tier_fetch(x, x->t, 2), 1);
}

/* A disk from which nothing comes any more is left alone; one error is not enough for that. */
static void test_nothing_can_be_read(void **state)
{
    struct disk_test *x = *state;
    open_with_two(x);
    open_errno = EACCES;
    for (int i = 0; i < 7; i++)
        assert_int_equal(tier_fetch(x, x->t, 1), 0);
    assert_true(tier_stats(x->t).on);
    open_errno = 0;
    assert_int_equal(tier_fetch(x, x->t, 1), 1);
    open_errno = EIO;
    for (int i = 0; i < 8; i++)
        assert_int_equal(tier_fetch(x, x->t, 1), 0);
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
    assert_true(clock_us() - start_us < 6000000);
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
        TEST(test_limit_is_kept_to_the_byte),
        TEST(test_limit_is_kept_one_byte_below_the_next_segment),
        TEST(test_full_disk),
        TEST(test_writes_again_after_a_full_disk),
        TEST(test_pauses_double_up_to_ten_minutes),
        TEST(test_other_errors_are_final),
        TEST(test_failing_disk),
        TEST(test_failing_rename),
        TEST(test_failing_eviction),
        TEST(test_file_size_limit),
        TEST(test_folder_replaced_by_a_file),
        TEST(test_unreadable_sectors),
        TEST(test_nothing_can_be_read),
        TEST(test_another_writes_after_a_full_disk),
        TEST(test_another_writes_after_unreadable_files),
        TEST(test_no_descriptor_left),
        TEST(test_unlisted_folder),
        TEST(test_buffers_are_bounded_and_shared_fairly),
        TEST(test_fetches_go_first),
        TEST(test_destroy_does_not_wait_for_long),
        TEST(test_engine_and_observer_at_once),
        TEST(test_killed_at_any_moment),
        TEST(test_reading_beside_a_writer_that_dies),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
