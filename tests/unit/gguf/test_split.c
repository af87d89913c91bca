/* Split models: several files seen as one, and each way in which they may not belong together. */
#include "file_builder.h"
#include "gguf/write.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#define NAME_BYTES 64

static char dir[] = "/tmp/weir-split-XXXXXX";

static void path_of(char *out, size_t cap, const char *name)
{
    snprintf(out, cap, "%s/%s", dir, name);
}

/* One part: its split.* keys (an absent one is -1), a name of the model or NULL, and its tensors,
 * each one row of 16 f32 that hold `fill`. */
struct part {
    int64_t no, count, n_tensors;
    const char *model;
    const char *tensors[4];
    char fill;
};

static void put_u16(struct buf *b, const char *key, int64_t v)
{
    uint16_t bits = (uint16_t)v;
    if (v >= 0)
        put_kv(b, key, GGUF_U16, &bits, sizeof bits); /* as the splitters write it */
}

static void write_part(const char *name, const struct part *p)
{
    struct buf b = {0};
    char path[sizeof dir + NAME_BYTES];
    size_t n = 0;
    while (n < 4 && p->tensors[n])
        n++;
    put_header(&b,
               3,
               n,
               (uint64_t)(p->no >= 0) + (p->count >= 0) + (p->n_tensors >= 0) + (p->model != NULL));
    put_u16(&b, "split.no", p->no);
    put_u16(&b, "split.count", p->count);
    int32_t total = (int32_t)p->n_tensors;
    if (total >= 0)
        put_kv(&b, "split.tensors.count", GGUF_I32, &total, sizeof total);
    if (p->model) {
        put_key(&b, "general.name", GGUF_STRING);
        put_str(&b, p->model);
    }
    for (size_t i = 0; i < n; i++)
        put_tensor(&b, p->tensors[i], GGUF_TYPE_F32, 16, 1, i * 64);
    put_padding(&b, 32);
    for (size_t i = 0; i < n * 64; i++)
        buf_char(&b, p->fill);
    path_of(path, sizeof path, name);
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(b.data, 1, b.len, f), b.len);
    assert_int_equal(fclose(f), 0);
    buf_deinit(&b);
}

/* Three good parts with four tensors. */
static const struct part good[3] = {
    {.no = 0, .count = 3, .n_tensors = 4, .model = "m", .tensors = {"a", "b"}, .fill = 1},
    {.no = 1, .count = 3, .n_tensors = 4, .tensors = {"c"}, .fill = 2},
    {.no = 2, .count = 3, .n_tensors = 4, .model = "m", .tensors = {"d"}, .fill = 3},
};

static const char *const names[3] = {
    "x-00001-of-00003.gguf", "x-00002-of-00003.gguf", "x-00003-of-00003.gguf"};

static void write_good(void)
{
    for (size_t i = 0; i < 3; i++)
        write_part(names[i], &good[i]);
}

static void test_good(void **state)
{
    (void)state;
    char path[sizeof dir + NAME_BYTES];
    struct gguf *g;
    struct err_info e = {0};
    write_good();
    path_of(path, sizeof path, names[0]);
    if (gguf_open(path, &g, &e))
        fail_msg("%s", e.text);
    assert_int_equal(gguf_n_parts(g), 3);
    assert_int_equal(gguf_n_tensors(g), 4);
    assert_string_equal(gguf_part_path(g, 0), path);
    size_t n_bytes = 0;
    for (uint32_t i = 0; i < 3; i++) {
        struct stat st;
        path_of(path, sizeof path, names[i]);
        assert_string_equal(gguf_part_path(g, i), path);
        assert_int_equal(stat(path, &st), 0);
        assert_int_equal(gguf_part_bytes(g, i), st.st_size);
        n_bytes += (size_t)st.st_size;
    }
    assert_int_equal(gguf_file_bytes(g), n_bytes);
    for (size_t i = 0; i < 4; i++) {
        static const uint32_t parts[4] = {0, 0, 1, 2};
        const char name[2] = {(char)('a' + i), 0};
        const struct gguf_tensor *t = gguf_find_tensor(g, name);
        assert_ptr_equal(t, gguf_tensor_at(g, i));
        assert_int_equal(t->part, parts[i]);
        assert_true(gguf_tensor_offset(g, t) + t->n_bytes <= gguf_part_bytes(g, t->part));
        for (size_t j = 0; j < t->n_bytes; j++)
            assert_int_equal(t->data[j], parts[i] + 1);
        gguf_drop_pages(g, t, 0, t->n_bytes);
        assert_int_equal(t->data[t->n_bytes - 1], parts[i] + 1);
    }
    uint64_t hash = gguf_hash(g);
    gguf_close(g);

    /* the hash is of all files */
    struct part other = good[2];
    other.fill = 4;
    write_part(names[2], &other);
    path_of(path, sizeof path, names[0]);
    assert_int_equal(gguf_open(path, &g, &e), OK);
    assert_true(gguf_hash(g) != hash);
    gguf_close(g);
}

