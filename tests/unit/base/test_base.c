/* Buffers, errors, and the count of allocations. */
#include "base/buf.h"
#include "base/clock.h"
#include "base/err.h"
#include "base/mem.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static void test_buf_appends(void **state)
{
    (void)state;
    struct buf b = {0};
    assert_string_equal(buf_cstr(&b), "");
    buf_str(&b, "one ");
    buf_char(&b, '2');
    buf_add(&b, " 3\0", 3);
    buf_printf(&b, "%s %d", "four", 5);
    assert_int_equal(b.len, 14);
    assert_memory_equal(b.data, "one 2 3\0four 5", 14);
    buf_add(&b, NULL, 0);
    buf_str(&b, "");
    buf_printf(&b, "%s", "");
    assert_int_equal(b.len, 14);
    assert_int_equal(buf_cstr(&b)[14], '\0');
    assert_int_equal(b.len, 14);
    buf_deinit(&b);
    assert_null(b.data);
    assert_int_equal(b.cap, 0);
}

static void test_buf_grows(void **state)
{
    (void)state;
    struct buf b = {0};
    for (int i = 0; i < 100000; i++)
        buf_char(&b, (char)i);
    for (int i = 0; i < 100000; i++)
        assert_int_equal(b.data[i], (char)i);
    char *data = b.data;
    buf_clear(&b);
    assert_int_equal(b.len, 0);
    buf_reserve(&b, 100000);
    assert_ptr_equal(b.data, data); /* the room was kept */
    buf_printf(&b, "%0*d", 5000, 7);
    assert_int_equal(b.len, 5000);
    assert_int_equal(b.data[4999], '7');
    buf_deinit(&b);
}

/* buf_printf into exactly as much room as is left, and one less and more. */
static void test_buf_printf_at_the_edge(void **state)
{
    (void)state;
    for (int width = 60; width < 70; width++) {
        struct buf b = {0};
        buf_printf(&b, "%*d", width, 1);
        assert_int_equal(b.len, width);
        assert_int_equal(strlen(buf_cstr(&b)), width);
        buf_deinit(&b);
    }
}

static void test_buf_that_may_fail(void **state)
{
    (void)state;
    struct buf b = {.may_fail = true}, all = {.may_fail = true};
    buf_str(&b, "as it was");
    mem_fail_nth(1);
    buf_printf(&b, "%0*d", 5000, 7);
    assert_true(mem_fail_nth(0));
    assert_true(b.failed);
    buf_char(&b, '!'); /* for which there would be room: but a text with a hole is none */
    assert_int_equal(b.len, 9);
    assert_false(buf_reserve(&b, 1));
    assert_string_equal(buf_cstr(&b), "");
    buf_str(&all, "all: ");
    buf_join(&all, &b);
    assert_true(all.failed);
    buf_deinit(&b);
    assert_true(b.may_fail && !b.failed);
    buf_str(&b, "again");
    assert_string_equal(buf_cstr(&b), "again");
    buf_deinit(&b);
    buf_deinit(&all);
}

static void test_err(void **state)
{
    (void)state;
    struct err_info e;
    assert_int_equal(err_set_field(&e, ERR_INVALID, "top_p", "must be below %d", 1), ERR_INVALID);
    assert_int_equal(e.code, ERR_INVALID);
    assert_string_equal(e.field, "top_p");
    assert_string_equal(e.text, "must be below 1");
    assert_int_equal(err_set(&e, ERR_IO, "%s", "gone"), ERR_IO);
    assert_int_equal(e.code, ERR_IO);
    assert_string_equal(e.field, "");
    assert_string_equal(e.text, "gone");
    err_set_field(&e, ERR_FORMAT, "a\nb", "a\033[2J\n\t\177%s", "\xc2\x9b gr\xc3\xbc\xc3\x9f\xc2");
    assert_string_equal(e.field, "a b");
    assert_string_equal(e.text, "a?[2J  ??? gr\xc3\xbc\xc3\x9f?");
    err_set(&e, ERR_FORMAT, "\x9b[2J \xe4\xb8\x96 \xe4\xb8 \xf0\x9f\x8c\x8d%.1s", "\xc3\xa9");
    assert_string_equal(e.text, "?[2J \xe4\xb8\x96 ?? \xf0\x9f\x8c\x8d?");
    assert_int_equal(err_set(NULL, ERR_NOMEM, "nobody reads %d", 1), ERR_NOMEM);
    assert_int_equal(err_set_field(NULL, ERR_NOMEM, "x", "nobody"), ERR_NOMEM);
}

