/* RWKV's vocabularies: the longest token at each place, over bytes, and how files write bytes. */
#include "unit/tokenizer/toy_vocab.h"

static const struct toy_token words[] = {{"ab", 0, 0},
                                         {"abcd", 0, 0},
                                         {"bcx", 0, 0},
                                         {"\\n\\n", 0, 0},
                                         {"\\t\\r\\x7f", 0, 0},
                                         {"\\xe3\\x81", 0, 0},
                                         {"\xe3\x81\x82", 0, 0},
                                         {"\\\\\\'", 0, 0},
                                         {"\\x4", 0, 0},
                                         {"\\xZ0", 0, 0},
                                         {"q\\", 0, 0},
                                         {"<tool>", 4, 0},
                                         {"</s>", 3, 0},
                                         {"[PAD1]", 5, 0},
                                         {NULL, 0, 0}};

static struct loaded load(void)
{
    return load_toy(&(struct toy){.model = "rwkv", .tokens = words, .byte_tokens = true});
}

static void test_longest(void **state)
{
    (void)state;
    struct loaded l = load();
    assert_encodes(l.t, "abcd", false, "abcd");
    assert_encodes(l.t, "abcx", false, "ab|c|x"); /* the first takes what would be longer */
    assert_encodes(l.t, "bcx", false, "bcx");
    assert_encodes(l.t, "abc", false, "ab|c");
    assert_encodes(l.t, " a ", false, " |a| "); /* no space is added, and none is lost */
    assert_encodes(l.t, "", false, "");
    assert_encodes(l.t, "ab<tool>cd", false, "ab|<tool>|c|d");
    assert_encodes(l.t, "a</s>", true, "a|</s>");
    assert_encodes(l.t, "a</s>", false, "a|<|/|s|>"); /* control tokens are not matched */
    assert_encodes(l.t, "[PAD1]", false, "[PAD1]");
    assert_false(tokenizer_adds_bos(l.t));
    assert_ends_with(l.t, TOKEN_NONE);
    unload(&l);
}

/* Of characters and of none, and escapes that are none. */
static void test_bytes(void **state)
{
    (void)state;
    struct loaded l = load();
    assert_encodes(l.t, "\n\n\n", false, "\n\n|\n");
    assert_encodes(l.t, "\t\r\x7f\t", false, "\t\r\x7f|\t");
    assert_encodes(l.t, "\xe3\x81\x82\xe3\x81\x84\xff", false, "\xe3\x81\x82|\xe3\x81|\x84|\xff");
    assert_encodes(l.t, "\\'", false, "\\'");
    assert_encodes(l.t, "\\x4\\xZ0", false, "\\x4|\\xZ0");
    assert_encodes(l.t, "q\\n", false, "q\\|n");
    unload(&l);
}

static void test_all_bytes_have_tokens(void **state)
{
    (void)state;
    struct toy toy = {.model = "rwkv", .tokens = words};
    for (int unknown = 0; unknown < 2; unknown++) {
        struct buf file = {0};
        struct gguf *g = NULL;
        struct tokenizer *t = NULL;
        struct err_info e = {0};
        toy_file(&file, &toy, 1);
        put_kv_u32(&file, unknown ? "tokenizer.ggml.unknown_token_id" : "toy.none", 2);
        assert_int_equal(gguf_open_memory(file.data, file.len, &g, &e), OK);
        assert_int_equal(tokenizer_create(g, &t, &e), unknown ? OK : ERR_FORMAT);
        if (!unknown)
            assert_non_null(strstr(e.text, "none for byte \\x00"));
        struct token_list ids = unknown ? encode(t, "zabb", 4, false) : (struct token_list){0};
        if (unknown) { /* what begins no token, or only longer ones */
            assert_int_equal(ids.n, 3);
            assert_int_equal(ids.ids[0], 2);
            assert_int_equal(ids.ids[1], 0);
            assert_int_equal(ids.ids[2], 2);
        }
        token_list_deinit(&ids);
        tokenizer_destroy(t);
        gguf_close(g);
        buf_deinit(&file);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_longest),
        cmocka_unit_test(test_bytes),
        cmocka_unit_test(test_all_bytes_have_tokens),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
