/* BERT's words: normalising, cutting, and the longest tokens. */
#include "unit/tokenizer/toy_vocab.h"

#define W "\xe2\x96\x81"

static const struct toy_token words[] = {{"[UNK]", 2, 0},
                                         {"[CLS]", 3, 0},
                                         {"[SEP]", 3, 0},
                                         {W "hello", 0, 0},
                                         {W "un", 0, 0},
                                         {"aff", 0, 0},
                                         {"able", 0, 0},
                                         {W ",", 0, 0},
                                         {W "e", 0, 0},
                                         {W "cafe", 0, 0},
                                         {W "\xe4\xb8\xad", 0, 0},
                                         {W "a", 0, 0},
                                         {"a", 0, 0},
                                         {W "$", 0, 0},
                                         {W "[", 0, 0},
                                         {W "]", 0, 0},
                                         {"ls", 0, 0},
                                         {W "c", 0, 0},
                                         {W "H", 0, 0},
                                         {"ello", 0, 0},
                                         {NULL, 0, 0}};

static struct loaded load(uint64_t n_more, const char *key, bool value)
{
    struct toy toy = {.model = "bert", .tokens = words};
    struct loaded l = {0};
    toy_file(&l.file, &toy, 1 + n_more);
    put_kv_u32(&l.file, "tokenizer.ggml.unknown_token_id", 0);
    if (n_more)
        put_kv(&l.file, key, GGUF_BOOL, &value, 1);
    load_file(&l);
    return l;
}

static void test_words(void **state)
{
    (void)state;
    static const char *const texts[][2] = {
        {"hello  HELLO\n", " hello| hello"},
        {"unaffable", " un|aff|able"},
        {"unaffably", "[UNK]"}, /* all of it, though most is known */
        {"hello,hello", " hello| ,| hello"},
        {"caf\xc3\xa9 \xc3\x89", " cafe| e"}, /* accents go */
        {"cafe\xcc\x81", " cafe"},
        {"a\xe4\xb8\xad"
         "a",
         " a| \xe4\xb8\xad| a"},
        {"a\x01\x7f\xc2\xad"
         "a",
         " a|a"}, /* controls vanish */
        {"a\xef\xbf\xbd"
         "a\xff",
         " a|a"},
        {"a\xe2\x82\xac", "[UNK]"}, /* a symbol beyond ASCII stands in its word */
        {"a$a", " a| $| a"},
        {"[CLS]", " [| c|ls| ]"},
        {"a\xe3\x80\x80"
         "a\xc2\x85"
         "a",
         " a| a| a"},
        {"", ""},
        {" ", ""},
    };
    struct loaded l = load(0, NULL, false);
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++)
        assert_encodes(l.t, texts[i][0], false, texts[i][1]);
    assert_encodes(l.t, "hello[SEP]hello", true, " hello|[SEP]| hello");
    unload(&l);
}

static void test_cases_kept(void **state)
{
    (void)state;
    struct loaded l = load(1, "tokenizer.ggml.normalizer.lowercase", false);
    assert_encodes(l.t, "Hello hello", false, " H|ello| hello");
    assert_encodes(l.t, "caf\xc3\xa9", false, "[UNK]"); /* accents stay with the case */
    unload(&l);
    l = load(1, "tokenizer.ggml.normalizer.strip_accents", false);
    assert_encodes(l.t, "HELLO caf\xc3\xa9", false, " hello|[UNK]");
    unload(&l);
}

static void test_flags(void **state)
{
    (void)state;
    struct loaded l = load(0, NULL, false);
    assert_ends_with(l.t, TOKEN_NONE); /* it would with a SEP, but token 102 is not there */
    unload(&l);
    struct toy toy = {.model = "bert", .tokens = words};
    toy_file(&l.file, &toy, 2);
    put_kv_u32(&l.file, "tokenizer.ggml.seperator_token_id", 2);
    put_kv_u32(&l.file, "tokenizer.ggml.bos_token_id", 1);
    load_file(&l);
    assert_true(tokenizer_adds_bos(l.t));
    assert_ends_with(l.t, 2);
    struct token_list ids = {0};
    struct text_piece piece = {"xyz", 3, false};
    struct err_info e = {0};
    assert_int_equal(tokenizer_encode(l.t, &piece, 1, &ids, &e), ERR_UNSUPPORTED);
    token_list_deinit(&ids);
    unload(&l);
    l = (struct loaded){0};
    toy_file(&l.file, &toy, 1);
    put_kv_u32(&l.file, "tokenizer.ggml.cls_token_id", 1); /* the begin of older files */
    load_file(&l);
    assert_int_equal(tokenizer_bos(l.t), 1);
    unload(&l);
}

/* One word of a megabyte, and a million words: no time to speak of. */
static void test_long(void **state)
{
    (void)state;
    struct loaded l = load(0, NULL, false);
    const size_t n = 1 << 20;
    char *text = malloc(n);
    memset(text, 'a', n);
    struct token_list ids = encode(l.t, text, n, false);
    assert_int_equal(ids.n, n);
    token_list_deinit(&ids);
    memset(text, '[', n);
    ids = encode(l.t, text, n, false);
    assert_int_equal(ids.n, n);
    token_list_deinit(&ids);
    free(text);
    unload(&l);
}

/* What stands around a text, and between two, with and without the flag. */
static void test_around(void **state)
{
    (void)state;
    static const struct {
        bool bos, sep, eos, around;
    } cases[] = {
        {false, false, false, false},
        {true, true, false, true},
        {true, false, true, true}, /* as newer converters write BERT's */
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct toy toy = {.model = "bert", .tokens = words};
        struct loaded l = {0};
        toy_file(&l.file, &toy, 7);
        put_kv_u32(&l.file, "tokenizer.ggml.unknown_token_id", 0);
        put_kv_u32(&l.file, "tokenizer.ggml.bos_token_id", 1);
        put_kv_u32(&l.file, "tokenizer.ggml.eos_token_id", 2);
        put_kv_u32(&l.file, "tokenizer.ggml.seperator_token_id", 2);
        put_kv(&l.file, "tokenizer.ggml.add_bos_token", GGUF_BOOL, &cases[i].bos, 1);
        put_kv(&l.file, "tokenizer.ggml.add_sep_token", GGUF_BOOL, &cases[i].sep, 1);
        put_kv(&l.file, "tokenizer.ggml.add_eos_token", GGUF_BOOL, &cases[i].eos, 1);
        load_file(&l);
        struct token_list ids = {0};
        tokenizer_add_begin(l.t, &ids);
        token_list_add(&ids, 3);
        tokenizer_add_between(l.t, &ids);
        token_list_add(&ids, 4);
        tokenizer_add_end(l.t, &ids);
        static const token_id want[] = {1, 3, 2, 4, 2}, bare[] = {3, 4};
        assert_int_equal(ids.n, cases[i].around ? 5 : 2);
        assert_memory_equal(ids.ids, cases[i].around ? want : bare, ids.n * sizeof *ids.ids);
        token_list_deinit(&ids);
        unload(&l);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_around),
        cmocka_unit_test(test_words),
        cmocka_unit_test(test_cases_kept),
        cmocka_unit_test(test_flags),
        cmocka_unit_test(test_long),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
