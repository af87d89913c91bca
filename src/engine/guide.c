#include "engine/guide.h"

#include "base/log.h"
#include "base/mem.h"
#include "base/thread.h"

#include <pthread.h>
#include <stdlib.h>

#define POOL_BYTES ((size_t)64 << 20)
/* Masks held at once: one a worker, and one for each thread that begins a request. */
#define MAX_PINNED 256
#define MAX_ORDERS 256u

/* Masks to be computed. States are copies, so a request may end meanwhile. */
struct order {
    struct grammar *grammar; /* a reference */
    struct grammar_state *state;
    uint32_t left;
};

struct guide {
    const struct tokenizer *tokenizer;
    uint32_t n_vocab;
    pthread_mutex_t lock; /* everything below */
    pthread_cond_t cond;
    struct grammar_vocab *vocab; /* NULL until the first grammar; then all of this is there */
    struct grammar_masks *pool;
    struct grammar_scratch *scratch; /* the engine thread's */
    pthread_t thread;
    bool has_thread, stopping;
    struct order *orders; /* [n_places], a ring */
    uint32_t n_places, head, n_orders;
};

static const char *text_of(const void *ctx, int32_t id, size_t *n_bytes)
{
    const struct tokenizer *t = ctx;
    *n_bytes = 0;
    return tokenizer_is_text(t, id) ? tokenizer_bytes(t, id, false, n_bytes) : "";
}

static bool ends_text(const void *ctx, int32_t id)
{
    return tokenizer_is_eog(ctx, id);
}

/* ---- the thread ---- */

/* Compute what was ordered, oldest first. */
static void *guide_main(void *arg)
{
    struct guide *g = arg;
    struct grammar_state *state = mem_alloc(grammar_state_bytes());
    pthread_mutex_lock(&g->lock);
    while (!g->stopping) {
        if (g->n_orders == 0) {
            pthread_cond_wait(&g->cond, &g->lock);
            continue;
        }
        struct order *o = &g->orders[g->head];
        struct grammar *grammar = o->grammar;
        uint32_t left = o->left;
        grammar_state_copy(state, o->state);
        g->head = (g->head + 1) % g->n_places;
        g->n_orders--;
        pthread_mutex_unlock(&g->lock);
        struct grammar_mask mask = grammar_mask_acquire_within(g->pool, state, left);
        grammar_mask_release(g->pool, &mask);
        grammar_release(grammar);
        pthread_mutex_lock(&g->lock);
    }
    pthread_mutex_unlock(&g->lock);
    free(state);
    return NULL;
}

/* Without a place for the order the mask is computed when it is needed. */
static void order_mask(struct guide *g, const struct grammar_state *s, uint32_t left)
{
    pthread_mutex_lock(&g->lock);
    if (g->n_orders < g->n_places) {
        struct order *o = &g->orders[(g->head + g->n_orders++) % g->n_places];
        grammar_state_copy(o->state, s);
        o->grammar = grammar_acquire(grammar_of(s));
        o->left = left;
        pthread_cond_signal(&g->cond);
    }
    pthread_mutex_unlock(&g->lock);
}

/* ---- life ---- */

struct guide *guide_create(const struct tokenizer *t, uint32_t n_vocab, uint32_t max_running)
{
    struct guide *g = mem_zalloc(1, sizeof *g);
    g->tokenizer = t;
    g->n_vocab = n_vocab;
    g->n_places = max_running < MAX_ORDERS ? max_running : MAX_ORDERS;
    pthread_mutex_init(&g->lock, NULL);
    pthread_cond_init(&g->cond, NULL);
    return g;
}

void guide_destroy(struct guide *g)
{
    if (!g)
        return;
    if (g->has_thread) {
        pthread_mutex_lock(&g->lock);
        g->stopping = true;
        pthread_cond_signal(&g->cond);
        pthread_mutex_unlock(&g->lock);
        pthread_join(g->thread, NULL);
    }
    for (; g->n_orders > 0; g->n_orders--, g->head = (g->head + 1) % g->n_places)
        grammar_release(g->orders[g->head].grammar);
    for (uint32_t i = 0; g->orders && i < g->n_places; i++)
        free(g->orders[i].state);
    free(g->orders);
    grammar_scratch_destroy(g->scratch);
    grammar_masks_destroy(g->pool);
    grammar_vocab_destroy(g->vocab);
    pthread_mutex_destroy(&g->lock);
    pthread_cond_destroy(&g->cond);
    free(g);
}

