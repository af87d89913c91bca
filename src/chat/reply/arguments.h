/* What the schema of a tool says of its arguments; for the grammars of calls (arguments.c, tags.c).
 */
#ifndef WEIR_CHAT_REPLY_ARGUMENTS_H
#define WEIR_CHAT_REPLY_ARGUMENTS_H

#include "chat/reply/frame.h"

enum { MAX_KEY = 64, MAX_NESTING = 32 };

struct argument {
    const char *key;
    json_t *schema; /* merged: no $ref and no allOf at its root; json_true: any value */
    bool required;
    uint32_t depth;     /* within values of values */
    const json_t *read; /* in tags: what the reader finds for it in the tool's schema; or NULL */
};

struct arguments {
    struct argument *list;
    size_t n;
};

/* ---- arguments.c ---- */

/* The JSON pointer of a tool's parameters, or of one of them; WHERE has room for it in the block.
 */
const char *arguments_where(size_t tool, const char *key, char out[160]);
#define WHERE(tool, key) arguments_where(tool, key, (char[160]){0})
/* The grammar fails: what is wrong with an argument, or (key NULL) with all. */
grammar_node arguments_fail(const struct maker *m, size_t tool, const char *key, const char *what);
/* The part with what it refers to within root, by $ref and allOf, in one object; definitions stay
 * beside it. The caller's reference; NULL with an error kept by the builder. */
json_t *arguments_merged(const struct maker *m,
                         const json_t *root,
                         const json_t *part,
                         const char *at);
/* Does nothing bound the members but what each of them says? */
bool arguments_counts_fit(const json_t *schema);
/* The properties in their order, then those that are required and not described. False, with an
 * error, where they are said in another way. To be freed in both cases. */
bool arguments_collect(const struct maker *m,
                       const json_t *schema,
                       size_t tool,
                       struct arguments *out);
void arguments_deinit(const struct arguments *a);
/* The grammar fails: no call can have an argument of this name. */
grammar_node arguments_unwritable(const struct maker *m, size_t tool, const char *key);
/* A number of the schema's, at most 10000; `absent` where there is none. */
uint32_t arguments_count(const json_t *schema, const char *key, uint32_t absent);
/* The argument as JSON. */
grammar_node arguments_json(const struct maker *m, const struct argument *a, size_t tool);

/* ---- tags.c ---- */

/* Any arguments: keys of sensible bytes, and values that end with the closing tag. */
grammar_node tags_any(const struct maker *m);
/* all: by their names the schemas by which the reader reads them. */
grammar_node tags_arguments(const struct maker *m,
                            const struct arguments *a,
                            size_t tool,
                            const json_t *all);

#endif
