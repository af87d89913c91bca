/* JSON schemas: which texts come through, what is refused and where, and that what is written by
 * chance under the masks satisfies the schema, by a checker that knows nothing of automata. */
#include "harness.h"

#include "checker.h"

struct language {
    const char *schema;
    const char *yes[8], *no[8];
};
static const struct language cases[] = {
    {"true", {"1", "null", "{\"a\":[1,{}]}", "\"x\"", "[]"}, {"", "x", "{", "01"}},
    {"{}", {"1", "[true, false]"}, {"1 2"}},
    {"{\"type\":\"integer\"}", {"0", "-12", "999999999999999999"}, {"1.0", "01", "1e3", "--1"}},
    {"{\"type\":\"number\"}", {"0", "-1.5", "1e10", "2E-3"}, {"1.", ".5", "1e999", "NaN"}},
    {"{\"type\":\"string\"}",
     {"\"\"", "\"a\\n\\u00e9\\ud83d\\ude00\"", "\"\xc3\xa9\""},
     {"\"\n\"", "\"\\x\"", "\"\\ud83d\"", "\"\\u0000\"", "\"\xc3\""}},
    {"{\"type\":[\"string\",\"null\"]}", {"\"a\"", "null"}, {"1"}},
    {"{\"type\":\"string\",\"nullable\":true}", {"\"a\"", "null"}, {"1"}},
    {"{\"type\":\"string\",\"minLength\":1,\"maxLength\":2}",
     {"\"a\"", "\"\xc3\xa9\\n\"", "\"\\ud83d\\ude00a\""},
     {"\"\"", "\"abc\""}},
    {"{\"type\":\"string\",\"pattern\":\"^a\\\"+$\"}",
     {"\"a\\\"\"", "\"a\\\"\\\"\""},
     {"\"a\"\"", "\"a\""}},
    {"{\"type\":\"string\",\"pattern\":\"b\"}", {"\"b\"", "\"abc\""}, {"\"ac\""}},
    {"{\"enum\":[\"a\",1,null,[1,2]]}", {"\"a\"", "1", "null", "[1,2]"}, {"\"b\"", "2", "[1, 2]"}},
    {"{\"enum\":[\"a\",1],\"type\":\"string\"}", {"\"a\""}, {"1"}},
    {"{\"const\":{\"a\":1.5}}", {"{\"a\":1.5}"}, {"{\"a\":2}"}},
    {"{\"type\":\"integer\",\"minimum\":-5,\"maximum\":123}",
     {"-5", "-1", "0", "9", "10", "99", "123"},
     {"-6", "124", "200", "1000", "-0"}},
    {"{\"type\":\"integer\",\"exclusiveMinimum\":0,\"exclusiveMaximum\":10}",
     {"1", "9"},
     {"0", "10"}},
    {"{\"type\":\"integer\",\"minimum\":987}", {"987", "1000", "99999"}, {"986", "-1", "99"}},
    {"{\"type\":\"integer\",\"maximum\":-10}", {"-10", "-99", "-100"}, {"-9", "0", "10"}},
    {"{\"type\":\"number\",\"minimum\":0,\"maximum\":1}",
     {"0", "0.5", "1", "1.0", "0.0001"},
     {"1.1", "-0.1", "2", "1.01"}},
    {"{\"type\":\"number\",\"exclusiveMinimum\":0.25,\"maximum\":2.75}",
     {"0.26", "0.251", "1", "2.75", "2.7"},
     {"0.25", "0.2500", "0.2", "2.76", "2.751", "3"}},
    {"{\"type\":\"number\",\"exclusiveMinimum\":-1.5,\"exclusiveMaximum\":0}",
     {"-1.49", "-0.1", "-1"},
     {"-1.5", "0", "-2", "0.1"}},
    {"{\"type\":\"array\",\"items\":{\"type\":\"integer\"},\"minItems\":1,\"maxItems\":3}",
     {"[1]", "[1, 2]", "[1,2,3]", "[ 1 ]", "[\n  1\n]"},
     {"[]", "[1,2,3,4]", "[1 2]", "[\"a\"]"}},
    {"{\"type\":\"array\",\"prefixItems\":[{\"const\":1},{\"const\":2}],\"items\":{\"const\":3}}",
     {"[]", "[1]", "[1,2]", "[1,2,3,3]"},
     {"[2]", "[1,3]", "[1,2,4]"}},
    {"{\"type\":\"array\",\"prefixItems\":[{\"const\":1},{\"const\":2}],\"items\":false,"
     "\"minItems\":2}",
     {"[1,2]"},
     {"[1]", "[1,2,3]"}},
    {"{\"type\":\"array\",\"maxItems\":0}", {"[]"}, {"[1]"}},
    {"{\"properties\":{\"a\":{\"type\":\"integer\"},\"b\":{\"type\":\"boolean\"}},\"required\":["
     "\"b\"]}",
     {"{\"b\":true}", "{\"a\":1,\"b\":true}", "{ \"a\": 1, \"b\": false }"},
     {"{}", "{\"a\":1}", "{\"b\":true,\"a\":1}", "{\"b\":true,}", "{\"b\":true,\"c\":1}"}},
    {"{\"properties\":{\"a\":{},\"b\":{},\"c\":{}}}",
     {"{}", "{\"a\":1}", "{\"c\":1}", "{\"a\":1,\"c\":1}", "{\"b\":1,\"c\":2}"},
     {"{,\"a\":1}", "{\"a\":1,}"}},
    {"{\"type\":\"object\",\"additionalProperties\":{\"type\":\"integer\"}}",
     {"{}", "{\"x\":1,\"y\":2}"},
     {"{\"x\":true}"}},
    {"{\"properties\":{\"ab\":{\"const\":1},\"a\":{\"const\":2}},\"additionalProperties\":{"
     "\"const\":3}}",
     {"{\"ab\":1}", "{\"ab\":1,\"abc\":3}", "{\"b\":3}", "{\"\":3}", "{\"\xc3\xa9\":3}"},
     {"{\"ab\":3}", "{\"a\":3}", "{\"a\":1}"}},
    {"{\"type\":\"object\",\"patternProperties\":{\"^x-\":{\"const\":1}},\"additionalProperties\":"
     "false}",
     {"{}", "{\"x-a\":1}", "{\"x-\":1,\"x-b\":1}"},
     {"{\"y\":1}", "{\"x-a\":2}"}},
    {"{\"type\":\"object\",\"propertyNames\":{\"maxLength\":1},\"maxProperties\":1}",
     {"{}", "{\"a\":[]}"},
     {"{\"ab\":1}", "{\"a\":1,\"b\":1}"}},
    {"{\"type\":\"object\",\"properties\":{\"a\":false,\"b\":true}}",
     {"{}", "{\"b\":1}"},
     {"{\"a\":1}"}},
    {"{\"anyOf\":[{\"type\":\"integer\"},{\"const\":\"x\"}]}", {"1", "\"x\""}, {"\"y\""}},
    {"{\"type\":\"object\",\"properties\":{\"k\":{}},\"required\":[\"k\"],\"anyOf\":[{"
     "\"properties\":{\"a\":{\"const\":1}}"
     ",\"required\":[\"a\"]},{\"properties\":{\"b\":{\"const\":2}},\"required\":[\"b\"]}]}",
     {"{\"k\":0,\"a\":1}", "{\"k\":0,\"b\":2}"},
     {"{\"k\":0}", "{\"a\":1}"}},
    {"{\"oneOf\":[{\"type\":\"string\"},{\"type\":\"null\"}]}", {"\"a\"", "null"}, {"1"}},
    {"{\"oneOf\":[{\"type\":\"object\",\"properties\":{\"t\":{\"const\":\"a\"},\"x\":{\"type\":"
     "\"integer\"}},"
     "\"required\":[\"t\",\"x\"]},{\"type\":\"object\",\"properties\":{\"t\":{\"const\":\"b\"}},"
     "\"required\":[\"t\"]}]}",
     {"{\"t\":\"a\",\"x\":1}", "{\"t\":\"b\"}"},
     {"{\"t\":\"a\"}", "{\"t\":\"c\"}"}},
    {"{\"allOf\":[{\"type\":\"integer\",\"minimum\":1},{\"type\":\"number\",\"maximum\":3}]}",
     {"1", "3"},
     {"0", "4", "1.5"}},
    {"{\"$ref\":\"#/$defs/"
     "n\",\"$defs\":{\"n\":{\"type\":\"object\",\"properties\":{\"next\":{\"$ref\":\"#/$defs/n\"},"
     "\"v\":{\"const\":1}}}}}",
     {"{}", "{\"next\":{\"next\":{},\"v\":1}}"},
     {"{\"next\":1}"}},
    {"{\"properties\":{\"a\":{\"$ref\":\"#\"}},\"additionalProperties\":false}",
     {"{\"a\":{\"a\":{}}}"},
     {"{\"a\":1}"}},
    {"{\"definitions\":{\"a/b~c\":{\"const\":7}},\"$ref\":\"#/definitions/a~1b~0c\"}",
     {"7"},
     {"8"}},
    {"{\"$ref\":\"#/$defs/x\",\"minimum\":5,\"$defs\":{\"x\":{\"type\":\"integer\"}}}",
     {"5"},
     {"4"}},
    {"{\"type\":\"string\",\"format\":\"date\"}",
     {"\"2024-02-29\"", "\"2000-02-29\"", "\"2023-12-31\""},
     {"\"2023-02-29\"", "\"1900-02-29\"", "\"2023-04-31\"", "\"2023-13-01\""}},
    {"{\"type\":\"string\",\"format\":\"date-time\"}",
     {"\"2024-02-29T23:59:59Z\"", "\"2024-01-01T00:00:00.5+01:00\""},
     {"\"2024-01-01\"", "\"2024-01-01T24:00:00Z\""}},
    {"{\"type\":\"string\",\"format\":\"uuid\"}",
     {"\"123e4567-e89b-12d3-a456-426614174000\""},
     {"\"123\""}},
    {"{\"type\":\"string\",\"format\":\"email\"}", {"\"a.b@c.de\""}, {"\"a@b\"", "\"@b.de\""}},
    {"{\"type\":\"string\",\"format\":\"ipv4\"}",
     {"\"127.0.0.1\"", "\"255.255.255.255\""},
     {"\"256.0.0.1\"", "\"1.2.3\""}},
    {"{\"type\":\"integer\",\"not\":{\"enum\":[0,7]}}", {"1", "-7", "70", "10"}, {"0", "7"}},
    {"{\"type\":\"string\",\"not\":{\"const\":\"a\"}}",
     {"\"\"", "\"b\"", "\"aa\""},
     {"\"a\"", "\"\\u0061\""}},
    {"{\"type\":\"string\",\"not\":{\"pattern\":\"^x-\"}}",
     {"\"a\"", "\"ax-\""},
     {"\"x-\"", "\"x-1\""}},
    {"{\"type\":[\"string\",\"null\"],\"not\":{\"type\":\"null\"}}", {"\"a\""}, {"null"}},
    {"{\"type\":\"boolean\",\"not\":{\"const\":true}}", {"false"}, {"true"}},
    {"{\"enum\":[\"a\",\"b\",1,20],\"not\":{\"const\":\"a\"},\"maximum\":10}",
     {"\"b\"", "1"},
     {"\"a\"", "20"}},
    {"{\"type\":\"string\",\"enum\":[\"a\",\"ab\",\"abc\"],\"minLength\":2}",
     {"\"ab\""},
     {"\"a\""}},
    {"{\"type\":\"string\",\"pattern\":\"^[a-z]+$\",\"minLength\":2,\"maxLength\":4}",
     {"\"ab\"", "\"abcd\""},
     {"\"a\"", "\"abcde\"", "\"A1\""}},
    {"{\"allOf\":[{\"pattern\":\"^[a-f0-9]+$\"},{\"pattern\":\"^a\"},{\"maxLength\":3}],\"type\":"
     "\"string\"}",
     {"\"a\"", "\"a0f\""},
     {"\"b\"", "\"a0f0\"", "\"ag\""}},
    {"{\"type\":\"string\",\"format\":\"date\",\"pattern\":\"^2024-\"}",
     {"\"2024-02-29\""},
     {"\"2023-01-01\"", "\"2024-02-30\""}},
    {"{\"type\":\"integer\",\"multipleOf\":7,\"minimum\":0,\"maximum\":100000}",
     {"0", "7", "49", "98", "70000"},
     {"1", "8", "-7", "100002"}},
    {"{\"type\":\"integer\",\"multipleOf\":100}",
     {"0", "100", "-300", "12300"},
     {"1", "10", "150"}},
    {"{\"type\":\"integer\",\"multipleOf\":250000,\"minimum\":1}",
     {"250000", "1000000"},
     {"0", "1", "100000"}},
    {"{\"type\":\"number\",\"multipleOf\":0.01,\"minimum\":0,\"maximum\":5}",
     {"0", "1.5", "4.99", "5"},
     {"1.005", "5.01", "-1", "0.07"}},
    {"{\"type\":\"number\",\"multipleOf\":0.25,\"maximum\":100}",
     {"0.25", "-1.5", "3", "7.75"},
     {"0.1", "0.2", "0.255"}},
    {"{\"type\":\"array\",\"items\":{\"type\":\"integer\"},\"contains\":{\"minimum\":10}}",
     {"[10]", "[1,12]", "[1,12,3]"},
     {"[]", "[1,2]"}},
    {"{\"type\":\"array\",\"items\":{\"enum\":[\"a\",\"b\"]},\"contains\":{\"const\":\"b\"},"
     "\"minContains\":2,\"maxItems\":3}",
     {"[\"b\",\"b\"]", "[\"a\",\"b\",\"b\"]"},
     {"[\"b\"]", "[\"a\",\"a\",\"b\"]", "[\"b\",\"b\",\"a\",\"a\"]"}},
    {"{\"type\":\"array\",\"items\":{\"enum\":[\"a\",\"b\",\"c\"]},\"uniqueItems\":true,"
     "\"minItems\":1}",
     {"[\"a\"]", "[\"c\",\"a\"]", "[\"b\",\"c\",\"a\"]"},
     {"[]", "[\"a\",\"a\"]", "[\"a\",\"b\",\"c\",\"a\"]"}},
    {"{\"type\":\"array\",\"items\":{\"enum\":[1,2,3,4,5,6,7,8,9,10]},\"uniqueItems\":true,"
     "\"maxItems\":3}",
     {"[]", "[1,5,9]"},
     {"[1,1]", "[1,2,3,4]", "[11]"}},
    {"{\"type\":\"array\",\"items\":[{\"const\":1},{\"const\":2}],\"additionalItems\":false}",
     {"[]", "[1,2]"},
     {"[2]", "[1,2,3]"}},
    {"{\"type\":\"object\",\"properties\":{\"kind\":{\"enum\":[\"a\",\"b\"]},\"x\":{\"type\":"
     "\"integer\"}},\"required\":[\"kind\"],\"if\":{\"properties\":{\"kind\":{\"const\":\"a\"}}},"
     "\"then\":{\"required\":[\"x\"]}}",
     {"{\"kind\":\"a\",\"x\":1}", "{\"kind\":\"b\"}", "{\"kind\":\"b\",\"x\":2}"},
     {"{\"kind\":\"a\"}"}},
    {"{\"type\":\"object\",\"properties\":{\"kind\":{\"type\":\"string\"},\"x\":{\"type\":"
     "\"integer\"},\"y\":{\"type\":\"integer\"}},\"required\":[\"kind\"],\"if\":{\"properties\":{"
     "\"kind\":{\"const\":\"a\"}},\"required\":[\"kind\"]},\"then\":{\"required\":[\"x\"]},"
     "\"else\":{\"required\":[\"y\"]}}",
     {"{\"kind\":\"a\",\"x\":1}", "{\"kind\":\"b\",\"y\":1}"},
     {"{\"kind\":\"a\",\"y\":1}", "{\"kind\":\"b\",\"x\":1}"}},
    {"{\"type\":\"object\",\"properties\":{\"n\":{\"type\":\"integer\"},\"s\":{\"type\":\"string\"}"
     "},\"required\":[\"n\"],\"if\":{\"properties\":{\"n\":{\"minimum\":10}}},\"then\":{"
     "\"properties\":{\"s\":{\"minLength\":3}},\"required\":[\"s\"]}}",
     {"{\"n\":3}", "{\"n\":10,\"s\":\"abc\"}"},
     {"{\"n\":10}", "{\"n\":12,\"s\":\"a\"}"}},
    {"{\"type\":\"object\",\"properties\":{\"a\":{\"type\":\"integer\"},\"b\":{\"type\":"
     "\"integer\"}},\"dependentRequired\":{\"a\":[\"b\"]}}",
     {"{}", "{\"b\":1}", "{\"a\":1,\"b\":2}"},
     {"{\"a\":1}"}},
    {"{\"type\":\"object\",\"properties\":{\"a\":{\"const\":1},\"b\":{\"const\":2}},\"oneOf\":[{"
     "\"required\":[\"a\"]},{\"required\":[\"b\"]}]}",
     {"{\"a\":1}", "{\"b\":2}"},
     {"{}", "{\"a\":1,\"b\":2}"}},
    {"{\"type\":\"object\",\"properties\":{\"a\":{\"const\":1},\"b\":{\"const\":2},\"c\":{"
     "\"const\":3}},\"minProperties\":2,\"maxProperties\":2}",
     {"{\"a\":1,\"b\":2}", "{\"b\":2,\"c\":3}"},
     {"{}", "{\"a\":1}", "{\"a\":1,\"b\":2,\"c\":3}"}},
    {"{\"type\":\"object\",\"minProperties\":1,\"properties\":{\"a\":{\"const\":1}},"
     "\"additionalProperties\":{\"const\":2}}",
     {"{\"a\":1}", "{\"b\":2}"},
     {"{}", "{\"a\":2}"}},
    {"{\"type\":\"object\",\"properties\":{\"x-a\":{\"type\":\"integer\"},\"b\":{\"const\":1}},"
     "\"patternProperties\":{\"^x-\":{\"minimum\":5}},\"additionalProperties\":false}",
     {"{}", "{\"x-a\":5,\"b\":1}", "{\"b\":1,\"x-b\":7}"},
     {"{\"x-a\":4}", "{\"c\":1}", "{\"x-c\":1}"}},
    {"{\"type\":\"object\",\"properties\":{\"a\":{\"const\":1}},\"propertyNames\":{\"pattern\":\"^["
     "a-z]$\"},\"additionalProperties\":{\"const\":2}}",
     {"{\"a\":1}", "{\"b\":2}"},
     {"{\"ab\":2}", "{\"A\":2}"}},
    {"{\"allOf\":[{\"properties\":{\"a\":{\"const\":1}},\"additionalProperties\":false},{"
     "\"properties\":{\"b\":{\"const\":1}}}]}",
     {"{}", "{\"a\":1}"},
     {"{\"b\":1}", "{\"a\":1,\"b\":1}"}},
    {"{\"allOf\":[{\"type\":\"string\",\"nullable\":true},{\"type\":\"string\"}]}",
     {"\"a\""},
     {"null"}},
    {"{\"anyOf\":[{\"type\":\"integer\"},{\"type\":\"string\"}],\"allOf\":[{\"anyOf\":[{"
     "\"minimum\":3},{\"maxLength\":2}]}]}",
     {"3", "\"ab\"", "2", "\"abc\""},
     {"true", "1.5", "null"}},
    {"{\"type\":\"number\",\"exclusiveMinimum\":0.12345678901234566}",
     {"0.2", "0.12345678901234570", "1"},
     {"0.12345678901234567", "0.12", "0.123456789012345670001"}},
    {"{\"type\":\"number\",\"exclusiveMaximum\":0.3}",
     {"0.2", "-1", "0.29"},
     {"0.3", "0.29999999999999999"}},
    {"{\"type\":\"string\",\"format\":\"some-words\",\"x\":1,\"markdownDescription\":\"m\"}",
     {"\"a\""},
     {"1"}},
    {"{\"title\":\"t\",\"description\":\"d\",\"default\":1,\"x-any\":2,\"$schema\":\"s\",\"const\":"
     "1}",
     {"1"},
     {"2"}},
    /* what one part says of all elements holds for those that another lists */
    {"{\"type\":\"array\",\"minItems\":1,\"maxItems\":2,\"allOf\":[{\"prefixItems\":[{\"enum\":["
     "\"a\",1]}]},{\"items\":{\"type\":\"integer\"}}]}",
     {"[1]", "[1,2]"},
     {"[]", "[\"a\"]", "[\"a\",2]", "[1,\"a\"]"}},
    {"{\"type\":\"array\",\"maxItems\":2,\"items\":{\"type\":\"integer\"},\"$ref\":\"#/$defs/t\","
     "\"$defs\":{\"t\":{\"items\":[{\"enum\":[\"a\",1]}]}}}",
     {"[]", "[1]", "[1,2]"},
     {"[\"a\"]", "[1,\"a\"]"}},
    {"{\"type\":\"array\",\"prefixItems\":[{\"enum\":[\"a\",1]}],\"anyOf\":[{\"items\":{\"type\":"
     "\"integer\"},\"maxItems\":2},{\"prefixItems\":[{\"type\":\"string\"},{\"const\":2}],"
     "\"items\":"
     "false,\"minItems\":2}]}",
     {"[]", "[1]", "[1,3]", "[\"a\",2]"},
     {"[\"a\"]", "[\"a\",3]", "[\"a\",2,2]"}},
    {"{\"type\":\"array\",\"maxItems\":2,\"prefixItems\":[{\"enum\":[1,2]},{\"enum\":[1,2]}],"
     "\"not\":"
     "{\"contains\":{\"const\":1}}}",
     {"[]", "[2]", "[2,2]"},
     {"[1]", "[1,2]", "[2,1]"}},
    /* how often something is contained is said beside it, or not at all */
    {"{\"type\":\"array\",\"maxItems\":2,\"items\":{\"enum\":[1,2]},\"allOf\":[{\"contains\":{"
     "\"const\":1}},{\"minContains\":0}]}",
     {"[1]", "[2,1]"},
     {"[]", "[2]", "[2,2]"}},
    {"{\"type\":\"array\",\"maxItems\":2,\"items\":{\"enum\":[1,2]},\"contains\":{\"const\":1},"
     "\"allOf\":["
     "{\"maxContains\":0}]}",
     {"[1]", "[1,1]"},
     {"[]", "[2]"}},
    {"{\"type\":\"array\",\"maxItems\":3,\"items\":{\"enum\":[1,2]},\"allOf\":[{\"contains\":{"
     "\"const\":1},"
     "\"minContains\":0,\"maxContains\":2},{\"contains\":{\"const\":1}}]}",
     {"[1]", "[1,2,1]"},
     {"[]", "[2]", "[1,1,1]"}},
    {"{\"type\":\"object\",\"patternProperties\":{\"^S_\":{\"const\":1}},\"additionalProperties\":"
     "false,\"required\":[\"S_a\"]}",
     {"{\"S_a\":1}", "{\"S_a\":1,\"S_b\":1}"},
     {"{}", "{\"S_a\":2}", "{\"s_a\":1}"}},
};

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

