/* The language of a reply that makes calls, as a grammar (grammar/): the frame that the model's
 * format has, with the names of the tools and, by their schemas, the arguments. What conforms is
 * read back by reply.h as calls and nothing else, after reasoning where the model has any. */
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
                                   conform to their schemas */
    bool parallel;              /* more than one call */
    /* The control token with exactly this text, or -1. */
    int32_t (*token)(const void *ctx, const char *s, size_t n);
    const void *ctx;
};

/* Can calls of this format be asked for? What is optional (`required` false) can be less often. */
bool reply_grammar_known(const struct reply_format *f, bool required);

/* The node of the whole reply. Where the format is not known, the node is one that never conforms;
 * errors are kept by the builder. */
grammar_node reply_grammar_build(const struct reply_grammar *r, struct grammar_builder *b);

/* What an answer looks like whose content is of a form of its own: the same, behind what of the
 * format comes before content, such as reasoning. Of *r, style, start, token and ctx count. */
grammar_node reply_grammar_content(const struct reply_grammar *r,
                                   struct grammar_builder *b,
                                   grammar_node content);

#endif
