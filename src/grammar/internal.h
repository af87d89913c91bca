/* What the files of grammar/ share: the builder's nodes, the compiled program, the simulation.
 *
 * Nodes form a graph without cycles, as every node names older ones only; a rule is named by
 * number, so recursion goes through rules alone. */
#ifndef WEIR_GRAMMAR_INTERNAL_H
#define WEIR_GRAMMAR_INTERNAL_H

#include "base/buf.h"
#include "grammar/grammar.h"

#include <pthread.h>

/* Bounds of what one grammar may be, all checked before memory is taken for it. */
#define MAX_NODES 400000u         /* of the builder, their lists counted */
#define MAX_TEXT_BYTES (4u << 20) /* of all literals */
#define MAX_NODE_DEPTH 600u       /* brackets within brackets */
#define MAX_STATES 1000000u       /* of the program, edges counted */
#define MAX_RULES 100000u
#define MAX_TOKEN_EDGES 64u /* different tokens named by id */

#define NONE UINT32_MAX

/* ---- nodes ---- */

enum node_kind {
    NODE_NEVER,
    NODE_EMPTY,
    NODE_BYTES,  /* text[a .. a + b) */
    NODE_CLASS,  /* one byte of class a */
    NODE_TOKEN,  /* the token a */
    NODE_SEQ,    /* kids[a .. a + b) */
    NODE_ALT,    /* kids[a .. a + b) */
    NODE_REPEAT, /* a, from b to c times */
    NODE_RULE,   /* rule a */
    NODE_SCAN,   /* scan a */
};

struct node {
    uint8_t kind;
    uint16_t depth;
    uint32_t a, b, c;
};

struct byte_class {
    uint64_t bits[4];
};

struct rule {
    char *name;
    grammar_node body; /* NONE: not defined */
};

/* Triggers are NODE_BYTES kids[first .. first + n), their tails follow them in the list. */
struct scan {
    uint32_t first, n;
    bool may_end;
};

struct grammar_builder {
    char field[64];
    struct err_info error; /* code OK: none so far */
    struct node *nodes;
    uint32_t n_nodes, cap_nodes;
    uint32_t *kids;
    uint32_t n_kids, cap_kids;
    struct buf text;
    struct byte_class *classes;
    uint32_t n_classes, cap_classes;
    struct rule *rules;
    uint32_t n_rules, cap_rules;
    struct scan *scans;
    uint32_t n_scans, cap_scans;
    bool try, cut_short;
    uint64_t dfa_work;     /* spent on finite automata */
    uint64_t schema_work;  /* on schemas that are done (json_schema.h) */
    uint32_t n_categories; /* of Unicode, in all expressions (regex_class.c) */
    /* nodes that every use shares; NONE: not made yet */
    grammar_node json_value, json_object, json_array, json_string, json_char, json_number,
        json_space, json_integer;
};

/* Keep the first error; always returns the node NEVER. */
grammar_node builder_fail(struct grammar_builder *b, const char *fmt, ...) WEIR_PRINTF(2, 3);
/* ERR_INVALID: the name of the builder's field and the text behind it. */
enum err builder_refuse(const struct grammar_builder *b, struct err_info *e, const char *fmt, ...)
    WEIR_PRINTF(3, 4);
static inline bool builder_failed(const struct grammar_builder *b)
{
    return b->error.code != OK;
}
/* Is that more work than may be done? Of a try a part is. */
bool builder_over(struct grammar_builder *b, uint64_t used, uint64_t most);
grammar_node builder_class(struct grammar_builder *b, const struct byte_class *c);
static inline void class_add(struct byte_class *c, uint32_t lo, uint32_t hi)
{
    for (uint32_t i = lo; i <= hi; i++)
        c->bits[i / 64] |= (uint64_t)1 << i % 64;
}
static inline bool class_has(const struct byte_class *c, uint32_t i)
{
    return c->bits[i / 64] >> i % 64 & 1;
}
/* Nodes under construction; zero-initialise. What makes one node of them gives them up. */
struct node_list {
    grammar_node *nodes;
    uint32_t n, cap;
};
void node_list_add(struct node_list *l, grammar_node node);
grammar_node node_list_seq(struct grammar_builder *b, struct node_list *l);
grammar_node node_list_alt(struct grammar_builder *b, struct node_list *l);
/* Grow *array of *cap elements to hold n; aborts when memory is out (sizes are bounded above). */
void *grow(void *array, uint32_t *cap, uint32_t n, size_t size);

