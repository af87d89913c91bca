/* How a value is written: what format specs and the conversions of % share. */
#ifndef WEIR_CHAT_JINJA_SPEC_H
#define WEIR_CHAT_JINJA_SPEC_H

#include "chat/jinja/builtins.h"

struct jspec {
    const struct jstr *fill; /* one character */
    char align;              /* '<' '>' '=' '^', 0: the type's own */
    char sign;               /* '+' '-' ' ', 0 */
    char group;              /* ',' '_', 0 */
    char type;               /* 0: none */
    bool alternate;
    int64_t width, precision; /* -1: none */
};

void jspec_put_padded(struct jsb *b, const struct jspec *f, const struct jstr *s, char align);
void jspec_put_int(struct jsb *b, const struct jspec *f, int64_t i, bool trusted);
void jspec_put_float(struct jsb *b, const struct jspec *f, double v, bool trusted);

#endif
