/* The "format" of a string: for each a language all of whose texts are valid, though not always all
 * valid texts (no week dates, no IPv6 with ::, no quoted mail addresses). */
#include "grammar/internal.h"

#include <string.h>

#define YEAR_4 "([2468][048]|[13579][26])00|[1-9][0-9](0[48]|[2468][048]|[13579][26])"
#define DATE                                                                                       \
    "(([1-9][0-9]{3})-((0[13578]|1[02])-(0[1-9]|[12][0-9]|3[01])|(0[469]|11)-(0[1-9]|[12][0-9]|"   \
    "30)|02-(0[1-9]|1[0-9]|2[0-8]))|(" YEAR_4 ")-02-29)"
#define TIME                                                                                       \
    "([01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](\\.[0-9]{1,6})?(Z|[+-]([01][0-9]|2[0-3]):[0-5][0-9]" \
    ")"
#define LABEL "[a-z0-9]([a-z0-9-]{0,30}[a-z0-9])?"
#define HOST LABEL "(\\." LABEL "){0,4}"
#define BYTE "(25[0-5]|2[0-4][0-9]|1[0-9][0-9]|[1-9]?[0-9])"
#define URL_CHAR "([A-Za-z0-9._~!$&'()*+,;=:@-]|%[0-9A-F]{2})"
#define ATOM "[A-Za-z0-9_+-]{1,24}"

static const struct {
    const char *name, *regex;
} formats[] = {
    {"date", DATE},
    {"time", TIME},
    {"date-time", DATE "T" TIME},
    {"duration",
     "P([0-9]{1,3}W|[0-9]{1,3}Y([0-9]{1,2}M([0-9]{1,2}D)?)?|[0-9]{1,2}M([0-9]{1,2}D)?|"
     "[0-9]{1,3}D(T[0-9]{1,2}H([0-9]{1,2}M([0-9]{1,2}S)?)?)?|T([0-9]{1,2}H([0-9]{1,2}M([0-9]{1,2}S)"
     "?)?|[0-9]{1,2}M([0-9]{1,2}S)?|[0-9]{1,2}S))"},
    {"uuid", "[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"},
    {"email", ATOM "(\\." ATOM "){0,3}@" LABEL "(\\." LABEL "){0,2}\\.[a-z]{2,10}"},
    {"hostname", HOST},
    {"ipv4", BYTE "(\\." BYTE "){3}"},
    {"ipv6", "[0-9a-f]{1,4}(:[0-9a-f]{1,4}){7}"},
    {"uri",
     "https?://" HOST "(:[1-9][0-9]{0,3})?(/" URL_CHAR "*)*(\\?(" URL_CHAR "|[/?])*)?(#(" URL_CHAR
     "|[/?])*)?"},
};

bool json_format(struct grammar_builder *b, const char *name, grammar_node *out)
{
    for (size_t i = 0; i < sizeof formats / sizeof formats[0]; i++) {
        if (strcmp(formats[i].name, name) == 0) {
            *out = regex_node(b, formats[i].regex, strlen(formats[i].regex), true, false, name);
            return true;
        }
    }
    return false;
}
