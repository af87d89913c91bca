/* clang-format off */
/* The tree of a template. One struct for all kinds of nodes; the table says what each one uses.
 *
 *      kind            a           b           c         items            text         other
 *      N_CONST                                                                         value
 *      N_NAME                                                             name
 *      N_ATTR          object                                             name
 *      N_ITEM          object      index or N_SLICE                                    flag: forgives
 *      N_SLICE         start       stop        step                                    NULL: none
 *      N_LIST, TUPLE                                     its items
 *      N_DICT                                            key, value, key ...
 *      N_NOT, NEG, POS operand
 *      N_AND, OR       left        right
 *      N_BINARY        left        right                                               op
 *      N_CONCAT                                          operands
 *      N_COMPARE       first                             other operands                ops
 *      N_IF_ELSE       condition   then        else or NULL
 *      N_CALL          callee                                                          args
 *      N_FILTER        operand (NULL in blocks)                           name         args
 *      N_TEST          operand                                            name         args
 *      N_DATA                                                                          value
 *      N_OUTPUT                                          expressions
 *      N_FOR           target      iterable    test      body; otherwise: else         flag: recursive
 *      N_IF            condition                         body; otherwise: elif, else
 *      N_SET           target      value
 *      N_SET_BLOCK     target      filters or NULL     body
 *      N_NSREF                                                            name, attr   a target
 *      N_WITH                                            body; targets, values         in args
 *      N_MACRO                                           body             name         params, flags
 *      N_CALL_BLOCK    call        macro (N_MACRO)
 *      N_FILTER_BLOCK  filters                           body
 *      N_BLOCK                                           body             name         flag: scoped
 *      N_SCOPE                                           body (generation, autoescape)
 *      N_BREAK, N_CONTINUE
 *
 * Names are interned: equal names of one template are one string. */
/* clang-format on */
#ifndef WEIR_CHAT_JINJA_AST_H
#define WEIR_CHAT_JINJA_AST_H

#include "chat/jinja/value.h"

enum jnode_kind {
    N_CONST,
    N_NAME,
    N_ATTR,
    N_ITEM,
    N_SLICE,
    N_LIST,
    N_TUPLE,
    N_DICT,
    N_NOT,
    N_NEG,
    N_POS,
    N_AND,
    N_OR,
    N_BINARY,
    N_CONCAT,
    N_COMPARE,
    N_IF_ELSE,
    N_CALL,
    N_FILTER,
    N_TEST,
    N_DATA,
    N_OUTPUT,
    N_FOR,
    N_IF,
    N_SET,
    N_SET_BLOCK,
    N_NSREF,
    N_WITH,
    N_MACRO,
    N_CALL_BLOCK,
    N_FILTER_BLOCK,
    N_BLOCK,
    N_SCOPE,
    N_BREAK,
    N_CONTINUE,
};

enum jop {
    OP_ADD,
    OP_SUB,
    OP_MUL,
    OP_DIV,
    OP_FLOORDIV,
    OP_MOD,
    OP_POW,
    OP_EQ,
    OP_NE,
    OP_LT,
    OP_LE,
    OP_GT,
    OP_GE,
    OP_IN,
    OP_NOT_IN,
};

struct jnodes {
    struct jnode **items;
    size_t n, cap;
};

struct jarg {
    const struct jstr *name; /* NULL: by position */
    struct jnode *value;
};

/* Of a call: what is given. Of a macro: its parameters and their defaults. Of with: the pairs. */
struct jarg_nodes {
    struct jarg *items; /* positional ones first */
    size_t n, cap;
    size_t n_positional;
    struct jnode *star, *star_star; /* *args, **kwargs, or NULL */
};

struct jnames {
    const struct jstr **items;
    size_t n, cap;
};

void jnames_add(struct jrun *r, struct jnames *l, const struct jstr *name);

struct jnode {
    enum jnode_kind kind;
    enum jop op;
    uint32_t line;
    bool flag;
    bool uses_caller, uses_varargs, uses_kwargs; /* of a macro: it reads those names */
    struct jnode *a, *b, *c;
    struct jnodes items, otherwise;
    enum jop *ops;
    const struct jstr *text, *attr;
    struct jval value;
    struct jarg_nodes *args;
    struct jnode **targets;     /* of with */
    const struct jnames *unset; /* of a scope: undefined from its start; NULL: none */
    const struct jnames *unset_otherwise;
    const struct jbuiltin *builtin; /* of a filter or test; NULL: none, an error when reached */
};

struct jinja_template {
    struct jarena arena;
    struct jnodes body;
    const struct jnames *unset; /* of the body */
    struct jnames names;
    /* interned, whether the template has them or not */
    const struct jstr *loop, *caller, *varargs, *kwargs, *self;
    struct jnodes blocks; /* N_BLOCK by name, the last of each in the source first */
};

/* Fill in `unset` of the template and of its scopes (symbols.c). Fails with ERR_TOO_LARGE. */
void jinja_find_symbols(struct jrun *r, struct jinja_template *t);

/* Parse into t, whose memory r->arena is. Fails with ERR_FORMAT or ERR_UNSUPPORTED. */
void jinja_parse(struct jrun *r, const char *source, size_t n, struct jinja_template *t);

#endif
