/* A template with a whole JSON object of variables, for tools. */
#ifndef WEIR_CHAT_RENDER_H
#define WEIR_CHAT_RENDER_H

#include "chat/jinja/jinja.h"
#include "tokenizer/tokenizer.h"

/* Compile template[0..n_template), render it with the object in context[0..n_context) into *out
 * (zeroed). `tok` may be NULL; else its BOS and EOS are bos_token and eos_token, unless the object
 * has them. Any thread. Errors: those of jinja_compile and jinja_render; ERR_FORMAT (context). */
enum err chat_render_file(const char *template,
                          size_t n_template,
                          const struct tokenizer *tok,
                          const char *context,
                          size_t n_context,
                          const struct tm *now,
                          struct jinja_text *out,
                          struct err_info *e) WEIR_MUST_USE;

#endif
