/* JSON as text: values, strings, and the white space between parts.
 *
 * What is generated is what every parser accepts: numbers that fit a double, no half of a surrogate
 * pair, no \u0000; and white space is bounded, so that a model cannot go on with blanks for ever.
 */
#include "grammar/internal.h"

#include <string.h>

static grammar_node text(struct grammar_builder *b, const char *s)
{
    return grammar_literal(b, s, strlen(s));
}

/* One of the bytes of s. */
static grammar_node one_of(struct grammar_builder *b, const char *s)
{
    struct byte_class c = {0};
    for (; *s; s++)
        class_add(&c, (uint8_t)*s, (uint8_t)*s);
    return builder_class(b, &c);
}

static grammar_node digits(struct grammar_builder *b, uint32_t min, uint32_t max)
{
    return grammar_repeat(b, grammar_byte_range(b, '0', '9'), min, max);
}

/* A node that is made once, as a rule; its body may name it. */
static grammar_node once(struct grammar_builder *b,
                         grammar_node *place,
                         const char *name,
                         grammar_node (*make)(struct grammar_builder *b))
{
    if (*place != NONE || builder_failed(b))
        return *place == NONE ? 0 : *place;
    *place = grammar_rule(b, name);
    grammar_node rule = *place;
    grammar_define(b, rule, make(b));
    return rule;
}

/* " ", or a line end and an indentation; or nothing. */
static grammar_node make_space(struct grammar_builder *b)
{
    grammar_node indent =
        ALT(b, grammar_repeat(b, one_of(b, " "), 0, 48), grammar_repeat(b, one_of(b, "\t"), 1, 12));
    return grammar_optional(b, ALT(b, one_of(b, " "), SEQ(b, one_of(b, "\n"), indent)));
}

grammar_node grammar_json_space(struct grammar_builder *b)
{
    return once(b, &b->json_space, "white space", make_space);
}

static grammar_node hex(struct grammar_builder *b, uint32_t n)
{
    return grammar_repeat(b, one_of(b, "0123456789abcdefABCDEF"), n, n);
}

/* Four digits behind \u: any but 0000 and surrogates. */
static grammar_node make_code_unit(struct grammar_builder *b)
{
    return ALT(b,
               SEQ(b, one_of(b, "123456789abcefABCEF"), hex(b, 3)),
               SEQ(b, one_of(b, "dD"), one_of(b, "01234567"), hex(b, 2)),
               SEQ(b, text(b, "0"), one_of(b, "123456789abcdefABCDEF"), hex(b, 2)),
               SEQ(b, text(b, "00"), one_of(b, "123456789abcdefABCDEF"), hex(b, 1)),
               SEQ(b, text(b, "000"), one_of(b, "123456789abcdefABCDEF")));
}

static grammar_node make_char(struct grammar_builder *b)
{
    static const struct grammar_range plain[] = {{0x20, 0x21}, {0x23, 0x5b}, {0x5d, 0x10ffff}};
    grammar_node pair[] = {text(b, "\\u"),
                           one_of(b, "dD"),
                           one_of(b, "89abAB"),
                           hex(b, 2),
                           text(b, "\\u"),
                           one_of(b, "dD"),
                           one_of(b, "cdefCDEF"),
                           hex(b, 2)};
    return ALT(b,
               grammar_chars(b, 3, plain),
               SEQ(b, text(b, "\\"), one_of(b, "\"\\/bfnrt")),
               SEQ(b, text(b, "\\u"), make_code_unit(b)),
               grammar_seq(b, 8, pair));
}

grammar_node json_text_char(struct grammar_builder *b)
{
    return once(b, &b->json_char, "character", make_char);
}

grammar_node json_text_quoted(struct grammar_builder *b, grammar_node content)
{
    return SEQ(b, text(b, "\""), content, text(b, "\""));
}

static grammar_node make_string(struct grammar_builder *b)
{
    return json_text_quoted(b, grammar_repeat(b, make_char(b), 0, GRAMMAR_NO_LIMIT));
}

grammar_node json_text_string(struct grammar_builder *b)
{
    return once(b, &b->json_string, "string", make_string);
}

static grammar_node whole_digits(struct grammar_builder *b, uint32_t most)
{
    return ALT(b, text(b, "0"), SEQ(b, grammar_byte_range(b, '1', '9'), digits(b, 0, most - 1)));
}

static grammar_node make_integer(struct grammar_builder *b)
{
    return SEQ(b, grammar_optional(b, text(b, "-")), whole_digits(b, 18));
}

grammar_node json_text_integer(struct grammar_builder *b)
{
    return once(b, &b->json_integer, "integer", make_integer);
}

