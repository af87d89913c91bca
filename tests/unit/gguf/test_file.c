/* Whole files: what a good one yields, every prefix of it, and flipped bits under a printed seed.
 */
#include "file_builder.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

/* Every kind of value and of array, two types of tensor; no padding at the end. */
static void put_good(struct buf *b, uint32_t version)
{
    put_header(b, version, 3, 20);
    put_key(b, "general.architecture", GGUF_STRING);
    put_str(b, "nano");
    put_kv_u32(b, "general.alignment", 64);
    put_kv(b, "k.u8", GGUF_U8, &(uint8_t){200}, 1);
    put_kv(b, "k.i8", GGUF_I8, &(int8_t){-100}, 1);
    put_kv(b, "k.u16", GGUF_U16, &(uint16_t){60000}, 2);
    put_kv(b, "k.i16", GGUF_I16, &(int16_t){-30000}, 2);
    put_kv(b, "k.i32", GGUF_I32, &(int32_t){7}, 4);
    put_kv(b, "k.f32", GGUF_F32, &(float){1.5f}, 4);
    put_kv(b, "k.nan", GGUF_F32, &(uint32_t){0x7fc00000}, 4);
    put_kv(b, "k.bool", GGUF_BOOL, &(uint8_t){1}, 1);
    put_kv(b, "k.u64", GGUF_U64, &(uint64_t){UINT64_MAX}, 8);
    put_kv(b, "k.u64fits", GGUF_U64, &(uint64_t){UINT32_MAX}, 8);
    put_kv(b, "k.i64", GGUF_I64, &(int64_t){INT64_MIN}, 8);
    put_kv(b, "k.f64", GGUF_F64, &(double){-0.25}, 8);
    put_kv(b, "k.f64big", GGUF_F64, &(double){1e300}, 8);
    put_array(b, "a.str", GGUF_STRING, 3);
    put_str(b, "one");
    put_str(b, "");
    put_str(b, "three");
    put_array(b, "a.i16", GGUF_I16, 2);
    put_data(b, 4);
    put_array(b, "a.bool", GGUF_BOOL, 2);
    buf_add(b, "\0\1", 2);
    put_array(b, "a.empty", GGUF_F64, 0);
    put_key(b, "k.empty", GGUF_STRING);
    put_str(b, "");
    put_tensor(b, "w", GGUF_TYPE_Q8_0, 64, 2, 64);
    put_tensor(b, "norm", GGUF_TYPE_F32, 8, 1, 0);
    put_tensor(b, "other", 10, 256, 1, 256); /* Q2_K: not computed, still listed */
    put_padding(b, 64);
    put_data(b, 256 + 84);
}

static struct gguf *open_ok(const struct buf *b)
{
    struct gguf *g;
    struct err_info e = {0};
    if (gguf_open_memory(b->data, b->len, &g, &e))
        fail_msg("%s", e.text);
    return g;
}

