/* Values that a schema lists (enum, const): kept by what they are, whatever Weir would write in
 * their place, and written in the fewest digits. */
#include "harness.h"

static const struct {
    const char *schema;
    const char *yes[4], *no[4];
} cases[] = {
    /* numbers by their value */
    {"{\"enum\":[0.05,1.0,1e-7,3,0.1234567890123456,0.30000000000000004]}",
     {"0.05", "1.0", "1e-7", "3"},
     {"0.050000000000000003", "1", "3.0", "0.1"}},
    {"{\"enum\":[0.1234567890123456,0.30000000000000004,{\"a\":[0.1]}]}",
     {"0.1234567890123456", "0.30000000000000004", "{\"a\":[0.1]}"},
     {"0.3", "{\"a\":[0.10000000000000001]}"}},
    {"{\"type\":\"number\",\"minimum\":0,\"maximum\":1,\"enum\":[0.05,0.5,1,1.5,-1]}",
     {"0.05", "0.5", "1"},
     {"1.5", "-1"}},
    {"{\"exclusiveMinimum\":0.05,\"exclusiveMaximum\":7,\"enum\":[0.05,0.06,6.999,7,7.0,\"a\"]}",
     {"0.06", "6.999", "\"a\""},
     {"0.05", "7", "7.0"}},
    {"{\"minimum\":1,\"exclusiveMinimum\":true,\"enum\":[1,1e-5,1.25,2]}",
     {"1.25", "2"},
     {"1", "1e-5"}},
    {"{\"maximum\":9007199254740992,\"enum\":[9007199254740992,9007199254740993]}",
     {"9007199254740992"},
     {"9007199254740993"}},
    {"{\"multipleOf\":0.25,\"enum\":[0.5,0.3,1e17,1]}", {"0.5", "1e17", "1"}, {"0.3"}},
    {"{\"multipleOf\":3,\"enum\":[9007199254740993,9007199254740991,6.0,6.5]}",
     {"6.0"},
     {"9007199254740991", "6.5"}},
    {"{\"not\":{\"multipleOf\":3},\"enum\":[6,7,6.5]}", {"7", "6.5"}, {"6"}},
    {"{\"not\":{\"type\":\"integer\"},\"type\":\"number\",\"enum\":[6,6.5,7.0]}",
     {"6.5"},
     {"6", "7.0"}},
    /* strings: what a format may be is more than what is written */
    {"{\"type\":\"string\",\"format\":\"ipv6\",\"enum\":[\"::1\",\"fe80::1\"]}",
     {"\"::1\"", "\"fe80::1\""},
     {"\"1:2:3:4:5:6:7:8\""}},
    {"{\"type\":\"string\",\"format\":\"uuid\",\"const\":\"123E4567-E89B-12D3-A456-426614174000\"}",
     {"\"123E4567-E89B-12D3-A456-426614174000\""},
     {"\"123e4567-e89b-12d3-a456-426614174000\""}},
    {"{\"format\":\"date-time\",\"enum\":[\"2024-01-01t00:00:00.1234567z\",\"soon\",\"2024-01-01\","
     "1]}",
     {"\"2024-01-01t00:00:00.1234567z\"", "1"},
     {"\"soon\"", "\"2024-01-01\""}},
    {"{\"format\":\"uri\",\"pattern\":\":\",\"enum\":[\"urn:a:b\",\"a\"]}",
     {"\"urn:a:b\""},
     {"\"a\""}},
    {"{\"format\":\"date\",\"enum\":[\"2024-02-29\",\"0999-12-31\",\"2023-02-29\",\"2024-04-31\"]}",
     {"\"2024-02-29\"", "\"0999-12-31\""},
     {"\"2023-02-29\"", "\"2024-04-31\""}},
    {"{\"format\":\"time\",\"enum\":[\"23:59:60Z\",\"12:00:00.5+01:00\",\"24:00:00Z\",\"12:61:"
     "00Z\"]}",
     {"\"23:59:60Z\"", "\"12:00:00.5+01:00\""},
     {"\"24:00:00Z\"", "\"12:61:00Z\""}},
    {"{\"format\":\"duration\",\"enum\":[\"P1Y2M3DT4H5M6S\",\"P4W\",\"PT1M\",\"P\",\"P1DT\","
     "\"P1W1D\"]}",
     {"\"P1Y2M3DT4H5M6S\"", "\"P4W\"", "\"PT1M\""},
     {"\"P\"", "\"P1DT\"", "\"P1W1D\""}},
    {"{\"format\":\"ipv6\",\"enum\":[\"::\",\"1:2:3:4:5:6:7::\",\"::ffff:1.2.3.4\",\"1::2:3:4:5:6:"
     "7\",\"1:::2\","
     "\"1::2::3\",\"1:2:3:4:5:6:7\",\"1:2:3:4:5:6:7:1.2.3.4\"]}",
     {"\"::\"", "\"1:2:3:4:5:6:7::\"", "\"::ffff:1.2.3.4\"", "\"1::2:3:4:5:6:7\""},
     {"\"1:::2\"", "\"1::2::3\"", "\"1:2:3:4:5:6:7\"", "\"1:2:3:4:5:6:7:1.2.3.4\""}},
    {"{\"format\":\"hostname\",\"enum\":[\"A.b-c\",\"-a\",\"a..b\",\"a_b\"]}",
     {"\"A.b-c\""},
     {"\"-a\"", "\"a..b\"", "\"a_b\""}},
    {"{\"format\":\"uri\",\"enum\":[\"http://u@[::1]:80/"
     "a?b#c\",\"mailto:a@b\",\"http:\",\"urn:a:b\",\"a b\",\"/a\","
     "\"http://a:b\",\"http://é\"]}",
     {"\"http://u@[::1]:80/a?b#c\"", "\"mailto:a@b\"", "\"http:\"", "\"urn:a:b\""},
     {"\"a b\"", "\"/a\"", "\"http://a:b\"", "\"http://é\""}},
    {"{\"format\":\"iri-reference\",\"enum\":[\"\",\"../é\",\"//a/"
     "b\",\"😀?a\",\"1:a\",\"a%2\"]}",
     {"\"\"", "\"../é\"", "\"//a/b\"", "\"😀?a\""},
     {"\"1:a\"", "\"a%2\""}},
    {"{\"format\":\"json-pointer\",\"enum\":[\"\",\"/a~0\",\"a\",\"/~2\"]}",
     {"\"\"", "\"/a~0\""},
     {"\"a\"", "\"/~2\""}},
    {"{\"format\":\"relative-json-pointer\",\"enum\":[\"0\",\"10/a\",\"1#\",\"01\",\"/a\"]}",
     {"\"0\"", "\"10/a\"", "\"1#\""},
     {"\"01\"", "\"/a\""}},
    {"{\"maxLength\":2,\"enum\":[\"a\\u001f\",\"\xc3\xa9\xc3\xa9\",\"abc\",123]}",
     {"\"a\\u001f\"", "\"\xc3\xa9\xc3\xa9\"", "123"},
     {"\"abc\""}},
    {"{\"pattern\":\"^a.$\",\"not\":{\"pattern\":\"b\"},\"enum\":[\"a\\u001f\",\"ab\",\"a\\\"\","
     "\"c\"]}",
     {"\"a\\u001f\"", "\"a\\\"\""},
     {"\"ab\"", "\"c\""}},
    /* arrays and objects, part by part */
    {"{\"type\":\"object\",\"properties\":{\"a\":{},\"b\":{}},\"enum\":[{\"b\":1,\"a\":2},{\"c\":0."
     "1}]}",
     {"{\"b\":1,\"a\":2}", "{\"c\":0.1}"},
     {"{\"a\":2,\"b\":1}"}},
    {"{\"properties\":{\"a\":{\"type\":\"integer\"}},\"required\":[\"a\"],\"additionalProperties\":"
     "{"
     "\"$ref\":\"#/$defs/x\"},\"maxProperties\":2,\"$defs\":{\"x\":{\"anyOf\":[{\"maximum\":0.5},{"
     "\"type\":\"null\"}]}},\"enum\":[{\"z\":0.1,\"a\":1},{\"a\":1.5},{\"b\":0.1},{\"a\":1,\"b\":1}"
     "]}",
     {"{\"z\":0.1,\"a\":1}"},
     {"{\"a\":1.5}", "{\"b\":0.1}", "{\"a\":1,\"b\":1}"}},
    {"{\"patternProperties\":{\"^x-\":{\"minLength\":2}},\"additionalProperties\":false,"
     "\"propertyNames\":{\"maxLength\":3},\"enum\":[{\"x-a\":\"ab\"},{\"x-a\":\"a\"},{\"y\":1},{"
     "\"x-ab\":\"ab\"}]}",
     {"{\"x-a\":\"ab\"}"},
     {"{\"x-a\":\"a\"}", "{\"y\":1}", "{\"x-ab\":\"ab\"}"}},
    {"{\"prefixItems\":[{\"const\":0.1}],\"items\":{\"type\":\"integer\"},\"enum\":[[0.1,1],[1],[0."
     "1,"
     "0.1],[]]}",
     {"[0.1,1]", "[]"},
     {"[1]", "[0.1,0.1]"}},
    {"{\"uniqueItems\":true,\"contains\":{\"minimum\":0.05},\"maxContains\":2,\"enum\":[[0.05],[[1]"
     ",["
     "1.0],1],[0.01],[1,2,3]]}",
     {"[0.05]"},
     {"[[1],[1.0],1]", "[0.01]", "[1,2,3]"}},
    {"{\"enum\":[\"a\"],\"anyOf\":[{\"enum\":[\"b\"]},{\"enum\":[\"a\"]}]}", {"\"a\""}, {"\"b\""}},
    {"{\"allOf\":[{\"const\":[1.0]},{\"enum\":[[1],[2]]}]}", {"[1]"}, {"[2]"}},
};

