/* Structured output: which tokens may come next, so that an answer conforms to a grammar.
 *
 *      builder      rules over bytes, put together from literals, regular expressions,
 *         |         GBNF and JSON schemas
 *      grammar      the same, checked and compiled: a pushdown automaton
 *         |
 *      state        where one answer is in it; a token moves it on
 *         |
 *      mask         the tokens that may come next: a bit a token, cached by state
 *
 * A language is a set of byte strings. Everything is sound: text that a state has accepted up to
 * its end is in the language. No state is a dead end: rules that derive nothing are taken out when
 * a grammar is compiled, and nesting is entered only as deep as it can be left again
 * (GRAMMAR_MAX_DEPTH). What a grammar may cost is bounded before it runs: nodes, states, steps.
 *
 * Building never fails midway: the first error is kept, every later call does nothing, and
 * grammar_compile reports it. So grammars are written without looking at each result:
 *
 *      struct grammar_builder *b = grammar_builder_create("tools");
 *      grammar_node tail = SEQ(b,
 *          grammar_json_schema(b, schema, "/tools/0/function/parameters"),
 *          grammar_literal(b, "</tool_call>", 12));
 *      struct grammar_text trigger = {"<tool_call>", 11};
 *      grammar_node root = grammar_scan(b, 1, &trigger, &tail, true);
 *      enum err err = grammar_compile(b, root, vocab, &g, e);
 *      grammar_builder_destroy(b);
 *
 * Ideas: XGrammar (Dong et al. 2024: masks cached by the automaton's state), llguidance and
 * Outlines (a walk over the vocabulary's trie); thread-set simulation (Thompson 1968). */
#ifndef WEIR_GRAMMAR_GRAMMAR_H
#define WEIR_GRAMMAR_GRAMMAR_H

#include "base/err.h"

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define GRAMMAR_MAX_DEPTH 256  /* rules entered and not yet left, calls at an end not counted */
#define GRAMMAR_MAX_PARSES 512 /* followed side by side; those found last are given up */
#define GRAMMAR_NO_LIMIT UINT32_MAX

struct grammar_text {
    const char *data;
    size_t len;
};

/* ---- The vocabulary: a trie over the bytes of its tokens. Immutable; any thread. ---- */

struct grammar_vocab;
/* What the tokens are. bytes of a token that stands for no text (control, unknown, unused): n = 0.
 * Views must live as long as the call. */
struct grammar_vocab_source {
    uint32_t n; /* tokens */
    const char *(*bytes)(const void *ctx, int32_t id, size_t *n_bytes);
    bool (*is_eog)(const void *ctx, int32_t id);
    const void *ctx;
};
/* Errors: ERR_NOMEM. */
enum err grammar_vocab_create(const struct grammar_vocab_source *source,
                              struct grammar_vocab **out,
                              struct err_info *e) WEIR_MUST_USE;
void grammar_vocab_destroy(struct grammar_vocab *v);

/* ---- Building. One thread. Texts are copied. ---- */

struct grammar_builder;
typedef uint32_t grammar_node; /* of one builder; may be used in several places */

/* field: the request field that errors name; copied. */
struct grammar_builder *grammar_builder_create(const char *field);
void grammar_builder_destroy(struct grammar_builder *b);
/* On: before anything is built. A try does a 32nd at most of the work that a grammar may cost. If
 * that was not enough it was cut short, and neither what was compiled nor an error means anything.
 */
void grammar_builder_set_try(struct grammar_builder *b, bool on);
bool grammar_builder_cut_short(const struct grammar_builder *b);
/* OK, or the first error so far; *e (may be NULL) says what. */
enum err grammar_builder_error(const struct grammar_builder *b, struct err_info *e);
/* An error of the caller's own: ERR_INVALID, kept if it is the first. The node is `never`. */
grammar_node grammar_fail(struct grammar_builder *b, const char *text);
/* Likewise ERR_NOMEM: there was none for n texts. */
grammar_node grammar_starved(struct grammar_builder *b, uint32_t n);

grammar_node grammar_empty(struct grammar_builder *b); /* the empty text */
grammar_node grammar_never(struct grammar_builder *b); /* no text at all */
grammar_node grammar_literal(struct grammar_builder *b, const char *s, size_t n); /* these bytes */
grammar_node grammar_byte_range(struct grammar_builder *b, uint8_t lo, uint8_t hi);
/* One character of ranges[n] of code points, as UTF-8; surrogates are left out. */
struct grammar_range {
    uint32_t lo, hi;
};
grammar_node grammar_chars(struct grammar_builder *b,
                           uint32_t n,
                           const struct grammar_range *ranges);
