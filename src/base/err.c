#include "base/err.h"

#include "base/utf8.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

void err_one_line(char *text)
{
    const size_t n = strlen(text);
    for (size_t at = 0; at < n;) {
        unsigned char *c = (unsigned char *)text + at;
        const int len = utf8_len(text + at, n - at);
        if (c[0] == 0xc2 && c[1] >= 0x80 && c[1] < 0xa0) /* C1 in UTF-8 */
            c[0] = c[1] = '?';
        else if (*c == '\n' || *c == '\r' || *c == '\t')
            *c = ' ';
        else if (len <= 0 || *c < ' ' || *c == 127)
            *c = '?';
        at += len > 0 ? (size_t)len : 1;
    }
}

WEIR_PRINTF(4, 0)
static void fill(struct err_info *e, enum err code, const char *field, const char *fmt, va_list ap)
{
    vsnprintf(e->text, sizeof e->text, fmt, ap);
    err_one_line(e->text);
    e->code = code;
    e->n_prompt = e->n_ctx = 0;
    snprintf(e->field, sizeof e->field, "%s", field);
    err_one_line(e->field);
}

enum err err_set(struct err_info *e, enum err code, const char *fmt, ...)
{
    if (e) {
        va_list ap;
        va_start(ap, fmt);
        fill(e, code, "", fmt, ap);
        va_end(ap);
    }
    return code;
}

enum err err_set_field(struct err_info *e, enum err code, const char *field, const char *fmt, ...)
{
    if (e) {
        va_list ap;
        va_start(ap, fmt);
        fill(e, code, field, fmt, ap);
        va_end(ap);
    }
    return code;
}
