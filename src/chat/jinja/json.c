/* JSON in, from jansson's values, and out, as Python's json.dumps writes it. */
#include "chat/jinja/strings.h"

#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

/* ---- in ---- */

static struct jval from_array(struct jrun *r, const struct json_t *v, bool trusted)
{
    size_t n = json_array_size(v);
    struct jval *items = jrun_alloc_n(r, n, sizeof *items);
    for (size_t i = 0; i < n; i++)
        items[i] = jval_from_json(r, json_array_get(v, i), trusted);
    return jval_list(r, items, n);
}

/* A role of the usual names is as good as the template's own word: '<|' + m.role + '|>' is to be a
 * control token, and what could be put into it is no more than these. */
static bool is_usual_role(const char *key, const struct json_t *v)
{
    static const char *const roles[] = {"system", "user", "assistant", "tool", "developer"};
    const char *s = strcmp(key, "role") == 0 ? json_string_value(v) : NULL;
    for (size_t i = 0; s && i < sizeof roles / sizeof roles[0]; i++)
        if (strcmp(s, roles[i]) == 0)
            return true;
    return false;
}

static struct jval from_object(struct jrun *r, const struct json_t *v, bool trusted)
{
    struct jdict *d = jdict_new(r);
    json_t *o = (json_t *)v; /* the iterator wants it so; nothing is changed */
    for (void *at = json_object_iter(o); at; at = json_object_iter_next(o, at)) {
        const char *key = json_object_iter_key(at);
        const struct json_t *value = json_object_iter_value(at);
        jdict_set(r,
                  d,
                  jval_str(jstr_new(r, key, strlen(key), trusted)),
                  jval_from_json(r, value, trusted || is_usual_role(key, value)));
    }
    return jval_dict(d);
}

struct jval jval_from_json(struct jrun *r, const struct json_t *v, bool trusted)
{
    struct jval out;
    jrun_charge(r, 1);
    jrun_enter(r);
    switch (json_typeof(v)) {
    case JSON_OBJECT:
        out = from_object(r, v, trusted);
        break;
    case JSON_ARRAY:
        out = from_array(r, v, trusted);
        break;
    case JSON_STRING:
        out = jval_str(jstr_new(r, json_string_value(v), json_string_length(v), trusted));
        break;
    case JSON_INTEGER:
        out = jval_int(json_integer_value(v));
        break;
    case JSON_REAL:
        out = jval_float(json_real_value(v));
        break;
    case JSON_NULL:
        out = jval_none();
        break;
    default:
        out = jval_bool(json_is_true(v));
    }
    jrun_leave(r);
    out.input = !trusted;
    return out;
}

/* ---- out ---- */

struct dump {
    struct jsb b;
    bool ascii, sort;
    bool lines;                /* with indent */
    const struct jstr *indent; /* one level of it */
    const struct jstr *between, *colon;
    size_t level;
};

static void put_unicode(struct jsb *b, uint32_t c, bool trusted)
{
    char s[16];
    if (c < 0x10000)
        snprintf(s, sizeof s, "\\u%04x", (unsigned)c);
    else
        snprintf(s,
                 sizeof s,
                 "\\u%04x\\u%04x",
                 (unsigned)(0xD800 + ((c - 0x10000) >> 10)),
                 (unsigned)(0xDC00 + ((c - 0x10000) & 0x3FF)));
    jsb_add(b, s, strlen(s), trusted);
}

static void put_escape(struct jsb *b, uint32_t c, bool trusted)
{
    static const char from[] = "\"\\\n\r\t\f\b", to[] = "\"\\nrtfb";
    const char *at = c && c < 0x80 ? strchr(from, (int)c) : NULL;
    if (!at) {
        put_unicode(b, c, trusted);
        return;
    }
    char s[2] = {'\\', to[at - from]};
    jsb_add(b, s, 2, trusted);
}

static void put_string(struct dump *d, const struct jstr *s)
{
    jsb_lit(&d->b, "\"");
    size_t from = 0;
    for (size_t at = 0, next = 0; at < s->len; at = next) {
        uint32_t c = jstr_next(s, &next);
        if (c >= 0x20 && c != '"' && c != '\\' && !(d->ascii && c >= 0x7f))
            continue;
        jsb_sub(&d->b, s, from, at);
        put_escape(&d->b, c, jstr_trusted_at(s, at));
        from = next;
    }
    jsb_sub(&d->b, s, from, s->len);
    jsb_lit(&d->b, "\"");
}

