/* Special tokens: white space beside them, which end a turn, and raw-text BPE (gemma4). */
#include "unit/tokenizer/toy_vocab.h"

#define W "\xe2\x96\x81"

static struct loaded load_named(const struct toy *toy, const char *key, const char *value)
{
    struct loaded l = {0};
    toy_file(&l.file, toy, 1);
    put_key(&l.file, key, GGUF_STRING);
    put_str(&l.file, value);
    load_file(&l);
    return l;
}

static void test_strips(void **state)
{
    (void)state;
    static const struct toy_token tokens[] = {{"<unk>", 2, 0},
                                              {"<s>", 3, 0},
                                              {"</s>", 3, 0},
                                              {"<|user|>", 3, 0},
                                              {"<mask>", 3, 0},
                                              {W, 0, -1},
                                              {"a", 0, -1},
                                              {NULL, 0, 0}};
    struct toy toy = {.model = "llama", .tokens = tokens, .byte_tokens = true};
    struct loaded l = load_named(&toy, "general.name", "My Phi-3 mini");
    assert_encodes(l.t, "<|user|> \n\ta<s> a", true, "<|user|>| |a|<s>| | |a");
    assert_encodes(l.t, "<|user|> a", false, " |<|||u|s|e|r|||>| |a");
    assert_encodes(l.t, "a <|user|>  ", true, " |a| |<|user|>");
    unload(&l);
    l = load_named(&toy, "general.name", "Phi 3.5 Mini Instruct");
    assert_encodes(l.t, "<|user|>\na", true, "<|user|>| |a");
    unload(&l);
    l = load_named(&toy, "general.architecture", "nomic-bert-moe");
    assert_encodes(l.t, "a \n<mask> a", true, " |a|<mask>| | |a");
    assert_encodes(l.t, " <mask>", true, "<mask>");
    assert_encodes(l.t, "<s> <mask>", true, "<s>|<mask>");
    unload(&l);
    l = load_named(&toy, "general.name", "another");
    assert_encodes(l.t, "<|user|> a <mask>", true, "<|user|>| | |a| |<mask>");
    unload(&l);
}

/* What files say of ends beside their one id: of filling in, and as a list; of ChatGLM3's roles
 * nothing. */
static void test_named_ends(void **state)
{
    (void)state;
    static const struct toy_token tokens[] = {{"<unk>", 2, 0},
                                              {"<s>", 3, 0},
                                              {"</s>", 3, 0},
                                              {"<|user|>", 3, 0},
                                              {"<|observation|>", 3, 0},
                                              {"<|system|>", 3, 0},
                                              {"<|file_separator|>", 3, 0},
                                              {"<|hole|>", 0, 0},
                                              {"a", 0, 0},
                                              {NULL, 0, 0}};
    static const char *const keys[] = {"tokenizer.ggml.fim_pad_token_id",
                                       "tokenizer.ggml.fim_rep_token_id",
                                       "tokenizer.ggml.fim_sep_token_id"};
    struct toy toy = {.model = "llama", .tokens = tokens};
    for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++) {
        struct loaded l = {0};
        toy_file(&l.file, &toy, 1);
        put_kv_u32(&l.file, keys[i], 7);
        load_file(&l);
        assert_true(tokenizer_is_eog(l.t, 7) && tokenizer_is_eog(l.t, 6));
        assert_false(tokenizer_is_eog(l.t, 3) || tokenizer_is_eog(l.t, 4));
        unload(&l);
    }
    struct loaded l = load_named(&toy, "general.architecture", "chatglm");
    assert_true(tokenizer_is_eog(l.t, 3) && tokenizer_is_eog(l.t, 4));
    assert_false(tokenizer_is_eog(l.t, 5) || tokenizer_is_eog(l.t, 7));
    unload(&l);
    const int32_t ends[] = {4, -1, 1000000, 8};
    l = (struct loaded){0};
    toy_file(&l.file, &toy, 1);
    put_array(&l.file, "tokenizer.ggml.eos_token_ids", GGUF_I32, 4);
    for (size_t i = 0; i < 4; i++)
        put_u32(&l.file, (uint32_t)ends[i]);
    load_file(&l);
    assert_true(tokenizer_is_eog(l.t, 4) && tokenizer_is_eog(l.t, 8) && tokenizer_is_eog(l.t, 2));
    assert_false(tokenizer_is_eog(l.t, 3));
    unload(&l);
}

static void test_default_ids(void **state)
{
    (void)state;
    static const struct toy_token tokens[] = {
        {"<unk>", 2, 0}, {"<s>", 3, 0}, {"</s>", 3, 0}, {"a", 0, 0}, {NULL, 0, 0}};
    struct toy toy = {.model = "llama", .tokens = tokens};
    struct loaded l = load_toy(&toy);
    assert_int_equal(tokenizer_bos(l.t), 1);
    assert_int_equal(tokenizer_eos(l.t), 2);
    assert_true(tokenizer_adds_bos(l.t));
    assert_true(tokenizer_is_eog(l.t, 2));
    unload(&l);
}

