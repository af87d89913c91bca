#include "tokenizer/tokenizer.h"

#include "base/mem.h"
#include "tokenizer/bpe.h"
#include "tokenizer/plamo.h"
#include "tokenizer/rwkv.h"
#include "tokenizer/special.h"
#include "tokenizer/spm.h"
#include "tokenizer/ugm.h"
#include "tokenizer/wpm.h"

#include <stdlib.h>
#include <string.h>

struct tokenizer {
    struct vocab vocab;
    struct special_set special;
    struct bpe *bpe; /* one of these */
    struct spm spm;
    struct wpm *wpm;
    struct ugm *ugm;
    struct plamo *plamo;
    struct rwkv *rwkv;
};

static enum err create_family(struct tokenizer *t, const struct gguf *g, struct err_info *e)
{
    switch (t->vocab.family) {
    case VOCAB_BPE:
        return bpe_create(g, &t->vocab, &t->bpe, e);
    case VOCAB_WPM:
        return wpm_create(&t->vocab, &t->wpm, e);
    case VOCAB_UGM:
        return ugm_create(g, &t->vocab, &t->ugm, e);
    case VOCAB_PLAMO:
        return plamo_create(&t->vocab, &t->plamo, e);
    case VOCAB_RWKV:
        return rwkv_create(&t->vocab, &t->rwkv, e);
    case VOCAB_SPM:
        break;
    }
    spm_init(&t->spm, &t->vocab);
    return OK;
}

enum err tokenizer_create(const struct gguf *g, struct tokenizer **out, struct err_info *e)
{
    struct tokenizer *t = mem_zalloc(1, sizeof *t);
    enum err err = vocab_read(g, &t->vocab, e);
    if (!err)
        err = special_init(&t->special, &t->vocab, e);
    if (!err)
        err = create_family(t, g, e);
    if (err) {
        tokenizer_destroy(t);
        t = NULL;
    }
    *out = t;
    return err;
}

void tokenizer_destroy(struct tokenizer *t)
{
    if (!t)
        return;
    bpe_destroy(t->bpe);
    wpm_destroy(t->wpm);
    ugm_destroy(t->ugm);
    plamo_destroy(t->plamo);
    rwkv_destroy(t->rwkv);
    special_deinit(&t->special);
    vocab_deinit(&t->vocab);
    free(t);
}

/* ---- what the vocabulary says ---- */

uint32_t tokenizer_n_vocab(const struct tokenizer *t)
{
    return t->vocab.n;
}

token_id tokenizer_bos(const struct tokenizer *t)
{
    return t->vocab.bos;
}

token_id tokenizer_eos(const struct tokenizer *t)
{
    return t->vocab.eos;
}

token_id tokenizer_fim(const struct tokenizer *t, enum fim_part part)
{
    return t->vocab.fim[part];
}

const token_id *tokenizer_suppressed(const struct tokenizer *t, uint32_t *n)
{
    *n = t->vocab.n_suppressed;
    return t->vocab.suppressed;
}

bool tokenizer_adds_bos(const struct tokenizer *t)
{
    return t->vocab.add_bos && t->vocab.bos != TOKEN_NONE;
}

/* NULL for an id out of range. */
static const struct vocab_token *token_of(const struct tokenizer *t, token_id id)
{
    return id >= 0 && (uint32_t)id < t->vocab.n ? &t->vocab.tokens[id] : NULL;
}

bool tokenizer_is_eog(const struct tokenizer *t, token_id id)
{
    const struct vocab_token *token = token_of(t, id);
    return token && token->eog;
}

bool tokenizer_is_control(const struct tokenizer *t, token_id id)
{
    const struct vocab_token *token = token_of(t, id);
    return token && token->type == TOKEN_CONTROL;
}

bool tokenizer_is_text(const struct tokenizer *t, token_id id)
{
    const struct vocab_token *token = token_of(t, id);
    return token && token->type != TOKEN_CONTROL && token->type != TOKEN_UNKNOWN &&
           token->type != TOKEN_UNUSED;
}

token_id tokenizer_find(const struct tokenizer *t, const char *s, size_t n)
{
    return vocab_index_find(&t->vocab, &t->vocab.by_text, s, n);
}

/* ---- text to ids ---- */

