/* Sorting by keys, stable, by Python's <. */
#ifndef WEIR_CHAT_JINJA_SORT_H
#define WEIR_CHAT_JINJA_SORT_H

#include "chat/jinja/value.h"

struct jkeyed {
    struct jval key, item;
};

/* In place; fails where keys cannot be compared. `down`: the largest first, equal ones in order. */
void jsort(struct jrun *r, struct jkeyed *items, size_t n, bool down);

#endif
