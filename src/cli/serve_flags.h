/* What weir serve takes: one row a flag, with its help and what it sets. For serve_options.c. */
#ifndef WEIR_CLI_SERVE_FLAGS_H
#define WEIR_CLI_SERVE_FLAGS_H

#include "cli/serve_options.h"

#include <argp.h>
#include <stddef.h>

enum flag_kind {
    FLAG_OTHER,  /* as `take` reads it */
    FLAG_NUMBER, /* an unsigned member of any size, from lo to hi */
    FLAG_SIZE,   /* the same, as 512M */
    FLAG_REAL,   /* double, from lo to hi */
    FLAG_TEXT,   /* const char *; `empty` says why it may not be empty */
    FLAG_SWITCH, /* bool: true for on, or without a value; false for off */
    FLAG_UNLESS, /* the other way round */
    FLAG_DEVICE, /* by model_options.h */
    /* what requests are taken to say, under the flag's name with _ for -: */
    FLAG_DEFAULT_REAL,  /* from lo to hi */
    FLAG_DEFAULT_WHOLE, /* from lo to hi, or to INT64_MAX where that is 0 */
    FLAG_DEFAULT_BOOL,  /* on, off */
};

struct serve_flag {
    const char *name; /* NULL: doc is the title of a group, up to the next one */
    const char *arg, *doc;
    enum flag_kind kind;
    size_t at, size; /* the member of struct serve_options */
    double lo, hi;
    const char *empty;
    bool guard; /* without it the server lets everybody in, or speaks openly */
    /* flag: "--name" */
    void (*take)(struct argp_state *s, const char *flag, const char *arg);
    const char *instead; /* the flag that it may not be given with, or NULL */
    int key;             /* its letter, or that of model_options.h; 0: none */
    int flags;           /* argp's */
    int group;
};

extern const struct serve_flag serve_flags[]; /* up to one without name and doc */
extern const char serve_doc[];

/* NULL: there is none. (serve_options.c) */
const struct preset *serve_preset_find(const char *name);

#endif
