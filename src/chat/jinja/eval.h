/* Walking the tree: scopes, expressions (eval.c), statements (exec.c), calls (call.c). */
#ifndef WEIR_CHAT_JINJA_EVAL_H
#define WEIR_CHAT_JINJA_EVAL_H

#include "chat/jinja/ast.h"
#include "chat/jinja/builtins.h"

struct jvar {
    const struct jstr *name; /* interned */
    struct jval value;
};

/* Names set at one level, and those that are going to be: J_MISSING until then. The root's parent
 * is the context; a loop has one scope, emptied for each item, unless a macro in it keeps it. */
struct jscope {
    struct jscope *parent;
    struct jvar *vars;
    size_t n, cap;
    bool captured;
    bool block; /* what is missing around it is looked for further out */
};

struct jscope *jscope_new(struct jrun *r, struct jscope *parent, const struct jnames *unset);
void jscope_restart(struct jrun *r, struct jscope *s, const struct jnames *unset);
void jscope_set(struct jrun *r, struct jscope *s, const struct jstr *name, struct jval v);
struct jval jscope_get(struct jrun *r, const struct jscope *s, const struct jstr *name);

struct jmacro {
    const struct jnode *node;
    struct jscope *scope; /* where it was defined */
};

/* A bound method, or a global function (self missing). */
struct jmethod {
    const struct jbuiltin *builtin;
    struct jval self;
};

/* The state of a for loop, which the template sees as `loop`. Items come one at a time, as a
 * condition may depend on what the body did with the one before. */
struct jloop {
    const struct jnode *node;
    struct jscope *outer; /* around the for */
    struct jval iterable;
    struct jwalk walk;
    int64_t index0;
    int64_t depth0;
    int64_t length; /* -1: not known yet */
    bool has_after, ended;
    struct jval after, current, before; /* J_MISSING: none */
    struct jval changed;                /* what `changed` saw last */
};

/* loop.NAME, but for methods (exec.c). J_MISSING: no such name. */
struct jval jloop_attr(struct jrun *r, struct jval loop, const struct jstr *name);
void jloop_repr(struct jsb *b, struct jval loop); /* "<LoopContext 1/3>" */

enum jflow { FLOW_ON, FLOW_BREAK, FLOW_CONTINUE };

struct jval jeval(struct jrun *r, struct jscope *s, const struct jnode *n);
enum jflow jexec(struct jrun *r, struct jscope *s, const struct jnodes *body, struct jsb *out);
/* A for statement; *out gets its text. Also what loop(items) does. A jump in its `else` is one of
 * the loop around it. */
enum jflow jexec_for(struct jrun *r,
                     struct jscope *s,
                     const struct jnode *n,
                     struct jval iterable,
                     int64_t depth0,
                     struct jsb *out);

/* a OP b, as the language's operators work on values of any kind. */
struct jval jval_arithmetic(struct jrun *r, enum jop op, struct jval a, struct jval b);
bool jval_compare(struct jrun *r, enum jop op, struct jval a, struct jval b);

struct jargs jeval_args(struct jrun *r, struct jscope *s, const struct jarg_nodes *nodes);
struct jval jeval_filters(struct jrun *r, struct jscope *s, const struct jnode *n, struct jval v);
struct jval jblock_call(struct jrun *r, const struct jnode *block);

#endif
