/* The parser's insides; for chat/reply/ only.
 *
 * Everything works byte by byte, so that pieces cannot matter. The parser is in one of
 *
 *      THINKING   reasoning, up to its closing mark
 *      TEXT       content, in which an opening mark may come
 *      CALL       behind an opening mark: the bytes are the format's own (format->byte)
 *
 * and a format that has no plain text at all (harmony, muse) is in CALL from the first byte.
 *
 * Bytes that may yet turn out to be something else wait in one of three places: `held`, the
 * beginning of a mark; `space`, white space that belongs to the content only if more content
 * follows; `raw`, what a format has read without having begun a call: reply_give_back makes it
 * content. Once a call has begun, its bytes are gone. */
#ifndef WEIR_CHAT_REPLY_INTERNAL_H
#define WEIR_CHAT_REPLY_INTERNAL_H

#include "base/json_text.h"
#include "chat/reply.h"

#include <jansson.h>

#define REPLY_MAX_HEAD 512 /* bytes between an opening mark and the arguments; of space there */
#define REPLY_MAX_KEY 512  /* bytes of a key without quotes */
#define REPLY_MAX_MARKS 8
#define REPLY_MAX_DROPS 4
#define REPLY_MAX_VALUE_OPEN 7

/* ---- JSON, as far as its borders (scan.c) ---- */

enum scan { SCAN_MORE, SCAN_LAST, SCAN_BEFORE, SCAN_BAD };

/* One value, byte by byte. Zero-initialise. Depth is a count, so any nesting will do; what closes
 * is what was opened, as far as 64 deep. */
struct json_scan {
    uint64_t depth, lists; /* a bit for each level that is an array */
    bool begun, in_string, escaped, literal;
    uint8_t n_held; /* json_spell's: behind \u, 1 and the digits in */
    char held[4];
};

/* SCAN_LAST: c was the value's last byte. SCAN_BEFORE: the byte before was. SCAN_BAD: c cannot
 * stand here; the value is not whole. */
enum scan json_scan_byte(struct json_scan *s, char c);

/* c, which is scanned after this, as JSON has it: models write line breaks into strings, and
 * backslashes that escape nothing. Returns how many bytes out has then. */
#define JSON_SPELL_BYTES 16
size_t json_spell(struct json_scan *s, char c, char out[JSON_SPELL_BYTES]);

/* A string's escapes, byte by byte. Zero-initialise; begin behind the opening quote. */
struct json_unescape {
    uint8_t state; /* 0: plain, 1: behind a backslash, 2..5: digits of \u to come */
    uint32_t code, high;
};

/* Append what c completes. True at the closing quote. What is no escape stays as it is. */
bool json_unescape_byte(struct json_unescape *u, char c, struct buf *out);

bool reply_is_space(char c);

/* ---- bytes ---- */

bool reply_is(const char *s, size_t n, const char *what);    /* s[0..n) is all of `what` */
size_t reply_skip_space(const char *s, size_t at, size_t n); /* the first byte from `at` on */
char reply_take_first(struct buf *b);                        /* of one that is not empty */

/* How s[0..n) meets a mark: it is no beginning of it, is one, or is all of it. */
enum match { MATCH_NONE, MATCH_PART, MATCH_WHOLE };
enum match reply_match(const char *mark, const char *s, size_t n);
static inline enum match reply_better(enum match a, enum match b)
{
    return a > b ? a : b;
}

/* ---- states of the formats ---- */

/* A call as an object with the tool's name in it (object.c). */
struct object_state {
    const struct object_spec *spec;
    uint8_t at, target, nest;
    bool in_array, has_name, has_arguments, begun, whole, decoded;
    struct json_scan scan;
    struct json_unescape unescape;
    struct buf word;      /* key, name or id under construction */
    struct buf name, id;  /* of the call */
    struct buf arguments; /* that came before the name */
    const char *close;    /* the closing mark, or NULL */
    size_t closed;        /* bytes of it seen */
};

