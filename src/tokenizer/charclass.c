#include "tokenizer/charclass.h"

#include "base/mem.h"

#include <pthread.h>
#include <stdbool.h>
#include <string.h>
#include <utf8proc.h>

#define N_PAGES (0x110000 >> 8)

struct range {
    uint32_t first, last;
};

/* ---- sets that patterns name by ranges; han: by its script, of Unicode 15.1 ---- */

static const struct range han[] = {
    {0x2e80, 0x2e99},   {0x2e9b, 0x2ef3},   {0x2f00, 0x2fd5},   {0x3005, 0x3005},
    {0x3007, 0x3007},   {0x3021, 0x3029},   {0x3038, 0x303b},   {0x3400, 0x4dbf},
    {0x4e00, 0x9fff},   {0xf900, 0xfa6d},   {0xfa70, 0xfad9},   {0x16fe2, 0x16fe3},
    {0x16ff0, 0x16ff1}, {0x20000, 0x2a6df}, {0x2a700, 0x2b739}, {0x2b740, 0x2b81d},
    {0x2b820, 0x2cea1}, {0x2ceb0, 0x2ebe0}, {0x2ebf0, 0x2ee5d}, {0x2f800, 0x2fa1d},
    {0x30000, 0x3134a}, {0x31350, 0x323af},
};

static const struct range han_kana[] = {{0x3040, 0x30ff}, {0x4e00, 0x9fa5}};

static const struct range deepseek_cjk[] = {{0x800, 0x9fa5}, {0xac00, 0xd7ff}};

static const struct range deepseek_mark[] = {
    {0x21, 0x2f},
    {0x3a, 0x7e},
    {0x2018, 0x201f},
    {0x3001, 0x3002},
    {0xff01, 0xff0f},
    {0xff1a, 0xff5e},
};

/* clang-format off */
static const struct range deepseek_word[] = {
    {0x41, 0x5a},       {0x61, 0x7a},       {0xb5, 0xb5},       {0xc0, 0xd6},
    {0xd8, 0xf6},       {0xf8, 0x1ba},      {0x1bc, 0x1bf},     {0x1c4, 0x293},
    {0x295, 0x2af},     {0x370, 0x373},     {0x376, 0x377},     {0x37b, 0x37d},
    {0x37f, 0x37f},     {0x386, 0x386},     {0x388, 0x38a},     {0x38c, 0x38c},
    {0x38e, 0x3a1},     {0x3a3, 0x3f5},     {0x3f7, 0x481},     {0x48a, 0x52f},
    {0x531, 0x556},     {0x10a0, 0x10c5},   {0x13a0, 0x13f5},   {0x13f8, 0x13fd},
    {0x1c90, 0x1cba},   {0x1cbd, 0x1cbf},   {0x1d00, 0x1d2b},   {0x1d6b, 0x1d77},
    {0x1d79, 0x1d9a},   {0x1e00, 0x1f15},   {0x1f18, 0x1f1d},   {0x1f20, 0x1f45},
    {0x1f48, 0x1f4d},   {0x1f50, 0x1f57},   {0x1f59, 0x1f59},   {0x1f5b, 0x1f5b},
    {0x1f5d, 0x1f5d},   {0x1f5f, 0x1f7d},   {0x1f80, 0x1fb4},   {0x1fb6, 0x1fbc},
    {0x1fbe, 0x1fbe},   {0x1fc2, 0x1fc4},   {0x1fc6, 0x1fcc},   {0x1fd0, 0x1fd3},
    {0x1fd6, 0x1fdb},   {0x1fe0, 0x1fec},   {0x1ff2, 0x1ff4},   {0x1ff6, 0x1ffc},
    {0x2102, 0x2102},   {0x2107, 0x2107},   {0x210a, 0x2113},   {0x2115, 0x2115},
    {0x2119, 0x211d},   {0x2124, 0x2124},   {0x2126, 0x2126},   {0x2128, 0x2128},
    {0x212a, 0x212d},   {0x212f, 0x2134},   {0x2139, 0x2139},   {0x213c, 0x213f},
    {0x2145, 0x2149},   {0x214e, 0x214e},   {0x2183, 0x2184},   {0x2c00, 0x2c7b},
    {0x2c7e, 0x2ce4},   {0x2ceb, 0x2cee},   {0x2cf2, 0x2cf3},   {0xa640, 0xa66d},
    {0xa680, 0xa69b},   {0xa722, 0xa76f},   {0xa771, 0xa787},   {0xa78b, 0xa78e},
    {0xab70, 0xabbf},   {0xfb00, 0xfb06},   {0xfb13, 0xfb17},   {0xff21, 0xff3a},
    {0xff41, 0xff5a},   {0x10400, 0x1044f}, {0x104b0, 0x104d3}, {0x104d8, 0x104fb},
    {0x10c80, 0x10cb2}, {0x10cc0, 0x10cf2}, {0x118a0, 0x118df}, {0x1e900, 0x1e943},
};
/* clang-format on */

