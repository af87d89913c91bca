/* Expressions, from primaries up to conditions. */
#include "chat/jinja/parser.h"

#include "chat/jinja/builtins.h"

#include <string.h>

static struct jnode *unary(struct jparser *p, enum jnode_kind kind, struct jnode *a)
{
    struct jnode *n = jparse_node(p, kind);
    n->a = a;
    return n;
}

static struct jnode *binary(
    struct jparser *p, enum jnode_kind kind, enum jop op, struct jnode *a, struct jnode *b)
{
    struct jnode *n = unary(p, kind, a);
    n->op = op;
    n->b = b;
    return n;
}

static struct jnode *constant(struct jparser *p, struct jval v)
{
    struct jnode *n = jparse_node(p, N_CONST);
    n->value = v;
    return n;
}

/* ---- primaries ---- */

/* A macro that reads `caller`, `varargs` or `kwargs` takes them. */
static void note_special(struct jparser *p, const struct jstr *name)
{
    for (struct jnode *m = p->macro; m; m = m->c) {
        m->uses_caller |= jstr_is(name, "caller");
        m->uses_varargs |= jstr_is(name, "varargs");
        m->uses_kwargs |= jstr_is(name, "kwargs");
    }
}

static struct jnode *parse_name(struct jparser *p, bool with_namespace)
{
    const struct jstr *name = jparse_now(p)->text;
    bool yes = jstr_is(name, "true") || jstr_is(name, "True");
    struct jnode *n;
    if (yes || jstr_is(name, "false") || jstr_is(name, "False")) {
        n = constant(p, jval_bool(yes));
        jparse_step(p);
    } else if (jstr_is(name, "none") || jstr_is(name, "None")) {
        n = constant(p, jval_none());
        jparse_step(p);
    } else {
        n = jparse_node(p, N_NAME);
        n->text = jparse_expect_name(p);
        if (with_namespace && jparse_skip_op(p, ".")) {
            n->kind = N_NSREF;
            n->attr = jparse_expect_name(p);
        } else {
            note_special(p, n->text);
        }
    }
    return n;
}

/* Literals that follow one another are one. */
static struct jnode *parse_string(struct jparser *p)
{
    const struct jstr *s = jparse_now(p)->text;
    for (jparse_step(p); jparse_now(p)->kind == T_STRING; jparse_step(p))
        s = jstr_concat(p->r, s, jparse_now(p)->text);
    struct jstr *fixed = jrun_alloc(p->r, sizeof *fixed);
    *fixed = *s;
    fixed->room = NULL; /* threads share it: nobody may append to it in place */
    return constant(p, jval_str(fixed));
}

/* Is there one more of a list of things with commas, of which there may be one behind the last?
 * Steps over the comma, or over what closes the list. */
static bool more_items(struct jparser *p, bool any, const char *close)
{
    if (jparse_skip_op(p, close))
        return false;
    if (any)
        jparse_expect_op(p, ",");
    return !any || !jparse_skip_op(p, close);
}

static struct jnode *parse_list(struct jparser *p)
{
    struct jnode *n = jparse_node(p, N_LIST);
    jparse_expect_op(p, "[");
    while (more_items(p, n->items.n > 0, "]"))
        jparse_add(p, &n->items, jparse_expression(p));
    return n;
}

static struct jnode *parse_dict(struct jparser *p)
{
    struct jnode *n = jparse_node(p, N_DICT);
    jparse_expect_op(p, "{");
    while (more_items(p, n->items.n > 0, "}")) {
        jparse_add(p, &n->items, jparse_expression(p));
        jparse_expect_op(p, ":");
        jparse_add(p, &n->items, jparse_expression(p));
    }
    return n;
}

static struct jnode *parse_tuple_of(struct jparser *p,
                                    struct jnode *(*one)(struct jparser *),
                                    bool in_parentheses);

