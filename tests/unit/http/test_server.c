/* The HTTP layer over real sockets, with an engine that only keeps time. After every test the
 * server is stopped and each begin must have had exactly one end. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "http/fake_engine.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <time.h>

struct fixture {
    struct fake fake;
    struct http_server *server;
    pthread_t thread;
    bool running;
    enum err run_rc;
};

static struct fixture fx;

static void *serve(void *arg)
{
    (void)arg;
    struct err_info e;
    fx.run_rc = http_server_run(fx.server, &e);
    return NULL;
}

static struct http_config config(void)
{
    return (struct http_config){
        .max_connections = 300, .max_body_bytes = 100000, .max_header_bytes = 8192, .n_workers = 2};
}

static void start(const struct http_config *cfg)
{
    struct err_info e;
    fake_start(&fx.fake);
    assert_int_equal(http_server_create(cfg, &fx.fake.app, &fx.server, &e), OK);
    fx.fake.server = fx.server;
    assert_int_equal(pthread_create(&fx.thread, NULL, serve, NULL), 0);
    fx.running = true;
}

static void stop(uint32_t grace_ms)
{
    http_server_stop(fx.server, grace_ms);
    pthread_join(fx.thread, NULL);
    fx.running = false;
}

static int setup(void **state)
{
    (void)state;
    fx = (struct fixture){0};
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    if (fx.running)
        stop(0);
    bool ok = fx.run_rc == OK && fx.fake.n_begin == fx.fake.n_end && fx.fake.n_double_end == 0 &&
              http_server_stats(fx.server).connections == 0;
    http_server_destroy(fx.server);
    fake_stop(&fx.fake);
    return ok ? 0 : -1;
}

/* ---- a client ---------------------------------------------------------------------------- */

static int dial(void)
{
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_port = htons(http_server_port(fx.server))};
    a.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    assert_int_equal(connect(fd, (struct sockaddr *)&a, sizeof a), 0);
    return fd;
}

static void say(int fd, const char *text)
{
    assert_int_equal(send(fd, text, strlen(text), MSG_NOSIGNAL), (int)strlen(text));
}

/* What comes at once may come this late, on a machine that others keep busy. */
enum { PATIENT_MS = 30000 };

/* What has to be in time is tried again where the machine may have held it up. */
enum { MAX_TIMES = 10 };

/* Read until `what` has come, the peer closed or ms went by. NUL-terminated. */
static const char *hear_for(int fd, const char *what, int ms)
{
    static char buf[200000];
    size_t n = 0;
    buf[0] = 0;
    uint64_t end = clock_us() + (uint64_t)ms * 1000;
    while (n < sizeof buf - 1 && clock_us() < end && !(what && strstr(buf, what))) {
        struct pollfd p = {.fd = fd, .events = POLLIN};
        if (poll(&p, 1, 20) <= 0)
            continue;
        ssize_t got = recv(fd, buf + n, sizeof buf - 1 - n, 0);
        if (got <= 0)
            break;
        n += (size_t)got;
        buf[n] = 0;
    }
    return buf;
}

static const char *hear(int fd, const char *what)
{
    return hear_for(fd, what, PATIENT_MS);
}

static int dial_and_say(const char *text)
{
    int fd = dial();
    say(fd, text);
    return fd;
}

static void expect(const char *request, const char *answer)
{
    int fd = dial_and_say(request);
    const char *got = hear(fd, answer);
    if (!strstr(got, answer))
        fail_msg("%s\n-- expected: %s\n-- got: %s", request, answer, got);
    close(fd);
}

static bool closed_within(int fd, int ms)
{
    struct pollfd p = {.fd = fd, .events = POLLIN};
    char c[4096];
    uint64_t end = clock_us() + (uint64_t)ms * 1000;
    while (clock_us() < end) {
        if (poll(&p, 1, 20) > 0 && recv(fd, c, sizeof c, 0) <= 0)
            return true;
    }
    return false;
}

static bool is_closed(int fd)
{
    return closed_within(fd, PATIENT_MS);
}

static uint64_t n_open(void)
{
    pthread_mutex_lock(&fx.fake.lock);
    uint64_t n = fx.fake.n_begin - fx.fake.n_end;
    pthread_mutex_unlock(&fx.fake.lock);
    return n;
}

