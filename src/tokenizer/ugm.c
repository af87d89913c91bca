#include "tokenizer/ugm.h"

#include "base/log.h"
#include "base/mem.h"
#include "base/utf8.h"
#include "tokenizer/prefix.h"

#include <float.h>
#include <stdlib.h>
#include <string.h>

#define SPACE "\xe2\x96\x81" /* U+2581 */
#define SPACE_LEN 3
#define UNKNOWN_PENALTY 10.0f /* below the lowest score, as SentencePiece has it */

/* No real table comes near (one character of Arabic becomes 33 bytes). They bound what a table that
 * goes in circles, or makes a book of a letter, costs per byte of text. */
#define MAX_KEY_BYTES 255
#define MAX_REPLACEMENT_BYTES 255

/* The table of replacements: a double-array trie over what is replaced, and the replacements, each
 * ended by a NUL. A unit of the trie has the label of the byte that leads to it in bits 0..7, in
 * bit 8 whether a key ends there, and from bit 10 on (shifted by 8 if bit 9 is set) the offset
 * whose exclusive or with a byte leads on. Where a key ends, the unit at the offset itself holds
 * the place of its replacement. Source: Kanda 2018; SentencePiece's normalizer. */
struct charsmap {
    const uint8_t *units; /* n_units of 4 bytes, little endian, not aligned */
    size_t n_units;
    const char *replacements;
    size_t n_replacements;
};

struct ugm {
    const struct vocab *v;
    struct prefix_set tokens, user_defined;
    struct charsmap map;
    double unknown_score;
};

/* ---- loading ---- */

static enum err read_charsmap(const struct gguf *g, struct charsmap *m, struct err_info *e)
{
    const char *key = "tokenizer.ggml.precompiled_charsmap";
    const struct gguf_kv *kv = gguf_find(g, key);
    if (!kv)
        return OK;
    if (kv->kind != GGUF_ARRAY || (kv->elem_kind != GGUF_U8 && kv->elem_kind != GGUF_I8))
        return err_set_field(e, ERR_FORMAT, key, "is not an array of bytes");
    uint32_t n_bytes;
    if (kv->n_elems <= sizeof n_bytes)
        return err_set_field(e, ERR_FORMAT, key, "is cut off");
    memcpy(&n_bytes, kv->elems, sizeof n_bytes);
    size_t n_rest = (size_t)kv->n_elems - sizeof n_bytes;
    const uint8_t *rest = kv->elems + sizeof n_bytes;
    if (n_bytes >= n_rest || rest[n_rest - 1] != 0)
        return err_set_field(e, ERR_FORMAT, key, "is cut off");
    *m = (struct charsmap){
        rest, n_bytes / sizeof(uint32_t), (const char *)rest + n_bytes, n_rest - n_bytes};
    for (size_t i = 0, len; i < m->n_replacements; i += len + 1) {
        len = strlen(m->replacements + i); /* the table ends with a NUL */
        if (len > MAX_REPLACEMENT_BYTES)
            return err_set_field(e, ERR_FORMAT, key, "a replacement has %zu bytes", len);
    }
    return OK;
}

static bool fill_sets(struct ugm *u)
{
    const struct vocab *v = u->v;
    float min_score = FLT_MAX;
    if (!prefix_init(&u->tokens, v->n) || !prefix_init(&u->user_defined, v->n))
        return false;
    for (uint32_t i = 0; i < v->n; i++) {
        const struct vocab_token *t = &v->tokens[i];
        if (t->type == TOKEN_NORMAL && t->score < min_score)
            min_score = t->score;
        if (t->type == TOKEN_NORMAL || t->type == TOKEN_UNUSED || t->type == TOKEN_USER_DEFINED)
            prefix_add(&u->tokens, t, (token_id)i);
        if (t->type == TOKEN_USER_DEFINED)
            prefix_add(&u->user_defined, t, (token_id)i);
    }
    prefix_sort(&u->tokens);
    prefix_sort(&u->user_defined);
    if (u->tokens.n_too_long > u->user_defined.n_too_long) /* of which special_init tells */
        log_warn("%u tokens of more than %d bytes are not looked for in texts",
                 u->tokens.n_too_long - u->user_defined.n_too_long,
                 PREFIX_MAX_BYTES);
    u->unknown_score = (double)(min_score - UNKNOWN_PENALTY);
    return true;
}

