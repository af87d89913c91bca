/* A finite automaton from the inside, and its bounds; used by dfa.c and dfa_create.c only. */
#ifndef WEIR_GRAMMAR_DFA_H
#define WEIR_GRAMMAR_DFA_H

#include "grammar/internal.h"

#define DFA_MAX_STATES 8000u
/* Of one builder: members of subsets, states and pairs looked at. */
#define DFA_MAX_WORK 100000000u

struct dfa {
    uint32_t n, start;
    uint32_t n_classes;
    uint8_t class_of[256];
    uint32_t *next; /* [n][n_classes], NONE */
    bool *accepts;  /* [n] */
};

#endif
