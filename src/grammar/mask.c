/* Masks: which tokens a state admits.
 *
 *      state -- import --> node of the walker -- walk over the trie --> mask, in a slot of the pool
 *
 * A walker is an automaton (automaton.c) of one grammar whose nodes remember the slots of their
 * masks; a slot that was given to another has another stamp. When the walker is full it is emptied
 * and the walk begins anew; should one walk alone fill it, tokens that need more are left out, the
 * same ones each time. */
#include "base/clock.h"
#include "base/mem.h"
#include "grammar/internal.h"

#include <stdlib.h>
#include <string.h>

#define WALKER_CELLS 16384u
#define WALKER_PARSES 65536u
#define WALKER_NODES 16384u
#define WALKER_ROWS (4u << 20) /* entries of all rows */
#define N_SEEN 1024u           /* a power of two */

/* Of a node of the automaton: where its mask is. */
struct walk_node {
    uint32_t slot;
    uint64_t stamp;
    /* the mask of the last `left` that it was asked for, where that is another */
    uint32_t near_slot, near_limit;
    uint64_t near_stamp;
};

struct walker {
    struct automaton a;
    struct walk_node *nodes; /* [a.cap_nodes] */
    uint32_t n_nodes;        /* that are made ready: the first of the automaton's */
    uint32_t *path;          /* [longest + 1] */
    uint32_t map[STATE_MAX_CELLS];
    /* nodes of states that were imported lately, and by how much the ways of their parses are
     * shorter there, at least and at most */
    struct seen {
        struct state_id id;
        uint32_t node, least, most;
    } seen[N_SEEN];
};

static void walker_reset(struct walker *w)
{
    automaton_reset(&w->a);
    w->n_nodes = 0;
    memset(w->seen, 0, sizeof w->seen);
}

enum err walker_create(const struct grammar *g, struct walker **out, struct err_info *e)
{
    struct walker *w = mem_zalloc(1, sizeof *w);
    const struct automaton_size size = {
        .cells = WALKER_CELLS, .parses = WALKER_PARSES, .nodes = WALKER_NODES, .rows = WALKER_ROWS};
    *out = w;
    bool ok = automaton_init(&w->a, &g->prog, &size);
    w->nodes = malloc(w->a.cap_nodes * sizeof *w->nodes);
    w->path = malloc(((size_t)g->vocab->longest + 1) * sizeof *w->path);
    if (!ok || !w->nodes || !w->path)
        return err_set(e, ERR_NOMEM, "no memory for a grammar");
    return OK;
}

void walker_destroy(struct walker *w)
{
    if (!w)
        return;
    automaton_deinit(&w->a);
    free(w->nodes);
    free(w->path);
    free(w);
}

size_t walker_bytes(const struct walker *w)
{
    return sizeof *w + automaton_bytes(&w->a) + w->a.cap_nodes * sizeof *w->nodes;
}

static struct seen *seen_at(struct walker *w, struct state_id id)
{
    return &w->seen[(id.epoch * 31 + id.node) & (N_SEEN - 1)];
}

/* AS_ONE: states are replaced by those that no token can tell from them, so that they have one
 * mask; their ways may be longer. AS_IT_IS: they are not. */
enum view { AS_ONE, AS_IT_IS };

/* By how much ways became shorter, with the walker's cells in map[]. */
static void compare_ways(const struct walker *w, const struct grammar_state *s, struct seen *out)
{
    const struct program *p = w->a.prog;
    uint32_t of_cell[STATE_MAX_CELLS] = {0};
    out->least = s->n_parses > 0 ? FAR : 0;
    out->most = 0;
    for (uint32_t i = 1; i < s->n_cells; i++)
        of_cell[i] = way_add(p->ways[s->cells[i].ret], of_cell[s->cells[i].parent]);
    for (uint32_t i = 0; i < s->n_parses; i++) {
        struct parse from = s->parses[i];
        uint32_t way = way_add(p->ways[from.state], of_cell[from.cell]);
        uint32_t here =
            way_add(p->ways[p->states[from.state].canon], w->a.sim.cells[w->map[from.cell]].way);
        uint32_t shorter = way > here ? way - here : 0;
        out->least = shorter < out->least ? shorter : out->least;
        out->most = shorter > out->most ? shorter : out->most;
    }
}