static void test_listed(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct grammar *g = must_make(SCHEMA, cases[i].schema);
        for (int k = 0; k < 4; k++) {
            if (cases[i].yes[k] && !accepts(g, cases[i].yes[k]))
                fail_msg("%s: should accept %s", cases[i].schema, cases[i].yes[k]);
            if (cases[i].no[k] && accepts(g, cases[i].no[k]))
                fail_msg("%s: should not accept %s", cases[i].schema, cases[i].no[k]);
        }
        grammar_release(g);
    }
}

/* What cannot be told of a value is an error, and never takes it out. */
static void test_errors(void **state)
{
    (void)state;
    static const char *const wrong[][2] = {
        {"{\"enum\":[1],\"minimum\":\"a\"}", "at \"/minimum\": must be a number"},
        {"{\"enum\":[1],\"not\":{\"multipleOf\":[0]}}", "at \"/not\""},
        {"{\"enum\":[{\"a\":1}],\"properties\":[]}", "at \"/properties\": must be an object"},
        {"{\"enum\":[[1]],\"items\":{\"oneOf\":[{\"minimum\":0},{\"not\":{\"format\":\"date\"}}]}}",
         "at \"/items/"},
        {"{\"enum\":[{\"a\":\"b\"}],\"properties\":{\"a\":{\"pattern\":\"(\"}}}",
         "at \"/properties/a/pattern\""},
        {"{\"enum\":[\"a\"],\"maxLength\":-1}", "at \"/maxLength\""},
        {"{\"enum\":[{\"a\":0.5}],\"properties\":{\"a\":{\"type\":\"integer\"}}}",
         "no text at all"},
    };
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        struct err_info e = {0};
        struct grammar *g = make(SCHEMA, wrong[i][0], &e);
        if (g || !strstr(e.text, wrong[i][1]))
            fail_msg("%s: says \"%s\", not \"%s\"", wrong[i][0], e.text, wrong[i][1]);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_listed),
        cmocka_unit_test(test_errors),
    };
    return cmocka_run_group_tests(tests, world_create, world_destroy);
}
