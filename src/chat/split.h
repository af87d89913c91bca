/* Messages with calls, taken apart for templates that do not write all of such a message; for chat/
 * only. */
#ifndef WEIR_CHAT_SPLIT_H
#define WEIR_CHAT_SPLIT_H

#include "chat/chat.h"

/* The conversation with one call a message (traits->one_call), or with what is said and the calls
 * apart (null_content). The caller's reference. */
struct json_t *chat_split_messages(const struct chat_traits *traits, const struct json_t *messages);

#endif
