/* The event loop. One turn: wait; note who left, accept, collect begun calls; hand out news; let
 * the library read and write; and once a second, look at the clock's victims.
 *
 * News is handed out in passes. The library walks all its suspended connections in a pass that
 * resumes any, so with thousands of streams passes keep a distance that grows with their number:
 * the walk then stays a few per cent of the time, and an engine step's tokens go out in one pass.
 */
#include "http/internal.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <unistd.h>

#define TICK_US 1000000
#define MAX_EVENTS 256
#define PASS_US_A_CONN 1   /* distance of passes, */
#define PASS_MIN_CONNS 250 /* from this many connections on */
#define MAX_LIBRARY_RUNS 8 /* a turn */
#define MAX_BUSY_TURNS 64
#define HELD_BYTES ((size_t)1 << 30)
/* Beside connections: 768 of batches (batches/run.c), some 40 of the disk cache, and others. */
#define OTHER_FILES 1344

/* ---- create and destroy ------------------------------------------------------------------ */

static void raise_file_limit(const struct http_config *cfg)
{
    struct rlimit r;
    if (getrlimit(RLIMIT_NOFILE, &r) != 0)
        return;
    if (r.rlim_cur < r.rlim_max) {
        r.rlim_cur = r.rlim_max;
        if (setrlimit(RLIMIT_NOFILE, &r) != 0)
            (void)getrlimit(RLIMIT_NOFILE, &r);
    }
    if (r.rlim_cur < (rlim_t)cfg->max_connections + OTHER_FILES)
        log_warn("http: only %llu files may be open: that is too few for %u connections",
                 (unsigned long long)r.rlim_cur,
                 cfg->max_connections);
}

static struct MHD_Daemon *start_library(struct http_server *s)
{
    /* The pool of a connection holds the headers, and what the library makes of them; later, a
     * chunk on its way out. Header lines get half of it to begin with. */
    size_t pool = s->cfg.max_header_bytes * 2 + (size_t)16 * 1024;
    static const struct MHD_OptionItem none[] = {{MHD_OPTION_END, 0, NULL}};
    unsigned flags = MHD_USE_EPOLL | MHD_USE_NO_LISTEN_SOCKET | MHD_ALLOW_SUSPEND_RESUME;
    return MHD_start_daemon(s->identity ? flags | MHD_USE_TLS : flags,
                            0,
                            NULL,
                            NULL,
                            exchange_on_request,
                            s,
                            MHD_OPTION_CONNECTION_LIMIT,
                            (unsigned)s->cfg.max_connections + 128,
                            MHD_OPTION_CONNECTION_MEMORY_LIMIT,
                            pool,
                            MHD_OPTION_NOTIFY_CONNECTION,
                            conn_notify,
                            s,
                            MHD_OPTION_NOTIFY_COMPLETED,
                            exchange_on_completed,
                            s,
                            MHD_OPTION_URI_LOG_CALLBACK,
                            exchange_on_target,
                            s,
                            MHD_OPTION_ARRAY,
                            s->identity ? tls_options() : none,
                            MHD_OPTION_END);
}

static bool watch(struct http_server *s, int fd, uint32_t events, enum source *src)
{
    struct epoll_event ev = {.events = events, .data.ptr = src};
    return epoll_ctl(s->epoll_fd, EPOLL_CTL_ADD, fd, &ev) == 0;
}

static bool watch_sources(struct http_server *s)
{
    s->src_listen = SOURCE_LISTEN;
    s->src_library = SOURCE_LIBRARY;
    s->src_news = SOURCE_NEWS;
    s->src_wake = SOURCE_WAKE;
    int library_fd = MHD_get_daemon_info(s->mhd, MHD_DAEMON_INFO_EPOLL_FD)->epoll_fd;
    for (uint32_t i = 0; i < s->n_listen; i++)
        if (!watch(s, s->listen_fds[i], EPOLLIN, &s->src_listen))
            return false;
    return watch(s, library_fd, EPOLLIN, &s->src_library) &&
           watch(s, s->app->news_fd, EPOLLIN | EPOLLET, &s->src_news) &&
           watch(s, s->wake_fd, EPOLLIN, &s->src_wake);
}

