/* Finite automata over bytes, for what nodes alone cannot say: both of two languages, or one
 * without another (a pattern beside lengths, multiples within bounds, names that are none of
 * these).
 *
 *      nodes --> NFA --> subsets --> DFA --> pairs --> DFA --> one rule a state
 *      dfa_create.c                          dfa.c
 *
 * Two DFAs walked together become a third. Where one becomes nodes again, or is asked for its
 * texts, states that reach no end are left out. A node that is recursive has no finite automaton.
 * All sizes are bounded: what is over a bound gives NULL. */
#include "grammar/dfa.h"

#include "base/mem.h"

#include <stdlib.h>
#include <string.h>

void dfa_destroy(struct dfa *d)
{
    if (!d)
        return;
    free(d->next);
    free(d->accepts);
    free(d);
}

static uint32_t step(const struct dfa *d, uint32_t state, uint8_t byte)
{
    return state == NONE ? NONE : d->next[state * d->n_classes + d->class_of[byte]];
}

bool dfa_accepts(const struct dfa *d, const char *s, size_t n)
{
    uint32_t at = d->start;
    for (size_t i = 0; i < n && at != NONE; i++)
        at = step(d, at, (uint8_t)s[i]);
    return at != NONE && d->accepts[at];
}

/* ---- two of them ---- */

struct pairs {
    uint32_t *a, *b; /* [n] */
    uint32_t n, cap_a, cap_b;
    uint32_t *chain, cap_chain;
    uint32_t buckets[4096];
};

static uint32_t pair_of(struct pairs *p, uint32_t a, uint32_t b, bool *failed)
{
    uint32_t *bucket = &p->buckets[(a * 0x9e3779b1u ^ b * 0x85ebca6bu) >> 20];
    for (uint32_t i = *bucket; i != NONE; i = p->chain[i])
        if (p->a[i] == a && p->b[i] == b)
            return i;
    if (p->n >= DFA_MAX_STATES) {
        *failed = true;
        return NONE;
    }
    p->a = grow(p->a, &p->cap_a, p->n + 1, sizeof *p->a);
    p->b = grow(p->b, &p->cap_b, p->n + 1, sizeof *p->b);
    p->chain = grow(p->chain, &p->cap_chain, p->n + 1, sizeof *p->chain);
    p->a[p->n] = a;
    p->b[p->n] = b;
    p->chain[p->n] = *bucket;
    *bucket = p->n;
    return p->n++;
}

/* Classes that neither tells apart. */
static void join_classes(const struct dfa *a, const struct dfa *b, struct dfa *d, uint8_t *byte_of)
{
    for (uint32_t k = 0; k < 256; k++) {
        uint32_t c = 0;
        while (c < d->n_classes && (a->class_of[byte_of[c]] != a->class_of[k] ||
                                    b->class_of[byte_of[c]] != b->class_of[k]))
            c++;
        if (c == d->n_classes)
            byte_of[d->n_classes++] = (uint8_t)k;
        d->class_of[k] = (uint8_t)c;
    }
}

struct dfa *dfa_combine(struct grammar_builder *builder,
                        const struct dfa *a,
                        const struct dfa *b,
                        bool without)
{
    struct dfa *d = mem_zalloc(1, sizeof *d);
    struct pairs *p = mem_zalloc(1, sizeof *p);
    uint8_t byte_of[256] = {0};
    uint32_t cap_next = 0, cap_accepts = 0;
    bool failed = false;
    memset(p->buckets, 0xff, sizeof p->buckets);
    join_classes(a, b, d, byte_of);
    d->start = NONE;
    if (a->start != NONE && (without || b->start != NONE))
        d->start = pair_of(p, a->start, b->start, &failed);
    for (uint32_t i = 0; i < p->n && !failed; i++) {
        builder->dfa_work += d->n_classes;
        failed |= builder_over(builder, builder->dfa_work, DFA_MAX_WORK);
        bool in_b = p->b[i] != NONE && b->accepts[p->b[i]];
        d->next = grow(d->next, &cap_next, (i + 1) * d->n_classes, sizeof *d->next);
        d->accepts = grow(d->accepts, &cap_accepts, i + 1, sizeof *d->accepts);
        d->accepts[i] = a->accepts[p->a[i]] && in_b != without;
        for (uint32_t c = 0; c < d->n_classes && !failed; c++) {
            uint32_t x = step(a, p->a[i], byte_of[c]), y = step(b, p->b[i], byte_of[c]);
            bool dead = x == NONE || (y == NONE && !without);
            uint32_t to = dead ? NONE : pair_of(p, x, y, &failed);
            d->next[i * d->n_classes + c] = to;
        }
    }
    d->n = p->n;
    free(p->a);
    free(p->b);
    free(p->chain);
    free(p);
    if (!failed)
        return d;
    dfa_destroy(d);
    return NULL;
}

