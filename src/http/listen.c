#include "http/internal.h"

#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <string.h>
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

static int listen_on(const struct addrinfo *a)
{
    int fd = socket(a->ai_family, a->ai_socktype | SOCK_NONBLOCK | SOCK_CLOEXEC, a->ai_protocol);
    if (fd < 0)
        return -1;
    set_options(fd);
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

enum err http_listen(const struct http_config *cfg, int *fd, uint16_t *port, struct err_info *e)
{
    const char *host = cfg->host && cfg->host[0] ? cfg->host : "127.0.0.1";
    char service[8];
    snprintf(service, sizeof service, "%u", cfg->port);
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
    *fd = -1;
    for (const struct addrinfo *a = list; a && *fd < 0; a = a->ai_next)
        *fd = listen_on(a);
    int saved = errno;
    freeaddrinfo(list);
    if (*fd < 0)
        return err_set(
            e, ERR_IO, "cannot listen on %s port %u: %s", host, cfg->port, strerror(saved));
    *port = port_of(*fd);
    return OK;
}
