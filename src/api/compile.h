/* The grammars of requests: found compiled, or compiled on the worker thread. For api/ only.
 *
 *      cache -- none --> a try within a small part of what a grammar may cost
 *                        -- not enough --> the gate (gate.h), one at a time -- cache --> in full
 *
 * So what is cheap never waits for what is not. Another thread takes the worker's place meanwhile.
 */
#ifndef WEIR_API_COMPILE_H
#define WEIR_API_COMPILE_H

#include "api/call.h"

/* What is to be compiled. */
struct api_grammar_source {
    const char *field;                                           /* that errors name */
    const struct buf *key;                                       /* tells it from others */
    grammar_node (*build)(void *ctx, struct grammar_builder *b); /* maybe twice */
    void *ctx;
    bool check; /* is it well said? Nothing is made nor looked for */
};

/* *out: one reference; NULL of a check. Errors: those of grammar_compile and api_gate_enter. */
enum err api_compile(struct api_call *c,
                     const struct api_grammar_source *s,
                     struct grammar **out,
                     struct err_info *e) WEIR_MUST_USE;

#endif
