/* Strings and numbers by the keywords that speak of them. What several keywords say of one text, or
 * what it may not be, is put together as finite automata (dfa.c). */
#include "grammar/json_schema.h"

#include "base/mem.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_LENGTH 1000u /* characters, beside a pattern: a longer maxLength counts as that */
#define MAX_MULTIPLES 1000u

/* The node of *d, which is given up; an error at `key` if there is none. */
static grammar_node finish(struct schema *s, struct dfa *d, const char *key)
{
    grammar_node node = d ? dfa_node(s->b, d) : grammar_never(s->b);
    dfa_destroy(d);
    if (!d && !builder_failed(s->b))
        return schema_fail(s, key, "is too large an automaton together with what is beside it");
    return node;
}

/* ---- what a value may not be ---- */

/* The values of type `types` in the schema's "not"; new. */
static json_t *refused_values(const json_t *m, uint32_t types)
{
    json_t *out = json_array();
    const json_t *list = json_object_get(json_object_get(m, "not"), "enum");
    for (size_t i = 0; i < json_array_size(list); i++) {
        json_t *v = json_array_get(list, i);
        if (schema_type_of(v) & types)
            json_array_append(out, v);
    }
    return out;
}

bool schema_refuses(const json_t *m, const json_t *value)
{
    const json_t *list = json_object_get(json_object_get(m, "not"), "enum");
    for (size_t i = 0; i < json_array_size(list); i++) {
        if (schema_same_value(json_array_get(list, i), value))
            return true;
    }
    return false;
}

/* ---- strings ---- */

/* Any characters, each written in one way only: so that a text that is taken out is out. */
static grammar_node plain_text(struct schema *s, uint32_t min, uint32_t max)
{
    struct char_set set = {0};
    char_set_add(&set, 1, 0x10ffff);
    char_set_normalise(&set);
    grammar_node any = json_text_chars(s->b, &set);
    char_set_deinit(&set);
    return grammar_repeat(s->b, any, min, max);
}

/* "'FIELD': at POINTER", of a keyword at the current path. */
static struct buf where_is(struct schema *s, const char *key)
{
    struct buf where = {0};
    size_t len = schema_push(s, key);
    buf_printf(&where, "'%s': at \"%.100s\"", s->b->field, buf_cstr(&s->path));
    schema_pop(s, len);
    return where;
}

grammar_node schema_pattern(struct schema *s, const char *key, const json_t *pattern, bool over)
{
    if (!json_is_string(pattern))
        return schema_fail(s, key, "must be a string");
    struct buf where = where_is(s, key);
    const struct regex_part whole = {0, json_string_length(pattern), false, false, false};
    grammar_node node =
        regex_part_node(s->b, json_string_value(pattern), &whole, over, buf_cstr(&where));
    buf_deinit(&where);
    return node;
}

/* What must hold of the inside of a string, and what must not, each by itself. */
struct string_parts {
    grammar_node is[40], is_not[40];
    uint32_t n, n_not;
};

/* A pattern, and the look-ahead that it begins with. */
static void add_pattern(struct schema *s, const json_t *pattern, struct string_parts *t)
{
    struct regex_part parts[REGEX_MAX_PARTS];
    if (!json_is_string(pattern)) {
        schema_fail(s, "pattern", "must be a string");
        return;
    }
    const char *text = json_string_value(pattern);
    uint32_t n = regex_parts(text, json_string_length(pattern), parts);
    if (t->n + n + 1 > 40 || t->n_not + n > 40) {
        schema_fail(s, "pattern", "there are too many of them together");
        return;
    }
    struct buf where = where_is(s, "pattern");
    for (uint32_t i = 0; i < n; i++) {
        bool negative = parts[i].negative;
        grammar_node node = regex_part_node(s->b, text, &parts[i], negative, buf_cstr(&where));
        *(negative ? &t->is_not[t->n_not++] : &t->is[t->n++]) = node;
    }
    buf_deinit(&where);
}

