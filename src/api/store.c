#include "api/store.h"

#include "base/mem.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

struct entry {
    struct entry *next; /* newer */
    size_t n[N_KEPT];   /* bytes of each text */
    uint32_t owner;
    char id[48];
    char text[]; /* one behind the other */
};

/* What one owner has. Stays when it comes to nothing: owners are few (keys.h). */
struct share {
    uint32_t owner;
    size_t n, bytes;
};

struct api_store {
    pthread_mutex_t lock;
    struct share *shares; /* [n_shares] */
    size_t n_shares;
    struct entry *oldest, **newest_end; /* the link behind the newest */
    size_t n, bytes;                    /* bytes: of the texts */
    size_t max_entries, max_bytes;
};

struct api_store *api_store_create(size_t max_entries, size_t max_bytes)
{
    struct api_store *s = mem_zalloc(1, sizeof *s);
    pthread_mutex_init(&s->lock, NULL);
    s->newest_end = &s->oldest;
    s->max_entries = max_entries;
    s->max_bytes = max_bytes;
    return s;
}

static size_t bytes_of(const struct entry *e)
{
    size_t n = 0;
    for (size_t i = 0; i < N_KEPT; i++)
        n += e->n[i];
    return n;
}

static struct share *share_of(struct api_store *s, uint32_t owner)
{
    for (size_t i = 0; i < s->n_shares; i++)
        if (s->shares[i].owner == owner)
            return &s->shares[i];
    s->shares = mem_realloc(s->shares, (s->n_shares + 1) * sizeof *s->shares);
    s->shares[s->n_shares] = (struct share){.owner = owner};
    return &s->shares[s->n_shares++];
}

/* Unlink *link; the caller frees. Under the lock. */
static struct entry *take(struct api_store *s, struct entry **link)
{
    struct entry *e = *link;
    /* NOLINTNEXTLINE(clang-analyzer-core.*): while there are bytes there is an entry */
    *link = e->next;
    if (!e->next)
        s->newest_end = link;
    s->n--;
    s->bytes -= bytes_of(e);
    struct share *share = share_of(s, e->owner);
    share->n--;
    share->bytes -= bytes_of(e);
    return e;
}

/* The oldest of the owner that has most: entries, or bytes. There is one. */
static void let_go(struct api_store *s, bool by_bytes)
{
    const struct share *most = &s->shares[0];
    for (size_t i = 1; i < s->n_shares; i++) {
        const struct share *at = &s->shares[i];
        if (by_bytes ? at->bytes > most->bytes : at->n > most->n)
            most = at;
    }
    struct entry **link = &s->oldest;
    while ((*link)->owner != most->owner)
        link = &(*link)->next;
    free(take(s, link));
}

void api_store_destroy(struct api_store *s)
{
    if (!s)
        return;
    while (s->oldest)
        free(take(s, &s->oldest));
    pthread_mutex_destroy(&s->lock);
    free(s->shares);
    free(s);
}

bool api_store_put(struct api_store *s,
                   uint32_t owner,
                   const char *id,
                   const struct buf *const texts[N_KEPT])
{
    size_t n_id = strlen(id), n = 0;
    for (size_t i = 0; i < N_KEPT; i++) {
        if (texts[i]->len > s->max_bytes - n)
            return false;
        n += texts[i]->len;
    }
    if (n_id >= sizeof s->oldest->id || s->max_entries == 0)
        return false;
    struct entry *e = malloc(sizeof *e + n);
    if (!e)
        return false;
    e->next = NULL;
    e->owner = owner;
    memcpy(e->id, id, n_id + 1);
    char *at = e->text;
    for (size_t i = 0; i < N_KEPT; at += e->n[i++]) {
        e->n[i] = texts[i]->len;
        if (texts[i]->len)
            memcpy(at, texts[i]->data, texts[i]->len);
    }
    pthread_mutex_lock(&s->lock);
    while (s->n >= s->max_entries)
        let_go(s, false);
    while (s->bytes + bytes_of(e) > s->max_bytes)
        let_go(s, true);
    *s->newest_end = e;
    s->newest_end = &e->next;
    s->n++;
    s->bytes += bytes_of(e);
    struct share *share = share_of(s, owner);
    share->n++;
    share->bytes += bytes_of(e);
    pthread_mutex_unlock(&s->lock);
    return true;
}

/* The link that leads to `id`, or NULL. A thousand names are compared faster than a model runs. */
static struct entry **find(struct api_store *s, uint32_t owner, const char *id)
{
    for (struct entry **link = &s->oldest; *link; link = &(*link)->next) {
        if ((*link)->owner == owner && strcmp((*link)->id, id) == 0)
            return link;
    }
    return NULL;
}

bool api_store_get(struct api_store *s,
                   uint32_t owner,
                   const char *id,
                   struct buf *const texts[N_KEPT])
{
    pthread_mutex_lock(&s->lock);
    struct entry **link = find(s, owner, id);
    const char *at = link ? (*link)->text : NULL;
    for (size_t i = 0; link && i < N_KEPT; at += (*link)->n[i++])
        if (texts[i])
            buf_add(texts[i], at, (*link)->n[i]);
    pthread_mutex_unlock(&s->lock);
    return link != NULL;
}

bool api_store_remove(struct api_store *s, uint32_t owner, const char *id)
{
    pthread_mutex_lock(&s->lock);
    struct entry **link = find(s, owner, id);
    struct entry *e = link ? take(s, link) : NULL;
    pthread_mutex_unlock(&s->lock);
    free(e);
    return e != NULL;
}
