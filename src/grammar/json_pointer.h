/* References within a JSON document, as schemas have them: "#", "#/a/b", and both behind the
 * root's own "$id". Any thread; nothing is allocated. */
#ifndef WEIR_GRAMMAR_JSON_POINTER_H
#define WEIR_GRAMMAR_JSON_POINTER_H

#include <jansson.h>

/* ref without the root's own "$id" before it, if it begins with that: "#...". NULL stays NULL. */
const char *json_local_ref(const json_t *root, const char *ref);

/* What "#" or "#/a/b" is (RFC 6901, section 6: with %XX and ~0, ~1). NULL: nothing is there, it is
 * another kind of reference, or a key in it is longer than 255 bytes. */
const json_t *json_pointer(const json_t *root, const char *ref);

#endif
