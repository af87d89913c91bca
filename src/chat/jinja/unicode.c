#include "chat/jinja/unicode.h"

#include <utf8proc.h>

static utf8proc_category_t category(uint32_t c)
{
    return utf8proc_category((utf8proc_int32_t)c);
}

bool juni_printable(uint32_t c)
{
    if (c < 0x7f)
        return c >= 0x20;
    switch (category(c)) {
    case UTF8PROC_CATEGORY_CC:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_CS:
    case UTF8PROC_CATEGORY_CO:
    case UTF8PROC_CATEGORY_CN:
    case UTF8PROC_CATEGORY_ZL:
    case UTF8PROC_CATEGORY_ZP:
    case UTF8PROC_CATEGORY_ZS:
        return false;
    default:
        return true;
    }
}

bool juni_space(uint32_t c)
{
    return (c >= 9 && c <= 13) || (c >= 28 && c <= 32) || c == 0x85 || c == 0xA0 || c == 0x1680 ||
           (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 || c == 0x202F ||
           c == 0x205F || c == 0x3000;
}

bool juni_linebreak(uint32_t c)
{
    return (c >= 10 && c <= 13) || (c >= 28 && c <= 30) || c == 0x85 || c == 0x2028 || c == 0x2029;
}

bool juni_alpha(uint32_t c)
{
    if (c < 0x80)
        return (c | 32) >= 'a' && (c | 32) <= 'z';
    utf8proc_category_t cat = category(c);
    return cat >= UTF8PROC_CATEGORY_LU && cat <= UTF8PROC_CATEGORY_LO;
}

bool juni_decimal(uint32_t c)
{
    return c < 0x80 ? c >= '0' && c <= '9' : category(c) == UTF8PROC_CATEGORY_ND;
}

int juni_decimal_value(uint32_t c)
{
    uint32_t zero = c;
    while (zero > 0 && juni_decimal(zero - 1))
        zero--;
    return juni_decimal(c) ? (int)((c - zero) % 10) : -1;
}

/* Digits that are no decimals: superscripts, subscripts, circled and such. */
bool juni_digit(uint32_t c)
{
    static const uint32_t ranges[][2] = {
        {0xB2, 0xB3},       {0xB9, 0xB9},       {0x1369, 0x1371},   {0x19DA, 0x19DA},
        {0x2070, 0x2070},   {0x2074, 0x2079},   {0x2080, 0x2089},   {0x2460, 0x2468},
        {0x2474, 0x247C},   {0x2488, 0x2490},   {0x24EA, 0x24EA},   {0x24F5, 0x24FD},
        {0x24FF, 0x24FF},   {0x2776, 0x277E},   {0x2780, 0x2788},   {0x278A, 0x2792},
        {0x10A40, 0x10A43}, {0x10E60, 0x10E68}, {0x11052, 0x1105A}, {0x1F100, 0x1F10A}};
    if (juni_decimal(c))
        return true;
    for (size_t i = 0; c >= 0x80 && i < sizeof ranges / sizeof ranges[0]; i++)
        if (c >= ranges[i][0] && c <= ranges[i][1])
            return true;
    return false;
}

static bool is_among(uint32_t c, const uint32_t *list, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (c == list[i])
            return true;
    return false;
}

/* Numbers of CJK are letters by category. */
bool juni_numeric(uint32_t c)
{
    static const uint32_t cjk[] = {0x3007, 0x4E00, 0x4E03, 0x4E07, 0x4E09, 0x4E5D, 0x4E8C, 0x4E94,
                                   0x5104, 0x5146, 0x516B, 0x516D, 0x5341, 0x5343, 0x56DB, 0x767E,
                                   0x842C, 0x96F6, 0x842C, 0x58F9, 0x8CB3, 0x53C1, 0x8086, 0x4F0D,
                                   0x9678, 0x67D2, 0x634C, 0x7396, 0x62FE, 0x4F70, 0x4EDF};
    utf8proc_category_t cat = category(c);
    if (cat == UTF8PROC_CATEGORY_ND || cat == UTF8PROC_CATEGORY_NL || cat == UTF8PROC_CATEGORY_NO)
        return true;
    return is_among(c, cjk, sizeof cjk / sizeof cjk[0]);
}

bool juni_alnum(uint32_t c)
{
    return juni_alpha(c) || juni_numeric(c);
}

bool juni_word(uint32_t c)
{
    return c == '_' || juni_alnum(c);
}

size_t juni_skip(const struct jstr *s, size_t at, bool space)
{
    for (size_t next = at; next < s->len && juni_space(jstr_next(s, &next)) == space;)
        at = next;
    return at;
}

size_t juni_skip_back(const struct jstr *s, size_t begin, size_t end, bool space)
{
    while (end > begin) {
        size_t at = jstr_before(s, end), next = at;
        if (juni_space(jstr_next(s, &next)) != space)
            break;
        end = at;
    }
    return end;
}

/* Letters by category, and those that only have the property. */
bool juni_upper(uint32_t c)
{
    return c < 0x80 ? c >= 'A' && c <= 'Z'
                    : category(c) == UTF8PROC_CATEGORY_LU || (c >= 0x2160 && c <= 0x216F) ||
                          (c >= 0x24B6 && c <= 0x24CF) || (c >= 0x1F130 && c <= 0x1F149) ||
                          (c >= 0x1F150 && c <= 0x1F169) || (c >= 0x1F170 && c <= 0x1F189);
}

bool juni_lower(uint32_t c)
{
    return c < 0x80
               ? c >= 'a' && c <= 'z'
               : category(c) == UTF8PROC_CATEGORY_LL || c == 0xAA || c == 0xBA ||
                     (c >= 0x2B0 && c <= 0x2B8) || (c >= 0x2C0 && c <= 0x2C1) ||
                     (c >= 0x2E0 && c <= 0x2E4) || c == 0x345 || c == 0x37A ||
                     (c >= 0x1D2C && c <= 0x1D6A) || c == 0x1D78 || (c >= 0x1D9B && c <= 0x1DBF) ||
                     c == 0x2071 || c == 0x207F || (c >= 0x2090 && c <= 0x209C) ||
                     (c >= 0x2170 && c <= 0x217F) || (c >= 0x24D0 && c <= 0x24E9);
}

bool juni_title(uint32_t c)
{
    return c >= 0x80 && category(c) == UTF8PROC_CATEGORY_LT;
}

bool juni_cased(uint32_t c)
{
    return juni_upper(c) || juni_lower(c) || juni_title(c);
}

/* ---- changing case ---- */

/* c folded in full: one to three characters. */
static size_t fold(uint32_t c, utf8proc_int32_t out[4])
{
    utf8proc_ssize_t n =
        utf8proc_decompose_char((utf8proc_int32_t)c, out, 4, UTF8PROC_CASEFOLD, NULL);
    if (n >= 1 && n <= 3)
        return (size_t)n;
    out[0] = (utf8proc_int32_t)c;
    return 1;
}

/* c as a capital, or as one that begins a word. Capitals that are several characters are
 * those of what c is folded (U+FB03: f f i); so are such that begin a word, but where there is one
 * character for that (U+1F88). */
static size_t capital(uint32_t c, bool title, utf8proc_int32_t out[4])
{
    utf8proc_int32_t one =
        title ? utf8proc_totitle((utf8proc_int32_t)c) : utf8proc_toupper((utf8proc_int32_t)c);
    size_t n = fold(c, out);
    if (n == 1 || category(c) == UTF8PROC_CATEGORY_LU || (title && juni_title((uint32_t)one))) {
        out[0] = one;
        return 1;
    }
    for (size_t i = 0, begun = 0; i < n; i++) {
        if (!title || !begun)
            out[i] = title ? utf8proc_totitle(out[i]) : utf8proc_toupper(out[i]);
        else if (out[i] == 0x3B9) /* an iota that stands below */
            out[i] = 0x345;
        begun |= juni_cased((uint32_t)out[i]);
    }
    return n;
}

/* Marks, and punctuation that stands inside of words. */
static bool is_case_ignorable(uint32_t c)
{
    static const uint32_t inside[] = {0x27,
                                      0x2E,
                                      0x3A,
                                      0xB7,
                                      0x387,
                                      0x55F,
                                      0x5F4,
                                      0x2018,
                                      0x2019,
                                      0x2024,
                                      0x2027,
                                      0xFE13,
                                      0xFE52,
                                      0xFE55,
                                      0xFF07,
                                      0xFF0E,
                                      0xFF1A};
    if (is_among(c, inside, sizeof inside / sizeof inside[0]))
        return true;
    utf8proc_category_t cat = category(c);
    return cat == UTF8PROC_CATEGORY_MN || cat == UTF8PROC_CATEGORY_ME ||
           cat == UTF8PROC_CATEGORY_CF || cat == UTF8PROC_CATEGORY_LM ||
           cat == UTF8PROC_CATEGORY_SK;
}

/* A sigma that ends a word is written otherwise: a letter before, none behind. */
static bool is_final_sigma(struct jrun *r, const struct jstr *s, size_t at)
{
    size_t next = at;
    uint32_t c = 0;
    while (at > 0) {
        jrun_charge(r, 1);
        at = jstr_before(s, at);
        size_t from = at;
        c = jstr_next(s, &from);
        if (!is_case_ignorable(c))
            break;
    }
    if (!juni_cased(c) || is_case_ignorable(c))
        return false;
    jstr_next(s, &next);
    while (next < s->len) {
        jrun_charge(r, 1);
        c = jstr_next(s, &next);
        if (!is_case_ignorable(c))
            return !juni_cased(c);
    }
    return true;
}

static size_t small(struct jrun *r, const struct jstr *s, size_t at, uint32_t c, int32_t out[4])
{
    out[0] = c == 0x130   ? 'i'
             : c == 0x3A3 ? (is_final_sigma(r, s, at) ? 0x3C2 : 0x3C3)
                          : utf8proc_tolower((utf8proc_int32_t)c);
    out[1] = 0x307; /* the dot of U+0130 */
    return c == 0x130 ? 2 : 1;
}

void juni_put_case(struct jsb *b, const struct jstr *s, size_t at, enum jcase to)
{
    bool trusted = jstr_trusted_at(s, at);
    size_t next = at, n;
    uint32_t c = jstr_next(s, &next);
    utf8proc_int32_t out[4];
    if (to == JCASE_LOWER)
        n = small(b->r, s, at, c, out);
    else if (to == JCASE_FOLD)
        n = fold(c, out);
    else
        n = capital(c, to == JCASE_TITLE, out);
    for (size_t i = 0; i < n; i++)
        jsb_char(b, (uint32_t)out[i], trusted);
}

const struct jstr *juni_to_case(struct jrun *r, const struct jstr *s, enum jcase to)
{
    struct jsb b = JSB(r);
    jrun_charge(r, s->len / 64);
    for (size_t at = 0, next = 0; at < s->len; at = next) {
        jstr_next(s, &next);
        juni_put_case(&b, s, at, to);
    }
    return jstr_as_markup(r, jsb_done(&b), s->markup);
}
