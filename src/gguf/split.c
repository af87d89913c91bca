/* Models in several files, as llama.cpp's splitter and the Python writer make them:
 *
 *     X-00001-of-00003.gguf   split.no 0, split.count 3, split.tensors.count, all other keys;
 * tensors X-00002-of-00003.gguf   split.no 1, split.count 3, split.tensors.count; tensors
 *     X-00003-of-00003.gguf   split.no 2 ...
 *
 * The first is opened, names the others, and takes over their tensors; it counts for every key. */
#include "base/mem.h"
#include "gguf/file.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ABSENT UINT32_MAX
#define MAX_PARTS 99999 /* five digits */

struct split {
    uint32_t no, n_parts, n_tensors; /* no and n_tensors may be ABSENT, n_parts 0 */
};

static enum err read_key(
    const struct gguf *g, const char *label, const char *key, uint32_t *v, struct err_info *e)
{
    struct err_info why;
    enum err err = gguf_get_u32(g, key, v, &why);
    return err ? err_set(e, err, "%s: %s", label, why.text) : OK;
}

static enum err read_split(const struct gguf *g,
                           const char *label,
                           struct split *s,
                           struct err_info *e)
{
    *s = (struct split){.no = ABSENT, .n_tensors = ABSENT};
    enum err err;
    if ((err = read_key(g, label, "split.count", &s->n_parts, e)) ||
        (err = read_key(g, label, "split.no", &s->no, e)) ||
        (err = read_key(g, label, "split.tensors.count", &s->n_tensors, e)))
        return err;
    if (s->n_parts > MAX_PARTS)
        return err_set(e, ERR_FORMAT, "%s: split.count is %u", label, (unsigned)s->n_parts);
    if (s->no != ABSENT && s->no >= (s->n_parts ? s->n_parts : 1))
        return err_set(e,
                       ERR_FORMAT,
                       "%s: split.no is %u, where split.count is %u",
                       label,
                       (unsigned)s->no,
                       (unsigned)s->n_parts);
    return OK;
}

/* "-00002-of-00003.gguf" */
static void suffix_of(uint32_t no, uint32_t n_parts, char out[48])
{
    snprintf(out, 48, "-%05u-of-%05u.gguf", (unsigned)no + 1, (unsigned)n_parts);
}

/* The first file's own numbers, and its name, from which the others' follow. */
static enum err check_first(const struct gguf *g,
                            const struct split *s,
                            const char *label,
                            struct err_info *e)
{
    char suffix[48];
    if (!g->path)
        return err_set(
            e, ERR_UNSUPPORTED, "%s: one of %u files of a split model", label, s->n_parts);
    if (s->no == ABSENT || s->n_tensors == ABSENT)
        return err_set(e,
                       ERR_FORMAT,
                       "%s: split.count is %u, but %s is missing",
                       label,
                       (unsigned)s->n_parts,
                       s->no == ABSENT ? "split.no" : "split.tensors.count");
    suffix_of(0, s->n_parts, suffix);
    if (s->no != 0)
        return err_set(e,
                       ERR_INVALID,
                       "%s: part %u of %u of a split model; name the first, ...%s",
                       label,
                       (unsigned)s->no + 1,
                       (unsigned)s->n_parts,
                       suffix);
    size_t n = strlen(g->path), n_suffix = strlen(suffix);
    if (n <= n_suffix || strcmp(g->path + n - n_suffix, suffix) != 0)
        return err_set(e,
                       ERR_FORMAT,
                       "%s: the first of %u files of a split model, so its name must end in %s",
                       label,
                       (unsigned)s->n_parts,
                       suffix);
    return OK;
}

/* Two files that name themselves must name the same model. */
static enum err check_same(const struct gguf *first,
                           const struct gguf *part,
                           const char *key,
                           const char *label,
                           struct err_info *e)
{
    struct gguf_str a = {NULL, 0}, b = {NULL, 0};
    if (gguf_get_str(first, key, &a, NULL) || gguf_get_str(part, key, &b, NULL) || !b.data ||
        (a.data && a.len == b.len && memcmp(a.data, b.data, a.len) == 0))
        return OK;
    char shown[48];
    return err_set(e,
                   ERR_FORMAT,
                   "%s: %s is \"%s\", so it is part of another model than the first",
                   label,
                   key,
                   gguf_show(b, shown, sizeof shown));
}

