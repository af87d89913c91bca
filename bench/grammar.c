/* What masks cost: answers by chance under several grammars over a real vocabulary; for each the
 * time to compile, the masks computed and what one took, and a token after that: to move on, find
 * the mask, and choose the likeliest token that it allows. (docs/PERFORMANCE.md)
 *
 *      build/tests/grammar_speed TOKENIZER.gguf [N_VOCAB]
 *
 * N_VOCAB above the file's own repeats its tokens with a letter before them. */
#include "grammar/grammar.h"
#include "base/clock.h"
#include "base/mem.h"
#include "gguf/gguf.h"
#include "sample/sample.h"
#include "tokenizer/tokenizer.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct words {
    const struct tokenizer *t;
    uint32_t n_own;
    char **more; /* [n - n_own] */
};

static const char *bytes_of(const void *ctx, int32_t id, size_t *n)
{
    const struct words *w = ctx;
    if ((uint32_t)id >= w->n_own) {
        const char *s = w->more[(uint32_t)id - w->n_own];
        *n = strlen(s);
        return s;
    }
    *n = 0;
    return tokenizer_is_text(w->t, id) ? tokenizer_bytes(w->t, id, false, n) : "";
}

static bool is_eog(const void *ctx, int32_t id)
{
    const struct words *w = ctx;
    return (uint32_t)id < w->n_own && tokenizer_is_eog(w->t, id);
}

static void add_words(struct words *w, uint32_t n)
{
    w->more = mem_zalloc(n - w->n_own + 1, sizeof *w->more);
    for (uint32_t i = w->n_own; i < n; i++) {
        size_t len;
        const char *s = tokenizer_bytes(w->t, (token_id)(i % w->n_own), false, &len);
        char *copy = mem_zalloc(len + 3, 1);
        copy[0] = (char)('a' + i / w->n_own);
        memcpy(copy + 1, s, len);
        w->more[i - w->n_own] = copy;
    }
}

enum kind { GBNF, REGEX, SCHEMA };
static const struct {
    const char *name;
    enum kind kind;
    const char *text;
} all[] = {
    {"json_object", SCHEMA, "{\"type\":\"object\"}"},
    {"schema, closed",
     SCHEMA,
     "{\"type\":\"object\",\"properties\":{\"name\":{\"type\":\"string\",\"maxLength\":80},\"age\":"
     "{\"type\":\"integer\",\"minimum\":0,\"maximum\":150},\"mail\":{\"type\":\"string\","
     "\"format\":"
     "\"email\"},\"tags\":{\"type\":\"array\",\"items\":{\"enum\":[\"red\",\"green\",\"blue\"]},"
     "\"maxItems\":5},\"address\":{\"type\":\"object\",\"properties\":{\"street\":{\"type\":"
     "\"string\"},"
     "\"zip\":{\"type\":\"string\",\"pattern\":\"^[0-9]{5}$\"}},\"required\":[\"street\",\"zip\"]}}"
     ","
     "\"required\":[\"name\",\"age\",\"tags\",\"address\"]}"},
    {"schema, recursive",
     SCHEMA,
     "{\"$ref\":\"#/$defs/"
     "n\",\"$defs\":{\"n\":{\"type\":\"object\",\"properties\":{\"v\":{\"type\":"
     "\"string\"},\"kids\":{\"type\":\"array\",\"items\":{\"$ref\":\"#/$defs/"
     "n\"}}},\"required\":[\"v\"]}}}"},
    {"regex", REGEX, "(https?://)?[a-z0-9.-]{1,60}(/[^ ?#]*)?(\\?[^ #]*)?"},
    {"gbnf, arithmetic",
     GBNF,
     "root ::= (expr \"=\" term \"\\n\")+\nexpr ::= term ([-+*/] term)*\nterm ::= ident | num | "
     "\"(\" "
     "expr \")\"\nident ::= [a-z] [a-z0-9_]*\nnum ::= [0-9]+"},
    {"free text", GBNF, "root ::= [^\\x00]*"},
    /* more parses than are followed, at every letter */
    {"hostile", GBNF, "root ::= [a-z ] (root | root root)? (root root root)?"},
    /* and hardly any of them gets anywhere */
    {"hostile, empty",
     GBNF,
     "root ::= a a a a a a a a \"x\"?\na ::= (b | c)*\nb ::= [a-z ]? [a-y ]? [a-x]? c?\n"
     "c ::= (\"(\" a \")\")? [a-z ]"},
    /* 512 parses, each with a deep stack of its own */
    {"hostile, stacks",
     GBNF,
     "root ::= \"a\" (root \"b\" | root \"c\" | root \"d\") | t\nt ::= [e-z ] t \"y\" | \"z\""},
    /* every text comes to a new state of hundreds of parses, though all have one mask */
    {"hostile, counts", GBNF, "root ::= r{3000}\nr ::= [a-z ] [a-z ]?"},
    {"hostile, options", GBNF, "root ::= [a-z ]{0,2000} [a-z ]{0,2000} [a-z ]{0,2000}"},
    {"hostile, mixed", GBNF, "root ::= ([a-z ]* [a-m ] [a-z ]{900})* \"!\""},
    {"words, counted", REGEX, "(\\w+ ?){1,500}"},
};

