/* Compiled grammars, and where one answer is in one.
 *
 * A state keeps its parses and their stacks by itself, so it depends on nothing that others do. To
 * move on, they are loaded into a simulation, follow the token's bytes, and what is still reachable
 * is written back. Where that was done before, the trail (trail.c) knows what comes out; it is the
 * same. */
#include "base/mem.h"
#include "grammar/internal.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

struct grammar_scratch {
    struct sim sim;
    struct parse now[GRAMMAR_MAX_PARSES];
    uint32_t map[SIM_CELLS]; /* numbers of cells, from one side to the other */
};

struct grammar_scratch *grammar_scratch_create(void)
{
    struct grammar_scratch *x = mem_zalloc(1, sizeof *x);
    if (sim_init(&x->sim, SIM_CELLS))
        return x;
    grammar_scratch_destroy(x);
    return NULL;
}

void grammar_scratch_destroy(struct grammar_scratch *x)
{
    if (!x)
        return;
    sim_deinit(&x->sim);
    free(x);
}

uint64_t state_new_epoch(void)
{
    static _Atomic(uint64_t) last;
    return atomic_fetch_add_explicit(&last, 1, memory_order_relaxed) + 1;
}

/* Number the cells of a stack that are not in the state yet, outermost first; false when they are
 * too many. */
static bool keep_stack(struct grammar_state *s, const struct sim *sim, uint32_t *map, uint32_t cell)
{
    uint32_t path[GRAMMAR_MAX_DEPTH + 1], n = 0;
    for (; map[cell] == NONE; cell = sim->cells[cell].parent)
        path[n++] = cell;
    if (s->n_cells + n > STATE_MAX_CELLS)
        return false;
    while (n > 0) {
        const struct cell *c = &sim->cells[path[--n]];
        map[path[n]] = s->n_cells;
        s->cells[s->n_cells++] = (struct state_cell){c->ret, map[c->parent]};
    }
    return true;
}

/* The shortest way of the parses that were kept. */
static uint32_t way_of(const struct grammar_state *s)
{
    uint32_t of_cell[STATE_MAX_CELLS], best = s->complete ? 0 : FAR;
    const uint32_t *ways = s->g->prog.ways;
    of_cell[0] = 0;
    for (uint32_t i = 1; i < s->n_cells; i++)
        of_cell[i] = way_add(ways[s->cells[i].ret], of_cell[s->cells[i].parent]);
    for (uint32_t i = 0; i < s->n_parses; i++) {
        uint32_t way = way_add(ways[s->parses[i].state], of_cell[s->parses[i].cell]);
        best = way < best ? way : best;
    }
    return best;
}

bool state_store(struct grammar_state *s, const struct sim *sim, uint32_t *map)
{
    memset(map, 0xff, sim->n_cells * sizeof *map);
    map[0] = 0;
    s->cells[0] = (struct state_cell){NONE, NONE};
    s->n_cells = 1;
    s->n_parses = 0;
    s->complete = sim->complete;
    for (uint32_t i = 0; i < sim->n_out; i++) {
        struct parse p = sim->out[i];
        if (keep_stack(s, sim, map, p.cell))
            s->parses[s->n_parses++] = (struct parse){p.state, map[p.cell]};
    }
    bool fewer = s->n_parses < sim->n_out;
    s->way = fewer ? way_of(s) : sim_way(sim, sim->complete);
    return fewer;
}

bool state_load(const struct grammar_state *s, struct sim *sim, uint32_t *map, struct parse *out)
{
    map[0] = 0;
    for (uint32_t i = 1; i < s->n_cells; i++) {
        map[i] = sim_cons(sim, s->cells[i].ret, map[s->cells[i].parent]);
        if (map[i] == NONE)
            return false;
    }
    for (uint32_t i = 0; i < s->n_parses; i++)
        out[i] = (struct parse){s->parses[i].state, map[s->parses[i].cell]};
    return true;
}

static bool dead(const struct sim *s)
{
    return s->n_out == 0 && !s->complete;
}

/* Follow n bytes from what was loaded. */
static bool follow_bytes(struct grammar_scratch *x,
                         uint32_t n_parses,
                         const char *bytes,
                         uint32_t n)
{
    for (uint32_t i = 0; i < n; i++) {
        sim_byte(&x->sim, x->now, n_parses, (uint8_t)bytes[i]);
        if (dead(&x->sim))
            return false;
        n_parses = x->sim.n_out;
        memcpy(x->now, x->sim.out, n_parses * sizeof *x->now);
    }
    return n > 0;
}

/* The token where the grammar names it by its id. */
static bool follow_token(struct grammar_scratch *x,
                         const struct program *prog,
                         uint32_t n_parses,
                         int32_t token)
{
    for (uint32_t i = 0; i < prog->n_tokens; i++) {
        if (prog->tokens[i] != token)
            continue;
        sim_token(&x->sim, x->now, n_parses, i);
        return !dead(&x->sim);
    }
    return false;
}

