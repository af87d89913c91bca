/* What names a block's content, wherever its bytes lie.
 *
 *      space = SHA-256 over the tagged fields that keep tenants apart (zeros when there is none)
 *      key   = SHA-256 over the key of the block before it and its tokens; the space goes before
 *              the first
 *
 * So a key stands for everything from the first token of the sequence on. In memory nothing is
 * found by key alone (prefix.h compares tokens); tiers use keys as names and compare on top.
 * Thread: a hasher belongs to one. */
#ifndef WEIR_KV_KEY_H
#define WEIR_KV_KEY_H

#include "base/err.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { KV_KEY_BYTES = 32 };
struct kv_key {
    uint8_t bytes[KV_KEY_BYTES];
};

bool kv_key_equal(const struct kv_key *a, const struct kv_key *b);

/* The space of one tenant: `salt` is any bytes; NULL or n = 0 gives the space of those without. */
enum err kv_space_of(const void *salt, size_t n, struct kv_key *out, struct err_info *e)
    WEIR_MUST_USE;

/* The same within the space of `tenant`, any bytes: no salt of one tenant is a salt of another, or
 * of those without one (n_tenant = 0). */
enum err kv_space_of_tenant(const void *tenant,
                            size_t n_tenant,
                            const void *salt,
                            size_t n,
                            struct kv_key *out,
                            struct err_info *e) WEIR_MUST_USE;

/* A name for what a text says, such as all that decides the bytes of a block. */
enum err kv_fingerprint_of(const char *text, struct kv_key *out, struct err_info *e) WEIR_MUST_USE;

struct kv_hasher;
enum err kv_hasher_create(struct kv_hasher **out, struct err_info *e) WEIR_MUST_USE;
void kv_hasher_destroy(struct kv_hasher *h);

/* The key of a block of n tokens behind `parent`. Allocates nothing. */
void kv_hash_block(struct kv_hasher *h,
                   const struct kv_key *parent,
                   const int32_t *tokens,
                   uint32_t n,
                   struct kv_key *out);

#endif
