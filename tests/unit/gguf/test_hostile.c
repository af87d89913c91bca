/* One damaged file a case: the error's code and the words that tell where it is. And gguf_show. */
#include "file_builder.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>

#include <cmocka.h>

static void expect(struct buf *b, enum err code, const char *where, const char *what)
{
    struct gguf *g;
    struct err_info e = {0};
    enum err err = gguf_open_memory(b->data, b->len, &g, &e);
    if (err != code || !strstr(e.text, where) || !strstr(e.text, what))
        fail_msg("want %d, '%s' and '%s'; got %d: %s", code, where, what, err, e.text);
    assert_null(g);
    buf_deinit(b);
}

static void test_header(void **state)
{
    (void)state;
    struct buf b = {0};
    buf_str(&b, "PK\3\4 this is a zip file, not a model");
    expect(&b, ERR_FORMAT, "header at byte 0", "not a GGUF file");
    const uint32_t versions[] = {0, 1, 4, 0x03000000, UINT32_MAX};
    for (size_t i = 0; i < sizeof versions / sizeof versions[0]; i++) {
        put_header(&b, versions[i], 0, 0);
        expect(&b, ERR_UNSUPPORTED, "header", i == 3 ? "big-endian" : "version");
    }
    const uint64_t counts[] = {1, 1000, 1ull << 32, 1ull << 60, 1ull << 63, UINT64_MAX};
    for (size_t i = 0; i < sizeof counts / sizeof counts[0]; i++) {
        put_header(&b, 3, counts[i], 0);
        expect(&b, ERR_FORMAT, "header", "tensors");
        put_header(&b, 3, 0, counts[i]);
        expect(&b, ERR_FORMAT, "header", "keys");
    }
    put_header(&b, 3, 0, (1 << 20) + 1);
    put_data(&b, 16 << 20);
    expect(&b, ERR_UNSUPPORTED, "header", "keys");
}

static void test_keys(void **state)
{
    (void)state;
    struct buf b = {0};
    const uint64_t lengths[] = {24, 1ull << 31, 1ull << 32, 1ull << 63, UINT64_MAX, UINT64_MAX - 7};
    for (size_t i = 0; i < sizeof lengths / sizeof lengths[0]; i++) {
        put_header(&b, 3, 0, 1);
        put_u64(&b, lengths[i]);
        put_data(&b, 23);
        expect(&b, ERR_FORMAT, "key 0 at byte 24", "needs");

        put_header(&b, 3, 0, 1);
        put_key(&b, "long", GGUF_STRING);
        put_u64(&b, lengths[i]);
        put_data(&b, 23);
        expect(&b, ERR_FORMAT, "key 0 \"long\" at byte 24", "needs");
    }
    put_header(&b, 3, 0, 1);
    put_kv_u32(&b, "", 1);
    expect(&b, ERR_FORMAT, "key 0 at byte 24", "empty");
    put_header(&b, 3, 0, 2);
    put_kv_u32(&b, "same", 1);
    put_kv_u32(&b, "same", 1);
    expect(&b, ERR_FORMAT, "key 1 \"same\"", "twice");
    put_header(&b, 3, 0, 1);
    put_kv_u32(&b, "\033[2Jname\n", 1);
    b.len -= 4;
    expect(&b, ERR_FORMAT, "\"\\x1b[2Jname\\n\"", "needs");
    put_header(&b, 3, 0, 1);
    put_u64(&b, 65536);
    put_data(&b, 65536 + 8);
    expect(&b, ERR_FORMAT, "key 0", "65536");
}

static void test_values(void **state)
{
    (void)state;
    struct buf b = {0};
    put_header(&b, 3, 0, 1);
    put_kv(&b, "kind", 13, "abcd", 4);
    expect(&b, ERR_FORMAT, "\"kind\"", "unknown kind 13");
    put_header(&b, 3, 0, 1);
    put_kv(&b, "flag", GGUF_BOOL, "\2", 1);
    expect(&b, ERR_FORMAT, "\"flag\"", "bool");
    put_header(&b, 3, 0, 1);
    put_array(&b, "flags", GGUF_BOOL, 2);
    buf_add(&b, "\1\xff", 2);
    expect(&b, ERR_FORMAT, "\"flags\"", "bool");
    put_header(&b, 3, 0, 1);
    put_array(&b, "nested", GGUF_ARRAY, 1);
    put_data(&b, 32);
    expect(&b, ERR_UNSUPPORTED, "\"nested\"", "array of arrays");
    put_header(&b, 3, 0, 1);
    put_array(&b, "what", 99, 1);
    put_data(&b, 32);
    expect(&b, ERR_FORMAT, "\"what\"", "unknown kind 99");
    const uint64_t counts[] = {9, 1ull << 61, (1ull << 61) + 1, 1ull << 63, UINT64_MAX};
    for (size_t i = 0; i < sizeof counts / sizeof counts[0]; i++) {
        put_header(&b, 3, 0, 1);
        put_array(&b, "many", GGUF_U64, counts[i]);
        put_data(&b, 64);
        expect(&b, ERR_FORMAT, "\"many\"", "elements");
        put_header(&b, 3, 0, 1);
        put_array(&b, "many", GGUF_STRING, counts[i]);
        put_data(&b, 64);
        expect(&b, ERR_FORMAT, "\"many\"", "strings");
    }
    put_header(&b, 3, 0, 1);
    put_array(&b, "inner", GGUF_STRING, 2);
    put_str(&b, "fine");
    put_u64(&b, UINT64_MAX - 3);
    put_data(&b, 8);
    expect(&b, ERR_FORMAT, "\"inner\"", "needs");
}

