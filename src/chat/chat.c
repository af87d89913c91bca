#include "chat/chat.h"

#include "base/mem.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct chat_template {
    struct jinja_template *jinja; /* NULL: none, or one that cannot be run */
    bool present;
    char *source; /* [n_source] */
    size_t n_source;
    struct err_info problem; /* of compiling */
};

struct chat_template *chat_template_create(const char *source, size_t n_bytes)
{
    struct chat_template *t = mem_zalloc(1, sizeof *t);
    t->present = source && n_bytes > 0;
    t->source = mem_alloc(n_bytes + 1);
    t->n_source = t->present ? n_bytes : 0;
    if (t->present)
        memcpy(t->source, source, n_bytes);
    if (t->present && jinja_compile(source, n_bytes, &t->jinja, &t->problem))
        t->jinja = NULL; /* the problem is told when it matters */
    return t;
}

void chat_template_destroy(struct chat_template *t)
{
    if (!t)
        return;
    jinja_destroy(t->jinja);
    free(t->source);
    free(t);
}

const char *chat_template_source(const struct chat_template *t, size_t *n_bytes)
{
    *n_bytes = t->n_source;
    return t->source;
}

const char *chat_template_name(const struct chat_template *t)
{
    return !t->present ? "none" : t->jinja ? "jinja" : "unsupported";
}

const char *chat_template_problem(const struct chat_template *t)
{
    return t->present && !t->jinja ? t->problem.text : NULL;
}

/* {"bos_token": ..., "eos_token": ...}; NULL without memory. */
static json_t *own_vars(const struct chat_input *in)
{
    json_t *own = json_object();
    if (in->bos)
        json_object_set_new(own, "bos_token", json_string(in->bos));
    if (in->eos)
        json_object_set_new(own, "eos_token", json_string(in->eos));
    return own;
}

static json_t *other_vars(const struct chat_input *in)
{
    json_t *o = json_object();
    json_object_set(o, "messages", (json_t *)in->messages); /* one more reference, no change */
    json_object_set_new(o, "add_generation_prompt", json_boolean(in->add_generation_prompt));
    return o;
}

enum err chat_render(const struct chat_template *t,
                     const struct chat_input *in,
                     struct jinja_text *out,
                     struct err_info *e)
{
    struct err_info failure = {0};
    if (!t->present)
        return err_set(e,
                       ERR_UNSUPPORTED,
                       "the model has no chat template; use the completions route with a prompt");
    if (!t->jinja)
        return err_set(e,
                       ERR_UNSUPPORTED,
                       "the model's chat template cannot be run (%.200s); use the completions "
                       "route with a prompt",
                       t->problem.text);
    json_t *own = own_vars(in), *more = other_vars(in);
    const struct jinja_input input = {own, in->vars, more, in->now};
    enum err err = own && more ? jinja_render(t->jinja, &input, NULL, out, &failure)
                               : err_set(&failure, ERR_NOMEM, "no memory for variables");
    json_decref(own);
    json_decref(more);
    return err ? err_set(e, err, "the chat template, %.300s", failure.text) : OK;
}
