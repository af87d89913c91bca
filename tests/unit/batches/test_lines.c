/* A batch's lines: what a file holds, and what its results say is done. */
#include "batches/internal.h"

#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cmocka.h>

#define N_LINES 40

static int openat_errno;

/* It stands in for the C library's, in this program only. */
int openat(int dir, const char *name, int flags, ...)
{
    va_list ap;
    va_start(ap, flags);
    const int mode = flags & O_CREAT ? va_arg(ap, int) : 0;
    va_end(ap);
    errno = openat_errno;
    return openat_errno ? -1 : (int)syscall(SYS_openat, dir, name, flags, mode);
}

struct fixture {
    char dir[64];
    struct batches b;
    struct job j;
};

static void path_of(const struct fixture *f, const char *id, char out[160])
{
    snprintf(out, 160, "%s/%s.jsonl", f->dir, id);
}

static void write_file(const struct fixture *f, const char *id, const char *data, size_t n)
{
    char path[160];
    path_of(f, id, path);
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    assert_int_equal(fwrite(data, 1, n, file), n);
    assert_int_equal(fclose(file), 0);
}

static off_t size_of(const struct fixture *f, const char *id)
{
    char path[160];
    struct stat st;
    path_of(f, id, path);
    assert_int_equal(stat(path, &st), 0);
    return st.st_size;
}

static int setup(void **state)
{
    struct fixture *f = calloc(1, sizeof *f);
    strcpy(f->dir, "/tmp/weir-lines-XXXXXX");
    assert_non_null(mkdtemp(f->dir));
    f->b.files_fd = open(f->dir, O_RDONLY | O_DIRECTORY);
    f->b.cfg = (struct batches_config){
        .max_file_bytes = 10000, .max_lines = N_LINES, .max_line_bytes = 200};
    pthread_mutex_init(&f->b.lock, NULL);
    strcpy(f->j.entry.id, "batch_0123456789abcdef01234567");
    strcpy(f->j.input, "in");
    strcpy(f->j.output, "out");
    strcpy(f->j.errors, "err");
    *state = f;
    return 0;
}

static int teardown(void **state)
{
    struct fixture *f = *state;
    const char *const names[] = {"in", "out", "err"};
    lines_close(&f->j);
    for (int i = 0; i < 3; i++) {
        char path[160];
        path_of(f, names[i], path);
        unlink(path);
    }
    close(f->b.files_fd);
    rmdir(f->dir);
    free(f);
    return 0;
}

/* N_LINES requests, with a blank line before every fourth. */
static void write_input(struct fixture *f)
{
    struct buf text = {0};
    for (int i = 0; i < N_LINES; i++)
        buf_printf(&text, "%s{\"custom_id\":\"r%d\"}\n", i % 4 ? "" : "\r\n", i);
    write_file(f, "in", text.data, text.len);
    buf_deinit(&text);
}

static void open_lines(struct fixture *f)
{
    struct err_info e;
    if (lines_open(&f->b, &f->j, &e) != OK)
        fail_msg("%s", e.text);
}

static void finish(struct fixture *f, uint32_t i, bool ok)
{
    struct line_result r = {.custom_id = "\"x\"", .code = "c", .message = "a \"message\"\n"};
    if (ok)
        r = (struct line_result){.custom_id = "\"x\"",
                                 .status = 200,
                                 .request_id = "req",
                                 .body = "{\"a\":\"\\u0000\"}",
                                 .n_body = 14};
    assert_int_equal(lines_finish(&f->j, i, &r, NULL), OK);
}

