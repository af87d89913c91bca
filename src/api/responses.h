/* What reading and writing of OpenAI's /v1/responses share. For responses.c and responses_parse.c.
 */
#ifndef WEIR_API_RESPONSES_H
#define WEIR_API_RESPONSES_H

#include "api/call.h"
#include "api/reply.h"

enum item { ITEM_NONE, ITEM_MESSAGE, ITEM_REASONING, ITEM_CALL };

/* Behind api_call.state. */
struct responses {
    struct buf echo;     /* fields of the answer that repeat the request: ,"name":value ... */
    struct buf messages; /* the conversation so far, as JSON without its closing bracket */
    bool store;
    /* writing: */
    uint32_t sequence; /* number of the next event */
    enum item open;    /* the item under way, of index n_items */
    char item_id[40];
    char call_id[API_CALL_ID_BYTES]; /* of ITEM_CALL */
    struct buf name;                 /* of its tool, as JSON between its quotes */
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
enum err responses_parse(struct api_call *c,
                         const json_t *body,
                         struct api_job *job,
                         struct err_info *e) WEIR_MUST_USE;

#endif
