/* The steps that pre-tokenizers are made of: what their regular expressions say, as data.
 *
 * A pre-tokenizer is a list of stages. The first cuts the text into pieces, each next one cuts the
 * pieces of the one before, and the last one's pieces are the words:
 *
 *     text      "abc 1234"
 *     stage 0   \p{N}{1,3}           ->  |abc |123|4|
 *     stage 1    ?\p{L}+|\s+|...     ->  |abc| |123|4|
 *
 * A stage has alternatives, tried in order at each character, as a regular expression's; what
 * matches is a piece, and what lies between matches is one too. An alternative sees the end of its
 * piece as the end of the text. Each works in time linear in what it matches, or, where it has to
 * look further (white space to the end of its run, digits to count them), remembers what it saw:
 * no text takes quadratic time.
 *
 * Thread: stages are constant; a struct split_level serves one caller. */
#ifndef WEIR_TOKENIZER_SPLIT_H
#define WEIR_TOKENIZER_SPLIT_H

#include "tokenizer/charclass.h"

#include <stdbool.h>

enum split_kind {
    SPLIT_RUN,           /* lead? body{min,max} tail{0,tail_max} */
    SPLIT_LEAD_RUN,      /* the same with the lead required */
    SPLIT_CASED,         /* lead? upper* body+ | lead? upper+ body*, the sets may overlap */
    SPLIT_CONTRACTION,   /* 's 't 're 've 'm 'll 'd */
    SPLIT_SPACE_NEWLINE, /* \s*[\r\n]+ */
    SPLIT_SPACE_INNER,   /* \s+(?!\S): all but the last one before other text */
    SPLIT_SPACE_POWERS,  /* \s{512}(?!\S)|\s{256}(?!\S)|...|\s{4}(?!\S)|\s{1,2}(?!\S)|\s */
    SPLIT_LETTERS_BLANK, /* lead? then letters with their marks, single blanks between them */
    SPLIT_SENTINEL,      /* <sentinel:[0-9]+> */
    SPLIT_IMAGE,         /* IMGIMG[A-I]{1,4}Z */
    SPLIT_BLANKS,        /* [\t\n]|    |  : four blanks, or two */
};

/* Sets are unions of CC_...; a count of 0 as max is no limit. */
struct split_op {
    enum split_kind kind;
    uint32_t lead, body, tail, upper;
    uint16_t min, max, tail_max;
    bool any_case;    /* contraction: 'S and the like too */
    bool contraction; /* one may follow what was matched (in any case) */
};

struct split_level;

/* A stage is its alternatives, or a function that says where the piece from `at` ends. */
struct split_stage {
    const struct split_op *ops;
    size_t n_ops;
    size_t (*cut)(struct split_level *l, const char *text, size_t at, size_t end);
};

/* Where a stage stands in its text. */
struct split_level {
    size_t piece_end;              /* of the piece that contains the word at hand */
    size_t match_begin, match_end; /* found while looking for the end of what lies before it */
    size_t space_begin, space_end; /* the last run of white space seen, and */
    size_t newline_end;            /* the end of its last line break; 0: it has none */
    size_t grouped_end;            /* up to here lie groups of three digits */
};

/* The end of the piece that begins at `at` in text[..end), at < end. */
size_t split_next(const struct charclass_table *t,
                  const struct split_stage *stage,
                  struct split_level *l,
                  const char *text,
                  size_t at,
                  size_t end);

/* Cuts for stages that no list of alternatives says. The white space that ends a piece, \s+$: */
size_t split_cut_end_space(struct split_level *l, const char *text, size_t at, size_t end);

/* Behind each group of digits, the last ones of three; what goes before a number belongs to its
 * first group, as \d{1,3}(?=(?:\d{3})*\b) is served. */
size_t split_cut_groups(struct split_level *l, const char *text, size_t at, size_t end);

/* Before each group of three ASCII digits that a number ends with, (?=(\d{3})+(?!\d)). */
size_t split_cut_thousands(struct split_level *l, const char *text, size_t at, size_t end);

#endif
