/* Unigram vocabularies: the best sum of scores, white space, and the table of replacements. */
#include "unit/tokenizer/toy_vocab.h"

#include <time.h>

#define W "\xe2\x96\x81"

static const struct toy_token words[] = {{"<pad>", 3, 0},
                                         {"</s>", 3, 0},
                                         {"<unk>", 2, 0},
                                         {W, 0, -2},
                                         {W "ab", 0, -3},
                                         {"a", 0, -4},
                                         {"b", 0, -4},
                                         {"abc", 0, -3.5},
                                         {"c", 0, -1},
                                         {W "a", 0, -4},
                                         {"bc", 0, -2},
                                         {"<tool>", 4, 0},
                                         {"u", 5, -1},
                                         {NULL, 0, 0}};

/* A table that replaces "A" by "a", "\xc3\xa4" by "ab", and "X" by nothing. */
static struct buf make_charsmap(void)
{
    static const char texts[] = "a\0ab\0";
    uint32_t units[0x1c4] = {0};
    struct buf b = {0};
    const uint32_t n_bytes = sizeof units, leaf = 1u << 8;
    /* the root's offset is 0: its children are the units of their bytes */
    units['A'] = 'A' | leaf | 0x80u << 10;
    units['A' ^ 0x80] = 1u << 31; /* place 0 */
    units['X'] = 'X' | leaf | 0x80u << 10;
    units['X' ^ 0x80] = 1u << 31 | 1; /* place 1: the NUL behind "a" */
    units[0xc3] = 0xc3 | 0x100u << 10;
    units[0xc3 ^ 0x100 ^ 0xa4] = 0xa4 | leaf | 1u << 10;
    units[0xc3 ^ 0x100 ^ 0xa4 ^ 1] = 1u << 31 | 2;
    buf_add(&b, &n_bytes, sizeof n_bytes);
    buf_add(&b, units, sizeof units);
    buf_add(&b, texts, sizeof texts - 1);
    return b;
}

static void put_charsmap(struct buf *file, const struct buf *map, size_t n)
{
    put_array(file, "tokenizer.ggml.precompiled_charsmap", GGUF_U8, n);
    buf_add(file, map->data, n);
}

static struct loaded load(bool merge, bool map)
{
    struct toy toy = {.model = "t5", .tokens = words, .eos = 1};
    struct loaded l = {0};
    toy_file(&l.file, &toy, 1 + map);
    put_kv(&l.file, "tokenizer.ggml.remove_extra_whitespaces", GGUF_BOOL, &merge, 1);
    if (map) {
        struct buf b = make_charsmap();
        put_charsmap(&l.file, &b, b.len);
        buf_deinit(&b);
    }
    load_file(&l);
    return l;
}

static void test_best_way(void **state)
{
    (void)state;
    struct loaded l = load(true, false);
    assert_encodes(l.t, "abc", false, " ab|c"); /* -4; " a" and "bc" -6, " " and "abc" -5.5 */
    assert_encodes(l.t, "ab", false, " ab");
    assert_encodes(l.t, "cabc", false, " |c|abc"); /* -6.5 */
    assert_encodes(l.t, "xyz", false, " |<unk>");  /* neighbours together */
    assert_encodes(l.t, "axb", false, " a|<unk>|b");
    assert_encodes(l.t, "u", false, " |u");        /* unused tokens are matched */
    assert_encodes(l.t, "</s>", false, " |<unk>"); /* control tokens are not */
    assert_encodes(l.t, "a</s>c", true, " a|</s>| |c");
    assert_encodes(l.t, "c<tool>c", false, " |c|<tool>| |c");
    assert_ends_with(l.t, 1);
    struct token_list ids = encode(l.t, "  ab  c", 7, false);
    struct buf back = {0};
    tokenizer_decode(l.t, ids.ids, ids.n, false, &back);
    assert_string_equal(buf_cstr(&back), "ab c"); /* as normalised */
    buf_deinit(&back);
    token_list_deinit(&ids);
    assert_false(tokenizer_adds_bos(l.t));
    unload(&l);
}

static void test_white_space(void **state)
{
    (void)state;
    struct loaded l = load(true, false);
    assert_encodes(l.t, "  c   c ", false, " |c| |c");
    assert_encodes(l.t, "   ", false, "");
    assert_encodes(l.t, "", false, "");
    unload(&l);
    l = load(false, false);
    assert_encodes(l.t, "c  c ", false, " |c| | |c| ");
    assert_encodes(l.t, " c", false, " | |c");
    unload(&l);
}