/* One token by its id, also a control token; its bytes do not matter. */
grammar_node grammar_token(struct grammar_builder *b, int32_t id);
grammar_node grammar_seq(struct grammar_builder *b, uint32_t n, const grammar_node *nodes);
grammar_node grammar_alt(struct grammar_builder *b, uint32_t n, const grammar_node *nodes);
/* The same of nodes that are given one by one. */
#define GRAMMAR_NODES(...)                                                                         \
    sizeof((grammar_node[]){__VA_ARGS__}) / sizeof(grammar_node), (grammar_node[])                 \
    {                                                                                              \
        __VA_ARGS__                                                                                \
    }
#define SEQ(b, ...) grammar_seq(b, GRAMMAR_NODES(__VA_ARGS__))
#define ALT(b, ...) grammar_alt(b, GRAMMAR_NODES(__VA_ARGS__))
/* min to max times; max may be GRAMMAR_NO_LIMIT. */
grammar_node grammar_repeat(struct grammar_builder *b, grammar_node x, uint32_t min, uint32_t max);
grammar_node grammar_optional(struct grammar_builder *b, grammar_node x);
/* The same with `separator` between each two. */
grammar_node grammar_separated(
    struct grammar_builder *b, grammar_node x, grammar_node separator, uint32_t min, uint32_t max);
/* One of texts[n]. */
grammar_node grammar_choice(struct grammar_builder *b,
                            uint32_t n,
                            const struct grammar_text *texts);
/* A rule to be defined later, so that rules can be recursive. `name` is for errors; copied. */
grammar_node grammar_rule(struct grammar_builder *b, const char *name);
void grammar_define(struct grammar_builder *b, grammar_node rule, grammar_node body);

/* Free text: any bytes up to the first occurrence of one of triggers[n], then that trigger and what
 * follows it, tails[i]. may_end: the text may also end without a trigger. So a lazy grammar is one
 * scan, and a tail may refer to the rule that the scan is in. A trigger that is part of another
 * wins where it ends first. */
grammar_node grammar_scan(struct grammar_builder *b,
                          uint32_t n,
                          const struct grammar_text *triggers,
                          const grammar_node *tails,
                          bool may_end);

/* A regular expression that the whole text matches (docs/API.md has the language). Errors:
 * ERR_INVALID with the offset in bytes. */
grammar_node grammar_regex(struct grammar_builder *b, const char *s, size_t n);
/* llama.cpp's GBNF; the node of its rule "root". Errors: ERR_INVALID with line and column. */
grammar_node grammar_gbnf(struct grammar_builder *b, const char *s, size_t n);
/* A JSON value that the schema accepts. `where` is the JSON pointer of the schema, put before those
 * in errors ("" at the root); references "#/..." are looked up in `schema` itself.
 * Errors: ERR_INVALID with the pointer of a keyword that is malformed or not supported. */
grammar_node grammar_json_schema(struct grammar_builder *b,
                                 const json_t *schema,
                                 const char *where);
/* The same from its text. */
grammar_node grammar_json_schema_text(struct grammar_builder *b, const char *s, size_t n);
/* The schema with all that its root refers to by $ref and allOf in one new object, or false where
 * no value conforms; NULL with an error. Options (anyOf, oneOf) stay. */
json_t *grammar_json_merge(struct grammar_builder *b, const json_t *schema, const char *where);
/* The schema as options none of which has options at its root, new: each merged as above, those
 * that nothing conforms to left out. One at least satisfies each value that the schema is for; NULL
 * with an error. */
json_t *grammar_json_options(struct grammar_builder *b, const json_t *schema, const char *where);
/* Of a schema with enum or const at its root the values that it lists and all else it says keeps,
 * new; NULL with an error. */
json_t *grammar_json_listed(struct grammar_builder *b, const json_t *schema, const char *where);
/* A value as a grammar has it that lists it: JSON without blanks, numbers in the fewest digits that
 * read back as they are. Free it. */
char *grammar_json_dump(const json_t *v);
/* A string that the merged schema accepts, as it is, without quotes, in which `without` does not
 * occur. False: the schema says nothing of strings but their type, or too much for an automaton. */
bool grammar_plain_string(struct grammar_builder *b,
                          const json_t *schema,
                          const char *where,
                          const char *without,
                          grammar_node *out);
grammar_node grammar_json_object(struct grammar_builder *b); /* any object */
grammar_node grammar_json_value(struct grammar_builder *b);  /* any value */
/* White space that may stand between two parts of JSON; bounded. */
grammar_node grammar_json_space(struct grammar_builder *b);

