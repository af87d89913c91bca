/* Small files: on a disk that has no room, and what their fields may be. */
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

/* Whatever happens to the file that says so. */
static void test_one_server_at_a_time(void **state)
{
    (void)state;
    int dirs[2] = {open_dir(), open_dir()}, locks[2];
    struct err_info e;
    assert_int_equal(disk_lock(dirs[0], dir, &locks[0], &e), OK);
    assert_int_equal(disk_lock(dirs[1], dir, &locks[1], &e), ERR_IO);
    assert_non_null(strstr(e.text, "another server works there"));
    close(locks[1]);
    assert_int_equal(unlinkat(dirs[0], "lock", 0), 0);
    assert_int_equal(disk_lock(dirs[1], dir, &locks[1], &e), ERR_IO);
    close(locks[1]);
    close(locks[0]);
    close(dirs[0]);
    assert_int_equal(disk_lock(dirs[1], dir, &locks[0], &e), OK);
    assert_int_equal(unlinkat(dirs[1], "lock", 0), 0);
    close(locks[0]);
    close(dirs[1]);
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

struct kept {
    char text[5];
    char *own;
    uint32_t count;
    uint64_t large;
    json_t *any;
};

static const struct disk_field fields[] = {
    DISK_FIELD("text", DISK_TEXT, kept, text),
    DISK_FIELD("own", DISK_OWN, kept, own),
    DISK_FIELD("count", DISK_COUNT, kept, count),
    DISK_FIELD("large", DISK_LONG, kept, large),
    DISK_FIELD("any", DISK_JSON, kept, any),
};
enum { N_FIELDS = sizeof fields / sizeof fields[0] };

static bool unpacks(const json_t *v, struct kept *out)
{
    free(out->own);
    json_decref(out->any);
    *out = (struct kept){0};
    return disk_unpack(fields, N_FIELDS, v, out);
}

/* Out and back again. Too long a text is cut; a field that is missing or of another type is not
 * taken. */
static void test_fields(void **state)
{
    (void)state;
    struct kept from = {"abcd", (char *)"xyz", UINT32_MAX, INT64_MAX, json_null()}, to = {0};
    json_t *v = disk_pack(fields, N_FIELDS, &from);
    assert_non_null(v);
    assert_true(unpacks(v, &to));
    assert_string_equal(to.text, "abcd");
    assert_string_equal(to.own, "xyz");
    assert_int_equal(to.count, UINT32_MAX);
    assert_int_equal(to.large, INT64_MAX);
    assert_true(json_is_null(to.any));
    for (size_t i = 0; i < N_FIELDS; i++) {
        json_t *without = json_copy(v);
        json_object_del(without, fields[i].name);
        assert_false(unpacks(without, &to));
        json_object_set_new(without, fields[i].name, json_real(1.5));
        assert_int_equal(unpacks(without, &to), fields[i].kind == DISK_JSON);
        json_decref(without);
    }
    json_object_set_new(v, "text", json_string("abcdefg"));
    assert_true(unpacks(v, &to));
    assert_string_equal(to.text, "abcd");
    json_decref(v);
    from.own = (char *)"\xff"; /* no UTF-8, so no JSON */
    assert_null(disk_pack(fields, N_FIELDS, &from));
    free(to.own);
    json_decref(to.any);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_one_server_at_a_time),
        cmocka_unit_test(test_full),
        cmocka_unit_test(test_fields),
    };
    if (!mkdtemp(dir))
        return 1;
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    rmdir(dir);
    return failed;
}
