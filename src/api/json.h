/* JSON in and out, for api/ and what stands on it.
 *
 * In: jansson parses; the readers below check type and range and name the field in the error.
 * Absent and null are the same: *out keeps what the caller put there.
 *
 * Out: written straight into a struct buf, because a busy server writes thousands of small objects
 * a second and jansson prints 0.1 as 0.10000000000000001. */
#ifndef WEIR_API_JSON_H
#define WEIR_API_JSON_H

#include "base/buf.h"
#include "base/err.h"
#include "base/json_text.h"
#include "gguf/gguf.h"

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

/* The body of a request; *out must be an object, and the caller's reference. Errors: ERR_INVALID
 * with line and column, ERR_NOMEM. */
enum err api_json_parse(const char *body, size_t n_bytes, json_t **out, struct err_info *e)
    WEIR_MUST_USE;

/* jansson's allocations are noted from now on: once, before any other use of it. */
void api_json_watch(void);
/* Whether this thread's jansson was refused memory since it was last asked. It takes that for an
 * error of syntax, gives NULL, or leaves bytes of a string out. */
bool api_json_starved(void);

/* json_loadb, but an integer beyond 64 bits is the nearest double and no error, and a value that
 * memory was refused for is NULL (api_json_starved). je is not NULL. */
json_t *api_json_load(const char *text, size_t n_bytes, size_t flags, json_error_t *je);

const char *api_json_kind(const json_t *v); /* "a string", "null" */

/* "FIELD must be WANTED, not a KIND" */
enum err api_wrong_type(const char *field, const char *wanted, const json_t *v, struct err_info *e)
    WEIR_MUST_USE;
/* If an error is of the field `from`, or an element of it, let it speak of `to`. */
void api_rename_field(struct err_info *e, const char *from, const char *to);

/* The field, or NULL when it is absent or null: clients write null for "your default". */
const json_t *api_get(const json_t *o, const char *name);
/* Where api_get has nothing, value, which is body's or gone. */
void api_set_default(json_t *body, const char *name, json_t *value);

enum err api_get_bool(const json_t *o, const char *name, bool *out, struct err_info *e)
    WEIR_MUST_USE;
/* A real without a fraction serves, as clients in some languages have no other numbers. */
enum err api_get_int(const json_t *o,
                     const char *name,
                     int64_t lo,
                     int64_t hi,
                     int64_t *out,
                     struct err_info *e) WEIR_MUST_USE;
enum err api_get_real(const json_t *o,
                      const char *name,
                      double lo,
                      double hi,
                      double *out,
                      struct err_info *e) WEIR_MUST_USE;
enum err api_get_str(const json_t *o, const char *name, struct gguf_str *out, struct err_info *e)
    WEIR_MUST_USE; /* a view that lives as long as o */

/* *out: the array or object of that name, NULL where it is absent or null. `wanted`: what errors
 * say that it must be. */
enum err api_get_array(const json_t *o,
                       const char *name,
                       const char *wanted,
                       json_t **out,
                       struct err_info *e) WEIR_MUST_USE;
enum err api_get_object(const json_t *o,
                        const char *name,
                        const char *wanted,
                        json_t **out,
                        struct err_info *e) WEIR_MUST_USE;

/* OpenAI's "metadata", or NULL where there is none: up to 16 strings of up to 512 bytes, under
 * names of up to 64. */
enum err api_get_metadata(const json_t *body, json_t **out, struct err_info *e) WEIR_MUST_USE;

/* The string of that name as far as a NUL; "" where there is none. */
const char *api_text_at(const json_t *o, const char *name);

/* The object of that name, made body's own so that it can be changed: a copy, or an empty one where
 * it is absent or null; it lives in body. NULL, and nothing is changed, where it is something else.
 */
json_t *api_own_object(json_t *body, const char *name);

/* NULL: it is no UTF-8, or there is no memory, nor was for the text (api_json_starved). */
json_t *api_json_string(const struct buf *text);

/* One integer of any place in a document; `field` names it in errors. */
enum err api_int_of(const json_t *v,
                    const char *field,
                    int64_t lo,
                    int64_t hi,
                    int64_t *out,
                    struct err_info *e) WEIR_MUST_USE;

/* *out is v if that is a whole number of 64 bits, with or without a point; else false. */
bool api_is_whole(const json_t *v, int64_t *out);

/* s as a JSON string with its quotes (without: json_text_escape). s is valid UTF-8. */
void api_put_str(struct buf *b, const char *s, size_t n);
/* The same for any bytes: what is not UTF-8 becomes U+FFFD. */
void api_put_text(struct buf *b, const char *s, size_t n);

void api_put_int(struct buf *b, int64_t v);
/* The shortest digits that read back as the same float or double; infinities and NaN, which JSON
 * does not have, become -9999 (as in log-probabilities of impossible tokens) or 0. */
void api_put_float(struct buf *b, float v);
void api_put_double(struct buf *b, double v);
/* Up to nine digits, which read back as the same float: quicker than the fewest that do, for arrays
 * of thousands. */
void api_put_value(struct buf *b, float v);

/* begin, items (JSON with commas between), and the bracket that ends them. */
void api_put_items(struct buf *b, const char *begin, const struct buf *items);

/* A field of an object that is being written. A comma goes first unless the object has just been
 * opened: the last byte is '{'. */
void api_field(struct buf *b, const char *name); /* the value is still to come */
void api_field_int(struct buf *b, const char *name, int64_t v);
void api_field_real(struct buf *b, const char *name, double v);
void api_field_bool(struct buf *b, const char *name, bool v);
void api_field_text(struct buf *b, const char *name, const char *s); /* NULL: null */
void api_field_null(struct buf *b, const char *name);

#endif