/* Written anew, a split model is one file, which says nothing of others. */
static void test_written_whole(void **state)
{
    (void)state;
    static const enum gguf_type types[4] = {
        GGUF_TYPE_F32, GGUF_TYPE_F32, GGUF_TYPE_F32, GGUF_TYPE_F32};
    char path[sizeof dir + NAME_BYTES];
    struct gguf *g, *whole;
    struct gguf_writer *w;
    struct err_info e = {0};
    write_good();
    path_of(path, sizeof path, names[0]);
    assert_int_equal(gguf_open(path, &g, &e), OK);
    path_of(path, sizeof path, "whole.gguf");
    assert_int_equal(gguf_write_begin(path, g, types, 0, &w, &e), OK);
    for (size_t i = 0; i < 4; i++) {
        const struct gguf_tensor *t = gguf_tensor_at(g, i);
        assert_int_equal(gguf_write_data(w, t->data, t->n_bytes, &e), OK);
    }
    assert_int_equal(gguf_write_end(w, &e), OK);
    if (gguf_open(path, &whole, &e))
        fail_msg("%s", e.text);
    assert_int_equal(gguf_n_parts(whole), 1);
    assert_null(gguf_find(whole, "split.count"));
    assert_non_null(gguf_find(whole, "general.name"));
    assert_int_equal(gguf_n_tensors(whole), 4);
    for (size_t i = 0; i < 4; i++)
        assert_memory_equal(gguf_tensor_at(whole, i)->data, gguf_tensor_at(g, i)->data, 64);
    gguf_close(whole);
    gguf_close(g);
}

/* A file that is split in one part is a whole model, whatever its name. */
static void test_one_of_one(void **state)
{
    (void)state;
    char path[sizeof dir + NAME_BYTES];
    struct gguf *g;
    const struct part whole[2] = {{.count = 1, .n_tensors = 1, .tensors = {"a"}},
                                  {.count = 0, .n_tensors = -1, .no = -1, .tensors = {"a"}}};
    for (size_t i = 0; i < 2; i++) {
        write_part("one.gguf", &whole[i]);
        path_of(path, sizeof path, "one.gguf");
        assert_int_equal(gguf_open(path, &g, NULL), OK);
        assert_int_equal(gguf_n_parts(g), 1);
        gguf_close(g);
    }
}

static void expect(const char *name, enum err code, const char *where, const char *what)
{
    char path[sizeof dir + NAME_BYTES];
    struct gguf *g;
    struct err_info e = {0};
    path_of(path, sizeof path, name);
    enum err err = gguf_open(path, &g, &e);
    if (err != code || e.code != code || !strstr(e.text, where) || !strstr(e.text, what) ||
        strchr(e.text, '\n'))
        fail_msg("want %d, '%s' and '%s'; got %d: %s", code, where, what, err, e.text);
    assert_null(g);
}

