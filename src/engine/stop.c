#include "engine/stop.h"

#include "base/mem.h"

#include <stdlib.h>
#include <string.h>

/* One string: fail[i] is the length of the longest proper prefix of text that is a suffix of
 * text[0..i]; matched is how much of text the output ends with. */
struct automaton {
    char *text;
    uint32_t *fail;
    uint32_t len;
    uint32_t matched;
};

struct stop_matcher {
    uint64_t n_bytes; /* fed so far */
    uint32_t n;
    struct automaton a[];
};

static void fill_fail(struct automaton *a)
{
    a->fail[0] = 0;
    for (uint32_t i = 1, k = 0; i < a->len; i++) {
        while (k > 0 && a->text[i] != a->text[k])
            k = a->fail[k - 1];
        if (a->text[i] == a->text[k])
            k++;
        a->fail[i] = k;
    }
}

enum err stop_create(const struct gguf_str *texts,
                     uint32_t n,
                     struct stop_matcher **out,
                     struct err_info *e)
{
    *out = NULL;
    if (n == 0)
        return OK;
    struct stop_matcher *s = mem_zalloc(1, sizeof *s + n * sizeof s->a[0]);
    s->n = n;
    for (uint32_t i = 0; i < n; i++) {
        struct automaton *a = &s->a[i];
        size_t len = texts[i].len;
        if (len == 0 || len > UINT32_MAX) {
            stop_destroy(s);
            return err_set_field(e, ERR_INVALID, "stop", "a stop string is empty or too long");
        }
        a->len = (uint32_t)len;
        a->text = malloc(len);
        a->fail = calloc(len, sizeof *a->fail);
        if (!a->text || !a->fail) {
            stop_destroy(s);
            return err_set(e, ERR_NOMEM, "no memory for a stop string of %zu bytes", len);
        }
        memcpy(a->text, texts[i].data, len);
        fill_fail(a);
    }
    *out = s;
    return OK;
}

void stop_destroy(struct stop_matcher *s)
{
    if (!s)
        return;
    for (uint32_t i = 0; i < s->n; i++) {
        free(s->a[i].text);
        free(s->a[i].fail);
    }
    free(s);
}

static bool advance(struct automaton *a, char c)
{
    uint32_t k = a->matched;
    while (k > 0 && a->text[k] != c)
        k = a->fail[k - 1];
    if (a->text[k] == c)
        k++;
    a->matched = k;
    return k == a->len;
}

bool stop_feed(
    struct stop_matcher *s, const char *bytes, size_t n, uint64_t *end_bytes, uint32_t *which)
{
    if (!s)
        return false;
    for (size_t i = 0; i < n; i++) {
        uint32_t longest = 0;
        s->n_bytes++;
        for (uint32_t j = 0; j < s->n; j++) {
            if (advance(&s->a[j], bytes[i]) && s->a[j].len > longest) {
                longest = s->a[j].len;
                *which = j;
            }
        }
        if (longest > 0) {
            *end_bytes = s->n_bytes - longest;
            return true;
        }
    }
    return false;
}

size_t stop_held(const struct stop_matcher *s)
{
    size_t held = 0;
    for (uint32_t i = 0; s && i < s->n; i++) {
        if (s->a[i].matched > held)
            held = s->a[i].matched;
    }
    return held;
}

bool lines_feed(struct lines *l, const char *bytes, size_t n, uint32_t min_indent, size_t *at)
{
    for (size_t i = 0; i < n; i++) {
        if (l->in_indent && (bytes[i] == ' ' || bytes[i] == '\t')) {
            l->n_indent++;
            continue;
        }
        if (l->in_indent && l->n_indent < min_indent) {
            *at = i;
            return true;
        }
        l->in_indent = bytes[i] == '\n';
        l->n_indent = 0;
    }
    return false;
}
