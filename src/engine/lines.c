#include "engine/lines.h"

bool lines_feed(struct lines *l, const char *bytes, size_t n, uint32_t min_indent, size_t *at)
{
    for (size_t i = 0; i < n; i++) {
        if (l->in_indent && (bytes[i] == ' ' || bytes[i] == '\t')) {
            l->n_indent++;
            continue;
        }
        if (l->in_indent && l->n_indent < min_indent) {
            *at = i;
            return true;
        }
        l->in_indent = bytes[i] == '\n';
        l->n_indent = 0;
    }
    return false;
}
