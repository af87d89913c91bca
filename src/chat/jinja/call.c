/* Calling: arguments to parameters, macros, and the global functions. */
#include "chat/jinja/eval.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

/* ---- arguments ---- */

/* Index of the parameter `name` in "a b c", or -1. */
static int find_param(const char *params, const struct jstr *name)
{
    int i = 0;
    for (const char *at = params; *at; i++) {
        size_t n = strcspn(at, " ");
        if (n == name->len && memcmp(at, name->data, n) == 0)
            return i;
        at += n;
        at += *at == ' ';
    }
    return -1;
}

static int count_params(const char *params)
{
    int n = *params != '\0';
    for (; *params; params++)
        n += *params == ' ';
    return n;
}

static struct jval call_bound(struct jrun *r,
                              const struct jbuiltin *b,
                              struct jval self,
                              const struct jargs *args)
{
    struct jval bound[JMAX_PARAMS] = {{0}};
    bool by_position = b->params[0] == '/';
    const char *params = b->params + by_position;
    int n_params = count_params(params);
    if (args->n > (size_t)n_params)
        jrun_fail(r, "%s() takes at most %d arguments (%zu given)", b->name, n_params, args->n);
    for (size_t i = 0; i < args->n; i++)
        bound[i] = args->items[i];
    for (size_t i = 0; i < args->n_keywords; i++) {
        const struct jstr *name = args->keywords[i].name;
        int at = by_position ? -1 : find_param(params, name);
        if (at < 0)
            jrun_fail(
                r, "%s() got an unexpected keyword argument '%.*s'", b->name, JSTR_UP_TO(60, name));
        if (bound[at].kind != J_MISSING)
            jrun_fail(
                r, "%s() got multiple values for argument '%.*s'", b->name, JSTR_UP_TO(60, name));
        bound[at] = args->keywords[i].value;
    }
    for (int i = 0; i < b->n_required; i++)
        if (bound[i].kind == J_MISSING)
            jrun_fail(r, "%s() misses a required argument", b->name);
    return b->fn(r, self, bound);
}

/* Nests: map may call map. */
struct jval jbuiltin_call(struct jrun *r,
                          const struct jbuiltin *b,
                          struct jval self,
                          const struct jargs *args)
{
    jrun_enter(r);
    struct jval v = b->any ? b->any(r, self, args) : call_bound(r, b, self, args);
    jrun_leave(r);
    return v;
}

int64_t jarg_int(struct jrun *r, struct jval v, int64_t missing)
{
    if (v.kind == J_MISSING)
        return missing;
    jval_expect_defined(r, v);
    if (!jval_is_int(v))
        jrun_fail(r, "'%s' object cannot be interpreted as an integer", jval_type(v));
    return jval_as_int(v);
}

bool jarg_bool(struct jrun *r, struct jval v, bool missing)
{
    return v.kind == J_MISSING ? missing : jval_true(r, v);
}

const struct jstr *jarg_str(struct jrun *r, struct jval v)
{
    jval_expect_defined(r, v);
    if (v.kind != J_STR)
        jrun_fail(r, "must be str, not %s", jval_type(v));
    return v.s;
}

/* A filter or test by a value that names it. */
static const struct jbuiltin *named(struct jrun *r,
                                    struct jval name,
                                    const char *kind,
                                    const struct jbuiltin *(*find)(const struct jstr *name))
{
    if (name.kind == J_UNDEFINED)
        jrun_fail(r, "no %s named Undefined; did you forget to quote its name?", kind);
    const struct jstr *s = jarg_str(r, name);
    const struct jbuiltin *b = find(s);
    if (!b)
        jrun_fail(r, "no %s named '%.*s'", kind, JSTR_UP_TO(60, s));
    return b;
}

struct jval jcall_filter(struct jrun *r, struct jval name, struct jval v, const struct jargs *args)
{
    return jbuiltin_call(r, named(r, name, "filter", jfilter_find), v, args);
}

bool jcall_test(struct jrun *r, struct jval name, struct jval v, const struct jargs *args)
{
    return jval_true(r, jbuiltin_call(r, named(r, name, "test", jtest_find), v, args));
}

