/* Small files on a disk that has no room. */
#include "batches/internal.h"

#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cmocka.h>
#include <string.h>

static int write_errno, fsync_errno;

/* They stand in for the C library's, in this program only. */
ssize_t write(int fd, const void *data, size_t n)
{
    if (write_errno && fd > STDERR_FILENO) {
        errno = write_errno;
        return -1;
    }
    return syscall(SYS_write, fd, data, n);
}

int fsync(int fd)
{
    errno = fsync_errno;
    return fsync_errno ? -1 : (int)syscall(SYS_fsync, fd);
}

static char dir[] = "/tmp/weir-batches-XXXXXX";

static int open_dir(void)
{
    int fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    assert_true(fd >= 0);
    return fd;
}

/* A full disk is told as one, without the names that files have there, and leaves what was. */
static void test_full(void **state)
{
    (void)state;
    static const struct {
        int write_errno, fsync_errno;
        enum err err;
    } cases[] = {{ENOSPC, 0, ERR_FULL}, {0, EDQUOT, ERR_FULL}, {EIO, 0, ERR_IO}};
    int fd = open_dir();
    struct err_info e;
    json_t *v = json_pack("{s:i}", "a", 1), *read;
    assert_int_equal(disk_write_json(fd, "one.json", v, &e), OK);
    json_object_set_new(v, "a", json_integer(2));
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        write_errno = cases[i].write_errno;
        fsync_errno = cases[i].fsync_errno;
        enum err err = disk_write_json(fd, "one.json", v, &e);
        write_errno = fsync_errno = 0;
        assert_int_equal(err, cases[i].err);
        assert_int_equal(strstr(e.text, "one.json") == NULL, err == ERR_FULL);
        assert_int_equal(strstr(e.text, "is full") != NULL, err == ERR_FULL);
        assert_int_not_equal(faccessat(fd, "one.json.tmp", F_OK, 0), 0);
        assert_int_equal(disk_read_json(fd, "one.json", &read, &e), OK);
        assert_int_equal(json_integer_value(json_object_get(read, "a")), 1);
        json_decref(read);
    }
    assert_int_equal(api_status_of(ERR_FULL), 507);
    json_decref(v);
    assert_int_equal(unlinkat(fd, "one.json", 0), 0);
    close(fd);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_full),
    };
    if (!mkdtemp(dir))
        return 1;
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    rmdir(dir);
    return failed;
}
