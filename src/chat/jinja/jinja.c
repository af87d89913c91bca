#include "chat/jinja/jinja.h"

#include "base/mem.h"
#include "base/utf8.h"
#include "chat/jinja/builtins.h"
#include "chat/jinja/eval.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#define MAX_SOURCE_BYTES ((size_t)1024 * 1024)
#define MAX_TREE_BYTES ((size_t)256 * 1024 * 1024)
#define MAX_PARSE_STEPS 20000000u
#define MAX_STEPS 20000000u
#define MAX_MEMORY_BYTES ((size_t)256 * 1024 * 1024)
#define MAX_OUTPUT_BYTES ((size_t)64 * 1024 * 1024)

/* ---- compiling ---- */

struct compile {
    const char *source;
    size_t n;
    struct jinja_template *t;
};

/* Every line end as \n, and none at the end. */
static void normalize(struct jrun *r, struct compile *c)
{
    char *s = jrun_alloc(r, c->n + 1);
    size_t n = 0;
    for (size_t i = 0; i < c->n; i++) {
        if (c->source[i] != '\r')
            s[n++] = c->source[i];
        else if (i + 1 == c->n || c->source[i + 1] != '\n')
            s[n++] = '\n';
    }
    c->n = n - (n > 0 && s[n - 1] == '\n');
    c->source = s;
}

static void compile(struct jrun *r, void *arg)
{
    struct compile *c = arg;
    normalize(r, c);
    jinja_parse(r, c->source, c->n, c->t);
}

enum err jinja_compile(const char *source,
                       size_t n_bytes,
                       struct jinja_template **out,
                       struct err_info *e)
{
    *out = NULL;
    if (n_bytes > MAX_SOURCE_BYTES)
        return err_set(e, ERR_TOO_LARGE, "the template has more than %zu bytes", MAX_SOURCE_BYTES);
    if (!utf8_valid(source, n_bytes))
        return err_set(e, ERR_FORMAT, "the template is not valid UTF-8");
    struct err_info failure = {0};
    struct jinja_template *t = mem_zalloc(1, sizeof *t);
    struct jrun r = {.arena = {.max_bytes = MAX_TREE_BYTES},
                     .e = &failure,
                     .line = 1,
                     .steps_left = MAX_PARSE_STEPS,
                     .max_output = MAX_OUTPUT_BYTES};
    struct compile c = {source, n_bytes, t};
    enum err err = jrun_try(&r, compile, &c);
    t->arena = r.arena;
    if (err) {
        jinja_destroy(t);
        if (e)
            *e = failure;
        return err;
    }
    *out = t;
    return OK;
}

void jinja_destroy(struct jinja_template *t)
{
    if (!t)
        return;
    jarena_free(&t->arena);
    free(t);
}

bool jinja_reads(const struct jinja_template *t, const char *name)
{
    for (size_t i = 0; i < t->names.n; i++)
        if (jstr_is(t->names.items[i], name))
            return true;
    return false;
}

/* ---- rendering ---- */

struct rendering {
    const struct jinja_template *t;
    const struct jinja_input *in;
    struct jsb out;
};

static void add_vars(struct jrun *r, const struct json_t *vars, bool trusted)
{
    if (!vars)
        return;
    const struct jdict *d = jval_from_json(r, vars, trusted).dict;
    for (size_t i = 0; i < d->n; i++)
        if (!jdict_get(r, r->context, d->pairs[i].key))
            jdict_set(r, r->context, d->pairs[i].key, d->pairs[i].value);
}

static void render(struct jrun *r, void *arg)
{
    struct rendering *c = arg;
    r->context = jdict_new(r);
    add_vars(r, c->in->own, true);
    add_vars(r, c->in->vars, false);
    add_vars(r, c->in->more, false);
    r->root = jscope_new(r, NULL, c->t->unset);
    (void)jexec(r, r->root, &c->t->body, &c->out);
}

static enum err put_spans(const struct jsb *b, struct jinja_text *out, struct err_info *e)
{
    out->text.may_fail = true;
    buf_add(&out->text, b->data, b->len);
    out->spans = calloc(b->n_marks + 1, sizeof *out->spans);
    if (out->text.failed || !out->spans)
        return err_set(e, ERR_NOMEM, "no memory for a text of %zu bytes", b->len);
    out->n_spans = b->n_marks;
    for (size_t i = 0; i < b->n_marks; i++)
        out->spans[i] = (struct jinja_span){b->marks[i].begin,
                                            i + 1 < b->n_marks ? b->marks[i + 1].begin : b->len,
                                            b->marks[i].trusted};
    return OK;
}

enum err jinja_render(const struct jinja_template *t,
                      const struct jinja_input *in,
                      const struct jinja_limits *limits,
                      struct jinja_text *out,
                      struct err_info *e)
{
    struct err_info failure = {0};
    struct jinja_limits l = limits ? *limits : (struct jinja_limits){0};
    time_t clock = time(NULL);
    struct tm now;
    localtime_r(&clock, &now);
    if ((in->own && !json_is_object(in->own)) || (in->vars && !json_is_object(in->vars)) ||
        (in->more && !json_is_object(in->more)))
        return err_set(e, ERR_INVALID, "the variables must be an object");
    struct jrun r = {
        .arena = {.max_bytes = l.memory_bytes ? l.memory_bytes : MAX_MEMORY_BYTES},
        .e = &failure,
        .line = 1,
        .steps_left = l.n_steps ? l.n_steps : MAX_STEPS,
        .max_output = l.output_bytes ? l.output_bytes : MAX_OUTPUT_BYTES,
        .tmpl = t,
        .now = in->now ? in->now : &now,
    };
    struct rendering c = {t, in, JSB(&r)};
    enum err err = jrun_try(&r, render, &c);
    if (!err)
        err = put_spans(&c.out, out, &failure);
    if (err && e)
        *e = failure;
    jarena_free(&r.arena);
    return err;
}

void jinja_text_deinit(struct jinja_text *t)
{
    buf_deinit(&t->text);
    free(t->spans);
    *t = (struct jinja_text){0};
}
