/* Lines to a file: in order, whole, opened again, and never waited for. */
#include "base/line_log.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

static char folder[64], path[96], moved[96];

static int setup(void **state)
{
    (void)state;
    signal(SIGPIPE, SIG_IGN);
    strcpy(folder, "/tmp/weir-line-log-XXXXXX");
    if (!mkdtemp(folder))
        return -1;
    snprintf(path, sizeof path, "%s/log", folder);
    snprintf(moved, sizeof moved, "%s/log.1", folder);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    (void)unlink(path);
    (void)unlink(moved);
    return rmdir(folder);
}

static struct line_log *open_log(void)
{
    struct line_log *l;
    struct err_info e = {0};
    if (line_log_open(path, "test log", &l, &e) != OK)
        fail_msg("%s", e.text);
    return l;
}

/* Of lines "T N": is each thread's N one more than its last? Counts the lines. */
static int count_lines(const char *file, int last[4])
{
    FILE *f = fopen(file, "r");
    char line[64];
    int n = 0, thread, i;
    assert_non_null(f);
    while (fgets(line, sizeof line, f)) {
        assert_int_equal(sscanf(line, "%d %d\n", &thread, &i), 2);
        assert_int_equal(i, last[thread] + 1);
        last[thread] = i;
        n++;
    }
    fclose(f);
    return n;
}

struct writer {
    struct line_log *log;
    int id;
};

static void *writer_main(void *arg)
{
    struct writer *w = arg;
    char line[64];
    for (int i = 0; i < 5000; i++) {
        int n = snprintf(line, sizeof line, "%d %d", w->id, i);
        line_log_write(w->log, line, (size_t)n);
    }
    return NULL;
}

/* Written by four at once while the file is moved away again and again: every line is in one of the
 * files, none is torn. The two files are read in the order in which they were written. */
static void test_order_and_reopening(void **state)
{
    (void)state;
    struct line_log *l = open_log();
    struct writer writers[4];
    pthread_t threads[4];
    for (int i = 0; i < 4; i++) {
        writers[i] = (struct writer){l, i};
        assert_int_equal(pthread_create(&threads[i], NULL, writer_main, &writers[i]), 0);
    }
    assert_int_equal(rename(path, moved), 0);
    line_log_reopen(l);
    for (int i = 0; i < 4; i++)
        pthread_join(threads[i], NULL);
    line_log_close(l);
    int last[4] = {-1, -1, -1, -1};
    int n = count_lines(moved, last);
    n += count_lines(path, last);
    assert_int_equal(n, 4 * 5000);
    struct stat st;
    assert_int_equal(stat(path, &st), 0);
    assert_int_equal(st.st_mode & 07, 0); /* not for others */
}

/* A pipe that nobody reads: writing returns all the same, and what does not fit is counted. */
static void test_a_stuck_file(void **state)
{
    (void)state;
    char line[1000];
    memset(line, 'x', sizeof line);
    assert_int_equal(mkfifo(path, 0600), 0);
    int reader = open(path, O_RDONLY | O_NONBLOCK);
    struct line_log *l = open_log();
    for (int i = 0; i < 5000; i++)
        line_log_write(l, line, sizeof line);
    uint64_t dropped = line_log_dropped(l);
    assert_true(dropped >=
                5000 - 2 * 1049 - 70); /* a buffer waiting, one being written, the pipe */
    assert_true(dropped < 5000);
    line_log_write(l, line, (size_t)2 << 20); /* larger than all the room */
    assert_int_equal(line_log_dropped(l), dropped + 1);
    /* somebody reads at last: all that was not dropped comes, whole */
    fcntl(reader, F_SETFL, 0);
    uint64_t n_bytes = 0, due = (5000 - dropped) * (sizeof line + 1);
    static char sink[65536];
    while (n_bytes < due) {
        ssize_t n = read(reader, sink, sizeof sink);
        assert_true(n > 0);
        n_bytes += (uint64_t)n;
    }
    line_log_close(l);
    assert_int_equal(read(reader, sink, sizeof sink), 0);
    assert_int_equal(n_bytes, due);
    close(reader);
}

/* Lines until one more is dropped. */
static void write_in_vain(struct line_log *l, const char *line)
{
    uint64_t n = line_log_dropped(l);
    line_log_write(l, line, strlen(line));
    while (line_log_dropped(l) == n)
        sched_yield();
}

/* What is said of lines that a file had no room for is that, also when it is said later, with lines
 * that it has room for again. */
static void test_why_lines_were_dropped(void **state)
{
    (void)state;
    struct rlimit old, small;
    char said[1024] = {0};
    int pipe_fds[2], old_stderr = dup(STDERR_FILENO);
    assert_int_equal(pipe(pipe_fds), 0);
    assert_true(dup2(pipe_fds[1], STDERR_FILENO) >= 0);
    signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &old), 0);
    small = (struct rlimit){.rlim_cur = 10, .rlim_max = old.rlim_max};
    struct line_log *l = open_log();
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
    write_in_vain(l, "aaaaaaaaaaaa");
    write_in_vain(l, "bbbbbbbbbbbb");
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &old), 0);
    line_log_write(l, "cc", 2);
    line_log_close(l);
    dup2(old_stderr, STDERR_FILENO);
    close(old_stderr);
    close(pipe_fds[1]);
    assert_true(read(pipe_fds[0], said, sizeof said - 1) > 0);
    close(pipe_fds[0]);
    int n = 0;
    for (const char *at = said; (at = strstr(at, "dropped: ")); at++, n++)
        assert_int_equal(strncmp(at, "dropped: File too large\n", 24), 0);
    assert_int_equal(n, 2);
}

/* A file that cannot grow: what was cut off is taken back, and counted. */
static void test_a_torn_line(void **state)
{
    (void)state;
    struct rlimit old, small;
    char text[64] = {0};
    signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &old), 0);
    small = (struct rlimit){.rlim_cur = 10, .rlim_max = old.rlim_max};
    struct line_log *l = open_log();
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
    line_log_write(l, "aaaaaaaa", 8);
    line_log_write(l, "bbbbbbbb", 8);
    while (line_log_dropped(l) == 0)
        sched_yield();
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &old), 0);
    line_log_write(l, "cc", 2);
    line_log_close(l);
    FILE *file = fopen(path, "r");
    assert_non_null(file);
    assert_int_equal(fread(text, 1, sizeof text - 1, file), 12);
    fclose(file);
    assert_string_equal(text, "aaaaaaaa\ncc\n");
}

static void test_a_folder_that_is_not_there(void **state)
{
    (void)state;
    struct line_log *l;
    struct err_info e = {0};
    assert_int_equal(line_log_open("/nonexistent/x", "log", &l, &e), ERR_IO);
    assert_null(l);
    assert_non_null(strstr(e.text, "/nonexistent/x"));
    line_log_close(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_order_and_reopening, setup, teardown),
        cmocka_unit_test_setup_teardown(test_a_stuck_file, setup, teardown),
        cmocka_unit_test_setup_teardown(test_a_torn_line, setup, teardown),
        cmocka_unit_test_setup_teardown(test_why_lines_were_dropped, setup, teardown),
        cmocka_unit_test(test_a_folder_that_is_not_there),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
