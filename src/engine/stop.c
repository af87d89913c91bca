#include "engine/stop.h"

#include "base/mem.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

/* One string: fail[i] is the length of the longest proper prefix of text that is a suffix of
 * text[0..i]. */
struct automaton {
    char *text;
    uint32_t *fail;
    uint32_t len;
};

struct stop_texts {
    _Atomic(uint32_t) n_refs;
    uint32_t n;
    struct automaton a[];
};

struct stop_matcher {
    struct stop_texts *texts;
    uint64_t n_bytes;   /* fed so far */
    uint32_t matched[]; /* [texts->n] how much of each text the output ends with */
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

static enum err check_texts(const struct gguf_str *texts, uint32_t n, struct err_info *e)
{
    size_t n_bytes = 0;
    for (uint32_t i = 0; i < n; i++) {
        if (texts[i].len == 0)
            return err_set_field(e, ERR_INVALID, "stop", "a stop string is empty");
        if (texts[i].len > STOP_MAX_BYTES - n_bytes)
            return err_set_field(e,
                                 ERR_INVALID,
                                 "stop",
                                 "'stop' has too long strings; at most %d bytes in all are allowed",
                                 STOP_MAX_BYTES);
        n_bytes += texts[i].len;
    }
    return OK;
}

enum err stop_texts_create(const struct gguf_str *texts,
                           uint32_t n,
                           struct stop_texts **out,
                           struct err_info *e)
{
    *out = NULL;
    enum err err = check_texts(texts, n, e);
    if (err || n == 0)
        return err;
    struct stop_texts *t = mem_zalloc(1, sizeof *t + n * sizeof t->a[0]);
    atomic_init(&t->n_refs, 1);
    t->n = n;
    for (uint32_t i = 0; i < n; i++) {
        struct automaton *a = &t->a[i];
        a->len = (uint32_t)texts[i].len;
        a->text = calloc(a->len + 1, 1);
        a->fail = calloc(a->len, sizeof *a->fail);
        if (!a->text || !a->fail) {
            stop_texts_release(t);
            return err_set(e, ERR_NOMEM, "no memory for a stop string of %zu bytes", texts[i].len);
        }
        memcpy(a->text, texts[i].data, a->len);
        fill_fail(a);
    }
    *out = t;
    return OK;
}

void stop_texts_release(struct stop_texts *t)
{
    if (!t || atomic_fetch_sub_explicit(&t->n_refs, 1, memory_order_acq_rel) != 1)
        return;
    for (uint32_t i = 0; i < t->n; i++) {
        free(t->a[i].text);
        free(t->a[i].fail);
    }
    free(t);
}

uint32_t stop_texts_count(const struct stop_texts *t)
{
    return t ? t->n : 0;
}

struct gguf_str stop_texts_get(const struct stop_texts *t, uint32_t i)
{
    return (struct gguf_str){t->a[i].text, t->a[i].len};
}

struct stop_matcher *stop_begin(struct stop_texts *t)
{
    if (!t)
        return NULL;
    struct stop_matcher *s = mem_zalloc(1, sizeof *s + t->n * sizeof s->matched[0]);
    atomic_fetch_add_explicit(&t->n_refs, 1, memory_order_relaxed);
    s->texts = t;
    return s;
}

void stop_destroy(struct stop_matcher *s)
{
    if (!s)
        return;
    stop_texts_release(s->texts);
    free(s);
}

struct gguf_str stop_get(const struct stop_matcher *s, uint32_t i)
{
    return stop_texts_get(s->texts, i);
}

static bool advance(const struct automaton *a, uint32_t *matched, char c)
{
    uint32_t k = *matched;
    while (k > 0 && a->text[k] != c)
        k = a->fail[k - 1];
    if (a->text[k] == c)
        k++;
    *matched = k;
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
        for (uint32_t j = 0; j < s->texts->n; j++) {
            const struct automaton *a = &s->texts->a[j];
            if (advance(a, &s->matched[j], bytes[i]) && a->len > longest) {
                longest = a->len;
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

void stop_skip(struct stop_matcher *s, size_t n)
{
    if (!s)
        return;
    s->n_bytes += n;
    memset(s->matched, 0, s->texts->n * sizeof s->matched[0]);
}

size_t stop_held(const struct stop_matcher *s)
{
    size_t held = 0;
    for (uint32_t i = 0; s && i < s->texts->n; i++) {
        if (s->matched[i] > held)
            held = s->matched[i];
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
