/* Recognising ChatML by the source of its Jinja template.
 *
 * A template is brought into a canonical form, in which spelling does not matter (quotes, white
 * space, trims, message['role'] or message.role, + or ~, one output tag or several), and compared
 * with that of plain ChatML. Anything beyond it, such as a default system prompt or tools, is
 * another canonical form, and so another template. */
#ifndef WEIR_CHAT_CHATML_H
#define WEIR_CHAT_CHATML_H

#include "base/buf.h"

#include <stdbool.h>

/* Append the canonical form of source[0..n): statements ended by ';', in the order of the source.
 *
 *     {% for m in messages %}{{ '<b>' + m['x'] }}{{ "\n" -}}{% endfor %}
 *     for m in messages;"<b>"+m.x+"\n";endfor;
 *
 * False if the source is not what this reads; *out is then of no use. */
bool jinja_canonical(const char *source, size_t n, struct buf *out);

/* Is the source plain ChatML? *wants_bos: it puts the BOS token in front. */
bool chatml_matches(const char *source, size_t n, bool *wants_bos);

#endif
