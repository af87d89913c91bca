/* All parses of a text side by side, byte by byte (Thompson 1968), with stacks.
 *
 * What is found, and in which order, depends on the text alone: cells are compared, never their
 * numbers, so neither a cache nor other answers can show. Where there are more parses than room,
 * those found last are given up; each of the others can be brought to an end by itself, so the
 * result is still sound. Of those given up it is still seen whether the text may end with them,
 * from the length of their way alone. */
#include "grammar/internal.h"

#include <stdlib.h>
#include <string.h>

#define N_VISITS 32768u /* of the table; a power of two */
#define MAX_VISITS (N_VISITS / 2)

bool sim_init(struct sim *s, uint32_t cap_cells)
{
    *s = (struct sim){.cap_cells = cap_cells,
                      .cells = malloc(cap_cells * sizeof *s->cells),
                      .buckets = malloc(cap_cells * sizeof *s->buckets),
                      .visits = calloc(N_VISITS, sizeof *s->visits),
                      .todo = malloc(MAX_VISITS * sizeof *s->todo),
                      .out = malloc(GRAMMAR_MAX_PARSES * sizeof *s->out)};
    if (!s->cells || !s->buckets || !s->visits || !s->todo || !s->out)
        return false;
    sim_reset(s);
    return true;
}

void sim_deinit(struct sim *s)
{
    free(s->cells);
    free(s->buckets);
    free(s->visits);
    free(s->todo);
    free(s->out);
}

void sim_reset(struct sim *s)
{
    memset(s->buckets, 0xff, s->cap_cells * sizeof *s->buckets);
    s->cells[0] = (struct cell){.ret = NONE, .parent = NONE};
    s->n_cells = 1;
    s->full = false;
}

static uint32_t mix(uint32_t a, uint32_t b)
{
    uint64_t h = ((uint64_t)a << 32 | b) * 0x9e3779b97f4a7c15u;
    return (uint32_t)(h >> 32 ^ h >> 11);
}

uint32_t sim_cons(struct sim *s, uint32_t ret, uint32_t parent)
{
    uint32_t *bucket = &s->buckets[mix(ret, parent) & (s->cap_cells - 1)];
    for (uint32_t i = *bucket; i != NONE; i = s->cells[i].next)
        if (s->cells[i].ret == ret && s->cells[i].parent == parent)
            return i;
    if (s->n_cells == s->cap_cells) {
        s->full = true;
        return NONE;
    }
    s->cells[s->n_cells] = (struct cell){.ret = ret,
                                         .parent = parent,
                                         .next = *bucket,
                                         .way = way_add(s->ways[ret], s->cells[parent].way),
                                         .depth = (uint16_t)(s->cells[parent].depth + 1)};
    *bucket = s->n_cells;
    return s->n_cells++;
}

void sim_begin_step(struct sim *s)
{
    if (++s->stamp == 0) { /* after 2^32 steps old stamps would count again */
        memset(s->visits, 0, N_VISITS * sizeof *s->visits);
        s->stamp = 1;
    }
    s->n_visits = 0;
    s->n_out = 0;
    s->complete = false;
}

/* Note p as seen in this step. False if it was, or there is no room. */
static bool visit(struct sim *s, struct parse p)
{
    uint32_t i = mix(p.state, p.cell) & (N_VISITS - 1);
    for (; s->visits[i].stamp == s->stamp; i = (i + 1) & (N_VISITS - 1))
        if (s->visits[i].state == p.state && s->visits[i].cell == p.cell)
            return false;
    if (s->n_visits == MAX_VISITS)
        return false;
    s->n_visits++;
    s->visits[i].stamp = s->stamp;
    s->visits[i].state = p.state;
    s->visits[i].cell = p.cell;
    return true;
}

static void add_out(struct sim *s, struct parse p)
{
    if (s->n_out < GRAMMAR_MAX_PARSES)
        s->out[s->n_out++] = p;
}

void sim_put(struct sim *s, struct parse p)
{
    if (visit(s, p))
        add_out(s, p);
}

/* There is no room for p: note no more than that the text may end with it. */
static void give_up(struct sim *s, const struct program *prog, struct parse p)
{
    s->complete |= way_add(prog->ways[p.state], s->cells[p.cell].way) == 0;
}

void sim_reach(struct sim *s, const struct program *prog, struct parse p)
{
    uint32_t n = 0;
    if (s->n_out == GRAMMAR_MAX_PARSES)
        give_up(s, prog, p);
    else if (visit(s, p))
        s->todo[n++] = p; /* each is put here once, so there is room for all that are visited */
    while (n > 0) {
        p = s->todo[--n];
        if (s->n_out == GRAMMAR_MAX_PARSES) {
            give_up(s, prog, p);
            continue;
        }
        const struct state *st = &prog->states[p.state];
        if (st->need + (uint32_t)s->cells[p.cell].depth > GRAMMAR_MAX_DEPTH)
            continue; /* it could not be brought to an end */
        switch ((enum op)st->op) {
        case OP_MATCH:
        case OP_TOKEN:
            add_out(s, p);
            break;
        case OP_SPLIT:
            for (uint32_t i = st->n; i > 0; i--) {
                struct parse to = {prog->targets[st->first + i - 1], p.cell};
                if (visit(s, to))
                    s->todo[n++] = to;
            }
            break;
        case OP_CALL: {
            struct parse to = {st->first, p.cell};
            if (st->n != 0)
                to.cell = sim_cons(s, st->n, p.cell);
            if (to.cell != NONE && visit(s, to))
                s->todo[n++] = to;
            break;
        }
        case OP_RETURN: {
            const struct cell *c = &s->cells[p.cell];
            if (p.cell == 0)
                s->complete = true;
            else if (visit(s, (struct parse){c->ret, c->parent}))
                s->todo[n++] = (struct parse){c->ret, c->parent};
            break;
        }
        }
    }
}

/* The state behind this byte, or NONE. */
static uint32_t follow(const struct program *prog, const struct state *st, uint8_t byte)
{
    const struct edge *e = prog->edges + st->first;
    uint32_t n = st->n;
    while (n > 4) { /* the edges are in order */
        uint32_t half = n / 2;
        if (e[half].lo <= byte) {
            e += half;
            n -= half;
        } else {
            n = half;
        }
    }
    for (uint32_t i = 0; i < n; i++)
        if (e[i].lo <= byte && byte <= e[i].hi)
            return e[i].target;
    return NONE;
}

void sim_byte(
    struct sim *s, const struct program *prog, const struct parse *in, uint32_t n, uint8_t byte)
{
    sim_begin_step(s);
    for (uint32_t i = 0; i < n; i++) {
        const struct state *st = &prog->states[in[i].state];
        uint32_t to = st->op == OP_MATCH ? follow(prog, st, byte) : NONE;
        if (to != NONE)
            sim_reach(s, prog, (struct parse){to, in[i].cell});
    }
}

void sim_token(
    struct sim *s, const struct program *prog, const struct parse *in, uint32_t n, uint32_t index)
{
    sim_begin_step(s);
    for (uint32_t i = 0; i < n; i++) {
        const struct state *st = &prog->states[in[i].state];
        if (st->op == OP_TOKEN && st->first == index)
            sim_reach(s, prog, (struct parse){st->n, in[i].cell});
    }
}

uint32_t sim_way(const struct sim *s, bool complete)
{
    uint32_t best = complete ? 0 : FAR;
    for (uint32_t i = 0; i < s->n_out && best > 0; i++) {
        uint32_t way = way_add(s->ways[s->out[i].state], s->cells[s->out[i].cell].way);
        best = way < best ? way : best;
    }
    return best;
}
