#include "kv/segment.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>
#include <xxhash.h>

static const char magic[8] = "weir kv\n";
enum { VERSION = 1, CHUNK_BYTES = 1 << 14 };

struct header {
    char magic[8];
    uint32_t version;
    uint32_t n_tokens;
    uint64_t payload_bytes;
    uint64_t tokens_sum;
    uint64_t payload_sum;
    struct kv_key fingerprint;
    struct kv_key parent;
    struct kv_key key;
    uint64_t header_sum; /* of all before it */
};

static_assert(sizeof(struct header) == KV_SEGMENT_HEADER_BYTES &&
                  offsetof(struct header, header_sum) == KV_SEGMENT_HEADER_BYTES - 8,
              "the layout is the file format");
static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "the struct is written as it lies");

static uint64_t header_sum(const struct header *h)
{
    return XXH3_64bits(h, offsetof(struct header, header_sum));
}

static uint64_t payload_at(uint32_t n_tokens)
{
    return KV_SEGMENT_HEADER_BYTES + n_tokens * sizeof(int32_t);
}

uint64_t kv_segment_bytes(uint32_t n_tokens, uint64_t payload_bytes)
{
    return payload_at(n_tokens) + payload_bytes;
}

/* --- writing ---------------------------------------------------------------------------------- */

/* Write n parts of at least one byte each, however small the pieces the system takes. */
static enum err write_parts(int fd, struct iovec *parts, int n, struct err_info *e)
{
    while (n > 0) {
        ssize_t wrote = writev(fd, parts, n);
        if (wrote < 0 && errno == EINTR)
            continue;
        if (wrote == 0)
            return err_set(e, ERR_IO, "cannot write: nothing was taken");
        if (wrote < 0)
            return err_set(e,
                           errno == ENOSPC || errno == EDQUOT ? ERR_FULL : ERR_IO,
                           "cannot write: %s",
                           strerror(errno));
        size_t left = (size_t)wrote;
        while (n > 0 && left >= parts->iov_len) {
            left -= parts->iov_len;
            parts++;
            n--;
        }
        if (n > 0) {
            parts->iov_base = (char *)parts->iov_base + left;
            parts->iov_len -= left;
        }
    }
    return OK;
}

enum err kv_segment_write(int fd,
                          const struct kv_segment *s,
                          const void *payload,
                          struct err_info *e)
{
    assert(s->n_tokens > 0 && s->n_tokens <= KV_SEGMENT_MAX_TOKENS && s->payload_bytes > 0);
    size_t tokens_bytes = s->n_tokens * sizeof *s->tokens;
    struct header h = {.version = VERSION,
                       .n_tokens = s->n_tokens,
                       .payload_bytes = s->payload_bytes,
                       .tokens_sum = XXH3_64bits(s->tokens, tokens_bytes),
                       .payload_sum = XXH3_64bits(payload, s->payload_bytes),
                       .fingerprint = s->fingerprint,
                       .parent = s->parent,
                       .key = s->key};
    memcpy(h.magic, magic, sizeof magic);
    h.header_sum = header_sum(&h);
    struct iovec parts[] = {
        {&h, sizeof h}, {(void *)s->tokens, tokens_bytes}, {(void *)payload, s->payload_bytes}};
    return write_parts(fd, parts, 3, e);
}

/* --- reading ---------------------------------------------------------------------------------- */

static enum err read_all(int fd, void *out, size_t n_bytes, uint64_t at, struct err_info *e)
{
    char *to = out;
    while (n_bytes > 0) {
        ssize_t got = pread(fd, to, n_bytes, (off_t)at);
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            return err_set(e, ERR_IO, "cannot read: %s", strerror(errno));
        if (got == 0)
            return err_set(
                e, ERR_FORMAT, "torn: ends at byte %llu while it is read", (unsigned long long)at);
        to += got;
        at += (uint64_t)got;
        n_bytes -= (size_t)got;
    }
    return OK;
}

/* The counts of a header against the file's real size. Its checksum is right, but checksums keep
 * out accidents, not people: any number may stand here. */
static enum err check_sizes(const struct header *h, uint64_t file_bytes, struct err_info *e)
{
    if (h->n_tokens == 0 || h->n_tokens > KV_SEGMENT_MAX_TOKENS || h->payload_bytes == 0)
        return err_set(e,
                       ERR_FORMAT,
                       "damaged: %u tokens in %llu bytes",
                       h->n_tokens,
                       (unsigned long long)h->payload_bytes);
    if (file_bytes < payload_at(h->n_tokens) ||
        file_bytes - payload_at(h->n_tokens) != h->payload_bytes)
        return err_set(e,
                       ERR_FORMAT,
                       "torn: %llu bytes, where %u tokens and %llu bytes of payload should be",
                       (unsigned long long)file_bytes,
                       h->n_tokens,
                       (unsigned long long)h->payload_bytes);
    return OK;
}

static enum err read_header(int fd, struct header *h, struct err_info *e)
{
    struct stat st;
    *h = (struct header){.n_tokens = 0};
    if (fstat(fd, &st) != 0)
        return err_set(e, ERR_IO, "cannot read: %s", strerror(errno));
    if (!S_ISREG(st.st_mode))
        return err_set(e, ERR_FORMAT, "not a regular file");
    if ((uint64_t)st.st_size < sizeof *h)
        return err_set(
            e, ERR_FORMAT, "torn: %llu bytes hold no header", (unsigned long long)st.st_size);
    enum err err = read_all(fd, h, sizeof *h, 0, e);
    if (err)
        return err;
    if (memcmp(h->magic, magic, sizeof magic) != 0)
        return err_set(e, ERR_FORMAT, "damaged: does not begin as a segment");
    if (h->version != VERSION)
        return err_set(
            e, ERR_UNSUPPORTED, "version %u of the format, not %u", h->version, (unsigned)VERSION);
    if (h->header_sum != header_sum(h))
        return err_set(e, ERR_FORMAT, "damaged: the header's checksum is wrong");
    return check_sizes(h, (uint64_t)st.st_size, e);
}

