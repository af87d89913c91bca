/* Bounds of numbers, from the least double to beyond 64 bits: what a grammar accepts satisfies the
 * schema, and what satisfies it in as many digits as answers have is accepted. */
#include "harness.h"

#include "checker.h"

#include <inttypes.h>

static const char *const edges[] = {"0",
                                    "-0.0",
                                    "1",
                                    "-1",
                                    "0.5",
                                    "-2.75",
                                    "1e-300",
                                    "-1e-300",
                                    "4.9e-324",
                                    "1.17549435e-38",
                                    "999999999999999",
                                    "-999999999999999",
                                    "9007199254740991",
                                    "-9007199254740991",
                                    "9007199254740992",
                                    "-9007199254740992",
                                    "9007199254740993",
                                    "-9007199254740993",
                                    "9007199254740995",
                                    "999999999999999999",
                                    "-999999999999999999",
                                    "1e18",
                                    "-1e18",
                                    "1000000000000000001",
                                    "9223372036854775295",
                                    "9223372036854775807",
                                    "-9223372036854775808",
                                    "9223372036854775808.0",
                                    "-9223372036854775809.0",
                                    "18446744073709551615.0",
                                    "3.4028234663852886e38",
                                    "-3.4028234663852886e38",
                                    "1.7976931348623157e308",
                                    "-1.7976931348623157e308"};
enum { N_EDGES = sizeof edges / sizeof edges[0] };

static json_t *number_of(const char *text)
{
    json_t *v = json_loads(text, JSON_DECODE_ANY, NULL);
    assert_non_null(v);
    return v;
}

/* An edge, something near one, or a small number. */
static json_t *some_bound(uint64_t *x)
{
    json_t *v = number_of(edges[next_random(x) % N_EDGES]);
    int by = (int)(next_random(x) % 9) - 4;
    if (next_random(x) % 2)
        return v;
    json_t *near;
    if (json_is_integer(v) && json_integer_value(v) > INT64_MIN + 4 &&
        json_integer_value(v) < INT64_MAX - 4)
        near = json_integer(json_integer_value(v) + by);
    else
        near = next_random(x) % 2 ? json_real(by * 0.375) : json_integer(by * 25);
    json_decref(v);
    return near;
}

