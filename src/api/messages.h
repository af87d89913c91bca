/* What reading and writing of Anthropic's /v1/messages share. For messages.c and messages_*.c. */
#ifndef WEIR_API_MESSAGES_H
#define WEIR_API_MESSAGES_H

#include "api/call.h"

enum block { BLOCK_NONE, BLOCK_TEXT, BLOCK_THINKING, BLOCK_TOOL };

/* Behind api_call.state. */
struct messages {
    int64_t max_tokens; /* as asked for */
    json_t *places;     /* [of the chat's tools] where in the body each is, for errors */
    /* writing: */
    bool started; /* message_start is written */
    bool pinged;
    enum block open; /* the block under way, of index n_blocks - 1 */
    uint32_t n_blocks;
};

/* Tools and tool_choice into b, as chat has them. (messages_tools.c) */
enum err messages_adapt_tools(struct messages *m, const json_t *body, json_t *b, struct err_info *e)
    WEIR_MUST_USE;
/* o's member, which must be a string; errors are of `field`. */
enum err messages_string(const json_t *o,
                         const char *name,
                         const char *field,
                         const json_t **out,
                         struct err_info *e) WEIR_MUST_USE;

enum err messages_adapt(struct api_call *c, const json_t *body, json_t **out, struct err_info *e)
    WEIR_MUST_USE;
enum err messages_parse(struct api_call *c,
                        const json_t *body,
                        struct api_job *job,
                        struct err_info *e) WEIR_MUST_USE;

#endif