enum err ugm_create(const struct gguf *g,
                    const struct vocab *v,
                    struct ugm **out,
                    struct err_info *e)
{
    struct ugm *u = mem_zalloc(1, sizeof *u);
    u->v = v;
    enum err err = read_charsmap(g, &u->map, e);
    if (!err && v->unk == TOKEN_NONE)
        err = err_set_field(e, ERR_FORMAT, "tokenizer.ggml.unknown_token_id", "is missing");
    if (!err && !fill_sets(u))
        err = err_set(e, ERR_NOMEM, "no memory for a table of %u words", v->n);
    if (err) {
        ugm_destroy(u);
        u = NULL;
    }
    *out = u;
    return err;
}

void ugm_destroy(struct ugm *u)
{
    if (!u)
        return;
    prefix_deinit(&u->tokens);
    prefix_deinit(&u->user_defined);
    free(u);
}

/* ---- normalising ---- */

/* 0, which leads nowhere, for a unit that the table does not have. */
static uint32_t unit(const struct charsmap *m, size_t i)
{
    uint32_t bits = 0;
    if (i < m->n_units)
        memcpy(&bits, m->units + 4 * i, 4);
    return bits;
}

static uint32_t offset_of(uint32_t bits)
{
    return (bits >> 10) << ((bits & (1u << 9)) >> 6);
}

/* The replacement of the longest key that text[0..n) begins with; NULL if there is none. */
static const char *replacement(const struct charsmap *m, const char *text, size_t n, size_t *n_key)
{
    const char *found = NULL;
    uint32_t at = offset_of(unit(m, 0));
    if (n > MAX_KEY_BYTES)
        n = MAX_KEY_BYTES;
    for (size_t i = 0; i < n && text[i] != 0 && m->n_units > 0; i++) {
        uint32_t byte = (unsigned char)text[i];
        at ^= byte;
        uint32_t bits = unit(m, at);
        if ((bits & (1u << 31 | 0xff)) != byte)
            break;
        at ^= offset_of(bits);
        if (!(bits >> 8 & 1))
            continue;
        uint32_t place = unit(m, at) & 0x7fffffff;
        if (place >= m->n_replacements)
            break;
        found = m->replacements + place;
        *n_key = i + 1;
    }
    return found;
}

/* What text[0..n) begins with, normalised: a user-defined token as it is, a replaced key, a
 * character, or a byte that is none. n_read bytes of the text became *n_out. */
static const char *next_piece(
    const struct ugm *u, const char *text, size_t n, size_t *n_read, size_t *n_out)
{
    struct prefix_walk w = {0};
    *n_read = 0;
    while (w.depth < n && prefix_step(&u->user_defined, &w, (unsigned char)text[w.depth]))
        if (prefix_ends(&u->user_defined, &w))
            *n_read = w.depth;
    *n_out = *n_read;
    if (*n_read > 0)
        return text;
    const char *new = replacement(&u->map, text, n, n_read);
    if (new) {
        *n_out = strlen(new); /* the table ends with a NUL */
        return new;
    }
    int len = utf8_len(text, n);
    *n_read = len > 0 ? (size_t)len : 1;
    *n_out = len > 0 ? *n_read : 3;
    return len > 0 ? text : "\xef\xbf\xbd";
}

/* How white space is being written. */
struct spacing {
    bool prepend, merge; /* a space before the first word; one before each, for all there are */
    bool in_word;
};

