/* Characters by Unicode's general categories, for \p{...}. Languages follow different versions of
 * Unicode; what none of them has assigned yet may be anything in the next. */
#include "grammar/internal.h"

#include <pthread.h>
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
