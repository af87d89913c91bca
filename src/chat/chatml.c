#include "chat/chatml.h"

#include <stdio.h>
#include <string.h>

/* Step over `expected` if the canonical form goes on with it. */
static bool skip(const char **at, const char *expected)
{
    size_t n = strlen(expected);
    if (strncmp(*at, expected, n) != 0)
        return false;
    *at += n;
    return true;
}

/* "for NAME in messages;", with a name that fits in `name`. */
static bool skip_loop(const char **at, char *name, size_t cap)
{
    if (!skip(at, "for "))
        return false;
    size_t n = strspn(*at, "abcdefghijklmnopqrstuvwxyz_");
    if (n == 0 || n >= cap)
        return false;
    memcpy(name, *at, n);
    name[n] = '\0';
    *at += n;
    return skip(at, " in messages;");
}

/* The prompt always opens the assistant's turn, so it does not matter whether the template asks
 * for add_generation_prompt, nor what it sets when that is missing. */
static bool is_chatml(const char *at, bool *wants_bos)
{
    static const char *const missing[] = {"if not add_generation_prompt is defined;",
                                          "if add_generation_prompt is not defined;"};
    static const char opening[] = "\"<|im_start|>assistant\\n\";";
    char name[32], turn[160];
    for (size_t i = 0; i < 2; i++)
        if (skip(&at, missing[i]) && !skip(&at, "set add_generation_prompt=false;endif;"))
            return false;
    *wants_bos = skip(&at, "bos_token;");
    if (!skip_loop(&at, name, sizeof name))
        return false;
    if (!*wants_bos)
        *wants_bos = skip(&at, "if loop.first;bos_token;endif;");
    snprintf(turn,
             sizeof turn,
             "\"<|im_start|>\"+%s.role+\"\\n\"+%s.content+\"<|im_end|>\\n\";endfor;",
             name,
             name);
    if (!skip(&at, turn))
        return false;
    bool asked = skip(&at, "if add_generation_prompt;");
    return skip(&at, opening) && (!asked || skip(&at, "endif;")) && *at == '\0';
}

bool chatml_matches(const char *source, size_t n, bool *wants_bos)
{
    struct buf canonical = {0};
    bool same = jinja_canonical(source, n, &canonical) &&
                !memchr(canonical.data ? canonical.data : "", '\0', canonical.len) &&
                is_chatml(buf_cstr(&canonical), wants_bos);
    buf_deinit(&canonical);
    return same;
}