static void new_line(struct dump *d)
{
    if (!d->lines)
        return;
    jsb_lit(&d->b, "\n");
    jsb_repeat(&d->b, d->indent, d->level);
}

static void put_number(struct dump *d, struct jval v)
{
    char s[32];
    if (v.kind == J_INT)
        snprintf(s, sizeof s, "%lld", (long long)v.i);
    else if (isfinite(v.f))
        jfloat_repr(v.f, s);
    else
        snprintf(s, sizeof s, "%s", isnan(v.f) ? "NaN" : v.f > 0 ? "Infinity" : "-Infinity");
    jsb_add(&d->b, s, strlen(s), !v.input);
}

static void put_value(struct dump *d, struct jval v);

static void put_array(struct dump *d, const struct jlist *l)
{
    jsb_lit(&d->b, "[");
    d->level++;
    for (size_t i = 0; i < l->n; i++) {
        if (i > 0)
            jsb_str(&d->b, d->between);
        new_line(d);
        put_value(d, l->items[i]);
    }
    d->level--;
    if (l->n > 0)
        new_line(d);
    jsb_lit(&d->b, "]");
}

/* Keys that are no strings become what Python makes of them. */
static const struct jstr *key_text(struct dump *d, struct jval key)
{
    struct jrun *r = d->b.r;
    if (key.kind == J_STR)
        return key.s;
    if (key.kind == J_NONE)
        return jstr_new(r, "null", 4, !key.input);
    if (key.kind == J_BOOL)
        return jstr_new(r, key.b ? "true" : "false", key.b ? 4 : 5, !key.input);
    if (key.kind != J_INT && key.kind != J_FLOAT)
        jrun_fail(r, "keys must be str, int, float, bool or None, not %s", jval_type(key));
    return jval_to_str(r, key);
}

static void put_object(struct dump *d, struct jval v)
{
    const struct jpair *pairs = d->sort ? jdict_sorted(d->b.r, v) : v.dict->pairs;
    size_t n = v.dict->n;
    jsb_lit(&d->b, "{");
    d->level++;
    for (size_t i = 0; i < n; i++) {
        if (i > 0)
            jsb_str(&d->b, d->between);
        new_line(d);
        put_string(d, key_text(d, pairs[i].key));
        jsb_str(&d->b, d->colon);
        put_value(d, pairs[i].value);
    }
    d->level--;
    if (n > 0)
        new_line(d);
    jsb_lit(&d->b, "}");
}

static void put_value(struct dump *d, struct jval v)
{
    jrun_charge(d->b.r, 1);
    jrun_enter(d->b.r);
    switch (v.kind) {
    case J_NONE:
        jsb_add(&d->b, "null", 4, !v.input);
        break;
    case J_BOOL:
        jsb_add(&d->b, v.b ? "true" : "false", v.b ? 4 : 5, !v.input);
        break;
    case J_INT:
    case J_FLOAT:
        put_number(d, v);
        break;
    case J_STR:
        put_string(d, v.s);
        break;
    case J_LIST:
    case J_TUPLE:
        put_array(d, v.list);
        break;
    case J_DICT:
        put_object(d, v);
        break;
    default:
        jrun_fail(d->b.r, "Object of type %s is not JSON serializable", jval_type(v));
    }
    jrun_leave(d->b.r);
}

/* indent: a number of spaces, or the text itself. */
static void set_indent(struct dump *d, struct jval indent)
{
    struct jrun *r = d->b.r;
    if (!jarg_given(indent))
        return;
    d->lines = true;
    if (indent.kind == J_STR) {
        d->indent = indent.s;
        return;
    }
    int64_t n = jarg_int(r, indent, 0);
    d->indent = jstr_spaces(r, n);
}

struct jval jval_tojson(struct jrun *r, struct jval v, const struct jval *a)
{
    struct dump d = {.b = JSB(r), .ascii = jarg_bool(r, a[0], false)};
    d.sort = jarg_bool(r, a[3], false);
    set_indent(&d, a[1]);
    d.between = jstr_lit(r, d.lines ? "," : ", ");
    d.colon = jstr_lit(r, ": ");
    if (jarg_given(a[2])) {
        const struct jlist *pair = jval_items(r, a[2]);
        if (pair->n != 2)
            jrun_fail(r, "separators must be two strings");
        d.between = jarg_str(r, pair->items[0]);
        d.colon = jarg_str(r, pair->items[1]);
    }
    put_value(&d, v);
    return jval_str(jsb_done(&d.b));
}
