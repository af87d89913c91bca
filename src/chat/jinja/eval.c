/* Expressions. */
#include "chat/jinja/eval.h"

#include <math.h>
#include <string.h>

/* ---- scopes ---- */

void jscope_restart(struct jrun *r, struct jscope *s, const struct jnames *unset)
{
    s->n = unset ? unset->n : 0;
    jrun_charge(r, s->n / 16);
    s->vars = jrun_grow(r, s->vars, 0, s->n, &s->cap, sizeof *s->vars);
    for (size_t i = 0; i < s->n; i++)
        s->vars[i] = (struct jvar){unset->items[i], {.kind = J_MISSING}};
}

struct jscope *jscope_new(struct jrun *r, struct jscope *parent, const struct jnames *unset)
{
    struct jscope *s = jrun_alloc(r, sizeof *s);
    s->parent = parent;
    if (unset)
        jscope_restart(r, s, unset);
    return s;
}

void jscope_set(struct jrun *r, struct jscope *s, const struct jstr *name, struct jval v)
{
    jrun_charge(r, s->n / 16);
    for (size_t i = 0; i < s->n; i++) {
        if (s->vars[i].name == name) {
            s->vars[i].value = v;
            return;
        }
    }
    s->vars = jrun_grow(r, s->vars, s->n, s->n + 1, &s->cap, sizeof *s->vars);
    s->vars[s->n++] = (struct jvar){name, v};
}

static struct jval undefined_name(struct jrun *r, const struct jstr *name)
{
    struct jundefined *u = jrun_alloc(r, sizeof *u);
    u->name = name;
    return (struct jval){.kind = J_UNDEFINED, .undefined = u};
}

/* The innermost that is there; NULL: none. */
static const struct jvar *find_var(struct jrun *r, const struct jscope *s, const struct jstr *name)
{
    bool in_block = false;
    for (; s; s = s->parent) {
        jrun_charge(r, s->n / 16);
        for (size_t i = 0; i < s->n; i++)
            if (s->vars[i].name == name && !(in_block && s->vars[i].value.kind == J_MISSING))
                return &s->vars[i];
        in_block |= s->block;
    }
    return NULL;
}

struct jval jscope_get(struct jrun *r, const struct jscope *s, const struct jstr *name)
{
    const struct jvar *var = find_var(r, s, name);
    if (var)
        return var->value.kind == J_MISSING ? undefined_name(r, name) : var->value;
    if (name == r->tmpl->self)
        return (struct jval){.kind = J_BLOCKS};
    const struct jval *v = jdict_get_str(r, r->context, name);
    if (v)
        return *v;
    const struct jbuiltin *f = jfunction_find(name);
    if (!f)
        return undefined_name(r, name);
    struct jmethod *m = jrun_alloc(r, sizeof *m);
    m->builtin = f;
    return (struct jval){.kind = J_FUNCTION, .method = m};
}

/* ---- arithmetic ---- */

static _Noreturn void fail_operands(struct jrun *r, const char *op, struct jval a, struct jval b)
{
    jval_expect_defined(r, a);
    jval_expect_defined(r, b);
    jrun_fail(
        r, "unsupported operand type(s) for %s: '%s' and '%s'", op, jval_type(a), jval_type(b));
}

static _Noreturn void fail_overflow(struct jrun *r)
{
    jrun_fail(r, "an integer has more than 64 bits");
}

static struct jval with_origin(struct jval v, struct jval a, struct jval b)
{
    v.input = a.input || b.input;
    return v;
}

static int64_t int_pow(struct jrun *r, int64_t base, int64_t exponent)
{
    int64_t v = 1;
    for (; exponent > 0; exponent >>= 1) {
        if ((exponent & 1) && __builtin_mul_overflow(v, base, &v))
            fail_overflow(r);
        if (exponent > 1 && __builtin_mul_overflow(base, base, &base))
            fail_overflow(r);
    }
    return v;
}

/* Quotients round down, remainders have the sign of the divisor. */
static int64_t floor_div(struct jrun *r, int64_t a, int64_t b, int64_t *rest)
{
    if (b == 0)
        jrun_fail(r, "integer division or modulo by zero");
    if (b == -1) {
        if (a == INT64_MIN)
            fail_overflow(r);
        *rest = 0;
        return -a;
    }
    int64_t q = a / b;
    *rest = a % b;
    if (*rest != 0 && (*rest < 0) != (b < 0)) {
        q--;
        *rest += b;
    }
    return q;
}