/* What part `no` says of itself must agree with what the first says. */
static enum err check_part(const struct gguf *first,
                           const struct gguf *part,
                           const struct split *want,
                           uint32_t no,
                           const char *label,
                           struct err_info *e)
{
    struct split s;
    enum err err = read_split(part, label, &s, e);
    if (err)
        return err;
    if (s.no != no)
        return err_set(e,
                       ERR_FORMAT,
                       "%s: split.no is %lld, expected %u",
                       label,
                       s.no == ABSENT ? -1 : (long long)s.no,
                       (unsigned)no);
    if (s.n_parts != want->n_parts)
        return err_set(e,
                       ERR_FORMAT,
                       "%s: split.count is %u, but the first file says %u",
                       label,
                       (unsigned)s.n_parts,
                       (unsigned)want->n_parts);
    if (s.n_tensors != ABSENT && s.n_tensors != want->n_tensors)
        return err_set(e,
                       ERR_FORMAT,
                       "%s: split.tensors.count is %u, but the first file says %u",
                       label,
                       (unsigned)s.n_tensors,
                       (unsigned)want->n_tensors);
    if ((err = check_same(first, part, "general.architecture", label, e)))
        return err;
    return check_same(first, part, "general.name", label, e);
}

/* Open part `no` as g->parts[no - 1]. */
static enum err open_part(struct gguf *g, const struct split *s, uint32_t no, struct err_info *e)
{
    char suffix[48], label[GGUF_LABEL_BYTES];
    suffix_of(no, s->n_parts, suffix);
    char *path = mem_strdup(g->path); /* check_first: it ends in a suffix as long as this one */
    memcpy(path + strlen(path) - strlen(suffix), suffix, strlen(suffix));
    gguf_label(path, label);
    enum err err = gguf_open_one(path, &g->parts[no - 1], e);
    free(path);
    if (err)
        return err;
    g->n_parts = no + 1;
    return check_part(g, g->parts[no - 1], s, no, label, e);
}

/* One table of all tensors in place of the first file's own. */
static enum err join_tensors(struct gguf *g, uint32_t n, const char *label, struct err_info *e)
{
    struct gguf_tensor *all = calloc(n ? n : 1, sizeof *all);
    struct gguf_index index = {0};
    if (!all || gguf_index_init(&index, all, sizeof *all, n)) {
        free(all);
        return err_set(e, ERR_NOMEM, "%s: no memory for %u tensors", label, (unsigned)n);
    }
    uint32_t at = 0;
    for (uint32_t part = 0; part < g->n_parts; part++) {
        const struct gguf *from = part ? g->parts[part - 1] : g;
        for (uint32_t i = 0; i < from->n_tensors; i++, at++) {
            all[at] = from->tensors[i];
            all[at].part = part;
            if (gguf_index_add(&index, at))
                continue;
            const struct gguf_tensor *other = gguf_index_find(&index, all[at].name);
            char shown[64];
            (void)err_set(e,
                          ERR_FORMAT,
                          "%s: tensor \"%s\" is in part %u and in part %u",
                          label,
                          gguf_show(all[at].name, shown, sizeof shown),
                          (unsigned)other->part + 1,
                          (unsigned)part + 1);
            gguf_index_deinit(&index);
            free(all);
            return ERR_FORMAT;
        }
    }
    gguf_index_deinit(&g->tensor_index);
    free(g->tensors);
    g->tensors = all;
    g->tensor_index = index;
    g->n_tensors = n;
    return OK;
}

enum err gguf_open_parts(struct gguf *g, struct err_info *e)
{
    char label[GGUF_LABEL_BYTES];
    struct split s;
    gguf_label(g->path ? g->path : "GGUF in memory", label);
    enum err err = read_split(g, label, &s, e);
    if (err || s.n_parts <= 1)
        return err;
    if ((err = check_first(g, &s, label, e)))
        return err;
    g->parts = calloc(s.n_parts - 1, sizeof *g->parts);
    if (!g->parts)
        return err_set(e, ERR_NOMEM, "%s: no memory for %u parts", label, (unsigned)s.n_parts);
    g->n_parts = 1;
    uint64_t n = g->n_tensors;
    for (uint32_t no = 1; no < s.n_parts && !err; no++) {
        err = open_part(g, &s, no, e);
        n += err ? 0 : g->parts[no - 1]->n_tensors;
    }
    if (err)
        return err;
    if (n != s.n_tensors || n > GGUF_MAX_ENTRIES)
        return err_set(e,
                       ERR_FORMAT,
                       "%s: the %u parts hold %llu tensors, but split.tensors.count is %u",
                       label,
                       (unsigned)s.n_parts,
                       (unsigned long long)n,
                       (unsigned)s.n_tensors);
    return join_tensors(g, (uint32_t)n, label, e);
}
