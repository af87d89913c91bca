/* Field readers and writers: what comes out reads back as what went in. */
#include "api/json.h"

#include "unit/api/cmocka_all.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static json_t *parse(const char *text)
{
    struct err_info e;
    json_t *o = NULL;
    assert_int_equal(api_json_parse(text, strlen(text), &o, &e), OK);
    return o;
}

static void refuses(const char *text, size_t n, const char *says)
{
    struct err_info e = {0};
    json_t *o = NULL;
    assert_int_equal(api_json_parse(text, n, &o, &e), ERR_INVALID);
    assert_null(o);
    if (!strstr(e.text, says))
        fail_msg("'%s' lacks '%s'", e.text, says);
}

static void test_parse_errors(void **state)
{
    (void)state;
    char deep[10001];
    memset(deep, '[', sizeof deep - 1);
    deep[sizeof deep - 1] = '\0';
    refuses("{\"a\": 1,\n \"b\": }", 16, "line 2");
    refuses("", 0, "empty");
    refuses("[1]", 3, "an array");
    refuses("{\"a\": \"\\u0000\"}", 15, "\\u0000");
    refuses("{\"a\": 1e999}", 12, "overflow");
    refuses("{\"a\": \"\xff\"}", 10, "decode");
    refuses("{\"a\": \"\xed\xa0\x80\"}", 12, "");
    refuses("{\"a\": 1} x", 10, "end of file");
    refuses("{\"a\": NaN}", 10, "");
    refuses(deep, sizeof deep - 1, "depth");
    refuses("{\"a\"\0: 1}", 9, "");
}

static void test_whole(void **state)
{
    (void)state;
    json_t *o = parse("{\"yes\": [65, 65.0, -1e3, 9007199254740993, -9223372036854775808],"
                      " \"no\": [65.5, 1e19, -1e300, \"65\", true, null, [65]]}");
    static const int64_t want[] = {65, 65, -1000, 9007199254740993, INT64_MIN};
    const json_t *yes = json_object_get(o, "yes"), *no = json_object_get(o, "no");
    int64_t v;
    for (size_t i = 0; i < sizeof want / sizeof want[0]; i++) {
        assert_true(api_is_whole(json_array_get(yes, i), &v));
        assert_int_equal(v, want[i]);
    }
    for (size_t i = 0; i < json_array_size(no); i++)
        assert_false(api_is_whole(json_array_get(no, i), &v));
    json_decref(o);
}

/* An integer that 64 bits have no room for is the nearest double, and each field that wants an
 * integer says so itself; what looks like one in a string is text. */
static void test_long_integers(void **state)
{
    (void)state;
    struct err_info e;
    json_t *o = parse("{\"s\": \"18446744073709551615 \\\" -1\", \"u\": 18446744073709551615, "
                      "\"n\":-9223372036854775809, \"a\": [9223372036854775808,1], "
                      "\"max\": 9223372036854775807, \"min\": -9223372036854775808}");
    int64_t v = 3;
    double d = 0;
    assert_string_equal(json_string_value(json_object_get(o, "s")), "18446744073709551615 \" -1");
    assert_int_equal(api_get_real(o, "u", 0, 1e20, &d, &e), OK);
    assert_true(d == 18446744073709551616.0);
    assert_true(json_real_value(json_object_get(o, "n")) == -9223372036854775808.0);
    assert_true(json_real_value(json_array_get(json_object_get(o, "a"), 0)) ==
                9223372036854775808.0);
    assert_int_equal(json_integer_value(json_array_get(json_object_get(o, "a"), 1)), 1);
    assert_true(json_integer_value(json_object_get(o, "max")) == INT64_MAX);
    assert_true(json_integer_value(json_object_get(o, "min")) == INT64_MIN);
    assert_int_equal(api_get_int(o, "u", INT64_MIN, INT64_MAX, &v, &e), ERR_INVALID);
    assert_string_equal(e.field, "u");
    assert_string_equal(e.text,
                        "'u' must be from -9223372036854775808 to 9223372036854775807, not "
                        "1.8446744073709552e+19");
    assert_int_equal(v, 3);
    json_decref(o);
    refuses("{\"a\": 9223372036854775808, }", 28, "line 1");
    refuses("{\"a\": 9223372036854775808, \"b\": 1e999}", 39, "overflow");
}

