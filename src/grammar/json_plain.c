/* Strings without quotes, for formats that write them as they are up to a mark. */
#include "grammar/json_schema.h"

#include <string.h>

#define LONGEST 1000u /* characters, where a length is kept; a longer maxLength counts as that */
#define SHORTER 100u  /* the same where that is too large */

static grammar_node any_char(struct grammar_builder *b)
{
    static const struct grammar_range all = {1, 0x10ffff};
    return grammar_chars(b, 1, &all);
}

static struct dfa *lengths(struct grammar_builder *b, uint32_t min, uint32_t max)
{
    return min > max ? NULL : dfa_create(b, grammar_repeat(b, any_char(b), min, max));
}

bool grammar_plain_string(struct grammar_builder *b,
                          const json_t *schema,
                          const char *where,
                          const char *without,
                          grammar_node *out)
{
    struct schema s = {.b = b, .root = schema};
    const json_t *pattern = json_object_get(schema, "pattern"); /* of several parts: a list */
    const json_t *refused = json_object_get(json_object_get(schema, "not"), "enum");
    const char *format = json_string_value(json_object_get(schema, "format"));
    bool bounded = json_object_get(schema, "minLength") || json_object_get(schema, "maxLength");
    uint32_t min = 0, max = GRAMMAR_NO_LIMIT;
    grammar_node node, any = grammar_repeat(b, any_char(b), 0, GRAMMAR_NO_LIMIT);
    buf_str(&s.path, where);
    bool counted =
        schema_count(&s, schema, "minLength", &min) && schema_count(&s, schema, "maxLength", &max);
    buf_deinit(&s.path);
    bool known = format && json_format(b, format, &node);
    if (builder_failed(b) || !counted || (!pattern && !refused && !known && !bounded))
        return false;
    uint32_t most = max < LONGEST ? max : LONGEST;
    struct dfa *d = lengths(b, min, bounded ? most : LONGEST);
    if (!bounded) {
        dfa_destroy(d);
        d = dfa_create(b, any);
    } else if (!d) {
        d = lengths(b, min, max < SHORTER ? max : SHORTER);
    }
    if (known)
        (void)dfa_narrow(b, &d, node, false);
    for (size_t i = 0; i < (json_is_array(pattern) ? json_array_size(pattern) : 1); i++) {
        const char *text =
            json_string_value(json_is_array(pattern) ? json_array_get(pattern, i) : pattern);
        if (text)
            (void)dfa_narrow(b, &d, regex_node(b, text, strlen(text), false, true, where), false);
    }
    for (size_t i = 0; i < json_array_size(refused); i++) {
        const json_t *v = json_array_get(refused, i);
        if (json_is_string(v))
            (void)dfa_narrow(
                b, &d, grammar_literal(b, json_string_value(v), json_string_length(v)), true);
    }
    grammar_node mark = grammar_literal(b, without, strlen(without));
    (void)dfa_narrow(b, &d, SEQ(b, any, mark, any), true);
    bool ok = d && !builder_failed(b) && !dfa_empty(d);
    if (ok)
        *out = dfa_node(b, d);
    dfa_destroy(d);
    return ok;
}
