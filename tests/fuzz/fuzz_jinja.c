/* Any bytes as a template and its variables, which a NUL byte separates.
 *
 * The variables are JSON; without any, messages that every template understands. Bounds are small,
 * so that a run is short. A template renders to the same text each time, and spans cover it. */
#include "chat/jinja/jinja.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes);

static const char standard[] =
    "{\"messages\":[{\"role\":\"user\",\"content\":\"h\xc3\xa9llo <x>\"},{\"role\":\"assistant\","
    "\"content\":\"\",\"tool_calls\":[{\"function\":{\"name\":\"f\",\"arguments\":{\"a\":[1,2.5,"
    "null,true]}}}]}],\"tools\":[],\"n\":3,\"s\":\"a b,c\",\"add_generation_prompt\":true}";

static void check(const struct jinja_text *t, const struct err_info *e, enum err err)
{
    size_t at = 0;
    if (err ? e->code != err || e->text[0] == '\0' || strchr(e->text, '\n') || t->text.len > 0
            : e->text[0] != '\0')
        abort();
    for (size_t i = 0; i < t->n_spans; i++) {
        if (t->spans[i].begin != at || t->spans[i].end <= at)
            abort();
        at = t->spans[i].end;
    }
    if (at != t->text.len)
        abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes)
{
    static const struct jinja_limits limits = {
        .n_steps = 50000, .memory_bytes = 8u << 20, .output_bytes = 1u << 20};
    const char *source = (const char *)data;
    size_t n = strnlen(source, n_bytes);
    struct jinja_template *t = NULL;
    struct err_info e = {0};
    if (jinja_compile(source, n, &t, &e)) {
        if (t || e.text[0] == '\0')
            abort();
        return 0;
    }
    json_t *vars = n + 1 < n_bytes ? json_loadb(source + n + 1, n_bytes - n - 1, 0, NULL)
                                   : json_loads(standard, 0, NULL);
    if (!json_is_object(vars)) {
        json_decref(vars);
        vars = json_loads(standard, 0, NULL);
    }
    struct tm now = {.tm_year = 126, .tm_mday = 1};
    const struct jinja_input in = {.vars = vars, .now = &now};
    struct jinja_text first = {0}, second = {0};
    enum err err = jinja_render(t, &in, &limits, &first, &e);
    check(&first, &e, err);
    if (jinja_render(t, &in, &limits, &second, NULL) != err || second.text.len != first.text.len ||
        (first.text.len > 0 && memcmp(first.text.data, second.text.data, first.text.len) != 0))
        abort();
    jinja_text_deinit(&first);
    jinja_text_deinit(&second);
    json_decref(vars);
    jinja_destroy(t);
    return 0;
}