bool dfa_meet(struct grammar_builder *b, struct dfa **d, const struct dfa *other, bool without)
{
    struct dfa *both = *d && other ? dfa_combine(b, *d, other, without) : NULL;
    dfa_destroy(*d);
    *d = both;
    return both != NULL;
}

bool dfa_narrow(struct grammar_builder *b, struct dfa **d, grammar_node other, bool without)
{
    struct dfa *own = dfa_create(b, other);
    bool ok = dfa_meet(b, d, own, without);
    dfa_destroy(own);
    return ok;
}

/* ---- multiples ---- */

enum { MINUS = 10, OTHER, N_NUMBER_CLASSES }; /* classes 0 to 9 are the digits */

/* States: the beginning, behind the sign, and the remainders of the digits so far. */
struct dfa *dfa_multiples(uint32_t step_by)
{
    if (step_by == 0 || step_by + 2 > DFA_MAX_STATES)
        return NULL;
    struct dfa *d = mem_zalloc(1, sizeof *d);
    d->n = step_by + 2;
    d->n_classes = N_NUMBER_CLASSES;
    memset(d->class_of, OTHER, sizeof d->class_of);
    for (uint32_t i = 0; i < 10; i++)
        d->class_of['0' + i] = (uint8_t)i;
    d->class_of['-'] = MINUS;
    d->next = mem_alloc((size_t)d->n * d->n_classes * sizeof *d->next);
    d->accepts = mem_zalloc(d->n, sizeof *d->accepts);
    memset(d->next, 0xff, (size_t)d->n * d->n_classes * sizeof *d->next);
    d->next[MINUS] = 1;
    d->accepts[2] = true;
    for (uint32_t digit = 0; digit < 10; digit++) {
        d->next[digit] = d->next[d->n_classes + digit] = 2 + digit % step_by;
        for (uint32_t r = 0; r < step_by; r++)
            d->next[(2 + r) * d->n_classes + digit] = 2 + (r * 10 + digit) % step_by;
    }
    return d;
}

/* ---- back to nodes ---- */

/* Which states reach an end: from the ends backwards. */
static bool *find_alive(const struct dfa *d)
{
    size_t n_moves = (size_t)d->n * d->n_classes;
    bool *alive = mem_zalloc(d->n + 1, sizeof *alive);
    uint32_t *first = mem_zalloc(d->n + 2, sizeof *first);
    uint32_t *from = mem_alloc((n_moves + 1) * sizeof *from);
    uint32_t *todo = mem_alloc((d->n + 1) * sizeof *todo), n = 0;
    for (size_t i = 0; i < n_moves; i++)
        if (d->next[i] != NONE)
            first[d->next[i] + 2]++;
    for (uint32_t i = 2; i < d->n + 2; i++)
        first[i] += first[i - 1];
    for (size_t i = 0; i < n_moves; i++)
        if (d->next[i] != NONE)
            from[first[d->next[i] + 1]++] = (uint32_t)(i / d->n_classes);
    for (uint32_t i = 0; i < d->n; i++) {
        alive[i] = d->accepts[i];
        if (alive[i])
            todo[n++] = i;
    }
    while (n > 0) {
        uint32_t at = todo[--n];
        for (uint32_t i = first[at]; i < first[at + 1]; i++) {
            if (alive[from[i]])
                continue;
            alive[from[i]] = true;
            todo[n++] = from[i];
        }
    }
    free(first);
    free(from);
    free(todo);
    return alive;
}

/* What may follow in state i: for each state that it leads to, the bytes and that state's rule. */
static grammar_node state_node(struct grammar_builder *b,
                               const struct dfa *d,
                               uint32_t i,
                               const bool *alive,
                               const grammar_node *rules)
{
    grammar_node some[257];
    uint32_t n = 0;
    bool done[256] = {false};
    for (uint32_t c = 0; c < d->n_classes; c++) {
        uint32_t to = d->next[i * d->n_classes + c];
        struct byte_class set = {0};
        if (done[c] || to == NONE || !alive[to])
            continue;
        for (uint32_t k = c; k < d->n_classes; k++)
            done[k] |= d->next[i * d->n_classes + k] == to;
        for (uint32_t byte = 0; byte < 256; byte++)
            if (d->next[i * d->n_classes + d->class_of[byte]] == to)
                class_add(&set, byte, byte);
        some[n++] = SEQ(b, builder_class(b, &set), rules[to]);
    }
    if (d->accepts[i])
        some[n++] = grammar_empty(b);
    return grammar_alt(b, n, some);
}

