/* What reading and writing of Anthropic's /v1/messages share. For messages.c and messages_parse.c.
 */
#ifndef WEIR_API_MESSAGES_H
#define WEIR_API_MESSAGES_H

#include "api/call.h"

enum block { BLOCK_NONE, BLOCK_TEXT, BLOCK_THINKING, BLOCK_TOOL };

/* Behind api_call.state. */
struct messages {
    int64_t max_tokens; /* as asked for */
    /* writing: */
    bool started; /* message_start is written */
    bool pinged;
    enum block open; /* the block under way, of index n_blocks - 1 */
    uint32_t n_blocks;
};

enum err messages_adapt(struct api_call *c, const json_t *body, json_t **out, struct err_info *e)
    WEIR_MUST_USE;
enum err messages_parse(struct api_call *c,
                        const json_t *body,
                        struct api_job *job,
                        struct err_info *e) WEIR_MUST_USE;

#endif