static uint64_t n_begun(void)
{
    pthread_mutex_lock(&fx.fake.lock);
    uint64_t n = fx.fake.n_begin;
    pthread_mutex_unlock(&fx.fake.lock);
    return n;
}

static uint64_t n_connections(void)
{
    return http_server_stats(fx.server).connections;
}

static bool becomes(uint64_t (*fn)(void), uint64_t want)
{
    for (int i = 0; i < PATIENT_MS; i++) {
        if (fn() == want)
            return true;
        usleep(1000);
    }
    return false;
}

/* ---- answers ----------------------------------------------------------------------------- */

static void answers(void **state)
{
    (void)state;
    struct http_config cfg = config();
    start(&cfg);
    expect("GET /big?n=5 HTTP/1.1\r\nHost: x\r\n\r\n", "Content-Length: 5\r\n\r\nahovc");
    expect("POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\n\r\nabc", "\r\n\r\nabc");
    expect("POST /echo HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"
           "3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n",
           "\r\n\r\nabcde");
    expect("POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n", "Content-Length: 0\r\n");
    expect("GET /facts?a=%20b&c HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer k\r\n"
           "X-Request-Id: r-1\r\n\r\n",
           "/facts|a=%20b&c|Bearer k|r-1\n");
    expect("GET /facts HTTP/1.1\r\nHost: x\r\nX-Request-Id: a b\r\n\r\n", "/facts||-|-\n");
    expect("GET /late?ms=100 HTTP/1.1\r\nHost: x\r\n\r\n", "late\n");
    expect("GET /nothing HTTP/1.1\r\nHost: x\r\n\r\n", "404 Not Found");
    expect("BREW /big HTTP/1.1\r\nHost: x\r\n\r\n", "405 Method Not Allowed");
    expect("OPTIONS /big HTTP/1.1\r\nHost: x\r\n\r\n", "405 Method Not Allowed");
    expect("PUT /big HTTP/1.1\r\nHost: x\r\n\r\n", "405 Method Not Allowed");
}

static void streams(void **state)
{
    (void)state;
    struct http_config cfg = config();
    start(&cfg);
    int fd = dial_and_say("GET /stream?n=5&hz=100&size=4 HTTP/1.1\r\nHost: x\r\n\r\n");
    const char *got = hear(fd, "0\r\n\r\n");
    assert_non_null(strstr(got, "Transfer-Encoding: chunked"));
    assert_non_null(strstr(got, "data: {\"i\": 4, \"pad\": \"xxxx\"}\n\n"));
    assert_non_null(strstr(got, "data: [DONE]\n\n"));
    say(fd, "GET /big?n=5 HTTP/1.1\r\nHost: x\r\n\r\n"); /* the connection is kept */
    assert_non_null(strstr(hear(fd, "ahovc"), "ahovc"));
    close(fd);
    fd = dial_and_say("GET /stream?n=5&hz=100&size=4 HTTP/1.0\r\n\r\n");
    got = hear(fd, NULL);
    assert_null(strstr(got, "chunked"));
    assert_string_equal(got + strlen(got) - 14, "data: [DONE]\n\n");
    close(fd);
}

static void pipelined_and_kept_alive(void **state)
{
    (void)state;
    struct http_config cfg = config();
    start(&cfg);
    int fd = dial_and_say("GET /big?n=5 HTTP/1.1\r\nHost: x\r\n\r\n"
                          "GET /late?ms=50 HTTP/1.1\r\nHost: x\r\n\r\n"
                          "POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\n\r\nendGARBAGE");
    const char *got = hear(fd, "\r\n\r\nend");
    assert_non_null(strstr(got, "ahovc"));
    assert_non_null(strstr(got, "late\n"));
    assert_non_null(strstr(got, "\r\n\r\nend"));
    close(fd);
    assert_int_equal(http_server_stats(fx.server).requests, 3);
}