static const struct range hangul[] = {{0x3131, 0x318e}, {0xac00, 0xd7a3}};

static const struct range bopomofo[] = {{0x3105, 0x312f}};

static const struct range youtu_mark[] = {
    {0x2014, 0x2014},
    {0x2018, 0x2019},
    {0x201c, 0x201d},
    {0x2026, 0x2026},
    {0x3001, 0x303f},
    {0xfe30, 0xfe4f},
    {0xff01, 0xff01},
    {0xff0c, 0xff0c},
    {0xff1a, 0xff1b},
};

/* U+8C48 where the model's authors have U+F900, which normalisation turns into it: so the pattern
 * is served, and ids must agree. */
static const struct range afmoe_asian[] = {
    {0xe40, 0xeff},
    {0x1000, 0x109f},
    {0x1100, 0x11ff},
    {0x1780, 0x17ff},
    {0x2f00, 0x2fdf},
    {0x3040, 0x30ff},
    {0x3400, 0x4dbf},
    {0x4e00, 0xfaff},
    {0xff65, 0xff9f},
};

static const struct range poro_stop[] = {
    {'!', '!'},
    {'(', ')'},
    {',', ','},
    {'.', '.'},
    {'?', '?'},
    {'|', '|'},
    {0x60c, 0x60c},
    {0x6d4, 0x6d4},
    {0x964, 0x964},
    {0x2026, 0x2026},
    {0x3001, 0x3002},
    {0xff0c, 0xff0c},
};

/* The ranges ascend. */
static bool within(const struct range *ranges, size_t n, uint32_t c)
{
    if (c > ranges[n - 1].last)
        return false;
    size_t i = 0;
    while (c > ranges[i].last)
        i++;
    return c >= ranges[i].first;
}

#define IN(ranges, c) within(ranges, sizeof(ranges) / sizeof(ranges)[0], c)

/* ---- kinds ---- */

/* One of CC_ANY for c < 128. */
static uint32_t kind_of_ascii(uint32_t c)
{
    static const struct {
        char c;
        uint32_t kind;
    } single[] = {
        {'/', CC_SLASH},
        {'`', CC_BACKTICK},
        {' ', CC_BLANK},
        {'\t', CC_SPACE_REST},
        {'\n', CC_LF},
        {'\r', CC_CR},
        {'\v', CC_SPACE_REST},
        {'\f', CC_SPACE_REST},
    };
    for (size_t i = 0; i < sizeof single / sizeof single[0]; i++)
        if (c == (uint32_t)single[i].c)
            return single[i].kind;
    if (c >= 'a' && c <= 'z')
        return CC_LOWER;
    if (c >= 'A' && c <= 'Z')
        return CC_UPPER;
    if (c >= '0' && c <= '9')
        return CC_DIGIT;
    if (c < ' ' || c == 0x7f)
        return CC_CONTROL;
    return strchr("$+<=>^|~", (int)c) ? CC_SYMBOL_ASCII : CC_PUNCT_ASCII;
}

