/* What reading and writing of OpenAI's /v1/responses share. For responses.c and responses_parse.c.
 */
#ifndef WEIR_API_RESPONSES_H
#define WEIR_API_RESPONSES_H

#include "api/call.h"

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
    uint32_t n_items;    /* complete ones */
    struct buf items;    /* those, as JSON with commas between */
    struct buf text;     /* of the item under way, as JSON between its quotes */
    struct buf logprobs; /* of it, JSON with commas between */
    struct buf said;     /* all the message's text, likewise, for the conversation */
};

enum err responses_adapt(struct api_call *c, const json_t *body, json_t **out, struct err_info *e)
    WEIR_MUST_USE;
enum err responses_parse(struct api_call *c,
                         const json_t *body,
                         struct api_job *job,
                         struct err_info *e) WEIR_MUST_USE;

#endif