static void expect_continue(void **state)
{
    (void)state;
    struct http_config cfg = config();
    start(&cfg);
    int fd = dial_and_say("POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\n"
                          "Expect: 100-continue\r\n\r\n");
    assert_non_null(strstr(hear(fd, "\r\n\r\n"), "100 Continue"));
    say(fd, "abc");
    assert_non_null(strstr(hear(fd, "abc"), "\r\n\r\nabc"));
    close(fd);
    expect("POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 300000\r\n"
           "Expect: 100-continue\r\n\r\n",
           "HTTP/1.1 413");
}

static void refusals(void **state)
{
    (void)state;
    struct http_config cfg = config();
    start(&cfg);
    expect("GET / HTTP/1.1\r\n\r\n", "Host header is missing");
    expect("GET /a%00b HTTP/1.1\r\nHost: x\r\n\r\n", "HTTP/1.1 400");
    expect("GET /a b HTTP/1.1\r\nHost: x\r\n\r\n", "HTTP/1.1 400");
    expect("POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\nContent-Length: 4\r\n\r\nabc",
           "HTTP/1.1 400");
    expect("POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\n"
           "Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
           "HTTP/1.1 400");
    expect("POST /echo HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: gzip\r\n\r\n", "HTTP/1.1 501");
    expect("POST /echo HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n"
           "Transfer-Encoding: gzip\r\n\r\n",
           "HTTP/1.1 501");
    expect("POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: -3\r\n\r\n", "HTTP/1.1 400");
    expect("POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 99999999999999999999999\r\n\r\n",
           "HTTP/1.1 413");
    expect("POST /echo HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
           "HTTP/1.1 400");
    assert_int_equal(http_server_stats(fx.server).requests, 0);
    assert_int_equal(fx.fake.n_begin, 0);
}

static void too_large(void **state)
{
    (void)state;
    struct http_config cfg = config();
    start(&cfg);
    static char big[400000];
    memset(big, 'a', sizeof big - 1);
    char head[100];
    snprintf(head,
             sizeof head,
             "POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: %zu\r\n\r\n",
             strlen(big));
    for (int chunked = 0; chunked < 2; chunked++) {
        int fd = dial_and_say(chunked ? "POST /echo HTTP/1.1\r\nHost: x\r\n"
                                        "Transfer-Encoding: chunked\r\n\r\n61a80\r\n"
                                      : head);
        /* all of it is sent before the answer is read: it must not be lost in a reset */
        assert_true(send(fd, big, strlen(big), MSG_NOSIGNAL) > 0);
        const char *got = hear(fd, "}}");
        assert_non_null(strstr(got, "HTTP/1.1 413"));
        assert_non_null(strstr(got, "{\"error\": {\"code\": 413"));
        close(fd);
    }
    for (size_t n = 9000; n < sizeof big;
         n *= 6) { /* over the limit, and over the library's room */
        int fd = dial_and_say("GET / HTTP/1.1\r\nHost: x\r\nA: ");
        (void)!send(fd, big, n, MSG_NOSIGNAL);
        (void)!send(fd, "\r\n\r\n", 4, MSG_NOSIGNAL);
        assert_non_null(strstr(hear(fd, "\r\n\r\n"), "HTTP/1.1 431"));
        close(fd);
    }
    int fd = dial_and_say("GET /");
    (void)!send(fd, big, 100000, MSG_NOSIGNAL);
    assert_non_null(strstr(hear(fd, "\r\n\r\n"), "HTTP/1.1 414"));
    close(fd);
}

/* ---- clients that leave ------------------------------------------------------------------ */

static void leave(const char *request, bool half)
{
    uint64_t before = n_begun();
    int fd = dial_and_say(request);
    assert_true(becomes(n_begun, before + 1));
    usleep(20000);
    if (half)
        shutdown(fd, SHUT_WR);
    else
        close(fd);
    assert_true(becomes(n_open, 0));
    if (half)
        close(fd);
}

static void leaving(void **state)
{
    (void)state;
    struct http_config cfg = config();
    start(&cfg);
    for (int half = 0; half < 2; half++) {
        leave("GET /hang HTTP/1.1\r\nHost: x\r\n\r\n", half);
        leave("GET /silent HTTP/1.1\r\nHost: x\r\n\r\n", half);
        leave("GET /stream?n=100000&hz=100 HTTP/1.1\r\nHost: x\r\n\r\n", half);
        leave("GET /held HTTP/1.1\r\nHost: x\r\n\r\n", half);
        leave("GET /flood?n=1000000000 HTTP/1.1\r\nHost: x\r\n\r\n", half); /* socket is full */
    }
    assert_int_equal(http_server_stats(fx.server).clients_gone, 10);
}

