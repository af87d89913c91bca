/* What reading and writing of OpenAI's /v1/responses share. For responses.c and responses_*.c. */
#ifndef WEIR_API_RESPONSES_H
#define WEIR_API_RESPONSES_H

#include "api/call.h"
#include "api/reply.h"

enum item { ITEM_NONE, ITEM_MESSAGE, ITEM_REASONING, ITEM_CALL };

/* Behind api_call.state. */
struct responses {
    struct buf echo;     /* fields of the answer that repeat the request: ,"name":value ... */
    struct buf messages; /* the conversation so far, as JSON without its closing bracket */
    struct buf given;    /* the input items so far, as a JSON array */
    bool store;
    json_t *offered; /* the tools that the model is told of, as they came */
    json_t *places;  /* [of the chat's tools] where in the body each is, for errors */
    json_t *renamed; /* {name that the model has: {"name", "namespace", "custom"}} of those that are
                      * called otherwise in the answer; or NULL */
    /* writing: */
    uint32_t sequence; /* number of the next event */
    enum item open;    /* the item under way, of index n_items */
    char item_id[40];
    char call_id[API_CALL_ID_BYTES]; /* of ITEM_CALL */
    struct buf name;                 /* that the model has for its tool, as JSON in its quotes */
    const json_t *tool;              /* of its tool: what `renamed` has, or NULL */
    struct buf input;                /* of a custom tool, as JSON between its quotes */
    struct buf text;      /* of the item: text or arguments, as JSON between its quotes */
    struct buf logprobs;  /* of a message, JSON with commas between */
    struct buf noted;     /* of tokens that no event has told of yet, likewise */
    uint32_t n_items;     /* complete ones */
    struct buf items;     /* those, as JSON with commas between */
    int64_t completed_at; /* seconds since 1970; 0: it is not, or was cut */
    /* for the conversation, as JSON between its quotes or brackets: */
    struct buf said, thought, called;
};

enum err responses_adapt(struct api_call *c, const json_t *body, json_t **out, struct err_info *e)
    WEIR_MUST_USE;
/* The whole conversation into b, and what of it is kept into the state. (responses_input.c) */
enum err responses_adapt_input(struct api_call *c,
                               const json_t *body,
                               json_t *b,
                               struct err_info *e) WEIR_MUST_USE;

/* r->given: the input items of an earlier answer, what that put out, and `input` of this request;
 * the first two may be NULL. (responses_items.c) Errors: ERR_NOMEM. */
enum err responses_keep_items(struct responses *r,
                              const json_t *earlier,
                              const json_t *answer,
                              const json_t *input,
                              struct err_info *e) WEIR_MUST_USE;
/* The error that no answer is kept under the id. (responses.c) */
enum err responses_none(const char *id, struct err_info *e);

/* Tools and tool_choice into b, as chat has them. (responses_tools.c) */
enum err responses_adapt_tools(struct responses *r,
                               const json_t *body,
                               json_t *b,
                               struct err_info *e) WEIR_MUST_USE;
/* o's member may be absent or null, else it must be a string; `of` names o in errors. */
enum err responses_check_text(const json_t *o, const char *name, const char *of, struct err_info *e)
    WEIR_MUST_USE;
/* The error that a text is not there. */
enum err responses_missing(const char *field, const char *name, struct err_info *e);
/* What the model calls a tool of this name, in a namespace unless that is "": one name. */
void responses_tool_name(const char *space, const char *name, struct buf *out);
/* r->tool is of the tool that the model called by r->name; name: its own, not quoted. */
void responses_find_tool(struct responses *r, const char *name, size_t n);
bool responses_is_custom(const struct responses *r); /* is ITEM_CALL of such a tool? */
/* r->text, the arguments that the model wrote for a custom tool, become r->input. */
void responses_read_input(struct responses *r);
/* "type", "call_id", "name" and what the tool is given, if `whole`. */
void responses_put_call(const struct responses *r, bool whole, struct buf *out);
void responses_put_tool_name(const struct responses *r, struct buf *out); /* "name":... */

enum err responses_parse(struct api_call *c,
                         const json_t *body,
                         struct api_job *job,
                         struct err_info *e) WEIR_MUST_USE;

#endif