enum err http_server_create(const struct http_config *cfg,
                            const struct http_app *app,
                            struct http_server **out,
                            struct err_info *e)
{
    *out = NULL;
    if (cfg->max_connections == 0 || cfg->max_connections > 1000000 || cfg->n_workers == 0 ||
        cfg->n_workers > 1024 || cfg->max_header_bytes < 256 ||
        cfg->max_header_bytes > (size_t)16 * 1024 * 1024)
        return err_set(e, ERR_INVALID, "http: limits of connections, workers or headers");
    struct http_server *s = mem_zalloc(1, sizeof *s);
    s->cfg = *cfg;
    s->app = app;
    s->cfg.request_ms = cfg->request_ms ? cfg->request_ms : 30000;
    s->cfg.idle_ms = cfg->idle_ms ? cfg->idle_ms : 75000;
    s->cfg.stall_ms = cfg->stall_ms ? cfg->stall_ms : 600000;
    if (s->cfg.max_held_bytes == 0) {
        size_t largest = largest_body(cfg, true);
        largest = largest < SIZE_MAX / 4 ? largest : SIZE_MAX / 4;
        s->cfg.max_held_bytes = 4 * largest > HELD_BYTES ? 4 * largest : HELD_BYTES;
    }
    s->accepting = true;
    pthread_mutex_init(&s->pool.mutex, NULL);
    pthread_cond_init(&s->pool.more, NULL);
    raise_file_limit(cfg);
    s->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    s->wake_fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    s->spare_fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
    enum err rc = OK;
    if (cfg->tls_cert || cfg->tls_key)
        rc = identity_create(cfg->tls_cert, cfg->tls_key, &s->identity, e);
    if (rc == OK)
        rc = http_listen(s, e);
    if (rc == OK) {
        s->mhd = start_library(s);
        if (!s->mhd || s->epoll_fd < 0 || s->wake_fd < 0 || !watch_sources(s))
            rc = err_set(e, ERR_IO, "cannot start the HTTP server: %s", strerror(errno));
    }
    if (rc != OK) {
        http_server_destroy(s);
        return rc;
    }
    s->cfg.host = s->cfg.tls_cert = s->cfg.tls_key = NULL; /* the caller's strings are not kept */
    *out = s;
    return OK;
}

static void close_fd(int fd)
{
    if (fd >= 0)
        close(fd);
}

/* run has ended every exchange, so the library has nothing suspended. */
void http_server_destroy(struct http_server *s)
{
    if (!s)
        return;
    s->now_us = clock_us();
    if (s->mhd)
        MHD_stop_daemon(s->mhd);
    conn_linger_expire(s, true);
    identity_release(s->identity);
    identity_release(atomic_load(&s->next_identity));
    http_listen_close(s);
    close_fd(s->epoll_fd);
    close_fd(s->wake_fd);
    close_fd(s->spare_fd);
    pthread_mutex_destroy(&s->pool.mutex);
    pthread_cond_destroy(&s->pool.more);
    free(s);
}

uint16_t http_server_port(const struct http_server *s)
{
    return s->port;
}

struct http_stats http_server_stats(const struct http_server *s)
{
    return (struct http_stats){
        .connections = atomic_load_explicit(&s->stat_connections, memory_order_relaxed),
        .accepted = atomic_load_explicit(&s->stat_accepted, memory_order_relaxed),
        .requests = atomic_load_explicit(&s->stat_requests, memory_order_relaxed),
        .clients_gone = atomic_load_explicit(&s->stat_gone, memory_order_relaxed),
        .answers_dropped = atomic_load_explicit(&s->stat_dropped, memory_order_relaxed),
    };
}

/* Only what a signal handler may do: atomics and write. */
void http_server_stop(struct http_server *s, uint32_t grace_ms)
{
    int saved = errno;
    atomic_store(&s->grace_ms, grace_ms);
    atomic_store(&s->stop, true);
    uint64_t one = 1;
    (void)!write(s->wake_fd, &one, sizeof one);
    errno = saved;
}

/* ---- the loop ---------------------------------------------------------------------------- */

static void on_wake(struct http_server *s)
{
    uint64_t n;
    (void)!read(s->wake_fd, &n, sizeof n);
    identity_take_next(s);
    struct exchange *ex = worker_pool_collect(s);
    while (ex) {
        struct exchange *next = ex->next_job;
        exchange_begun(ex);
        ex = next;
    }
}

static void on_event(struct http_server *s, const struct epoll_event *ev)
{
    enum source *src = ev->data.ptr;
    switch (*src) {
    case SOURCE_LISTEN:
        conn_accept(s);
        break;
    case SOURCE_LIBRARY:
        break; /* runs every turn */
    case SOURCE_NEWS:
        s->news_pending = true;
        break;
    case SOURCE_WAKE:
        on_wake(s);
        break;
    case SOURCE_CONN:
        conn_peer_left(s, (struct conn *)src, (ev->events & (EPOLLHUP | EPOLLERR)) != 0);
        break;
    case SOURCE_LINGER:
        conn_linger_drain(s, (struct farewell *)src);
        break;
    }
}