/* Requests whose client left while they waited for a worker are begun, and told so, but not pulled.
 */
static void leaving_the_queue(void **state)
{
    (void)state;
    struct http_config cfg = config();
    start(&cfg);
    int busy[2], fds[20];
    for (int i = 0; i < 2; i++)
        busy[i] = dial_and_say("GET /held HTTP/1.1\r\nHost: x\r\n\r\n");
    assert_true(becomes(n_begun, 2));
    for (int i = 0; i < 20; i++)
        fds[i] = dial_and_say("GET /hang HTTP/1.1\r\nHost: x\r\n\r\n");
    usleep(100000);
    for (int i = 0; i < 20; i++)
        close(fds[i]);
    /* once this is answered, it was seen that they left */
    expect("GET /stats HTTP/1.1\r\nHost: x\r\n\r\n", "\"begin\"");
    expect("GET /now HTTP/1.1\r\nHost: x\r\n\r\n", "now\n");
    for (int i = 0; i < 2; i++) {
        assert_non_null(strstr(hear(busy[i], "held\n"), "held\n"));
        close(busy[i]);
    }
    assert_true(becomes(n_begun, 24));
    assert_true(becomes(n_open, 0));
    int fd = dial_and_say("GET /facts HTTP/1.1\r\nHost: x\r\n\r\n"); /* whole, and left at once */
    close(fd);
    assert_true(becomes(n_begun, 25));
    assert_true(becomes(n_open, 0));
    pthread_mutex_lock(&fx.fake.lock);
    const uint64_t n_left = fx.fake.n_left, n_pull = fx.fake.n_pull;
    pthread_mutex_unlock(&fx.fake.lock);
    assert_true(n_left >= 20 && n_pull <= 5);
}

static void slow_readers(void **state)
{
    (void)state;
    struct http_config cfg = config();
    start(&cfg);
    int slow = dial_and_say("GET /flood?n=20000000 HTTP/1.1\r\nHost: x\r\n\r\n");
    usleep(100000);
    for (int i = 0; i < 20; i++)
        expect("GET /stream?n=20&hz=1000 HTTP/1.1\r\nHost: x\r\n\r\n", "[DONE]");
    pthread_mutex_lock(&fx.fake.lock);
    assert_true(fx.fake.n_pull < 200 + 20 * 25); /* the flood waits: few MiB of it were pulled */
    pthread_mutex_unlock(&fx.fake.lock);
    close(slow);
    assert_true(becomes(n_open, 0));
}

/* ---- patience ---------------------------------------------------------------------------- */

static void patience(void **state)
{
    (void)state;
    struct http_config cfg = config();
    cfg.request_ms = 300;
    cfg.idle_ms = 500;
    cfg.stall_ms = 700;
    start(&cfg);
    int nothing = dial();
    int part = dial_and_say("GET /big HTTP/1.1\r\nHost:");
    int body = dial_and_say("POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\na");
    int idle = dial_and_say("GET /big?n=5 HTTP/1.1\r\nHost: x\r\n\r\n");
    int stalled = dial_and_say("GET /flood?n=100000000 HTTP/1.1\r\nHost: x\r\n\r\n");
    int hang = dial_and_say("GET /hang HTTP/1.1\r\nHost: x\r\n\r\n");
    int silent = dial_and_say("GET /silent HTTP/1.1\r\nHost: x\r\n\r\n");
    assert_true(is_closed(nothing));
    assert_true(is_closed(part));
    assert_true(is_closed(body));
    assert_true(is_closed(idle));
    assert_true(becomes(n_open, 2)); /* the stalled one was ended, the others wait on */
    assert_false(closed_within(hang, 200));
    assert_false(closed_within(silent, 200));
    int all[] = {nothing, part, body, idle, stalled, hang, silent};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        close(all[i]);
}

