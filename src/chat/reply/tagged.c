/* Calls with a tag for each argument: Qwen 3.5 and Qwen3-Coder, GLM, DeepSeek since 3.2, MiniMax.
 *
 *      OPEN NAME_OPEN name NAME_CLOSE KEY_OPEN key KEY_CLOSE VALUE_OPEN value VALUE_CLOSE ...
 *           CALL_CLOSE  ...  CLOSE
 *
 * Values are plain text; what JSON they mean follows from the type that the tool's schema gives the
 * argument: a string goes out as it comes, anything else when it is whole. Where the schema does
 * not say, what reads as JSON is JSON. A value ends at the first closing tag, whatever it means. */
#include "chat/reply/internal.h"

#include <string.h>

enum at { BEFORE_NAME, IN_NAME, IN_CALL, IN_KEY, BEFORE_VALUE, IN_VALUE, AFTER };

static const struct tagged_spec *spec_of(const struct reply_parser *p)
{
    return p->format->spec;
}

static void reset(struct tagged_state *t)
{
    t->at = BEFORE_NAME;
    t->begun = false;
    t->first = true;
    buf_clear(&t->name);
}

/* From here on raw is looked at for the next mark. */
static void go(struct reply_parser *p, enum at at)
{
    p->tagged.at = (uint8_t)at;
    if (p->tagged.begun)
        buf_clear(&p->raw);
    p->tagged.mark_at = p->raw.len;
}

void tagged_enter(struct reply_parser *p, const char *mark)
{
    reset(&p->tagged);
    bool named = spec_of(p)->name_open && strcmp(mark, spec_of(p)->name_open) == 0;
    go(p, named || !spec_of(p)->name_open ? IN_NAME : BEFORE_NAME);
}

/* The byte at hand, last in raw, cannot stand here: what is not part of a call is text again. */
static bool fail_at_last(struct reply_parser *p)
{
    p->raw.len--;
    reply_give_back(p);
    return false;
}

/* Of several marks, white space before them: which is there? `waits`: one may come yet. */
static const char *next_mark(struct reply_parser *p,
                             const char *const *marks,
                             size_t n_marks,
                             bool *waits)
{
    size_t at = p->tagged.mark_at;
    while (at < p->raw.len && reply_is_space(p->raw.data[at]))
        at++;
    *waits = at == p->raw.len;
    for (size_t i = 0; i < n_marks && at < p->raw.len; i++) {
        if (!marks[i] || !reply_starts(marks[i], p->raw.data + at, p->raw.len - at))
            continue;
        if (strlen(marks[i]) == p->raw.len - at)
            return marks[i];
        *waits = true;
    }
    return NULL;
}

/* ---- values ---- */

static const char *type_name(const json_t *v)
{
    static const char *const names[] = {[JSON_OBJECT] = "object",
                                        [JSON_ARRAY] = "array",
                                        [JSON_STRING] = "string",
                                        [JSON_INTEGER] = "integer",
                                        [JSON_REAL] = "number",
                                        [JSON_TRUE] = "boolean",
                                        [JSON_FALSE] = "boolean",
                                        [JSON_NULL] = "null"};
    return names[json_typeof(v)];
}

static bool has_value_of(const json_t *list, const char *type)
{
    for (size_t i = 0; i < json_array_size(list); i++)
        if (strcmp(type_name(json_array_get(list, i)), type) == 0)
            return true;
    return false;
}

/* Does a schema allow this type? What says nothing of types allows all; *told says which. Types
 * follow from "type", else from the values of enum or const, else from the options of anyOf. *left
 * more schemas are looked at. */
