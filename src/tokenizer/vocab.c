#include "tokenizer/vocab.h"

#include "base/hex.h"
#include "base/log.h"
#include "base/seed.h"
#include "base/utf8.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

static const char spm_space[] = "\xe2\x96\x81"; /* U+2581 */

/* ---- string tables ---- */

static const char *key_of(const struct vocab *v,
                          const struct vocab_index *x,
                          token_id id,
                          size_t *n)
{
    const struct vocab_token *t = &v->tokens[id];
    *n = x->by_bytes ? t->n_bytes : t->text_len;
    return x->by_bytes ? t->bytes : t->text;
}

bool vocab_index_init(struct vocab_index *x, size_t n, bool by_bytes)
{
    size_t cap = 16;
    while (cap < 2 * n)
        cap *= 2;
    x->slots = malloc(cap * sizeof *x->slots);
    if (!x->slots)
        return false;
    memset(x->slots, 0xff, cap * sizeof *x->slots); /* every id TOKEN_NONE */
    x->mask = cap - 1;
    x->seed = seed_random();
    x->by_bytes = by_bytes;
    return true;
}

/* The slot that holds s, or the free one where it would go. */
static struct vocab_slot *slot_of(
    const struct vocab *v, const struct vocab_index *x, const char *s, size_t n, uint32_t *tag)
{
    uint64_t hash = XXH3_64bits_withSeed(s, n, x->seed);
    *tag = (uint32_t)(hash >> 32);
    for (size_t i = hash & x->mask;; i = (i + 1) & x->mask) {
        struct vocab_slot *slot = &x->slots[i];
        if (slot->id == TOKEN_NONE)
            return slot;
        if (slot->tag != *tag)
            continue;
        size_t len;
        const char *key = key_of(v, x, slot->id, &len);
        if (len == n && memcmp(key, s, n) == 0)
            return slot;
    }
}

void vocab_index_add(const struct vocab *v, struct vocab_index *x, token_id id)
{
    size_t n;
    const char *key = key_of(v, x, id, &n);
    if (n == 0)
        return;
    uint32_t tag;
    struct vocab_slot *slot = slot_of(v, x, key, n, &tag);
    *slot = (struct vocab_slot){tag, id};
}

token_id vocab_index_find(const struct vocab *v,
                          const struct vocab_index *x,
                          const char *s,
                          size_t n)
{
    uint32_t tag;
    return n == 0 ? TOKEN_NONE : slot_of(v, x, s, n, &tag)->id;
}

/* ---- fields ---- */

enum err vocab_array(const struct gguf *g,
                     const char *key,
                     enum gguf_kind kind,
                     const struct gguf_kv **out,
                     struct err_info *e)
{
    const struct gguf_kv *kv = gguf_find(g, key);
    *out = kv;
    if (!kv)
        return OK;
    bool fits = kv->kind == GGUF_ARRAY &&
                (kv->elem_kind == kind || (kind == GGUF_I32 && kv->elem_kind == GGUF_U32));
    if (!fits)
        return err_set_field(e, ERR_FORMAT, key, "is not an array of the expected type");
    return OK;
}

static enum err read_texts(const struct gguf *g, struct vocab *v, struct err_info *e)
{
    const char *key = "tokenizer.ggml.tokens";
    const struct gguf_kv *kv;
    enum err err = vocab_array(g, key, GGUF_STRING, &kv, e);
    if (err)
        return err;
    if (!kv || kv->n_elems == 0)
        return err_set_field(e, ERR_FORMAT, key, "is missing or empty");
    if (kv->n_elems > INT32_MAX)
        return err_set_field(e, ERR_FORMAT, key, "has too many tokens");
    v->n = (uint32_t)kv->n_elems;
    v->tokens = calloc(v->n, sizeof *v->tokens);
    if (!v->tokens || !vocab_index_init(&v->by_text, v->n, false))
        return err_set(e, ERR_NOMEM, "no memory for a vocabulary of %u tokens", v->n);
    const uint8_t *at = kv->elems;
    for (uint32_t i = 0; i < v->n; i++) {
        struct gguf_str s = gguf_next_str(&at);
        if (s.len > VOCAB_MAX_TOKEN_BYTES)
            return err_set_field(e, ERR_FORMAT, key, "token %u has %zu bytes", i, s.len);
        struct vocab_token *t = &v->tokens[i];
        t->text = t->bytes = s.data;
        t->text_len = t->n_bytes = (uint32_t)s.len;
        t->type = TOKEN_NORMAL;
        vocab_index_add(v, &v->by_text, (token_id)i);
    }
    return OK;
}

