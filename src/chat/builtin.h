/* Chat templates by the names that llama-server's --chat-template knows them by: for files that
 * have none, or a wrong one. Immutable. */
#ifndef WEIR_CHAT_BUILTIN_H
#define WEIR_CHAT_BUILTIN_H

#include <stddef.h>

/* The Jinja source, or NULL if there is none of this name. */
const char *chat_builtin_source(const char *name);
/* The i-th name, NULL behind the last. */
const char *chat_builtin_name(size_t i);

#endif
