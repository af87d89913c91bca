/* Values as Python has them, and what every part of the engine does with them.
 *
 * A value is 16 bytes and passed around whole; what it points to lies in the arena and, but for
 * namespaces, loops, cyclers and iterators, never changes: the sandbox has no call that would.
 * Integers are of 64 bits; what would not fit is an error, where Python's would grow. */
#ifndef WEIR_CHAT_JINJA_VALUE_H
#define WEIR_CHAT_JINJA_VALUE_H

#include "chat/jinja/text.h"

enum jkind {
    J_MISSING, /* no value at all: an argument not given */
    J_UNDEFINED,
    J_NONE,
    J_BOOL,
    J_INT,
    J_FLOAT,
    J_STR,
    J_LIST,
    J_TUPLE,
    J_DICT,
    J_VIEW, /* of a dict: keys(), values(), items() */
    J_RANGE,
    J_ITER, /* an iterator or generator: gone through once */
    J_NAMESPACE,
    J_LOOP,
    J_CYCLER,
    J_JOINER,
    J_FUNCTION, /* a global function */
    J_METHOD,   /* bound to its object */
    J_MACRO,
    J_BLOCKS, /* self */
    J_BLOCK,  /* self.name */
};

struct jval {
    uint8_t kind;
    bool input; /* of a number, bool or None: it came from a variable */
    union {
        bool b;
        int64_t i;
        double f;
        const struct jstr *s;
        const struct jundefined *undefined; /* NULL: nothing more is known */
        const struct jlist *list;
        struct jdict *dict;
        const struct jview *view;
        const struct jrange *range;
        struct jiterator *iter;
        struct jloop *loop;
        struct jcycler *cycler;
        struct jjoiner *joiner;
        const struct jmethod *method;
        const struct jmacro *macro;
        const struct jnode *block;
    };
};

/* What using it says. */
struct jundefined {
    const char *text; /* NULL: "'NAME' is undefined" */
    const struct jstr *name;
};

struct jlist {
    struct jval *items;
    size_t n;
    bool group; /* a tuple made by groupby: has .grouper and .list */
};

struct jpair {
    struct jval key, value;
};

/* In the order of insertion; looked up by hash once there are more than a few. */
struct jdict {
    struct jpair *pairs;
    size_t n, cap;
    uint32_t *slots; /* [n_slots], a power of two: 1 + index of a pair, 0 none; or NULL */
    size_t n_slots;
};

struct jview {
    const struct jdict *dict;
    enum { VIEW_KEYS, VIEW_VALUES, VIEW_ITEMS } what;
};

struct jrange {
    int64_t start, stop, step;
    int64_t n;
};

/* Items made ahead. If making them failed, so does going past the last. */
struct jiterator {
    const struct jval *items;
    size_t n, at;
    const char *error; /* or NULL */
    enum err code;
    const char *name; /* "generator" */
};

struct jcycler {
    const struct jval *items;
    size_t n, at;
};

struct jjoiner {
    struct jval separator;
    bool used;
};

/* ---- making ---- */

static inline struct jval jval_undefined(void)
{
    return (struct jval){.kind = J_UNDEFINED};
}

static inline struct jval jval_none(void)
{
    return (struct jval){.kind = J_NONE};
}

static inline struct jval jval_bool(bool b)
{
    return (struct jval){.kind = J_BOOL, .b = b};
}

static inline struct jval jval_int(int64_t i)
{
    return (struct jval){.kind = J_INT, .i = i};
}

static inline struct jval jval_float(double f)
{
    return (struct jval){.kind = J_FLOAT, .f = f};
}

static inline struct jval jval_str(const struct jstr *s)
{
    return (struct jval){.kind = J_STR, .s = s};
}

static inline struct jval jval_dict(struct jdict *d)
{
    return (struct jval){.kind = J_DICT, .dict = d};
}

