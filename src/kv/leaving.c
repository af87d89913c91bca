/* Blocks, panes and states that were let go while steps are under way, but for panes of a table
 * that has no rows in any. A device may still read and write what those steps were given, so the
 * references outlive the tables that gave them up:
 *
 *      steps begun      1     2     3
 *      let go              a     b  c        (a after 1 was begun, b and c after 2 or 3)
 *      steps ended               1     2
 *      given back                a     b ..
 *
 * Each waits for the newest step that was under way then; steps end in the order in which they
 * begin, so the list is in order too, and memory comes free in the order in which it was let go.
 * What a table gives up twice, or two tables, waits for the last. */
#include "kv/internal.h"
#include "kv/kv.h"

#include <assert.h>
#include <stdlib.h>

#define NONE UINT32_MAX

enum err kv_leaving_init(struct kv_leaving *l, uint32_t n, struct err_info *e)
{
    l->places = calloc(n ? n : 1, sizeof *l->places);
    l->oldest = l->newest = NONE;
    return l->places ? OK : err_set(e, ERR_NOMEM, "no memory to let go of %u KV blocks", n);
}

void kv_leaving_deinit(struct kv_leaving *l)
{
    free(l->places);
}

static void take_out(struct kv_leaving *l, uint32_t id)
{
    const struct kv_leaving_place *p = &l->places[id];
    *(p->older == NONE ? &l->oldest : &l->places[p->older].newer) = p->newer;
    *(p->newer == NONE ? &l->newest : &l->places[p->newer].older) = p->older;
}

void kv_leave(const struct kv *kv, struct kv_leaving *l, uint32_t id)
{
    struct kv_leaving_place *p = &l->places[id];
    if (p->n_refs > 0)
        take_out(l, id);
    p->n_refs++;
    p->after = kv->n_steps_begun;
    p->older = l->newest;
    p->newer = NONE;
    *(l->newest == NONE ? &l->oldest : &l->places[l->newest].newer) = id;
    l->newest = id;
}

/* The first whose step has ended, taken off the list with its references; or NONE. */
static uint32_t next_gone(const struct kv *kv, struct kv_leaving *l, uint32_t *n_refs)
{
    const uint32_t id = l->oldest;
    if (id == NONE || l->places[id].after > kv->n_steps_ended)
        return NONE;
    take_out(l, id);
    *n_refs = l->places[id].n_refs;
    l->places[id].n_refs = 0;
    return id;
}

void kv_step_begun(struct kv *kv)
{
    kv->n_steps_begun++;
}

void kv_step_ended(struct kv *kv)
{
    uint32_t id, n;
    assert(kv->n_steps_ended < kv->n_steps_begun);
    kv->n_steps_ended++;
    /* panes first: a block that comes free must have none */
    while ((id = next_gone(kv, &kv->panes_leaving, &n)) != NONE)
        for (; n > 0; n--)
            kv_pane_give_back(kv, id);
    while ((id = next_gone(kv, &kv->states_leaving, &n)) != NONE)
        for (; n > 0; n--)
            kv_state_give_back(kv, id);
    while ((id = next_gone(kv, &kv->leaving, &n)) != NONE)
        for (; n > 0; n--)
            kv_block_give_back(kv, id);
}

bool kv_has_steps(const struct kv *kv)
{
    return kv->n_steps_begun != kv->n_steps_ended;
}

uint32_t kv_coming_free(const struct kv *kv)
{
    const struct kv_leaving_place *places = kv->leaving.places;
    uint32_t n = 0;
    for (uint32_t id = kv->leaving.oldest; id != NONE; id = places[id].newer)
        n += places[id].n_refs == kv_pool_refs(kv->pool, id);
    return n;
}

enum err kv_leaving_check(
    const struct kv *kv, const struct kv_leaving *l, uint32_t n, uint32_t *held, struct err_info *e)
{
    uint32_t n_listed = 0, n_marked = 0, older = NONE;
    uint64_t after = kv->n_steps_ended + 1;
    for (uint32_t id = l->oldest; id != NONE && n_listed <= n; id = l->places[id].newer) {
        const struct kv_leaving_place *p = &l->places[id];
        if (p->older != older || p->n_refs == 0 || p->after < after || p->after > kv->n_steps_begun)
            return err_set(e,
                           ERR_INTERNAL,
                           "KV block, pane or state %u leaves after step %llu, out of order",
                           id,
                           (unsigned long long)p->after);
        after = p->after;
        older = id;
        held[id] += p->n_refs;
        n_listed++;
    }
    for (uint32_t id = 0; id < n; id++)
        n_marked += l->places[id].n_refs > 0;
    if (n_listed != n_marked || l->newest != older)
        return err_set(e,
                       ERR_INTERNAL,
                       "%u KV blocks, panes or states are leaving, %u are on the list",
                       n_marked,
                       n_listed);
    return OK;
}
