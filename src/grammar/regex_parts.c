/* Expressions that say several things of one text, ^(?=x)(?!y)z: where each begins and ends. */
#include "grammar/internal.h"

#include <string.h>

size_t regex_group_end(const char *s, size_t n, size_t at)
{
    uint32_t open = 0;
    bool in_set = false;
    for (; at < n; at++) {
        if (s[at] == '\\')
            at++;
        else if (in_set)
            in_set = s[at] != ']';
        else if (s[at] == '[')
            in_set = true;
        else if (s[at] == '(')
            open++;
        else if (s[at] == ')' && --open == 0)
            return at + 1;
    }
    return n + 1;
}

static bool has_alternatives(const char *s, size_t n, size_t at)
{
    while (at < n && s[at] != '|') {
        size_t end = s[at] == '(' ? regex_group_end(s, n, at) : at + 1;
        if (s[at] == '\\')
            end = at + 2;
        for (bool in_set = s[at] == '['; in_set && end < n; end++) {
            in_set = s[end] != ']';
            end += s[end] == '\\';
        }
        at = end;
    }
    return at < n;
}

uint32_t regex_parts(const char *s, size_t n, struct regex_part parts[REGEX_MAX_PARTS])
{
    uint32_t n_parts = 0;
    const bool fold = n >= 4 && memcmp(s, "(?i)", 4) == 0;
    const size_t begin = fold ? 4 : 0;
    size_t at = begin + 1;
    while (n > begin + 4 && s[begin] == '^' && at + 3 < n && n_parts + 1 < REGEX_MAX_PARTS &&
           (memcmp(s + at, "(?=", 3) == 0 || memcmp(s + at, "(?!", 3) == 0)) {
        size_t end = regex_group_end(s, n, at);
        if (end > n)
            break;
        parts[n_parts++] = (struct regex_part){at + 3, end - 1, true, s[at + 2] == '!', fold};
        at = end;
    }
    if (n_parts > 0 && !has_alternatives(s, n, at) && !(at < n && strchr("*+?{", s[at]))) {
        parts[n_parts++] = (struct regex_part){at, n, true, false, fold};
        return n_parts;
    }
    parts[0] = (struct regex_part){0, n, false, false, false};
    return 1;
}
