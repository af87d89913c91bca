/* Sequences whose contexts begin in the same blocks attend together as far as those go, and have
 * the bits that each has alone. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "backend/cpu/cpu.h"
#include "base/mem.h"
#include "few.h"
#include "unit/backend/cpu/drive.h"
#include "unit/backend/cpu/isas.h"

#include <stdlib.h>
#include <string.h>

enum { MOST = 1400, N_SEQS = 14, MOST_ROWS = 24 };

/* A tree of contexts: each begins with blocks of an earlier one, or anew. */
struct tree {
    const struct model *m;
    struct backend *b;
    uint32_t slots, n_used; /* blocks */
    uint32_t tables[N_SEQS][MOST];
    int32_t tokens[N_SEQS][MOST];
    uint32_t length[N_SEQS], shared[N_SEQS]; /* positions */
};

static void grow(struct tree *t, uint32_t s)
{
    const uint32_t parent = s > 0 ? rnd() % s : 0, n_vocab = t->m->hp.n_vocab;
    uint32_t shared = 0; /* most go on where the parent ends, some before, some anew */
    if (s == 1 || (s > 1 && rnd() % 6))
        shared = t->length[parent] - (s > 1 && rnd() % 3 == 0 ? rnd() % t->length[parent] : 0);
    if (shared > MOST - 600)
        shared = MOST - 600;
    t->shared[s] = shared / t->slots * t->slots;
    t->length[s] = t->shared[s] + 1 + rnd() % (rnd() % 4 ? 90 : 300) + (s ? 0 : 450);
    for (uint32_t i = 0; i < MOST; i++) {
        const bool same = i < t->shared[s];
        t->tokens[s][i] = same ? t->tokens[parent][i] : (int32_t)(rnd() % n_vocab);
    }
    for (uint32_t i = 0; i * t->slots < MOST; i++) {
        const bool same = i < t->shared[s] / t->slots;
        t->tables[s][i] = same ? t->tables[parent][i] : t->n_used++;
    }
}

/* Of those rows that want logits, some do not follow each other. */
static bool is_wanted(uint32_t s, uint32_t pos, uint32_t one_in)
{
    return (pos * 7 + s) % 11 % one_in == 0;
}

/* A table of just the blocks that so many positions lie in: nobody may look behind it. */
static uint32_t *exact_table(const struct tree *t, uint32_t s, uint32_t n_pos)
{
    const size_t bytes = (n_pos + t->slots - 1) / t->slots * sizeof(uint32_t);
    uint32_t *table = malloc(bytes);
    return table ? memcpy(table, t->tables[s], bytes) : NULL;
}

/* n[s] rows of each of the sequences order[0 ..]; logits of one in so many of each sequence's to
 * out, if given. */
static void step(struct tree *t,
                 const uint32_t *order,
                 uint32_t n_seqs,
                 const uint32_t *from,
                 const uint32_t *n,
                 uint32_t one_in,
                 float *out)
{
    static struct made made;
    static float *to[N_SEQS * MOST];
    const size_t n_vocab = t->m->hp.n_vocab;
    uint32_t n_wanted = 0, *tables[N_SEQS];
    made_begin(&made);
    for (uint32_t i = 0; i < n_seqs; i++) {
        const uint32_t s = order[i], first = made.batch.n_rows;
        tables[i] = exact_table(t, s, from[s] + n[s]);
        const struct batch_seq seq = {.n_rows = n[s], .first_pos = from[s], .blocks = tables[i]};
        made_add(&made, seq, t->tokens[s]);
        for (uint32_t r = 0; out && r < n[s]; r++) {
            if (!is_wanted(s, from[s] + r, one_in))
                continue;
            to[n_wanted] = out + (s * MOST_ROWS + r) * n_vocab;
            made.wanted[n_wanted++] = first + r;
        }
    }
    made.batch.n_logit_rows = n_wanted;
    float *logits;
    assert_int_equal(t->b->ops->run(t->b, &made.batch, &logits, NULL), OK);
    for (uint32_t i = 0; i < n_wanted; i++)
        memcpy(to[i], logits + i * n_vocab, n_vocab * sizeof *logits);
    for (uint32_t i = 0; i < n_seqs; i++)
        free(tables[i]);
}

static void shuffle(uint32_t *order, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++) {
        const uint32_t with = rnd() % (i + 1);
        order[i] = order[with];
        order[with] = i;
    }
}

