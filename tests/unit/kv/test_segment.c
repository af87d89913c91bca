/* The file format: what was written comes back, and whatever was changed is noticed. */
#include "disk_help.h"
#include "kv/segment.h"

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>

#include <cmocka.h>

#define PAYLOAD 200

struct fixture {
    int fd;
    struct kv_hasher *h;
    struct test_block b;
    struct kv_segment s;
    uint8_t payload[PAYLOAD], back[PAYLOAD];
    uint8_t file[1024]; /* the segment's bytes */
    size_t n;
};

static int setup(void **state)
{
    struct fixture *f = calloc(1, sizeof *f);
    assert_int_equal(kv_hasher_create(&f->h, NULL), OK);
    block_make(f->h, 1, &f->b);
    block_payload(1, f->payload, PAYLOAD);
    f->s = (struct kv_segment){.fingerprint = {{1, 2, 3}},
                               .parent = f->b.block.parent,
                               .key = f->b.block.key,
                               .tokens = f->b.tokens,
                               .n_tokens = HELP_TOKENS,
                               .payload_bytes = PAYLOAD};
    f->fd = memfd_create("segment", MFD_CLOEXEC);
    assert_true(f->fd >= 0);
    assert_int_equal(kv_segment_write(f->fd, &f->s, f->payload, NULL), OK);
    f->n = (size_t)lseek(f->fd, 0, SEEK_END);
    assert_true(f->n <= sizeof f->file);
    assert_int_equal(pread(f->fd, f->file, f->n, 0), f->n);
    *state = f;
    return 0;
}

static int teardown(void **state)
{
    struct fixture *f = *state;
    close(f->fd);
    kv_hasher_destroy(f->h);
    free(f);
    return 0;
}

static void put(struct fixture *f, const void *bytes, size_t n)
{
    assert_int_equal(ftruncate(f->fd, 0), 0);
    assert_int_equal(pwrite(f->fd, bytes, n, 0), n);
}

/* Each error comes with its code and a line. */
static enum err fetch(struct fixture *f)
{
    struct err_info e = {0};
    memset(f->back, 0, sizeof f->back);
    enum err err = kv_segment_read(f->fd, &f->s, f->back, &e);
    if (err) {
        assert_int_equal(e.code, err);
        assert_true(strlen(e.text) > 5);
    }
    return err;
}

static enum err verify(struct fixture *f)
{
    struct kv_segment out;
    struct err_info e = {0};
    enum err err = kv_segment_verify(f->fd, f->h, &out, &e);
    if (err) {
        assert_int_equal(e.code, err);
        assert_true(strlen(e.text) > 5);
    }
    return err;
}

static void test_round_trip(void **state)
{
    struct fixture *f = *state;
    struct kv_segment out;
    assert_int_equal(f->n, kv_segment_bytes(HELP_TOKENS, PAYLOAD));
    assert_int_equal(f->n, KV_SEGMENT_HEADER_BYTES + 4 * HELP_TOKENS + PAYLOAD);
    assert_int_equal(fetch(f), OK);
    assert_memory_equal(f->back, f->payload, PAYLOAD);
    assert_int_equal(kv_segment_verify(f->fd, f->h, &out, NULL), OK);
    assert_true(kv_key_equal(&out.key, &f->s.key));
    assert_true(kv_key_equal(&out.parent, &f->s.parent));
    assert_true(kv_key_equal(&out.fingerprint, &f->s.fingerprint));
    assert_int_equal(out.n_tokens, HELP_TOKENS);
    assert_int_equal(out.payload_bytes, PAYLOAD);
    assert_null(out.tokens);
    assert_int_equal(kv_segment_head(f->fd, &out, NULL), OK);
    assert_true(kv_key_equal(&out.key, &f->s.key));
}

static void test_every_bit_counts(void **state)
{
    struct fixture *f = *state;
    for (size_t i = 0; i < f->n; i++) {
        for (int bit = 0; bit < 8; bit++) {
            uint8_t was = f->file[i], now = (uint8_t)(was ^ 1 << bit);
            assert_int_equal(pwrite(f->fd, &now, 1, (off_t)i), 1);
            assert_int_not_equal(fetch(f), OK);
            assert_int_not_equal(verify(f), OK);
            assert_int_equal(pwrite(f->fd, &was, 1, (off_t)i), 1);
        }
    }
    assert_int_equal(fetch(f), OK);
}

static void test_every_length_but_one_is_torn(void **state)
{
    struct fixture *f = *state;
    struct kv_segment out;
    for (size_t n = 0; n < f->n + 100; n++) {
        if (n == f->n)
            continue;
        put(f, f->file, f->n < n ? f->n : n);
        assert_int_equal(ftruncate(f->fd, (off_t)n), 0); /* longer ones end with zeros */
        assert_int_equal(fetch(f), ERR_FORMAT);
        assert_int_equal(verify(f), ERR_FORMAT);
        assert_int_equal(kv_segment_head(f->fd, &out, NULL), ERR_FORMAT);
    }
}