/* ---- macros ---- */

struct macro_call {
    const struct jmacro *macro;
    const struct jargs *args;
    bool *taken; /* [args->n_keywords]: went to a parameter */
    struct jscope *scope;
};

static struct jval take_keyword(struct jrun *r, struct macro_call *c, const struct jstr *name)
{
    jrun_charge(r, c->args->n_keywords / 16);
    for (size_t i = 0; i < c->args->n_keywords; i++) {
        if (!c->taken[i] && jstr_eq(c->args->keywords[i].name, name)) {
            c->taken[i] = true;
            return c->args->keywords[i].value;
        }
    }
    return (struct jval){.kind = J_MISSING};
}

/* Parameters by position, then by name, then by default. */
static void bind_params(struct jrun *r, struct macro_call *c)
{
    const struct jarg_nodes *params = c->macro->node->args;
    struct jval *values = jrun_alloc_n(r, params->n, sizeof *values);
    for (size_t i = 0; i < params->n; i++) {
        const struct jstr *name = params->items[i].name;
        values[i] = i < c->args->n ? c->args->items[i] : take_keyword(r, c, name);
        jscope_set(r, c->scope, name, values[i]); /* missing: undefined to other defaults */
    }
    for (size_t i = 0; i < params->n; i++) {
        const struct jstr *name = params->items[i].name;
        if (values[i].kind != J_MISSING)
            continue;
        jscope_set(
            r,
            c->scope,
            name,
            params->items[i].value
                ? jeval(r, c->scope, params->items[i].value)
                : jval_undefined_as(r, "parameter '%.*s' was not provided", JSTR_UP_TO(60, name)));
    }
}

static void bind_caller(struct jrun *r, struct macro_call *c)
{
    const struct jnode *n = c->macro->node;
    const struct jarg_nodes *params = n->args;
    for (size_t i = 0; i < params->n; i++)
        if (params->items[i].name == r->tmpl->caller)
            return;
    if (!n->uses_caller)
        return;
    struct jval caller = take_keyword(r, c, r->tmpl->caller);
    if (!jarg_given(caller))
        caller = jval_undefined_as(r, "No caller defined");
    jscope_set(r, c->scope, r->tmpl->caller, caller);
}

/* What is left over goes to kwargs and varargs, or is too much. */
static void bind_rest(struct jrun *r, struct macro_call *c)
{
    const struct jnode *n = c->macro->node;
    const struct jargs *args = c->args;
    const struct jstr *name = n->text ? n->text : r->tmpl->caller;
    struct jdict *kwargs = jdict_new(r);
    for (size_t i = 0; i < args->n_keywords; i++) {
        if (c->taken[i])
            continue;
        if (!n->uses_kwargs)
            jrun_fail(r,
                      "macro '%.*s' takes no keyword argument '%.*s'",
                      JSTR_UP_TO(60, name),
                      JSTR_UP_TO(60, args->keywords[i].name));
        jdict_set(r, kwargs, jval_str(args->keywords[i].name), args->keywords[i].value);
    }
    if (n->uses_kwargs)
        jscope_set(r, c->scope, r->tmpl->kwargs, jval_dict(kwargs));
    size_t n_params = n->args->n, n_more = args->n > n_params ? args->n - n_params : 0;
    if (n_more > 0 && !n->uses_varargs)
        jrun_fail(
            r, "macro '%.*s' takes not more than %zu argument(s)", JSTR_UP_TO(60, name), n_params);
    if (n->uses_varargs)
        jscope_set(r,
                   c->scope,
                   r->tmpl->varargs,
                   jval_tuple_of(r, n_more > 0 ? args->items + n_params : NULL, n_more));
}

static struct jval call_macro(struct jrun *r, const struct jmacro *m, const struct jargs *args)
{
    struct macro_call c = {m, args, NULL, jscope_new(r, m->scope, m->node->unset)};
    c.taken = jrun_alloc(r, args->n_keywords);
    bind_params(r, &c);
    bind_caller(r, &c);
    bind_rest(r, &c);
    struct jsb out = JSB(r);
    uint32_t line = r->line;
    (void)jexec(r, c.scope, &m->node->items, &out);
    r->line = line;
    return jval_str(jstr_as_markup(r, jsb_done(&out), r->autoescape));
}