static int n_bits(uint64_t v)
{
    return v ? 64 - __builtin_clzll(v) : 0;
}

/* a / b, rounded once: doubles do not hold all the integers. The quotient is taken to 56 bits or
 * more, of which the last stands for all that follow. */
static double int_div(int64_t a, int64_t b)
{
    const int64_t exact = (int64_t)1 << 53;
    if (a >= -exact && a <= exact && b >= -exact && b <= exact)
        return (double)a / (double)b;
    uint64_t x = a < 0 ? 0 - (uint64_t)a : (uint64_t)a, y = b < 0 ? 0 - (uint64_t)b : (uint64_t)b;
    int shift = 56 + n_bits(y) - n_bits(x);
    shift = shift > 0 ? shift : 0;
    unsigned __int128 wide = (unsigned __int128)x << shift;
    uint64_t q = (uint64_t)(wide / y) | (wide % y != 0);
    double v = ldexp((double)q, -shift);
    return (a < 0) != (b < 0) ? -v : v;
}

static struct jval int_binary(struct jrun *r, enum jop op, int64_t a, int64_t b)
{
    int64_t v = 0, rest;
    bool over = false;
    switch (op) {
    case OP_ADD:
        over = __builtin_add_overflow(a, b, &v);
        break;
    case OP_SUB:
        over = __builtin_sub_overflow(a, b, &v);
        break;
    case OP_MUL:
        over = __builtin_mul_overflow(a, b, &v);
        break;
    case OP_DIV:
        if (b == 0)
            jrun_fail(r, "division by zero");
        return jval_float(int_div(a, b));
    case OP_FLOORDIV:
        v = floor_div(r, a, b, &rest);
        break;
    case OP_MOD:
        floor_div(r, a, b, &v);
        break;
    default:
        if (b < 0 && a == 0)
            jrun_fail(r, "0.0 cannot be raised to a negative power");
        if (b < 0)
            return jval_float(pow((double)a, (double)b));
        v = int_pow(r, a, b);
    }
    if (over)
        fail_overflow(r);
    return jval_int(v);
}

static double float_mod(double a, double b)
{
    double m = fmod(a, b);
    if (m != 0.0)
        return (b < 0.0) != (m < 0.0) ? m + b : m;
    return copysign(0.0, b);
}

static double float_floor_div(double a, double b)
{
    double m = fmod(a, b), q = (a - m) / b;
    if (m != 0.0 && (b < 0.0) != (m < 0.0))
        q -= 1.0;
    if (q == 0.0)
        return copysign(0.0, a / b);
    double f = floor(q);
    return q - f > 0.5 ? f + 1.0 : f;
}

static struct jval float_binary(struct jrun *r, enum jop op, double a, double b)
{
    switch (op) {
    case OP_ADD:
        return jval_float(a + b);
    case OP_SUB:
        return jval_float(a - b);
    case OP_MUL:
        return jval_float(a * b);
    case OP_POW: {
        if (a == 0.0 && b < 0.0)
            jrun_fail(r, "0.0 cannot be raised to a negative power");
        double v = pow(a, b);
        if (a < 0.0 && isfinite(a) && isfinite(b) && b != floor(b))
            jrun_fail(r, "complex numbers are not supported");
        if (isinf(v) && isfinite(a) && isfinite(b))
            jrun_fail(r, "Numerical result out of range");
        return jval_float(v);
    }
    default:
        if (b == 0.0)
            jrun_fail(r, op == OP_MOD ? "float modulo" : "float division by zero");
        return jval_float(op == OP_DIV        ? a / b
                          : op == OP_FLOORDIV ? float_floor_div(a, b)
                                              : float_mod(a, b));
    }
}

static struct jval add_lists(struct jrun *r, struct jval a, struct jval b)
{
    size_t n = a.list->n + b.list->n;
    struct jval *items = jrun_alloc_n(r, n, sizeof *items);
    jrun_charge(r, n / 4);
    if (a.list->n > 0)
        memcpy(items, a.list->items, a.list->n * sizeof *items);
    if (b.list->n > 0)
        memcpy(items + a.list->n, b.list->items, b.list->n * sizeof *items);
    return a.kind == J_LIST ? jval_list(r, items, n) : jval_tuple(r, items, n);
}

