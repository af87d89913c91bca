#include "tokenizer/bpe.h"

#include "base/mem.h"
#include "base/utf8.h"

#include <stdlib.h>
#include <string.h>

/* Longer words are not looked up whole: hardly any token is longer. */
#define MAX_WHOLE_WORD 64

struct bpe {
    const struct vocab *v;
    struct pretokenizer *pre;
    struct merge_slot { /* open addressing by (left, right) */
        token_id left;  /* TOKEN_NONE: free */
        token_id right;
        uint32_t rank;
        token_id id;
    } * slots;
    size_t mask;
    /* Words known to become one token, by their bytes: the merges of most words of a text need not
     * be run. Holds exactly the tokens that merging their own bytes gives. */
    struct vocab_index whole;
};

/* ---- the table of merges ---- */

static struct merge_slot *slot_of(const struct bpe *b, token_id left, token_id right)
{
    uint64_t key = (uint64_t)(uint32_t)left << 32 | (uint32_t)right;
    size_t i = (size_t)((key * 0x9e3779b97f4a7c15u) >> 24) & b->mask;
    for (;; i = (i + 1) & b->mask) {
        struct merge_slot *slot = &b->slots[i];
        if (slot->left == TOKEN_NONE || (slot->left == left && slot->right == right))
            return slot;
    }
}

static struct merge_result lookup(const void *ctx,
                                  const char *text,
                                  const struct merge_symbol *l,
                                  const struct merge_symbol *r)
{
    (void)text;
    const struct merge_slot *slot = slot_of(ctx, l->id, r->id);
    return slot->left == TOKEN_NONE ? (struct merge_result){MERGE_NEVER, TOKEN_NONE}
                                    : (struct merge_result){slot->rank, slot->id};
}

static enum err bad_merge(uint64_t rank, const char *what, struct err_info *e)
{
    return err_set_field(
        e, ERR_FORMAT, "tokenizer.ggml.merges", "merge %llu %s", (unsigned long long)rank, what);
}

/* One line of the merges: "LEFT RIGHT". `joined` is scratch of two tokens' length. */
static enum err add_merge(
    struct bpe *b, struct gguf_str s, uint32_t rank, char *joined, struct err_info *e)
{
    const struct vocab *v = b->v;
    const char *space = s.len > 1 ? memchr(s.data + 1, ' ', s.len - 1) : NULL;
    if (!space)
        return bad_merge(rank, "is not two tokens with a blank between them", e);
    size_t n_left = (size_t)(space - s.data), n_right = s.len - n_left - 1;
    token_id left = vocab_index_find(v, &v->by_text, s.data, n_left);
    token_id right = vocab_index_find(v, &v->by_text, space + 1, n_right);
    if (left == TOKEN_NONE || right == TOKEN_NONE)
        return bad_merge(rank, "names a token that the vocabulary does not have", e);
    memcpy(joined, s.data, n_left);
    memcpy(joined + n_left, space + 1, n_right);
    token_id id = vocab_index_find(v, &v->by_text, joined, n_left + n_right);
    if (id == TOKEN_NONE)
        return bad_merge(rank, "makes a token that the vocabulary does not have", e);
    if (!v->tokens[id].plain)
        return OK; /* a user's text must not grow into a control token */
    struct merge_slot *slot = slot_of(b, left, right);
    if (slot->left == TOKEN_NONE)
        *slot = (struct merge_slot){left, right, rank, id};
    return OK;
}

static enum err read_merges(const struct gguf *g, struct bpe *b, struct err_info *e)
{
    const char *key = "tokenizer.ggml.merges";
    const struct gguf_kv *kv;
    enum err err = vocab_array(g, key, GGUF_STRING, &kv, e);
    if (err)
        return err;
    if (!kv)
        return err_set_field(e, ERR_FORMAT, key, "is missing");
    if (kv->n_elems >= MERGE_NEVER)
        return err_set_field(e, ERR_FORMAT, key, "has too many merges");
    size_t cap = 16;
    while (cap < 2 * kv->n_elems)
        cap *= 2;
    char *joined = malloc(2 * VOCAB_MAX_TOKEN_BYTES);
    b->slots = malloc(cap * sizeof *b->slots);
    if (!b->slots || !joined) {
        err = err_set(e, ERR_NOMEM, "no memory for the tokenizer's merges");
        goto out;
    }
    memset(b->slots, 0xff, cap * sizeof *b->slots); /* every left TOKEN_NONE */
    b->mask = cap - 1;
    const uint8_t *at = kv->elems;
    for (uint64_t i = 0; i < kv->n_elems && !err; i++)
        err = add_merge(b, gguf_next_str(&at), (uint32_t)i, joined, e);
out:
    free(joined);
    return err;
}

/* ---- words ---- */

