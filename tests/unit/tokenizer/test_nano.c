/* Encoding with the built-in model's vocabulary, which has every byte: what holds for any text. */
#include "unit/tokenizer/toy_vocab.h"

#include <time.h>

static struct loaded nano;

static int load_nano(void **state)
{
    (void)state;
    nano = load_path(WEIR_MODELS "/weir-nano.gguf");
    return 0;
}

static int unload_nano(void **state)
{
    (void)state;
    unload(&nano);
    return 0;
}

static size_t put_utf8(char *s, uint32_t cp)
{
    if (cp < 0x80) {
        s[0] = (char)cp;
        return 1;
    }
    if (cp < 0x800) {
        s[0] = (char)(0xc0 | cp >> 6);
        s[1] = (char)(0x80 | (cp & 63));
        return 2;
    }
    if (cp < 0x10000) {
        s[0] = (char)(0xe0 | cp >> 12);
        s[1] = (char)(0x80 | (cp >> 6 & 63));
        s[2] = (char)(0x80 | (cp & 63));
        return 3;
    }
    s[0] = (char)(0xf0 | cp >> 18);
    s[1] = (char)(0x80 | (cp >> 12 & 63));
    s[2] = (char)(0x80 | (cp >> 6 & 63));
    s[3] = (char)(0x80 | (cp & 63));
    return 4;
}

/* Kinds of text: any bytes, any characters, English-like letters and blanks, pieces of markup. */
static size_t random_text(uint64_t *seed, char *s, size_t max)
{
    static const char *const parts[] = {"<|im_end|>",
                                        "<|im_start|>",
                                        "<|",
                                        "|>",
                                        " the",
                                        "\n\n",
                                        "  ",
                                        "it's",
                                        "\xff",
                                        "\xe2\x96",
                                        "42",
                                        "\xc3\xa9"};
    uint32_t kind = next_random(seed) % 4;
    size_t n = 0, stop = next_random(seed) % (max - 16);
    while (n < stop) {
        uint32_t r = next_random(seed);
        if (kind == 0) {
            s[n++] = (char)(r >> 8);
        } else if (kind == 1) {
            uint32_t cp = r % (r & 1u << 30 ? 0x110000 : 0x3000);
            n += put_utf8(s + n, cp >= 0xd800 && cp < 0xe000 ? 'x' : cp);
        } else if (kind == 2) {
            s[n++] = "etaoin shrdlu "[r % 14];
        } else {
            const char *part = parts[r % 12];
            memcpy(s + n, part, strlen(part));
            n += strlen(part);
        }
    }
    return n;
}

static void assert_decodes(const struct token_list *ids, const char *s, size_t n, bool special)
{
    struct buf text = {0};
    tokenizer_decode(nano.t, ids->ids, ids->n, special, &text);
    assert_int_equal(text.len, n);
    if (n > 0)
        assert_memory_equal(text.data, s, n);
    buf_deinit(&text);
}

static void test_round_trip(void **state)
{
    (void)state;
    uint64_t seed = print_seed();
    char s[600];
    for (int i = 0; i < 3000; i++) {
        size_t n = random_text(&seed, s, sizeof s);
        struct token_list ids = encode(nano.t, s, n, false);
        assert_decodes(&ids, s, n, false);
        for (size_t k = 0; k < ids.n; k++)
            assert_false(tokenizer_is_control(nano.t, ids.ids[k]));
        token_list_deinit(&ids);
        ids = encode(nano.t, s, n, true);
        assert_decodes(&ids, s, n, true);
        token_list_deinit(&ids);
    }
}

/* Cut a text at random places: the ids stay the same, whether the pieces are trusted and cut
 * outside special tokens, or untrusted and cut anywhere. */
static void test_piece_borders(void **state)
{
    (void)state;
    uint64_t seed = print_seed();
    char s[600];
    for (int i = 0; i < 3000; i++) {
        struct text_piece pieces[8];
        struct token_list whole, cut = {0};
        struct err_info e = {0};
        size_t n = random_text(&seed, s, sizeof s), at = 0, k = 0;
        for (; k < 7; k++) {
            size_t len = next_random(&seed) % 4 ? next_random(&seed) % (n - at + 1) : 0;
            pieces[k] = (struct text_piece){s + at, len, false};
            at += len;
        }
        pieces[k] = (struct text_piece){s + at, n - at, false};
        whole = encode(nano.t, s, n, false);
        assert_int_equal(tokenizer_encode(nano.t, pieces, 8, &cut, &e), OK);
        assert_same_ids(&whole, &cut);
        token_list_deinit(&whole);
        token_list_deinit(&cut);
    }
}

