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

/* Bytes that cannot stand for themselves inside a JSON string. */
static inline bool needs_escape(unsigned char c)
{
    return c < 0x20 || c == '"' || c == '\\';
}

/* The short form where JSON has one, else \u00xx. */
static void put_escape(struct buf *out, unsigned char c)
{
    static const char hex[] = "0123456789abcdef";
    char s[6] = {'\\', 'u', '0', '0', hex[c >> 4], hex[c & 15]};
    const char *from = "\"\\\n\r\t\b\f", *to = "\"\\nrtbf";
    const char *at = strchr(from, c);
    if (c != 0 && at) {
        s[1] = to[at - from];
        buf_add(out, s, 2);
    } else {
        buf_add(out, s, 6);
    }
}

/* Text is mostly free of escapes, so it is copied in runs. */
void json_text_escape(struct buf *out, const char *s, size_t n)
{
    size_t from = 0;
    if (n == 0)
        return;
    for (size_t i = 0; i < n; i++) {
        if (!needs_escape((unsigned char)s[i]))
            continue;
        buf_add(out, s + from, i - from);
        put_escape(out, (unsigned char)s[i]);
        from = i + 1;
    }
    buf_add(out, s + from, n - from);
}