/* What the first grammar needs; with the lock held. */
static enum err equip(struct guide *g, struct err_info *e)
{
    const struct grammar_vocab_source source = {
        .n = g->n_vocab, .bytes = text_of, .is_eog = ends_text, .ctx = g->tokenizer};
    struct grammar_vocab *vocab = NULL;
    enum err err = grammar_vocab_create(&source, &vocab, e);
    if (!err && !g->pool)
        err = grammar_masks_create(vocab, POOL_BYTES, MAX_PINNED, &g->pool, e);
    if (!err && !g->scratch && !(g->scratch = grammar_scratch_create()))
        err = err_set(e, ERR_NOMEM, "no memory for grammars");
    if (err) {
        grammar_masks_destroy(g->pool); /* it points to the vocabulary */
        g->pool = NULL;
        grammar_vocab_destroy(vocab);
        return err;
    }
    g->orders = mem_zalloc(g->n_places, sizeof *g->orders);
    for (uint32_t i = 0; i < g->n_places; i++)
        g->orders[i].state = mem_alloc(grammar_state_bytes());
    g->has_thread = thread_start(&g->thread, guide_main, g) == 0;
    if (!g->has_thread) {
        log_warn("no thread for masks: they are computed when they are needed");
        for (uint32_t i = 0; i < g->n_places; i++)
            free(g->orders[i].state);
        g->n_places = 0;
    }
    g->vocab = vocab;
    return OK;
}

enum err guide_vocab(struct guide *g, const struct grammar_vocab **out, struct err_info *e)
{
    pthread_mutex_lock(&g->lock);
    enum err err = g->vocab ? OK : equip(g, e);
    *out = g->vocab;
    pthread_mutex_unlock(&g->lock);
    return err;
}

struct grammar_state *guide_begin(struct guide *g, struct grammar *grammar)
{
    struct grammar_state *s = grammar_state_create(grammar);
    struct grammar_mask mask = grammar_mask_acquire(g->pool, s);
    grammar_mask_release(g->pool, &mask);
    return s;
}

/* ---- at work ---- */

struct grammar_mask guide_mask(struct guide *g,
                               const struct grammar_state *s,
                               uint32_t left,
                               bool no_end)
{
    struct grammar_mask mask = grammar_mask_acquire_within(g->pool, s, left);
    mask.but = no_end ? grammar_vocab_eog(g->vocab) : NULL;
    return mask;
}

bool guide_allows(const struct grammar_mask *m, token_id token)
{
    uint32_t id = (uint32_t)token;
    uint64_t word = m->bits[id / 64] & ~(m->but ? m->but[id / 64] : 0);
    return word >> id % 64 & 1;
}

void guide_release(struct guide *g, struct grammar_mask *mask, token_id *chosen)
{
    if (*chosen >= 0 && !guide_allows(mask, *chosen)) {
        uint32_t id = 0;
        while (id < g->n_vocab && !guide_allows(mask, (token_id)id))
            id++;
        *chosen = id < g->n_vocab ? (token_id)id : TOKEN_NONE;
    }
    grammar_mask_release(g->pool, mask);
}

enum grammar_step guide_accept(struct guide *g,
                               struct grammar_state *s,
                               token_id token,
                               uint32_t left)
{
    enum grammar_step to = grammar_accept(s, token, g->scratch);
    if (to == GRAMMAR_GOES_ON && left > 0 && !grammar_mask_ready(g->pool, s, left))
        order_mask(g, s, left);
    return to;
}

struct grammar_mask_stats guide_stats(struct guide *g)
{
    struct grammar_mask_stats none = {0};
    pthread_mutex_lock(&g->lock);
    struct grammar_masks *pool = g->vocab ? g->pool : NULL;
    pthread_mutex_unlock(&g->lock);
    return pool ? grammar_masks_stats(pool) : none;
}