static void test_scalars(void **state)
{
    (void)state;
    struct buf b = {0};
    put_good(&b, 3);
    struct gguf *g = open_ok(&b);
    struct err_info e;
    const struct {
        const char *key;
        enum err err;
        uint32_t value;
    } ints[] = {
        {"k.u8", OK, 200},
        {"k.u16", OK, 60000},
        {"k.i32", OK, 7},
        {"k.u64fits", OK, UINT32_MAX},
        {"absent", OK, 77},
        {"k.i8", ERR_FORMAT, 77},
        {"k.i16", ERR_FORMAT, 77},
        {"k.u64", ERR_FORMAT, 77},
        {"k.i64", ERR_FORMAT, 77},
        {"k.f32", ERR_FORMAT, 77},
        {"k.bool", ERR_FORMAT, 77},
        {"general.architecture", ERR_FORMAT, 77},
        {"a.i16", ERR_FORMAT, 77},
    };
    for (size_t i = 0; i < sizeof ints / sizeof ints[0]; i++) {
        uint32_t v = 77;
        assert_int_equal(gguf_get_u32(g, ints[i].key, &v, &e), ints[i].err);
        assert_int_equal(v, ints[i].value);
        if (ints[i].err)
            assert_non_null(strstr(e.text, ints[i].key));
    }
    float f = 9;
    assert_int_equal(gguf_get_f32(g, "absent", &f, &e), OK);
    assert_true(f == 9);
    assert_int_equal(gguf_get_f32(g, "k.nan", &f, &e), ERR_FORMAT);
    assert_int_equal(gguf_get_f32(g, "k.f64big", &f, &e), ERR_FORMAT);
    assert_int_equal(gguf_get_f32(g, "k.i32", &f, &e), ERR_FORMAT);
    assert_true(f == 9);
    assert_int_equal(gguf_get_f32(g, "k.f32", &f, &e), OK);
    assert_true(f == 1.5f);
    assert_int_equal(gguf_get_f32(g, "k.f64", &f, &e), OK);
    assert_true(f == -0.25f);
    bool flag = false;
    assert_int_equal(gguf_get_bool(g, "k.u8", &flag, &e), ERR_FORMAT);
    assert_int_equal(gguf_get_bool(g, "absent", &flag, &e), OK);
    assert_false(flag);
    assert_int_equal(gguf_get_bool(g, "k.bool", &flag, &e), OK);
    assert_true(flag);
    assert_int_equal(gguf_find(g, "k.i64")->i, INT64_MIN);
    assert_int_equal(gguf_find(g, "k.i8")->i, -100);
    gguf_close(g);
    buf_deinit(&b);
}

static void test_strings_and_arrays(void **state)
{
    (void)state;
    struct buf b = {0};
    put_good(&b, 2);
    struct gguf *g = open_ok(&b);
    struct gguf_str s = {"default", 7};
    assert_int_equal(gguf_get_str(g, "absent", &s, NULL), OK);
    assert_int_equal(gguf_get_str(g, "k.u8", &s, NULL), ERR_FORMAT);
    assert_int_equal(s.len, 7);
    assert_int_equal(gguf_get_str(g, "general.architecture", &s, NULL), OK);
    assert_int_equal(s.len, 4);
    assert_memory_equal(s.data, "nano", 4);
    assert_int_equal(gguf_get_str(g, "k.empty", &s, NULL), OK);
    assert_int_equal(s.len, 0);

    const struct gguf_kv *kv = gguf_find(g, "a.str");
    assert_int_equal(kv->kind, GGUF_ARRAY);
    assert_int_equal(kv->elem_kind, GGUF_STRING);
    assert_int_equal(kv->n_elems, 3);
    const uint8_t *at = kv->elems;
    assert_int_equal(gguf_next_str(&at).len, 3);
    assert_int_equal(gguf_next_str(&at).len, 0);
    s = gguf_next_str(&at);
    assert_int_equal(s.len, 5);
    assert_memory_equal(s.data, "three", 5);

    kv = gguf_find(g, "a.i16");
    assert_int_equal(kv->n_elems, 2);
    assert_memory_equal(kv->elems, "\0\1\2\3", 4);
    assert_int_equal(gguf_elem(kv, 1).kind, GGUF_I16);
    assert_int_equal(gguf_elem(kv, 1).i, 0x302);
    assert_false(gguf_elem(gguf_find(g, "a.bool"), 0).b);
    assert_true(gguf_elem(gguf_find(g, "a.bool"), 1).b);
    assert_int_equal(gguf_find(g, "a.empty")->n_elems, 0);
    assert_null(gguf_find(g, "a.st"));
    assert_null(gguf_find(g, ""));
    gguf_close(g);
    buf_deinit(&b);
}

