#include "tokenizer/wpm.h"

#include "base/log.h"
#include "base/mem.h"
#include "base/utf8.h"
#include "tokenizer/prefix.h"

#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>

#define WORD_BEGIN "\xe2\x96\x81" /* U+2581 */
#define WORD_BEGIN_LEN 3

struct wpm {
    const struct vocab *v;
    struct prefix_set tokens;
};

enum err wpm_create(const struct vocab *v, struct wpm **out, struct err_info *e)
{
    struct wpm *w = *out = mem_zalloc(1, sizeof *w);
    w->v = v;
    if (!prefix_init(&w->tokens, v->n)) {
        wpm_destroy(w);
        *out = NULL;
        return err_set(e, ERR_NOMEM, "no memory for a table of %u words", v->n);
    }
    for (uint32_t i = 0; i < v->n; i++)
        if (v->tokens[i].plain)
            prefix_add(&w->tokens, &v->tokens[i], (token_id)i);
    prefix_sort(&w->tokens);
    if (w->tokens.n_too_long > 0)
        log_warn("%u tokens of more than %d bytes are not looked for in texts",
                 w->tokens.n_too_long,
                 PREFIX_MAX_BYTES);
    return OK;
}

void wpm_destroy(struct wpm *w)
{
    if (!w)
        return;
    prefix_deinit(&w->tokens);
    free(w);
}

/* ---- words to tokens ---- */

static token_id longest(const struct prefix_set *s, const char *text, size_t n, size_t *len)
{
    struct prefix_walk walk = {0};
    token_id best = TOKEN_NONE;
    while (walk.depth < n && prefix_step(s, &walk, (unsigned char)text[walk.depth]))
        if (prefix_ends(s, &walk)) {
            best = s->entries[walk.lo].id;
            *len = walk.depth;
        }
    return best;
}

/* The word in enc->text[0..n), its U+2581 in front. */
static enum err encode_word(const struct wpm *w, struct encoder *enc, size_t n, struct err_info *e)
{
    enum err err = encoder_room(enc, n, e);
    if (err)
        return err;
    size_t n_before = enc->out->n, len = 0;
    for (size_t at = 0; at < n; at += len) {
        token_id id = longest(&w->tokens, enc->text + at, n - at, &len);
        if (id == TOKEN_NONE) {
            enc->out->n = n_before;
            if (w->v->unk == TOKEN_NONE)
                return err_set(e, ERR_UNSUPPORTED, "the vocabulary has no unknown token");
            token_list_add(enc->out, w->v->unk);
            break;
        }
        token_list_add(enc->out, id);
    }
    return OK;
}

/* ---- text to words ---- */

/* As BERT's code has it, with 0x2B920 where Unicode's block begins at 0x2B820: vocabularies were
 * made and are served so. */
static bool is_chinese(uint32_t c)
{
    static const struct {
        uint32_t first, last;
    } blocks[] = {
        {0x3400, 0x4dbf},
        {0x4e00, 0x9fff},
        {0xf900, 0xfaff},
        {0x20000, 0x2a6df},
        {0x2a700, 0x2b81f},
        {0x2b920, 0x2ceaf},
        {0x2f800, 0x2fa1f},
    };
    for (size_t i = 0; i < sizeof blocks / sizeof blocks[0]; i++)
        if (c >= blocks[i].first && c <= blocks[i].last)
            return true;
    return false;
}

/* The first code point of the canonical decomposition: the letter without its accents. */
static uint32_t base_char(uint32_t c)
{
    utf8proc_int32_t parts[32];
    if (c < 0x80)
        return c;
    utf8proc_ssize_t n =
        utf8proc_decompose_char((utf8proc_int32_t)c, parts, 32, UTF8PROC_DECOMPOSE, NULL);
    return n > 0 && n <= 32 ? (uint32_t)parts[0] : c;
}

enum action { CHAR_DROPPED, CHAR_SPACE, CHAR_ALONE, CHAR_IN_WORD };

/* What becomes of a character, which is normalised in place. */
static enum action normalise(const struct vocab *v, const struct charclass_table *t, uint32_t *c)
{
    if (v->strip_accents)
        *c = base_char(*c);
    uint32_t class = charclass_of(t, *c), marks = CC_PUNCT | CC_MARKS_ASCII;
    if (class & CC_SPACE)
        return CHAR_SPACE;
    if (*c == 0xfffd || class & CC_CONTROL || (v->strip_accents && class & CC_MARK))
        return CHAR_DROPPED;
    bool alone = class & marks || is_chinese(*c);
    if (v->lowercase)
        *c = (uint32_t)utf8proc_tolower((utf8proc_int32_t)*c);
    return alone ? CHAR_ALONE : CHAR_IN_WORD;
}

/* Send the word collected so far, n bytes, and begin the next one. */
static enum err end_word(const struct wpm *w, struct encoder *enc, size_t *n, struct err_info *e)
{
    enum err err = *n > WORD_BEGIN_LEN ? encode_word(w, enc, *n, e) : OK;
    *n = WORD_BEGIN_LEN;
    return err;
}

enum err wpm_encode(
    const struct wpm *w, struct encoder *enc, const char *text, size_t n, struct err_info *e)
{
    const struct charclass_table *t = charclass_table();
    size_t n_word = WORD_BEGIN_LEN;
    /* normalisation makes two bytes three, and no more of any character */
    enum err err = encoder_text_room(enc, WORD_BEGIN_LEN + n + n / 2 + 4, e);
    if (!err)
        memcpy(enc->text, WORD_BEGIN, WORD_BEGIN_LEN);
    for (size_t at = 0; at < n && !err;) {
        int len = utf8_len(text + at, n - at);
        if (len <= 0) { /* no character: dropped, as U+FFFD is */
            at++;
            continue;
        }
        size_t n_char;
        uint32_t c = utf8_decode(text + at, &n_char);
        at += n_char;
        enum action action = normalise(w->v, t, &c);
        if (action == CHAR_DROPPED)
            continue;
        if (action != CHAR_IN_WORD)
            err = end_word(w, enc, &n_word, e);
        if (err || action == CHAR_SPACE)
            continue;
        n_word += (size_t)utf8proc_encode_char((utf8proc_int32_t)c,
                                               (utf8proc_uint8_t *)enc->text + n_word);
        if (action == CHAR_ALONE)
            err = end_word(w, enc, &n_word, e);
    }
    return err ? err : end_word(w, enc, &n_word, e);
}