/* What stands before the arguments: views. */
struct reply_head {
    const char *name, *id;
    size_t n_name, n_id;
};

/* A call with the name before the arguments (named.c). */
struct named_state {
    const struct named_spec *spec;
    uint8_t at;
    bool object;    /* Mistral: this block is one of objects */
    size_t head_at; /* where in raw the head begins */
    struct json_scan scan;
};

/* A call with a tag for each argument (tagged.c). */
struct tagged_state {
    uint8_t at;
    bool begun, first; /* the call; no argument yet */
    bool is_text;      /* the value is a string, and goes out as it comes */
    bool value_begun, in_cdata;
    size_t mark_at; /* where in raw the next mark begins */
    struct buf name, key, value;
};

#define NESTED_MAX_DEPTH 64 /* tags within tags; what is deeper is text */

struct nested_element {
    const json_t *schema; /* of its value, or NULL */
    size_t name_at;       /* in tags */
    uint8_t kind;         /* object or array, where it has tags */
    bool first;           /* no tag in it yet */
};

/* A call with tags within tags (nested.c). */
struct nested_state {
    uint8_t at;
    bool any, begun;              /* a call of this block has begun; the call at hand has */
    bool is_text;                 /* the value is a string, and goes out as it comes */
    bool blank;                   /* no text in it yet */
    uint32_t depth;               /* of the innermost element; 0: the call */
    size_t mark_at;               /* where in raw the next tag begins */
    struct buf name, tags, value; /* tags: the names of open elements, a NUL behind each */
    struct nested_element open[NESTED_MAX_DEPTH];
};

/* A call as a programming language writes it (loose.c). */
struct loose_state {
    uint8_t at;
    bool in_list;              /* brackets are around the calls */
    uint32_t wraps, n_given;   /* print( around a call; values without a name */
    size_t name_at;            /* where in raw the name begins */
    bool first, is_key;        /* nothing before it in its bracket; what is read is a key */
    bool bare_key;             /* without quotes */
    char quote;                /* of the string; '<': Gemma's */
    bool triple, escaped, any; /* three quotes; behind a backslash; behind the opening quotes */
    uint8_t n_quotes;          /* just read */
    struct json_unescape unescape;
    struct buf stack;      /* the closing brackets that are to come */
    struct buf name, word; /* of the tool; a word, or the beginning of a mark */
    const char *close;     /* the closing mark, or NULL */
    size_t closed;         /* bytes of it seen */
};

/* Messages in channels, or to recipients (harmony.c). */
struct harmony_state {
    uint8_t at, text; /* text: what the message is if no call comes */
    bool json;        /* the arguments of this call are */
    struct json_scan scan;
};

enum phase { PHASE_THINKING, PHASE_TEXT, PHASE_CALL };

/* An opening mark. */
struct reply_mark {
    const char *text;
    bool at_start; /* only before any content */
};

struct reply_thoughts {
    const char *name, *open, *close;
};

struct reply_format {
    const char *name;
    const void *spec; /* the family's own */
    struct reply_mark open[REPLY_MAX_MARKS];
    const char *tokens[REPLY_MAX_MARKS];     /* other marks that may be control tokens */
    struct reply_mark drop[REPLY_MAX_DROPS]; /* marks around content, which are no part of it */
    const char *answer[2];   /* marks around what follows reasoning, no part of it */
    bool short_ids, no_text; /* no_text: in CALL from the first byte */
    bool calls_end_thoughts; /* an opening mark counts in reasoning too */
    /* A mark was matched, and is the whole of raw; the phase is CALL. NULL: nothing to do. */
    void (*enter)(struct reply_parser *p, const char *mark);
    /* One byte in CALL. False: the format has left CALL, and c is still to be read. */
    bool (*byte)(struct reply_parser *p, char c);
    void (*finish)(struct reply_parser *p);        /* the output ended in CALL */
    bool (*reasons)(const struct reply_parser *p); /* in CALL: is it reasoning? NULL: never */
};