/* A file with one tensor `t` and n bytes of data. */
static void put_one(
    struct buf *b, uint32_t type, uint64_t ne0, uint64_t ne1, uint64_t offset, size_t n)
{
    put_header(b, 3, 1, 0);
    put_tensor(b, "t", type, ne0, ne1, offset);
    put_padding(b, 32);
    put_data(b, n);
}

static void test_shapes(void **state)
{
    (void)state;
    struct buf b = {0};
    const struct {
        uint32_t type;
        uint64_t ne0, ne1, offset;
        enum err code;
        const char *what;
    } cases[] = {
        {0, 0, 4, 0, ERR_FORMAT, "dimension 0 is 0"},
        {0, 4, 0, 0, ERR_FORMAT, "dimension 1 is 0"},
        {0, 1ull << 62, 1, 0, ERR_FORMAT, "larger than the file"},
        {0, 1ull << 31, 1ull << 31, 0, ERR_FORMAT, "larger than the file"},
        {0, 1ull << 32, 1ull << 32, 0, ERR_FORMAT, "larger than the file"},
        {0, UINT64_MAX, UINT64_MAX, 0, ERR_FORMAT, "larger than the file"},
        {35, 1ull << 63, 3, 0, ERR_FORMAT, "larger than the file"},
        {8, 33, 1, 0, ERR_FORMAT, "no multiple of Q8_0's blocks of 32"},
        {12, 128, 2, 0, ERR_FORMAT, "no multiple of Q4_K's blocks of 256"},
        {16, 32, 1, 0, ERR_FORMAT, "no multiple of IQ2_XXS's blocks of 256"},
        {17, 255, 1, 0, ERR_FORMAT, "no multiple of IQ2_XS's blocks of 256"},
        {18, 64, 1, 0, ERR_FORMAT, "no multiple of IQ3_XXS's blocks of 256"},
        {19, 128, 1, 0, ERR_FORMAT, "no multiple of IQ1_S's blocks of 256"},
        {21, 257, 1, 0, ERR_FORMAT, "no multiple of IQ3_S's blocks of 256"},
        {22, 1, 256, 0, ERR_FORMAT, "no multiple of IQ2_S's blocks of 256"},
        {29, 32, 8, 0, ERR_FORMAT, "no multiple of IQ1_M's blocks of 256"},
        {34, 5, 1, 0, ERR_FORMAT, "no multiple of TQ1_0's blocks of 256"},
        {35, 128, 2, 0, ERR_FORMAT, "no multiple of TQ2_0's blocks of 256"},
        {40, 32, 1, 0, ERR_FORMAT, "no multiple of NVFP4's blocks of 64"},
        {41, 64, 1, 0, ERR_FORMAT, "no multiple of Q1_0's blocks of 128"},
        {42, 32, 1, 0, ERR_FORMAT, "no multiple of Q2_0's blocks of 64"},
        {19, 256, 2, 0, ERR_FORMAT, "end past"}, /* 50 bytes a block */
        {29, 256, 2, 0, ERR_FORMAT, "end past"},
        {34, 256, 2, 0, ERR_FORMAT, "end past"},
        {16, 1ull << 40, 1ull << 40, 0, ERR_FORMAT, "larger than the file"},
        {41, 1ull << 63, 1, 0, ERR_FORMAT, "larger than the file"},
        {42, 64, 1ull << 63, 0, ERR_FORMAT, "larger than the file"},
        {4, 32, 1, 0, ERR_UNSUPPORTED, "type 4 "},
        {4000000000, 32, 1, 0, ERR_UNSUPPORTED, "type 4000000000 "},
        {0, 4, 4, 1, ERR_FORMAT, "offset 1 is no multiple of 32"},
        {0, 4, 4, 64, ERR_FORMAT, "end past"},
        {0, 4, 4, 96, ERR_FORMAT, "end past"},
        {0, 4, 5, 0, ERR_FORMAT, "end past"},
        {0, 4, 4, UINT64_MAX - 31, ERR_FORMAT, "end past"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        put_one(&b, cases[i].type, cases[i].ne0, cases[i].ne1, cases[i].offset, 64);
        expect(&b, cases[i].code, "tensor 0 \"t\" at byte 24", cases[i].what);
    }
    const uint32_t dims[] = {0, 5, UINT32_MAX};
    for (size_t i = 0; i < sizeof dims / sizeof dims[0]; i++) {
        put_header(&b, 3, 1, 0);
        put_str(&b, "dims");
        put_u32(&b, dims[i]);
        put_data(&b, 64);
        expect(&b, ERR_FORMAT, "\"dims\"", "dimensions");
    }
}

static void put_two(struct buf *b, const char *name0, const char *name1, uint64_t offset1)
{
    put_header(b, 3, 2, 0);
    put_tensor(b, name0, GGUF_TYPE_F32, 16, 1, 0);
    put_tensor(b, name1, GGUF_TYPE_F32, 16, 1, offset1);
    put_padding(b, 32);
    put_data(b, 128);
}

static void test_pairs(void **state)
{
    (void)state;
    struct buf b = {0};
    put_two(&b, "a", "a", 64);
    expect(&b, ERR_FORMAT, "tensor 1 \"a\"", "twice");
    put_two(&b, "a", "", 64);
    expect(&b, ERR_FORMAT, "tensor 1", "empty");
    put_two(&b, "a", "b", 0);
    expect(&b, ERR_FORMAT, "tensor", "overlap");
    put_two(&b, "a", "b", 32);
    expect(&b, ERR_FORMAT, "tensor 1 \"b\"", "overlap those of \"a\"");
    struct gguf *g;
    put_two(&b, "a", "b", 64); /* and this is fine */
    assert_int_equal(gguf_open_memory(b.data, b.len, &g, NULL), OK);
    gguf_close(g);
    buf_deinit(&b);
}

static void test_alignment(void **state)
{
    (void)state;
    struct buf b = {0};
    const uint32_t bad[] = {0, 1, 4, 24, 33, 1 << 21, 1u << 31, UINT32_MAX};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        put_header(&b, 3, 0, 1);
        put_kv_u32(&b, "general.alignment", bad[i]);
        expect(&b, ERR_FORMAT, "header", "general.alignment");
    }
    put_header(&b, 3, 0, 1);
    put_key(&b, "general.alignment", GGUF_STRING);
    put_str(&b, "32");
    expect(&b, ERR_FORMAT, "header", "general.alignment");
    put_header(&b, 3, 0, 0); /* no tensors: the file may end before where data would begin */
    struct gguf *g;
    assert_int_equal(gguf_open_memory(b.data, b.len, &g, NULL), OK);
    assert_null(gguf_find(g, "x"));
    gguf_close(g);
    buf_deinit(&b);
}

