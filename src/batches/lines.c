/* A batch's input and results, line by line.
 *
 * A result's id is batch_req_, the batch's own digits, and the number of the line it answers, so
 * the output and the error file say by themselves what is done:
 *
 *      {"id":"batch_req_0123...cdef_00000007","custom_id":...}\n     line 7 of the input
 *      {"id":"batch_req_0123...cdef_0000                             torn: cut off, and done again
 *
 * From the first line on that is not a whole result of this batch, a file is cut off. After a
 * killed process that is at most the last one; after a power cut, what was not synced. */
#include "batches/internal.h"

#include "api/json.h"
#include "base/mem.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

/* --- input ------------------------------------------------------------------------------------ */

static bool is_blank(const char *s, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (s[i] != ' ' && s[i] != '\t' && s[i] != '\r')
            return false;
    return true;
}

/* The lines that are not blank, without their ends. lines: NULL to count. */
static enum err split(const struct batches_config *cfg,
                      const char *data,
                      size_t n,
                      struct line *lines,
                      uint32_t *n_lines,
                      struct err_info *e)
{
    uint32_t number = 0;
    *n_lines = 0;
    for (size_t at = 0; at < n;) {
        const char *end = memchr(data + at, '\n', n - at);
        size_t len = end ? (size_t)(end - data) - at : n - at;
        number++;
        if (len > cfg->max_line_bytes)
            return err_invalid(e,
                               "file",
                               "line %u has %zu bytes; at most %u are allowed",
                               number,
                               len,
                               cfg->max_line_bytes);
        if (!is_blank(data + at, len)) {
            if (*n_lines == cfg->max_lines)
                return err_invalid(e,
                                   "file",
                                   "the file has more than the %u requests that are allowed",
                                   cfg->max_lines);
            if (lines)
                lines[*n_lines] =
                    (struct line){.at = at, .n_bytes = (uint32_t)len, .number = number};
            ++*n_lines;
        }
        at += len + 1;
    }
    return OK;
}

enum err lines_check(const struct batches_config *cfg,
                     const char *data,
                     size_t n,
                     struct err_info *e)
{
    uint32_t n_lines;
    if (n > cfg->max_file_bytes)
        return err_invalid(e,
                           "file",
                           "the file has %zu bytes; at most %llu are allowed",
                           n,
                           (unsigned long long)cfg->max_file_bytes);
    enum err err = split(cfg, data, n, NULL, &n_lines, e);
    if (!err && n_lines == 0)
        return err_invalid(e, "file", "the file has no requests: it is empty");
    return err;
}

/* Of lines that have the same custom_id, all but the first are refused: an answer could not be
 * told from the other's. */
struct named {
    char *custom_id;
    uint32_t line;
};

static int by_name(const void *a, const void *b)
{
    const struct named *x = a, *y = b;
    int order = strcmp(x->custom_id, y->custom_id);
    return order ? order : (x->line > y->line) - (x->line < y->line);
}

static enum err mark_repeats(struct lines *l, const char *data, struct err_info *e)
{
    struct named *names = mem_zalloc(l->n + 1, sizeof *names);
    enum err err = OK;
    uint32_t n = 0;
    for (uint32_t i = 0; i < l->n && !err; i++) {
        json_error_t je;
        json_t *v = api_json_load(data + l->lines[i].at, l->lines[i].n_bytes, 0, &je);
        if (!v && api_json_starved())
            err = err_set(e, ERR_NOMEM, "no memory to read line %u", l->lines[i].number);
        const char *id = json_string_value(json_object_get(v, "custom_id"));
        if (id)
            names[n++] = (struct named){.custom_id = mem_strdup(id), .line = i};
        json_decref(v);
    }
    qsort(names, n, sizeof *names, by_name);
    for (uint32_t i = 1; i < n; i++)
        l->lines[names[i].line].repeats = strcmp(names[i].custom_id, names[i - 1].custom_id) == 0;
    for (uint32_t i = 0; i < n; i++)
        free(names[i].custom_id);
    free(names);
    return err;
}

static enum err read_input(const struct batches_config *cfg, struct lines *l, struct err_info *e)
{
    struct stat st;
    if (fstat(l->in_fd, &st) != 0)
        return err_set(e, ERR_IO, "the input file cannot be read: %s", strerror(errno));
    if (!S_ISREG(st.st_mode))
        return err_set(e, ERR_INVALID, "the input file cannot be read: it is no file");
    if (st.st_size == 0)
        return err_set(e, ERR_INVALID, "the input file cannot be read: it is empty");
    size_t size = (size_t)st.st_size;
    char *data = mmap(NULL, size, PROT_READ, MAP_PRIVATE, l->in_fd, 0);
    if (data == MAP_FAILED)
        return err_set(e, ERR_NOMEM, "no memory to read an input file of %zu bytes", size);
    enum err err = split(cfg, data, size, NULL, &l->n, e);
    if (!err) {
        l->lines = mem_zalloc(l->n + 1, sizeof *l->lines);
        err = split(cfg, data, size, l->lines, &l->n, e);
    }
    if (!err)
        err = mark_repeats(l, data, e);
    munmap(data, size);
    l->n_open = l->n;
    return err;
}

