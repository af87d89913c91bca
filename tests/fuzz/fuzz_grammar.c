/* Any bytes as a grammar: the first says of which kind, the rest is its text.
 *
 * It is refused with a line, or compiled. Then answers are written under its masks: there is always
 * a token, it is accepted, and the mask is what trying each token says. */
#include "grammar/grammar.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes);

enum { N_VOCAB = 264, EOG = 263 };
static const char *const texts[] = {"ab", "\",\"", "}}", "\xc3\xa9", "00", "{\"a\":", "  "};

static const char *bytes_of(const void *ctx, int32_t id, size_t *n)
{
    static char single[256];
    (void)ctx;
    if (id < 256) {
        single[id] = (char)id;
        *n = 1;
        return single + id;
    }
    *n = id < EOG ? strlen(texts[id - 256]) : 0;
    return id < EOG ? texts[id - 256] : "";
}

static bool is_eog(const void *ctx, int32_t id)
{
    (void)ctx;
    return id == EOG;
}

static struct grammar_vocab *vocab;
static struct grammar_masks *masks;
static struct grammar_scratch *scratch;

static void begin(void)
{
    const struct grammar_vocab_source source = {N_VOCAB, bytes_of, is_eog, NULL};
    if (grammar_vocab_create(&source, &vocab, NULL) ||
        grammar_masks_create(vocab, 1 << 14, 2, &masks, NULL) ||
        !(scratch = grammar_scratch_create()))
        abort();
}

static struct grammar *make(const uint8_t *data, size_t n)
{
    struct grammar_builder *b = grammar_builder_create("fuzz");
    struct grammar *g = NULL;
    struct err_info e = {0};
    const char *text = (const char *)data + 1;
    grammar_node root = 0;
    json_t *schema = NULL;
    switch (n > 0 ? data[0] % 3 : 3) {
    case 0:
        root = grammar_gbnf(b, text, n - 1);
        break;
    case 1:
        root = grammar_regex(b, text, n - 1);
        break;
    case 2:
        if ((schema = json_loadb(text, n - 1, JSON_DECODE_ANY, NULL)))
            root = grammar_json_schema(b, schema, "");
        break;
    default:
        break;
    }
    enum err err = grammar_compile(b, root, vocab, &g, &e);
    if (!err != (g != NULL) || (err && (e.code != err || !e.text[0] || strchr(e.text, '\n'))))
        abort();
    grammar_builder_destroy(b);
    json_decref(schema);
    return g;
}

/* A few tokens that the mask allows; each other one must be refused. */
static void write_answer(struct grammar *g, uint32_t x)
{
    struct grammar_state *s = grammar_state_create(g), *copy = malloc(grammar_state_bytes());
    for (int step = 0; copy && step < 12; step++) {
        int32_t allowed[N_VOCAB], n = 0;
        struct grammar_mask mask = grammar_mask_acquire(masks, s);
        if (mask.none)
            abort();
        for (int32_t i = 0; i < N_VOCAB; i++) {
            bool in_mask = mask.bits[i / 64] >> i % 64 & 1;
            if (in_mask && i != EOG)
                allowed[n++] = i;
            if (i == EOG && in_mask != grammar_complete(s))
                abort();
        }
        grammar_mask_release(masks, &mask);
        if (n == 0)
            break;
        x = x * 1664525u + 1013904223u;
        grammar_state_copy(copy, s);
        int32_t other = (int32_t)(x >> 8 & 0xff);
        bool in_mask = false;
        for (int32_t i = 0; i < n; i++)
            in_mask |= allowed[i] == other;
        if (in_mask != (grammar_accept(copy, other, scratch) != GRAMMAR_REFUSED))
            abort();
        if (grammar_accept(s, allowed[(x >> 16) % (uint32_t)n], scratch) == GRAMMAR_REFUSED)
            abort();
    }
    free(copy);
    grammar_state_destroy(s);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes)
{
    if (!vocab)
        begin();
    struct grammar *g = make(data, n_bytes);
    for (uint32_t i = 0; g && i < 3; i++)
        write_answer(g, i + (uint32_t)n_bytes);
    grammar_release(g);
    return 0;
}
