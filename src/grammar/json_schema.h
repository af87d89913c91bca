/* What the files of the JSON schema front end share.
 *
 *      schema -- merge: $ref, allOf --> one object of keywords -- types --> nodes
 *      json_schema.c                    json_merge.c               json_types.c */
#ifndef WEIR_GRAMMAR_JSON_SCHEMA_H
#define WEIR_GRAMMAR_JSON_SCHEMA_H

#include "grammar/internal.h"

#define SCHEMA_MAX_DEPTH 120
#define SCHEMA_MAX_WORK 60000u   /* schemas looked at, references followed */
#define BUILDER_MAX_WORK 600000u /* of all schemas of one builder: tools have many */

/* A schema that others refer to: a rule, compiled after all that name it. */
struct schema_ref {
    const json_t *target;
    const char *pointer; /* within the schema */
    grammar_node rule;
};

struct schema {
    struct grammar_builder *b;
    const json_t *root;
    struct buf path; /* JSON pointer of what is being compiled */
    struct schema_ref *refs;
    uint32_t n_refs, cap_refs;
    uint32_t depth, work;
};

/* Fail at the current path and `key` (may be NULL). */
grammar_node schema_fail(struct schema *s, const char *key, const char *fmt, ...) WEIR_PRINTF(3, 4);
size_t schema_push(struct schema *s, const char *key); /* returns what schema_pop takes */
size_t schema_push_index(struct schema *s, size_t i);
void schema_pop(struct schema *s, size_t len);

grammar_node schema_compile(struct schema *s, const json_t *schema);
/* The same, with the path one step further. */
grammar_node schema_compile_at(struct schema *s, const char *key, const json_t *schema);
/* One more schema looked at; false, with an error, when they are too many. */
bool schema_works(struct schema *s);
/* Values in v, itself counted: what comparing it may cost. */
uint32_t schema_weight(const json_t *v);
/* The target of "#/...", or NULL with an error. */
const json_t *schema_resolve(struct schema *s, const json_t *ref);

/* json_merge.c: the keywords of a schema, of what it refers to and of all of its allOf, in one new
 * object; NULL with an error. A false schema anywhere gives false. */
json_t *schema_merge(struct schema *s, const json_t *schema);
bool schema_is_annotation(const char *key);
/* Does the keyword say nothing of values? False with an error where it is misspelt. */
bool schema_is_ignored(struct schema *s, const char *key, const json_t *v);
/* Can no value satisfy both? False when that cannot be told. */
bool schema_disjoint(struct schema *s, const json_t *x, const json_t *y);

/* json_logic.c: a schema that holds where x does not, new; NULL, without an error: it cannot be
 * said.
 */
json_t *schema_negate(struct schema *s, const json_t *x);
/* not, if, and what depends on members. */
bool schema_is_logic(const char *key);
/* What such a keyword of x comes to, new, or NULL with an error; *plain: it is itself, to be kept
 * as a keyword. */
json_t *schema_logic(struct schema *s, const json_t *x, const char *key, json_t *v, bool *plain);

/* json_types.c: values of one type. */
#define TYPE_NULL 1u
#define TYPE_BOOLEAN 2u
#define TYPE_INTEGER 4u
#define TYPE_NUMBER 8u /* all numbers, integers too */
#define TYPE_STRING 16u
#define TYPE_ARRAY 32u
#define TYPE_OBJECT 64u
#define TYPE_ALL 127u
/* Of "type" and "nullable"; where there is no type, what the keywords speak of, or all. */
bool schema_types(struct schema *s, const json_t *merged, uint32_t *types);
uint32_t schema_type_of(const json_t *value);
const char *schema_type_name(uint32_t types); /* of the first of them */
/* json_scalars.c */
grammar_node schema_string(struct schema *s, const json_t *m);
grammar_node schema_integer(struct schema *s, const json_t *m);
grammar_node schema_number(struct schema *s, const json_t *m);
bool schema_refuses(const json_t *m, const json_t *value); /* is it in what stays of "not"? */
/* What a pattern matches, as the inside of a string; errors name `key`. */
grammar_node schema_pattern(struct schema *s, const char *key, const json_t *pattern);
grammar_node schema_array(struct schema *s, const json_t *m);  /* json_array.c */
grammar_node schema_object(struct schema *s, const json_t *m); /* json_object.c */
/* A number of elements or characters; false with an error if it is none. */
bool schema_count(struct schema *s, const json_t *m, const char *key, uint32_t *out);
/* A node that is used in several places, as a rule. */
grammar_node schema_shared(struct schema *s, grammar_node node);

#endif
