/* JSON schemas: what is written by chance under the masks satisfies the schema, by a checker that
 * knows nothing of automata. */
#include "harness.h"

#include "checker.h"
#include "schemas.h"

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
        cmocka_unit_test(test_checker),
        cmocka_unit_test(test_answers_by_chance),
        cmocka_unit_test(test_schemas_by_chance),
    };
    return cmocka_run_group_tests(tests, world_create, world_destroy);
}
