/* BPE over small vocabularies whose ids are known by hand. */
#include "unit/tokenizer/toy_vocab.h"

#include "base/log.h"

/* Ids: 0..255 the bytes, then these. "\xc4\xa0" is how a blank is written. */
static const struct toy_token tokens[] = {{"lo", 0, 0},
                                          {"low", 0, 0},
                                          {"er", 0, 0},
                                          {"lower", 0, 0},
                                          {"\xc4\xa0low", 0, 0},
                                          {"ow", 0, 0},
                                          {"<|sys|>", 3, 0},
                                          {"<|sys|>x", 3, 0},
                                          {"<tool>", 4, 0},
                                          {"<|eot_id|>", 4, 0},
                                          {"we", 0, 0},
                                          {NULL, 0, 0}};
static const char *const merges[] = {
    "l o", "e r", "lo w", "low er", "\xc4\xa0 low", "o w", "w e", NULL};
static const struct toy toy = {
    .model = "gpt2", .pre = "gpt-2", .tokens = tokens, .merges = merges, .byte_tokens = true};

static void test_merges(void **state)
{
    (void)state;
    struct loaded l = load_toy(&toy);
    assert_encodes(l.t, "lower", false, "lower");
    assert_encodes(l.t, "lowlower low", false, "low|lower| low");
    /* "er" ranks before "lo w" and "w e" */
    assert_encodes(l.t, "ower", false, "ow|er");
    assert_encodes(l.t, "weow", false, "we|ow");
    assert_encodes(l.t, "x\xff", false, "x|\xff");
    assert_encodes(l.t, "", false, "");
    unload(&l);
}

static void test_whole_words(void **state)
{
    (void)state;
    /* with these rules "wel" is a token that no merge makes */
    const struct toy_token more[] = {{"wel", 0, 0}, {NULL, 0, 0}};
    const char *const none[] = {NULL};
    struct toy whole = toy;
    whole.tokens = more;
    whole.merges = none;
    struct loaded l = load_toy(&whole);
    assert_encodes(l.t, "wel", false, "w|e|l");
    unload(&l);
    whole.pre = "llama-bpe";
    l = load_toy(&whole);
    assert_encodes(l.t, "wel", false, "wel");
    assert_encodes(l.t, "wels", false, "w|e|l|s");
    unload(&l);
}

static void keep_line(void *ctx, int level, const char *line)
{
    struct buf *lines = ctx;
    buf_printf(lines, "%d: %s\n", level, line);
}

/* No pre-tokenizer, or one that nobody knows: a warning, and words as the default has them: digits
 * by three, which gpt-2's are not. */