static void read_parts(struct schema *s, const json_t *m, struct string_parts *t)
{
    const json_t *pattern = json_object_get(m, "pattern"), *format = json_object_get(m, "format");
    const json_t *refused = json_object_get(json_object_get(m, "not"), "pattern");
    size_t n = json_is_array(pattern) ? json_array_size(pattern) : pattern != NULL;
    t->n = t->n_not = 0;
    for (size_t i = 0; i < n && !builder_failed(s->b); i++)
        add_pattern(s, json_is_array(pattern) ? json_array_get(pattern, i) : pattern, t);
    if (t->n_not + json_array_size(refused) > 40) {
        schema_fail(s, "not", "there are too many patterns together");
        return;
    }
    for (size_t i = 0; i < json_array_size(refused) && !builder_failed(s->b); i++)
        t->is_not[t->n_not++] = schema_pattern(s, "not", json_array_get(refused, i), true);
    if (format && !json_is_string(format))
        schema_fail(s, "format", "must be a string");
    else if (format && json_format(s->b, json_string_value(format), &t->is[t->n]))
        t->n++; /* others say nothing of values, by the specification */
}

/* Take the texts of "not" out of the string whose inside *d is. */
static bool take_out_strings(struct schema *s,
                             const json_t *values,
                             const struct string_parts *t,
                             struct dfa **d)
{
    bool ok = true;
    for (size_t i = 0; ok && i < json_array_size(values); i++) {
        const json_t *v = json_array_get(values, i);
        grammar_node text = json_text_inside(s->b, json_string_value(v), json_string_length(v));
        ok = schema_works(s) && dfa_narrow(s->b, d, text, true);
    }
    for (uint32_t i = 0; ok && i < t->n_not; i++)
        ok = dfa_narrow(s->b, d, t->is_not[i], true);
    return ok;
}

/* All of t, without `values`, of min to max characters. Where an automaton would be too large the
 * longest texts are left out, half of them at a time. */
static struct dfa *string_automaton(struct schema *s,
                                    const struct string_parts *t,
                                    const json_t *values,
                                    uint32_t min,
                                    uint32_t max)
{
    bool bounded = min > 0 || max != GRAMMAR_NO_LIMIT;
    struct dfa *d = dfa_create(s->b, t->n > 0 ? t->is[0] : plain_text(s, 0, GRAMMAR_NO_LIMIT));
    for (uint32_t i = 1; d && i < t->n; i++)
        (void)dfa_narrow(s->b, &d, t->is[i], false);
    if (d)
        (void)take_out_strings(s, values, t, &d);
    if (!d || !bounded || dfa_keeps_lengths(s->b, d, min, max))
        return d;
    if (max != GRAMMAR_NO_LIMIT && max > MAX_LENGTH && min < MAX_LENGTH)
        max = MAX_LENGTH;
    for (;; max /= 2) {
        struct dfa *other = dfa_create(s->b, plain_text(s, min, max));
        struct dfa *both = other ? dfa_combine(s->b, d, other, false) : NULL;
        dfa_destroy(other);
        if (both || max == GRAMMAR_NO_LIMIT || max / 2 < min || max < 16) {
            dfa_destroy(d);
            return both;
        }
    }
}

struct dfa *schema_patterns(struct schema *s, const json_t *m)
{
    struct string_parts t;
    read_parts(s, m, &t);
    return builder_failed(s->b) ? NULL : string_automaton(s, &t, NULL, 0, GRAMMAR_NO_LIMIT);
}

grammar_node schema_string(struct schema *s, const json_t *m)
{
    bool bounded = json_object_get(m, "minLength") || json_object_get(m, "maxLength");
    uint32_t min = 0, max = GRAMMAR_NO_LIMIT;
    struct string_parts t;
    grammar_node never = grammar_never(s->b);
    if (!schema_count(s, m, "minLength", &min) || !schema_count(s, m, "maxLength", &max))
        return never;
    read_parts(s, m, &t);
    if (builder_failed(s->b) || max < min)
        return never;
    json_t *values = refused_values(m, TYPE_STRING);
    grammar_node inside, any = json_text_char(s->b);
    if (t.n == 1 && t.n_not + json_array_size(values) == 0 && !bounded)
        inside = t.is[0];
    else if (t.n + t.n_not + json_array_size(values) == 0)
        inside = bounded ? grammar_repeat(s->b, any, min, max) : never;
    else
        inside = finish(
            s, string_automaton(s, &t, values, min, max), t.n + t.n_not > 0 ? "pattern" : "not");
    bool free = t.n + t.n_not + json_array_size(values) == 0 && !bounded;
    json_decref(values);
    return free ? json_text_string(s->b) : json_text_quoted(s->b, inside);
}