static void test_tensors(void **state)
{
    (void)state;
    struct buf b = {0};
    put_good(&b, 3);
    struct gguf *g = open_ok(&b);
    assert_int_equal(gguf_version(g), 3);
    assert_int_equal(gguf_n_kv(g), 20);
    assert_int_equal(gguf_n_tensors(g), 3);
    assert_int_equal(gguf_file_bytes(g), b.len);
    const struct gguf_tensor *w = gguf_find_tensor(g, "w");
    assert_ptr_equal(w, gguf_tensor_at(g, 0));
    assert_int_equal(w->n_bytes, 2 * 2 * 34);
    assert_int_equal(w->ne[1], 2);
    assert_int_equal(w->ne[2], 1);
    assert_int_equal(w->ne[3], 1);
    const struct gguf_tensor *norm = gguf_find_tensor(g, "norm");
    assert_ptr_equal(norm->data + 64, w->data);
    assert_int_equal(gguf_tensor_offset(g, norm) % 64, 0);
    assert_int_equal(gguf_find_tensor(g, "other")->n_bytes, 84);
    assert_null(gguf_find_tensor(g, "general.architecture"));
    gguf_drop_pages(g, w, 0, w->n_bytes); /* of memory: nothing happens */
    assert_int_equal(w->data[1], 65);
    gguf_close(g);
    gguf_close(NULL);
    buf_deinit(&b);
}

/* Read everything that the file offers, as a caller would: ASan watches. */
static uint64_t walk(const struct gguf *g)
{
    uint64_t sum = 0;
    for (uint64_t i = 0; i < gguf_n_kv(g); i++) {
        const struct gguf_kv *kv = gguf_kv_at(g, i);
        const uint8_t *at = kv->elems;
        for (uint64_t j = 0; kv->kind == GGUF_ARRAY && j < kv->n_elems; j++)
            sum += kv->elem_kind == GGUF_STRING ? gguf_next_str(&at).len : at[j];
        if (kv->kind == GGUF_STRING)
            for (size_t j = 0; j < kv->s.len; j++)
                sum += (uint8_t)kv->s.data[j];
    }
    for (uint64_t i = 0; i < gguf_n_tensors(g); i++) {
        const struct gguf_tensor *t = gguf_tensor_at(g, i);
        for (size_t j = 0; j < t->n_bytes; j++)
            sum += t->data[j];
    }
    return sum;
}

static void test_every_prefix_fails(void **state)
{
    (void)state;
    struct buf b = {0};
    put_good(&b, 3);
    for (size_t n = 0; n < b.len; n++) {
        char *copy = malloc(n ? n : 1); /* its own block: one byte too far is seen by ASan */
        memcpy(copy, b.data, n);
        struct gguf *g = (struct gguf *)copy;
        struct err_info e = {0};
        assert_int_equal(gguf_open_memory(copy, n, &g, &e), ERR_FORMAT);
        assert_null(g);
        assert_int_equal(e.code, ERR_FORMAT);
        assert_non_null(strstr(e.text, " at byte "));
        assert_null(strchr(e.text, '\n'));
        free(copy);
    }
    struct gguf *g = open_ok(&b);
    assert_true(walk(g) > 0);
    gguf_close(g);
    buf_deinit(&b);
}

static void test_flipped_bits(void **state)
{
    (void)state;
    unsigned seed =
        getenv("WEIR_SEED") ? (unsigned)atoi(getenv("WEIR_SEED")) : (unsigned)time(NULL);
    print_message("seed %u (set WEIR_SEED to repeat)\n", seed);
    struct buf b = {0};
    put_good(&b, 3);
    char *copy = malloc(b.len);
    uint64_t sum = 0;
    int n_opened = 0, n_refused = 0;
    for (int round = 0; round < 20000; round++) {
        memcpy(copy, b.data, b.len);
        int n = 1 + rand_r(&seed) % 4;
        for (int i = 0; i < n; i++) {
            size_t at = (size_t)rand_r(&seed) % b.len;
            copy[at] =
                (char)(rand_r(&seed) % 2 ? copy[at] ^ 1 << rand_r(&seed) % 8 : rand_r(&seed));
        }
        struct gguf *g;
        if (gguf_open_memory(copy, b.len, &g, NULL)) {
            n_refused++;
            continue;
        }
        n_opened++;
        sum += walk(g);
        gguf_close(g);
    }
    assert_true(n_opened > 0 && n_refused > 0 && sum > 0);
    free(copy);
    buf_deinit(&b);
}