/* Where the walk over the text stands among the caller's pieces. */
struct piece_cursor {
    const struct text_piece *pieces;
    size_t i;
    size_t end; /* of pieces[i] in the whole text */
};

/* How many bytes from `at` on lie in the same trusted piece; 0 in an untrusted one. */
static size_t trusted_from(struct piece_cursor *c, size_t at)
{
    while (at >= c->end)
        c->end += c->pieces[++c->i].n_bytes;
    return c->pieces[c->i].parse_special ? c->end - at : 0;
}

struct special_match {
    size_t begin, end;
    token_id id; /* TOKEN_NONE: none up to the end of the text, and begin is that end */
};

static struct special_match next_special(
    const struct special_set *s, const char *text, size_t n, size_t at, struct piece_cursor *c)
{
    for (; at < n; at++) {
        /* NOLINTNEXTLINE(clang-analyzer-core.*): where n > 0 there is a text */
        if (!special_begins(s, (unsigned char)text[at]))
            continue;
        size_t len = 0;
        token_id id = special_longest(s, text + at, n - at, trusted_from(c, at), &len);
        if (id != TOKEN_NONE)
            return (struct special_match){at, at + len, id};
    }
    return (struct special_match){n, n, TOKEN_NONE};
}

static enum err encode_run(
    const struct tokenizer *t, struct encoder *enc, const char *text, size_t n, struct err_info *e)
{
    if (n == 0)
        return OK;
    switch (t->vocab.family) {
    case VOCAB_BPE:
        return bpe_encode(t->bpe, enc, text, n, e);
    case VOCAB_WPM:
        return wpm_encode(t->wpm, enc, text, n, e);
    case VOCAB_UGM:
        return ugm_encode(t->ugm, enc, text, n, e);
    case VOCAB_PLAMO:
        return plamo_encode(t->plamo, enc, text, n, e);
    case VOCAB_RWKV:
        return rwkv_encode(t->rwkv, enc, text, n, e);
    case VOCAB_SPM:
        break;
    }
    /* every run begins the text or follows a special token: there SPM puts its space */
    return spm_encode(&t->spm, enc, text, n, t->vocab.add_space_prefix, e);
}

/* C's white space, whatever the locale. */
static bool is_space(char c)
{
    return c == ' ' || (c >= '\t' && c <= '\r');
}

/* The white space that a special token takes along. */
static void strip(
    const struct vocab *v, struct special_match *m, const char *text, size_t n, size_t run_begin)
{
    if (m->id == TOKEN_NONE)
        return;
    while (v->tokens[m->id].strips_left && m->begin > run_begin && is_space(text[m->begin - 1]))
        m->begin--;
    while (v->tokens[m->id].strips_right && m->end < n && is_space(text[m->end]))
        m->end++;
}

static enum err encode_text(const struct tokenizer *t,
                            struct encoder *enc,
                            const char *text,
                            size_t n,
                            const struct text_piece *pieces,
                            struct err_info *e)
{
    struct piece_cursor cursor = {pieces, 0, pieces[0].n_bytes};
    for (size_t at = 0; at < n;) {
        struct special_match m = next_special(&t->special, text, n, at, &cursor);
        strip(&t->vocab, &m, text, n, at);
        enum err err = encode_run(t, enc, text + at, m.begin - at, e);
        if (!err && m.id != TOKEN_NONE)
            err = encoder_room(enc, 1, e);
        if (err)
            return err;
        if (m.id != TOKEN_NONE)
            token_list_add(enc->out, m.id);
        at = m.end;
    }
    return OK;
}

/* The pieces side by side: one piece as it is, more in *joined. */
static enum err join(const struct text_piece *pieces,
                     size_t n_pieces,
                     char **joined,
                     const char **text,
                     size_t *n,
                     struct err_info *e)
{
    *n = 0;
    for (size_t i = 0; i < n_pieces; i++)
        if (!mem_add(*n, pieces[i].n_bytes, n) || *n > INT32_MAX)
            return err_set(e, ERR_UNSUPPORTED, "a text of more than 2 GiB");
    if (n_pieces <= 1) {
        *text = n_pieces ? pieces[0].text : "";
        return OK;
    }
    char *out = *joined = malloc(*n + 1);
    if (!out)
        return err_set(e, ERR_NOMEM, "no memory for a text of %zu bytes", *n);
    for (size_t i = 0; i < n_pieces; i++) {
        if (pieces[i].n_bytes > 0)
            memcpy(out, pieces[i].text, pieces[i].n_bytes);
        out += pieces[i].n_bytes;
    }
    *text = *joined;
    return OK;
}

