/* The file, front to back:
 *
 *     "GGUF" version:u32 n_tensors:u64 n_kv:u64
 *     n_kv      x  key:string kind:u32 value            (string: length:u64 bytes)
 *     n_tensors x  name:string n_dims:u32 ne:u64[n_dims] type:u32 offset:u64
 *     padding to general.alignment, then the tensors' data, offsets counted from here
 *
 * All reading goes through take(), which is the one place that compares with the end. */
#include "gguf/file.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    MAX_NAME_BYTES = 65535,
    MIN_KV_BYTES = 8 + 1 + 4 + 1,
    MIN_TENSOR_BYTES = 8 + 1 + 4 + 8 + 4 + 8,
    DEFAULT_ALIGNMENT = 32,
    MIN_ALIGNMENT = 8, /* by the specification; so f32 rows can be read in place */
    MAX_ALIGNMENT = 1 << 20,
};

/* A cursor, and what it stands in for the sake of messages. */
struct parser {
    struct gguf *g;
    size_t at;
    const char *label;
    const char *part; /* "header", "key" or "tensor" */
    uint32_t entry;
    struct gguf_str name; /* of the entry, once it has been read */
    size_t entry_at;
    struct err_info *e;
};

/* "LABEL: tensor 3 "output.weight" at byte 1234: text". */
static enum err fail(struct parser *p, enum err code, const char *fmt, ...) WEIR_PRINTF(3, 4);

static enum err fail(struct parser *p, enum err code, const char *fmt, ...)
{
    char text[128], name[72] = "", entry[32] = "";
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    if (p->part[0] != 'h')
        snprintf(entry, sizeof entry, " %u", (unsigned)p->entry);
    if (p->name.len) {
        snprintf(name, sizeof name, " \"");
        gguf_show(p->name, name + 2, sizeof name - 3);
        memcpy(name + strlen(name), "\"", 2);
    }
    return err_set(p->e,
                   code,
                   "%s: %s%s%s at byte %zu: %s",
                   p->label,
                   p->part,
                   entry,
                   name,
                   p->entry_at,
                   text);
}

static void enter(struct parser *p, const char *part, uint32_t entry)
{
    p->part = part;
    p->entry = entry;
    p->name = (struct gguf_str){0};
    p->entry_at = p->at;
}

static size_t left(const struct parser *p)
{
    return p->g->n_bytes - p->at;
}

static enum err take(struct parser *p, uint64_t n, const uint8_t **bytes)
{
    if (n > left(p)) {
        (void)fail(p,
                   ERR_FORMAT,
                   "needs %llu bytes at byte %zu, where the file has %zu left",
                   (unsigned long long)n,
                   p->at,
                   left(p));
        return ERR_FORMAT; /* spelt out: the compiler then sees that *bytes is set if OK */
    }
    *bytes = p->g->base + p->at;
    p->at += (size_t)n;
    return OK;
}

static enum err take_u32(struct parser *p, uint32_t *out)
{
    const uint8_t *b;
    enum err err = take(p, sizeof *out, &b);
    if (!err)
        memcpy(out, b, sizeof *out);
    return err;
}

static enum err take_u64(struct parser *p, uint64_t *out)
{
    const uint8_t *b;
    enum err err = take(p, sizeof *out, &b);
    if (!err)
        memcpy(out, b, sizeof *out);
    return err;
}

static enum err take_str(struct parser *p, struct gguf_str *out)
{
    uint64_t n;
    const uint8_t *b;
    enum err err = take_u64(p, &n);
    if (!err)
        err = take(p, n, &b);
    if (!err)
        *out = (struct gguf_str){(const char *)b, (size_t)n};
    return err;
}

/* The key of a metadata entry or the name of a tensor. */
static enum err take_name(struct parser *p, struct gguf_str *out)
{
    enum err err = take_str(p, out);
    if (err)
        return err;
    if (out->len == 0)
        return fail(p, ERR_FORMAT, "its name is empty");
    p->name = *out;
    if (out->len > MAX_NAME_BYTES)
        return fail(
            p, ERR_FORMAT, "its name has %zu bytes, more than %d", out->len, MAX_NAME_BYTES);
    return OK;
}

