/* Tokens to nodes: what cursor.c, parser.c (expressions) and statements.c share. */
#ifndef WEIR_CHAT_JINJA_PARSER_H
#define WEIR_CHAT_JINJA_PARSER_H

#include "chat/jinja/ast.h"
#include "chat/jinja/lexer.h"

struct jparser {
    struct jrun *r;
    struct jinja_template *t;
    struct jtokens tokens;
    size_t at;
    struct jnode *macro; /* the innermost that is being read; `c` is the one around it */
    uint32_t loops;      /* loops around the place, inside the macro */
    bool lenient;        /* an unknown filter or test is an error only when it is reached */
};

_Noreturn void jparse_fail(struct jparser *p, const char *fmt, ...) WEIR_PRINTF(2, 3);

static inline const struct jtoken *jparse_now(const struct jparser *p)
{
    return &p->tokens.items[p->at];
}

const struct jtoken *jparse_look(const struct jparser *p); /* the token behind it */
/* The token in words, for errors; returns out. */
const char *jparse_describe(const struct jtoken *t, char out[64]);
bool jparse_is_op(const struct jparser *p, const char *op);
bool jparse_is_name(const struct jparser *p, const char *name);
bool jparse_skip_op(struct jparser *p, const char *op);
bool jparse_skip_name(struct jparser *p, const char *name);
void jparse_expect_op(struct jparser *p, const char *op);
const struct jstr *jparse_expect_name(struct jparser *p); /* any, interned */
void jparse_step(struct jparser *p);

struct jnode *jparse_node(struct jparser *p, enum jnode_kind kind);
void jparse_add(struct jparser *p, struct jnodes *l, struct jnode *n);
const struct jstr *jparse_intern(struct jparser *p, const struct jstr *name);

struct jnode *jparse_expression(struct jparser *p);
/* One expression, or several with commas, which are a tuple. */
struct jnode *jparse_tuple(struct jparser *p, bool with_condition);
struct jnode *jparse_target(struct jparser *p, bool with_namespace);
/* Filters on `operand` (NULL: on what a block renders); the first without '|' where `inline_`. */
struct jnode *jparse_filters(struct jparser *p, struct jnode *operand, bool inline_);
void jparse_add_arg(struct jparser *p,
                    struct jarg_nodes *l,
                    const struct jstr *name,
                    struct jnode *value);

#endif
