/* Stop strings against a search of the whole text, over random texts cut at random places. */
#include "engine/stop.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static struct gguf_str str(const char *s)
{
    return (struct gguf_str){s, strlen(s)};
}

/* Where the output ends, by the definition: the first byte that completes a stop string, and of
 * those completed there the longest; -1 if none is. */
static long naive_end(const char *text, size_t n, const struct gguf_str *stops, uint32_t n_stops)
{
    for (size_t end = 1; end <= n; end++) {
        size_t longest = 0;
        for (uint32_t i = 0; i < n_stops; i++) {
            size_t len = stops[i].len;
            if (len <= end && len > longest && memcmp(text + end - len, stops[i].data, len) == 0)
                longest = len;
        }
        if (longest)
            return (long)(end - longest);
    }
    return -1;
}

static size_t naive_held(const char *text, size_t n, const struct gguf_str *stops, uint32_t n_stops)
{
    size_t held = 0;
    for (uint32_t i = 0; i < n_stops; i++) {
        for (size_t len = 1; len < stops[i].len && len <= n; len++) {
            if (len > held && memcmp(text + n - len, stops[i].data, len) == 0)
                held = len;
        }
    }
    return held;
}

static void random_word(char *out, size_t n)
{
    for (size_t i = 0; i < n; i++)
        out[i] = (char)('a' + rand() % 2);
}

static void test_random(void **state)
{
    (void)state;
    unsigned seed = (unsigned)time(NULL);
    printf("seed %u\n", seed);
    srand(seed);
    for (int round = 0; round < 20000; round++) {
        char words[4][8], text[40];
        struct gguf_str stops[4];
        uint32_t n_stops = 1 + (uint32_t)rand() % 4;
        for (uint32_t i = 0; i < n_stops; i++) {
            size_t len = 1 + (size_t)rand() % 8;
            random_word(words[i], len);
            stops[i] = (struct gguf_str){words[i], len};
        }
        random_word(text, sizeof text);
        struct stop_texts *t;
        assert_int_equal(stop_texts_create(stops, n_stops, &t, NULL), OK);
        struct stop_matcher *s = stop_begin(t);
        stop_texts_release(t); /* the matcher has it */
        long want = naive_end(text, sizeof text, stops, n_stops);
        uint64_t end = 0;
        uint32_t which = UINT32_MAX;
        bool found = false;
        for (size_t at = 0; at < sizeof text && !found;) {
            size_t n = 1 + (size_t)rand() % 5;
            n = n > sizeof text - at ? sizeof text - at : n;
            found = stop_feed(s, text + at, n, &end, &which);
            at += n;
            if (!found)
                assert_int_equal(stop_held(s), naive_held(text, at, stops, n_stops));
        }
        assert_int_equal(found, want >= 0);
        if (found)
            assert_int_equal(end, want);
        if (found) {
            assert_true(which < n_stops);
            assert_memory_equal(text + end, stops[which].data, stops[which].len);
            assert_memory_equal(stop_get(s, which).data, stops[which].data, stops[which].len);
        }
        stop_destroy(s);
    }
}

static void test_refuses_empty(void **state)
{
    (void)state;
    struct gguf_str stops[] = {str("a"), str("")};
    struct stop_texts *t;
    struct err_info e;
    assert_int_equal(stop_texts_create(stops, 2, &t, &e), ERR_INVALID);
    assert_string_equal(e.field, "stop");
    assert_int_equal(stop_texts_create(stops, 0, &t, &e), OK);
    assert_null(t);
    assert_null(stop_begin(t));
    assert_int_equal(stop_texts_count(t), 0);
    assert_int_equal(stop_held(NULL), 0);
}

/* Together they may be as long as the limit and no longer. */
static void test_refuses_long(void **state)
{
    (void)state;
    char *text = calloc(STOP_MAX_BYTES, 1);
    struct gguf_str stops[] = {{text, STOP_MAX_BYTES - 1}, {text, 1}, {text, 1}};
    struct stop_texts *t;
    struct err_info e;
    assert_int_equal(stop_texts_create(stops, 3, &t, &e), ERR_INVALID);
    assert_string_equal(e.field, "stop");
    assert_null(t);
    assert_int_equal(stop_texts_create(stops, 2, &t, &e), OK);
    assert_int_equal(stop_texts_count(t), 2);
    assert_int_equal(stop_texts_get(t, 0).len, STOP_MAX_BYTES - 1);
    stop_texts_release(t);
    free(text);
}

/* A choice more costs what it has matched, and not the texts again; and its place is its own.
 * (Under a sanitizer the allocator counts nothing.) */
static void test_choices_share(void **state)
{
    (void)state;
    enum { N = 128 };
    char *text = calloc(STOP_MAX_BYTES, 1);
    const struct gguf_str stops[] = {{text, STOP_MAX_BYTES - 2}, str("ab")};
    struct stop_texts *t;
    struct stop_matcher *s[N];
    uint64_t end;
    uint32_t which;
    assert_int_equal(stop_texts_create(stops, 2, &t, NULL), OK);
    const size_t before = mallinfo2().uordblks;
    for (int i = 0; i < N; i++)
        s[i] = stop_begin(t);
    assert_true(mallinfo2().uordblks - before < (size_t)N * 256);
    stop_texts_release(t);
    assert_false(stop_feed(s[0], "a", 1, &end, &which));
    assert_false(stop_feed(s[1], "b", 1, &end, &which));
    assert_true(stop_feed(s[0], "b", 1, &end, &which));
    assert_int_equal(end, 0);
    assert_string_equal(stop_get(s[0], which).data, "ab");
    for (int i = 0; i < N; i++)
        stop_destroy(s[i]);
    free(text);
}

/* No match reaches back behind what was skipped, and places count it. */
static void test_skip(void **state)
{
    (void)state;
    const struct gguf_str stops[] = {str("ab"), str("bab")};
    struct stop_texts *t;
    uint64_t end;
    uint32_t which;
    assert_int_equal(stop_texts_create(stops, 2, &t, NULL), OK);
    struct stop_matcher *s = stop_begin(t);
    stop_texts_release(t);
    stop_skip(NULL, 3);
    assert_false(stop_feed(s, "a", 1, &end, &which));
    stop_skip(s, 3);
    assert_int_equal(stop_held(s), 0);
    assert_false(stop_feed(s, "b", 1, &end, &which));
    assert_true(stop_feed(s, "ab", 2, &end, &which));
    assert_int_equal(end, 4);
    assert_string_equal(stop_get(s, which).data, "bab");
    stop_destroy(s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_random),
        cmocka_unit_test(test_refuses_empty),
        cmocka_unit_test(test_refuses_long),
        cmocka_unit_test(test_choices_share),
        cmocka_unit_test(test_skip),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