/* A number of entries, which must also fit into what is left of the file. */
static enum err take_count(struct parser *p, const char *what, size_t min_bytes, uint32_t *out)
{
    uint64_t n;
    enum err err = take_u64(p, &n);
    if (err)
        return err;
    if (n > left(p) / min_bytes)
        return fail(p,
                    ERR_FORMAT,
                    "claims %llu %s, more than its %zu bytes can hold",
                    (unsigned long long)n,
                    what,
                    p->g->n_bytes);
    if (n > GGUF_MAX_ENTRIES)
        return fail(p,
                    ERR_UNSUPPORTED,
                    "claims %llu %s, more than %d",
                    (unsigned long long)n,
                    what,
                    GGUF_MAX_ENTRIES);
    *out = (uint32_t)n;
    return OK;
}

static enum err parse_header(struct parser *p)
{
    struct gguf *g = p->g;
    const uint8_t *magic;
    enter(p, "header", 0);
    enum err err = take(p, 4, &magic);
    if (err)
        return err;
    if (memcmp(magic, "GGUF", 4) != 0)
        return fail(p,
                    ERR_FORMAT,
                    "not a GGUF file: begins with %02x %02x %02x %02x",
                    magic[0],
                    magic[1],
                    magic[2],
                    magic[3]);
    if ((err = take_u32(p, &g->version)))
        return err;
    if (g->version == 0x02000000 || g->version == 0x03000000)
        return fail(p, ERR_UNSUPPORTED, "a big-endian file");
    if (g->version != 2 && g->version != 3)
        return fail(p,
                    ERR_UNSUPPORTED,
                    "GGUF version %u; versions 2 and 3 are supported",
                    (unsigned)g->version);
    if ((err = take_count(p, "tensors", MIN_TENSOR_BYTES, &g->n_tensors)))
        return err;
    return take_count(p, "keys", MIN_KV_BYTES, &g->n_kv);
}

static enum err check_bools(struct parser *p, const uint8_t *b, uint64_t n)
{
    for (uint64_t i = 0; i < n; i++)
        if (b[i] > 1)
            return fail(p, ERR_FORMAT, "a bool holds the byte %u", b[i]);
    return OK;
}

static enum err parse_strings(struct parser *p, uint64_t n)
{
    if (n > left(p) / sizeof(uint64_t))
        return fail(p,
                    ERR_FORMAT,
                    "claims %llu strings, where the file has %zu bytes left",
                    (unsigned long long)n,
                    left(p));
    struct gguf_str s;
    enum err err = OK;
    for (uint64_t i = 0; i < n && !err; i++)
        err = take_str(p, &s);
    return err;
}

static enum err parse_array(struct parser *p, struct gguf_kv *kv)
{
    uint32_t kind;
    enum err err = take_u32(p, &kind);
    if (!err)
        err = take_u64(p, &kv->n_elems);
    if (err)
        return err;
    kv->elem_kind = (enum gguf_kind)kind;
    kv->elems = p->g->base + p->at;
    if (kind == GGUF_STRING)
        return parse_strings(p, kv->n_elems);
    if (kind == GGUF_ARRAY)
        return fail(p, ERR_UNSUPPORTED, "an array of arrays");
    size_t bytes = gguf_kind_bytes(kind);
    if (bytes == 0)
        return fail(p, ERR_FORMAT, "an array of unknown kind %u", (unsigned)kind);
    if (kv->n_elems > left(p) / bytes)
        return fail(p,
                    ERR_FORMAT,
                    "claims %llu elements, where the file has %zu bytes left",
                    (unsigned long long)kv->n_elems,
                    left(p));
    p->at += (size_t)kv->n_elems * bytes;
    return kind == GGUF_BOOL ? check_bools(p, kv->elems, kv->n_elems) : OK;
}

static enum err parse_kv(struct parser *p, struct gguf_kv *kv)
{
    uint32_t kind;
    const uint8_t *b;
    enum err err = take_name(p, &kv->key);
    if (!err)
        err = take_u32(p, &kind);
    if (err)
        return err;
    kv->kind = (enum gguf_kind)kind;
    if (kind == GGUF_STRING)
        return take_str(p, &kv->s);
    if (kind == GGUF_ARRAY)
        return parse_array(p, kv);
    if (gguf_kind_bytes(kind) == 0)
        return fail(p, ERR_FORMAT, "a value of unknown kind %u", (unsigned)kind);
    if ((err = take(p, gguf_kind_bytes(kind), &b)))
        return err;
    if (kind == GGUF_BOOL && (err = check_bools(p, b, 1)))
        return err;
    gguf_decode(kv, b);
    return OK;
}

