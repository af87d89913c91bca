/* Statements: what stands between {% and %}. */
#include "chat/jinja/parser.h"

#include <stdio.h>
#include <string.h>

static void parse_body(struct jparser *p, struct jnodes *out, const char *const *ends);

static void expect_block_end(struct jparser *p)
{
    if (jparse_now(p)->kind != T_BLOCK_END)
        jparse_fail(p, "expected '%%}'");
    jparse_step(p);
}

/* "%}", statements, and "{%" before the name that ended them, at which this stops. */
static void parse_statements(struct jparser *p, struct jnodes *out, const char *const *ends)
{
    jparse_skip_op(p, ":");
    expect_block_end(p);
    parse_body(p, out, ends);
}

/* The same, up to and with the name `end`, in a frame of its own. */
static void parse_until(struct jparser *p, struct jnodes *out, const char *end)
{
    const char *const ends[] = {end, NULL};
    bool lenient = p->lenient;
    p->lenient = false;
    parse_statements(p, out, ends);
    p->lenient = lenient;
    jparse_step(p);
}

/* A statement whose first name is stepped over. */
static struct jnode *begin(struct jparser *p, enum jnode_kind kind)
{
    struct jnode *n = jparse_node(p, kind);
    jparse_step(p);
    return n;
}

/* A body that no jump leaves. */
static void parse_closed(struct jparser *p, struct jnodes *out, const char *end)
{
    uint32_t loops = p->loops;
    p->loops = 0;
    parse_until(p, out, end);
    p->loops = loops;
}

/* ---- for, if ---- */

static struct jnode *parse_for(struct jparser *p)
{
    static const char *const ends[] = {"endfor", "else", NULL};
    struct jnode *n = begin(p, N_FOR);
    bool lenient = p->lenient;
    n->a = jparse_target(p, false);
    if (!jparse_skip_name(p, "in"))
        jparse_fail(p, "expected 'in'");
    n->b = jparse_tuple(p, false);
    p->lenient = false;
    if (jparse_skip_name(p, "if"))
        n->c = jparse_expression(p);
    n->flag = jparse_skip_name(p, "recursive");
    p->loops++;
    parse_statements(p, &n->items, ends);
    p->loops--;
    bool has_else = jparse_is_name(p, "else");
    jparse_step(p);
    if (has_else)
        parse_until(p, &n->otherwise, "endfor");
    p->lenient = lenient;
    return n;
}

/* elif is an if in the other branch. */
static struct jnode *parse_if(struct jparser *p)
{
    static const char *const ends[] = {"elif", "else", "endif", NULL};
    struct jnode *first = jparse_node(p, N_IF), *n = first;
    bool lenient = p->lenient;
    p->lenient = true;
    jparse_step(p);
    for (;;) {
        n->a = jparse_tuple(p, false);
        parse_statements(p, &n->items, ends);
        if (!jparse_skip_name(p, "elif"))
            break;
        struct jnode *next = jparse_node(p, N_IF);
        jparse_add(p, &n->otherwise, next);
        n = next;
    }
    if (jparse_skip_name(p, "else"))
        parse_statements(p, &n->otherwise, ends + 2);
    jparse_step(p); /* endif */
    p->lenient = lenient;
    return first;
}

/* ---- set, with ---- */

static struct jnode *parse_set(struct jparser *p)
{
    struct jnode *n = begin(p, N_SET);
    n->a = jparse_target(p, true);
    if (jparse_skip_op(p, "=")) {
        n->b = jparse_tuple(p, true);
        return n;
    }
    n->kind = N_SET_BLOCK;
    n->b = jparse_filters(p, NULL, false);
    parse_until(p, &n->items, "endset");
    return n;
}

static struct jnode *parse_with(struct jparser *p)
{
    struct jnode *n = begin(p, N_WITH);
    struct jnodes targets = {0};
    n->args = jrun_alloc(p->r, sizeof *n->args);
    while (jparse_now(p)->kind != T_BLOCK_END) {
        if (targets.n > 0)
            jparse_expect_op(p, ",");
        jparse_add(p, &targets, jparse_target(p, false));
        jparse_expect_op(p, "=");
        jparse_add_arg(p, n->args, NULL, jparse_expression(p));
    }
    n->targets = targets.items;
    parse_until(p, &n->items, "endwith");
    return n;
}

/* ---- macros and calls ---- */

