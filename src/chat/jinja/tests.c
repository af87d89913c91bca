/* Tests: what stands behind `is`. */
#include "chat/jinja/builtins.h"
#include "chat/jinja/eval.h"
#include "chat/jinja/unicode.h"

#define TEST(fn, condition) JBUILTIN(fn, jval_bool(condition))

static struct jval rest(struct jrun *r, struct jval v, int64_t by)
{
    return jval_arithmetic(r, OP_MOD, v, jval_int(by));
}

TEST(test_defined, v.kind != J_UNDEFINED)
TEST(test_undefined, v.kind == J_UNDEFINED)
TEST(test_none, v.kind == J_NONE)
TEST(test_boolean, v.kind == J_BOOL)
TEST(test_false, v.kind == J_BOOL && !v.b)
TEST(test_true, v.kind == J_BOOL && v.b)
TEST(test_integer, v.kind == J_INT)
TEST(test_float, v.kind == J_FLOAT)
TEST(test_number, jval_is_number(v))
TEST(test_string, v.kind == J_STR)
TEST(test_mapping, v.kind == J_DICT)
TEST(test_iterable, jval_iterable(v) || v.kind == J_LOOP)
TEST(test_escaped, v.kind == J_STR && v.s->markup)
TEST(test_sameas, (jrun_charge(r, v.kind == J_STR ? v.s->len / 64 : 0), jval_same(v, a[0])))
TEST(test_eq, jval_eq(r, v, a[0]))
TEST(test_ne, !jval_eq(r, v, a[0]))
TEST(test_lt, jval_compare(r, OP_LT, v, a[0]))
TEST(test_gt, jval_compare(r, OP_LT, a[0], v))
TEST(test_in, jval_contains(r, a[0], v))
TEST(test_odd, jval_eq(r, rest(r, v, 2), jval_int(1)))
TEST(test_even, jval_eq(r, rest(r, v, 2), jval_int(0)))
TEST(test_divisibleby, jval_eq(r, jval_arithmetic(r, OP_MOD, v, a[0]), jval_int(0)))
TEST(test_filter, v.kind == J_STR && jfilter_find(v.s))
TEST(test_test, v.kind == J_STR && jtest_find(v.s))
TEST(test_callable,
     v.kind == J_MACRO || v.kind == J_METHOD || v.kind == J_FUNCTION || v.kind == J_LOOP ||
         v.kind == J_JOINER || v.kind == J_BLOCK || v.kind == J_UNDEFINED)

/* Has a length and can be indexed; Undefined has both. */
TEST(test_sequence,
     v.kind == J_STR || v.kind == J_LIST || v.kind == J_TUPLE || v.kind == J_DICT ||
         v.kind == J_RANGE || v.kind == J_UNDEFINED)

TEST(test_le, jval_compare(r, OP_LE, v, a[0]))
TEST(test_ge, jval_compare(r, OP_LE, a[0], v))

/* Some letter has a case, and none the other one. */
static bool all_of_case(struct jrun *r, struct jval v, bool upper)
{
    const struct jstr *s = jval_to_str(r, v);
    bool some = false;
    jrun_charge(r, s->len / 16);
    for (size_t at = 0; at < s->len;) {
        uint32_t c = jstr_next(s, &at);
        if ((upper ? juni_lower(c) : juni_upper(c)) || juni_title(c))
            return false;
        some |= upper ? juni_upper(c) : juni_lower(c);
    }
    return some;
}

TEST(test_lower, all_of_case(r, v, false))
TEST(test_upper, all_of_case(r, v, true))

const struct jbuiltin *jtest_find(const struct jstr *name)
{
    static const struct jbuiltin tests[] = {
        {"defined", "", 0, test_defined, NULL},
        {"undefined", "", 0, test_undefined, NULL},
        {"none", "", 0, test_none, NULL},
        {"boolean", "", 0, test_boolean, NULL},
        {"false", "", 0, test_false, NULL},
        {"true", "", 0, test_true, NULL},
        {"integer", "", 0, test_integer, NULL},
        {"float", "", 0, test_float, NULL},
        {"number", "", 0, test_number, NULL},
        {"string", "", 0, test_string, NULL},
        {"mapping", "", 0, test_mapping, NULL},
        {"iterable", "", 0, test_iterable, NULL},
        {"sequence", "", 0, test_sequence, NULL},
        {"callable", "", 0, test_callable, NULL},
        {"escaped", "", 0, test_escaped, NULL},
        {"sameas", "other", 1, test_sameas, NULL},
        {"odd", "", 0, test_odd, NULL},
        {"even", "", 0, test_even, NULL},
        {"divisibleby", "num", 1, test_divisibleby, NULL},
        {"filter", "", 0, test_filter, NULL},
        {"test", "", 0, test_test, NULL},
        {"lower", "", 0, test_lower, NULL},
        {"upper", "", 0, test_upper, NULL},
        {"in", "seq", 1, test_in, NULL},
        {"==", "/b", 1, test_eq, NULL},
        {"eq", "/b", 1, test_eq, NULL},
        {"equalto", "/b", 1, test_eq, NULL},
        {"!=", "/b", 1, test_ne, NULL},
        {"ne", "/b", 1, test_ne, NULL},
        {"<", "/b", 1, test_lt, NULL},
        {"lt", "/b", 1, test_lt, NULL},
        {"lessthan", "/b", 1, test_lt, NULL},
        {">", "/b", 1, test_gt, NULL},
        {"gt", "/b", 1, test_gt, NULL},
        {"greaterthan", "/b", 1, test_gt, NULL},
        {"<=", "/b", 1, test_le, NULL},
        {"le", "/b", 1, test_le, NULL},
        {">=", "/b", 1, test_ge, NULL},
        {"ge", "/b", 1, test_ge, NULL},
    };
    for (size_t i = 0; i < sizeof tests / sizeof tests[0]; i++)
        if (jstr_is(name, tests[i].name))
            return &tests[i];
    return NULL;
}
