/* Connections. The library owns their sockets; this file accepts them, watches each in the loop's
 * own epoll set for its client leaving (which the library cannot see while a connection is
 * suspended, and misses where bytes come with it), and times them out: the library's timeout knows
 * one limit for all, and would end a stream whose reader is slow. A connection is ended by shutting
 * its socket down, which the library notices like any hang-up. */
#include "base/mem.h"
#include "http/internal.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#define MAX_OVER 64       /* connections beyond the limit that are told 503 */
#define MAX_LINGERS 256   /* beyond: closed at once, at the risk of a reset */
#define LINGER_US 5000000 /* for a peer that never stops sending */
#define LEAVING_US 20000  /* to read what came before the end, and to refuse it */

/* ---- accepting --------------------------------------------------------------------------- */

/* Out of descriptors: without this, the listening socket would stay readable and the loop spin. */
static bool shed_one(struct http_server *s, int listen_fd)
{
    if (s->spare_fd >= 0)
        close(s->spare_fd);
    int fd = accept(listen_fd, NULL, NULL);
    if (fd >= 0)
        close(fd);
    s->spare_fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
    return fd >= 0;
}

/* It is looked at again at every tick. */
static void pause_accepting(struct http_server *s)
{
    http_listen_watch(s, false);
    s->accepting = false;
}

/* A bounded number a turn, so that a flood of connections does not hold up the streams. */
static void accept_from(struct http_server *s, int listen_fd)
{
    for (int i = 0; i < 64; i++) {
        struct sockaddr_storage addr;
        socklen_t n = sizeof addr;
        int fd = accept4(listen_fd, (struct sockaddr *)&addr, &n, SOCK_NONBLOCK | SOCK_CLOEXEC);
        if (fd < 0) {
            if ((errno == EMFILE || errno == ENFILE) && shed_one(s, listen_fd))
                continue;
            if (errno == ECONNABORTED || errno == EINTR)
                continue;
            if (errno != EAGAIN && errno != EWOULDBLOCK)
                pause_accepting(s);
            return;
        }
        atomic_fetch_add_explicit(&s->stat_accepted, 1, memory_order_relaxed);
        if (s->n_conns >= s->cfg.max_connections + MAX_OVER)
            close(fd);
        else
            (void)MHD_add_connection(s->mhd, fd, (struct sockaddr *)&addr, n); /* closes on error */
    }
}

void conn_accept(struct http_server *s)
{
    for (uint32_t i = 0; i < s->n_listen; i++)
        accept_from(s, s->listen_fds[i]);
}

static void name_client(struct conn *c)
{
    const union MHD_ConnectionInfo *info =
        MHD_get_connection_info(c->mhd, MHD_CONNECTION_INFO_CLIENT_ADDRESS);
    const struct sockaddr *a = info ? info->client_addr : NULL;
    char host[INET6_ADDRSTRLEN] = "?";
    if (a && a->sa_family == AF_INET) {
        const struct sockaddr_in *v4 = (const struct sockaddr_in *)a;
        inet_ntop(AF_INET, &v4->sin_addr, host, sizeof host);
        snprintf(c->client, sizeof c->client, "%s:%u", host, ntohs(v4->sin_port));
    } else if (a && a->sa_family == AF_INET6) {
        const struct sockaddr_in6 *v6 = (const struct sockaddr_in6 *)a;
        inet_ntop(AF_INET6, &v6->sin6_addr, host, sizeof host);
        snprintf(c->client, sizeof c->client, "[%s]:%u", host, ntohs(v6->sin6_port));
    }
}

static void conn_opened(struct http_server *s, struct MHD_Connection *mhd, void **ctx)
{
    struct conn *c = mem_zalloc(1, sizeof *c);
    c->source = SOURCE_CONN;
    c->mhd = mhd;
    c->fd = MHD_get_connection_info(mhd, MHD_CONNECTION_INFO_CONNECTION_FD)->connect_fd;
    c->since_us = s->now_us;
    c->over = s->n_conns >= s->cfg.max_connections;
    name_client(c);
    tls_conn_opened(s, c);
    c->next = s->conns;
    if (c->next)
        c->next->prev = c;
    s->conns = c;
    s->n_conns++;
    atomic_store_explicit(&s->stat_connections, s->n_conns, memory_order_relaxed);
    *ctx = c;
    struct epoll_event ev = {.events = EPOLLRDHUP | EPOLLET, .data.ptr = c};
    if (epoll_ctl(s->epoll_fd, EPOLL_CTL_ADD, c->fd, &ev) != 0)
        conn_cut(c);
}

/* ---- closing ----------------------------------------------------------------------------- */