static void test_from_disk(void **state)
{
    (void)state;
    char path[] = "/tmp/weir-test-XXXXXX";
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    struct buf b = {0};
    put_header(&b, 3, 1, 0);
    put_tensor(&b, "big", GGUF_TYPE_F32, 8192, 4, 0);
    put_padding(&b, 32);
    put_data(&b, 8192 * 4 * 4);
    assert_int_equal(write(fd, b.data, b.len), (ssize_t)b.len);
    struct gguf *g;
    struct err_info e;
    assert_int_equal(gguf_open(path, &g, &e), OK);
    const struct gguf_tensor *t = gguf_find_tensor(g, "big");
    uint64_t sum = walk(g);
    gguf_drop_pages(g, t, 0, t->n_bytes);
    assert_int_equal(walk(g), sum);
    gguf_close(g);

    assert_int_equal(ftruncate(fd, 0), 0);
    assert_int_equal(gguf_open(path, &g, &e), ERR_FORMAT);
    assert_null(g);
    close(fd);
    unlink(path);
    assert_int_equal(gguf_open(path, &g, &e), ERR_IO);
    assert_non_null(strstr(e.text, path));
    assert_int_equal(gguf_open("/tmp", &g, &e), ERR_IO);
    assert_int_equal(gguf_open("/dev/zero", &g, &e), ERR_IO);
    assert_int_equal(gguf_open("a\nb\033[31m", &g, &e), ERR_IO);
    assert_null(strchr(e.text, '\n'));
    assert_null(strchr(e.text, '\033'));
    buf_deinit(&b);
}

struct flipped {
    char *length; /* of a string, in a mapped file */
    atomic_bool stop;
};

/* The string is short, long, short, ... */
static void *flip_length(void *arg)
{
    struct flipped *f = arg;
    for (uint64_t i = 0; !f->stop; i++)
        memcpy(f->length, &(uint64_t){i % 2 ? 40000 : 8}, 8);
    return NULL;
}

/* The metadata may grow between two looks at the file: it is refused then, or what has been opened
 * is a copy to its last byte. */
static void test_changing_file(void **state)
{
    (void)state;
    char path[] = "/tmp/weir-test-XXXXXX";
    int fd = mkstemp(path), n_opened = 0;
    assert_true(fd >= 0);
    struct buf b = {0};
    put_header(&b, 3, 0, 1);
    put_key(&b, "k", GGUF_STRING);
    const size_t length_at = b.len, last = length_at + 8 + 40000 - 1;
    put_data(&b, 8 + 40000);
    assert_int_equal(write(fd, b.data, b.len), (ssize_t)b.len);
    char *map = mmap(NULL, b.len, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    assert_true(map != MAP_FAILED);
    struct flipped f = {.length = map + length_at};
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, flip_length, &f), 0);
    for (int i = 0; i < 3000; i++) {
        struct gguf *g;
        map[last] = 'a';
        if (gguf_open(path, &g, NULL) != OK)
            continue;
        n_opened++;
        struct gguf_str s = gguf_kv_at(g, 0)->s;
        map[last] = 'b';
        if (s.len == 40000)
            assert_int_equal(s.data[s.len - 1], 'a');
        gguf_close(g);
    }
    f.stop = true;
    pthread_join(thread, NULL);
    assert_true(n_opened > 0);
    munmap(map, b.len);
    close(fd);
    unlink(path);
    buf_deinit(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_scalars),
        cmocka_unit_test(test_strings_and_arrays),
        cmocka_unit_test(test_tensors),
        cmocka_unit_test(test_every_prefix_fails),
        cmocka_unit_test(test_flipped_bits),
        cmocka_unit_test(test_from_disk),
        cmocka_unit_test(test_changing_file),
    };
    return cmocka_run_group_tests_name("file", tests, NULL, NULL);
}
