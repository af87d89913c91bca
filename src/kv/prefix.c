#include "kv/prefix.h"

#include "base/mem.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

enum { SPACE_WORDS = KV_KEY_BYTES / 4 };

/* A child tree is named by a reference: a block (a leaf), an inner node, or nothing. */
#define REF_NONE UINT32_MAX
#define REF_INNER 0x80000000u /* the rest is an index into inner[] */

/* A place in the index; `children` is the root of its crit-bit tree. */
struct node {
    uint32_t parent;
    uint32_t children;
    uint32_t n_children;
    uint32_t n_tokens; /* 0: not in the index */
};

/* Words of a key are counted from the first token; below the root the space goes before them. All
 * keys below one inner node agree in every bit before `bit`; this one, counted from the highest of
 * word 0, decides between the two. */
struct inner {
    uint32_t child[2]; /* child[0] links the spare ones */
    uint32_t bit;
};

struct kv_prefix {
    uint32_t n_blocks;
    uint32_t block_tokens;
    struct node *nodes;    /* [n_blocks] */
    int32_t *tokens;       /* [n_blocks, block_tokens] unused ones are NO_TOKEN */
    struct kv_key *spaces; /* [n_blocks] of those below the root */
    struct inner *inner;   /* [n_blocks] a tree of n leaves has n - 1 */
    uint32_t spare_inner;
    struct node root;
    uint32_t n_in_index;
};

/* Fills up a key: no token is equal to it, so a shorter key is never the beginning of a longer. */
#define NO_TOKEN (-1)

/* What is looked up, or lies at a leaf. */
struct words {
    const struct kv_key *space; /* NULL: not below the root */
    const int32_t *tokens;
    uint32_t n; /* tokens; NO_TOKEN from there on */
};

static uint32_t word_at(const struct words *w, uint32_t i)
{
    if (w->space) {
        if (i < SPACE_WORDS) {
            uint32_t word;
            memcpy(&word, w->space->bytes + 4 * (size_t)i, sizeof word);
            return word;
        }
        i -= SPACE_WORDS;
    }
    return (uint32_t)(i < w->n ? w->tokens[i] : NO_TOKEN);
}

static uint32_t bit_at(const struct words *w, uint32_t bit)
{
    return word_at(w, bit / 32) >> (31 - bit % 32) & 1;
}

static struct node *node_of(struct kv_prefix *x, uint32_t block)
{
    return block == KV_ROOT ? &x->root : &x->nodes[block];
}

static const struct node *const_node_of(const struct kv_prefix *x, uint32_t block)
{
    return block == KV_ROOT ? &x->root : &x->nodes[block];
}

static int32_t *tokens_of(const struct kv_prefix *x, uint32_t block)
{
    return x->tokens + (size_t)block * x->block_tokens;
}

static struct words leaf_words(const struct kv_prefix *x, uint32_t block)
{
    return (struct words){.space = x->nodes[block].parent == KV_ROOT ? &x->spaces[block] : NULL,
                          .tokens = tokens_of(x, block),
                          .n = x->block_tokens};
}

enum err kv_prefix_create(uint32_t n_blocks,
                          uint32_t block_tokens,
                          struct kv_prefix **out,
                          struct err_info *e)
{
    *out = NULL;
    if (n_blocks >= REF_INNER || block_tokens > KV_MAX_BLOCK_TOKENS)
        return err_set(e,
                       ERR_INVALID,
                       "a prefix index takes at most %u blocks of %u tokens, not %u of %u",
                       REF_INNER - 1,
                       KV_MAX_BLOCK_TOKENS,
                       n_blocks,
                       block_tokens);
    struct kv_prefix *x = mem_zalloc(1, sizeof *x);
    x->n_blocks = n_blocks;
    x->block_tokens = block_tokens;
    x->nodes = calloc(n_blocks, sizeof *x->nodes);
    x->tokens = calloc(n_blocks, block_tokens * sizeof *x->tokens);
    x->spaces = calloc(n_blocks, sizeof *x->spaces);
    x->inner = calloc(n_blocks, sizeof *x->inner);
    if (!x->nodes || !x->tokens || !x->spaces || !x->inner) {
        kv_prefix_destroy(x);
        return err_set(e, ERR_NOMEM, "no memory for an index of %u KV blocks", n_blocks);
    }
    for (uint32_t i = 0; i < n_blocks; i++)
        x->inner[i].child[0] = i + 1 < n_blocks ? i + 1 : REF_NONE;
    x->root.children = REF_NONE;
    *out = x;
    return OK;
}

