/* Characters by Unicode's general categories, for \p{...}, and those that differ in case alone, for
 * (?i). Languages follow different versions of Unicode; what none of them has assigned yet may be
 * anything in the next. */
#include "base/mem.h"
#include "grammar/internal.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>

#define LAST 0x10ffffu
#define MAX_RUNS 8192u

/* Code points of one category, from `first` up to the next run. */
static struct run {
    uint32_t first;
    utf8proc_category_t category;
    char name[3]; /* "Lu"; "Cn" is what is not assigned */
} runs[MAX_RUNS + 1];
static uint32_t n_runs;
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void find_runs(void)
{
    for (uint32_t c = 0; c <= LAST; c++) {
        utf8proc_category_t category = utf8proc_category((utf8proc_int32_t)c);
        if (n_runs > 0 && (runs[n_runs - 1].category == category || n_runs == MAX_RUNS))
            continue;
        runs[n_runs] = (struct run){.first = c, .category = category};
        memcpy(runs[n_runs++].name, utf8proc_category_string((utf8proc_int32_t)c), 2);
    }
    runs[n_runs].first = LAST + 1;
}

static const struct {
    const char *name, *word; /* "Lu", "Uppercase_Letter" */
} names[] = {{"Lu", "Uppercase_Letter"},
             {"Ll", "Lowercase_Letter"},
             {"Lt", "Titlecase_Letter"},
             {"Lm", "Modifier_Letter"},
             {"Lo", "Other_Letter"},
             {"Mn", "Nonspacing_Mark"},
             {"Mc", "Spacing_Mark"},
             {"Me", "Enclosing_Mark"},
             {"Nd", "Decimal_Number"},
             {"Nl", "Letter_Number"},
             {"No", "Other_Number"},
             {"Pc", "Connector_Punctuation"},
             {"Pd", "Dash_Punctuation"},
             {"Ps", "Open_Punctuation"},
             {"Pe", "Close_Punctuation"},
             {"Pi", "Initial_Punctuation"},
             {"Pf", "Final_Punctuation"},
             {"Po", "Other_Punctuation"},
             {"Sm", "Math_Symbol"},
             {"Sc", "Currency_Symbol"},
             {"Sk", "Modifier_Symbol"},
             {"So", "Other_Symbol"},
             {"Zs", "Space_Separator"},
             {"Zl", "Line_Separator"},
             {"Zp", "Paragraph_Separator"},
             {"Cc", "Control"},
             {"Cf", "Format"},
             {"L", "Letter"},
             {"M", "Mark"},
             {"N", "Number"},
             {"P", "Punctuation"},
             {"S", "Symbol"},
             {"Z", "Separator"}};

static bool is(const char *s, size_t n, const char *name)
{
    return strlen(name) == n && memcmp(s, name, n) == 0;
}

bool char_set_add_category(struct char_set *set, const char *s, size_t n, bool inverted, bool over)
{
    const char *wanted = NULL;
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        if (is(s, n, names[i].name) || is(s, n, names[i].word))
            wanted = names[i].name;
    if (!wanted)
        return false;
    pthread_once(&once, find_runs);
    for (uint32_t i = 0; i < n_runs; i++) {
        bool has = strncmp(runs[i].name, wanted, strlen(wanted)) == 0;
        if (strcmp(runs[i].name, "Cn") == 0 ? over : has != inverted)
            char_set_add(set, runs[i].first, runs[i + 1].first - 1);
    }
    return true;
}

/* ---- case ---- */

#define CASED_LAST 0x1ffffu
#define MAX_CASED 8192u

/* Characters that some language takes for one another where case does not count are a ring. */
static struct cased {
    uint32_t c;
    uint32_t next; /* in its ring: an index */
    uint32_t pair; /* the one that all of them take it for; 0: none */
} cased[MAX_CASED];
static uint32_t n_cased;
static pthread_once_t cased_once = PTHREAD_ONCE_INIT;

/* Blocks of the letters of Latin, Greek, Cyrillic and Armenian, as old as languages are. */
static bool is_old(uint32_t c)
{
    return c <= 0x58f || (c >= 0x1e00 && c <= 0x1fff);
}