/* ---- code points (chars.c) ---- */

/* A set of code points under construction; normal: ascending, apart, within Unicode. */
struct char_set {
    struct grammar_range *r;
    uint32_t n, cap;
};
void char_set_add(struct char_set *s, uint32_t lo, uint32_t hi);
void char_set_normalise(struct char_set *s); /* sorts, joins, leaves surrogates out */
void char_set_invert(struct char_set *s);    /* of a normal set */
void char_set_deinit(struct char_set *s);
/* Characters of a general category by one of its names ("Lu", "L", "Letter"), or all others
 * (unicode.c); false if Weir does not know it. over: what any version of Unicode may have in it,
 * else what all later ones have. */
bool char_set_add_category(
    struct char_set *s, const char *name, size_t n, bool inverted, bool over);
/* And those that differ from them in case alone (unicode.c); the set becomes normal. over: what any
 * language takes for one of them, else what all do: of ASCII, and of Latin, Greek, Cyrillic and
 * Armenian what has one capital and one small letter. */
void char_set_fold(struct char_set *s, bool over);

/* ---- what is known of nodes and rules before compiling (check.c) ---- */

/* Rules that must be open at once to derive the shortest way; TOO_DEEP or NOTHING. */
#define TOO_DEEP 0xfffeu
#define NOTHING 0xffffu
struct facts {
    uint16_t *tail;  /* [n_nodes] when nothing follows the node in its rule */
    uint16_t *inner; /* [n_nodes] when something does */
    bool *nullable;  /* [n_nodes] */
    uint16_t *rule_height;
    bool *rule_nullable;
    bool *rule_used;
};
/* A text with bytes or tokens that the vocabulary cannot write is none. */
enum err facts_find(const struct grammar_builder *b,
                    grammar_node root,
                    const struct grammar_vocab *v,
                    struct facts *f,
                    struct err_info *e) WEIR_MUST_USE;
void facts_deinit(struct facts *f);

/* ---- the program (compile.c, program.c) ---- */

enum op {
    OP_RETURN, /* the rule is done; state 0 is the only one */
    OP_MATCH,  /* a byte: edges[first .. first + n), ascending and apart */
    OP_TOKEN,  /* the token tokens[first], then state n */
    OP_SPLIT,  /* all of targets[first .. first + n), without a byte */
    OP_CALL,   /* the rule that begins at state `first`, then state n */
};

struct edge {
    uint32_t target;
    uint8_t lo, hi;
};

struct state {
    uint8_t op;
    uint16_t need; /* rules that will be open at once on the shortest way to OP_RETURN */
    uint32_t first, n;
    uint32_t row; /* of the repetition that it counts in, 0: none; see enum row_kind */
    /* Another state from which the same texts of at most the vocabulary's longest token are
     * possible, so that the middle of a long repetition has one mask and not thousands. */
    uint32_t canon;
};

/* States of one row differ in how often the same may still come, so what follows one of them may be
 * part of what follows another; the last two bits of a row's number say which. */
enum row_kind {
    ROW_MORE = 1,  /* of the state with the higher number */
    ROW_FEWER = 2, /* with the lower number */
    ROW_EXACT = 3, /* of none */
};

struct program {
    struct state *states;
    uint32_t n_states;
    struct edge *edges;
    uint32_t *targets;
    int32_t tokens[MAX_TOKEN_EDGES];
    uint32_t n_tokens;
    uint32_t start;
    uint8_t class_of[256]; /* bytes that no edge tells apart */
    uint8_t byte_of[256];  /* one byte of each class */
    uint32_t n_classes;
    uint32_t *ways; /* [n_states] bytes and tokens on the shortest way to OP_RETURN; FAR: unknown */
    size_t n_bytes; /* of memory */
};

#define FAR 0x3fffffffu
/* Two ways behind one another. */
static inline uint32_t way_add(uint32_t a, uint32_t b)
{
    return a + b < FAR ? a + b : FAR;
}

