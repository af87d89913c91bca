/* What a custom tool is given, of the arguments that the model wrote for it. */
#include "api/responses.h"
#include "base/json_text.h"

#include "unit/api/cmocka_all.h"

#include <string.h>

/* want: as JSON between its quotes, like what the model wrote. */
static void check(const char *arguments, const char *want)
{
    struct responses r = {0};
    json_text_escape(&r.text, arguments, strlen(arguments));
    responses_read_input(&r);
    assert_string_equal(buf_cstr(&r.input), want);
    assert_false(r.items.failed);
    buf_deinit(&r.text);
    buf_deinit(&r.input);
}

static void test_one_text(void **state)
{
    (void)state;
    check("{\"input\": \"a \\\"b\\\"\\n\"}", "a \\\"b\\\"\\n");
    check("{\"patch\": \"a\"}", "a");
    check("{\"input\": \"\"}", "");
}

/* All that it wrote, where there is not one text alone. */
static void test_anything_else(void **state)
{
    (void)state;
    check("{\"input\": \"a\", \"path\": \"b\"}",
          "{\\\"input\\\": \\\"a\\\", \\\"path\\\": \\\"b\\\"}");
    check("{\"path\": \"b\", \"input\": \"a\"}",
          "{\\\"path\\\": \\\"b\\\", \\\"input\\\": \\\"a\\\"}");
    check("{\"input\": 1}", "{\\\"input\\\": 1}");
    check("{}", "{}");
    check("[\"a\"]", "[\\\"a\\\"]");
    check("{\"input\": \"a", "{\\\"input\\\": \\\"a");
    check("", "");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_one_text),
        cmocka_unit_test(test_anything_else),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
