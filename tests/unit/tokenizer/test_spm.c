/* SPM over small vocabularies. "_" stands for U+2581 in the comments. */
#include "unit/tokenizer/toy_vocab.h"

#define SP "\xe2\x96\x81"

static const struct toy_token tokens[] = {{"<unk>", 2, 0},
                                          {"<s>", 3, 0},
                                          {"</s>", 3, 0},
                                          {SP, 0, -9},
                                          {"a", 0, -5},
                                          {"b", 0, -5},
                                          {"c", 0, -5},
                                          {"ab", 0, -2},
                                          {"bc", 0, -1},
                                          {SP "a", 0, -3},
                                          {SP "abc", 0, -8},
                                          {SP SP, 0, -4},
                                          {"s", 0, -5},
                                          {"s>", 0, -1},
                                          {"<", 0, -6},
                                          {"<tool>", 4, 0},
                                          {"aa", 0, -2},
                                          {NULL, 0, 0}};
static const struct toy toy = {.model = "llama", .tokens = tokens, .byte_tokens = true, .eos = 258};

static void test_scores(void **state)
{
    (void)state;
    struct loaded l = load_toy(&toy);
    assert_encodes(l.t, "abc", false, " abc"); /* bc, then _a, then both */
    assert_encodes(l.t, "bc", false, " |bc");
    assert_encodes(l.t, "aaa", false, " |aa|a"); /* of equal scores the leftmost */
    assert_encodes(l.t, "ab  abc", false, " |ab| | abc");
    assert_encodes(l.t, "  a", false, "  | a");
    assert_encodes(l.t, "", false, "");
    unload(&l);
}

static void test_bytes(void **state)
{
    (void)state;
    struct loaded l = load_toy(&toy);
    assert_encodes(l.t, "a\n", false, " a|\n");
    assert_encodes(l.t, "\xc3\xa9", false, " |\xc3|\xa9");
    assert_encodes(l.t, "b\xff", false, " |b|\xff");
    /* the name of a byte token is ordinary text */
    struct token_list ids = encode(l.t, "<0x41>", 6, false);
    assert_true(ids.n > 2);
    token_list_deinit(&ids);
    unload(&l);
}

/* "s>" is a token, so that merging could reach "<s>" if control tokens took part. */
static void test_no_control_by_merging(void **state)
{
    (void)state;
    struct loaded l = load_toy(&toy);
    assert_encodes(l.t, "<s>", false, " |<|s>");
    assert_encodes(l.t, "<s>", true, "<s>");
    unload(&l);
}

static void test_prefix(void **state)
{
    (void)state;
    struct loaded l = load_toy(&toy);
    assert_encodes(l.t, "b<s>b<tool>b", true, " |b|<s>| |b|<tool>| |b");
    unload(&l);
    struct toy bare = toy;
    bare.no_space_prefix = true;
    l = load_toy(&bare);
    assert_encodes(l.t, "b<s>b", true, "b|<s>|b");
    unload(&l);
}

static void test_unknown(void **state)
{
    (void)state;
    struct toy small = toy;
    small.byte_tokens = false;
    small.eos = 2;
    struct loaded l = load_toy(&small);
    assert_encodes(l.t,
                   "a\xc3\xa9"
                   "b",
                   false,
                   " a|<unk>|b");
    /* one for what stands in a row, as SentencePiece has it; not one with a special token
     */
    assert_encodes(l.t, "a\n\n", false, " a|<unk>");
    assert_encodes(l.t, "\xc3\xa9x y\na", false, " |<unk>| |<unk>|a");
    unload(&l);
    small.no_space_prefix = true;
    l = load_toy(&small);
    assert_encodes(l.t, "<unk>\n\n", true, "<unk>|<unk>");
    unload(&l);
    small.tokens = tokens + 3; /* neither bytes nor an unknown token */
    small.eos = 0;
    l = load_toy(&small);
    struct token_list ids = {0};
    struct text_piece piece = {"a\n", 2, false};
    assert_int_equal(tokenizer_encode(l.t, &piece, 1, &ids, NULL), ERR_UNSUPPORTED);
    token_list_deinit(&ids);
    unload(&l);
}

/* With a token that has a space inside, words may not be merged one by one. */
static void test_space_inside(void **state)
{
    (void)state;
    const struct toy_token inner[] = {{"a", 0, -5},
                                      {"b", 0, -5},
                                      {SP, 0, -9},
                                      {SP "b", 0, -2},
                                      {"a" SP "b", 0, -1},
                                      {NULL, 0, 0}};
    struct toy odd = toy;
    odd.tokens = inner;
    odd.eos = 0;
    struct loaded l = load_toy(&odd);
    assert_encodes(l.t, "a b", false, " |a b");
    unload(&l);
}

static void test_round_trip(void **state)
{
    (void)state;
    static const char *const parts[] = {"a",
                                        "b",
                                        "c",
                                        " ",
                                        "  ",
                                        "<s>",
                                        "<tool>",
                                        "\n",
                                        "\xff",
                                        "\xc3\xa9",
                                        "abc",
                                        "</s>",
                                        "<unk>"};
    uint64_t seed = print_seed();
    struct loaded l = load_toy(&toy);
    for (int i = 0; i < 4000; i++) {
        struct buf text = {0}, back = {0};
        for (uint32_t k = next_random(&seed) % 30; k > 0; k--)
            buf_str(&text, parts[next_random(&seed) % 13]);
        bool special = i % 2;
        struct token_list ids = encode(l.t, text.data, text.len, special);
        tokenizer_decode(l.t, ids.ids, ids.n, special, &back);
        assert_string_equal(buf_cstr(&back), buf_cstr(&text));
        token_list_deinit(&ids);
        buf_deinit(&text);
        buf_deinit(&back);
    }
    unload(&l);
}

static void test_special_ids(void **state)
{
    (void)state;
    struct loaded l = load_toy(&toy);
    assert_int_equal(tokenizer_eos(l.t), 258);
    assert_true(tokenizer_is_eog(l.t, 258));
    assert_int_equal(tokenizer_bos(l.t), TOKEN_NONE);
    assert_false(tokenizer_adds_bos(l.t)); /* SPM would, but the file names none */
    assert_ends_with(l.t, TOKEN_NONE);
    unload(&l);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_scores),
        cmocka_unit_test(test_bytes),
        cmocka_unit_test(test_no_control_by_merging),
        cmocka_unit_test(test_prefix),
        cmocka_unit_test(test_unknown),
        cmocka_unit_test(test_space_inside),
        cmocka_unit_test(test_round_trip),
        cmocka_unit_test(test_special_ids),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