static void test_int(void **state)
{
    (void)state;
    struct err_info e;
    json_t *o = parse("{\"i\": 7, \"r\": 7.0, \"f\": 7.5, \"s\": \"7\", \"b\": true, \"z\": null,"
                      "\"min\": -9223372036854775808, \"big\": 1e300}");
    int64_t v = -1;
    assert_int_equal(api_get_int(o, "i", 0, 10, &v, &e), OK);
    assert_int_equal(v, 7);
    v = -1;
    assert_int_equal(api_get_int(o, "r", 0, 10, &v, &e), OK);
    assert_int_equal(v, 7);
    v = -1;
    assert_int_equal(api_get_int(o, "absent", 0, 10, &v, &e), OK);
    assert_int_equal(api_get_int(o, "z", 0, 10, &v, &e), OK);
    assert_int_equal(v, -1);
    assert_int_equal(api_get_int(o, "i", 0, 6, &v, &e), ERR_INVALID);
    assert_string_equal(e.field, "i");
    assert_int_equal(api_get_int(o, "i", 8, 9, &v, &e), ERR_INVALID);
    assert_int_equal(api_get_int(o, "f", 0, 10, &v, &e), ERR_INVALID);
    assert_int_equal(api_get_int(o, "s", 0, 10, &v, &e), ERR_INVALID);
    assert_int_equal(api_get_int(o, "b", 0, 10, &v, &e), ERR_INVALID);
    assert_int_equal(api_get_int(o, "big", INT64_MIN, INT64_MAX, &v, &e), ERR_INVALID);
    assert_int_equal(v, -1);
    assert_int_equal(api_get_int(o, "min", INT64_MIN, INT64_MAX, &v, &e), OK);
    assert_true(v == INT64_MIN);
    json_decref(o);
}

static void test_real_bool_str(void **state)
{
    (void)state;
    struct err_info e;
    json_t *o = parse("{\"r\": 0.5, \"i\": 1, \"s\": \"h\\u00e9\", \"t\": true}");
    double d = -1;
    bool b = false;
    struct gguf_str s = {NULL, 0};
    assert_int_equal(api_get_real(o, "r", 0, 2, &d, &e), OK);
    assert_true(d == 0.5);
    assert_int_equal(api_get_real(o, "i", 0, 2, &d, &e), OK);
    assert_true(d == 1.0);
    assert_int_equal(api_get_real(o, "i", 0, 0.5, &d, &e), ERR_INVALID);
    assert_int_equal(api_get_real(o, "s", 0, 2, &d, &e), ERR_INVALID);
    assert_int_equal(api_get_bool(o, "t", &b, &e), OK);
    assert_true(b);
    assert_int_equal(api_get_bool(o, "i", &b, &e), ERR_INVALID);
    assert_non_null(strstr(e.text, "an integer"));
    assert_int_equal(api_get_str(o, "s", &s, &e), OK);
    assert_int_equal(s.len, 3);
    assert_memory_equal(s.data, "h\xc3\xa9", 3);
    assert_int_equal(api_get_str(o, "t", &s, &e), ERR_INVALID);
    json_decref(o);
}

/* jansson reads back what we write: any text of valid UTF-8. */
static void test_escape_round_trip(void **state)
{
    (void)state;
    struct buf b = {0};
    char text[300];
    size_t n = 0;
    for (int c = 1; c < 128; c++)
        text[n++] = (char)c;
    memcpy(text + n, "\xc3\xa9\xe2\x82\xac\xf0\x9f\x8e\x89", 9);
    n += 9;
    api_put_str(&b, text, n);
    json_t *v = json_loadb(b.data, b.len, JSON_DECODE_ANY, NULL);
    assert_non_null(v);
    assert_int_equal(json_string_length(v), n);
    assert_memory_equal(json_string_value(v), text, n);
    json_decref(v);
    buf_clear(&b);
    api_put_str(&b, "", 0);
    assert_string_equal(buf_cstr(&b), "\"\"");
    buf_clear(&b);
    api_put_str(&b, "a\0b\n\"\\\x1f", 7);
    assert_string_equal(buf_cstr(&b), "\"a\\u0000b\\n\\\"\\\\\\u001f\"");
    buf_clear(&b);
    api_put_text(&b, "a\xff\xc3", 3);
    assert_string_equal(buf_cstr(&b), "\"a\xef\xbf\xbd\xef\xbf\xbd\"");
    buf_deinit(&b);
}

static void writes_int(int64_t v, const char *wanted)
{
    struct buf b = {0};
    api_put_int(&b, v);
    assert_string_equal(buf_cstr(&b), wanted);
    buf_deinit(&b);
}

static void writes_float(float v, const char *wanted)
{
    struct buf b = {0};
    api_put_float(&b, v);
    assert_string_equal(buf_cstr(&b), wanted);
    buf_deinit(&b);
}

static void writes_double(double v, const char *wanted)
{
    struct buf b = {0};
    api_put_double(&b, v);
    assert_string_equal(buf_cstr(&b), wanted);
    buf_deinit(&b);
}