/* Answers by chance to one schema: each ends, parses and satisfies it. */
static void walk(const char *text, uint64_t *seed, int n_walks)
{
    static char out[1 << 16];
    json_t *schema = json_loads(text, JSON_DECODE_ANY, NULL);
    struct grammar *g = must_make(SCHEMA, text);
    for (int i = 0; i < n_walks; i++) {
        uint64_t first = *seed;
        size_t n;
        if (!random_answer(g, seed, (int)(next_random(seed) % 60), out, sizeof out, &n))
            fail_msg("seed %#llx: %s: no end: %.300s", (unsigned long long)first, text, out);
        json_t *v = json_loadb(out, n, JSON_DECODE_ANY, NULL);
        if (!v || !check(schema, schema, v))
            fail_msg("seed %#llx: %s: %s: %.300s",
                     (unsigned long long)first,
                     text,
                     v ? "does not satisfy it" : "does not parse",
                     out);
        json_decref(v);
    }
    grammar_release(g);
    json_decref(schema);
}

static uint64_t first_seed(void)
{
    const char *given = getenv("WEIR_SEED");
    uint64_t seed = given ? strtoull(given, NULL, 0) : (uint64_t)time(NULL) * 2654435761u | 1;
    print_message("WEIR_SEED=%#llx\n", (unsigned long long)seed);
    return seed;
}

