/* Small templates, and what Python's Jinja2 makes of them: data/jinja/cases.jsonl, written by
 * golden/make_jinja_cases.py. */
#include "chat/jinja/jinja.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>

#include <cmocka.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Is the row what the engine makes of it? Prints it if not. */
static bool check(const json_t *row, const json_t *context)
{
    const char *source = json_string_value(json_object_get(row, "template"));
    const char *want = json_string_value(json_object_get(row, "text"));
    struct tm now = {.tm_year = 126, .tm_mon = 10, .tm_mday = 20, .tm_hour = 12, .tm_isdst = -1};
    mktime(&now);
    const struct jinja_input in = {.vars = context, .now = &now};
    struct jinja_template *t = NULL;
    struct jinja_text out = {0};
    struct err_info e = {0};
    enum err err = jinja_compile(source, strlen(source), &t, &e);
    if (!err)
        err = jinja_render(t, &in, NULL, &out, &e);
    bool same = want ? !err && strcmp(buf_cstr(&out.text), want) == 0 : err != OK;
    if (!same)
        print_message("%s\n  want %s\n  got  %s\n",
                      source,
                      want ? want : json_string_value(json_object_get(row, "error")),
                      err ? e.text : buf_cstr(&out.text));
    if (err && (e.text[0] == '\0' || strchr(e.text, '\n'))) {
        print_message("%s\n  the error is not one line: %s\n", source, e.text);
        same = false;
    }
    jinja_text_deinit(&out);
    jinja_destroy(t);
    return same;
}

static void test_cases(void **state)
{
    (void)state;
    json_t *context = json_load_file(TEST_DATA "/jinja/context.json", 0, NULL);
    FILE *f = fopen(TEST_DATA "/jinja/cases.jsonl", "r");
    char *line = NULL;
    size_t cap = 0;
    int n = 0, n_bad = 0;
    assert_non_null(context);
    assert_non_null(f);
    while (getline(&line, &cap, f) > 0) {
        json_t *row = json_loads(line, 0, NULL);
        assert_non_null(row);
        n++;
        n_bad += !check(row, context);
        json_decref(row);
    }
    free(line);
    fclose(f);
    json_decref(context);
    print_message("%d templates, %d differ\n", n, n_bad);
    assert_true(n > 1000);
    assert_int_equal(n_bad, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_cases)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