static bool allows_within(const json_t *root,
                          const json_t *schema,
                          const char *type,
                          bool *told,
                          int depth,
                          uint32_t *left)
{
    *told = false;
    if (*left == 0)
        return true;
    --*left;
    schema = reply_resolve(root, schema);
    const json_t *v = json_object_get(schema, "type"), *list = json_object_get(schema, "enum");
    const json_t *one = json_object_get(schema, "const"), *any = json_object_get(schema, "anyOf");
    bool found = false;
    *told = true;
    if (json_is_string(v))
        return strcmp(json_string_value(v), type) == 0;
    for (size_t i = 0; i < json_array_size(v); i++) {
        const char *s = json_string_value(json_array_get(v, i));
        found |= s && strcmp(s, type) == 0;
    }
    if (json_is_array(v))
        return found;
    if (json_array_size(list) > 0)
        return has_value_of(list, type);
    if (one)
        return strcmp(type_name(one), type) == 0;
    any = any ? any : json_object_get(schema, "oneOf");
    if (!any && json_array_size(json_object_get(schema, "allOf")) == 1)
        any = json_object_get(schema, "allOf");
    for (size_t i = 0; depth > 0 && i < json_array_size(any); i++) {
        bool one_told = false;
        found |= allows_within(root, json_array_get(any, i), type, &one_told, depth - 1, left);
        *told &= one_told;
    }
    if (depth > 0 && json_array_size(any) > 0)
        return found;
    *told = false;
    return true;
}

static bool allows(const json_t *root, const json_t *schema, const char *type, bool *told)
{
    uint32_t left = REPLY_MAX_SCHEMAS;
    return allows_within(root, schema, type, told, 4, &left);
}

uint32_t reply_types(const json_t *root, const json_t *schema)
{
    static const char *const names[] = {
        "string", "object", "array", "integer", "number", "boolean", "null"};
    uint32_t types = 0;
    bool told = false;
    for (uint32_t i = 0; i < sizeof names / sizeof names[0]; i++)
        types |= (uint32_t)allows(root, schema, names[i], &told) << i;
    return types << 1 | told;
}

static const json_t *root_of(const struct reply_parser *p)
{
    return reply_parameters(p, buf_cstr((struct buf *)&p->tagged.name));
}

static const json_t *schema_of(struct reply_parser *p)
{
    return reply_parameter(p, buf_cstr(&p->tagged.name), buf_cstr(&p->tagged.key));
}

/* A string and nothing else. */
static bool only_string(const json_t *root, const json_t *schema)
{
    static const char *const others[] = {"object", "array", "integer", "number", "boolean", "null"};
    bool told, string = allows(root, schema, "string", &told);
    for (size_t i = 0; told && string && i < sizeof others / sizeof others[0]; i++) {
        bool unused;
        string = !allows(root, schema, others[i], &unused);
    }
    return told && string;
}

/* Is v, which a value reads as, of a type that the schema asks for? */
static bool fits(const json_t *root, const json_t *schema, const json_t *v)
{
    bool told;
    switch (json_typeof(v)) {
    case JSON_OBJECT:
        return allows(root, schema, "object", &told);
    case JSON_ARRAY:
        return allows(root, schema, "array", &told);
    case JSON_STRING:
        return !allows(root, schema, "string", &told) || !told;
    case JSON_INTEGER:
        return allows(root, schema, "integer", &told) || allows(root, schema, "number", &told);
    case JSON_REAL:
        return allows(root, schema, "number", &told);
    case JSON_TRUE:
    case JSON_FALSE:
        return allows(root, schema, "boolean", &told);
    case JSON_NULL:
        break;
    }
    return allows(root, schema, "null", &told);
}

static void put_string(struct reply_parser *p, const char *s, size_t n)
{
    struct buf escaped = {0};
    json_escape_add(&escaped, s, n);
    reply_arguments(p, escaped.data, escaped.len);
    buf_deinit(&escaped);
}

/* Digits, with a sign or not, more of them than the JSON library's integers have. */
static bool is_long_integer(const struct buf *v)
{
    size_t from = v->len > 0 && v->data[0] == '-';
    if (v->len - from < 19 || v->data[from] == '0')
        return false;
    for (size_t i = from; i < v->len; i++)
        if (v->data[i] < '0' || v->data[i] > '9')
            return false;
    return true;
}

/* A whole value whose type had to wait for its end. What fits no type of the schema is kept as it
 * came: as JSON if it is JSON and no string is allowed, else as a string. */
