/* Mistral: one mark, two ways to go on.
 *
 *      [TOOL_CALLS][{"name": "f", "arguments": {...}}, ...]       until 2024
 *      [TOOL_CALLS]f[CALL_ID]id[ARGS]{...}[TOOL_CALLS]...         since; id and [ARGS] may lack */
#include "chat/reply/internal.h"

#include <string.h>

static const struct object_spec objects = {0};

/* f, f[ARGS], f[CALL_ID]id[ARGS] */
static bool head(const char *s, size_t n, struct reply_head *out)
{
    static const char args[] = "[ARGS]", call_id[] = "[CALL_ID]";
    while (n > 0 && reply_is_space(s[n - 1]))
        n--;
    if (n >= sizeof args - 1 && memcmp(s + n - (sizeof args - 1), args, sizeof args - 1) == 0)
        n -= sizeof args - 1;
    const char *id = memmem(s, n, call_id, sizeof call_id - 1);
    size_t n_name = id ? (size_t)(id - s) : n;
    if (id) {
        out->id = id + sizeof call_id - 1;
        out->n_id = n - n_name - (sizeof call_id - 1);
    }
    size_t skip = reply_skip_space(s, 0, n_name);
    out->name = s + skip;
    out->n_name = n_name - skip;
    return true;
}

static const struct named_spec named = {.call = "[TOOL_CALLS]", .head = head};

enum { UNDECIDED = 255 };

void mistral_enter(struct reply_parser *p, const char *mark)
{
    (void)mark;
    p->named.at = UNDECIDED;
}

bool mistral_byte(struct reply_parser *p, char c)
{
    if (p->named.at == UNDECIDED) {
        if (reply_is_space(c)) {
            buf_char(&p->raw, c);
            return true;
        }
        p->named.object = c == '[' || c == '{';
        if (p->named.object)
            object_begin(p, &objects, named.call);
        named_begin(p, &named, named.call);
    }
    return p->named.object ? object_byte(p, c) : named_byte(p, c);
}

void mistral_finish(struct reply_parser *p)
{
    if (p->named.at == UNDECIDED)
        reply_give_back(p);
    else if (p->named.object)
        object_finish(p);
    else
        named_finish(p);
}
