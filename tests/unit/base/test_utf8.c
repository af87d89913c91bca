/* UTF-8 against a decoder written the other way round: from the code points. */
#include "base/utf8.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#define BAD "\xef\xbf\xbd"

static size_t encode(uint32_t c, char *out)
{
    if (c < 0x80) {
        out[0] = (char)c;
        return 1;
    }
    if (c < 0x800) {
        out[0] = (char)(0xc0 | c >> 6);
        out[1] = (char)(0x80 | (c & 0x3f));
        return 2;
    }
    if (c < 0x10000) {
        out[0] = (char)(0xe0 | c >> 12);
        out[1] = (char)(0x80 | (c >> 6 & 0x3f));
        out[2] = (char)(0x80 | (c & 0x3f));
        return 3;
    }
    out[0] = (char)(0xf0 | c >> 18);
    out[1] = (char)(0x80 | (c >> 12 & 0x3f));
    out[2] = (char)(0x80 | (c >> 6 & 0x3f));
    out[3] = (char)(0x80 | (c & 0x3f));
    return 4;
}

/* Every code point is one character; every beginning of one may become it. */
static void test_every_code_point(void **state)
{
    (void)state;
    for (uint32_t c = 0; c < 0x110000; c++) {
        char s[4];
        size_t n = encode(c, s);
        bool surrogate = c >= 0xd800 && c < 0xe000;
        assert_int_equal(utf8_len(s, n), surrogate ? 0 : (int)n);
        assert_int_equal(utf8_valid(s, n), !surrogate);
        char own[4];
        size_t n_read;
        assert_int_equal(utf8_encode(c, own), n);
        assert_memory_equal(own, s, n);
        assert_int_equal(utf8_decode(s, &n_read), c);
        assert_int_equal(n_read, n);
        for (size_t k = 0; k < n && !surrogate; k++)
            assert_int_equal(utf8_len(s, k), -1);
    }
}

/* All first two bytes, with those at the edges of ranges behind: counted by length. */
static void test_nothing_else_is_a_character(void **state)
{
    (void)state;
    uint32_t n_by_len[5] = {0};
    static const unsigned char edges[] = {0, 0x7f, 0x80, 0x8f, 0x90, 0x9f, 0xa0, 0xbf, 0xc0, 0xff};
    for (unsigned a = 0; a < 256; a++)
        for (unsigned b = 0; b < 256; b++)
            for (size_t k = 0; k < sizeof edges; k++)
                for (size_t l = 0; l < sizeof edges; l++) {
                    char s[] = {(char)a, (char)b, (char)edges[k], (char)edges[l]};
                    int len = utf8_len(s, 4);
                    assert_in_range(len, 0, 4);
                    n_by_len[len]++;
                }
    /* leads and second bytes that can be, times the last two bytes; 6 of the 10 edges continue */
    assert_int_equal(n_by_len[1], 128 * 256 * 100);
    assert_int_equal(n_by_len[2], 30 * 64 * 100);
    assert_int_equal(n_by_len[3], (14 * 64 + 32 + 32) * 6 * 10);
    assert_int_equal(n_by_len[4], (3 * 64 + 48 + 16) * 6 * 6);
}

static void test_valid(void **state)
{
    (void)state;
    assert_true(utf8_valid("", 0));
    assert_true(utf8_valid("a\0b", 3));
    assert_true(utf8_valid("gr\xc3\xbc\xc3\x9f \xf0\x9f\x90\x9f", 11));
    assert_false(utf8_valid("gr\xc3", 3));
    assert_false(utf8_valid("\xc0\x80", 2));
    assert_false(utf8_valid("a\x80", 2));
}

static void assert_filtered(const char *s, const char *want)
{
    struct utf8_stream u = {0};
    struct buf out = {0};
    utf8_feed(&u, s, strlen(s), true, &out);
    assert_string_equal(buf_cstr(&out), want);
    buf_deinit(&out);
}

/* The examples of the Unicode standard, section 3.9, tables 3-8 to 3-11. */
static void test_replaces_maximal_subparts(void **state)
{
    (void)state;
    assert_filtered("\xc0\xaf\xe0\x80\xbf\xf0\x81\x82\x41", BAD BAD BAD BAD BAD BAD BAD BAD "A");
    assert_filtered("\xed\xa0\x80\xed\xbf\xbf\xed\xaf\x41", BAD BAD BAD BAD BAD BAD BAD BAD "A");
    assert_filtered("\xf4\x91\x92\x93\xff\x41\x80\xbf\x42", BAD BAD BAD BAD BAD "A" BAD BAD "B");
    assert_filtered("\xe1\x80\xe2\xf0\x91\x92\xf1\xbf\x41", BAD BAD BAD BAD "A");
}

static void test_holds_back_the_unfinished(void **state)
{
    (void)state;
    struct utf8_stream u = {0};
    struct buf out = {0};
    const char fish[] = "\xf0\x9f\x90\x9f";
    for (int i = 0; i < 3; i++) {
        utf8_feed(&u, fish + i, 1, false, &out);
        assert_int_equal(out.len, 0);
    }
    utf8_feed(&u, fish + 3, 1, false, &out);
    assert_string_equal(buf_cstr(&out), fish);
    utf8_feed(&u, "a\xf0\x9f", 3, false, &out);
    assert_int_equal(out.len, 5);
    utf8_feed(&u, "", 0, true, &out); /* the end: one replacement for what was begun */
    assert_int_equal(out.len, 8);
    assert_memory_equal(out.data + 5, BAD, 3);
    utf8_feed(&u, "", 0, true, &out);
    assert_int_equal(out.len, 8);
    buf_deinit(&out);
}

/* However bytes are cut into pieces, the same text comes out, and it is valid. */
static void test_pieces_do_not_matter(void **state)
{
    (void)state;
    static const unsigned char likely[] = {
        'a', 0x80, 0xbf, 0xc3, 0xe2, 0xed, 0xf0, 0xf4, 0x9f, 0xa0};
    uint32_t seed = 4711;
    print_message("seed %u\n", seed);
    for (int round = 0; round < 20000; round++) {
        char s[40];
        size_t n = (size_t)(round % 40);
        for (size_t i = 0; i < n; i++) {
            seed = seed * 1664525 + 1013904223;
            s[i] = (char)likely[(seed >> 16) % sizeof likely];
        }
        struct utf8_stream one = {0}, many = {0};
        struct buf whole = {0}, pieces = {0};
        utf8_feed(&one, s, n, true, &whole);
        for (size_t at = 0; at < n;) {
            seed = seed * 1664525 + 1013904223;
            size_t k = (seed >> 16) % 5;
            k = k < n - at ? k : n - at;
            utf8_feed(&many, s + at, k, false, &pieces);
            at += k;
        }
        assert_true(utf8_valid(pieces.data, pieces.len));
        utf8_feed(&many, NULL, 0, true, &pieces);
        assert_true(utf8_valid(whole.data, whole.len));
        assert_int_equal(whole.len, pieces.len);
        if (whole.len > 0)
            assert_memory_equal(whole.data, pieces.data, whole.len);
        buf_deinit(&whole);
        buf_deinit(&pieces);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_code_point),
        cmocka_unit_test(test_nothing_else_is_a_character),
        cmocka_unit_test(test_valid),
        cmocka_unit_test(test_replaces_maximal_subparts),
        cmocka_unit_test(test_holds_back_the_unfinished),
        cmocka_unit_test(test_pieces_do_not_matter),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
