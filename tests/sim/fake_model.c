/* The fake model: tags in place of K and V, and a device that does what it is told when it likes.
 */
#include "sim/sim.h"

#include <string.h>

static uint64_t tag_of(int32_t token, uint64_t tag_before)
{
    return mix(tag_before + 0x9e3779b97f4a7c15u * ((uint64_t)token + 1));
}

uint64_t first_tag(const struct client *c)
{
    return mix(c->space + 1);
}

static int32_t next_token(const struct world *w, uint64_t tag)
{
    return (int32_t)((tag >> 40) % w->n_vocab);
}

/* The tags of a block, or NULL where all layers have windows. */
static uint64_t *tags_of(const struct world *w, struct kv_place p)
{
    CHECK(p.block < w->n_blocks, "block %u", p.block);
    return w->tags ? w->tags + (size_t)p.block * w->block_tokens : NULL;
}

/* And of its pane, or NULL where none has. */
static uint64_t *pane_tags_of(const struct world *w, struct kv_place p)
{
    CHECK(w->window ? p.pane < w->n_panes : p.pane == KV_NO_PANE, "pane %u", p.pane);
    return w->window ? w->pane_tags + (size_t)p.pane * w->block_tokens : NULL;
}

size_t tags_bytes(const struct world *w)
{
    return w->block_tokens * sizeof(uint64_t);
}

static void move_block(struct world *w, struct kv_place from, struct kv_place to)
{
    if (w->tags)
        memcpy(tags_of(w, to), tags_of(w, from), tags_bytes(w));
    if (w->window)
        memcpy(pane_tags_of(w, to), pane_tags_of(w, from), tags_bytes(w));
}

/* Where the layers that see everything have the tag of a position; NULL where there are none. */
static uint64_t *tag_at(struct world *w, const uint32_t *blocks, uint32_t n, uint32_t pos)
{
    uint32_t i = pos / w->block_tokens;
    CHECK(i < n, "position %u has no block", pos);
    uint64_t *tags = tags_of(w, (struct kv_place){blocks[i], 0});
    return tags ? tags + pos % w->block_tokens : NULL;
}

/* Where those with windows have it; NULL likewise. */
static uint64_t *pane_tag_at(struct world *w, const struct given *g, uint32_t pos)
{
    uint32_t i = pos / w->block_tokens;
    if (!w->window)
        return NULL;
    CHECK(i < g->n_blocks, "position %u has no block", pos);
    CHECK(i >= g->first_pane && i < g->end_pane, "position %u has no pane", pos);
    struct kv_place p = {g->blocks[i], g->panes[i]};
    return pane_tags_of(w, p) + pos % w->block_tokens;
}

/* The first position that a row at `pos` sees in layers with windows. */
static uint32_t first_seen(const struct world *w, uint32_t pos)
{
    return w->window && pos >= w->window ? pos + 1 - w->window : 0;
}

static uint64_t read_tag(struct world *w, const struct given *g, uint32_t pos)
{
    const uint64_t *tag = tag_at(w, g->blocks, g->n_blocks, pos);
    const uint64_t *pane_tag = pane_tag_at(w, g, pos);
    CHECK(!tag || !pane_tag || *tag == *pane_tag, "position %u: two kinds of layers differ", pos);
    return tag ? *tag : *pane_tag;
}

/* What the first row of an item begins with. */
static uint64_t tag_before(struct world *w, const struct given *g)
{
    if (g->item.first == 0)
        return g->begin;
    if (!w->n_states)
        return read_tag(w, g, g->item.first - 1);
    CHECK(g->state_from < w->n_states, "begins with state %u", g->state_from);
    const uint64_t tag = w->states[g->state_from];
    CHECK(!w->tags || tag == read_tag(w, g, g->item.first - 1),
          "state %u is not behind position %u",
          g->state_from,
          g->item.first - 1);
    return tag;
}

/* The tag of a position is known: into the states that are behind it. */
static void store_state(struct world *w, const struct given *g, uint32_t pos, uint64_t tag)
{
    const uint32_t i = pos / w->block_tokens;
    if (!w->n_states)
        return;
    CHECK(g->state_to < w->n_states, "writes to state %u", g->state_to);
    w->states[g->state_to] = tag;
    if (pos % w->block_tokens + 1 < w->block_tokens || g->states[i] == KV_NO_STATE)
        return;
    CHECK(g->states[i] < w->n_states && g->states[i] != g->state_to, "keeps %u", g->states[i]);
    w->states[g->states[i]] = tag;
}

static void store_tag(struct world *w, const struct given *g, uint32_t pos, uint64_t to)
{
    uint64_t *tag = tag_at(w, g->blocks, g->n_blocks, pos), *pane_tag = pane_tag_at(w, g, pos);
    if (tag)
        *tag = to;
    if (pane_tag)
        *pane_tag = to;
}

/* Compute the rows of an item, and choose. As in a backend, all rows are stored before one of them
 * reads. */