/* Where calls and returns end turns, <|end|> only ends a message. */
static void test_ends_of_turns(void **state)
{
    (void)state;
    static const struct toy_token tokens[] = {{"<|end|>", 3, 0},
                                              {"<|return|>", 3, 0},
                                              {"<|call|>", 3, 0},
                                              {"</s>", 0, 0},
                                              {"<|fim_pad|>", 4, 0},
                                              {"<|fim_prefix|>", 4, 0},
                                              {"a", 0, 0},
                                              {NULL, 0, 0}};
    static const bool ends[] = {false, true, true, true, true, false, false};
    const char *const none[] = {NULL};
    struct toy toy = {.model = "gpt2", .tokens = tokens, .merges = none, .byte_tokens = true};
    struct loaded l = load_toy(&toy);
    for (int i = 0; i < 7; i++)
        assert_int_equal(tokenizer_is_eog(l.t, 256 + i), ends[i]);
    assert_true(tokenizer_is_control(l.t, 256 + 5));
    unload(&l);
    toy.tokens = tokens + 2; /* without <|return|> */
    l = load_toy(&toy);
    assert_true(tokenizer_is_eog(l.t, 256));
    unload(&l);
}

/* Gemma has it among other marks of HTML, PLaMo 2 as a word: an answer may hold it. */
static void test_struck_through(void **state)
{
    (void)state;
    static const struct toy_token gemma[] = {
        {"<pad>", 3, 0}, {"<eos>", 3, 0}, {"</strong>", 4, 0}, {"</s>", 4, 0}, {NULL, 0, 0}};
    static const struct toy_token plamo[] = {
        {"<|plamo:eos|>", 3, 0}, {"a", 0, 0}, {"b", 0, 0}, {"</s>", 0, 0}, {NULL, 0, 0}};
    static const struct toy_token marked[] = {
        {"<pad>", 3, 0}, {"</s>", 3, 0}, {"</strong>", 4, 0}, {"a", 0, 0}, {NULL, 0, 0}};
    const char *const none[] = {NULL};
    struct toy toy = {.model = "gpt2", .tokens = gemma, .merges = none, .eos = 1};
    struct loaded l = load_toy(&toy);
    assert_true(tokenizer_is_eog(l.t, 1));
    assert_false(tokenizer_is_eog(l.t, 3) || tokenizer_is_control(l.t, 3));
    unload(&l);
    toy.tokens = plamo;
    l = load_toy(&toy);
    assert_false(tokenizer_is_eog(l.t, 3) || tokenizer_is_control(l.t, 3));
    unload(&l);
    toy.tokens = marked; /* what the file calls its end is one */
    l = load_toy(&toy);
    assert_true(tokenizer_is_eog(l.t, 1));
    unload(&l);
}

/* Falcon-H1-Tiny-Coder's texts with a gap, Muse Glimmer's ends of messages, and what pads. Without
 * marks of messages <|eom|> ends a turn, as Llama 4's does. */
static void test_more_marks(void **state)
{
    (void)state;
    static const struct toy_token tokens[] = {{"<|prefix|>", 4, 0},
                                              {"<|suffix|>", 3, 0},
                                              {"<|middle|>", 3, 0},
                                              {"<|eom|>", 4, 0},
                                              {"<|eot|>", 3, 0},
                                              {"[PAD]", 3, 0},
                                              {"<PAD>", 3, 0},
                                              {"<|start|>", 4, 0},
                                              {"<|message|>", 4, 0},
                                              {"a", 0, 0},
                                              {NULL, 0, 0}};
    static const struct toy_token llama4[] = {
        {"<|eom|>", 3, 0}, {"<|eot|>", 3, 0}, {"<|start|>", 3, 0}, {"a", 0, 0}, {NULL, 0, 0}};
    const char *const none[] = {NULL};
    struct toy toy = {.model = "gpt2", .tokens = tokens, .merges = none};
    struct loaded l = load_toy(&toy);
    for (enum fim_part part = FIM_PREFIX; part <= FIM_MIDDLE; part++)
        assert_int_equal(tokenizer_fim(l.t, part), part);
    for (int i = 0; i < 9; i++) {
        assert_true(tokenizer_is_control(l.t, i));
        assert_int_equal(tokenizer_is_eog(l.t, i), i >= 4 && i < 7);
    }
    unload(&l);
    toy.tokens = llama4;
    l = load_toy(&toy);
    assert_true(tokenizer_is_eog(l.t, 0) && tokenizer_is_eog(l.t, 1));
    assert_false(tokenizer_is_eog(l.t, 2));
    unload(&l);
}