/* Closing a socket with unread bytes sends a reset, which can overtake the answer that says why.
 * The library is about to close its descriptor; a duplicate keeps the socket open (its sending side
 * is shut down already) while the rest of the request is read and thrown away. */
static void linger_begin(struct http_server *s, int fd)
{
    int copy = s->n_lingers < MAX_LINGERS ? fcntl(fd, F_DUPFD_CLOEXEC, 0) : -1;
    if (copy < 0)
        return;
    struct farewell *l = mem_zalloc(1, sizeof *l);
    *l = (struct farewell){SOURCE_LINGER, copy, s->now_us + LINGER_US, s->lingers};
    s->lingers = l;
    s->n_lingers++;
    struct epoll_event ev = {.events = EPOLLIN, .data.ptr = l};
    if (epoll_ctl(s->epoll_fd, EPOLL_CTL_ADD, copy, &ev) != 0)
        l->deadline_us = 0;
}

/* Closed in conn_linger_expire, because later events of this turn may still point to it. */
void conn_linger_drain(struct http_server *s, struct farewell *l)
{
    (void)s;
    static char sink[64 * 1024]; /* loop thread only */
    ssize_t n = recv(l->fd, sink, sizeof sink, MSG_DONTWAIT);
    if (n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR)) {
        (void)epoll_ctl(s->epoll_fd, EPOLL_CTL_DEL, l->fd, NULL);
        l->deadline_us = 0;
    }
}

void conn_linger_expire(struct http_server *s, bool all)
{
    struct farewell **p = &s->lingers;
    while (*p) {
        struct farewell *l = *p;
        if (!all && l->deadline_us > s->now_us) {
            p = &l->next;
            continue;
        }
        *p = l->next;
        close(l->fd);
        free(l);
        s->n_lingers--;
    }
}

static void conn_closed(struct http_server *s, struct conn *c)
{
    (void)epoll_ctl(s->epoll_fd, EPOLL_CTL_DEL, c->fd, NULL);
    int n_unread = 0;
    (void)ioctl(c->fd, FIONREAD, &n_unread);
    if (!c->peer_left && !c->cut && (!c->clean || n_unread > 0))
        linger_begin(s, c->fd);
    if (c->prev)
        c->prev->next = c->next;
    else
        s->conns = c->next;
    if (c->next)
        c->next->prev = c->prev;
    s->n_conns--;
    atomic_store_explicit(&s->stat_connections, s->n_conns, memory_order_relaxed);
    identity_release(c->identity);
    free(c);
}

void conn_notify(void *cls,
                 struct MHD_Connection *mhd,
                 void **ctx,
                 enum MHD_ConnectionNotificationCode code)
{
    struct http_server *s = cls;
    if (code == MHD_CONNECTION_NOTIFY_STARTED)
        conn_opened(s, mhd, ctx);
    else if (*ctx)
        conn_closed(s, *ctx);
}

void conn_cut(struct conn *c)
{
    c->cut = true;
    (void)shutdown(c->fd, SHUT_RDWR);
}

/* ---- leaving and patience ---------------------------------------------------------------- */

/* Between requests, or with a part of one: nobody waits for an answer. */
static bool is_unasked(const struct conn *c)
{
    return !c->ex || c->ex->state == EX_READING;
}

/* A request that is not whole by now never will be. The library misses that where data and the end
 * of the stream came together: one event to it, which it forgets when it has read the data. */
void conn_peer_left(struct http_server *s, struct conn *c, bool both_ways)
{
    c->peer_left = true;
    struct exchange *ex = c->ex;
    if (is_unasked(c)) { /* the next tick cuts it */
        if (s->next_tick_us > s->now_us + LEAVING_US)
            s->next_tick_us = s->now_us + LEAVING_US;
        return;
    }
    if (ex->gone)
        return;
    if (both_ways || (ex->state != EX_SENDING && !ex->done))
        exchange_abandon(ex);
}

static bool out_of_patience(const struct http_server *s, const struct conn *c)
{
    const struct exchange *ex = c->ex;
    const uint64_t now = s->now_us;
    if (!ex)
        return now - c->since_us > (c->used ? s->cfg.idle_ms : s->cfg.request_ms) * 1000ull;
    if (ex->state == EX_READING)
        return now > ex->due_us;
    if (ex->suspended)
        return false;
    return now - ex->active_us > s->cfg.stall_ms * 1000ull;
}

void conn_check_patience(struct http_server *s)
{
    for (struct conn *c = s->conns; c; c = c->next) {
        bool over = is_unasked(c) && (s->draining || c->peer_left);
        if (!c->cut && (over || out_of_patience(s, c)))
            conn_cut(c);
    }
    if (!s->accepting && !s->draining) {
        http_listen_watch(s, true);
        s->accepting = true;
    }
}
