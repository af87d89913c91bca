/* Where the references of a JSON schema lead: pointers, anchors, the root's own id. */
#include "grammar/json_pointer.h"
#include "grammar/json_schema.h"

#include <string.h>

bool schema_is_ref(const char *key)
{
    return strcmp(key, "$ref") == 0 || strcmp(key, "$dynamicRef") == 0 ||
           strcmp(key, "$recursiveRef") == 0;
}

/* Subschemas of v with `key`, a string that is `value` (NULL: any); *found is the last of them. */
static int count_with(struct schema *s,
                      const json_t *v,
                      const char *key,
                      const char *value,
                      uint32_t depth,
                      const json_t **found)
{
    const char *name, *text = json_string_value(json_object_get(v, key));
    json_t *x;
    int n = text && (!value || strcmp(text, value) == 0);
    if (n)
        *found = v;
    if (depth > 500)
        schema_fail(s, NULL, "nested too deeply");
    if (!schema_works(s))
        return n;
    json_object_foreach((json_t *)v, name, x)
    {
        if (json_is_object(x) || json_is_array(x))
            n += count_with(s, x, key, value, depth + 1, found);
    }
    for (size_t i = 0; i < json_array_size(v); i++) {
        x = json_array_get(v, i);
        if (json_is_object(x) || json_is_array(x))
            n += count_with(s, x, key, value, depth + 1, found);
    }
    return n;
}

/* A part of the document with an "$id" of its own is a document of its own, in which "#" means
 * another place: such schemas are refused where they refer to anything. */
static bool has_inner_ids(struct schema *s)
{
    const json_t *last = NULL;
    if (s->n_ids == 0) /* not counted yet */
        s->n_ids = 1 + count_with(s, s->root, "$id", NULL, 0, &last) -
                   json_is_string(json_object_get(s->root, "$id"));
    return s->n_ids > 1;
}

/* The place of "#name": $anchor, or $dynamicAnchor, of which there must be one. */
static const json_t *find_anchor(struct schema *s, const char *key, const char *name)
{
    const json_t *at = NULL;
    int n = count_with(s, s->root, "$anchor", name, 0, &at) +
            count_with(s, s->root, "$dynamicAnchor", name, 0, &at);
    if (n > 1)
        schema_fail(s, key, "there are several anchors of this name");
    return n == 1 ? at : NULL;
}

const json_t *schema_resolve(struct schema *s, const char *key, const json_t *ref)
{
    const char *text = json_local_ref(s->root, json_string_value(ref));
    if (!text || text[0] != '#') {
        schema_fail(s, key, "only references within the schema, \"#/...\", are supported");
        return NULL;
    }
    s->work += (uint32_t)(json_string_length(ref) / 64); /* it is read each time */
    if (!schema_works(s))
        return NULL;
    if (has_inner_ids(s)) {
        schema_fail(s, key, "is not supported in a schema with an \"$id\" below its root");
        return NULL;
    }
    const bool anchor = text[1] != '/' && text[1] != '\0';
    const json_t *at = anchor ? find_anchor(s, key, text + 1) : json_pointer(s->root, text);
    if (!at)
        schema_fail(s, key, "there is nothing there");
    return at;
}
