/* Numbers from text, as Python's int() and float() read them. */
#ifndef WEIR_CHAT_JINJA_NUMBERS_H
#define WEIR_CHAT_JINJA_NUMBERS_H

#include "chat/jinja/text.h"

/* False if s is no number. Base 0 or 2 to 36; fails for integers of more than 64 bits. */
bool jnumber_parse_int(struct jrun *r, const struct jstr *s, int64_t base, int64_t *out);
bool jnumber_parse_float(struct jrun *r, const struct jstr *s, double *out);

/* A decimal that printf wrote, in whatever locale. */
double jnumber_of(const char *s);

#endif
