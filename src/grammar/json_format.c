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
#define SHORT "[a-z0-9]{1,20}(-[a-z0-9]{1,20})?"
#define BYTE "(25[0-5]|2[0-4][0-9]|1[0-9][0-9]|[1-9]?[0-9])"
#define IPV4 BYTE "(\\." BYTE "){3}"
#define IPV6 "[0-9a-f]{1,4}(:[0-9a-f]{1,4}){7}"
#define URL_CHAR "([A-Za-z0-9._~!$&'()*+,;=:@-]|%[0-9A-F]{2})"
#define PATH "(/" URL_CHAR "*)*(\\?(" URL_CHAR "|[/?])*)?(#(" URL_CHAR "|[/?])*)?"
#define NAME "[a-z0-9]+(-[a-z0-9]+)*"
#define URL "https?://" NAME "(\\." NAME ")*(:[1-9][0-9]{0,3})?" PATH
#define ATOM "[A-Za-z0-9_+-]{1,24}"
#define EMAIL ATOM "(\\." ATOM "){0,3}@" LABEL "(\\." LABEL "){0,2}\\.[a-z]{2,10}"
#define HEX(n) "[0-9a-f]{" #n "}"
#define UUID(version) HEX(8) "-" HEX(4) "-" version HEX(3) "-[89ab]" HEX(3) "-" HEX(12)
#define POINTER "(/([A-Za-z0-9._ -]|~[01])*)*"
/* one thing of an expression, alone or in brackets, that may be repeated */
#define PIECE                                                                                      \
    "([A-Za-z0-9 _,:;@=<>~%'-]|\\.|\\\\[dswDSW.+*?()/-]|\\[(A-Z|a-z|0-9|[A-Za-z0-9_. ])+\\])"
#define PIECES "(" PIECE "[*+?]?)+"

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
    {"email", EMAIL},
    {"idn-email", EMAIL},
    {"hostname", HOST},
    {"idn-hostname", SHORT "(\\." SHORT "){0,4}"},
    {"ipv4", IPV4},
    {"ipv6", IPV6},
    {"uri", URL},
    {"iri", URL},
    {"uri-reference", URL "|" PATH},
    {"iri-reference", URL "|" PATH},
    {"uri-template", URL},
    {"json-pointer", POINTER},
    {"relative-json-pointer", "(0|[1-9]{1,2})(#|" POINTER ")"},
    {"regex", "\\^?(" PIECES "|\\(" PIECES "(\\|" PIECES ")*\\)[*+?]?)*\\$?"},
    /* those of pydantic */
    {"uuid1", UUID("1")},
    {"uuid3", UUID("3")},
    {"uuid4", UUID("4")},
    {"uuid5", UUID("5")},
    {"uuid6", UUID("6")},
    {"uuid7", UUID("7")},
    {"uuid8", UUID("8")},
    {"ipvanyaddress", IPV4 "|" IPV6},
    {"ipv4interface", IPV4 "/(3[0-2]|[12]?[0-9])"},
    {"ipv4network", IPV4 "/32|" BYTE "(\\." BYTE "){2}\\.0/24|" BYTE "\\." BYTE "\\.0\\.0/16"},
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

#define HEX_ANY(n) "[0-9A-Fa-f]{" #n "}"
#define UUID_ANY "^" HEX_ANY(8) "(-" HEX_ANY(4) "){3}-" HEX_ANY(12) "$"
#define DATE_ANY                                                                                   \
    "([0-9]{4}-((0[13578]|1[02])-(0[1-9]|[12][0-9]|3[01])|(0[469]|11)-(0[1-9]|[12][0-9]|30)|02-("  \
    "0[1-9]|1[0-9]|2[0-8]))|(" YEAR_4 ")-02-29)"
#define TIME_ANY                                                                                   \
    "(([01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](\\.[0-9]+)?([Zz]|[+-]([01][0-9]|2[0-3]):[0-5][0-9]" \
    ")|23:59:60(\\.[0-9]+)?[Zz])"
#define H "[0-9A-Fa-f]{1,4}"
#define IPV6_ANY                                                                                   \
    "(" H "(:" H "){7}|(" H ":){1,7}:|(" H ":){1,6}:" H "|(" H ":){1,5}(:" H "){1,2}|(" H          \
    ":){1,4}(:" H "){1,3}|(" H ":){1,3}(:" H "){1,4}|(" H ":){1,2}(:" H "){1,5}|" H ":(:" H        \
    "){1,6}|:((:" H "){1,7}|:)|((" H ":){6}|::(" H ":){0,5}|" H "::(" H ":){0,4}|" H ":" H "::(" H \
    ":){0,3}|(" H ":){2}" H "::(" H ":){0,2}|(" H ":){3}" H "::(" H ":)?|(" H ":){4}" H "::)" IPV4 \
    ")"