void kv_prefix_destroy(struct kv_prefix *x)
{
    if (!x)
        return;
    free(x->nodes);
    free(x->tokens);
    free(x->spaces);
    free(x->inner);
    free(x);
}

/* The leaf that a key's bits lead to: none has more of its beginning. */
static uint32_t follow(const struct kv_prefix *x, uint32_t ref, const struct words *key)
{
    while (ref & REF_INNER) {
        const struct inner *in = &x->inner[ref & ~REF_INNER];
        ref = in->child[bit_at(key, in->bit)];
    }
    return ref;
}

/* How many tokens two keys begin with; 0 if they differ in space. */
static uint32_t common_tokens(const struct words *a, const struct words *b)
{
    if (a->space && !kv_key_equal(a->space, b->space))
        return 0;
    uint32_t i = 0;
    while (i < a->n && a->tokens[i] == b->tokens[i])
        i++;
    return i;
}

uint32_t kv_prefix_best(const struct kv_prefix *x,
                        uint32_t parent,
                        const struct kv_key *space,
                        const int32_t *tokens,
                        uint32_t n,
                        uint32_t *block)
{
    uint32_t children = const_node_of(x, parent)->children;
    *block = KV_ROOT;
    if (children == REF_NONE)
        return 0;
    struct words key = {parent == KV_ROOT ? space : NULL, tokens, n};
    uint32_t leaf = follow(x, children, &key);
    struct words found = leaf_words(x, leaf);
    uint32_t common = common_tokens(&key, &found);
    if (common > 0)
        *block = leaf;
    return common;
}

/* The first bit in which two different keys differ. */
static uint32_t first_difference(const struct words *a, const struct words *b)
{
    uint32_t i = 0;
    while (word_at(a, i) == word_at(b, i))
        i++;
    return 32 * i + (uint32_t)__builtin_clz(word_at(a, i) ^ word_at(b, i));
}

static uint32_t take_inner(struct kv_prefix *x)
{
    uint32_t i = x->spare_inner;
    assert(i != REF_NONE);
    x->spare_inner = x->inner[i].child[0];
    return i;
}

/* Hang a leaf into the child tree at *ref, above everything that is decided by a later bit. */
static void hang_in(struct kv_prefix *x, uint32_t *ref, uint32_t block)
{
    if (*ref == REF_NONE) {
        *ref = block;
        return;
    }
    struct words key = leaf_words(x, block);
    struct words nearest = leaf_words(x, follow(x, *ref, &key));
    uint32_t bit = first_difference(&key, &nearest);
    while (*ref & REF_INNER && x->inner[*ref & ~REF_INNER].bit < bit) {
        struct inner *in = &x->inner[*ref & ~REF_INNER];
        ref = &in->child[bit_at(&key, in->bit)];
    }
    uint32_t i = take_inner(x), side = bit_at(&key, bit);
    x->inner[i].bit = bit;
    x->inner[i].child[side] = block;
    x->inner[i].child[!side] = *ref;
    *ref = REF_INNER | i;
}

void kv_prefix_insert(struct kv_prefix *x,
                      uint32_t parent,
                      const struct kv_key *space,
                      uint32_t block,
                      const int32_t *tokens,
                      uint32_t n)
{
    struct node *p = node_of(x, parent), *b = &x->nodes[block];
    int32_t *mine = tokens_of(x, block);
    assert(b->n_tokens == 0 && n > 0 && n <= x->block_tokens);
    assert(parent == KV_ROOT || p->n_tokens == x->block_tokens);
    *b = (struct node){.parent = parent, .children = REF_NONE, .n_tokens = n};
    if (parent == KV_ROOT)
        x->spaces[block] = *space;
    memcpy(mine, tokens, n * sizeof *mine);
    for (uint32_t i = n; i < x->block_tokens; i++)
        mine[i] = NO_TOKEN;
    hang_in(x, &p->children, block);
    p->n_children++;
    x->n_in_index++;
}

