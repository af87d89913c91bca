/* The byte map of byte-level BPE (Radford et al. 2019, GPT-2's encoder): every byte is written as
 * one printable character, so that merges can be listed in a text file. */
#include "tokenizer/vocab.h"

#define N_SHIFTED 68 /* bytes that are not printable: 0..32, 127..160, 173 */

static bool is_printable(unsigned b)
{
    return (b >= 33 && b <= 126) || (b >= 161 && b <= 172) || b >= 174;
}

/* The n-th byte that is not printable, and the other way. */
static unsigned shifted_byte(unsigned n)
{
    return n <= 32 ? n : n <= 66 ? n - 33 + 127 : 173;
}

static unsigned shifted_index(unsigned b)
{
    return b <= 32 ? b : b <= 160 ? b - 127 + 33 : 67;
}

void bytemap_encode(uint8_t byte, char out[2], size_t *n)
{
    unsigned cp = is_printable(byte) ? byte : 256 + shifted_index(byte);
    if (cp < 0x80) {
        out[0] = (char)cp;
        *n = 1;
        return;
    }
    out[0] = (char)(0xc0 | cp >> 6);
    out[1] = (char)(0x80 | (cp & 0x3f));
    *n = 2;
}

int bytemap_decode(const char *s, size_t n_char)
{
    if (n_char > 2)
        return -1;
    unsigned cp = (unsigned char)s[0];
    if (n_char == 2)
        cp = (cp & 0x1f) << 6 | ((unsigned char)s[1] & 0x3f);
    if (cp < 256)
        return is_printable(cp) ? (int)cp : -1;
    return cp < 256 + N_SHIFTED ? (int)shifted_byte(cp - 256) : -1;
}