/* "(a, b=1)" */
static void parse_signature(struct jparser *p, struct jnode *macro)
{
    bool defaults = false;
    macro->args = jrun_alloc(p->r, sizeof *macro->args);
    jparse_expect_op(p, "(");
    while (!jparse_is_op(p, ")")) {
        if (macro->args->n > 0)
            jparse_expect_op(p, ",");
        const struct jstr *name = jparse_expect_name(p);
        struct jnode *value = NULL;
        for (size_t i = 0; i < macro->args->n; i++)
            if (macro->args->items[i].name == name)
                jparse_fail(p, "a macro has two parameters of one name");
        if (jparse_skip_op(p, "=")) {
            value = jparse_expression(p);
            defaults = true;
        } else if (defaults) {
            jparse_fail(p, "non-default argument follows default argument");
        }
        if (name == p->t->caller && !value)
            jparse_fail(p, "the special argument 'caller' must have a default");
        jparse_add_arg(p, macro->args, name, value);
    }
    jparse_expect_op(p, ")");
}

/* The body up to `end`, in which the macro is the innermost. */
static void parse_macro_body(struct jparser *p, struct jnode *macro, const char *end)
{
    macro->c = p->macro;
    p->macro = macro;
    parse_closed(p, &macro->items, end);
    p->macro = macro->c;
    macro->c = NULL;
}

static struct jnode *parse_macro(struct jparser *p)
{
    struct jnode *n = begin(p, N_MACRO);
    n->text = jparse_expect_name(p);
    parse_signature(p, n);
    parse_macro_body(p, n, "endmacro");
    return n;
}

/* {% call(x) f(y) %}: the body is a macro that f knows as `caller`. */
static struct jnode *parse_call_block(struct jparser *p)
{
    struct jnode *n = jparse_node(p, N_CALL_BLOCK);
    n->b = jparse_node(p, N_MACRO);
    jparse_step(p);
    if (jparse_is_op(p, "("))
        parse_signature(p, n->b);
    else
        n->b->args = jrun_alloc(p->r, sizeof *n->b->args);
    n->a = jparse_expression(p);
    if (n->a->kind != N_CALL)
        jparse_fail(p, "expected a call");
    parse_macro_body(p, n->b, "endcall");
    return n;
}

static struct jnode *parse_filter_block(struct jparser *p)
{
    struct jnode *n = begin(p, N_FILTER_BLOCK);
    n->a = jparse_filters(p, NULL, true);
    parse_until(p, &n->items, "endfilter");
    return n;
}

/* ---- the rest ---- */

static struct jnode *parse_block(struct jparser *p)
{
    struct jnode *n = begin(p, N_BLOCK);
    n->text = jparse_expect_name(p);
    n->flag = jparse_skip_name(p, "scoped");
    jparse_skip_name(p, "required");
    for (size_t i = 0; i < p->t->blocks.n; i++)
        if (p->t->blocks.items[i]->text == n->text)
            jparse_fail(p, "a block is defined twice");
    jparse_add(p, &p->t->blocks, n);
    parse_closed(p, &n->items, "endblock");
    if (jparse_now(p)->kind == T_NAME && jstr_eq(jparse_now(p)->text, n->text))
        jparse_step(p);
    return n;
}

/* Marks what an assistant wrote: the text itself. The body is a scope that no jump leaves. */
static struct jnode *parse_generation(struct jparser *p)
{
    struct jnode *n = begin(p, N_SCOPE);
    parse_closed(p, &n->items, "endgeneration");
    return n;
}

static struct jnode *parse_autoescape(struct jparser *p)
{
    struct jnode *n = begin(p, N_SCOPE);
    n->a = jparse_expression(p);
    parse_until(p, &n->items, "endautoescape");
    return n;
}

/* Does it depend on no variable? `depth` bounds chains, which are as deep as they are long. */
static bool is_constant(const struct jnode *n, int depth)
{
    if (!n || n->kind == N_CONST)
        return true;
    if (n->kind == N_NAME || n->kind == N_CALL || depth == JINJA_MAX_DEPTH)
        return false;
    for (size_t i = 0; i < n->items.n; i++)
        if (!is_constant(n->items.items[i], depth + 1))
            return false;
    for (size_t i = 0; n->args && i < n->args->n; i++)
        if (!is_constant(n->args->items[i].value, depth + 1))
            return false;
    return is_constant(n->a, depth + 1) && is_constant(n->b, depth + 1) &&
           is_constant(n->c, depth + 1);
}

/* Slices of what cannot be sliced are undefined here, not errors. */
static void forgive_slices(struct jnode *n)
{
    if (!n || n->kind == N_CONST)
        return;
    n->flag |= n->kind == N_ITEM;
    for (size_t i = 0; i < n->items.n; i++)
        forgive_slices(n->items.items[i]);
    for (size_t i = 0; n->args && i < n->args->n; i++)
        forgive_slices(n->args->items[i].value);
    forgive_slices(n->a);
    forgive_slices(n->b);
    forgive_slices(n->c);
}

