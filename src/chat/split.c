#include "chat/internal.h"

#include <jansson.h>
#include <string.h>

bool chat_has_words(const struct json_t *m)
{
    return json_string_length(json_object_get(m, "content")) > 0;
}

bool chat_has_role(const struct json_t *m, const char *role)
{
    const char *its = json_string_value(json_object_get(m, "role"));
    return its && strcmp(its, role) == 0;
}

/* A message that says nothing but these calls, which it takes over. */
static json_t *calls_alone(const json_t *m, json_t *calls)
{
    return json_pack(
        "{s:O, s:s, s:o}", "role", json_object_get(m, "role"), "content", "", "tool_calls", calls);
}

/* A message's call alone: what else it says is said with the first, if it says it. */
static json_t *one_call_of(const json_t *m, size_t i, bool silent)
{
    json_t *call = json_pack("[O]", json_array_get(json_object_get(m, "tool_calls"), i));
    if (silent || i > 0)
        return calls_alone(m, call);
    json_t *copy = json_copy((json_t *)m);
    json_object_set_new(copy, "tool_calls", call);
    return copy;
}

/* {id: [result, ...]} of the results from messages[from] on; *end: behind the last. */
static json_t *results_by_id(const json_t *messages, size_t from, size_t *end)
{
    json_t *by_id = json_object();
    for (*end = from; chat_has_role(json_array_get(messages, *end), "tool"); ++*end) {
        json_t *m = json_array_get(messages, *end);
        const char *id = json_string_value(json_object_get(m, "tool_call_id"));
        if (!id)
            continue;
        if (!json_object_get(by_id, id))
            json_object_set_new(by_id, id, json_array());
        json_array_append(json_object_get(by_id, id), m);
    }
    return by_id;
}

/* messages[at], which has several calls: a message for each, its results behind it. Results of none
 * of them come last. silent: what it says has been said. Returns where what follows begins. */
static size_t split_calls(const json_t *messages, size_t at, bool silent, json_t *all)
{
    const json_t *m = json_array_get(messages, at), *calls = json_object_get(m, "tool_calls");
    size_t end;
    json_t *by_id = results_by_id(messages, at + 1, &end); /* those not yet placed */
    for (size_t i = 0; i < json_array_size(calls); i++) {
        const char *id = json_string_value(json_object_get(json_array_get(calls, i), "id"));
        json_array_append_new(all, one_call_of(m, i, silent));
        if (id) {
            json_array_extend(all, json_object_get(by_id, id));
            json_object_del(by_id, id);
        }
    }
    for (size_t i = at + 1; i < end; i++) {
        json_t *result = json_array_get(messages, i);
        const char *id = json_string_value(json_object_get(result, "tool_call_id"));
        if (!id || json_object_get(by_id, id))
            json_array_append(all, result);
    }
    json_decref(by_id);
    return end;
}

static json_t *words_alone(const json_t *m)
{
    json_t *words = json_copy((json_t *)m);
    json_object_del(words, "tool_calls");
    return words;
}

struct json_t *chat_split_messages(const struct chat_traits *traits, const struct json_t *messages)
{
    json_t *all = json_array();
    for (size_t i = 0; i < json_array_size(messages);) {
        json_t *m = json_array_get(messages, i), *calls = json_object_get(m, "tool_calls");
        const size_t n_calls = json_array_size(calls);
        const bool apart = traits->null_content && n_calls > 0 && chat_has_words(m);
        if (apart)
            json_array_append_new(all, words_alone(m));
        if (traits->one_call && n_calls > 1) {
            i = split_calls(messages, i, apart, all);
            continue;
        }
        if (apart)
            json_array_append_new(all, calls_alone(m, json_incref(calls)));
        else
            json_array_append(all, m);
        i++;
    }
    return all;
}