/* -1: not of the form <0xAB> */
static int byte_token_value(const struct vocab_token *t)
{
    if (t->text_len != 6 || memcmp(t->text, "<0x", 3) != 0 || t->text[5] != '>')
        return -1;
    int value = 0;
    for (int i = 3; i < 5; i++) {
        int digit = hex_digit(t->text[i]);
        if (digit < 0)
            return -1;
        value = value * 16 + digit;
    }
    return value;
}

/* Does the vocabulary write single bytes as <0xAB>? */
static bool has_byte_tokens(const struct vocab *v)
{
    return v->family == VOCAB_SPM || v->family == VOCAB_UGM || v->family == VOCAB_PLAMO ||
           (v->family == VOCAB_BPE && v->rule->raw_text);
}

/* A value of a token each; *out is NULL where the file has none. */
static enum err read_each(const struct gguf *g,
                          const char *key,
                          enum gguf_kind kind,
                          uint32_t n_tokens,
                          const struct gguf_kv **out,
                          struct err_info *e)
{
    enum err err = vocab_array(g, key, kind, out, e);
    if (!err && *out && (*out)->n_elems != n_tokens)
        return err_set_field(e,
                             ERR_FORMAT,
                             key,
                             "has %llu entries for %u tokens",
                             (unsigned long long)(*out)->n_elems,
                             n_tokens);
    return err;
}

static enum err read_types(const struct gguf *g, struct vocab *v, struct err_info *e)
{
    const char *key = "tokenizer.ggml.token_type";
    const struct gguf_kv *kv;
    enum err err = read_each(g, key, GGUF_I32, v->n, &kv, e);
    if (err)
        return err;
    for (uint32_t i = 0; i < v->n; i++) {
        int32_t type = TOKEN_NORMAL;
        if (kv)
            memcpy(&type, kv->elems + 4 * (size_t)i, 4);
        else if (has_byte_tokens(v) && byte_token_value(&v->tokens[i]) >= 0)
            type = TOKEN_BYTE;
        bool known = type >= TOKEN_NORMAL && type <= TOKEN_BYTE;
        if (type == TOKEN_BYTE && !has_byte_tokens(v))
            known = false; /* every token of a byte-level vocabulary is made of bytes */
        v->tokens[i].type = (uint8_t)(known ? type : TOKEN_NORMAL);
    }
    return OK;
}

static enum err read_scores(const struct gguf *g, struct vocab *v, struct err_info *e)
{
    const char *key = "tokenizer.ggml.scores";
    const struct gguf_kv *kv;
    enum err err = read_each(g, key, GGUF_F32, v->n, &kv, e);
    if (err)
        return err;
    if (!kv)
        return err_set_field(e, ERR_FORMAT, key, "is missing");
    for (uint32_t i = 0; i < v->n; i++) {
        float score;
        memcpy(&score, kv->elems + 4 * (size_t)i, 4);
        if (!isfinite(score))
            return err_set_field(e, ERR_FORMAT, key, "token %u: the score is not finite", i);
        v->tokens[i].score = score;
    }
    return OK;
}

/* ---- what tokens stand for ---- */

/* Write the bytes of BPE text s to out (never more than its length); false if a character is
 * outside the byte map: it is kept as it is, but merging bytes cannot produce the token. */