static void test_err_cuts_long_texts(void **state)
{
    (void)state;
    char longer[1000];
    memset(longer, 'x', sizeof longer - 1);
    longer[sizeof longer - 1] = '\0';
    struct err_info e;
    err_set_field(&e, ERR_FORMAT, longer, "%s", longer);
    assert_int_equal(strlen(e.text), sizeof e.text - 1);
    assert_int_equal(strlen(e.field), sizeof e.field - 1);
}

static void test_checked_sizes(void **state)
{
    (void)state;
    size_t n;
    assert_true(mem_mul(SIZE_MAX / 2, 2, &n));
    assert_int_equal(n, SIZE_MAX - 1);
    assert_false(mem_mul(SIZE_MAX / 2 + 1, 2, &n));
    assert_true(mem_mul(SIZE_MAX, 0, &n));
    assert_int_equal(n, 0);
    assert_true(mem_add(SIZE_MAX - 1, 1, &n));
    assert_int_equal(n, SIZE_MAX);
    assert_false(mem_add(SIZE_MAX, 1, &n));
}

static void test_common(void **state)
{
    (void)state;
    enum { N = 100 };
    uint32_t a[N], b[N];
    for (uint32_t i = 0; i < N; i++)
        a[i] = b[i] = i * i;
    for (uint32_t at = 0; at < N; at++) { /* where they differ */
        b[at]++;
        for (uint32_t n = 0; n <= N; n++)
            for (uint32_t known = 0; known <= at && known <= n; known++)
                assert_int_equal(mem_common(a, b, known, n), n < at ? n : at);
        b[at]--;
    }
    assert_int_equal(mem_common(a, b, 0, N), N);
    assert_int_equal(mem_common(NULL, NULL, 0, 0), 0);
}

static void test_allocates(void **state)
{
    (void)state;
    unsigned char *z = mem_zalloc(100, 3);
    for (int i = 0; i < 300; i++)
        assert_int_equal(z[i], 0);
    z = mem_realloc(z, 600);
    assert_int_equal(z[299], 0);
    char *s = mem_strdup("weir");
    assert_string_equal(s, "weir");
    void *none = mem_alloc(0), *none_either = mem_zalloc(0, 8), *a = mem_aligned(1);
    assert_non_null(none);
    assert_non_null(none_either);
    assert_int_equal((uintptr_t)a % 64, 0);
    free(z);
    free(s);
    free(none);
    free(none_either);
    free(a);
}

/* Each way to allocate counts while the watch is on, and none while it is off. */
static void test_watch_counts(void **state)
{
    (void)state;
    uint64_t before = mem_watched();
    free(mem_alloc(10));
    assert_int_equal(mem_watched(), before);
    mem_watch(true);
    void *p[5] = {malloc(10), calloc(10, 10), strdup("weir"), mem_aligned(10), mem_alloc(10)};
    p[0] = realloc(p[0], 10000);
    mem_watch(false);
    assert_int_equal(mem_watched(), before + 6);
    for (int i = 0; i < 5; i++) {
        assert_non_null(p[i]);
        free(p[i]);
    }
    mem_watch(true);
    mem_watch(false);
    assert_int_equal(mem_watched(), before + 6);
}

static void test_clock(void **state)
{
    (void)state;
    uint64_t before = clock_us();
    assert_true(clock_us() >= before);
    assert_true(clock_unix() > 1700000000);
}

static void test_clock_waits(void **state)
{
    (void)state;
    const struct timespec at = clock_spec(5999999);
    assert_int_equal(at.tv_sec, 5);
    assert_int_equal(at.tv_nsec, 999999000);
    pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    pthread_cond_t cond;
    clock_cond_init(&cond);
    const uint64_t until_us = clock_us() + 20000;
    const struct timespec until = clock_spec(until_us);
    pthread_mutex_lock(&lock);
    int rc = 0;
    while (rc == 0)
        rc = pthread_cond_timedwait(&cond, &lock, &until);
    pthread_mutex_unlock(&lock);
    assert_int_equal(rc, ETIMEDOUT);
    assert_true(clock_us() >= until_us);
    pthread_cond_destroy(&cond);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_buf_appends),
        cmocka_unit_test(test_buf_grows),
        cmocka_unit_test(test_buf_printf_at_the_edge),
        cmocka_unit_test(test_buf_that_may_fail),
        cmocka_unit_test(test_err),
        cmocka_unit_test(test_err_cuts_long_texts),
        cmocka_unit_test(test_checked_sizes),
        cmocka_unit_test(test_common),
        cmocka_unit_test(test_allocates),
        cmocka_unit_test(test_watch_counts),
        cmocka_unit_test(test_clock),
        cmocka_unit_test(test_clock_waits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