/* One body drips, one flows for 4 s. Did all of the second come through? The first is cut off. */
static bool drip_and_flow(void)
{
    static char much[90000];
    const char head[] = "POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 99000\r\n\r\n";
    int drips = dial_and_say(head), flows = dial_and_say(head);
    bool whole = true;
    (void)!send(drips, much, sizeof much, MSG_NOSIGNAL);
    for (int i = 0; i < 8; i++) {
        usleep(500000);
        (void)!send(drips, "x", 1, MSG_NOSIGNAL);
        whole = whole && send(flows, much, 2048, MSG_NOSIGNAL) == 2048;
    }
    assert_true(is_closed(drips));
    const ssize_t n_left = 99000 - 8 * 2048;
    whole = whole && send(flows, much, (size_t)n_left, MSG_NOSIGNAL) == n_left &&
            strstr(hear(flows, "200 OK"), "200 OK");
    close(drips);
    close(flows);
    return whole;
}

/* What came fast before buys no time for what drips: a second for every KiB, and never more than
 * the limit. */
static void patience_with_bodies(void **state)
{
    (void)state;
    struct http_config cfg = config();
    cfg.request_ms = 1500;
    start(&cfg);
    bool whole = false;
    for (int i = 0; i < MAX_TIMES && !whole; i++)
        whole = drip_and_flow();
    assert_true(whole);
}

static void comments(void **state)
{
    (void)state;
    struct http_config cfg = config();
    cfg.keepalive_comment_ms = 100;
    start(&cfg);
    uint64_t took_us = UINT64_MAX;
    for (int i = 0; i < MAX_TIMES && took_us > 1000000; i++) {
        const uint64_t begin_us = clock_us();
        int fd = dial_and_say("GET /silent HTTP/1.1\r\nHost: x\r\n\r\n");
        const char *got = hear(fd, ": keep-alive\n\n\r\nE\r\n: keep-alive\n\n");
        took_us = clock_us() - begin_us;
        assert_non_null(strstr(got, ": keep-alive\n\n\r\nE\r\n: keep-alive\n\n"));
        assert_true(took_us > 150000);
        close(fd);
    }
    assert_true(took_us <= 1000000);
}

static void too_many_connections(void **state)
{
    (void)state;
    struct http_config cfg = config();
    cfg.max_connections = 3;
    start(&cfg);
    int fds[3];
    for (int i = 0; i < 3; i++)
        fds[i] = dial_and_say("GET /hang HTTP/1.1\r\nHost: x\r\n\r\n");
    assert_true(becomes(n_open, 3));
    expect("GET /big HTTP/1.1\r\nHost: x\r\n\r\n", "HTTP/1.1 503");
    expect("GET /big HTTP/1.1\r\nHost: x\r\n\r\n", "\r\nRetry-After: 5\r\n");
    int more[100];
    for (int i = 0; i < 100; i++)
        more[i] = dial();
    assert_true(is_closed(more[99]));
    for (int i = 0; i < 100; i++)
        close(more[i]);
    close(fds[0]);
    assert_true(becomes(n_connections, 2));
    expect("GET /big HTTP/1.1\r\nHost: x\r\n\r\n", "HTTP/1.1 200");
    close(fds[1]);
    close(fds[2]);
}

/* ---- stopping and listening -------------------------------------------------------------- */

static bool is_refused(void)
{
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_port = htons(http_server_port(fx.server))};
    a.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    const bool refused = connect(fd, (struct sockaddr *)&a, sizeof a) != 0;
    close(fd);
    return refused;
}

static void pause_engine(bool paused)
{
    pthread_mutex_lock(&fx.fake.lock);
    fx.fake.paused = paused;
    pthread_mutex_unlock(&fx.fake.lock);
}

