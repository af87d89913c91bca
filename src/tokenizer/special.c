#include "tokenizer/special.h"

#include "base/log.h"

static bool is_special(const struct vocab_token *t)
{
    return t->text_len > 0 &&
           (t->type == TOKEN_CONTROL || t->type == TOKEN_UNKNOWN || t->type == TOKEN_USER_DEFINED);
}

enum err special_init(struct special_set *s, const struct vocab *v, struct err_info *e)
{
    s->v = v;
    uint32_t n = 0;
    for (uint32_t i = 0; i < v->n; i++)
        n += is_special(&v->tokens[i]);
    if (!prefix_init(&s->set, n))
        return err_set(e, ERR_NOMEM, "no memory for %u special tokens", n);
    for (uint32_t i = 0; i < v->n; i++)
        if (is_special(&v->tokens[i]))
            prefix_add(&s->set, &v->tokens[i], (token_id)i);
    prefix_sort(&s->set);
    if (s->set.n_too_long > 0)
        log_warn("%u special tokens of more than %d bytes are not looked for in texts",
                 s->set.n_too_long,
                 PREFIX_MAX_BYTES);
    return OK;
}

void special_deinit(struct special_set *s)
{
    prefix_deinit(&s->set);
}

token_id special_longest(
    const struct special_set *s, const char *text, size_t n, size_t n_trusted, size_t *len)
{
    token_id best = TOKEN_NONE;
    struct prefix_walk w = {0};
    while (w.depth < n && prefix_step(&s->set, &w, (unsigned char)text[w.depth])) {
        if (!prefix_ends(&s->set, &w))
            continue;
        token_id id = s->set.entries[w.lo].id;
        if (s->v->tokens[id].type != TOKEN_USER_DEFINED && w.depth > n_trusted)
            continue; /* control, or unknown: only in trusted text */
        best = id;
        *len = w.depth;
    }
    return best;
}