void kv_prefix_remove(struct kv_prefix *x, uint32_t block)
{
    struct node *b = &x->nodes[block], *p = node_of(x, b->parent);
    assert(b->n_tokens > 0 && b->n_children == 0);
    struct words key = leaf_words(x, block);
    uint32_t *ref = &p->children, *above = NULL;
    while (*ref & REF_INNER) {
        struct inner *in = &x->inner[*ref & ~REF_INNER];
        above = ref;
        ref = &in->child[bit_at(&key, in->bit)];
    }
    assert(*ref == block);
    if (above) { /* the sibling takes the place of the inner node above both */
        uint32_t i = *above & ~REF_INNER;
        *above = x->inner[i].child[ref == &x->inner[i].child[0]];
        x->inner[i].child[0] = x->spare_inner;
        x->spare_inner = i;
    } else {
        *ref = REF_NONE;
    }
    p->n_children--;
    b->n_tokens = 0;
    x->n_in_index--;
}

uint32_t kv_prefix_n_tokens(const struct kv_prefix *x, uint32_t block)
{
    return x->nodes[block].n_tokens;
}

uint32_t kv_prefix_parent(const struct kv_prefix *x, uint32_t block)
{
    return x->nodes[block].parent;
}

uint32_t kv_prefix_n_children(const struct kv_prefix *x, uint32_t block)
{
    return x->nodes[block].n_children;
}

const int32_t *kv_prefix_tokens(const struct kv_prefix *x, uint32_t block)
{
    return tokens_of(x, block);
}

const struct kv_key *kv_prefix_space(const struct kv_prefix *x, uint32_t block)
{
    return &x->spaces[block];
}

uint32_t kv_prefix_n_blocks(const struct kv_prefix *x)
{
    return x->n_in_index;
}

/* --- kv_prefix_check ------------------------------------------------------------------------- */

static enum err check_node(const struct kv_prefix *x, uint32_t id, struct err_info *e)
{
    const struct node *b = &x->nodes[id];
    if (b->n_tokens > x->block_tokens || (b->n_children > 0 && b->n_tokens < x->block_tokens))
        return err_set(e,
                       ERR_INTERNAL,
                       "KV block %u is published with %u tokens and has %u children",
                       id,
                       b->n_tokens,
                       b->n_children);
    if (b->parent != KV_ROOT && (b->parent >= x->n_blocks || !x->nodes[b->parent].n_tokens))
        return err_set(e, ERR_INTERNAL, "KV block %u hangs below %u: not there", id, b->parent);
    struct words key = leaf_words(x, id);
    uint32_t children = const_node_of(x, b->parent)->children;
    if (children == REF_NONE || follow(x, children, &key) != id)
        return err_set(e, ERR_INTERNAL, "KV block %u is not found below its parent", id);
    return OK;
}

enum err kv_prefix_check(const struct kv_prefix *x, struct err_info *e)
{
    uint64_t n = 0, children = x->root.n_children, inner = 0;
    inner += x->root.n_children > 1 ? x->root.n_children - 1 : 0;
    for (uint32_t id = 0; id < x->n_blocks; id++) {
        if (x->nodes[id].n_tokens == 0)
            continue;
        enum err err = check_node(x, id, e);
        if (err != OK)
            return err;
        uint32_t k = x->nodes[id].n_children;
        n++;
        children += k;
        inner += k > 1 ? k - 1 : 0;
    }
    uint32_t spare = 0;
    for (uint32_t i = x->spare_inner; i != REF_NONE && spare <= x->n_blocks;
         i = x->inner[i].child[0])
        spare++;
    if (n != x->n_in_index || children != n || inner + spare != x->n_blocks)
        return err_set(e,
                       ERR_INTERNAL,
                       "prefix index: %u blocks, counted %llu with %llu children, %llu + %u inner",
                       x->n_in_index,
                       (unsigned long long)n,
                       (unsigned long long)children,
                       (unsigned long long)inner,
                       spare);
    return OK;
}
