/* Which tokens a sequence holds: a list of distinct tokens, which the penalties walk, and an
 * open-addressed table of places in it.
 *
 *      table   | 3 | . | 2 | . | . | 1 | . | . |      place + 1; 0 is empty
 *      entries | 17: 3 in output | 4: 1 in output | 250: none, so in the prompt |
 *
 * With a window, a ring of the newest tokens says which one leaves; an entry counts those inside,
 * of the prompt too, and stays with a count of 0. */
#include "sample/internal.h"

#include "base/mem.h"

#include <assert.h>
#include <stdlib.h>

struct entry {
    int32_t id;
    uint32_t n_output; /* with a window: in it */
};

struct sample_history {
    bool counts_prompt; /* else they matter to the repetition penalty only */
    uint32_t shift;     /* 64 - log2 of the table's size */
    size_t n_entries;
    size_t max_entries;
    struct entry *entries; /* [n_entries] */
    uint32_t *table;       /* [1 << (64 - shift)], at most half full */
    size_t window;         /* 0: none */
    size_t n_added;
    int32_t *ring; /* [window] token i is at i % window; NULL: it never slides */
};

static bool repeats(const struct sample_params *p)
{
    return p->repetition_penalty != 1.0f;
}

bool sample_history_create(const struct sample_params *p,
                           size_t max_tokens,
                           uint32_t n_vocab,
                           struct sample_history **out)
{
    *out = NULL;
    if (!repeats(p) && p->presence_penalty == 0.0f && p->frequency_penalty == 0.0f)
        return true;
    struct sample_history *h = mem_zalloc(1, sizeof *h);
    h->counts_prompt = repeats(p) || p->penalty_window > 0;
    h->max_entries = max_tokens < n_vocab ? max_tokens : n_vocab;
    h->window = p->penalty_window;
    const bool slides = h->window > 0 && h->window < max_tokens;
    uint32_t n_bits = 1;
    while (((size_t)1 << n_bits) < 2 * h->max_entries)
        n_bits++;
    h->shift = 64 - n_bits;
    h->entries = calloc(h->max_entries, sizeof *h->entries);
    h->table = calloc((size_t)1 << n_bits, sizeof *h->table);
    h->ring = slides ? calloc(h->window, sizeof *h->ring) : NULL;
    if (!h->entries || !h->table || (slides && !h->ring)) {
        sample_history_destroy(h);
        return false;
    }
    *out = h;
    return true;
}

void sample_history_destroy(struct sample_history *h)
{
    if (!h)
        return;
    free(h->entries);
    free(h->table);
    free(h->ring);
    free(h);
}

/* The entry of `id`, made if it is new; NULL when there are max_entries others. */
static struct entry *entry_of(struct sample_history *h, int32_t id)
{
    size_t mask = ((size_t)1 << (64 - h->shift)) - 1;
    size_t at = (uint32_t)id * 0x9e3779b97f4a7c15u >> h->shift; /* spreads runs of ids */
    while (h->table[at] != 0) {
        struct entry *e = &h->entries[h->table[at] - 1];
        if (e->id == id)
            return e;
        at = (at + 1) & mask;
    }
    if (h->n_entries == h->max_entries)
        return NULL;
    struct entry *e = &h->entries[h->n_entries++];
    e->id = id;
    h->table[at] = (uint32_t)h->n_entries;
    return e;
}

/* The window takes one in; what it held for so long leaves. */
static void slide(struct sample_history *h, int32_t id)
{
    int32_t *place = &h->ring[h->n_added % h->window];
    if (h->n_added++ >= h->window)
        entry_of(h, *place)->n_output--; /* it is there: it came in once */
    *place = id;
}

void sample_history_add(struct sample_history *h, int32_t id, bool output)
{
    if (!h || (!output && !h->counts_prompt))
        return;
    struct entry *e = entry_of(h, id);
    assert(e);
    if (!e)
        return;
    if (h->ring)
        slide(h, id);
    if (output || h->window > 0)
        e->n_output++;
}

void sample_penalise(const struct sample_params *p,
                     const struct sample_history *h,
                     float *logits,
                     uint32_t n_vocab)
{
    if (!h)
        return;
    for (size_t i = 0; i < h->n_entries; i++) {
        const struct entry *e = &h->entries[i];
        if (e->id < 0 || (uint32_t)e->id >= n_vocab)
            continue;
        if (h->window > 0 && e->n_output == 0)
            continue;
        float l = logits[e->id];
        if (repeats(p))
            l = l > 0 ? l / p->repetition_penalty : l * p->repetition_penalty;
        if (e->n_output > 0)
            l -= p->presence_penalty + p->frequency_penalty * (float)e->n_output;
        logits[e->id] = l;
    }
}