struct reply_parser {
    const struct reply_format *format; /* NULL: no calls */
    const struct reply_thoughts *thoughts;
    const struct reply_mark *drop; /* the format's, as `answer`: also where no calls are wanted */
    const char *const *answer;
    const json_t *tools;
    bool one_call, calls_wanted, no_thoughts;

    reply_event_fn fn; /* while feeding */
    void *ctx;
    struct buf out; /* an event's text under construction */
    enum reply_kind out_kind;

    enum phase phase;
    struct buf held, space, raw;
    bool begun;               /* there was content, or a call */
    bool after_call;          /* and no content since the last call */
    bool thought;             /* there was reasoning: white space before the content goes */
    bool may_think;           /* reasoning has not been opened yet */
    bool closed;              /* the prompt has closed it */
    bool in_answer, answered; /* the mark before it was read; the one behind it waits in space */
    bool in_thought; /* in CALL: the mark came in reasoning, which goes on if it is no call */
    bool cut;        /* when finishing: by a limit */
    bool left;       /* a block of calls ended (reply_leave) */
    uint32_t n_calls, n_whole;

    struct object_state object;
    struct named_state named;
    struct tagged_state tagged;
    struct nested_state nested;
    struct loose_state loose;
    struct harmony_state harmony;
};

/* ---- for formats (parser.c) ---- */

/* Add bytes to content or reasoning; white space at the end waits. */
void reply_content(struct reply_parser *p, const char *s, size_t n);
void reply_reasoning(struct reply_parser *p, const char *s, size_t n);

/* All of raw is content; the phase is TEXT. */
void reply_give_back(struct reply_parser *p);

/* The same, and false: the byte at hand is still to be read. */
bool reply_fail(struct reply_parser *p);

/* The block of calls is over; the phase is TEXT. */
void reply_leave(struct reply_parser *p);

/* Begin a call; id may be NULL. White space before it is dropped, and so is raw. */
void reply_begin(struct reply_parser *p, const char *name, size_t n, const char *id, size_t n_id);
void reply_arguments(struct reply_parser *p, const char *s, size_t n);
void reply_escaped(struct reply_parser *p, const char *s, size_t n); /* as the inside of a string */
void reply_end(struct reply_parser *p);
/* A byte of arguments that are a JSON object; the last ends the call. SCAN_BAD: it is none. */
enum scan reply_json_byte(struct reply_parser *p, struct json_scan *scan, char c);
/* A byte of the mark that closes a block, of which *closed bytes have come. */
bool reply_close_byte(struct reply_parser *p, const char *close, size_t *closed, char c);

/* Does the request have this tool? */
bool reply_knows(const struct reply_parser *p, const char *name, size_t n);
/* The name of a tool's property number i, or NULL. */
const char *reply_property(const struct reply_parser *p, const char *tool, size_t i);
/* The schema of one parameter of a tool, or NULL. */
const json_t *reply_parameter(const struct reply_parser *p, const char *tool, const char *key);
const json_t *reply_parameters(const struct reply_parser *p, const char *tool); /* all, or NULL */
/* The schema of a property of `schema` or of what that is made of, within root; or NULL. */
const json_t *reply_member(const json_t *root, const json_t *schema, const char *key);
/* Schemas that one question about a parameter looks at; what is beyond them says nothing. */
#define REPLY_MAX_SCHEMAS 4096u
/* The schema of each property that reply_member would find, by its name: an object, the caller's
 * reference. */
json_t *reply_all_properties(const json_t *root, const json_t *schema);
/* The schema of an array's elements, where `schema` or an option of it has one; or NULL. */
const json_t *reply_items(const json_t *root, const json_t *schema);
/* What the schema refers to by $ref, within root; itself where it does not. */
const json_t *reply_resolve(const json_t *root, const json_t *schema);

/* ---- values in tags (values.c) ---- */

