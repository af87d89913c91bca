/* Filters, tests, methods and global functions: C functions with the names of their parameters.
 *
 * A function gets its arguments in the order of `params`, J_MISSING where one was not given; one
 * that takes any number gets them as they came. `self` is the operand of a filter or test and the
 * object of a method. */
#ifndef WEIR_CHAT_JINJA_BUILTINS_H
#define WEIR_CHAT_JINJA_BUILTINS_H

#include "chat/jinja/value.h"

struct json_t;

struct jkeyword {
    const struct jstr *name;
    struct jval value;
};

struct jargs {
    const struct jval *items;
    size_t n;
    const struct jkeyword *keywords;
    size_t n_keywords;
};

#define JMAX_PARAMS 6

struct jbuiltin {
    const char *name;
    const char *params; /* "width first blank"; begins with '/' if keywords are refused */
    int n_required;
    struct jval (*fn)(struct jrun *r, struct jval self, const struct jval *a); /* [JMAX_PARAMS] */
    struct jval (*any)(struct jrun *r, struct jval self, const struct jargs *args);
};

const struct jbuiltin *jfilter_find(const struct jstr *name); /* NULL: none */
const struct jbuiltin *jtest_find(const struct jstr *name);
const struct jbuiltin *jfunction_find(const struct jstr *name);
/* The method or attribute `name` of v's type; one that is a value has no params. */
const struct jbuiltin *jmethod_find(struct jval v, const struct jstr *name);

struct jval jbuiltin_call(struct jrun *r,
                          const struct jbuiltin *b,
                          struct jval self,
                          const struct jargs *args);

/* ---- what several of them share (call.c) ---- */

static inline bool jarg_given(struct jval v) /* None is as good as nothing */
{
    return v.kind != J_MISSING && v.kind != J_NONE;
}
int64_t jarg_int(struct jrun *r, struct jval v, int64_t missing);
bool jarg_bool(struct jrun *r, struct jval v, bool missing);
const struct jstr *jarg_str(struct jrun *r, struct jval v); /* fails if it is not one */
struct jval jcall_filter(struct jrun *r, struct jval name, struct jval v, const struct jargs *args);
bool jcall_test(struct jrun *r, struct jval name, struct jval v, const struct jargs *args);

/* A function whose value is an expression of r, v and a[]. */
#define JBUILTIN(fn_name, ...)                                                                     \
    static struct jval fn_name(struct jrun *r, struct jval v, const struct jval *a)                \
    {                                                                                              \
        (void)r;                                                                                   \
        (void)v;                                                                                   \
        (void)a;                                                                                   \
        return __VA_ARGS__;                                                                        \
    }

/* ---- parts of the tables, by file; each ends with a NULL name ---- */

extern const struct jbuiltin jfilters_text[], jfilters_list[];
extern const struct jbuiltin jmethods_str[];

/* ---- operations ---- */

struct jval jval_attr(struct jrun *r, struct jval v, const struct jstr *name); /* v.name */
struct jval jval_item(struct jrun *r, struct jval v, struct jval index);       /* v[index] */
struct jval jval_slice(struct jrun *r, struct jval v, const struct jval bounds[3]);
struct jval jval_add(struct jrun *r, struct jval a, struct jval b); /* strings and lists */
/* The pairs of a dict, by their keys. */
const struct jpair *jdict_sorted(struct jrun *r, struct jval dict);
struct jval jval_call(struct jrun *r, struct jval callee, const struct jargs *args);
const struct jstr *jstr_escape(struct jrun *r, const struct jstr *s); /* HTML */
/* template % values, as Python's str % (format.c) */
struct jval jval_percent(struct jrun *r, const struct jstr *format, struct jval values);
/* format.format(...) (format.c) */
struct jval jval_format(struct jrun *r, const struct jstr *format, const struct jargs *args);
/* One value by a format spec: "08.3f"; the empty one is str(). */
void jval_format_spec(struct jsb *b, struct jval v, const struct jstr *spec);
/* json.dumps (json.c). */
struct jval jval_tojson(struct jrun *r, struct jval v, const struct jval *a);
/* A copy of jansson's value, whose texts and numbers are trusted or input; of a "role", the usual
 * names are trusted. (json.c) */
struct jval jval_from_json(struct jrun *r, const struct json_t *v, bool trusted);

/* ---- numbers from text, as Python's int() and float() read them (numbers.c) ---- */

/* False if s is no number. Base 0 or 2 to 36; fails for integers of more than 64 bits. */
bool jnumber_parse_int(struct jrun *r, const struct jstr *s, int64_t base, int64_t *out);
bool jnumber_parse_float(struct jrun *r, const struct jstr *s, double *out);
/* A decimal that printf wrote, in whatever locale. */
double jnumber_of(const char *s);

/* ---- how a value is written: what format specs and the conversions of % share (spec.c) ---- */

struct jspec {
    const struct jstr *fill; /* one character */
    char align;              /* '<' '>' '=' '^', 0: the type's own */
    char sign;               /* '+' '-' ' ', 0 */
    char group;              /* ',' '_', 0 */
    char type;               /* 0: none */
    bool alternate;
    int64_t width, precision; /* -1: none */
};

void jspec_put_padded(struct jsb *b, const struct jspec *f, const struct jstr *s, char align);
void jspec_put_int(struct jsb *b, const struct jspec *f, int64_t i, bool trusted);
void jspec_put_float(struct jsb *b, const struct jspec *f, double v, bool trusted);

#endif