static struct jnode *parse_primary_of(struct jparser *p, bool with_namespace)
{
    char got[64];
    const struct jtoken *t = jparse_now(p);
    struct jnode *n;
    if (t->kind == T_NAME)
        return parse_name(p, with_namespace);
    if (t->kind == T_STRING)
        return parse_string(p);
    if (t->kind == T_INT || t->kind == T_FLOAT) {
        n = constant(p, t->kind == T_INT ? jval_int(t->i) : jval_float(t->f));
        jparse_step(p);
        return n;
    }
    if (jparse_skip_op(p, "(")) {
        n = parse_tuple_of(p, jparse_expression, true);
        jparse_expect_op(p, ")");
        return n;
    }
    if (jparse_is_op(p, "["))
        return parse_list(p);
    if (jparse_is_op(p, "{"))
        return parse_dict(p);
    jparse_fail(p, "unexpected %s", jparse_describe(t, got));
}

static struct jnode *parse_primary(struct jparser *p)
{
    return parse_primary_of(p, false);
}

/* ---- calls and subscripts ---- */

static void parse_args(struct jparser *p, struct jarg_nodes *l)
{
    jparse_expect_op(p, "(");
    for (bool any = false; more_items(p, any, ")"); any = true) {
        bool named = jparse_now(p)->kind == T_NAME && jparse_look(p)->kind == T_OPERATOR &&
                     strcmp(jparse_look(p)->op, "=") == 0;
        bool star = jparse_is_op(p, "*"), star_star = jparse_is_op(p, "**");
        bool by_position = !named && !star && !star_star;
        if (l->star_star || (star && l->star) ||
            (by_position && (l->star || l->n > l->n_positional)))
            jparse_fail(p, "invalid syntax for function call expression");
        const struct jstr *name = named ? jparse_expect_name(p) : NULL;
        if (!by_position)
            jparse_step(p);
        struct jnode *value = jparse_expression(p);
        if (star)
            l->star = value;
        else if (star_star)
            l->star_star = value;
        else
            jparse_add_arg(p, l, name, value);
    }
}

static struct jnode *parse_call(struct jparser *p, struct jnode *callee)
{
    struct jnode *n = unary(p, N_CALL, callee);
    n->args = jrun_alloc(p->r, sizeof *n->args);
    parse_args(p, n->args);
    return n;
}

static bool at_slice_end(const struct jparser *p)
{
    return jparse_is_op(p, ":") || jparse_is_op(p, "]") || jparse_is_op(p, ",");
}

static struct jnode *parse_index(struct jparser *p)
{
    struct jnode *start = NULL;
    if (!jparse_is_op(p, ":")) {
        start = jparse_expression(p);
        if (!jparse_is_op(p, ":"))
            return start;
    }
    struct jnode *n = unary(p, N_SLICE, start);
    jparse_step(p);
    if (!at_slice_end(p))
        n->b = jparse_expression(p);
    if (jparse_skip_op(p, ":") && !at_slice_end(p))
        n->c = jparse_expression(p);
    return n;
}

static struct jnode *parse_subscript(struct jparser *p, struct jnode *object)
{
    struct jnode *n = unary(p, N_ITEM, object);
    if (jparse_skip_op(p, ".")) {
        const struct jtoken *t = jparse_now(p);
        if (t->kind == T_NAME) {
            n->kind = N_ATTR;
            n->text = jparse_expect_name(p);
        } else if (t->kind == T_INT) {
            n->b = constant(p, jval_int(t->i));
            jparse_step(p);
        } else {
            jparse_fail(p, "expected a name or a number behind '.'");
        }
        return n;
    }
    jparse_expect_op(p, "[");
    struct jnode *several = NULL;
    while (!jparse_is_op(p, "]")) {
        if (n->b || several)
            jparse_expect_op(p, ",");
        struct jnode *index = parse_index(p);
        if (n->b && !several) {
            several = jparse_node(p, N_TUPLE);
            jparse_add(p, &several->items, n->b);
        }
        if (several)
            jparse_add(p, &several->items, index);
        n->b = several ? several : index;
    }
    if (!n->b)
        n->b = jparse_node(p, N_TUPLE);
    jparse_expect_op(p, "]");
    return n;
}