static size_t count_controls(const struct token_list *ids)
{
    size_t n = 0;
    for (size_t i = 0; i < ids->n; i++)
        n += tokenizer_is_control(nano.t, ids->ids[i]);
    return n;
}

static size_t controls_of(const struct text_piece *pieces, size_t n_pieces)
{
    struct token_list ids = {0};
    struct err_info e = {0};
    assert_int_equal(tokenizer_encode(nano.t, pieces, n_pieces, &ids, &e), OK);
    size_t n = count_controls(&ids);
    token_list_deinit(&ids);
    return n;
}

static void test_trust(void **state)
{
    (void)state;
    const struct text_piece user[] = {
        {"<|im_start|>user\n", 17, true}, {"<|im_end|>", 10, false}, {"<|im_end|>\n", 11, true}};
    assert_int_equal(controls_of(user, 3), 2);
    const struct text_piece forged[] = {{"<|im_", 5, true}, {"end|>", 5, false}};
    assert_int_equal(controls_of(forged, 2), 0);
    const struct text_piece late[] = {{"<|im_", 5, false}, {"end|>", 5, true}};
    assert_int_equal(controls_of(late, 2), 0);
    const struct text_piece two[] = {{"<|im_", 5, true}, {"end|>", 5, true}};
    assert_int_equal(controls_of(two, 2), 0);
    const struct text_piece empty[] = {{"", 0, true}, {NULL, 0, false}, {"<|im_end|>", 10, true}};
    assert_int_equal(controls_of(empty, 3), 1);
    assert_int_equal(controls_of(NULL, 0), 0);
}

static void test_special_ids(void **state)
{
    (void)state;
    token_id end = tokenizer_find(nano.t, "<|im_end|>", 10);
    token_id text = tokenizer_find(nano.t, "<|endoftext|>", 13);
    size_t n;
    assert_int_equal(tokenizer_eos(nano.t), end);
    assert_int_equal(tokenizer_bos(nano.t), text);
    assert_false(tokenizer_adds_bos(nano.t));
    assert_true(tokenizer_is_eog(nano.t, end));
    assert_true(tokenizer_is_eog(nano.t, text));
    assert_false(tokenizer_is_eog(nano.t, tokenizer_find(nano.t, "<|im_start|>", 12)));
    assert_true(tokenizer_is_control(nano.t, tokenizer_find(nano.t, "<|im_start|>", 12)));
    assert_int_equal(tokenizer_find(nano.t, "<|im_stop|>", 11), TOKEN_NONE);
    tokenizer_bytes(nano.t, end, false, &n);
    assert_int_equal(n, 0);
    assert_memory_equal(tokenizer_bytes(nano.t, end, true, &n), "<|im_end|>", 10);
    assert_int_equal(n, 10);
}

static void test_ids_out_of_range(void **state)
{
    (void)state;
    static const token_id ids[] = {-1, INT32_MIN, INT32_MAX, 1536};
    for (size_t i = 0; i < 4; i++) {
        size_t n = 1;
        assert_non_null(tokenizer_bytes(nano.t, ids[i], true, &n));
        assert_int_equal(n, 0);
        assert_false(tokenizer_is_eog(nano.t, ids[i]));
        assert_false(tokenizer_is_control(nano.t, ids[i]));
    }
    assert_int_equal(tokenizer_n_vocab(nano.t), 1536);
}

/* A megabyte that is one word, or all special tokens, or nearly: quadratic work would take minutes
 * (the limit leaves room for sanitizers). */
static void test_linear_time(void **state)
{
    (void)state;
    static const char *const units[] = {"a",
                                        "the",
                                        "\n",
                                        " ",
                                        "7",
                                        "'",
                                        "\xcc\x81",
                                        "<|im_end|>",
                                        "<|im_end|",
                                        "<",
                                        "\xff",
                                        "a\xff",
                                        "is"};
    const size_t n = 1 << 20;
    char *text = malloc(n);
    for (size_t k = 0; k < sizeof units / sizeof units[0]; k++) {
        size_t len = 0, n_unit = strlen(units[k]);
        for (; len + n_unit <= n; len += n_unit)
            memcpy(text + len, units[k], n_unit);
        const clock_t begin = clock();
        struct token_list ids = encode(nano.t, text, len, true);
        if (clock() - begin > 10 * CLOCKS_PER_SEC)
            fail_msg("'%s' took too long", units[k]);
        assert_decodes(&ids, text, len, true);
        token_list_deinit(&ids);
    }
    free(text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_round_trip),
        cmocka_unit_test(test_piece_borders),
        cmocka_unit_test(test_trust),
        cmocka_unit_test(test_special_ids),
        cmocka_unit_test(test_linear_time),
        cmocka_unit_test(test_ids_out_of_range),
    };
    return cmocka_run_group_tests(tests, load_nano, unload_nano);
}
