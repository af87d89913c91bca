#include "tokenizer/special.h"

#include <stdlib.h>
#include <string.h>

static int by_text(const void *a, const void *b)
{
    const struct special_entry *x = a, *y = b;
    int order = memcmp(x->text, y->text, x->len < y->len ? x->len : y->len);
    if (order != 0)
        return order;
    if (x->len != y->len)
        return x->len < y->len ? -1 : 1;
    return x->id < y->id ? -1 : 1;
}

static bool is_special(const struct vocab_token *t)
{
    return t->text_len > 0 &&
           (t->type == TOKEN_CONTROL || t->type == TOKEN_UNKNOWN || t->type == TOKEN_USER_DEFINED);
}

enum err special_init(struct special_set *s, const struct vocab *v, struct err_info *e)
{
    *s = (struct special_set){0};
    uint32_t n = 0;
    for (uint32_t i = 0; i < v->n; i++)
        n += is_special(&v->tokens[i]);
    s->entries = malloc((n ? n : 1) * sizeof *s->entries);
    if (!s->entries)
        return err_set(e, ERR_NOMEM, "no memory for %u special tokens", n);
    for (uint32_t i = 0; i < v->n; i++) {
        const struct vocab_token *t = &v->tokens[i];
        if (!is_special(t))
            continue;
        bool control = t->type != TOKEN_USER_DEFINED;
        s->n_user_defined += !control;
        s->entries[s->n++] = (struct special_entry){t->text, t->text_len, (token_id)i, control};
    }
    qsort(s->entries, s->n, sizeof *s->entries, by_text);
    for (uint32_t i = 0, b = 0; b <= 256; b++) {
        while (i < s->n && (unsigned char)s->entries[i].text[0] < b)
            i++;
        s->first[b] = i;
    }
    return OK;
}

void special_deinit(struct special_set *s)
{
    free(s->entries);
    *s = (struct special_set){0};
}

/* The first of entries lo..hi whose byte at `depth` is at least `byte`. All are longer than depth
 * and agree on the bytes before it. */
static uint32_t lower_bound(
    const struct special_set *s, uint32_t lo, uint32_t hi, size_t depth, unsigned byte)
{
    while (lo < hi) {
        uint32_t mid = lo + (hi - lo) / 2;
        if ((unsigned char)s->entries[mid].text[depth] < byte)
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo;
}

/* Narrow the range of candidates byte by byte: as in a trie, the work is the length matched. */
token_id special_longest(
    const struct special_set *s, const char *text, size_t n, size_t n_trusted, size_t *len)
{
    token_id best = TOKEN_NONE;
    if (n == 0)
        return best;
    unsigned byte = (unsigned char)text[0];
    uint32_t lo = s->first[byte], hi = s->first[byte + 1];
    for (size_t depth = 1; lo < hi; depth++) {
        for (; lo < hi && s->entries[lo].len == depth; lo++) {
            if (s->entries[lo].control && depth > n_trusted)
                continue;
            best = s->entries[lo].id;
            *len = depth;
        }
        if (depth == n)
            break;
        byte = (unsigned char)text[depth];
        uint32_t end = lower_bound(s, lo, hi, depth, byte + 1);
        lo = lower_bound(s, lo, end, depth, byte);
        hi = end;
    }
    return best;
}