static void test_answers_by_chance(void **state)
{
    (void)state;
    uint64_t seed = first_seed();
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        walk(cases[i].schema, &seed, 15);
}

/* ---- schemas by chance ---- */

/* Sometimes what it may not be, or multiples, or a condition that always has a way out. */
static void add_logic(json_t *s, uint64_t *x, int lo)
{
    const char *type = json_string_value(json_object_get(s, "type"));
    if (!type || next_random(x) % 3)
        return;
    if (strcmp(type, "integer") == 0 && next_random(x) % 2)
        json_object_set_new(s, "multipleOf", json_integer(1 + (lo & 1)));
    else if (strcmp(type, "integer") == 0 || strcmp(type, "number") == 0)
        json_object_set_new(s, "not", json_pack("{s:[i,s,n]}", "enum", lo + 1, "x"));
    else if (strcmp(type, "boolean") == 0)
        json_object_set_new(s, "not", json_pack("{s:b}", "const", lo & 1));
    else if (strcmp(type, "string") == 0 && !json_object_get(s, "format"))
        json_object_set_new(s, "not", json_pack("{s:[s,s]}", "enum", "a", "foo"));
    else if (strcmp(type, "object") == 0)
        json_object_set_new(s, "if", json_pack("{s:[s]}", "required", "name"));
    if (json_object_get(s, "if"))
        json_object_set_new(s, "else", json_pack("{s:i}", "minProperties", 0));
}