static grammar_node make_number(struct grammar_builder *b)
{
    return SEQ(
        b,
        grammar_optional(b, text(b, "-")),
        whole_digits(b, 17),
        grammar_optional(b, SEQ(b, text(b, "."), digits(b, 1, 17))),
        grammar_optional(
            b, SEQ(b, one_of(b, "eE"), grammar_optional(b, one_of(b, "+-")), digits(b, 1, 2))));
}

grammar_node json_text_number(struct grammar_builder *b)
{
    return once(b, &b->json_number, "number", make_number);
}

grammar_node json_text_comma(struct grammar_builder *b)
{
    return SEQ(b, text(b, ","), grammar_json_space(b));
}

grammar_node json_text_enclosed(struct grammar_builder *b, const char *pair, grammar_node content)
{
    grammar_node space = grammar_json_space(b);
    return SEQ(b, grammar_literal(b, pair, 1), space, content, space, text(b, pair + 1));
}

/* open ( item ("," item)* )? close, with white space. */
static grammar_node list(struct grammar_builder *b,
                         const char *open,
                         grammar_node item,
                         const char *close)
{
    grammar_node space = grammar_json_space(b);
    grammar_node items = grammar_separated(b, item, json_text_comma(b), 1, GRAMMAR_NO_LIMIT);
    items = grammar_optional(b, SEQ(b, items, space));
    return SEQ(b, text(b, open), space, items, text(b, close));
}

static grammar_node make_array(struct grammar_builder *b)
{
    return list(b, "[", grammar_json_value(b), "]");
}

static grammar_node array(struct grammar_builder *b)
{
    return once(b, &b->json_array, "array", make_array);
}

static grammar_node make_object(struct grammar_builder *b)
{
    grammar_node member[] = {
        json_text_string(b), text(b, ":"), grammar_json_space(b), grammar_json_value(b)};
    grammar_node rule = grammar_rule(b, "member");
    grammar_define(b, rule, grammar_seq(b, 4, member));
    return list(b, "{", rule, "}");
}

grammar_node grammar_json_object(struct grammar_builder *b)
{
    return once(b, &b->json_object, "object", make_object);
}

static grammar_node make_value(struct grammar_builder *b)
{
    return ALT(b,
               grammar_json_object(b),
               array(b),
               json_text_string(b),
               json_text_number(b),
               text(b, "true"),
               text(b, "false"),
               text(b, "null"));
}

grammar_node grammar_json_value(struct grammar_builder *b)
{
    return once(b, &b->json_value, "value", make_value);
}

/* ---- given characters inside a string ---- */

/* How `c` is written, or 0 where it stands for itself. NUL is left out by the caller. */
static size_t escape_of(uint32_t c, char out[6])
{
    static const char from[] = "\"\\\n\r\t\b\f", to[] = "\"\\nrtbf";
    const char *at = c < 0x80 && c != 0 ? strchr(from, (int)c) : NULL;
    static const char hex_digits[] = "0123456789abcdef";
    if (at) {
        out[0] = '\\';
        out[1] = to[at - from];
        return 2;
    }
    if (c >= 0x20)
        return 0;
    memcpy(out, "\\u00", 4);
    out[4] = hex_digits[c >> 4];
    out[5] = hex_digits[c & 15];
    return 6;
}

grammar_node json_text_chars(struct grammar_builder *b, struct char_set *set)
{
    struct char_set plain = {0};
    grammar_node some[40];
    uint32_t n = 1;
    char out[6];
    for (uint32_t i = 0; i < set->n; i++) {
        uint32_t c = set->r[i].lo;
        for (; c <= set->r[i].hi && c <= '\\'; c++) {
            size_t len = escape_of(c, out);
            if (len == 0)
                char_set_add(&plain, c, c);
            else if (c != 0)
                some[n++] = grammar_literal(b, out, len);
        }
        if (c <= set->r[i].hi)
            char_set_add(&plain, c, set->r[i].hi);
    }
    some[0] = grammar_chars(b, plain.n, plain.r);
    char_set_deinit(&plain);
    return grammar_alt(b, n, some);
}

grammar_node json_text_inside(struct grammar_builder *b, const char *s, size_t n)
{
    struct buf out = {0};
    char escape[6];
    for (size_t i = 0; i < n; i++) {
        size_t len = escape_of((uint8_t)s[i], escape);
        if (len)
            buf_add(&out, escape, len);
        else
            buf_char(&out, s[i]);
    }
    grammar_node node = grammar_literal(b, out.data, out.len);
    buf_deinit(&out);
    return node;
}

grammar_node json_text_literal(struct grammar_builder *b, const char *s, size_t n)
{
    return json_text_quoted(b, json_text_inside(b, s, n));
}