static void put_value(struct reply_parser *p)
{
    const struct buf *v = &p->tagged.value;
    const json_t *root = root_of(p), *schema = schema_of(p);
    bool told;
    json_t *read = v->len ? json_loadb(v->data, v->len, JSON_DECODE_ANY, NULL) : NULL;
    if (!read && is_long_integer(v)) /* its digits go out as they are */
        read = json_integer(1);
    bool is_json = read && (fits(root, schema, read) || !allows(root, schema, "string", &told));
    json_decref(read);
    if (is_json) {
        reply_arguments(p, v->data, v->len);
        return;
    }
    reply_arguments(p, "\"", 1);
    put_string(p, v->data, v->len);
    reply_arguments(p, "\"", 1);
}

static void value_begins(struct reply_parser *p, bool is_text)
{
    struct tagged_state *t = &p->tagged;
    t->is_text = is_text;
    t->value_begun = t->in_cdata = false;
    buf_clear(&t->value);
    reply_arguments(p, t->first ? "{\"" : ", \"", t->first ? 2 : 3);
    t->first = false;
    put_string(p, t->key.data, t->key.len);
    reply_arguments(p, is_text ? "\": \"" : "\": ", is_text ? 4 : 3);
    go(p, IN_VALUE);
}

static void add_value(struct reply_parser *p, char c)
{
    struct tagged_state *t = &p->tagged;
    bool skip = !t->value_begun && spec_of(p)->lines && c == '\n';
    t->value_begun = true;
    if (skip)
        return;
    if (t->is_text)
        put_string(p, &c, 1);
    else
        buf_char(&t->value, c);
}

/* Is raw the beginning of what opens CDATA, or all of it? */
static bool may_quote(const struct reply_parser *p, bool *whole)
{
    static const char open[] = "<![CDATA[";
    if (!spec_of(p)->cdata || p->tagged.value_begun || p->tagged.in_cdata)
        return false;
    *whole = p->raw.len == sizeof open - 1;
    return reply_starts(open, p->raw.data, p->raw.len);
}

/* Is raw the beginning of the closing tag, with the newline that belongs to it? */
static bool may_close(const struct reply_parser *p, bool *whole)
{
    const char *close = p->tagged.in_cdata ? "]]></param>" : spec_of(p)->value_close;
    size_t skip = spec_of(p)->lines && p->raw.data[0] == '\n';
    *whole = p->raw.len - skip == strlen(close);
    return reply_starts(close, p->raw.data + skip, p->raw.len - skip);
}

static bool value_byte(struct reply_parser *p, char c)
{
    buf_char(&p->raw, c);
    while (p->raw.len > 0) {
        bool whole;
        if (may_quote(p, &whole)) {
            p->tagged.in_cdata = whole;
            if (whole)
                buf_clear(&p->raw);
            return true;
        }
        if (may_close(p, &whole)) {
            if (!whole)
                return true;
            if (p->tagged.is_text)
                reply_arguments(p, "\"", 1);
            else
                put_value(p);
            go(p, IN_CALL);
            return true;
        }
        add_value(p, p->raw.data[0]);
        p->raw.len--;
        memmove(p->raw.data, p->raw.data + 1, p->raw.len);
    }
    return true;
}

/* ---- calls ---- */

static void begin_call(struct reply_parser *p)
{
    struct tagged_state *t = &p->tagged;
    if (t->begun)
        return;
    reply_begin(p, t->name.data, t->name.len, NULL, 0);
    t->begun = true;
}

static void end_call(struct reply_parser *p)
{
    begin_call(p);
    reply_arguments(p, p->tagged.first ? "{}" : "}", p->tagged.first ? 2 : 1);
    reply_end(p);
    reset(&p->tagged);
}

