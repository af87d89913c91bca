#include "base/utf8.h"

#include <string.h>

/* How many bytes at s, which begins no valid character, one U+FFFD stands for: the longest run
 * that could have begun one, at least a byte (Unicode 15, section 3.9, "maximal subpart"). */
static size_t bad_len(const char *s, size_t n)
{
    size_t k = 1;
    while (k < n && utf8_len(s, k + 1) == -1)
        k++;
    return utf8_len(s, k) == -1 ? k : 1;
}

void utf8_feed(struct utf8_stream *u, const char *s, size_t n, bool flush, struct buf *out)
{
    static const char replacement[] = "\xef\xbf\xbd";
    struct buf joined = {0};
    if (u->n_held > 0) {
        buf_add(&joined, u->held, u->n_held);
        buf_add(&joined, s, n);
        s = joined.data;
        n = joined.len;
        u->n_held = 0;
    }
    while (n > 0) {
        int len = utf8_len(s, n);
        if (len == -1 && !flush) {
            memcpy(u->held, s, n);
            u->n_held = (uint8_t)n;
            break;
        }
        size_t k = len > 0 ? (size_t)len : bad_len(s, n);
        if (len > 0)
            buf_add(out, s, k);
        else
            buf_add(out, replacement, 3);
        s += k;
        n -= k;
    }
    buf_deinit(&joined);
}
