/* unevaluatedProperties and unevaluatedItems, in words of additionalProperties and items.
 *
 * Where one of them stands, a merged schema has a list of what its parts evaluate: {NAME: true, of
 * properties; ITEMS: true} under EVALUATED. The list goes on from a schema to each of its options,
 * and what is left when there are no more becomes a keyword that the rest knows. A schema of ours
 * is told from a client's by the mark in that list, which is no other's pointer. */
#include "grammar/json_schema.h"

#include <string.h>

#define EVALUATED                                                                                  \
    "\x01"                                                                                         \
    "evaluated"
#define ITEMS                                                                                      \
    "\x01"                                                                                         \
    "items"

/* Is it no name of ours in such a list? Properties of these names count as evaluated by nobody. */
static bool is_plain(const char *name)
{
    return (uint8_t)name[0] > 1;
}

/* Is the part marked with what it evaluates? */
static bool is_ours(const struct schema *s, const json_t *part)
{
    return s->mark && json_object_get(json_object_get(part, EVALUATED), "") == s->mark;
}

/* Does the schema say nothing by way of others, so that it evaluates what it describes itself? */
static bool is_alone(const json_t *part)
{
    static const char *const others[] = {"allOf",
                                         "anyOf",
                                         "oneOf",
                                         "not",
                                         "if",
                                         "$ref",
                                         "$dynamicRef",
                                         "$recursiveRef",
                                         "dependentSchemas",
                                         "dependencies"};
    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++)
        if (json_object_get(part, others[i]))
            return false;
    return true;
}

/* Such a keyword of a part that is alone says what additionalProperties or items does. Otherwise it
 * stays, and what the parts evaluate is kept with it; that can be at the top only, as it sees
 * nothing of what stands beside its part. */
bool schema_read_unevaluated(
    struct schema *s, json_t *part, const json_t *contains, json_t *m, uint32_t depth)
{
    static const char *const keys[2][2] = {{"unevaluatedProperties", "additionalProperties"},
                                           {"unevaluatedItems", "items"}};
    for (int i = 0; i < 2; i++) {
        json_t *v = json_object_get(part, keys[i][0]);
        if (!v || is_ours(s, part))
            continue;
        if (is_alone(part) && !(i == 1 && contains)) {
            if (!json_object_get(part, keys[i][1]))
                json_object_set(part, keys[i][1], v);
            json_object_del(part, keys[i][0]);
            continue;
        }
        if (depth > 0 || json_object_size(m) > 0) {
            schema_fail(s, keys[i][0], "is supported at the top of what allOf, anyOf, $ref join");
            return false;
        }
        if (!s->mark)
            s->mark = json_object();
        json_object_set_new(m, EVALUATED, json_pack("{s:O}", "", s->mark));
    }
    return true;
}

bool schema_note_evaluated(struct schema *s, const json_t *part, json_t *m)
{
    static const char *const described[] = {
        "additionalProperties", "patternProperties", "items", "prefixItems"};
    json_t *all = json_object_get(m, EVALUATED), *v;
    const char *key;
    if (is_ours(s, part)) {
        if (!all)
            json_object_set_new(m, EVALUATED, all = json_object());
        json_object_update(all, json_object_get(part, EVALUATED));
        return true;
    }
    for (size_t i = 0; all && s->n_negated > 0 && i < 4; i++) {
        if (!json_object_get(part, described[i]))
            continue;
        schema_fail(s, "not", "is not supported beside unevaluatedProperties or -Items");
        return false;
    }
    if (!all || s->n_negated > 0)
        return true;
    json_object_foreach(json_object_get(part, "properties"), key, v)
    {
        if (is_plain(key))
            json_object_set_new(all, key, json_true());
    }
    if (json_object_get(part, "items"))
        json_object_set_new(all, ITEMS, json_true());
    return true;
}

void schema_mark_negated(json_t *schema)
{
    json_object_set_new_nocheck(schema, SCHEMA_NEGATED, json_true());
}

json_t *schema_negated_all(json_t *schema)
{
    json_t *all = json_pack("{s:[O]}", "allOf", schema);
    schema_mark_negated(all);
    return all;
}

json_t *schema_negated_options(json_t *list)
{
    json_t *out = json_array();
    for (size_t i = 0; i < json_array_size(list); i++)
        json_array_append_new(out, schema_negated_all(json_array_get(list, i)));
    return out;
}

/* All parts are known: what is left becomes a keyword that the rest knows. */
void schema_settle_evaluated(struct schema *s, json_t *m)
{
    json_t *all = json_object_get(m, EVALUATED), *properties, *v;
    json_t *of_properties = json_object_get(m, "unevaluatedProperties");
    json_t *of_items = json_object_get(m, "unevaluatedItems");
    const char *key;
    if (!is_ours(s, m) || json_object_get(m, "anyOf") || json_object_get(m, "oneOf"))
        return; /* each option has more to say */
    if (of_properties && !json_object_get(m, "additionalProperties")) {
        properties = json_object();
        json_object_foreach(json_object_get(m, "properties"), key, v)
        {
            bool known = is_plain(key) && json_object_get(all, key);
            json_object_set_new(properties,
                                key,
                                known ? json_incref(v)
                                      : json_pack("{s:[O,O]}", "allOf", v, of_properties));
        }
        json_object_set_new(m, "properties", properties);
        json_object_set(m, "additionalProperties", of_properties);
    }
    if (of_items && !json_object_get(all, ITEMS)) {
        json_t *found = json_object_get(m, "contains");
        if (found && !s->old_contains)
            json_object_set_new(m, "items", json_pack("{s:[O,O]}", "anyOf", of_items, found));
        else
            json_object_set(m, "items", of_items);
    }
    json_object_del(m, "unevaluatedProperties");
    json_object_del(m, "unevaluatedItems");
    json_object_del(m, EVALUATED);
}

bool schema_has_unevaluated(const json_t *m)
{
    return json_object_get(m, EVALUATED) != NULL;
}

bool schema_is_evaluated_list(const struct schema *s, const json_t *part, const char *key)
{
    return strcmp(key, EVALUATED) == 0 && is_ours(s, part);
}