/* ---- numbers ---- */

/* A bound as the schema has it, with the keyword that it comes from. */
struct bound {
    const json_t *value; /* NULL: there is none */
    const char *key;
    bool lower, excluded;
};
struct bounds {
    struct bound lo, hi;
};

/* The narrower of two bounds on one side: an excluded one where both are the same double, as it
 * then excludes what reads as the other. */
static bool add_bound(
    struct schema *s, const json_t *m, const char *key, bool excluded, struct bound *b)
{
    const json_t *v = json_object_get(m, key);
    if (!v || (excluded && json_is_false(v)))
        return true;
    if (excluded && json_is_true(v) && b->value) { /* draft 4: the bound beside it is excluded */
        b->excluded = true;
        return true;
    }
    if (!json_is_number(v)) {
        schema_fail(s, key, "must be a number");
        return false;
    }
    double x = json_number_value(v), at = json_number_value(b->value);
    if (!b->value || (b->lower ? x > at : x < at) || (x == at && excluded))
        *b = (struct bound){v, key, b->lower, excluded};
    return true;
}

static bool read_bounds(struct schema *s, const json_t *m, struct bounds *n)
{
    *n = (struct bounds){.lo.lower = true};
    return add_bound(s, m, "minimum", false, &n->lo) &&
           add_bound(s, m, "exclusiveMinimum", true, &n->lo) &&
           add_bound(s, m, "maximum", false, &n->hi) &&
           add_bound(s, m, "exclusiveMaximum", true, &n->hi);
}

/* multipleOf as step_by / 10^places; 0: absent, or false with an error. */
static bool read_multiple(struct schema *s, const json_t *m, uint64_t *step_by, uint32_t *places)
{
    const json_t *v = json_object_get(m, "multipleOf");
    double x = json_number_value(v), scale = 1;
    *step_by = *places = 0;
    if (!v)
        return true;
    if (!json_is_number(v) || !(x > 0)) {
        schema_fail(s, "multipleOf", "must be a number greater than 0");
        return false;
    }
    for (; *places <= 6 && x * scale < 1e15; ++*places) {
        double whole = round(x * scale);
        if (whole >= 1 && whole / scale == x) {
            *step_by = (uint64_t)whole;
            return true;
        }
        scale *= 10;
    }
    schema_fail(s, "multipleOf", "this number is not supported");
    return false;
}

/* v in digits, without an exponent and without zeros at its end; false if they are too many. */
static bool digits_of(const json_t *v, char out[64])
{
    double x = json_number_value(v) + 0.0; /* -0 becomes 0 */
    int places = 0;
    if (json_is_integer(v)) {
        snprintf(out, 64, "%" JSON_INTEGER_FORMAT, json_integer_value(v));
        return true;
    }
    if (!(fabs(x) < 1e15))
        return false;
    do
        snprintf(out, 64, "%.*f", places, x);
    while (strtod(out, NULL) != x && places++ < 20);
    return places <= 20;
}

/* Numbers that are written in one way only, with no more digits than a double keeps apart. */
#define FRACTION "-?(0|[1-9][0-9]{0,7})\\.[0-9]{0,6}[1-9]"
static grammar_node plain_numbers(struct schema *s, bool fractions_only)
{
    static const char all[] = "-?[1-9][0-9]{0,14}|0|" FRACTION, some[] = FRACTION;
    const char *text = fractions_only ? some : all;
    return regex_node(s->b, text, strlen(text), false, false, "number");
}

/* Does "not" have all integers? */
static bool refuses_integers(const json_t *m)
{
    return json_object_get(json_object_get(m, "not"), "type") != NULL;
}