static void stopping(void **state)
{
    (void)state;
    struct http_config cfg = config();
    start(&cfg);
    pause_engine(true);
    int idle = dial_and_say("GET /big?n=5 HTTP/1.1\r\nHost: x\r\n\r\n");
    assert_non_null(strstr(hear(idle, "ahovc"), "ahovc"));
    int late = dial_and_say("GET /late?ms=200 HTTP/1.1\r\nHost: x\r\n\r\n");
    int stream = dial_and_say("GET /stream?n=30&hz=100 HTTP/1.1\r\nHost: x\r\n\r\n");
    assert_true(becomes(n_begun, 3));
    uint64_t t = clock_us();
    http_server_stop(fx.server, 4 * PATIENT_MS);
    while (!is_refused())
        usleep(1000);
    pause_engine(false);
    stop(4 * PATIENT_MS);
    assert_true(clock_us() - t < 2000ull * PATIENT_MS); /* it waited for them alone */
    assert_true(is_closed(idle));
    const char *got = hear(late, "late\n");
    assert_non_null(strstr(got, "Connection: close"));
    assert_non_null(strstr(got, "late\n"));
    assert_non_null(strstr(hear(stream, "[DONE]"), "[DONE]"));
    close(idle);
    close(late);
    close(stream);
}

static void stopping_in_haste(void **state)
{
    (void)state;
    struct http_config cfg = config();
    start(&cfg);
    int fds[5] = {dial_and_say("GET /hang HTTP/1.1\r\nHost: x\r\n\r\n"),
                  dial_and_say("GET /silent HTTP/1.1\r\nHost: x\r\n\r\n"),
                  dial_and_say("GET /flood?n=100000000 HTTP/1.1\r\nHost: x\r\n\r\n"),
                  dial_and_say("GET /slow?ms=600 HTTP/1.1\r\nHost: x\r\n\r\n"),
                  dial_and_say("POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\n")};
    assert_true(becomes(n_begun, 4));
    uint64_t t = clock_us();
    stop(300);
    assert_in_range(clock_us() - t, 290000, 1000ull * PATIENT_MS);
    for (int i = 0; i < 5; i++)
        close(fds[i]);
}

static void port_in_use(void **state)
{
    (void)state;
    struct http_config cfg = config();
    start(&cfg);
    struct http_server *other;
    struct err_info e;
    cfg.port = http_server_port(fx.server);
    assert_int_equal(http_server_create(&cfg, &fx.fake.app, &other, &e), ERR_IO);
    assert_non_null(strstr(e.text, "Address already in use"));
    cfg.port = 0;
    cfg.host = "no.such.host.invalid";
    assert_int_equal(http_server_create(&cfg, &fx.fake.app, &other, &e), ERR_IO);
    assert_non_null(strstr(e.text, "no.such.host.invalid"));
    cfg.max_connections = 0;
    assert_int_equal(http_server_create(&cfg, &fx.fake.app, &other, &e), ERR_INVALID);
}

static void other_addresses(void **state)
{
    (void)state;
    struct http_config cfg = config();
    cfg.host = "localhost";
    start(&cfg);
    struct http_server *six;
    cfg.host = "::1";
    if (http_server_create(&cfg, &fx.fake.app, &six, NULL) != OK) {
        print_message("no IPv6 here: skipped\n");
        return;
    }
    struct sockaddr_in6 a = {.sin6_family = AF_INET6, .sin6_port = htons(http_server_port(six))};
    a.sin6_addr = in6addr_loopback;
    int fd = socket(AF_INET6, SOCK_STREAM, 0);
    assert_int_equal(connect(fd, (struct sockaddr *)&a, sizeof a), 0);
    close(fd);
    http_server_destroy(six);
    cfg.host = "127.0.0.1, ::1"; /* both at one port */
    assert_int_equal(http_server_create(&cfg, &fx.fake.app, &six, NULL), OK);
    a.sin6_port = htons(http_server_port(six));
    fd = socket(AF_INET6, SOCK_STREAM, 0);
    assert_int_equal(connect(fd, (struct sockaddr *)&a, sizeof a), 0);
    close(fd);
    struct sockaddr_in four = {.sin_family = AF_INET, .sin_port = a.sin6_port};
    four.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    fd = socket(AF_INET, SOCK_STREAM, 0);
    assert_int_equal(connect(fd, (struct sockaddr *)&four, sizeof four), 0);
    close(fd);
    http_server_destroy(six);
    cfg.host = "0.0.0.0,::"; /* the one does not take the other's */
    assert_int_equal(http_server_create(&cfg, &fx.fake.app, &six, NULL), OK);
    http_server_destroy(six);
    struct err_info e;
    cfg.host = "127.0.0.1,,::1";
    assert_int_equal(http_server_create(&cfg, &fx.fake.app, &six, &e), ERR_INVALID);
}

