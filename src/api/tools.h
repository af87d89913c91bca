/* Tools in requests of OpenAI's shape. For api/ only. */
#ifndef WEIR_API_TOOLS_H
#define WEIR_API_TOOLS_H

#include "api/json.h"
#include "chat/tools.h"

/* `tools`, `tool_choice` and `parallel_tool_calls` into *out (zeroed), which refers to parts of the
 * body. Errors: ERR_INVALID naming the field. */
enum err api_tools_parse(const json_t *body,
                         struct chat_tools *out,
                         struct err_info *e) WEIR_MUST_USE;

/* A list has more tools than there may be. */
enum err api_tools_too_many(const char *field, struct err_info *e) WEIR_MUST_USE;

/* An error of one of the tools that a dialect made for the chat route speaks of the client's own:
 * places, an array, has the name of each ("tools[2]"). NULL: nothing changes. */
void api_tools_name_place(const json_t *places, struct err_info *e);

/* Likewise of a grammar's error, which has the place in those that may be called. `parameters` is
 * the client's name of the schema; places NULL: a tool of the chat route itself. */
void api_tools_name_schema(const struct chat_tools *tools,
                           const json_t *places,
                           const char *parameters,
                           struct err_info *e);

/* Check what a message says of tools and of reasoning: `tool_calls`, `tool_call_id`,
 * `reasoning_content`. `field` is the message's name in errors. `message` is a copy of its own:
 * nulls are taken out, and `reasoning`, as others call it, gets its name. */
enum err api_tools_check_message(json_t *message,
                                 const char *field,
                                 struct err_info *e) WEIR_MUST_USE;

#endif
