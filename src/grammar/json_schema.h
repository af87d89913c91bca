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
    json_t *mark;       /* of schemas that we made (json_merge.c), or NULL */
    uint32_t n_negated; /* parts that `not` came to, within which we are */
    bool old_contains;  /* by draft 2019-09, where contains evaluates nothing */
    bool combined;      /* what is compiled comes from several schemas, which may disagree */
    int n_ids;          /* 1 + "$id"s below the root; 0: not counted yet */
};
/* In a schema that `not` came to: what it names is not described by that. No client's JSON has such
 * a name, which is no UTF-8; so it takes jansson's functions that do not check. */
#define SCHEMA_NEGATED "\xff"

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
bool schema_is_one_of(const char *key, const char *const *list, size_t n);
#define IS_ONE_OF(key, list) schema_is_one_of(key, list, sizeof(list) / sizeof(list)[0])
/* Values in v, itself counted: what comparing it may cost. */
uint32_t schema_weight(const json_t *v);
/* json_ref.c: $ref, or one of its dynamic kind, which are the same where a document has one of each
 * name. */
bool schema_is_ref(const char *key);
/* The target of "#/...", "#anchor" or the root's own id with these, or NULL with an error. */
const json_t *schema_resolve(struct schema *s, const char *key, const json_t *ref);
/* The options of a oneOf as those of an anyOf, each without the others; NULL with an error.
 * beside: what holds too, or NULL. */
json_t *schema_exclusive(struct schema *s, json_t *beside, const json_t *list);

/* json_merge.c: the keywords of a schema, of what it refers to and of all of its allOf, in one new
 * object; NULL with an error. A false schema anywhere gives false. */
json_t *schema_merge(struct schema *s, const json_t *schema);
bool schema_is_annotation(const char *key);
/* Does the keyword say nothing of values? False with an error where it is misspelt. */
bool schema_is_ignored(struct schema *s, const char *key);

/* json_evaluated.c: what merging asks of unevaluatedProperties and -Items. `part` is to become a
 * part of m; it is a copy where it has one of them. */
bool schema_has_unevaluated(const json_t *m);
bool schema_is_evaluated_list(const struct schema *s, const json_t *part, const char *key);
/* False with an error. */
bool schema_read_unevaluated(
    struct schema *s, json_t *part, const json_t *contains, json_t *m, uint32_t depth);
/* Note what the part evaluates; what `not` came to evaluates nothing. False with an error. */
bool schema_note_evaluated(struct schema *s, const json_t *part, json_t *m);
json_t *schema_negated_options(json_t *list); /* of what `not` came to: new */
void schema_mark_negated(json_t *schema);     /* NULL is fine */
json_t *schema_negated_all(json_t *schema);   /* allOf it, marked: new */
void schema_settle_evaluated(struct schema *s, json_t *m);

/* json_apart.c: can no value satisfy both? False when that cannot be told. */
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
/* Two numbers, exactly: below 0, 0 or above 0, as x is less than y, equal or more. */
int schema_compare_numbers(const json_t *x, const json_t *y);
bool schema_same_value(const json_t *x, const json_t *y); /* 1 and 1.0 are, also within */
/* The double next to a bound on its inner side: what keeps to that keeps to the bound. */
double schema_inner_double(const json_t *bound, bool lower);
/* Has it a number that may stand for an integer beyond 64 bits (json_text_widen), and so for
 * another than itself? */
bool schema_is_inexact(const json_t *v);
/* json_scalars.c */
grammar_node schema_string(struct schema *s, const json_t *m);
grammar_node schema_integer(struct schema *s, const json_t *m);
grammar_node schema_number(struct schema *s, const json_t *m);
bool schema_refuses(const json_t *m, const json_t *value); /* is it in what stays of "not"? */
/* The insides of strings that patterns and format allow; NULL: over a bound, or an error. */
struct dfa *schema_patterns(struct schema *s, const json_t *m);
/* Is the number within the bounds, and a multiple? False also with an error. */
bool schema_keeps_number(struct schema *s, const json_t *m, const json_t *v);
/* json_values.c: the values that a merged schema with enum or const lists and that all else it says
 * keeps: new, or NULL with an error; and one of them, as a node. */
json_t *schema_listed(struct schema *s, const json_t *m);
grammar_node schema_values(struct schema *s, const json_t *m);
/* What a pattern matches, as the inside of a string; over: by any language's rules, to be taken
 * out. Errors name `key`. */
grammar_node schema_pattern(struct schema *s, const char *key, const json_t *pattern, bool over);
grammar_node schema_object(struct schema *s, const json_t *m); /* json_object.c */
grammar_node schema_array(struct schema *s, const json_t *m);  /* json_array.c */
/* Before *part becomes a part of m: what each says of elements beyond its prefixItems holds for the
 * other's list too. So both lists become one, which is *part's; that is a copy then. False with an
 * error. */
bool schema_elements_agree(struct schema *s, json_t *m, json_t **part);
/* A number of elements or characters; false with an error if it is none. */
bool schema_count(struct schema *s, const json_t *m, const char *key, uint32_t *out);
/* A node that is used in several places, as a rule. */
grammar_node schema_shared(struct schema *s, grammar_node node);

#endif