/* ---- junk -------------------------------------------------------------------------------- */

static uint32_t next_random(uint64_t *x)
{
    *x = *x * 6364136223846793005ull + 1442695040888963407ull;
    return (uint32_t)(*x >> 33);
}

/* Pieces of HTTP and random bytes in random order; some clients leave at once. */
static void junk(void **state)
{
    (void)state;
    struct http_config cfg = config();
    cfg.request_ms = 500;
    start(&cfg);
    const char *env = getenv("WEIR_SEED");
    uint64_t x = env ? strtoull(env, NULL, 10) : clock_us();
    print_message("seed %llu\n", (unsigned long long)x);
    static const char *const pieces[] = {"GET ",
                                         "POST ",
                                         "/echo",
                                         "/stream?n=3",
                                         "/hang",
                                         " HTTP/1.1\r\n",
                                         " HTTP/1.0\r\n",
                                         "\r\n",
                                         "Host: x\r\n",
                                         "Content-Length: 5\r\n",
                                         "Content-Length: 99\r\n",
                                         "Transfer-Encoding: chunked\r\n",
                                         "5\r\nabcde\r\n",
                                         "0\r\n\r\n",
                                         "ffffffffffffffff1\r\n",
                                         "Expect: 100-continue\r\n",
                                         ":",
                                         "\n",
                                         "\r",
                                         " folded\r\n",
                                         "A: b\r\n",
                                         "HTTP/9.9\r\n",
                                         "Connection: close\r\n",
                                         "%",
                                         "?",
                                         "5;ext=aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"};
    const uint32_t n_pieces = sizeof pieces / sizeof *pieces;
    for (int round = 0; round < 400; round++) {
        char msg[4096];
        size_t n = 0;
        while (n < 3000 && next_random(&x) % 16) {
            uint32_t r = next_random(&x) % (n_pieces + 3);
            if (r < n_pieces) {
                memcpy(msg + n, pieces[r], strlen(pieces[r]));
                n += strlen(pieces[r]);
            } else {
                for (uint32_t i = next_random(&x) % 20; i > 0; i--)
                    msg[n++] = (char)next_random(&x);
            }
        }
        int fd = dial();
        (void)!send(fd, msg, n, MSG_NOSIGNAL);
        if (next_random(&x) % 4 == 0)
            shutdown(fd, SHUT_WR);
        if (next_random(&x) % 4 == 0)
            (void)hear_for(fd, "\r\n\r\n", 30);
        close(fd);
    }
    expect("GET /big?n=5 HTTP/1.1\r\nHost: x\r\n\r\n", "ahovc");
    assert_true(becomes(n_open, 0));
}

/* A chunk's extension that never ends fills the library's buffer: it must not fill the CPU. */
static void endless_extension(void **state)
{
    (void)state;
    struct http_config cfg = config();
    cfg.request_ms = 400;
    start(&cfg);
    int fd = dial_and_say("POST /echo HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n5;");
    static char a[100000];
    memset(a, 'a', sizeof a);
    (void)!send(fd, a, sizeof a, MSG_NOSIGNAL | MSG_DONTWAIT);
    uint64_t t = clock_us();
    clock_t cpu = clock();
    expect("GET /big?n=5 HTTP/1.1\r\nHost: x\r\n\r\n", "ahovc");
    assert_true(is_closed(fd));
    assert_true((double)(clock() - cpu) / CLOCKS_PER_SEC < 0.4e-6 * (double)(clock_us() - t));
    close(fd);
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(answers),
        TEST(streams),
        TEST(pipelined_and_kept_alive),
        TEST(expect_continue),
        TEST(refusals),
        TEST(too_large),
        TEST(leaving),
        TEST(leaving_the_queue),
        TEST(slow_readers),
        TEST(patience),
        TEST(patience_with_bodies),
        TEST(comments),
        TEST(too_many_connections),
        TEST(stopping),
        TEST(stopping_in_haste),
        TEST(port_in_use),
        TEST(other_addresses),
        TEST(junk),
        TEST(endless_extension),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
