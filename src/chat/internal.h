/* A conversation with tools in the form that one template understands; for chat/ only. */
#ifndef WEIR_CHAT_INTERNAL_H
#define WEIR_CHAT_INTERNAL_H

#include "chat/tools.h"

/* What to render: *messages and *vars are the caller's references, also after an error. Errors:
 * ERR_INVALID and ERR_NOMEM as chat_encode_turn's. (turn.c) */
enum err chat_turn_prepare(const struct chat_template *tmpl,
                           const struct chat_turn *turn,
                           struct json_t **messages,
                           struct json_t **vars,
                           struct err_info *e) WEIR_MUST_USE;

/* The conversation with one call a message (traits->one_call), or with what is said and the calls
 * apart (null_content), for templates that do not write all of such a message. The caller's
 * reference. (split.c) */
struct json_t *chat_split_messages(const struct chat_traits *traits, const struct json_t *messages);

/* The conversation with results of tools as `tool_responses` of the message that called, each a
 * name and the response, and with what the assistant says of them (traits->inner_results). The
 * caller's reference. (embed.c) */
struct json_t *chat_embed_results(const struct json_t *messages);

/* Note the names of a message's calls by their ids; the latest wins. (turn.c) */
void chat_note_names(struct json_t *names, const struct json_t *calls);

bool chat_has_words(const struct json_t *m); /* content that is text and not empty */
bool chat_has_role(const struct json_t *m, const char *role);

#endif
