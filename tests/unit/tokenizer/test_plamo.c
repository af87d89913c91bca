/* PLaMo's vocabularies: the best sum of scores of the text as it is, equal ways, and bytes. */
#include "unit/tokenizer/toy_vocab.h"

static const struct toy_token words[] = {{"ab", 0, -3},
                                         {"a", 0, -1},
                                         {"b", 0, -2},
                                         {"abc", 0, -9},
                                         {"c", 0, -6},
                                         {"bc", 0, -8},
                                         {"bca", 0, -5},
                                         {"\xe3\x81\x82", 0, -2},
                                         {"q", 0, -1001},
                                         {"r", 0, -999},
                                         {"rr", 0, -2001},
                                         {"<tool>", 4, 0},
                                         {"</s>", 3, 0},
                                         {NULL, 0, 0}};

static struct loaded load(void)
{
    return load_toy(&(struct toy){.model = "plamo2", .tokens = words, .byte_tokens = true});
}

static void test_best_way(void **state)
{
    (void)state;
    struct loaded l = load();
    assert_encodes(l.t, "abc", false, "abc");    /* all four ways are -9: the longest first */
    assert_encodes(l.t, "ab", false, "ab");      /* likewise */
    assert_encodes(l.t, "cbc", false, "c|bc");   /* "bc" and "b|c" are -8 */
    assert_encodes(l.t, "abca", false, "a|bca"); /* -6; "abc" and "a" are -10 */
    assert_encodes(l.t, " a ", false, " |a| ");  /* spaces are bytes, and none is added */
    assert_encodes(l.t, "", false, "");
    assert_encodes(l.t, "a<tool>c", false, "a|<tool>|c");
    assert_encodes(l.t, "a</s>", true, "a|</s>");
    assert_encodes(l.t, "a</s>", false, "a|<|/|s|>"); /* control tokens are not matched */
    assert_false(tokenizer_adds_bos(l.t));
    assert_ends_with(l.t, TOKEN_NONE);
    unload(&l);
}

/* Characters that are no token, or a worse one, and what is no character. */
static void test_bytes(void **state)
{
    (void)state;
    struct loaded l = load();
    assert_encodes(l.t, "\xe3\x81\x82\xe3\x81\x84", false, "\xe3\x81\x82|\xe3|\x81|\x84");
    assert_encodes(l.t, "a\xff\xe3\x81", false, "a|\xff|\xe3|\x81");
    assert_encodes(l.t,
                   "\xef\xbb\xbf"
                   "ab",
                   false,
                   "ab"); /* a byte order mark */
    assert_encodes(l.t, "ab\xef\xbb\xbf", false, "ab|\xef|\xbb|\xbf");
    assert_encodes(l.t, "\xef\xbb\xbf", false, "");
    assert_encodes(l.t, "rr", false, "r|r"); /* below -2000 a token is none */
    struct token_list ids = encode(l.t, "qr", 2, false);
    assert_int_equal(ids.n, 2);
    assert_int_equal(ids.ids[0], 'q'); /* below -1000 it is worse than its bytes */
    assert_true(ids.ids[1] >= 256);
    token_list_deinit(&ids);
    unload(&l);
}

static void test_all_bytes_have_tokens(void **state)
{
    (void)state;
    struct toy toy = {.model = "plamo2", .tokens = words};
    struct buf file = {0};
    struct gguf *g = NULL;
    struct tokenizer *t = NULL;
    struct err_info e = {0};
    toy_file(&file, &toy, 0);
    assert_int_equal(gguf_open_memory(file.data, file.len, &g, &e), OK);
    assert_int_equal(tokenizer_create(g, &t, &e), ERR_FORMAT);
    assert_non_null(strstr(e.text, "none for byte <0x00>"));
    gguf_close(g);
    buf_deinit(&file);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_best_way),
        cmocka_unit_test(test_bytes),
        cmocka_unit_test(test_all_bytes_have_tokens),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
