/* A conversation with tools in the form that one template understands; for chat/ only. */
#ifndef WEIR_CHAT_TURN_H
#define WEIR_CHAT_TURN_H

#include "chat/tools.h"

/* What to render: *messages and *vars are the caller's references, also after an error. Errors:
 * ERR_INVALID and ERR_NOMEM as chat_encode_turn's. */
enum err chat_turn_prepare(const struct chat_template *tmpl,
                           const struct chat_turn *turn,
                           struct json_t **messages,
                           struct json_t **vars,
                           struct err_info *e) WEIR_MUST_USE;

#endif
