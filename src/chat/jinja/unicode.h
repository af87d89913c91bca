/* What Python's str knows about characters, over utf8proc's tables. */
#ifndef WEIR_CHAT_JINJA_UNICODE_H
#define WEIR_CHAT_JINJA_UNICODE_H

#include "chat/jinja/text.h"

bool juni_printable(uint32_t c);
bool juni_space(uint32_t c);
bool juni_alpha(uint32_t c);
bool juni_digit(uint32_t c);        /* isdigit: decimals and things like superscripts */
bool juni_decimal(uint32_t c);      /* isdecimal */
int juni_decimal_value(uint32_t c); /* 0 to 9; -1: no decimal */
bool juni_numeric(uint32_t c);      /* isnumeric */
bool juni_alnum(uint32_t c);
bool juni_word(uint32_t c); /* \w: alnum or '_' */
bool juni_upper(uint32_t c);
bool juni_lower(uint32_t c);
bool juni_title(uint32_t c);
bool juni_cased(uint32_t c);
bool juni_linebreak(uint32_t c); /* where splitlines splits */

/* Where what is white space, or what is not, ends: from `at` on, or from `end` back to `begin`. */
size_t juni_skip(const struct jstr *s, size_t at, bool space);
size_t juni_skip_back(const struct jstr *s, size_t begin, size_t end, bool space);

enum jcase { JCASE_UPPER, JCASE_LOWER, JCASE_TITLE, JCASE_FOLD };

/* Append character c at byte `at` of s in the given case; may be more than one character. */
void juni_put_case(struct jsb *b, const struct jstr *s, size_t at, enum jcase to);
const struct jstr *juni_to_case(struct jrun *r, const struct jstr *s, enum jcase to);

#endif
