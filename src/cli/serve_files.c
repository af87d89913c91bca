#include "cli/serve_files.h"

#include "base/line_log.h"
#include "base/log.h"
#include "cli/cli.h"

#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define MAX_BYTES ((size_t)4 << 20)

static void warn_if_open(const char *flag, const char *path)
{
    struct stat st;
    if (stat(path, &st) == 0 && (st.st_mode & (S_IROTH | S_IWOTH)) != 0)
        log_warn("%s: others on this machine may read or change %s", flag, path);
}

static bool is_regular(const char *path)
{
    struct stat st;
    return stat(path, &st) != 0 || S_ISREG(st.st_mode); /* if there is none opening it says so */
}

/* A pipe may be read, once, and nobody may write to it: until it has been read what is asked to end
 * ends, for nothing has begun. */
static enum err read_interruptibly(const char *path, char **out, size_t *n, struct err_info *e)
{
    sigset_t ends, before;
    sigemptyset(&ends);
    sigaddset(&ends, SIGTERM);
    sigaddset(&ends, SIGINT);
    pthread_sigmask(SIG_UNBLOCK, &ends, &before);
    enum err err = cli_read_file(path, MAX_BYTES, out, n, e);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return err;
}

/* The text of a file, malloc'd and wiped by whoever frees it; `flag` is the field of errors. Read
 * again, it must not wait for anybody: the thread is the one that hears of signals. */
static enum err read_text(const struct serve_files *f,
                          const char *flag,
                          const char *path,
                          char **out,
                          size_t *n,
                          struct err_info *e)
{
    struct err_info why = {0};
    if (f->again && !is_regular(path))
        return err_set_field(e, ERR_IO, flag, "%s is no regular file", path);
    enum err err = f->again ? cli_read_file(path, MAX_BYTES, out, n, &why)
                            : read_interruptibly(path, out, n, &why);
    if (err)
        return err_set_field(e, err, flag, "%s", why.text);
    if (!memchr(*out, '\0', *n))
        return OK;
    explicit_bzero(*out, *n);
    free(*out);
    *out = NULL;
    return err_set_field(e, ERR_FORMAT, flag, "%s is no text: it has a NUL byte", path);
}

static void wipe(char **text)
{
    if (*text)
        explicit_bzero(*text, strlen(*text));
    free(*text);
    *text = NULL;
}

bool serve_is_key(const char *s)
{
    const char *c = s;
    while (*c > 0x20 && *c < 0x7f)
        c++;
    return c > s && *c == '\0';
}

/* The first line, which must be a key. */
static enum err read_admin_key(struct serve_files *f, struct err_info *e)
{
    const char *path = f->opt->admin_key_file;
    char **out = &f->admin_key;
    size_t n;
    enum err err = read_text(f, "admin-key-file", path, out, &n, e);
    if (err)
        return err;
    /* NOLINTNEXTLINE(clang-analyzer-core.*): without an error there is a text */
    (*out)[strcspn(*out, "\r\n")] = '\0';
    if (!serve_is_key(*out)) {
        wipe(out);
        return err_set_field(e,
                             ERR_FORMAT,
                             "admin-key-file",
                             "the first line of %s must be the key: visible ASCII without blanks",
                             path);
    }
    warn_if_open("admin-key-file", path);
    return OK;
}

static enum err read_tls(struct serve_files *f, struct err_info *e)
{
    const struct serve_options *o = f->opt;
    size_t n;
    enum err err = read_text(f, "tls-cert", o->tls_cert_file, &f->tls_cert, &n, e);
    if (!err)
        err = read_text(f, "tls-key", o->tls_key_file, &f->tls_key, &n, e);
    if (!err)
        warn_if_open("tls-key", o->tls_key_file);
    return err;
}

enum err serve_files_open(struct serve_files *f, const struct serve_options *o, struct err_info *e)
{
    enum err err = OK;
    *f = (struct serve_files){.opt = o};
    if (o->access_log)
        err = line_log_open(o->access_log, "access log", &f->lines, e);
    else if (o->log_slow)
        err = line_log_open(NULL, "slow log", &f->lines, e);
    if (!err && o->admin_key_file)
        err = read_admin_key(f, e);
    if (!err && o->tls_cert_file)
        err = read_tls(f, e);
    return err;
}

enum err serve_files_load_keys(const struct serve_files *f, struct api *api, struct err_info *e)
{
    const char *path = f->opt->api_keys_file;
    char *text = NULL;
    size_t n = 0;
    uint32_t n_plain = 0;
    struct err_info why = {0};
    if (!path)
        return OK;
    enum err err = read_text(f, "api-keys", path, &text, &n, e);
    if (err)
        return err;
    err = api_load_keys(api, text, n, &n_plain, &why);
    wipe(&text);
    if (err)
        return err_set_field(e, err, "api-keys", "%s: %s", path, why.text);
    if (n_plain > 0)
        warn_if_open("api-keys", path);
    return OK;
}

void serve_files_forget(struct serve_files *f)
{
    wipe(&f->tls_cert);
    wipe(&f->tls_key);
    wipe(&f->admin_key);
}

void serve_files_close(struct serve_files *f)
{
    serve_files_forget(f);
    line_log_close(f->lines);
    f->lines = NULL;
}

bool serve_files_any(const struct serve_options *o)
{
    return o->api_keys_file || o->admin_key_file || o->tls_cert_file || o->access_log;
}

static void say(const char *what, enum err err, const struct err_info *e)
{
    if (err)
        log_error(
            "reload: %s: %s; what was in force stays", e->field[0] ? e->field : what, e->text);
    else
        log_info("reload: %s", what);
}

void serve_files_reload(struct serve_files *f, struct api *api, struct http_server *http)
{
    const struct serve_options *o = f->opt;
    struct err_info e = {0};
    f->again = true;
    if (o->api_keys_file)
        say("api-keys", serve_files_load_keys(f, api, &e), &e);
    e = (struct err_info){0};
    if (o->admin_key_file) {
        enum err err = read_admin_key(f, &e);
        if (!err)
            api_set_admin_key(api, f->admin_key);
        say("admin-key-file", err, &e);
    }
    e = (struct err_info){0};
    if (o->tls_cert_file) {
        enum err err = read_tls(f, &e);
        if (!err)
            err = http_server_set_identity(http, f->tls_cert, f->tls_key, &e);
        say("tls-cert", err, &e);
    }
    serve_files_forget(f);
    if (o->access_log && f->lines) {
        line_log_reopen(f->lines);
        log_info("reload: access-log");
    }
}

void serve_files_line(void *ctx, const char *line, size_t n)
{
    struct serve_files *f = ctx;
    line_log_write(f->lines, line, n);
}