/* Move on by a token with the scratch alone. */
static enum grammar_step accept_alone(struct grammar_state *s,
                                      int32_t token,
                                      struct grammar_scratch *x)
{
    const struct grammar_vocab *v = s->g->vocab;
    uint32_t at = v->offset[token], n = v->offset[token + 1] - at;
    sim_reset(&x->sim);
    x->sim.prog = &s->g->prog;
    if (!state_load(s, &x->sim, x->map, x->now) ||
        (!follow_token(x, &s->g->prog, s->n_parses, token) &&
         !follow_bytes(x, s->n_parses, v->text + at, n)))
        return GRAMMAR_REFUSED;
    (void)state_store(s, &x->sim, x->map);
    s->id = (struct state_id){.epoch = state_new_epoch()};
    return s->n_parses == 0 ? GRAMMAR_ENDED : GRAMMAR_GOES_ON;
}

enum grammar_step grammar_accept(struct grammar_state *s, int32_t token, struct grammar_scratch *x)
{
    enum grammar_step to = GRAMMAR_REFUSED;
    bool done = false;
    if (token < 0 || (uint32_t)token >= s->g->vocab->n)
        return GRAMMAR_REFUSED;
    if (pthread_mutex_trylock(&s->g->trail_lock) == 0) {
        done = trail_accept(s->g->trail, s, token, &to);
        pthread_mutex_unlock(&s->g->trail_lock);
    }
    return done ? to : accept_alone(s, token, x);
}

bool grammar_complete(const struct grammar_state *s)
{
    return s->complete;
}

void grammar_state_copy(struct grammar_state *to, const struct grammar_state *from)
{
    to->g = from->g;
    to->id = from->id;
    to->way = from->way;
    to->n_parses = from->n_parses;
    to->n_cells = from->n_cells;
    to->complete = from->complete;
    memcpy(to->parses, from->parses, from->n_parses * sizeof *to->parses);
    memcpy(to->cells, from->cells, from->n_cells * sizeof *to->cells);
}

struct grammar *grammar_of(const struct grammar_state *s)
{
    return s->g;
}

size_t grammar_state_bytes(void)
{
    return sizeof(struct grammar_state);
}

struct grammar_state *grammar_state_create(struct grammar *g)
{
    struct grammar_state *s = mem_zalloc(1, sizeof *s);
    grammar_state_copy(s, g->initial);
    s->g = grammar_acquire(g);
    return s;
}

void grammar_state_destroy(struct grammar_state *s)
{
    if (!s)
        return;
    grammar_release(s->g);
    free(s);
}

/* ---- grammars ---- */

static enum err find_beginning(struct grammar *g, struct err_info *e)
{
    struct grammar_scratch *x = grammar_scratch_create();
    if (!x)
        return err_set(e, ERR_NOMEM, "no memory for a grammar");
    g->initial = mem_zalloc(1, sizeof *g->initial);
    g->initial->g = g;
    x->sim.prog = &g->prog;
    sim_begin_step(&x->sim);
    sim_reach(&x->sim, (struct parse){g->prog.start, 0});
    (void)state_store(g->initial, &x->sim, x->map);
    g->initial->id.epoch = state_new_epoch();
    grammar_scratch_destroy(x);
    if (g->initial->n_parses == 0 && !g->initial->complete)
        return err_set(e, ERR_INVALID, "the grammar is too tangled: no first byte is in reach");
    return OK;
}

/* Are tokens that are named by id there? */
static enum err check_tokens(const struct grammar_builder *b,
                             const struct grammar_vocab *v,
                             struct err_info *e)
{
    for (uint32_t i = 0; i < b->n_nodes; i++)
        if (b->nodes[i].kind == NODE_TOKEN && b->nodes[i].a >= v->n)
            return builder_refuse(b, e, ": there is no token %u", b->nodes[i].a);
    return OK;
}

enum err grammar_compile(struct grammar_builder *b,
                         grammar_node root,
                         const struct grammar_vocab *v,
                         struct grammar **out,
                         struct err_info *e)
{
    enum err err = grammar_builder_error(b, e);
    *out = NULL;
    if (err || (err = check_tokens(b, v, e)))
        return err;
    struct grammar *g = mem_zalloc(1, sizeof *g);
    atomic_init(&g->n_refs, 1);
    g->vocab = v;
    pthread_mutex_init(&g->lock, NULL);
    pthread_mutex_init(&g->trail_lock, NULL);
    if ((err = program_compile(b, root, v, &g->prog, e)) ||
        (err = walker_create(g, &g->walker, e)) || (err = trail_create(g, &g->trail, e)) ||
        (err = find_beginning(g, e))) {
        grammar_release(g);
        return err;
    }
    *out = g;
    return OK;
}

struct grammar *grammar_acquire(struct grammar *g)
{
    atomic_fetch_add_explicit(&g->n_refs, 1, memory_order_relaxed);
    return g;
}

void grammar_release(struct grammar *g)
{
    if (!g || atomic_fetch_sub_explicit(&g->n_refs, 1, memory_order_acq_rel) != 1)
        return;
    program_deinit(&g->prog);
    walker_destroy(g->walker);
    trail_destroy(g->trail);
    pthread_mutex_destroy(&g->lock);
    pthread_mutex_destroy(&g->trail_lock);
    free(g->initial);
    free(g);
}

size_t grammar_bytes(const struct grammar *g)
{
    return sizeof *g + sizeof *g->initial + g->prog.n_bytes + walker_bytes(g->walker) +
           trail_bytes(g->trail);
}
