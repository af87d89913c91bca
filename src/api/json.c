/* jansson on the way in, plain appends on the way out.
 *
 * What jansson refuses (nesting over 2048, numbers that no double is, \u0000, bad UTF-8) comes out
 * as a 400 with its place in the body. Its strings carry no NUL, so they serve as C strings too. */
#include "api/json.h"

#include "base/mem.h"
#include "base/utf8.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SMALL_BYTES = 64 << 10 };
static _Thread_local bool starved, loading;

/* What is read from a client may fail at each byte; what is built of it, in small pieces without a
 * check of each, only where a piece is large. */
static void *json_alloc(size_t n)
{
    if (!loading && n < SMALL_BYTES)
        return mem_alloc(n);
    void *p = malloc(n);
    starved |= !p;
    return p;
}

void api_json_watch(void)
{
    json_set_alloc_funcs(json_alloc, free);
}

bool api_json_starved(void)
{
    const bool was = starved;
    starved = false;
    return was;
}

/* A byte order mark, which Windows' tools put before what they write, is passed over. */
json_t *api_json_load(const char *text, size_t n_bytes, size_t flags, json_error_t *je)
{
    static const char mark[] = "\xef\xbb\xbf";
    if (n_bytes >= sizeof mark - 1 && memcmp(text, mark, sizeof mark - 1) == 0) {
        text += sizeof mark - 1;
        n_bytes -= sizeof mark - 1;
    }
    const bool before = starved; /* of something else, which is still to be told */
    starved = false;
    loading = true;
    json_t *v = json_loadb(text, n_bytes, flags, je);
    struct buf wide = {.may_fail = true};
    if (!v && json_error_code(je) == json_error_numeric_overflow &&
        json_text_widen(text, n_bytes, &wide))
        v = json_loadb(wide.data, wide.len, flags, je);
    starved |= wide.failed;
    loading = false;
    buf_deinit(&wide);
    if (starved) {
        json_decref(v);
        v = NULL;
    }
    starved |= before;
    return v;
}

enum err api_json_parse(const char *body, size_t n_bytes, json_t **out, struct err_info *e)
{
    json_error_t je;
    *out = api_json_load(body, n_bytes, 0, &je);
    if (!*out) {
        enum json_error_code code = json_error_code(&je);
        if (api_json_starved() || code == json_error_out_of_memory)
            return err_set(e, ERR_NOMEM, "no memory to parse the body");
        const char *why = je.text;
        if (code == json_error_null_character || code == json_error_null_byte_in_key)
            why = "\\u0000 is not allowed";
        return err_set(e,
                       ERR_INVALID,
                       "the body is not valid JSON: %s (line %d, column %d)",
                       n_bytes ? why : "it is empty",
                       je.line,
                       je.column);
    }
    if (!json_is_object(*out)) {
        const char *kind = api_json_kind(*out);
        json_decref(*out);
        *out = NULL;
        return err_set(e, ERR_INVALID, "the body must be a JSON object, not %s", kind);
    }
    return OK;
}

const char *api_json_kind(const json_t *v)
{
    switch (json_typeof(v)) {
    case JSON_OBJECT:
        return "an object";
    case JSON_ARRAY:
        return "an array";
    case JSON_STRING:
        return "a string";
    case JSON_INTEGER:
        return "an integer";
    case JSON_REAL:
        return json_real_value(v) == floor(json_real_value(v)) ? "a number"
                                                               : "a number with a fraction";
    case JSON_TRUE:
    case JSON_FALSE:
        return "a boolean";
    case JSON_NULL:
        break;
    }
    return "null";
}

enum err api_wrong_type(const char *field, const char *wanted, const json_t *v, struct err_info *e)
{
    return err_invalid(e, field, "'%s' must be %s, not %s", field, wanted, api_json_kind(v));
}

void api_rename_field(struct err_info *e, const char *from, const char *to)
{
    char rest[sizeof e->text], element[16];
    const size_t n = strlen(from);
    if (strncmp(e->field, from, n) != 0)
        return;
    snprintf(element, sizeof element, "%.15s", e->field + n);
    snprintf(rest, sizeof rest, "'%s'", e->field);
    char *at = strstr(e->text, rest);
    const size_t n_quoted = strlen(rest);
    snprintf(e->field, sizeof e->field, "%.40s%s", to, element);
    if (!at)
        return;
    snprintf(rest, sizeof rest, "%s", at + n_quoted);
    snprintf(at, sizeof e->text - (size_t)(at - e->text), "'%s'%s", e->field, rest);
}

const json_t *api_get(const json_t *o, const char *name)
{
    const json_t *v = json_object_get(o, name);
    return v && !json_is_null(v) ? v : NULL;
}

