/* Frames of calls and what is made of them; for grammar.c and arguments.c. */
#ifndef WEIR_CHAT_REPLY_FRAME_H
#define WEIR_CHAT_REPLY_FRAME_H

#include "chat/reply_grammar.h"

#include <jansson.h>

#define MAX_PIECES 6
#define MAX_BANS 3

/* One way to write a block of calls. "#" is a number, "@" in args the name again, "?" in json the
 * type of a value that is no string, "~" the end of a line or nothing. */
struct frame {
    const char *format;
    const char *needs;               /* a control token that decides for this frame, or NULL */
    const char *open[MAX_PIECES];    /* of the block */
    const char *name[MAX_PIECES];    /* in front of a name */
    const char *args[MAX_PIECES];    /* between name and arguments */
    const char *close[MAX_PIECES];   /* behind the arguments */
    const char *between[MAX_PIECES]; /* two calls; none: there is only one */
    const char *end[MAX_PIECES];     /* of the block */
    /* of arguments with tags: in front of a key, of a string, of another value where that is not
     * the same, behind a value */
    const char *key[MAX_PIECES], *text[MAX_PIECES], *json[MAX_PIECES], *value_end[MAX_PIECES];
    /* must not come in such a string; where the schema bounds it, only the closing tag must not, or
     * the first if that is part of it */
    const char *ban[MAX_BANS];
    bool escaped; /* keys have &amp; for & and &quot; for " */
    bool cdata;   /* all of them, so that the schema cannot bound it */
    /* arguments as a=1, b="x"; or with tags that are their names, also within values, of which
     * value_end is then the part before the name; or as {a:1,b:<|"|>x<|"|>}, with this quote */
    bool named, nested;
    const char *gemma;
};

#define MAX_FRAMES 4 /* of a format */
extern const struct frame frames[];
extern const size_t frame_count;

/* What is being made. */
struct maker {
    const struct reply_grammar *r;
    struct grammar_builder *b;
    const struct frame *f;
    const char *name;     /* of the tool whose call is made */
    const json_t *schema; /* of its arguments, by which values in tags are read */
};

grammar_node frame_piece(const struct maker *m, const char *s);
/* Pieces, from the one numbered `from` on. */
grammar_node frame_pieces_from(const struct maker *m, const char *const *texts, size_t from);
grammar_node frame_pieces(const struct maker *m, const char *const *texts);
/* Free text without any of ban[MAX_BANS], which may be NULL and may have NULLs in it, up to the
 * mark that closes it, and the mark. */
grammar_node frame_text_until(const struct maker *m, const char *mark, const char *const *ban);

/* The arguments of tool number `tool`, by its schema; `free`: any. (arguments.c) */
grammar_node frame_arguments(const struct maker *m, const json_t *schema, size_t tool, bool free);

#endif
