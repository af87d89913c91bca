#include "tokenizer/prefix.h"

#include <stdlib.h>
#include <string.h>

bool prefix_init(struct prefix_set *s, uint32_t n)
{
    *s = (struct prefix_set){0};
    s->entries = malloc((n ? n : 1) * sizeof *s->entries);
    return s->entries != NULL;
}

void prefix_add(struct prefix_set *s, const struct vocab_token *t, token_id id)
{
    if (t->text_len > PREFIX_MAX_BYTES)
        s->n_too_long++;
    else if (t->text_len > 0)
        s->entries[s->n++] = (struct prefix_entry){t->text, t->text_len, id};
}

static int by_text(const void *a, const void *b)
{
    const struct prefix_entry *x = a, *y = b;
    int order = memcmp(x->text, y->text, x->len < y->len ? x->len : y->len);
    if (order != 0)
        return order;
    if (x->len != y->len)
        return x->len < y->len ? -1 : 1;
    return x->id < y->id ? -1 : 1;
}

void prefix_sort(struct prefix_set *s)
{
    uint32_t n = 0;
    qsort(s->entries, s->n, sizeof *s->entries, by_text);
    for (uint32_t i = 0; i < s->n; i++) {
        bool same = n > 0 && s->entries[n - 1].len == s->entries[i].len &&
                    memcmp(s->entries[n - 1].text, s->entries[i].text, s->entries[i].len) == 0;
        n += !same;
        s->entries[n - 1] = s->entries[i];
    }
    s->n = n;
    for (uint32_t i = 0, b = 0; b <= 256; b++) {
        while (i < s->n && (unsigned char)s->entries[i].text[0] < b)
            i++;
        s->first[b] = i;
    }
}

void prefix_deinit(struct prefix_set *s)
{
    free(s->entries);
    *s = (struct prefix_set){0};
}

/* The first of entries lo..hi whose byte at `depth` is at least `byte`. All are longer than depth
 * and agree on the bytes before it. */
static uint32_t lower_bound(
    const struct prefix_set *s, uint32_t lo, uint32_t hi, size_t depth, unsigned byte)
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

bool prefix_step(const struct prefix_set *s, struct prefix_walk *w, unsigned char byte)
{
    if (w->depth == 0) {
        w->lo = s->first[byte];
        w->hi = s->first[byte + 1];
    } else {
        w->lo += prefix_ends(s, w);
        w->hi = lower_bound(s, w->lo, w->hi, w->depth, byte + 1u);
        w->lo = lower_bound(s, w->lo, w->hi, w->depth, byte);
    }
    w->depth++;
    return w->lo < w->hi;
}
