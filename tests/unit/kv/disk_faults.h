/* For the tests of the disk tier when things go wrong, or might.
 *
 * The functions below stand in for the C library's of the same name, in the program that includes
 * this only: they can fail, wait at a gate, and look at the folder after each change, when nothing
 * else is going on. */
#ifndef WEIR_TEST_DISK_FAULTS_H
#define WEIR_TEST_DISK_FAULTS_H

#include "base/log.h"
#include "disk_help.h"

#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
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
static _Atomic uint64_t n_statted;     /* files that were */
static _Atomic uint64_t stat_until;    /* so many were: the next waits, unless 0 */
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

int fstatat(int dir, const char *name, struct stat *st, int flags)
{
    for (uint64_t most; (most = stat_until) > 0 && n_statted >= most;)
        usleep(100);
    n_statted++;
    return (int)syscall(SYS_newfstatat, dir, name, st, flags);
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
    stat_until = 0;
    seconds_passed = 0;
    watched_dir = NULL;
    *state = x;
    return 0;
}

static int teardown(void **state)
{
    watched_dir = NULL;
    stat_until = 0;
    log_set_sink(NULL, NULL);
    (void)pthread_mutex_trylock(&gate); /* a test that failed left it closed: nothing shall hang */
    pthread_mutex_unlock(&gate);
    disk_test_deinit(*state);
    free(*state);
    return 0;
}

#endif
