/* Indentation of lines, against a look at the whole text, over random texts cut at random places.
 */
#include "engine/stop.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* Where the text ends by the definition: what follows too few spaces at the beginning of a line
 * that is not the first; -1: nowhere. */
static long naive_end(const char *text, size_t n, uint32_t min_indent)
{
    for (size_t i = 0; i < n; i++) {
        if (text[i] != '\n')
            continue;
        size_t k = i + 1;
        while (k < n && (text[k] == ' ' || text[k] == '\t'))
            k++;
        if (k < n && k - (i + 1) < min_indent)
            return (long)k;
    }
    return -1;
}

/* The same, fed in pieces of random lengths. */
static long fed_end(const char *text, size_t n, uint32_t min_indent)
{
    struct lines l = {0};
    for (size_t at = 0; at < n;) {
        size_t len = 1 + (size_t)rand() % 5, end = 0;
        len = len < n - at ? len : n - at;
        if (lines_feed(&l, text + at, len, min_indent, &end))
            return (long)(at + end);
        at += len;
    }
    return -1;
}

static void test_random(void **state)
{
    (void)state;
    unsigned seed = (unsigned)time(NULL);
    int n_ended = 0;
    printf("seed %u\n", seed);
    srand(seed);
    for (int round = 0; round < 20000; round++) {
        char text[40];
        size_t n = (size_t)rand() % sizeof text;
        uint32_t min_indent = 1 + (uint32_t)rand() % 4;
        for (size_t i = 0; i < n; i++)
            text[i] = "ab \t  \n"[rand() % 7];
        long end = naive_end(text, n, min_indent);
        assert_int_equal(fed_end(text, n, min_indent), end);
        n_ended += end >= 0;
    }
    assert_in_range(n_ended, 1000, 19999);
}

static void test_places(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        long end;
    } cases[] = {{"x\ny", 2},
                 {"x", -1},
                 {"x\n    y", -1},
                 {"x\n   y", 5},
                 {"x\n\t\t\t\ty\n", -1},
                 {"x\n\n    y", 2},
                 {"x\n  ", -1}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        assert_int_equal(fed_end(cases[i].text, strlen(cases[i].text), 4), cases[i].end);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_random),
                                       cmocka_unit_test(test_places)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
