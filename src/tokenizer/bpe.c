#include "tokenizer/bpe.h"

#include "base/mem.h"
#include "base/seed.h"
#include "base/utf8.h"

#include <stdlib.h>
#include <string.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

/* Longer words are not looked up whole, unless merges do not make them: hardly any token is
 * longer. */
#define MAX_WHOLE_WORD 64

struct bpe {
    const struct vocab *v;
    const struct pretokenize_rule *rule;
    size_t max_whole;
    token_id space; /* raw text: the token of U+2581, TOKEN_NONE if there is none */
    /* Where words span blanks: the bytes that stand before a space within some token. No merge
     * crosses the border between any other byte and a space, so what lies between such borders can
     * be merged by itself. */
    bool joins_space[256];
    struct merge_slot { /* open addressing by (left, right), the hash seeded at random */
        token_id left;  /* TOKEN_NONE: free */
        token_id right;
        uint32_t rank;
        token_id id;
    } * slots;
    size_t mask;
    uint64_t seed;
    /* Words known to become one token, by their bytes: the merges of most words of a text need not
     * be run. Holds exactly the tokens that merging their own bytes gives. */
    struct vocab_index whole;
};

/* ---- the table of merges ---- */

static struct merge_slot *slot_of(const struct bpe *b, token_id left, token_id right)
{
    uint64_t key = (uint64_t)(uint32_t)left << 32 | (uint32_t)right;
    size_t i = (size_t)XXH3_64bits_withSeed(&key, sizeof key, b->seed) & b->mask;
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
    b->seed = seed_random();
    const uint8_t *at = kv->elems;
    for (uint64_t i = 0; i < kv->n_elems && !err; i++)
        err = add_merge(b, gguf_next_str(&at), (uint32_t)i, joined, e);
out:
    free(joined);
    return err;
}

/* ---- words ---- */

/* The id of the character at s as a symbol to begin with; TOKEN_NONE if it has none. */
static token_id char_id(const struct bpe *b, const char *s, size_t n)
{
    if (n == 1 && *s == ' ')
        return b->space;
    token_id id = vocab_index_find(b->v, &b->v->by_text, s, n);
    return id != TOKEN_NONE && b->v->tokens[id].plain ? id : TOKEN_NONE;
}

/* The symbols of a word before merging: its bytes, or the characters of raw text. */
static size_t first_symbols(const struct bpe *b,
                            struct merge_symbol *syms,
                            const char *word,
                            size_t n)
{
    size_t n_syms = 0;
    for (size_t i = 0, len; i < n; i += len) {
        int n_char = b->rule->raw_text ? utf8_len(word + i, n - i) : 1;
        len = n_char > 0 ? (size_t)n_char : 1;
        token_id id =
            b->rule->raw_text ? char_id(b, word + i, len) : b->v->byte_ids[(uint8_t)word[i]];
        syms[n_syms++] =
            (struct merge_symbol){.id = id, .start = (uint32_t)i, .len = (uint32_t)len};
    }
    return n_syms;
}

/* Merge one word; the symbols are left in enc->merger. */
static enum err merge_word(const struct bpe *b,
                           struct encoder *enc,
                           const char *word,
                           size_t n,
                           size_t *n_left,
                           struct err_info *e)
{
    bool fits = merger_room(&enc->merger, n);
    if (fits) {
        size_t n_syms = first_symbols(b, enc->merger.syms, word, n);
        fits = merger_run(&enc->merger, n_syms, lookup, b, word, n_left);
    }
    return fits ? OK : err_set(e, ERR_NOMEM, "no memory to tokenize a word of %zu bytes", n);
}

/* A symbol that is no token: its bytes. Those that the vocabulary cannot express are left out, as
 * all who serve it do: a byte that no training text had says nothing to the model. */
static void emit_bytes(const struct bpe *b, struct token_list *out, const char *s, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (b->v->byte_ids[(uint8_t)s[i]] != TOKEN_NONE)
            token_list_add(out, b->v->byte_ids[(uint8_t)s[i]]);
}

