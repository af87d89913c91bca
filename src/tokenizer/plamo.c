#include "tokenizer/plamo.h"

#include "base/log.h"
#include "base/mem.h"
#include "base/utf8.h"
#include "tokenizer/prefix.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Scores are compared as whole ten-thousandths, whose sums are exact in doubles. */
#define SCORE_UNITS 1e4
#define UNKNOWN_SCORE (-1e7) /* of a character as its bytes, */
#define LEAST_SCORE (-2e7)   /* and of what is no token any more */

static const char byte_order_mark[] = "\xef\xbb\xbf";

struct plamo {
    const struct vocab *v;
    struct prefix_set tokens;
};

static double score_of(const struct vocab_token *t)
{
    return round((double)t->score * SCORE_UNITS);
}

static bool fill_set(struct plamo *p)
{
    const struct vocab *v = p->v;
    if (!prefix_init(&p->tokens, v->n))
        return false;
    for (uint32_t i = 0; i < v->n; i++) {
        const struct vocab_token *t = &v->tokens[i];
        if (t->plain && t->n_bytes > 0 && score_of(t) > LEAST_SCORE)
            prefix_add(&p->tokens, t, (token_id)i);
    }
    prefix_sort(&p->tokens);
    if (p->tokens.n_too_long)
        log_warn("%u tokens of more than %d bytes are not looked for in texts",
                 p->tokens.n_too_long,
                 PREFIX_MAX_BYTES);
    return true;
}

enum err plamo_create(const struct vocab *v, struct plamo **out, struct err_info *e)
{
    struct plamo *p = mem_zalloc(1, sizeof *p);
    enum err err = OK;
    p->v = v;
    for (int b = 0; b < 256 && !err; b++) {
        if (v->byte_ids[b] == TOKEN_NONE)
            err = err_set_field(
                e, ERR_FORMAT, "tokenizer.ggml.tokens", "there is none for byte <0x%02X>", b);
    }
    if (!err && !fill_set(p))
        err = err_set(e, ERR_NOMEM, "no memory for a table of %u words", v->n);
    if (err) {
        plamo_destroy(p);
        p = NULL;
    }
    *out = p;
    return err;
}

void plamo_destroy(struct plamo *p)
{
    if (!p)
        return;
    prefix_deinit(&p->tokens);
    free(p);
}

/* The best way from `at` on, whose character has n_char bytes; what follows has its own. */
static void step_back(
    const struct plamo *p, struct cut *cuts, const char *text, size_t at, size_t n, size_t n_char)
{
    struct prefix_walk w = {0};
    struct cut best = {-INFINITY, n_char, TOKEN_NONE};
    while (w.depth < n - at && prefix_step(&p->tokens, &w, (unsigned char)text[at + w.depth])) {
        if (!prefix_ends(&p->tokens, &w))
            continue;
        const token_id id = p->tokens.entries[w.lo].id;
        const double score = cuts[at + w.depth].score + score_of(&p->v->tokens[id]);
        if (score > -INFINITY && score >= best.score) /* of equals the longest */
            best = (struct cut){score, w.depth, id};
    }
    const double unknown = cuts[at + n_char].score + UNKNOWN_SCORE;
    cuts[at] = unknown > best.score ? (struct cut){unknown, n_char, TOKEN_NONE} : best;
}

enum err plamo_encode(
    const struct plamo *p, struct encoder *enc, const char *text, size_t n, struct err_info *e)
{
    const size_t n_mark = sizeof byte_order_mark - 1;
    const size_t skipped = n >= n_mark && memcmp(text, byte_order_mark, n_mark) == 0 ? n_mark : 0;
    text += skipped;
    n -= skipped;
    enum err err = encoder_cuts_room(enc, n + 1, e);
    if (!err)
        err = encoder_room(enc, n, e); /* no byte makes more than one token */
    if (err)
        return err;
    struct cut *cuts = enc->cuts;
    for (size_t i = 0; i < n; i++) /* nothing begins within a character */
        cuts[i] = (struct cut){-INFINITY, 0, TOKEN_NONE};
    cuts[n] = (struct cut){0.0, 0, TOKEN_NONE};
    for (size_t at = 0; at < n; at += cuts[at].n) {
        const int n_char = utf8_len(text + at, n - at);
        cuts[at].n = n_char > 0 ? (size_t)n_char : 1;
    }
    for (size_t at = n; at-- > 0;) {
        if (cuts[at].n > 0)
            step_back(p, cuts, text, at, n, cuts[at].n);
    }
    for (size_t at = 0; at < n; at += cuts[at].n) {
        if (cuts[at].id != TOKEN_NONE)
            token_list_add(enc->out, cuts[at].id);
        for (size_t i = 0; i < cuts[at].n && cuts[at].id == TOKEN_NONE; i++)
            token_list_add(enc->out, p->v->byte_ids[(unsigned char)text[at + i]]);
    }
    return OK;
}
