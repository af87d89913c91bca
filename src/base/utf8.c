#include "base/utf8.h"

int utf8_len(const char *str, size_t n)
{
    const unsigned char *s = (const unsigned char *)str;
    if (n == 0)
        return -1;
    if (s[0] < 0x80)
        return 1;
    int len = s[0] >= 0xf0 ? 4 : s[0] >= 0xe0 ? 3 : 2;
    if (s[0] < 0xc2 || s[0] > 0xf4)
        return 0;
    /* the second byte carries the limits of shortest form, surrogates and U+10FFFF */
    unsigned lo = 0x80, hi = 0xbf;
    if (s[0] == 0xe0)
        lo = 0xa0;
    else if (s[0] == 0xed)
        hi = 0x9f;
    else if (s[0] == 0xf0)
        lo = 0x90;
    else if (s[0] == 0xf4)
        hi = 0x8f;
    for (int i = 1; i < len; i++) {
        if ((size_t)i >= n)
            return -1;
        if (s[i] < lo || s[i] > hi)
            return 0;
        lo = 0x80;
        hi = 0xbf;
    }
    return len;
}

bool utf8_valid(const char *s, size_t n)
{
    while (n > 0) {
        int len = utf8_len(s, n);
        if (len <= 0)
            return false;
        s += len;
        n -= (size_t)len;
    }
    return true;
}

size_t utf8_encode(uint32_t c, char out[4])
{
    static const unsigned lead[] = {0, 0, 0xc0, 0xe0, 0xf0};
    const size_t n = c < 0x80 ? 1 : c < 0x800 ? 2 : c < 0x10000 ? 3 : 4;
    for (size_t i = n - 1; i > 0; i--, c >>= 6)
        out[i] = (char)(0x80 | (c & 0x3f));
    out[0] = (char)(lead[n] | c);
    return n;
}