struct jval jval_add(struct jrun *r, struct jval a, struct jval b)
{
    if (a.kind == J_STR && b.kind == J_STR) {
        if (a.s->markup == b.s->markup && !a.s->markup)
            return jval_str(jstr_concat(r, a.s, b.s));
        const struct jstr *x = a.s->markup ? a.s : jstr_escape(r, a.s);
        const struct jstr *y = b.s->markup ? b.s : jstr_escape(r, b.s);
        return jval_str(jstr_as_markup(r, jstr_concat(r, x, y), true));
    }
    if ((a.kind == J_LIST || a.kind == J_TUPLE) && a.kind == b.kind)
        return add_lists(r, a, b);
    if (a.kind == J_STR && b.kind != J_UNDEFINED)
        jrun_fail(r, "can only concatenate str (not \"%s\") to str", jval_type(b));
    fail_operands(r, "+", a, b);
}

static struct jval repeat(struct jrun *r, struct jval v, int64_t count)
{
    size_t times = count > 0 ? (size_t)count : 0;
    if (v.kind == J_STR) {
        struct jsb b = JSB(r);
        jsb_repeat(&b, v.s, times);
        return jval_str(jstr_as_markup(r, jsb_done(&b), v.s->markup));
    }
    size_t n = v.list->n;
    if (n > 0 && times > SIZE_MAX / 64 / n)
        jrun_fail_as(r, ERR_TOO_LARGE, "a list is too long");
    jrun_charge(r, n * times / 4);
    struct jval *items = jrun_alloc_n(r, n * times, sizeof *items);
    for (size_t i = 0; i < n * times; i++)
        items[i] = v.list->items[i % n];
    return v.kind == J_LIST ? jval_list(r, items, n * times) : jval_tuple(r, items, n * times);
}

static bool is_sequence(struct jval v)
{
    return v.kind == J_STR || v.kind == J_LIST || v.kind == J_TUPLE;
}

struct jval jval_arithmetic(struct jrun *r, enum jop op, struct jval a, struct jval b)
{
    static const char *const symbols[] = {"+", "-", "*", "/", "//", "%", "** or pow()"};
    if (jval_is_int(a) && jval_is_int(b))
        return with_origin(int_binary(r, op, jval_as_int(a), jval_as_int(b)), a, b);
    if (jval_is_number(a) && jval_is_number(b))
        return with_origin(float_binary(r, op, jval_as_float(a), jval_as_float(b)), a, b);
    if (op == OP_MOD && a.kind == J_STR)
        return jval_percent(r, a.s, b);
    if (op == OP_ADD)
        return jval_add(r, a, b);
    if (op == OP_MUL && is_sequence(a) && jval_is_int(b))
        return repeat(r, a, jval_as_int(b));
    if (op == OP_MUL && is_sequence(b) && jval_is_int(a))
        return repeat(r, b, jval_as_int(a));
    fail_operands(r, symbols[op], a, b);
}

bool jval_compare(struct jrun *r, enum jop op, struct jval a, struct jval b)
{
    bool floats =
        (a.kind == J_FLOAT && jval_is_number(b)) || (b.kind == J_FLOAT && jval_is_number(a));
    double x = floats ? jval_as_float(a) : 0.0, y = floats ? jval_as_float(b) : 0.0;
    switch (op) {
    case OP_EQ:
        return jval_eq(r, a, b);
    case OP_NE:
        return !jval_eq(r, a, b);
    case OP_LT:
        return floats ? x < y : jval_cmp(r, a, b, "<") < 0;
    case OP_LE:
        return floats ? x <= y : jval_cmp(r, a, b, "<=") <= 0;
    case OP_GT:
        return floats ? x > y : jval_cmp(r, a, b, ">") > 0;
    case OP_GE:
        return floats ? x >= y : jval_cmp(r, a, b, ">=") >= 0;
    default:
        return jval_contains(r, b, a) == (op == OP_IN);
    }
}

static struct jval negate(struct jrun *r, const struct jnode *n, struct jval v)
{
    bool minus = n->kind == N_NEG;
    jval_expect_defined(r, v);
    if (!jval_is_number(v))
        jrun_fail(r, "bad operand type for unary %s: '%s'", minus ? "-" : "+", jval_type(v));
    if (v.kind == J_FLOAT)
        return with_origin(jval_float(minus ? -v.f : v.f), v, v);
    int64_t i = jval_as_int(v);
    if (minus && i == INT64_MIN)
        fail_overflow(r);
    return with_origin(jval_int(minus ? -i : i), v, v);
}

/* ---- nodes ---- */