static void test_limits(void **state)
{
    struct fixture *f = *state;
    struct batches_config *c = &f->b.cfg;
    struct err_info e;
    char data[400];
    memset(data, 'x', sizeof data);
    assert_int_equal(lines_check(c, "a\n", 2, NULL), OK);
    assert_int_equal(lines_check(c, "a", 1, NULL), OK);
    assert_int_equal(lines_check(c, "", 0, &e), ERR_INVALID);
    assert_int_equal(lines_check(c, "\n \r\n\t", 5, &e), ERR_INVALID);
    assert_int_equal(lines_check(c, data, 200, NULL), OK);
    assert_int_equal(lines_check(c, data, 201, &e), ERR_INVALID);
    assert_string_equal(e.text, "line 1 has 201 bytes; at most 200 are allowed");
    assert_string_equal(e.field, "file");
    for (int i = 0; i < 2 * N_LINES + 2; i += 2)
        memcpy(data + i, "a\n", 2);
    assert_int_equal(lines_check(c, data, 2 * N_LINES, NULL), OK);
    assert_int_equal(lines_check(c, data, 2 * N_LINES + 2, &e), ERR_INVALID);
    c->max_file_bytes = 100;
    assert_int_equal(lines_check(c, data, 101, &e), ERR_INVALID);
    assert_string_equal(e.text, "the file has 101 bytes; at most 100 are allowed");
}

static void test_numbers_count_blank_lines(void **state)
{
    struct fixture *f = *state;
    write_input(f);
    open_lines(f);
    struct lines *l = f->j.lines;
    assert_int_equal(l->n, N_LINES);
    assert_int_equal(f->j.n_total, N_LINES);
    for (uint32_t i = 0; i < l->n; i++)
        assert_int_equal(l->lines[i].number, i + 1 + i / 4 + 1);
    char *text = lines_read(l, 5, NULL);
    assert_string_equal(text, "{\"custom_id\":\"r5\"}");
    free(text);
}

static void test_repeated_names(void **state)
{
    struct fixture *f = *state;
    const char *text = "{\"custom_id\":\"b\"}\n{\"custom_id\":\"a\"}\nx\n{\"custom_id\":\"b\"}\n"
                       "{\"custom_id\":7}\n{\"custom_id\":\"b\"}\n{\"custom_id\":7}\n";
    write_file(f, "in", text, strlen(text));
    open_lines(f);
    const bool want[] = {false, false, false, true, false, true, false};
    for (int i = 0; i < 7; i++)
        assert_int_equal(f->j.lines->lines[i].repeats, want[i]);
}

/* Any number of results, cut anywhere or with anything behind them: whole lines are done, all else
 * is open, and once that is done too, every line is there once. */
static void test_torn_results(void **state)
{
    struct fixture *f = *state;
    const unsigned seed = 20260101;
    unsigned rng = seed;
    print_message("seed %u\n", seed);
    write_input(f);
    for (int round = 0; round < 300; round++) {
        write_file(f, "out", "", 0);
        write_file(f, "err", "", 0);
        open_lines(f);
        uint32_t n = (uint32_t)rand_r(&rng) % (N_LINES + 1), n_out = 0;
        off_t ends[N_LINES + 1] = {0}; /* of the output file's lines */
        for (uint32_t i = 0; i < n; i++) {
            bool ok = rand_r(&rng) % 4 > 0;
            finish(f, (i * 7) % N_LINES, ok); /* in another order than the input's */
            if (ok)
                ends[++n_out] = size_of(f, "out");
        }
        assert_int_equal(f->j.lines->n_open, N_LINES - n);
        lines_close(&f->j);
        off_t cut = n_out ? rand_r(&rng) % (ends[n_out] + 1) : 0;
        uint32_t n_whole = 0;
        char path[160];
        path_of(f, "out", path);
        assert_int_equal(truncate(path, cut), 0);
        while (n_whole < n_out && ends[n_whole + 1] <= cut)
            n_whole++;
        const char *const tails[] = {"", "\0\0\0\0", "{}\n", "{\"id\":\"batch_req_0_00000001\"}\n"};
        const size_t n_tails[] = {0, 4, 3, 31};
        int tail = rand_r(&rng) % 4;
        int fd = open(path, O_WRONLY | O_APPEND);
        assert_int_equal(write(fd, tails[tail], n_tails[tail]), n_tails[tail]);
        close(fd);
        open_lines(f);
        assert_int_equal(f->j.n_completed, n_whole);
        assert_int_equal(f->j.n_failed, n - n_out);
        assert_int_equal(f->j.lines->n_open, N_LINES - n_whole - (n - n_out));
        assert_int_equal(size_of(f, "out"), ends[n_whole]);
        for (uint32_t i = 0; i < N_LINES; i++)
            if (f->j.lines->lines[i].state == LINE_OPEN)
                finish(f, i, true);
        lines_close(&f->j);
        open_lines(f);
        assert_int_equal(f->j.lines->n_open, 0);
        assert_int_equal(f->j.n_completed + f->j.n_failed, N_LINES);
        lines_close(&f->j);
    }
}

