/* The HTTP layer with a fake engine behind it, for tests with real clients and for measuring.
 *
 *      fake_app [key=value]...   port connections workers body held header keepalive request idle
 * grace cert key (files: TLS)
 *
 * Prints "port N" when it listens, its counters on SIGUSR1 and at the end; SIGTERM stops it. Exits
 * with 1 if a call was not ended exactly once. */
#include "http/fake_engine.h"

#include <signal.h>

static struct fake fake;
static struct http_server *server;
static uint32_t grace_ms = 2000;
static volatile sig_atomic_t want_stats;

static void on_stop(int sig)
{
    (void)sig;
    http_server_stop(server, grace_ms);
}

static void on_usr1(int sig)
{
    (void)sig;
    want_stats = 1;
}

static void print_stats(void)
{
    struct buf b = {0};
    fake_stats(&fake, &b);
    printf("%s", buf_cstr(&b));
    fflush(stdout);
    buf_deinit(&b);
}

static void *app_next(void *ctx)
{
    if (want_stats) {
        want_stats = 0;
        print_stats();
    }
    return fake_next(ctx);
}

static uint32_t option(int argc, char **argv, const char *name, uint32_t otherwise)
{
    size_t n = strlen(name);
    for (int i = 1; i < argc; i++) {
        if (!strncmp(argv[i], name, n) && argv[i][n] == '=')
            return (uint32_t)strtoul(argv[i] + n + 1, NULL, 10);
    }
    return otherwise;
}

/* The text of a file named by an option; NULL without the option. Never freed. */
static const char *file_of(int argc, char **argv, const char *name)
{
    static char room[2][65536];
    static int n_rooms;
    size_t n = strlen(name);
    for (int i = 1; i < argc; i++) {
        if (strncmp(argv[i], name, n) != 0 || argv[i][n] != '=')
            continue;
        FILE *f = fopen(argv[i] + n + 1, "r");
        char *text = room[n_rooms++];
        text[f ? fread(text, 1, sizeof room[0] - 1, f) : 0] = '\0';
        if (f)
            fclose(f);
        return text;
    }
    return NULL;
}

int main(int argc, char **argv)
{
    struct http_config cfg = {
        .host = "127.0.0.1",
        .port = (uint16_t)option(argc, argv, "port", 0),
        .max_connections = option(argc, argv, "connections", 8192),
        .max_body_bytes = option(argc, argv, "body", 1 << 20),
        .max_held_bytes = option(argc, argv, "held", 0),
        .max_header_bytes = option(argc, argv, "header", 16384),
        .n_workers = option(argc, argv, "workers", 2),
        .keepalive_comment_ms = option(argc, argv, "keepalive", 0),
        .request_ms = option(argc, argv, "request", 0),
        .idle_ms = option(argc, argv, "idle", 0),
        .stall_ms = option(argc, argv, "stall", 0),
        .tls_cert = file_of(argc, argv, "cert"),
        .tls_key = file_of(argc, argv, "key"),
    };
    grace_ms = option(argc, argv, "grace", grace_ms);
    fake_start(&fake);
    fake.app.next = app_next;
    struct err_info e;
    if (http_server_create(&cfg, &fake.app, &server, &e) != OK) {
        fprintf(stderr, "fake_app: %s\n", e.text);
        fake_stop(&fake);
        return 2;
    }
    fake.server = server;
    signal(SIGTERM, on_stop);
    signal(SIGINT, on_stop);
    signal(SIGUSR1, on_usr1);
    printf("port %u\n", http_server_port(server));
    fflush(stdout);
    enum err rc = http_server_run(server, &e);
    print_stats();
    bool ok = rc == OK && fake.n_begin == fake.n_end && fake.n_double_end == 0;
    http_server_destroy(server);
    fake_stop(&fake);
    return ok ? 0 : 1;
}