grammar_node dfa_node(struct grammar_builder *b, const struct dfa *d)
{
    if (d->start == NONE || builder_failed(b))
        return grammar_never(b);
    bool *alive = find_alive(d);
    grammar_node *rules = mem_zalloc(d->n, sizeof *rules);
    for (uint32_t i = 0; i < d->n; i++)
        rules[i] = alive[i] ? grammar_rule(b, "state of an automaton") : grammar_never(b);
    for (uint32_t i = 0; i < d->n && !builder_failed(b); i++)
        if (alive[i])
            grammar_define(b, rules[i], state_node(b, d, i, alive, rules));
    grammar_node node = alive[d->start] ? rules[d->start] : grammar_never(b);
    free(alive);
    free(rules);
    return node;
}

bool dfa_empty(const struct dfa *d)
{
    if (d->start == NONE)
        return true;
    bool *alive = find_alive(d), none = !alive[d->start];
    free(alive);
    return none;
}

#define MAX_LENGTH_WORK 5000000u /* states looked at, length by length */

/* Is each byte that leads to an end a whole character by itself? */
static bool has_plain_bytes(const struct dfa *d, const bool *alive)
{
    for (uint32_t i = 0; i < d->n; i++) {
        for (uint32_t byte = 0; byte < 256; byte++) {
            uint32_t to = d->next[i * d->n_classes + d->class_of[byte]];
            if (to != NONE && alive[to] && (byte >= 0x80 || byte == '\\'))
                return false;
        }
    }
    return true;
}

/* The states that one more byte leads to from those of now, into then; false: none. */
static bool one_further(const struct dfa *d, const bool *alive, bool *now, bool *then)
{
    bool some = false;
    for (uint32_t i = 0; i < d->n; i++) {
        for (uint32_t c = 0; now[i] && c < d->n_classes; c++) {
            uint32_t to = d->next[i * d->n_classes + c];
            if (to == NONE || !alive[to])
                continue;
            then[to] = true;
            some = true;
        }
        now[i] = false;
    }
    return some;
}

bool dfa_keeps_lengths(struct grammar_builder *b, const struct dfa *d, uint32_t min, uint32_t max)
{
    if (d->start == NONE)
        return true;
    bool *alive = find_alive(d), *now = mem_zalloc(d->n, 1), *then = mem_zalloc(d->n, 1);
    bool keeps = has_plain_bytes(d, alive), some = alive[d->start];
    uint64_t work = 0;
    now[d->start] = some;
    /* which states texts of `len` lead to; behind d->n of them there is a loop */
    for (uint32_t len = 0; some && keeps && len <= d->n && len <= max; len++) {
        if (max == GRAMMAR_NO_LIMIT && len >= min)
            break;
        for (uint32_t i = 0; i < d->n; i++) {
            keeps = keeps && !(now[i] && len < min && d->accepts[i]);
            work += now[i] ? d->n_classes : 1;
        }
        some = one_further(d, alive, now, then);
        keeps = keeps && work < MAX_LENGTH_WORK;
        bool *old = now;
        now = then;
        then = old;
    }
    keeps = keeps && (!some || max == GRAMMAR_NO_LIMIT);
    b->dfa_work += work;
    free(alive);
    free(now);
    free(then);
    return keeps;
}

struct texts {
    struct buf out;
    char text[256];
    uint32_t n, max;
};

/* All texts behind state i, which text[len] leads to; false: over a bound. */
static bool add_texts(
    const struct dfa *d, const bool *alive, uint32_t i, uint32_t len, struct texts *t)
{
    if (d->accepts[i]) {
        if (t->n++ == t->max)
            return false;
        buf_add(&t->out, t->text, len);
        buf_char(&t->out, '\0');
    }
    for (uint32_t byte = 1; byte < 256; byte++) {
        uint32_t to = d->next[i * d->n_classes + d->class_of[byte]];
        if (to == NONE || !alive[to])
            continue;
        if (len == sizeof t->text)
            return false;
        t->text[len] = (char)byte;
        if (!add_texts(d, alive, to, len + 1, t))
            return false;
    }
    return true;
}

char *dfa_texts(const struct dfa *d, uint32_t max)
{
    struct texts *t = mem_zalloc(1, sizeof *t);
    bool *alive = find_alive(d), all = true;
    t->max = max;
    if (d->start != NONE && alive[d->start])
        all = add_texts(d, alive, d->start, 0, t);
    buf_char(&t->out, '\0');
    char *out = t->out.data;
    if (!all) {
        buf_deinit(&t->out);
        out = NULL;
    }
    free(alive);
    free(t);
    return out;
}
