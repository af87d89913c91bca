/* All parses of a text side by side, byte by byte (Thompson 1968), with stacks.
 *
 * What is found, and in which order, depends on the text alone: cells are compared, never their
 * numbers, so neither a cache nor other answers can show. Where there are more parses than room,
 * those found last are given up; each of the others can be brought to an end by itself, so the
 * result is still sound. Of those given up it is still seen whether the text may end with them,
 * from the length of their way alone.
 *
 * Parses that differ only in how often something may still come are one where what follows one is
 * part of what follows the other: (\w+ ?){1,500} would otherwise have one for each way to cut a
 * text into words. Where they must come an exact number of times MAX_EXTRA are followed. */
#include "grammar/internal.h"

#include <stdlib.h>
#include <string.h>

#define N_VISITS 16384u /* of the table; a power of two */
#define MAX_VISITS (N_VISITS / 2)
#define N_COUNTS 4096u                                /* of the table; a power of two */
#define MAX_PARTS (N_COUNTS / 2 - GRAMMAR_MAX_PARSES) /* so each parse's shape finds room too */
#define MAX_EXTRA 64u

/* A visit in a word, so that looking for one is quick: 28 bits of the step, 20 of the state, 16 of
 * the cell. */
#define MAX_STAMP ((1u << 28) - 1)
_Static_assert(MAX_STATES <= 1u << 20 && SIM_MAX_CELLS <= 1u << 16, "a visit fits a word");

bool sim_init(struct sim *s, uint32_t cap_cells)
{
    *s = (struct sim){.cap_cells = cap_cells,
                      .cells = malloc(cap_cells * sizeof *s->cells),
                      .buckets = malloc(cap_cells * sizeof *s->buckets),
                      .visits = calloc(N_VISITS, sizeof *s->visits),
                      .counts = calloc(N_COUNTS, sizeof *s->counts),
                      .todo = malloc(MAX_VISITS * sizeof *s->todo),
                      .out = malloc(GRAMMAR_MAX_PARSES * sizeof *s->out)};
    if (!s->cells || !s->buckets || !s->visits || !s->counts || !s->todo || !s->out)
        return false;
    sim_reset(s);
    return true;
}

size_t sim_bytes(const struct sim *s)
{
    return s->cap_cells * (sizeof *s->cells + sizeof *s->buckets) + N_VISITS * sizeof *s->visits +
           N_COUNTS * sizeof *s->counts + MAX_VISITS * sizeof *s->todo +
           GRAMMAR_MAX_PARSES * sizeof *s->out;
}

void sim_deinit(struct sim *s)
{
    free(s->cells);
    free(s->buckets);
    free(s->visits);
    free(s->counts);
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
    const struct cell *p = &s->cells[parent];
    uint32_t row = s->prog->states[ret].row;
    s->cells[s->n_cells] = (struct cell){.ret = ret,
                                         .parent = parent,
                                         .next = *bucket,
                                         .way = way_add(s->prog->ways[ret], p->way),
                                         .row = row,
                                         .shape = mix(row ? ~row : ret, p->shape),
                                         .depth = (uint16_t)(p->depth + 1),
                                         .counts = row != 0 || p->counts};
    *bucket = s->n_cells;
    return s->n_cells++;
}

void sim_begin_step(struct sim *s)
{
    if (++s->stamp > MAX_STAMP) { /* old stamps would count again */
        memset(s->visits, 0, N_VISITS * sizeof *s->visits);
        memset(s->counts, 0, N_COUNTS * sizeof *s->counts);
        s->stamp = 1;
    }
    s->n_visits = s->n_counts = s->n_extra = 0;
    s->n_out = 0;
    s->complete = false;
}

/* Note p as seen in this step. False if it was, or there is no room. */
static bool visit(struct sim *s, struct parse p)
{
    uint64_t want = (uint64_t)s->stamp << 36 | (uint64_t)p.state << 16 | p.cell;
    uint32_t i = mix(p.state, p.cell) & (N_VISITS - 1);
    for (; s->visits[i] >> 36 == s->stamp; i = (i + 1) & (N_VISITS - 1))
        if (s->visits[i] == want)
            return false;
    if (s->n_visits == MAX_VISITS)
        return false;
    s->n_visits++;
    s->visits[i] = want;
    return true;
}

/* The place of (row, a, b) among what was counted in this step. *found: it is there. */
static struct count *count_at(struct sim *s, uint32_t row, uint32_t a, uint32_t b, bool *found)
{
    uint32_t i = mix(row ^ b << 16, a ^ b >> 16) & (N_COUNTS - 1);
    for (; s->counts[i].stamp == s->stamp; i = (i + 1) & (N_COUNTS - 1)) {
        struct count *c = &s->counts[i];
        *found = c->row == row && c->a == a && c->b == b;
        if (*found)
            return c;
    }
    *found = false;
    return &s->counts[i];
}

/* Among parses that differ in nothing but a state of this row: is all that may follow this one part
 * of what follows another that was seen? */
static bool is_part(struct sim *s, uint32_t row, uint32_t a, uint32_t b, uint32_t state)
{
    bool found;
    struct count *c = count_at(s, row, a, b, &found);
    if (found && (row % 4 == ROW_MORE ? state < c->best : state > c->best))
        return true;
    if (!found && s->n_counts >= MAX_PARTS)
        return false;
    s->n_counts += !found;
    *c = (struct count){s->stamp, row, a, b, state};
    return false;
}

