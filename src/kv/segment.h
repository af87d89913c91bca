/* One block as a file.
 *
 *        0  magic "weir kv\n"          8
 *        8  version                    u32
 *       12  n_tokens                   u32
 *       16  payload_bytes              u64
 *       24  XXH3-64 of the tokens      u64
 *       32  XXH3-64 of the payload     u64
 *       40  fingerprint, parent, key   32 each
 *      136  XXH3-64 of bytes 0..135    u64
 *      144  tokens                     i32 [n_tokens]
 *           payload                    [payload_bytes], to the end of the file
 *
 * Little-endian. Every byte is under a checksum and the length is exact, so a file that was cut,
 * grown or changed anywhere is refused. Nothing a header says is used before the file's real size
 * has been compared with it.
 *
 * Thread: any, one a file descriptor. Errors, for all: ERR_IO (the system refused), ERR_FORMAT
 * (torn or damaged), ERR_UNSUPPORTED (another version of the format), ERR_INVALID (whole, but of
 * something else than was asked for). */
#ifndef WEIR_KV_SEGMENT_H
#define WEIR_KV_SEGMENT_H

#include "kv/key.h"

enum { KV_SEGMENT_MAX_TOKENS = 1 << 16, KV_SEGMENT_HEADER_BYTES = 144 };

struct kv_segment {
    struct kv_key fingerprint; /* of all that decides the payload's bytes */
    struct kv_key parent;
    struct kv_key key;
    const int32_t *tokens; /* [n_tokens] */
    uint32_t n_tokens;     /* 1..KV_SEGMENT_MAX_TOKENS */
    uint64_t payload_bytes;
};

/* The size of the file; n_tokens in range, and the sum must fit. */
uint64_t kv_segment_bytes(uint32_t n_tokens, uint64_t payload_bytes);

/* Write all of it at fd's position. After an error the file holds any part. Allocates nothing.
 * Errors: also ERR_FULL. */
enum err kv_segment_write(int fd,
                          const struct kv_segment *s,
                          const void *payload,
                          struct err_info *e) WEIR_MUST_USE;

/* Read the payload of the file, if it is the one that `want` describes: fingerprint, parent, key,
 * tokens and sizes are compared, and the checksums. After an error *payload holds any bytes.
 * Allocates nothing. */
enum err kv_segment_read(int fd, const struct kv_segment *want, void *payload, struct err_info *e)
    WEIR_MUST_USE;

/* What the header says, tokens excepted (NULL); the payload is not looked at. */
enum err kv_segment_head(int fd, struct kv_segment *out, struct err_info *e) WEIR_MUST_USE;

/* Check the file by itself: all checksums, and that its key is the one of its parent and tokens.
 * *out is as kv_segment_head fills it. Errors: also ERR_NOMEM. */
enum err kv_segment_verify(int fd, struct kv_hasher *h, struct kv_segment *out, struct err_info *e)
    WEIR_MUST_USE;

#endif
