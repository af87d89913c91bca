/* Small vocabularies as GGUF files in memory, and what tests ask of a tokenizer. */
#ifndef WEIR_TEST_TOY_VOCAB_H
#define WEIR_TEST_TOY_VOCAB_H

#include "tokenizer/tokenizer.h"
#include "unit/gguf/file_builder.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct toy_token {
    const char *text;
    int type; /* 0: normal */
    float score;
};

/* Lists end with a NULL text; a NULL list or name leaves the field out. */
struct toy {
    const char *model;
    const char *pre;
    const struct toy_token *tokens;
    const char *const *merges;
    bool byte_tokens; /* put all 256 single bytes in front: characters, or <0xAB> for SPM and
                         PLaMo's, or \xab for RWKV's */
    bool no_space_prefix;
    int eos; /* 0: none */
};

/* Does its family write single bytes as <0xAB>? */
static inline bool toy_names_bytes(const struct toy *toy)
{
    return strcmp(toy->model, "llama") == 0 || strcmp(toy->model, "plamo2") == 0;
}

static inline void toy_byte_text(const struct toy *toy, unsigned b, char out[8])
{
    if (toy_names_bytes(toy)) {
        snprintf(out, 8, "<0x%02X>", b);
        return;
    }
    if (strcmp(toy->model, "rwkv") == 0) {
        snprintf(out, 8, "\\x%02x", b);
        return;
    }
    /* the byte map, written a second time as the paper's code states it */
    unsigned n_before = 0, cp = b;
    bool printable = (b >= '!' && b <= '~') || (b >= 0xa1 && b <= 0xac) || b >= 0xae;
    for (unsigned i = 0; i < b; i++)
        n_before += !((i >= '!' && i <= '~') || (i >= 0xa1 && i <= 0xac) || i >= 0xae);
    if (!printable)
        cp = 256 + n_before;
    if (cp < 128)
        snprintf(out, 8, "%c", (int)cp);
    else
        snprintf(out, 8, "%c%c", (int)(0xc0 | cp >> 6), (int)(0x80 | (cp & 63)));
}

static inline uint64_t toy_n_tokens(const struct toy *toy)
{
    uint64_t n = toy->byte_tokens ? 256 : 0;
    for (const struct toy_token *t = toy->tokens; t && t->text; t++)
        n++;
    return n;
}

static inline void toy_put_tokens(struct buf *b, const struct toy *toy)
{
    uint64_t n = toy_n_tokens(toy);
    unsigned n_byte = toy->byte_tokens ? 256 : 0;
    const bool named = toy_names_bytes(toy);
    put_array(b, "tokenizer.ggml.tokens", GGUF_STRING, n);
    for (unsigned i = 0; i < n_byte; i++) {
        char text[8];
        toy_byte_text(toy, i, text);
        put_str(b, text);
    }
    for (uint64_t i = n_byte; i < n; i++)
        put_str(b, toy->tokens[i - n_byte].text);
    put_array(b, "tokenizer.ggml.token_type", GGUF_I32, n);
    for (uint64_t i = 0; i < n; i++) {
        int type = i < n_byte ? (named ? 6 : 1) : toy->tokens[i - n_byte].type;
        put_u32(b, type ? (uint32_t)type : 1);
    }
    put_array(b, "tokenizer.ggml.scores", GGUF_F32, n);
    for (uint64_t i = 0; i < n; i++) {
        float score = i < n_byte ? 0 : toy->tokens[i - n_byte].score;
        buf_add(b, &score, sizeof score);
    }
}

