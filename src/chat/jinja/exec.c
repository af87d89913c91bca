/* Statements. */
#include "chat/jinja/eval.h"

#include <stdio.h>

static void assign(struct jrun *r, struct jscope *s, const struct jnode *target, struct jval v)
{
    if (target->kind == N_NAME) {
        jscope_set(r, s, target->text, v);
        return;
    }
    if (target->kind == N_NSREF) {
        struct jval ns = jscope_get(r, s, target->text);
        if (ns.kind != J_NAMESPACE)
            jrun_fail(r, "cannot assign attribute on non-namespace object");
        jdict_set(r, ns.dict, jval_str(target->attr), v);
        return;
    }
    if (!jval_iterable(v))
        jrun_fail(r, "cannot unpack non-iterable %s object", jval_type(v));
    const struct jlist *l = jval_items(r, v);
    if (l->n > target->items.n)
        jrun_fail(r, "too many values to unpack (expected %zu)", target->items.n);
    if (l->n < target->items.n)
        jrun_fail(r, "not enough values to unpack (expected %zu, got %zu)", target->items.n, l->n);
    for (size_t i = 0; i < l->n; i++)
        assign(r, s, target->items.items[i], l->items[i]);
}

/* ---- loops ---- */

/* What was assigned to a target, put together again. */
static struct jval assigned(struct jrun *r, const struct jscope *s, const struct jnode *target)
{
    if (target->kind == N_NAME)
        return jscope_get(r, s, target->text);
    struct jval *items = jrun_alloc_n(r, target->items.n, sizeof *items);
    for (size_t i = 0; i < target->items.n; i++)
        items[i] = assigned(r, s, target->items.items[i]);
    return jval_tuple(r, items, target->items.n);
}

/* The next item for which the condition, if there is one, holds. It went through the target then,
 * and is a tuple where that is one. */
static bool next_item(struct jrun *r, struct jloop *l, struct jval *out)
{
    while (jwalk_next(r, &l->walk, out)) {
        if (!l->node->c || l->ended)
            return true;
        struct jscope *s = jscope_new(r, l->outer, NULL);
        assign(r, s, l->node->a, *out);
        if (!jval_true(r, jeval(r, s, l->node->c)))
            continue;
        if (l->node->a->kind == N_TUPLE)
            *out = assigned(r, s, l->node->a);
        return true;
    }
    return false;
}

static void peek(struct jrun *r, struct jloop *l)
{
    if (l->has_after)
        return;
    l->has_after = true;
    if (!next_item(r, l, &l->after))
        l->after = (struct jval){.kind = J_MISSING};
}

/* One item ahead was taken only if the template asked for it. */
static bool advance(struct jrun *r, struct jloop *l, struct jval *out)
{
    peek(r, l);
    if (l->after.kind == J_MISSING)
        return false;
    l->has_after = false;
    l->before = l->current;
    l->current = *out = l->after;
    l->index0++;
    return true;
}

/* Where it cannot be asked for, the rest of the items is taken now. */
static int64_t length_of(struct jrun *r, struct jloop *l)
{
    if (l->length >= 0)
        return l->length;
    l->length = l->node->c ? -1 : jval_len(l->iterable);
    if (l->length < 0) {
        struct jitems rest = {0};
        for (struct jval v; next_item(r, l, &v);)
            jitems_add(r, &rest, v);
        l->walk = jwalk_begin(r, jval_list(r, rest.items, rest.n));
        l->ended = true;
        l->length = (int64_t)rest.n + l->index0 + 1 + (l->has_after && l->after.kind != J_MISSING);
    }
    return l->length;
}

void jloop_repr(struct jsb *b, struct jval loop)
{
    char s[64];
    long long length = length_of(b->r, loop.loop);
    snprintf(s, sizeof s, "<LoopContext %lld/%lld>", (long long)loop.loop->index0 + 1, length);
    jsb_lit(b, s);
}

