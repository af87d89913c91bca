/* return_token_ids: the tokens of prompt and answer by their numbers, as vLLM has them.
 *
 *      prompt_token_ids   in the first chunk; of a chat beside its choices, as they have one prompt
 *      token_ids          as many as usage counts: also the one that ended the answer, and those of
 *                         a stop string, which is cut off the text
 *
 * What is held back of the text is so of the ids: a chunk tells of tokens that became pieces, and
 * the last one of all that is left. */
#include "api/call.h"

void api_put_own_ids(struct api_choice *ch, struct buf *out)
{
    const char *between = "";
    if (!ch->call->token_ids)
        return;
    const struct request_token *tokens = request_out(ch->req);
    const uint32_t end = ch->ended ? request_n_out(ch->req) : ch->n_taken;
    const token_id last = ch->ended ? request_end_id(ch->req) : TOKEN_NONE;
    buf_str(out, ",\"token_ids\":[");
    for (; ch->n_ids < end; between = ",") {
        buf_str(out, between);
        api_put_int(out, tokens[ch->n_ids++].id);
    }
    if (last != TOKEN_NONE && !ch->end_id) {
        buf_str(out, between);
        api_put_int(out, last);
        ch->end_id = true;
    }
    buf_char(out, ']');
}

void api_put_prompt_ids(struct api_choice *ch, struct buf *out)
{
    uint32_t n;
    if (!ch->call->token_ids || ch->prompt_ids)
        return;
    const token_id *ids = request_prompt(ch->req, &n);
    buf_str(out, ",\"prompt_token_ids\":[");
    for (uint32_t i = 0; i < n; i++) {
        buf_str(out, i > 0 ? "," : "");
        api_put_int(out, ids[i]);
    }
    buf_char(out, ']');
    ch->prompt_ids = true;
}

uint64_t api_n_ids(const struct api_call *c)
{
    uint64_t n = 0;
    for (uint32_t i = 0; c->token_ids && i < c->n_choices; i++) {
        uint32_t n_prompt;
        (void)request_prompt(c->choices[i].req, &n_prompt);
        n += request_n_completion(c->choices[i].req);
        n += i == 0 || c->dialect != &api_chat ? n_prompt : 0;
    }
    return n;
}
