#include "chat/tools.h"

#include "chat/reply.h"

#include <jansson.h>
#include <string.h>

void chat_tools_deinit(struct chat_tools *t)
{
    json_decref(t->list);
    json_decref(t->allowed);
    t->list = t->allowed = NULL;
}

static const char *name_of(const json_t *tool)
{
    return json_string_value(json_object_get(json_object_get(tool, "function"), "name"));
}

bool chat_tools_has(const struct chat_tools *t, const char *name)
{
    for (size_t i = 0; i < json_array_size(t->list); i++)
        if (strcmp(name_of(json_array_get(t->list, i)), name) == 0)
            return true;
    return false;
}

bool chat_tools_wanted(const struct chat_tools *t)
{
    return t && json_array_size(t->list) > 0 && t->choice != CHAT_TOOLS_NONE;
}

_Static_assert(CHAT_MAX_TOOL_NAME == REPLY_MAX_NAME, "what may be called is read back");

static enum err check(const struct chat_tools *t,
                      const char *field,
                      const char *name,
                      const json_t *parameters,
                      struct err_info *e)
{
    if (!reply_is_name(name, strlen(name)))
        return err_set_field(e,
                             ERR_INVALID,
                             field,
                             "the name of '%s' must be 1 to %d letters, digits, '_', '-', '.' or "
                             "':'",
                             field,
                             CHAT_MAX_TOOL_NAME);
    if (chat_tools_has(t, name))
        return err_set_field(
            e, ERR_INVALID, field, "'%s' has the name '%.64s', which another has", field, name);
    if (parameters && !json_is_object(parameters))
        return err_set_field(e,
                             ERR_INVALID,
                             field,
                             "the parameters of '%s' must be a JSON schema, an object",
                             field);
    if (json_array_size(t->list) >= CHAT_MAX_TOOLS)
        return err_set_field(e, ERR_INVALID, field, "there are more than %d tools", CHAT_MAX_TOOLS);
    return OK;
}

enum err chat_tools_add(struct chat_tools *t,
                        const char *field,
                        const char *name,
                        const char *description,
                        const struct json_t *parameters,
                        bool strict,
                        struct err_info *e)
{
    enum err err = check(t, field, name, parameters, e);
    if (err)
        return err;
    json_t *schema = parameters ? json_incref((json_t *)parameters)
                                : json_pack("{s:s, s:{}}", "type", "object", "properties");
    /* templates join descriptions to other text, so there is always one */
    json_t *tool = json_pack("{s:s, s:{s:s, s:s, s:o}}",
                             "type",
                             "function",
                             "function",
                             "name",
                             name,
                             "description",
                             description ? description : "",
                             "parameters",
                             schema);
    if (!t->list)
        t->list = json_array();
    size_t n = json_array_size(t->list);
    if (!tool || json_array_append_new(t->list, tool) != 0)
        return err_set(e, ERR_NOMEM, "no memory for a tool");
    t->strict[n] = strict;
    t->index[n] = (uint16_t)n;
    t->n_bytes += json_dumpb(tool, NULL, 0, JSON_COMPACT);
    if (t->n_bytes > CHAT_MAX_TOOLS_BYTES)
        return err_set_field(e,
                             ERR_INVALID,
                             field,
                             "the tools up to '%s' are longer than %u bytes",
                             field,
                             CHAT_MAX_TOOLS_BYTES);
    return OK;
}

static bool is_among(const json_t *names, const char *name)
{
    for (size_t i = 0; i < json_array_size(names); i++)
        if (strcmp(json_string_value(json_array_get(names, i)), name) == 0)
            return true;
    return false;
}

enum err chat_tools_allow(struct chat_tools *t, const struct json_t *names, struct err_info *e)
{
    json_t *allowed = json_array();
    size_t n = 0;
    for (size_t i = 0; i < json_array_size(t->list); i++) {
        json_t *tool = json_array_get(t->list, i);
        if (!is_among(names, name_of(tool)))
            continue;
        json_array_append(allowed, tool);
        t->allowed_strict[n] = t->strict[i];
        t->index[n++] = (uint16_t)i;
    }
    if (json_array_size(allowed) != n || !allowed) {
        json_decref(allowed);
        return err_set(e, ERR_NOMEM, "no memory for the tools");
    }
    if (t->choice == CHAT_TOOLS_REQUIRED) {
        t->allowed = allowed;
        return OK;
    }
    json_decref(t->list);
    t->list = allowed;
    memcpy(t->strict, t->allowed_strict, sizeof t->strict);
    return OK;
}