enum err program_compile(struct grammar_builder *b,
                         grammar_node root,
                         const struct grammar_vocab *v,
                         struct program *out,
                         struct err_info *e) WEIR_MUST_USE;
/* Fill in class_of, byte_of and n_classes from all edges[n_edges]. */
void program_find_classes(struct program *p, uint32_t n_edges);
/* Fill in ways, from all else; has[256]: bytes that are in any token. */
void program_find_ways(struct program *p, const bool *has);
void program_deinit(struct program *p);

/* ---- the simulation (sim.c) ---- */

/* A stack of return addresses is a list of cells that share their tails; equal stacks are one cell.
 * Cell 0 is the empty stack. A parse is a state that waits for a byte or a token, and a stack. */
struct cell {
    uint32_t ret, parent;
    uint32_t next;  /* in its chain of the table */
    uint32_t way;   /* from the top of the stack to its end */
    uint32_t row;   /* of ret */
    uint32_t shape; /* a hash of the stack in which states of one row are the same */
    uint16_t depth;
    bool counts; /* some of the stack is in a row */
};
struct parse {
    uint32_t state, cell;
};

struct sim {
    struct cell *cells;
    uint32_t n_cells, cap_cells; /* cap is a power of two */
    uint32_t *buckets;           /* [cap_cells] */
    bool full;                   /* a cell was wanted and not there */
    const struct program *prog;  /* whose cells these are */
    /* of one step */
    uint64_t *visits; /* stamp, state and cell */
    uint32_t stamp, n_visits;
    struct count {
        uint32_t stamp, row, a, b, best;
    } * counts;
    uint32_t n_counts, n_extra;
    struct parse *todo;
    struct parse *out; /* [GRAMMAR_MAX_PARSES] */
    uint32_t n_out;
    bool complete; /* some parse may end here */
};
#define SIM_CELLS 8192u /* of one token's way */
#define SIM_MAX_CELLS 65536u
bool sim_init(
    struct sim *s,
    uint32_t cap_cells); /* prog: the caller's; false: out of memory; deinit serves both */
void sim_deinit(struct sim *s);
size_t sim_bytes(const struct sim *s);
void sim_reset(struct sim *s);      /* forget all cells */
void sim_begin_step(struct sim *s); /* empties out */
/* The cell, or NONE when there is no room. */
uint32_t sim_cons(struct sim *s, uint32_t ret, uint32_t parent);
/* Add to out what is reached from p without a byte. */
void sim_reach(struct sim *s, struct parse p);
/* Add p itself, unless it is there. */
void sim_put(struct sim *s, struct parse p);
/* One byte, or a token by its index in prog->tokens, from in[n] into out; in is not out. */
void sim_byte(struct sim *s, const struct parse *in, uint32_t n, uint8_t byte);
void sim_token(struct sim *s, const struct parse *in, uint32_t n, uint32_t index);

/* The shortest way to an end of what is in out. */
uint32_t sim_way(const struct sim *s, bool complete);

/* ---- the automaton of sets of parses (automaton.c) ---- */

enum { UNKNOWN, DEAD, FIRST_NODE }; /* DEAD: no parse, or no room is left */

struct automaton_node {
    uint32_t first, n; /* parses */
    uint32_t hash, next;
    bool complete;
    uint32_t way; /* to the nearest end */
};
struct automaton {
    const struct program *prog;
    uint32_t n_symbols; /* classes of bytes, then tokens by id */
    struct sim sim;
    struct parse *parses; /* [cap_parses] */
    uint32_t n_parses, cap_parses;
    struct automaton_node *nodes; /* [cap_nodes] */
    uint32_t n_nodes, cap_nodes;
    uint32_t *rows;    /* [cap_nodes][n_symbols] */
    uint32_t *buckets; /* [cap_nodes] */
    bool full;         /* something found no room; what is in it since may be cut short */
};
struct automaton_size {
    uint32_t cells, parses, nodes, rows; /* cells: a power of two; rows: entries of all of them */
};
/* False: out of memory; deinit serves both. */
bool automaton_init(struct automaton *a,
                    const struct program *prog,
                    const struct automaton_size *size);