char *lines_read(const struct lines *l, uint32_t i, struct err_info *e)
{
    const struct line *line = &l->lines[i];
    char *text = mem_alloc((size_t)line->n_bytes + 1); /* its length was bounded */
    if (pread(l->in_fd, text, line->n_bytes, (off_t)line->at) != (ssize_t)line->n_bytes) {
        err_set(
            e, ERR_IO, "line %u of the input cannot be read: %s", line->number, strerror(errno));
        free(text);
        return NULL;
    }
    text[line->n_bytes] = '\0';
    return text;
}

/* --- results ---------------------------------------------------------------------------------- */

/* How the result of a line begins: its id is "batch_req_", the job's own digits, and the line's
 * number. The first is what comes before that, as long whatever it is. */
static size_t result_prefix(const struct job *j, char out[112])
{
    const char *digits = j->entry.id + strlen("batch_");
    return (size_t)snprintf(out, 112, "{\"id\":\"batch_req_%s_", digits);
}

static size_t result_start(const struct job *j, uint32_t number, char out[112])
{
    const size_t at = result_prefix(j, out);
    return at + (size_t)snprintf(out + at, 112 - at, "%08u\",\"custom_id\":", number);
}

/* Does what was begun with a { end with the last byte? An answer may be nested deeper than a parser
 * goes. A NUL is what a disk has in place of bytes that were not written. */
static bool is_whole(const char *text, size_t n)
{
    size_t depth = 0;
    bool quoted = false;
    for (size_t i = 0; i < n && text[i]; i++) {
        const char c = text[i];
        if (quoted) {
            quoted = c != '"';
            i += c == '\\';
        } else if (c == '"') {
            quoted = true;
        } else if (c == '{' || c == '[') {
            depth++;
        } else if ((c == '}' || c == ']') && --depth == 0) {
            return i + 1 == n;
        }
    }
    return false;
}

/* The line of the input whose result this is, or -1. */
static int64_t result_of(const struct job *j, const struct lines *l, const char *text, size_t n)
{
    char want[112];
    uint32_t number = 0, lo = 0, hi = l->n;
    for (size_t i = result_prefix(j, want); i < n && text[i] >= '0' && text[i] <= '9'; i++)
        number = number * 10 + (uint32_t)(text[i] - '0');
    const size_t n_want = result_start(j, number, want);
    if (n < n_want || memcmp(text, want, n_want) != 0 || !is_whole(text, n))
        return -1;
    while (lo < hi) {
        uint32_t mid = lo + (hi - lo) / 2;
        if (l->lines[mid].number < number)
            lo = mid + 1;
        else
            hi = mid;
    }
    const bool found =
        lo < l->n && l->lines[lo].number == number && l->lines[lo].state == LINE_OPEN;
    return found ? (int64_t)lo : -1;
}

/* Mark what the file says is done; cut off what is not whole. l NULL: there is no input that could
 * be done again, so that only half a line is cut off. */
static enum err resume(
    const struct job *j, struct lines *l, int fd, uint32_t *n, struct err_info *e)
{
    struct stat st;
    if (fstat(fd, &st) != 0)
        return err_set(e, ERR_IO, "a result file cannot be read: %s", strerror(errno));
    if (!S_ISREG(st.st_mode))
        return err_set(e, ERR_IO, "a result file cannot be read: it is no file");
    size_t size = (size_t)st.st_size, at = 0;
    if (size == 0)
        return OK;
    const char *data = mmap(NULL, size, PROT_READ, MAP_PRIVATE, fd, 0);
    if (data == MAP_FAILED)
        return err_set(e, ERR_NOMEM, "no memory to read a result file of %zu bytes", size);
    for (;;) {
        const char *end = at < size ? memchr(data + at, '\n', size - at) : NULL;
        int64_t i = !end ? -1 : !l ? 0 : result_of(j, l, data + at, (size_t)(end - data) - at);
        if (i < 0)
            break;
        if (l) {
            l->lines[i].state = LINE_DONE;
            l->n_open--;
        }
        ++*n;
        at = (size_t)(end - data) + 1;
    }
    munmap((void *)data, size);
    if (at < size && (ftruncate(fd, (off_t)at) != 0 || fsync(fd) != 0))
        return err_set(e, ERR_IO, "a result file cannot be cut: %s", strerror(errno));
    return OK;
}

/* Of what is no file, whoever put it there, none may be waited for. */
#define OPEN_FLAGS (O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK)

static int open_results(struct batches *b, const char *id, int flags)
{
    char name[64];
    file_name(id, ".jsonl", name);
    return openat(b->files_fd, name, O_RDWR | O_APPEND | OPEN_FLAGS | flags, 0600);
}

static void set_counts(struct batches *b, struct job *j, uint32_t n_completed, uint32_t n_failed)
{
    pthread_mutex_lock(&b->lock);
    j->n_completed = n_completed;
    j->n_failed = n_failed;
    pthread_mutex_unlock(&b->lock);
}

