#include "base/err.h"

#include <stdarg.h>
#include <stdio.h>

enum err err_set(struct err_info *e, enum err code, const char *fmt, ...)
{
    if (e) {
        va_list ap;
        va_start(ap, fmt);
        vsnprintf(e->text, sizeof e->text, fmt, ap);
        va_end(ap);
        e->code = code;
        e->field[0] = '\0';
    }
    return code;
}

enum err err_set_field(struct err_info *e, enum err code, const char *field, const char *fmt, ...)
{
    if (e) {
        va_list ap;
        va_start(ap, fmt);
        vsnprintf(e->text, sizeof e->text, fmt, ap);
        va_end(ap);
        e->code = code;
        snprintf(e->field, sizeof e->field, "%s", field);
    }
    return code;
}
