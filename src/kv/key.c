#include "kv/key.h"

#include "base/mem.h"

#include <openssl/evp.h>
#include <stdlib.h>
#include <string.h>

static const char space_tag[] = "weir kv space 1: salt";
static const char tenant_tag[] = "weir kv space 1: tenant, salt";
static const char text_tag[] = "weir kv fingerprint 1: text";
static const char block_tag[] = "weir kv block 1";

struct kv_hasher {
    EVP_MD_CTX *ctx;
    EVP_MD *md;
};

bool kv_key_equal(const struct kv_key *a, const struct kv_key *b)
{
    return memcmp(a, b, sizeof *a) == 0;
}

/* The tag carries its own end, and the length goes before the bytes: no two fields run together. */
static enum err hash_tagged(const char *tag,
                            size_t tag_size,
                            const void *bytes,
                            size_t n,
                            struct kv_key *out,
                            struct err_info *e)
{
    uint64_t length = n;
    EVP_MD_CTX *ctx = EVP_MD_CTX_new();
    bool ok = ctx && EVP_DigestInit_ex(ctx, EVP_sha256(), NULL) == 1 &&
              EVP_DigestUpdate(ctx, tag, tag_size) == 1 &&
              EVP_DigestUpdate(ctx, &length, sizeof length) == 1 &&
              EVP_DigestUpdate(ctx, bytes, n) == 1 &&
              EVP_DigestFinal_ex(ctx, out->bytes, NULL) == 1;
    EVP_MD_CTX_free(ctx);
    return ok ? OK : err_set(e, ERR_NOMEM, "cannot hash %zu bytes", n);
}

enum err kv_space_of(const void *salt, size_t n, struct kv_key *out, struct err_info *e)
{
    *out = (struct kv_key){{0}};
    return salt && n > 0 ? hash_tagged(space_tag, sizeof space_tag, salt, n, out, e) : OK;
}

enum err kv_space_of_tenant(const void *tenant,
                            size_t n_tenant,
                            const void *salt,
                            size_t n,
                            struct kv_key *out,
                            struct err_info *e)
{
    if (!tenant || n_tenant == 0)
        return kv_space_of(salt, n, out, e);
    uint64_t lengths[2] = {n_tenant, salt ? n : 0};
    EVP_MD_CTX *ctx = EVP_MD_CTX_new();
    bool ok = ctx && EVP_DigestInit_ex(ctx, EVP_sha256(), NULL) == 1 &&
              EVP_DigestUpdate(ctx, tenant_tag, sizeof tenant_tag) == 1 &&
              EVP_DigestUpdate(ctx, lengths, sizeof lengths) == 1 &&
              EVP_DigestUpdate(ctx, tenant, n_tenant) == 1 &&
              EVP_DigestUpdate(ctx, salt ? salt : "", (size_t)lengths[1]) == 1 &&
              EVP_DigestFinal_ex(ctx, out->bytes, NULL) == 1;
    EVP_MD_CTX_free(ctx);
    return ok ? OK : err_set(e, ERR_NOMEM, "cannot hash %zu bytes", n_tenant + n);
}

enum err kv_fingerprint_of(const char *text, struct kv_key *out, struct err_info *e)
{
    return hash_tagged(text_tag, sizeof text_tag, text, strlen(text), out, e);
}

enum err kv_hasher_create(struct kv_hasher **out, struct err_info *e)
{
    struct kv_hasher *h = mem_zalloc(1, sizeof *h);
    *out = NULL;
    h->md = EVP_MD_fetch(NULL, "SHA256", NULL);
    h->ctx = EVP_MD_CTX_new();
    if (!h->md || !h->ctx || EVP_DigestInit_ex(h->ctx, h->md, NULL) != 1) {
        kv_hasher_destroy(h);
        return err_set(e, ERR_NOMEM, "libcrypto gives no SHA-256");
    }
    *out = h;
    return OK;
}

void kv_hasher_destroy(struct kv_hasher *h)
{
    if (!h)
        return;
    EVP_MD_CTX_free(h->ctx);
    EVP_MD_free(h->md);
    free(h);
}

void kv_hash_block(struct kv_hasher *h,
                   const struct kv_key *parent,
                   const int32_t *tokens,
                   uint32_t n,
                   struct kv_key *out)
{
    /* None of these can fail once the first EVP_DigestInit_ex of this context has succeeded. */
    EVP_DigestInit_ex(h->ctx, NULL, NULL);
    EVP_DigestUpdate(h->ctx, block_tag, sizeof block_tag);
    EVP_DigestUpdate(h->ctx, parent->bytes, sizeof parent->bytes);
    EVP_DigestUpdate(h->ctx, tokens, n * sizeof *tokens);
    EVP_DigestFinal_ex(h->ctx, out->bytes, NULL);
}