void automaton_deinit(struct automaton *a);
void automaton_reset(struct automaton *a); /* forget all nodes and cells */
size_t automaton_bytes(const struct automaton *a);
/* The node of the parses in sim.out. */
uint32_t automaton_intern(struct automaton *a, bool complete);
uint32_t automaton_explore(struct automaton *a, uint32_t node, uint32_t symbol);
/* Where a symbol leads from a node. */
static inline uint32_t automaton_step(struct automaton *a, uint32_t node, uint32_t symbol)
{
    uint32_t to = a->rows[(size_t)node * a->n_symbols + symbol];
    return to != UNKNOWN ? to : automaton_explore(a, node, symbol);
}

/* ---- the vocabulary (vocab.c) ---- */

/* The trie in the order of a walk: a node's subtree follows it. */
struct trie_node {
    uint32_t end;         /* the node behind the subtree */
    uint32_t first_token; /* of order[], up to the next node's */
    uint16_t depth;       /* 1: the first byte */
    uint8_t byte;
};
struct grammar_vocab {
    uint32_t n;
    uint32_t n_words; /* of a mask */
    char *text;
    uint32_t *offset; /* [n + 1] into text */
    struct trie_node *nodes;
    uint32_t n_nodes; /* and one more behind them */
    int32_t *order;
    uint64_t *eog; /* [n_words] */
    uint32_t longest;
    bool has[256]; /* bytes that are in any token */
};

/* ---- a grammar and its answers (state.c, trail.c, mask.c) ---- */

struct walker; /* mask.c */
struct trail;  /* trail.c */

struct grammar {
    _Atomic(uint32_t) n_refs;
    const struct grammar_vocab *vocab;
    struct program prog;
    struct grammar_state *initial; /* where every answer begins; holds no reference */
    pthread_mutex_t lock;          /* the walker */
    struct walker *walker;
    pthread_mutex_t trail_lock; /* nobody waits for it */
    struct trail *trail;
};
enum err walker_create(const struct grammar *g,
                       struct walker **out,
                       struct err_info *e) WEIR_MUST_USE;
void walker_destroy(struct walker *w);
size_t walker_bytes(const struct walker *w);

#define STATE_MAX_CELLS 2048u
/* Cells stand behind their parents; cells[0] is the empty stack. */
struct grammar_state {
    struct grammar *g;
    struct state_id {
        uint64_t epoch;
        uint32_t node;
    } id; /* states of one grammar with the same id are the same */
    uint32_t n_parses, n_cells;
    uint32_t way; /* to the nearest end */
    bool complete;
    struct parse parses[GRAMMAR_MAX_PARSES];
    struct state_cell {
        uint32_t ret, parent;
    } cells[STATE_MAX_CELLS];
};
uint64_t state_new_epoch(void); /* never the same twice, never 0 */
/* What the simulation has come to, into the state, but for g and id. Parses whose stacks find no
 * room are given up: true if there were any. map[sim.cap_cells] is for its use. */
bool state_store(struct grammar_state *s, const struct sim *sim, uint32_t *map);
/* The state's parses into out[]: map[] says which cell of the simulation is which of the state's.
 * False when there is no room for them. */
bool state_load(const struct grammar_state *s, struct sim *sim, uint32_t *map, struct parse *out);

/* Where tokens lead answers of one grammar, remembered byte by byte. */
enum err trail_create(const struct grammar *g,
                      struct trail **out,
                      struct err_info *e) WEIR_MUST_USE;
void trail_destroy(struct trail *t);
size_t trail_bytes(const struct trail *t);
/* Move on by a token, as grammar_accept. False: there was no room, and nothing has happened. */
bool trail_accept(struct trail *t, struct grammar_state *s, int32_t token, enum grammar_step *to)
    WEIR_MUST_USE;

/* ---- finite automata (dfa.c, dfa_create.c) ---- */

/* The language of a node that is not recursive; NULL: it is, or is over a bound. */
struct dfa;
struct dfa *dfa_create(struct grammar_builder *b, grammar_node node);
void dfa_destroy(struct dfa *d);
/* Texts of a that are in b too, or `without`: that are not. NULL: over a bound. */
struct dfa *dfa_combine(struct grammar_builder *builder,
                        const struct dfa *a,
                        const struct dfa *b,
                        bool without);
/* *d becomes its texts that are in the other too, or `without`: that are not; the old one is given
 * up. False: *d is NULL, as one of them was or as a bound was reached. */