static enum err parse_all_kv(struct parser *p)
{
    struct gguf *g = p->g;
    enter(p, "header", 0);
    g->kv = calloc(g->n_kv ? g->n_kv : 1, sizeof *g->kv);
    if (!g->kv || gguf_index_init(&g->kv_index, g->kv, sizeof *g->kv, g->n_kv))
        return fail(p, ERR_NOMEM, "no memory for %u keys", (unsigned)g->n_kv);
    for (uint32_t i = 0; i < g->n_kv; i++) {
        enter(p, "key", i);
        enum err err = parse_kv(p, &g->kv[i]);
        if (err)
            return err;
        if (!gguf_index_add(&g->kv_index, i))
            return fail(p, ERR_FORMAT, "appears twice");
    }
    return OK;
}

/* Check the shape and work out n_bytes. Row length and sizes are what every later loop trusts. */
static enum err size_tensor(struct parser *p, struct gguf_tensor *t, uint32_t type)
{
    const struct gguf_type_info *info = gguf_type_info((enum gguf_type)type);
    if (!info)
        return fail(p, ERR_UNSUPPORTED, "type %u is not known", (unsigned)type);
    t->type = (enum gguf_type)type;
    for (uint32_t i = 0; i < GGUF_MAX_DIMS; i++)
        if (t->ne[i] == 0)
            return fail(p, ERR_FORMAT, "dimension %u is 0", (unsigned)i);
    if (t->ne[0] % info->block_values != 0)
        return fail(p,
                    ERR_FORMAT,
                    "a row of %llu values is no multiple of %s's blocks of %u",
                    (unsigned long long)t->ne[0],
                    info->name,
                    (unsigned)info->block_values);
    uint64_t n = t->ne[0] / info->block_values;
    bool wraps = __builtin_mul_overflow(n, (uint64_t)info->block_bytes, &n);
    for (uint32_t i = 1; i < GGUF_MAX_DIMS && !wraps; i++)
        wraps = __builtin_mul_overflow(n, t->ne[i], &n);
    /* values, too, must be countable: blocks of less than a byte a value could overflow those */
    uint64_t n_values = t->ne[0];
    for (uint32_t i = 1; i < GGUF_MAX_DIMS && !wraps; i++)
        wraps = __builtin_mul_overflow(n_values, t->ne[i], &n_values);
    if (wraps || n > p->g->n_bytes)
        return fail(p,
                    ERR_FORMAT,
                    "%s [%llu, %llu, %llu, %llu] is larger than the file",
                    info->name,
                    (unsigned long long)t->ne[0],
                    (unsigned long long)t->ne[1],
                    (unsigned long long)t->ne[2],
                    (unsigned long long)t->ne[3]);
    t->n_bytes = (size_t)n;
    return OK;
}

/* Everything of a tensor but its data, whose offset place_tensors checks once all are known. */
static enum err parse_tensor(struct parser *p, struct gguf_tensor *t, uint64_t *offset)
{
    uint32_t type;
    enum err err = take_name(p, &t->name);
    if (!err)
        err = take_u32(p, &t->n_dims);
    if (err)
        return err;
    if (t->n_dims == 0 || t->n_dims > GGUF_MAX_DIMS)
        return fail(p,
                    ERR_FORMAT,
                    "%u dimensions; 1 to %d are allowed",
                    (unsigned)t->n_dims,
                    GGUF_MAX_DIMS);
    for (uint32_t i = 0; i < GGUF_MAX_DIMS; i++) {
        t->ne[i] = 1;
        if (i < t->n_dims && (err = take_u64(p, &t->ne[i])))
            return err;
    }
    if ((err = take_u32(p, &type)))
        return err;
    if ((err = take_u64(p, offset)))
        return err;
    return size_tensor(p, t, type);
}

/* Where a tensor's entry stands and where its data lie, kept until the start of the data is known
 * and overlaps can be told. */
struct place {
    uint64_t offset;
    size_t n_bytes;
    size_t entry_at;
    uint32_t id;
};

