/* Vocabularies that are wrong: each is refused with a text that names the field, or made harmless;
 * none may crash (the sanitizers watch). */
#include "unit/tokenizer/toy_vocab.h"

#include "tokenizer/vocab.h"

#include <math.h>
#include <time.h>

static const struct toy_token letters[] = {{"a", 0, 0}, {"b", 0, 0}, {"ab", 0, 0}, {NULL, 0, 0}};
static const char *const ab[] = {"a b", NULL};

static void put_good(struct buf *b, const char *key)
{
    if (strcmp(key, "model") == 0) {
        put_key(b, "tokenizer.ggml.model", GGUF_STRING);
        put_str(b, "gpt2");
    } else if (strcmp(key, "tokens") == 0) {
        put_array(b, "tokenizer.ggml.tokens", GGUF_STRING, 3);
        put_str(b, "a");
        put_str(b, "b");
        put_str(b, "ab");
    } else {
        put_array(b, "tokenizer.ggml.merges", GGUF_STRING, 1);
        put_str(b, "a b");
    }
}

/* A BPE file whose field `key` is `bad` (NULL: missing). */
static void file_with(struct buf *b, const char *key, const struct buf *bad)
{
    static const char *const keys[] = {"model", "tokens", "merges"};
    bool replaces = false;
    for (size_t i = 0; i < 3; i++)
        replaces |= strcmp(key, keys[i]) == 0;
    put_header(b, 3, 0, 3 + (bad != NULL) - replaces);
    for (size_t i = 0; i < 3; i++)
        if (strcmp(key, keys[i]) != 0)
            put_good(b, keys[i]);
    if (bad)
        buf_add(b, bad->data, bad->len);
}

static void assert_refused(const struct buf *file, enum err want, const char *names)
{
    struct gguf *g = NULL;
    struct tokenizer *t = NULL;
    struct err_info e = {0};
    assert_int_equal(gguf_open_memory(file->data, file->len, &g, &e), OK);
    enum err err = tokenizer_create(g, &t, &e);
    if (err != want)
        fail_msg("error %d instead of %d: %s", err, want, e.text);
    assert_null(t);
    if (!strstr(e.field, names) && !strstr(e.text, names))
        fail_msg("'%s: %s' does not name %s", e.field, e.text, names);
    gguf_close(g);
}

static void refuse(const char *key, struct buf *bad, enum err want, const char *names)
{
    struct buf file = {0};
    file_with(&file, key, bad);
    assert_refused(&file, want, names);
    buf_deinit(&file);
    if (bad)
        buf_deinit(bad);
}

static void test_missing_fields(void **state)
{
    (void)state;
    refuse("model", NULL, ERR_FORMAT, "tokenizer.ggml.model");
    refuse("tokens", NULL, ERR_FORMAT, "tokenizer.ggml.tokens");
    refuse("merges", NULL, ERR_FORMAT, "tokenizer.ggml.merges");
}

static struct buf bad_array(const char *key, uint32_t elem_kind, uint64_t n, size_t elem_bytes)
{
    struct buf b = {0};
    put_array(&b, key, elem_kind, n);
    for (size_t i = 0; i < n * elem_bytes; i++)
        buf_char(&b, 0);
    return b;
}

static void test_wrong_kinds(void **state)
{
    (void)state;
    struct buf bad = {0};
    put_key(&bad, "tokenizer.ggml.model", GGUF_STRING);
    put_str(&bad, "syllables");
    refuse("model", &bad, ERR_UNSUPPORTED, "syllables");
    put_kv_u32(&bad, "tokenizer.ggml.model", 7);
    refuse("model", &bad, ERR_FORMAT, "tokenizer.ggml.model");
    bad = bad_array("tokenizer.ggml.tokens", GGUF_STRING, 0, 0);
    refuse("tokens", &bad, ERR_FORMAT, "tokenizer.ggml.tokens");
    bad = bad_array("tokenizer.ggml.tokens", GGUF_U32, 3, 4);
    refuse("tokens", &bad, ERR_FORMAT, "tokenizer.ggml.tokens");
    bad = bad_array("tokenizer.ggml.merges", GGUF_U8, 3, 1);
    refuse("merges", &bad, ERR_FORMAT, "tokenizer.ggml.merges");
    bad = bad_array("tokenizer.ggml.token_type", GGUF_U8, 3, 1);
    refuse("token_type", &bad, ERR_FORMAT, "token_type");
    bad = bad_array("tokenizer.ggml.token_type", GGUF_I32, 2, 4);
    refuse("token_type", &bad, ERR_FORMAT, "token_type");
    put_kv_u32(&bad, "tokenizer.ggml.pre", 7);
    refuse("pre", &bad, ERR_FORMAT, "tokenizer.ggml.pre");
}