/* The number's node without the values and, of integers, the multiples of "not". */
static grammar_node without_numbers(struct schema *s,
                                    const json_t *m,
                                    bool integers,
                                    grammar_node node)
{
    json_t *values = refused_values(m, TYPE_NUMBER | TYPE_INTEGER);
    const json_t *steps = json_object_get(json_object_get(m, "not"), "multipleOf");
    size_t n = json_array_size(values), n_steps = integers ? json_array_size(steps) : 0;
    if (n + n_steps > 0) {
        struct dfa *d = dfa_create(s->b, node);
        bool ok = dfa_narrow(s->b, &d, plain_numbers(s, false), false);
        for (size_t i = 0; ok && i < n; i++) {
            char text[64];
            if (digits_of(json_array_get(values, i), text))
                ok = schema_works(s) &&
                     dfa_narrow(s->b, &d, grammar_literal(s->b, text, strlen(text)), true);
        }
        for (size_t i = 0; ok && i < n_steps; i++) {
            double by = json_number_value(json_array_get(steps, i));
            struct dfa *times = by >= 1 && by <= 1000 ? dfa_multiples((uint32_t)by) : NULL;
            ok = dfa_meet(s->b, &d, times, true);
            dfa_destroy(times);
        }
        node = finish(s, d, "not");
    }
    json_decref(values);
    return node;
}

/* The numbers of the node that are no integers. */
static grammar_node fractions_of(struct schema *s, grammar_node node)
{
    struct dfa *d = dfa_create(s->b, node);
    (void)dfa_narrow(s->b, &d, plain_numbers(s, true), false);
    return finish(s, d, "not");
}

struct whole_bounds {
    bool has_lo, has_hi;
    int64_t lo, hi;
};

/* Multiples one by one, from the bound that is nearer to 0. */
static grammar_node some_multiples(struct schema *s, int64_t lo, int64_t hi, int64_t by)
{
    grammar_node nodes[MAX_MULTIPLES];
    uint32_t n = 0;
    bool down = hi < 0;
    int64_t at = down ? -(-hi / by + (-hi % by != 0)) * by : lo / by * by;
    if (!down && at < lo)
        at += by;
    for (; n < MAX_MULTIPLES && at >= lo && at <= hi; at += down ? -by : by) {
        char text[32];
        snprintf(text, sizeof text, "%" PRId64, at);
        nodes[n++] = grammar_literal(s->b, text, strlen(text));
    }
    return grammar_alt(s->b, n, nodes);
}

/* Integers lo..hi that are multiples: of as many digits as make no automaton too large. */
static grammar_node integer_multiples(struct schema *s, int64_t lo, int64_t hi, uint64_t by)
{
    uint64_t count = ((uint64_t)hi - (uint64_t)lo) / by;
    if (count <= MAX_MULTIPLES / 2)
        return some_multiples(s, lo, hi, (int64_t)by);
    for (int64_t most = INT64_C(999999999999999); by <= 1000 && most > 9; most /= 10) {
        int64_t from = lo > -most ? lo : -most, to = hi < most ? hi : most;
        struct dfa *d = from < to ? dfa_multiples((uint32_t)by) : NULL;
        if (d && dfa_narrow(s->b, &d, json_integer_between(s->b, true, from, true, to), false))
            return finish(s, d, "multipleOf");
    }
    return some_multiples(s, lo < 0 && hi > 0 ? 0 : lo, hi, (int64_t)by);
}

/* Integers lo..hi that are multiples. Validators divide doubles, so beyond 2^53 none is sure. */
static grammar_node multiples_within(struct schema *s, const struct whole_bounds *n, uint64_t by)
{
    static const int64_t beyond = INT64_C(9007199254740991);
    if ((n->has_lo && n->lo > beyond) || (n->has_hi && n->hi < -beyond))
        return schema_fail(s, "multipleOf", "is not supported of numbers beyond 2^53");
    int64_t lo = n->has_lo && n->lo > -beyond ? n->lo : -beyond;
    int64_t hi = n->has_hi && n->hi < beyond ? n->hi : beyond;
    return lo > hi ? grammar_never(s->b) : integer_multiples(s, lo, hi, by);
}

/* The first or last integer within a bound; *has becomes false where all answers are. False with an
 * error where none is. Readers of doubles do not tell integers beyond 2^53 apart: there those that
 * are the same double as an excluded bound are excluded with it. */
