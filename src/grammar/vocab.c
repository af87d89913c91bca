/* The vocabulary as a trie over bytes, laid out in the order of a walk from the front to the back.
 */
#include "grammar/internal.h"

#include "base/mem.h"

#include <stdlib.h>
#include <string.h>

/* Texts are compared through the vocabulary that is being made. */
struct sorted {
    const char *s;
    uint32_t n;
    int32_t id;
};

static int by_bytes(const void *pa, const void *pb)
{
    const struct sorted *a = pa, *b = pb;
    int order = memcmp(a->s, b->s, a->n < b->n ? a->n : b->n);
    if (order)
        return order;
    return a->n != b->n ? (a->n > b->n) - (a->n < b->n) : (a->id > b->id) - (a->id < b->id);
}

/* Copy the bytes of all tokens that stand for text, and note those that end a text. */
static bool copy_texts(const struct grammar_vocab_source *source, struct grammar_vocab *v)
{
    size_t total = 0, n;
    for (uint32_t i = 0; i < v->n; i++) {
        (void)source->bytes(source->ctx, (int32_t)i, &n);
        total += n;
    }
    v->text = total < UINT32_MAX ? malloc(total + 1) : NULL;
    if (!v->text)
        return false;
    uint32_t at = 0;
    for (uint32_t i = 0; i < v->n; i++) {
        const char *s = source->bytes(source->ctx, (int32_t)i, &n);
        v->offset[i] = at;
        if (source->is_eog(source->ctx, (int32_t)i)) {
            v->eog[i / 64] |= (uint64_t)1 << i % 64;
            continue;
        }
        if (n > 0)
            memcpy(v->text + at, s, n);
        for (size_t k = 0; k < n; k++)
            v->has[(uint8_t)s[k]] = true;
        at += (uint32_t)n;
        if (n > v->longest)
            v->longest = (uint32_t)n;
    }
    v->offset[v->n] = at;
    return true;
}

static uint32_t common(const struct sorted *a, const struct sorted *b)
{
    uint32_t k = 0;
    while (k < a->n && k < b->n && a->s[k] == b->s[k])
        k++;
    return k;
}

/* Nodes from texts in order: each shares a path with the one before it, and adds what is new. */
static bool build_trie(struct grammar_vocab *v, const struct sorted *t, uint32_t n)
{
    size_t n_nodes = 1;
    for (uint32_t i = 0; i < n; i++)
        n_nodes += t[i].n - (i > 0 ? common(&t[i - 1], &t[i]) : 0);
    uint32_t *path = malloc(((size_t)v->longest + 1) * sizeof *path);
    v->nodes = malloc(n_nodes * sizeof *v->nodes);
    v->order = malloc(((size_t)n + 1) * sizeof *v->order);
    if (!path || !v->nodes || !v->order) {
        free(path);
        return false;
    }
    uint32_t depth = 0;
    for (uint32_t i = 0; i < n; i++) {
        uint32_t shared = i > 0 ? common(&t[i - 1], &t[i]) : 0;
        while (depth > shared)
            v->nodes[path[depth--]].end = v->n_nodes;
        while (depth < t[i].n) {
            v->nodes[v->n_nodes] = (struct trie_node){
                .first_token = i, .depth = (uint16_t)(depth + 1), .byte = (uint8_t)t[i].s[depth]};
            path[++depth] = v->n_nodes++;
        }
        v->order[i] = t[i].id;
    }
    while (depth > 0)
        v->nodes[path[depth--]].end = v->n_nodes;
    v->nodes[v->n_nodes] = (struct trie_node){.first_token = n, .end = v->n_nodes};
    free(path);
    return true;
}

enum err grammar_vocab_create(const struct grammar_vocab_source *source,
                              struct grammar_vocab **out,
                              struct err_info *e)
{
    struct grammar_vocab *v = mem_zalloc(1, sizeof *v);
    *out = NULL;
    v->n = source->n;
    v->n_words = (v->n + 63) / 64;
    v->offset = calloc((size_t)v->n + 1, sizeof *v->offset);
    v->eog = calloc((size_t)v->n_words + 1, sizeof *v->eog);
    struct sorted *t = calloc((size_t)v->n + 1, sizeof *t);
    bool ok = v->offset && v->eog && t && copy_texts(source, v) && v->longest <= UINT16_MAX;
    if (ok) {
        uint32_t n = 0;
        for (uint32_t i = 0; i < v->n; i++) {
            uint32_t len = v->offset[i + 1] - v->offset[i];
            if (len > 0)
                t[n++] = (struct sorted){v->text + v->offset[i], len, (int32_t)i};
        }
        qsort(t, n, sizeof *t, by_bytes);
        ok = build_trie(v, t, n);
    }
    free(t);
    if (!ok) {
        grammar_vocab_destroy(v);
        return err_set(e, ERR_NOMEM, "no memory for the trie of %u tokens", source->n);
    }
    *out = v;
    return OK;
}

const uint64_t *grammar_vocab_eog(const struct grammar_vocab *v)
{
    return v->eog;
}

void grammar_vocab_destroy(struct grammar_vocab *v)
{
    if (!v)
        return;
    free(v->text);
    free(v->offset);
    free(v->nodes);
    free(v->order);
    free(v->eog);
    free(v);
}
