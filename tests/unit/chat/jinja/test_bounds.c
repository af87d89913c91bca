/* Templates that want too much, and texts that are long. */
#include "chat/jinja/jinja.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>

#include <cmocka.h>
#include <jansson.h>
#include <stdio.h>
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

static void assert_refused(const char *source, uint64_t n_steps, enum err want)
{
    struct jinja_text out = {0};
    const struct jinja_limits limits = {.n_steps = n_steps};
    enum err err = run(source, strlen(source), NULL, &limits, &out);
    if (err != want)
        fail_msg("%.80s: error %d", source, (int)err);
    jinja_text_deinit(&out);
}

/* ns.s: ten million times c, made in few steps. */
#define LONG(c)                                                                                    \
    "{% set ns = namespace(s='" c c c c c c c c c c "') %}{% for i in range(20) %}"                \
    "{% set ns.s = ns.s + ns.s %}{% endfor %}"
#define REPEAT(body) "{% for i in range(99999) %}" body "{% endfor %}"

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
        "{{ 'a'|map(*(['map'] * 99999 + ['upper']))|list }}",
        "{% set ns = namespace(a={}.items(), b={}.items()) %}{% for i in range(9999) %}{% set ns.a "
        "= {1: ns.a}.items() %}{% set ns.b = {1: ns.b}.items() %}{% endfor %}{{ ns.a == ns.b }}",
        "{% set ns = namespace(t=()) %}{% for i in range(9999) %}{% set ns.t = (ns.t, 1) %}"
        "{% endfor %}{{ {ns.t: 1} }}",
    };
    static const char *const slow[] = {
        /* what makes nothing but takes long */
        "{% set ns = namespace(t=()) %}{% for i in range(99) %}{% set ns.t = (ns.t, ns.t) %}"
        "{% endfor %}{{ {ns.t: 1} }}",
        LONG("a") "{{ ns.s.rsplit('b' + ns.s[1:5000000]) }}",
        LONG("a") "{% set t = ns.s[1:] + 'b' %}{% set u = ns.s[1:] + 'c' %}" REPEAT(
            "{{ t.startswith(u) }}"),
        LONG("\xc3\xa9") REPEAT("{{ ns.s.find('x', 9999999) }}"),
        LONG("\xc3\xa9") REPEAT("{{ ns.s.count('') }}"),
        LONG("0") REPEAT("{{ ns.s | int }}"),
        LONG(" ") REPEAT("{{ ns.s.split() }}"),
        /* a step for each 16 bytes that are classified: a step for 64 would let these pass */
        LONG("\xc3\xa9") "{{ ns.s is lower }}",
        LONG("\xc3\xa9") "{{ ns.s.isalpha() }}",
        LONG("\xc3\xa9") "{{ ns.s | wordcount }}",
        LONG("\xc2\xa0") "{{ ns.s.split() }}",
        LONG("\xc2\xa0") "{{ ns.s | trim }}",
        LONG("a") "{% set d = dict(range(99) | batch(2, 1)) %}" REPEAT("{{ (ns.s, i) in d }}"),
        "{{ ('b ' * 99999) | urlize(extra_schemes=['abc:'] * 9999) }}",
    };
    for (size_t i = 0; i < sizeof sources / sizeof sources[0]; i++)
        assert_refused(sources[i], 0, ERR_TOO_LARGE);
    for (size_t i = 0; i < sizeof slow / sizeof slow[0]; i++)
        assert_refused(slow[i], 1000000, ERR_TOO_LARGE);
    assert_refused("{{ '%999999999d' % 1 }}", 0, ERR_INVALID);
    assert_refused("{{ '{:999999999}'.format(1) }}", 0, ERR_INVALID);
    assert_refused("{{ range(99999999) }}", 0, ERR_INVALID);
    assert_refused("{{ 2 ** 64 }}", 0, ERR_INVALID);
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

/* Filters in a row, and names of which there are too many to look through for nothing. */
static void test_long_tags(void **state)
{
    (void)state;
    static const struct jinja_limits limits = {.n_steps = 3000000};
    struct buf sources[3] = {{0}, {0}, {0}};
    char *chain = nest(20000, "|upper", "%}x{% endfilter %}", "");
    buf_str(&sources[0], "{% filter upper");
    buf_str(&sources[0], chain);
    buf_str(&sources[1], "{% for i in range(99) %}");
    buf_str(&sources[2], "{% macro f() %}{{ kwargs }}{% endmacro %}{% for i in range(99) %}{{ f(");
    for (int i = 0; i < 10000; i++) {
        char text[64];
        snprintf(text, sizeof text, "{%% set v%d = 1 %%}", i);
        buf_str(&sources[1], text);
        snprintf(text, sizeof text, "v%d=1,", i);
        buf_str(&sources[2], text);
    }
    buf_str(&sources[1], "{% endfor %}");
    buf_str(&sources[2], ") }}{% endfor %}");
    for (size_t i = 0; i < 3; i++) {
        struct jinja_text out = {0};
        assert_int_equal(run(sources[i].data, sources[i].len, NULL, &limits, &out), ERR_TOO_LARGE);
        jinja_text_deinit(&out);
        buf_deinit(&sources[i]);
    }
    free(chain);
}

/* Branches in a row are no nesting. */
static void test_many_branches(void **state)
{
    (void)state;
    char *source = nest(3000, "{% elif 0 %}{% set x = 1 %}", "{% endif %}", "");
    struct buf whole = {0};
    struct jinja_text out = {0};
    buf_str(&whole, "{% if 1 %}a");
    buf_str(&whole, source);
    assert_int_equal(run(whole.data, whole.len, NULL, NULL, &out), OK);
    assert_string_equal(buf_cstr(&out.text), "a");
    jinja_text_deinit(&out);
    buf_deinit(&whole);
    free(source);
}

static void test_striptags_is_linear(void **state)
{
    (void)state;
    static const char source[] = LONG("<") "{{ ns.s[:200000] | striptags | length }}";
    struct jinja_text out = {0};
    assert_int_equal(run(source, sizeof source - 1, NULL, NULL, &out), OK);
    assert_int_equal(out.text.len, 6);
    jinja_text_deinit(&out);
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
        cmocka_unit_test(test_long_tags),
        cmocka_unit_test(test_many_branches),
        cmocka_unit_test(test_striptags_is_linear),
        cmocka_unit_test(test_limits),
        cmocka_unit_test(test_long_text),
        cmocka_unit_test(test_bad_sources),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