struct jval jloop_attr(struct jrun *r, struct jval loop, const struct jstr *name)
{
    struct jloop *l = loop.loop;
    if (jstr_is(name, "index"))
        return jval_int(l->index0 + 1);
    if (jstr_is(name, "index0"))
        return jval_int(l->index0);
    if (jstr_is(name, "first"))
        return jval_bool(l->index0 == 0);
    if (jstr_is(name, "last"))
        return peek(r, l), jval_bool(l->after.kind == J_MISSING);
    if (jstr_is(name, "length"))
        return jval_int(length_of(r, l));
    if (jstr_is(name, "revindex"))
        return jval_int(length_of(r, l) - l->index0);
    if (jstr_is(name, "revindex0"))
        return jval_int(length_of(r, l) - l->index0 - 1);
    if (jstr_is(name, "depth"))
        return jval_int(l->depth0 + 1);
    if (jstr_is(name, "depth0"))
        return jval_int(l->depth0);
    if (jstr_is(name, "previtem"))
        return l->index0 == 0 ? jval_undefined_as(r, "there is no previous item") : l->before;
    if (jstr_is(name, "nextitem")) {
        peek(r, l);
        return l->after.kind == J_MISSING ? jval_undefined_as(r, "there is no next item")
                                          : l->after;
    }
    return (struct jval){.kind = J_MISSING};
}

enum jflow jexec_for(struct jrun *r,
                     struct jscope *outer,
                     const struct jnode *n,
                     struct jval iterable,
                     int64_t depth0,
                     struct jsb *out)
{
    struct jloop *l = jrun_alloc(r, sizeof *l);
    *l = (struct jloop){.node = n,
                        .outer = outer,
                        .iterable = iterable,
                        .walk = jwalk_begin(r, iterable),
                        .index0 = -1,
                        .depth0 = depth0,
                        .length = -1};
    struct jval loop = {.kind = J_LOOP, .loop = l}, item;
    struct jscope *s = jscope_new(r, outer, NULL);
    bool completed = false; /* some body ran to its end */
    while (advance(r, l, &item)) {
        if (s->captured)
            s = jscope_new(r, outer, NULL);
        jscope_restart(r, s, n->unset);
        jscope_set(r, s, r->tmpl->loop, loop);
        assign(r, s, n->a, item);
        enum jflow flow = jexec(r, s, &n->items, out);
        completed |= flow == FLOW_ON;
        if (flow == FLOW_BREAK)
            break;
    }
    if (completed || n->otherwise.n == 0)
        return FLOW_ON;
    return jexec(r, jscope_new(r, outer, n->unset_otherwise), &n->otherwise, out);
}

/* ---- the rest ---- */

/* What a body renders in the scope that is its own, as a string; nothing where it jumps away. */
static enum jflow render(struct jrun *r, struct jscope *s, const struct jnode *n, struct jval *out)
{
    struct jsb b = JSB(r);
    const enum jflow flow = jexec(r, s, &n->items, &b);
    *out = jval_str(jstr_as_markup(r, jsb_done(&b), r->autoescape));
    return flow;
}

static void exec_output(struct jrun *r, struct jscope *s, const struct jnode *n, struct jsb *out)
{
    for (size_t i = 0; i < n->items.n; i++) {
        struct jval v = jeval(r, s, n->items.items[i]);
        if (!r->autoescape)
            jval_print(out, v);
        else
            jsb_str(out, jstr_escape(r, jval_to_str(r, v)));
    }
}

static enum jflow exec_with(struct jrun *r,
                            struct jscope *s,
                            const struct jnode *n,
                            struct jsb *out)
{
    struct jscope *inner = jscope_new(r, s, n->unset);
    for (size_t i = 0; i < n->args->n; i++)
        assign(r, inner, n->targets[i], jeval(r, s, n->args->items[i].value));
    return jexec(r, inner, &n->items, out);
}

static struct jval new_macro(struct jrun *r, struct jscope *s, const struct jnode *n)
{
    struct jmacro *m = jrun_alloc(r, sizeof *m);
    *m = (struct jmacro){n, s};
    for (struct jscope *at = s; at; at = at->parent)
        at->captured = true;
    return (struct jval){.kind = J_MACRO, .macro = m};
}

/* The call, with the block as the keyword `caller`. */
static void exec_call_block(struct jrun *r,
                            struct jscope *s,
                            const struct jnode *n,
                            struct jsb *out)
{
    struct jval caller = new_macro(r, s, n->b);
    struct jval callee = jeval(r, s, n->a->a);
    struct jargs args = jeval_args(r, s, n->a->args);
    struct jkeyword *keywords = jrun_alloc_n(r, args.n_keywords + 1, sizeof *keywords);
    for (size_t i = 0; i < args.n_keywords; i++)
        keywords[i] = args.keywords[i];
    keywords[args.n_keywords++] = (struct jkeyword){r->tmpl->caller, caller};
    args.keywords = keywords;
    jval_print(out, jval_call(r, callee, &args));
}

