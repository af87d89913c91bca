/* Numbers between bounds, digit by digit: as long as the digits so far are those of a bound it
 * still binds, and the first digit that differs frees what follows. */
#include "grammar/internal.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MOST INT64_C(999999999999999999) /* 18 digits, where a bound is absent */

static grammar_node digit_between(struct grammar_builder *b, int lo, int hi)
{
    return lo > hi ? grammar_never(b)
                   : grammar_byte_range(b, (uint8_t)('0' + lo), (uint8_t)('0' + hi));
}

static grammar_node digits(struct grammar_builder *b, uint32_t min, uint32_t max)
{
    return grammar_repeat(b, digit_between(b, 0, 9), min, max);
}

/* Texts of as many digits as lo and hi have, between them; NULL: that side is free. */
static grammar_node same_length(struct grammar_builder *b,
                                const char *lo,
                                const char *hi,
                                uint32_t n)
{
    if (n == 0)
        return grammar_empty(b);
    if (lo && strspn(lo, "0") >= n)
        lo = NULL;
    if (hi && strspn(hi, "9") >= n)
        hi = NULL;
    if (!lo && !hi)
        return digits(b, n, n);
    int l = lo ? lo[0] - '0' : 0, h = hi ? hi[0] - '0' : 9;
    if (lo && hi && l == h)
        return SEQ(b, digit_between(b, l, l), same_length(b, lo + 1, hi + 1, n - 1));
    return ALT(b,
               lo ? SEQ(b, digit_between(b, l, l), same_length(b, lo + 1, NULL, n - 1))
                  : grammar_never(b),
               SEQ(b, digit_between(b, lo ? l + 1 : 0, hi ? h - 1 : 9), digits(b, n - 1, n - 1)),
               hi ? SEQ(b, digit_between(b, h, h), same_length(b, NULL, hi + 1, n - 1))
                  : grammar_never(b));
}

/* lo..hi, neither negative. */
static grammar_node unsigned_between(struct grammar_builder *b, uint64_t lo, uint64_t hi)
{
    grammar_node some[20];
    uint32_t n = 0;
    uint64_t from = lo;
    while (from <= hi && n < 20) {
        char l[24], h[24];
        uint64_t to = 9;
        while (to < from)
            to = to > (UINT64_MAX - 9) / 10 ? UINT64_MAX : to * 10 + 9;
        if (to > hi)
            to = hi;
        int len = snprintf(l, sizeof l, "%" PRIu64, from);
        snprintf(h, sizeof h, "%" PRIu64, to);
        some[n++] = same_length(b, l, h, (uint32_t)len);
        if (to == UINT64_MAX)
            break;
        from = to + 1;
    }
    return grammar_alt(b, n, some);
}

grammar_node json_integer_between(
    struct grammar_builder *b, bool has_lo, int64_t lo, bool has_hi, int64_t hi)
{
    if (!has_lo)
        lo = has_hi && hi < -MOST ? INT64_MIN : -MOST;
    if (!has_hi)
        hi = lo > MOST ? INT64_MAX : MOST;
    if (lo > hi)
        return grammar_never(b);
    grammar_node below = grammar_never(b), above = grammar_never(b);
    if (lo < 0) {
        uint64_t least = hi < 0 ? 0 - (uint64_t)hi : 1;
        below = SEQ(b, grammar_literal(b, "-", 1), unsigned_between(b, least, 0 - (uint64_t)lo));
    }
    if (hi >= 0)
        above = unsigned_between(b, lo > 0 ? (uint64_t)lo : 0, (uint64_t)hi);
    return ALT(b, below, above);
}

/* ---- decimals ---- */

#define MAX_FRACTION 40
/* A bound without its sign. */
struct decimal {
    uint64_t whole;
    char fraction[MAX_FRACTION + 1]; /* without zeros at its end */
    bool excluded;
};

/* |v|, at most NUMBERS_END, in digits. What has no digit that is kept is 0, and where it
 * is the least of what may come, that is excluded. */
static void to_decimal(double v, bool excluded, bool least, struct decimal *d)
{
    char s[512];
    int precision = 0;
    v = fabs(v);
    do /* the fewest digits behind the point that read back as v */
        snprintf(s, sizeof s, "%.*f", precision, v);
    while (strtod(s, NULL) != v && precision++ < MAX_FRACTION);
    if (precision > MAX_FRACTION) {
        *d = (struct decimal){.excluded = least};
        return;
    }
    char *point = strpbrk(s, ".,");
    *d = (struct decimal){.whole = strtoull(s, NULL, 10), .excluded = excluded};
    if (point)
        snprintf(d->fraction, sizeof d->fraction, "%s", point + 1);
    size_t n = strlen(d->fraction);
    while (n > 0 && d->fraction[n - 1] == '0')
        d->fraction[--n] = '\0';
}

/* What a bound still says at a digit: nothing once it is free. */
struct side {
    const char *rest; /* its digits from here on; "": zeros */
    bool free, excluded;
};

