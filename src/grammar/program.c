/* What is found out about a program once all of its states are there: which bytes no edge tells
 * apart, and how far each state is from an end. */
#include "base/mem.h"
#include "grammar/internal.h"

#include <stdlib.h>

void program_deinit(struct program *p)
{
    free(p->states);
    free(p->edges);
    free(p->targets);
    free(p->ways);
    *p = (struct program){0};
}

/* Bytes that no edge tells apart form a class: the places where edges begin or end cut 0..255. */
void program_find_classes(struct program *p, uint32_t n_edges)
{
    bool cut[257] = {[0] = true};
    for (uint32_t i = 0; i < n_edges; i++) {
        cut[p->edges[i].lo] = true;
        cut[p->edges[i].hi + 1u] = true;
    }
    for (uint32_t byte = 0; byte < 256; byte++) {
        if (cut[byte])
            p->byte_of[p->n_classes++] = (uint8_t)byte;
        p->class_of[byte] = (uint8_t)(p->n_classes - 1);
    }
}

/* ---- the shortest way to an end ---- */

#define MAX_WAY_WORK 30000000u /* states and edges looked at; what is not known then is far */

/* Can any byte of the edge be written? */
static bool usable(const struct edge *e, const bool *has)
{
    for (uint32_t byte = e->lo; byte <= e->hi; byte++)
        if (has[byte])
            return true;
    return false;
}

static uint32_t shortest(const struct program *p, const struct state *s, const bool *has)
{
    uint32_t best = FAR;
    switch ((enum op)s->op) {
    case OP_RETURN:
        return 0;
    case OP_MATCH:
        for (uint32_t i = 0; i < s->n; i++)
            if (p->ways[p->edges[s->first + i].target] < best &&
                usable(&p->edges[s->first + i], has))
                best = p->ways[p->edges[s->first + i].target];
        return way_add(best, 1);
    case OP_TOKEN:
        return way_add(p->ways[s->n], 1);
    case OP_SPLIT:
        for (uint32_t i = 0; i < s->n; i++)
            if (p->ways[p->targets[s->first + i]] < best)
                best = p->ways[p->targets[s->first + i]];
        return best;
    case OP_CALL:
        return way_add(p->ways[s->first], p->ways[s->n]);
    }
    return best;
}

/* Rounds over all states, whose successors mostly come before them, until nothing is shorter. */
void program_find_ways(struct program *p, const bool *has)
{
    uint64_t work = 0;
    p->ways = mem_alloc(p->n_states * sizeof *p->ways);
    for (uint32_t i = 0; i < p->n_states; i++)
        p->ways[i] = FAR;
    for (bool changed = true; changed && work < MAX_WAY_WORK;) {
        changed = false;
        for (uint32_t i = 0; i < p->n_states; i++) {
            uint32_t way = shortest(p, &p->states[i], has);
            work += 1 + (p->states[i].op <= OP_SPLIT ? p->states[i].n / 4 : 0);
            changed |= way < p->ways[i];
            p->ways[i] = way < p->ways[i] ? way : p->ways[i];
        }
    }
}