/* An answer's state in the walker. */
static struct seen import_once(struct walker *w, const struct grammar_state *s, enum view view)
{
    const struct state *states = w->a.prog->states;
    struct seen to = {.id = s->id, .node = DEAD};
    w->map[0] = 0;
    for (uint32_t i = 1; i < s->n_cells; i++) {
        uint32_t ret = view == AS_ONE ? states[s->cells[i].ret].canon : s->cells[i].ret;
        w->map[i] = sim_cons(&w->a.sim, ret, w->map[s->cells[i].parent]);
        if (w->map[i] == NONE) {
            w->a.full = true;
            return to;
        }
    }
    sim_begin_step(&w->a.sim);
    for (uint32_t i = 0; i < s->n_parses; i++) {
        uint32_t state = s->parses[i].state;
        state = view == AS_ONE ? states[state].canon : state;
        sim_put(&w->a.sim, (struct parse){state, w->map[s->parses[i].cell]});
    }
    to.node = automaton_intern(&w->a, s->complete);
    while (w->n_nodes < w->a.n_nodes)
        w->nodes[w->n_nodes++] = (struct walk_node){.slot = NONE, .near_slot = NONE};
    if (view == AS_ONE) {
        compare_ways(w, s, &to);
        if (!w->a.full)
            *seen_at(w, s->id) = to;
    }
    return to;
}

static struct seen import(struct walker *w, const struct grammar_state *s, enum view view)
{
    const struct seen *known = seen_at(w, s->id);
    if (view == AS_ONE && known->id.epoch == s->id.epoch && known->id.node == s->id.node)
        return *known;
    struct seen to = import_once(w, s, view);
    if (w->a.full) {
        walker_reset(w);
        to = import_once(w, s, view);
    }
    return to;
}

/* What is to come of a walk: tokens that lead to a way of at most `limit`, as bits; and the ways
 * that tokens lead to at all. */
struct walk {
    uint64_t *bits;
    uint32_t limit;
    uint32_t shortest, longest;
};

static inline bool reaches(struct walk *walk, uint32_t way)
{
    walk->shortest = way < walk->shortest ? way : walk->shortest;
    walk->longest = way > walk->longest ? way : walk->longest;
    return way <= walk->limit;
}

/* All tokens whose bytes can follow. */
static void walk_trie(struct walker *w,
                      const struct grammar_vocab *v,
                      uint32_t node,
                      struct walk *walk)
{
    const uint8_t *class_of = w->a.prog->class_of;
    w->path[0] = node;
    for (uint32_t i = 0; i < w->a.prog->n_classes; i++)
        (void)automaton_step(
            &w->a, node, i); /* first, so that something is possible however little room there is */
    for (uint32_t i = 0; i < v->n_nodes;) {
        const struct trie_node *t = &v->nodes[i];
        uint32_t to = automaton_step(&w->a, w->path[t->depth - 1], class_of[t->byte]);
        if (to == DEAD) {
            i = t->end;
            continue;
        }
        w->path[t->depth] = to;
        if (t->first_token < t[1].first_token && reaches(walk, w->a.nodes[to].way))
            for (uint32_t k = t->first_token; k < t[1].first_token; k++)
                walk->bits[v->order[k] / 64] |= (uint64_t)1 << v->order[k] % 64;
        i++;
    }
}

static bool fill_mask(struct walker *w,
                      const struct grammar_vocab *v,
                      uint32_t node,
                      struct walk *walk)
{
    uint64_t any = 0, *bits = walk->bits;
    memset(bits, 0, v->n_words * sizeof *bits);
    walk->shortest = FAR;
    walk->longest = 0;
    walk_trie(w, v, node, walk);
    for (uint32_t i = 0; i < w->a.prog->n_tokens; i++) {
        int32_t id = w->a.prog->tokens[i];
        uint32_t to = automaton_step(&w->a, node, w->a.prog->n_classes + i);
        if (to != DEAD && reaches(walk, w->a.nodes[to].way))
            bits[id / 64] |= (uint64_t)1 << id % 64;
    }
    for (uint32_t i = 0; i < v->n_words; i++) {
        if (w->a.nodes[node].complete)
            bits[i] |= v->eog[i];
        any |= bits[i];
    }
    return any != 0;
}

/* ---- the pool ---- */

struct slot {
    uint64_t stamp; /* of what lies there; 0: nothing */
    uint32_t n_pins;
    bool none;
    uint32_t shortest, longest; /* ways that its tokens lead to */
    uint32_t newer, older;      /* in the order of use; NONE at the ends */
};

struct grammar_masks {
    const struct grammar_vocab *vocab;
    pthread_mutex_t lock; /* taken inside a grammar's */
    uint64_t *bits;       /* [n_slots][n_words] */
    struct slot *slots;
    uint32_t n_slots, newest, oldest;
    uint64_t last_stamp;
    struct grammar_mask_stats stats;
};

static void unlink_slot(struct grammar_masks *m, uint32_t i)
{
    struct slot *s = &m->slots[i];
    *(s->newer != NONE ? &m->slots[s->newer].older : &m->newest) = s->older;
    *(s->older != NONE ? &m->slots[s->older].newer : &m->oldest) = s->newer;
}