static void reenter(struct parser *p, const struct place *at)
{
    enter(p, "tensor", at->id);
    p->name = p->g->tensors[at->id].name;
    p->entry_at = at->entry_at;
}

static enum err read_alignment(struct parser *p, uint32_t *alignment)
{
    *alignment = DEFAULT_ALIGNMENT;
    struct err_info why;
    enum err err = gguf_get_u32(p->g, "general.alignment", alignment, &why);
    enter(p, "header", 0);
    if (err)
        return fail(p, err, "%s", why.text);
    if (*alignment < MIN_ALIGNMENT || *alignment > MAX_ALIGNMENT ||
        (*alignment & (*alignment - 1)) != 0)
        return fail(p,
                    ERR_FORMAT,
                    "general.alignment is %u; a power of two from %d to %d is needed",
                    (unsigned)*alignment,
                    MIN_ALIGNMENT,
                    MAX_ALIGNMENT);
    return OK;
}

/* Turn offsets into pointers: aligned, and inside the file. */
static enum err place_tensors(struct parser *p, const struct place *places)
{
    struct gguf *g = p->g;
    uint32_t alignment;
    g->n_meta_bytes = p->at;
    enum err err = read_alignment(p, &alignment);
    if (err)
        return err;
    size_t start = p->at + (alignment - p->at % alignment) % alignment;
    size_t n_data = start < g->n_bytes ? g->n_bytes - start : 0;
    for (uint32_t i = 0; i < g->n_tensors; i++) {
        const struct place *at = &places[i];
        reenter(p, at);
        if (at->offset % alignment != 0)
            return fail(p,
                        ERR_FORMAT,
                        "data offset %llu is no multiple of %u",
                        (unsigned long long)at->offset,
                        (unsigned)alignment);
        if (at->offset > n_data || at->n_bytes > n_data - at->offset)
            return fail(p,
                        ERR_FORMAT,
                        "its %zu bytes at data offset %llu end past the %zu bytes of data",
                        at->n_bytes,
                        (unsigned long long)at->offset,
                        n_data);
        g->tensors[i].data = g->base + start + at->offset;
    }
    return OK;
}

static int by_offset(const void *a, const void *b)
{
    const struct place *x = a, *y = b;
    return x->offset < y->offset ? -1 : x->offset > y->offset;
}

static enum err check_overlaps(struct parser *p, struct place *places)
{
    uint32_t n = p->g->n_tensors;
    qsort(places, n, sizeof *places, by_offset);
    for (uint32_t i = 1; i < n; i++) {
        if (places[i].offset - places[i - 1].offset >= places[i - 1].n_bytes)
            continue;
        char other[48];
        gguf_show(p->g->tensors[places[i - 1].id].name, other, sizeof other);
        reenter(p, &places[i]);
        return fail(p, ERR_FORMAT, "its data overlap those of \"%s\"", other);
    }
    return OK;
}

static enum err parse_tensors(struct parser *p, struct place *places)
{
    struct gguf *g = p->g;
    for (uint32_t i = 0; i < g->n_tensors; i++) {
        enter(p, "tensor", i);
        struct gguf_tensor *t = &g->tensors[i];
        enum err err = parse_tensor(p, t, &places[i].offset);
        if (err)
            return err;
        if (!gguf_index_add(&g->tensor_index, i))
            return fail(p, ERR_FORMAT, "appears twice");
        places[i].id = i;
        places[i].n_bytes = t->n_bytes;
        places[i].entry_at = p->entry_at;
    }
    enum err err = place_tensors(p, places);
    return err ? err : check_overlaps(p, places);
}

enum err gguf_parse(struct gguf *g, const char *label, struct err_info *e)
{
    struct parser p = {.g = g, .label = label, .e = e};
    enum err err = parse_header(&p);
    if (!err)
        err = parse_all_kv(&p);
    if (err)
        return err;
    enter(&p, "header", 0);
    uint32_t n = g->n_tensors;
    struct place *places = calloc(n ? n : 1, sizeof *places);
    g->tensors = calloc(n ? n : 1, sizeof *g->tensors);
    if (!places || !g->tensors ||
        gguf_index_init(&g->tensor_index, g->tensors, sizeof *g->tensors, n))
        err = fail(&p, ERR_NOMEM, "no memory for %u tensors", (unsigned)n);
    else
        err = parse_tensors(&p, places);
    free(places);
    return err;
}
