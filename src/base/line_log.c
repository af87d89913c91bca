#include "base/line_log.h"

#include "base/buf.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/thread.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define MAX_PENDING_BYTES ((size_t)1 << 20)
#define CLOSE_SECONDS 2
#define SAY_EVERY_US 1000000 /* that lines were dropped */

struct line_log {
    char *path; /* NULL: a descriptor that was there before */
    char *name;
    int fd; /* the writer's, once it runs */
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    struct buf pending;
    uint64_t n_pending; /* lines */
    uint64_t n_dropped, n_dropped_said, said_us;
    int why; /* the errno of a write that has dropped lines not yet said, or 0 */
    bool reopen, closing, ended;
    bool torn; /* the writer's: the file ends in a part of a line */
};

/* A pipe that nobody reads is an error, and not waited for. */
static int open_path(const char *path)
{
    const int fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NONBLOCK, 0640);
    const int flags = fd >= 0 ? fcntl(fd, F_GETFL) : -1;
    if (flags >= 0)
        (void)fcntl(fd, F_SETFL, flags & ~O_NONBLOCK);
    return fd;
}

/* 0, or the errno of what went wrong. *n_written: how many bytes went out. */
static int write_whole(int fd, const char *data, size_t n, size_t *n_written)
{
    *n_written = 0;
    while (n > 0) {
        ssize_t done = write(fd, data, n);
        if (done < 0 && errno == EAGAIN) { /* somebody made the descriptor so */
            struct pollfd p = {.fd = fd, .events = POLLOUT};
            (void)poll(&p, 1, 1000);
            continue;
        }
        if (done < 0 && errno == EINTR)
            continue;
        if (done < 0)
            return errno;
        data += done;
        n -= (size_t)done;
        *n_written += (size_t)done;
    }
    return 0;
}

/* Takes the part of a line that the last write left, of n_bytes, off the end of the file, unless
 * somebody else has written behind it. With O_APPEND the next write begins at the new end. */
static bool take_back(const struct line_log *l, size_t n_bytes)
{
    const off_t end = l->path ? lseek(l->fd, 0, SEEK_CUR) : -1;
    struct stat st;
    return end >= (off_t)n_bytes && fstat(l->fd, &st) == 0 && st.st_size == end &&
           ftruncate(l->fd, end - (off_t)n_bytes) == 0;
}

/* Whole lines; *n_lines becomes how many of them are not there. What a full disk has cut off does
 * not become the beginning of the next line: it is taken back, or where that cannot be, ended. */
static int write_lines(struct line_log *l, const struct buf *lines, uint64_t *n_lines)
{
    size_t n = 0;
    int failed = l->torn ? write_whole(l->fd, "\n", 1, &n) : 0;
    if (failed)
        return failed;
    l->torn = false;
    failed = write_whole(l->fd, lines->data, lines->len, &n);
    size_t n_whole = 0; /* bytes */
    for (size_t i = 0; i < n; i++) {
        if (lines->data[i] == '\n') {
            n_whole = i + 1;
            --*n_lines;
        }
    }
    l->torn = n > n_whole && !take_back(l, n - n_whole);
    return failed;
}

static void open_again(struct line_log *l)
{
    int fd = l->path ? open_path(l->path) : -1;
    if (fd >= 0) {
        close(l->fd);
        l->fd = fd;
        l->torn = false;
    } else if (l->path) {
        log_warn("%s: cannot open %s again, going on with the old file: %s",
                 l->name,
                 l->path,
                 strerror(errno));
    }
}

/* Under the lock: what was dropped and is to be said now, and why. */
static uint64_t take_dropped(struct line_log *l, int *why)
{
    uint64_t n = l->n_dropped - l->n_dropped_said, now_us = clock_us();
    if (n == 0 || (now_us - l->said_us < SAY_EVERY_US && !l->closing))
        return 0;
    l->n_dropped_said = l->n_dropped;
    l->said_us = now_us;
    *why = l->why;
    l->why = 0;
    return n;
}

static void say_dropped(const struct line_log *l, uint64_t n, int why)
{
    if (n > 0)
        log_warn("%s: %llu lines were dropped: %s",
                 l->name,
                 (unsigned long long)n,
                 why ? strerror(why) : "the file is too slow");
}

