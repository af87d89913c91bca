/* Who may: the keys that clients carry, what each allows, and what each has used.
 *
 *      keys file --parse--> terms of each name ---- entry: terms, buckets, counters
 *      --api-key  ----------------------------'       ^ found by the digest of what a client sent
 *      --admin-key-file -- the admin's entry ---------'
 *
 * Keys are kept as SHA-256 digests and compared in constant time. Loading is all or nothing: on an
 * error everything stays. An entry is never freed before the end, so that calls may hold on to it
 * and its counters go on: a name that is left out of a new file is closed, not forgotten, and the
 * same name later takes up where it was. For that reason the names ever seen are limited.
 *
 * Any thread; one lock, held for microseconds. For api/ only. */
#ifndef WEIR_API_KEYS_H
#define WEIR_API_KEYS_H

#include "api/bucket.h"
#include "base/buf.h"
#include "base/err.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define API_MAX_KEYS 1024 /* names ever seen */
#define API_KEY_BYTES 32  /* of a digest */

struct api_keys;
struct api_key; /* an entry; valid until api_keys_destroy */

struct api_keys *api_keys_create(void);
void api_keys_destroy(struct api_keys *k);

/* The file's text: {"keys": [{"name", "key" or "sha256", limits...}]}, see docs/API.md. *n_plain:
 * how many keys are there in the open. Errors: ERR_INVALID, ERR_FORMAT; the text says where. */
enum err api_keys_load(struct api_keys *k,
                       const char *text,
                       size_t n,
                       uint64_t now_us,
                       uint32_t *n_plain,
                       struct err_info *e) WEIR_MUST_USE;
/* One key for everything but limits, named "default". */
void api_keys_set_single(struct api_keys *k, const char *key);
/* The key of the admin's routes, which from now on want it. */
void api_keys_set_admin(struct api_keys *k, const char *key);

/* What a request may: *who is NULL where nobody is asked for a key. `credential` is what the client
 * sent, or NULL; `admin_route`: the route is the admin's. Errors: ERR_AUTH, ERR_FORBIDDEN. */
enum err api_keys_identify(struct api_keys *k,
                           const char *credential,
                           bool admin_route,
                           struct api_key **who,
                           struct err_info *e) WEIR_MUST_USE;

const char *api_key_name(const struct api_key *key); /* constant */

/* The terms that a request is made under, as of now. */
struct api_key_terms {
    bool limits_priority;
    int32_t priority;
    bool has_space;
    uint8_t space[API_KEY_BYTES]; /* a digest of the salt */
    uint32_t tenant;              /* from 1; the same for a name as long as the process lives */
};
struct api_key_terms api_keys_terms(struct api_keys *k, const struct api_key *key);
/* Of work whose key is not in the file any more, nor what its salt was: it shares with itself. */
struct api_key_terms api_keys_terms_gone(const char *name);

/* A request begins, and takes a place of the concurrent ones. A refusal is counted, takes nothing,
 * and says after how many seconds to come back (0: that is not known). Work of the background
 * leaves half of every limit to the key's other requests, and its refusals are not counted, as
 * nobody sees them. Error: ERR_RATE_LIMIT. */
enum err api_keys_enter(struct api_keys *k,
                        struct api_key *key,
                        bool background,
                        uint64_t now_us,
                        uint32_t *retry_s,
                        struct err_info *e) WEIR_MUST_USE;
/* Its prompts' tokens. Errors: ERR_RATE_LIMIT; ERR_TOO_LARGE: more than the key ever allows. */
enum err api_keys_take_prompt(struct api_keys *k,
                              struct api_key *key,
                              bool background,
                              uint64_t n_tokens,
                              uint64_t now_us,
                              uint32_t *retry_s,
                              struct err_info *e) WEIR_MUST_USE;
/* It was refused after all, by the engine or for its prompts' tokens: its limits are as if it had
 * never come. It still has to leave. */
void api_keys_undo(struct api_keys *k, struct api_key *key, uint64_t n_prompt, uint64_t now_us);
/* What it came to, and its place is free. It counts, unless it was refused meanwhile. */
struct api_key_usage {
    bool refused;
    uint64_t n_prompt, n_cached, n_generated; /* tokens */
};
void api_keys_leave(struct api_keys *k,
                    struct api_key *key,
                    const struct api_key_usage *u,
                    uint64_t now_us);

/* The entry of this name, also if it is closed now; NULL: there never was one. */
struct api_key *api_keys_named(struct api_keys *k, const char *name);

/* For the x-ratelimit headers. 0 where there is no limit. */
struct api_key_state {
    uint64_t requests, requests_left, requests_full_us; /* a minute; until all are there again */
    uint64_t tokens, tokens_left, tokens_full_us;
};
struct api_key_state api_keys_state(struct api_keys *k, struct api_key *key, uint64_t now_us);

/* Usage of each key for /metrics; nothing without keys. */
void api_keys_metrics(struct api_keys *k, struct buf *out);

#endif