#define LABEL_ANY "[A-Za-z0-9]([A-Za-z0-9-]{0,61}[A-Za-z0-9])?"
#define POINTER_ANY "(/([^~/]|~[01])*)*"
#define DAYS_ANY "([0-9]+Y([0-9]+M([0-9]+D)?)?|[0-9]+M([0-9]+D)?|[0-9]+D)"
#define HOURS_ANY "T([0-9]+H([0-9]+M([0-9]+S)?)?|[0-9]+M([0-9]+S)?|[0-9]+S)"
#define HEX_PAIR "%[0-9A-Fa-f]{2}"
#define IN_PATH(more) "([A-Za-z0-9._~!$&'()*+,;=:@" more "-]|" HEX_PAIR ")"
#define IN_USER(more) "([A-Za-z0-9._~!$&'()*+,;=:" more "-]|" HEX_PAIR ")"
#define IN_HOST(more) "([A-Za-z0-9._~!$&'()*+,;=" more "-]|" HEX_PAIR ")"
#define AUTHORITY(more) "(" IN_USER(more) "*@)?(" IN_HOST(more) "*|\\[" IPV6_ANY "\\])(:[0-9]*)?"
#define ROOTED(more)                                                                               \
    "//" AUTHORITY(more) "(/" IN_PATH(more) "*)*|/(" IN_PATH(more) "+(/" IN_PATH(more) "*)*)?"
#define QUERY(more) "(\\?(" IN_PATH(more) "|[/?])*)?(#(" IN_PATH(more) "|[/?])*)?"
#define URI_ANY(more)                                                                              \
    "[A-Za-z][A-Za-z0-9+.-]*:(" ROOTED(more) "|" IN_PATH(more) "+(/" IN_PATH(more) "*)*)?"
#define REFERENCE_ANY(more)                                                                        \
    "(" ROOTED(more) "|([A-Za-z0-9._~!$&'()*+,;=@" more "-]|" HEX_PAIR ")+(/" IN_PATH(more) "*)*)" \
                                                                                            "?"
#define BEYOND_ASCII "\\u00a0-\\ud7ff\\uf900-\\ufdcf\\ufdf0-\\uffef\\u{10000}-\\u{efffd}"

/* What values that a schema lists are held against; NULL: they are not looked at. Of dates and
 * times all but leap seconds of other zones and leap days before the year 1000. */
const char *json_format_pattern(const char *name)
{
    static const char *const patterns[][2] = {
        {"date", "^" DATE_ANY "$"},
        {"time", "^" TIME_ANY "$"},
        {"date-time", "^" DATE_ANY "[Tt]" TIME_ANY "$"},
        {"duration", "^P([0-9]+W|" DAYS_ANY "(" HOURS_ANY ")?|" HOURS_ANY ")$"},
        {"email", "^.+@.+$"},
        {"idn-email", "^.+@.+$"},
        {"ipv4", "^" IPV4 "$"},
        {"ipv6", "^" IPV6_ANY "$"},
        {"hostname", "^" LABEL_ANY "(\\." LABEL_ANY ")*$"},
        {"uri", "^" URI_ANY("") QUERY("") "$"},
        {"iri", "^" URI_ANY(BEYOND_ASCII) QUERY(BEYOND_ASCII) "$"},
        {"uri-reference", "^(" URI_ANY("") "|" REFERENCE_ANY("") ")" QUERY("") "$"},
        {"iri-reference",
         "^(" URI_ANY(BEYOND_ASCII) "|" REFERENCE_ANY(BEYOND_ASCII) ")" QUERY(BEYOND_ASCII) "$"},
        {"json-pointer", "^" POINTER_ANY "$"},
        {"relative-json-pointer", "^(0|[1-9][0-9]*)(#|" POINTER_ANY ")$"},
    };
    for (size_t i = 0; i < sizeof patterns / sizeof patterns[0]; i++)
        if (strcmp(patterns[i][0], name) == 0)
            return patterns[i][1];
    return strncmp(name, "uuid", 4) == 0 ? UUID_ANY : NULL;
}
