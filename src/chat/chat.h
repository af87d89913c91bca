/* Messages to prompt text, by the model's own template.
 *
 * A template is Jinja (chat/jinja). It sees `messages`, `add_generation_prompt`, the variables that
 * the request gives, and the texts of the model's BOS and EOS tokens.
 *
 * Thread: a struct chat_template is immutable; any thread may render. */
#ifndef WEIR_CHAT_CHAT_H
#define WEIR_CHAT_CHAT_H

#include "base/err.h"
#include "chat/jinja/jinja.h"

#include <stdbool.h>
#include <stddef.h>

struct chat_template;

/* Compile the template in `source` (the GGUF's tokenizer.chat_template; NULL or empty: the model
 * has none). Always yields a template; with one that cannot be run chat_render fails and says so.
 */
struct chat_template *chat_template_create(const char *source, size_t n_bytes);
void chat_template_destroy(struct chat_template *t);

/* What it was made of: [*n_bytes], empty if the model has none; lives as long as t. */
const char *chat_template_source(const struct chat_template *t, size_t *n_bytes);

/* Short name for logs: "jinja", "unsupported", "none". */
const char *chat_template_name(const struct chat_template *t);

/* Why it cannot be run, as one line; NULL if it can or there is none. */
const char *chat_template_problem(const struct chat_template *t);

/* What a prompt is made of. */
struct chat_input {
    const struct json_t *messages; /* array of objects; their text is input */
    const struct json_t *vars; /* object or NULL: further variables, also input. They come before
                                  what else is here, so they may say add_generation_prompt */
    bool add_generation_prompt;
    const char *bos, *eos; /* texts of the tokens, or NULL */
    const struct tm *now;  /* NULL: the local time */
};

/* Render into *out (zeroed): only its trusted spans may hold control tokens.
 * Errors: ERR_UNSUPPORTED (no template, or none that can be run); those of jinja_render. */
enum err chat_render(const struct chat_template *t,
                     const struct chat_input *in,
                     struct jinja_text *out,
                     struct err_info *e) WEIR_MUST_USE;

#endif