enum err lines_open(struct batches *b, struct job *j, struct err_info *e)
{
    struct lines *l = mem_zalloc(1, sizeof *l);
    char name[64];
    uint32_t n_completed = 0, n_failed = 0;
    enum err err;
    file_name(j->input, ".jsonl", name);
    l->in_fd = l->out_fd = l->err_fd = -1;
    j->lines = l;
    if ((l->in_fd = openat(b->files_fd, name, O_RDONLY | OPEN_FLAGS)) < 0)
        err = err_set(e,
                      errno == ENOENT || errno == ELOOP ? ERR_INVALID : ERR_IO,
                      "the input file cannot be read: %s",
                      strerror(errno));
    else if ((l->out_fd = open_results(b, j->output, O_CREAT)) < 0 ||
             (l->err_fd = open_results(b, j->errors, O_CREAT)) < 0)
        err = err_set(e, ERR_IO, "the result files cannot be written: %s", strerror(errno));
    else if (!(err = read_input(&b->cfg, l, e)) &&
             !(err = resume(j, l, l->out_fd, &n_completed, e)))
        err = resume(j, l, l->err_fd, &n_failed, e);
    if (err) {
        lines_close(j);
        return err;
    }
    pthread_mutex_lock(&b->lock);
    j->n_total = l->n;
    pthread_mutex_unlock(&b->lock);
    set_counts(b, j, n_completed, n_failed);
    return OK;
}

enum err lines_recount(struct batches *b, struct job *j, struct err_info *e)
{
    const char *const ids[] = {j->output, j->errors};
    uint32_t n[2] = {0};
    enum err err = OK;
    for (int i = 0; i < 2 && !err; i++) {
        const int fd = open_results(b, ids[i], 0);
        if (fd >= 0)
            err = resume(j, NULL, fd, &n[i], e);
        else if (errno != ENOENT)
            err = err_set(e, ERR_IO, "a result file cannot be read: %s", strerror(errno));
        disk_close(fd);
    }
    if (!err)
        set_counts(b, j, n[0], n[1]);
    return err;
}

static bool is_removed(int fd)
{
    struct stat st;
    return fstat(fd, &st) == 0 && st.st_nlink == 0 && st.st_size > 0;
}

bool lines_lost(const struct job *j)
{
    return is_removed(j->lines->out_fd) || is_removed(j->lines->err_fd);
}

void lines_close(struct job *j)
{
    struct lines *l = j->lines;
    if (!l)
        return;
    disk_close(l->in_fd);
    disk_close(l->out_fd);
    disk_close(l->err_fd);
    free(l->lines);
    free(l);
    j->lines = NULL;
}

static void put_result(const struct job *j,
                       const struct line *line,
                       const struct line_result *r,
                       struct buf *out)
{
    char start[112];
    (void)result_start(j, line->number, start);
    buf_str(out, start);
    buf_str(out, r->custom_id);
    if (r->body) {
        buf_printf(out, ",\"response\":{\"status_code\":%d,\"request_id\":", r->status);
        api_put_text(out, r->request_id, strlen(r->request_id));
        buf_str(out, ",\"body\":");
        buf_add(out, r->body, r->n_body);
        buf_str(out, "},\"error\":null}\n");
        return;
    }
    buf_printf(out, ",\"response\":null,\"error\":{\"code\":\"%s\",\"message\":", r->code);
    api_put_text(out, r->message, strlen(r->message));
    buf_printf(out, ",\"line\":%u}}\n", line->number);
}

/* All of the line, or none: what a full disk cut off is taken back. */
static enum err append(int fd, const struct buf *text, struct err_info *e)
{
    struct stat st;
    if (fstat(fd, &st) != 0)
        return err_set(e, ERR_IO, "a result cannot be written: %s", strerror(errno));
    if (disk_write_all(fd, text->data, text->len))
        return OK;
    const int why = errno;
    const bool full = why == ENOSPC || why == EDQUOT;
    (void)!ftruncate(fd, st.st_size);
    return err_set(e, full ? ERR_FULL : ERR_IO, "a result cannot be written: %s", strerror(why));
}

enum err lines_finish(struct job *j, uint32_t i, const struct line_result *r, struct err_info *e)
{
    struct lines *l = j->lines;
    struct line *line = &l->lines[i];
    struct buf text = {.may_fail = true};
    put_result(j, line, r, &text);
    enum err err = text.failed
                       ? err_set(e, ERR_NOMEM, "there is no memory for a result")
                       : append(r->body && r->status == 200 ? l->out_fd : l->err_fd, &text, e);
    buf_deinit(&text);
    if (err)
        return err;
    l->n_running -= line->state == LINE_RUNNING;
    l->n_open -= line->state == LINE_OPEN;
    line->state = LINE_DONE;
    l->unsynced = true;
    return OK;
}

enum err lines_sync(struct job *j, struct err_info *e)
{
    struct lines *l = j->lines;
    if (!l->unsynced)
        return OK;
    if (fdatasync(l->out_fd) != 0 || fdatasync(l->err_fd) != 0)
        return err_set(e, ERR_IO, "results cannot be synced: %s", strerror(errno));
    l->unsynced = false;
    return OK;
}
