/* A conversation as token ids: the template's text, of which only the template's own parts may
 * hold control tokens. */
#ifndef WEIR_CHAT_ENCODE_H
#define WEIR_CHAT_ENCODE_H

#include "chat/chat.h"
#include "tokenizer/tokenizer.h"

/* Render, and append the ids to *ids; BOS first where the model or the template wants one. Any
 * thread. Errors: those of chat_render and tokenizer_encode. */
enum err chat_encode(const struct chat_template *tmpl,
                     const struct tokenizer *tok,
                     const struct chat_message *messages,
                     size_t n_messages,
                     struct token_list *ids,
                     struct err_info *e) WEIR_MUST_USE;

#endif