static void test_replacements(void **state)
{
    (void)state;
    struct loaded l = load(true, true);
    assert_encodes(l.t, "Ac", false, " a|c");
    assert_encodes(l.t, "\xc3\xa4", false, " ab");
    assert_encodes(l.t, "cXc", false, " |c|c");
    assert_encodes(l.t, "\xc3\xa5\xc3", false, " |<unk>");
    unload(&l);
}

/* Tables that are cut off are refused; one whose units lead astray replaces nothing. */
static void test_bad_tables(void **state)
{
    (void)state;
    struct buf map = make_charsmap();
    const size_t lengths[] = {0, 3, 4, 8, map.len - 5, map.len - 1};
    for (size_t i = 0; i < sizeof lengths / sizeof lengths[0]; i++) {
        struct toy toy = {.model = "t5", .tokens = words};
        struct buf file = {0};
        struct gguf *g = NULL;
        struct tokenizer *t = NULL;
        struct err_info e = {0};
        toy_file(&file, &toy, 1);
        put_charsmap(&file, &map, lengths[i]);
        assert_int_equal(gguf_open_memory(file.data, file.len, &g, &e), OK);
        assert_int_equal(tokenizer_create(g, &t, &e), ERR_FORMAT);
        assert_non_null(strstr(e.field, "precompiled_charsmap"));
        gguf_close(g);
        buf_deinit(&file);
    }
    memset(map.data + 4, 0xff, map.len - 4 - 5);
    struct toy toy = {.model = "t5", .tokens = words};
    struct loaded l = {0};
    toy_file(&l.file, &toy, 1);
    put_charsmap(&l.file, &map, map.len);
    load_file(&l);
    assert_encodes(l.t, "Ac\xff\xff", false, " |<unk>|c|<unk>");
    unload(&l);
    buf_deinit(&map);
}

/* A table whose units lead in a circle, so that no key ends, costs each byte of a text a bounded
 * time. */
static void test_circle(void **state)
{
    (void)state;
    enum { N = 1 << 20 };
    uint32_t units[0x100] = {0};
    struct buf map = {0};
    const uint32_t n_bytes = sizeof units;
    units['a'] = 'a' | (uint32_t)'a' << 10; /* 'a' leads to unit 0 ^ 'a', which is itself */
    buf_add(&map, &n_bytes, sizeof n_bytes);
    buf_add(&map, units, sizeof units);
    buf_add(&map, "", 1);
    struct toy toy = {.model = "t5", .tokens = words};
    struct loaded l = {0};
    toy_file(&l.file, &toy, 1);
    put_charsmap(&l.file, &map, map.len);
    load_file(&l);
    char *text = malloc(N);
    assert_non_null(text);
    memset(text, 'a', N);
    const clock_t begin = clock();
    struct token_list ids = encode(l.t, text, N, false);
    if (clock() - begin > 20 * CLOCKS_PER_SEC) /* without a bound: minutes */
        fail_msg("a megabyte took %llu ms",
                 (unsigned long long)(clock() - begin) * 1000 / CLOCKS_PER_SEC);
    assert_int_equal(ids.n, N);
    token_list_deinit(&ids);
    free(text);
    buf_deinit(&map);
    unload(&l);
}

/* A replacement that no real table has would make gigabytes of a text of megabytes. */
static void test_long_replacement(void **state)
{
    (void)state;
    for (size_t extra = 0; extra < 2; extra++) {
        struct toy toy = {.model = "t5", .tokens = words};
        struct buf map = make_charsmap(), file = {0};
        struct gguf *g = NULL;
        struct tokenizer *t = NULL;
        struct err_info e = {0};
        for (size_t i = 0; i < 255 + extra; i++)
            buf_char(&map, 'a');
        buf_char(&map, '\0');
        toy_file(&file, &toy, 1);
        put_charsmap(&file, &map, map.len);
        assert_int_equal(gguf_open_memory(file.data, file.len, &g, &e), OK);
        assert_int_equal(tokenizer_create(g, &t, &e), extra ? ERR_FORMAT : OK);
        if (extra)
            assert_non_null(strstr(e.field, "precompiled_charsmap"));
        tokenizer_destroy(t);
        gguf_close(g);
        buf_deinit(&file);
        buf_deinit(&map);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_best_way),
        cmocka_unit_test(test_white_space),
        cmocka_unit_test(test_replacements),
        cmocka_unit_test(test_bad_tables),
        cmocka_unit_test(test_circle),
        cmocka_unit_test(test_long_replacement),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
