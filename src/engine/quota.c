#include "engine/quota.h"

#include <assert.h>
#include <stdlib.h>

#define TIMES_FREE 4

enum err quota_init(struct quota *q, uint32_t room, struct err_info *e)
{
    *q = (struct quota){.room = room};
    q->uses = calloc(room, sizeof *q->uses);
    return q->uses ? OK : err_set(e, ERR_NOMEM, "no memory to queue %u requests", room);
}

void quota_deinit(struct quota *q)
{
    free(q->uses);
    q->uses = NULL;
}

static uint32_t find(const struct quota *q, uint32_t tenant)
{
    uint32_t i = 0;
    while (i < q->n_uses && q->uses[i].tenant != tenant)
        i++;
    return i;
}

enum err quota_take(struct quota *q, uint32_t tenant, uint32_t n, struct err_info *e)
{
    uint32_t at = find(q, tenant), has = at < q->n_uses ? q->uses[at].n : 0;
    uint64_t free_places = q->room - q->n_all;
    if (n > free_places)
        return err_set(
            e, ERR_QUEUE_FULL, "the queue is full: %u requests are running or waiting", q->n_all);
    if (tenant != 0 && has > 0 && (uint64_t)has + n > TIMES_FREE * (free_places - n))
        return err_set(e,
                       ERR_QUEUE_FULL,
                       "%u of this key's requests are running or waiting; the places left are for "
                       "others",
                       has);
    if (at == q->n_uses)
        q->uses[q->n_uses++] = (struct quota_use){.tenant = tenant};
    q->uses[at].n += n;
    q->n_all += n;
    return OK;
}

void quota_give(struct quota *q, uint32_t tenant)
{
    uint32_t at = find(q, tenant);
    assert(at < q->n_uses && q->uses[at].n > 0);
    q->n_all--;
    if (--q->uses[at].n == 0)
        q->uses[at] = q->uses[--q->n_uses];
}
