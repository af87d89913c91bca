#include "http/internal.h"

#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

/* What the kernel may hold for one reader: bounds the memory of thousands of slow ones, and is some
 * minutes of tokens. */
#define SEND_BUFFER_BYTES (256 * 1024)

static void set_option(int fd, int level, int name, int value)
{
    (void)setsockopt(fd, level, name, &value, sizeof value);
}

/* Accepted sockets inherit these. Keep-alive probes find peers that vanished without a word. */
static void set_options(int fd)
{
    set_option(fd, SOL_SOCKET, SO_REUSEADDR, 1);
    set_option(fd, SOL_SOCKET, SO_SNDBUF, SEND_BUFFER_BYTES);
    set_option(fd, IPPROTO_TCP, TCP_NODELAY, 1);
    set_option(fd, SOL_SOCKET, SO_KEEPALIVE, 1);
    set_option(fd, IPPROTO_TCP, TCP_KEEPIDLE, 30);
    set_option(fd, IPPROTO_TCP, TCP_KEEPINTVL, 10);
    set_option(fd, IPPROTO_TCP, TCP_KEEPCNT, 3);
}

/* v6_only: an address of IPv6 takes nothing of IPv4, whatever the system's default is. */
static int listen_on(const struct addrinfo *a, bool v6_only)
{
    int fd = socket(a->ai_family, a->ai_socktype | SOCK_NONBLOCK | SOCK_CLOEXEC, a->ai_protocol);
    if (fd < 0)
        return -1;
    set_options(fd);
    if (v6_only && a->ai_family == AF_INET6)
        set_option(fd, IPPROTO_IPV6, IPV6_V6ONLY, 1);
    if (bind(fd, a->ai_addr, a->ai_addrlen) == 0 && listen(fd, 4096) == 0)
        return fd;
    int saved = errno;
    close(fd);
    errno = saved;
    return -1;
}

static uint16_t port_of(int fd)
{
    union {
        struct sockaddr any;
        struct sockaddr_in v4;
        struct sockaddr_in6 v6;
    } a = {.any.sa_family = AF_UNSPEC};
    socklen_t n = sizeof a;
    if (getsockname(fd, &a.any, &n) != 0)
        return 0;
    return ntohs(a.any.sa_family == AF_INET6 ? a.v6.sin6_port : a.v4.sin_port);
}

/* One of the addresses; the port is s->port once that is known. */
static enum err listen_host(struct http_server *s, const char *host, struct err_info *e)
{
    const uint16_t port = s->port ? s->port : s->cfg.port;
    char service[8];
    snprintf(service, sizeof service, "%u", port);
    struct addrinfo hints = {.ai_flags = AI_PASSIVE | AI_NUMERICSERV,
                             .ai_family = AF_UNSPEC,
                             .ai_socktype = SOCK_STREAM};
    struct addrinfo *list = NULL;
    int rc = getaddrinfo(host, service, &hints, &list);
    if (rc != 0)
        return err_set(e,
                       ERR_IO,
                       "cannot listen on %s: %s",
                       host,
                       rc == EAI_SYSTEM ? strerror(errno) : gai_strerror(rc));
    int fd = -1;
    for (const struct addrinfo *a = list; a && fd < 0; a = a->ai_next)
        fd = listen_on(a, strchr(s->cfg.host ? s->cfg.host : "", ','));
    int saved = errno;
    freeaddrinfo(list);
    if (fd < 0)
        return err_set(e, ERR_IO, "cannot listen on %s port %u: %s", host, port, strerror(saved));
    s->listen_fds[s->n_listen++] = fd;
    s->port = port_of(fd);
    return OK;
}

enum err http_listen(struct http_server *s, struct err_info *e)
{
    const char *at = s->cfg.host && s->cfg.host[0] ? s->cfg.host : "127.0.0.1";
    for (bool more = true; more;) {
        char host[256];
        at += strspn(at, " ");
        size_t n = strcspn(at, ", ");
        snprintf(host, sizeof host, "%.*s", (int)(n < sizeof host ? n : sizeof host - 1), at);
        if (n == 0 || n >= sizeof host)
            return err_set(e, ERR_INVALID, "cannot listen on '%.40s': no address", host);
        if (s->n_listen == HTTP_MAX_HOSTS)
            return err_set(e, ERR_INVALID, "cannot listen on more than %d hosts", HTTP_MAX_HOSTS);
        enum err err = listen_host(s, host, e);
        if (err)
            return err;
        at += n + strspn(at + n, " ");
        if (*at && *at != ',')
            return err_set(e, ERR_INVALID, "addresses have commas between them: '%.80s'", at);
        more = *at == ',';
        at += more;
    }
    return OK;
}

void http_listen_watch(struct http_server *s, bool on)
{
    struct epoll_event ev = {.events = on ? EPOLLIN : 0, .data.ptr = &s->src_listen};
    for (uint32_t i = 0; i < s->n_listen; i++)
        (void)epoll_ctl(s->epoll_fd, EPOLL_CTL_MOD, s->listen_fds[i], &ev);
}

/* Closing takes a socket out of the epoll set too: nobody else has it. */
void http_listen_close(struct http_server *s)
{
    while (s->n_listen > 0)
        close(s->listen_fds[--s->n_listen]);
}