/* One row of each sequence, or a few, or of some a part of a prompt; of all of them at once and of
 * each alone. */
static void check_step(struct tree *t, float *together, float *alone)
{
    uint32_t order[N_SEQS], n[N_SEQS];
    const size_t floats = (size_t)N_SEQS * MOST_ROWS * t->m->hp.n_vocab;
    const uint32_t kind = rnd() % 3, one_in = 1 + rnd() % 3;
    memset(together, 0, floats * sizeof *together);
    memset(alone, 0, floats * sizeof *alone);
    for (uint32_t s = 0; s < N_SEQS; s++) {
        const uint32_t most = kind == 0 ? 1 : kind == 2 && rnd() % 4 == 0 ? MOST_ROWS : 4;
        n[s] = 1 + rnd() % most;
    }
    shuffle(order, N_SEQS);
    step(t, order, N_SEQS, t->length, n, one_in, together);
    for (uint32_t s = 0; s < N_SEQS; s++)
        step(t, &s, 1, t->length, n, one_in, alone);
    assert_memory_equal(together, alone, floats * sizeof *alone);
    for (uint32_t s = 0; s < N_SEQS; s++)
        t->length[s] += n[s];
}

/* Whether they did share. */
static bool check(const char *name, const char *isa, enum kv_type type, uint32_t n)
{
    static const uint32_t threads[] = {1, 2, 3}, slots[] = {16, 8, 36, 64, 1};
    struct tree *t = mem_zalloc(1, sizeof *t);
    t->m = load_golden(name);
    t->slots = slots[n % COUNT(slots)];
    for (uint32_t s = 0; s < N_SEQS; s++)
        grow(t, s);
    const struct backend_config cfg = {.n_threads = threads[n % COUNT(threads)],
                                       .kv_type = type,
                                       .n_blocks = t->n_used,
                                       .block_tokens = t->slots,
                                       .max_rows = MOST,
                                       .max_seqs = N_SEQS,
                                       .max_logit_rows = N_SEQS * MOST_ROWS};
    setenv("WEIR_ISA", isa, 1);
    assert_int_equal(cpu_backend_create(t->m, &cfg, &t->b, NULL), OK);
    const struct cpu_backend *b = (const struct cpu_backend *)t->b;
    for (uint32_t s = 0; s < N_SEQS; s++) {
        uint32_t own[N_SEQS];
        own[s] = t->length[s] - t->shared[s];
        step(t, &s, 1, t->shared, own, 1, NULL);
    }
    const size_t floats = (size_t)N_SEQS * MOST_ROWS * t->m->hp.n_vocab;
    float *all = mem_alloc(floats * sizeof *all), *alone = mem_alloc(floats * sizeof *alone);
    uint32_t order[N_SEQS], one[N_SEQS];
    for (uint32_t s = 0; s < N_SEQS; s++)
        order[s] = s, one[s] = 1;
    step(t, order, N_SEQS, t->length, one, 1, all);
    const bool shares = b->all_shared.n_tiles > 0 && b->all_shared.n_tiles < b->all_tiles.n_tiles;
    for (int i = 0; i < 5; i++)
        check_step(t, all, alone);
    t->b->ops->destroy(t->b);
    model_destroy((struct model *)t->m);
    free(all);
    free(alone);
    free(t);
    return shares;
}

static void bits_are_those_of_each_alone(void **state)
{
    (void)state;
    static const char *const names[] = {"architectures/qwen3.f32",
                                        "families/llama-wide.f32",
                                        "families/deepseek2-wide.f32",
                                        "architectures/gemma3.f32",
                                        "families/mimo2.f32",
                                        "families/llama-heads-of-20.f32",
                                        "families/bloom.f32"};
    uint32_t n_shared = 0, n_cases = 0;
    for (size_t i = 0; i < COUNT(isas); i++) {
        for (size_t n = 0; n < COUNT(names); n++) {
            const enum kv_type type = (enum kv_type)(rnd() % 4);
            if (few_shapes() && (n + i) % 3)
                continue;
            n_shared += check(names[n], isas[i], type, rnd());
            n_cases++;
        }
    }
    assert_true(2 * n_shared > n_cases); /* where one tile would be all that there is they do not */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bits_are_those_of_each_alone),
    };
    return cmocka_run_group_tests(tests, start, NULL);
}