static json_t *random_schema(uint64_t *x, int depth)
{
    static const char *const names[] = {"a", "ab", "name", "b\"c", "\xc3\xa9", "x y"};
    static const char *const formats[] = {"date", "time", "date-time", "uuid", "ipv4", "hostname"};
    static const char *const patterns[] = {
        "^[a-z]{1,3}$", "\\d+", "^(foo|bar)-?\"", "^[!-~]{0,4}$"};
    int kind = (int)(next_random(x) % (depth > 0 ? 12 : 7));
    int lo = (int)(next_random(x) % 400) - 200, span = (int)(next_random(x) % 300);
    json_t *s = json_object(), *list = json_array();
    switch (kind) {
    case 0:
        json_object_set_new(s, "type", json_string("boolean"));
        break;
    case 1:
        json_object_set_new(s, "type", json_string("integer"));
        if (next_random(x) % 2)
            json_object_set_new(s, "minimum", json_integer(lo));
        if (next_random(x) % 2)
            json_object_set_new(s, "exclusiveMaximum", json_integer(lo + span + 2));
        break;
    case 2:
        json_object_set_new(s, "type", json_string("number"));
        if (next_random(x) % 2)
            json_object_set_new(
                s, next_random(x) % 2 ? "minimum" : "exclusiveMinimum", json_real(lo / 16.0));
        if (next_random(x) % 2)
            json_object_set_new(s,
                                next_random(x) % 2 ? "maximum" : "exclusiveMaximum",
                                json_real((lo + span + 1) / 16.0));
        break;
    case 3:
        json_object_set_new(s, "type", json_string("string"));
        if (next_random(x) % 2)
            json_object_set_new(s, "minLength", json_integer(span % 5));
        if (next_random(x) % 2)
            json_object_set_new(s, "maxLength", json_integer(span % 5 + span % 40));
        break;
    case 4:
        json_object_set_new(s, "type", json_string("string"));
        if (next_random(x) % 2)
            json_object_set_new(s, "pattern", json_string(patterns[next_random(x) % 4]));
        else
            json_object_set_new(s, "format", json_string(formats[next_random(x) % 6]));
        break;
    case 5:
        for (int i = 0; i <= span % 4; i++)
            json_array_append_new(list, i % 2 ? json_integer(lo + i) : json_string(names[i]));
        json_object_set(s, "enum", list);
        break;
    case 6:
        json_object_set_new(s, "type", json_pack("[s,s]", "null", "integer"));
        break;
    case 7:
    case 8:
        json_object_set_new(s, "type", json_string("array"));
        if (kind == 7)
            json_object_set_new(s, "items", random_schema(x, depth - 1));
        else {
            json_array_append_new(list, random_schema(x, depth - 1));
            json_array_append_new(list, random_schema(x, depth - 1));
            json_object_set(s, "prefixItems", list);
        }
        if (next_random(x) % 2)
            json_object_set_new(s, "minItems", json_integer(span % 3));
        if (next_random(x) % 2)
            json_object_set_new(s, "maxItems", json_integer(span % 3 + span % 4));
        break;
    case 9:
        json_array_append_new(list, random_schema(x, depth - 1));
        json_array_append_new(list, random_schema(x, depth - 1));
        json_object_set(s, "anyOf", list);
        break;
    default: {
        json_t *properties = json_object();
        for (int i = 0; i < span % 5; i++) {
            const char *name = names[next_random(x) % 6];
            json_object_set_new(properties, name, random_schema(x, depth - 1));
            if (next_random(x) % 2)
                json_array_append_new(list, json_string(name));
        }
        json_object_set_new(s, "type", json_string("object"));
        json_object_set_new(s, "properties", properties);
        json_object_set(s, "required", list);
        if (next_random(x) % 2)
            json_object_set_new(s, "additionalProperties", random_schema(x, depth - 1));
        break;
    }
    }
    json_decref(list);
    add_logic(s, x, lo);
    return s;
}