/* What a lost page leaves: zeros in the middle. */
static void test_holes(void **state)
{
    struct fixture *f = *state;
    for (size_t at = 0; at + 16 <= f->n; at += 8) {
        uint8_t copy[sizeof f->file];
        memcpy(copy, f->file, f->n);
        memset(copy + at, 0, 16);
        if (memcmp(copy, f->file, f->n) == 0)
            continue;
        put(f, copy, f->n);
        assert_int_not_equal(fetch(f), OK);
        assert_int_not_equal(verify(f), OK);
    }
}

static void test_foreign(void **state)
{
    struct fixture *f = *state;
    struct kv_segment mine = f->s;
    int32_t other[HELP_TOKENS];
    memcpy(other, f->b.tokens, sizeof other);
    other[HELP_TOKENS - 1]++;
    f->s.fingerprint.bytes[31] ^= 1;
    assert_int_equal(fetch(f), ERR_INVALID);
    f->s = mine;
    f->s.key.bytes[0] ^= 1;
    assert_int_equal(fetch(f), ERR_INVALID);
    f->s = mine;
    f->s.parent.bytes[5] ^= 1;
    assert_int_equal(fetch(f), ERR_INVALID);
    f->s = mine;
    f->s.tokens = other;
    assert_int_equal(fetch(f), ERR_INVALID);
    f->s = mine;
    f->s.n_tokens--;
    assert_int_equal(fetch(f), ERR_INVALID);
    f->s = mine;
    f->s.payload_bytes--;
    assert_int_equal(fetch(f), ERR_INVALID);
    f->s = mine;
    assert_int_equal(fetch(f), OK);
}

/* A whole file under right checksums whose key is made up: only verify can tell. */
static void test_key_must_follow_from_tokens(void **state)
{
    struct fixture *f = *state;
    f->s.key.bytes[3] ^= 0x10;
    assert_int_equal(ftruncate(f->fd, 0), 0);
    lseek(f->fd, 0, SEEK_SET);
    assert_int_equal(kv_segment_write(f->fd, &f->s, f->payload, NULL), OK);
    assert_int_equal(fetch(f), OK);
    assert_int_equal(verify(f), ERR_FORMAT);
}

static void test_not_a_file(void **state)
{
    struct fixture *f = *state;
    struct kv_segment out;
    int ends[2], dir = open("/", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    assert_int_equal(pipe(ends), 0);
    assert_int_equal(kv_segment_read(ends[0], &f->s, f->back, NULL), ERR_FORMAT);
    assert_int_equal(kv_segment_verify(dir, f->h, &out, NULL), ERR_FORMAT);
    close(ends[0]);
    close(ends[1]);
    close(dir);
    assert_int_equal(kv_segment_read(dir, &f->s, f->back, NULL), ERR_IO);
    assert_int_equal(kv_segment_write(dir, &f->s, f->payload, NULL), ERR_IO);
}

static void tick(int signal)
{
    (void)signal;
}

/* A pipe takes small pieces, and signals interrupt the writer: every byte arrives all the same. */
static void test_short_writes_and_signals(void **state)
{
    struct fixture *f = *state;
    enum { BYTES = 3 << 20 };
    uint8_t *payload = malloc(BYTES), *back = malloc(BYTES + 1024);
    random_fill(9, payload, BYTES);
    f->s.payload_bytes = BYTES;
    int ends[2];
    assert_int_equal(pipe(ends), 0);
    pid_t child = fork();
    if (child == 0) {
        struct sigaction act = {.sa_handler = tick}; /* no SA_RESTART */
        sigaction(SIGALRM, &act, NULL);
        ualarm(500, 500);
        _exit(kv_segment_write(ends[1], &f->s, payload, NULL) == OK ? 0 : 1);
    }
    close(ends[1]);
    size_t n = 0;
    for (ssize_t got; (got = read(ends[0], back + n, n % 7919 + 1)) > 0;)
        n += (size_t)got;
    int status = -1;
    waitpid(child, &status, 0);
    assert_int_equal(status, 0);
    assert_int_equal(n, kv_segment_bytes(HELP_TOKENS, BYTES));
    assert_memory_equal(back + n - BYTES, payload, BYTES);
    close(ends[0]);
    free(payload);
    free(back);
}

static void test_full(void **state)
{
    struct fixture *f = *state;
    struct err_info e = {0};
    int fd = open("/dev/full", O_WRONLY | O_CLOEXEC);
    assert_int_equal(kv_segment_write(fd, &f->s, f->payload, &e), ERR_FULL);
    assert_non_null(strstr(e.text, "No space left"));
    close(fd);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        TEST(test_round_trip),
        TEST(test_every_bit_counts),
        TEST(test_every_length_but_one_is_torn),
        TEST(test_holes),
        TEST(test_foreign),
        TEST(test_key_must_follow_from_tokens),
        TEST(test_not_a_file),
        TEST(test_short_writes_and_signals),
        TEST(test_full),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