enum err api_get_metadata(const json_t *body, json_t **out, struct err_info *e)
{
    enum { MOST = 16, KEY_BYTES = 64, VALUE_BYTES = 512 };
    const char *key;
    json_t *v;
    enum err err = api_get_object(body, "metadata", "an object of strings", out, e);
    if (err)
        return err;
    if (json_object_size(*out) > MOST)
        return err_invalid(e,
                           "metadata",
                           "'metadata' has %zu entries; at most %d are allowed",
                           json_object_size(*out),
                           MOST);
    json_object_foreach(*out, key, v)
    {
        char field[64];
        snprintf(field, sizeof field, "metadata.%.40s", key);
        if (!json_is_string(v))
            return api_wrong_type(field, "a string", v, e);
        if (strlen(key) > KEY_BYTES || json_string_length(v) > VALUE_BYTES)
            return err_invalid(e,
                               "metadata",
                               "'metadata' may have keys of %d and values of %d bytes",
                               KEY_BYTES,
                               VALUE_BYTES);
    }
    return OK;
}

const char *api_text_at(const json_t *o, const char *name)
{
    const char *s = json_string_value(json_object_get(o, name));
    return s ? s : "";
}

void api_set_default(json_t *body, const char *name, json_t *value)
{
    if (!api_get(body, name))
        json_object_set_new(body, name, value);
    else
        json_decref(value);
}

enum err api_get_bool(const json_t *o, const char *name, bool *out, struct err_info *e)
{
    const json_t *v = api_get(o, name);
    if (!v)
        return OK;
    if (!json_is_boolean(v))
        return api_wrong_type(name, "a boolean", v, e);
    *out = json_is_true(v);
    return OK;
}

bool api_is_whole(const json_t *v, int64_t *out)
{
    const double d = json_is_real(v) ? json_real_value(v) : 0.5;
    const bool whole = d == floor(d) && fabs(d) < 9223372036854775808.0; /* 2^63 */
    if (json_is_integer(v))
        *out = json_integer_value(v);
    else if (whole)
        *out = (int64_t)d;
    return json_is_integer(v) || whole;
}

enum err api_int_of(
    const json_t *v, const char *field, int64_t lo, int64_t hi, int64_t *out, struct err_info *e)
{
    int64_t i;
    if (json_is_integer(v)) {
        i = json_integer_value(v);
    } else {
        double d = json_is_real(v) ? json_real_value(v) : 0.5;
        if (d != floor(d))
            return api_wrong_type(field, "an integer", v, e);
        if (d < (double)lo || d > (double)hi || fabs(d) >= 9223372036854775808.0) /* 2^63 */
            return err_invalid(e,
                               field,
                               "'%s' must be from %lld to %lld, not %.17g",
                               field,
                               (long long)lo,
                               (long long)hi,
                               d);
        if (fabs(d) > 9007199254740992.0) /* 2^53: exact until there */
            return api_wrong_type(field, "written as an integer", v, e);
        i = (int64_t)d;
    }
    if (i < lo || i > hi)
        return err_invalid(e,
                           field,
                           "'%s' must be from %lld to %lld, not %lld",
                           field,
                           (long long)lo,
                           (long long)hi,
                           (long long)i);
    *out = i;
    return OK;
}

enum err api_get_int(
    const json_t *o, const char *name, int64_t lo, int64_t hi, int64_t *out, struct err_info *e)
{
    const json_t *v = api_get(o, name);
    return v ? api_int_of(v, name, lo, hi, out, e) : OK;
}

enum err api_get_real(
    const json_t *o, const char *name, double lo, double hi, double *out, struct err_info *e)
{
    const json_t *v = api_get(o, name);
    if (!v)
        return OK;
    if (!json_is_number(v))
        return api_wrong_type(name, "a number", v, e);
    double d = json_number_value(v);
    if (!(d >= lo && d <= hi))
        return err_invalid(e, name, "'%s' must be from %g to %g, not %g", name, lo, hi, d);
    *out = d;
    return OK;
}

json_t *api_own_object(json_t *body, const char *name)
{
    const json_t *v = api_get(body, name);
    if (v && !json_is_object(v))
        return NULL;
    json_t *own = v ? json_copy((json_t *)v) : json_object();
    return json_object_set_new(body, name, own) == 0 ? own : NULL;
}

json_t *api_json_string(const struct buf *text)
{
    if (text->failed)
        starved = true;
    return text->failed ? NULL : json_stringn(text->len ? text->data : "", text->len);
}

enum err api_get_str(const json_t *o, const char *name, struct gguf_str *out, struct err_info *e)
{
    const json_t *v = api_get(o, name);
    if (!v)
        return OK;
    if (!json_is_string(v))
        return api_wrong_type(name, "a string", v, e);
    *out = (struct gguf_str){json_string_value(v), json_string_length(v)};
    return OK;
}

static enum err get_typed(const json_t *o,
                          const char *name,
                          json_type type,
                          const char *wanted,
                          json_t **out,
                          struct err_info *e)
{
    *out = (json_t *)api_get(o, name);
    return !*out || json_typeof(*out) == type ? OK : api_wrong_type(name, wanted, *out, e);
}

