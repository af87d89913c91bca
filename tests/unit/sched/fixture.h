/* A scheduler over a KV memory without bytes, and sequences with texts of their own. */
#ifndef WEIR_TESTS_UNIT_SCHED_FIXTURE_H
#define WEIR_TESTS_UNIT_SCHED_FIXTURE_H

#include "sched/sched.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define BLOCK_TOKENS 16
#define MAX_SEQS 16
#define MAX_TOKENS 1100

struct fixture {
    struct kv *kv;
    struct sched *sched;
    struct sched_seq seqs[MAX_SEQS];
    int32_t tokens[MAX_SEQS][MAX_TOKENS];
    uint32_t n_seqs;
    struct sched_plan plan;
};

static inline struct sched_config default_config(void)
{
    return (struct sched_config){.max_running = 8,
                                 .max_waiting = 4,
                                 .max_rows = 256,
                                 .max_logit_rows = 64,
                                 .max_blocks_per_seq = 100};
}

static inline void copy_block(void *ctx, struct kv_place from, struct kv_place to)
{
    (void)ctx;
    assert_int_not_equal(from.block, to.block);
}

static inline struct kv *open_kv(uint32_t n_blocks, uint32_t window, uint32_t n_panes)
{
    struct kv_config kc = {.n_blocks = n_blocks,
                           .block_tokens = BLOCK_TOKENS,
                           .mover = {.copy = copy_block},
                           .window = window,
                           .n_panes = n_panes};
    struct kv *kv;
    assert_int_equal(kv_create(&kc, &kv, NULL), OK);
    return kv;
}

static inline struct fixture *start_with_windows(
    void **state, struct sched_config cfg, uint32_t n_blocks, uint32_t window, uint32_t n_panes)
{
    struct fixture *f = calloc(1, sizeof *f);
    *state = f;
    f->kv = open_kv(n_blocks, window, n_panes);
    assert_int_equal(sched_create(&cfg, f->kv, &f->sched, NULL), OK);
    return f;
}

static inline struct fixture *start(void **state, struct sched_config cfg, uint32_t n_blocks)
{
    return start_with_windows(state, cfg, n_blocks, 0, 0);
}

static inline int teardown(void **state)
{
    struct fixture *f = *state;
    if (f) {
        sched_destroy(f->sched);
        kv_destroy(f->kv);
        free(f);
    }
    return 0;
}

static inline void check(struct fixture *f)
{
    struct err_info e = {0};
    if (sched_check(f->sched, &e) != OK)
        fail_msg("%s", e.text);
}

/* Every sequence has a text of its own. */
static inline struct sched_seq *seq(struct fixture *f, uint32_t n_prompt, uint32_t n_max)
{
    uint32_t i = f->n_seqs++;
    struct sched_seq *s = &f->seqs[i];
    for (uint32_t k = 0; k < MAX_TOKENS; k++)
        f->tokens[i][k] = (int32_t)(MAX_TOKENS * i + k);
    s->tokens = f->tokens[i];
    s->n_prompt = n_prompt;
    s->n_max = n_max;
    s->shares = true;
    return s;
}

/* As above, and its first n_same tokens are those of `like`. */
static inline struct sched_seq *add_like(struct fixture *f,
                                         const struct sched_seq *like,
                                         uint32_t n_same,
                                         uint32_t n_prompt,
                                         uint32_t n_max)
{
    uint32_t i = f->n_seqs;
    struct sched_seq *s = seq(f, n_prompt, n_max);
    memcpy(f->tokens[i], like->tokens, n_same * sizeof(int32_t));
    assert_int_equal(sched_add(f->sched, s, NULL), OK);
    return s;
}

static inline struct sched_seq *add(struct fixture *f, uint32_t n_prompt, uint32_t n_max)
{
    struct sched_seq *s = seq(f, n_prompt, n_max);
    assert_int_equal(sched_add(f->sched, s, NULL), OK);
    return s;
}

static inline struct sched_seq *add_of(struct fixture *f,
                                       uint32_t tenant,
                                       uint32_t n_prompt,
                                       uint32_t n_max)
{
    struct sched_seq *s = seq(f, n_prompt, n_max);
    s->tenant = tenant;
    assert_int_equal(sched_add(f->sched, s, NULL), OK);
    return s;
}

/* Plan a step and run it: every item computed, every sample appended while there is room. */
static inline void step(struct fixture *f, uint32_t row_budget)
{
    sched_plan_step(f->sched, row_budget, &f->plan);
    check(f);
    for (uint32_t i = 0; i < f->plan.n_items; i++) {
        const struct sched_item *item = &f->plan.items[i];
        sched_computed(f->sched, item);
        if (item->samples && item->seq->n_known < item->seq->n_max)
            sched_append(item->seq);
    }
    check(f);
}

static inline uint32_t rows_of(const struct fixture *f, const struct sched_seq *s)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < f->plan.n_items; i++)
        if (f->plan.items[i].seq == s)
            n += f->plan.items[i].n_rows;
    return n;
}

#endif