struct jval jval_list(struct jrun *r, struct jval *items, size_t n); /* takes items */
struct jval jval_tuple(struct jrun *r, struct jval *items, size_t n);
struct jval jval_tuple_of(struct jrun *r, const struct jval *items, size_t n); /* copies them */
struct jval jval_pair(struct jrun *r, struct jval a, struct jval b);           /* a tuple of two */
struct jval jval_iter(struct jrun *r, const struct jval *items, size_t n, const char *name);
struct jval jval_undefined_as(struct jrun *r, const char *fmt, ...) WEIR_PRINTF(2, 3);

/* Collects items whose number is not known before. */
struct jitems {
    struct jval *items;
    size_t n, cap;
};
void jitems_add(struct jrun *r, struct jitems *l, struct jval v);

/* ---- asking ---- */

const char *jval_type(struct jval v); /* "str", "dict" */
bool jval_true(struct jrun *r, struct jval v);
bool jval_eq(struct jrun *r, struct jval a, struct jval b);
/* Negative, 0, positive; fails where Python's < would. `op` is for the text of the error. */
int jval_cmp(struct jrun *r, struct jval a, struct jval b, const char *op);
bool jval_contains(struct jrun *r, struct jval container, struct jval item);
bool jval_same(struct jval a, struct jval b); /* `is` */
/* Number of items; -1 if it has no length. */
int64_t jval_len(struct jval v);

static inline bool jval_is_int(struct jval v) /* bool is a kind of int */
{
    return v.kind == J_INT || v.kind == J_BOOL;
}

static inline int64_t jval_as_int(struct jval v)
{
    return v.kind == J_BOOL ? v.b : v.i;
}

static inline bool jval_is_number(struct jval v)
{
    return jval_is_int(v) || v.kind == J_FLOAT;
}

static inline double jval_as_float(struct jval v)
{
    return v.kind == J_FLOAT ? v.f : (double)jval_as_int(v);
}

_Noreturn void jval_fail_undefined(struct jrun *r, struct jval v);

static inline void jval_expect_defined(struct jrun *r, struct jval v)
{
    if (v.kind == J_UNDEFINED)
        jval_fail_undefined(r, v);
}

/* ---- going through ---- */

struct jwalk {
    struct jval of;
    size_t at; /* an index, or a byte of a string */
};
bool jval_iterable(struct jval v);
struct jwalk jwalk_begin(struct jrun *r, struct jval v); /* fails if v is not iterable */
bool jwalk_next(struct jrun *r, struct jwalk *w, struct jval *out);
const struct jlist *jval_items(struct jrun *r, struct jval v); /* list(v), or v's own items */

/* ---- dicts ---- */

struct jdict *jdict_new(struct jrun *r);
void jdict_set(struct jrun *r, struct jdict *d, struct jval key, struct jval value);
/* NULL: not there. Fails for keys that have no hash. */
struct jval *jdict_get(struct jrun *r, const struct jdict *d, struct jval key);
struct jval *jdict_get_str(struct jrun *r, const struct jdict *d, const struct jstr *key);
bool jval_hashable(struct jrun *r, struct jval v);

/* ---- as text (print.c) ---- */

const struct jstr *jval_to_str(struct jrun *r, struct jval v); /* str(v), which keeps markup */
void jval_print(struct jsb *b, struct jval v);                 /* str(v) */
void jval_repr(struct jsb *b, struct jval v);                  /* repr(v) */
void jval_ascii(struct jsb *b, struct jval v);                 /* ascii(v) */
/* The items and members of containers, each written by `put`. */
typedef void (*jval_put_fn)(struct jsb *b, struct jval v);
void jval_put_items(
    struct jsb *b, const struct jlist *l, const char *open, const char *close, jval_put_fn put);
void jval_put_pairs(struct jsb *b, const struct jpair *pairs, size_t n, jval_put_fn put);
/* The shortest decimal that reads back as f, as Python writes it. */
void jfloat_repr(double f, char out[32]);

#endif