static void test_schemas_by_chance(void **state)
{
    (void)state;
    uint64_t seed = first_seed();
    for (int i = 0; i < 300; i++) {
        json_t *schema = random_schema(&seed, 3);
        char *text = json_dumps(schema, JSON_COMPACT);
        walk(text, &seed, 4);
        free(text);
        json_decref(schema);
    }
}

/* The checker itself notices what is wrong. */
static void test_checker(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        json_t *schema = json_loads(cases[i].schema, JSON_DECODE_ANY, NULL);
        for (int k = 0; k < 8 && cases[i].yes[k]; k++) {
            json_t *v = json_loads(cases[i].yes[k], JSON_DECODE_ANY, NULL);
            assert_non_null(v);
            if (!check(schema, schema, v))
                fail_msg("%s: the checker refuses %s", cases[i].schema, cases[i].yes[k]);
            json_decref(v);
        }
        json_decref(schema);
    }
    json_t *schema = json_loads(cases[24].schema, 0, NULL), *v = json_loads("{\"a\":1}", 0, NULL);
    assert_false(check(schema, schema, v));
    json_decref(schema);
    json_decref(v);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_language),
        cmocka_unit_test(test_errors_say_where),
        cmocka_unit_test(test_checker),
        cmocka_unit_test(test_answers_by_chance),
        cmocka_unit_test(test_schemas_by_chance),
    };
    return cmocka_run_group_tests(tests, world_create, world_destroy);
}