/* ---- Compiled. Counted references; any thread. ---- */

struct grammar;
/* Reports the builder's first error, or: ERR_INVALID (nothing conforms, left recursion, an
 * undefined rule, over a bound), ERR_NOMEM. *v must outlive the grammar. *out has one reference. */
enum err grammar_compile(struct grammar_builder *b,
                         grammar_node root,
                         const struct grammar_vocab *v,
                         struct grammar **out,
                         struct err_info *e) WEIR_MUST_USE;
struct grammar *grammar_acquire(struct grammar *g);
void grammar_release(struct grammar *g);       /* NULL is fine */
size_t grammar_bytes(const struct grammar *g); /* of memory */

/* Compiled grammars by a key of any bytes, for instance their source: the last used, within bounds.
 * Any thread. find returns a reference, or NULL. */
struct grammar_cache;
struct grammar_cache *grammar_cache_create(void);
void grammar_cache_destroy(struct grammar_cache *c);
struct grammar *grammar_cache_find(struct grammar_cache *c, const void *key, size_t n);
void grammar_cache_add(struct grammar_cache *c, const void *key, size_t n, struct grammar *g);

/* ---- One answer. Plain memory: a state may be copied with grammar_state_copy. ---- */

struct grammar_state;
struct grammar_state *grammar_state_create(struct grammar *g); /* at the beginning; keeps *g */
void grammar_state_destroy(struct grammar_state *s);
/* The copy holds no reference: its owner keeps the grammar. */
void grammar_state_copy(struct grammar_state *to, const struct grammar_state *from);
size_t grammar_state_bytes(void);
struct grammar *grammar_of(const struct grammar_state *s); /* a view */

enum grammar_step {
    GRAMMAR_GOES_ON, /* more may come, and it may be that it must */
    GRAMMAR_ENDED,   /* complete, and nothing may follow */
    GRAMMAR_REFUSED, /* the token was not allowed; the state is unchanged */
};
/* Move on by a token. Allocates: never. Thread: one at a time for a scratch. */
struct grammar_scratch;
struct grammar_scratch *grammar_scratch_create(void);
void grammar_scratch_destroy(struct grammar_scratch *x);
enum grammar_step grammar_accept(struct grammar_state *s, int32_t token, struct grammar_scratch *x);
bool grammar_complete(const struct grammar_state *s); /* the text so far is in the language */

/* ---- Masks. Any thread; calls for one grammar wait for one another. Allocates: never. ---- */

/* A pool of masks for one vocabulary. n_pinned: masks that may be held at once. */
struct grammar_masks;
enum err grammar_masks_create(const struct grammar_vocab *v,
                              size_t max_bytes,
                              uint32_t n_pinned,
                              struct grammar_masks **out,
                              struct err_info *e) WEIR_MUST_USE;
void grammar_masks_destroy(struct grammar_masks *m);

/* The tokens that end a text. bits as in a mask. */
const uint64_t *grammar_vocab_eog(const struct grammar_vocab *v);

/* The mask of a state, computed unless it is cached, and kept until it is released. bits[(n + 63) /
 * 64], token t in bit t % 64 of word t / 64. End-of-generation tokens are in it exactly where the
 * text is complete; `none`: there is no token at all, not even those. */
struct grammar_mask {
    const uint64_t *bits;
    const uint64_t *but; /* for the caller: bits that do not count, or NULL */
    bool none;
    uint32_t slot;
};
struct grammar_mask grammar_mask_acquire(struct grammar_masks *m, const struct grammar_state *s);
/* The same when `left` tokens may come yet, this one counted (GRAMMAR_NO_LIMIT: any number): tokens
 * behind which the text can be brought to an end, byte by byte, in those that are left then; where
 * there are none, tokens behind which the shortest way to an end is shortest. So a text is cut only
 * where it had to be. Ways are in bytes; a vocabulary is taken to have all single bytes. */
struct grammar_mask grammar_mask_acquire_within(struct grammar_masks *m,
                                                const struct grammar_state *s,
                                                uint32_t left);
void grammar_mask_release(struct grammar_masks *m, struct grammar_mask *mask);
/* Is the mask there? False also when another thread is at work on the grammar, or `left` may make
 * it another. Never waits. */
bool grammar_mask_ready(struct grammar_masks *m, const struct grammar_state *s, uint32_t left);

struct grammar_mask_stats {
    uint64_t hits, misses, evictions;
    uint64_t compute_us; /* of all misses */
};
struct grammar_mask_stats grammar_masks_stats(struct grammar_masks *m);

#endif