static void test_damage(void **state)
{
    (void)state;
    static const struct {
        uint32_t i; /* which part is another */
        struct part part;
        const char *where, *what;
    } cases[] = {
        {0, {0, 3, 5, "m", {"a", "b"}, 0}, "00002-of", "split.tensors.count is 4"},
        {0, {0, 3, -1, "m", {"a", "b"}, 0}, "00001-of", "split.tensors.count is missing"},
        {0, {-1, 3, 4, "m", {"a", "b"}, 0}, "00001-of", "split.no is missing"},
        {0, {0, 2, 4, "m", {"a", "b"}, 0}, "00001-of", "end in -00001-of-00002.gguf"},
        {0, {3, 3, 4, "m", {"a", "b"}, 0}, "00001-of", "split.no is 3"},
        {0, {1, 0, 4, "m", {"a", "b"}, 0}, "00001-of", "split.no is 1"},
        {0, {0, 3, 4, "m", {"a"}, 0}, "00001-of", "hold 3 tensors, but split.tensors.count is 4"},
        {0, {0, 3, 4, "n", {"a", "b"}, 0}, "00003-of", "another model"},
        {1, {1, 3, 4, NULL, {"a"}, 0}, "00001-of", "\"a\" is in part 1 and in part 2"},
        {1, {2, 3, 4, NULL, {"c"}, 0}, "00002-of", "split.no is 2, expected 1"},
        {1, {-1, 3, 4, NULL, {"c"}, 0}, "00002-of", "split.no is -1, expected 1"},
        {1, {1, -1, 4, NULL, {"c"}, 0}, "00002-of", "split.no is 1, where split.count is 0"},
        {1, {1, 4, 4, NULL, {"c"}, 0}, "00002-of", "split.count is 4"},
        {1, {1, 3, 9, NULL, {"c"}, 0}, "00002-of", "split.tensors.count is 9"},
        {1, {1, 3, 4, NULL, {"c", "c"}, 0}, "00002-of", "appears twice"},
        {2, {2, 3, 4, NULL, {NULL}, 0}, "00001-of", "hold 3 tensors"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        write_good();
        write_part(names[cases[i].i], &cases[i].part);
        expect(names[0], ERR_FORMAT, cases[i].where, cases[i].what);
    }
    write_good();
    expect(names[1], ERR_INVALID, "part 2 of 3", "name the first, ...-00001-of-00003.gguf");
    write_part("other.gguf", &good[0]);
    expect("other.gguf", ERR_FORMAT, "other.gguf", "must end in -00001-of-00003.gguf");
    write_part("-00001-of-00003.gguf", &good[0]);
    expect("x-00004-of-00003.gguf", ERR_IO, "00004-of", "cannot open");
}

static void test_missing(void **state)
{
    (void)state;
    char path[sizeof dir + NAME_BYTES];
    write_good();
    path_of(path, sizeof path, names[1]);
    assert_int_equal(truncate(path, 40), 0);
    expect(names[0], ERR_FORMAT, "00002-of-00003.gguf", "at byte");
    assert_int_equal(truncate(path, 0), 0);
    expect(names[0], ERR_FORMAT, "00002-of-00003.gguf", "empty");
    assert_int_equal(unlink(path), 0);
    expect(names[0], ERR_IO, "00002-of-00003.gguf", "cannot open");
    /* a count that only a hostile file has: the second file is missed, and no memory is taken */
    write_part("x-00001-of-65535.gguf",
               &(struct part){.no = 0, .count = 65535, .n_tensors = 1, .tensors = {"a"}});
    expect("x-00001-of-65535.gguf", ERR_IO, "00002-of-65535.gguf", "cannot open");
}

static void test_kinds(void **state)
{
    (void)state;
    static const struct {
        const char *key;
        uint32_t kind;
        const char *bytes, *what;
    } cases[] = {
        {"split.count", GGUF_F32, "\0\0\200?", "must hold an integer"},
        {"split.count", GGUF_I8, "\377", "is negative"},
        {"split.count", GGUF_U32, "\377\377\377\377", "split.count is 4294967295"},
        {"split.no", GGUF_BOOL, "\1", "must hold an integer"},
        {"split.no", GGUF_U64, "\0\0\0\0\1\0\0\0", "too large"},
        {"split.tensors.count", GGUF_I32, "\377\377\377\377", "is negative"},
    };
    static const size_t sizes[] = {1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct buf b = {0};
        struct gguf *g;
        struct err_info e = {0};
        put_header(&b, 3, 0, 1);
        put_kv(&b, cases[i].key, cases[i].kind, cases[i].bytes, sizes[cases[i].kind]);
        enum err err = gguf_open_memory(b.data, b.len, &g, &e);
        if (err != ERR_FORMAT || !strstr(e.text, cases[i].what) || !strstr(e.text, cases[i].key))
            fail_msg("%s: %d: %s", cases[i].key, err, e.text);
        buf_deinit(&b);
    }
    struct buf b = {0};
    struct gguf *g;
    struct err_info e = {0};
    put_header(&b, 3, 0, 1); /* bytes in memory have no neighbours */
    put_kv_u32(&b, "split.count", 2);
    assert_int_equal(gguf_open_memory(b.data, b.len, &g, &e), ERR_UNSUPPORTED);
    assert_non_null(strstr(e.text, "2 files"));
    buf_deinit(&b);
}

static int setup(void **state)
{
    (void)state;
    return mkdtemp(dir) ? 0 : -1;
}

static int teardown(void **state)
{
    (void)state;
    char command[sizeof dir + 16];
    snprintf(command, sizeof command, "rm -r %s", dir);
    return system(command);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_good),
        cmocka_unit_test(test_written_whole),
        cmocka_unit_test(test_one_of_one),
        cmocka_unit_test(test_damage),
        cmocka_unit_test(test_missing),
        cmocka_unit_test(test_kinds),
    };
    return cmocka_run_group_tests_name("split", tests, setup, teardown);
}