static void test_bad_merges(void **state)
{
    (void)state;
    static const char *const lines[] = {
        "", " ", "a", "ab", " a", "a ", "a c", "c a", "b a", "a  b"};
    for (size_t i = 0; i < sizeof lines / sizeof lines[0]; i++) {
        struct buf bad = {0};
        put_array(&bad, "tokenizer.ggml.merges", GGUF_STRING, 2);
        put_str(&bad, "a b");
        put_str(&bad, lines[i]);
        refuse("merges", &bad, ERR_FORMAT, "merge 1 ");
    }
}

static void test_long_token(void **state)
{
    (void)state;
    struct buf bad = {0};
    put_array(&bad, "tokenizer.ggml.tokens", GGUF_STRING, 2);
    put_str(&bad, "a");
    put_u64(&bad, 1 << 20);
    for (int i = 0; i < 1 << 20; i++)
        buf_char(&bad, 'a');
    refuse("tokens", &bad, ERR_FORMAT, "token 1 has 1048576 bytes");
}

static void spm_file(struct buf *b, uint32_t score_kind, uint64_t n_scores, float score)
{
    put_header(b, 3, 0, 3);
    put_key(b, "tokenizer.ggml.model", GGUF_STRING);
    put_str(b, "llama");
    put_array(b, "tokenizer.ggml.tokens", GGUF_STRING, 2);
    put_str(b, "a");
    put_str(b, "b");
    put_array(b, "tokenizer.ggml.scores", score_kind, n_scores);
    for (uint64_t i = 0; i < n_scores; i++)
        buf_add(b, &score, score_kind == GGUF_U8 ? 1 : sizeof score);
}

static void test_scores(void **state)
{
    (void)state;
    static const struct {
        uint32_t kind;
        uint64_t n;
        float score;
    } bad[] = {{GGUF_U8, 2, 0},
               {GGUF_F32, 1, 0},
               {GGUF_F32, 3, 0},
               {GGUF_F32, 2, NAN},
               {GGUF_F32, 2, -INFINITY}};
    for (size_t i = 0; i < 5; i++) {
        struct buf file = {0};
        spm_file(&file, bad[i].kind, bad[i].n, bad[i].score);
        assert_refused(&file, ERR_FORMAT, "tokenizer.ggml.scores");
        buf_deinit(&file);
    }
}

static void test_byte_token_without_hex(void **state)
{
    (void)state;
    static const char *const names[] = {"<0xGG>", "<0x1>", "", "<0x123>", "A", "<0x 1>"};
    for (size_t i = 0; i < 6; i++) {
        const struct toy_token bad[] = {{"a", 0, 0}, {names[i], 6, 0}, {NULL, 0, 0}};
        struct toy toy = {.model = "llama", .tokens = bad};
        struct buf file = {0};
        toy_file(&file, &toy, 0);
        assert_refused(&file, ERR_FORMAT, "token 1 ");
        buf_deinit(&file);
    }
}