enum {
    TYPE_TOLD = 1, /* the schema says of types */
    TYPE_STRING = 2,
    TYPE_OBJECT = 4,
    TYPE_ARRAY = 8,
    TYPE_INTEGER = 16,
    TYPE_NUMBER = 32,
    TYPE_BOOLEAN = 64,
    TYPE_NULL = 128,
    TYPE_ANY = 254 /* any type, of which the schema does not say */
};

/* The types that a schema allows, a bit each, by which values are read. */
uint32_t reply_types(const json_t *root, const json_t *schema);
bool reply_only_string(const json_t *root, const json_t *schema);
/* Fill *out, which is empty, with the JSON that s[0..n) means. What fits no type of the schema is
 * kept as it came: as JSON if it is JSON and no string is allowed, else as a string. Python's True,
 * False and None, lists and dicts become JSON where the schema has their type. */
void reply_value_json(
    const json_t *root, const json_t *schema, const char *s, size_t n, struct buf *out);

/* Does raw end with s? */
bool reply_raw_ends(const struct reply_parser *p, const char *s);
/* Is s[0..n) the beginning of `whole`, or all of it? */
bool reply_starts(const char *whole, const char *s, size_t n);

/* ---- the families ---- */

struct object_spec {
    const char *close; /* or NULL: the block ends where no object follows */
    bool bare;         /* no opening mark: only known tools */
    bool keyed;        /* {NAME: ARGUMENTS} */
};
void object_enter(struct reply_parser *p, const char *mark); /* spec: the format's */
void object_begin(struct reply_parser *p, const struct object_spec *spec, const char *mark);
bool object_byte(struct reply_parser *p, char c);
void object_finish(struct reply_parser *p);

struct named_spec {
    const char *section; /* opens a block of calls; or NULL */
    const char *call;    /* opens a call */
    const char *close;   /* ends one; or NULL */
    const char *section_close;
    /* Name and id, as views, from what stands between `call` and the arguments. */
    bool (*head)(const char *s, size_t n, struct reply_head *out);
};
void named_enter(struct reply_parser *p, const char *mark);
void named_begin(struct reply_parser *p, const struct named_spec *spec, const char *mark);
bool named_byte(struct reply_parser *p, char c);
void named_finish(struct reply_parser *p);

struct tagged_spec {
    const char *open, *close;           /* of a block */
    const char *name_open, *name_close; /* around the name; NULL: nothing, it is the word there */
    const char *call_close;             /* or NULL: a call ends where the block does */
    const char *key_open, *key_close;   /* around a key */
    const char *value_open[REPLY_MAX_VALUE_OPEN]; /* before a value: one of them, or nothing */
    const char *value_close;                      /* behind a value */
    bool typed;      /* value_open[0] is before strings, the others are not */
    bool attributes; /* names are in some, keys escaped; name_close is behind all: name" x="1"> */
    bool lines;      /* a value stands on lines of its own */
    bool cdata;      /* a value may stand in <![CDATA[ ]]> */
    bool twice;      /* the name may be written f.f */
};
void tagged_enter(struct reply_parser *p, const char *mark);
bool tagged_byte(struct reply_parser *p, char c);
void tagged_finish(struct reply_parser *p);

void nested_enter(struct reply_parser *p, const char *mark);
bool nested_byte(struct reply_parser *p, char c);
void nested_finish(struct reply_parser *p);

struct loose_spec {
    const char *close; /* or NULL: the block ends where no call follows */
    bool bare;         /* no opening mark: only known tools */
    const char *quote; /* around strings in Gemma's way of writing; NULL: it is Python's */
};
void loose_enter(struct reply_parser *p, const char *mark);
bool loose_byte(struct reply_parser *p, char c);
void loose_finish(struct reply_parser *p);

bool harmony_byte(struct reply_parser *p, char c);
void harmony_finish(struct reply_parser *p);
bool harmony_reasons(const struct reply_parser *p);
bool functionary_byte(struct reply_parser *p, char c);
void functionary_finish(struct reply_parser *p);
void mistral_enter(struct reply_parser *p, const char *mark);
bool mistral_byte(struct reply_parser *p, char c);
void mistral_finish(struct reply_parser *p);

#endif
