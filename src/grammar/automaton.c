/* A deterministic automaton that grows as it is used: a node is a set of parses, a row says where
 * each class of bytes, and each token that is named by id, leads. What is in it is true of the
 * program alone, so it may be forgotten at any time. */
#include "grammar/internal.h"

#include <stdlib.h>
#include <string.h>

void automaton_reset(struct automaton *a)
{
    sim_reset(&a->sim);
    memset(a->buckets, 0, a->cap_nodes * sizeof *a->buckets);
    a->n_parses = 0;
    a->n_nodes = FIRST_NODE;
    a->full = false;
}

bool automaton_init(struct automaton *a,
                    const struct program *prog,
                    const struct automaton_size *size)
{
    uint32_t n_symbols = prog->n_classes + prog->n_tokens, most = size->rows / n_symbols;
    *a = (struct automaton){.prog = prog, .n_symbols = n_symbols, .cap_parses = size->parses};
    a->cap_nodes = most < size->nodes ? most : size->nodes;
    a->parses = malloc(a->cap_parses * sizeof *a->parses);
    a->nodes = malloc(a->cap_nodes * sizeof *a->nodes);
    a->rows = malloc((size_t)a->cap_nodes * n_symbols * sizeof *a->rows);
    a->buckets = malloc(a->cap_nodes * sizeof *a->buckets);
    if (!sim_init(&a->sim, size->cells) || !a->parses || !a->nodes || !a->rows || !a->buckets)
        return false;
    a->sim.prog = prog;
    automaton_reset(a);
    return true;
}

void automaton_deinit(struct automaton *a)
{
    sim_deinit(&a->sim);
    free(a->parses);
    free(a->nodes);
    free(a->rows);
    free(a->buckets);
}

size_t automaton_bytes(const struct automaton *a)
{
    return sim_bytes(&a->sim) + a->cap_parses * sizeof *a->parses +
           a->cap_nodes * (sizeof *a->nodes + sizeof *a->buckets) +
           (size_t)a->cap_nodes * a->n_symbols * sizeof *a->rows;
}

static uint32_t hash_of(const struct parse *p, uint32_t n, bool complete)
{
    uint64_t h = complete;
    for (uint32_t i = 0; i < n; i++)
        h = (h ^ ((uint64_t)p[i].state << 32 | p[i].cell)) * 0x9e3779b97f4a7c15u + (h >> 29);
    return (uint32_t)(h >> 32 ^ h);
}

uint32_t automaton_intern(struct automaton *a, bool complete)
{
    const struct sim *s = &a->sim;
    if (s->n_out == 0 && !complete)
        return DEAD;
    uint32_t hash = hash_of(s->out, s->n_out, complete);
    uint32_t *bucket = &a->buckets[hash % a->cap_nodes];
    for (uint32_t i = *bucket; i != 0; i = a->nodes[i].next) {
        const struct automaton_node *n = &a->nodes[i];
        if (n->hash == hash && n->n == s->n_out && n->complete == complete &&
            memcmp(a->parses + n->first, s->out, s->n_out * sizeof *s->out) == 0)
            return i;
    }
    if (a->n_nodes == a->cap_nodes || a->n_parses + s->n_out > a->cap_parses) {
        a->full = true;
        return DEAD;
    }
    a->nodes[a->n_nodes] = (struct automaton_node){.first = a->n_parses,
                                                   .n = s->n_out,
                                                   .hash = hash,
                                                   .next = *bucket,
                                                   .complete = complete,
                                                   .way = sim_way(s, complete)};
    memcpy(a->parses + a->n_parses, s->out, s->n_out * sizeof *s->out);
    a->n_parses += s->n_out;
    memset(a->rows + (size_t)a->n_nodes * a->n_symbols, 0, a->n_symbols * sizeof *a->rows);
    *bucket = a->n_nodes;
    return a->n_nodes++;
}

uint32_t automaton_explore(struct automaton *a, uint32_t node, uint32_t symbol)
{
    const struct automaton_node *n = &a->nodes[node];
    const struct parse *from = a->parses + n->first;
    if (symbol < a->prog->n_classes)
        sim_byte(&a->sim, from, n->n, a->prog->byte_of[symbol]);
    else
        sim_token(&a->sim, from, n->n, symbol - a->prog->n_classes);
    uint32_t to = automaton_intern(a, a->sim.complete);
    a->full |= a->sim.full;
    a->rows[(size_t)node * a->n_symbols + symbol] = to;
    return to;
}