/* Merge one word's bytes; the symbols are left in enc->merger. */
static enum err merge_word(const struct bpe *b,
                           struct encoder *enc,
                           const char *word,
                           size_t n,
                           size_t *n_left,
                           struct err_info *e)
{
    if (!merger_room(&enc->merger, n))
        return err_set(e, ERR_NOMEM, "no memory to tokenize a word of %zu bytes", n);
    for (size_t i = 0; i < n; i++) {
        uint8_t byte = (uint8_t)word[i];
        token_id id = b->v->byte_ids[byte];
        if (id == TOKEN_NONE)
            return err_set(e, ERR_UNSUPPORTED, "the vocabulary has no token for byte 0x%02x", byte);
        enc->merger.syms[i] = (struct merge_symbol){.id = id, .start = (uint32_t)i, .len = 1};
    }
    if (!merger_run(&enc->merger, n, lookup, b, word, n_left))
        return err_set(e, ERR_NOMEM, "no memory to tokenize a word of %zu bytes", n);
    return OK;
}

static enum err encode_word(
    const struct bpe *b, struct encoder *enc, const char *word, size_t n, struct err_info *e)
{
    if (n <= MAX_WHOLE_WORD) {
        token_id id = vocab_index_find(b->v, &b->whole, word, n);
        if (id != TOKEN_NONE) {
            token_list_add(enc->out, id);
            return OK;
        }
    }
    size_t n_left = 0;
    enum err err = merge_word(b, enc, word, n, &n_left, e);
    for (size_t i = 0; i < n_left && !err; i++)
        token_list_add(enc->out, enc->merger.syms[i].id);
    return err;
}

/* Fill b->whole. Where the pre-tokenizer says that whole words come before merges, every plain
 * token belongs there; else those that their own merges give. */
static enum err find_whole_words(struct bpe *b, struct err_info *e)
{
    const struct vocab *v = b->v;
    struct encoder enc = {0};
    enum err err = OK;
    if (!vocab_index_init(&b->whole, v->n, true))
        return err_set(e, ERR_NOMEM, "no memory for a table of %u words", v->n);
    for (uint32_t i = 0; i < v->n && !err; i++) {
        const struct vocab_token *t = &v->tokens[i];
        if (!t->plain || t->n_bytes > MAX_WHOLE_WORD)
            continue;
        bool whole = pretokenizer_whole_words(b->pre);
        if (!whole) {
            size_t n_left = 0;
            err = merge_word(b, &enc, t->bytes, t->n_bytes, &n_left, NULL);
            whole = !err && n_left == 1 && enc.merger.syms[0].id == (token_id)i;
            if (err == ERR_UNSUPPORTED)
                err = OK; /* a token with a byte that no text can have */
        }
        if (whole)
            vocab_index_add(v, &b->whole, (token_id)i);
    }
    encoder_deinit(&enc);
    return err ? err_set(e, err, "no memory for a table of %u words", v->n) : OK;
}

enum err bpe_create(const struct gguf *g,
                    const struct vocab *v,
                    struct bpe **out,
                    struct err_info *e)
{
    struct bpe *b = mem_zalloc(1, sizeof *b);
    b->v = v;
    struct gguf_str name = {"default", 7};
    enum err err = gguf_get_str(g, "tokenizer.ggml.pre", &name, e);
    if (!err)
        err = pretokenizer_create(name.data, name.len, &b->pre, e);
    if (!err)
        err = read_merges(g, b, e);
    if (!err)
        err = find_whole_words(b, e);
    if (err) {
        bpe_destroy(b);
        b = NULL;
    }
    *out = b;
    return err;
}

void bpe_destroy(struct bpe *b)
{
    if (!b)
        return;
    pretokenizer_destroy(b->pre);
    free(b->slots);
    free(b->whole.slots);
    free(b);
}

/* ---- text ---- */

/* Words of a run of valid UTF-8. */
static enum err encode_valid(
    const struct bpe *b, struct encoder *enc, const char *text, size_t n, struct err_info *e)
{
    for (size_t at = 0; at < n;) {
        size_t end = pretokenize_next(b->pre, enc->words, text, n, at);
        if (end == 0)
            return err_set(e, ERR_NOMEM, "no memory to cut the text into words");
        enum err err = encode_word(b, enc, text + at, end - at, e);
        if (err)
            return err;
        at = end;
    }
    return OK;
}

enum err bpe_encode(
    const struct bpe *b, struct encoder *enc, const char *text, size_t n, struct err_info *e)
{
    if (!enc->words)
        enc->words = pretokenize_scratch_create(b->pre);
    if (!enc->words)
        return err_set(e, ERR_NOMEM, "no memory to cut the text into words");
    enum err err = encoder_room(enc, n, e); /* no byte makes more than one token */
    while (n > 0 && !err) {
        size_t valid = 0;
        int len = 0;
        while (valid < n && (len = utf8_len(text + valid, n - valid)) > 0)
            valid += (size_t)len;
        err = encode_valid(b, enc, text, valid, e);
        text += valid;
        n -= valid;
        if (n > 0 && !err) { /* a byte that begins no character is a word */
            err = encode_word(b, enc, text, 1, e);
            text++;
            n--;
        }
    }
    return err;
}
