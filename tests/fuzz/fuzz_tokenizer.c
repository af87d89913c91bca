/* Any bytes as a vocabulary, or as a text under a vocabulary that has every byte.
 *
 * First byte even: the rest is a GGUF file, whose tokenizer, if it loads, encodes a fixed text and
 * decodes all its tokens. Odd: a text, trusted if bit 1 is set. Without bit 2 it is for a small SPM
 * vocabulary; with it the second byte chooses among BPE with each pre-tokenizer, WPM and UGM. What
 * BPE and SPM encode must decode to the same bytes. */
#include "tokenizer/vocab.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes);

static void put(struct buf *b, const void *data, size_t n)
{
    buf_add(b, data, n);
}

static void put_u32(struct buf *b, uint32_t v)
{
    put(b, &v, sizeof v);
}

static void put_str(struct buf *b, const char *s)
{
    uint64_t n = strlen(s);
    put(b, &n, sizeof n);
    put(b, s, n);
}

static void put_array(struct buf *b, const char *key, uint32_t elem_kind, uint64_t n)
{
    put_str(b, key);
    put_u32(b, GGUF_ARRAY);
    put_u32(b, elem_kind);
    put(b, &n, sizeof n);
}

#define MAX_RULES 64
#define N_WORDS 13
#define N_TOKENS (256 + N_WORDS)

/* How each family writes the byte b. */
static void byte_text(const char *model, bool raw_text, unsigned b, char out[8])
{
    size_t n = 0;
    if (strcmp(model, "gpt2") != 0 || raw_text) {
        snprintf(out, 8, "<0x%02X>", b);
        return;
    }
    bytemap_encode((uint8_t)b, out, &n);
    out[n] = '\0';
}

/* A vocabulary: 256 bytes, and a few words that merge, one control and one user-defined. `pre` is
 * the pre-tokenizer of a BPE vocabulary. */
static struct tokenizer *make(const char *model, struct gguf_str pre, bool raw_text)
{
    static const char *const words[N_WORDS] = {"t",
                                               "h",
                                               "e",
                                               "th",
                                               "the",
                                               "\xe2\x96\x81",
                                               "\xe2\x96\x81the",
                                               "</s>",
                                               "<tool>",
                                               "\xc3\xa9",
                                               "<unk>",
                                               "\n\n",
                                               "ee"};
    static const char *const merges[] = {"t h", "th e", "e e"};
    bool bpe = strcmp(model, "gpt2") == 0;
    bool bytes = bpe || strcmp(model, "llama") == 0; /* the others have no byte tokens */
    const uint64_t counts[2] = {0, 8};
    static struct file { /* all live as long as the process */
        struct buf bytes;
        struct gguf *g;
    } files[MAX_RULES + 3];
    static size_t n_files;
    struct file *file = &files[n_files++];
    struct buf *b = &file->bytes;
    put(b, "GGUF\3\0\0\0", 8);
    put(b, counts, sizeof counts);
    put_str(b, "tokenizer.ggml.model");
    put_u32(b, GGUF_STRING);
    put_str(b, model);
    put_str(b, "tokenizer.ggml.pre");
    put_u32(b, GGUF_STRING);
    uint64_t n_pre = pre.len;
    put(b, &n_pre, sizeof n_pre);
    put(b, pre.data, pre.len);
    put_array(b, "tokenizer.ggml.tokens", GGUF_STRING, N_TOKENS);
    for (unsigned i = 0; i < 256; i++) {
        char name[8];
        byte_text(model, raw_text, i, name);
        put_str(b, name);
    }
    for (unsigned i = 0; i < N_WORDS; i++)
        put_str(b, words[i]);
    put_array(b, "tokenizer.ggml.token_type", GGUF_I32, N_TOKENS);
    int types[N_TOKENS] = {0};
    for (unsigned i = 0; i < 256; i++)
        types[i] = bytes && (!bpe || raw_text) ? TOKEN_BYTE : TOKEN_NORMAL;
    for (unsigned i = 256; i < N_TOKENS; i++)
        types[i] = TOKEN_NORMAL;
    types[256 + 7] = TOKEN_CONTROL;
    types[256 + 8] = TOKEN_USER_DEFINED;
    if (!bytes) /* decoding cannot tell <unk> in a text from what stands for unknown text */
        types[256 + 10] = TOKEN_UNKNOWN;
    for (unsigned i = 0; i < N_TOKENS; i++)
        put_u32(b, (uint32_t)types[i]);
    put_array(b, "tokenizer.ggml.scores", GGUF_F32, N_TOKENS);
    for (unsigned i = 0; i < N_TOKENS; i++) {
        float score = -(float)(i % 7);
        put(b, &score, sizeof score);
    }
    put_array(b, "tokenizer.ggml.merges", GGUF_STRING, 3);
    for (unsigned i = 0; i < 3; i++)
        put_str(b, merges[i]);
    put_str(b, "tokenizer.ggml.unknown_token_id");
    put_u32(b, GGUF_U32);
    put_u32(b, 266);
    put_str(b, "tokenizer.ggml.remove_extra_whitespaces");
    put_u32(b, GGUF_BOOL);
    put(b, "\1", 1);
    struct tokenizer *t;
    if (gguf_open_memory(b->data, b->len, &file->g, NULL) || tokenizer_create(file->g, &t, NULL))
        abort();
    return t;
}

