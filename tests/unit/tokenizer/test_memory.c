/* Each allocation that may fail does, once: loading and encoding say so, and lose nothing. */
#include "unit/tokenizer/toy_vocab.h"

#include "base/mem.h"

#define W "\xe2\x96\x81"

static const struct toy_token words[] = {{"<unk>", 2, 0},
                                         {"</s>", 3, 0},
                                         {"<u>", 4, 0},
                                         {"a", 0, -1},
                                         {"b", 0, -1},
                                         {"ab", 0, -1},
                                         {W, 0, -2},
                                         {W "a", 0, -2},
                                         {NULL, 0, 0}};
static const char *const merges[] = {"a b", NULL};

/* One text of long words, with special tokens, in two pieces. */
static enum err encode_pieces(const struct tokenizer *t, struct token_list *ids, struct err_info *e)
{
    static char text[4096];
    memset(text, 'a', sizeof text);
    memcpy(text + 1000, " ab</s>b<u> ", 12);
    struct text_piece pieces[2] = {{text, 1500, true}, {text + 1500, sizeof text - 1500, false}};
    return tokenizer_encode(t, pieces, 2, ids, e);
}

/* Load and encode while the nth allocation fails; false when none was left to fail. */
static bool try_nth(const struct gguf *g, uint64_t nth, const struct token_list *want)
{
    struct tokenizer *t = NULL;
    struct token_list ids = {0};
    struct err_info e = {0};
    mem_fail_nth(nth);
    enum err err = tokenizer_create(g, &t, &e);
    if (err)
        assert_null(t);
    else
        err = encode_pieces(t, &ids, &e);
    bool failed = mem_fail_nth(0);
    if (failed) {
        assert_int_equal(err, ERR_NOMEM);
        assert_int_equal(ids.n, 0); /* nothing half done is left behind */
    } else {
        assert_int_equal(err, OK);
        assert_same_ids(&ids, want);
    }
    token_list_deinit(&ids);
    tokenizer_destroy(t);
    return failed;
}

static void test_nth_allocation(void **state)
{
    (void)state;
    static const char *const models[] = {"gpt2", "gemma4", "llama", "bert", "t5", "plamo2", "rwkv"};
    for (size_t i = 0; i < sizeof models / sizeof models[0]; i++) {
        struct toy toy = {
            .model = models[i], .tokens = words, .merges = merges, .byte_tokens = i == 0 || i == 5};
        struct loaded l = {0};
        toy_file(&l.file, &toy, 1);
        put_kv_u32(&l.file, "tokenizer.ggml.unknown_token_id", 0);
        load_file(&l);
        struct token_list want = {0};
        struct err_info e = {0};
        assert_int_equal(encode_pieces(l.t, &want, &e), OK);
        assert_true(want.n > 2);
        uint64_t nth = 1;
        while (try_nth(l.g, nth, &want))
            nth++;
        assert_true(nth > 5);
        token_list_deinit(&want);
        unload(&l);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_nth_allocation)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