static void check_show(const char *s, size_t n, size_t cap, const char *want)
{
    char out[128];
    memset(out, 'x', sizeof out);
    assert_string_equal(gguf_show((struct gguf_str){s, n}, out, cap), want);
    assert_true(strlen(out) < cap);
    for (size_t i = cap; i < sizeof out; i++)
        assert_int_equal(out[i], 'x');
}

static void test_show(void **state)
{
    (void)state;
    check_show("", 0, 8, "");
    check_show("1234567", 7, 8, "1234567");
    check_show("12345678", 8, 8, "1234...");
    check_show("a\0b\x1b[0m\x7f", 8, 64, "a\\x00b\\x1b[0m\\x7f");
    check_show("\"\\\n\t\r", 5, 64, "\\\"\\\\\\n\\t\\r");
    check_show("gr\xc3\xbc\xc3\x9f", 6, 64, "gr\xc3\xbc\xc3\x9f");
    check_show("\xc2\x9b", 2, 64, "\\xc2\\x9b");          /* C1: an escape sequence's start */
    check_show("\xe2\x80\xae", 3, 64, "\\xe2\\x80\\xae"); /* right-to-left override */
    check_show("\xff\xc3", 2, 64, "\\xff\\xc3");          /* not UTF-8 */
    check_show("\xed\xa0\x80", 3, 64, "\\xed\\xa0\\x80"); /* a surrogate */
    check_show("abc\xf0\x9f\x98\x80", 7, 8, "abc\xf0\x9f\x98\x80");
    check_show("abc\xf0\x9f\x98\x80z", 8, 8, "abc...");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_header),
        cmocka_unit_test(test_keys),
        cmocka_unit_test(test_values),
        cmocka_unit_test(test_shapes),
        cmocka_unit_test(test_pairs),
        cmocka_unit_test(test_alignment),
        cmocka_unit_test(test_show),
    };
    return cmocka_run_group_tests_name("hostile", tests, NULL, NULL);
}