enum err api_get_array(
    const json_t *o, const char *name, const char *wanted, json_t **out, struct err_info *e)
{
    return get_typed(o, name, JSON_ARRAY, wanted, out, e);
}

enum err api_get_object(
    const json_t *o, const char *name, const char *wanted, json_t **out, struct err_info *e)
{
    return get_typed(o, name, JSON_OBJECT, wanted, out, e);
}

void api_put_str(struct buf *b, const char *s, size_t n)
{
    buf_char(b, '"');
    json_text_escape(b, s, n);
    buf_char(b, '"');
}

void api_put_text(struct buf *b, const char *s, size_t n)
{
    if (utf8_valid(s, n)) {
        api_put_str(b, s, n);
        return;
    }
    struct utf8_stream u = {0};
    struct buf clean = {0};
    utf8_feed(&u, s, n, true, &clean);
    api_put_str(b, clean.data, clean.len);
    buf_deinit(&clean);
}

void api_put_int(struct buf *b, int64_t v)
{
    char digits[20];
    size_t at = sizeof digits;
    /* the smallest integer has no positive twin, hence unsigned */
    uint64_t u = v < 0 ? 0 - (uint64_t)v : (uint64_t)v;
    do {
        digits[--at] = (char)('0' + u % 10);
        u /= 10;
    } while (u);
    if (v < 0)
        digits[--at] = '-';
    buf_add(b, digits + at, sizeof digits - at);
}

/* A JSON number has a point, whatever the locale says. */
static void put_number(struct buf *b, char *s)
{
    char *comma = strchr(s, ',');
    if (comma)
        *comma = '.';
    buf_str(b, s);
}

/* The fewest digits from `least` on, at most three more, that read back as v. %g drops trailing
 * zeros, so for all that need fewer they are the shortest too. */
static void put_shortest(struct buf *b, double v, int least, bool is_float)
{
    char s[32];
    if (!isfinite(v)) {
        buf_str(b, isinf(v) && v < 0 ? "-9999" : "0");
        return;
    }
    for (int digits = least; digits <= least + 3; digits++) {
        snprintf(s, sizeof s, "%.*g", digits, v);
        if (is_float ? strtof(s, NULL) == (float)v : strtod(s, NULL) == v)
            break;
    }
    put_number(b, s);
}

void api_put_float(struct buf *b, float v)
{
    put_shortest(b, (double)v, 6, true);
}

void api_put_double(struct buf *b, double v)
{
    put_shortest(b, v, 15, false);
}

void api_put_value(struct buf *b, float v)
{
    static const double tens[] = {
        1e0, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11, 1e12, 1e13, 1e14, 1e15};
    const double size = fabs((double)v);
    if (!(size >= 1e-7 && size < 1e8)) {
        api_put_float(b, v);
        return;
    }
    int k = 8; /* size * 10^k has nine digits before its point: an exact factor, and one rounding */
    while (size * tens[k] < 1e8)
        k++;
    while (size * tens[k] >= 1e9)
        k--;
    char s[24];
    uint64_t digits = (uint64_t)(size * tens[k] + 0.5);
    while (k > 0 && digits % 10 == 0) {
        digits /= 10;
        k--;
    }
    size_t at = sizeof s;
    const bool whole = k == 0;
    for (; k > 0; k--, digits /= 10)
        s[--at] = (char)('0' + digits % 10);
    if (!whole)
        s[--at] = '.';
    do
        s[--at] = (char)('0' + digits % 10);
    while (digits /= 10);
    if (v < 0)
        s[--at] = '-';
    buf_add(b, s + at, sizeof s - at);
}

void api_put_items(struct buf *b, const char *begin, const struct buf *items)
{
    buf_str(b, begin);
    buf_join(b, items);
    buf_char(b, ']');
}

void api_field(struct buf *b, const char *name)
{
    if (b->len > 0 && b->data[b->len - 1] != '{')
        buf_char(b, ',');
    buf_char(b, '"');
    buf_str(b, name);
    buf_str(b, "\":");
}

void api_field_int(struct buf *b, const char *name, int64_t v)
{
    api_field(b, name);
    api_put_int(b, v);
}

void api_field_real(struct buf *b, const char *name, double v)
{
    api_field(b, name);
    api_put_double(b, v);
}

void api_field_bool(struct buf *b, const char *name, bool v)
{
    api_field(b, name);
    buf_str(b, v ? "true" : "false");
}

void api_field_text(struct buf *b, const char *name, const char *s)
{
    if (!s) {
        api_field_null(b, name);
        return;
    }
    api_field(b, name);
    api_put_text(b, s, strlen(s));
}

void api_field_null(struct buf *b, const char *name)
{
    api_field(b, name);
    buf_str(b, "null");
}
