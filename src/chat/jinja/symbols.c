/* Which names a scope makes undefined when it opens, as Jinja2 finds them when it compiles.
 *
 *      {% for m in messages %}{% set x %}{{ x }}!{% endset %}{{ x }}{% endfor %}
 *
 * The body of the loop sets x before it reads it, so x is its own from the start, and the block
 * inside reads an undefined x even if there is a variable x. A name that the body reads first, sets
 * in a branch of an `if` only, or that a scope around it knows keeps its value from outside. */
#include "chat/jinja/ast.h"

/* The scope being looked at; those around it have been gone through. */
struct frame {
    struct jrun *r;
    struct jinja_template *t;
    const struct frame *outer; /* NULL: none; blocks begin anew */
    bool in_loop;              /* where `loop` may not be set */
    struct jnames known;       /* what it reads or sets itself */
    struct jnames *unset;      /* or NULL */
};

static void open_scopes(struct frame *f, const struct jnodes *body);

static bool knows(const struct frame *f, const struct jstr *name)
{
    jrun_charge(f->r, 1 + f->known.n / 16);
    for (size_t i = 0; i < f->known.n; i++)
        if (f->known.items[i] == name)
            return true;
    return false;
}

static bool known_around(const struct frame *f, const struct jstr *name)
{
    for (f = f->outer; f; f = f->outer)
        if (knows(f, name))
            return true;
    return false;
}

/* A parameter, or a name that is read, or that is set only if some condition holds. */
static void note(struct frame *f, const struct jstr *name)
{
    if (!knows(f, name))
        jnames_add(f->r, &f->known, name);
}

static void note_set(struct frame *f, const struct jstr *name, bool always)
{
    if (knows(f, name))
        return;
    jnames_add(f->r, &f->known, name);
    if (!always || known_around(f, name))
        return;
    if (!f->unset)
        f->unset = jrun_alloc(f->r, sizeof *f->unset);
    jnames_add(f->r, f->unset, name);
}

/* ---- expressions and targets ---- */

static void note_expression(struct frame *f, const struct jnode *n);

static void note_args(struct frame *f, const struct jarg_nodes *args)
{
    for (size_t i = 0; args && i < args->n; i++)
        note_expression(f, args->items[i].value);
    note_expression(f, args ? args->star : NULL);
    note_expression(f, args ? args->star_star : NULL);
}

/* Chains are as long as the source, but only to the left. */
static void note_expression(struct frame *f, const struct jnode *n)
{
    jrun_enter(f->r);
    for (; n && n->kind != N_CONST; n = n->a) {
        jrun_charge(f->r, 1);
        if (n->kind == N_NAME)
            note(f, n->text);
        for (size_t i = 0; i < n->items.n; i++)
            note_expression(f, n->items.items[i]);
        note_args(f, n->args);
        note_expression(f, n->b);
        note_expression(f, n->c);
    }
    jrun_leave(f->r);
}

static void note_target(struct frame *f, const struct jnode *n, bool always)
{
    jrun_enter(f->r);
    if (n->text == f->t->loop && n->kind == N_NAME && f->in_loop) {
        f->r->line = n->line;
        jrun_fail_as(f->r, ERR_FORMAT, "in a loop, 'loop' cannot be assigned to");
    }
    if (n->kind == N_NAME)
        note_set(f, n->text, always);
    else if (n->kind == N_NSREF)
        note(f, n->text);
    for (size_t i = 0; i < n->items.n; i++)
        note_target(f, n->items.items[i], always);
    jrun_leave(f->r);
}

/* ---- what a scope does itself ---- */

static void note_body(struct frame *f, const struct jnodes *body, bool always);

/* An if that is all there is in the other branch. Chains of them may be long. */
static struct jnode *elif_of(const struct jnode *n)
{
    const struct jnodes *l = &n->otherwise;
    return l->n == 1 && l->items[0]->kind == N_IF ? l->items[0] : NULL;
}

static void note_if(struct frame *f, const struct jnode *n)
{
    for (; n; n = elif_of(n)) {
        note_expression(f, n->a);
        note_body(f, &n->items, false);
        if (!elif_of(n))
            note_body(f, &n->otherwise, false);
    }
}