static enum err encode_part(
    const struct bpe *b, struct encoder *enc, const char *word, size_t n, struct err_info *e)
{
    if (n <= b->max_whole) {
        token_id id = vocab_index_find(b->v, &b->whole, word, n);
        if (id != TOKEN_NONE) {
            token_list_add(enc->out, id);
            return OK;
        }
    }
    size_t n_left = 0;
    enum err err = merge_word(b, enc, word, n, &n_left, e);
    for (size_t i = 0; i < n_left && !err; i++) {
        const struct merge_symbol *sym = &enc->merger.syms[i];
        if (sym->id != TOKEN_NONE)
            token_list_add(enc->out, sym->id);
        else
            emit_bytes(b, enc->out, word + sym->start, sym->len);
    }
    return err;
}

/* The first border before a space in word[0..n) that no merge crosses; n if there is none. */
static size_t next_border(const struct bpe *b, const char *word, size_t n)
{
    for (size_t i = 1; i < n; i++) {
        if (word[i] != ' ' || word[i - 1] == ' ' || b->joins_space[(uint8_t)word[i - 1]])
            continue;
        if (i < 3 || memcmp(word + i - 3, "\xe2\x96\x81", 3) != 0) /* which may be one, too */
            return i;
    }
    return n;
}

static enum err encode_word(
    const struct bpe *b, struct encoder *enc, const char *word, size_t n, struct err_info *e)
{
    if (b->rule->whole_lines && word[0] == '\n') {
        token_id id = char_id(b, word, n);
        if (id != TOKEN_NONE) {
            token_list_add(enc->out, id);
            return OK;
        }
    }
    enum err err = OK;
    for (size_t part; n > 0 && !err; word += part, n -= part) {
        part = b->rule->spans_words ? next_border(b, word, n) : n;
        err = encode_part(b, enc, word, part, e);
    }
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
    b->max_whole = b->rule->whole_words ? v->max_text : MAX_WHOLE_WORD;
    for (uint32_t i = 0; i < v->n && !err; i++) {
        const struct vocab_token *t = &v->tokens[i];
        if (!t->plain || t->n_bytes > b->max_whole)
            continue;
        bool whole = b->rule->whole_words;
        if (!whole) {
            size_t n_left = 0;
            err = merge_word(b, &enc, t->bytes, t->n_bytes, &n_left, NULL);
            whole = !err && n_left == 1 && enc.merger.syms[0].id == (token_id)i;
        }
        if (whole)
            vocab_index_add(v, &b->whole, (token_id)i);
    }
    encoder_deinit(&enc);
    return err ? err_set(e, err, "no memory for a table of %u words", v->n) : OK;
}

static void find_spaces(struct bpe *b)
{
    const struct vocab *v = b->v;
    b->space = char_id(b, "\xe2\x96\x81", 3);
    for (uint32_t i = 0; i < v->n; i++) {
        const struct vocab_token *t = &v->tokens[i];
        for (uint32_t k = 1; k < t->n_bytes && t->plain; k++)
            if (t->bytes[k] == ' ' && t->bytes[k - 1] != ' ')
                b->joins_space[(uint8_t)t->bytes[k - 1]] = true;
    }
}

enum err bpe_create(const struct gguf *g,
                    const struct vocab *v,
                    struct bpe **out,
                    struct err_info *e)
{
    struct bpe *b = mem_zalloc(1, sizeof *b);
    b->v = v;
    b->rule = v->rule;
    enum err err = read_merges(g, b, e);
    if (!err) {
        find_spaces(b);
        err = find_whole_words(b, e);
    }
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
    free(b->slots);
    free(b->whole.slots);
    free(b);
}

/* ---- text ---- */

/* Words of a run of valid UTF-8. */
static enum err encode_valid(
    const struct bpe *b, struct encoder *enc, const char *text, size_t n, struct err_info *e)
{
    enum err err = OK;
    for (size_t at = 0, end; at < n && !err; at = end) {
        end = pretokenize_next(b->rule, &enc->words, text, n, at);
        err = encode_word(b, enc, text + at, end - at, e);
    }
    return err;
}

enum err bpe_encode(
    const struct bpe *b, struct encoder *enc, const char *text, size_t n, struct err_info *e)
{
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
