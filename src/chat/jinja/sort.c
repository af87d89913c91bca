#include "chat/jinja/sort.h"

#include <string.h>

/* Merge [0, mid) and [mid, n); the second goes first only where it must. */
static void merge(
    struct jrun *r, struct jkeyed *items, struct jkeyed *room, size_t mid, size_t n, bool down)
{
    size_t a = 0, b = mid, to = 0;
    while (a < mid && b < n) {
        bool second = down ? jval_less(r, items[a].key, items[b].key)
                           : jval_less(r, items[b].key, items[a].key);
        room[to++] = items[second ? b++ : a++];
    }
    while (a < mid)
        room[to++] = items[a++];
    while (b < n)
        room[to++] = items[b++];
    memcpy(items, room, n * sizeof *items);
}

static void sort(struct jrun *r, struct jkeyed *items, struct jkeyed *room, size_t n, bool down)
{
    if (n < 2)
        return;
    sort(r, items, room, n / 2, down);
    sort(r, items + n / 2, room, n - n / 2, down);
    merge(r, items, room, n / 2, n, down);
}

void jsort(struct jrun *r, struct jkeyed *items, size_t n, bool down)
{
    sort(r, items, jrun_alloc_n(r, n, sizeof *items), n, down);
}