static enum err add_piece(struct encoder *enc,
                          size_t *n_text,
                          struct spacing *s,
                          const char *piece,
                          size_t n,
                          struct err_info *e)
{
    enum err err = encoder_text_room(enc, *n_text + n * (1 + SPACE_LEN), e);
    for (size_t i = 0; i < n && !err; i++) {
        bool space = piece[i] == ' ';
        if (space ? !s->merge : !s->in_word && (s->prepend || s->merge)) {
            memcpy(enc->text + *n_text, SPACE, SPACE_LEN);
            *n_text += SPACE_LEN;
            s->prepend &= space;
        }
        s->in_word = !space;
        if (!space)
            enc->text[(*n_text)++] = piece[i];
    }
    return err;
}

static enum err normalise(const struct ugm *u,
                          struct encoder *enc,
                          const char *text,
                          size_t n,
                          size_t *n_text,
                          struct err_info *e)
{
    struct spacing s = {.prepend = u->v->add_space_prefix, .merge = u->v->remove_extra_spaces};
    enum err err = OK;
    *n_text = 0;
    for (size_t at = 0, n_read; at < n && !err; at += n_read) {
        size_t n_piece;
        const char *piece = next_piece(u, text + at, n - at, &n_read, &n_piece);
        err = add_piece(enc, n_text, &s, piece, n_piece, e);
    }
    return err;
}

/* ---- the best way ---- */

static void offer(struct cut *cuts, size_t end, double score, size_t n, token_id id)
{
    if (score > cuts[end].score)
        cuts[end] = (struct cut){score, n, id};
}

/* Offer all tokens that begin at `at`, where the character there has `len` bytes. */
static void step_from(const struct ugm *u, struct encoder *enc, size_t at, size_t n, size_t len)
{
    struct prefix_walk w = {0};
    double score = enc->cuts[at].score;
    bool whole_char = false;
    while (w.depth < n - at &&
           prefix_step(&u->tokens, &w, (unsigned char)enc->text[at + w.depth])) {
        if (!prefix_ends(&u->tokens, &w))
            continue;
        token_id id = u->tokens.entries[w.lo].id;
        const struct vocab_token *t = &u->v->tokens[id];
        double more = t->type == TOKEN_USER_DEFINED ? 0.0 : (double)t->score;
        whole_char |= w.depth == len;
        offer(enc->cuts, at + w.depth, score + more, w.depth, id);
    }
    if (!whole_char)
        offer(enc->cuts, at + len, score + u->unknown_score, len, u->v->unk);
}

/* The tokens of the best way to n, in order; unknown ones in a row are one. */
static void emit(const struct ugm *u, struct encoder *enc, size_t n)
{
    token_id *ids = enc->out->ids + enc->out->n;
    size_t n_ids = 0;
    for (size_t at = n; at > 0; at -= enc->cuts[at].n) {
        token_id id = enc->cuts[at].id;
        if (id != u->v->unk || n_ids == 0 || ids[n_ids - 1] != id)
            ids[n_ids++] = id;
    }
    for (size_t i = 0; i < n_ids / 2; i++) {
        token_id swap = ids[i];
        ids[i] = ids[n_ids - 1 - i];
        ids[n_ids - 1 - i] = swap;
    }
    enc->out->n += n_ids;
}

enum err ugm_encode(
    const struct ugm *u, struct encoder *enc, const char *text, size_t n, struct err_info *e)
{
    enum err err = normalise(u, enc, text, n, &n, e);
    if (!err && n > 0)
        err = encoder_cuts_room(enc, n + 1, e);
    if (!err)
        err = encoder_room(enc, n, e); /* no byte makes more than one token */
    if (err || n == 0)
        return err;
    for (size_t i = 0; i <= n; i++)
        enc->cuts[i] = (struct cut){i ? -DBL_MAX : 0.0, 0, u->v->unk};
    for (size_t at = 0, len; at < n; at += len) {
        int n_char = utf8_len(enc->text + at, n - at);
        len = n_char > 0 ? (size_t)n_char : 1;
        step_from(u, enc, at, n, len);
    }
    emit(u, enc, n);
    return OK;
}