/* Take the name in front of its closing mark, or in front of the first byte that is of no name. */
static bool name_byte(struct reply_parser *p, char c)
{
    struct tagged_state *t = &p->tagged;
    const char *close = spec_of(p)->name_close;
    buf_char(&p->raw, c);
    size_t n = p->raw.len - t->mark_at;
    bool ends = close ? reply_raw_ends(p, close) : !reply_is_name(&c, 1);
    if (!ends)
        return n <= REPLY_MAX_HEAD || fail_at_last(p);
    n -= close ? strlen(close) : 1;
    if (!reply_is_name(p->raw.data + t->mark_at, n))
        return fail_at_last(p);
    buf_clear(&t->name);
    buf_add(&t->name, p->raw.data + t->mark_at, n);
    t->at = IN_CALL;
    t->mark_at = p->raw.len;
    if (close)
        return true;
    p->raw.len--; /* the byte behind is of the call */
    t->mark_at--;
    return tagged_byte(p, c);
}

/* In a call: an argument, or its end. A call begins here, for only now it is sure to be one. */
static bool call_byte(struct reply_parser *p, char c)
{
    const struct tagged_spec *spec = spec_of(p);
    const char *const marks[] = {spec->key_open, spec->call_close, spec->close};
    bool waits;
    buf_char(&p->raw, c);
    const char *mark = next_mark(p, marks, 3, &waits);
    if (!mark)
        return waits || fail_at_last(p);
    begin_call(p);
    if (mark == spec->key_open) {
        buf_clear(&p->tagged.key);
        go(p, IN_KEY);
        return true;
    }
    end_call(p);
    if (mark == spec->close)
        reply_leave(p);
    else
        go(p, AFTER);
    return true;
}

static bool key_byte(struct reply_parser *p, char c)
{
    struct tagged_state *t = &p->tagged;
    const struct tagged_spec *spec = spec_of(p);
    buf_char(&p->raw, c);
    if (!reply_raw_ends(p, spec->key_close))
        return p->raw.len <= REPLY_MAX_HEAD || fail_at_last(p);
    buf_add(&t->key, p->raw.data, p->raw.len - strlen(spec->key_close));
    if (spec->value_open || spec->typed)
        go(p, BEFORE_VALUE);
    else
        value_begins(p, only_string(root_of(p), schema_of(p)));
    return true;
}

static bool before_value_byte(struct reply_parser *p, char c)
{
    static const char is_string[] = "string=\"true\">", is_json[] = "string=\"false\">";
    const struct tagged_spec *spec = spec_of(p);
    const char *const typed[] = {is_string, is_json}, *const open[] = {spec->value_open};
    bool waits;
    buf_char(&p->raw, c);
    const char *mark = next_mark(p, spec->typed ? typed : open, spec->typed ? 2 : 1, &waits);
    if (!mark)
        return waits || fail_at_last(p);
    value_begins(p, spec->typed ? mark == is_string : only_string(root_of(p), schema_of(p)));
    return true;
}

/* Between the calls of a block. */
static bool between_byte(struct reply_parser *p, char c)
{
    const struct tagged_spec *spec = spec_of(p);
    bool before = p->tagged.at == BEFORE_NAME, waits;
    const char *const marks[] = {spec->name_open, before ? NULL : spec->close};
    buf_char(&p->raw, c);
    const char *mark = next_mark(p, marks, 2, &waits);
    if (!mark)
        return waits || fail_at_last(p);
    if (mark == spec->close)
        reply_leave(p);
    else
        go(p, IN_NAME);
    return true;
}

bool tagged_byte(struct reply_parser *p, char c)
{
    switch ((enum at)p->tagged.at) {
    case IN_NAME:
        return name_byte(p, c);
    case IN_CALL:
        return call_byte(p, c);
    case IN_KEY:
        return key_byte(p, c);
    case BEFORE_VALUE:
        return before_value_byte(p, c);
    case IN_VALUE:
        return value_byte(p, c);
    case BEFORE_NAME:
    case AFTER:
        break;
    }
    return between_byte(p, c);
}

void tagged_finish(struct reply_parser *p)
{
    struct tagged_state *t = &p->tagged;
    if (t->begun && t->at == IN_VALUE) { /* what there is of a value */
        if (!t->is_text)
            reply_arguments(p, t->value.data, t->value.len);
    } else if (t->begun && t->at == IN_CALL && !p->cut) {
        end_call(p); /* only the closing tags are missing */
    } else if (!t->begun && t->at != AFTER) {
        reply_give_back(p);
    }
}
