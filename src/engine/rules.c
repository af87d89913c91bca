#include "engine/rules.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

struct token_rules {
    _Atomic(uint32_t) n_refs;
    uint32_t n_vocab;
    /* words of more than one token: each is its length, and so many ids */
    struct token_list words;
    uint64_t may[]; /* [n_words] bits of tokens that may come, zeros behind the vocabulary */
};

size_t token_rules_n_words(const struct token_rules *t)
{
    return ((size_t)t->n_vocab + 63) / 64;
}

enum err token_rules_create(uint32_t n_vocab, struct token_rules **out, struct err_info *e)
{
    const size_t n_words = ((size_t)n_vocab + 63) / 64;
    struct token_rules *t = calloc(1, sizeof *t + n_words * sizeof t->may[0]);
    *out = t;
    if (!t)
        return err_set(e, ERR_NOMEM, "no memory for a mask of %u tokens", n_vocab);
    atomic_init(&t->n_refs, 1);
    t->n_vocab = n_vocab;
    memset(t->may, 0xff, n_words * sizeof t->may[0]);
    if (n_vocab % 64)
        t->may[n_words - 1] = (UINT64_C(1) << n_vocab % 64) - 1;
    return OK;
}

struct token_rules *token_rules_acquire(struct token_rules *t)
{
    if (t)
        atomic_fetch_add_explicit(&t->n_refs, 1, memory_order_relaxed);
    return t;
}

void token_rules_release(struct token_rules *t)
{
    if (!t || atomic_fetch_sub_explicit(&t->n_refs, 1, memory_order_acq_rel) != 1)
        return;
    token_list_deinit(&t->words);
    free(t);
}

static bool is_token(const struct token_rules *t, token_id id)
{
    return id >= 0 && (uint32_t)id < t->n_vocab;
}

void token_rules_allow_only(struct token_rules *t, const token_id *ids, size_t n)
{
    memset(t->may, 0, token_rules_n_words(t) * sizeof t->may[0]);
    for (size_t i = 0; i < n; i++)
        if (is_token(t, ids[i]))
            t->may[ids[i] / 64] |= UINT64_C(1) << ids[i] % 64;
}

/* It does not come. */
static void rule_out(const struct token_rules *t, uint64_t *may, token_id id)
{
    if (is_token(t, id))
        may[id / 64] &= ~(UINT64_C(1) << id % 64);
}

enum err token_rules_ban(struct token_rules *t, const token_id *ids, size_t n, struct err_info *e)
{
    if (n == 1) {
        rule_out(t, t->may, ids[0]);
        return OK;
    }
    enum err err = token_list_room(&t->words, n + 1, e);
    if (err)
        return err;
    token_list_add(&t->words, (token_id)n);
    for (size_t i = 0; i < n; i++)
        token_list_add(&t->words, ids[i]);
    return OK;
}

bool token_rules_any(const struct token_rules *t)
{
    for (size_t i = 0; i < token_rules_n_words(t); i++)
        if (t->may[i])
            return true;
    return false;
}

/* The last tokens of words of which all others were just said. */
static void rule_out_words(const struct token_rules *t,
                           const token_id *said,
                           size_t n_said,
                           uint64_t *may)
{
    for (size_t i = 0; i < t->words.n;) {
        const token_id *ids = t->words.ids + i + 1;
        const size_t n = (size_t)t->words.ids[i], n_before = n - 1;
        if (n_before <= n_said &&
            memcmp(said + n_said - n_before, ids, n_before * sizeof *ids) == 0)
            rule_out(t, may, ids[n_before]);
        i += n + 1;
    }
}

bool token_rules_may(const uint64_t *may, token_id id)
{
    return may[id / 64] >> id % 64 & 1;
}

bool token_rules_mask(const struct token_rules *t,
                      const token_id *said,
                      size_t n_said,
                      const struct sample_allowed *also,
                      uint64_t *may)
{
    const size_t n = token_rules_n_words(t);
    uint64_t any = 0;
    memcpy(may, t->may, n * sizeof *may);
    for (size_t i = 0; also->bits && i < n; i++)
        may[i] &= also->bits[i];
    for (size_t i = 0; also->bits && also->but && i < n; i++)
        may[i] &= ~also->but[i];
    rule_out_words(t, said, n_said, may);
    for (size_t i = 0; i < n; i++)
        any |= may[i];
    return any != 0;
}