static struct jval call_loop(struct jrun *r, const struct jloop *l, const struct jargs *args)
{
    if (!l->node->flag)
        jrun_fail(r, "The loop must have the 'recursive' marker to be called recursively.");
    if (args->n != 1 || args->n_keywords > 0)
        jrun_fail(r, "loop() takes one argument");
    struct jsb out = JSB(r);
    (void)jexec_for(r, l->outer, l->node, args->items[0], l->depth0 + 1, &out);
    return jval_str(jstr_as_markup(r, jsb_done(&out), r->autoescape));
}

static struct jval call_joiner(struct jrun *r, struct jjoiner *j)
{
    if (j->used)
        return j->separator;
    j->used = true;
    return jval_str(jstr_lit(r, ""));
}

static struct jval call(struct jrun *r, struct jval callee, const struct jargs *args)
{
    switch (callee.kind) {
    case J_UNDEFINED:
        jval_fail_undefined(r, callee);
    case J_MACRO:
        return call_macro(r, callee.macro, args);
    case J_METHOD:
    case J_FUNCTION:
        return jbuiltin_call(r, callee.method->builtin, callee.method->self, args);
    case J_LOOP:
        return call_loop(r, callee.loop, args);
    case J_JOINER:
        return call_joiner(r, callee.joiner);
    case J_BLOCK:
        return jblock_call(r, callee.block);
    default:
        jrun_fail(r, "'%s' object is not callable", jval_type(callee));
    }
}

struct jval jval_call(struct jrun *r, struct jval callee, const struct jargs *args)
{
    jrun_enter(r);
    struct jval v = call(r, callee, args);
    jrun_leave(r);
    return v;
}

/* ---- global functions ---- */

/* dict(mapping or pairs, **keywords) */
static struct jdict *make_dict(struct jrun *r, const struct jargs *args)
{
    struct jdict *d = jdict_new(r);
    if (args->n > 1)
        jrun_fail(r, "dict expected at most 1 argument, got %zu", args->n);
    if (args->n == 1)
        jval_expect_defined(r, args->items[0]);
    if (args->n == 1 && args->items[0].kind == J_DICT) {
        const struct jdict *from = args->items[0].dict;
        for (size_t i = 0; i < from->n; i++)
            jdict_set(r, d, from->pairs[i].key, from->pairs[i].value);
    } else if (args->n == 1) {
        struct jwalk w = jwalk_begin(r, args->items[0]);
        for (struct jval v; jwalk_next(r, &w, &v);) {
            const struct jlist *pair = jval_items(r, v);
            if (pair->n != 2)
                jrun_fail(r, "dictionary update sequence element has length %zu", pair->n);
            jdict_set(r, d, pair->items[0], pair->items[1]);
        }
    }
    for (size_t i = 0; i < args->n_keywords; i++)
        jdict_set(r, d, jval_str(args->keywords[i].name), args->keywords[i].value);
    return d;
}

static struct jval call_dict(struct jrun *r, struct jval self, const struct jargs *args)
{
    (void)self;
    return jval_dict(make_dict(r, args));
}

static struct jval call_namespace(struct jrun *r, struct jval self, const struct jargs *args)
{
    (void)self;
    return (struct jval){.kind = J_NAMESPACE, .dict = make_dict(r, args)};
}

#define MAX_RANGE 100000 /* the sandbox's */