/* Is it the one that was asked for? Tokens are compared later, where they lie. */
static enum err check_wanted(const struct header *h,
                             const struct kv_segment *want,
                             struct err_info *e)
{
    const char *what = NULL;
    if (!kv_key_equal(&h->fingerprint, &want->fingerprint))
        what = "fingerprint";
    else if (!kv_key_equal(&h->key, &want->key))
        what = "key";
    else if (!kv_key_equal(&h->parent, &want->parent))
        what = "parent";
    else if (h->n_tokens != want->n_tokens)
        what = "number of tokens";
    else if (h->payload_bytes != want->payload_bytes)
        what = "size";
    return what ? err_set(e, ERR_INVALID, "foreign: another %s", what) : OK;
}

/* The file's tokens against the wanted ones, piece by piece: no buffer of their size is needed. */
static enum err check_tokens(int fd, const struct kv_segment *want, struct err_info *e)
{
    int32_t piece[256];
    for (uint32_t i = 0, n; i < want->n_tokens; i += n) {
        n = want->n_tokens - i < 256 ? want->n_tokens - i : 256;
        enum err err =
            read_all(fd, piece, n * sizeof *piece, KV_SEGMENT_HEADER_BYTES + i * sizeof *piece, e);
        if (err)
            return err;
        if (memcmp(piece, want->tokens + i, n * sizeof *piece) != 0)
            return err_set(e, ERR_INVALID, "foreign or damaged: other tokens");
    }
    return OK;
}

enum err kv_segment_read(int fd, const struct kv_segment *want, void *payload, struct err_info *e)
{
    struct header h;
    enum err err = read_header(fd, &h, e);
    if (!err)
        err = check_wanted(&h, want, e);
    if (!err)
        err = check_tokens(fd, want, e);
    if (!err)
        err = read_all(fd, payload, h.payload_bytes, payload_at(h.n_tokens), e);
    if (!err && XXH3_64bits(payload, h.payload_bytes) != h.payload_sum)
        err = err_set(e, ERR_FORMAT, "damaged: the payload's checksum is wrong");
    return err;
}

/* --- by itself -------------------------------------------------------------------------------- */

static void describe(const struct header *h, struct kv_segment *out)
{
    *out = (struct kv_segment){.fingerprint = h->fingerprint,
                               .parent = h->parent,
                               .key = h->key,
                               .n_tokens = h->n_tokens,
                               .payload_bytes = h->payload_bytes};
}

enum err kv_segment_head(int fd, struct kv_segment *out, struct err_info *e)
{
    struct header h;
    enum err err = read_header(fd, &h, e);
    if (!err)
        describe(&h, out);
    return err;
}

static enum err verify_tokens(int fd,
                              const struct header *h,
                              struct kv_hasher *k,
                              struct err_info *e)
{
    struct kv_key key;
    size_t n_bytes = h->n_tokens * sizeof(int32_t);
    int32_t *tokens = malloc(n_bytes ? n_bytes : 1); /* KV_SEGMENT_MAX_TOKENS bounds it */
    if (!tokens)
        return err_set(e, ERR_NOMEM, "no memory for %u tokens", h->n_tokens);
    enum err err = read_all(fd, tokens, n_bytes, KV_SEGMENT_HEADER_BYTES, e);
    if (!err && XXH3_64bits(tokens, n_bytes) != h->tokens_sum)
        err = err_set(e, ERR_FORMAT, "damaged: the tokens' checksum is wrong");
    if (!err) {
        kv_hash_block(k, &h->parent, tokens, h->n_tokens, &key);
        if (!kv_key_equal(&key, &h->key))
            err = err_set(e, ERR_FORMAT, "damaged: the key is not that of its tokens");
    }
    free(tokens);
    return err;
}

/* In pieces, as a payload may be larger than memory. */
static enum err verify_payload(int fd, const struct header *h, struct err_info *e)
{
    char piece[CHUNK_BYTES];
    enum err err = OK;
    XXH3_state_t *sum = XXH3_createState();
    if (!sum || XXH3_64bits_reset(sum) != XXH_OK) {
        XXH3_freeState(sum);
        return err_set(e, ERR_NOMEM, "no memory for a checksum");
    }
    for (uint64_t at = 0, n; at < h->payload_bytes && !err; at += n) {
        n = h->payload_bytes - at < sizeof piece ? h->payload_bytes - at : sizeof piece;
        err = read_all(fd, piece, n, payload_at(h->n_tokens) + at, e);
        if (!err)
            XXH3_64bits_update(sum, piece, n);
    }
    if (!err && XXH3_64bits_digest(sum) != h->payload_sum)
        err = err_set(e, ERR_FORMAT, "damaged: the payload's checksum is wrong");
    XXH3_freeState(sum);
    return err;
}

enum err kv_segment_verify(int fd, struct kv_hasher *k, struct kv_segment *out, struct err_info *e)
{
    struct header h;
    enum err err = read_header(fd, &h, e);
    if (!err)
        err = verify_tokens(fd, &h, k, e);
    if (!err)
        err = verify_payload(fd, &h, e);
    if (!err)
        describe(&h, out);
    return err;
}
