/* response_fields of /completion: which parts of an answer are wanted. Those of the settings, which
 * may be as long as a vocabulary and are the same in all answers, are written once. */
#include "api/native.h"

#include <stdlib.h>
#include <string.h>

enum { MAX_FIELDS = 256, MAX_NAME_BYTES = 1024, FLAGS = JSON_COMPACT | JSON_ENCODE_ANY };

static bool is_listed(const json_t *names, const char *name)
{
    for (size_t i = 0; i < json_array_size(names); i++)
        if (strcmp(json_string_value(json_array_get(names, i)), name) == 0)
            return true;
    return false;
}

enum err native_read_fields(struct native *s, const json_t *body, struct err_info *e)
{
    const char *field = "response_fields";
    json_t *v;
    enum err err = api_get_array(body, field, "an array of names", &v, e);
    if (err || json_array_size(v) == 0)
        return err;
    if (json_array_size(v) > MAX_FIELDS)
        return err_invalid(e, field, "'%s' has more than %d names", field, MAX_FIELDS);
    s->fields = json_array();
    for (size_t i = 0; i < json_array_size(v); i++) {
        json_t *name = json_array_get(v, i);
        if (!json_is_string(name))
            return api_wrong_type(field, "an array of names", name, e);
        if (json_string_length(name) > MAX_NAME_BYTES)
            return err_invalid(
                e, field, "'%s' has a name of more than %d bytes", field, MAX_NAME_BYTES);
        if (!is_listed(s->fields, json_string_value(name)))
            json_array_append(s->fields, name);
    }
    return OK;
}

/* "a/b" is b of the object a. */
static const json_t *field_at(const json_t *o, const char *path)
{
    const char *slash;
    while ((slash = strchr(path, '/'))) {
        o = json_object_getn(o, path, (size_t)(slash - path));
        path = slash + 1;
    }
    return json_object_get(o, path);
}

void native_share_settings(struct native *s, const struct buf *settings)
{
    json_error_t je;
    if (!s->fields || settings->failed)
        return;
    json_t *tree = json_object();
    json_object_set_new(tree,
                        "generation_settings",
                        api_json_load(settings->data, settings->len, JSON_ALLOW_NUL, &je));
    s->shared = json_object();
    for (size_t i = 0; i < json_array_size(s->fields); i++) {
        const char *name = json_string_value(json_array_get(s->fields, i));
        const json_t *v = field_at(tree, name);
        char *text = v ? json_dumps(v, FLAGS | JSON_REAL_PRECISION(17)) : NULL;
        if (text)
            json_object_set_new(s->shared, name, json_string_nocheck(text));
        free(text);
    }
    json_decref(tree);
}

/* One field of the answer `from`, as JSON. */
static void put_field(
    const struct native *s, const json_t *from, const char *name, bool *first, struct buf *out)
{
    const char *shared = json_string_value(json_object_get(s->shared, name));
    const json_t *v = shared ? NULL : field_at(from, name);
    char *own = v ? json_dumps(v, FLAGS | JSON_REAL_PRECISION(15)) : NULL;
    const char *text = shared ? shared : own;
    if (text) {
        buf_str(out, *first ? "" : ",");
        *first = false;
        api_put_str(out, name, strlen(name));
        buf_char(out, ':');
        buf_str(out, text);
    }
    free(own);
}

void native_put_selected(const struct native *s, const struct buf *all, struct buf *out)
{
    if (!s->fields || all->failed) {
        buf_join(out, all);
        return;
    }
    json_error_t je;
    json_t *from = api_json_load(all->data, all->len, JSON_ALLOW_NUL, &je);
    bool first = true;
    buf_char(out, '{');
    for (size_t i = 0; i < json_array_size(s->fields); i++)
        put_field(s, from, json_string_value(json_array_get(s->fields, i)), &first, out);
    buf_char(out, '}');
    const struct buf starved = {.failed = api_json_starved()};
    buf_join(out, &starved);
    json_decref(from);
}
