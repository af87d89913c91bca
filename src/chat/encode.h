/* A conversation as token ids: the template's text, of which only the template's own parts may
 * hold control tokens. */
#ifndef WEIR_CHAT_ENCODE_H
#define WEIR_CHAT_ENCODE_H

#include "chat/chat.h"
#include "tokenizer/tokenizer.h"

/* One turn, for callers without JSON. Texts are views of the caller's memory, valid UTF-8. */
struct chat_message {
    const char *role;
    size_t role_len;
    const char *content;
    size_t content_len;
};

/* chat_encode_turn (tools.h) of plain turns, with the assistant's opened. */
enum err chat_encode_plain(const struct chat_template *tmpl,
                           const struct tokenizer *tok,
                           const struct chat_message *messages,
                           size_t n_messages,
                           struct token_list *ids,
                           struct err_info *e) WEIR_MUST_USE;

/* The text of a token that stands in templates as bos_token or eos_token: appended to *out, which
 * is returned NUL-terminated; NULL if there is no such token. */
const char *chat_token_text(const struct tokenizer *tok, token_id id, struct buf *out);

#endif