static struct jval eval_items(struct jrun *r, struct jscope *s, const struct jnode *n)
{
    struct jval *items = jrun_alloc_n(r, n->items.n, sizeof *items);
    for (size_t i = 0; i < n->items.n; i++)
        items[i] = jeval(r, s, n->items.items[i]);
    return n->kind == N_LIST ? jval_list(r, items, n->items.n) : jval_tuple(r, items, n->items.n);
}

static struct jval eval_dict(struct jrun *r, struct jscope *s, const struct jnode *n)
{
    struct jdict *d = jdict_new(r);
    for (size_t i = 0; i < n->items.n; i += 2) {
        struct jval key = jeval(r, s, n->items.items[i]);
        jdict_set(r, d, key, jeval(r, s, n->items.items[i + 1]));
    }
    return jval_dict(d);
}

static struct jval eval_compare(struct jrun *r, struct jscope *s, const struct jnode *n)
{
    struct jval left = jeval(r, s, n->a);
    for (size_t i = 0; i < n->items.n; i++) {
        struct jval right = jeval(r, s, n->items.items[i]);
        if (!jval_compare(r, n->ops[i], left, right))
            return jval_bool(false);
        left = right;
    }
    return jval_bool(true);
}

/* What is joined is text, whatever it was; but that under autoescape markup is joined as such. */
static struct jval eval_concat(struct jrun *r, struct jscope *s, const struct jnode *n)
{
    const struct jstr **parts = jrun_alloc_n(r, n->items.n, sizeof *parts), *all;
    bool markup = false;
    for (size_t i = 0; i < n->items.n; i++) {
        parts[i] = jval_to_str(r, jeval(r, s, n->items.items[i]));
        markup |= r->autoescape && parts[i]->markup;
    }
    all = markup ? jstr_escape(r, parts[0]) : parts[0];
    all = jstr_as_markup(r, all, false);
    for (size_t i = 1; i < n->items.n; i++)
        all = jstr_concat(r, all, markup ? jstr_escape(r, parts[i]) : parts[i]);
    return jval_str(jstr_as_markup(r, all, markup));
}

static struct jval eval_item(struct jrun *r, struct jscope *s, const struct jnode *n)
{
    struct jval object = jeval(r, s, n->a);
    if (n->b->kind != N_SLICE)
        return jval_item(r, object, jeval(r, s, n->b));
    if (n->flag && (jval_len(object) < 0 || object.kind == J_DICT))
        return jval_undefined();
    struct jval bounds[3] = {{0}};
    const struct jnode *const nodes[3] = {n->b->a, n->b->b, n->b->c};
    for (int i = 0; i < 3; i++)
        bounds[i] = nodes[i] ? jeval(r, s, nodes[i]) : jval_none();
    return jval_slice(r, object, bounds);
}

static struct jval eval_if_else(struct jrun *r, struct jscope *s, const struct jnode *n)
{
    if (jval_true(r, jeval(r, s, n->a)))
        return jeval(r, s, n->b);
    if (n->c)
        return jeval(r, s, n->c);
    return jval_undefined_as(r,
                             "the inline if-expression on line %u evaluated to false and no else "
                             "section was defined.",
                             n->line);
}

static void add_keyword(
    struct jrun *r, struct jkeyword *keywords, size_t *n, const struct jstr *name, struct jval v)
{
    jrun_charge(r, *n / 16);
    for (size_t i = 0; i < *n; i++)
        if (jstr_eq(keywords[i].name, name))
            jrun_fail(r, "got multiple values for keyword argument '%.*s'", JSTR_UP_TO(60, name));
    keywords[(*n)++] = (struct jkeyword){name, v};
}

