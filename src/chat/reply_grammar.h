/* The language of a reply that makes calls, as a grammar (grammar/): the frame that the model's
 * format has (reply/frames.c), with the names of the tools and, by their schemas, the arguments.
 * What conforms is read back by reply.h as calls and nothing else, after reasoning where the model
 * has any. But in formats with a tag for each argument
 * - JSON ends at a closing tag within one of its strings behind which the call seems to go on;
 * - in muse, a mark of messages within JSON, or in a string with a length, pattern or format, ends
 *   the call;
 * - in qwen-xml, a string with a length, pattern or format ends at a line within it with which
 *   the call would end, or go on with another of the tool's arguments;
 * - an enumeration none of whose strings reads as a string is read as what they read as, and one
 *   all of whose strings have what ends a value in them is any string. */
#ifndef WEIR_CHAT_REPLY_GRAMMAR_H
#define WEIR_CHAT_REPLY_GRAMMAR_H

#include "chat/reply.h"
#include "grammar/grammar.h"

struct reply_grammar {
    struct reply_style style;
    struct reply_start start;
    const struct json_t *tools; /* as in reply_config */
    const bool *strict;         /* [of tools]; NULL: none is */
    const char *only;           /* the tool to call; NULL: any */
    bool required;              /* a call must come; else text may, in which calls of strict tools
                                   conform to their schemas, in minimax-m3 of others too, but for
                                   what bounds the number of arguments */
    bool parallel;              /* more than one call */
    /* The control token with exactly this text, or -1. */
    int32_t (*token)(const void *ctx, const char *s, size_t n);
    const void *ctx;
};

/* Can calls of this format be asked for? */
bool reply_grammar_known(const struct reply_format *f);

/* The node of the whole reply. Where the format is not known, the node is one that never conforms;
 * errors are kept by the builder. */
grammar_node reply_grammar_build(const struct reply_grammar *r, struct grammar_builder *b);

/* What an answer looks like whose content is of a form of its own: the same, behind what of the
 * format comes before content, such as reasoning. With tools the answer may be calls instead, whose
 * arguments conform to the schemas of those that are strict. Of *r, `required` must be false. */
grammar_node reply_grammar_content(const struct reply_grammar *r,
                                   struct grammar_builder *b,
                                   grammar_node content);

#endif
