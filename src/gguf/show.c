#include "base/utf8.h"
#include "gguf/gguf.h"

#include <stdio.h>
#include <string.h>

/* Characters that move the cursor, start an escape sequence, or change how the rest of a line is
 * laid out: C0, DEL, C1, line separators, bidirectional marks, the byte-order mark. */
static bool is_unsafe(uint32_t c)
{
    return c < 0x20 || (c >= 0x7f && c < 0xa0) || c == 0x61c || (c >= 0x200b && c <= 0x200f) ||
           (c >= 0x2028 && c <= 0x202e) || (c >= 0x2060 && c <= 0x2069) || c == 0xfeff ||
           (c >= 0xfff9 && c <= 0xfffb) || (c >= 0xe0000 && c <= 0xe007f);
}

/* Write the next character of s (n bytes left) as text of at most 16 bytes; returns the bytes of s
 * that it used and sets *n_text. */
static size_t show_one(const char *s, size_t n, char text[17], size_t *n_text)
{
    const int len = utf8_len(s, n);
    size_t n_char;
    if (len == 1 && (*s == '\n' || *s == '\t' || *s == '\r' || *s == '"' || *s == '\\')) {
        text[0] = '\\';
        text[1] = *s == '\n' ? 'n' : *s == '\t' ? 't' : *s == '\r' ? 'r' : *s;
        *n_text = 2;
        return 1;
    }
    if (len > 0 && !is_unsafe(utf8_decode(s, &n_char))) {
        memcpy(text, s, (size_t)len);
        *n_text = (size_t)len;
        return (size_t)len;
    }
    size_t used = len > 0 ? (size_t)len : 1;
    for (size_t i = 0; i < used; i++)
        snprintf(text + 4 * i, 5, "\\x%02x", (unsigned)(uint8_t)s[i]);
    *n_text = 4 * used;
    return used;
}

const char *gguf_show(struct gguf_str s, char *out, size_t cap)
{
    size_t len = 0;
    size_t fits = 0; /* the longest len that leaves room for "..." and the NUL */
    for (size_t at = 0; at < s.len;) {
        char text[17];
        size_t n_text;
        at += show_one(s.data + at, s.len - at, text, &n_text);
        if (len + n_text + 1 > cap) {
            memcpy(out + fits, "...", 4);
            return out;
        }
        memcpy(out + len, text, n_text);
        len += n_text;
        if (len + 4 <= cap)
            fits = len;
    }
    out[len] = '\0';
    return out;
}
