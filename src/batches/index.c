/* An index in the order of arrival, of files or of batches. */
#include "batches/internal.h"

#include "base/mem.h"

#include <stdlib.h>
#include <string.h>

#define DEFAULT_PAGE 20
#define MAX_PAGE 100 /* where an index has no other */

struct share {
    char *owner;
    uint32_t n;
};

/* Keys are few, so their shares are found by looking at all. */
static struct share *find_share(const struct index *x, const char *owner)
{
    for (uint32_t i = 0; i < x->n_shares; i++)
        if (strcmp(x->shares[i].owner, owner) == 0)
            return &x->shares[i];
    return NULL;
}

static struct share *share_of(struct index *x, const char *owner)
{
    struct share *s = find_share(x, owner);
    if (s)
        return s;
    x->shares = mem_realloc(x->shares, (x->n_shares + 1) * sizeof *x->shares);
    s = &x->shares[x->n_shares++];
    *s = (struct share){.owner = mem_strdup(owner)};
    return s;
}

void index_deinit(struct index *x)
{
    for (uint32_t i = 0; i < x->n_shares; i++)
        free(x->shares[i].owner);
    free(x->shares);
    free(x->entries);
}

void index_add(struct index *x, struct entry *e)
{
    if (x->n == x->cap) {
        x->cap = x->cap ? 2 * x->cap : 64;
        x->entries = mem_realloc(x->entries, x->cap * sizeof(struct entry *));
    }
    uint32_t i = x->n++;
    for (; i > 0 && x->entries[i - 1]->serial > e->serial; i--)
        x->entries[i] = x->entries[i - 1];
    x->entries[i] = e;
    share_of(x, e->owner)->n++;
}

struct entry *index_find(const struct index *x, const char *id, const char *owner)
{
    for (uint32_t i = 0; i < x->n; i++) {
        struct entry *e = x->entries[i];
        if (strcmp(e->id, id) == 0 && (!owner || strcmp(e->owner, owner) == 0))
            return e;
    }
    return NULL;
}

void index_remove(struct index *x, const struct entry *e)
{
    uint32_t i = 0;
    while (x->entries[i] != e)
        i++;
    x->n--;
    share_of(x, e->owner)->n--;
    memmove(&x->entries[i], &x->entries[i + 1], (x->n - i) * sizeof(struct entry *));
}

uint32_t index_count(const struct index *x, const char *owner)
{
    const struct share *s = find_share(x, owner);
    return s ? s->n : 0;
}

/* What GET of a list asks for. */
struct page {
    uint32_t limit;
    bool ascending;
    char after[BATCH_ID_BYTES];
};

static enum err parse_page(const struct api_input *in,
                           uint32_t most,
                           struct page *out,
                           struct err_info *e)
{
    *out = (struct page){.limit = most ? most : DEFAULT_PAGE};
    (void)api_query_get(in, "after", out->after, sizeof out->after);
    return api_query_page(in, most ? most : MAX_PAGE, &out->ascending, &out->limit, e);
}

/* Takes data. */
static void reply_list(struct api_reply *out, json_t *data, bool more)
{
    size_t n = json_array_size(data);
    json_t *first = n ? json_object_get(json_array_get(data, 0), "id") : NULL;
    json_t *last = n ? json_object_get(json_array_get(data, n - 1), "id") : NULL;
    batches_reply_json(out,
                       json_pack("{s:s, s:o, s:O?, s:O?, s:b}",
                                 "object",
                                 "list",
                                 "data",
                                 data,
                                 "first_id",
                                 first,
                                 "last_id",
                                 last,
                                 "has_more",
                                 (int)more));
}

enum err index_list(const struct index *x,
                    const struct api_input *in,
                    const char *what,
                    const struct list_item *item,
                    struct api_reply *out,
                    struct err_info *e)
{
    struct page page;
    enum err err = parse_page(in, item->max_page, &page, e);
    bool more = false, past = page.after[0] == '\0';
    if (err)
        return err;
    if (!past && !index_find(x, page.after, in->owner))
        return err_invalid(e, "after", "there is no %s '%s'", what, page.after);
    json_t *data = json_array();
    for (uint32_t k = 0; k < x->n && !more; k++) {
        const struct entry *at = x->entries[page.ascending ? k : x->n - 1 - k];
        if (strcmp(at->owner, in->owner) != 0)
            continue;
        if (!past) {
            past = strcmp(at->id, page.after) == 0;
            continue;
        }
        if (item->wanted && !item->wanted(item->ctx, at))
            continue;
        more = json_array_size(data) == page.limit;
        if (!more)
            json_array_append_new(data, item->describe(item->ctx, at));
    }
    reply_list(out, data, more);
    return OK;
}
