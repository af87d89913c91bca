/* Any bytes as a vocabulary, or as a text under a vocabulary that has every byte.
 *
 * First byte even: the rest is a GGUF file, whose tokenizer, if it loads, encodes a fixed text and
 * decodes all its tokens. Odd: the rest is a text for a small SPM vocabulary, trusted if bit 1 is
 * set; what is encoded must decode to the same bytes. */
#include "tokenizer/tokenizer.h"

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

/* An SPM vocabulary: 256 byte tokens, and a few that merge, one control and one user-defined. */
static struct tokenizer *make_spm(void)
{
    static const char *const words[] = {"\xe2\x96\x81",
                                        "t",
                                        "h",
                                        "e",
                                        "th",
                                        "the",
                                        "\xe2\x96\x81the",
                                        "</s>",
                                        "<tool>",
                                        "\xc3\xa9"};
    static struct buf b;
    const uint64_t n_tokens = 256 + 10, counts[2] = {0, 4};
    put(&b, "GGUF\3\0\0\0", 8);
    put(&b, counts, sizeof counts);
    put_str(&b, "tokenizer.ggml.model");
    put_u32(&b, GGUF_STRING);
    put_str(&b, "llama");
    put_array(&b, "tokenizer.ggml.tokens", GGUF_STRING, n_tokens);
    for (unsigned i = 0; i < 256; i++) {
        char name[8];
        snprintf(name, sizeof name, "<0x%02X>", i);
        put_str(&b, name);
    }
    for (unsigned i = 0; i < 10; i++)
        put_str(&b, words[i]);
    put_array(&b, "tokenizer.ggml.token_type", GGUF_I32, n_tokens);
    for (unsigned i = 0; i < n_tokens; i++)
        put_u32(&b, i < 256 ? 6 : i == 256 + 7 ? 3 : i == 256 + 8 ? 4 : 1);
    put_array(&b, "tokenizer.ggml.scores", GGUF_F32, n_tokens);
    for (unsigned i = 0; i < n_tokens; i++) {
        float score = -(float)(i % 7);
        put(&b, &score, sizeof score);
    }
    static struct gguf *g; /* lives as long as the process, like b */
    struct tokenizer *t;
    if (gguf_open_memory(b.data, b.len, &g, NULL) || tokenizer_create(g, &t, NULL))
        abort();
    return t;
}

static void check_text(const struct tokenizer *t, const char *text, size_t n, bool trusted)
{
    struct token_list ids = {0};
    struct buf back = {0};
    struct text_piece piece = {text, n, trusted};
    if (tokenizer_encode(t, &piece, 1, &ids, NULL))
        abort(); /* the vocabulary has every byte */
    tokenizer_decode(t, ids.ids, ids.n, trusted, &back);
    if (back.len != n || (n > 0 && memcmp(back.data, text, n) != 0))
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
    if (!spm)
        spm = make_spm();
    if (!has_spm_space((const char *)data + 1, n_bytes - 1))
        check_text(spm, (const char *)data + 1, n_bytes - 1, data[0] & 2);
    return 0;
}
