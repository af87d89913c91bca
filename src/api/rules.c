#include "api/rules.h"

#include "api/call.h"
#include "engine/rules.h"

#include <stdio.h>
#include <string.h>

#define MAX_WORDS 1024
#define MAX_WORD_BYTES 65536 /* of all together */

/* The mask, for the first field that rules something out. */
static enum err take_rules(struct api_params *p, uint32_t n_vocab, struct err_info *e)
{
    if (p->rules)
        return OK;
    enum err err = token_rules_create(n_vocab, &p->rules, e);
    p->request.rules = p->rules;
    return err;
}

/* More ids than there are tokens name some twice. */
static enum err read_ids(const json_t *list,
                         const char *name,
                         uint32_t n_tokens,
                         struct token_list *ids,
                         struct err_info *e)
{
    const size_t n = json_array_size(list);
    if (n > n_tokens)
        return err_invalid(
            e, name, "'%s' has %zu ids, but the vocabulary has %u", name, n, n_tokens);
    enum err err = token_list_room(ids, n, e);
    for (size_t i = 0; !err && i < n; i++) {
        const json_t *item = json_array_get(list, i);
        char at[64];
        int64_t id;
        snprintf(at, sizeof at, "%s[%zu]", name, i);
        if (!api_is_whole(item, &id))
            return api_wrong_type(at, "the id of a token", item, e);
        if (id < 0 || id >= n_tokens)
            return err_invalid(e,
                               at,
                               "token id %lld at index %zu of '%s' is outside the vocabulary of %u",
                               (long long)id,
                               i,
                               name,
                               n_tokens);
        token_list_add(ids, (token_id)id);
    }
    return err;
}

static enum err parse_allowed(const json_t *body,
                              const struct tokenizer *t,
                              uint32_t n_vocab,
                              struct api_params *p,
                              struct err_info *e)
{
    const char *name = "allowed_token_ids";
    struct token_list ids = {0};
    json_t *list;
    enum err err = api_get_array(body, name, "an array of token ids", &list, e);
    if (err || json_array_size(list) == 0)
        return err; /* none are named: all may come */
    if (!(err = read_ids(list, name, tokenizer_n_vocab(t), &ids, e)) &&
        !(err = take_rules(p, n_vocab, e)))
        token_rules_allow_only(p->rules, ids.ids, ids.n);
    token_list_deinit(&ids);
    return err;
}

/* A word as tokens, behind a space or not. Control tokens by their names, too: they are not put
 * into a prompt but kept out of an answer. */
static enum err encode_word(const struct tokenizer *t,
                            struct gguf_str word,
                            bool space,
                            struct token_list *ids,
                            struct err_info *e)
{
    const struct text_piece pieces[] = {{" ", space ? 1 : 0, false}, {word.data, word.len, true}};
    return tokenizer_encode(t, pieces, 2, ids, e);
}

/* As vLLM has it, the word without spaces before it, and with one where that makes its first token
 * another, and not more tokens. */
static enum err ban_word(const struct tokenizer *t,
                         struct gguf_str word,
                         struct token_rules *rules,
                         struct err_info *e)
{
    struct token_list bare = {0}, spaced = {0};
    struct gguf_str w = word;
    while (w.len > 0 && memchr(" \t\n\r\f\v", *w.data, 6))
        w = (struct gguf_str){w.data + 1, w.len - 1};
    const bool blank = w.len == 0; /* nothing but spaces: as it is */
    enum err err = encode_word(t, blank ? word : w, false, &bare, e);
    if (!err && bare.n > 0)
        err = token_rules_ban(rules, bare.ids, bare.n, e);
    if (!err && bare.n > 0 && !blank && !(err = encode_word(t, w, true, &spaced, e)) &&
        spaced.n == bare.n && spaced.ids[0] != bare.ids[0])
        err = token_rules_ban(rules, spaced.ids, spaced.n, e);
    token_list_deinit(&bare);
    token_list_deinit(&spaced);
    return err;
}

/* The i-th of list, whose bytes count towards *n_bytes. */
static enum err read_word(
    const json_t *list, size_t i, struct gguf_str *out, size_t *n_bytes, struct err_info *e)
{
    const json_t *item = json_array_get(list, i);
    char at[64];
    snprintf(at, sizeof at, "bad_words[%zu]", i);
    if (!json_is_string(item))
        return api_wrong_type(at, "a string", item, e);
    *out = (struct gguf_str){json_string_value(item), json_string_length(item)};
    if (out->len == 0)
        return err_invalid(e, at, "'%s' must not be empty", at);
    *n_bytes += out->len;
    if (*n_bytes <= MAX_WORD_BYTES)
        return OK;
    return err_invalid(e,
                       "bad_words",
                       "'bad_words' has too long strings; at most %d bytes in all are allowed",
                       MAX_WORD_BYTES);
}

static enum err parse_words(const json_t *body,
                            const struct tokenizer *t,
                            uint32_t n_vocab,
                            struct api_params *p,
                            struct err_info *e)
{
    const char *name = "bad_words";
    json_t *list;
    size_t n_bytes = 0;
    enum err err = api_get_array(body, name, "an array of strings", &list, e);
    const size_t n = json_array_size(list);
    if (err || n == 0)
        return err;
    if (n > MAX_WORDS)
        return err_invalid(
            e, name, "'%s' has %zu strings; at most %d are allowed", name, n, MAX_WORDS);
    err = take_rules(p, n_vocab, e);
    for (size_t i = 0; !err && i < n; i++) {
        struct gguf_str word = {0};
        if (!(err = read_word(list, i, &word, &n_bytes, e)) &&
            (err = ban_word(t, word, p->rules, e)))
            err = api_not_tokenized(err, name, e);
    }
    if (err || token_rules_any(p->rules))
        return err;
    return err_invalid(e, name, "'%s' leave no token that is allowed", name);
}

enum err api_rules_parse(const json_t *body,
                         const struct tokenizer *t,
                         uint32_t n_vocab,
                         struct api_params *p,
                         struct err_info *e)
{
    const enum err err = parse_allowed(body, t, n_vocab, p, e);
    return err ? err : parse_words(body, t, n_vocab, p, e);
}