/* Ids outside the vocabulary count as not named: then they are what the family's usually are. */
static void test_ids_out_of_range(void **state)
{
    (void)state;
    struct loaded l = {0};
    struct toy toy = {.model = "gpt2", .tokens = letters, .merges = ab, .eos = 3};
    toy_file(&l.file, &toy, 2);
    put_kv_u32(&l.file, "tokenizer.ggml.bos_token_id", UINT32_MAX);
    put_kv_u32(&l.file, "tokenizer.ggml.eot_token_id", 1000000);
    load_file(&l);
    assert_int_equal(tokenizer_eos(l.t), TOKEN_NONE);
    assert_int_equal(tokenizer_bos(l.t), TOKEN_NONE);
    assert_encodes(l.t, "abb", false, "ab|b");
    unload(&l);
    static const struct toy_token spm[] = {
        {"<unk>", 2, 0}, {"<s>", 3, 0}, {"</s>", 3, 0}, {"a", 0, 0}, {NULL, 0, 0}};
    l = (struct loaded){0};
    toy = (struct toy){.model = "llama", .tokens = spm, .eos = 4};
    toy_file(&l.file, &toy, 1);
    put_kv_u32(&l.file, "tokenizer.ggml.bos_token_id", UINT32_MAX);
    load_file(&l);
    assert_int_equal(tokenizer_bos(l.t), 1);
    assert_int_equal(tokenizer_eos(l.t), 2);
    unload(&l);
}

/* Texts that are empty, double, hold NUL, are no UTF-8 or lie outside the byte map; types that no
 * one has defined: all load, and encoding works as far as it can. */
static void test_odd_texts(void **state)
{
    (void)state;
    static const char *const models[] = {"gpt2", "llama"};
    const struct toy_token odd[] = {{"", 0, 0},
                                    {"", 3, 0},
                                    {"a", 0, 0},
                                    {"a", 3, 0},
                                    {"a", 4, 0},
                                    {"a", 0, 0},
                                    {"\xff\xfe", 0, 0},
                                    {"\xf0\x9f", 4, 0},
                                    {"\xe4\xbd\xa0", 0, 0},
                                    {"x y", 0, 0},
                                    {"<|im_end|>", 77, 0},
                                    {"q", -5, 0},
                                    {"\xe2\x96\x81", 0, 0},
                                    {"\xe2\x96", 0, 0},
                                    {NULL, 0, 0}};
    const char *const none[] = {NULL};
    for (size_t i = 0; i < 2; i++) {
        struct toy toy = {.model = models[i], .tokens = odd, .byte_tokens = true, .merges = none};
        struct loaded l = load_toy(&toy);
        static const char text[] = "a q \xf0\x9f \xff\xfe \xe2\x96 <|im_end|> x y \xe4\xbd\xa0\0z";
        for (int special = 0; special < 2; special++) {
            struct token_list ids = encode(l.t, text, sizeof text, special);
            struct buf back = {0};
            tokenizer_decode(l.t, ids.ids, ids.n, true, &back);
            assert_int_equal(back.len, sizeof text);
            assert_memory_equal(back.data, text, sizeof text);
            buf_deinit(&back);
            token_list_deinit(&ids);
        }
        unload(&l);
    }
}

/* One text a hundred thousand times: the last is meant, and each place where it stands in a text
 * costs what one would. */
static void test_equal_texts(void **state)
{
    (void)state;
    enum { N = 100000, N_TEXT = 1 << 17 };
    static const char *const models[] = {"gpt2", "bert", "t5"};
    static struct toy_token tokens[N + 4];
    static char text[N_TEXT];
    const char *const none[] = {NULL};
    memset(text, 'a', N_TEXT);
    for (size_t k = 0; k < 3; k++) {
        tokens[0] = tokens[1] = (struct toy_token){"\xe2\x96\x81", 0, 0};
        tokens[2] = (struct toy_token){"<unk>", 2, 0}; /* where t5 has it */
        for (size_t i = 3; i < N + 3; i++)
            tokens[i] = (struct toy_token){"a", k == 0 ? 4 : 0, 0};
        struct toy toy = {.model = models[k], .tokens = tokens, .merges = none};
        struct loaded l = load_toy(&toy);
        const clock_t begin = clock();
        struct token_list ids = encode(l.t, text, N_TEXT, false);
        if (clock() - begin > 5 * CLOCKS_PER_SEC)
            fail_msg("%s: %llu ms",
                     models[k],
                     (unsigned long long)(clock() - begin) * 1000 / CLOCKS_PER_SEC);
        assert_in_range(ids.n, N_TEXT, N_TEXT + 1); /* a word's first one may stand before them */
        assert_int_equal(ids.ids[ids.n - 1], N + 2);
        token_list_deinit(&ids);
        unload(&l);
    }
}