static struct jnode *parse_postfix(struct jparser *p, struct jnode *n)
{
    for (;;) {
        if (jparse_is_op(p, ".") || jparse_is_op(p, "["))
            n = parse_subscript(p, n);
        else if (jparse_is_op(p, "("))
            n = parse_call(p, n);
        else
            return n;
    }
}

/* ---- filters and tests ---- */

/* A name with dots, which no filter of ours has. */
static const struct jstr *parse_dotted(struct jparser *p)
{
    const struct jstr *name = jparse_expect_name(p);
    while (jparse_skip_op(p, ".")) {
        struct jsb b = JSB(p->r);
        jsb_str(&b, name);
        jsb_lit(&b, ".");
        jsb_str(&b, jparse_expect_name(p));
        name = jsb_done(&b);
    }
    return name;
}

static _Noreturn void fail_unknown(struct jparser *p, const char *kind, const struct jstr *name)
{
    jparse_fail(p, "no %s named '%.*s'", kind, JSTR_UP_TO(60, name));
}

struct jnode *jparse_filters(struct jparser *p, struct jnode *operand, bool inline_)
{
    while (inline_ || jparse_is_op(p, "|")) {
        if (!inline_)
            jparse_step(p);
        inline_ = false;
        struct jnode *n = unary(p, N_FILTER, operand);
        n->text = parse_dotted(p);
        n->builtin = jfilter_find(n->text);
        if (!n->builtin && !p->lenient)
            fail_unknown(p, "filter", n->text);
        n->args = jrun_alloc(p->r, sizeof *n->args);
        if (jparse_is_op(p, "("))
            parse_args(p, n->args);
        operand = n;
    }
    return operand;
}

/* May an argument without parentheses follow, as in "x is divisibleby 3"? */
static bool at_test_argument(const struct jparser *p)
{
    const struct jtoken *t = jparse_now(p);
    if (t->kind == T_NAME)
        return !jparse_is_name(p, "else") && !jparse_is_name(p, "or") && !jparse_is_name(p, "and");
    return t->kind == T_STRING || t->kind == T_INT || t->kind == T_FLOAT || jparse_is_op(p, "[") ||
           jparse_is_op(p, "{");
}

static struct jnode *parse_test(struct jparser *p, struct jnode *operand)
{
    jparse_step(p);
    bool negated = jparse_skip_name(p, "not");
    struct jnode *n = unary(p, N_TEST, operand);
    n->text = parse_dotted(p);
    n->builtin = jtest_find(n->text);
    if (!n->builtin && !p->lenient)
        fail_unknown(p, "test", n->text);
    n->args = jrun_alloc(p->r, sizeof *n->args);
    if (jparse_is_op(p, "(")) {
        parse_args(p, n->args);
    } else if (at_test_argument(p)) {
        if (jparse_is_name(p, "is"))
            jparse_fail(p, "tests cannot be chained with 'is'");
        jparse_add_arg(p, n->args, NULL, parse_postfix(p, parse_primary(p)));
    }
    return negated ? unary(p, N_NOT, n) : n;
}

static struct jnode *parse_filter_expr(struct jparser *p, struct jnode *n)
{
    for (;;) {
        if (jparse_is_op(p, "|"))
            n = jparse_filters(p, n, false);
        else if (jparse_is_name(p, "is"))
            n = parse_test(p, n);
        else if (jparse_is_op(p, "("))
            n = parse_call(p, n);
        else
            return n;
    }
}

/* ---- operators, from the tightest to the loosest ---- */

