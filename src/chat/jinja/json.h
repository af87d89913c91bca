/* jansson's values as the engine's. */
#ifndef WEIR_CHAT_JINJA_JSON_H
#define WEIR_CHAT_JINJA_JSON_H

#include "chat/jinja/value.h"

struct json_t;

/* A copy, whose texts and numbers are trusted or input; of a "role", the usual names are trusted.
 */
struct jval jval_from_json(struct jrun *r, const struct json_t *v, bool trusted);

#endif