/* One token nearly as long as the text, which all of its bytes seem to begin: what each place costs
 * is bounded, and what lies within the bound is found. */
static void test_long_texts(void **state)
{
    (void)state;
    enum { N_LONG = 65530, N_TEXT = 1 << 17 };
    static const char *const models[] = {"gpt2", "t5", "t5", "plamo2", "rwkv"};
    static const int types[] = {3, 4, 1, 1, 1};
    static char text[N_TEXT], longest[N_LONG + 2], some[256], more[257];
    const char *const none[] = {NULL};
    memset(text, 'a', N_TEXT);
    memset(longest, 'a', N_LONG);
    memset(some, 'b', 255);
    memset(more, 'b', 256);
    longest[N_LONG] = 'b';
    for (size_t k = 0; k < sizeof models / sizeof models[0]; k++) {
        const struct toy_token tokens[] = {{"b", 0, -1},
                                           {"a", 0, -1},
                                           {"<unk>", 2, 0},
                                           {longest, types[k], 0},
                                           {some, types[k], 0},
                                           {more, types[k], 0},
                                           {NULL, 0, 0}};
        struct toy toy = {.model = models[k],
                          .tokens = tokens,
                          .merges = none,
                          .byte_tokens = k >= 3,
                          .no_space_prefix = true};
        struct loaded l = load_toy(&toy);
        const clock_t begin = clock();
        struct token_list ids = encode(l.t, text, N_TEXT, true);
        if (clock() - begin > 10 * CLOCKS_PER_SEC)
            fail_msg(
                "%zu: %llu ms", k, (unsigned long long)(clock() - begin) * 1000 / CLOCKS_PER_SEC);
        token_list_deinit(&ids);
        ids = encode(l.t, some, 255, true);
        assert_int_equal(ids.ids[ids.n - 1], k >= 3 ? 256 + 4 : 4);
        token_list_deinit(&ids);
        ids = encode(l.t, more, 256, true);
        assert_in_range(ids.n, 2, 3);
        token_list_deinit(&ids);
        unload(&l);
    }
}

/* Where tokens lie in a table is not for the file to know: it could make all of them collide. */
static void test_tables_are_seeded(void **state)
{
    (void)state;
    enum { N = 256 };
    static struct vocab_token tokens[N];
    static char texts[N][8];
    struct vocab v = {.tokens = tokens, .n = N};
    struct vocab_index tables[2];
    for (size_t k = 0; k < 2; k++) {
        assert_true(vocab_index_init(&tables[k], N, false));
        for (int i = 0; i < N; i++) {
            tokens[i].text = texts[i];
            tokens[i].text_len = (uint32_t)snprintf(texts[i], sizeof texts[i], "%d", i);
            vocab_index_add(&v, &tables[k], i);
        }
        for (int i = 0; i < N; i++)
            assert_int_equal(vocab_index_find(&v, &tables[k], texts[i], strlen(texts[i])), i);
    }
    assert_int_equal(tables[0].mask, tables[1].mask);
    size_t n_same = 0;
    for (size_t i = 0; i <= tables[0].mask; i++)
        n_same +=
            tables[0].slots[i].id != TOKEN_NONE && tables[0].slots[i].id == tables[1].slots[i].id;
    assert_true(n_same < N / 2);
    free(tables[0].slots);
    free(tables[1].slots);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_missing_fields),
        cmocka_unit_test(test_wrong_kinds),
        cmocka_unit_test(test_bad_merges),
        cmocka_unit_test(test_long_token),
        cmocka_unit_test(test_scores),
        cmocka_unit_test(test_byte_token_without_hex),
        cmocka_unit_test(test_ids_out_of_range),
        cmocka_unit_test(test_odd_texts),
        cmocka_unit_test(test_equal_texts),
        cmocka_unit_test(test_long_texts),
        cmocka_unit_test(test_tables_are_seeded),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