/* What Unicode 15.1 assigned; a newer utf8proc says the same. */
static uint32_t kind_of_unassigned(uint32_t c)
{
    if (c >= 0x2ebf0 && c <= 0x2ee5d)
        return CC_LETTER_HAN;
    if ((c >= 0x2ffc && c <= 0x2fff) || c == 0x31ef)
        return CC_SYMBOL_REST;
    return CC_UNASSIGNED;
}

static uint32_t kind_of(uint32_t c)
{
    if (c < 0x80)
        return kind_of_ascii(c);
    if (c == 0x85)
        return CC_SPACE_REST;
    switch (utf8proc_category((utf8proc_int32_t)c)) {
    case UTF8PROC_CATEGORY_LU:
    case UTF8PROC_CATEGORY_LT:
        return CC_UPPER_REST;
    case UTF8PROC_CATEGORY_LL:
        return CC_LOWER_REST;
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_LO:
        return IN(han, c) ? CC_LETTER_HAN : CC_LETTER_REST;
    case UTF8PROC_CATEGORY_ND:
    case UTF8PROC_CATEGORY_NL:
    case UTF8PROC_CATEGORY_NO:
        return CC_NUMBER_REST;
    case UTF8PROC_CATEGORY_MN:
    case UTF8PROC_CATEGORY_MC:
    case UTF8PROC_CATEGORY_ME:
        return CC_MARK;
    case UTF8PROC_CATEGORY_PC:
    case UTF8PROC_CATEGORY_PD:
    case UTF8PROC_CATEGORY_PS:
    case UTF8PROC_CATEGORY_PE:
    case UTF8PROC_CATEGORY_PI:
    case UTF8PROC_CATEGORY_PF:
    case UTF8PROC_CATEGORY_PO:
        return CC_PUNCT_REST;
    case UTF8PROC_CATEGORY_SM:
    case UTF8PROC_CATEGORY_SC:
    case UTF8PROC_CATEGORY_SK:
    case UTF8PROC_CATEGORY_SO:
        return CC_SYMBOL_REST;
    case UTF8PROC_CATEGORY_ZS:
    case UTF8PROC_CATEGORY_ZL:
    case UTF8PROC_CATEGORY_ZP:
        return CC_SPACE_REST;
    case UTF8PROC_CATEGORY_CN:
        return kind_of_unassigned(c);
    default:
        return CC_CONTROL;
    }
}

static uint32_t class_of(uint32_t c)
{
    uint32_t class = kind_of(c);
    if (class & CC_SPACE)
        return class;
    class |= IN(han, c) ? CC_HAN : 0;
    class |= IN(han_kana, c) ? CC_HAN_KANA : 0;
    class |= IN(deepseek_cjk, c) ? CC_DEEPSEEK_CJK : 0;
    class |= IN(deepseek_word, c) ? CC_DEEPSEEK_WORD : 0;
    class |= IN(deepseek_mark, c) ? CC_DEEPSEEK_MARK : 0;
    class |= IN(hangul, c) ? CC_HANGUL : 0;
    class |= IN(bopomofo, c) ? CC_BOPOMOFO : 0;
    class |= IN(youtu_mark, c) ? CC_YOUTU_MARK : 0;
    class |= IN(afmoe_asian, c) ? CC_AFMOE_ASIAN : 0;
    class |= IN(poro_stop, c) ? 0 : CC_PORO_WORD;
    return class;
}

/* ---- the table ---- */

static struct charclass_table table;

static void build(void)
{
    size_t n = 0, cap = 0;
    for (uint32_t page = 0; page < N_PAGES; page++) {
        if (n == cap) {
            cap = cap ? 2 * cap : 128;
            table.pages = mem_realloc(table.pages, cap * sizeof *table.pages);
        }
        for (uint32_t i = 0; i < 256; i++)
            table.pages[n][i] = class_of(page << 8 | i);
        size_t same = 0;
        while (memcmp(table.pages[same], table.pages[n], sizeof *table.pages) != 0)
            same++;
        table.page_of[page] = (uint16_t)same;
        n += same == n;
    }
}

const struct charclass_table *charclass_table(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, build);
    return &table;
}
