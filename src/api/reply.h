/* Replies in parts: content, reasoning and calls of tools, where the model or the request has them.
 * For api/ only.
 *
 * A dialect fills api_call.tools, encodes the conversation with api_reply_encode, and gives the
 * text of every piece of a choice that has a `reply` to reply_feed (chat/reply.h). A choice without
 * one has nothing but content. */
#ifndef WEIR_API_REPLY_H
#define WEIR_API_REPLY_H

#include "api/call.h"
#include "grammar/grammar.h"

/* The conversation, with c->tools, into *ids; afterwards c->reply says how replies begin. Errors:
 * those of chat_encode_turn. */
enum err api_reply_encode(struct api_call *c,
                          const json_t *messages,
                          const json_t *vars,
                          bool add_generation_prompt,
                          const json_t *begun, /* text or NULL */
                          struct token_list *ids,
                          struct err_info *e) WEIR_MUST_USE;

/* Where calls are asked for, or tools are strict: the grammar of the reply into *p. After
 * api_reply_encode. Errors: ERR_INVALID (`tools` or `tool_choice`); those of api_compile. */
enum err api_reply_constrain(struct api_call *c,
                             struct api_params *p,
                             struct err_info *e) WEIR_MUST_USE;

/* The node of an answer with this content, or of calls where the request has tools; behind
 * reasoning, where the model has any. */
grammar_node api_reply_content(const struct api_call *c,
                               struct grammar_builder *b,
                               grammar_node content);

/* What of the reply's format and tools such a grammar depends on: appended to a key. False: no
 * memory. */
bool api_reply_put_key(const struct api_call *c, struct buf *key);

#define API_CALL_ID_BYTES 72

/* The id of a call that begins: the model's own if it wrote one that fits, else a new one, of
 * `prefix` ("call_") and random letters and digits; in the form that the model's template takes. */
void api_reply_call_id(const struct api_call *c,
                       const struct reply_event *ev,
                       const char *prefix,
                       char out[API_CALL_ID_BYTES]);

/* "tool_calls", else what api_finish_name says. After reply_finish. */
const char *api_reply_finish_name(const struct api_choice *ch);

/* The events of a piece, and at the end of those held back; a choice without a `reply` has nothing
 * but content. */
void api_reply_feed(struct api_choice *ch, const struct api_piece *p, reply_event_fn fn, void *ctx);
void api_reply_end(struct api_choice *ch, reply_event_fn fn, void *ctx);

/* OpenAI's chat chunks and message. */
void api_reply_piece(struct api_choice *ch, const struct api_piece *p, struct buf *out);
void api_reply_close(struct api_choice *ch, struct buf *out);
void api_reply_whole(struct api_choice *ch, struct buf *out);

#endif