static bool whole_bound(struct schema *s, const struct bound *b, bool *has, int64_t *out)
{
    static const double two_53 = 9007199254740992.0, two_63 = 9223372036854775808.0;
    double x = json_number_value(b->value), whole = b->lower ? ceil(x) : floor(x);
    *has = b->value != NULL;
    if (!*has)
        return true;
    if (json_is_integer(b->value) && !b->excluded) {
        *out = json_integer_value(b->value);
        return true;
    }
    if (b->excluded && whole == x && fabs(x) < two_53)
        whole += b->lower ? 1 : -1;
    else if (b->excluded && whole == x)
        whole = nextafter(x, b->lower ? INFINITY : -INFINITY);
    *has = whole >= -two_63 && whole < two_63;
    if (*has)
        *out = (int64_t)whole;
    else if (b->lower == (whole > 0))
        schema_fail(s, b->key, "is beyond 64 bits, and so would be the answer");
    return !builder_failed(s->b);
}

static grammar_node integer_within(struct schema *s, const json_t *m)
{
    struct bounds given;
    struct whole_bounds n = {0};
    uint64_t by, ten = 1;
    uint32_t places;
    if (!read_multiple(s, m, &by, &places) || !read_bounds(s, m, &given) ||
        !whole_bound(s, &given.lo, &n.has_lo, &n.lo) ||
        !whole_bound(s, &given.hi, &n.has_hi, &n.hi))
        return grammar_never(s->b);
    for (; places > 0; places--)
        ten *= 10;
    for (uint64_t a = by, b = ten, rest; by > 0 && a > 0;) { /* by / gcd(by, ten) */
        rest = b % a;
        if (rest == 0) {
            by /= a;
            break;
        }
        b = a;
        a = rest;
    }
    if (by > 1)
        return multiples_within(s, &n, by);
    if (!n.has_lo && !n.has_hi)
        return json_text_integer(s->b);
    return json_integer_between(s->b, n.has_lo, n.lo, n.has_hi, n.hi);
}

grammar_node schema_integer(struct schema *s, const json_t *m)
{
    if (refuses_integers(m))
        return grammar_never(s->b);
    return without_numbers(s, m, true, integer_within(s, m));
}

/* Is x within the bounds? */
static bool is_within(const struct number_bounds *n, double x)
{
    return (!n->has_lo || x > n->lo || (x == n->lo && !n->lo_excluded)) &&
           (!n->has_hi || x < n->hi || (x == n->hi && !n->hi_excluded));
}

/* Multiples of a decimal. Validators divide doubles and look for a whole number, so what is a
 * multiple may not be one to them: those near 0, or near the bound that is nearer to it, are tried
 * one by one; of the others there are the whole ones, where the divisor is near enough to its
 * double. */
static grammar_node decimal_multiples(
    struct schema *s, const json_t *m, const struct number_bounds *n, uint64_t by, uint32_t places)
{
    enum { MOST = 4000 };
    double unit = json_number_value(json_object_get(m, "multipleOf")), scale = pow(10, places);
    long double error = fabsl((long double)unit * (long double)scale - (long double)by);
    bool down = n->has_hi && n->hi < 0, up = n->has_lo && n->lo > 0;
    double from = down ? ceil(n->hi / unit) : up ? floor(n->lo / unit) : 0;
    grammar_node *nodes = mem_alloc((MOST + 1) * sizeof *nodes);
    uint32_t n_nodes = 0;
    for (int i = 0; i < MOST && fabs(from) < 1e12; i++) { /* 0, 1, -1, 2, -2 where both sides are */
        int both = i % 2 ? (i + 1) / 2 : -(i / 2);
        double k = down ? from - i : up ? from + i : both;
        char text[64];
        snprintf(text, sizeof text, "%.*f", (int)places, k * (double)by / scale);
        size_t len = strlen(text);
        while (len > 0 && text[len - 1] == '0')
            len--;
        len -= len > 0 && text[len - 1] == '.';
        text[len] = '\0';
        double x = strtod(text, NULL), quotient = x / unit;
        if (len > 0 && strcmp(text, "-") != 0 && strcmp(text, "-0") != 0 &&
            quotient == floor(quotient) && is_within(n, x))
            nodes[n_nodes++] = grammar_literal(s->b, text, len);
    }
    if (error <= 5e-17L * (long double)by)
        nodes[n_nodes++] = integer_within(s, m);
    grammar_node node = grammar_alt(s->b, n_nodes, nodes);
    free(nodes);
    return node;
}

