/* What the tests of grammar/ share: a small vocabulary, grammars from text, and answers written by
 * chance under their masks.
 *
 * Tokens 0..255 are the bytes; then texts of several, some of which end in the middle of a
 * character or reach over the borders of JSON's parts; then two control tokens, of which the last
 * ends a text. */
#ifndef TESTS_GRAMMAR_HARNESS_H
#define TESTS_GRAMMAR_HARNESS_H

#include "grammar/grammar.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <stdlib.h>
#include <string.h>

static const char *const texts[] = {
    "the",      " a",   "{\"",      "\":",    "\": ",    ", \"", "\",\"", "}}",       "]]",
    "}]",       "],[",  "10",       "123",    "00",      "0.",   "-1",    "e+",       "true",
    "false",    "null", "nul",      "    ",   "\n  ",    "\\u0", "\\\"",  "\xc3\xa9", "\xe2\x82",
    "\xac\xf0", "ab",   "aaaaaaaa", "foo",    "bar",     "{}",   "[]",    "\"\"",     "name",
    "-0",       "2024", "-02",      "<call>", "</call>", "<ca",  "}\n"};
enum {
    N_TEXTS = sizeof texts / sizeof texts[0],
    CONTROL = 256 + N_TEXTS, /* the first of four control tokens */
    LAST_CONTROL = CONTROL + 3,
    EOG,
    N_VOCAB
};

static inline const char *token_text(const void *ctx, int32_t id, size_t *n)
{
    static char bytes[256];
    (void)ctx;
    if (id < 256) {
        bytes[id] = (char)id;
        *n = 1;
        return bytes + id;
    }
    if (id >= CONTROL) {
        *n = 0;
        return "";
    }
    *n = strlen(texts[id - 256]);
    return texts[id - 256];
}

static inline bool token_is_eog(const void *ctx, int32_t id)
{
    (void)ctx;
    return id == EOG;
}

struct world {
    struct grammar_vocab *vocab;
    struct grammar_masks *masks;
    struct grammar_scratch *scratch;
};
static struct world w;

static inline int world_create(void **state)
{
    const struct grammar_vocab_source source = {N_VOCAB, token_text, token_is_eog, NULL};
    (void)state;
    return grammar_vocab_create(&source, &w.vocab, NULL) ||
           grammar_masks_create(w.vocab, 1 << 20, 4, &w.masks, NULL) ||
           !(w.scratch = grammar_scratch_create());
}

static inline int world_destroy(void **state)
{
    (void)state;
    grammar_masks_destroy(w.masks);
    grammar_scratch_destroy(w.scratch);
    grammar_vocab_destroy(w.vocab);
    return 0;
}

enum kind { GBNF, REGEX, SCHEMA };

/* The grammar, or NULL with *e. */
static inline struct grammar *make(enum kind kind, const char *text, struct err_info *e)
{
    struct grammar_builder *b = grammar_builder_create("field");
    struct grammar *g = NULL;
    grammar_node root;
    json_t *schema = NULL;
    if (kind == SCHEMA) {
        schema = json_loads(text, JSON_DECODE_ANY, NULL);
        assert_non_null(schema);
        root = grammar_json_schema(b, schema, "");
    } else {
        root = kind == GBNF ? grammar_gbnf(b, text, strlen(text))
                            : grammar_regex(b, text, strlen(text));
    }
    enum err err = grammar_compile(b, root, w.vocab, &g, e);
    assert_true(!err == (g != NULL));
    assert_true(!err || !e || (e->code == err && e->text[0]));
    grammar_builder_destroy(b);
    json_decref(schema);
    return g;
}

static inline struct grammar *must_make(enum kind kind, const char *text)
{
    struct err_info e = {0};
    struct grammar *g = make(kind, text, &e);
    if (!g)
        fail_msg("%s: %s", text, e.text);
    return g;
}

/* Is the text in the language, fed byte by byte? */
static inline bool accepts_n(struct grammar *g, const char *text, size_t n)
{
    struct grammar_state *s = grammar_state_create(g);
    bool ok = true;
    for (size_t i = 0; ok && i < n; i++)
        ok = grammar_accept(s, (uint8_t)text[i], w.scratch) != GRAMMAR_REFUSED;
    ok = ok && grammar_complete(s);
    grammar_state_destroy(s);
    return ok;
}

static inline bool accepts(struct grammar *g, const char *text)
{
    return accepts_n(g, text, strlen(text));
}

static inline uint64_t next_random(uint64_t *x)
{
    *x ^= *x << 13;
    *x ^= *x >> 7;
    *x ^= *x << 17;
    return *x * 0x2545f4914f6cdd1du >> 16;
}

/* Write an answer by chance: any token of the mask. After `patience` tokens the texts are steered
 * to an end: closing tokens first where they are possible. False if it did not end. */
static inline bool random_answer(
    struct grammar *g, uint64_t *seed, int patience, char *out, size_t cap, size_t *n)
{
    static const char closing[] = "\"}]0,:e1 ";
    struct grammar_state *s = grammar_state_create(g);
    bool done = false;
    *n = 0;
    for (int step = 0; !done && step < patience + 3000; step++) {
        struct grammar_mask mask = grammar_mask_acquire(w.masks, s);
        assert_false(mask.none);
        int32_t id = -1, allowed[N_VOCAB], n_allowed = 0;
        for (int32_t i = 0; i < N_VOCAB; i++)
            if (mask.bits[i / 64] >> i % 64 & 1)
                allowed[n_allowed++] = i;
        grammar_mask_release(w.masks, &mask);
        assert_true(n_allowed > 0);
        assert_int_equal(allowed[n_allowed - 1] == EOG, grammar_complete(s));
        id = allowed[next_random(seed) % (uint64_t)n_allowed];
        if (step > patience) {
            if (grammar_complete(s))
                id = EOG;
            for (size_t k = 0; id != EOG && k < sizeof closing - 1 && next_random(seed) % 8; k++)
                for (int32_t i = 0; i < n_allowed; i++)
                    if (allowed[i] == closing[k]) {
                        id = closing[k];
                        k = sizeof closing;
                        break;
                    }
        }
        if (id == EOG) {
            done = true;
            break;
        }
        enum grammar_step to = grammar_accept(s, id, w.scratch);
        assert_int_not_equal(to, GRAMMAR_REFUSED);
        size_t len;
        const char *text = token_text(NULL, id, &len);
        assert_true(*n + len < cap);
        memcpy(out + *n, text, len);
        *n += len;
        done = to == GRAMMAR_ENDED;
        assert_true(!done || grammar_complete(s));
    }
    grammar_state_destroy(s);
    out[*n] = '\0';
    return done;
}

/* The mask of a state, by trying every token. */
static inline void check_mask(const struct grammar_state *s)
{
    struct grammar_mask mask = grammar_mask_acquire(w.masks, s);
    struct grammar_state *copy = malloc(grammar_state_bytes());
    for (int32_t i = 0; i < N_VOCAB; i++) {
        grammar_state_copy(copy, s);
        bool want =
            i == EOG ? grammar_complete(s) : grammar_accept(copy, i, w.scratch) != GRAMMAR_REFUSED;
        if ((mask.bits[i / 64] >> i % 64 & 1) != want)
            fail_msg("token %d: the mask says %d", i, !want);
    }
    free(copy);
    grammar_mask_release(w.masks, &mask);
}

#endif
