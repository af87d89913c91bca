#include "base/mem.h"
#include "cli/serve_options.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_NAME_BYTES 128

static int compare(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

enum err serve_names_parse(const char *list, struct serve_names *out, struct err_info *e)
{
    *out = (struct serve_names){.text = mem_strdup(list)};
    for (char *rest = out->text, *at; (at = strsep(&rest, ","));) {
        at += strspn(at, " ");
        for (size_t n = strlen(at); n > 0 && at[n - 1] == ' '; n--)
            at[n - 1] = '\0';
        if (*at == '\0' || strlen(at) > MAX_NAME_BYTES)
            return err_set(e, ERR_INVALID, "a name must have 1 to %d bytes", MAX_NAME_BYTES);
        if (out->n == sizeof out->names / sizeof out->names[0])
            return err_set(
                e, ERR_INVALID, "more than %zu names", sizeof out->names / sizeof out->names[0]);
        out->names[out->n++] = at;
    }
    qsort(out->names, out->n, sizeof *out->names, compare);
    size_t kept = 1;
    for (size_t i = 1; i < out->n; i++)
        if (strcmp(out->names[i], out->names[kept - 1]) != 0)
            out->names[kept++] = out->names[i];
    out->n = kept;
    return OK;
}

void serve_names_deinit(struct serve_names *n)
{
    free(n->text);
    *n = (struct serve_names){0};
}

void serve_model_id(const struct serve_options *o, const char *path, char *out, size_t cap)
{
    const char *slash = strrchr(path, '/');
    snprintf(out, cap, "%s", o->aliases.n > 0 ? o->aliases.names[0] : slash ? slash + 1 : path);
    size_t n = strlen(out);
    if (o->aliases.n == 0 && n > 5 && strcmp(out + n - 5, ".gguf") == 0)
        out[n -= 5] = '\0';
    const size_t n_suffix = sizeof "-00001-of-00003" - 1; /* the first file of a split model */
    if (o->aliases.n == 0 && n > n_suffix && strncmp(out + n - n_suffix, "-00001-of-", 10) == 0)
        out[n - n_suffix] = '\0';
    for (char *c = out; *c && o->aliases.n == 0; c++) { /* it appears in JSON and in URLs */
        if (!isalnum((unsigned char)*c) && !strchr("-._", *c))
            *c = '-';
    }
}