static bool decode_bpe(const char *s, size_t n, char *out, size_t *n_out)
{
    bool plain = true;
    *n_out = 0;
    while (n > 0) {
        int len = utf8_len(s, n);
        int byte = len > 0 ? bytemap_decode(s, (size_t)len) : -1;
        size_t step = len > 0 ? (size_t)len : 1;
        if (byte >= 0) {
            out[(*n_out)++] = (char)byte;
        } else {
            memcpy(out + *n_out, s, step);
            *n_out += step;
            plain = false;
        }
        s += step;
        n -= step;
    }
    return plain;
}

static void decode_spm(const char *s, size_t n, char *out, size_t *n_out)
{
    *n_out = 0;
    for (size_t i = 0; i < n;) {
        bool space = n - i >= 3 && memcmp(s + i, spm_space, 3) == 0;
        out[(*n_out)++] = space ? ' ' : s[i];
        i += space ? 3 : 1;
    }
}

/* What a backslash before s[0..n) makes of it: how many bytes it takes, and in *out what they mean;
 * 0 if it stands for itself. */
static size_t unescape(const char *s, size_t n, char *out)
{
    const int high = n > 2 ? hex_digit(s[1]) : -1, low = n > 2 ? hex_digit(s[2]) : -1;
    if (n == 0 || (s[0] == 'x' && (high < 0 || low < 0)))
        return 0;
    if (s[0] == 'x') {
        *out = (char)(high * 16 + low);
        return 3;
    }
    *out = s[0] == 't' ? '\t' : s[0] == 'n' ? '\n' : s[0] == 'r' ? '\r' : s[0];
    return 1;
}

/* Files of RWKV have bytes as source code would. */
static void decode_rwkv(const char *s, size_t n, char *out, size_t *n_out)
{
    *n_out = 0;
    for (size_t i = 0; i < n;) {
        char meant = s[i];
        i += 1 + (meant == '\\' ? unescape(s + i + 1, n - i - 1, &meant) : 0);
        out[(*n_out)++] = meant;
    }
}

static enum err decode_texts(struct vocab *v, struct err_info *e)
{
    size_t total = 1;
    for (uint32_t i = 0; i < v->n; i++)
        total += v->tokens[i].text_len;
    char *out = v->decoded = malloc(total);
    if (!out)
        return err_set(e, ERR_NOMEM, "no memory for the texts of %u tokens", v->n);
    for (uint32_t i = 0; i < v->n; i++) {
        struct vocab_token *t = &v->tokens[i];
        size_t n_bytes = t->text_len;
        if (t->type == TOKEN_BYTE) {
            int value = byte_token_value(t);
            if (value < 0)
                return err_set_field(e,
                                     ERR_FORMAT,
                                     "tokenizer.ggml.tokens",
                                     "token %u has type byte, but is not like <0x1F>",
                                     i);
            *out = (char)value;
            n_bytes = 1;
            v->byte_ids[value] = (token_id)i;
        } else if (t->type == TOKEN_CONTROL || t->type == TOKEN_UNKNOWN) {
            continue; /* bytes are the text */
        } else if (v->family == VOCAB_PLAMO) {
            t->plain = true;
            continue;
        } else if (v->family == VOCAB_RWKV) {
            t->plain = true;
            decode_rwkv(t->text, t->text_len, out, &n_bytes);
        } else if (v->family != VOCAB_BPE || v->rule->raw_text) {
            t->plain = true;
            decode_spm(t->text, t->text_len, out, &n_bytes);
        } else if (t->type != TOKEN_USER_DEFINED) {
            t->plain = decode_bpe(t->text, t->text_len, out, &n_bytes);
        } else {
            continue;
        }
        t->bytes = out;
        t->n_bytes = (uint32_t)n_bytes;
        out += n_bytes;
    }
    return OK;
}

