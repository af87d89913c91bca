/* JSON schemas: which texts come through, what is refused and where. */
#include "harness.h"

#include "schemas.h"

/* Beyond what the checker of this folder knows; tests/server/test_schemas.py has another. */
static const struct language beyond[] = {
    /* look-ahead at the beginning of a pattern */
    {"{\"type\":\"string\",\"pattern\":\"^(?=.*\\\\d)(?!ab)[a-z\\\\d]{2,4}$\"}",
     {"\"a1\"", "\"1b2c\""},
     {"\"aa\"", "\"ab1\"", "\"a1b2c\""}},
    {"{\"type\":\"string\",\"pattern\":\"^(?!^[-+.]*$)[+-]?0*\\\\d*\\\\.?\\\\d*$\"}",
     {"\"1.5\"", "\"-.5\"", "\"00\""},
     {"\"\"", "\"-\"", "\".\""}},
    /* what is turned round takes out what any language's rules match */
    {"{\"type\":\"string\",\"maxLength\":1,\"not\":{\"pattern\":\"^\\\\w$\"}}",
     {"\"\"", "\"-\""},
     {"\"a\"", "\"\xc3\xa9\""}},
    {"{\"type\":\"string\",\"maxLength\":2,\"not\":{\"pattern\":\"^a$\"}}",
     {"\"b\""},
     {"\"a\"", "\"a\\n\""}},
    {"{\"type\":\"object\",\"patternProperties\":{\"^\\\\w+$\":{\"const\":1}},"
     "\"additionalProperties\":{\"const\":"
     "2}}",
     {"{\"a\":1}", "{\"-\":2}"},
     {"{\"a\":2}", "{\"\xc3\xa9\":2}"}},
    {"{\"type\":\"object\",\"patternProperties\":{\"^\\\\w+$\":{\"enum\":[1,2]}},"
     "\"additionalProperties\":{\"enum\":[2,3]},\"required\":[\"\xc3\xa9\"]}",
     {"{\"\xc3\xa9\":2}"},
     {"{\"\xc3\xa9\":1}", "{\"\xc3\xa9\":3}", "{}"}},
    {"{\"oneOf\":[{\"type\":\"number\"},{\"type\":\"integer\"}]}",
     {"1.5", "-0.25"},
     {"1", "1.0", "1e3"}},
    {"{\"oneOf\":[{\"type\":\"integer\",\"maximum\":4},{\"type\":\"integer\",\"minimum\":2}]}",
     {"1", "5"},
     {"2", "4"}},
    {"{\"type\":\"integer\",\"minimum\":0,\"maximum\":9,\"not\":{\"multipleOf\":3}}",
     {"1", "8"},
     {"0", "3", "9"}},
    {"{\"type\":\"number\",\"minimum\":0,\"maximum\":9,\"not\":{\"multipleOf\":3}}",
     {"1", "8", "3.5"},
     {"0", "3", "3.0"}},
    {"{\"type\":\"integer\",\"allOf\":[{\"multipleOf\":4},{\"multipleOf\":6}],\"minimum\":0,"
     "\"maximum\":30}",
     {"0", "12", "24"},
     {"4", "6", "18"}},
    {"{\"type\":\"array\",\"items\":{\"enum\":[1,\"a\"]},\"maxItems\":2,\"not\":{\"items\":{"
     "\"type\":\"integer\"}}}",
     {"[\"a\"]", "[1,\"a\"]"},
     {"[]", "[1]", "[1,1]"}},
    {"{\"type\":\"object\",\"properties\":{\"a\":{\"const\":1},\"b\":{\"const\":1},\"c\":{"
     "\"const\":1},\"d\":{\"const\":"
     "1}},\"allOf\":[{\"oneOf\":[{\"required\":[\"a\"]},{\"required\":[\"b\"]}]},{\"oneOf\":[{"
     "\"required\":[\"c\"]},{"
     "\"required\":[\"d\"]}]}]}",
     {"{\"a\":1,\"c\":1}", "{\"b\":1,\"d\":1}"},
     {"{\"a\":1}", "{\"a\":1,\"b\":1,\"c\":1}"}},
    /* what is said beside a "not" holds for what it comes to, whichever comes first */
    {"{\"not\":{\"properties\":{\"x\":{\"const\":1}}},\"type\":\"object\","
     "\"additionalProperties\":{\"type\":\"string\"}}",
     {"{\"x\":\"a\"}"},
     {"{\"x\":2}", "{\"x\":true}", "{}"}},
    {"{\"not\":{\"prefixItems\":[{\"const\":\"a\"}]},\"type\":\"array\",\"items\":{\"enum\":["
     "\"a\",\"b\"]}}",
     {"[\"b\"]", "[\"b\",\"a\"]"},
     {"[1]", "[\"a\"]", "[]"}},
    {"{\"type\":\"object\",\"not\":{\"type\":\"null\"},\"patternProperties\":{\"^a\":{\"const\":1}}"
     ","
     "\"additionalProperties\":false}",
     {"{\"a\":1}", "{}"},
     {"{\"b\":1}", "{\"a\":2}"}},
    /* an option that cannot be is left out */
    {"{\"type\":\"object\",\"properties\":{\"a\":{\"const\":1}},\"additionalProperties\":false,"
     "\"dependentRequired\":{\"b\":[\"c\"]}}",
     {"{}", "{\"a\":1}"},
     {"{\"b\":1}"}},
    /* many multiples leave room for what stands beside them */
    {"{\"type\":[\"number\",\"string\"],\"multipleOf\":0.01}",
     {"3", "9.75", "\"a\"", "1000"},
     {"0.001", "\"a"}},
    /* contains, counted from both sides */
    {"{\"type\":\"array\",\"items\":{\"enum\":[1,2,3]},\"contains\":{\"const\":1},\"maxContains\":"
     "2}",
     {"[1]", "[2,1,3,1]"},
     {"[]", "[2]", "[1,1,1]"}},
    {"{\"type\":\"array\",\"prefixItems\":[{\"enum\":[1,2]},{\"enum\":[1,3]}],\"items\":{\"enum\":["
     "1,4]},"
     "\"contains\":{\"const\":1},\"minContains\":2,\"maxContains\":2}",
     {"[1,1]", "[2,1,4,1]"},
     {"[1]", "[2,3]", "[1,1,1]"}},
    {"{\"type\":\"array\",\"items\":{\"enum\":[\"a\",\"b\"]},\"contains\":{\"const\":\"a\"},"
     "\"minContains\":0,"
     "\"maxContains\":0}",
     {"[]", "[\"b\",\"b\"]"},
     {"[\"a\"]"}},
    {"{\"type\":\"array\",\"uniqueItems\":true,\"items\":{\"enum\":[1,2,3]},\"contains\":{"
     "\"const\":2}}",
     {"[2]", "[3,2]"},
     {"[]", "[1,3]", "[2,2]"}},
    {"{\"type\":\"array\",\"uniqueItems\":true,\"items\":{\"type\":\"integer\",\"minimum\":1,"
     "\"maximum\":4}}",
     {"[]", "[4,2]"},
     {"[1,1]", "[5]"}},
    {"{\"type\":\"array\",\"uniqueItems\":true,\"items\":{\"type\":\"string\",\"pattern\":\"^[ab]$"
     "\"}}",
     {"[\"b\",\"a\"]"},
     {"[\"a\",\"a\"]"}},
    /* what no part evaluates */
    {"{\"type\":\"string\",\"pattern\":\"\\\\bfoo\\\\b\"}",
     {"\"foo\"", "\"a foo b\"", "\"foo!\"", "\"-foo\""},
     {"\"afoo\"", "\"fooa\"", "\"foo_\"", "\"\""}},
    {"{\"type\":\"string\",\"pattern\":\"\\\\b-\\\\b\"}",
     {"\"a-b\"", "\"x a-b y\""},
     {"\"-\"", "\"a-\"", "\"-b\"", "\"a -b\""}},
    {"{\"type\":\"string\",\"pattern\":\"a\\\\b$\"}", {"\"a\"", "\"ba\""}, {"\"a!\"", "\"b\""}},
    {"{\"type\":\"string\",\"pattern\":\"(^$|b)\"}", {"\"\"", "\"b\"", "\"abc\""}, {"\"a\""}},
    {"{\"nullable\":true,\"allOf\":[{\"type\":\"integer\"}]}", {"1"}, {"null"}},
    /* a client's own words are nothing to us, whatever they are */
    {"{\"x-negated\":true,\"properties\":{\"a\":{\"const\":1}},\"unevaluatedProperties\":false}",
     {"{}", "{\"a\":1}"},
     {"{\"a\":2}", "{\"b\":1}"}},
    {"{\"properties\":{\"a\":{\"const\":1}},\"unevaluatedProperties\":false}",
     {"{}", "{\"a\":1}"},
     {"{\"b\":1}"}},
    {"{\"allOf\":[{\"properties\":{\"a\":{\"const\":1}}}],\"properties\":{\"b\":{\"const\":2}},"
     "\"unevaluatedProperties\":{\"const\":3}}",
     {"{\"b\":2,\"a\":1}", "{\"c\":3}"},
     {"{\"a\":3}", "{\"c\":1}"}},
    {"{\"type\":\"object\",\"anyOf\":[{\"properties\":{\"a\":{\"const\":1}},\"required\":[\"a\"]},{"
     "\"properties\":{"
     "\"b\":{\"const\":1}},\"required\":[\"b\"]}],\"unevaluatedProperties\":false}",
     {"{\"a\":1}", "{\"b\":1}"},
     {"{}", "{\"c\":1}"}},
    {"{\"type\":\"object\",\"unevaluatedProperties\":false,\"not\":{\"properties\":{\"a\":{"
     "\"const\":1}},"
     "\"required\":[\"a\"]},\"properties\":{\"b\":{\"const\":1}}}",
     {"{}", "{\"b\":1}"},
     {"{\"a\":2}"}},
    {"{\"type\":\"object\",\"unevaluatedProperties\":false,\"not\":{\"not\":{\"properties\":{\"a\":"
     "{\"const\":1}},"
     "\"required\":[\"a\"]}},\"anyOf\":[{\"properties\":{\"a\":{}}},true]}",
     {"{\"a\":1}"},
     {"{}", "{\"a\":2}"}},
    {"{\"type\":\"object\",\"properties\":{\"k\":{\"enum\":[1,2]}},\"required\":[\"k\"],\"if\":{"
     "\"properties\":{\"k\":{"
     "\"const\":1}}},\"then\":{\"properties\":{\"x\":{\"const\":1}},\"required\":[\"x\"]},"
     "\"unevaluatedProperties\":false}",
     {"{\"k\":1,\"x\":1}", "{\"k\":2}"},
     {"{\"k\":1}", "{\"k\":2,\"x\":1}"}},
    {"{\"allOf\":[{\"properties\":{\"a\":{\"const\":1}},\"unevaluatedProperties\":false},{"
     "\"properties\":{\"b\":"
     "{}}}]}",
     {"{\"a\":1}"},
     {"{\"b\":1}"}},
    {"{\"type\":\"array\",\"allOf\":[{\"prefixItems\":[{\"const\":1}]}],\"unevaluatedItems\":{"
     "\"const\":2}}",
     {"[]", "[1]", "[1,2,2]"},
     {"[2]", "[1,1]"}},
    {"{\"type\":\"array\",\"contains\":{\"const\":1},\"unevaluatedItems\":false}",
     {"[1]", "[1,1]"},
     {"[1,2]"}},
    {"{\"$schema\":\"https://json-schema.org/draft/2019-09/"
     "schema\",\"type\":\"array\",\"unevaluatedItems\":{"
     "\"const\":2},\"contains\":{\"enum\":[1,2]}}",
     {"[2]"},
     {"[1]"}},
    /* references */
    {"{\"$ref\":\"#here\",\"$defs\":{\"x\":{\"$anchor\":\"here\",\"const\":1}}}", {"1"}, {"2"}},
    {"{\"$ref\":\"#/$defs/a%20b\",\"$defs\":{\"a b\":{\"const\":1}}}", {"1"}, {"2"}},
    {"{\"$id\":\"u:x\",\"$ref\":\"u:x#/$defs/a\",\"$defs\":{\"a\":{\"const\":1}}}", {"1"}, {"2"}},
    {"{\"$dynamicAnchor\":\"n\",\"type\":\"array\",\"maxItems\":1,\"items\":{\"$dynamicRef\":\"#"
     "n\"}}",
     {"[]", "[[]]"},
     {"[1]"}},
    {"{\"type\":\"string\",\"format\":\"uri\",\"minLength\":1,\"maxLength\":2083}",
     {"\"https://a.b/c?d#e\""},
     {"\"\"", "\"a b\""}},
    {"{\"type\":\"string\",\"format\":\"uuid4\"}",
     {"\"12345678-1234-4234-8234-123456789abc\""},
     {"\"12345678-1234-1234-8234-123456789abc\""}},
};