static void make_newest(struct grammar_masks *m, uint32_t i)
{
    m->slots[i].newer = NONE;
    m->slots[i].older = m->newest;
    *(m->newest != NONE ? &m->slots[m->newest].newer : &m->oldest) = i;
    m->newest = i;
}

enum err grammar_masks_create(const struct grammar_vocab *v,
                              size_t max_bytes,
                              uint32_t n_pinned,
                              struct grammar_masks **out,
                              struct err_info *e)
{
    struct grammar_masks *m = mem_zalloc(1, sizeof *m);
    size_t one = (v->n_words + 1) * sizeof *m->bits, n = max_bytes / one;
    *out = NULL;
    m->vocab = v;
    m->n_slots = n > 1u << 20 ? 1u << 20 : n < n_pinned + 1u ? n_pinned + 1 : (uint32_t)n;
    m->bits = malloc(m->n_slots * one);
    m->slots = calloc(m->n_slots, sizeof *m->slots);
    m->newest = m->oldest = NONE;
    pthread_mutex_init(&m->lock, NULL);
    if (!m->bits || !m->slots) {
        grammar_masks_destroy(m);
        return err_set(e, ERR_NOMEM, "no memory for masks of %u tokens", v->n);
    }
    for (uint32_t i = 0; i < m->n_slots; i++)
        make_newest(m, i);
    *out = m;
    return OK;
}

void grammar_masks_destroy(struct grammar_masks *m)
{
    if (!m)
        return;
    pthread_mutex_destroy(&m->lock);
    free(m->bits);
    free(m->slots);
    free(m);
}

static uint64_t *bits_of(const struct grammar_masks *m, uint32_t slot)
{
    return m->bits + (size_t)slot * m->vocab->n_words;
}

/* The slot, pinned, if what was put there under the stamp still is; or NONE. */
static uint32_t pin_cached(struct grammar_masks *m, uint32_t i, uint64_t stamp)
{
    pthread_mutex_lock(&m->lock);
    if (i != NONE && m->slots[i].stamp != stamp)
        i = NONE;
    if (i != NONE) {
        m->slots[i].n_pins++;
        unlink_slot(m, i);
        make_newest(m, i);
        m->stats.hits++;
    }
    pthread_mutex_unlock(&m->lock);
    return i;
}

/* The slot used longest ago that nobody holds, pinned and with a stamp of its own; NONE if all are
 * held. */
static uint32_t pin_oldest(struct grammar_masks *m)
{
    pthread_mutex_lock(&m->lock);
    uint32_t i = m->oldest;
    while (i != NONE && m->slots[i].n_pins > 0)
        i = m->slots[i].newer;
    if (i != NONE) {
        struct slot *s = &m->slots[i];
        m->stats.evictions += s->stamp != 0;
        m->stats.misses++;
        s->n_pins = 1;
        s->stamp = ++m->last_stamp;
        unlink_slot(m, i);
        make_newest(m, i);
    }
    pthread_mutex_unlock(&m->lock);
    return i;
}

/* Fill slot i for the node, with the room there is. The node's number afterwards. */
static uint32_t compute(struct grammar_masks *m,
                        const struct grammar_state *s,
                        enum view view,
                        uint32_t node,
                        uint32_t i,
                        uint32_t limit)
{
    struct walker *w = s->g->walker;
    uint64_t from_us = clock_us();
    struct slot *slot = &m->slots[i];
    struct walk walk = {.bits = bits_of(m, i), .limit = limit};
    slot->none = !fill_mask(w, m->vocab, node, &walk);
    if (w->a.full) { /* with all the room there is */
        walker_reset(w);
        node = import_once(w, s, view).node;
        slot->none = !fill_mask(w, m->vocab, node, &walk);
    }
    if (w->a.full) { /* rows hold ways that were given up: they may not serve a smaller walk */
        walker_reset(w);
        node = import_once(w, s, view).node;
    }
    slot->shortest = walk.shortest;
    slot->longest = walk.longest;
    pthread_mutex_lock(&m->lock);
    m->stats.compute_us += clock_us() - from_us;
    pthread_mutex_unlock(&m->lock);
    return node;
}

/* The slot of all tokens, pinned; NONE where none is free. */
static uint32_t acquire_all(struct grammar_masks *m,
                            const struct grammar_state *s,
                            enum view view,
                            uint32_t *node)
{
    struct walker *w = s->g->walker;
    uint32_t i = pin_cached(m, w->nodes[*node].slot, w->nodes[*node].stamp);
    if (i != NONE || (i = pin_oldest(m)) == NONE)
        return i;
    *node = compute(m, s, view, *node, i, FAR);
    w->nodes[*node].slot = i;
    w->nodes[*node].stamp = m->slots[i].stamp;
    return i;
}

