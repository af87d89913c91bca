/* Schemas that no value satisfies both of: where oneOf needs nothing else. */
#include "grammar/json_schema.h"

#include <string.h>

/* Types that values of a merged schema may have, by what it says itself. */
static uint32_t possible_types(struct schema *s, const json_t *m)
{
    uint32_t types = TYPE_ALL;
    const json_t *list = json_object_get(m, "enum"), *one = json_object_get(m, "const");
    if (json_object_get(m, "type") && !schema_types(s, m, &types))
        return TYPE_ALL;
    if (one)
        types &= schema_type_of(one);
    if (json_is_array(list)) {
        uint32_t of_list = 0;
        for (size_t i = 0; i < json_array_size(list); i++)
            of_list |= schema_type_of(json_array_get(list, i));
        types &= of_list;
    }
    return types & TYPE_NUMBER ? types | TYPE_INTEGER : types;
}

/* Does m list its values, none of which is in other's list? */
static bool values_apart(struct schema *s, const json_t *x, const json_t *y)
{
    json_t *lists[2];
    const json_t *both[2] = {x, y};
    for (int i = 0; i < 2; i++) {
        json_t *one = json_object_get(both[i], "const"), *list = json_object_get(both[i], "enum");
        lists[i] = one ? json_pack("[O]", one) : json_incref(list);
    }
    bool apart = json_is_array(lists[0]) && json_is_array(lists[1]);
    for (size_t i = 0; apart && i < json_array_size(lists[0]); i++) {
        const json_t *v = json_array_get(lists[0], i);
        for (size_t k = 0; apart && k < json_array_size(lists[1]); k++) {
            const json_t *w = json_array_get(lists[1], k);
            apart = schema_works(s) && !json_is_object(v) && /* numbers within are not compared */
                    !json_is_array(v) && !schema_same_value(v, w);
        }
    }
    json_decref(lists[0]);
    json_decref(lists[1]);
    return apart;
}

static bool requires(const json_t *m, const char *key)
{
    const json_t *list = json_object_get(m, "required");
    for (size_t i = 0; i < json_array_size(list); i++) {
        const char *name = json_string_value(json_array_get(list, i));
        if (name && strcmp(name, key) == 0)
            return true;
    }
    return false;
}

/* Does some member tell the objects apart: one that one side must have and the other cannot have,
 * or whose values have nothing in common? */
static bool members_apart(struct schema *s, const json_t *x, const json_t *y)
{
    const json_t *px = json_object_get(x, "properties"), *py = json_object_get(y, "properties");
    bool y_closed = json_is_false(json_object_get(y, "additionalProperties")) &&
                    !json_object_get(y, "patternProperties");
    const char *key;
    json_t *v;
    json_object_foreach((json_t *)px, key, v)
    {
        const json_t *other = json_object_get(py, key);
        s->work += (uint32_t)(json_array_size(json_object_get(x, "required")) +
                              json_array_size(json_object_get(y, "required"))) /
                   16;
        if (!schema_works(s))
            break;
        bool x_must = requires(x, key);
        if (!other && x_must && y_closed)
            return true;
        if (other && (x_must || requires(y, key)) && schema_disjoint(s, v, other))
            return true;
        if (builder_failed(s->b))
            break;
    }
    return false;
}

bool schema_disjoint(struct schema *s, const json_t *x, const json_t *y)
{
    if (!schema_works(s) || s->depth >= SCHEMA_MAX_DEPTH)
        return false;
    s->depth++;
    json_t *a = schema_merge(s, x), *b = schema_merge(s, y);
    bool apart = false;
    if (json_is_false(a) || json_is_false(b)) {
        apart = true;
    } else if (a && b) {
        uint32_t types = possible_types(s, a) & possible_types(s, b);
        apart = types == 0 || values_apart(s, a, b) ||
                (types == TYPE_OBJECT && (members_apart(s, a, b) || members_apart(s, b, a)));
    }
    json_decref(a);
    json_decref(b);
    s->depth--;
    return apart && !builder_failed(s->b);
}