static struct grammar *make(enum kind kind, const char *text, const struct grammar_vocab *v)
{
    struct grammar_builder *b = grammar_builder_create("bench");
    struct grammar *g = NULL;
    struct err_info e = {0};
    json_t *schema = kind == SCHEMA ? json_loads(text, 0, NULL) : NULL;
    grammar_node root = kind == SCHEMA  ? grammar_json_schema(b, schema, "")
                        : kind == REGEX ? grammar_regex(b, text, strlen(text))
                                        : grammar_gbnf(b, text, strlen(text));
    if (grammar_compile(b, root, v, &g, &e)) {
        fprintf(stderr, "%s: %s\n", text, e.text);
        exit(1);
    }
    grammar_builder_destroy(b);
    json_decref(schema);
    return g;
}

static int by_ns(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

/* A token by chance that the mask allows. */
static int32_t choose(const struct grammar_mask *m, uint32_t n, uint64_t *x)
{
    *x = *x * 6364136223846793005u + 1442695040888963407u;
    uint32_t from = (uint32_t)((*x >> 33) % n);
    for (uint32_t i = 0; i < n; i++) {
        uint32_t id = (from + i) % n;
        if (m->bits[id / 64] >> id % 64 & 1)
            return (int32_t)id;
    }
    return -1;
}

enum { ANSWERS = 20, TOKENS = 100 };

/* Answers by chance, and then others: most masks are computed in the first round and found in the
 * second. */
static void measure(
    const char *name, struct grammar *g, struct grammar_masks *pool, uint32_t n, uint64_t us)
{
    static uint64_t found[ANSWERS * TOKENS], whole[ANSWERS * TOKENS];
    struct grammar_scratch *scratch = grammar_scratch_create();
    float *logits = mem_aligned(n * sizeof *logits);
    struct sample_params greedy = sample_params_default();
    greedy.temperature = 0;
    struct grammar_mask_stats before = grammar_masks_stats(pool), first = before;
    uint32_t count = 0;
    uint64_t computed_ns = 0, slowest_ns = 0;
    for (int round = 0; round < 2; round++) {
        uint64_t x = 1 + (uint64_t)round;
        for (int a = 0; a < ANSWERS; a++) {
            struct grammar_state *s = grammar_state_create(g);
            for (int i = 0; i < TOKENS; i++) {
                memset(logits, 0, n * sizeof *logits);
                uint64_t misses = grammar_masks_stats(pool).misses, t0 = clock_ns();
                struct grammar_mask m = grammar_mask_acquire(pool, s);
                uint64_t t1 = clock_ns();
                const struct sample_allowed allowed = {m.bits, NULL};
                (void)sample_token(&greedy, NULL, 0, logits, n, &allowed, NULL);
                uint64_t t2 = clock_ns();
                int32_t id = choose(&m, n, &x);
                grammar_mask_release(pool, &m);
                uint64_t t3 = clock_ns();
                bool on = id >= 0 && grammar_accept(s, id, scratch) == GRAMMAR_GOES_ON;
                uint64_t t4 = clock_ns();
                if (grammar_masks_stats(pool).misses != misses) {
                    computed_ns += t1 - t0;
                    slowest_ns = t1 - t0 > slowest_ns ? t1 - t0 : slowest_ns;
                } else if (round == 1) {
                    found[count] = t1 - t0 + t4 - t3;
                    whole[count++] = t2 - t0 + t4 - t3;
                }
                if (!on)
                    break;
            }
            grammar_state_destroy(s);
        }
        if (round == 0)
            first = grammar_masks_stats(pool);
    }
    uint64_t n_masks = first.misses - before.misses,
             n_computed = grammar_masks_stats(pool).misses - before.misses;
    qsort(found, count, sizeof *found, by_ns);
    qsort(whole, count, sizeof *whole, by_ns);
    printf("%-18s %8.2f %7llu %9.0f %9.0f %8.1f %8.1f %8.1f %8.1f\n",
           name,
           (double)us * 1e-3,
           (unsigned long long)n_masks,
           n_computed ? (double)computed_ns / (double)n_computed * 1e-3 : 0.0,
           (double)slowest_ns * 1e-3,
           (double)found[count / 2] * 1e-3,
           (double)found[count * 99 / 100] * 1e-3,
           (double)whole[count / 2] * 1e-3,
           (double)whole[count * 99 / 100] * 1e-3);
    free(logits);
    grammar_scratch_destroy(scratch);
}

int main(int argc, char **argv)
{
    struct gguf *file;
    struct tokenizer *t;
    struct err_info e = {0};
    struct grammar_vocab *v = NULL;
    struct grammar_masks *pool = NULL;
    if (argc < 2 || gguf_open(argv[1], &file, &e) || tokenizer_create(file, &t, &e)) {
        fprintf(stderr, "usage: grammar_speed TOKENIZER.gguf [N_VOCAB] %s\n", e.text);
        return 1;
    }
    struct words w = {.t = t, .n_own = tokenizer_n_vocab(t)};
    uint32_t n = argc > 2 ? (uint32_t)strtoul(argv[2], NULL, 10) : w.n_own;
    n = n < w.n_own ? w.n_own : n;
    add_words(&w, n);
    const struct grammar_vocab_source source = {n, bytes_of, is_eog, &w};
    uint64_t from = clock_us();
    if (grammar_vocab_create(&source, &v, &e) ||
        grammar_masks_create(v, (size_t)64 << 20, 4, &pool, &e)) {
        fprintf(stderr, "%s\n", e.text);
        return 1;
    }
    printf("%u tokens, trie in %.1f ms\n", n, (double)(clock_us() - from) * 1e-3);
    printf("%-18s %8s %7s %9s %9s %17s %17s\n",
           "",
           "compile",
           "masks",
           "computed",
           "slowest",
           "found + accept",
           "and the choice");
    printf("%-18s %8s %7s %9s %9s %8s %8s %8s %8s\n",
           "",
           "ms",
           "",
           "mean us",
           "us",
           "p50 us",
           "p99 us",
           "p50 us",
           "p99 us");
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        from = clock_us();
        struct grammar *g = make(all[i].kind, all[i].text, v);
        measure(all[i].name, g, pool, n, clock_us() - from);
        grammar_release(g);
    }
    grammar_masks_destroy(pool);
    grammar_vocab_destroy(v);
    for (uint32_t i = w.n_own; i < n; i++)
        free(w.more[i - w.n_own]);
    free(w.more);
    tokenizer_destroy(t);
    gguf_close(file);
    return 0;
}