/* Of the tokens, those that lead to a way of at most `limit`. */
static uint32_t acquire_near(struct grammar_masks *m,
                             const struct grammar_state *s,
                             enum view view,
                             uint32_t node,
                             uint32_t limit)
{
    struct walker *w = s->g->walker;
    uint32_t i = NONE;
    if (w->nodes[node].near_limit == limit)
        i = pin_cached(m, w->nodes[node].near_slot, w->nodes[node].near_stamp);
    if (i != NONE || (i = pin_oldest(m)) == NONE)
        return i;
    node = compute(m, s, view, node, i, limit);
    w->nodes[node].near_slot = i;
    w->nodes[node].near_limit = limit;
    w->nodes[node].near_stamp = m->slots[i].stamp;
    return i;
}

/* How long a way a token may lead to when `left` may come, of ways that are `shorter` in the walker
 * than they are. */
static uint32_t limit_of(uint32_t left, uint32_t shorter)
{
    return left > shorter && left - shorter > 1 ? left - 1 - shorter : 0;
}

/* With the grammar locked. */
static uint32_t acquire(struct grammar_masks *m,
                        const struct grammar_state *s,
                        enum view view,
                        uint32_t left)
{
    struct seen at = import(s->g->walker, s, view);
    if (at.node < FIRST_NODE) /* there is nothing to go on with */
        return NONE;
    uint32_t i = acquire_all(m, s, view, &at.node);
    if (i == NONE || left == GRAMMAR_NO_LIMIT)
        return i;
    uint32_t shortest = m->slots[i].shortest, longest = m->slots[i].longest;
    if (shortest == FAR || longest <= limit_of(left, at.most))
        return i;
    uint32_t limit = limit_of(left, at.least);
    if (limit < shortest && !s->complete) /* what is complete ends rather than be cut */
        limit = shortest;
    if (at.least == at.most && longest <= limit)
        return i;
    pthread_mutex_lock(&m->lock);
    m->slots[i].n_pins--;
    pthread_mutex_unlock(&m->lock);
    if (at.least != at.most) /* one limit does not say it of all parses */
        return acquire(m, s, AS_IT_IS, left);
    return acquire_near(m, s, view, at.node, limit);
}

struct grammar_mask grammar_mask_acquire_within(struct grammar_masks *m,
                                                const struct grammar_state *s,
                                                uint32_t left)
{
    pthread_mutex_lock(&s->g->lock);
    uint32_t i = acquire(m, s, AS_ONE, left);
    pthread_mutex_unlock(&s->g->lock);
    if (i == NONE)
        return (struct grammar_mask){.none = true, .slot = NONE};
    return (struct grammar_mask){.bits = bits_of(m, i), .none = m->slots[i].none, .slot = i};
}

struct grammar_mask grammar_mask_acquire(struct grammar_masks *m, const struct grammar_state *s)
{
    return grammar_mask_acquire_within(m, s, GRAMMAR_NO_LIMIT);
}

void grammar_mask_release(struct grammar_masks *m, struct grammar_mask *mask)
{
    if (mask->slot == NONE)
        return;
    pthread_mutex_lock(&m->lock);
    m->slots[mask->slot].n_pins--;
    pthread_mutex_unlock(&m->lock);
    *mask = (struct grammar_mask){.slot = NONE};
}

bool grammar_mask_ready(struct grammar_masks *m, const struct grammar_state *s, uint32_t left)
{
    struct grammar *g = s->g;
    if (pthread_mutex_trylock(&g->lock) != 0)
        return false;
    struct seen at = import(g->walker, s, AS_ONE);
    const struct walk_node *node = &g->walker->nodes[at.node];
    pthread_mutex_lock(&m->lock);
    bool ready =
        at.node < FIRST_NODE || (node->slot != NONE && m->slots[node->slot].stamp == node->stamp);
    uint32_t longest = ready && at.node >= FIRST_NODE ? m->slots[node->slot].longest : 0;
    pthread_mutex_unlock(&m->lock);
    if (ready && longest > 0 && left != GRAMMAR_NO_LIMIT)
        ready = longest <= limit_of(left, at.most);
    pthread_mutex_unlock(&g->lock);
    return ready;
}

struct grammar_mask_stats grammar_masks_stats(struct grammar_masks *m)
{
    pthread_mutex_lock(&m->lock);
    struct grammar_mask_stats stats = m->stats;
    pthread_mutex_unlock(&m->lock);
    return stats;
}
