/* Answers that a client may come back to by their id (POST /v1/responses), in memory, bounded in
 * number and in bytes: whoever has most of what is short lets go of the oldest. Nothing is kept
 * across a restart.
 *
 *      oldest --next--> entry {id, response, messages} --next--> newest
 *
 * `response` is the JSON that the client got; `messages` is the conversation up to and with that
 * answer, an array of messages as /v1/chat/completions takes them.
 *
 * An entry belongs to who made it: for others it is not there.
 *
 * Thread: any. */
#ifndef WEIR_API_STORE_H
#define WEIR_API_STORE_H

#include "base/buf.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct api_store;

struct api_store *api_store_create(size_t max_entries, size_t max_bytes); /* never NULL */
void api_store_destroy(struct api_store *s);

/* Copies. `owner`: the tenant of the key that asked, 0: nobody's. False, and nothing is kept, if
 * the entry alone is more than max_bytes, or there is no memory for it. */
bool api_store_put(struct api_store *s,
                   uint32_t owner,
                   const char *id,
                   const struct buf *response,
                   const struct buf *messages);

/* Append what is kept under `id`; either may be NULL. False if there is nothing. */
bool api_store_get(struct api_store *s,
                   uint32_t owner,
                   const char *id,
                   struct buf *response,
                   struct buf *messages);
bool api_store_remove(struct api_store *s, uint32_t owner, const char *id); /* false: none */

#endif
