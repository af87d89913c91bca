/* weir inspect: what a GGUF file holds. Everything printed comes from a hostile file, so text goes
 * through gguf_show: no byte of it reaches the terminal unescaped. */
#include "cli/cli.h"
#include "gguf/gguf.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    N_SHOWN_ELEMS = 6, /* of an array, unless --full */
    SHOWN_BYTES = 72,  /* of a string, unless --full */
    NAME_BYTES = 96,
    MAX_TYPES = 64, /* more than the format defines */
};

struct options {
    const char *path;
    bool full;
};

static error_t parse_option(int key, char *arg, struct argp_state *state)
{
    struct options *o = state->input;
    switch (key) {
    case 'f':
        o->full = true;
        return 0;
    case 'm': /* as the other commands name it */
    case ARGP_KEY_ARG:
        if (o->path)
            argp_error(state, "one MODEL at a time");
        o->path = arg;
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

static const struct argp_option options[] = {
    {"model", 'm', "MODEL", 0, "The same as MODEL", 0},
    {"full", 'f', NULL, 0, "Print arrays and long strings whole", 0},
    {0},
};

static const struct argp argp = {
    .options = options,
    .parser = parse_option,
    .args_doc = "[MODEL]",
    .doc = "Print what a GGUF file holds: its metadata, its tensors, and bytes by type. Without "
           "MODEL, the built-in model. Of a split model, name the first file."
           "\vExamples:\n"
           "  weir inspect\n"
           "  weir inspect model.gguf\n"
           "  weir inspect --full model.gguf | grep tokenizer",
};

/* "1.5 MiB" */
static const char *show_size(uint64_t n_bytes, char *out, size_t cap)
{
    static const char *const units[] = {"bytes", "KiB", "MiB", "GiB", "TiB"};
    double n = (double)n_bytes;
    size_t unit = 0;
    while (n >= 1024 && unit + 1 < sizeof units / sizeof units[0]) {
        n /= 1024;
        unit++;
    }
    snprintf(out, cap, "%.*f %s", unit ? 1 : 0, n, units[unit]);
    return out;
}

static const char *kind_name(enum gguf_kind kind)
{
    static const char *const names[] = {"u8",
                                        "i8",
                                        "u16",
                                        "i16",
                                        "u32",
                                        "i32",
                                        "f32",
                                        "bool",
                                        "string",
                                        "array",
                                        "u64",
                                        "i64",
                                        "f64"};
    return (size_t)kind < sizeof names / sizeof names[0] ? names[kind] : "?";
}

/* A string in quotes; a cut one is followed by its length. */
static void print_string(struct gguf_str s, bool full)
{
    char cut[SHOWN_BYTES];
    size_t cap = 4 * s.len + 8; /* an escaped byte takes four; no overflow: s lies in the file */
    char *whole = full ? malloc(cap) : NULL;
    const char *text = whole ? gguf_show(s, whole, cap) : gguf_show(s, cut, sizeof cut);
    printf("\"%s\"", text);
    size_t len = strlen(text);
    if (!whole && s.len > sizeof cut - 4 && len >= 3 && strcmp(text + len - 3, "...") == 0)
        printf(" (%zu bytes)", s.len);
    free(whole);
}

/* The shortest decimal number that reads back as f. */
static void print_f32(float f)
{
    char text[32];
    int digits = 5;
    do
        snprintf(text, sizeof text, "%.*g", ++digits, (double)f);
    while (digits < 9 && strtof(text, NULL) != f);
    fputs(text, stdout);
}

static void print_scalar(const struct gguf_kv *kv, bool full)
{
    switch (kv->kind) {
    case GGUF_U8:
    case GGUF_U16:
    case GGUF_U32:
    case GGUF_U64:
        printf("%" PRIu64, kv->u);
        return;
    case GGUF_I8:
    case GGUF_I16:
    case GGUF_I32:
    case GGUF_I64:
        printf("%" PRId64, kv->i);
        return;
    case GGUF_F32:
        print_f32((float)kv->f);
        return;
    case GGUF_F64:
        printf("%.17g", kv->f);
        return;
    case GGUF_BOOL:
        fputs(kv->b ? "true" : "false", stdout);
        return;
    case GGUF_STRING:
        print_string(kv->s, full);
        return;
    case GGUF_ARRAY:
        return;
    }
}

static void print_array(const struct gguf_kv *kv, bool full)
{
    const uint8_t *at = kv->elems;
    uint64_t n = full || kv->n_elems < N_SHOWN_ELEMS ? kv->n_elems : N_SHOWN_ELEMS;
    putchar('[');
    for (uint64_t i = 0; i < n; i++) {
        struct gguf_kv elem = {.kind = GGUF_STRING};
        if (kv->elem_kind == GGUF_STRING)
            elem.s = gguf_next_str(&at);
        else
            elem = gguf_elem(kv, i);
        fputs(i ? ", " : "", stdout);
        print_scalar(&elem, full);
    }
    fputs(n < kv->n_elems ? ", ...]" : "]", stdout);
}

static void print_metadata(const struct gguf *g, bool full)
{
    printf("\nmetadata: %" PRIu64 " keys\n", gguf_n_kv(g));
    for (uint64_t i = 0; i < gguf_n_kv(g); i++) {
        const struct gguf_kv *kv = gguf_kv_at(g, i);
        char name[NAME_BYTES], kind[48];
        if (kv->kind == GGUF_ARRAY)
            snprintf(kind, sizeof kind, "%s[%" PRIu64 "]", kind_name(kv->elem_kind), kv->n_elems);
        else
            snprintf(kind, sizeof kind, "%s", kind_name(kv->kind));
        printf("  %-40s %-15s ", gguf_show(kv->key, name, sizeof name), kind);
        if (kv->kind == GGUF_ARRAY)
            print_array(kv, full);
        else
            print_scalar(kv, full);
        putchar('\n');
    }
}

/* The files of a split model. */
static void print_parts(const struct gguf *g)
{
    uint32_t n = gguf_n_parts(g);
    uint64_t at = 0; /* tensors lie part by part */
    printf("\nparts: %u\n", (unsigned)n);
    for (uint32_t i = 0; i < n; i++) {
        char name[NAME_BYTES];
        const char *path = gguf_part_path(g, i), *slash = strrchr(path, '/');
        const char *base = slash ? slash + 1 : path;
        uint64_t first = at;
        while (at < gguf_n_tensors(g) && gguf_tensor_at(g, at)->part == i)
            at++;
        printf("  %5u  %-40s %8" PRIu64 " tensors %14zu bytes\n",
               (unsigned)i + 1,
               gguf_show((struct gguf_str){base, strlen(base)}, name, sizeof name),
               at - first,
               gguf_part_bytes(g, i));
    }
}

static void print_tensors(const struct gguf *g)
{
    const bool split = gguf_n_parts(g) > 1;
    printf("\ntensors: %" PRIu64 "\n", gguf_n_tensors(g));
    if (gguf_n_tensors(g) > 0)
        printf("  %-40s %-8s %-24s %14s %14s%s\n",
               "name",
               "type",
               "shape",
               "bytes",
               "offset",
               split ? "  part" : "");
    for (uint64_t i = 0; i < gguf_n_tensors(g); i++) {
        const struct gguf_tensor *t = gguf_tensor_at(g, i);
        char name[NAME_BYTES], shape[GGUF_MAX_DIMS * 24];
        int len = 0;
        for (uint32_t d = 0; d < t->n_dims; d++)
            len += snprintf(
                shape + len, sizeof shape - (size_t)len, "%s%" PRIu64, d ? " x " : "", t->ne[d]);
        printf("  %-40s %-8s %-24s %14zu %14zu",
               gguf_show(t->name, name, sizeof name),
               gguf_type_name(t->type),
               shape,
               t->n_bytes,
               gguf_tensor_offset(g, t));
        if (split)
            printf(" %5u", (unsigned)t->part + 1);
        putchar('\n');
    }
}

/* Tensors, values and bytes of each type; the product of a checked shape cannot overflow. */
static void print_totals(const struct gguf *g)
{
    struct {
        uint64_t n_tensors, n_values, n_bytes;
    } by_type[MAX_TYPES] = {0}, all = {0};
    for (uint64_t i = 0; i < gguf_n_tensors(g); i++) {
        const struct gguf_tensor *t = gguf_tensor_at(g, i);
        if ((size_t)t->type >= MAX_TYPES)
            continue;
        by_type[t->type].n_tensors++;
        by_type[t->type].n_values += t->ne[0] * t->ne[1] * t->ne[2] * t->ne[3];
        by_type[t->type].n_bytes += t->n_bytes;
    }
    printf("\ntotals:\n  %-10s %10s %16s %16s\n", "type", "tensors", "values", "bytes");
    for (uint32_t type = 0; type < MAX_TYPES; type++) {
        if (by_type[type].n_tensors == 0)
            continue;
        printf("  %-10s %10" PRIu64 " %16" PRIu64 " %16" PRIu64 "%s\n",
               gguf_type_name(type),
               by_type[type].n_tensors,
               by_type[type].n_values,
               by_type[type].n_bytes,
               gguf_type_is_computed((enum gguf_type)type) ? "" : "  (weir does not compute this)");
        all.n_tensors += by_type[type].n_tensors;
        all.n_values += by_type[type].n_values;
        all.n_bytes += by_type[type].n_bytes;
    }
    printf("  %-10s %10" PRIu64 " %16" PRIu64 " %16" PRIu64 "\n",
           "all",
           all.n_tensors,
           all.n_values,
           all.n_bytes);
}

int cmd_inspect(int argc, char **argv)
{
    struct options o = {0};
    struct err_info e = {0};
    struct gguf *g;
    char size[32], name[256];
    cli_parse(&argp, argc, argv, &o);
    const char *path = cli_model_path(o.path, &e);
    if (!path || gguf_open(path, &g, &e))
        return cli_fail("inspect", &e);
    printf("%s: GGUF version %u, %s (%zu bytes)\n",
           gguf_show((struct gguf_str){path, strlen(path)}, name, sizeof name),
           (unsigned)gguf_version(g),
           show_size(gguf_file_bytes(g), size, sizeof size),
           gguf_file_bytes(g));
    if (gguf_n_parts(g) > 1)
        print_parts(g);
    print_metadata(g, o.full);
    print_tensors(g);
    print_totals(g);
    gguf_close(g);
    return EXIT_DONE;
}