static struct jval call_range(struct jrun *r, struct jval self, const struct jval *a)
{
    (void)self;
    bool one = a[1].kind == J_MISSING;
    int64_t first = jarg_int(r, a[0], 0), second = jarg_int(r, a[1], 0);
    struct jrange *g = jrun_alloc(r, sizeof *g);
    *g = (struct jrange){one ? 0 : first, one ? first : second, jarg_int(r, a[2], 1), 0};
    if (g->step == 0)
        jrun_fail(r, "range() arg 3 must not be zero");
    __int128 span = g->step > 0 ? (__int128)g->stop - g->start : (__int128)g->start - g->stop;
    __int128 step = g->step > 0 ? g->step : -(__int128)g->step;
    __int128 n = span > 0 ? (span + step - 1) / step : 0;
    if (n > MAX_RANGE)
        jrun_fail(r, "Range too big. The sandbox blocks ranges larger than %d.", MAX_RANGE);
    g->n = (int64_t)n;
    return (struct jval){.kind = J_RANGE, .range = g};
}

static struct jval call_cycler(struct jrun *r, struct jval self, const struct jargs *args)
{
    (void)self;
    if (args->n == 0 || args->n_keywords > 0)
        jrun_fail(r, "at least one item has to be provided");
    struct jcycler *c = jrun_alloc(r, sizeof *c);
    *c = (struct jcycler){args->items, args->n, 0};
    return (struct jval){.kind = J_CYCLER, .cycler = c};
}

static struct jval call_joiner_function(struct jrun *r, struct jval self, const struct jval *a)
{
    (void)self;
    struct jjoiner *j = jrun_alloc(r, sizeof *j);
    j->separator = a[0].kind == J_MISSING ? jval_str(jstr_lit(r, ", ")) : a[0];
    return (struct jval){.kind = J_JOINER, .joiner = j};
}

static struct jval call_raise_exception(struct jrun *r, struct jval self, const struct jval *a)
{
    (void)self;
    const struct jstr *text = jval_to_str(r, a[0]);
    jrun_fail(r, "%.*s", JSTR_UP_TO(290, text));
}

/* The format is the template's: strftime bounds what it writes. */
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
static size_t tell_time(char *out, size_t cap, const char *format, const struct tm *now)
{
    return strftime(out, cap, format, now);
}
#pragma GCC diagnostic pop

/* strftime as Python's datetime does it, which knows %f and has no zone here. */
static struct jval call_strftime_now(struct jrun *r, struct jval self, const struct jval *a)
{
    (void)self;
    const struct jstr *f = jarg_str(r, a[0]);
    struct jsb format = JSB(r);
    char text[1024];
    for (size_t i = 0; i < f->len; i++) {
        char c = f->data[i], next = i + 1 < f->len ? f->data[i + 1] : '\0';
        if (c == '%' && (next == 'f' || next == 'z' || next == 'Z' || next == '%')) {
            jsb_lit(&format, next == 'f' ? "000000" : next == '%' ? "%%" : "");
            i++;
        } else {
            jsb_add(&format, &c, 1, true);
        }
    }
    jsb_add(&format, "|", 2, true); /* so that an empty result is no failure; NUL-terminated */
    size_t n = strlen(format.data) < format.len - 1
                   ? 0
                   : tell_time(text, sizeof text, format.data, r->now);
    if (n == 0)
        jrun_fail(r, "strftime_now: the format is not valid");
    return jval_str(jstr_new(r, text, n - 1, jstr_trusted(f)));
}

static struct jval call_lipsum(struct jrun *r, struct jval self, const struct jargs *args)
{
    (void)self;
    (void)args;
    jrun_fail(r, "lipsum is not supported");
}

const struct jbuiltin *jfunction_find(const struct jstr *name)
{
    static const struct jbuiltin functions[] = {
        {"range", "/start stop step", 1, call_range, NULL},
        {"namespace", "", 0, NULL, call_namespace},
        {"dict", "", 0, NULL, call_dict},
        {"cycler", "", 0, NULL, call_cycler},
        {"joiner", "sep", 0, call_joiner_function, NULL},
        {"raise_exception", "message", 1, call_raise_exception, NULL},
        {"strftime_now", "format", 1, call_strftime_now, NULL},
        {"lipsum", "", 0, NULL, call_lipsum},
    };
    for (size_t i = 0; i < sizeof functions / sizeof functions[0]; i++)
        if (jstr_is(name, functions[i].name))
            return &functions[i];
    return NULL;
}