static void note_statement(struct frame *f, const struct jnode *n, bool always)
{
    switch (n->kind) {
    case N_OUTPUT:
        for (size_t i = 0; i < n->items.n; i++)
            note_expression(f, n->items.items[i]);
        break;
    case N_IF:
        note_if(f, n);
        break;
    case N_FOR:
        note_expression(f, n->b);
        break;
    case N_SET:
        note_expression(f, n->b);
        note_target(f, n->a, always);
        break;
    case N_SET_BLOCK:
        note_target(f, n->a, always);
        break;
    case N_WITH:
        note_args(f, n->args);
        break;
    case N_MACRO:
        note_set(f, n->text, always);
        break;
    case N_CALL_BLOCK:
    case N_FILTER_BLOCK:
        note_expression(f, n->a);
        break;
    default:
        break;
    }
}

static void note_body(struct frame *f, const struct jnodes *body, bool always)
{
    jrun_enter(f->r);
    for (size_t i = 0; i < body->n; i++)
        note_statement(f, body->items[i], always);
    jrun_leave(f->r);
}

/* ---- the scopes inside ---- */

/* The rest of a scope of which what comes before its body has been noted. */
static const struct jnames *finish(struct frame *f, const struct jnodes *body)
{
    note_body(f, body, true);
    open_scopes(f, body);
    return f->unset;
}

static struct frame inside(const struct frame *outer)
{
    return (struct frame){.r = outer->r, .t = outer->t, .outer = outer, .in_loop = outer->in_loop};
}

static void open_for(struct frame *outer, struct jnode *n)
{
    struct frame f = inside(outer), otherwise = inside(outer);
    otherwise.in_loop = true;
    f.in_loop = true;
    note(&f, f.t->loop);
    note_target(&f, n->a, false);
    n->unset = finish(&f, &n->items);
    n->unset_otherwise = finish(&otherwise, &n->otherwise);
}

static void open_with(struct frame *outer, struct jnode *n)
{
    struct frame f = inside(outer);
    f.in_loop = false;
    for (size_t i = 0; i < n->args->n; i++)
        note_target(&f, n->targets[i], false);
    f.in_loop = outer->in_loop;
    n->unset = finish(&f, &n->items);
}

static void open_macro(struct frame *outer, struct jnode *n)
{
    struct frame f = inside(outer);
    for (size_t i = 0; i < n->args->n; i++)
        note(&f, n->args->items[i].name);
    if (n->uses_caller)
        note(&f, f.t->caller);
    if (n->uses_varargs)
        note(&f, f.t->varargs);
    if (n->uses_kwargs)
        note(&f, f.t->kwargs);
    note_args(&f, n->args);
    n->unset = finish(&f, &n->items);
}

static void open_block(struct frame *outer, struct jnode *n)
{
    struct frame f = {.r = outer->r, .t = outer->t, .in_loop = outer->in_loop};
    note(&f, f.t->self);
    n->unset = finish(&f, &n->items);
}

static void open_other(struct frame *outer, struct jnode *n)
{
    struct frame f = inside(outer);
    if (n->kind == N_SCOPE)
        note_expression(&f, n->a);
    n->unset = finish(&f, &n->items);
}

static void open_if(struct frame *f, const struct jnode *n)
{
    for (; n; n = elif_of(n)) {
        open_scopes(f, &n->items);
        if (!elif_of(n))
            open_scopes(f, &n->otherwise);
    }
}

static void open_scope(struct frame *f, struct jnode *n)
{
    switch (n->kind) {
    case N_IF:
        open_if(f, n);
        break;
    case N_FOR:
        open_for(f, n);
        break;
    case N_WITH:
        open_with(f, n);
        break;
    case N_MACRO:
        open_macro(f, n);
        break;
    case N_CALL_BLOCK:
        open_macro(f, n->b);
        break;
    case N_BLOCK:
        open_block(f, n);
        break;
    case N_SET_BLOCK:
    case N_FILTER_BLOCK:
    case N_SCOPE:
        open_other(f, n);
        break;
    default:
        break;
    }
}

static void open_scopes(struct frame *f, const struct jnodes *body)
{
    jrun_enter(f->r);
    for (size_t i = 0; i < body->n; i++)
        open_scope(f, body->items[i]);
    jrun_leave(f->r);
}

void jinja_find_symbols(struct jrun *r, struct jinja_template *t)
{
    struct frame f = {.r = r, .t = t};
    note(&f, t->self);
    t->unset = finish(&f, &t->body);
}
