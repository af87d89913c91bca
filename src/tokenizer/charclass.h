/* What kind of character a code point is, as pre-tokenizers ask: one 32-bit mask a code point.
 *
 * Every code point has exactly one of the kinds in CC_ANY (those of the Unicode categories, cut
 * finer where a pattern names single characters), so that "neither letter nor digit" is a mask
 * too. The bits above are sets of their own, which single pre-tokenizers name by ranges.
 *
 * The tables that models were trained and are served with follow Unicode 15.1; categories come
 * from utf8proc, and charclass.c adds what 15.1 has over 15.0. White space is what Unicode calls
 * White_Space: \s of a regular expression.
 *
 * Thread: any; the table is built at the first use, and immutable then. */
#ifndef WEIR_TOKENIZER_CHARCLASS_H
#define WEIR_TOKENIZER_CHARCLASS_H

#include "base/utf8.h"

#include <stddef.h>
#include <stdint.h>

enum {
    CC_LOWER = 1 << 0, /* a-z */
    CC_UPPER = 1 << 1, /* A-Z */
    CC_LOWER_REST = 1 << 2,
    CC_UPPER_REST = 1 << 3, /* upper and title case */
    CC_LETTER_HAN = 1 << 4,
    CC_LETTER_REST = 1 << 5, /* without case */
    CC_DIGIT = 1 << 6,       /* 0-9 */
    CC_NUMBER_REST = 1 << 7,
    CC_MARK = 1 << 8,
    CC_SLASH = 1 << 9,
    CC_PUNCT_ASCII = 1 << 10,
    CC_PUNCT_REST = 1 << 11,
    CC_BACKTICK = 1 << 12,
    CC_SYMBOL_ASCII = 1 << 13,
    CC_SYMBOL_REST = 1 << 14,
    CC_BLANK = 1 << 15, /* U+0020 */
    CC_LF = 1 << 16,
    CC_CR = 1 << 17,
    CC_SPACE_REST = 1 << 18,
    CC_CONTROL = 1 << 19, /* category C, and assigned */
    CC_UNASSIGNED = 1 << 20,

    CC_CASED = CC_LOWER | CC_UPPER | CC_LOWER_REST | CC_UPPER_REST,
    CC_LETTER = CC_CASED | CC_LETTER_HAN | CC_LETTER_REST,
    CC_NUMBER = CC_DIGIT | CC_NUMBER_REST,
    CC_PUNCT = CC_SLASH | CC_PUNCT_ASCII | CC_PUNCT_REST,
    CC_SYMBOL = CC_BACKTICK | CC_SYMBOL_ASCII | CC_SYMBOL_REST,
    CC_MARKS_ASCII = CC_SLASH | CC_PUNCT_ASCII | CC_BACKTICK | CC_SYMBOL_ASCII,
    CC_NEWLINE = CC_LF | CC_CR,
    CC_SPACE = CC_BLANK | CC_NEWLINE | CC_SPACE_REST,
    CC_ANY = (1 << 21) - 1,

    CC_HAN = 1 << 21,           /* Unicode's script */
    CC_HAN_KANA = 1 << 22,      /* U+4E00-9FA5, Hiragana, Katakana */
    CC_DEEPSEEK_CJK = 1 << 23,  /* U+0800-9FA5, U+AC00-D7FF */
    CC_DEEPSEEK_WORD = 1 << 24, /* cased letters, as Unicode 13 had them */
    CC_DEEPSEEK_MARK = 1 << 25, /* ! to ~ but digits, their full-width forms, quotes */
    CC_HANGUL = 1 << 26,
    CC_BOPOMOFO = 1 << 27,
    CC_YOUTU_MARK = 1 << 28, /* Chinese punctuation */
    CC_AFMOE_ASIAN = 1 << 29,
    CC_PORO_WORD = 1 << 30, /* neither white space nor ( ) | . , ! ? and the like */
};

/* Code points share pages of 256: most of them have few different ones. */
struct charclass_table {
    uint32_t (*pages)[256];
    uint16_t page_of[0x110000 >> 8];
};

const struct charclass_table *charclass_table(void);

static inline uint32_t charclass_of(const struct charclass_table *t, uint32_t code_point)
{
    return t->pages[t->page_of[code_point >> 8]][code_point & 0xff];
}

/* The class of the character at s, and its length. */
static inline uint32_t charclass_at(const struct charclass_table *t, const char *s, size_t *len)
{
    return charclass_of(t, utf8_decode(s, len));
}

#endif