static void check_language(const struct language *list, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        struct grammar *g = must_make(SCHEMA, list[i].schema);
        for (int k = 0; k < 8 && list[i].yes[k]; k++)
            if (!accepts(g, list[i].yes[k]))
                fail_msg("%s: should accept %s", list[i].schema, list[i].yes[k]);
        for (int k = 0; k < 8 && list[i].no[k]; k++)
            if (accepts(g, list[i].no[k]))
                fail_msg("%s: should not accept %s", list[i].schema, list[i].no[k]);
        grammar_release(g);
    }
}

static void test_language(void **state)
{
    (void)state;
    check_language(cases, sizeof cases / sizeof cases[0]);
    check_language(beyond, sizeof beyond / sizeof beyond[0]);
}

static const struct {
    const char *schema, *says;
} wrong[] = {
    {"1", "a schema is an object"},
    {"false", "no text at all"},
    {"{\"type\":\"strin\"}", "at \"/type\""},
    {"{\"properties\":{\"a/b\":{\"type\":1}}}", "at \"/properties/a~1b/type\""},
    {"{\"properties\":{\"a\":{\"uniqueItems\":true}}}", "at \"/properties/a/uniqueItems\""},
    {"{\"not\":{\"format\":\"date\"}}", "at \"/not\": what it says cannot be turned"},
    {"{\"type\":\"string\",\"pattern\":\"^(?=a)b|c\"}", "offset 1"},
    {"{\"type\":\"string\",\"pattern\":\"^(?!a(b)c\"}", "offset"},
    {"{\"anyOf\":[{\"anyOf\":[{}],\"unevaluatedProperties\":false}],\"minProperties\":1}",
     "at \"/anyOf/0/unevaluatedProperties\""},
    {"{\"not\":{\"not\":{\"items\":{}}},\"unevaluatedItems\":false}", "at \"/not\""},
    {"{\"$ref\":\"#x\",\"$defs\":{\"a\":{\"$anchor\":\"x\"},\"b\":{\"$anchor\":\"x\"}}}",
     "several anchors"},
    {"{\"$ref\":\"#/$defs/a\",\"$defs\":{\"a\":{\"$id\":\"u:a\",\"type\":\"null\"}}}",
     "\"$id\" below its root"},
    {"{\"type\":\"array\",\"uniqueItems\":true,\"items\":{\"type\":\"integer\"}}",
     "at \"/uniqueItems\""},
    {"{\"if\":{\"uniqueItems\":true},\"then\":{}}", "at \"/if\""},
    {"{\"additional_properties\":false}", "is written \"additionalProperties\""},
    {"{\"anyOf\":[{},{\"pattern\":\"(\"}]}", "at \"/anyOf/1/pattern\": offset 0"},
    {"{\"anyOf\":[]}", "at \"/anyOf\""},
    {"{\"oneOf\":[{\"format\":\"date\"},{\"format\":\"time\"}]}",
     "at \"/oneOf/0\": cannot be told apart"},
    {"{\"oneOf\":[{\"type\":\"object\"},{\"type\":\"object\"}]}", "no text at all"},
    {"{\"oneOf\":[{\"const\":1},{\"const\":1.0}]}", "no text at all"},
    {"{\"$ref\":\"http://x/y\"}", "at \"/$ref\""},
    {"{\"$ref\":\"#/nowhere\"}", "there is nothing there"},
    {"{\"$ref\":\"#\"}", "no text at all"},
    {"{\"$ref\":\"#\",\"minimum\":1}", "refers to itself"},
    {"{\"properties\":{\"a\":{\"$ref\":\"#\"}},\"required\":[\"a\"]}", "no text at all"},
    {"{\"type\":\"string\",\"format\":\"date\",\"maxLength\":3}", "no text at all"},
    {"{\"type\":\"string\",\"minLength\":-1}", "at \"/minLength\""},
    {"{\"type\":\"string\",\"minLength\":3,\"maxLength\":2}", "no text at all"},
    {"{\"enum\":[]}", "at \"/enum\""},
    {"{\"enum\":[1],\"type\":\"string\"}", "at \"/enum\""},
    {"{\"enum\":[1],\"minimum\":2}", "no text at all"},
    {"{\"multipleOf\":0}", "at \"/multipleOf\""},
    {"{\"type\":\"array\",\"uniqueItems\":\"yes\"}", "at \"/uniqueItems\": must be true or false"},
    {"{\"exclusiveMaximum\":true}", "at \"/exclusiveMaximum\": must be a number"},
    {"{\"contains\":{\"format\":\"date\"},\"maxContains\":2}", "at \"/contains\""},
    {"{\"minProperties\":2}", "at \"/minProperties\""},
    {"{\"required\":[\"a\"],\"additionalProperties\":false}", "at \"/required\""},
    {"{\"type\":\"object\",\"patternProperties\":{\"^S_\":{\"type\":\"string\"}},"
     "\"additionalProperties\":false,\"required\":[\"s_a\"]}",
     "at \"/required\": 's_a' is required, but no such member may be"},
    {"{\"type\":\"object\",\"patternProperties\":{\"^\\\\w$\":{}},\"additionalProperties\":false,"
     "\"required\":[\"\xc3\xa9\"]}",
     "at \"/required\""},
    {"{\"allOf\":[{\"pattern\":\"^a$\"},{\"pattern\":\"^b$\"}]}", "no text at all"},
    {"{\"properties\":[]}", "at \"/properties\""},
    {"{\"properties\":{\"a\":3}}", "at \"/properties/a\""},
};

static void test_errors_say_where(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        struct err_info e = {0};
        struct grammar *g = make(SCHEMA, wrong[i].schema, &e);
        if (g || !strstr(e.text, wrong[i].says) || e.code != ERR_INVALID)
            fail_msg("%s: says \"%s\", not \"%s\"", wrong[i].schema, e.text, wrong[i].says);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_language),
        cmocka_unit_test(test_errors_say_where),
    };
    return cmocka_run_group_tests(tests, world_create, world_destroy);
}