static void index_bytes(struct vocab *v)
{
    bool mapped = v->family == VOCAB_BPE && !v->rule->raw_text;
    for (unsigned b = 0; b < 256 && mapped; b++) {
        char text[2];
        size_t n;
        bytemap_encode((uint8_t)b, text, &n);
        token_id id = vocab_index_find(v, &v->by_text, text, n);
        if (id != TOKEN_NONE && v->tokens[id].plain)
            v->byte_ids[b] = id;
    }
    for (uint32_t i = 0; i < v->n; i++) {
        const struct vocab_token *t = &v->tokens[i];
        if (t->plain && t->text_len > v->max_text)
            v->max_text = t->text_len;
        if (v->family == VOCAB_RWKV && t->plain && t->n_bytes == 1)
            v->byte_ids[(uint8_t)t->bytes[0]] = (token_id)i;
    }
}

/* The pre-tokenizer of a BPE vocabulary. */
static enum err read_rule(const struct gguf *g, struct vocab *v, bool gemma4, struct err_info *e)
{
    struct gguf_str name = {NULL, 0};
    v->rule = pretokenize_default();
    enum err err = gguf_get_str(g, "tokenizer.ggml.pre", &name, e);
    if (err)
        return err;
    if (gemma4) /* whatever it says beside its model */
        name = (struct gguf_str){"gemma4", 6};
    const struct pretokenize_rule *rule = name.data ? pretokenize_find(name.data, name.len) : NULL;
    if (rule)
        v->rule = rule;
    else if (name.data)
        log_warn("no pre-tokenizer named '%.*s'; using the default, so token ids may differ",
                 (int)(name.len < 64 ? name.len : 64),
                 name.data);
    else
        log_warn("the file names no pre-tokenizer; using the default");
    return OK;
}

static enum err read_family(const struct gguf *g, struct vocab *v, struct err_info *e)
{
    const char *key = "tokenizer.ggml.model";
    static const struct {
        const char *model;
        enum vocab_family family;
    } models[] = {
        {"gpt2", VOCAB_BPE},
        {"gemma4", VOCAB_BPE},
        {"llama", VOCAB_SPM},
        {"bert", VOCAB_WPM},
        {"t5", VOCAB_UGM},
        {"plamo2", VOCAB_PLAMO},
        {"rwkv", VOCAB_RWKV},
    };
    struct gguf_str s = {NULL, 0};
    enum err err = gguf_get_str(g, key, &s, e);
    if (err)
        return err;
    if (!s.data)
        return err_set_field(e, ERR_FORMAT, key, "is missing");
    for (size_t i = 0; i < sizeof models / sizeof models[0]; i++) {
        if (s.len != strlen(models[i].model) || memcmp(s.data, models[i].model, s.len) != 0)
            continue;
        v->family = models[i].family;
        return v->family == VOCAB_BPE ? read_rule(g, v, s.len == 6, e) : OK;
    }
    return err_set_field(e,
                         ERR_UNSUPPORTED,
                         key,
                         "'%.*s' is a tokenizer that Weir does not have (it has gpt2, llama, bert, "
                         "t5, gemma4, plamo2, rwkv)",
                         (int)(s.len < 40 ? s.len : 40),
                         s.data);
}

enum err vocab_read(const struct gguf *g, struct vocab *v, struct err_info *e)
{
    *v = (struct vocab){.bos = TOKEN_NONE, .eos = TOKEN_NONE, .unk = TOKEN_NONE, .sep = TOKEN_NONE};
    for (int b = 0; b < 256; b++)
        v->byte_ids[b] = TOKEN_NONE;
    enum err err = read_family(g, v, e);
    if (!err)
        err = read_texts(g, v, e);
    if (!err)
        err = read_types(g, v, e);
    if (!err && (v->family == VOCAB_SPM || v->family == VOCAB_UGM || v->family == VOCAB_PLAMO))
        err = read_scores(g, v, e);
    if (!err)
        err = vocab_read_special(g, v, e);
    if (!err)
        err = vocab_read_fim(g, v, e);
    if (!err)
        err = decode_texts(v, e);
    if (!err)
        index_bytes(v);
    return err;
}

void vocab_deinit(struct vocab *v)
{
    free(v->tokens);
    free(v->by_text.slots);
    free(v->decoded);
    free(v->suppressed);
    *v = (struct vocab){0};
}
