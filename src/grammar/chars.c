/* Sets of code points, and the bytes of UTF-8 that spell them.
 *
 * A range is cut where the number of bytes changes, and then until each piece is a product of
 * ranges, one a byte: U+0800..U+FFFF less the surrogates is E0 A0-BF 80-BF, E1-EC 80-BF 80-BF, ...
 */
#include "base/utf8.h"
#include "grammar/internal.h"

#include <stdlib.h>
#include <string.h>

#define MAX_CHAR 0x10ffffu

void char_set_add(struct char_set *s, uint32_t lo, uint32_t hi)
{
    s->r = grow(s->r, &s->cap, s->n + 1, sizeof *s->r);
    s->r[s->n++] = (struct grammar_range){lo, hi};
}

void char_set_deinit(struct char_set *s)
{
    free(s->r);
    *s = (struct char_set){0};
}

static int by_lo(const void *a, const void *b)
{
    uint32_t x = ((const struct grammar_range *)a)->lo, y = ((const struct grammar_range *)b)->lo;
    return (x > y) - (x < y);
}

/* Take lo..hi out of a normal set. */
static void char_set_remove(struct char_set *s, uint32_t lo, uint32_t hi)
{
    struct char_set out = {0};
    for (uint32_t i = 0; i < s->n; i++) {
        struct grammar_range r = s->r[i];
        if (r.hi < lo || r.lo > hi) {
            char_set_add(&out, r.lo, r.hi);
            continue;
        }
        if (r.lo < lo)
            char_set_add(&out, r.lo, lo - 1);
        if (r.hi > hi)
            char_set_add(&out, hi + 1, r.hi);
    }
    char_set_deinit(s);
    *s = out;
}

void char_set_normalise(struct char_set *s)
{
    uint32_t n = 0;
    if (s->n > 1)
        qsort(s->r, s->n, sizeof *s->r, by_lo);
    for (uint32_t i = 0; i < s->n; i++) {
        struct grammar_range r = s->r[i];
        if (r.hi > MAX_CHAR)
            r.hi = MAX_CHAR;
        if (r.lo > r.hi)
            continue;
        if (n > 0 && r.lo <= s->r[n - 1].hi + 1) {
            if (r.hi > s->r[n - 1].hi)
                s->r[n - 1].hi = r.hi;
        } else {
            s->r[n++] = r;
        }
    }
    s->n = n;
    char_set_remove(s, 0xd800, 0xdfff);
}

void char_set_invert(struct char_set *s)
{
    struct char_set out = {0};
    uint32_t from = 0;
    for (uint32_t i = 0; i < s->n; i++) {
        if (s->r[i].lo > from)
            char_set_add(&out, from, s->r[i].lo - 1);
        from = s->r[i].hi + 1;
    }
    if (from <= MAX_CHAR)
        char_set_add(&out, from, MAX_CHAR);
    char_set_deinit(s);
    *s = out;
    char_set_normalise(s);
}

static void add_piece(struct grammar_builder *b, struct node_list *p, uint32_t lo, uint32_t hi)
{
    char first[4], last[4];
    grammar_node bytes[4];
    const uint32_t n = (uint32_t)utf8_encode(lo, first);
    (void)utf8_encode(hi, last);
    for (uint32_t i = 0; i < n; i++)
        bytes[i] = grammar_byte_range(b, (uint8_t)first[i], (uint8_t)last[i]);
    node_list_add(p, grammar_seq(b, n, bytes));
}

/* lo..hi of more than one byte each. */
static void add_range(struct grammar_builder *b, struct node_list *p, uint32_t lo, uint32_t hi)
{
    static const uint32_t ends[] = {0x7ff, 0xffff};
    for (int i = 0; i < 2; i++) {
        if (lo <= ends[i] && hi > ends[i]) {
            add_range(b, p, lo, ends[i]);
            add_range(b, p, ends[i] + 1, hi);
            return;
        }
    }
    for (uint32_t shift = 6; shift <= 18; shift += 6) {
        uint32_t mask = (1u << shift) - 1; /* what the last bytes hold */
        if ((lo & ~mask) == (hi & ~mask))
            continue;
        if ((lo & mask) != 0) {
            add_range(b, p, lo, lo | mask);
            add_range(b, p, (lo | mask) + 1, hi);
            return;
        }
        if ((hi & mask) != mask) {
            add_range(b, p, lo, (hi & ~mask) - 1);
            add_range(b, p, hi & ~mask, hi);
            return;
        }
    }
    add_piece(b, p, lo, hi);
}

grammar_node grammar_chars(struct grammar_builder *b,
                           uint32_t n,
                           const struct grammar_range *ranges)
{
    struct char_set set = {0};
    struct node_list p = {0};
    struct byte_class ascii = {0};
    for (uint32_t i = 0; i < n; i++)
        char_set_add(&set, ranges[i].lo, ranges[i].hi);
    char_set_normalise(&set);
    node_list_add(&p, grammar_never(b)); /* the place of the ASCII part */
    for (uint32_t i = 0; i < set.n; i++) {
        uint32_t lo = set.r[i].lo, hi = set.r[i].hi;
        if (lo < 0x80)
            class_add(&ascii, lo, hi < 0x80 ? hi : 0x7f);
        if (hi >= 0x80)
            add_range(b, &p, lo < 0x80 ? 0x80 : lo, hi);
    }
    p.nodes[0] = builder_class(b, &ascii);
    char_set_deinit(&set);
    return node_list_alt(b, &p);
}