/* The i-th of: BPE with each pre-tokenizer, WPM, UGM; made at its first use. */
static const struct tokenizer *choose(unsigned i, bool *gives_back)
{
    static struct tokenizer *made[MAX_RULES + 2];
    static unsigned n_rules;
    while (pretokenize_rule_at(n_rules))
        if (++n_rules > MAX_RULES)
            abort();
    i %= n_rules + 2;
    *gives_back = i < n_rules;
    const struct pretokenize_rule *rule = pretokenize_rule_at(i);
    if (!made[i] && rule) {
        const char *name = rule->names + 1;
        made[i] = make("gpt2", (struct gguf_str){name, strcspn(name, " ")}, rule->raw_text);
    } else if (!made[i]) {
        made[i] = make(i == n_rules ? "bert" : "t5", (struct gguf_str){"x", 1}, false);
    }
    return made[i];
}

static void check_text(
    const struct tokenizer *t, const char *text, size_t n, bool trusted, bool gives_back)
{
    struct token_list ids = {0};
    struct buf back = {0};
    struct text_piece piece = {text, n, trusted};
    if (tokenizer_encode(t, &piece, 1, &ids, NULL))
        abort(); /* the vocabulary has every byte */
    tokenizer_decode(t, ids.ids, ids.n, trusted, &back);
    if (gives_back && back.len != n)
        abort();
    if (gives_back && n > 0 && memcmp(back.data, text, n) != 0)
        abort();
    for (size_t i = 0; i < ids.n && !trusted; i++)
        if (tokenizer_is_control(t, ids.ids[i]))
            abort(); /* a text became a control token */
    token_list_deinit(&ids);
    buf_deinit(&back);
}

/* U+2581 is how SPM writes a space, so a text that has it comes back with spaces. */
static bool has_spm_space(const char *s, size_t n)
{
    for (size_t i = 0; i + 3 <= n; i++)
        if (memcmp(s + i, "\xe2\x96\x81", 3) == 0)
            return true;
    return false;
}

static void try_file(const uint8_t *data, size_t n)
{
    static const char text[] = "Hello <|im_end|>\xff\xe4\xbd\xa0 12  \n</s>a";
    struct gguf *g;
    struct tokenizer *t;
    struct err_info e = {0};
    if (gguf_open_memory(data, n, &g, NULL))
        return;
    enum err err = tokenizer_create(g, &t, &e);
    if (err && (t || e.code != err || e.text[0] == '\0'))
        abort();
    for (int special = 0; special < 2 && !err; special++) {
        struct token_list ids = {0};
        struct buf out = {0};
        struct text_piece pieces[2] = {{text, 9, special}, {text + 9, sizeof text - 9, true}};
        if (tokenizer_encode(t, pieces, 2, &ids, &e) && ids.n > 0)
            abort();
        for (size_t i = 0; i < ids.n; i++)
            if ((uint32_t)ids.ids[i] >= tokenizer_n_vocab(t))
                abort();
        for (uint32_t i = 0; i <= tokenizer_n_vocab(t); i++)
            token_list_add(&ids, (token_id)i);
        tokenizer_decode(t, ids.ids, ids.n, special, &out);
        token_list_deinit(&ids);
        buf_deinit(&out);
    }
    tokenizer_destroy(t);
    gguf_close(g);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes)
{
    static struct tokenizer *spm;
    if (n_bytes == 0)
        return 0;
    if (data[0] % 2 == 0) {
        try_file(data + 1, n_bytes - 1);
        return 0;
    }
    size_t n_head = data[0] & 4 ? 2 : 1;
    if (n_bytes < n_head)
        return 0;
    if (!spm)
        spm = make("llama", (struct gguf_str){"x", 1}, false);
    bool gives_back = true;
    const struct tokenizer *t = n_head == 2 ? choose(data[1], &gives_back) : spm;
    const char *text = (const char *)data + n_head;
    if (!has_spm_space(text, n_bytes - n_head))
        check_text(t, text, n_bytes - n_head, data[0] & 2, gives_back);
    return 0;
}