enum err tokenizer_encode(const struct tokenizer *t,
                          const struct text_piece *pieces,
                          size_t n_pieces,
                          struct token_list *out,
                          struct err_info *e)
{
    char *joined = NULL;
    const char *text = NULL;
    size_t n, n_before = out->n;
    enum err err = join(pieces, n_pieces, &joined, &text, &n, e);
    if (!err && n > 0) {
        struct encoder enc = {.out = out};
        err = encode_text(t, &enc, text, n, pieces, e);
        encoder_deinit(&enc);
    }
    if (err)
        out->n = n_before;
    free(joined);
    return err;
}

/* ---- around a text ---- */

/* BERT's texts end with a SEP, whatever its EOS; those of others with an EOS, if they do. */
static bool ends_with_eos(const struct tokenizer *t)
{
    return t->vocab.family != VOCAB_WPM && t->vocab.add_eos && t->vocab.eos != TOKEN_NONE;
}

static bool adds_sep(const struct tokenizer *t)
{
    return t->vocab.add_sep && t->vocab.sep != TOKEN_NONE;
}

void tokenizer_add_begin(const struct tokenizer *t, struct token_list *out)
{
    if (tokenizer_adds_bos(t))
        token_list_add(out, t->vocab.bos);
}

void tokenizer_add_between(const struct tokenizer *t, struct token_list *out)
{
    if (ends_with_eos(t))
        token_list_add(out, t->vocab.eos);
    if (adds_sep(t))
        token_list_add(out, t->vocab.sep);
}

void tokenizer_add_end(const struct tokenizer *t, struct token_list *out)
{
    if (ends_with_eos(t))
        token_list_add(out, t->vocab.eos);
    else if (t->vocab.family == VOCAB_WPM && adds_sep(t))
        token_list_add(out, t->vocab.sep);
}

/* ---- ids to text ---- */

const char *tokenizer_bytes(const struct tokenizer *t, token_id id, bool special, size_t *n_bytes)
{
    const struct vocab_token *token = token_of(t, id);
    *n_bytes = 0;
    if (!token)
        return "";
    if (!special && (token->type == TOKEN_CONTROL || token->type == TOKEN_UNKNOWN))
        return "";
    *n_bytes = token->n_bytes;
    return token->bytes;
}

/* Is id one that encoding finds as special, and puts SPM's space behind? Where bytes have no
 * tokens, the unknown token mostly stands within a text. */
static bool is_special(const struct tokenizer *t, token_id id)
{
    const struct vocab_token *token = token_of(t, id);
    bool has_bytes = t->vocab.family == VOCAB_SPM && t->vocab.byte_ids[0xff] != TOKEN_NONE;
    return token && (token->type == TOKEN_CONTROL || token->type == TOKEN_USER_DEFINED ||
                     (token->type == TOKEN_UNKNOWN && has_bytes));
}

const char *tokenizer_bytes_at(
    const struct tokenizer *t, const token_id *ids, size_t i, bool special, size_t *n_bytes)
{
    const char *bytes = tokenizer_bytes(t, ids[i], special, n_bytes);
    const bool spaced = t->vocab.family == VOCAB_SPM || t->vocab.family == VOCAB_UGM;
    const bool run_begins = i == 0 || is_special(t, ids[i - 1]);
    const bool added = spaced && t->vocab.add_space_prefix && run_begins && *n_bytes > 0 &&
                       bytes[0] == ' ' && !is_special(t, ids[i]);
    *n_bytes -= added;
    return bytes + added;
}

void tokenizer_decode(
    const struct tokenizer *t, const token_id *ids, size_t n, bool special, struct buf *out)
{
    for (size_t i = 0; i < n; i++) {
        size_t n_bytes;
        const char *bytes = tokenizer_bytes_at(t, ids, i, special, &n_bytes);
        buf_add(out, bytes, n_bytes);
    }
}