static json_t *some_schema(uint64_t *x)
{
    static const char *const keys[] = {
        "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "minimum", "maximum"};
    json_t *s = json_pack("{s:s}", "type", next_random(x) % 2 ? "integer" : "number");
    for (int n = 1 + (int)(next_random(x) % 3); n > 0; n--)
        json_object_set_new(s, keys[next_random(x) % 6], some_bound(x));
    if (next_random(x) % 8 == 0)
        json_object_set_new(
            s, "multipleOf", next_random(x) % 2 ? json_integer(7) : json_real(0.25));
    return s;
}

/* May an answer do without it: a multiple, more than 18 digits, an integer that no double is? */
static bool may_be_left_out(const json_t *schema, const char *text, const json_t *v)
{
    bool sure =
        json_is_real(v) || (long double)json_number_value(v) == (long double)json_integer_value(v);
    return json_object_get(schema, "multipleOf") ||
           strspn(text + (*text == '-'), "0123456789") > 18 || !sure;
}

static void try_text(struct grammar *g, const json_t *schema, const char *text)
{
    json_t *v = number_of(text);
    bool fine = check(schema, schema, v), taken = accepts(g, text);
    if (taken ? !fine : fine && !may_be_left_out(schema, text, v)) {
        char *s = json_dumps(schema, JSON_REAL_PRECISION(17));
        fail_msg("%s is %s by %s", text, taken ? "taken" : "refused", s);
    }
    json_decref(v);
}

/* Around each bound, around 0, and by chance. */
static void try_texts(struct grammar *g, const json_t *schema, uint64_t *x)
{
    static const char *const keys[] = {
        "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "none"};
    char text[64];
    for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++) {
        const json_t *bound = json_object_get(schema, keys[i]);
        double at = json_number_value(bound);
        for (int by = -1100; by <= 1100; by += by < -4 || by >= 4 ? 137 : 1) {
            int64_t exact;
            if (json_is_integer(bound))
                exact = json_integer_value(bound);
            else if (fabs(at) < 9e18)
                exact = (int64_t)at;
            else
                continue;
            if (__builtin_add_overflow(exact, by, &exact))
                continue;
            snprintf(text, sizeof text, "%" PRId64, exact);
            try_text(g, schema, text);
            if (exact > -1000000 && exact < 1000000 && next_random(x) % 4 == 0) {
                snprintf(text, sizeof text, "%" PRId64 ".%d", exact, (int)(next_random(x) % 9) + 1);
                try_text(g, schema, text);
            }
        }
    }
    for (int i = 0; i < 50; i++) {
        uint64_t most = 10;
        for (uint64_t n = next_random(x) % 18; n > 0; n--)
            most *= 10;
        snprintf(text,
                 sizeof text,
                 "%s%" PRIu64,
                 next_random(x) % 2 ? "-" : "",
                 (next_random(x) * next_random(x)) % most + 1);
        if (strlen(text) < 20)
            try_text(g, schema, text);
    }
}

/* What it makes itself satisfies the schema too. */
static void try_answers(struct grammar *g, const json_t *schema, uint64_t *x)
{
    static char out[1 << 14];
    size_t n;
    for (int i = 0; i < 4; i++) {
        if (!random_answer(g, x, 12, out, sizeof out - 1, &n))
            continue;
        out[n] = '\0';
        json_t *v = number_of(out);
        if (!check(schema, schema, v))
            fail_msg("%s by %s", out, json_dumps(schema, JSON_REAL_PRECISION(17)));
        json_decref(v);
    }
}

static void test_random_bounds(void **state)
{
    (void)state;
    const char *given = getenv("WEIR_SEED");
    uint64_t seed = given ? strtoull(given, NULL, 10) : 20261126;
    int n_made = 0;
    print_message("seed %" PRIu64 "\n", seed);
    for (int i = 0; i < 1500; i++) {
        json_t *schema = some_schema(&seed);
        char *text = json_dumps(schema, JSON_REAL_PRECISION(17));
        struct err_info e = {0};
        struct grammar *g = make(SCHEMA, text, &e);
        if (g) {
            try_texts(g, schema, &seed);
            try_answers(g, schema, &seed);
            n_made++;
        } else if (!strstr(e.text, "no text at all") && !strstr(e.text, "at \"/")) {
            fail_msg("%s: %s", text, e.text);
        }
        grammar_release(g);
        free(text);
        json_decref(schema);
    }
    assert_in_range(n_made, 700, 1500);
}

/* The bounds that code generators write, of every width of integers and floats. */
static void test_common_bounds(void **state)
{
    (void)state;
    static const struct {
        const char *schema, *fits[4], *fails[4];
    } cases[] = {
        {"{\"type\":\"integer\",\"minimum\":-9223372036854775808,\"maximum\":9223372036854775807}",
         {"0", "-9223372036854775808", "9223372036854775807", "9007199254740993"},
         {"9223372036854775808", "-9223372036854775809", "1.5"}},
        {"{\"type\":\"integer\",\"minimum\":0,\"maximum\":18446744073709551615.0}",
         {"0", "999999999999999999"},
         {"-1"}},
        {"{\"type\":\"integer\",\"maximum\":9007199254740993}",
         {"9007199254740993", "-5"},
         {"9007199254740994", "9007199254740995"}},
        {"{\"type\":\"integer\",\"exclusiveMaximum\":9007199254740993}",
         {"9007199254740990", "9007199254740991"},
         {"9007199254740993", "9007199254740992"}},
        {"{\"type\":\"integer\",\"minimum\":9007199254740993,\"maximum\":9007199254740993}",
         {"9007199254740993"},
         {"9007199254740992", "9007199254740994"}},
        {"{\"allOf\":[{\"type\":\"integer\",\"maximum\":9007199254740993},"
         "{\"maximum\":9007199254740992}]}",
         {"9007199254740992"},
         {"9007199254740993"}},
        {"{\"type\":\"integer\",\"not\":{\"const\":9007199254740993},\"enum\":[9007199254740993,"
         "9007199254740992]}",
         {"9007199254740992"},
         {"9007199254740993"}},
        {"{\"type\":\"number\",\"minimum\":-1.7976931348623157e308,"
         "\"maximum\":1.7976931348623157e308}",
         {"0", "-1.5", "999999999999999999", "0.000001"},
         {"1e309", "01"}},
        {"{\"type\":\"number\",\"minimum\":-3.4028234663852886e38,"
         "\"maximum\":3.4028234663852886e38}",
         {"0", "-1.5", "999999999999999999"},
         {"1e39"}},
        {"{\"type\":\"number\",\"exclusiveMinimum\":0,\"maximum\":1.7976931348623157e308}",
         {"0.5", "12"},
         {"0", "-1"}},
        {"{\"type\":\"number\",\"minimum\":2.2250738585072014e-308}", {"0.5", "12"}, {"0", "-1"}},
        {"{\"type\":\"number\",\"maximum\":-1e-300}", {"-0.5", "-12"}, {"0", "1"}},
        {"{\"type\":\"integer\",\"minimum\":-9223372036854775808,\"multipleOf\":10}",
         {"0", "-20"},
         {"5"}},
        /* -0.0 is 0 */
        {"{\"type\":\"number\",\"not\":{\"const\":-0.0}}", {"1", "-0.5"}, {"0", "-0", "0.0"}},
        {"{\"type\":\"integer\",\"not\":{\"enum\":[-0.0,1]}}", {"2", "-1"}, {"0", "-0", "1"}},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct grammar *g = must_make(SCHEMA, cases[i].schema);
        for (int k = 0; k < 4; k++) {
            if (cases[i].fits[k] && !accepts(g, cases[i].fits[k]))
                fail_msg("%s refuses %s", cases[i].schema, cases[i].fits[k]);
            if (cases[i].fails[k] && accepts(g, cases[i].fails[k]))
                fail_msg("%s accepts %s", cases[i].schema, cases[i].fails[k]);
        }
        grammar_release(g);
    }
}

/* Where no answer can be, the keyword that says so is named. */
static void test_refused(void **state)
{
    (void)state;
    static const char *const cases[][2] = {
        {"{\"type\":\"integer\",\"minimum\":1e19}", "at \"/minimum\": is beyond 64 bits"},
        {"{\"type\":\"integer\",\"exclusiveMaximum\":-1e300}",
         "at \"/exclusiveMaximum\": is beyond"},
        {"{\"properties\":{\"x\":{\"type\":\"number\",\"exclusiveMinimum\":1e300}}}",
         "at \"/properties/x/exclusiveMinimum\": needs an answer of more than 18 digits"},
        {"{\"type\":\"integer\",\"minimum\":9007199254740993,\"multipleOf\":3}",
         "at \"/multipleOf\": is not supported of numbers beyond 2^53"},
        {"{\"enum\":[{\"a\":[18446744073709551615.0]}]}", "a number beyond 64 bits"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct err_info e = {0};
        assert_null(make(SCHEMA, cases[i][0], &e));
        if (!strstr(e.text, cases[i][1]))
            fail_msg("%s: %s", cases[i][0], e.text);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_random_bounds),
        cmocka_unit_test(test_common_bounds),
        cmocka_unit_test(test_refused),
    };
    return cmocka_run_group_tests(tests, world_create, world_destroy);
}
