/* When lines of one key's batches may begin. A limit on how many requests a key may have at once is
 * shared with all other requests of it, and nobody tells when one of those ends. So after a refusal
 * a line begins where one of ours has ended, and beside those one after a while, as a probe. */
#include "batches/internal.h"

#include "base/mem.h"

#include <string.h>

enum {
    PLACE_US = 10000,    /* from probe to probe; doubled for each that is refused in a row */
    MAX_DOUBLED = 7,     /* times at most */
    FORGET_US = 60000000 /* so long after the last refusal a key has any number of places again */
};

struct places *places_of(struct places **all, const char *owner)
{
    for (struct places *p = *all; p; p = p->next)
        if (strcmp(p->owner, owner) == 0)
            return p;
    struct places *p = mem_zalloc(1, sizeof *p);
    p->owner = mem_strdup(owner);
    p->next = *all;
    return *all = p;
}

void places_free(struct places *all)
{
    for (struct places *next; all; all = next) {
        next = all->next;
        free(all->owner);
        free(all);
    }
}

uint64_t places_held_until(const struct places *p)
{
    return p->rate_us > p->probe_us ? p->rate_us : p->probe_us;
}

static bool is_bound(const struct places *p, uint64_t now_us)
{
    return p->refused_us && now_us - p->refused_us < FORGET_US;
}

static void next_probe(struct places *p, uint64_t now_us)
{
    p->probe_us = now_us + ((uint64_t)PLACE_US << p->n_refused);
}

void places_begun(struct places *p, uint64_t now_us)
{
    if (!is_bound(p, now_us))
        return;
    p->n_free -= p->n_free > 0;
    if (p->n_free == 0)
        next_probe(p, now_us);
}

void places_refused(struct places *p, uint32_t retry_s, uint64_t begun_us, uint64_t now_us)
{
    if (retry_s) {
        const uint64_t until_us = now_us + retry_s * UINT64_C(1000000);
        p->rate_us = p->rate_us < until_us ? until_us : p->rate_us;
        return;
    }
    if (is_bound(p, now_us) && begun_us >= p->refused_us && p->n_refused < MAX_DOUBLED)
        p->n_refused++;
    next_probe(p, now_us);
    p->refused_us = now_us;
    p->n_free = 0;
}

void places_ended(struct places *p, uint64_t now_us)
{
    if (!is_bound(p, now_us))
        return;
    p->probe_us = now_us;
    p->n_refused = 0;
    p->n_free++;
}
