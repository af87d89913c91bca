/* What a request says about tools, whatever its dialect, and how a conversation with tools becomes
 * a prompt.
 *
 * Tools are kept in the shape that templates expect, which is OpenAI's:
 *      {"type": "function", "function": {"name", "description", "parameters"}}
 * Messages have OpenAI's shape too: those of the assistant may have tool_calls, [{"id"?, "type",
 * "function": {"name", "arguments"}}] with arguments as JSON text or as an object, and
 * reasoning_content; those with role "tool" have tool_call_id and content.
 *
 * All of it is text of clients: nothing in it can become a control token. */
#ifndef WEIR_CHAT_TOOLS_H
#define WEIR_CHAT_TOOLS_H

#include "chat/chat.h"
#include "chat/reply.h"
#include "tokenizer/tokenizer.h"

#define CHAT_MAX_TOOLS 512
#define CHAT_MAX_TOOL_NAME 128          /* bytes */
#define CHAT_MAX_TOOLS_BYTES (4u << 20) /* of all descriptions and schemas, as JSON */

enum chat_tool_choice {
    CHAT_TOOLS_AUTO,     /* the model decides */
    CHAT_TOOLS_NONE,     /* no calls; the template is not told of the tools either */
    CHAT_TOOLS_REQUIRED, /* at least one call, of any tool */
    CHAT_TOOLS_NAMED,    /* a call of one tool */
};

/* Zero-initialise; chat_tools_deinit frees. */
struct chat_tools {
    struct json_t *list; /* array of tools as above; NULL: none */
    size_t n_bytes;      /* of their JSON */
    enum chat_tool_choice choice;
    char name[CHAT_MAX_TOOL_NAME + 1]; /* of CHAT_TOOLS_NAMED */
    bool parallel;                     /* several calls in a reply; set it: the default is true */
    bool strict[CHAT_MAX_TOOLS];       /* [of list] calls must conform to the schema */
    struct json_t *allowed;            /* of CHAT_TOOLS_REQUIRED: those of list that may be called,
                                        * in its order; NULL: all */
    bool allowed_strict[CHAT_MAX_TOOLS]; /* [of allowed] */
    uint16_t index[CHAT_MAX_TOOLS]; /* [of allowed, else of list] which it was when it was added */
};
void chat_tools_deinit(struct chat_tools *t);

/* Add one tool: name is 1 to CHAT_MAX_TOOL_NAME letters, digits, '_', '-', '.' or ':', and not yet
 * there; description may be NULL; parameters is a JSON schema, an object, or NULL: no parameters.
 * `field` names the tool in errors ("tools[2]"). What is given is referred to, not copied, and must
 * not be changed. Errors: ERR_INVALID, ERR_NOMEM. */
enum err chat_tools_add(struct chat_tools *t,
                        const char *field,
                        const char *name,
                        const char *description,
                        const struct json_t *parameters,
                        bool strict,
                        struct err_info *e) WEIR_MUST_USE;

/* Calls may be of these tools alone, whose names, at least one, are among the list's: where calls
 * must come the model is told of the others, too, else it is not, as nothing could keep it from
 * calling them. Once, and after that nothing is added. Errors: ERR_NOMEM. */
enum err chat_tools_allow(struct chat_tools *t,
                          const struct json_t *names, /* an array of strings */
                          struct err_info *e) WEIR_MUST_USE;

/* Is there a tool of that name? */
bool chat_tools_has(const struct chat_tools *t, const char *name);

/* Are calls to be looked for in the reply? */
bool chat_tools_wanted(const struct chat_tools *t);

/* A conversation that the assistant is to go on with. */
struct chat_turn {
    const struct json_t *messages;
    const struct json_t *vars;      /* further variables, or NULL */
    const struct chat_tools *tools; /* NULL: none */
    bool add_generation_prompt;
    const char *begun; /* [n_begun] how the answer begins, plain text; NULL: not at all */
    size_t n_begun;
};

/* Render, and append the ids to *ids; BOS first where the model wants one and the template wrote
 * none. Any thread. The texts of the tokens come from `tok`.
 *
 * Arguments are given to the template in the form that it wants, a tool's result gets the name of
 * the tool. With a template that knows nothing of tools, a text before the conversation lists them,
 * and calls and results become text of the messages; with one that has no place for the system,
 * what that says becomes the user's. *start tells how the reply begins.
 *
 * Errors: those of chat_render and tokenizer_encode; ERR_INVALID (`tools`) when the template knows
 * tools but nobody knows how its calls look. */
enum err chat_encode_turn(const struct chat_template *tmpl,
                          const struct tokenizer *tok,
                          const struct chat_turn *turn,
                          struct token_list *ids,
                          struct reply_start *start,
                          struct err_info *e) WEIR_MUST_USE;

#endif