static enum jflow exec_scope(struct jrun *r,
                             struct jscope *s,
                             const struct jnode *n,
                             struct jsb *out)
{
    bool before = r->autoescape;
    if (n->a)
        r->autoescape = jval_true(r, jeval(r, s, n->a));
    const enum jflow flow = jexec(r, jscope_new(r, s, n->unset), &n->items, out);
    r->autoescape = before;
    return flow;
}

static enum jflow exec_set_block(struct jrun *r, struct jscope *s, const struct jnode *n)
{
    struct jval text;
    struct jscope *inner = jscope_new(r, s, n->unset);
    const enum jflow flow = render(r, inner, n, &text);
    if (flow == FLOW_ON)
        text = jeval_filters(r, inner, n->b, text);
    if (flow == FLOW_ON && r->autoescape)
        text = jval_str(jstr_as_markup(r, jval_to_str(r, text), true));
    if (flow == FLOW_ON)
        assign(r, s, n->a, text);
    return flow;
}

static enum jflow exec_filter_block(struct jrun *r,
                                    struct jscope *s,
                                    const struct jnode *n,
                                    struct jsb *out)
{
    struct jval text;
    struct jscope *inner = jscope_new(r, s, n->unset);
    const enum jflow flow = render(r, inner, n, &text);
    if (flow != FLOW_ON)
        return flow;
    text = jeval_filters(r, inner, n->a, text);
    if (text.kind != J_STR)
        jrun_fail(r, "sequence item 0: expected str instance, %s found", jval_type(text));
    jval_print(out, text);
    return flow;
}

/* Blocks stand for themselves: no autoescape around them counts inside. */
static void exec_block_body(struct jrun *r,
                            struct jscope *around,
                            const struct jnode *n,
                            struct jsb *out)
{
    bool before = r->autoescape;
    struct jscope *s = jscope_new(r, around, n->unset);
    s->block = true;
    r->autoescape = false;
    (void)jexec(r, s, &n->items, out);
    r->autoescape = before;
}

/* What a block that is no scoped one sees: what the template set at its top, or what the block that
 * it is in sees of its surroundings. */
static struct jscope *around_block(struct jrun *r, struct jscope *s)
{
    for (; s; s = s->parent)
        if (s->block)
            return s->parent;
    return r->root;
}

struct jval jblock_call(struct jrun *r, const struct jnode *block)
{
    struct jsb b = JSB(r);
    exec_block_body(r, r->root, block, &b);
    return jval_str(jstr_as_markup(r, jsb_done(&b), r->autoescape));
}

static enum jflow exec_if(struct jrun *r, struct jscope *s, const struct jnode *n, struct jsb *out)
{
    return jexec(r, s, jval_true(r, jeval(r, s, n->a)) ? &n->items : &n->otherwise, out);
}

static enum jflow exec(struct jrun *r, struct jscope *s, const struct jnode *n, struct jsb *out)
{
    switch (n->kind) {
    case N_DATA:
        jsb_str(out, n->value.s);
        break;
    case N_OUTPUT:
        exec_output(r, s, n, out);
        break;
    case N_IF:
        return exec_if(r, s, n, out);
    case N_FOR:
        return jexec_for(r, s, n, jeval(r, s, n->b), 0, out);
    case N_SET:
        assign(r, s, n->a, jeval(r, s, n->b));
        break;
    case N_SET_BLOCK:
        return exec_set_block(r, s, n);
    case N_WITH:
        return exec_with(r, s, n, out);
    case N_MACRO:
        jscope_set(r, s, n->text, new_macro(r, s, n));
        break;
    case N_CALL_BLOCK:
        exec_call_block(r, s, n, out);
        break;
    case N_FILTER_BLOCK:
        return exec_filter_block(r, s, n, out);
    case N_BLOCK:
        exec_block_body(r, n->flag ? s : around_block(r, s), n, out);
        break;
    case N_SCOPE:
        return exec_scope(r, s, n, out);
    case N_BREAK:
        return FLOW_BREAK;
    case N_CONTINUE:
        return FLOW_CONTINUE;
    default:
        jrun_fail_as(r, ERR_INTERNAL, "no statement of kind %d", (int)n->kind);
    }
    return FLOW_ON;
}

enum jflow jexec(struct jrun *r, struct jscope *s, const struct jnodes *body, struct jsb *out)
{
    enum jflow flow = FLOW_ON;
    jrun_enter(r);
    for (size_t i = 0; i < body->n && flow == FLOW_ON; i++) {
        jrun_charge(r, 1);
        r->line = body->items[i]->line;
        flow = exec(r, s, body->items[i], out);
    }
    jrun_leave(r);
    return flow;
}