/* Note p as seen. False if there is nothing to be had from it. */
static bool see(struct sim *s, struct parse p)
{
    if (!visit(s, p))
        return false;
    const struct cell *c = &s->cells[p.cell];
    uint32_t row = s->prog->states[p.state].row;
    return (row == 0 || row % 4 == ROW_EXACT || !is_part(s, row, p.cell, NONE, p.state)) &&
           (c->row == 0 || c->row % 4 == ROW_EXACT ||
            !is_part(s, c->row, c->parent, p.state, c->ret));
}

/* Does p differ from another only in how often something must still come? */
static bool is_extra(struct sim *s, struct parse p)
{
    const struct cell *stack = &s->cells[p.cell];
    uint32_t row = s->prog->states[p.state].row;
    bool found;
    if (row == 0 && !stack->counts)
        return false;
    struct count *c = count_at(s, NONE, row ? ~row : p.state, stack->shape, &found);
    if (found)
        return true;
    s->n_counts++;
    *c = (struct count){s->stamp, NONE, row ? ~row : p.state, stack->shape, 0};
    return false;
}

static void add_out(struct sim *s, struct parse p)
{
    bool extra = is_extra(s, p);
    if (s->n_out == GRAMMAR_MAX_PARSES || (extra && s->n_extra == MAX_EXTRA))
        return;
    s->n_extra += extra;
    s->out[s->n_out++] = p;
}

void sim_put(struct sim *s, struct parse p)
{
    if (visit(s, p) && s->n_out < GRAMMAR_MAX_PARSES)
        s->out[s->n_out++] = p;
}

/* There is no room for p: note no more than that the text may end with it. */
static void give_up(struct sim *s, struct parse p)
{
    s->complete |= way_add(s->prog->ways[p.state], s->cells[p.cell].way) == 0;
}

void sim_reach(struct sim *s, struct parse p)
{
    uint32_t n = 0;
    if (s->n_out == GRAMMAR_MAX_PARSES)
        give_up(s, p);
    else if (see(s, p))
        s->todo[n++] = p; /* each is put here once, so there is room for all that are visited */
    while (n > 0) {
        p = s->todo[--n];
        if (s->n_out == GRAMMAR_MAX_PARSES) {
            give_up(s, p);
            continue;
        }
        const struct state *st = &s->prog->states[p.state];
        if (st->need + (uint32_t)s->cells[p.cell].depth > GRAMMAR_MAX_DEPTH)
            continue; /* it could not be brought to an end */
        switch ((enum op)st->op) {
        case OP_MATCH:
        case OP_TOKEN:
            add_out(s, p);
            break;
        case OP_SPLIT:
            for (uint32_t i = st->n; i > 0; i--) {
                struct parse to = {s->prog->targets[st->first + i - 1], p.cell};
                if (see(s, to))
                    s->todo[n++] = to;
            }
            break;
        case OP_CALL: {
            struct parse to = {st->first, p.cell};
            if (st->n != 0)
                to.cell = sim_cons(s, st->n, p.cell);
            if (to.cell != NONE && see(s, to))
                s->todo[n++] = to;
            break;
        }
        case OP_RETURN: {
            const struct cell *c = &s->cells[p.cell];
            if (p.cell == 0)
                s->complete = true;
            else if (see(s, (struct parse){c->ret, c->parent}))
                s->todo[n++] = (struct parse){c->ret, c->parent};
            break;
        }
        }
    }
}

static bool has_better(struct sim *s, uint32_t row, uint32_t a, uint32_t b, uint32_t state)
{
    bool found;
    if (row == 0 || row % 4 == ROW_EXACT)
        return false;
    const struct count *c = count_at(s, row, a, b, &found);
    return found && c->best != state;
}

/* Take out parses that are part of what was found behind them, unless that found no room. */
static void drop_parts(struct sim *s)
{
    uint32_t n = 0;
    if (s->n_counts == 0 || s->n_out == GRAMMAR_MAX_PARSES || s->n_extra == MAX_EXTRA ||
        s->n_visits == MAX_VISITS || s->full)
        return;
    for (uint32_t i = 0; i < s->n_out; i++) {
        struct parse p = s->out[i];
        const struct cell *c = &s->cells[p.cell];
        if (!has_better(s, s->prog->states[p.state].row, p.cell, NONE, p.state) &&
            !has_better(s, c->row, c->parent, p.state, c->ret))
            s->out[n++] = p;
    }
    s->n_out = n;
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

void sim_byte(struct sim *s, const struct parse *in, uint32_t n, uint8_t byte)
{
    sim_begin_step(s);
    for (uint32_t i = 0; i < n; i++) {
        const struct state *st = &s->prog->states[in[i].state];
        uint32_t to = st->op == OP_MATCH ? follow(s->prog, st, byte) : NONE;
        if (to != NONE)
            sim_reach(s, (struct parse){to, in[i].cell});
    }
    drop_parts(s);
}

void sim_token(struct sim *s, const struct parse *in, uint32_t n, uint32_t index)
{
    sim_begin_step(s);
    for (uint32_t i = 0; i < n; i++) {
        const struct state *st = &s->prog->states[in[i].state];
        if (st->op == OP_TOKEN && st->first == index)
            sim_reach(s, (struct parse){st->n, in[i].cell});
    }
    drop_parts(s);
}

uint32_t sim_way(const struct sim *s, bool complete)
{
    uint32_t best = complete ? 0 : FAR;
    for (uint32_t i = 0; i < s->n_out && best > 0; i++) {
        uint32_t way = way_add(s->prog->ways[s->out[i].state], s->cells[s->out[i].cell].way);
        best = way < best ? way : best;
    }
    return best;
}
