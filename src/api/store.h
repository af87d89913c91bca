/* Answers that a client may come back to by their id (POST /v1/responses), in memory, bounded in
 * number and in bytes: whoever has most of what is short lets go of the oldest. Nothing is kept
 * across a restart.
 *
 *      oldest --next--> entry {id, response, messages, items} --next--> newest
 *
 * `response` is the JSON that the client got; `messages` is the conversation up to and with that
 * answer, an array of messages as /v1/chat/completions takes them; `items` is an array of what came
 * before the answer, as /v1/responses has it.
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

/* The texts of an entry. */
enum { KEPT_RESPONSE, KEPT_MESSAGES, KEPT_ITEMS, N_KEPT };

struct api_store *api_store_create(size_t max_entries, size_t max_bytes); /* never NULL */
void api_store_destroy(struct api_store *s);

/* Copies. `owner`: the tenant of the key that asked, 0: nobody's. False, and nothing is kept, if
 * the entry alone is more than max_bytes, or there is no memory for it. */
bool api_store_put(struct api_store *s,
                   uint32_t owner,
                   const char *id,
                   const struct buf *const texts[N_KEPT]);

/* Append what is kept under `id`; each may be NULL. False if there is nothing. */
bool api_store_get(struct api_store *s,
                   uint32_t owner,
                   const char *id,
                   struct buf *const texts[N_KEPT]);
bool api_store_remove(struct api_store *s, uint32_t owner, const char *id); /* false: none */

#endif
