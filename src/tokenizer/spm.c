#include "tokenizer/spm.h"

#include "base/utf8.h"

#include <string.h>

#define SPACE "\xe2\x96\x81" /* U+2581 */
#define SPACE_LEN 3

static bool space_at(const char *s, size_t n)
{
    return n >= SPACE_LEN && memcmp(s, SPACE, SPACE_LEN) == 0;
}

static bool has_inner_space(const struct vocab_token *t)
{
    bool in_word = false;
    for (size_t i = 0; i < t->text_len;) {
        bool space = space_at(t->text + i, t->text_len - i);
        if (space && in_word)
            return true;
        in_word |= !space;
        i += space ? SPACE_LEN : 1;
    }
    return false;
}

void spm_init(struct spm *s, const struct vocab *v)
{
    *s = (struct spm){.v = v, .unk = v->unk, .space_begins_word = true};
    for (uint32_t i = 0; i < v->n; i++) {
        if (s->unk == TOKEN_NONE && v->tokens[i].type == TOKEN_UNKNOWN)
            s->unk = (token_id)i;
        if (v->tokens[i].plain && has_inner_space(&v->tokens[i]))
            s->space_begins_word = false;
    }
    /* a file may name a control token here; a user's text must not become one */
    if (s->unk != TOKEN_NONE && v->tokens[s->unk].type == TOKEN_CONTROL)
        s->unk = TOKEN_NONE;
}

/* ---- merging ---- */

/* Map a finite score to an integer that is lower for a higher score. */
static uint32_t order_of(float score)
{
    float no_minus_zero = score + 0.0f;
    uint32_t bits;
    memcpy(&bits, &no_minus_zero, 4);
    uint32_t ascending = bits & 0x80000000u ? ~bits : bits | 0x80000000u;
    return ~ascending;
}

static token_id find_plain(const struct vocab *v, const char *s, size_t n)
{
    if (n > v->max_text)
        return TOKEN_NONE;
    token_id id = vocab_index_find(v, &v->by_text, s, n);
    return id != TOKEN_NONE && v->tokens[id].plain ? id : TOKEN_NONE;
}

static struct merge_result lookup(const void *ctx,
                                  const char *text,
                                  const struct merge_symbol *l,
                                  const struct merge_symbol *r)
{
    const struct vocab *v = ctx;
    token_id id = find_plain(v, text + l->start, l->len + r->len);
    if (id == TOKEN_NONE)
        return (struct merge_result){MERGE_NEVER, TOKEN_NONE};
    return (struct merge_result){order_of(v->tokens[id].score), id};
}

/* A symbol that is no token: its bytes, or the unknown token, one for all that stand in a row since
 * out had n_before. */
static enum err emit_unknown(const struct spm *s,
                             struct token_list *out,
                             size_t n_before,
                             const char *text,
                             size_t n,
                             struct err_info *e)
{
    bool have_all = true;
    for (size_t i = 0; i < n; i++)
        have_all &= s->v->byte_ids[(uint8_t)text[i]] != TOKEN_NONE;
    if (!have_all && s->unk == TOKEN_NONE)
        return err_set(e,
                       ERR_UNSUPPORTED,
                       "the vocabulary has no token for byte 0x%02x",
                       (unsigned)(uint8_t)text[0]);
    if (!have_all) {
        if (out->n == n_before || out->ids[out->n - 1] != s->unk)
            token_list_add(out, s->unk);
        return OK;
    }
    for (size_t i = 0; i < n; i++)
        token_list_add(out, s->v->byte_ids[(uint8_t)text[i]]);
    return OK;
}

static enum err encode_word(const struct spm *s,
                            struct encoder *enc,
                            size_t n_before,
                            const char *word,
                            size_t n,
                            struct err_info *e)
{
    struct merger *m = &enc->merger;
    if (!merger_room(m, n))
        return err_set(e, ERR_NOMEM, "no memory to tokenize %zu bytes", n);
    size_t n_syms = 0;
    for (size_t at = 0; at < n;) {
        int len = utf8_len(word + at, n - at);
        uint32_t step = len > 0 ? (uint32_t)len : 1; /* an invalid byte is a symbol */
        m->syms[n_syms++] = (struct merge_symbol){
            .id = find_plain(s->v, word + at, step), .start = (uint32_t)at, .len = step};
        at += step;
    }
    if (!merger_run(m, n_syms, lookup, s->v, word, &n_syms))
        return err_set(e, ERR_NOMEM, "no memory to tokenize %zu bytes", n);
    enum err err = OK;
    for (size_t i = 0; i < n_syms && !err; i++) {
        const struct merge_symbol *sym = &m->syms[i];
        if (sym->id != TOKEN_NONE)
            token_list_add(enc->out, sym->id);
        else
            err = emit_unknown(s, enc->out, n_before, word + sym->start, sym->len, e);
    }
    return err;
}

/* ---- text ---- */

/* text with its spaces written as U+2581, in enc->text. */
static enum err escape(struct encoder *enc,
                       const char *text,
                       size_t n,
                       bool prefix,
                       size_t *n_escaped,
                       struct err_info *e)
{
    size_t n_spaces = prefix;
    for (size_t i = 0; i < n; i++)
        n_spaces += text[i] == ' ';
    enum err err = encoder_text_room(enc, n + n_spaces * SPACE_LEN + 1, e);
    if (err)
        return err;
    char *out = enc->text;
    if (prefix) {
        memcpy(out, SPACE, SPACE_LEN);
        out += SPACE_LEN;
    }
    for (size_t i = 0; i < n; i++) {
        if (text[i] == ' ') {
            memcpy(out, SPACE, SPACE_LEN);
            out += SPACE_LEN;
        } else {
            *out++ = text[i];
        }
    }
    *n_escaped = (size_t)(out - enc->text);
    return OK;
}

/* The length of the word at text: spaces and what follows them up to the next space. */
static size_t word_len(const char *text, size_t n)
{
    size_t i = 0;
    while (space_at(text + i, n - i))
        i += SPACE_LEN;
    while (i < n && !space_at(text + i, n - i))
        i++;
    return i;
}

enum err spm_encode(const struct spm *s,
                    struct encoder *enc,
                    const char *text,
                    size_t n,
                    bool prefix,
                    struct err_info *e)
{
    size_t n_escaped = 0;
    enum err err = escape(enc, text, n, prefix, &n_escaped, e);
    if (!err && n_escaped > UINT32_MAX) /* symbols know where they begin in 32 bits */
        err = err_set(e, ERR_UNSUPPORTED, "a text of more than 4 GiB, its spaces being marked");
    if (!err)
        err = encoder_room(enc, n_escaped, e); /* no byte makes more than one token */
    const char *at = enc->text;
    size_t n_before = enc->out->n;
    while (n_escaped > 0 && !err) {
        size_t len = s->space_begins_word ? word_len(at, n_escaped) : n_escaped;
        err = encode_word(s, enc, n_before, at, len, e);
        at += len;
        n_escaped -= len;
    }
    return err;
}