/* Each once, as far as there are such. */
static void test_suppressed(void **state)
{
    (void)state;
    static const struct toy_token tokens[] = {
        {"<unk>", 2, 0}, {"<s>", 3, 0}, {"</s>", 3, 0}, {"a", 0, 0}, {"b", 0, 0}, {NULL, 0, 0}};
    static const int32_t ids[] = {4, -1, 2, 4, 5, INT32_MAX, INT32_MIN, 2};
    struct toy toy = {.model = "llama", .tokens = tokens};
    struct loaded l = load_toy(&toy);
    uint32_t n = 9;
    tokenizer_suppressed(l.t, &n);
    assert_int_equal(n, 0);
    unload(&l);
    l = (struct loaded){0};
    toy_file(&l.file, &toy, 1);
    put_array(&l.file, "tokenizer.ggml.suppress_tokens", GGUF_I32, 8);
    for (size_t i = 0; i < 8; i++)
        put_u32(&l.file, (uint32_t)ids[i]);
    load_file(&l);
    const token_id *never = tokenizer_suppressed(l.t, &n);
    assert_int_equal(n, 2);
    assert_int_equal(never[0], 4);
    assert_int_equal(never[1], 2);
    unload(&l);
}

static void test_bos_by_name(void **state)
{
    (void)state;
    static const struct {
        const char *pre;
        bool bos, sep;
    } want[] = {{"gpt-2", false, false},
                {"llama-bpe", true, false},
                {"tekken", true, false},
                {"qwen2", false, false},
                {"roberta-bpe", false, true},
                {"glm4", false, false}};
    static const struct toy_token tokens[] = {{"<b>", 3, 0}, {"a", 0, 0}, {NULL, 0, 0}};
    const char *const none[] = {NULL};
    for (size_t i = 0; i < sizeof want / sizeof want[0]; i++) {
        struct toy toy = {.model = "gpt2", .pre = want[i].pre, .tokens = tokens, .merges = none};
        struct loaded l = {0};
        toy_file(&l.file, &toy, 2);
        put_kv_u32(&l.file, "tokenizer.ggml.bos_token_id", 0);
        put_kv_u32(&l.file, "tokenizer.ggml.seperator_token_id", 0);
        load_file(&l);
        assert_int_equal(tokenizer_adds_bos(l.t), want[i].bos);
        struct token_list between = {0};
        tokenizer_add_between(l.t, &between);
        assert_int_equal(between.n, want[i].sep);
        token_list_deinit(&between);
        unload(&l);
    }
}

/* Characters instead of bytes, spaces as U+2581, unknown characters as byte tokens. */
static void test_raw_text(void **state)
{
    (void)state;
    static const struct toy_token tokens[] = {{"<0xC3>", 6, 0},
                                              {"<0xA9>", 6, 0},
                                              {"<0xFF>", 6, 0},
                                              {W, 0, 0},
                                              {"a", 0, 0},
                                              {"b", 0, 0},
                                              {"\n", 0, 0},
                                              {"\n\n", 0, 0},
                                              {W "a", 0, 0},
                                              {"ab", 0, 0},
                                              {W W, 0, 0},
                                              {NULL, 0, 0}};
    static const char *const merges[] = {"a b", W " " W, W " a", NULL};
    struct toy toy = {.model = "gemma4", .tokens = tokens, .merges = merges};
    struct loaded l = load_toy(&toy);
    assert_encodes(l.t, "ab a  b", false, "ab| a|  |b");
    assert_encodes(l.t, "a\n\na\n\n\n", false, "a|\n\n|a|\n|\n|\n");
    assert_encodes(l.t, "a\xc3\xa9", false, "a|\xc3|\xa9");
    assert_encodes(l.t,
                   "\xff"
                   "ab",
                   false,
                   "\xff|ab");
    assert_encodes(l.t, "a" W "a", false, "a| a");
    struct token_list ids = encode(l.t, "a\xc3\xa9 ab\n", 7, false);
    struct buf back = {0};
    tokenizer_decode(l.t, ids.ids, ids.n, false, &back);
    assert_string_equal(buf_cstr(&back), "a\xc3\xa9 ab\n");
    buf_deinit(&back);
    token_list_deinit(&ids);
    unload(&l);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_strips),
        cmocka_unit_test(test_default_ids),
        cmocka_unit_test(test_named_ends),
        cmocka_unit_test(test_ends_of_turns),
        cmocka_unit_test(test_more_marks),
        cmocka_unit_test(test_struck_through),
        cmocka_unit_test(test_suppressed),
        cmocka_unit_test(test_bos_by_name),
        cmocka_unit_test(test_raw_text),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