/* However deep: an answer may hold what came with its request, which was as deep as a text may be
 * that is read. */
static void test_a_deep_result(void **state)
{
    enum { DEPTH = 5000 };
    struct fixture *f = *state;
    char *body = malloc(2 * DEPTH);
    memset(body, '[', DEPTH);
    memset(body + DEPTH, ']', DEPTH);
    const struct line_result r = {.custom_id = "\"x\"",
                                  .status = 200,
                                  .request_id = "req",
                                  .body = body,
                                  .n_body = 2 * DEPTH};
    write_input(f);
    open_lines(f);
    finish(f, 1, true);
    assert_int_equal(lines_finish(&f->j, 0, &r, NULL), OK);
    finish(f, 2, true);
    free(body);
    lines_close(&f->j);
    const off_t size = size_of(f, "out");
    open_lines(f);
    assert_int_equal(f->j.n_completed, 3);
    assert_int_equal(size_of(f, "out"), size);
}

/* A line of which the middle was not written. */
static void test_a_result_with_a_hole(void **state)
{
    struct fixture *f = *state;
    char path[160];
    write_input(f);
    open_lines(f);
    finish(f, 0, true);
    const off_t size = size_of(f, "out");
    finish(f, 1, true);
    finish(f, 2, true);
    lines_close(&f->j);
    path_of(f, "out", path);
    int fd = open(path, O_WRONLY);
    assert_int_equal(pwrite(fd, "\0\0\0\0", 4, size + 80), 4);
    close(fd);
    open_lines(f);
    assert_int_equal(f->j.n_completed, 1);
    assert_int_equal(size_of(f, "out"), size);
}

/* The same result twice: the second is cut off with all behind it. */
static void test_a_result_twice(void **state)
{
    struct fixture *f = *state;
    char data[512];
    write_input(f);
    open_lines(f);
    finish(f, 3, true);
    lines_close(&f->j);
    char path[160];
    path_of(f, "out", path);
    FILE *file = fopen(path, "r");
    size_t n = fread(data, 1, 250, file);
    fclose(file);
    memcpy(data + n, data, n);
    write_file(f, "out", data, 2 * n);
    open_lines(f);
    assert_int_equal(f->j.n_completed, 1);
    assert_int_equal(size_of(f, "out"), n);
}

/* Of a batch whose input is gone, results are counted all the same, and what is torn is cut off. */
static void test_results_without_an_input(void **state)
{
    struct fixture *f = *state;
    char path[160];
    write_input(f);
    open_lines(f);
    finish(f, 5, true);
    finish(f, 1, true);
    finish(f, 2, false);
    const off_t size = size_of(f, "out");
    finish(f, 3, true);
    lines_close(&f->j);
    path_of(f, "out", path);
    assert_int_equal(truncate(path, size + 60), 0);
    f->j.n_completed = f->j.n_failed = 99;
    assert_int_equal(lines_recount(&f->b, &f->j, NULL), OK);
    assert_int_equal(f->j.n_completed, 2);
    assert_int_equal(f->j.n_failed, 1);
    assert_int_equal(size_of(f, "out"), size);
    assert_int_equal(unlink(path), 0);
    assert_int_equal(lines_recount(&f->b, &f->j, NULL), OK);
    assert_int_equal(f->j.n_completed, 0);
    openat_errno = EACCES;
    assert_int_equal(lines_recount(&f->b, &f->j, NULL), ERR_IO);
    openat_errno = 0;
}