static void test_numbers(void **state)
{
    (void)state;
    writes_int(0, "0");
    writes_int(-1, "-1");
    writes_int(INT64_MAX, "9223372036854775807");
    writes_int(INT64_MIN, "-9223372036854775808");
    writes_float(0.1f, "0.1");
    writes_float(-2.5f, "-2.5");
    writes_float(16777216.0f, "16777216");
    writes_float(-INFINITY, "-9999");
    writes_float(NAN, "0");
    writes_double(0.1, "0.1");
    writes_double(1.0 / 3.0, "0.3333333333333333");
    writes_double(0.0, "0");
}

/* Random bit patterns come back as they were, in no more digits than the longest float needs. */
static void test_float_round_trip(void **state)
{
    (void)state;
    unsigned seed = (unsigned)time(NULL);
    struct buf b = {0};
    printf("seed %u\n", seed);
    srand(seed);
    for (int i = 0; i < 100000; i++) {
        uint32_t bits = (uint32_t)rand() << 16 ^ (uint32_t)rand();
        float v;
        memcpy(&v, &bits, sizeof v);
        if (!isfinite(v))
            continue;
        buf_clear(&b);
        api_put_float(&b, v);
        if (strtof(buf_cstr(&b), NULL) != v)
            fail_msg("%.9g became %s", (double)v, buf_cstr(&b));
        json_t *j = json_loadb(b.data, b.len, JSON_DECODE_ANY, NULL);
        assert_true(json_is_number(j));
        json_decref(j);
    }
    buf_deinit(&b);
}

/* Whatever float it is, the text reads back as the same one, and is a JSON number. */
static void test_values(void **state)
{
    (void)state;
    uint64_t x = 88172645463325252ull;
    static const float edges[] = {0.0f,
                                  1.0f,
                                  -1.0f,
                                  0.99999994f,
                                  1.0000001f,
                                  10.0f,
                                  2e7f,
                                  99999992.0f,
                                  1e8f,
                                  1e-7f,
                                  9.99e-8f,
                                  0.1f,
                                  -0.5f,
                                  1e-30f,
                                  3e38f,
                                  0.123456789f};
    for (int i = 0; i < 200000; i++) {
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        const uint32_t bits = (uint32_t)(x >> 32);
        float v;
        memcpy(&v, &bits, sizeof v);
        if (i < (int)(sizeof edges / sizeof edges[0]))
            v = edges[i];
        else if (i % 4 == 2) /* as hidden states are without a norm, up to 2^28 */
            v = (float)(int32_t)bits / 2147483648.0f * (float)(1u << (i % 29));
        else if (i % 2)
            v = (float)(int32_t)bits / 2147483648.0f / (float)(1u << (i % 20));
        if (!isfinite(v))
            continue;
        struct buf b = {0};
        api_put_value(&b, v);
        const char *s = buf_cstr(&b);
        if (strtof(s, NULL) != v)
            fail_msg("%.9g became %s", (double)v, s);
        json_t *json = json_loads(s, JSON_DECODE_ANY, NULL);
        assert_true(json_is_number(json));
        json_decref(json);
        buf_deinit(&b);
    }
}

/* Commas stand between fields, and nowhere else. */
static void test_fields(void **state)
{
    (void)state;
    struct buf b = {0};
    buf_char(&b, '{');
    api_field_int(&b, "least", INT64_MIN);
    api_field_real(&b, "tenth", 0.1);
    api_field(&b, "inner");
    buf_char(&b, '{');
    api_field_bool(&b, "yes", true);
    api_field_bool(&b, "no", false);
    buf_char(&b, '}');
    api_field_text(&b, "brace", "{");
    api_field_text(&b, "bytes", "a\"\xff");
    api_field_text(&b, "empty", "");
    api_field_text(&b, "none", NULL);
    api_field_null(&b, "null");
    buf_char(&b, '}');
    assert_string_equal(buf_cstr(&b),
                        "{\"least\":-9223372036854775808,\"tenth\":0.1,"
                        "\"inner\":{\"yes\":true,\"no\":false},\"brace\":\"{\","
                        "\"bytes\":\"a\\\"\xef\xbf\xbd\",\"empty\":\"\",\"none\":null,"
                        "\"null\":null}");
    buf_deinit(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_values),
        cmocka_unit_test(test_fields),
        cmocka_unit_test(test_parse_errors),
        cmocka_unit_test(test_whole),
        cmocka_unit_test(test_long_integers),
        cmocka_unit_test(test_int),
        cmocka_unit_test(test_real_bool_str),
        cmocka_unit_test(test_escape_round_trip),
        cmocka_unit_test(test_numbers),
        cmocka_unit_test(test_float_round_trip),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
