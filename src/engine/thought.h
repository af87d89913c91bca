/* How long an output may reason before it has to answer.
 *
 *      ... <think> t t t t t </think> answer
 *                  '--max--' '------' put where tokens are chosen, once the limit is met
 *
 * Where reasoning begins and ends is seen in the bytes of the tokens, so it does not matter how the
 * model spells its marks, and as reply/parser.c sees it. Engine thread; nothing allocates. For
 * engine/ only. */
#ifndef WEIR_ENGINE_THOUGHT_H
#define WEIR_ENGINE_THOUGHT_H

#include "engine/engine.h"

#define THOUGHT_TAIL 64

struct thought {
    struct request_thought limit;
    bool open;               /* the output is reasoning now */
    uint32_t n;              /* tokens of it so far */
    uint32_t n_put;          /* of the closing mark, while it is put */
    bool begun;              /* there was other output: it opens no more, if `first` */
    char tail[THOUGHT_TAIL]; /* [n_tail] the newest bytes */
    uint32_t n_tail;
};

void thought_begin(struct thought *t, const struct request_thought *limit);
/* The token that has to come next, or TOKEN_NONE. Any thread while nothing is accepted. */
token_id thought_next(const struct thought *t);
/* The token that came, and its bytes as text, those of control tokens too. */
void thought_accept(struct thought *t, token_id id, const char *bytes, size_t n);

#endif
