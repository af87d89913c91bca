/* Where tokens lead, remembered: an automaton whose nodes are answers' states.
 *
 *      state of an answer -- its id, or what is in it --> node -- a row a byte --> node --> state
 *
 * A token's way costs a look into a row a byte where somebody has gone it before. That is what
 * keeps grammars of many parses and deep stacks cheap: their texts come to few states.
 *
 * It has room for as many cells as the simulation of one token. So what fits into it was not cut
 * short for want of room, nor would it be without it: what comes out is the same, and a trail that
 * is empty, full, or just used by another thread does not show. */
#include "base/mem.h"
#include "grammar/internal.h"

#include <stdlib.h>
#include <string.h>

#define TRAIL_PARSES 65536u
#define TRAIL_NODES 4096u
#define TRAIL_ROWS (1u << 19)
#define TRAIL_PAIRS 65536u

/* A node as a state: its parses with the state's numbers of cells, then the cells. */
struct kept {
    uint32_t node; /* without the parses whose stacks found no room; UNKNOWN: not made yet */
    uint32_t first, n_cells;
};

_Static_assert(sizeof(struct parse) == sizeof(struct state_cell), "both are pairs");

struct trail {
    struct automaton a;
    uint64_t epoch;      /* of the ids of its nodes; another each time that it is emptied */
    struct kept *kept;   /* [a.cap_nodes] */
    uint32_t n_kept;     /* that are made ready: the first of the automaton's */
    struct parse *pairs; /* [TRAIL_PAIRS] parses and cells */
    uint32_t n_pairs;
    uint32_t map[SIM_CELLS];
};

static void reset(struct trail *t)
{
    automaton_reset(&t->a);
    t->epoch = state_new_epoch();
    t->n_kept = 0;
    t->n_pairs = 0;
}

enum err trail_create(const struct grammar *g, struct trail **out, struct err_info *e)
{
    struct trail *t = mem_zalloc(1, sizeof *t);
    const struct automaton_size size = {
        .cells = SIM_CELLS, .parses = TRAIL_PARSES, .nodes = TRAIL_NODES, .rows = TRAIL_ROWS};
    *out = t;
    bool ok = automaton_init(&t->a, &g->prog, &size);
    t->kept = malloc(t->a.cap_nodes * sizeof *t->kept);
    t->pairs = malloc(TRAIL_PAIRS * sizeof *t->pairs);
    if (!ok || !t->kept || !t->pairs)
        return err_set(e, ERR_NOMEM, "no memory for a grammar");
    reset(t);
    return OK;
}

void trail_destroy(struct trail *t)
{
    if (!t)
        return;
    automaton_deinit(&t->a);
    free(t->kept);
    free(t->pairs);
    free(t);
}

size_t trail_bytes(const struct trail *t)
{
    return sizeof *t + automaton_bytes(&t->a) + t->a.cap_nodes * sizeof *t->kept +
           TRAIL_PAIRS * sizeof *t->pairs;
}

/* The node of a state; DEAD where there is no room. */
static uint32_t node_of(struct trail *t, const struct grammar_state *s)
{
    if (s->id.epoch == t->epoch)
        return s->id.node;
    sim_begin_step(&t->a.sim);
    t->a.full |= !state_load(s, &t->a.sim, t->map, t->a.sim.out);
    t->a.sim.n_out = s->n_parses;
    return t->a.full ? DEAD : automaton_intern(&t->a, s->complete);
}

/* Where the token leads from a node: as its id where the grammar names it, else byte by byte. */
static uint32_t follow(struct trail *t, const struct grammar_vocab *v, uint32_t node, int32_t token)
{
    const struct program *p = t->a.prog;
    const uint8_t *bytes = (const uint8_t *)v->text + v->offset[token];
    uint32_t n = v->offset[token + 1] - v->offset[token], to = DEAD;
    for (uint32_t i = 0; i < p->n_tokens && to == DEAD; i++)
        if (p->tokens[i] == token)
            to = automaton_step(&t->a, node, p->n_classes + i);
    if (to != DEAD || n == 0)
        return to;
    for (uint32_t i = 0; i < n && node != DEAD; i++)
        node = automaton_step(&t->a, node, p->class_of[bytes[i]]);
    return node;
}

/* The state of a node for the first time: find it, and keep it where there is room. */
static void make_state(struct trail *t, uint32_t node, struct grammar_state *s)
{
    struct sim *sim = &t->a.sim;
    const struct automaton_node *n = &t->a.nodes[node];
    memcpy(sim->out, t->a.parses + n->first, n->n * sizeof *sim->out);
    sim->n_out = n->n;
    sim->complete = n->complete;
    uint32_t kept = node;
    if (state_store(s, sim, t->map)) { /* fewer parses are another node */
        bool fits = state_load(s, sim, t->map, sim->out);
        sim->n_out = s->n_parses;
        kept = fits ? automaton_intern(&t->a, s->complete) : DEAD;
    }
    s->id = (struct state_id){t->epoch, kept};
    if (t->a.full || kept == DEAD || t->n_pairs + s->n_parses + s->n_cells > TRAIL_PAIRS) {
        reset(t); /* nobody has this id yet */
        s->id.epoch = state_new_epoch();
        return;
    }
    while (t->n_kept < t->a.n_nodes)
        t->kept[t->n_kept++].node = UNKNOWN;
    struct parse *to = t->pairs + t->n_pairs;
    t->kept[node] = (struct kept){.node = kept, .first = t->n_pairs, .n_cells = s->n_cells};
    memcpy(to, s->parses, s->n_parses * sizeof *to);
    memcpy(to + s->n_parses, s->cells, s->n_cells * sizeof *to);
    t->n_pairs += s->n_parses + s->n_cells;
}

static void load_state(const struct trail *t, const struct kept *k, struct grammar_state *s)
{
    const struct automaton_node *n = &t->a.nodes[k->node];
    s->id = (struct state_id){t->epoch, k->node};
    s->n_parses = n->n;
    s->n_cells = k->n_cells;
    s->way = n->way;
    s->complete = n->complete;
    memcpy(s->parses, t->pairs + k->first, n->n * sizeof *s->parses);
    memcpy(s->cells, t->pairs + k->first + n->n, k->n_cells * sizeof *s->cells);
}

bool trail_accept(struct trail *t, struct grammar_state *s, int32_t token, enum grammar_step *to)
{
    for (int round = 0; round < 2; round++) { /* again with all the room there is */
        uint32_t from = node_of(t, s);
        uint32_t node = from == DEAD ? DEAD : follow(t, s->g->vocab, from, token);
        if (t->a.full) {
            reset(t);
            continue;
        }
        if (node == DEAD) {
            *to = GRAMMAR_REFUSED;
            return true;
        }
        if (node < t->n_kept && t->kept[node].node != UNKNOWN)
            load_state(t, &t->kept[node], s);
        else
            make_state(t, node, s);
        *to = s->n_parses == 0 ? GRAMMAR_ENDED : GRAMMAR_GOES_ON;
        return true;
    }
    return false;
}