/* Jinja2 computes an output of constants when it compiles, and is more forgiving there. */
static void add_output(struct jparser *p, struct jnode *output, struct jnode *expression)
{
    if (is_constant(expression, 0))
        forgive_slices(expression);
    jparse_add(p, &output->items, expression);
}

static struct jnode *parse_print(struct jparser *p)
{
    struct jnode *n = begin(p, N_OUTPUT);
    while (jparse_now(p)->kind != T_BLOCK_END) {
        if (n->items.n > 0)
            jparse_expect_op(p, ",");
        add_output(p, n, jparse_expression(p));
    }
    return n;
}

static struct jnode *parse_jump(struct jparser *p)
{
    bool breaks = jparse_is_name(p, "break");
    struct jnode *n = jparse_node(p, breaks ? N_BREAK : N_CONTINUE);
    if (p->loops == 0)
        jparse_fail(p, "'%s' outside of a loop", breaks ? "break" : "continue");
    jparse_step(p);
    return n;
}

static struct jnode *refuse_other_templates(struct jparser *p)
{
    const struct jstr *name = jparse_now(p)->text;
    p->r->line = jparse_now(p)->line;
    jrun_fail_as(p->r,
                 ERR_UNSUPPORTED,
                 "'%.*s' of other templates is not supported",
                 (int)name->len,
                 name->data);
}

static struct jnode *parse_statement(struct jparser *p)
{
    static const struct {
        const char *name;
        struct jnode *(*parse)(struct jparser *p);
    } statements[] = {{"for", parse_for},
                      {"if", parse_if},
                      {"set", parse_set},
                      {"macro", parse_macro},
                      {"break", parse_jump},
                      {"continue", parse_jump},
                      {"generation", parse_generation},
                      {"call", parse_call_block},
                      {"filter", parse_filter_block},
                      {"with", parse_with},
                      {"print", parse_print},
                      {"block", parse_block},
                      {"autoescape", parse_autoescape},
                      {"include", refuse_other_templates},
                      {"import", refuse_other_templates},
                      {"from", refuse_other_templates},
                      {"extends", refuse_other_templates}};
    const struct jtoken *t = jparse_now(p);
    if (t->kind != T_NAME)
        jparse_fail(p, "expected the name of a tag");
    for (size_t i = 0; i < sizeof statements / sizeof statements[0]; i++)
        if (jstr_is(t->text, statements[i].name))
            return statements[i].parse(p);
    jparse_fail(p, "unknown tag '%.*s'", JSTR_UP_TO(60, t->text));
}

static struct jnode *parse_output(struct jparser *p)
{
    struct jnode *n = begin(p, N_OUTPUT);
    add_output(p, n, jparse_tuple(p, true));
    if (jparse_now(p)->kind != T_VARIABLE_END)
        jparse_fail(p, "expected '}}'");
    jparse_step(p);
    return n;
}

static bool is_end(const struct jparser *p, const char *const *ends)
{
    for (; ends && *ends; ends++)
        if (jparse_is_name(p, *ends))
            return true;
    return false;
}

/* Up to one of `ends` behind "{%", or the end of the source where `ends` is NULL. */
static void parse_body(struct jparser *p, struct jnodes *out, const char *const *ends)
{
    jrun_enter(p->r);
    for (;;) {
        const struct jtoken *t = jparse_now(p);
        if (t->kind == T_EOF) {
            if (ends)
                jparse_fail(p, "unexpected end of template, looking for '%s'", ends[0]);
            break;
        }
        if (t->kind == T_DATA) {
            struct jnode *n = jparse_node(p, N_DATA);
            n->value = jval_str(t->text);
            jparse_add(p, out, n);
            jparse_step(p);
        } else if (t->kind == T_VARIABLE_BEGIN) {
            jparse_add(p, out, parse_output(p));
        } else {
            jparse_step(p); /* {% */
            if (is_end(p, ends))
                break;
            jparse_add(p, out, parse_statement(p));
            expect_block_end(p);
        }
    }
    jrun_leave(p->r);
}

static const struct jstr *intern_literal(struct jparser *p, const char *name)
{
    return jparse_intern(p, jstr_lit(p->r, name));
}

void jinja_parse(struct jrun *r, const char *source, size_t n, struct jinja_template *t)
{
    struct jparser p = {.r = r, .t = t};
    t->loop = intern_literal(&p, "loop");
    t->caller = intern_literal(&p, "caller");
    t->varargs = intern_literal(&p, "varargs");
    t->kwargs = intern_literal(&p, "kwargs");
    t->self = intern_literal(&p, "self");
    jinja_lex(r, source, n, &p.tokens);
    parse_body(&p, &t->body, NULL);
    jinja_find_symbols(r, t);
}
