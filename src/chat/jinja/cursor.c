/* The place in the tokens, and new nodes: what both parts of the parser stand on. */
#include "chat/jinja/parser.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* ---- tokens ---- */

_Noreturn void jparse_fail(struct jparser *p, const char *fmt, ...)
{
    char text[300];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    p->r->line = jparse_now(p)->line;
    jrun_fail_as(p->r, ERR_FORMAT, "%s", text);
}

const char *jparse_describe(const struct jtoken *t, char out[64])
{
    static const char *const names[] = {[T_EOF] = "end of template",
                                        [T_DATA] = "text",
                                        [T_VARIABLE_BEGIN] = "'{{'",
                                        [T_VARIABLE_END] = "'}}'",
                                        [T_BLOCK_BEGIN] = "'{%'",
                                        [T_BLOCK_END] = "'%}'",
                                        [T_STRING] = "a string",
                                        [T_INT] = "an integer",
                                        [T_FLOAT] = "a float"};
    if (t->kind == T_NAME)
        snprintf(out, 64, "'%.*s'", JSTR_UP_TO(40, t->text));
    else if (t->kind == T_OPERATOR)
        snprintf(out, 64, "'%s'", t->op);
    else
        snprintf(out, 64, "%s", names[t->kind]);
    return out;
}

const struct jtoken *jparse_look(const struct jparser *p)
{
    return &p->tokens.items[p->at + 1 < p->tokens.n ? p->at + 1 : p->at];
}

void jparse_step(struct jparser *p)
{
    if (p->at + 1 < p->tokens.n)
        p->at++;
}

bool jparse_is_op(const struct jparser *p, const char *op)
{
    return jparse_now(p)->kind == T_OPERATOR && strcmp(jparse_now(p)->op, op) == 0;
}

bool jparse_is_name(const struct jparser *p, const char *name)
{
    return jparse_now(p)->kind == T_NAME && jstr_is(jparse_now(p)->text, name);
}

bool jparse_skip_op(struct jparser *p, const char *op)
{
    bool is = jparse_is_op(p, op);
    if (is)
        jparse_step(p);
    return is;
}

bool jparse_skip_name(struct jparser *p, const char *name)
{
    bool is = jparse_is_name(p, name);
    if (is)
        jparse_step(p);
    return is;
}

void jparse_expect_op(struct jparser *p, const char *op)
{
    char got[64];
    if (!jparse_skip_op(p, op))
        jparse_fail(p, "expected '%s', got %s", op, jparse_describe(jparse_now(p), got));
}

const struct jstr *jparse_expect_name(struct jparser *p)
{
    char got[64];
    const struct jtoken *t = jparse_now(p);
    if (t->kind != T_NAME)
        jparse_fail(p, "expected a name, got %s", jparse_describe(t, got));
    jparse_step(p);
    return jparse_intern(p, t->text);
}

/* ---- nodes ---- */

struct jnode *jparse_node(struct jparser *p, enum jnode_kind kind)
{
    struct jnode *n = jrun_alloc(p->r, sizeof *n);
    n->kind = kind;
    n->line = jparse_now(p)->line;
    return n;
}

void jparse_add(struct jparser *p, struct jnodes *l, struct jnode *n)
{
    l->items = jrun_grow(p->r, l->items, l->n, l->n + 1, &l->cap, sizeof(void *));
    l->items[l->n++] = n;
}

void jnames_add(struct jrun *r, struct jnames *l, const struct jstr *name)
{
    l->items = jrun_grow(r, l->items, l->n, l->n + 1, &l->cap, sizeof(void *));
    l->items[l->n++] = name;
}

void jparse_add_arg(struct jparser *p,
                    struct jarg_nodes *l,
                    const struct jstr *name,
                    struct jnode *value)
{
    l->items = jrun_grow(p->r, l->items, l->n, l->n + 1, &l->cap, sizeof *l->items);
    l->items[l->n++] = (struct jarg){name, value};
    l->n_positional += name == NULL;
}

/* A template has some dozens of names; a hostile one is bounded by its source. */
const struct jstr *jparse_intern(struct jparser *p, const struct jstr *name)
{
    struct jnames *l = &p->t->names;
    jrun_charge(p->r, l->n / 16);
    for (size_t i = 0; i < l->n; i++)
        if (jstr_eq(l->items[i], name))
            return l->items[i];
    jnames_add(p->r, l, name);
    return name;
}
