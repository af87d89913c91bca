/* JSON whose integers are too long for 64 bits. */
#include "base/json_text.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <stdlib.h>
#include <string.h>

/* to is "" where the text stays as it is */
static void widens(const char *text, const char *to)
{
    struct buf b = {0};
    bool any = json_text_widen(text, strlen(text), &b);
    if (any != (to[0] != '\0') || strcmp(buf_cstr(&b), to) != 0)
        fail_msg("%s -> %s", text, buf_cstr(&b));
    buf_deinit(&b);
}

static void test_long(void **state)
{
    (void)state;
    widens("9223372036854775808", "9223372036854775808.0");
    widens("[-9223372036854775809,1]", "[-9223372036854775809.0,1]");
    widens("{\"a\":18446744073709551615, \"b\" : 99999999999999999999}",
           "{\"a\":18446744073709551615.0, \"b\" : 99999999999999999999.0}");
}

/* What fits, reals, text, and what is no JSON. */
static void test_others(void **state)
{
    (void)state;
    static const char *const texts[] = {"",
                                        "9223372036854775807",
                                        "-9223372036854775808",
                                        "18446744073709551615.5",
                                        "18446744073709551615e1",
                                        "1e99999999999999999999",
                                        "\"18446744073709551615\"",
                                        "\"\\\\\\\"18446744073709551615\"",
                                        "\"18446744073709551615",
                                        "\"\\",
                                        "--18446744073709551615"};
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++)
        widens(texts[i], "");
}

/* Every beginning of a text ends within its bytes. */
static void test_bounds(void **state)
{
    (void)state;
    static const char text[] = "{\"a\\\"\":-18446744073709551615,\"\\\\\":[1,\"x\"]}";
    for (size_t n = 0; n < sizeof text; n++) {
        char *copy = malloc(n > 0 ? n : 1);
        memcpy(copy, text, n);
        struct buf b = {0};
        (void)json_text_widen(copy, n, &b);
        buf_deinit(&b);
        free(copy);
    }
}

static void test_escape(void **state)
{
    (void)state;
    struct buf b = {0};
    json_text_escape(&b, "", 0);
    assert_int_equal(b.len, 0);
    json_text_escape(&b, "a\0\x1f\"\\/\n\r\t\b\f\x7f\xc3\xa9", 14);
    assert_string_equal(buf_cstr(&b), "a\\u0000\\u001f\\\"\\\\/\\n\\r\\t\\b\\f\x7f\xc3\xa9");
    buf_deinit(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_long),
        cmocka_unit_test(test_others),
        cmocka_unit_test(test_bounds),
        cmocka_unit_test(test_escape),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