/* Its one character of Unicode's full case folding, or NONE where that is several. */
static uint32_t fold_of(uint32_t c)
{
    utf8proc_int32_t out[8];
    int last = 0;
    utf8proc_ssize_t n =
        utf8proc_decompose_char((utf8proc_int32_t)c, out, 8, UTF8PROC_CASEFOLD, &last);
    return n == 1 ? (uint32_t)out[0] : NONE;
}

/* ECMAScript compares capitals, unless these are several characters or only one of the two is
 * ASCII; Python compares small letters: a capital and a small letter that are each other's. */
static uint32_t pair_of(uint32_t c)
{
    const uint32_t lower = (uint32_t)utf8proc_tolower((utf8proc_int32_t)c);
    const uint32_t upper = (uint32_t)utf8proc_toupper((utf8proc_int32_t)c);
    const uint32_t other = c == lower ? upper : lower;
    if (lower == upper || (c != lower && c != upper) || !is_old(lower) || !is_old(upper) ||
        (lower < 0x80) != (upper < 0x80) || fold_of(lower) == NONE || fold_of(upper) == NONE ||
        (uint32_t)utf8proc_toupper((utf8proc_int32_t)lower) != upper ||
        (uint32_t)utf8proc_tolower((utf8proc_int32_t)upper) != lower)
        return 0;
    return other;
}

static uint32_t root_of(uint32_t *up, uint32_t c)
{
    while (up[c] != c)
        c = up[c] = up[up[c]];
    return c;
}

static void find_cased(void)
{
    uint32_t *up = mem_alloc((CASED_LAST + 1) * sizeof *up);
    uint32_t *first = mem_alloc((CASED_LAST + 1) * sizeof *first); /* index of a root's first */
    for (uint32_t c = 0; c <= CASED_LAST; c++) {
        up[c] = c;
        first[c] = NONE;
    }
    for (uint32_t c = 0; c <= CASED_LAST; c++) {
        const utf8proc_int32_t v = (utf8proc_int32_t)c;
        const uint32_t like[] = {(uint32_t)utf8proc_tolower(v),
                                 (uint32_t)utf8proc_toupper(v),
                                 (uint32_t)utf8proc_totitle(v),
                                 fold_of(c)};
        for (size_t i = 0; i < sizeof like / sizeof like[0]; i++)
            if (like[i] != c && like[i] <= CASED_LAST)
                up[root_of(up, c)] = root_of(up, like[i]);
    }
    /* those whose full foldings are the same characters, several each */
    static const uint32_t same[][2] = {{0x390, 0x1fd3}, {0x3b0, 0x1fe3}, {0xfb05, 0xfb06}};
    for (size_t i = 0; i < sizeof same / sizeof same[0]; i++)
        up[root_of(up, same[i][0])] = root_of(up, same[i][1]);
    for (uint32_t c = 0; c <= CASED_LAST; c++) { /* roots with others */
        if (root_of(up, c) != c)
            first[root_of(up, c)] = NONE - 1;
    }
    for (uint32_t c = 0; c <= CASED_LAST && n_cased < MAX_CASED; c++) {
        uint32_t *at = &first[root_of(up, c)];
        if (*at == NONE)
            continue;
        struct cased *x = &cased[n_cased];
        *x = (struct cased){.c = c, .next = n_cased, .pair = pair_of(c)};
        if (*at < NONE - 1) { /* behind the first */
            x->next = cased[*at].next;
            cased[*at].next = n_cased;
        } else {
            *at = n_cased;
        }
        n_cased++;
    }
    free(up);
    free(first);
}

void char_set_fold(struct char_set *set, bool over)
{
    const uint32_t n = set->n;
    pthread_once(&cased_once, find_cased);
    for (uint32_t k = 0; k < n; k++) {
        const struct grammar_range r = set->r[k];
        uint32_t i = 0, end = n_cased;
        while (i < end) { /* the first within the range */
            uint32_t middle = (i + end) / 2;
            if (cased[middle].c < r.lo)
                i = middle + 1;
            else
                end = middle;
        }
        for (; i < n_cased && cased[i].c <= r.hi; i++) {
            if (!over && cased[i].pair)
                char_set_add(set, cased[i].pair, cased[i].pair);
            for (uint32_t at = cased[i].next; over && at != i; at = cased[at].next)
                char_set_add(set, cased[at].c, cased[at].c);
        }
    }
    char_set_normalise(set);
}