static void test_unknown_rule(void **state)
{
    (void)state;
    static const struct toy_token pair[] = {{"34", 0, 0}, {NULL, 0, 0}};
    static const char *const made[] = {"3 4", NULL};
    static const struct {
        const char *pre, *warning, *words;
    } cases[] = {
        {"gpt-2", NULL, "1|2|34"},
        {"default", NULL, "1|2|3|4"},
        {"no\033[2Jbody's", "no pre-tokenizer named 'no?[2Jbody's'; using the default", "1|2|3|4"},
        {NULL, "the file names no pre-tokenizer; using the default", "1|2|3|4"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const struct toy digits = {.model = "gpt2",
                                   .pre = cases[i].pre,
                                   .tokens = pair,
                                   .merges = made,
                                   .byte_tokens = true};
        struct buf lines = {0};
        log_set_sink(keep_line, &lines);
        struct loaded l = load_toy(&digits);
        log_set_sink(NULL, NULL);
        if (cases[i].warning)
            assert_non_null(strstr(buf_cstr(&lines), cases[i].warning));
        else
            assert_int_equal(lines.len, 0);
        assert_encodes(l.t, "1234", false, cases[i].words);
        unload(&l);
        buf_deinit(&lines);
    }
}

static void test_special(void **state)
{
    (void)state;
    struct loaded l = load_toy(&toy);
    assert_encodes(l.t, "<|sys|>low", true, "<|sys|>|low");
    assert_encodes(l.t, "<|sys|>xlow", true, "<|sys|>x|low"); /* the longest */
    assert_encodes(l.t, "<|sys|>", false, "<|||s|y|s|||>");
    /* user-defined tokens are found anywhere, but not those that end a turn */
    assert_encodes(l.t, "<tool>low", false, "<tool>|low");
    assert_encodes(l.t, "<|eot_id|>", false, "<|||e|o|t|_|i|d|||>");
    assert_encodes(l.t, "<|eot_id|>", true, "<|eot_id|>");
    assert_true(tokenizer_is_eog(l.t, tokenizer_find(l.t, "<|eot_id|>", 10)));
    unload(&l);
}

/* A merge that makes a control token is no way for text to become one. */
static void test_merge_to_control(void **state)
{
    (void)state;
    const struct toy_token bad[] = {{"st", 0, 0}, {"stop", 3, 0}, {"op", 0, 0}, {NULL, 0, 0}};
    const char *const to_control[] = {"s t", "o p", "st op", NULL};
    struct toy sly = toy;
    sly.tokens = bad;
    sly.merges = to_control;
    struct loaded l = load_toy(&sly);
    assert_encodes(l.t, "stop", false, "st|op");
    assert_encodes(l.t, "stop", true, "stop");
    unload(&l);
}

/* A user-defined token may lie across pieces: ids do not depend on their borders. */
static void test_user_defined_across_pieces(void **state)
{
    (void)state;
    struct loaded l = load_toy(&toy);
    const struct text_piece pieces[] = {{"<to", 3, false}, {"ol>", 3, true}};
    struct token_list ids = {0};
    assert_int_equal(tokenizer_encode(l.t, pieces, 2, &ids, NULL), OK);
    assert_tokens(l.t, &ids, "<tool>");
    token_list_deinit(&ids);
    unload(&l);
}

/* It is left out; nothing merges across the gap. */
static void test_byte_without_token(void **state)
{
    (void)state;
    const struct toy_token few[] = {{"a", 0, 0}, {"b", 0, 0}, {"ab", 0, 0}, {NULL, 0, 0}};
    const char *const few_merges[] = {"a b", NULL};
    struct toy small = {.model = "gpt2", .tokens = few, .merges = few_merges};
    struct loaded l = load_toy(&small);
    assert_encodes(l.t, "abc", false, "ab");
    assert_encodes(l.t, "acbab", false, "a|b|ab");
    assert_encodes(l.t, "c", false, "");
    unload(&l);
}

/* Words that span blanks are merged in parts where no token has a blank inside; ids are the same.
 */
static void test_spanning_words(void **state)
{
    (void)state;
    const struct toy_token wide_tokens[] = {{"ab", 0, 0},
                                            {"\xc4\xa0"
                                             "a",
                                             0,
                                             0},
                                            {"b\xc4\xa0"
                                             "a",
                                             0,
                                             0},
                                            {"\xc4\xa0\xc4\xa0", 0, 0},
                                            {NULL, 0, 0}};
    const char *const few_merges[] = {"\xc4\xa0 \xc4\xa0",
                                      "\xc4\xa0 a",
                                      "b \xc4\xa0"
                                      "a",
                                      "a b",
                                      NULL};
    struct toy wide = {.model = "gpt2",
                       .pre = "superbpe",
                       .tokens = wide_tokens,
                       .merges = few_merges,
                       .byte_tokens = true};
    struct loaded l = load_toy(&wide);
    assert_encodes(l.t, "b a  a", false, "b a|  |a");
    assert_encodes(l.t, "ab ab", false, "a|b a|b");
    assert_encodes(l.t, "aa a", false, "a|a| a");
    unload(&l);
}

/* Many special tokens with a common beginning, in a text that is all beginnings. */
static void test_many_special(void **state)
{
    (void)state;
    enum { N = 1000 };
    static char names[N][40];
    static struct toy_token many[N + 1];
    for (int i = 0; i < N; i++) {
        snprintf(names[i], sizeof names[i], "<|reserved_special_token_%d|>", i);
        many[i] = (struct toy_token){names[i], 3, 0};
    }
    const char *const none[] = {NULL};
    struct toy big = toy;
    big.tokens = many;
    big.merges = none;
    struct loaded l = load_toy(&big);
    struct buf text = {0};
    for (int i = 0; i < 20000; i++)
        buf_str(&text, i % 2 ? "<|reserved_special_token_" : names[i % N]);
    struct token_list ids = encode(l.t, text.data, text.len, true);
    size_t n_controls = 0;
    for (size_t i = 0; i < ids.n; i++)
        n_controls += tokenizer_is_control(l.t, ids.ids[i]);
    assert_int_equal(n_controls, 10000);
    token_list_deinit(&ids);
    buf_deinit(&text);
    unload(&l);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_merges),
        cmocka_unit_test(test_whole_words),
        cmocka_unit_test(test_unknown_rule),
        cmocka_unit_test(test_special),
        cmocka_unit_test(test_merge_to_control),
        cmocka_unit_test(test_user_defined_across_pieces),
        cmocka_unit_test(test_byte_without_token),
        cmocka_unit_test(test_spanning_words),
        cmocka_unit_test(test_many_special),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
