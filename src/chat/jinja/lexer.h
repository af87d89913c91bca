/* Source to tokens, with white space around tags trimmed as trim_blocks, lstrip_blocks, '-' and '+'
 * say. The whole source at once: the parser looks ahead. */
#ifndef WEIR_CHAT_JINJA_LEXER_H
#define WEIR_CHAT_JINJA_LEXER_H

#include "chat/jinja/text.h"

enum jtoken_kind {
    T_EOF,
    T_DATA, /* text outside of tags, or inside raw */
    T_VARIABLE_BEGIN,
    T_VARIABLE_END,
    T_BLOCK_BEGIN,
    T_BLOCK_END,
    T_NAME,
    T_STRING,
    T_INT,
    T_FLOAT,
    T_OPERATOR,
};

struct jtoken {
    enum jtoken_kind kind;
    uint32_t line;
    const struct jstr *text; /* of DATA, NAME and STRING (decoded) */
    char op[3];              /* of OPERATOR: "+", "//" */
    int64_t i;
    double f;
};

struct jtokens {
    struct jtoken *items; /* [n], the last is T_EOF */
    size_t n, cap;
};

/* source[0..n) is valid UTF-8 with \n alone for line ends. Fails with ERR_FORMAT. */
void jinja_lex(struct jrun *r, const char *source, size_t n, struct jtokens *out);

#endif