/* The file in *b; further fields may follow (n_more of them, appended by the caller). */
static inline void toy_file(struct buf *b, const struct toy *toy, uint64_t n_more)
{
    uint64_t n_merges = 0;
    while (toy->merges && toy->merges[n_merges])
        n_merges++;
    bool prefix = !toy->no_space_prefix;
    put_header(b, 3, 0, 6 + (toy->pre != NULL) + (toy->merges != NULL) + n_more);
    put_key(b, "tokenizer.ggml.model", GGUF_STRING);
    put_str(b, toy->model);
    toy_put_tokens(b, toy);
    put_kv(b, "tokenizer.ggml.add_space_prefix", GGUF_BOOL, &prefix, 1);
    put_kv_u32(b, toy->eos ? "tokenizer.ggml.eos_token_id" : "toy.no_eos", (uint32_t)toy->eos);
    if (toy->pre) {
        put_key(b, "tokenizer.ggml.pre", GGUF_STRING);
        put_str(b, toy->pre);
    }
    if (toy->merges)
        put_array(b, "tokenizer.ggml.merges", GGUF_STRING, n_merges);
    for (uint64_t i = 0; i < n_merges; i++)
        put_str(b, toy->merges[i]);
}

struct loaded {
    struct buf file;
    struct gguf *g;
    struct tokenizer *t;
};

static inline void load_file(struct loaded *l)
{
    struct err_info e = {0};
    if (gguf_open_memory(l->file.data, l->file.len, &l->g, &e) != OK ||
        tokenizer_create(l->g, &l->t, &e) != OK)
        fail_msg("%s: %s", e.field, e.text);
}

static inline struct loaded load_toy(const struct toy *toy)
{
    struct loaded l = {0};
    toy_file(&l.file, toy, 0);
    load_file(&l);
    return l;
}

static inline struct loaded load_path(const char *path)
{
    struct loaded l = {0};
    struct err_info e = {0};
    if (gguf_open(path, &l.g, &e) != OK || tokenizer_create(l.g, &l.t, &e) != OK)
        fail_msg("%s: %s: %s", path, e.field, e.text);
    return l;
}

static inline void unload(struct loaded *l)
{
    tokenizer_destroy(l->t);
    gguf_close(l->g);
    buf_deinit(&l->file);
}

static inline struct token_list encode(const struct tokenizer *t,
                                       const char *s,
                                       size_t n,
                                       bool parse_special)
{
    struct token_list ids = {0};
    struct err_info e = {0};
    struct text_piece piece = {s, n, parse_special};
    if (tokenizer_encode(t, &piece, 1, &ids, &e) != OK)
        fail_msg("encode: %s", e.text);
    return ids;
}

/* The tokens' texts joined by '|', compared with `want`. */
static inline void assert_tokens(const struct tokenizer *t,
                                 const struct token_list *ids,
                                 const char *want)
{
    struct buf got = {0};
    for (size_t i = 0; i < ids->n; i++) {
        size_t n;
        const char *bytes = tokenizer_bytes(t, ids->ids[i], true, &n);
        buf_str(&got, i ? "|" : "");
        buf_add(&got, bytes, n);
    }
    assert_string_equal(buf_cstr(&got), want);
    buf_deinit(&got);
}

static inline void assert_encodes(const struct tokenizer *t,
                                  const char *s,
                                  bool parse_special,
                                  const char *want)
{
    struct token_list ids = encode(t, s, strlen(s), parse_special);
    assert_tokens(t, &ids, want);
    token_list_deinit(&ids);
}

/* What the model wants behind a text: this token, or nothing (TOKEN_NONE). */
static inline void assert_ends_with(const struct tokenizer *t, token_id want)
{
    struct token_list ids = {0};
    tokenizer_add_end(t, &ids);
    assert_int_equal(ids.n, want != TOKEN_NONE);
    assert_int_equal(ids.n > 0 ? ids.ids[0] : TOKEN_NONE, want);
    token_list_deinit(&ids);
}

static inline void assert_same_ids(const struct token_list *a, const struct token_list *b)
{
    assert_int_equal(a->n, b->n);
    if (a->n > 0)
        assert_memory_equal(a->ids, b->ids, a->n * sizeof *a->ids);
}

/* A generator of its own, so that a printed seed gives the same test everywhere. */
static inline uint32_t next_random(uint64_t *state)
{
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(*state >> 33);
}

static inline uint64_t print_seed(void)
{
    const char *given = getenv("WEIR_TEST_SEED");
    uint64_t seed = given ? strtoull(given, NULL, 10) : 20261120;
    print_message("seed %llu (WEIR_TEST_SEED sets it)\n", (unsigned long long)seed);
    return seed;
}

#endif