/* Digits behind the point, so that lo and hi are kept; `at`: how many there are already. */
static grammar_node fraction(struct grammar_builder *b, struct side lo, struct side hi, uint32_t at)
{
    enum { ZEROS = 8 }; /* at most, before the digit that makes a number larger than its bound */
    if (!lo.free && !*lo.rest && !lo.excluded)
        lo.free = true; /* whatever follows is not less */
    bool ends =
        at > 0 && (lo.free || (!*lo.rest && !lo.excluded)) && (hi.free || *hi.rest || !hi.excluded);
    if (lo.free && hi.free)
        return digits(b, at > 0 ? 0 : 1, at < 17 ? 17 - at : 1);
    if (!hi.free && !*hi.rest) { /* equal to the upper bound: only zeros, so nothing more */
        if (hi.excluded || !lo.free)
            return grammar_never(b);
        return at > 0 ? grammar_empty(b) : grammar_literal(b, "0", 1);
    }
    if (at > MAX_FRACTION + ZEROS)
        return ends ? grammar_empty(b) : grammar_never(b);
    int l = lo.free || !*lo.rest ? 0 : *lo.rest - '0', h = hi.free ? 9 : *hi.rest - '0';
    struct side lo_on = lo, hi_on = hi, free_side = {.rest = "", .free = true};
    lo_on.rest += *lo.rest != '\0';
    if (!lo.free && !*lo.rest && at >= ZEROS && hi.free)
        l = -1; /* enough zeros */
    hi_on.rest += !hi.free;
    grammar_node some[4] = {ends ? grammar_empty(b) : grammar_never(b),
                            grammar_never(b),
                            grammar_never(b),
                            grammar_never(b)};
    bool lo_tight = !lo.free, hi_tight = !hi.free;
    if (lo_tight && hi_tight && l == h) {
        some[1] = SEQ(b, digit_between(b, l, l), fraction(b, lo_on, hi_on, at + 1));
    } else {
        if (lo_tight && l >= 0 && l <= h)
            some[1] = SEQ(b, digit_between(b, l, l), fraction(b, lo_on, free_side, at + 1));
        some[2] = SEQ(b,
                      digit_between(b, lo_tight ? l + 1 + (l < 0) : 0, hi_tight ? h - 1 : 9),
                      fraction(b, free_side, free_side, at + 1));
        if (hi_tight && l <= h)
            some[3] = SEQ(b, digit_between(b, h, h), fraction(b, free_side, hi_on, at + 1));
    }
    return grammar_alt(b, 4, some);
}

/* The fraction, or none at all where that is within the bounds. NULL: no bound. */
static grammar_node with_point(struct grammar_builder *b,
                               const struct decimal *lo,
                               const struct decimal *hi)
{
    struct side l = {.rest = lo ? lo->fraction : "", .free = !lo, .excluded = lo && lo->excluded};
    struct side h = {.rest = hi ? hi->fraction : "", .free = !hi, .excluded = hi && hi->excluded};
    bool none = (l.free || (!*l.rest && !l.excluded)) && (h.free || *h.rest || !h.excluded);
    return ALT(b,
               none ? grammar_empty(b) : grammar_never(b),
               SEQ(b, grammar_literal(b, ".", 1), fraction(b, l, h, 0)));
}

/* lo..hi, neither negative; hi may be NULL. */
static grammar_node magnitude(struct grammar_builder *b,
                              const struct decimal *lo,
                              const struct decimal *hi)
{
    if (hi && lo->whole > hi->whole)
        return grammar_never(b);
    if (hi && lo->whole == hi->whole)
        return SEQ(b, unsigned_between(b, lo->whole, lo->whole), with_point(b, lo, hi));
    uint64_t most = hi ? hi->whole - 1 : (uint64_t)MOST;
    return ALT(b,
               SEQ(b, unsigned_between(b, lo->whole, lo->whole), with_point(b, lo, NULL)),
               lo->whole < most
                   ? SEQ(b, unsigned_between(b, lo->whole + 1, most), with_point(b, NULL, NULL))
                   : grammar_never(b),
               hi ? SEQ(b, unsigned_between(b, hi->whole, hi->whole), with_point(b, NULL, hi))
                  : grammar_never(b));
}

/* A number with more digits than a double keeps may be read as the bound that it is beyond in its
 * last digits. So a bound that is excluded becomes the next double, included; 0 needs no such care.
 */
static void include(double *bound, bool *excluded, double towards)
{
    if (!*excluded || fabs(*bound) < 1e-15)
        return;
    *bound = nextafter(*bound, towards);
    *excluded = false;
}

grammar_node json_number_between(struct grammar_builder *b, const struct number_bounds *given)
{
    struct decimal lo = {0}, hi = {0}, zero = {0};
    struct number_bounds bounds = *given, *n = &bounds;
    include(&n->lo, &n->lo_excluded, INFINITY);
    include(&n->hi, &n->hi_excluded, -INFINITY);
    n->has_lo &= n->lo > -NUMBERS_END; /* beyond all answers a bound says nothing */
    n->has_hi &= n->hi < NUMBERS_END;
    if (n->has_lo)
        to_decimal(n->lo, n->lo_excluded, n->lo >= 0, &lo);
    if (n->has_hi)
        to_decimal(n->hi, n->hi_excluded, n->hi < 0, &hi);
    grammar_node below = grammar_never(b), above = grammar_never(b);
    if (!n->has_lo || n->lo < 0) { /* turned round: from -hi up to -lo, less than 0 at least */
        struct decimal least = {.excluded = true};
        if (n->has_hi && n->hi < 0)
            least = hi;
        below = SEQ(b, grammar_literal(b, "-", 1), magnitude(b, &least, n->has_lo ? &lo : NULL));
    }
    if (!n->has_hi || n->hi >= 0)
        above = magnitude(b, n->has_lo && n->lo >= 0 ? &lo : &zero, n->has_hi ? &hi : NULL);
    return ALT(b, below, above);
}
