/* Messages to prompt text, by the model's own template.
 *
 * Thread: a struct chat_template is immutable; any thread may render. */
#ifndef WEIR_CHAT_CHAT_H
#define WEIR_CHAT_CHAT_H

#include "base/buf.h"
#include "base/err.h"

#include <stdbool.h>
#include <stddef.h>

/* One turn. Texts are views of the caller's memory, valid UTF-8. */
struct chat_message {
    const char *role;
    size_t role_len;
    const char *content;
    size_t content_len;
};

/* A run of the rendered prompt. Trusted runs come from the template, the others from messages:
 * only trusted runs may hold control tokens. */
struct chat_span {
    size_t begin, end; /* bytes of chat_prompt.text */
    int trusted;
};

/* A rendered prompt. Zero-initialise; chat_prompt_deinit frees. */
struct chat_prompt {
    struct buf text;
    struct chat_span *spans; /* in order, covering text */
    size_t n_spans;
    size_t cap_spans;
};
void chat_prompt_deinit(struct chat_prompt *p);

struct chat_template;

/* Recognise the template in `source` (the GGUF's tokenizer.chat_template; NULL or empty: the model
 * has none). Always yields a template; one that Weir cannot run makes chat_render fail with
 * ERR_UNSUPPORTED and says so. */
struct chat_template *chat_template_create(const char *source, size_t n_bytes);
void chat_template_destroy(struct chat_template *t);

/* Short name for logs: "chatml", "unsupported", "none". */
const char *chat_template_name(const struct chat_template *t);

/* The template begins with the BOS token, which is not part of the rendered text: the prompt starts
 * with it even where tokenizer_adds_bos says no. */
bool chat_template_wants_bos(const struct chat_template *t);

/* Render the messages and open the assistant's turn.
 * Errors: ERR_UNSUPPORTED (template), ERR_INVALID (a role the template does not know). */
enum err chat_render(const struct chat_template *t,
                     const struct chat_message *messages,
                     size_t n_messages,
                     struct chat_prompt *out,
                     struct err_info *e) WEIR_MUST_USE;

#endif
