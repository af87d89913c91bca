/* What reading and writing of llama-server's /completion share, and what other routes have of it.
 */
#ifndef WEIR_API_NATIVE_H
#define WEIR_API_NATIVE_H

#include "api/call.h"

#define NATIVE_RANDOM_SEED 4294967295LL /* what llama-server calls -1 */

/* Behind api_call.state. */
struct native {
    json_t *fields;    /* names of those of the answer that are wanted; NULL: all; */
    json_t *shared;    /* those of the settings, by their names, as JSON in a string */
    int64_t n_predict; /* as asked for; -1: no limit */
    int64_t id_slot;
    bool tokens;                  /* name them in answers */
    bool post_sampling;           /* probabilities are those that tokens were drawn by */
    struct {                      /* until parse hands them to the request */
        struct logit_bias *items; /* [n] of n_vocab, an id once however often a body names it */
        uint32_t n;
        uint32_t *places; /* [n_vocab] one more than where in items an id is; 0: nowhere */
    } bias;
    bool *has_new_line; /* [n_choices] in the text so far; made on first use */
};

enum err native_adapt(struct api_call *c, const json_t *body, json_t **out, struct err_info *e)
    WEIR_MUST_USE;
enum err native_parse(struct api_call *c,
                      const json_t *body,
                      struct api_job *job,
                      struct err_info *e) WEIR_MUST_USE;
/* The part of it without the prompts. */
void native_parse_settings(struct api_call *c, const json_t *body, struct api_job *job);

/* response_fields. (native_fields.c) */
enum err native_read_fields(struct native *s, const json_t *body, struct err_info *e) WEIR_MUST_USE;
/* Once the settings of an answer are known. */
void native_share_settings(struct native *s, const struct buf *settings);
/* The answer, or of it the fields that were asked for, by the names they were asked by. Where they
 * were, its own settings may be anything. */
void native_put_selected(const struct native *s, const struct buf *all, struct buf *out);

/* Of the array of that name, if it is one, all strings but this one stay. */
void native_drop_text(json_t *body, const char *name, const char *text);

/* POST /infill: the prompt of a text with a gap. (infill.c) */
enum err infill_parse(struct api_call *c,
                      const json_t *body,
                      struct api_job *job,
                      struct err_info *e) WEIR_MUST_USE;
enum err infill_adapt(struct api_call *c, const json_t *body, json_t **out, struct err_info *e)
    WEIR_MUST_USE;

/* Ids as llama-server writes prompts: each token by itself, so that a space that it begins with
 * stays behind BOS. */
void native_text(const struct tokenizer *t, const token_id *ids, size_t n, struct buf *out);

/* "generation_settings", and the same for /props and other dialects. job NULL: the defaults. s
 * NULL: of another dialect. (native_settings.c) */
void native_put_settings(const struct api_call *c,
                         const struct native *s,
                         const struct api_job *job,
                         struct buf *out);

/* Text to ids as llama-server reads it: BOS where it begins a prompt of a model that wants one, and
 * special tokens recognised, for its clients write whole prompts. */
enum err native_encode(const struct tokenizer *t,
                       const json_t *text,
                       bool first,
                       bool parse_special,
                       struct token_list *ids,
                       struct err_info *e) WEIR_MUST_USE;
/* An array of ids, and of texts that are read so; `first` is of one at its beginning. */
enum err native_encode_list(const struct tokenizer *t,
                            const json_t *list,
                            const char *field,
                            bool first,
                            bool parse_special,
                            struct token_list *ids,
                            struct err_info *e) WEIR_MUST_USE;

#endif
