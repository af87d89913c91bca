#include "base/json_text.h"

#include <string.h>

/* Bytes of the string that begins at s[0], with its quotes. */
static size_t string_bytes(const char *s, size_t n)
{
    size_t i = 1;
    while (i < n && s[i] != '"')
        i += s[i] == '\\' ? 2 : 1;
    return i < n ? i + 1 : n;
}

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

/* Bytes of the number that begins at s[0]: all that one may be written with. */
static size_t number_bytes(const char *s, size_t n)
{
    size_t i = 0;
    while (i < n && (is_digit(s[i]) || (s[i] != '\0' && strchr("+-.eE", s[i]))))
        i++;
    return i;
}

/* Is the number an integer that 64 bits have no room for? */
static bool is_beyond(const char *s, size_t n)
{
    const bool negative = s[0] == '-';
    const char *most = negative ? "9223372036854775808" : "9223372036854775807";
    const size_t n_most = strlen(most);
    s += negative;
    n -= negative;
    for (size_t i = 0; i < n; i++)
        if (!is_digit(s[i]))
            return false;
    return n > n_most || (n == n_most && memcmp(s, most, n) > 0);
}

bool json_text_widen(const char *s, size_t n, struct buf *out)
{
    size_t done = 0;
    for (size_t i = 0, len; i < n; i += len) {
        len = 1;
        if (s[i] == '"') {
            len = string_bytes(s + i, n - i);
        } else if (s[i] == '-' || is_digit(s[i])) {
            len = number_bytes(s + i, n - i);
            if (is_beyond(s + i, len)) {
                buf_add(out, s + done, i + len - done);
                buf_str(out, ".0");
                done = i + len;
            }
        }
    }
    if (done == 0)
        return false;
    buf_add(out, s + done, n - done);
    return true;
}