static void hand_out_news(struct http_server *s)
{
    if (!s->news_pending || s->now_us < s->next_pass_us)
        return;
    s->news_pending = false;
    if (s->n_conns >= PASS_MIN_CONNS)
        s->next_pass_us = s->now_us + (uint64_t)s->n_conns * PASS_US_A_CONN;
    struct exchange *ex;
    while ((ex = s->app->next(s->app->ctx)))
        exchange_news(ex);
}

/* The library has work that needs no event: connections it knows to be ready. */
static bool library_busy(struct http_server *s)
{
    MHD_UNSIGNED_LONG_LONG ms;
    return MHD_get_timeout(s->mhd, &ms) == MHD_YES && ms == 0;
}

/* Returns whether there is more to do. */
static bool run_library(struct http_server *s, int max_runs)
{
    int n = 0;
    do
        (void)MHD_run(s->mhd);
    while (library_busy(s) && ++n < max_runs);
    return n == max_runs;
}

static void tick(struct http_server *s)
{
    conn_linger_expire(s, false);
    if (s->cfg.keepalive_comment_ms)
        exchange_send_comments(s);
    if (s->now_us < s->next_tick_us)
        return;
    s->next_tick_us = s->now_us + TICK_US;
    conn_check_patience(s);
}

/* When what is left is cut off (again). The grace may be shortened by a second stop. */
static uint64_t cut_time(const struct http_server *s)
{
    uint64_t end = s->drain_us + atomic_load(&s->grace_ms) * 1000ull;
    return end > s->cut_us ? end : s->cut_us;
}

static int timeout_ms(const struct http_server *s, uint32_t n_busy)
{
    if (n_busy > 0) /* a reader that is forever ready and never gets on must not take all time */
        return n_busy > MAX_BUSY_TURNS ? 1 : 0;
    uint64_t until = s->next_tick_us;
    if (s->news_pending && s->next_pass_us < until)
        until = s->next_pass_us;
    if (s->cfg.keepalive_comment_ms && s->streams.head) {
        uint64_t due = s->streams.head->spoke_us + s->cfg.keepalive_comment_ms * 1000ull;
        if (due < until)
            until = due;
    }
    if (s->draining && cut_time(s) < until)
        until = cut_time(s);
    return until <= s->now_us ? 0 : (int)((until - s->now_us + 999) / 1000);
}

/* ---- stopping ---------------------------------------------------------------------------- */

static void begin_draining(struct http_server *s)
{
    s->draining = true;
    s->accepting = false;
    s->drain_us = s->now_us;
    http_listen_close(s);
    s->next_tick_us = s->now_us; /* connections without an exchange are cut there */
}

/* Past the grace: every exchange is abandoned. Those in a worker end when it returns. */
static void cut_all(struct http_server *s)
{
    for (struct conn *c = s->conns; c; c = c->next) {
        if (c->ex && c->ex->state != EX_READING && !c->ex->gone)
            exchange_abandon(c->ex);
        else if (!c->cut && !(c->ex && c->ex->suspended))
            conn_cut(c);
    }
    s->cut_us = s->now_us + 100000;
}

/* True when the loop may end. Connections whose exchange ended meanwhile are cut at the next tick,
 * which is brought forward while draining. */
static bool drained(struct http_server *s)
{
    if (!s->draining) {
        if (!atomic_load(&s->stop))
            return false;
        begin_draining(s);
    }
    if (s->n_begun == 0 && s->n_conns == 0)
        return true;
    if (s->now_us >= cut_time(s))
        cut_all(s);
    if (s->next_tick_us > s->now_us + 20000)
        s->next_tick_us = s->now_us + 20000;
    return false;
}

enum err http_server_run(struct http_server *s, struct err_info *e)
{
    struct epoll_event events[MAX_EVENTS];
    uint32_t n_busy = 0;
    worker_pool_start(s);
    if (s->pool.n_threads == 0) {
        worker_pool_stop(s);
        return err_set(e, ERR_IO, "cannot start a worker thread");
    }
    s->now_us = clock_us();
    while (!drained(s)) {
        int n = epoll_wait(s->epoll_fd, events, MAX_EVENTS, timeout_ms(s, n_busy));
        s->now_us = clock_us();
        for (int i = 0; i < n; i++)
            on_event(s, &events[i]);
        hand_out_news(s);
        bool busy = run_library(s, n_busy > MAX_BUSY_TURNS ? 2 : MAX_LIBRARY_RUNS);
        n_busy = busy ? n_busy + 1 : 0;
        tick(s); /* behind the library, which has read what those who left sent before */
    }
    worker_pool_stop(s);
    return OK;
}
