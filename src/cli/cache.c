/* weir cache: what a disk cache holds, whether it is whole, and how to be rid of it. Works on the
 * folder alone, beside a running server or without one; only rm needs to be alone. */
#include "base/mem.h"
#include "cli/cli.h"
#include "gguf/gguf.h"
#include "kv/disk_files.h"
#include "kv/segment.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { ABOUT_BYTES = 512, TIME_BYTES = 32 };

struct options {
    const char *action, *dir;
    bool bad;
};

static error_t parse_option(int key, char *arg, struct argp_state *state)
{
    struct options *o = state->input;
    switch (key) {
    case 'b':
        o->bad = true;
        return 0;
    case ARGP_KEY_ARG:
        if (o->dir)
            argp_error(state, "one DIR at a time");
        if (!o->action)
            o->action = arg;
        else
            o->dir = arg;
        return 0;
    case ARGP_KEY_END:
        if (!o->dir)
            argp_error(state, "say what to do (ls, verify or rm) and with which DIR");
        if (strcmp(o->action, "ls") != 0 && strcmp(o->action, "verify") != 0 &&
            strcmp(o->action, "rm") != 0)
            argp_error(state, "'%s' is none of ls, verify, rm", o->action);
        if (o->bad && strcmp(o->action, "rm") != 0)
            argp_error(state, "--bad goes with rm");
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

static const struct argp_option options[] = {
    {"bad", 'b', NULL, 0, "rm: only the segments that verify would name", 0},
    {0},
};

static const struct argp argp = {
    .options = options,
    .parser = parse_option,
    .args_doc = "ls|verify|rm DIR",
    .doc = "Look after a disk cache of KV blocks: list it by model, read and check every segment, "
           "or remove segments. verify exits with 1 if any is bad. rm refuses while a server "
           "writes to DIR, and leaves files that are not the cache's."
           "\vExamples:\n"
           "  weir cache ls /var/cache/weir\n"
           "  weir cache verify /var/cache/weir\n"
           "  weir cache rm --bad /var/cache/weir\n"
           "  weir cache rm /var/cache/weir",
};

/* --- ls --------------------------------------------------------------------------------------- */

struct model {
    uint64_t id;
    uint64_t n_segments, n_damaged, n_tokens, n_bytes;
    int64_t oldest_ns, newest_ns;
    char about[ABOUT_BYTES];
    size_t about_len;
};

struct listing {
    struct model *models;
    size_t n, cap;
    uint64_t n_others, others_bytes;
};

/* A folder is walked in one go, so a file's model is the last one or a new one. */
static struct model *model_of(struct listing *l, const struct kv_file *f)
{
    if (l->n > 0 && l->models[l->n - 1].id == f->model)
        return &l->models[l->n - 1];
    if (l->n == l->cap) {
        l->cap = l->cap * 2 + 8;
        l->models = mem_realloc(l->models, l->cap * sizeof *l->models);
    }
    l->models[l->n] = (struct model){.id = f->model, .oldest_ns = INT64_MAX};
    return &l->models[l->n++];
}

/* -1 and errno; never blocks, never follows a link. */
static int open_file(const struct kv_file *f)
{
    return openat(f->folder, f->name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
}

static void list_segment(struct model *m, const struct kv_file *f)
{
    struct kv_segment s;
    int fd = open_file(f);
    bool good = fd >= 0 && kv_segment_head(fd, &s, NULL) == OK;
    if (fd >= 0)
        close(fd);
    m->n_segments++;
    m->n_damaged += !good;
    m->n_tokens += good ? s.n_tokens : 0;
    m->n_bytes += f->bytes;
    if (f->mtime_ns < m->oldest_ns)
        m->oldest_ns = f->mtime_ns;
    if (f->mtime_ns > m->newest_ns)
        m->newest_ns = f->mtime_ns;
}

static void list_about(struct model *m, const struct kv_file *f)
{
    int fd = open_file(f);
    ssize_t n = fd >= 0 ? read(fd, m->about, sizeof m->about) : 0;
    if (fd >= 0)
        close(fd);
    m->about_len = 0;
    while (n > 0 && m->about_len < (size_t)n && m->about[m->about_len] != '\n')
        m->about_len++;
}

static void list_file(void *ctx, const struct kv_file *f)
{
    struct listing *l = ctx;
    if (f->kind == KV_FILE_SEGMENT) {
        list_segment(model_of(l, f), f);
        return;
    }
    if (f->kind == KV_FILE_ABOUT)
        list_about(model_of(l, f), f);
    if (f->kind != KV_FILE_LOCK) {
        l->n_others++;
        l->others_bytes += f->bytes;
    }
}

static int by_id(const void *a, const void *b)
{
    uint64_t x = ((const struct model *)a)->id, y = ((const struct model *)b)->id;
    return x < y ? -1 : x > y;
}

static const char *show_time(int64_t ns, char out[TIME_BYTES])
{
    time_t seconds = (time_t)(ns / 1000000000);
    struct tm tm;
    if (!localtime_r(&seconds, &tm) || strftime(out, TIME_BYTES, "%Y-%m-%d %H:%M:%S", &tm) == 0)
        snprintf(out, TIME_BYTES, "?");
    return out;
}

static void print_model(const struct model *m)
{
    char oldest[TIME_BYTES] = "-", newest[TIME_BYTES] = "-", about[ABOUT_BYTES];
    if (m->n_segments > 0) {
        show_time(m->oldest_ns, oldest);
        show_time(m->newest_ns, newest);
    }
    printf("  %016" PRIx64 " %10" PRIu64 " %14" PRIu64 " %18" PRIu64 "  %-19s  %-19s  %s\n",
           m->id,
           m->n_segments,
           m->n_tokens,
           m->n_bytes,
           oldest,
           newest,
           gguf_show((struct gguf_str){m->about, m->about_len}, about, sizeof about));
}

static int list(int root, const char *dir, struct err_info *e)
{
    struct listing l = {0};
    struct model all = {0};
    if (kv_files_walk(root, dir, list_file, &l, e)) {
        free(l.models);
        return cli_fail("cache", e);
    }
    if (l.n > 0)
        qsort(l.models, l.n, sizeof *l.models, by_id);
    printf("  %-16s %10s %14s %18s  %-19s  %-19s  %s\n",
           "model",
           "segments",
           "tokens",
           "bytes",
           "oldest use",
           "newest use",
           "about");
    for (size_t i = 0; i < l.n; i++) {
        print_model(&l.models[i]);
        all.n_segments += l.models[i].n_segments;
        all.n_damaged += l.models[i].n_damaged;
        all.n_tokens += l.models[i].n_tokens;
        all.n_bytes += l.models[i].n_bytes;
    }
    printf("  %-16s %10" PRIu64 " %14" PRIu64 " %18" PRIu64 "\n",
           "all",
           all.n_segments,
           all.n_tokens,
           all.n_bytes);
    if (l.n_others > 0)
        printf("  other files: %" PRIu64 ", %" PRIu64 " bytes\n", l.n_others, l.others_bytes);
    if (all.n_damaged > 0)
        printf("  damaged or of another version: %" PRIu64 "; see weir cache verify\n",
               all.n_damaged);
    free(l.models);
    return EXIT_DONE;
}

/* --- verify and rm ---------------------------------------------------------------------------- */

struct check {
    struct kv_hasher *h;
    uint64_t n_good, n_bad, n_removed, n_failed;
    uint64_t total_bytes, done_bytes, removed_bytes;
    bool remove, only_bad;
};

/* The segment by itself, and under the name that it has. */
static enum err check_segment(struct kv_hasher *h, const struct kv_file *f, struct err_info *e)
{
    struct kv_segment s;
    int fd = open_file(f);
    if (fd < 0)
        return errno == ENOENT ? ERR_NOT_FOUND
                               : err_set(e, ERR_IO, "cannot open: %s", strerror(errno));
    enum err err = kv_segment_verify(fd, h, &s, e);
    close(fd);
    if (!err && !kv_key_equal(&s.key, &f->key))
        err = err_set(e, ERR_INVALID, "foreign: its key is not its name");
    if (!err && kv_file_model(&s.fingerprint) != f->model)
        err = err_set(e, ERR_INVALID, "foreign: of another model than its folder");
    return err;
}

static void remove_file(struct check *c, const struct kv_file *f)
{
    if (unlinkat(f->folder, f->name, 0) == 0) {
        c->n_removed += f->kind == KV_FILE_SEGMENT;
        c->removed_bytes += f->bytes;
    } else if (errno != ENOENT && c->n_failed++ == 0) {
        fprintf(stderr, "weir cache: cannot remove %s: %s\n", f->name, strerror(errno));
    }
}

static void check_file(void *ctx, const struct kv_file *f)
{
    struct check *c = ctx;
    struct err_info e = {0};
    if (c->remove && f->kind == KV_FILE_TEMPORARY)
        remove_file(c, f);
    if (f->kind != KV_FILE_SEGMENT)
        return;
    enum err err = c->remove && !c->only_bad ? OK : check_segment(c->h, f, &e);
    c->done_bytes += f->bytes;
    if (c->total_bytes > 0 && c->done_bytes < c->total_bytes)
        cli_progress("checking", (double)c->done_bytes / (double)c->total_bytes);
    if (err == ERR_NOT_FOUND) /* evicted meanwhile */
        return;
    if (err)
        printf(
            "%016" PRIx64 "/%02x/%s: %s\n", f->model, (unsigned)f->key.bytes[0], f->name, e.text);
    c->n_good += !err;
    c->n_bad += err != OK;
    /* what could not be read just now may be good */
    bool known = err != ERR_IO && err != ERR_NOMEM;
    if (c->remove && (err ? known : !c->only_bad))
        remove_file(c, f);
}

static void sum_file(void *ctx, const struct kv_file *f)
{
    struct check *c = ctx;
    if (f->kind == KV_FILE_SEGMENT)
        c->total_bytes += f->bytes;
}

/* All segments, after a look at how much there is. */
static enum err check_all(int root, const char *dir, struct check *c, struct err_info *e)
{
    enum err err = kv_hasher_create(&c->h, e);
    if (!err)
        err = kv_files_walk(root, dir, sum_file, c, e);
    if (!err)
        err = kv_files_walk(root, dir, check_file, c, e);
    if (!err)
        cli_progress("checking", 1);
    kv_hasher_destroy(c->h);
    return err;
}

static int verify(int root, const char *dir, struct err_info *e)
{
    struct check c = {0};
    if (check_all(root, dir, &c, e))
        return cli_fail("cache", e);
    printf("%" PRIu64 " segments: %" PRIu64 " good, %" PRIu64 " bad\n",
           c.n_good + c.n_bad,
           c.n_good,
           c.n_bad);
    return c.n_bad ? EXIT_FAILED : EXIT_DONE;
}

static int remove_segments(int root, const struct options *o, struct err_info *e)
{
    struct check c = {.remove = true, .only_bad = o->bad};
    int lock = kv_files_lock(root, false);
    if (lock < 0) {
        err_set(e,
                ERR_IO,
                "%s: %s",
                o->dir,
                errno == EWOULDBLOCK ? "a server writes to it; stop that first"
                : errno == ENOENT    ? "not a disk cache: it has no lock file"
                                     : strerror(errno));
        return cli_fail("cache", e);
    }
    enum err err = check_all(root, o->dir, &c, e);
    if (!err)
        kv_files_prune(root, NULL);
    close(lock);
    if (err)
        return cli_fail("cache", e);
    printf("removed %" PRIu64 " segments, %" PRIu64 " bytes\n", c.n_removed, c.removed_bytes);
    return c.n_failed ? EXIT_FAILED : EXIT_DONE;
}

int cmd_cache(int argc, char **argv)
{
    struct options o = {0};
    struct err_info e = {0};
    int root;
    cli_parse(&argp, argc, argv, &o);
    if (kv_files_open(o.dir, false, &root, &e))
        return cli_fail("cache", &e);
    int status = strcmp(o.action, "ls") == 0       ? list(root, o.dir, &e)
                 : strcmp(o.action, "verify") == 0 ? verify(root, o.dir, &e)
                                                   : remove_segments(root, &o, &e);
    close(root);
    return status;
}
