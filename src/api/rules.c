#include "api/rules.h"

#include "engine/rules.h"

#include <stdio.h>

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

enum err api_rules_parse(const json_t *body,
                         const struct tokenizer *t,
                         uint32_t n_vocab,
                         struct api_params *p,
                         struct err_info *e)
{
    return parse_allowed(body, t, n_vocab, p, e);
}
