#include "chat/split.h"

#include <jansson.h>
#include <string.h>

static bool has_words(const json_t *m)
{
    return json_string_length(json_object_get(m, "content")) > 0;
}

static bool is_result(const json_t *m)
{
    const char *role = json_string_value(json_object_get(m, "role"));
    return role && strcmp(role, "tool") == 0;
}

/* A message's call alone: what else it says is said with the first. */
static json_t *one_call_of(const json_t *m, size_t i)
{
    json_t *copy = json_copy((json_t *)m);
    if (i > 0) {
        json_object_set_new(copy, "content", json_string(""));
        json_object_del(copy, "reasoning_content");
    }
    json_object_set_new(
        copy, "tool_calls", json_pack("[O]", json_array_get(json_object_get(m, "tool_calls"), i)));
    return copy;
}

/* {id: [result, ...]} of the results from messages[from] on; *end: behind the last. */
static json_t *results_by_id(const json_t *messages, size_t from, size_t *end)
{
    json_t *by_id = json_object();
    for (*end = from; is_result(json_array_get(messages, *end)); ++*end) {
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
 * of them come last. Returns where what follows begins. */
static size_t split_calls(const json_t *messages, size_t at, json_t *all)
{
    const json_t *m = json_array_get(messages, at), *calls = json_object_get(m, "tool_calls");
    size_t end;
    json_t *by_id = results_by_id(messages, at + 1, &end); /* those not yet placed */
    for (size_t i = 0; i < json_array_size(calls); i++) {
        const char *id = json_string_value(json_object_get(json_array_get(calls, i), "id"));
        json_array_append_new(all, one_call_of(m, i));
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

/* What a message says, and then its calls with nothing said. */
static void split_words(const json_t *m, json_t *all)
{
    json_t *words = json_copy((json_t *)m), *calls = json_copy((json_t *)m);
    json_object_del(words, "tool_calls");
    json_object_del(calls, "reasoning_content");
    json_object_set_new(calls, "content", json_string(""));
    json_array_append_new(all, words);
    json_array_append_new(all, calls);
}

struct json_t *chat_split_messages(const struct chat_traits *traits, const struct json_t *messages)
{
    json_t *all = json_array();
    for (size_t i = 0; i < json_array_size(messages);) {
        json_t *m = json_array_get(messages, i);
        size_t n_calls = json_array_size(json_object_get(m, "tool_calls"));
        if (traits->one_call && n_calls > 1) {
            i = split_calls(messages, i, all);
            continue;
        }
        if (traits->null_content && n_calls > 0 && has_words(m))
            split_words(m, all);
        else
            json_array_append(all, m);
        i++;
    }
    return all;
}