/* A bound as a double; one that had to be moved inwards excludes the bound by itself. */
static void take_double(const struct bound *b, bool *has, double *out, bool *excluded)
{
    *has = b->value != NULL;
    *out = schema_inner_double(b->value, b->lower);
    *excluded = b->excluded && *out == json_number_value(b->value);
}

static grammar_node number_within(struct schema *s,
                                  const struct bounds *given,
                                  const struct number_bounds *n)
{
    bool above = n->has_lo && n->lo >= NUMBERS_END;
    if (above || (n->has_hi && n->hi <= -NUMBERS_END))
        return schema_fail(s,
                           above ? given->lo.key : given->hi.key,
                           "needs an answer of more than 18 digits before the point");
    return json_number_between(s->b, n);
}

grammar_node schema_number(struct schema *s, const json_t *m)
{
    struct bounds given;
    uint64_t by;
    uint32_t places;
    if (!read_multiple(s, m, &by, &places) || !read_bounds(s, m, &given))
        return grammar_never(s->b);
    if (by > 0 && places == 0)
        return schema_integer(s, m);
    struct number_bounds n;
    take_double(&given.lo, &n.has_lo, &n.lo, &n.lo_excluded);
    take_double(&given.hi, &n.has_hi, &n.hi, &n.hi_excluded);
    grammar_node node;
    if (by > 0)
        node = decimal_multiples(s, m, &n, by, places);
    else
        node = n.has_lo || n.has_hi ? number_within(s, &given, &n) : json_text_number(s->b);
    if (refuses_integers(m))
        return without_numbers(s, m, false, fractions_of(s, node));
    if (!json_object_get(json_object_get(m, "not"), "multipleOf"))
        return without_numbers(s, m, false, node);
    return ALT(
        s->b,
        schema_integer(s, m),
        without_numbers(
            s, m, false, fractions_of(s, node))); /* what is no integer is no multiple of one */
}

/* ---- numbers that are given ---- */

/* Exactly, and as those have it who read doubles. */
static bool keeps_bound(const struct bound *b, const json_t *v)
{
    if (!b->value)
        return true;
    int order = schema_compare_numbers(v, b->value) * (b->lower ? 1 : -1);
    bool same = json_number_value(v) == json_number_value(b->value);
    return order > 0 ? !same || !b->excluded : order == 0 && !b->excluded;
}

/* Exactly, and by dividing doubles, which is what validators do; `any`: by one of them. */
static bool is_multiple(const json_t *v, const json_t *by, bool any)
{
    double x = json_number_value(v), unit = json_number_value(by), quotient = x / unit;
    bool whole = quotient == floor(quotient), exactly = whole;
    if (json_is_integer(v) && json_is_integer(by))
        exactly = json_integer_value(v) % json_integer_value(by) == 0;
    else if (unit == floor(unit))
        exactly = fmod(x, unit) == 0;
    return any ? whole || exactly : whole && exactly;
}

bool schema_keeps_number(struct schema *s, const json_t *m, const json_t *v)
{
    const json_t *by = json_object_get(m, "multipleOf");
    const json_t *steps = json_object_get(json_object_get(m, "not"), "multipleOf");
    struct bounds n;
    uint64_t step_by;
    uint32_t places;
    if (!read_multiple(s, m, &step_by, &places) || !read_bounds(s, m, &n))
        return false;
    for (size_t i = 0; i < json_array_size(steps); i++) {
        const json_t *step = json_array_get(steps, i);
        if (!(json_number_value(step) >= 1))
            schema_fail(s, "not", "is not supported for such multiples");
        if (builder_failed(s->b) || is_multiple(v, step, true))
            return false;
    }
    return keeps_bound(&n.lo, v) && keeps_bound(&n.hi, v) && (!by || is_multiple(v, by, false)) &&
           !(refuses_integers(m) && schema_type_of(v) & TYPE_INTEGER);
}