bool dfa_meet(struct grammar_builder *b, struct dfa **d, const struct dfa *other, bool without);
bool dfa_narrow(struct grammar_builder *b, struct dfa **d, grammar_node other, bool without);
/* Integers that are multiples. NULL: over a bound. */
struct dfa *dfa_multiples(uint32_t step_by);
bool dfa_accepts(const struct dfa *d, const char *s, size_t n);
bool dfa_empty(const struct dfa *d);
/* All of its texts, none empty, each with a NUL behind it and an empty one behind them; NULL: over
 * max, or of more than 256 bytes. Free it. */
char *dfa_texts(const struct dfa *d, uint32_t max);
/* Have all of its texts, insides of strings, min to max characters? False where that is not seen.
 * What it takes counts as work of the builder. */
bool dfa_keeps_lengths(struct grammar_builder *b, const struct dfa *d, uint32_t min, uint32_t max);
grammar_node dfa_node(struct grammar_builder *b, const struct dfa *d);

/* ---- front ends ---- */

/* JSON text as nodes (json_text.c). */
grammar_node json_text_char(struct grammar_builder *b);   /* one character inside a string */
grammar_node json_text_string(struct grammar_builder *b); /* any string, quoted */
grammar_node json_text_integer(struct grammar_builder *b);
grammar_node json_text_number(struct grammar_builder *b);
/* The characters of `set`, as they are written inside a string. */
grammar_node json_text_chars(struct grammar_builder *b, struct char_set *set);
/* s as the inside of a string, the way it is usually written; and quoted. */
grammar_node json_text_inside(struct grammar_builder *b, const char *s, size_t n);
grammar_node json_text_literal(struct grammar_builder *b, const char *s, size_t n);
grammar_node json_text_quoted(struct grammar_builder *b, grammar_node content);
grammar_node json_text_comma(struct grammar_builder *b); /* and white space */
/* "[]" or "{}" around the content, which may be empty, with white space. */
grammar_node json_text_enclosed(struct grammar_builder *b, const char *pair, grammar_node content);

/* Integers of lo..hi without leading zeros; a bound may be absent. (json_number.c) */
struct number_bounds {
    bool has_lo, has_hi;
    bool lo_excluded, hi_excluded;
    double lo, hi;
};
grammar_node json_integer_between(
    struct grammar_builder *b, bool has_lo, int64_t lo, bool has_hi, int64_t hi);
#define NUMBERS_END 1e18 /* answers have at most 18 digits before the point */
/* Decimal numbers within bounds. One that leaves no answer (beyond NUMBERS_END) is the caller's to
 * refuse. */
grammar_node json_number_between(struct grammar_builder *b, const struct number_bounds *n);
/* The language of a JSON schema "format", unquoted; false if Weir does not know it. */
bool json_format(struct grammar_builder *b, const char *name, grammar_node *out);
/* A pattern that all is of which the format may be, to tell what is not; NULL: all may be. */
const char *json_format_pattern(const char *name);

/* A regular expression. In JSON: characters are written as inside a string, and `search`: what
 * comes before and after is free unless ^ and $ say otherwise. `where` begins the error's text. */
grammar_node regex_node(struct grammar_builder *b,
                        const char *s,
                        size_t n,
                        bool in_json,
                        bool search,
                        const char *where);

/* s[from .. to) of an expression; anchored: it begins where the text does. */
struct regex_part {
    size_t from, to;
    bool anchored;
    bool negative; /* texts that it matches are none of the whole's */
    bool fold;     /* case does not count */
};
#define REGEX_MAX_PARTS 9u
/* ^(?=x)(?!y)z as x, y and z, all of which are said of one text; 1 where nothing stands before.
 * (?i) may stand before it all. */
uint32_t regex_parts(const char *s, size_t n, struct regex_part parts[REGEX_MAX_PARTS]);
/* Where the group that begins at s[at] ends, behind its bracket; n + 1: nowhere. */
size_t regex_group_end(const char *s, size_t n, size_t at);
/* One part, as a search in a JSON string. Where languages differ it has what all of them take, or
 * `over`, to be taken out of something, what any of them does. */
grammar_node regex_part_node(struct grammar_builder *b,
                             const char *s,
                             const struct regex_part *part,
                             bool over,
                             const char *where);

#endif