struct jargs jeval_args(struct jrun *r, struct jscope *s, const struct jarg_nodes *nodes)
{
    size_t n_named = nodes->n - nodes->n_positional;
    const struct jlist *star = NULL;
    const struct jdict *more = NULL;
    struct jitems items = {0};
    for (size_t i = 0; i < nodes->n_positional; i++)
        jitems_add(r, &items, jeval(r, s, nodes->items[i].value));
    if (nodes->star)
        star = jval_items(r, jeval(r, s, nodes->star));
    for (size_t i = 0; star && i < star->n; i++)
        jitems_add(r, &items, star->items[i]);
    struct jval *named = jrun_alloc_n(r, n_named, sizeof *named);
    for (size_t i = 0; i < n_named; i++)
        named[i] = jeval(r, s, nodes->items[nodes->n_positional + i].value);
    if (nodes->star_star) {
        struct jval v = jeval(r, s, nodes->star_star);
        if (v.kind != J_DICT)
            jrun_fail(r, "argument after ** must be a mapping, not %s", jval_type(v));
        more = v.dict;
    }
    struct jkeyword *keywords = jrun_alloc_n(r, n_named + (more ? more->n : 0), sizeof *keywords);
    size_t n = 0;
    for (size_t i = 0; i < n_named; i++)
        add_keyword(r, keywords, &n, nodes->items[nodes->n_positional + i].name, named[i]);
    for (size_t i = 0; more && i < more->n; i++) {
        if (more->pairs[i].key.kind != J_STR)
            jrun_fail(r, "keywords must be strings");
        add_keyword(r, keywords, &n, more->pairs[i].key.s, more->pairs[i].value);
    }
    return (struct jargs){items.items, items.n, keywords, n};
}

static _Noreturn void fail_unknown(struct jrun *r, const char *kind, const struct jstr *name)
{
    jrun_fail(r, "no %s named '%.*s'", kind, JSTR_UP_TO(60, name));
}

static struct jval eval_test(struct jrun *r, struct jscope *s, const struct jnode *n)
{
    struct jval v = jeval(r, s, n->a);
    if (!n->builtin)
        fail_unknown(r, "test", n->text);
    struct jargs args = jeval_args(r, s, n->args);
    return jval_bool(jval_true(r, jbuiltin_call(r, n->builtin, v, &args)));
}

static struct jval apply_filter(struct jrun *r,
                                struct jscope *s,
                                const struct jnode *n,
                                struct jval v)
{
    r->line = n->line;
    if (!n->builtin)
        fail_unknown(r, "filter", n->text);
    struct jargs args = jeval_args(r, s, n->args);
    return jbuiltin_call(r, n->builtin, v, &args);
}

struct jval jeval_filters(struct jrun *r, struct jscope *s, const struct jnode *n, struct jval v)
{
    if (!n)
        return v;
    jrun_enter(r);
    v = jeval_filters(r, s, n->a, v);
    jrun_leave(r);
    return apply_filter(r, s, n, v);
}

static struct jval eval_call(struct jrun *r, struct jscope *s, const struct jnode *n)
{
    struct jval callee = jeval(r, s, n->a);
    struct jargs args = jeval_args(r, s, n->args);
    r->line = n->line;
    return jval_call(r, callee, &args);
}

static struct jval eval(struct jrun *r, struct jscope *s, const struct jnode *n)
{
    struct jval v;
    switch (n->kind) {
    case N_CONST:
        return n->value;
    case N_NAME:
        return jscope_get(r, s, n->text);
    case N_ATTR:
        return jval_attr(r, jeval(r, s, n->a), n->text);
    case N_ITEM:
        return eval_item(r, s, n);
    case N_LIST:
    case N_TUPLE:
        return eval_items(r, s, n);
    case N_DICT:
        return eval_dict(r, s, n);
    case N_NOT:
        return jval_bool(!jval_true(r, jeval(r, s, n->a)));
    case N_NEG:
    case N_POS:
        return negate(r, n, jeval(r, s, n->a));
    case N_AND:
        v = jeval(r, s, n->a);
        return jval_true(r, v) ? jeval(r, s, n->b) : v;
    case N_OR:
        v = jeval(r, s, n->a);
        return jval_true(r, v) ? v : jeval(r, s, n->b);
    case N_BINARY:
        v = jeval(r, s, n->a);
        return jval_arithmetic(r, n->op, v, jeval(r, s, n->b));
    case N_CONCAT:
        return eval_concat(r, s, n);
    case N_COMPARE:
        return eval_compare(r, s, n);
    case N_IF_ELSE:
        return eval_if_else(r, s, n);
    case N_CALL:
        return eval_call(r, s, n);
    case N_FILTER:
        return apply_filter(r, s, n, jeval(r, s, n->a));
    case N_TEST:
        return eval_test(r, s, n);
    case N_SLICE:
        jrun_fail(r, "slices in tuples are not supported");
    default:
        jrun_fail_as(r, ERR_INTERNAL, "no expression of kind %d", (int)n->kind);
    }
}

struct jval jeval(struct jrun *r, struct jscope *s, const struct jnode *n)
{
    jrun_charge(r, 1);
    jrun_enter(r);
    r->line = n->line;
    struct jval v = eval(r, s, n);
    jrun_leave(r);
    return v;
}