static void *writer_main(void *arg)
{
    struct line_log *l = arg;
    struct buf out = {0};
    pthread_mutex_lock(&l->lock);
    while (l->pending.len > 0 || l->reopen || !l->closing) {
        if (l->pending.len == 0 && !l->reopen) {
            pthread_cond_wait(&l->changed, &l->lock);
            continue;
        }
        struct buf empty = out;
        out = l->pending;
        l->pending = empty;
        uint64_t n_lines = l->n_pending;
        bool reopen = l->reopen;
        l->n_pending = 0;
        l->reopen = false;
        pthread_mutex_unlock(&l->lock);
        int failed = write_lines(l, &out, &n_lines);
        buf_clear(&out);
        if (reopen)
            open_again(l);
        pthread_mutex_lock(&l->lock);
        l->n_dropped += n_lines;
        l->why = failed ? failed : l->why;
        int why = 0;
        uint64_t n_dropped = take_dropped(l, &why);
        pthread_mutex_unlock(&l->lock);
        say_dropped(l, n_dropped, why);
        pthread_mutex_lock(&l->lock);
    }
    l->ended = true;
    pthread_cond_broadcast(&l->changed);
    pthread_mutex_unlock(&l->lock);
    buf_deinit(&out);
    return NULL;
}

static void destroy(struct line_log *l)
{
    if (l->fd >= 0 && l->path)
        close(l->fd);
    pthread_mutex_destroy(&l->lock);
    pthread_cond_destroy(&l->changed);
    buf_deinit(&l->pending);
    free(l->path);
    free(l->name);
    free(l);
}

enum err line_log_open(const char *path,
                       const char *name,
                       struct line_log **out,
                       struct err_info *e)
{
    bool is_file = path && strcmp(path, "-") != 0;
    *out = NULL;
    int fd = is_file ? open_path(path) : path ? STDOUT_FILENO : STDERR_FILENO;
    if (fd < 0)
        return err_set(e, ERR_IO, "cannot open %s: %s", path, strerror(errno));
    struct line_log *l = mem_zalloc(1, sizeof *l);
    l->path = is_file ? mem_strdup(path) : NULL;
    l->name = mem_strdup(name);
    l->fd = fd;
    pthread_mutex_init(&l->lock, NULL);
    clock_cond_init(&l->changed);
    if (thread_start(&l->thread, writer_main, l) != 0) {
        destroy(l);
        return err_set(e, ERR_NOMEM, "cannot start a thread");
    }
    *out = l;
    return OK;
}

void line_log_write(struct line_log *l, const char *line, size_t n)
{
    pthread_mutex_lock(&l->lock);
    if (n >= MAX_PENDING_BYTES - l->pending.len) {
        l->n_dropped++;
    } else {
        buf_add(&l->pending, line, n);
        buf_char(&l->pending, '\n');
        l->n_pending++;
        pthread_cond_broadcast(&l->changed);
    }
    pthread_mutex_unlock(&l->lock);
}

void line_log_reopen(struct line_log *l)
{
    pthread_mutex_lock(&l->lock);
    l->reopen = true;
    pthread_cond_broadcast(&l->changed);
    pthread_mutex_unlock(&l->lock);
}

uint64_t line_log_dropped(struct line_log *l)
{
    pthread_mutex_lock(&l->lock);
    uint64_t n = l->n_dropped;
    pthread_mutex_unlock(&l->lock);
    return n;
}

/* A file that takes nothing any more keeps its writer, and what they share. */
void line_log_close(struct line_log *l)
{
    if (!l)
        return;
    const struct timespec until = clock_spec(clock_us() + CLOSE_SECONDS * 1000000ull);
    pthread_mutex_lock(&l->lock);
    l->closing = true;
    pthread_cond_broadcast(&l->changed);
    int rc = 0;
    while (!l->ended && rc == 0)
        rc = pthread_cond_timedwait(&l->changed, &l->lock, &until);
    bool ended = l->ended;
    int why = 0;
    uint64_t n_dropped = take_dropped(l, &why);
    pthread_mutex_unlock(&l->lock);
    say_dropped(l, n_dropped, why);
    if (!ended) {
        pthread_detach(l->thread);
        log_warn("%s: not all lines could be written", l->name);
        return;
    }
    pthread_join(l->thread, NULL);
    destroy(l);
}