static struct jnode *parse_unary(struct jparser *p, bool with_filter)
{
    struct jnode *n;
    jrun_enter(p->r);
    if (jparse_skip_op(p, "-"))
        n = unary(p, N_NEG, parse_unary(p, false));
    else if (jparse_skip_op(p, "+"))
        n = unary(p, N_POS, parse_unary(p, false));
    else
        n = parse_primary(p);
    n = parse_postfix(p, n);
    if (with_filter)
        n = parse_filter_expr(p, n);
    jrun_leave(p->r);
    return n;
}

static struct jnode *left_chain(struct jparser *p,
                                const char *const *symbols,
                                const enum jop *ops,
                                size_t n_ops,
                                struct jnode *(*operand)(struct jparser *))
{
    struct jnode *left = operand(p);
    for (size_t i = 0; i < n_ops;) {
        if (!jparse_skip_op(p, symbols[i])) {
            i++;
            continue;
        }
        left = binary(p, N_BINARY, ops[i], left, operand(p));
        i = 0;
    }
    return left;
}

static struct jnode *parse_filtered(struct jparser *p)
{
    return parse_unary(p, true);
}

static struct jnode *parse_pow(struct jparser *p)
{
    static const char *const symbols[] = {"**"};
    static const enum jop ops[] = {OP_POW};
    return left_chain(p, symbols, ops, 1, parse_filtered);
}

static struct jnode *parse_product(struct jparser *p)
{
    static const char *const symbols[] = {"*", "/", "//", "%"};
    static const enum jop ops[] = {OP_MUL, OP_DIV, OP_FLOORDIV, OP_MOD};
    return left_chain(p, symbols, ops, 4, parse_pow);
}

static struct jnode *parse_concat(struct jparser *p)
{
    struct jnode *first = parse_product(p);
    if (!jparse_is_op(p, "~"))
        return first;
    struct jnode *n = jparse_node(p, N_CONCAT);
    jparse_add(p, &n->items, first);
    while (jparse_skip_op(p, "~"))
        jparse_add(p, &n->items, parse_product(p));
    return n;
}

static struct jnode *parse_sum(struct jparser *p)
{
    static const char *const symbols[] = {"+", "-"};
    static const enum jop ops[] = {OP_ADD, OP_SUB};
    return left_chain(p, symbols, ops, 2, parse_concat);
}

/* The comparison at the place, stepped over; false if there is none. */
static bool skip_comparison(struct jparser *p, enum jop *op)
{
    static const char *const symbols[] = {"==", "!=", "<", "<=", ">", ">="};
    for (int i = 0; i < 6; i++) {
        if (jparse_skip_op(p, symbols[i])) {
            *op = (enum jop)(OP_EQ + i);
            return true;
        }
    }
    *op = OP_IN;
    if (jparse_skip_name(p, "in"))
        return true;
    *op = OP_NOT_IN;
    if (!jparse_is_name(p, "not") || jparse_look(p)->kind != T_NAME ||
        !jstr_is(jparse_look(p)->text, "in"))
        return false;
    jparse_step(p);
    jparse_step(p);
    return true;
}

static struct jnode *parse_compare(struct jparser *p)
{
    enum jop op;
    struct jnode *first = parse_sum(p), *n = NULL;
    size_t cap = 0;
    while (skip_comparison(p, &op)) {
        n = n ? n : unary(p, N_COMPARE, first);
        n->ops = jrun_grow(p->r, n->ops, n->items.n, n->items.n + 1, &cap, sizeof *n->ops);
        n->ops[n->items.n] = op;
        jparse_add(p, &n->items, parse_sum(p));
    }
    return n ? n : first;
}

static struct jnode *parse_not(struct jparser *p)
{
    if (!jparse_skip_name(p, "not"))
        return parse_compare(p);
    jrun_enter(p->r);
    struct jnode *n = unary(p, N_NOT, parse_not(p));
    jrun_leave(p->r);
    return n;
}

static struct jnode *parse_and(struct jparser *p)
{
    struct jnode *left = parse_not(p);
    while (jparse_skip_name(p, "and"))
        left = binary(p, N_AND, OP_ADD, left, parse_not(p));
    return left;
}

