#include "chat/render.h"

#include "chat/encode.h"

#include <jansson.h>

static void set_token(json_t *o, const char *name, const struct tokenizer *tok, token_id id)
{
    struct buf text = {0};
    const char *s = chat_token_text(tok, id, &text);
    if (s)
        json_object_set_new(o, name, json_string(s));
    buf_deinit(&text);
}

enum err chat_render_file(const char *template,
                          size_t n_template,
                          const struct tokenizer *tok,
                          const char *context,
                          size_t n_context,
                          const struct tm *now,
                          struct jinja_text *out,
                          struct err_info *e)
{
    json_error_t problem;
    struct jinja_template *t = NULL;
    enum err err = jinja_compile(template, n_template, &t, e);
    if (err)
        return err;
    json_t *vars = json_loadb(context, n_context, JSON_ALLOW_NUL, &problem),
           *tokens = json_object();
    if (tok) {
        set_token(tokens, "bos_token", tok, tokenizer_bos(tok));
        set_token(tokens, "eos_token", tok, tokenizer_eos(tok));
    }
    const struct jinja_input in = {.vars = vars, .more = tokens, .now = now};
    if (!vars)
        err = err_set(e,
                      ERR_FORMAT,
                      "the context, line %d column %d: %s",
                      problem.line,
                      problem.column,
                      problem.text);
    else
        err = jinja_render(t, &in, NULL, out, e);
    json_decref(vars);
    json_decref(tokens);
    jinja_destroy(t);
    return err;
}
