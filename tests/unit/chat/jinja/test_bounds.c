/* Templates that want too much, and texts that are long. */
#include "chat/jinja/jinja.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>

#include <cmocka.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

static enum err run(const char *source,
                    size_t n,
                    const json_t *vars,
                    const struct jinja_limits *limits,
                    struct jinja_text *out)
{
    const struct jinja_input in = {.vars = vars};
    struct jinja_template *t = NULL;
    struct err_info e = {0};
    enum err err = jinja_compile(source, n, &t, &e);
    if (!err)
        err = jinja_render(t, &in, limits, out, &e);
    assert_true(err == OK || (e.code == err && e.text[0] && !strchr(e.text, '\n')));
    jinja_destroy(t);
    return err;
}

static void assert_refused(const char *source, enum err want)
{
    struct jinja_text out = {0};
    enum err err = run(source, strlen(source), NULL, NULL, &out);
    if (err != want)
        fail_msg("%.80s: error %d", source, (int)err);
    jinja_text_deinit(&out);
}

static void test_too_much(void **state)
{
    (void)state;
    static const char *const sources[] = {
        "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}",
        "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}",
        "{{ 'x' * 1000000000 }}",
        "{{ 'x' * 9223372036854775807 }}",
        "{{ [0] * 9223372036854775807 }}",
        "{% set ns = namespace(x='0123456789') %}{% for a in range(99) %}{% set ns.x = ns.x + ns.x "
        "%}{% endfor %}",
        "{% for a in range(99999) %}{{ 'x' * 100000 }}{% endfor %}",
        "{% for a in range(99999) %}{% set x = [a] * 99999 %}{% endfor %}",
        "{% set ns = namespace() %}{% set ns.ns = ns %}{{ ns }}",
        "{% set ns = namespace(x=[]) %}{% for a in range(9999) %}{% set ns.x = [ns.x] %}{% endfor "
        "%}{{ ns.x }}",
        "{% for a in [1] recursive %}{{ loop([1]) }}{% endfor %}",
    };
    for (size_t i = 0; i < sizeof sources / sizeof sources[0]; i++)
        assert_refused(sources[i], ERR_TOO_LARGE);
    assert_refused("{{ '%999999999d' % 1 }}", ERR_INVALID);
    assert_refused("{{ '{:999999999}'.format(1) }}", ERR_INVALID);
    assert_refused("{{ range(99999999) }}", ERR_INVALID);
    assert_refused("{{ 2 ** 64 }}", ERR_INVALID);
}

/* n times `open`, then `middle`, then n times `close`. */
static char *nest(size_t n, const char *open, const char *middle, const char *close)
{
    struct buf b = {0};
    for (size_t i = 0; i < n; i++)
        buf_str(&b, open);
    buf_str(&b, middle);
    for (size_t i = 0; i < n; i++)
        buf_str(&b, close);
    buf_char(&b, '\0');
    return b.data;
}

static void test_deep_sources(void **state)
{
    (void)state;
    static const char *const parts[][3] = {
        {"{{ ", "1", " }}"},
        {"{% if 1 %}", "x", "{% endif %}"},
        {"(", "1", ")"},
        {"[", "1", "]"},
        {"{1:", "1", "}"},
        {"not ", "1", ""},
        {"-", "1", ""},
        {"f(", "1", ")"},
        {"1 if 1 else ", "1", ""},
        {"1 + (", "1", ")"},
        {"x[", "1", "]"},
        {"", "1", " + 1"},
        {"", "1", "|string"},
        {"", "x", ".x"},
        {"", "x", " and x"},
        {"", "x", " is defined"},
    };
    for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++) {
        char *source = nest(20000, parts[i][0], parts[i][1], parts[i][2]);
        struct buf whole = {0};
        struct jinja_text out = {0};
        buf_str(&whole, i < 2 ? "" : "{{ ");
        buf_str(&whole, source);
        buf_str(&whole, i < 2 ? "" : " }}");
        assert_int_not_equal(run(whole.data, whole.len, NULL, NULL, &out), OK);
        jinja_text_deinit(&out);
        buf_deinit(&whole);
        free(source);
    }
}

static void test_limits(void **state)
{
    (void)state;
    static const char source[] = "{% for x in range(100) %}0123456789{% endfor %}";
    struct jinja_text out = {0};
    const struct jinja_limits steps = {.n_steps = 50}, memory = {.memory_bytes = 100},
                              output = {.output_bytes = 999}, enough = {.output_bytes = 1000};
    assert_int_equal(run(source, sizeof source - 1, NULL, &steps, &out), ERR_TOO_LARGE);
    assert_int_equal(run(source, sizeof source - 1, NULL, &memory, &out), ERR_TOO_LARGE);
    assert_int_equal(run(source, sizeof source - 1, NULL, &output, &out), ERR_TOO_LARGE);
    assert_int_equal(out.text.len, 0);
    assert_int_equal(run(source, sizeof source - 1, NULL, &enough, &out), OK);
    assert_int_equal(out.text.len, 1000);
    jinja_text_deinit(&out);
}

/* A text that grows in a loop takes memory in proportion to it, not to its square. */
static void test_long_text(void **state)
{
    (void)state;
    static const char source[] =
        "{% set ns = namespace(s='') %}{% for m in messages %}{% set ns.s = ns.s + '<' + m.content "
        "| trim + '>' %}{% endfor %}{{ ns.s }}{% for m in messages %}{{ m.content }}{% endfor %}";
    char content[1001];
    memset(content, 'x', sizeof content - 1);
    content[sizeof content - 1] = '\0';
    json_t *vars = json_object(), *messages = json_array();
    for (int i = 0; i < 2000; i++)
        json_array_append_new(messages, json_pack("{s:s}", "content", content));
    json_object_set_new(vars, "messages", messages);
    const struct jinja_limits limits = {.n_steps = 200000, .memory_bytes = (size_t)40 << 20};
    struct jinja_text out = {0};
    assert_int_equal(run(source, sizeof source - 1, vars, &limits, &out), OK);
    assert_int_equal(out.text.len, 2000 * 1002 + 2000 * 1000);
    jinja_text_deinit(&out);
    json_decref(vars);
}

static void test_bad_sources(void **state)
{
    (void)state;
    struct jinja_text out = {0};
    char *big = calloc(1, 1 << 21);
    assert_non_null(big);
    assert_int_equal(run("\xff", 1, NULL, NULL, &out), ERR_FORMAT);
    assert_int_equal(run(big, 1 << 21, NULL, NULL, &out), ERR_TOO_LARGE);
    assert_int_equal(run("{{ 'a\0b' }}", 11, NULL, NULL, &out), OK); /* NUL is a character */
    assert_int_equal(out.text.len, 3);
    jinja_text_deinit(&out);
    free(big);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_too_much),
        cmocka_unit_test(test_deep_sources),
        cmocka_unit_test(test_limits),
        cmocka_unit_test(test_long_text),
        cmocka_unit_test(test_bad_sources),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
