/* Results of tools inside the message that called: earlier templates of Gemma 4 read them nowhere
 * else, and what the assistant says next goes on in the same turn. */
#include "chat/internal.h"

#include <jansson.h>
#include <string.h>

static bool has_calls(const json_t *m)
{
    return chat_has_role(m, "assistant") && json_array_size(json_object_get(m, "tool_calls")) > 0;
}

/* The function that a result is of: of the call with its id, or what it names itself. names: of the
 * calls, by their ids. */
static const char *name_of(const json_t *names, const json_t *result)
{
    const char *id = json_string_value(json_object_get(result, "tool_call_id"));
    const char *name = id ? json_string_value(json_object_get(names, id)) : NULL;
    name = name ? name : json_string_value(json_object_get(result, "name"));
    return name ? name : "unknown";
}

/* What is said before a call is a turn of its own: behind the results it would be said of them. */
static json_t *said_before(const json_t *m)
{
    json_t *words = json_copy((json_t *)m);
    json_object_del(words, "tool_calls");
    json_object_del(words, "reasoning_content");
    return words;
}

/* messages[at], which calls, with the results behind it and what is said of them. Returns where
 * what follows begins. */
static size_t embed(const json_t *messages, size_t at, json_t *all)
{
    const json_t *m = json_array_get(messages, at);
    json_t *results = json_array(), *copy = json_copy((json_t *)m), *next;
    json_t *names = json_object();
    chat_note_names(names, json_object_get(m, "tool_calls"));
    for (at++; chat_has_role(next = json_array_get(messages, at), "tool"); at++)
        json_array_append_new(results,
                              json_pack("{s:s, s:O?}",
                                        "name",
                                        name_of(names, next),
                                        "response",
                                        json_object_get(next, "content")));
    const bool answered = json_array_size(results) > 0;
    if (answered && chat_has_words(m)) {
        json_array_append_new(all, said_before(m));
        json_object_set_new(copy, "content", json_string(""));
    }
    if (answered)
        json_object_set(copy, "tool_responses", results);
    json_decref(results);
    json_decref(names);
    json_array_append_new(all, copy);
    if (!answered || !chat_has_role(next, "assistant") || has_calls(next) || !chat_has_words(next))
        return at;
    json_object_set(copy, "content", json_object_get(next, "content"));
    return at + 1;
}

struct json_t *chat_embed_results(const struct json_t *messages)
{
    json_t *all = json_array();
    for (size_t i = 0; i < json_array_size(messages);) {
        json_t *m = json_array_get(messages, i);
        if (has_calls(m)) {
            i = embed(messages, i, all);
            continue;
        }
        json_array_append(all, m);
        i++;
    }
    return all;
}
