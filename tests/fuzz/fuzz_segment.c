/* Any bytes as a segment of the disk cache. What verifies must also be readable by whoever asks for
 * it, must say what it says when it is written again, and must not be readable as anything else.
 *
 * The first byte tells whether the checksums are mended first, as no mutation gets past them. */
#include "kv/segment.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#include <xxhash.h>

/* The name is libFuzzer's. NOLINTNEXTLINE(readability-identifier-naming) */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes);

enum { HEAD = KV_SEGMENT_HEADER_BYTES, N_TOKENS = 12, TOKENS_SUM = 24, PAYLOAD_SUM = 32 };

static void must(bool ok)
{
    if (!ok)
        abort();
}

static void mend(uint8_t *file, size_t n)
{
    uint32_t n_tokens;
    uint64_t sum;
    if (n < HEAD)
        return;
    memcpy(file, "weir kv\n\1\0\0", 12);
    memcpy(&n_tokens, file + N_TOKENS, sizeof n_tokens);
    size_t at = HEAD + (size_t)n_tokens * 4;
    if (at <= n) {
        sum = XXH3_64bits(file + HEAD, at - HEAD);
        memcpy(file + TOKENS_SUM, &sum, sizeof sum);
        sum = XXH3_64bits(file + at, n - at);
        memcpy(file + PAYLOAD_SUM, &sum, sizeof sum);
    }
    sum = XXH3_64bits(file, HEAD - sizeof sum);
    memcpy(file + HEAD - sizeof sum, &sum, sizeof sum);
}

/* An error has a code and one line. */
static void check_error(enum err err, const struct err_info *e)
{
    must(!err || (e->code == err && e->text[0] && !strchr(e->text, '\n')));
}

/* `s` was verified in these n bytes. */
static void use(int fd, struct kv_segment s, const uint8_t *file, size_t n)
{
    struct err_info e = {0};
    size_t at = HEAD + (size_t)s.n_tokens * 4;
    int32_t *tokens = malloc(at - HEAD);
    uint8_t *payload = malloc(n - at), *again = malloc(n);
    must(s.payload_bytes == n - at);
    memcpy(tokens, file + HEAD, at - HEAD);
    s.tokens = tokens;
    must(kv_segment_read(fd, &s, payload, &e) == OK);
    must(memcmp(payload, file + at, n - at) == 0);
    tokens[s.n_tokens - 1]++;
    must(kv_segment_read(fd, &s, payload, &e) == ERR_INVALID);
    tokens[s.n_tokens - 1]--;
    memcpy(payload, file + at, n - at);
    int other = memfd_create("again", MFD_CLOEXEC);
    must(kv_segment_write(other, &s, payload, &e) == OK);
    must(pread(other, again, n, 0) == (ssize_t)n && memcmp(again, file, n) == 0);
    close(other);
    free(tokens);
    free(payload);
    free(again);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes)
{
    static struct kv_hasher *h;
    struct kv_segment s, head;
    struct err_info e = {0};
    if (n_bytes == 0 || (!h && kv_hasher_create(&h, NULL)))
        return 0;
    size_t n = n_bytes - 1;
    uint8_t *file = malloc(n ? n : 1);
    memcpy(file, data + 1, n);
    if (data[0] & 1)
        mend(file, n);
    int fd = memfd_create("segment", MFD_CLOEXEC);
    must(fd >= 0 && pwrite(fd, file, n, 0) == (ssize_t)n);
    enum err read_head = kv_segment_head(fd, &head, &e);
    check_error(read_head, &e);
    enum err err = kv_segment_verify(fd, h, &s, &e);
    check_error(err, &e);
    must(err || !read_head);
    if (!err)
        use(fd, s, file, n);
    close(fd);
    free(file);
    return 0;
}