static void run_item(struct world *w, struct given *g)
{
    const struct sched_item *item = &g->item;
    uint64_t tag = tag_before(w, g);
    const uint32_t end = item->first + item->n_rows;
    if (g->n_known < item->n_rows)
        g->tokens[g->n_known] = w->chosen[g->from];
    for (uint32_t i = 0; i < item->n_rows; i++) {
        tag = tag_of(g->tokens[i], tag);
        store_tag(w, g, item->first + i, tag);
        store_state(w, g, item->first + i, tag);
    }
    for (uint32_t pos = item->first; pos < end && w->tags; pos++)
        (void)read_tag(w, g, first_seen(w, pos));
    g->chosen = next_token(w, tag);
}

void run_order(struct world *w)
{
    struct order o = w->orders[0];
    memmove(w->orders, w->orders + 1, --w->n_orders * sizeof *w->orders);
    if (o.step) {
        for (uint32_t i = 0; i < o.step->n_items; i++)
            run_item(w, &o.step->items[i]);
        for (uint32_t i = 0; i < o.step->n_items; i++)
            w->chosen[i] = o.step->items[i].chosen;
        o.step->has_run = true;
    } else {
        move_block(w, o.from, o.to);
    }
}

void run_orders(struct world *w)
{
    while (w->n_orders > 0)
        run_order(w);
}

static bool has_copies(const struct world *w)
{
    for (uint32_t i = 0; i < w->n_orders; i++)
        if (!w->orders[i].step)
            return true;
    return false;
}

void copy_block(void *ctx, struct kv_place from, struct kv_place to)
{
    struct world *w = ctx;
    if (w->n_orders == MAX_ORDERS || w->n_steps == 0)
        run_orders(w);
    w->orders[w->n_orders++] = (struct order){.from = from, .to = to};
    count.late_copies += w->n_orders > 1;
    if (w->n_orders == 1)
        run_orders(w);
}

/* No step under way was given this block or pane; or, to read it, none writes it. */
static void check_unused(const struct world *w, struct kv_place p, bool to_read)
{
    for (uint32_t i = 0; i < w->n_steps; i++)
        for (uint32_t k = 0; k < w->steps[i]->n_items; k++) {
            const struct given *g = &w->steps[i]->items[k];
            const uint32_t first = to_read ? g->item.first / w->block_tokens : 0;
            for (uint32_t b = first; b < g->n_blocks; b++)
                CHECK(g->blocks[b] != p.block, "block %u is in use", p.block);
            for (uint32_t b = g->first_pane > first ? g->first_pane : first; b < g->end_pane; b++)
                CHECK(g->panes[b] != p.pane, "pane %u is in use", p.pane);
        }
}

/* Twice as large as it need be where there is one kind of layers only. */
bool read_block(void *ctx, struct kv_place from, void *bytes)
{
    const struct world *w = ctx;
    check_unused(w, from, true);
    if (below(64) == 0) { /* the device failed; what came of it must not be kept */
        memset(bytes, 0xee, 2 * tags_bytes(w));
        return false;
    }
    memset(bytes, 0, 2 * tags_bytes(w));
    if (w->tags)
        memcpy(bytes, tags_of(w, from), tags_bytes(w));
    if (w->window)
        memcpy((char *)bytes + tags_bytes(w), pane_tags_of(w, from), tags_bytes(w));
    return true;
}

void write_block(void *ctx, struct kv_place to, const void *bytes)
{
    struct world *w = ctx;
    check_unused(w, to, false);
    if (has_copies(w))
        run_orders(w);
    if (w->tags)
        memcpy(tags_of(w, to), bytes, tags_bytes(w));
    if (w->window)
        memcpy(pane_tags_of(w, to), (const char *)bytes + tags_bytes(w), tags_bytes(w));
}

void verify(struct world *w, const struct client *c)
{
    uint64_t tag = first_tag(c);
    const struct sched_seq *s = &c->seq;
    if (has_copies(w))
        return;
    const struct kv_table *t = &s->table;
    const bool at_base = w->n_states && t->base != KV_NO_STATE && t->base_at == s->n_computed;
    for (uint32_t pos = 0; pos < s->n_computed; pos++) {
        tag = tag_of(c->tokens[pos], tag);
        const uint64_t *stored = tag_at(w, s->table.blocks, s->table.n_blocks, pos);
        const uint64_t *pane = NULL;
        if (w->window && pos >= first_seen(w, s->n_computed)) {
            const uint32_t i = pos / w->block_tokens;
            CHECK(i >= s->table.first_pane && i < s->table.end_pane, "no pane at %u", pos);
            pane = pane_tags_of(w, (struct kv_place){s->table.blocks[i], s->table.panes[i]}) +
                   pos % w->block_tokens;
        }
        CHECK((!stored || *stored == tag) && (!pane || *pane == tag),
              "serial %llu: position %u was overwritten",
              (unsigned long long)c->serial,
              pos);
        CHECK(!w->n_states || s->slot == SCHED_NO_SLOT || s->n_ahead > 0 ||
                  pos + 1 < s->n_computed || w->states[at_base ? t->base : t->state] == tag,
              "serial %llu: its state was overwritten",
              (unsigned long long)c->serial);
        if (pos + 1 >= s->n_prompt && pos + 1 < s->n_known)
            CHECK(c->tokens[pos + 1] == next_token(w, tag),
                  "serial %llu: token %u is another",
                  (unsigned long long)c->serial,
                  pos + 1);
    }
}