/* Without "x if y". */
static struct jnode *parse_no_condition(struct jparser *p)
{
    struct jnode *left = parse_and(p);
    while (jparse_skip_name(p, "or"))
        left = binary(p, N_OR, OP_ADD, left, parse_and(p));
    return left;
}

/* Is a condition ahead, inside the same brackets? Then names of filters before it, too, are only
 * looked at when they are reached. */
static bool condition_ahead(const struct jparser *p)
{
    int depth = 0;
    for (size_t i = p->at; i < p->tokens.n; i++) {
        const struct jtoken *t = &p->tokens.items[i];
        jrun_charge(p->r, 1);
        if (t->kind == T_VARIABLE_END || t->kind == T_BLOCK_END || t->kind == T_EOF)
            return false;
        if (t->kind == T_NAME && depth == 0 && jstr_is(t->text, "if"))
            return true;
        if (t->kind == T_OPERATOR && depth == 0 && (t->op[0] == ',' || t->op[0] == ':'))
            return false;
        if (t->kind == T_OPERATOR && strchr("([{", t->op[0]))
            depth++;
        if (t->kind == T_OPERATOR && strchr(")]}", t->op[0]) && depth-- == 0)
            return false;
    }
    return false;
}

struct jnode *jparse_expression(struct jparser *p)
{
    jrun_enter(p->r);
    size_t begin = p->at;
    bool lenient = p->lenient;
    struct jnode *n;
    if (!lenient && condition_ahead(p))
        p->lenient = true;
    n = parse_no_condition(p);
    while (jparse_skip_name(p, "if")) {
        struct jnode *choice = binary(p, N_IF_ELSE, OP_ADD, NULL, n);
        choice->a = parse_no_condition(p);
        if (jparse_skip_name(p, "else"))
            choice->c = jparse_expression(p);
        n = choice;
    }
    p->lenient = lenient;
    jrun_charge(p->r, p->at - begin);
    jrun_leave(p->r);
    return n;
}

/* ---- tuples and targets ---- */

static bool at_tuple_end(const struct jparser *p)
{
    const struct jtoken *t = jparse_now(p);
    return t->kind == T_VARIABLE_END || t->kind == T_BLOCK_END || jparse_is_op(p, ")");
}

static struct jnode *parse_tuple_of(struct jparser *p,
                                    struct jnode *(*one)(struct jparser *),
                                    bool in_parentheses)
{
    char got[64];
    struct jnode *first = NULL, *tuple = NULL;
    while (!at_tuple_end(p)) {
        struct jnode *n = one(p);
        if (tuple)
            jparse_add(p, &tuple->items, n);
        else
            first = n;
        if (!jparse_is_op(p, ","))
            break;
        if (!tuple) {
            tuple = jparse_node(p, N_TUPLE);
            jparse_add(p, &tuple->items, first);
        }
        jparse_step(p);
    }
    if (tuple)
        return tuple;
    if (!first && !in_parentheses)
        jparse_fail(p, "expected an expression, got %s", jparse_describe(jparse_now(p), got));
    return first ? first : jparse_node(p, N_TUPLE);
}

struct jnode *jparse_tuple(struct jparser *p, bool with_condition)
{
    return parse_tuple_of(p, with_condition ? jparse_expression : parse_no_condition, false);
}

static bool can_assign(const struct jnode *n)
{
    if (n->kind == N_TUPLE) {
        for (size_t i = 0; i < n->items.n; i++)
            if (!can_assign(n->items.items[i]))
                return false;
        return true;
    }
    return n->kind == N_NAME || n->kind == N_NSREF;
}

static struct jnode *parse_target_item(struct jparser *p)
{
    return parse_primary_of(p, true);
}

struct jnode *jparse_target(struct jparser *p, bool with_namespace)
{
    struct jnode *n = parse_tuple_of(p, with_namespace ? parse_target_item : parse_primary, false);
    if (!can_assign(n))
        jparse_fail(p, "cannot assign to that");
    return n;
}
