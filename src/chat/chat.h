/* Messages to prompt text, by the model's own template.
 *
 * A template is Jinja (chat/jinja). It sees `messages`, `add_generation_prompt`, the variables that
 * the request gives, and the texts of the model's BOS and EOS tokens.
 *
 * Thread: a struct chat_template is immutable; any thread may render. */
#ifndef WEIR_CHAT_CHAT_H
#define WEIR_CHAT_CHAT_H

#include "base/err.h"
#include "chat/jinja/jinja.h"
#include "chat/reply.h"

#include <stdbool.h>
#include <stddef.h>

struct chat_template;

/* Compile the template in `source` (the GGUF's tokenizer.chat_template; NULL or empty: there is
 * none). Always yields a template; with one that cannot be run chat_render fails and says so.
 */
struct chat_template *chat_template_create(const char *source, size_t n_bytes);
void chat_template_destroy(struct chat_template *t);

/* Another template for requests with tools (the GGUF's tokenizer.chat_template.tool_use), once,
 * before styles are set. False: it cannot be run, and is not used. */
bool chat_template_add_tool_use(struct chat_template *t, const char *source, size_t n_bytes);

/* The one that a request is rendered with: t itself where there is no other. */
const struct chat_template *chat_template_for(const struct chat_template *t, bool tools);

/* What it was made of: [*n_bytes], empty if the model has none; lives as long as t. */
const char *chat_template_source(const struct chat_template *t, size_t *n_bytes);

/* Short name for logs: "jinja", "unsupported", "none". */
const char *chat_template_name(const struct chat_template *t);

/* Why it cannot be run, as one line; NULL if it can or there is none. */
const char *chat_template_problem(const struct chat_template *t);

/* What a template does with tools, found out by reading and by rendering small conversations. */
struct chat_traits {
    bool tools;          /* it writes the variable `tools`, or */
    bool functions;      /* `functions`, which is their JSON as text */
    bool calls;          /* it writes tool_calls of messages */
    bool text_arguments; /* it wants their arguments as JSON text, not as an object */
    bool null_content;   /* it writes calls only of messages whose content is null */
    bool one_call;       /* it refuses a message's second call, or drops it */
    bool inner_results;  /* it reads results as `tool_responses` of the message that called */
    bool short_ids;      /* it refuses ids of calls other than nine letters and digits */
    bool system;         /* it takes messages of the system; */
    bool no_system;      /* it does not, and takes the user's: that is where they go */
    bool drops_system;   /* it takes one, and drops or refuses others: likewise later ones */
    bool wants_user;     /* it takes them, but without one of the user's drops or refuses them */
    bool alternates;     /* it refuses a message of the user's behind another */
    const char *effort;  /* the variable it reads of how hard to think: `reasoning_effort`, or
                          * `reasoning_strength`; NULL: it reads none */
    bool wants_thinking; /* it reads `enable_thinking` as if that were always there */
    bool empty_parts;    /* it refuses "" as what the assistant says, not a part of no text */
    bool only_parts;     /* it says nothing of content that is a string, but of parts */
    /* Of messages of the assistant it reads reasoning not as `reasoning_content`, but */
    bool thinking;       /* as `thinking`, */
    bool thinking_alone; /* which it refuses beside content in messages with calls (gpt-oss), */
    bool thinking_parts; /* or as parts of the content, {"type": "thinking", "thinking": ...} */
};
const struct chat_traits *chat_template_traits(const struct chat_template *t);

/* How replies to its prompts are to be read. Unless set otherwise, as reply_style_detect finds; of
 * templates without tools, calls are what the text that stands in for them asks for. */
struct reply_style chat_template_style(const struct chat_template *t);

/* Choose by name: of reply_format_list, or "none", or "auto"; of reply_thoughts_list, or "none", or
 * "auto". Before rendering. Errors: ERR_INVALID (no such name). */
enum err chat_template_set_style(struct chat_template *t,
                                 const char *format,
                                 const char *thoughts,
                                 struct err_info *e) WEIR_MUST_USE;

/* The template writes tools, and how its calls look is neither known nor "none". */
bool chat_template_calls_unknown(const struct chat_template *t);

/* What a prompt is made of. */
struct chat_input {
    const struct json_t *messages; /* array of objects; their text is input */
    const struct json_t *vars; /* object or NULL: further variables, also input. They come before
                                  what else is here, so they may say add_generation_prompt */
    bool add_generation_prompt;
    const char *bos, *eos; /* texts of the tokens, or NULL */
    const struct tm *now;  /* NULL: the local time */
};

/* Render into *out (zeroed): only its trusted spans may hold control tokens.
 * Errors: ERR_UNSUPPORTED (no template, or none that can be run); those of jinja_render. */
enum err chat_render(const struct chat_template *t,
                     const struct chat_input *in,
                     struct jinja_text *out,
                     struct err_info *e) WEIR_MUST_USE;

#endif
