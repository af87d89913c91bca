/* JSON schemas, and of each some texts that satisfy it and some that do not: of the keywords that
 * checker.h knows. */
#ifndef TESTS_GRAMMAR_SCHEMAS_H
#define TESTS_GRAMMAR_SCHEMAS_H

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

#endif