static void test_results_that_somebody_removed(void **state)
{
    struct fixture *f = *state;
    char path[160];
    write_input(f);
    open_lines(f);
    path_of(f, "err", path);
    assert_int_equal(unlink(path), 0); /* nothing was in it */
    assert_false(lines_lost(&f->j));
    finish(f, 0, true);
    assert_false(lines_lost(&f->j));
    path_of(f, "out", path);
    assert_int_equal(unlink(path), 0);
    assert_true(lines_lost(&f->j));
    lines_close(&f->j);
    open_lines(f);
    assert_int_equal(f->j.lines->n_open, N_LINES);
}

/* Nobody waits for what writes to a pipe. */
static void test_what_is_no_file(void **state)
{
    struct fixture *f = *state;
    char path[160];
    path_of(f, "in", path);
    assert_int_equal(mkfifo(path, 0600), 0);
    assert_int_equal(lines_open(&f->b, &f->j, NULL), ERR_INVALID);
    assert_int_equal(unlink(path), 0);
    write_input(f);
    path_of(f, "err", path);
    assert_int_equal(unlink(path), 0);
    assert_int_equal(mkfifo(path, 0600), 0);
    assert_int_equal(lines_open(&f->b, &f->j, NULL), ERR_IO);
    assert_int_equal(unlink(path), 0);
    open_lines(f);
}

/* Behind so many blank lines that a number has more digits than others. */
static void test_numbers_of_nine_digits(void **state)
{
    struct fixture *f = *state;
    const size_t n_blank = 99999999;
    const char text[] = "{\"custom_id\":\"a\"}\n{\"custom_id\":\"b\"}\n";
    char *data = malloc(n_blank + sizeof text - 1);
    assert_non_null(data);
    memset(data, '\n', n_blank);
    memcpy(data + n_blank, text, sizeof text - 1);
    write_file(f, "in", data, n_blank + sizeof text - 1);
    free(data);
    open_lines(f);
    assert_int_equal(f->j.lines->lines[0].number, n_blank + 1);
    finish(f, 0, true);
    lines_close(&f->j);
    open_lines(f);
    assert_int_equal(f->j.n_completed, 1);
    assert_int_equal(f->j.lines->n_open, 1);
    assert_int_equal(f->j.lines->lines[0].state, LINE_DONE);
}

/* What may pass is told from what will not. */
static void test_files_that_cannot_be_opened(void **state)
{
    struct fixture *f = *state;
    char path[160];
    assert_int_equal(lines_open(&f->b, &f->j, NULL), ERR_INVALID);
    openat_errno = EACCES;
    assert_int_equal(lines_open(&f->b, &f->j, NULL), ERR_IO);
    openat_errno = 0;
    write_file(f, "in", "", 0);
    assert_int_equal(lines_open(&f->b, &f->j, NULL), ERR_INVALID);
    write_input(f);
    path_of(f, "err", path);
    assert_int_equal(unlink(path), 0);
    assert_int_equal(mkdir(path, 0700), 0);
    assert_int_equal(lines_open(&f->b, &f->j, NULL), ERR_IO);
    assert_null(f->j.lines);
    assert_int_equal(rmdir(path), 0);
    open_lines(f);
}

#define TEST(fn) cmocka_unit_test_setup_teardown(fn, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_limits),
        TEST(test_numbers_count_blank_lines),
        TEST(test_repeated_names),
        TEST(test_torn_results),
        TEST(test_a_deep_result),
        TEST(test_a_result_with_a_hole),
        TEST(test_a_result_twice),
        TEST(test_numbers_of_nine_digits),
        TEST(test_results_without_an_input),
        TEST(test_results_that_somebody_removed),
        TEST(test_what_is_no_file),
        TEST(test_files_that_cannot_be_opened),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
